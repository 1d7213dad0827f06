// SPDX-License-Identifier: Apache-2.0

package inside

import (
	"bytes"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

// foreign are attempts with what a program of a cell is not to have, as Perl of the base system says them. Descriptor 3 is a socket of
// TCP that this test, outside of the cell, has made in the machine's own network: connected, or listening, or neither. In the folder
// of the last word it has Unix sockets, as a tool has that a person runs in a folder of a project. What an attempt says is empty where
// it went through, or why it did not.
var foreign = []struct{ name, socket, perl string }{
	{"send", "connected", `syswrite(S, "x") or print $!`},
	{"receive", "connected", `sysread(S, $b, 1) or print $!`},
	{"connect", "unconnected", `connect(S, pack_sockaddr_in($ARGV[0], inet_aton("127.0.0.1"))) or print $!`},
	{"accept", "listening", `accept(N, S) or print $!`},
	{"listen", "unconnected", `listen(S, 1) or print $!`},
	// Along a Unix socket, as of all sockets that a cell has could be. Core Perl has no recvmsg(2).
	{"receive a socket", "passed", receives},
	// pidfd_open(2) and pidfd_getfd(2), of the test's own process.
	{"take", "taken", `$p = syscall(434, $ARGV[1] + 0, 0); syscall(438, $p, $ARGV[2] + 0, 0) >= 0 or print $!`},
	{"connect to a Unix socket", "", `socket(N, 1, 1, 0) && connect(N, pack_sockaddr_un("$ARGV[3]/stream")) or print $!`},
	{"connect to one of datagrams", "", `socket(N, 1, 2, 0) && connect(N, pack_sockaddr_un("$ARGV[3]/datagram")) or print $!`},
	{"send to one of datagrams", "", `socket(N, 1, 2, 0) && send(N, "x", 0, pack_sockaddr_un("$ARGV[3]/datagram")) or print $!`},
	{"AF_VSOCK", "", `socket(N, 40, 1, 0) or print $!`},
	{"AF_ALG", "", `socket(N, 38, 5, 0) or print $!`},
	{"AF_PACKET", "", `socket(N, 17, 3, 0) or print $!`},
	{"netlink of audit", "", `socket(N, 16, 3, 9) or print $!`},
}

// receives is in Python. What is refused is not there.
const receives = `import socket
_, got, _, _ = socket.recv_fds(socket.socket(fileno=3), 1, 1)
print("" if got else "Operation not permitted", end="")`

// own is what a session may do with Unix sockets of its own; none of it is refused.
const own = `socket(L, 1, 1, 0) && bind(L, pack_sockaddr_un("$ARGV[3]/$$")) && listen(L, 1) && socket(N, 1, 1, 0) ` +
	`&& connect(N, pack_sockaddr_un("$ARGV[3]/$$")) && socketpair(A, B, 1, 2, 0) && send(A, "x", 0) or print $!`

// What was made outside is of no use to a session of a cell, and it makes no socket of another kind. Only the security module is
// between: the process has all of root's rights, the machine's own files and no filter of system calls. Controls: the same beside the
// slice of cells, and in the session with the module's programs taken away.
func TestFullWhatTheSecurityModuleRefuses(t *testing.T) {
	ready(t)
	b, err := os.ReadFile("/sys/kernel/security/lsm")
	if err != nil || !strings.Contains(string(b), "bpf") {
		t.Skipf("skipped: bpf is not among this kernel's security modules (%s, %v)", b, err)
	}
	const session = "/sys/fs/cgroup/doorward.slice/doorward-cells.slice/doorward-cell@work.service/run-lsm"
	const beside = "/sys/fs/cgroup/run-lsm"
	for _, dir := range []string{session, session + "/inner", beside} {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = os.Remove(dir) })
	}
	const refused = "Operation not permitted"
	all := func(cgroup, want string) (err error) {
		for _, a := range foreign {
			said := tryForeign(t, cgroup, a.socket, a.perl)
			if want == refused && said != refused || want == "" && strings.Contains(said, refused) {
				err = errors.Join(err, fmt.Errorf("%s: it says %q, want %q", a.name, said, want))
			}
		}
		return err
	}
	for _, x := range []struct{ when, cgroup, want string }{
		{"in a session", session, refused}, {"below it", session + "/inner", refused}, {"control: beside", beside, ""},
	} {
		if err := all(x.cgroup, x.want); err != nil {
			t.Errorf("%s: %v", x.when, err)
		}
		if said := tryForeign(t, x.cgroup, "", own); said != "" {
			t.Errorf("%s: with its own Unix sockets it says %q", x.when, said)
		}
	}
	t.Cleanup(withoutModule(t))
	eventually(t, "control: without the programs", func() error { return all(session, "") })
}

// withoutModule takes the programs of the security module away, where there are any, until back is called.
func withoutModule(t *testing.T) (back func()) {
	t.Helper()
	must(t, "systemctl", "stop", "doorward-canary.timer") // it would see that they are gone
	links, err := filepath.Glob("/run/doorward/bpf/lsm-*")
	if err != nil {
		t.Fatal(err)
	}
	for _, l := range links {
		if err := os.Remove(l); err != nil {
			t.Fatal(err)
		}
	}
	time.Sleep(10 * time.Second) // the kernel takes them off behind, one by one
	return func() {
		must(t, "systemctl", "restart", "doorward-bpf.service")
		must(t, "systemctl", "start", "doorward-canary.timer")
	}
}

// tryForeign runs one attempt in a cgroup.
func tryForeign(t *testing.T, cgroup, kind, perl string) string {
	t.Helper()
	ln, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	dir := t.TempDir()
	stream, err := net.Listen("unix", dir+"/stream")
	if err != nil {
		t.Fatal(err)
	}
	defer stream.Close()
	datagram, err := net.ListenPacket("unixgram", dir+"/datagram")
	if err != nil {
		t.Fatal(err)
	}
	defer datagram.Close()
	port := strings.TrimPrefix(ln.Addr().String(), "127.0.0.1:")
	var file *os.File
	switch kind {
	case "connected", "taken":
		out, err := net.Dial("tcp4", ln.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		defer out.Close()
		in, err := ln.Accept()
		if err != nil {
			t.Fatal(err)
		}
		defer in.Close()
		if _, err := in.Write([]byte("y")); err != nil {
			t.Fatal(err)
		}
		file, err = out.(*net.TCPConn).File()
		if err != nil {
			t.Fatal(err)
		}
	case "listening":
		if file, err = ln.(*net.TCPListener).File(); err != nil {
			t.Fatal(err)
		}
		c, err := net.Dial("tcp4", ln.Addr().String()) // so that somebody waits
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
	case "passed":
		pair, err := syscall.Socketpair(syscall.AF_UNIX, syscall.SOCK_STREAM|syscall.SOCK_CLOEXEC, 0)
		if err != nil {
			t.Fatal(err)
		}
		defer syscall.Close(pair[0])
		file = os.NewFile(uintptr(pair[1]), "pair")
		s, err := syscall.Socket(syscall.AF_INET, syscall.SOCK_STREAM|syscall.SOCK_CLOEXEC, 0)
		if err != nil {
			t.Fatal(err)
		}
		defer syscall.Close(s)
		if err := syscall.Sendmsg(pair[0], []byte("x"), syscall.UnixRights(s), nil, 0); err != nil {
			t.Fatal(err)
		}
	case "unconnected":
		s, err := syscall.Socket(syscall.AF_INET, syscall.SOCK_STREAM|syscall.SOCK_CLOEXEC, 0)
		if err != nil {
			t.Fatal(err)
		}
		file = os.NewFile(uintptr(s), "unconnected")
	}
	open, number := "", "-1"
	cmd := exec.Command("timeout", "20", "perl", "-e", "")
	if file != nil {
		defer file.Close()
		number = strconv.Itoa(int(file.Fd()))
		if err := syscall.SetNonblock(int(file.Fd()), false); err != nil {
			t.Fatal(err)
		}
		if kind != "taken" {
			cmd.ExtraFiles, open = []*os.File{file}, `open(S, "+<&=3") or die $!; `
		}
	}
	place, err := os.Open(cgroup)
	if err != nil {
		t.Fatal(err)
	}
	defer place.Close()
	if cmd.Args[4] = "use Socket; " + open + perl; perl == receives {
		cmd.Args[2], cmd.Args[3], cmd.Args[4] = "/usr/bin/python3", "-c", perl
	}
	cmd.Args = append(cmd.Args, port, strconv.Itoa(os.Getpid()), number, dir)
	cmd.SysProcAttr = &syscall.SysProcAttr{UseCgroupFD: true, CgroupFD: int(place.Fd())}
	var errs bytes.Buffer
	cmd.Stderr = &errs
	said, err := cmd.Output()
	if err != nil {
		t.Fatalf("%s: %v: %s", perl, err, &errs)
	}
	return string(said)
}
