// SPDX-License-Identifier: Apache-2.0

package describe

import (
	"bytes"
	"reflect"
	"testing"

	"github.com/doorward/doorward/internal/wire"
)

// glanced is a description with every field of an argument set.
func glanced() *Connector {
	return &Connector{Vendor: "demo", Title: "Demo", Base: "https://api.example.org", Check: "get",
		Tokens: Tokens{Kinds: []string{"token"}, Placement: wire.Placement{Kind: "header", Name: "Authorization"}},
		Methods: []Method{
			{Name: "get", Summary: "read it", Class: Read, Reach: ReachNone,
				Entries: []Entry{{Name: "it", Method: "GET", Path: "{base}/it", Credential: true}}},
			{Name: "put", Summary: "write it", Class: Write, Reach: ReachSpace, Labels: []string{wire.LabelPrivate},
				Lower: []Lower{{To: ReachNone, Empty: []string{"who"}}}, Always: true, Grant: []string{"who"},
				Scopes: []string{"all"}, Once: "its name", Settle: &Settle{Method: "get"},
				Args: []Arg{
					{Name: "who", Label: "To", Help: "an address", Type: TypeEmail, Required: true, Repeat: 20, Role: "recipient"},
					{Name: "how", Label: "How", Help: "a word", Type: TypeEnum, Enum: []string{"fast", "slow"}, Default: "slow"},
					{Name: "many", Label: "Count", Help: "a number", Type: TypeInt, Min: 130, Max: 1 << 40, Role: "amount"},
					{Name: "body", Label: "Text", Help: string(make([]byte, 300)), Type: TypeText, Max: 70000},
				},
				Entries: []Entry{{Name: "it", Method: "PUT", Path: "{base}/it",
					Header: []Match{{"X-Who", Bind{Arg: "who"}}},
					Body:   &Body{Media: "application/json", JSON: []Leaf{{"/body", Bind{Arg: "body"}}}}}}},
		}}
}

func TestGlanceAgreesWithParse(t *testing.T) {
	b, err := glanced().Seal()
	if err != nil {
		t.Fatal(err)
	}
	whole, err := Parse(b)
	if err != nil {
		t.Fatal(err)
	}
	for i := range whole.Methods {
		want := whole.Methods[i]
		got, err := Glance(b, want.Name)
		if err != nil {
			t.Fatal(err)
		}
		if got.Vendor != whole.Vendor || got.Title != whole.Title || got.Check != whole.Check {
			t.Errorf("head: %+v", got)
		}
		if len(got.Methods) != 1 {
			t.Errorf("glanced at %d methods for %s", len(got.Methods), want.Name)
		}
		want.Entries, want.Prepare, want.Settle, want.Lower, want.Scopes = nil, nil, nil, nil, nil
		want.Always, want.Grant, want.Once = false, nil, ""
		m, _ := got.Method(want.Name)
		if !reflect.DeepEqual(*m, want) {
			t.Errorf("glanced %+v\nparsed %+v", *m, want)
		}
	}
	none, err := Glance(b, "gte")
	if err != nil || len(none.Methods) != 2 || none.Methods[0].Name != "get" || none.Methods[1].Name != "put" {
		t.Errorf("the names are %+v, %v", none, err)
	}
}

func FuzzGlance(f *testing.F) {
	b, err := glanced().Seal()
	if err != nil {
		f.Fatal(err)
	}
	f.Add(b)
	f.Add([]byte{0xdf, 0xff, 0xff, 0xff, 0xff})
	f.Add([]byte{0x81, 0xa1, 'm', 0xdd, 0xff, 0xff, 0xff, 0xff})
	f.Fuzz(func(t *testing.T, in []byte) {
		c, err := Glance(in, "put")
		if err != nil && c != nil {
			t.Fatal("value returned with error")
		}
		whole, perr := Parse(in)
		if perr != nil {
			return
		}
		if again, serr := whole.Seal(); serr != nil || !bytes.Equal(again, in) {
			return // not as Seal writes it
		}
		if err != nil {
			t.Fatalf("parsed but not glanced: %v", err)
		}
		m, ok := whole.Method("put")
		if g, gok := c.Method("put"); ok != gok || ok && !reflect.DeepEqual(g.Args, m.Args) {
			t.Fatal("glanced other than parsed")
		}
	})
}
