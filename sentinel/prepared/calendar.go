// SPDX-License-Identifier: Apache-2.0

package prepared

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/doorward/doorward/internal/wire"
)

// product is the one program that rendered bodies may name.
const product = "-//Doorward//dav//EN"

// calendar holds body to the call.
func (c *change) calendar(base, body []byte) error {
	if c.method == "event-create" {
		if len(base) > 0 {
			return errors.New("a new event builds on nothing")
		}
		return c.create(body)
	}
	o, err := eventsOf(base)
	if err != nil {
		return wire.Refuse(wire.CodeVendorRefused,
			"what the server holds there is no event that can be changed: "+err.Error(), "change it in another program")
	}
	scope, err := o.scope(c)
	if err != nil {
		return atServer(err)
	}
	switch c.method {
	case "event-update":
		err = c.update(o, scope)
	case "respond":
		err = c.respond(o, scope)
	case "event-delete":
		if scope == "" || scope == "all" {
			if len(body) > 0 {
				return errors.New("a whole deletion has no body")
			}
			return c.vanish(o)
		}
		err = c.shrink(o, scope)
	default:
		err = fmt.Errorf("%s has no body", quoted(c.method))
	}
	if err != nil {
		return atServer(err)
	}
	got, err := read(body, true)
	if err != nil {
		return err
	}
	if o.zone.zone != "" {
		if err := takeZone(got, o.zone.zone, o.zone, o.zoneEnd, o.zoneYears); err != nil {
			return err
		}
	}
	return equal(o.cal, got)
}

// atServer says of a time that cannot be read that it is one the server holds: the body has not been looked at by then.
func atServer(err error) error {
	if errors.Is(err, errMoment) {
		return wire.Refuse(wire.CodeVendorRefused, "what the server holds there has a time that cannot be read",
			"change it in another program")
	}
	return err
}

func (c *change) stamp() string { return time.Unix(c.unix, 0).UTC().Format(basicUTC) }

func (c *change) create(body []byte) error {
	got, err := read(body, true)
	if err != nil {
		return err
	}
	start, err := argument("start", c.values.One("start"), c.values.One("tz"))
	if err != nil {
		return err
	}
	end, err := argument("end", c.values.One("end"), c.values.One("tz"))
	if err != nil {
		return err
	}
	if start.day != end.day || end.t.Before(start.t) || !start.day && end.t.Equal(start.t) {
		return usage("--end: it is not after --start, or not of its form")
	}
	ev := &component{name: "VEVENT", props: []property{
		simple("UID", c.mark), simple("DTSTAMP", c.stamp()), simple("SEQUENCE", "0"),
		start.property("DTSTART"), end.behind().property("DTEND")}}
	c.texts(ev)
	if guests := c.values["attendee"]; len(guests) > 0 {
		if c.owner == "" {
			return wire.Refuse(wire.CodeNotConfigured, "the account does not say whose it is", "give it an owner address")
		}
		ev.props = append(ev.props, simple("ORGANIZER", "mailto:"+c.owner))
		if err := c.invite(ev, guests); err != nil {
			return err
		}
	}
	if start.zone != "" {
		if err := takeZone(got, start.zone, start, end, 0); err != nil {
			return err
		}
	}
	return equal(&component{name: "VCALENDAR", subs: []*component{ev},
		props: []property{simple("VERSION", "2.0"), simple("PRODID", product)}}, got)
}

// texts sets the texts that arguments name.
func (c *change) texts(ev *component) {
	for arg, name := range map[string]string{"title": "SUMMARY", "location": "LOCATION", "description": "DESCRIPTION"} {
		v := c.values[arg]
		if len(v) == 0 {
			continue
		}
		ev.remove(name)
		if v[0] != "" {
			ev.put(simple(name, inText(v[0])))
		}
	}
}

// invite adds guests.
func (c *change) invite(ev *component, guests []string) error {
	if c.values.One("notify") == "" {
		return usage("--notify: say whom the server may tell")
	}
	for _, g := range guests {
		if !guest(ev, g) {
			ev.props = append(ev.props, property{"ATTENDEE", []parameter{{"PARTSTAT", []string{"NEEDS-ACTION"}},
				{"RSVP", []string{"TRUE"}}, {"SCHEDULE-AGENT", []string{c.agent(g)}}}, "mailto:" + g})
		}
	}
	return nil
}

// agent is what SCHEDULE-AGENT (RFC 6638 section 7.1) must be for a guest: the choice of --notify.
func (c *change) agent(address string) string {
	domain := func(s string) string { return strings.ToLower(s[strings.LastIndex(s, "@")+1:]) }
	switch c.values.One("notify") {
	case "all":
		return "SERVER"
	case "external":
		if domain(address) != domain(c.owner) {
			return "SERVER"
		}
	}
	return "NONE"
}

func mails(p *property, address string) bool {
	return address != "" && strings.EqualFold(p.value, "mailto:"+address)
}

func guest(ev *component, address string) bool {
	return slices.ContainsFunc(ev.props, func(p property) bool { return p.name == "ATTENDEE" && mails(&p, address) })
}

// object is the calendar object that the server holds, being changed into what the call asks for.
type object struct {
	cal    *component
	master *component   // nil where only single occurrences stand there
	parts  []*component // single occurrences

	zone, zoneEnd moment // set where the call brings a time zone along
	zoneYears     int
}

func eventsOf(base []byte) (*object, error) {
	cal, err := read(base, false)
	if err != nil {
		return nil, err
	}
	o := &object{cal: cal}
	if cal.name != "VCALENDAR" {
		return nil, errNotOne
	}
	var uid *property // of them all (RFC 4791 section 4.1): where there are more, it is a whole calendar that was read
	for _, s := range cal.subs {
		switch {
		case s.name == "VTIMEZONE", strings.HasPrefix(s.name, "X-"):
			continue
		case s.name != "VEVENT":
			return nil, errors.New("there is more than one event")
		}
		if u := s.get("UID"); uid == nil {
			uid = u
		} else if u == nil || u.value != uid.value {
			return nil, errors.New("there is more than one event")
		}
		id, err := s.once("RECURRENCE-ID")
		switch {
		case err != nil:
			return nil, err
		case id != nil:
			o.parts = append(o.parts, s)
		case o.master != nil:
			return nil, errors.New("two events stand there as one")
		default:
			o.master = s
		}
		for _, name := range []string{"DTSTART", "DTEND", "DURATION", "RRULE", "SEQUENCE", "ORGANIZER", "UID"} {
			if _, err := s.once(name); err != nil {
				return nil, err
			}
		}
	}
	if o.master == nil && len(o.parts) == 0 {
		return nil, errors.New("there is no event")
	}
	return o, nil
}

func (o *object) all() []*component {
	if o.master == nil {
		return o.parts
	}
	return append([]*component{o.master}, o.parts...)
}

// scope is which occurrences the call names; "" for an event that does not recur.
func (o *object) scope(c *change) (string, error) {
	scope, instance := c.values.One("scope"), c.values.One("instance")
	recurs := len(o.parts) > 0 || o.master.get("RRULE") != nil || o.master.get("RDATE") != nil
	switch {
	case !recurs && (instance != "" || scope != "" && scope != "all"):
		return "", usage("--scope: the event does not recur")
	case !recurs:
		return "", nil
	case scope == "":
		return "", usage("--scope: the event recurs; say which of it")
	case (scope == "all") == (instance != ""):
		return "", usage("--instance: it goes with --scope=one or following, and must then be there")
	}
	return scope, nil
}

// occurrence is the component of one occurrence: the one that stands there, or one made from the series, which the call
// then adds.
func (o *object) occurrence(arg string) (*component, error) {
	for _, p := range o.parts {
		if m, err := momentOf(p.get("RECURRENCE-ID")); err == nil && m.named(arg) {
			return p, nil
		}
	}
	if o.master == nil {
		return nil, usage("--instance: no such occurrence")
	}
	begin := o.master.get("DTSTART")
	from, err := momentOf(begin)
	if err != nil {
		return nil, err
	}
	to, err := from.of(arg)
	if err != nil {
		return nil, err
	}
	p := o.master.clone()
	p.remove("RRULE", "RDATE", "EXDATE", "EXRULE")
	for _, name := range []string{"DTSTART", "DTEND"} {
		x := p.get(name)
		if x == nil {
			continue
		}
		m, err := momentOf(x)
		if err != nil {
			return nil, err
		}
		m.t = to.t.Add(m.t.Sub(from.t)).In(m.t.Location())
		x.value = m.like(x)
	}
	id := property{"RECURRENCE-ID", slices.Clone(begin.params), to.like(begin)}
	p.props = append(p.props, id)
	o.parts = append(o.parts, p)
	o.cal.subs = append(o.cal.subs, p)
	return p, nil
}

// touched sets the stamps of a changed event; counted also raises its number.
func (c *change) touched(ev *component) {
	ev.put(simple("DTSTAMP", c.stamp()))
	if ev.get("LAST-MODIFIED") != nil {
		ev.put(simple("LAST-MODIFIED", c.stamp()))
	}
}

func (c *change) counted(ev *component) error {
	n := int64(0)
	if p := ev.get("SEQUENCE"); p != nil {
		var err error
		if n, err = strconv.ParseInt(p.value, 10, 32); err != nil || n < 0 {
			return errors.New("the event's SEQUENCE is no number")
		}
	}
	ev.put(simple("SEQUENCE", strconv.FormatInt(n+1, 10)))
	c.touched(ev)
	return nil
}

func (c *change) update(o *object, scope string) error {
	targets := o.all()
	if scope == "one" || scope == "following" {
		p, err := o.occurrence(c.values.One("instance"))
		if err != nil {
			return err
		}
		if scope == "following" {
			p.get("RECURRENCE-ID").with("RANGE", "THISANDFUTURE")
		}
		targets = []*component{p}
	}
	for _, g := range c.values["remove-attendee"] {
		if !slices.ContainsFunc(targets, func(ev *component) bool { return guest(ev, g) }) {
			return usage("--remove-attendee: %s is no guest of it", g)
		}
	}
	for _, ev := range targets {
		c.texts(ev)
		if err := c.guests(ev); err != nil {
			return err
		}
		if err := c.counted(ev); err != nil {
			return err
		}
	}
	return c.times(o, targets, scope)
}

// guests changes who is invited, and says for each guest who tells them. Only an organizer may.
func (c *change) guests(ev *component) error {
	add, drop := c.values["attendee"], c.values["remove-attendee"]
	if org := ev.get("ORGANIZER"); org != nil && !mails(org, c.owner) {
		if len(add)+len(drop) > 0 {
			return usage("--attendee: the event is another's")
		}
		return nil
	}
	ev.props = slices.DeleteFunc(ev.props, func(p property) bool {
		return p.name == "ATTENDEE" && slices.ContainsFunc(drop, func(g string) bool { return mails(&p, g) })
	})
	if len(add) > 0 {
		if c.owner == "" {
			return wire.Refuse(wire.CodeNotConfigured, "the account does not say whose it is", "give it an owner address")
		}
		if ev.get("ORGANIZER") == nil {
			ev.props = append(ev.props, simple("ORGANIZER", "mailto:"+c.owner))
		}
		if err := c.invite(ev, add); err != nil {
			return err
		}
	}
	return c.tell(ev)
}

func (c *change) tell(ev *component) error {
	for i := range ev.props {
		p := &ev.props[i]
		if p.name != "ATTENDEE" || mails(p, c.owner) {
			continue
		}
		if c.values.One("notify") == "" {
			return usage("--notify: the event has guests; say whom the server may tell")
		}
		address := p.value
		if len(address) > 7 && strings.EqualFold(address[:7], "mailto:") {
			address = address[7:]
		}
		p.with("SCHEDULE-AGENT", c.agent(address))
	}
	return nil
}

// times sets --start and --end.
func (c *change) times(o *object, targets []*component, scope string) error {
	startArg, endArg, tz := c.values.One("start"), c.values.One("end"), c.values.One("tz")
	if startArg == "" && endArg == "" {
		if tz != "" {
			return usage("--tz: it goes with --start or --end")
		}
		return nil
	}
	ev := targets[0]
	series := scope == "all" || scope == "following"
	if scope == "all" {
		if o.master == nil || len(o.parts) > 0 || o.master.get("EXDATE") != nil || o.master.get("RDATE") != nil {
			return usage("--start: some occurrences were changed or removed; use --scope=one for each, or --scope=following")
		}
		ev = o.master
	}
	set := func(name, arg, prop string) (moment, error) {
		m, err := argument(name, arg, tz)
		if err != nil {
			return m, err
		}
		if series && !m.day && tz == "" {
			return m, usage("--tz: a series needs a time zone")
		}
		if name == "end" {
			ev.remove("DURATION")
			ev.put(m.behind().property(prop))
		} else {
			ev.put(m.property(prop))
		}
		return m, nil
	}
	var first, last moment
	var err error
	if startArg != "" {
		if first, err = set("start", startArg, "DTSTART"); err != nil {
			return err
		}
	}
	if endArg != "" {
		if last, err = set("end", endArg, "DTEND"); err != nil {
			return err
		}
	}
	begin, err := momentOf(ev.get("DTSTART"))
	if err != nil {
		return err
	}
	if p := ev.get("DTEND"); p != nil {
		end, err := momentOf(p)
		if err != nil {
			return err
		}
		if end.day != begin.day || !end.t.After(begin.t) {
			return usage("--end: it is not after the start, or not of its form")
		}
	}
	if first.zone == "" {
		first = last
	}
	if last.zone == "" {
		last = first
	}
	if first.zone == "" {
		return nil
	}
	o.zone, o.zoneEnd = first, last
	if series {
		o.zoneYears = horizon
	}
	// The database's data takes the place of what stood there under that name.
	o.cal.subs = slices.DeleteFunc(o.cal.subs, func(s *component) bool {
		p := s.get("TZID")
		return s.name == "VTIMEZONE" && p != nil && p.value == first.zone
	})
	return nil
}

// respond sets the owner's own answer, and nobody else's.
func (c *change) respond(o *object, scope string) error {
	if c.owner == "" {
		return wire.Refuse(wire.CodeNotConfigured, "the account does not say whose it is", "give it an owner address")
	}
	targets := o.all()
	if scope == "one" {
		p, err := o.occurrence(c.values.One("instance"))
		if err != nil {
			return err
		}
		targets = []*component{p}
	}
	answered := false
	for _, ev := range targets {
		if !guest(ev, c.owner) {
			continue
		}
		answered = true
		for i := range ev.props {
			switch p := &ev.props[i]; {
			case p.name == "ATTENDEE" && mails(p, c.owner):
				p.with("PARTSTAT", strings.ToUpper(c.values.One("answer")))
			case p.name == "ORGANIZER" && c.values.One("notify") == "all":
				p.with("SCHEDULE-AGENT", "SERVER")
			case p.name == "ORGANIZER":
				p.with("SCHEDULE-AGENT", "NONE")
			}
		}
		c.touched(ev)
	}
	if !answered {
		return usage("--event: %s is not invited to it", c.owner)
	}
	return nil
}

// vanish says whether a whole deletion does what --notify says.
func (c *change) vanish(o *object) error {
	notify := c.values.One("notify")
	for _, ev := range o.all() {
		if ev.get("ATTENDEE") == nil {
			continue
		}
		if notify == "" {
			return usage("--notify: the event has guests; say whether the server may tell them")
		}
		if org := ev.get("ORGANIZER"); notify == "all" || org != nil && !mails(org, c.owner) {
			continue
		}
		for i := range ev.props {
			p := &ev.props[i]
			a := strings.ToUpper(p.param("SCHEDULE-AGENT"))
			if p.name == "ATTENDEE" && !mails(p, c.owner) && a != "NONE" && a != "CLIENT" {
				return usage("--notify: the server tells guests of a deletion by itself")
			}
		}
	}
	return nil
}

// shrink takes one occurrence, or one and all that follow, out of a series.
func (c *change) shrink(o *object, scope string) error {
	rule := (*property)(nil)
	if o.master != nil {
		rule = o.master.get("RRULE")
	}
	if o.master == nil || rule == nil && scope == "following" {
		return usage("--scope: only single occurrences of the series stand there; use --scope=all")
	}
	begin := o.master.get("DTSTART")
	from, err := momentOf(begin)
	if err != nil {
		return err
	}
	at, err := from.of(c.values.One("instance"))
	if err != nil {
		return err
	}
	if scope == "following" {
		if !at.t.After(from.t) || o.master.get("RDATE") != nil {
			return usage("--scope: that is the whole series, or it has single dates besides its rule")
		}
		rule.value = ended(rule.value, at)
	} else {
		o.master.props = append(o.master.props, property{"EXDATE", slices.Clone(begin.params), at.like(begin)})
	}
	var kept []*component
	for _, s := range o.cal.subs {
		if s.name == "VEVENT" && s != o.master {
			m, err := momentOf(s.get("RECURRENCE-ID"))
			if err != nil {
				return err
			}
			if m.t.Equal(at.t) || scope == "following" && m.t.After(at.t) {
				continue
			}
		}
		kept = append(kept, s)
	}
	o.cal.subs = kept
	if org := o.master.get("ORGANIZER"); org == nil || mails(org, c.owner) {
		if err := c.tell(o.master); err != nil {
			return err
		}
	}
	return c.counted(o.master)
}

// ended is a rule that ends before at.
func ended(rule string, at moment) string {
	parts := slices.DeleteFunc(strings.Split(rule, ";"), func(p string) bool {
		p = strings.ToUpper(p)
		return strings.HasPrefix(p, "UNTIL=") || strings.HasPrefix(p, "COUNT=")
	})
	last := at.t.Add(-time.Second).UTC().Format(basicUTC)
	switch {
	case at.day:
		last = at.t.AddDate(0, 0, -1).Format(basicDay)
	case at.floating:
		last = at.t.Add(-time.Second).Format(basicLocal)
	}
	return strings.Join(append(parts, "UNTIL="+last), ";")
}
