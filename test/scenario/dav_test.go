// SPDX-License-Identifier: Apache-2.0

package scenario

import (
	"crypto/rand"
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/doorward/doorward/internal/wire"
	"github.com/doorward/doorward/test/vendors/radicale"
	"github.com/doorward/doorward/test/vendors/standin"
	"github.com/doorward/doorward/test/world"
)

// withRadicale is a rig with a third account, rad, on the real Radicale.
func withRadicale(t *testing.T) (*rig, *radicale.Server) {
	t.Helper()
	return withRadicaleAnd(t, world.Options{})
}

func withRadicaleAnd(t *testing.T, options world.Options) (*rig, *radicale.Server) {
	t.Helper()
	password := "pass-" + rand.Text()
	v := radicale.Start(t, radicale.Options{User: "ada", Password: password})
	r := newRig(t, options)
	var resp wire.AccountsResp
	if err := r.Person(0).Ask(r.ctx(), wire.PathAuthdAdmin, "add", &wire.AddReq{Name: "rad", Vendor: "dav",
		Base: base(t, v.Base()), Secret: []byte(password), CA: v.CAPEM(), Owner: "ada@example.test",
		Placement: wire.Placement{Kind: "basic", User: "ada"}, Permit: []string{host(t, v.Base())}}, &resp); err != nil {
		t.Fatal(err)
	}
	for _, card := range r.waitPending(1) {
		r.decide(card, true)
	}
	return r, v
}

// answer is the object that a command printed.
func answer(t *testing.T, res world.Result) map[string]any {
	t.Helper()
	var v map[string]any
	if res.Code != 0 {
		t.Fatalf("%v", res)
	}
	if err := json.Unmarshal([]byte(res.Stdout), &v); err != nil {
		t.Fatalf("no JSON: %v: %v", err, res)
	}
	return v
}

// Every write of dav, from the cell's command over a person's approval to the real server.
func TestEachWriteOfACalendarRunsOnceAfterApproval(t *testing.T) {
	r, v := withRadicale(t)
	dav := func(args ...string) []string { return append([]string{"dav"}, append(args, "--account", "rad")...) }
	writes := func() int {
		return v.Rec.Handled("PUT", "/") + v.Rec.Handled("DELETE", "/")
	}
	done := func(args ...string) map[string]any {
		t.Helper()
		before := writes()
		got := answer(t, r.approved(r.work, "", dav(args...)...))
		if n := writes() - before; n != 1 {
			t.Errorf("%s: %d writes reached the server", args[0], n)
		}
		return got
	}
	made := done("event-create", "--calendar", v.Calendar(), "--title", "Meet", "--start", "2030-03-04T09:00:00", "--end",
		"2030-03-04T10:00:00", "--tz", "Europe/Berlin", "--attendee", "bob@example.test", "--notify", "none")
	path, _ := made["event"].(string)
	stored := func(want string) {
		t.Helper()
		if b, ok := v.Object(path); !ok || !strings.Contains(strings.ReplaceAll(string(b), "\r\n ", ""), want) {
			t.Errorf("there is no %q in\n%s", want, b)
		}
	}
	stored("mailto:bob@example.test")
	done("event-update", "--event", path, "--title", "Meet later", "--notify", "none")
	stored("SUMMARY:Meet later")
	stored("mailto:bob@example.test")

	if err := v.Put(v.Calendar()+"in.ics", []byte(strings.ReplaceAll(`BEGIN:VCALENDAR
VERSION:2.0
PRODID:x
BEGIN:VEVENT
UID:in
DTSTAMP:20300101T000000Z
DTSTART:20300312T100000Z
DTEND:20300312T110000Z
SUMMARY:Come
ORGANIZER:mailto:bob@example.test
ATTENDEE;PARTSTAT=NEEDS-ACTION:mailto:ada@example.test
END:VEVENT
END:VCALENDAR
`, "\n", "\r\n"))); err != nil {
		t.Fatal(err)
	}
	done("respond", "--event", v.Calendar()+"in.ics", "--answer", "tentative")
	if b, _ := v.Object(v.Calendar() + "in.ics"); !strings.Contains(string(b), "PARTSTAT=TENTATIVE") {
		t.Errorf("not answered:\n%s", b)
	}
	done("event-delete", "--event", path, "--notify", "none")
	if _, there := v.Object(path); there {
		t.Error("not deleted")
	}
	card := done("contact-put", "--book", v.Book(), "--name", "Zoë, Müller", "--email", "z@example.test")
	at, _ := card["contact"].(string)
	done("contact-put", "--contact", at, "--phone", "+49 1")
	if b, _ := v.Object(at); !strings.Contains(string(b), "+49 1") || !strings.Contains(string(b), "z@example.test") {
		t.Errorf("contact:\n%s", b)
	}
	done("contact-delete", "--contact", at)

	// What cannot be done is said before anybody is asked.
	res, err := r.work.Actor().Connector(r.ctx(), dav("event-update", "--event", v.Calendar()+"in.ics", "--attendee",
		"x@example.test", "--notify", "all", "--json")...)
	if err != nil || res.Code != wire.ExitUsage || refusal(t, res).Code != wire.CodeBadArgument {
		t.Errorf("guests of another's event: %v %v", res, err)
	}
	if n := len(r.pending()); n != 0 {
		t.Errorf("%d cards wait", n)
	}
}

// A change between the card and the approval is a conflict; nothing is overwritten.
func TestAnEventThatChangedWhileThePersonThoughtIsNotOverwritten(t *testing.T) {
	r, v := withRadicale(t)
	at := v.Calendar() + "e.ics"
	event := func(title string) []byte {
		return []byte("BEGIN:VCALENDAR\r\nVERSION:2.0\r\nPRODID:x\r\nBEGIN:VEVENT\r\nUID:e\r\nDTSTAMP:20300101T000000Z\r\n" +
			"DTSTART:20300310T100000Z\r\nDTEND:20300310T110000Z\r\nSUMMARY:" + title + "\r\nEND:VEVENT\r\nEND:VCALENDAR\r\n")
	}
	if err := v.Put(at, event("old")); err != nil {
		t.Fatal(err)
	}
	r.connector(r.work, wire.ExitWaiting, "dav", "event-update", "--account", "rad", "--event", at, "--title", "mine",
		"--wait", "0s")
	card := r.waitPending(1)[0]
	if text := fmt.Sprint(card.Fields); !strings.Contains(text, "old starts 20300310T100000Z") {
		t.Errorf("the card does not say what is changed: %s", text)
	}
	if err := v.Put(at, event("theirs")); err != nil {
		t.Fatal(err)
	}
	r.decide(card, true)
	res, err := r.work.Actor().Connector(r.ctx(), "wait", card.ID, "--json")
	if err != nil || res.Code != wire.ExitVendor || refusal(t, res).Code != wire.CodeConflict {
		t.Errorf("%v %v", res, err)
	}
	if b, _ := v.Object(at); !strings.Contains(string(b), "SUMMARY:theirs") {
		t.Errorf("overwritten:\n%s", b)
	}
}

// A creation whose answer was lost is unknown, and is settled by the event's name: it ran, or it did not.
func TestALostCreationIsSettledByItsMark(t *testing.T) {
	r, v := withRadicale(t)
	v.Faults.Add(standin.Fault{Method: "PUT", Times: 1, Drop: standin.DropBefore})
	res, err := r.work.Actor().Connector(r.ctx(), "dav", "event-create", "--account", "rad", "--calendar", v.Calendar(),
		"--title", "Never", "--start", "2030-03-11", "--end", "2030-03-11", "--wait", "0s", "--json")
	if err != nil || res.Code != wire.ExitWaiting {
		t.Fatalf("%v %v", res, err)
	}
	never := r.waitPending(1)[0]
	r.decide(never, true)
	r.eventually("the call is settled as not run", func() bool {
		res, err = r.work.Actor().Connector(r.ctx(), "result", never.ID, "--json")
		return err == nil && strings.Contains(res.Stdout+res.Stderr, "did not run")
	})
	if n := v.Rec.Handled("PUT", "/"); n != 0 {
		t.Errorf("%d writes", n)
	}
	v.Faults.Clear()
	v.Faults.Add(standin.Fault{Method: "PUT", Times: 1, Drop: standin.DropAfter})
	res, err = r.work.Actor().Connector(r.ctx(), "dav", "event-create", "--account", "rad", "--calendar", v.Calendar(),
		"--title", "T", "--start", "2030-03-10", "--end", "2030-03-10", "--wait", "0s", "--json")
	if err != nil || res.Code != wire.ExitWaiting {
		t.Fatalf("%v %v", res, err)
	}
	card := r.waitPending(1)[0]
	r.decide(card, true)
	r.eventually("the call is settled as done", func() bool {
		res, err = r.work.Actor().Connector(r.ctx(), "result", card.ID, "--json")
		return err == nil && res.Code == 0
	})
	if n := v.Rec.Handled("PUT", "/"); n != 1 {
		t.Errorf("%d writes", n)
	}
}

// What a card calls a contact or an event is one. A path that names a folder, or a contact's that names an event, would
// have a person approve "delete a contact" and lose a calendar, or have guests told of what reaches nobody.
func TestACardOfAContactOrAnEventIsOverOne(t *testing.T) {
	r, v := withRadicale(t)
	put := func(path string, lines ...string) {
		t.Helper()
		if err := v.Put(path, []byte(strings.Join(lines, "\r\n")+"\r\n")); err != nil {
			t.Fatal(err)
		}
	}
	event := func(kind, uid string) []string {
		return []string{"BEGIN:VCALENDAR", "VERSION:2.0", "PRODID:x", "BEGIN:" + kind, "UID:" + uid, "DTSTAMP:20300101T000000Z",
			"DTSTART:20300310T100000Z", "SUMMARY:one", "END:" + kind, "END:VCALENDAR"}
	}
	card, calendar := v.Book()+"c.vcf", strings.TrimSuffix(v.Calendar(), "/")
	put(card, "BEGIN:VCARD", "VERSION:3.0", "PRODID:x", "UID:c", "FN:Zoe", "N:Zoe;;;;", "END:VCARD")
	put(calendar+"/e.ics", event("VEVENT", "e")...)
	ask := func(waits bool, method string, args ...string) {
		t.Helper()
		res, err := r.work.Actor().Connector(r.ctx(), append([]string{"dav", method, "--account", "rad", "--wait", "0s"}, args...)...)
		cards := r.pending()
		if err != nil || (res.Code == wire.ExitWaiting) != waits || (len(cards) == 1) != waits {
			t.Errorf("%s %v: %v, %v, %d cards", method, args, res, err, len(cards))
		}
		for _, k := range cards {
			r.decide(k, false)
		}
	}
	ask(true, "contact-delete", "--contact", card) // controls: what they are meant for
	ask(true, "event-delete", "--event", calendar+"/e.ics")

	ask(false, "contact-delete", "--contact", calendar+"/e.ics")
	ask(false, "contact-delete", "--contact", calendar)
	ask(false, "contact-delete", "--contact", calendar+"/")
	ask(false, "contact-delete", "--contact", v.Book())
	ask(false, "contact-put", "--contact", v.Book(), "--phone", "1")
	ask(false, "event-delete", "--event", calendar+"/")
	ask(false, "event-update", "--event", calendar+"/", "--title", "x")
	put(calendar+"/todo.ics", event("VTODO", "t")...)
	ask(false, "event-delete", "--event", calendar) // an event and something else
	if _, there := v.Object(calendar + "/e.ics"); !there {
		t.Error("the event is gone")
	}
}
