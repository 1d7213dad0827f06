// SPDX-License-Identifier: Apache-2.0

package caldav

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"strings"
	"sync"

	"github.com/emersion/go-ical"
	"github.com/emersion/go-vcard"
)

type kind int

const (
	kindCalendar kind = iota
	kindBook
)

// A store holds the collections of one person.
type store struct {
	mu          sync.Mutex // guards everything below
	user        string
	collections []*collection
	mails       []Mail
}

type collection struct {
	path  string // with a slash at its end
	kind  kind
	title string
	items map[string]*item
	gone  map[string]int // names of deleted items and the revision of that
	rev   int            // counts changes
	// oldest is the revision of the oldest sync token that is still answered.
	oldest int
}

type item struct {
	body []byte
	etag string
	uid  string
	rev  int
	cal  *ical.Calendar // of calendars
	card vcard.Card     // of address books
}

func newStore(user string) *store { return &store{user: user} }

func newCollection(path string, k kind, title string) *collection {
	return &collection{path: path, kind: k, title: title, items: map[string]*item{}, gone: map[string]int{}}
}

// split finds the collection of a path and the name below it, "" for the collection itself.
func (s *store) split(path string) (*collection, string) {
	for _, c := range s.collections {
		if name, ok := strings.CutPrefix(path, c.path); ok && !strings.Contains(name, "/") {
			return c, name
		}
		if path+"/" == c.path {
			return c, ""
		}
	}
	return nil, ""
}

func (s *store) item(path string) *item {
	c, name := s.split(path)
	if c == nil || name == "" {
		return nil
	}
	return c.items[name]
}

// put stores an object and returns it with the one it replaces. problem is the name of the precondition that failed.
func (s *store) put(path string, body []byte) (it, old *item, problem string) {
	c, name := s.split(path)
	if c == nil || name == "" {
		return nil, nil, "no such collection"
	}
	it = &item{body: bytes.Clone(body)}
	var err error
	if c.kind == kindCalendar {
		it.cal, it.uid, err = parseCalendar(body)
		problem = "C:valid-calendar-data"
	} else {
		it.card, it.uid, err = parseCard(body)
		problem = "CR:valid-address-data"
	}
	if err != nil {
		return nil, nil, problem
	}
	for other, have := range c.items {
		if have.uid == it.uid && other != name {
			return nil, nil, map[kind]string{kindCalendar: "C:no-uid-conflict", kindBook: "CR:no-uid-conflict"}[c.kind]
		}
	}
	c.rev++
	sum := sha256.Sum256(append([]byte(fmt.Sprintf("%d\n", c.rev)), body...))
	it.etag, it.rev = `"`+hex.EncodeToString(sum[:12])+`"`, c.rev
	old = c.items[name]
	c.items[name] = it
	delete(c.gone, name)
	return it, old, ""
}

// remove deletes an object that is there.
func (s *store) remove(path string) {
	c, name := s.split(path)
	c.rev++
	delete(c.items, name)
	c.gone[name] = c.rev
}

// parseCalendar reads one iCalendar object of one UID and kind of component, RFC 4791 section 4.1.
func parseCalendar(body []byte) (*ical.Calendar, string, error) {
	decoder := ical.NewDecoder(bytes.NewReader(body))
	cal, err := decoder.Decode()
	if err != nil {
		return nil, "", fmt.Errorf("read iCalendar: %w", err)
	}
	if method := cal.Props.Get(ical.PropMethod); method != nil {
		return nil, "", fmt.Errorf("read iCalendar: METHOD may not be stored")
	}
	uid, name := "", ""
	for _, component := range cal.Children {
		if component.Name == ical.CompTimezone {
			continue
		}
		prop := component.Props.Get(ical.PropUID)
		if prop == nil || prop.Value == "" || (uid != "" && prop.Value != uid) ||
			(name != "" && component.Name != name) {
			return nil, "", fmt.Errorf("read iCalendar: components of more than one UID or kind, or of none")
		}
		uid, name = prop.Value, component.Name
		if _, _, err := bounds(component); name == ical.CompEvent && err != nil {
			return nil, "", err
		}
	}
	if uid == "" {
		return nil, "", fmt.Errorf("read iCalendar: no component")
	}
	return cal, uid, nil
}

func parseCard(body []byte) (vcard.Card, string, error) {
	card, err := vcard.NewDecoder(bytes.NewReader(body)).Decode()
	if err != nil {
		return nil, "", fmt.Errorf("read vCard: %w", err)
	}
	uid := card.Value(vcard.FieldUID)
	if uid == "" || card.Value(vcard.FieldFormattedName) == "" {
		return nil, "", fmt.Errorf("read vCard: UID and FN are needed")
	}
	return card, uid, nil
}

// schedule notes whom server scheduling (RFC 6638) would mail for a change from old to new; either may be nil.
func (s *store) schedule(before, after *item) {
	me := "mailto:" + s.user + "@"
	people := func(it *item) (uid string, organized bool, who map[string]string) {
		who = map[string]string{}
		if it == nil || it.cal == nil {
			return "", false, who
		}
		for _, component := range it.cal.Children {
			organizer := component.Props.Get(ical.PropOrganizer)
			if organizer != nil && strings.HasPrefix(strings.ToLower(organizer.Value), me) {
				organized = true
			}
			for _, attendee := range component.Props.Values(ical.PropAttendee) {
				if strings.EqualFold(attendee.Params.Get("SCHEDULE-AGENT"), "NONE") {
					continue
				}
				who[attendee.Value] = attendee.Params.Get(ical.ParamParticipationStatus)
			}
			if organizer != nil && !organized {
				who["organizer"] = organizer.Value
			}
		}
		return it.uid, organized, who
	}
	uid, mine, now := people(after)
	oldUID, oldMine, then := people(before)
	if uid == "" {
		uid, mine = oldUID, oldMine
	}
	add := func(method, to string) {
		s.mails = append(s.mails, Mail{Method: method, To: strings.TrimPrefix(to, "mailto:"), UID: uid})
	}
	if mine {
		for to := range now {
			if !strings.HasPrefix(strings.ToLower(to), me) {
				add("REQUEST", to)
			}
		}
		for to := range then {
			if _, still := now[to]; !still && !strings.HasPrefix(strings.ToLower(to), me) {
				add("CANCEL", to)
			}
		}
		return
	}
	for to, answer := range now {
		if strings.HasPrefix(strings.ToLower(to), me) && before != nil && then[to] != answer {
			add("REPLY", now["organizer"])
		}
	}
	if after == nil && then["organizer"] != "" {
		add("REPLY", then["organizer"]) // deleting a copy declines
	}
}
