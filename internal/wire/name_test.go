// SPDX-License-Identifier: Apache-2.0

package wire

import (
	"strings"
	"testing"
)

func TestNamesOfCells(t *testing.T) {
	for name, ok := range map[string]bool{"work": true, "0": true, strings.Repeat("a", 32): true, strings.Repeat("a", 33): false,
		"": false, "..": false, "a/b": false, "A": false, "a-b": false, "a\n": false, "-canary": false} {
		if err := CellName(name); (err == nil) != ok {
			t.Errorf("%q: %v", name, err)
		}
	}
}

func TestThePlaceInWords(t *testing.T) {
	for want, p := range map[string]Placement{
		`the header Authorization, behind "Bot "`:                          {Kind: "header", Name: "Authorization", Prefix: "Bot "},
		"the header X-Api-Key":                                             {Kind: "header", Name: "X-Api-Key"},
		"the header Authorization, as the password of Basic, of any user":  {Kind: "basic"},
		`the header Authorization, as the password of Basic, of user "me"`: {Kind: "basic", User: "me"},
		"the query parameter key":                                          {Kind: "query", Name: "key"},
		`a segment of the path, behind "bot"`:                              {Kind: "path", Prefix: "bot"},
	} {
		if got := p.Words(); got != want {
			t.Errorf("%+v: %s", p, got)
		}
	}
}
