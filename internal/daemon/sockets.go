// SPDX-License-Identifier: Apache-2.0

package daemon

import (
	"errors"
	"fmt"
	"net"
	"os"
	"strings"

	"github.com/coreos/go-systemd/v22/activation"
	"github.com/doorward/doorward/internal/peer"
	"golang.org/x/sys/unix"
)

// A passed socket is one of three, and a daemon claims each as what it is: only a Unix listener has a kernel that says who
// connects. Behind the other two is whoever reaches them.
type passedSocket struct {
	unix *peer.Listener
	tcp  *net.TCPListener
	udp  *net.UDPConn
}

// sockets takes the sockets that were passed. A daemon makes none itself: systemd made each with its final owner and
// mode before anybody could connect.
func sockets(env map[string]string, p *Process) (map[string]passedSocket, error) {
	files := activation.Files(true)
	out := map[string]passedSocket{}
	var errs []error
	for _, f := range files {
		name := f.Name()
		s, err := p.take(f)
		_ = f.Close()
		_, twice := out[name]
		switch {
		case err != nil:
			errs = append(errs, fmt.Errorf("take the passed socket %q: %w", name, err))
		case strings.HasPrefix(name, "LISTEN_FD_"):
			errs = append(errs, fmt.Errorf("take the passed sockets: one has no name; set FileDescriptorName="))
		case twice:
			errs = append(errs, fmt.Errorf("take the passed sockets: two are named %q", name))
		default:
			out[name] = s
		}
	}
	if len(errs) == 0 && len(files) == 0 && env["LISTEN_FDS"] != "" {
		errs = append(errs, fmt.Errorf("take the passed sockets: LISTEN_PID=%q is not this process", env["LISTEN_PID"]))
	}
	return out, errors.Join(errs...)
}

// take takes a duplicate of one socket, by what the kernel says that it is (socket(7)).
func (p *Process) take(f *os.File) (passedSocket, error) {
	bad := func(err error) (passedSocket, error) { return passedSocket{}, err }
	kind, err := unix.GetsockoptInt(int(f.Fd()), unix.SOL_SOCKET, unix.SO_TYPE)
	if err != nil {
		return bad(err)
	}
	if kind == unix.SOCK_DGRAM {
		c, err := net.FilePacketConn(f)
		if err != nil {
			return bad(err)
		}
		udp, ok := c.(*net.UDPConn)
		if !ok {
			_ = c.Close()
			return bad(fmt.Errorf("it is a %T, not a UDP socket", c))
		}
		return passedSocket{udp: udp}, nil
	}
	ln, err := net.FileListener(f)
	if err != nil {
		return bad(err)
	}
	switch ln := ln.(type) {
	case *net.TCPListener:
		return passedSocket{tcp: ln}, nil
	case *net.UnixListener:
		ln.SetUnlinkOnClose(false)
		name, strangers := f.Name(), new(brake)
		return passedSocket{unix: peer.NewListener(ln, p.Kernel, func(err error) {
			if strangers.ok() {
				p.Log.Warn("refused a stranger", KeySocket, name, KeyReason, err.Error())
			}
		})}, nil
	}
	_ = ln.Close()
	return bad(fmt.Errorf("it is a %T, neither a Unix stream socket nor TCP", ln))
}

// Listener claims the Unix socket of that FileDescriptorName. One that was not passed, or is none, is an error.
func (p *Process) Listener(name string) (*peer.Listener, error) {
	s, err := p.claim(name)
	if err == nil && s.unix == nil {
		err = fmt.Errorf("socket %q is no Unix stream socket: see ListenStream= of its unit", name)
	}
	return s.unix, err
}

// TCPListener claims the TCP listener of that FileDescriptorName. Who connects to it nobody says.
func (p *Process) TCPListener(name string) (*net.TCPListener, error) {
	s, err := p.claim(name)
	if err == nil && s.tcp == nil {
		err = fmt.Errorf("socket %q is no TCP listener: see ListenStream= of its unit", name)
	}
	return s.tcp, err
}

// UDPConn claims the UDP socket of that FileDescriptorName. Who sends to it nobody says.
func (p *Process) UDPConn(name string) (*net.UDPConn, error) {
	s, err := p.claim(name)
	if err == nil && s.udp == nil {
		err = fmt.Errorf("socket %q is no UDP socket: see ListenDatagram= of its unit", name)
	}
	return s.udp, err
}

func (p *Process) claim(name string) (passedSocket, error) {
	s, ok := p.sockets[name]
	if !ok {
		return s, fmt.Errorf("socket %q was not passed; start the daemon by its .socket unit (pid %d)", name, os.Getpid())
	}
	if p.claimed[name] {
		return passedSocket{}, fmt.Errorf("socket %q is served twice", name)
	}
	p.claimed[name] = true
	return s, nil
}
