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
)

// sockets takes the sockets that were passed. A daemon makes none itself: systemd made each with its final owner and
// mode before anybody could connect.
func sockets(env map[string]string, p *Process) (map[string]*peer.Listener, error) {
	files := activation.Files(true)
	out := map[string]*peer.Listener{}
	var errs []error
	for _, f := range files {
		name := f.Name()
		ln, err := net.FileListener(f) // a duplicate
		_ = f.Close()
		if err != nil {
			errs = append(errs, fmt.Errorf("take the passed socket %q: %w", name, err))
			continue
		}
		ul, ok := ln.(*net.UnixListener)
		if !ok {
			errs = append(errs, fmt.Errorf("take the passed socket %q: it is a %T, not a Unix stream socket", name, ln))
			continue
		}
		ul.SetUnlinkOnClose(false)
		if strings.HasPrefix(name, "LISTEN_FD_") {
			errs = append(errs, fmt.Errorf("take the passed sockets: one has no name; set FileDescriptorName="))
			continue
		}
		if out[name] != nil {
			errs = append(errs, fmt.Errorf("take the passed sockets: two are named %q", name))
			continue
		}
		strangers := new(brake)
		out[name] = peer.NewListener(ul, p.Kernel, func(err error) {
			if strangers.ok() {
				p.Log.Warn("refused a stranger", KeySocket, name, KeyReason, err.Error())
			}
		})
	}
	if len(errs) == 0 && len(files) == 0 && env["LISTEN_FDS"] != "" {
		errs = append(errs, fmt.Errorf("take the passed sockets: LISTEN_PID=%q is not this process", env["LISTEN_PID"]))
	}
	return out, errors.Join(errs...)
}

// Listener claims the socket of that FileDescriptorName. One that was not passed is an error.
func (p *Process) Listener(name string) (*peer.Listener, error) {
	ln := p.sockets[name]
	if ln == nil {
		return nil, fmt.Errorf("socket %q was not passed; start the daemon by its .socket unit (pid %d)", name, os.Getpid())
	}
	if p.claimed[name] {
		return nil, fmt.Errorf("socket %q is served twice", name)
	}
	p.claimed[name] = true
	return ln, nil
}
