// SPDX-License-Identifier: Apache-2.0

package scenario

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/doorward/doorward/internal/describe"
	"github.com/doorward/doorward/internal/wire"
	"github.com/doorward/doorward/test/vendors/standin"
	"github.com/doorward/doorward/test/world"
)

// The cases AP of the field, by their numbers. AP-05 is of settle_test.go and github_test.go, AP-08 of reach_test.go.

// AP-01: what was approved is what runs, whatever its files, or the worker that rendered it, have become meanwhile.
func TestAP01_WhatWasAskedIsWhatRuns(t *testing.T) {
	r := newRig(t, world.Options{})
	dir := readable(t)
	file := put(t, dir, "body", []byte("as it was asked"), 0o644)
	card := r.park(r.work, "github", "file-put", "--repo", "ada/site", "--path", "ap01", "--branch", "main", "--message", "m",
		"--file", file)
	text := r.park(r.work, "github", "issue-create", "--repo", "ada/site", "--title", "AP-01", "--body-file", file)
	prepared := r.park(r.work, r.event("AP-01 prepared")...)
	put(t, dir, "other", []byte("as nobody asked"), 0o644)
	if err := os.Rename(filepath.Join(dir, "other"), file); err != nil {
		t.Fatal(err)
	}
	if got := r.card(card.ID).Bodies; len(got) != 1 || got[0].Text != "as it was asked" {
		t.Errorf("the card shows %+v", got)
	}
	// The worker that rendered the body is another one by now, and it is not asked again.
	if err := r.Daemon("worker-dav").Restart(); err != nil {
		t.Fatal(err)
	}
	for _, c := range []wire.Card{card, text, prepared} {
		if s := r.approve(c); s != wire.StateDone {
			t.Errorf("%s is %s: %v", c.Method, s, r.card(c.ID).Err)
		}
	}
	if got, _ := r.github.State.File("ada", "site", "main", "ap01"); string(got) != "as it was asked" {
		t.Errorf("the file is %q", got)
	}
	issues := r.github.State.Repo("ada", "site").Issues
	if last := issues[len(issues)-1]; !strings.HasPrefix(last.Body, "as it was asked\n\n") {
		t.Errorf("the issue says %q", last.Body)
	}
	body := r.card(prepared.ID).Bodies[0].Text
	if got, _, _ := r.dav.Object(r.dav.Calendar() + prepared.Mark + ".ics"); string(got) != body {
		t.Errorf("shown was\n%s\nand put was\n%s", body, got)
	}
}

// AP-02: what an agent or a stranger writes stands in a card as it is, visibly, and is sent unaltered.
func TestAP02_WhatIsShownCannotBeFalsified(t *testing.T) {
	r := newRig(t, world.Options{})
	const title, body = "plain \u202egnp.exe \u200b end", "one\u2066three\U000E0041 g\u043e\u043egle.test"
	card := r.park(r.work, "github", "issue-create", "--repo", "ada/site", "--title", title, "--body", body)
	r.connector(r.work, wire.ExitUsage, "github", "issue-create", "--repo", "ada/site", "--title", "t", "--body", "\x1b[2K")
	escapes := []byte("\x1b[2K\x1b]8;;https://evil.test\x07\rhidden\u202e")
	file := r.park(r.work, "github", "file-put", "--repo", "ada/site", "--path", "ap02", "--branch", "main", "--message", "m",
		"--file", put(t, readable(t), "f", escapes, 0o644))
	for _, words := range [][]string{{"show", card.ID}, {"pending"}, {"show", card.ID, "--json"}, {"show", file.ID}} {
		out := r.doorward(0, words...).Stdout
		if strings.ContainsAny(out, "\x1b\r\x07\u202e\u200b\u2066\U000E0041") {
			t.Errorf("doorward %s prints them as they are: %q", strings.Join(words, " "), out)
		}
	}
	r.has(strings.ToLower(r.doorward(0, "show", card.ID).Stdout), "202e", "200b", "gnp.exe")
	r.has(r.doorward(0, "show", file.ID).Stdout, "hidden")
	if s := r.approve(file); s != wire.StateDone {
		t.Errorf("it is %s", s)
	}
	if got, _ := r.github.State.File("ada", "site", "main", "ap02"); !bytes.Equal(got, escapes) {
		t.Errorf("the file is %q", got)
	}
	if s := r.approve(card); s != wire.StateDone {
		t.Fatalf("it is %s", s)
	}
	issues := r.github.State.Repo("ada", "site").Issues
	if last := issues[len(issues)-1]; last.Title != title || !strings.HasPrefix(last.Body, body) {
		t.Errorf("what runs is not what was asked: %q %q", last.Title, last.Body)
	}
}

// AP-03: a grant is for what was shown, and in a list that can be revoked. TestAGrantForOneThingNeverCoversAnother has the table.
func TestAP03_NothingBeyondWhatWasShown(t *testing.T) {
	r := newRig(t, world.Options{})
	work, home := r.work.Actor(), r.home.Actor()
	end := func(id string) { r.doorward(0, "revoke", id) }
	id := r.grant(r.asks(work, issue("ada/site", "shown")...), nil)
	r.has(r.doorward(0, "grants").Stdout, id, "ada/site", "cell work", "session")
	r.goes(work, issue("ada/site", "the like of it")...)
	r.goes(work, issue("ADA/Site", "the same repository")...)
	r.asksOnly(work, issue("ada/notes", "another repository")...)
	r.asksOnly(work, append(issue("ada/site", "to somebody"), "--assignee", "mallory")...)
	r.asksOnly(work, "github", "comment", "--repo", "ada/site", "--number", "1", "--body", "another method")
	r.asksOnly(home, issue("ada/site", "another cell")...)
	r.asksOnly(r.work.Session("run-1"), issue("ada/site", "another session")...)
	end(id)
	r.asksOnly(work, issue("ada/site", "revoked")...)
}

// AP-06: identical calls of one caller share a question and an effect.
func TestAP06_IdenticalCallsShareOneQuestion(t *testing.T) {
	r := newRig(t, world.Options{})
	before := r.puts()
	results := make([]world.Result, 4)
	var wg sync.WaitGroup
	for i := range results {
		wg.Go(func() {
			results[i], _ = r.work.Actor().Connector(r.ctx(), append(r.event("shared"), "--json", "--wait", "0s")...)
		})
	}
	wg.Wait()
	ids, joined := map[string]bool{}, 0
	for _, res := range results {
		if res.Code != wire.ExitWaiting {
			t.Errorf("%v", res)
		}
		ids[callOf(t, res)] = true
		if strings.Contains(res.Stderr, "the same call is already there") {
			joined++
		}
	}
	if len(ids) != 1 || joined != len(results)-1 {
		t.Fatalf("%d calls wait, %d answers say joined", len(ids), joined)
	}
	if res := r.connector(r.home, wire.ExitWaiting, append(r.event("shared"), "--json", "--wait", "0s")...); ids[callOf(t, res)] {
		t.Error("another cell's call is joined")
	} else {
		r.connector(r.home, 0, "cancel", callOf(t, res))
	}
	for id := range ids {
		if s := r.approve(r.card(id)); s != wire.StateDone {
			t.Errorf("it is %s", s)
		}
		r.connector(r.work, 0, "result", id, "--json")
	}
	r.sum("an event", r.puts(), before+1)
}

// AP-09: what asks has had no effect at the vendor.
func TestAP09_NothingIsWrittenBeforeTheAnswer(t *testing.T) {
	r := newRig(t, world.Options{})
	r.github.Rec.Reset()
	r.dav.Rec.Reset()
	file := put(t, readable(t), "f", []byte("of the gist"), 0o644)
	cards := []wire.Card{
		r.park(r.work, issue("ada/site", "AP-09")...), r.park(r.work, r.event("AP-09")...), r.park(r.work, contact("AP Nine")...),
		r.park(r.work, "dav", "event-create", "--calendar", r.dav.Calendar(), "--title", "guests", "--start", "2030-03-10",
			"--end", "2030-03-10", "--attendee", "eve@example.test", "--notify", "all"),
		r.park(r.work, "github", "gist-create", "--file", file),
		r.park(r.work, "dav", "event-update", "--event", r.dav.Calendar()+"dentist.ics", "--title", "moved"),
	}
	for _, rec := range []*standin.Recorder{r.github.Rec, r.dav.Rec} {
		for _, q := range rec.All() {
			if q.Method != "GET" && q.Method != "PROPFIND" && q.Method != "REPORT" {
				t.Errorf("before the answer %s %s reached the vendor", q.Method, q.Path)
			}
		}
	}
	for _, c := range cards {
		r.decide(c, false)
	}
	r.sum("a write", len(r.acted()), 0)
}

// AP-04: silence is no, and while a question is open the same effect has no other road: another method, session or cell asks too, the
// worker does nothing without a grant, and the vendor is reached by no program, or, where a person lets it, without the credential.
func TestAP04_NoRoadGoesRoundAnOpenQuestion(t *testing.T) {
	r := reachRig(t)
	work := r.work.Actor()
	const text = "what nobody approved"
	card := r.park(r.work, append(issue("ada/site", "Round"), "--body", text)...)

	// Other methods, a text that goes out by itself later, and the like.
	file := put(t, readable(t), "f", []byte(text), 0o644)
	for _, args := range [][]string{
		append(issue("ada/site", "Round again"), "--body", text),
		{"github", "comment", "--repo", "ada/site", "--number", "1", "--body", text},
		{"github", "issue-update", "--repo", "ada/site", "--number", "1", "--body", text},
		{"github", "pull-create", "--repo", "ada/site", "--head", "feature", "--base", "main", "--title", text, "--draft"},
		{"github", "release-create", "--repo", "ada/site", "--tag", "v1", "--notes", text, "--draft"},
		{"github", "file-put", "--repo", "ada/site", "--path", ".github/workflows/later.yml", "--message", "m", "--file", file},
		{"github", "workflow-run", "--repo", "ada/site", "--workflow", "build.yml", "--ref", "main", "--input", "text=" + text},
		{"github", "gist-create", "--file", file},
		append(r.event(text), "--attendee", "eve@example.test", "--notify", "all"),
		append(r.event("later"), "--description", text),
		{"dav", "event-update", "--event", r.dav.Calendar() + "dentist.ics", "--description", text, "--attendee", "eve@example.test",
			"--notify", "all"},
		contact(text),
	} {
		r.asksOnly(work, args...)
	}
	if same := r.asks(r.work.Session("run-8"), append(issue("ada/site", "Round"), "--body", text)...); same.ID != card.ID {
		t.Errorf("another session's call is a question of its own: %s", same.ID)
	}
	r.asksOnly(r.home.Actor(), append(issue("ada/site", "Round"), "--body", text)...)
	r.waits(card, "other calls")

	// The worker itself, with the waiting call's own name in the place of a grant.
	frame := r.frame("github", "issue-create", "repo", "ada/site", "title", "Round")
	for _, grant := range []string{card.ID, "", strings.Repeat("a", len(card.ID))} {
		var resp wire.Output
		if err := work.Ask(r.ctx(), wire.PathCellWorker("github"), "call", &wire.CallReq{Grant: grant, Frame: frame}, &resp); err == nil {
			t.Errorf("the worker takes the grant %q: %+v", grant, resp)
		}
	}
	r.waits(card, "the worker")

	// The vendor's own address, by a client that nobody wrote for this.
	at := strings.TrimPrefix(host(t, r.github.Base()), "127.0.0.1")
	post := func(more ...string) world.Result {
		return r.curl(append([]string{"--insecure", "--include", "--header", "User-Agent: curl", "--header", "Accept: application/vnd.github+json",
			"--header", "X-GitHub-Api-Version: 2022-11-28", "--json", `{"title":"Round","body":"` + text + `"}`}, append(more,
			"https://rebind.example"+at+"/repos/ada/site/issues")...)...)
	}
	r.load(fmt.Sprintf("[site.\"rebind.example%s\"]\nsetting = \"ask\"\npermit = [%q]\n", at, host(t, r.github.Base())))
	before := len(r.github.Rec.All())
	if res := post(); res.Code == 0 {
		t.Errorf("the vendor answers a program of the cell: %v", res)
	}
	r.sum("anything from a program that was not let through", len(r.github.Rec.All()), before)
	site := r.waitPending(2)
	i := 0
	if site[i].ID == card.ID {
		i = 1
	}
	if site[i].Kind != "widening" || !strings.Contains(site[i].Title, "rebind.example") {
		t.Errorf("the way round does not ask: %+v", site[i])
	}
	r.decide(site[i], true)
	for _, token := range []string{"", "token " + card.ID, "Bearer ghp_" + strings.Repeat("a", 36)} {
		more := []string{"--header", "Authorization: " + token}
		if res := post(more...); !strings.Contains(res.Stdout, " 401") {
			t.Errorf("with the authorization %q: %v", token, res)
		}
	}
	if len(r.github.Rec.All()) == before {
		t.Error("control: a site that a person allowed is not reached")
	}
	if res := post("--header", "Authorization: Bearer "+r.githubToken); !strings.Contains(res.Stdout, " 201") {
		t.Errorf("control: with the credential, which no cell has, it is not done: %v", res)
	}
	n := r.issues()

	sentinel := r.Daemon("sentinel")
	sentinel.Ahead = 25 * time.Hour
	if err := sentinel.Restart(); err != nil {
		t.Fatal(err)
	}
	if _, err := r.tryDecide(card, true); code(err) != wire.CodeExpired {
		t.Errorf("a yes after a day is answered %v", err)
	}
	if s := r.ended(card.ID); s != wire.StateExpired {
		t.Errorf("what nobody answered is %s", s)
	}
	r.has(r.connector(r.work, wire.ExitExpired, "result", card.ID).Stderr, "nobody decided in time")
	r.sum("an issue after silence", r.issues(), n)
}

// AP-07: an agent that reads much asks nothing, and one that asks without end fills its own 50 places, which a person sees as one group
// and empties by one answer. What is logged is the number of questions for a task, to be kept low.
func TestAP07_AFloodIsOneGroupAndEndsWithOneAnswer(t *testing.T) {
	r := newRig(t, world.Options{})
	work := r.work.Actor()
	for i := range 25 {
		r.github.State.AddIssue("ada", "notes", "ada", fmt.Sprintf("Message %d", i), "text")
	}
	calls := 1
	r.connector(r.work, 0, "github", "issues", "--repo", "ada/notes")
	for i := range 25 {
		r.connector(r.work, 0, "github", "issue-get", "--repo", "ada/notes", "--number", fmt.Sprint(i+1))
		calls++
	}
	if n := len(r.pending()); n != 0 {
		t.Errorf("reading asks %d times", n)
	}
	answer := r.park(r.work, "github", "comment", "--repo", "ada/notes", "--number", "1", "--body", "Read them all.")
	t.Logf("a task of %d calls asks a person %d times", calls+1, len(r.pending()))
	if s := r.approve(answer); s != wire.StateDone {
		t.Fatalf("it is %s", s)
	}

	from := r.end()
	ask := func(a *world.Actor, title string) wire.DecideResp {
		t.Helper()
		var resp wire.DecideResp
		req := &wire.DecideReq{Frame: r.frame("github", "issue-create", "repo", "ada/site", "title", title)}
		if err := a.Ask(r.ctx(), wire.PathCellSentinel, "decide", req, &resp); err != nil {
			t.Fatal(err)
		}
		return resp
	}
	got := map[string]int{}
	for i := range 500 {
		title := "again and again"
		if i%5 != 0 {
			title = fmt.Sprintf("number %d", i)
		}
		resp := ask(work, title)
		what := string(resp.Verdict)
		if resp.Err != nil {
			what += " " + string(resp.Err.Code)
		}
		if resp.Joined {
			what = "joined"
		}
		got[what]++
	}
	cards := r.pending()
	if len(cards) != 50 || got["parked needs_approval"] != 50 || got["joined"] != 99 || got["deny too_many"] != 351 {
		t.Errorf("%d cards wait; the answers were %v", len(cards), got)
	}
	for _, c := range cards {
		if c.Alike != len(cards)-1 {
			t.Errorf("card %s is alike to %d others", c.ID, c.Alike)
		}
	}
	if other := ask(r.home.Actor(), "of another cell"); other.Verdict != wire.Parked {
		t.Errorf("another cell cannot ask: %+v", other)
	}
	r.connector(r.work, 0, "github", "repos") // what does not ask goes on
	if n := len(r.events(from)); n > 1000 {
		t.Errorf("the record has %d entries of it", n)
	}
	r.doorward(0, "deny", cards[0].ID, "--stop")
	r.eventually("one answer ends the flood", func() bool {
		left := r.pending()
		return len(left) == 1 && left[0].Cell == "home"
	})
	if resp := ask(work, "after the answer"); resp.Verdict != wire.Deny {
		t.Errorf("the session goes on asking: %+v", resp)
	}
	if resp := ask(r.work.Session("run-6"), "in a new session"); resp.Verdict != wire.Parked {
		t.Errorf("control: a new session cannot ask: %+v", resp)
	}
	r.sum("an issue", r.issues(), 1) // the comment
}

// frame is a call with text arguments, given as name, value, ... in the order of their names.
func (r *rig) frame(vendor, method string, args ...string) wire.Frame {
	r.t.Helper()
	d, err := describe.Load(filepath.Join(r.Prefix, "share", "doorward"), vendor)
	if err != nil {
		r.t.Fatal(err)
	}
	f := wire.Frame{Connector: vendor, Description: d.Digest(), Method: method}
	for i := 0; i+1 < len(args); i += 2 {
		f.Args = append(f.Args, wire.Arg{Name: args[i], Values: []string{args[i+1]}})
	}
	return f
}
