// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"fmt"
	"slices"
	"testing"
)

// What changes something and goes unasked is listed with where that was said, as far as the admin's limits leave it.
func TestWhatGoesUnaskedIsListed(t *testing.T) {
	list := func(s *Set) (out []string) {
		for _, l := range append(s.DontAsk(), s.Loose()...) {
			out = append(out, fmt.Sprintf("%s %s %s: %s", l.Connector, l.Method, l.Class, l.By))
		}
		return out
	}
	if got := list(mustSet(t, "")); len(got) > 0 {
		t.Errorf("control: by the default %q", got)
	}
	toml := "[connector.github.method]\ncomment = \"allow\"\nissues = \"allow\"\n[connector.dav]\nsetting = \"dont-ask\"\n"
	got := list(mustSet(t, toml))
	for _, want := range []string{`github comment write: policy.toml:2 github comment = "allow"`, `dav  : policy.toml:5 dav setting = "dont-ask"`,
		`dav event-create write: policy.toml:5 dav setting = "dont-ask"`} {
		if !slices.Contains(got, want) {
			t.Errorf("no %q in %q", want, got)
		}
	}
	for _, l := range got {
		if l == `github issues read: policy.toml:3 github issues = "allow"` {
			t.Error("a read is listed")
		}
	}
	got = list(mustSet(t, toml, LimitsFile, "[connector.github.method]\ncomment = \"ask\"\n[connector.dav]\nsetting = \"ask-every-time\""))
	if len(got) > 0 {
		t.Errorf("what the limits hold back is listed: %q", got)
	}
}
