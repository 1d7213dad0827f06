// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"bytes"
	"io"
	"net"
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
			if s := os.Getenv("GATE"); s != "" {
				gate.Addr = [4]byte{127, 0, 0, 1}
				gate.Port, _ = strconv.Atoi(s)
			}
			os.Exit(Main(os.Args[1:]))
		},
	})
}

func TestScripts(t *testing.T) {
	clitest.Scripts(t, "connector", []*describe.Connector{demo()},
		map[string]clitest.Cmd{"serve": serve, "gate": serveGate, "repeat": repeat, "lines": atMost})
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

// serveGate is the cell's gate, which answers with a file's bytes: gate FILE. It is asked where GATE says, which is set.
func serveGate(ts *testscript.TestScript, _ bool, args []string) {
	answer := ts.ReadFile(args[0])
	ln, err := net.Listen("tcp4", "127.0.0.1:0")
	ts.Check(err)
	ts.Defer(func() { ln.Close() })
	_, port, err := net.SplitHostPort(ln.Addr().String())
	ts.Check(err)
	ts.Setenv("GATE", port)
	go func() {
		for {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			head := make([]byte, 100)
			if n, _ := c.Read(head); string(head[:n]) == "GET / HTTP/1.0\r\nHost: 198.18.0.1\r\n\r\n" {
				_, _ = io.WriteString(c, strings.ReplaceAll(answer, "\n", "\r\n"))
			}
			_ = c.Close()
		}
	}()
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
