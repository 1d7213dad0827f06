// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"
	"golang.org/x/sys/unix"

	"github.com/doorward/doorward/internal/wire"
)

func TestMain(m *testing.M) {
	testscript.Main(m, map[string]func(){
		"connector": func() {
			inCell()
			os.Exit(Main(os.Args[1:]))
		},
	})
}

// inCell gives this process, started by a script, a mount namespace in which the script's folder is the cell's socket
// directory. The command itself has no switch for that.
func inCell() {
	dir := os.Getenv("SCRIPT_CELL")
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
	die("mkdir", os.MkdirAll(wire.CellRun, 0o755))
	die("bind", unix.Mount(filepath.Join(dir, "cell"), wire.CellRun, "", unix.MS_BIND, ""))
}

// grounds says whether scripts can have sockets.
func grounds() bool {
	if os.Geteuid() != 0 {
		return false
	}
	cmd := exec.Command("unshare", "-m", "true")
	return cmd.Run() == nil
}

func TestScripts(t *testing.T) {
	root := grounds()
	if !root {
		t.Log("host ground skipped: scripts with sockets need root and a mount namespace of their own")
	}
	file, err := demo().Seal()
	if err != nil {
		t.Fatal(err)
	}
	exe, err := exec.LookPath("connector")
	if err != nil {
		t.Fatal(err)
	}
	share := filepath.Join(filepath.Dir(filepath.Dir(exe)), "share", "doorward")
	if err := os.MkdirAll(share, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(share, "demo.desc"), file, 0o644); err != nil {
		t.Fatal(err)
	}
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
				e.Setenv("SCRIPT_CELL", e.WorkDir)
			}
			return os.Mkdir(filepath.Join(e.WorkDir, "cell"), 0o755)
		},
		Cmds: map[string]func(*testscript.TestScript, bool, []string){
			"serve":  serve,
			"repeat": repeat,
			"lines":  atMost,
			"exits":  exits,
			"bytes":  writeBytes,
		},
	})
}

// serve starts sentinel, worker or both, which do what the file "does" says.
func serve(ts *testscript.TestScript, _ bool, args []string) {
	f := &fake{dir: ts.Getenv("WORK")}
	for _, who := range args {
		name, h := who+".sock", f.worker
		if who == "sentinel" {
			h = f.sentinel
		}
		f.listen(ts, name, h)
	}
}

// exits runs a command and holds its exit code: exits 3 connector ... [<FILE].
func exits(ts *testscript.TestScript, neg bool, args []string) {
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

// repeat writes a text many times into a file: repeat FILE N TEXT, where \n is a line feed.
func repeat(ts *testscript.TestScript, _ bool, args []string) {
	n, err := strconv.Atoi(args[1])
	ts.Check(err)
	ts.Check(os.WriteFile(ts.MkAbs(args[0]), []byte(strings.Repeat(strings.ReplaceAll(args[2], `\n`, "\n"), n)), 0o644))
}

// atMost holds a file to a number of lines.
func atMost(ts *testscript.TestScript, _ bool, args []string) {
	n, err := strconv.Atoi(args[1])
	ts.Check(err)
	if got := bytes.Count([]byte(ts.ReadFile(args[0])), []byte("\n")); got > n {
		ts.Fatalf("%s has %d lines, at most %d", args[0], got, n)
	}
}

// writeBytes writes bytes given as Go escapes: bytes FILE 'a\x00b'.
func writeBytes(ts *testscript.TestScript, _ bool, args []string) {
	s, err := strconv.Unquote(`"` + strings.ReplaceAll(args[1], `"`, `\"`) + `"`)
	ts.Check(err)
	ts.Check(os.WriteFile(ts.MkAbs(args[0]), []byte(s), 0o644))
}
