// SPDX-License-Identifier: Apache-2.0

// Command probe tries what somebody would try who has taken a daemon or a cell over, and says of each whether it went
// through. It is started as `probe ADDRESS PID PID`: a server that listens on this machine, and processes of authd and of a
// worker.
package main

import (
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"time"
	"unsafe"

	"github.com/doorward/doorward/internal/wire"
	"golang.org/x/sys/unix"
)

func main() {
	if len(os.Args) > 1 && callers[os.Args[1]] != nil {
		if err := callers[os.Args[1]](os.Args[2:]); err != nil {
			fmt.Fprintln(os.Stderr, "probe:", err)
			os.Exit(1)
		}
		return
	}
	if len(os.Args) != 4 {
		fmt.Fprintln(os.Stderr, "usage: probe ADDRESS PID PID | who | call AT | reach AT... | leave AT | take | pass AT | wait")
		os.Exit(2)
	}
	pid, err := strconv.Atoi(os.Args[2])
	worker, err2 := strconv.Atoi(os.Args[3])
	if err := errors.Join(err, err2); err != nil {
		fmt.Fprintln(os.Stderr, "probe:", err)
		os.Exit(2)
	}
	for _, a := range attempts(os.Args[1], pid, worker) {
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

// attempts are all that is tried. Those that may be the end of a process have one of their own.
func attempts(address string, pid, worker int) []attempt {
	list := append(network(address), files(pid, worker)...)
	list = append(list, kernel()...)
	for _, e := range wire.Graph() {
		path := wire.RunDir + strings.Replace(e.Socket, "*", "github", 1)
		if rest, ok := strings.CutPrefix(e.Socket, "cell/"); ok {
			path = wire.CellDir + strings.Replace(rest, "*", "github", 1)
		}
		list = append(list, attempt{"socket " + e.Name, func() error { return dial("unix", path) }})
	}
	return list
}

// network are the ways out, and to what else listens here.
func network(address string) []attempt {
	list := []attempt{
		{"tcp", func() error { return dial("tcp", address) }},
		{"elsewhere", func() error { // which is this machine too, but not loopback; what answers there says something first
			c, err := net.DialTimeout("tcp", "192.0.2.1:4445", 5*time.Second)
			if err != nil {
				return err
			}
			defer c.Close()
			_ = c.SetDeadline(time.Now().Add(5 * time.Second))
			_, err = c.Read(make([]byte, 1))
			return err
		}},
		{"udp", func() error { // a resolver's way; the address has a server of each kind
			c, err := net.DialTimeout("udp", address, 5*time.Second)
			if err != nil {
				return err
			}
			defer c.Close()
			_ = c.SetDeadline(time.Now().Add(5 * time.Second))
			if _, err := c.Write([]byte("x")); err != nil {
				return err
			}
			_, err = c.Read(make([]byte, 1))
			return err
		}},
		{"vsock", func() error { return socket(unix.AF_VSOCK, unix.SOCK_STREAM) }},
		{"packet", func() error { return socket(unix.AF_PACKET, unix.SOCK_RAW) }},
		{"alg", func() error { return socket(unix.AF_ALG, unix.SOCK_SEQPACKET) }},
		{"uring", func() error {
			var params [120]byte
			fd, _, errno := unix.Syscall(unix.SYS_IO_URING_SETUP, 1, uintptr(unsafe.Pointer(&params)), 0)
			if errno != 0 {
				return errno
			}
			return unix.Close(int(fd))
		}},
	}
	for name, at := range map[string]string{
		"dbus": "/run/dbus/system_bus_socket", "systemd": "/run/systemd/private", "journal": "/run/systemd/journal/stdout",
		"resolved": "/run/systemd/resolve/io.systemd.Resolve", "docker": "/run/docker.sock", "agent": "/run/ssh-agent/agent.1",
		"abstract": "@doorward-bench",
	} {
		list = append(list, attempt{name, func() error { return dial("unix", at) }})
	}
	return list
}

// files are what others keep, in files and in processes: pid is authd's, worker another vendor's worker's.
func files(pid, worker int) []attempt {
	proc := fmt.Sprintf("/proc/%d/", pid)
	return []attempt{
		{"authd-store", func() error { return list1("/var/lib/doorward/authd/store") }},
		{"ledger", func() error { return list1("/var/lib/doorward/sentinel/ledger") }},
		{"credentials", func() error { return list1("/run/credentials/doorward-authd.service") }},
		{"sealed-key", func() error { return open("/etc/credstore.encrypted/doorward.store-key") }},
		{"shadow", func() error { return open("/etc/shadow") }},
		{"home", func() error { return list1("/home/ada") }},
		{"tmp", func() error { return open("/tmp/doorward-bench") }},
		{"cron", func() error { return create("/etc/cron.d/probe") }},
		{"usr", func() error { return create("/usr/lib/probe") }},
		{"memory", func() error { return open(proc + "mem") }},
		{"memory-of-worker", func() error { return open(fmt.Sprintf("/proc/%d/mem", worker)) }},
		{"ptrace", func() error { return ptrace(pid) }},
		{"signal", func() error { return unix.Kill(pid, 0) }},
		{"see", func() error {
			found, err := filepath.Glob("/proc/[0-9]*/comm")
			for _, f := range found {
				if b, err := os.ReadFile(f); err == nil && strings.TrimSpace(string(b)) == "authd" {
					return nil
				}
			}
			return errors.Join(fmt.Errorf("no authd in %d processes", len(found)), err)
		}},
		{"root-of-init", func() error { return list1("/proc/1/root/var/lib/doorward/authd") }},
		{"cgroup", func() error { return write("/sys/fs/cgroup/doorward.slice/cgroup.procs") }},
		{"cgroup-mounted", func() error {
			return mounted("none", "cgroup2", func(dir string) error { return write(dir + "/doorward.slice/cgroup.procs") })
		}},
		{"disk", func() error { return open("/dev/vda") }},
		{"disk-node", func() error { return withDisk(open) }},
		{"disk-mounted", func() error {
			mount := func(node string) error {
				return mounted(node, "ext4", func(dir string) error { return list1(dir + "/var/lib/doorward") })
			}
			if mount("/dev/vda") == nil {
				return nil
			}
			return withDisk(mount)
		}},
	}
}

// withDisk makes a node of the machine's disk and tries something with it, until it goes through: a node is no device where
// its folder's file system is mounted without them, as /tmp may be.
func withDisk(try func(node string) error) error {
	b, err := os.ReadFile("/sys/class/block/vda/dev")
	if err != nil {
		return err
	}
	var major, minor uint32
	if _, err := fmt.Sscanf(string(b), "%d:%d", &major, &minor); err != nil {
		return err
	}
	var all error
	for _, dir := range []string{os.TempDir(), "/dev", "/var/tmp", "/"} {
		node := filepath.Join(dir, fmt.Sprint("vda-", os.Getpid()))
		err := unix.Mknod(node, unix.S_IFBLK|0o600, int(unix.Mkdev(major, minor)))
		if err == nil {
			err = try(node)
			_ = os.Remove(node)
		}
		if err == nil {
			return nil
		}
		all = errors.Join(all, fmt.Errorf("%s: %w", node, err))
	}
	return all
}

// kernel are the ways into the kernel, and what it lets a process do to itself or others.
func kernel() []attempt {
	return []attempt{
		{"program", func() error { return child("true", 0) }},
		{"namespace", func() error { return child("true", unix.CLONE_NEWUSER) }},
		{"int80", func() error { return child("int80", 0) }},
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
				return fmt.Errorf("init_module: %w", err)
			}
			return nil // it was looked at
		}},
		{"kernel-log", func() error { return open("/dev/kmsg") }},
		{"tunable", func() error { return write("/proc/sys/kernel/core_pattern") }},
		{"proc-sys", func() error { return open("/proc/sys/kernel/ostype") }},
		{"hostname", func() error {
			var u unix.Utsname
			if err := unix.Uname(&u); err != nil {
				return err
			}
			return unix.Sethostname([]byte(unix.ByteSliceToString(u.Nodename[:])))
		}},
		{"write-and-execute", func() error {
			b, err := unix.Mmap(-1, 0, 4096, unix.PROT_READ|unix.PROT_WRITE|unix.PROT_EXEC, unix.MAP_PRIVATE|unix.MAP_ANON)
			if err != nil {
				return err
			}
			return unix.Munmap(b)
		}},
		{"personality", func() error {
			if _, _, errno := unix.Syscall(unix.SYS_PERSONALITY, 0x0008, 0, 0); errno != 0 { // PER_LINUX32
				return errno
			}
			_, _, errno := unix.Syscall(unix.SYS_PERSONALITY, 0, 0, 0)
			if errno != 0 {
				return errno
			}
			return nil
		}},
		{"realtime", func() error {
			param := int32(1)
			_, _, errno := unix.Syscall(unix.SYS_SCHED_SETSCHEDULER, 0, 1, uintptr(unsafe.Pointer(&param)))
			if errno != 0 {
				return errno
			}
			param = 0
			_, _, _ = unix.Syscall(unix.SYS_SCHED_SETSCHEDULER, 0, 0, uintptr(unsafe.Pointer(&param)))
			return nil
		}},
		{"set-uid", func() error {
			f, err := os.CreateTemp("", "set-uid-")
			if err != nil {
				return err
			}
			defer os.Remove(f.Name())
			return errors.Join(unix.Fchmod(int(f.Fd()), 0o4755), f.Close())
		}},
		{"shared-memory", func() error {
			_, err := unix.SysvShmGet(0x646f6f72, 0, 0) // as the test made it
			return err
		}},
	}
}

// child runs this program, or another, with new namespaces of those kinds.
func child(what string, flags uintptr) error {
	name, args := "/bin/true", []string{"true"}
	if what == "int80" {
		name, args = "/proc/self/exe", []string{"probe", "int80"}
	}
	if flags != 0 { // a user namespace without a mapping can execute
		name, args = "/proc/self/exe", []string{"probe", "nothing"}
	}
	p, err := os.StartProcess(name, args, &os.ProcAttr{Sys: &syscall.SysProcAttr{Cloneflags: flags}})
	if err != nil {
		return err
	}
	// A filter may end the one thread, and leave the others waiting for it.
	defer time.AfterFunc(2*time.Second, func() { _ = p.Kill() }).Stop()
	st, err := p.Wait()
	if err == nil && !st.Success() {
		err = errors.New(st.String())
	}
	return err
}

func ptrace(pid int) error {
	done := make(chan error)
	go func() {
		runtime.LockOSThread() // ends with its thread, and the trace with it
		_, _, errno := unix.Syscall6(unix.SYS_PTRACE, unix.PTRACE_SEIZE, uintptr(pid), 0, 0, 0, 0)
		if errno != 0 {
			done <- errno
			return
		}
		done <- nil
	}()
	return <-done
}

// mounted mounts something, looks at it there, and takes it away.
func mounted(what, kind string, look func(dir string) error) error {
	dir, err := os.MkdirTemp("", "mounted-")
	if err != nil {
		return err
	}
	defer os.Remove(dir)
	if err := unix.Mount(what, dir, kind, 0, ""); err != nil {
		return err
	}
	return errors.Join(look(dir), unix.Unmount(dir, unix.MNT_DETACH))
}

func create(path string) error {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	return errors.Join(f.Close(), os.Remove(path))
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
