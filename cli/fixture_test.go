// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"fmt"
	"testing"

	"github.com/doorward/doorward/internal/describe"
	"github.com/doorward/doorward/internal/wire"
)

// large is a description of the size that a code host's has.
func large() *describe.Connector {
	c := &describe.Connector{Vendor: "large", Title: "Large", Check: "method-00", Base: "https://api.example.org"}
	for i := range 36 {
		m := describe.Method{Name: fmt.Sprintf("method-%02d", i), Summary: "does the thing that this method does",
			Class: describe.Read, Reach: describe.ReachNone, Labels: []string{wire.LabelUntrusted, wire.LabelPrivate},
			Scopes: []string{"Things: read"}}
		for j := range 6 {
			m.Args = append(m.Args, describe.Arg{Name: fmt.Sprintf("argument-%d", j), Label: "the argument's label",
				Help: "one line of help with bounds and units of it", Type: describe.TypeString})
		}
		e := describe.Entry{Name: "it", Method: "GET", Path: "{base}/things/{argument-0}/parts", Credential: true, Uses: 1}
		for j := 1; j < 6; j++ {
			e.Query = append(e.Query, describe.Match{Name: fmt.Sprintf("parameter_%d", j),
				Bind: describe.Bind{Arg: fmt.Sprintf("argument-%d", j)}})
		}
		m.Entries = []describe.Entry{e}
		c.Methods = append(c.Methods, m)
	}
	return c
}

// What a call's flags cost to know, beside what the whole description would.
func BenchmarkGlanceLarge(b *testing.B) {
	file, err := large().Seal()
	if err != nil {
		b.Fatal(err)
	}
	for b.Loop() {
		if _, err := describe.Glance(file, "method-30"); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkParseLarge(b *testing.B) {
	file, err := large().Seal()
	if err != nil {
		b.Fatal(err)
	}
	b.Logf("%d bytes", len(file))
	for b.Loop() {
		if _, err := describe.Parse(file); err != nil {
			b.Fatal(err)
		}
	}
}
