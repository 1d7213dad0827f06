// SPDX-License-Identifier: Apache-2.0

// Command probe tries what somebody would try who has taken a daemon or a cell over, and says of each whether it went
// through. It is started as `probe ADDRESS PID`: a server that listens on this machine, and a process of authd.
package main

import (
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"
	"unsafe"

	"github.com/doorward/doorward/internal/wire"
	"golang.org/x/sys/unix"
)

func main() {
	if len(os.Args) != 3 {
		fmt.Fprintln(os.Stderr, "usage: probe ADDRESS PID")
		os.Exit(2)
	}
	pid, err := strconv.Atoi(os.Args[2])
	if err != nil {
		fmt.Fprintln(os.Stderr, "probe:", err)
		os.Exit(2)
	}
	for _, a := range attempts(os.Args[1], pid) {
		if err := a.try(); err != nil {
			fmt.Printf("probe: %s: refused: %v\n", a.name, err)
		} else {
			fmt.Printf("probe: %s: through\n", a.name)
		}
	}
	fmt.Println("probe: end")
}

type attempt struct {
	name string
	try  func() error
}

func attempts(address string, pid int) []attempt {
	proc := fmt.Sprintf("/proc/%d/", pid)
	list := []attempt{
		{"tcp", func() error { return dial("tcp", address) }},
		{"vsock", func() error { return socket(unix.AF_VSOCK, unix.SOCK_STREAM) }},
		{"packet", func() error { return socket(unix.AF_PACKET, unix.SOCK_RAW) }},
		{"alg", func() error { return socket(unix.AF_ALG, unix.SOCK_SEQPACKET) }},
		{"dbus", func() error { return dial("unix", "/run/dbus/system_bus_socket") }},
		{"systemd", func() error { return dial("unix", "/run/systemd/private") }},
		{"journal", func() error { return dial("unix", "/run/systemd/journal/stdout") }},
		{"authd-store", func() error { return list1("/var/lib/doorward/authd/store") }},
		{"ledger", func() error { return list1("/var/lib/doorward/sentinel/ledger") }},
		{"credentials", func() error { return list1("/run/credentials/doorward-authd.service") }},
		{"sealed-key", func() error { return open("/etc/credstore.encrypted/doorward.store-key") }},
		{"shadow", func() error { return open("/etc/shadow") }},
		{"memory", func() error { return open(proc + "mem") }},
		{"root-of-init", func() error { return list1("/proc/1/root/var/lib/doorward/authd") }},
		{"signal", func() error { return unix.Kill(pid, 0) }},
		{"disk", func() error { return open("/dev/vda") }},
		{"cgroup", func() error { return write("/sys/fs/cgroup/doorward.slice/cgroup.procs") }},
		{"program", func() error { // executed in a child only
			p, err := os.StartProcess("/bin/true", []string{"true"}, &os.ProcAttr{})
			if err == nil {
				_, err = p.Wait()
			}
			return err
		}},
		{"namespace", func() error {
			p, err := os.StartProcess("/proc/self/exe", []string{"probe"}, &os.ProcAttr{
				Sys: &syscall.SysProcAttr{Cloneflags: unix.CLONE_NEWUSER}})
			if err == nil {
				_, err = p.Wait()
			}
			return err
		}},
		{"uring", func() error {
			var params [120]byte
			fd, _, errno := unix.Syscall(unix.SYS_IO_URING_SETUP, 1, uintptr(unsafe.Pointer(&params)), 0)
			if errno != 0 {
				return errno
			}
			return unix.Close(int(fd))
		}},
		{"bpf", func() error {
			attr := [64]byte{0: unix.BPF_MAP_TYPE_ARRAY, 4: 4, 8: 4, 12: 1}
			fd, _, errno := unix.Syscall(unix.SYS_BPF, unix.BPF_MAP_CREATE, uintptr(unsafe.Pointer(&attr)), uintptr(len(attr)))
			if errno != 0 {
				return errno
			}
			return unix.Close(int(fd))
		}},
		{"module", func() error {
			if err := unix.InitModule([]byte("no module"), ""); !errors.Is(err, unix.ENOEXEC) {
				return err
			}
			return nil // it was looked at
		}},
	}
	for _, e := range wire.Graph() {
		path := wire.RunDir + strings.Replace(e.Socket, "*", "github", 1)
		if rest, ok := strings.CutPrefix(e.Socket, "cell/"); ok {
			path = wire.CellDir + strings.Replace(rest, "*", "github", 1)
		}
		list = append(list, attempt{"socket " + e.Name, func() error { return dial("unix", path) }})
	}
	return list
}

func dial(network, address string) error {
	c, err := net.DialTimeout(network, address, 5*time.Second)
	if err != nil {
		return err
	}
	return c.Close()
}

func socket(family, kind int) error {
	fd, err := unix.Socket(family, kind|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	return unix.Close(fd)
}

func open(path string) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	return f.Close()
}

func write(path string) error {
	f, err := os.OpenFile(path, os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	return f.Close()
}

func list1(dir string) error {
	found, err := os.ReadDir(dir)
	if err == nil && len(found) == 0 {
		return fmt.Errorf("%s is empty", filepath.Base(dir))
	}
	return err
}
