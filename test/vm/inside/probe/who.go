// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"os/signal"
	"strconv"
	"strings"

	"github.com/doorward/doorward/internal/peer"
	"golang.org/x/sys/unix"
)

// callers are the commands besides the attempts: who answers connections with whom it takes for their caller, in the
// place of a daemon and behind its walls; the others call it.
var callers = map[string]func(args []string) error{
	"who": func([]string) error { return who() },
	// call AT: prints the answer.
	"call": func(args []string) error {
		c, err := dialUnix(args[0])
		if err != nil {
			return err
		}
		return answer(c)
	},
	// reach AT...: says of each whether somebody listens there.
	"reach": func(args []string) error {
		for _, at := range args {
			if err := dial("unix", at); err != nil {
				fmt.Printf("%s: refused\n", at)
			} else {
				fmt.Printf("%s: reached\n", at)
			}
		}
		return nil
	},
	// leave AT: connects and has a child read the answer, so that it can end before.
	"leave": func(args []string) error {
		c, err := dialUnix(args[0])
		if err != nil {
			return err
		}
		f, err := c.File()
		if err != nil {
			return err
		}
		child := exec.Command("/proc/self/exe", "rest")
		child.ExtraFiles, child.Stdout, child.Stderr = []*os.File{f}, os.Stdout, os.Stderr
		if err := child.Start(); err != nil {
			return err
		}
		if err := errors.Join(f.Close(), c.Close()); err != nil {
			return err
		}
		fmt.Println("connected")
		_, err = io.Copy(io.Discard, os.Stdin) // until it is told to end, or killed
		return err
	},
	// rest: prints the answer on the connection that it was left.
	"rest": func([]string) error {
		c, err := net.FileConn(os.NewFile(3, ""))
		if err != nil {
			return err
		}
		return answer(c)
	},
	// take: prints the answer on the connection that is handed to it, over the pair that is descriptor 3, by `pass`.
	"take": func([]string) error {
		c, err := left()
		if err != nil {
			return err
		}
		defer c.Close()
		oob := make([]byte, unix.CmsgSpace(4))
		_, n, _, _, err := c.ReadMsgUnix(make([]byte, 1), oob)
		if err != nil {
			return err
		}
		msgs, err := unix.ParseSocketControlMessage(oob[:n])
		if err != nil || len(msgs) != 1 {
			return fmt.Errorf("%d messages: %w", len(msgs), err)
		}
		fds, err := unix.ParseUnixRights(&msgs[0])
		if err != nil || len(fds) != 1 {
			return fmt.Errorf("%d descriptors: %w", len(fds), err)
		}
		got, err := net.FileConn(os.NewFile(uintptr(fds[0]), ""))
		if err != nil {
			return err
		}
		return answer(got)
	},
	// pass AT: connects, and hands the connection on over the pair that is descriptor 3.
	"pass": func(args []string) error {
		c, err := dialUnix(args[0])
		if err != nil {
			return err
		}
		to, err := left()
		if err != nil {
			return err
		}
		f, err := c.File()
		if err != nil {
			return err
		}
		if _, _, err := to.WriteMsgUnix([]byte("x"), unix.UnixRights(int(f.Fd())), nil); err != nil {
			return err
		}
		_, err = io.Copy(io.Discard, to) // alive until it was read
		return err
	},
	// int80: makes a 32-bit system call. nothing: ends well.
	"int80": func([]string) error {
		if n := int80(); n < 0 {
			return unix.Errno(-n)
		}
		return nil
	},
	"nothing": func([]string) error { return nil },
	// wait: is there until it is killed.
	"wait": func([]string) error { _, err := io.Copy(io.Discard, os.Stdin); return err },
}

func dialUnix(at string) (*net.UnixConn, error) {
	return net.DialUnix("unix", nil, &net.UnixAddr{Name: at, Net: "unix"})
}

func answer(c net.Conn) error {
	b, err := io.ReadAll(c)
	fmt.Print(string(b))
	return err
}

// who serves the sockets that systemd passes, sd_listen_fds(3), until it is told to end.
func who() error {
	if err := unix.Prctl(unix.PR_SET_DUMPABLE, 0, 0, 0, 0); err != nil { // as daemons are
		return err
	}
	k, err := peer.Open()
	if err != nil {
		return err
	}
	n, err := strconv.Atoi(os.Getenv("LISTEN_FDS"))
	if err != nil {
		return err
	}
	for i := range n {
		ln, err := net.FileListener(os.NewFile(uintptr(3+i), ""))
		if err != nil {
			return err
		}
		go func() {
			for {
				c, err := ln.Accept()
				if err != nil {
					return
				}
				tell(k, c.(*net.UnixConn))
			}
		}()
	}
	notify, err := net.Dial("unixgram", os.Getenv("NOTIFY_SOCKET"))
	if err != nil {
		return err
	}
	if _, err := io.WriteString(notify, "READY=1"); err != nil {
		return err
	}
	end := make(chan os.Signal, 1)
	signal.Notify(end, unix.SIGTERM)
	<-end
	return nil
}

// tell answers with the identity, and, for a control, with the cgroup that the caller's bare number names by now.
func tell(k *peer.Kernel, c *net.UnixConn) {
	defer c.Close()
	id, err := k.Identify(c)
	said := id.String()
	if err != nil {
		said += " (" + err.Error() + ")"
	}
	bare := "none"
	if raw, err := c.SyscallConn(); err == nil {
		_ = raw.Control(func(fd uintptr) {
			cred, err := unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED)
			if err != nil {
				return
			}
			b, err := os.ReadFile(fmt.Sprintf("/proc/%d/cgroup", cred.Pid))
			if err == nil {
				bare = strings.TrimSpace(string(b))
			}
		})
	}
	fmt.Fprintf(c, "%s\nnumber: %s\n", said, bare)
}

// left is descriptor 3, one end of a pair.
func left() (*net.UnixConn, error) {
	c, err := net.FileConn(os.NewFile(3, ""))
	if err != nil {
		return nil, err
	}
	u, ok := c.(*net.UnixConn)
	if !ok {
		return nil, errors.New("descriptor 3 is no Unix socket")
	}
	return u, nil
}
