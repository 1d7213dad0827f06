// SPDX-License-Identifier: Apache-2.0

package main

import (
	"os/exec"
	"strconv"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/doorward/doorward/cli/clitest"
	"github.com/doorward/doorward/internal/describe"
	"github.com/doorward/doorward/internal/wire"
)

func TestMain(m *testing.M) {
	testscript.Main(m, map[string]func(){"doorward": func() {
		clitest.Enter()
		main()
	}})
}

// What the binary does by the code that it links from elsewhere.
func TestScripts(t *testing.T) {
	d := &describe.Connector{Vendor: "demo", Title: "Demo", Base: "https://api.example.org", Check: "items",
		Tokens: describe.Tokens{Kinds: []string{"token"}, Placement: wire.Placement{Kind: "header", Name: "Authorization"}},
		Methods: []describe.Method{{Name: "items", Summary: "list things", Class: describe.Read, Reach: describe.ReachNone,
			Entries: []describe.Entry{{Name: "it", Method: "GET", Path: "{base}/it", Credential: true}}}}}
	file, err := d.Seal()
	if err != nil {
		t.Fatal(err)
	}
	if err := clitest.Share("doorward", "demo", file); err != nil {
		t.Fatal(err)
	}
	testscript.Run(t, testscript.Params{
		Dir:                 "testdata/script",
		RequireExplicitExec: true,
		Setup:               func(e *testscript.Env) error { return clitest.Setup(e, clitest.Ground()) },
		Cmds: map[string]func(*testscript.TestScript, bool, []string){
			"exits": func(ts *testscript.TestScript, _ bool, args []string) {
				err := ts.Exec(args[1], args[2:]...)
				got := 0
				if x, ok := err.(*exec.ExitError); ok {
					got = x.ExitCode()
				}
				if strconv.Itoa(got) != args[0] {
					ts.Fatalf("exit code %d, want %s", got, args[0])
				}
			},
		},
	})
}
