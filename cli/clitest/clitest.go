// SPDX-License-Identifier: Apache-2.0

// Package clitest is for tests of the two commands only: a server that speaks package wire as a script tells it, and a
// mount namespace in which the fixed socket paths lead to the script's folder. Neither command has a switch for that.
// No binary links it.
package clitest

import (
	"fmt"
	"io"
	"maps"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"
	"golang.org/x/sys/unix"

	"github.com/doorward/doorward/internal/describe"
	"github.com/doorward/doorward/internal/wire"
)

// Env names the folder that Enter puts at /run/doorward.
const Env = "SCRIPT_RUN"

// Enter gives this process, started by a script, a mount namespace in which the folder that Env names is /run/doorward.
// It locks the calling goroutine to its thread, which alone is in the namespace. Without Env it does nothing.
func Enter() {
	dir := os.Getenv(Env)
	if dir == "" {
		return
	}
	die := func(what string, err error) {
		if err != nil {
			fmt.Fprintln(os.Stderr, "script:", what, err)
			os.Exit(99)
		}
	}
	runtime.LockOSThread()
	die("unshare", unix.Unshare(unix.CLONE_NEWNS))
	die("make mounts private", unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""))
	die("mount /run", unix.Mount("tmpfs", "/run", "tmpfs", 0, "mode=755"))
	die("mkdir", os.MkdirAll(wire.RunDir, 0o755))
	die("bind", unix.Mount(dir, wire.RunDir, "", unix.MS_BIND, ""))
}

// Ground says whether Enter works here.
func Ground() bool {
	return os.Geteuid() == 0 && exec.Command("unshare", "-m", "true").Run() == nil
}

// Scripts runs the scripts of testdata/script against command, with the descriptions given. Besides cmds they have
// exits and bytes, and the condition ground.
func Scripts(t *testing.T, command string, descs []*describe.Connector, cmds map[string]Cmd) {
	root := Ground()
	if !root {
		t.Log("host ground skipped: scripts with sockets need root and a mount namespace of their own")
	}
	for _, d := range descs {
		file, err := d.Seal()
		if err != nil {
			t.Fatal(err)
		}
		if err := share(command, d.Vendor, file); err != nil {
			t.Fatal(err)
		}
	}
	all := map[string]Cmd{"exits": exits, "bytes": writeBytes}
	maps.Copy(all, cmds)
	testscript.Run(t, testscript.Params{
		Dir:                 "testdata/script",
		RequireExplicitExec: true,
		RequireUniqueNames:  true,
		Condition: func(c string) (bool, error) {
			if c == "ground" {
				return root, nil
			}
			return false, fmt.Errorf("no condition %q", c)
		},
		Setup: func(e *testscript.Env) error {
			if root {
				e.Setenv(Env, filepath.Join(e.WorkDir, "run"))
			}
			return os.Mkdir(filepath.Join(e.WorkDir, "run"), 0o755)
		},
		Cmds: all,
	})
}

// Cmd is a command of scripts.
type Cmd = func(*testscript.TestScript, bool, []string)

// exits runs a command and holds its exit code: exits 3 connector ... [<FILE].
func exits(ts *testscript.TestScript, _ bool, args []string) {
	want, err := strconv.Atoi(args[0])
	ts.Check(err)
	err = ts.Exec(args[1], args[2:]...)
	got := 0
	if x, ok := err.(*exec.ExitError); ok {
		got = x.ExitCode()
	} else if err != nil {
		ts.Fatalf("%v", err)
	}
	if got != want {
		ts.Fatalf("exit code %d, want %d", got, want)
	}
}

// writeBytes writes bytes given as Go escapes: bytes FILE 'a\x00b'.
func writeBytes(ts *testscript.TestScript, _ bool, args []string) {
	s, err := strconv.Unquote(`"` + strings.ReplaceAll(args[1], `"`, `\"`) + `"`)
	ts.Check(err)
	ts.Check(os.WriteFile(ts.MkAbs(args[0]), []byte(s), 0o644))
}

// share puts a description where the commands of testscript find it.
func share(command, vendor string, file []byte) error {
	exe, err := exec.LookPath(command)
	if err != nil {
		return err
	}
	dir := filepath.Join(filepath.Dir(filepath.Dir(exe)), "share", "doorward")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(dir, vendor+".desc"), file, 0o644)
}

// Answer is what a server does with a message: its body, descriptors that go with it, or a refusal.
type Answer func(m *wire.Msg, fds []int) (body any, files []int, refusal *wire.Error)

// Script is what a script's file "does" says: one line for each verb.
type Script struct{ Dir string }

// Line is what the script says of a verb: the words behind it.
func (s Script) Line(verb string) []string {
	b, _ := os.ReadFile(filepath.Join(s.Dir, "does")) // absent says nothing
	for l := range strings.Lines(string(b)) {
		if w := strings.Fields(l); len(w) > 1 && w[0] == verb {
			return w[1:]
		}
	}
	return nil
}

// Serve listens on a socket below run until the script ends.
func (s Script) Serve(ts *testscript.TestScript, name string, answer Answer) {
	ln, err := s.listen(name, answer)
	ts.Check(err)
	ts.Defer(func() { ln.Close() })
}

// ServeTest is Serve for a test without a script.
func ServeTest(t testing.TB, s Script, name string, answer Answer) {
	ln, err := s.listen(name, answer)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { ln.Close() })
}

func (s Script) listen(name string, answer Answer) (io.Closer, error) {
	path := filepath.Join(s.Dir, "run", name)
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return nil, err
	}
	ln, err := net.ListenUnix("unix", &net.UnixAddr{Name: path})
	if err != nil {
		return nil, err
	}
	go func() {
		for {
			c, err := ln.AcceptUnix()
			if err != nil {
				return
			}
			go s.connection(c, answer)
		}
	}()
	return ln, nil
}

// connection answers the messages of one connection. A verb's line may begin with hang-up, old or garbage instead.
func (s Script) connection(c *net.UnixConn, answer Answer) {
	conn := wire.NewConn(transport{c})
	defer conn.Close()
	for {
		m, fds, err := conn.Read()
		if err != nil {
			return
		}
		does := append(s.Line(m.Verb), "")[0]
		switch does {
		case "hang-up":
			return
		case "old":
			_, _ = c.Write([]byte{0, 0, 0, 4, 0x81, 0xa1, 'h', 99})
			return
		case "garbage":
			_, _ = c.Write([]byte("HTTP/1.1 400 Bad Request\r\n\r\n"))
			return
		}
		body, files, refusal := answer(m, fds)
		closeAll(fds)
		out := wire.Msg{ID: m.ID, Err: refusal}
		if refusal == nil {
			if out.Body, err = wire.Marshal(body); err != nil {
				panic(err)
			}
		}
		err = conn.Write(&out, files...)
		closeAll(files)
		if err != nil {
			return
		}
	}
}

func closeAll(fds []int) {
	for _, fd := range fds {
		unix.Close(fd)
	}
}

// transport is a wire.Transport for the server's end.
type transport struct{ *net.UnixConn }

func (t transport) ReadMsg(p []byte) (int, []int, error) {
	oob := make([]byte, 1024)
	n, oobn, flags, _, err := t.ReadMsgUnix(p, oob)
	if err != nil {
		return 0, nil, err
	}
	fds, err := wire.ParseRights(oob[:oobn], flags)
	if err == nil && n == 0 && len(p) > 0 {
		return 0, fds, io.EOF
	}
	return n, fds, err
}

func (t transport) WriteMsg(p []byte, fds []int) error {
	var oob []byte
	if len(fds) > 0 {
		oob = unix.UnixRights(fds...)
	}
	for len(p) > 0 {
		n, _, err := t.WriteMsgUnix(p, oob, nil)
		if err != nil {
			return err
		}
		p, oob = p[n:], nil
	}
	return nil
}

func (t transport) CloseFD(fd int) { unix.Close(fd) }
