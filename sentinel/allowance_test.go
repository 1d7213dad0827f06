// SPDX-License-Identifier: Apache-2.0

package sentinel

import (
	"strings"
	"testing"
	"time"

	"github.com/doorward/doorward/internal/wire"
)

func TestAllowance(t *testing.T) {
	now := time.Unix(1_900_000_000, 0)
	a := &allowance{left: recordBurst, at: now}
	if !a.take(now, recordBurst) || a.take(now, 1) {
		t.Error("the burst is not what may be taken at once")
	}
	if a.take(now.Add(-time.Hour), 1) {
		t.Error("a clock that goes back gives something")
	}
	if now = now.Add(time.Second); !a.take(now, recordRate) || a.take(now, 1) {
		t.Error("a second does not give what a second gives")
	}
	if now = now.Add(1000 * time.Hour); !a.take(now, recordBurst) || a.take(now, 1) {
		t.Error("a long rest gives more than the burst")
	}
}

// What a list of cards says of one is short, whatever the call.
func TestBriefCardsFitAFrame(t *testing.T) {
	long := strings.Repeat("é", 5000)
	var many []string
	for range 2000 {
		many = append(many, long)
	}
	k := wire.Card{ID: "x", Title: long, Reason: long, Fields: []wire.Field{{Label: "a", Values: many}}, Facts: many,
		Policies: many, Grantable: &wire.Grant{Sentence: long},
		Bodies: []wire.Shown{{Text: long}}}
	brief(&k)
	b, err := wire.Marshal(&k)
	if err != nil || len(b) > wire.MaxFrame/200 {
		t.Errorf("%d bytes, %v", len(b), err)
	}
	if k.Grantable != nil || len(k.Fields[0].Values) > briefValues+1 || !strings.Contains(k.Fields[0].Values[briefValues], "1994 more") {
		t.Errorf("%+v", k)
	}
	small := wire.Card{ID: "y", Fields: []wire.Field{{Label: "a", Values: []string{"b"}}}, Grantable: &wire.Grant{ID: "g"}}
	if brief(&small); small.Grantable == nil || small.Fields[0].Values[0] != "b" {
		t.Errorf("%+v", small)
	}
}
