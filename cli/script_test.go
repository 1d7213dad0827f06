// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/doorward/doorward/cli/clitest"
)

func TestMain(m *testing.M) {
	testscript.Main(m, map[string]func(){
		"connector": func() {
			clitest.Enter()
			os.Exit(Main(os.Args[1:]))
		},
	})
}

func TestScripts(t *testing.T) {
	root := clitest.Ground()
	if !root {
		t.Log("host ground skipped: scripts with sockets need root and a mount namespace of their own")
	}
	file, err := demo().Seal()
	if err != nil {
		t.Fatal(err)
	}
	if err := clitest.Share("connector", "demo", file); err != nil {
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
		Setup: func(e *testscript.Env) error { return clitest.Setup(e, root) },
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
	f := &sham{Script: clitest.Script{Dir: ts.Getenv("WORK")}}
	for _, who := range args {
		if who == "sentinel" {
			f.Serve(ts, "cell/sentinel.sock", f.sentinel)
		} else {
			f.Serve(ts, "cell/"+who+".sock", f.worker)
		}
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
