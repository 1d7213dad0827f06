// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"bytes"
	"os"
	"strconv"
	"strings"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/doorward/doorward/cli/clitest"
	"github.com/doorward/doorward/internal/describe"
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
	clitest.Scripts(t, "connector", []*describe.Connector{demo()},
		map[string]clitest.Cmd{"serve": serve, "repeat": repeat, "lines": atMost})
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
