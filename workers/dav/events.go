// SPDX-License-Identifier: Apache-2.0

package dav

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/emersion/go-ical"

	"github.com/doorward/doorward/internal/describe"
	"github.com/doorward/doorward/internal/wire"
	"github.com/doorward/doorward/workers"
)

// Bounds of what is shown.
const (
	maxRange     = 400 * 24 * time.Hour
	maxInstances = 20_000          // looked at in one answer
	expandTime   = 5 * time.Second // for all expansions of one answer
	maxPeople    = 50              // shown of one event
	titleBytes   = 500
	nameOfPerson = 200
	textInList   = 1 << 10 // of a description
	textAlone    = 64 << 10
	maxShown     = 100 // exceptions of one event
)

// item is an event, or one occurrence of it, as answers show it. Ends of whole days are included.
type item struct {
	Event       string        `json:"event"`
	ETag        string        `json:"etag,omitempty"`
	Instance    string        `json:"instance,omitempty"` // value of --instance
	Recurring   bool          `json:"recurring,omitempty"`
	Title       *workers.Text `json:"title,omitempty"`
	Start       string        `json:"start,omitempty"`
	End         string        `json:"end,omitempty"`
	AllDay      bool          `json:"all_day,omitempty"`
	Zone        string        `json:"tz,omitempty"`
	Location    *workers.Text `json:"location,omitempty"`
	Description *workers.Text `json:"description,omitempty"`
	Status      string        `json:"status,omitempty"`
	Free        bool          `json:"free,omitempty"` // does not make the person busy
	Organizer   *person       `json:"organizer,omitempty"`
	Attendees   []person      `json:"attendees,omitempty"`
	MorePeople  int           `json:"more_attendees,omitempty"`
}

type person struct {
	Address string        `json:"address,omitempty"`
	Name    *workers.Text `json:"name,omitempty"`
	Status  string        `json:"status,omitempty"`
}

// show writes an instance down.
func (i *instance) show(path, etag string, textBytes int) item {
	c := i.comp
	source := "calendar event " + path
	author := ""
	if o := c.Props.Get(ical.PropOrganizer); o != nil {
		author = emailOf(o)
	}
	of := func(name string, limit int) *workers.Text {
		return workers.Untrusted(text(c, name), source, author, limit)
	}
	it := item{Event: path, ETag: etag, Recurring: i.recurring, Title: of(ical.PropSummary, titleBytes),
		Location: of(ical.PropLocation, titleBytes), Description: of(ical.PropDescription, textBytes),
		Start: i.start.show(), End: i.end.show(), AllDay: i.start.date,
		Status: word(c, ical.PropStatus), Free: is(c, ical.PropTransparency, "TRANSPARENT")}
	if i.start.date {
		last := i.end.t.AddDate(0, 0, -1)
		if last.Before(i.start.t) {
			last = i.start.t
		}
		it.End = last.Format(time.DateOnly)
	} else if n := i.start.t.Location().String(); !i.start.floating && n != "UTC" && zoneName(n) {
		it.Zone = n
	}
	if i.recurring && !i.id.t.IsZero() {
		id := i.id
		if !id.date && !id.floating {
			id.t = id.t.UTC()
		}
		it.Instance = id.show()
	}
	if o := c.Props.Get(ical.PropOrganizer); o != nil {
		p := personOf(o, source)
		p.Status = ""
		it.Organizer = &p
	}
	all := c.Props.Values(ical.PropAttendee)
	for n := range all {
		if n == maxPeople {
			it.MorePeople = len(all) - n
			break
		}
		it.Attendees = append(it.Attendees, personOf(&all[n], source))
	}
	return it
}

func personOf(p *ical.Prop, source string) person {
	out := person{Address: emailOf(p), Status: choice(p.Params.Get(ical.ParamParticipationStatus))}
	name := p.Params.Get(ical.ParamCommonName)
	if out.Address == "" && name == "" {
		name = p.Value
	}
	out.Name = workers.Untrusted(name, source, "", nameOfPerson)
	return out
}

// emailOf is a calendar user's address where it looks like one: then it is no text to be wary of.
func emailOf(p *ical.Prop) string {
	a := describe.Arg{Name: "x", Type: describe.TypeEmail}
	s, err := a.Canon(address(p))
	if err != nil {
		return ""
	}
	return s
}

// word is a property that is one of a list of words, in lower case; anything else is left out.
func word(c *ical.Component, name string) string {
	p := c.Props.Get(name)
	if p == nil {
		return ""
	}
	return choice(p.Value)
}

func choice(s string) string {
	s = strings.ToLower(s)
	if len(s) > 20 || strings.Trim(s, "abcdefghijklmnopqrstuvwxyz-") != "" {
		return ""
	}
	return s
}

func zoneName(s string) bool {
	a := describe.Arg{Name: "x", Type: describe.TypeZone}
	_, err := a.Canon(s)
	return err == nil
}

// ranged reads --from and --to.
func ranged(c *workers.Call) (from, to time.Time, err error) {
	from, _ = time.Parse(time.RFC3339, c.Values.One("from"))
	to, _ = time.Parse(time.RFC3339, c.Values.One("to"))
	switch {
	case !from.Before(to):
		err = wire.Refuse(wire.CodeBadArgument, "--to: it is not after --from", "")
	case to.Sub(from) > maxRange:
		err = wire.Refuse(wire.CodeBadArgument, "--to: more than 400 days after --from", "ask for a shorter range")
	}
	return from, to, err
}

// found is one object of a calendar with its instances in a range.
type placed struct {
	instance
	path, etag string
}

// between lists the instances in a calendar in a range, by time. notes say what is missing.
func between(ctx context.Context, c *workers.Call) (out []placed, notes []string, err error) {
	from, to, err := ranged(c)
	if err != nil {
		return nil, nil, err
	}
	m, err := found(c.Do(ctx, "query"))
	if err != nil {
		return nil, nil, err
	}
	note := func(s string) {
		if s != "" && !slices.Contains(notes, s) {
			notes = append(notes, s)
		}
	}
	began := time.Now()
	for i := range m.Responses {
		r := &m.Responses[i]
		p := r.props()
		if p == nil || p.Calendar == "" {
			continue
		}
		path, err := local(c.Base, r.Href)
		if err != nil {
			return nil, nil, foreign()
		}
		s, err := readSeries([]byte(p.Calendar))
		if err != nil {
			note("an event cannot be read and is left out")
			continue
		}
		if len(out) >= maxInstances || time.Since(began) > expandTime {
			note("there is more than is looked at; ask for a shorter range")
			break
		}
		list, n := s.expand(from, to, maxInstances-len(out))
		note(n)
		for _, x := range list {
			out = append(out, placed{x, path, p.ETag})
		}
	}
	slices.SortStableFunc(out, func(a, b placed) int {
		return cmp.Or(a.start.t.Compare(b.start.t), strings.Compare(a.path, b.path))
	})
	return out, notes, nil
}

func events(ctx context.Context, c *workers.Call) (*workers.Answer, error) {
	all, notes, err := between(ctx, c)
	if err != nil {
		return nil, err
	}
	shown, cut := workers.Cap(all, int(c.Values.Int("max")), "raise --max or shorten the range")
	if cut != "" {
		notes = append(notes, cut)
	}
	items := make([]item, 0, len(shown))
	for i := range shown {
		items = append(items, shown[i].show(shown[i].path, etag(shown[i].etag), textInList))
	}
	return &workers.Answer{Value: map[string]any{"items": items}, Truncated: strings.Join(notes, "; ")}, nil
}

// busy is one period; neighbours are joined.
type busy struct {
	Start     string `json:"start"`
	End       string `json:"end"`
	Tentative bool   `json:"tentative,omitempty"`
	from, to  time.Time
}

// freeBusy is computed from the events: not every server answers free-busy-query. Whole days and floating times count
// as UTC.
func freeBusy(ctx context.Context, c *workers.Call) (*workers.Answer, error) {
	all, notes, err := between(ctx, c)
	if err != nil {
		return nil, err
	}
	from, to, _ := ranged(c)
	out := []busy{}
	for i := range all {
		x := &all[i]
		if is(x.comp, ical.PropTransparency, "TRANSPARENT") || has(x.comp, c.Owner, "DECLINED") || x.start.t.Equal(x.end.t) {
			continue
		}
		b := busy{from: later(x.start.t, from), to: earlier(x.end.t, to),
			Tentative: is(x.comp, ical.PropStatus, "TENTATIVE") || has(x.comp, c.Owner, "TENTATIVE") ||
				has(x.comp, c.Owner, "NEEDS-ACTION")}
		if n := len(out) - 1; n >= 0 && out[n].Tentative == b.Tentative && !b.from.After(out[n].to) {
			out[n].to = later(out[n].to, b.to)
			continue
		}
		out = append(out, b)
	}
	for i := range out {
		out[i].Start, out[i].End = out[i].from.UTC().Format(time.RFC3339), out[i].to.UTC().Format(time.RFC3339)
	}
	return &workers.Answer{Value: map[string]any{"busy": out}, Truncated: strings.Join(notes, "; ")}, nil
}

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

func earlier(a, b time.Time) time.Time {
	if a.Before(b) {
		return a
	}
	return b
}

// etag is an entity tag where it is one (RFC 9110 section 8.8.3), or "".
func etag(s string) string {
	s = strings.TrimSpace(s)
	inner := strings.TrimPrefix(s, "W/")
	if len(s) > 256 || len(inner) < 2 || inner[0] != '"' || inner[len(inner)-1] != '"' ||
		strings.ContainsFunc(inner[1:len(inner)-1], func(r rune) bool { return r <= ' ' || r > '~' || r == '"' }) {
		return ""
	}
	return s
}

// eventGet shows one object. As a base read it answers the object's own bytes, and its ETag as Object.
func eventGet(ctx context.Context, c *workers.Call) (*workers.Answer, error) {
	resp, err := c.Do(ctx, "get", workers.Accept("text/calendar, text/vcard"))
	if err != nil {
		return nil, err
	}
	path := c.Values.One("event")
	if resp.Status == http.StatusNotFound || resp.Status == http.StatusGone {
		return nil, wire.Refuse(wire.CodeVendorRefused, "there is nothing at "+path+" (HTTP 404)", "look it up again")
	}
	if err := resp.Refused("look the path up again"); err != nil {
		return nil, err
	}
	b, err := resp.Bytes()
	if err != nil {
		return nil, err
	}
	tag := etag(resp.Header.Get("ETag"))
	card := bytes.HasPrefix(bytes.TrimLeft(b, "\ufeff\r\n"), []byte("BEGIN:VCARD"))
	if c.Raw {
		media := mediaCalendar
		if card {
			media = mediaCard
		}
		return &workers.Answer{Raw: bytes.NewReader(b), Media: media, Object: tag}, nil
	}
	if card {
		p, err := readCard(b)
		if err != nil {
			return nil, wire.Refuse(wire.CodeVendorDown, "what stands there is no contact that can be read", "")
		}
		return &workers.Answer{Value: showCard(p, path, tag)}, nil
	}
	s, err := readSeries(b)
	if err != nil {
		return nil, wire.Refuse(wire.CodeVendorDown, "what stands there is no event that can be read", "")
	}
	return &workers.Answer{Value: s.show(path, tag)}, nil
}

// whole is an event with what makes it recur and its exceptions.
type whole struct {
	item
	UID        *workers.Text `json:"uid,omitempty"`
	Rule       *workers.Text `json:"recurrence,omitempty"`
	Except     []string      `json:"except,omitempty"`
	Also       []string      `json:"also,omitempty"`
	Exceptions []item        `json:"exceptions,omitempty"`
	Note       string        `json:"note,omitempty"`
}

func (s *series) show(path, tag string) whole {
	c := s.first()
	i := instance{comp: c}
	var w whole
	var err error
	if i.start, i.end, err = s.span(c); err != nil {
		w.Note = "its time cannot be read"
	}
	if s.master == nil {
		i.recurring = true
		i.id, _ = s.zones.at(c.Props.Get(ical.PropRecurrenceID))
	}
	w.item = i.show(path, tag, textAlone)
	source := "calendar event " + path
	w.UID = workers.Untrusted(text(c, ical.PropUID), source, "", nameOfPerson)
	if s.master == nil || !recurs(c) {
		return w
	}
	w.Recurring = true
	if r := c.Props.Get(ical.PropRecurrenceRule); r != nil {
		w.Rule = workers.Untrusted(r.Value, source, "", ruleBytes)
	}
	for name, list := range map[string]*[]string{ical.PropExceptionDates: &w.Except, ical.PropRecurrenceDates: &w.Also} {
		for n, m := range s.dates(c, name) {
			if n == maxShown {
				break
			}
			*list = append(*list, m.show())
		}
	}
	for n, p := range s.parts {
		if n == maxShown {
			w.Note = fmt.Sprintf("%d of %d exceptions shown", n, len(s.parts))
			break
		}
		x := instance{comp: p, recurring: true}
		if x.start, x.end, err = s.span(p); err != nil {
			continue
		}
		x.id, _ = s.zones.at(p.Props.Get(ical.PropRecurrenceID))
		w.Exceptions = append(w.Exceptions, x.show(path, "", textInList))
	}
	return w
}
