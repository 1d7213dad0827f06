// SPDX-License-Identifier: Apache-2.0

package main

import (
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
	clitest.Scripts(t, "doorward", []*describe.Connector{d}, nil)
}
