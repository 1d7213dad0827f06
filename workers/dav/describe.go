// SPDX-License-Identifier: Apache-2.0

// Package dav is the connector of CalDAV (RFC 4791) and CardDAV (RFC 6352) servers. What it reads was written by a
// server and by strangers: anybody can put an invitation into a calendar. So XML with a DTD, with an entity, or that
// nests deep is refused, addresses on other hosts are refused, and recurrence rules are expanded within bounds only.
// What it writes is rendered before the decision, from the arguments, the call's mark, a given time and what the server
// holds; sentinel reads it back with code of its own and believes nothing of this package.
package dav

import (
	"github.com/doorward/doorward/internal/describe"
	"github.com/doorward/doorward/internal/wire"
	"github.com/doorward/doorward/workers"
)

const (
	mediaXML      = "application/xml"
	mediaCalendar = "text/calendar"
	mediaCard     = "text/vcard"
)

// Bounds of answers in bytes.
const (
	maxFind   = 1 << 20   // of discovery
	maxReport = 16 << 20  // of a report
	maxObject = 900 << 10 // of one event or contact: it stands in one frame, with the call that changes it
)

// Connector is the connector with its code.
func Connector() *workers.Connector {
	return &workers.Connector{
		Describe: description(),
		Handlers: map[string]workers.Handler{
			"calendars":      calendars,
			"changes":        changes,
			"contact-delete": write,
			"contact-put":    write,
			"contacts":       contacts,
			"event-create":   write,
			"event-delete":   write,
			"event-get":      eventGet,
			"event-update":   write,
			"events":         events,
			"free-busy":      freeBusy,
			"respond":        write,
		},
		Renderers: map[string]workers.Renderer{
			"contact-delete": held(renderContactDelete),
			"contact-put":    held(renderContact),
			"event-create":   held(renderCreate),
			"event-delete":   held(renderDelete),
			"event-update":   held(renderUpdate),
			"respond":        held(renderRespond),
		},
	}
}

func description() *describe.Connector {
	return &describe.Connector{
		Vendor: "dav",
		Title:  "Calendar and contacts (CalDAV, CardDAV)",
		Tokens: describe.Tokens{
			Kinds:     []string{"basic"},
			Placement: wire.Placement{Kind: "basic"},
			Help: "Give the server's address, your user name and your password there (better: an app password). " +
				"Set the owner to your e-mail address there: invitations and answers go out in its name.",
		},
		Check: "calendars",
		Methods: []describe.Method{
			methodCalendars(), methodChanges(), changing(methodContactDelete()), changing(methodContactPut()), methodContacts(),
			changing(methodEventCreate()), changing(methodEventDelete()), methodEventGet(), changing(methodEventUpdate()), methodEvents(),
			methodFreeBusy(), changing(methodRespond()),
		},
	}
}

// changing completes a method that changes something.
func changing(m describe.Method) describe.Method {
	m.Grant = describe.Names(m.Args)
	return m
}

// Labels of answers: others can put an event into a calendar, and all of it is the person's own data.
var (
	fromOthers = []string{wire.LabelUntrusted, wire.LabelPrivate}
	ownOnly    = []string{wire.LabelPrivate}
)

// scopes are the vendor's permissions: a DAV account has no finer ones.
var scopes = []string{"account"}

const xmlHead = `<?xml version="1.0" encoding="utf-8"?>` + "\n"

const (
	findPrincipal = xmlHead + `<D:propfind xmlns:D="DAV:"><D:prop><D:current-user-principal/></D:prop></D:propfind>`
	findHomes     = xmlHead + `<D:propfind xmlns:D="DAV:" xmlns:C="urn:ietf:params:xml:ns:caldav" ` +
		`xmlns:A="urn:ietf:params:xml:ns:carddav"><D:prop><C:calendar-home-set/><A:addressbook-home-set/>` +
		`</D:prop></D:propfind>`
	findCollections = xmlHead + `<D:propfind xmlns:D="DAV:" xmlns:C="urn:ietf:params:xml:ns:caldav"><D:prop>` +
		`<D:resourcetype/><D:displayname/><D:current-user-privilege-set/><C:supported-calendar-component-set/>` +
		`</D:prop></D:propfind>`
	eventsQuery = xmlHead + `<C:calendar-query xmlns:D="DAV:" xmlns:C="urn:ietf:params:xml:ns:caldav"><D:prop>` +
		`<D:getetag/><C:calendar-data/></D:prop><C:filter><C:comp-filter name="VCALENDAR">` +
		`<C:comp-filter name="VEVENT"><C:time-range start="{from:ical}" end="{to:ical}"/></C:comp-filter>` +
		`</C:comp-filter></C:filter></C:calendar-query>`
	syncQuery = xmlHead + `<D:sync-collection xmlns:D="DAV:"><D:sync-token>{since}</D:sync-token>` +
		`<D:sync-level>1</D:sync-level><D:prop><D:getetag/></D:prop></D:sync-collection>`
	contactsStart = xmlHead + `<A:addressbook-query xmlns:D="DAV:" xmlns:A="urn:ietf:params:xml:ns:carddav"><D:prop>` +
		`<D:getetag/><A:address-data/></D:prop>`
	contactsEnd   = `<A:limit><A:nresults>{max}</A:nresults></A:limit></A:addressbook-query>`
	contactsMatch = `<A:text-match collation="i;unicode-casemap" match-type="contains">{query}</A:text-match>`
	contactsAll   = contactsStart + `<A:filter/>` + contactsEnd
	contactsQuery = contactsStart + `<A:filter test="anyof">` +
		`<A:prop-filter name="FN">` + contactsMatch + `</A:prop-filter>` +
		`<A:prop-filter name="NICKNAME">` + contactsMatch + `</A:prop-filter>` +
		`<A:prop-filter name="EMAIL">` + contactsMatch + `</A:prop-filter>` +
		`<A:prop-filter name="TEL">` + contactsMatch + `</A:prop-filter>` +
		`</A:filter>` + contactsEnd
)

// depth is the header that WebDAV's PROPFIND and REPORT need (RFC 4918 section 10.2).
func depth(n string) []describe.Match {
	return []describe.Match{{Name: "Depth", Bind: describe.Bind{Const: n}}}
}

// unchanged holds a change to the version that was read (RFC 9110 section 13.1.1).
var unchanged = []describe.Match{{Name: "If-Match", Bind: describe.Bind{ETag: true}}}

// createOnly makes a PUT fail where something stands already (RFC 9110 section 13.1.2).
var createOnly = []describe.Match{{Name: "If-None-Match", Bind: describe.Bind{Const: "*"}}}

// scheduleReply says whether the server answers the organizer (RFC 6638 section 8.1).
var scheduleReply = describe.Match{Name: "Schedule-Reply", Bind: describe.Bind{Arg: "notify",
	Map: []describe.Pair{{From: "all", To: "T"}, {From: "none", To: "F"}}}}

// query is an entry that asks with a body of XML.
func query(name, method, path, deep, x string, most int64) describe.Entry {
	return describe.Entry{Name: name, Method: method, Path: path, Header: depth(deep),
		Body: &describe.Body{Media: mediaXML, XML: x}, Credential: true, MaxIn: most}
}

func propfind(name, path, deep, x string) describe.Entry {
	return query(name, "PROPFIND", path, deep, x, maxFind)
}

// putting is an entry that sends a prepared body.
func putting(name, path, media string, header ...describe.Match) describe.Entry {
	return describe.Entry{Name: name, Method: "PUT", Path: path, Header: header,
		Body: &describe.Body{Media: media, Prepared: true}, Credential: true, MaxIn: maxFind}
}

// read is a method that changes nothing.
func read(name, summary string, labels []string, args []describe.Arg, entries ...describe.Entry) describe.Method {
	return describe.Method{Name: name, Summary: summary, Class: describe.Read, Reach: describe.ReachNone, Labels: labels,
		Scopes: scopes, Args: args, Grant: describe.Names(args), Entries: entries}
}

func methodCalendars() describe.Method {
	moved := propfind("well-known-at", "", "0", findPrincipal)
	moved.Follow = "well-known"
	principal := propfind("principal", "/", "0", findHomes)
	principal.AnyPath = true
	home := query("home", "PROPFIND", "/", "1", findCollections, maxReport)
	home.AnyPath, home.Uses = true, maxHomes
	return read("calendars", "list your calendars and address books", fromOthers, nil,
		propfind("root", "{base}/", "0", findPrincipal), propfind("well-known", "/.well-known/caldav", "0", findPrincipal),
		moved, principal, home)
}

var (
	argCalendar = describe.Arg{Name: "calendar", Label: "Calendar", Type: describe.TypeFolder, Required: true,
		Help: "the calendar's path, as `calendars` lists it", Role: "destination"}
	argEvent = describe.Arg{Name: "event", Label: "Event", Type: describe.TypeHref, Required: true,
		Help: "the event's path, as `events` lists it", Role: "destination"}
	argFrom = describe.Arg{Name: "from", Label: "From", Type: describe.TypeTime, Required: true,
		Help: "begin of the range: 2030-03-10T14:00:00+01:00, or a date for its midnight UTC"}
	argTo = describe.Arg{Name: "to", Label: "To", Type: describe.TypeTime, Required: true,
		Help: "end of the range, at most 400 days after --from"}
	argScope = describe.Arg{Name: "scope", Label: "Of a series", Type: describe.TypeEnum,
		Enum: []string{"one", "following", "all"},
		Help: "of a recurring event, which must be named: one, this and the following, or all"}
	argInstance = describe.Arg{Name: "instance", Label: "Occurrence", Type: describe.TypeWhen,
		Help: "which occurrence of the series, where --scope is not all: as `events` shows it under instance"}
	argNotify = describe.Arg{Name: "notify", Label: "Tell the guests", Type: describe.TypeEnum,
		Enum: []string{"all", "external", "none"},
		Help: "whom the server may mail, which must be named where there are guests; external: outside your own domain"}
	argAttendee = describe.Arg{Name: "attendee", Label: "Guests", Type: describe.TypeEmail, Repeat: 50,
		Help: "e-mail address of a guest; repeat it for more", Role: "recipient"}
	argTitle = describe.Arg{Name: "title", Label: "Title", Type: describe.TypeString, Max: 500,
		Help: "one line, at most 500 bytes", Role: "content"}
	argLocation = describe.Arg{Name: "location", Label: "Location", Type: describe.TypeString, Max: 500,
		Help: "one line, at most 500 bytes", Role: "content"}
	argText = describe.Arg{Name: "description", Label: "Description", Type: describe.TypeText, Max: 32 << 10,
		Help: "text, at most 32 KiB", Role: "content"}
	argStart = describe.Arg{Name: "start", Label: "Starts", Type: describe.TypeWhen,
		Help: "a date for a whole day, a local time with --tz, or a time with zone"}
	argEnd = describe.Arg{Name: "end", Label: "Ends", Type: describe.TypeWhen,
		Help: "of the same form as --start; of whole days the last one, included"}
	argZone = describe.Arg{Name: "tz", Label: "Time zone", Type: describe.TypeZone,
		Help: "IANA time zone of --start and --end, as Europe/Berlin"}
)

func required(a describe.Arg) describe.Arg { a.Required = true; return a }

func helped(a describe.Arg, help string) describe.Arg { a.Help = help; return a }

func maximum(def string, most int64, what string) describe.Arg {
	return describe.Arg{Name: "max", Label: "At most", Type: describe.TypeInt, Default: def, Min: 1, Max: most, Help: what}
}

func methodEvents() describe.Method {
	return read("events", "list what is in a calendar between two times, recurring events expanded", fromOthers,
		[]describe.Arg{argCalendar, argFrom, argTo, maximum("100", 1000, "how many events, 1 to 1000")},
		query("query", "REPORT", "{calendar}", "1", eventsQuery, maxReport))
}

func methodEventGet() describe.Method {
	return read("event-get", "show one event (or contact) by its path, with its version", fromOthers,
		[]describe.Arg{argEvent}, describe.Entry{Name: "get", Method: "GET", Path: "{event}", Credential: true,
			MaxIn: maxObject})
}

func methodFreeBusy() describe.Method {
	return read("free-busy", "show when a calendar is busy, and nothing else of it", ownOnly,
		[]describe.Arg{argCalendar, argFrom, argTo}, query("query", "REPORT", "{calendar}", "1", eventsQuery, maxReport))
}

func methodChanges() describe.Method {
	return read("changes", "list which events of a calendar changed since an earlier answer", fromOthers,
		[]describe.Arg{argCalendar,
			{Name: "since", Label: "Since", Type: describe.TypeCursor, Help: "next of an earlier answer; without it, all"}},
		query("sync", "REPORT", "{calendar}", "0", syncQuery, maxReport))
}

func methodEventCreate() describe.Method {
	return describe.Method{
		Name: "event-create", Summary: "put an event into a calendar, and invite guests",
		Class: describe.Write, Reach: describe.ReachPeople, Scopes: scopes,
		// A calendar that others read is a space, whoever is invited.
		Lower: []describe.Lower{{To: describe.ReachNone, Empty: []string{"attendee"}, Private: "calendar"}},
		Args: []describe.Arg{argCalendar, required(argTitle), required(argStart), required(argEnd), argZone, argAttendee,
			argLocation, argText, argNotify},
		Entries: []describe.Entry{putting("put", "{calendar}{mark}.ics", mediaCalendar, createOnly...)},
		Prepare: &describe.Prepare{Kind: "icalendar"},
		Once:    "the event's name is the call's mark, and If-None-Match: * creates only",
		Settle: &describe.Settle{Method: "event-get", Args: []describe.Match{
			{Name: "event", Bind: describe.Bind{Tmpl: "{calendar}{mark}.ics"}}}},
	}
}

// theEvent names the read that a change of an event builds on.
func theEvent() *describe.Prepare {
	return &describe.Prepare{Kind: "icalendar", Base: "event-get",
		Args: []describe.Pair{{From: "event", To: "event"}}}
}

func methodEventUpdate() describe.Method {
	return describe.Method{
		Name: "event-update", Summary: "change the named fields of an event and leave the others as they are",
		Class: describe.Write, Reach: describe.ReachPeople, Scopes: scopes,
		Args: []describe.Arg{argEvent, argScope, argInstance, argTitle, argStart, argEnd, argZone,
			helped(argAttendee, "e-mail address of a guest to add; repeat it for more"),
			{Name: "remove-attendee", Label: "Guests to remove", Type: describe.TypeEmail, Repeat: 50,
				Help: "e-mail address of a guest to take off; repeat it for more", Role: "recipient"},
			argLocation, argText, argNotify},
		Entries: []describe.Entry{putting("put", "{event}", mediaCalendar, unchanged...)},
		Prepare: theEvent(),
	}
}

func methodRespond() describe.Method {
	one := argScope
	one.Enum = []string{"one", "all"}
	one.Help = "of a recurring event, which must be named: one, or all"
	tell := argNotify
	tell.Label, tell.Enum, tell.Default = "Tell the organizer", []string{"all", "none"}, "all"
	tell.Help = "all: the server may mail your answer to the organizer; none: it only stands in your calendar"
	return describe.Method{
		Name: "respond", Summary: "answer an invitation",
		Class: describe.Write, Reach: describe.ReachPeople, Scopes: scopes,
		Args: []describe.Arg{argEvent,
			{Name: "answer", Label: "Answer", Type: describe.TypeEnum, Enum: []string{"accepted", "declined", "tentative"},
				Required: true, Help: "accepted, declined or tentative", Role: "content"},
			one, argInstance, tell},
		Entries: []describe.Entry{putting("put", "{event}", mediaCalendar, unchanged[0], scheduleReply)},
		Prepare: theEvent(),
	}
}

func methodEventDelete() describe.Method {
	tell := argNotify
	tell.Enum = []string{"all", "none"}
	tell.Help = "whether the server may mail the cancellation or your refusal, which must be named where there are guests"
	whole := func(name string, when *describe.Cond) describe.Entry {
		return describe.Entry{Name: name, When: when, Method: "DELETE", Path: "{event}",
			Header: []describe.Match{unchanged[0], scheduleReply}, Credential: true, MaxIn: maxFind}
	}
	part := func(name string) describe.Entry {
		e := putting("put-"+name, "{event}", mediaCalendar, unchanged[0], scheduleReply)
		e.When = &describe.Cond{Arg: "scope", Is: name}
		return e
	}
	return describe.Method{
		Name: "event-delete", Summary: "delete an event, or some occurrences of a recurring one",
		Class: describe.Destructive, Reach: describe.ReachPeople, Scopes: scopes,
		Args: []describe.Arg{argEvent, argScope, argInstance, tell},
		Entries: []describe.Entry{whole("delete", &describe.Cond{Arg: "scope"}),
			whole("delete-all", &describe.Cond{Arg: "scope", Is: "all"}), part("one"), part("following")},
		Prepare: theEvent(),
	}
}

var argBook = describe.Arg{Name: "book", Label: "Address book", Type: describe.TypeFolder,
	Help: "the address book's path, as `calendars` lists it", Role: "destination"}

func argContact(help string) describe.Arg {
	return describe.Arg{Name: "contact", Label: "Contact", Type: describe.TypeHref, Help: help, Role: "destination"}
}

func methodContacts() describe.Method {
	search := func(name string, has bool, x string) describe.Entry {
		e := query(name, "REPORT", "{book}", "1", x, maxReport)
		e.When = &describe.Cond{Arg: "query", Has: has}
		return e
	}
	return read("contacts", "find contacts in an address book", fromOthers,
		[]describe.Arg{required(argBook),
			{Name: "query", Label: "Text", Type: describe.TypeString, Min: 1, Max: 200,
				Help: "part of a name, address or number; without it, all"},
			maximum("100", 1000, "how many contacts, 1 to 1000")},
		search("all", false, contactsAll), search("search", true, contactsQuery))
}

func methodContactPut() describe.Method {
	create := putting("create", "{book}{mark}.vcf", mediaCard, createOnly...)
	create.When = &describe.Cond{Arg: "contact"}
	replace := putting("replace", "{contact}", mediaCard, unchanged...)
	replace.When = &describe.Cond{Arg: "contact", Has: true}
	return describe.Method{
		Name: "contact-put", Summary: "add a contact, or change the named fields of one",
		Class: describe.Write, Reach: describe.ReachNone, Scopes: scopes,
		Args: []describe.Arg{
			helped(argBook, "for a new contact: the address book's path, as `calendars` lists it"),
			argContact("to change one: its path, as `contacts` lists it"),
			{Name: "name", Label: "Name", Type: describe.TypeString, Min: 1, Max: 200, Help: "the full name", Role: "content"},
			{Name: "email", Label: "E-mail", Type: describe.TypeEmail, Repeat: 20,
				Help: "address; repeat it for more. Those given replace the ones there", Role: "content"},
			{Name: "phone", Label: "Phone", Type: describe.TypeString, Min: 1, Max: 50, Repeat: 20,
				Help: "number; repeat it for more. Those given replace the ones there", Role: "content"},
		},
		Entries: []describe.Entry{create, replace},
		Prepare: &describe.Prepare{Kind: "vcard", Base: "event-get",
			Args: []describe.Pair{{From: "event", To: "contact"}}, When: &describe.Cond{Arg: "contact", Has: true}},
		Once: "a new contact's name is the call's mark, and If-None-Match: * creates only",
		Settle: &describe.Settle{Method: "event-get", Args: []describe.Match{
			{Name: "event", Bind: describe.Bind{Tmpl: "{book}{mark}.vcf"}}}},
	}
}

func methodContactDelete() describe.Method {
	return describe.Method{
		Name: "contact-delete", Summary: "delete a contact",
		Class: describe.Destructive, Reach: describe.ReachNone, Scopes: scopes,
		Args: []describe.Arg{required(argContact("its path, as `contacts` lists it"))},
		Entries: []describe.Entry{{Name: "delete", Method: "DELETE", Path: "{contact}", Header: unchanged,
			Credential: true, MaxIn: maxFind}},
		Prepare: &describe.Prepare{Kind: "vcard", Base: "event-get",
			Args: []describe.Pair{{From: "event", To: "contact"}}},
	}
}
