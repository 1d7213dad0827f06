// SPDX-License-Identifier: Apache-2.0

package operator

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/doorward/doorward/internal/wire"
)

// TestGrantOfACard: how often a grant is good for is what its flags say. Without --count that is any number of times within
// its time, though the card's own, which is what a yes without a grant gives, be for one request; of reads that ask because
// they are many it is the number on the card. What it then says is what it is.
func TestGrantOfACard(t *testing.T) {
	one := []wire.Limit{{Field: "begins", Values: []string{"tls"}}, {Field: "method", Values: []string{"POST"}},
		{Field: "path", Values: []string{"/m"}}, {Field: "query"}, {Field: "does"}, {Field: "model"}}
	request := &wire.Card{ID: "c1", Kind: "widening", Method: "request", Grantable: &wire.Grant{Connector: "chat", Method: "send",
		Account: "chat.example:443", Cell: "work", Session: "s1", Kind: "session", Count: 1, Limits: one}}
	site := &wire.Card{ID: "c2", Kind: "widening", Method: "site", Grantable: &wire.Grant{Connector: "site", Method: "connect",
		Account: "x.example:443", Cell: "work", Session: "s1", Kind: "session", Limits: one[:1]}}
	bulk := &wire.Card{ID: "c3", Kind: "call", Method: "mail-get", Grantable: &wire.Grant{Connector: "mail", Method: "mail-get",
		Account: "home", Cell: "work", Session: "s1", Kind: "session", Count: 200}}
	call := &wire.Card{ID: "c4", Kind: "call", Method: "create", Grantable: &wire.Grant{Connector: "demo", Method: "create",
		Account: "home", Cell: "work", Session: "s1", Kind: "session"}}
	now := time.Unix(1900000000, 0)
	for _, c := range []struct {
		name    string
		card    *wire.Card
		grant   string
		count   int64
		want    int64
		session string
		says    string
	}{
		{"a request, for a week", request, "until=7d", 0, 0, "", "as often as is asked"},
		{"a request, for a week, three times", request, "until=7d", 3, 3, "", "3 times in all"},
		{"a request, for a week, once", request, "until=7d", 1, 1, "", "once in all"},
		{"a request, in the session", request, "session", 0, 0, "s1", "as often as is asked"},
		{"a request, standing", request, "standing=30d", 0, 0, "", "as often as is asked"},
		{"a request, once", request, "once", 0, 0, "", "  once"},
		{"a site", site, "until=7d", 0, 0, "", "as often as is asked"},
		{"reads that are many", bulk, "until=7d", 0, 200, "", "200 times in all"},
		{"more reads that are many", bulk, "session", 900, 900, "s1", "900 times in all"},
		{"a call", call, "until=7d", 0, 0, "", "as often as is asked"},
	} {
		before := *c.card.Grantable
		gf := &grantFlags{kind: c.grant, count: c.count}
		g, err := gf.grant(c.card, now)
		if err != nil {
			t.Errorf("%s: %v", c.name, err)
			continue
		}
		if g.Count != c.want || g.Session != c.session {
			t.Errorf("%s: %d times in session %q", c.name, g.Count, g.Session)
		}
		if says := strings.Join((&app{now: now}).grantText(g), "\n"); !strings.Contains(says, c.says) {
			t.Errorf("%s: it says\n%s", c.name, says)
		}
		if before.Count != c.card.Grantable.Count || !slices.EqualFunc(before.Limits, c.card.Grantable.Limits, sameField) {
			t.Errorf("%s: the card has changed: %+v", c.name, c.card.Grantable)
		}
	}
	if g, err := (&grantFlags{}).grant(request, now); g != nil || err != nil {
		t.Errorf("without --grant it is the card's own: %+v, %v", g, err)
	}
}

func sameField(a, b wire.Limit) bool { return a.Field == b.Field }
