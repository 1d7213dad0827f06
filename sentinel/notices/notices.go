// SPDX-License-Identifier: Apache-2.0

// Package notices decides what people are told, where, and when: it is the outbox, without a clock, a disk or a network of its own.
// What happened comes from the record, entry by entry; what is still to be told stands in rows that the record keeps too, so that a
// restart neither loses a notice nor makes one twice.
//
// Cards that are alike (cell, connector, method) share a thread while nobody has looked at it, and a thread asks once in Window: an
// agent that puts up a thousand cards, or one a thousand times, makes two notices in ten minutes, not a thousand.
package notices

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/doorward/doorward/sentinel/ledger"
)

// What bounds the outbox.
const (
	Window     = 10 * time.Minute // between two notices that alike cards wait, while nobody looked
	maxThreads = 6                // of one cell that nobody looked at; what comes beyond shares one
	maxCalls   = 100              // of one thread whose end is still to come
	maxItems   = 64               // of one thread that are not told yet; the oldest give way
	keepGoing  = 24 * time.Hour   // how long a thread is kept for the end of its calls
	maxTries   = 10
	firstTry   = 2 * time.Second // until the second try; each wait is four times the one before, at most maxWait
	maxWait    = time.Hour
)

// States that are no state of a call.
const (
	ApproverAdded   = "approver-added"
	ApproverRemoved = "approver-removed"
	WallFailed      = "wall-failed"
	Test            = "test"
)

// Event is an entry of the record that people may be told of.
type Event struct {
	N                       int64  // of the entry
	State                   string // of the call now, or one of the above
	Call                    string
	Cell, Connector, Method string
	Title                   string // what the description says of the method; nothing that an agent wrote
	Object                  string // the vendor's name of what was made
	MadeAt                  string // its address there, https; empty where that cannot be known
	Person                  bool   // a person made it so
}

// Thread is what is told of alike cards. Its id is the same for all that is told of it: where a channel can, the newer replaces the
// older.
type Thread struct {
	ID        string        `json:"id"`
	Cell      string        `json:"cell,omitzero"`
	Connector string        `json:"connector,omitzero"` // empty in the one that takes what is beyond maxThreads
	Method    string        `json:"method,omitzero"`
	Title     string        `json:"title,omitzero"`
	Begun     ledger.Moment `json:"begun"`
	Asked     ledger.Moment `json:"asked,omitzero"` // when it last said, or is to say, that something waits
	Gone      ledger.Moment `json:"gone,omitzero"`  // when it last said that what waited was taken back
	Waiting   []string      `json:"waiting,omitzero"`
	Going     []string      `json:"going,omitzero"` // calls that were decided and have not ended
	Seen      bool          `json:"seen,omitzero"`  // by a person: nobody else need be told that it waits
	Told      []string      `json:"told,omitzero"`  // where it was said that something waits
	Items     []*Item       `json:"items,omitzero"` // oldest first
}

// Item is one thing to tell.
type Item struct {
	N      int64          `json:"n"` // of its entry: with the thread's id and the channel the name under which it is sent, each time
	State  string         `json:"state"`
	Count  int            `json:"count"`
	Call   string         `json:"call,omitzero"` // the one call that it is of
	Object string         `json:"object,omitzero"`
	MadeAt string         `json:"made_at,omitzero"`
	Due    ledger.Moment  `json:"due"`
	Ways   map[string]Way `json:"ways,omitzero"` // what became of it, by target
}

// Way is where an item stands on its way to one target.
type Way struct {
	Over  bool          `json:"over,omitzero"`
	Tries int           `json:"tries,omitzero"`
	Next  ledger.Moment `json:"next,omitzero"`
}

// Target is where notices go: a channel, or one browser of Web Push. After is how long nobody must have looked before it is told that
// something waits.
type Target struct {
	Name  string
	After time.Duration
}

// Sending is an item to be sent to a target now.
type Sending struct {
	Thread *Thread
	Item   *Item
	To     string
}

// ID names a sending for whoever receives it: of two with one id the second is the first once more.
func (s Sending) ID() string { return fmt.Sprintf("%s.%d", s.Thread.ID, s.Item.N) }

// Book is all threads. It is not safe for concurrent use.
type Book struct {
	NewID   func() string
	threads map[string]*Thread
	dirty   map[string]bool
}

// Load makes a book of its rows.
func Load(rows map[string][]byte, newID func() string) (*Book, error) {
	b := &Book{NewID: newID, threads: map[string]*Thread{}, dirty: map[string]bool{}}
	for id, row := range rows {
		t := new(Thread)
		if err := json.Unmarshal(row, t); err != nil || t.ID != id || slices.Contains(t.Items, nil) {
			return nil, fmt.Errorf("read notice %.40q back: %v", id, cmp.Or(err, fmt.Errorf("it is another's, or has no items")))
		}
		b.threads[id] = t
	}
	return b, nil
}

// Rows are the rows that changed since Kept was called last; nil is one that is gone.
func (b *Book) Rows() (map[string][]byte, error) {
	out := map[string][]byte{}
	for id := range b.dirty {
		t := b.threads[id]
		if t == nil {
			out[id] = nil
			continue
		}
		row, err := json.Marshal(t)
		if err != nil {
			return nil, err
		}
		out[id] = row
	}
	return out, nil
}

// Kept says that Rows are durable.
func (b *Book) Kept() { clear(b.dirty) }

// all are the threads, oldest first.
func (b *Book) all() []*Thread {
	return slices.SortedFunc(maps.Values(b.threads), func(x, y *Thread) int {
		return cmp.Or(cmp.Compare(x.Begun.Wall, y.Begun.Wall), cmp.Compare(x.ID, y.ID))
	})
}

func (b *Book) begin(now ledger.Moment, e *Event) *Thread {
	t := &Thread{ID: b.NewID(), Cell: e.Cell, Connector: e.Connector, Method: e.Method, Title: e.Title, Begun: now}
	b.threads[t.ID] = t
	b.dirty[t.ID] = true
	return t
}

// Of says whether a call is in some thread.
func (b *Book) Of(call string) bool { return b.of(call) != nil }

func (b *Book) of(call string) *Thread {
	for _, t := range b.threads {
		if call != "" && (slices.Contains(t.Waiting, call) || slices.Contains(t.Going, call)) {
			return t
		}
	}
	return nil
}

// Take takes an entry of the record.
func (b *Book) Take(now ledger.Moment, e *Event) {
	switch ledger.State(e.State) {
	case ledger.Parked:
		b.park(now, e)
		return
	case ledger.Approved, ledger.Executing, ledger.Done, ledger.Failed, ledger.Unknown, ledger.Denied, ledger.Expired, ledger.Revoked,
		ledger.None:
	}
	t := b.of(e.Call)
	switch {
	case t == nil && (e.State == string(ledger.Executing) || e.State == string(ledger.Revoked)):
		return
	case t == nil:
		t = b.begin(now, e)
	}
	b.dirty[t.ID] = true
	is := func(c string) bool { return c == e.Call }
	t.Waiting, t.Going = slices.DeleteFunc(t.Waiting, is), slices.DeleteFunc(t.Going, is)
	t.Seen = t.Seen || e.Person
	if e.Call != "" && !ledger.State(e.State).Final() {
		t.Going = append(t.Going, e.Call)
		t.Going = t.Going[max(0, len(t.Going)-maxCalls):]
	}
	if len(t.Waiting) == 0 { // what nobody was told yet is nothing to tell any more
		t.Items = slices.DeleteFunc(t.Items, (*Item).waits)
	}
	due := now
	switch ledger.State(e.State) {
	case ledger.Executing:
		return
	case ledger.Revoked: // a cell can take back as often as it likes: it is said where it was told that something waits, and seldom
		if len(t.Waiting) > 0 || len(t.Told) == 0 {
			return
		}
		if next := t.Gone.Add(Window); !t.Gone.IsZero() && !now.Reached(next) {
			due = next
		}
		t.Gone = due
	}
	if last := t.last(); last != nil && last.State == e.State && len(last.Ways) == 0 {
		last.Count++
		last.Call, last.Object, last.MadeAt = "", "", ""
		return
	}
	t.Items = append(t.Items, &Item{N: e.N, State: e.State, Count: 1, Call: e.Call, Object: e.Object, MadeAt: e.MadeAt, Due: due})
	t.Items = t.Items[max(0, len(t.Items)-maxItems):]
}

func (t *Thread) last() *Item {
	if len(t.Items) == 0 {
		return nil
	}
	return t.Items[len(t.Items)-1]
}

func (i *Item) waits() bool { return i.State == string(ledger.Parked) }

// park puts a card that waits into a thread.
func (b *Book) park(now ledger.Moment, e *Event) {
	t := b.thread(now, e)
	b.dirty[t.ID] = true
	if slices.Contains(t.Waiting, e.Call) {
		return
	}
	t.Waiting = append(t.Waiting, e.Call)
	for _, i := range t.Items {
		if i.waits() && len(i.Ways) == 0 { // not told yet: it will say how many there are
			i.Call = ""
			return
		}
	}
	due := now
	if next := t.Asked.Add(Window); !t.Asked.IsZero() && !now.Reached(next) {
		due = next
	}
	t.Asked = due
	// What was told before goes on to nobody: this says it again, of all. So with what was to be said of one that was taken back.
	t.Items = slices.DeleteFunc(t.Items, func(i *Item) bool {
		return i.waits() || i.State == string(ledger.Revoked) && len(i.Ways) == 0
	})
	i := &Item{N: e.N, State: e.State, Count: 1, Due: due}
	if len(t.Waiting) == 1 {
		i.Call = e.Call
	}
	t.Items = append(t.Items, i)
}

// thread is the one that a card belongs to. Nobody has looked at it, or it is new.
func (b *Book) thread(now ledger.Moment, e *Event) *Thread {
	open := 0
	var rest *Thread
	for _, t := range b.all() {
		if t.Cell != e.Cell || t.Seen || t.Asked.IsZero() || len(t.Waiting) == 0 && now.Reached(t.Asked.Add(Window)) {
			continue
		}
		open++
		if t.Connector == e.Connector && t.Method == e.Method {
			return t
		}
		if t.Connector == "" {
			rest = t
		}
	}
	switch {
	case open < maxThreads:
		return b.begin(now, e)
	case rest != nil:
		return rest
	}
	return b.begin(now, &Event{Cell: e.Cell})
}

// Seen says that a person has looked at a call, or wants to hear no more of it. It reports whether anything was to be told of it.
func (b *Book) Seen(call string) bool {
	t := b.of(call)
	if t == nil || t.Seen {
		return false
	}
	t.Seen = true
	b.dirty[t.ID] = true
	return true
}

// Due is what is to be sent now, at most one item of a thread to one target: they arrive in their order. The time until a target is
// told that something waits runs from the thread's first card: further ones do not put it off.
func (b *Book) Due(now ledger.Moment, to []Target) []Sending {
	var out []Sending
	for _, t := range b.all() {
		for _, target := range to {
			for _, i := range t.Items {
				w := i.Ways[target.Name]
				if w.Over || !t.goes(i, target) {
					continue
				}
				early := i.waits() && !now.Reached(t.Begun.Add(target.After)) || !w.Next.IsZero() && !now.Reached(w.Next)
				if now.Reached(i.Due) && !early {
					out = append(out, Sending{t, i, target.Name})
				}
				break
			}
		}
	}
	return out
}

// goes says whether the item is for that target at all: what became of a card is told where it was said that it waits, and where people
// are told at once. What concerns who may decide, and walls that did not hold, is told everywhere.
func (t *Thread) goes(i *Item, to Target) bool {
	switch {
	case i.State == string(ledger.Revoked):
		return slices.Contains(t.Told, to.Name)
	case to.After == 0, i.State == ApproverAdded, i.State == ApproverRemoved, i.State == WallFailed:
		return true
	case i.waits():
		return !t.Seen || i.Ways[to.Name].Tries > 0
	}
	return slices.Contains(t.Told, to.Name)
}

// Sent says what became of a sending: told, or to be tried again (after wait, where the server said how long), or neither, which ends
// it. It reports whether it is over.
func (b *Book) Sent(now ledger.Moment, s Sending, told, again bool, wait time.Duration) bool {
	b.dirty[s.Thread.ID] = true
	if s.Item.Ways == nil {
		s.Item.Ways = map[string]Way{}
	}
	w := s.Item.Ways[s.To]
	w.Tries++
	w.Over = told || !again || w.Tries >= maxTries
	if !w.Over {
		w.Next = now.Add(max(wait, min(maxWait, firstTry<<(2*(w.Tries-1)))))
	}
	s.Item.Ways[s.To] = w
	if told && s.Item.waits() && !slices.Contains(s.Thread.Told, s.To) {
		s.Thread.Told = append(s.Thread.Told, s.To)
	}
	return w.Over
}

// Sweep forgets what has been told to everybody, and threads of which nothing more comes.
func (b *Book) Sweep(now ledger.Moment, to []Target) {
	for _, t := range b.all() {
		n := len(t.Items)
		t.Items = slices.DeleteFunc(t.Items, func(i *Item) bool {
			return !slices.ContainsFunc(to, func(target Target) bool { return !i.Ways[target.Name].Over && t.goes(i, target) })
		})
		if len(t.Items) != n {
			b.dirty[t.ID] = true
		}
		old := now.Reached(t.Begun.Add(keepGoing))
		if len(t.Items) == 0 && len(t.Waiting) == 0 && (len(t.Going) == 0 || old) &&
			(t.Asked.IsZero() || now.Reached(t.Asked.Add(Window))) {
			delete(b.threads, t.ID)
			b.dirty[t.ID] = true
		}
	}
}
