// SPDX-License-Identifier: Apache-2.0

package notices

import (
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/doorward/doorward/sentinel/ledger"
)

// play is a book with a clock, and targets that take everything at once: push now, ntfy after ten minutes, hook after twenty.
type play struct {
	t    *testing.T
	now  ledger.Moment
	n    int64
	ids  int
	book *Book
	to   []Target
	down map[string]bool
	sent []string // "target: state xcount"
}

func newPlay(t *testing.T) *play {
	p := &play{t: t, now: ledger.Moment{Wall: 1e12, Boot: 1e12, BootID: "b"}, down: map[string]bool{},
		to: []Target{{"push", 0}, {"ntfy", 10 * time.Minute}, {"hook", 20 * time.Minute}}}
	var err error
	if p.book, err = Load(nil, p.id); err != nil {
		t.Fatal(err)
	}
	return p
}

func (p *play) id() string {
	p.ids++
	return fmt.Sprintf("t%03d", p.ids)
}

// take has an entry come; what is "cell/call" says whose it is.
func (p *play) take(call, state string, by ...string) {
	cell, _, _ := strings.Cut(call, "/")
	p.n++
	p.book.Take(p.now, &Event{N: p.n, State: state, Call: call, Cell: cell, Connector: "mail", Method: "send", Title: "send a mail",
		Person: len(by) > 0})
	p.send()
}

func (p *play) wait(d time.Duration) {
	for end := p.now.Add(d); !p.now.Reached(end); {
		p.now = p.now.Add(time.Minute)
		p.send()
	}
}

// send sends what is due until nothing is, and has the book read back each time: what is not in its rows is lost.
func (p *play) send() {
	p.t.Helper()
	for range 1000 {
		due := p.book.Due(p.now, p.to)
		due = slices.DeleteFunc(due, func(s Sending) bool { return p.down[s.To] })
		if len(due) == 0 {
			p.book.Sweep(p.now, p.to)
			p.reload()
			return
		}
		for _, s := range due {
			n := s.Item.Count
			if s.Item.waits() {
				n = len(s.Thread.Waiting)
			}
			p.sent = append(p.sent, fmt.Sprintf("%s: %s x%d", s.To, s.Item.State, n))
			p.book.Sent(p.now, s, true, false, 0)
		}
	}
	p.t.Fatal("it sends without end")
}

func (p *play) reload() {
	p.t.Helper()
	rows := map[string][]byte{}
	for id, t := range p.book.threads {
		b, err := json.Marshal(t)
		if err != nil {
			p.t.Fatal(err)
		}
		rows[id] = b
	}
	b, err := Load(rows, p.id)
	if err != nil {
		p.t.Fatal(err)
	}
	p.book = b
}

func (p *play) want(sent ...string) {
	p.t.Helper()
	if !reflect.DeepEqual(p.sent, sent) && len(p.sent)+len(sent) > 0 {
		p.t.Errorf("sent\n%s\nwant\n%s", strings.Join(p.sent, "\n"), strings.Join(sent, "\n"))
	}
	p.sent = nil
}

func TestOneNoticeForEachState(t *testing.T) {
	p := newPlay(t)
	p.take("a/1", "parked")
	p.take("a/1", "approved", "ada")
	p.take("a/1", "executing")
	p.take("a/1", "unknown")
	p.take("a/1", "done")
	p.want("push: parked x1", "push: approved x1", "push: unknown x1", "push: done x1")
	p.take("a/2", "parked")
	p.take("a/2", "denied", "ada")
	p.take("a/3", "parked")
	p.take("a/3", "expired")
	p.want("push: parked x1", "push: denied x1", "push: parked x1", "push: expired x1")
	p.wait(30 * time.Minute)
	p.want()
	if len(p.book.threads) != 0 {
		t.Errorf("%d threads are left", len(p.book.threads))
	}
}

func TestTheNextChannelWhereNobodyLooked(t *testing.T) {
	p := newPlay(t)
	p.take("a/1", "parked")
	p.wait(9 * time.Minute)
	p.want("push: parked x1")
	p.wait(time.Minute)
	p.want("ntfy: parked x1")
	p.wait(time.Hour)
	p.want("hook: parked x1")
	p.take("a/1", "approved", "ada")
	p.want("push: approved x1", "ntfy: approved x1", "hook: approved x1") // where it was told that it waits

	p.take("a/2", "parked")
	p.book.Seen("a/2")
	p.wait(time.Hour)
	p.take("a/2", "denied", "ada")
	p.want("push: parked x1", "push: denied x1")
}

// A machine that was off, or a clock that was set, sends each once.
func TestTimeThatPassedAtOnce(t *testing.T) {
	p := newPlay(t)
	p.take("a/1", "parked")
	p.now = p.now.Add(48 * time.Hour)
	p.send()
	p.want("push: parked x1", "ntfy: parked x1", "hook: parked x1")
}

func TestWhatWasDecidedIsWithdrawn(t *testing.T) {
	p := newPlay(t)
	p.down = map[string]bool{"push": true}
	p.take("a/1", "parked")
	p.take("a/1", "denied", "ada")
	p.down = nil
	p.send()
	p.want("push: denied x1")
	p.take("b/1", "parked")
	p.take("b/1", "revoked")
	p.want("push: parked x1", "push: revoked x1")
}

// The flood of AP-07: alike cards are one notice and then one in ten minutes, whoever they are taken back by; a cell has a bound
// together; another cell is told of at once.
func TestAP07AFloodIsFewNotices(t *testing.T) {
	p := newPlay(t)
	p.to = p.to[:1]
	for i := range 50 {
		p.take(fmt.Sprintf("a/%d", i), "parked")
	}
	p.take("b/1", "parked")
	p.want("push: parked x1", "push: parked x1")
	p.wait(10 * time.Minute)
	p.want("push: parked x50")

	p = newPlay(t)
	p.to = p.to[:1]
	for i := range 1000 {
		p.take(fmt.Sprintf("a/%d", i), "parked")
		p.take(fmt.Sprintf("a/%d", i), "revoked")
	}
	p.want("push: parked x1", "push: revoked x1")

	p = newPlay(t)
	p.to = p.to[:1]
	for i := range 40 {
		p.n++
		p.book.Take(p.now, &Event{N: p.n, State: "parked", Call: fmt.Sprint(i), Cell: "a", Connector: "mail", Method: fmt.Sprint(i)})
		p.send()
	}
	if len(p.sent) != maxThreads+1 {
		t.Errorf("40 kinds of cards are %d notices", len(p.sent))
	}

	p = newPlay(t) // and it puts nothing off: the next channel is told in time
	for i := range 25 {
		p.take(fmt.Sprintf("a/%d", i), "parked")
		p.wait(time.Minute)
	}
	if !slices.Contains(p.sent, "ntfy: parked x11") && !slices.Contains(p.sent, "ntfy: parked x10") ||
		!slices.ContainsFunc(p.sent, func(s string) bool { return strings.HasPrefix(s, "hook: parked") }) {
		t.Errorf("%q", p.sent)
	}
}

// Whoever decides is told of the next one at once.
func TestTheNextCardIsToldAtOnce(t *testing.T) {
	p := newPlay(t)
	for i := range 3 {
		call := fmt.Sprintf("a/%d", i)
		p.take(call, "parked")
		p.take(call, "approved", "ada")
	}
	p.want(slices.Repeat([]string{"push: parked x1", "push: approved x1"}, 3)...)
}

// A channel that is down for long makes no row too large to be kept.
func TestRowsAreBounded(t *testing.T) {
	p := newPlay(t)
	p.down = map[string]bool{"push": true, "ntfy": true, "hook": true}
	for i := range 50 {
		p.n++
		p.book.Take(p.now, &Event{N: p.n, State: "parked", Call: fmt.Sprintf("%026d", i), Cell: "a", Connector: "mail", Method: "send"})
	}
	for i := range 50 {
		for _, state := range []string{"approved", "executing", "unknown", "done"} {
			p.take(fmt.Sprintf("%026d", i), state, "ada")
		}
	}
	for _, th := range p.book.threads {
		if b, err := json.Marshal(th); err != nil || len(b) > ledger.MaxNotice || len(th.Items) > maxItems {
			t.Errorf("a row of %d bytes with %d items, %v", len(b), len(th.Items), err)
		}
	}
}

func TestTriesEnd(t *testing.T) {
	p := newPlay(t)
	p.down = map[string]bool{"push": true} // play sends nothing there
	p.take("a/1", "parked")
	tries, last := 0, p.now
	for range 100000 {
		due := slices.DeleteFunc(p.book.Due(p.now, p.to), func(s Sending) bool { return s.To != "push" })
		for _, s := range due {
			tries, last = tries+1, p.now
			p.book.Sent(p.now, s, false, true, 0)
			p.reload()
		}
		p.now = p.now.Add(time.Second)
	}
	if long := last.Time().Sub(time.UnixMicro(1e12)); tries != maxTries || long < time.Hour || long > 12*time.Hour {
		t.Errorf("%d tries in %s", tries, long)
	}
	p.take("a/2", "parked")
	due := p.book.Due(p.now, p.to)
	if len(due) == 0 {
		t.Fatal("nothing is due")
	}
	p.book.Sent(p.now, due[0], false, true, 30*time.Minute) // the server said so
	p.now = p.now.Add(29 * time.Minute)
	if slices.ContainsFunc(p.book.Due(p.now, p.to), func(s Sending) bool { return s.To == "push" }) {
		t.Error("it is tried before the server wanted")
	}
	p.now = p.now.Add(2 * time.Minute)
	if !slices.ContainsFunc(p.book.Due(p.now, p.to), func(s Sending) bool { return s.To == "push" }) {
		t.Error("it is not tried again")
	}
}

// A row that is not what was written stops: it is our own.
func FuzzLoad(f *testing.F) {
	f.Add([]byte(`{"id":"t","begun":{},"waiting":["a"],"items":[{"n":1,"state":"parked","count":1,"due":{}}]}`))
	f.Add([]byte(`{"id":"t","items":[null]}`))
	f.Fuzz(func(t *testing.T, row []byte) {
		b, err := Load(map[string][]byte{"t": row}, func() string { return "new" })
		if (b == nil) == (err == nil) {
			t.Fatalf("%v, %v", b, err)
		}
		if err != nil {
			return
		}
		now := ledger.Moment{Wall: 1}
		to := []Target{{"a", 0}, {"b", time.Minute}}
		b.Take(now, &Event{N: 1, State: "parked", Call: "x"})
		for _, s := range b.Due(now, to) {
			b.Sent(now, s, false, true, 0)
		}
		b.Take(now, &Event{N: 2, State: "done", Call: "a"})
		b.Seen("x")
		b.Sweep(now, to)
		if _, err := b.Rows(); err != nil {
			t.Fatal(err)
		}
	})
}
