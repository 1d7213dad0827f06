// SPDX-License-Identifier: Apache-2.0

package sentinel

import (
	"encoding/hex"
	"encoding/json"
	"fmt"
	"slices"
	"unicode/utf8"

	"github.com/doorward/doorward/internal/describe"
	"github.com/doorward/doorward/internal/wire"
	"github.com/doorward/doorward/sentinel/ledger"
	"github.com/doorward/doorward/sentinel/prepared"
)

// maxShown is how many bytes of a body a card shows, allShown of all together.
const (
	maxShown = 128 << 10
	allShown = 512 << 10
)

// card is what a person decides on. Its text comes from typed arguments and the description; nothing the agent wrote
// stands outside a field of its own.
func (s *Sentinel) card(j *judged, c *ledger.Call) *wire.Card {
	approval, _ := hex.DecodeString(c.Approval) // record made it
	k := &wire.Card{ID: c.ID, Kind: "call", State: wire.StateParked, Title: j.method.Summary, Connector: c.Connector,
		Method: c.Method, Account: c.Account, Class: c.Class, Reach: c.Reach, Sensitive: c.Sensitive, Cell: c.Cell,
		Session: sessionName(j.caller), Attended: c.Attended, Labels: s.causes(c.Cell), Reason: j.decision.Reason,
		Policies: j.decision.Policies, Mark: c.Mark, Hash: approval, Made: c.Created.Time().Unix(),
		Expires: c.Deadline.Time().Unix()}
	leading := []string{"recipient", "amount", "destination"}
	for _, n := range []int{0, 1, 2, -1} { // these first, then the rest
		for i := range j.method.Args {
			a := &j.method.Args[i]
			if slices.Index(leading, a.Role) != n || len(j.values[a.Name]) == 0 || a.Type == describe.TypeFile {
				continue
			}
			k.Fields = append(k.Fields, wire.Field{Label: a.Label, Values: j.values[a.Name], Main: n >= 0})
		}
	}
	for i, f := range j.files {
		b, err := wire.ReadFile(int(f.Fd()), wire.MaxFile)
		if err != nil {
			continue // it was checked before; what is shown less is still approved by digest
		}
		k.Bodies = append(k.Bodies, shown(j.frame.Files[i].Name, "", b, min(maxShown, allShown/len(j.files))))
	}
	if now, err := prepared.Look(j.base); err == nil { // the arguments name it by its path only
		k.Fields = append(k.Fields, wire.Field{Label: "At the server now", Values: now.Lines()})
	}
	switch {
	case j.bodied && len(j.body) > 0:
		k.Bodies = append(k.Bodies, shown("what is sent", j.media, j.body, maxShown))
	case j.goes():
		k.Bodies = append(k.Bodies, shown("what goes", "", j.base, maxShown))
	}
	for _, r := range j.facts.Recipients {
		k.Facts = append(k.Facts, "reaches "+r)
	}
	for _, r := range j.facts.FirstTime {
		k.Facts = append(k.Facts, "first time you write to "+r)
	}
	if g, ok := s.policy.Load().Prefill(&j.facts); ok {
		k.Grantable = &g
	}
	return k
}

// goes says whether the card shows what stands at the server: a deletion sends nothing.
func (j *judged) goes() bool { return len(j.base) > 0 && len(j.body) == 0 }

// cardFits encodes a card that a person can be shown whole. What nobody could look at is not put up for decision.
func cardFits(k *wire.Card) (json.RawMessage, error) {
	for {
		b, err := wire.Marshal(&wire.ShowResp{Card: *k})
		switch {
		case err != nil:
			return nil, err
		case len(b) <= wire.MaxFrame-maxSlack:
			return json.Marshal(k)
		case k.Grantable == nil:
			return nil, wire.Refuse(wire.CodeTooLarge, "the call is too large to be shown to a person", "send less at once")
		}
		k.Grantable = nil // a grant with so many values is none that a person could read
	}
}

// maxSlack is what may still come to a card: the state it is in later, and why.
const maxSlack = 16 << 10

func shown(name, media string, b []byte, most int) wire.Shown {
	w := wire.Shown{Name: name, Media: media, Size: int64(len(b)), SHA256: wire.Sum(b)}
	cut := b
	if len(cut) > most {
		cut, w.Cut = cut[:most], true
		for len(cut) > 0 && !utf8.RuneStart(b[len(cut)]) {
			cut = cut[:len(cut)-1]
		}
	}
	if utf8.Valid(cut) {
		w.Text = string(cut)
	} else {
		w.Text, w.Cut, w.Binary = fmt.Sprintf("%d bytes that are no text", len(b)), true, true
	}
	return w
}

// causes are a cell's labels with where they came from.
func (s *Sentinel) causes(cell string) []wire.Cause {
	var out []wire.Cause
	for _, l := range s.ledger.Labels(cell) {
		for _, c := range l.Causes {
			out = append(out, wire.Cause{Label: l.Name, Why: c.Connector + " " + c.Method + ", call " + c.Call, Unix: c.At.Time().Unix()})
		}
	}
	return out
}

// cardOf is a call's card as it stands now.
func cardOf(c *ledger.Call) (wire.Card, error) {
	var k wire.Card
	if len(c.Card) > 0 {
		if err := json.Unmarshal(c.Card, &k); err != nil {
			return k, fmt.Errorf("read the card of call %s: %w", c.ID, err)
		}
	} else {
		k = wire.Card{ID: c.ID, Kind: "call", Title: c.Connector + " " + c.Method, Connector: c.Connector, Method: c.Method,
			Account: c.Account, Class: c.Class, Reach: c.Reach, Sensitive: c.Sensitive, Cell: c.Cell,
			Mark: c.Mark, Made: c.Created.Time().Unix(), Policies: []string{c.Policy}, Reason: c.Reason}
	}
	if c.After != "" {
		k.Facts = append(k.Facts, "an equal call, "+c.After+", may have run already; look at the vendor's side first")
	}
	k.State = wire.State(c.State)
	if c.State.Final() || c.State == ledger.Unknown {
		k.Err = stateError(c)
	}
	return k, nil
}
