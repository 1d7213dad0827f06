// SPDX-License-Identifier: Apache-2.0

package ledger

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"strings"
	"testing"
)

// forgeries are what a stranger may put into a host, path, header, subject or file name.
var forgeries = map[string]string{
	"a line break":         "x\n{\"n\":7,\"type\":\"approve\",\"actor\":\"person:1000\"}",
	"CR and LF":            "x\r\n{\"type\":\"approve\"}\r\n",
	"next line U+0085":     "x\u0085{\"type\":\"approve\"}",
	"line separator":       "x\u2028{\"type\":\"approve\"}\u2029",
	"escape sequences":     "\x1b[2J\x1b]0;title\x07\x1b[31mapproved\x9b1m",
	"bad UTF-8":            "x\xff\xfe\xc0\xaf{\"type\":\"approve\"}",
	"quotes":               `x","type":"approve","y":"`,
	"a backslash":          `x\`,
	"NUL and DEL":          "x\x00\x7f",
	"bidirectional":        "gpj.\u202eexe",
	"a surrogate in JSON":  `\ud800`,
	"outside the BMP":      "x\U0001f600\U000e0041",
	"an empty one":         "",
	"a megabyte":           strings.Repeat("A", 1<<20),
	"a megabyte of breaks": strings.Repeat("\n", 1<<20),
	"a megabyte of quotes": strings.Repeat(`"`, 1<<20),
}

// TestAD02_ForgedLines: one record for each event, escaped, bounded, with a digest of the rest.
func TestAD02_ForgedLines(t *testing.T) {
	ctx := t.Context()
	l, _ := openAt(t, newDir(t))
	for name, s := range forgeries {
		before, _ := l.Head()
		err := l.Record(ctx, Event{Type: "sent", Actor: s, Cell: s, Session: s, Subject: s, Details: map[string]any{
			"host": s, s: "as a key", "list": []string{s}}})
		if err != nil {
			t.Fatal(name, err)
		}
		after, _ := l.Head()
		if after != before+1 {
			t.Fatalf("%s: %d entries", name, after-before)
		}
		es, err := l.Entries(ctx, Query{From: before})
		if err != nil || len(es) != 1 {
			t.Fatal(name, err)
		}
		line := es[0].Line()
		if len(line) > MaxDetails+8<<10 {
			t.Errorf("%s: the line has %d bytes", name, len(line))
		}
		for i, c := range line {
			if (c < 0x20 || c > 0x7e) && i != len(line)-1 {
				t.Fatalf("%s: byte %#x in the line", name, c)
			}
		}
		var e struct {
			Type    string
			Subject string
			Details struct {
				Host string
				Cut  bool
			}
		}
		if err := json.Unmarshal(line, &e); err != nil {
			t.Fatal(name, err)
		}
		if e.Type != "sent" {
			t.Errorf("%s: the type became %q", name, e.Type)
		}
		if want := string([]rune(s)); len(s) < 200 && e.Details.Host != want { // a bad byte becomes U+FFFD
			t.Errorf("%s: %q became %q", name, want, e.Details.Host)
		}
		if sum := sha256.Sum256([]byte(s)); len(s) > MaxDetails && !bytes.Contains(line, []byte(hex.EncodeToString(sum[:]))) {
			t.Errorf("%s: no digest of the rest in %.200s", name, line)
		}
	}
	r, err := l.Verify(ctx, nil)
	if err != nil {
		t.Fatal(err)
	}
	clean(t, "after the forgeries", r)
}

func TestTheWholeOfTheDetailsIsBounded(t *testing.T) {
	many := map[string]string{}
	for range 100 {
		many[NewID()] = strings.Repeat("\u00e9", 3000)
	}
	b, err := encodeDetails(many)
	if err != nil {
		t.Fatal(err)
	}
	var cut struct {
		Cut    bool
		SHA256 string
		Bytes  int
	}
	if err := json.Unmarshal(b, &cut); err != nil || !cut.Cut || len(cut.SHA256) != 64 || len(b) > MaxDetails {
		t.Fatal(len(b), cut, err)
	}
	if _, err := encodeDetails(func() {}); err == nil {
		t.Fatal("a func was encoded")
	}
}

// FuzzEvent holds every encoded event to one line of ASCII that reads back with its type.
func FuzzEvent(f *testing.F) {
	for _, s := range forgeries {
		if len(s) < 1000 {
			f.Add(s, s)
		}
	}
	f.Add(`\u00`, "\\\"")
	f.Fuzz(func(t *testing.T, name, detail string) {
		d, err := encodeDetails(map[string]any{detail: []string{detail, name}})
		if err != nil {
			t.Fatal(err)
		}
		ev := Event{Type: "sent", Actor: name, Subject: detail, Call: name}.bounded()
		line := ev.encode(Moment{}, d, []Write{{Row: name}})
		for _, c := range line {
			if c < 0x20 || c > 0x7e {
				t.Fatalf("byte %#x in %q", c, line)
			}
		}
		e, err := parse(0, line)
		if err != nil {
			t.Fatalf("%v in %q", err, line)
		}
		if e.Type != "sent" || e.Actor != ev.Actor || e.Subject != ev.Subject || e.Call != ev.Call {
			t.Fatalf("%+v became %+v", ev, e)
		}
	})
}

func TestRefusalsAreSummed(t *testing.T) {
	ctx := t.Context()
	dir := newDir(t)
	l, _ := openAt(t, dir)
	for i := range 1000 {
		r := Refusal{By: "egress", Cell: "a", Host: "evil.example", Reason: "not_allowed", Next: "ask"}
		if err := l.Refused(ctx, r); err != nil {
			t.Fatal(i, err)
		}
	}
	es, err := l.Why(ctx, "evil.example", 10)
	if err != nil || len(es) != 1 || es[0].Cell != "a" {
		t.Fatal(es, err)
	}
	for range 2 * maxRefusals {
		if err := l.Refused(ctx, Refusal{By: "egress", Host: NewID(), Reason: "not_allowed"}); err != nil {
			t.Fatal(err)
		}
	}
	closeNow(t, l)
	l, _ = openAt(t, dir)
	es, err = l.Why(ctx, "evil.example", 10)
	if err != nil || len(es) != 2 || !strings.Contains(string(es[0].Details), `"times":999`) {
		t.Fatal(es, err)
	}
	all, err := l.Entries(ctx, Query{Types: []string{EvRefused}})
	if err != nil || len(all) > maxRefusals+4 {
		t.Fatal(len(all), err)
	}
}

func TestFollowSeesWhatComes(t *testing.T) {
	ctx := t.Context()
	l, _ := openAt(t, newDir(t))
	more(t, l, 3)
	got := make(chan Entry, 100)
	done := make(chan error, 1)
	enough := errors.New("enough")
	go func() {
		done <- l.Follow(ctx, Query{From: 2, Types: []string{"test"}}, func(e Entry) error {
			got <- e
			if len(got) == 12 {
				return enough
			}
			return nil
		})
	}()
	for range 10 {
		more(t, l, 1)
	}
	if err := <-done; !errors.Is(err, enough) {
		t.Fatal(err)
	}
	for n := int64(2); n < 14; n++ {
		if e := <-got; e.N != n {
			t.Fatal(e.N, n)
		}
	}
}

func TestQueries(t *testing.T) {
	ctx := t.Context()
	l, _ := openAt(t, newDir(t))
	more(t, l, 20)
	for _, cell := range []string{"a", "b", "a"} {
		if err := l.Record(ctx, Event{Type: "other", Cell: cell, Subject: "h", Call: "c" + cell}); err != nil {
			t.Fatal(err)
		}
	}
	for name, c := range map[string]struct {
		q    Query
		want int
	}{
		"all":           {Query{}, 24},
		"by type":       {Query{Types: []string{"other", "open"}}, 4},
		"by call":       {Query{Call: "cb"}, 1},
		"about a call":  {Query{About: "ca"}, 2},
		"about a host":  {Query{About: "h"}, 3},
		"about none":    {Query{About: "nobody"}, 0},
		"the first two": {Query{Limit: 2}, 2},
		"a range":       {Query{From: 3, To: 7}, 4},
		"the newest":    {Query{Newest: true, Limit: 1}, 1},
	} {
		es, err := l.Entries(ctx, c.q)
		if err != nil || len(es) != c.want {
			t.Errorf("%s: %d entries, %v", name, len(es), err)
		}
		if name == "the newest" && es[0].N != 23 {
			t.Error(es[0].N)
		}
	}
}
