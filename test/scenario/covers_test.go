// SPDX-License-Identifier: Apache-2.0

package scenario

import (
	"crypto/sha1"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/doorward/doorward/internal/wire"
	"github.com/doorward/doorward/test/world"
)

// covered is what becomes of a second call, after a grant was made for the like of a first one.
type covered int

const (
	asks    covered = iota // a person is asked again, and nothing was sent
	goes                   // it was sent unasked
	refused                // it is no call that there is: no person is asked, and nothing was sent
)

// second is a call after a grant: the granted one, changed.
type second struct {
	why  string
	want covered
	set  []string // flag, value, ...: takes the place of all values of that flag; a flag with "" is left out
	from *world.Actor
	args []string // another call altogether
}

// changed are a command's words with other values of some flags.
func changed(args, set []string) []string {
	out := slices.Clone(args)
	for i := 0; i+1 < len(set); i += 2 {
		for j := slices.Index(out, set[i]); j >= 0 && !slices.Contains(set[:i], set[i]); j = slices.Index(out, set[i]) {
			out = slices.Delete(out, j, j+2)
		}
	}
	for i := 0; i+1 < len(set); i += 2 {
		if set[i+1] != "" {
			out = append(out, set[i], set[i+1])
		}
	}
	return out
}

// given approves a call with the grant that its card offers, with some fields left open and changed by change. It returns the
// grant.
func (r *rig) given(from *world.Actor, args []string, open []string, change func(*wire.Grant)) string {
	r.t.Helper()
	card := r.asks(from, args...)
	if card.Grantable == nil {
		r.t.Fatalf("the card of %s offers no grant", strings.Join(args, " "))
	}
	g := *card.Grantable
	g.Limits = slices.Clone(g.Limits)
	for i, l := range g.Limits {
		if slices.Contains(open, l.Field) {
			g.Limits[i] = wire.Limit{Field: l.Field, Any: true}
		}
	}
	if change != nil {
		change(&g)
	}
	var resp wire.DecideCardResp
	err := r.ada.Ask(r.ctx(), wire.PathApprove, "decide",
		&wire.DecideCardReq{ID: card.ID, Hash: card.Hash, Approve: true, Grant: &g}, &resp)
	if err != nil {
		r.t.Fatalf("approve %s with a grant: %v", strings.Join(args, " "), err)
	}
	r.ended(card.ID)
	return resp.Grant
}

func week(g *wire.Grant) {
	g.Kind, g.Session, g.Until = "until", "", time.Now().Add(7*24*time.Hour-time.Minute).Unix()
}

// try makes a second call and holds it to what must become of it.
func (r *rig) try(from *world.Actor, args []string, want covered) {
	r.t.Helper()
	before := len(r.acted())
	res, err := from.Connector(r.ctx(), append(slices.Clone(args), "--json", "--wait", "0s")...)
	if err != nil {
		r.t.Fatal(err)
	}
	got := refused
	switch {
	case res.Code == wire.ExitWaiting && strings.Contains(res.Stdout+res.Stderr, string(wire.CodeNeedsApproval)):
		got = asks
		r.decide(r.card(callOf(r.t, res)), false)
	case res.Code == 0 || res.Code == wire.ExitVendor:
		got = goes
	}
	sent := 0
	if got == goes {
		sent = 1
	}
	if n := len(r.acted()) - before; got != want || n != sent {
		r.t.Errorf("%s: it %s, and %d were sent; want that it %s: %v", strings.Join(args, " "),
			[]string{"asks", "goes", "is refused"}[got], n, []string{"asks", "goes", "is refused"}[want], res)
	}
	if cards := r.pending(); len(cards) != 0 {
		r.t.Errorf("%s: a card waits: %+v", strings.Join(args, " "), cards)
	}
}

// A grant for one thing never covers another: what a person allowed ahead on a card, and a second call by the cell's own command,
// over the descriptions and the policy that are installed, to what the vendors saw.
func TestAGrantForOneThingNeverCoversAnother(t *testing.T) {
	r := newRig(t, world.Options{})
	work, home, run := r.work.Actor(), r.home.Actor(), r.work.Session("run-3")
	const address = "12 Elm Street, at the back"
	invite := append(r.event("Stand-up"), "--attendee", "eve@example.test", "--attendee", "bob@example.test", "--notify", "none")
	comment := []string{"github", "comment", "--repo", "ada/site", "--number", "1", "--body", "I can do 50."}
	opened := append(issue("ada/site", "Slow page"), "--body", "Nine seconds.", "--label", "bug", "--assignee", "ada")
	file := put(t, readable(t), "a", []byte("one"), 0o644)
	other := put(t, readable(t), "b", []byte("two"), 0o644)
	blob := fmt.Sprintf("%x", sha1.Sum([]byte("blob 3\x00one")))
	tip := r.github.State.Repo("ada", "site").Branches["main"].SHA
	store := []string{"github", "file-put", "--repo", "ada/site", "--path", "docs/a.md", "--branch", "main", "--message", "m",
		"--file", file}
	workflow := []string{"github", "workflow-run", "--repo", "ada/site", "--workflow", "build.yml", "--ref", "main",
		"--input", "stage=test", "--input", "dry=true"}
	branch := []string{"github", "branch-create", "--repo", "ada/site", "--name", "topic/x", "--from", tip}
	review := []string{"github", "review", "--repo", "ada/site", "--number", "3", "--event", "comment", "--body", "Looks fine."}
	merge := []string{"github", "pull-merge", "--repo", "ada/site", "--number", "3", "--sha", tip}
	mine := []string{"github", "repo-create", "--name", "drafts"}
	person := contact("Mail Carrier")

	for _, group := range []struct {
		name   string
		call   []string
		open   []string
		change func(*wire.Grant)
		rows   []second
	}{
		{"an invitation, as it is", invite, nil, nil, []second{
			{"it is the same", goes, nil, nil, nil},
			{"a part of the people is less than was allowed", goes, []string{"--attendee", "bob@example.test"}, nil, nil},
			{"a domain is the same in any case", goes, []string{"--attendee", "eve@EXAMPLE.test", "--attendee", "bob@example.test"}, nil, nil},
			{"what stands before the @ may be another's in another case", asks, []string{"--attendee", "Eve@example.test"}, nil, nil},
			{"a plus address may be another's", asks, []string{"--attendee", "eve+x@example.test"}, nil, nil},
			{"so may one with a dot more", asks, []string{"--attendee", "e.ve@example.test"}, nil, nil},
			{"a domain that looks alike", asks, []string{"--attendee", "eve@examp1e.test"}, nil, nil},
			{"a Cyrillic letter in the domain is no address", refused, []string{"--attendee", "eve@еxample.test"}, nil, nil},
			{"the same domain as the DNS has it", asks, []string{"--attendee", "eve@xn--xample-2of.test"}, nil, nil},
			{"a final dot is no address", refused, []string{"--attendee", "eve@example.test."}, nil, nil},
			{"a domain below", asks, []string{"--attendee", "eve@mail.example.test"}, nil, nil},
			{"a domain above", asks, []string{"--attendee", "eve@test"}, nil, nil},
			{"a domain that begins alike", asks, []string{"--attendee", "eve@example.test.evil.test"}, nil, nil},
			{"her name on another's address is no address", refused, []string{"--attendee", "eve@example.test <mallory@evil.test>"}, nil, nil},
			{"nor is her own with a name", refused, []string{"--attendee", "Eve <eve@example.test>"}, nil, nil},
			{"nor are two in one", refused, []string{"--attendee", "eve@example.test,mallory@evil.test"}, nil, nil},
			{"a person more", asks, []string{"--attendee", "eve@example.test", "--attendee", "mallory@evil.test"}, nil, nil},
			{"nobody is not some of them", asks, []string{"--attendee", ""}, nil, nil},
			{"the server mails them now", asks, []string{"--notify", "all"}, nil, nil},
			{"another calendar", asks, []string{"--calendar", "/calendars/ada/shared/"}, nil, nil},
			{"paths have their case", asks, []string{"--calendar", "/calendars/Ada/personal/"}, nil, nil},
			{"a calendar by way of another is no path", refused, []string{"--calendar", "/calendars/eve/../ada/personal/"}, nil, nil},
			{"nor is one with a second reading", refused, []string{"--calendar", "/calendars/ada/%70ersonal/"}, nil, nil},
			{"an address, where nothing was said", asks, []string{"--location", address}, nil, nil},
			{"and in a text", asks, []string{"--description", address}, nil, nil},
			{"and in a title", asks, []string{"--title", "Stand-up, " + address}, nil, nil},
			{"another day", asks, []string{"--start", "2030-03-11T10:00:00", "--end", "2030-03-11T11:00:00"}, nil, nil},
			{"another hour by another zone", asks, []string{"--tz", "Asia/Tokyo"}, nil, nil},
			{"another cell", asks, nil, home, nil},
			{"another session", asks, nil, run, nil},
			{"another method of the same people", asks, nil, nil, contact("Eve")},
		}},
		{"an invitation whose title and time a person left open", invite, []string{"title", "start", "end"}, nil, []second{
			{"another title", goes, []string{"--title", "Planning"}, nil, nil},
			{"another time", goes, []string{"--start", "2030-03-12T10:00:00", "--end", "2030-03-12T10:30:00"}, nil, nil},
			{"what was not left open", asks, []string{"--title", "Planning", "--location", address}, nil, nil},
			{"a person more", asks, []string{"--title", "Planning", "--attendee", "mallory@evil.test"}, nil, nil},
		}},
		{"a comment, for a week", comment, nil, week, []second{
			{"word for word", goes, nil, nil, nil},
			{"in another session: it is for a time", goes, nil, run, nil},
			{"a repository is the same in any case", goes, []string{"--repo", "Ada/SITE"}, nil, nil},
			{"a number below", asks, []string{"--body", "I can do 40."}, nil, nil},
			{"an address", asks, []string{"--body", "I can do 50. I live at " + address}, nil, nil},
			{"somebody is mentioned", asks, []string{"--body", "I can do 50. @mallory"}, nil, nil},
			{"a blank more", asks, []string{"--body", "I can do 50. "}, nil, nil},
			{"letters that nobody sees", asks, []string{"--body", "I can do 50.\u200b"}, nil, nil},
			{"letters that look alike", asks, []string{"--body", "I can dо 50."}, nil, nil},
			{"another issue", asks, []string{"--number", "2"}, nil, nil},
			{"another repository of the owner", asks, []string{"--repo", "ada/notes"}, nil, nil},
			{"another owner's of that name", asks, []string{"--repo", "mallory/site"}, nil, nil},
			{"a name that begins alike", asks, []string{"--repo", "ada/site2"}, nil, nil},
			{"a name that looks alike", asks, []string{"--repo", "ada/s1te"}, nil, nil},
			{"with .git is no repository's name", refused, []string{"--repo", "ada/site.git"}, nil, nil},
			{"nor with a slash before it", refused, []string{"--repo", "/ada/site"}, nil, nil},
			{"nor with a letter of another script", refused, []string{"--repo", "ada/sіte"}, nil, nil},
			{"nor by way of another", refused, []string{"--repo", "ada/notes/../site"}, nil, nil},
			{"another cell", asks, nil, home, nil},
			{"another method there", asks, nil, nil, []string{"github", "issue-update", "--repo", "ada/site", "--number", "1", "--body",
				"I can do 50."}},
		}},
		{"an issue whose texts a person left open", opened, []string{"title", "body"}, nil, []second{
			{"other words", goes, []string{"--title", "Fast page", "--body", "Two."}, nil, nil},
			{"a label more", asks, []string{"--label", "bug", "--label", "later"}, nil, nil},
			{"a label less", asks, []string{"--label", ""}, nil, nil},
			{"somebody else is assigned", asks, []string{"--assignee", "mallory"}, nil, nil},
			{"nobody is not somebody", asks, []string{"--assignee", ""}, nil, nil},
		}},
		{"a file of a branch", store, []string{"message", "file", "sha"}, nil, []second{
			{"another version of it", goes, []string{"--file", other, "--sha", blob}, nil, nil},
			{"another file", asks, []string{"--path", "docs/b.md"}, nil, nil},
			{"paths have their case", asks, []string{"--path", "docs/A.md"}, nil, nil},
			{"one that runs as code", asks, []string{"--path", ".github/workflows/a.yml"}, nil, nil},
			{"a path by way of another is none", refused, []string{"--path", "docs/x/../a.md"}, nil, nil},
			{"nor is one from the root", refused, []string{"--path", "/docs/a.md"}, nil, nil},
			{"nor one with two slashes", refused, []string{"--path", "docs//a.md"}, nil, nil},
			{"another branch", asks, []string{"--branch", "feature"}, nil, nil},
			{"branches have their case", asks, []string{"--branch", "Main"}, nil, nil},
			{"a branch's full name may be another's", asks, []string{"--branch", "refs/heads/main"}, nil, nil},
			{"the default branch may be another", asks, []string{"--branch", ""}, nil, nil},
		}},
		{"a workflow with inputs", workflow, nil, nil, []second{
			{"the same", goes, nil, nil, nil},
			{"an input less is another run", asks, []string{"--input", "stage=test"}, nil, nil},
			{"an input more", asks, []string{"--input", "stage=test", "--input", "dry=true", "--input", "x=y"}, nil, nil},
			{"another input", asks, []string{"--input", "stage=live", "--input", "dry=true"}, nil, nil},
			{"at another branch", asks, []string{"--ref", "feature"}, nil, nil},
			{"another workflow", asks, []string{"--workflow", "deploy.yml"}, nil, nil},
		}},
		{"a branch", branch, nil, nil, []second{
			{"branches have their case", asks, []string{"--name", "topic/X"}, nil, nil},
			{"another branch", asks, []string{"--name", "topic/y"}, nil, nil},
			{"a branch's full name may be another's", asks, []string{"--name", "refs/heads/topic/x"}, nil, nil},
			{"at another commit", asks, []string{"--from", strings.Repeat("a", 40)}, nil, nil},
		}},
		{"a review", review, nil, nil, []second{
			{"the same", goes, nil, nil, nil},
			{"an approval", asks, []string{"--event", "approve"}, nil, nil},
			{"of another pull request", asks, []string{"--number", "2"}, nil, nil},
		}},
		{"a merge", merge, nil, nil, []second{
			{"of what others pushed since", asks, []string{"--sha", strings.Repeat("a", 40)}, nil, nil},
			{"by squashing", asks, []string{"--method", "squash"}, nil, nil},
		}},
		{"three times", comment, nil, func(g *wire.Grant) { g.Count = 2 }, []second{
			{"the first", goes, nil, nil, nil},
			{"the second", goes, nil, nil, nil},
			{"used up", asks, nil, nil, nil},
		}},
		{"a repository that only the owner sees", mine, nil, nil, []second{
			{"another name", asks, []string{"--name", "other"}, nil, nil},
			{"for everyone", asks, nil, nil, append(slices.Clone(mine), "--private=false")},
		}},
		{"a contact", person, nil, nil, []second{
			{"another contact, which nobody else sees", goes, nil, nil, contact("Somebody Else")},
			{"another address book", asks, []string{"--book", "/contacts/ada/shared/"}, nil, nil},
			{"a contact that is there", asks, []string{"--book", "", "--contact", r.dav.Book() + "bob.vcf"}, nil, nil},
		}},
	} {
		t.Run(group.name, func(t *testing.T) {
			r := r.with(t)
			id := r.given(work, group.call, group.open, group.change)
			for _, row := range group.rows {
				t.Run(row.why, func(t *testing.T) {
					from, args := row.from, row.args
					if from == nil {
						from = work
					}
					if args == nil {
						args = changed(group.call, row.set)
					}
					r.with(t).try(from, args, row.want)
				})
			}
			r.doorward(0, "taint", "work", "--clear", "--yes")
			r.ada.Doorward(r.ctx(), "", "revoke", id) // one that is used up has ended
			r.with(t).try(work, group.call, asks)
		})
	}

	t.Run("another account", func(t *testing.T) {
		r := r.with(t)
		on := func(account string) []string { return append(slices.Clone(comment), "--account", account) }
		id := r.given(work, on("code"), nil, week)
		req := wire.AddReq{Name: "spare", Vendor: "github", Base: base(t, r.github.Base()), Secret: []byte(r.githubToken),
			CA: r.github.CAPEM(), Placement: wire.Placement{Kind: "header", Name: "Authorization", Prefix: "Bearer "}, Owner: "ada",
			Permit: []string{host(t, r.github.Base())}}
		if err := r.Person(0).Ask(r.ctx(), wire.PathAuthdAdmin, "add", &req, &wire.AccountsResp{}); err != nil {
			t.Fatal(err)
		}
		r.decide(r.waitPending(1)[0], true)
		r.try(work, on("spare"), asks)
		r.try(work, on("code"), goes)
		r.doorward(0, "revoke", id)
	})
	comment = append(comment, "--account", "code")

	t.Run("what others wrote", func(t *testing.T) {
		r := r.with(t)
		id := r.given(work, comment, nil, week)
		plain := r.given(work, person, nil, nil)
		r.try(work, person, goes)
		r.connector(r.work, 0, "github", "issues", "--repo", "ada/site", "--account", "code")
		r.try(work, comment, asks)
		r.try(work, person, asks)
		also := r.given(work, person, nil, func(g *wire.Grant) { g.Tainted = true })
		r.try(work, person, goes)
		r.doorward(0, "taint", "work", "--clear", "--yes")
		r.try(work, comment, goes)
		for _, g := range []string{id, plain, also} {
			r.doorward(0, "revoke", g)
		}
	})

	t.Run("a session that ended", func(t *testing.T) {
		r := r.with(t)
		r.given(r.work.Session("run-5"), comment, nil, nil)
		r.try(r.work.Session("run-5"), comment, goes)
		if err := r.work.EndSession("run-5"); err != nil {
			t.Fatal(err)
		}
		r.try(r.work.Session("run-5"), comment, asks)
	})

	t.Run("a week later", func(t *testing.T) { // the last: sessions are over by then
		r := r.with(t)
		r.given(home, comment, nil, week)
		r.try(home, comment, goes)
		sentinel := r.Daemon("sentinel")
		for _, step := range []struct {
			ahead time.Duration
			want  covered
		}{{7*24*time.Hour - time.Hour, goes}, {7 * 24 * time.Hour, asks}} {
			sentinel.Ahead = step.ahead
			if err := sentinel.Restart(); err != nil {
				t.Fatal(err)
			}
			r.try(r.home.Session(fmt.Sprintf("run-%d", 20+step.want)), comment, step.want)
		}
	})
}

// Whom an answer reaches stands at the vendor, where others change it after a person has looked. So nothing that builds on what
// others wrote is granted ahead, by whatever client: each is a card of its own, which says whom it reaches now.
func TestWhatBuildsOnOthersWordsIsDecidedEachTime(t *testing.T) {
	r := newRig(t, world.Options{})
	invitation := r.dav.Calendar() + "invite.ics"
	answer := []string{"dav", "respond", "--event", invitation, "--answer", "accepted"}
	series := []string{"--event", r.dav.Calendar() + "standup.ics", "--scope", "one", "--instance", "2030-11-05T08:30:00Z"}
	for _, args := range [][]string{answer,
		{"dav", "event-update", "--event", invitation, "--title", "Slow sync"},
		append([]string{"dav", "event-update", "--title", "Sit-down"}, series...),
		append([]string{"dav", "event-delete"}, series...),
		{"dav", "event-delete", "--event", invitation, "--notify", "all"},
		{"dav", "contact-delete", "--contact", r.dav.Book() + "bob.vcf"},
	} {
		t.Run(strings.Join(args[1:2], " "), func(t *testing.T) {
			r := r.with(t)
			card := r.asks(r.work.Actor(), args...)
			if card.Grantable != nil {
				t.Errorf("a grant is offered: %s", card.Grantable.Sentence)
			}
			g := wire.Grant{Connector: "dav", Method: card.Method, Account: "calendar", Cell: "work", Kind: "until",
				Until: time.Now().Add(24 * time.Hour).Unix(), Limits: []wire.Limit{{Field: args[2][2:], Values: args[3:4]}}}
			var resp wire.DecideCardResp
			err := r.ada.Ask(r.ctx(), wire.PathApprove, "decide",
				&wire.DecideCardReq{ID: card.ID, Hash: card.Hash, Approve: true, Grant: &g}, &resp)
			if code(err) != wire.CodeNotAllowed || !strings.Contains(err.Error(), "offers no grant") {
				t.Errorf("a grant that somebody made up: %v", err)
			}
			r.doorward(2, "approve", card.ID, "--yes", "--grant", "session")
			if s := r.card(card.ID).State; s != wire.StateParked {
				t.Errorf("a refused grant decided the call: it is %s", s)
			}
			r.decide(card, false)
		})
	}

	card := r.asks(r.work.Actor(), answer...)
	r.has(strings.Join(card.Facts, "\n"), "reaches mallory@evil.test")
	if s := r.approve(card); s != wire.StateDone {
		t.Fatalf("the answer is %s", s)
	}
	body, _, _ := r.dav.Object(invitation)
	if err := r.dav.Put(invitation, []byte(strings.ReplaceAll(string(body), "mallory@evil.test", "trent@evil.test"))); err != nil {
		t.Fatal(err)
	}
	r.doorward(0, "taint", "work", "--clear", "--yes")
	card = r.asks(r.work.Actor(), answer...)
	r.has(strings.Join(card.Facts, "\n"), "first time you write to trent@evil.test")
	r.decide(card, false)
}

// The Robb case: an agent that may answer for a week gives an address away, agrees to less than was to be had, and writes to
// somebody else. What a person allowed ahead is said word for word, and to nobody else; what is more is asked about.
func TestAGrantToAnswerForAWeekIsNoneToSayMore(t *testing.T) {
	r, v := withRadicale(t)
	work := r.work.Actor()
	const address = "12 Elm Street, at the back"
	calendar := "/ada/personal/"
	answer := []string{"github", "comment", "--repo", "ada/site", "--number", "1", "--body", "50, and you come for it."}
	meet := []string{"dav", "event-create", "--account", "rad", "--calendar", calendar, "--title", "Look at the boat, 50",
		"--start", "2030-03-10T10:00:00", "--end", "2030-03-10T11:00:00", "--tz", "Europe/Berlin", "--attendee", "bob@example.test",
		"--notify", "none"}
	writes := func() int { return len(r.acted()) + v.Rec.Handled("PUT", "/") }

	for _, c := range []struct {
		name string
		call []string
		more map[string][]string
	}{
		{"a comment", answer, map[string][]string{
			"an address":                         {"--body", "50, and you come for it. I live at " + address},
			"an address alone":                   {"--body", address},
			"a number below":                     {"--body", "40, and you come for it."},
			"a person who is mentioned":          {"--body", "@mallory 50, and you come for it."},
			"whoever follows another issue":      {"--number", "2"},
			"whoever follows another repository": {"--repo", "mallory/bait"},
		}},
		{"an invitation", meet, map[string][]string{
			"an address as the place": {"--location", address},
			"an address as a text":    {"--description", "I live at " + address},
			"an address as the title": {"--title", address},
			"a number below":          {"--title", "Look at the boat, 40"},
			"a new person":            {"--attendee", "mallory@evil.test"},
			"a new person besides":    {"--attendee", "bob@example.test", "--attendee", "mallory@evil.test"},
			"mail that was not to go": {"--notify", "all"},
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := r.with(t)
			card := r.asks(work, c.call...)
			text := map[string]string{"comment": "body", "event-create": "title"}[card.Method]
			for _, open := range []string{text, "attendee", "number", "repo", "calendar"} {
				_, err := r.tryGrant(card, func(g *wire.Grant) {
					week(g)
					g.Limits = slices.Clone(card.Grantable.Limits)
					for i, l := range g.Limits {
						if l.Field == open {
							g.Limits[i] = wire.Limit{Field: open, Any: true}
							return
						}
					}
					g.Limits = nil
				})
				if code(err) != wire.CodeBadArgument {
					t.Errorf("a week with %s left open: %v", open, err)
				}
			}
			r.decide(card, false)
			id := r.given(work, c.call, nil, week)
			r.has(r.doorward(0, "grants").Stdout, id)
			before := writes()
			r.connector(r.work, 0, c.call...)
			r.sum("the answer", writes(), before+1)
			for what, set := range c.more {
				args := changed(c.call, set)
				res := r.connector(r.work, wire.ExitWaiting, append(args, "--json", "--wait", "0s")...)
				r.decide(r.card(callOf(t, res)), false)
				r.sum(what, writes(), before+1)
			}

			// What is left open for a session stands in what a person signs.
			r.doorward(0, "revoke", id)
			free := r.given(work, c.call, []string{text}, nil)
			r.has(r.doorward(0, "grants").Stdout, free)
			r.has(r.doorward(0, "grants", "--json").Stdout, "whatever", "(--"+text+") is")
			r.connector(r.work, 0, changed(c.call, []string{"--" + text, "Something else"})...)
			r.sum("other words", writes(), before+3)
			// And it ends when the cell has read what others wrote: the reply says what the agent is to say.
			r.connector(r.work, 0, "github", "comments", "--repo", "ada/site", "--number", "1")
			res := r.connector(r.work, wire.ExitWaiting, append(c.call, "--json", "--wait", "0s")...)
			r.decide(r.card(callOf(t, res)), false)
			r.sum("after reading", writes(), before+3)
			r.doorward(0, "taint", "work", "--clear", "--yes")
			r.doorward(0, "revoke", free)
		})
	}
}
