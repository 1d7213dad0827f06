// SPDX-License-Identifier: Apache-2.0

package scenario

import (
	"bytes"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/chromedp"
	"github.com/doorward/doorward/internal/wire"
	"github.com/doorward/doorward/test/vendors/standin"
	"github.com/doorward/doorward/test/vendors/told"
	"github.com/doorward/doorward/test/world"
)

// telling starts where people are told, and adds a webhook, told at once, and an ntfy server behind it.
func (r *rig) telling() *told.Server {
	r.t.Helper()
	s, err := told.New()
	if err != nil {
		r.t.Fatal(err)
	}
	r.t.Cleanup(s.Close)
	s.Secret = []byte("a secret of twenty-four b")
	r.addChannel(s, "pager", "webhook", told.HookPath, []byte("whsec_YSBzZWNyZXQgb2YgdHdlbnR5LWZvdXIgYg=="))
	r.addChannel(s, "phone", "ntfy", "/"+told.Topic, []byte(s.Token))
	return s
}

func (r *rig) addChannel(s *told.Server, name, kind, path string, secret []byte) {
	r.t.Helper()
	req := &wire.NoticesReq{Op: "add", Name: name, Secret: secret, Channel: &wire.NoticeChannel{Name: name, Kind: kind, After: -1,
		URL: "https://" + s.Authority + path, CA: s.CAPEM(), Permit: []string{s.Authority}}}
	if err := r.Person(0).Ask(r.ctx(), wire.PathApprove, "notices", req, new(wire.NoticesResp)); err != nil {
		r.t.Fatalf("add channel %s: %v", name, err)
	}
}

// told waits until a way has a number of notices, and holds that it stays so until the next thing is told there.
func (r *rig) told(s *told.Server, way string, want int) []told.Notice {
	r.t.Helper()
	r.eventually(fmt.Sprintf("%d notices by %s", want, way), func() bool { return len(s.By(way)) >= want })
	if got := s.By(way); len(got) != want {
		r.t.Fatalf("%d notices by %s, want %d: %q", len(got), way, want, states(got))
	}
	return s.By(way)
}

// unseen is park without a look at the card, which would count as one.
func (r *rig) unseen(cell *world.Cell, args ...string) wire.Card {
	r.t.Helper()
	id := callOf(r.t, r.connector(cell, wire.ExitWaiting, append(args, "--json", "--wait", "0s")...))
	all := r.pending()
	i := slices.IndexFunc(all, func(c wire.Card) bool { return c.ID == id })
	if i < 0 {
		r.t.Fatalf("%s does not wait", id)
	}
	return all[i]
}

func (r *rig) rules(s *told.Server) {
	r.t.Helper()
	if v := s.Rec.Violations(); len(v) > 0 {
		r.t.Errorf("a notice does not hold to the rules of where it goes: %q", v)
	}
}

func states(all []told.Notice) (out []string) {
	for _, n := range all {
		out = append(out, n.State)
	}
	return out
}

// A call that waits is told of, and each state that it comes to, once; the next channel is told of one that nobody looked at for ten
// minutes, and of no other. In nothing that is told stands what the agent wrote, or a credential.
func TestPeopleAreTold(t *testing.T) {
	r := newRig(t, world.Options{})
	s := r.telling()
	const title = "A title that only the agent knows"
	card := r.park(r.work, issue("ada/site", title)...)
	r.told(s, "hook", 1)
	if st := r.approve(card); st != wire.StateDone {
		t.Fatalf("it is %s", st)
	}
	if got := states(r.told(s, "hook", 3)); !slices.Equal(got, []string{"parked", "approved", "done"}) {
		t.Errorf("told is %q", got)
	}
	denied := r.park(r.work, issue("ada/site", title)...)
	r.told(s, "hook", 4) // what is decided before it was told is not told any more
	r.decide(denied, false)
	r.told(s, "hook", 5)

	looked := r.unseen(r.work, issue("ada/site", title+", looked at")...)
	r.told(s, "hook", 6)
	r.doorward(0, "show", looked.ID)
	open := r.unseen(r.home, issue("ada/site", title+", not looked at")...)
	r.told(s, "hook", 7)
	r.sum("a message by ntfy", len(s.By("ntfy")), 0)
	sentinel := r.Daemon("sentinel")
	sentinel.Ahead = 11 * time.Minute
	if err := sentinel.Restart(); err != nil {
		t.Fatal(err)
	}
	if got := r.told(s, "ntfy", 1); !strings.Contains(got[0].Text, "home") {
		t.Errorf("told is %+v, of the one that was looked at", got)
	}
	r.decide(open, false) // what becomes of it is told where it was said that it waits
	r.told(s, "ntfy", 2)
	r.told(s, "hook", 8)

	for _, n := range s.All() {
		for _, never := range []string{title, r.githubToken, r.davPassword, s.Token} {
			if bytes.Contains(n.Raw, []byte(never)) {
				t.Errorf("a notice has %q in it: %s", never, n.Raw)
			}
		}
	}
	r.rules(s)
	r.hold(0)
}

// Whatever is killed on the way of a notice, and whatever the receiver loses, it has each state once by its id.
func TestNoNoticeIsLostOrDoubled(t *testing.T) {
	r := newRig(t, world.Options{})
	s := r.telling()
	want := 0
	for _, c := range []struct {
		name  string
		fault standin.Fault
		kill  string
	}{
		{"the answer is lost", standin.Fault{Path: told.HookPath, Drop: standin.DropAfter, Times: 1}, ""},
		{"the server is down", standin.Fault{Path: told.HookPath, Status: 503, Times: 2}, ""},
		{"egress is killed before the answer", standin.Fault{Path: told.HookPath, DelayMS: 1500, Times: 1}, "egress"},
		{"sentinel is killed before the answer", standin.Fault{Path: told.HookPath, DelayMS: 1500, Times: 1}, "sentinel"},
		{"sentinel is killed behind a lost answer", standin.Fault{Path: told.HookPath, Drop: standin.DropAfter, Times: 1}, "sentinel"},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := r.with(t)
			before := len(s.Rec.Find("POST", told.HookPath))
			s.Faults.Add(c.fault)
			card := r.park(r.work, issue("ada/site", c.name)...)
			if c.kill != "" {
				r.eventually("the notice is on its way", func() bool { return len(s.Rec.Find("POST", told.HookPath)) > before })
				r.Daemon(c.kill).Kill()
				if err := r.Daemon(c.kill).Start(); err != nil {
					t.Fatal(err)
				}
			}
			want++
			r.told(s, "hook", want)
			r.decide(card, false) // it has been told once that it waits; what is told next comes behind it
			want++
			got := r.told(s, "hook", want)
			if last := states(got[want-2:]); !slices.Equal(last, []string{"parked", "denied"}) {
				t.Errorf("told is %q", last)
			}
			s.Faults.Clear()
		})
	}
	r.rules(s)
}

// What is kept of a channel is sealed: neither token nor secret stands in what sentinel writes to the disk.
func TestChannelsAreSealed(t *testing.T) {
	r := newRig(t, world.Options{})
	s := r.telling()
	r.park(r.work, issue("ada/site", "for the record")...)
	r.told(s, "hook", 1)
	control := false
	err := filepath.WalkDir(r.State("sentinel"), func(p string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() {
			return err
		}
		b, err := os.ReadFile(p)
		if errors.Is(err, fs.ErrNotExist) {
			return nil // it has gone meanwhile
		}
		control = control || bytes.Contains(b, []byte("notice/phone"))
		for _, never := range []string{s.Token, s.Authority + "/", string(s.Secret)} {
			if bytes.Contains(b, []byte(never)) {
				t.Errorf("%s has %q in the clear", filepath.Base(p), never)
			}
		}
		return err
	})
	if err != nil {
		t.Error(err)
	}
	if !control {
		t.Error("the channels are not looked for where they are kept")
	}
}

// A browser that an approver signed in with is told by its push service, which reads nothing of it; the notice leads to the card. It
// ends when the service says that it is gone, and with the approver.
func TestABrowserIsTold(t *testing.T) {
	br := browserFor(t)
	r := newRig(t, world.Options{Page: true})
	s, err := told.New()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	r.addChannel(s, "own", "pushservice", "/", nil)
	res, err := r.Person(0).Doorward(r.ctx(), "", "approver", "add", "ada")
	if err != nil || res.Code != 0 {
		t.Fatalf("%v %v", res, err)
	}
	w := br.Open(t, 390, 844, strings.TrimSpace(res.Stdout))
	w.Press("Make a passkey")
	w.Press("Sign in with a passkey")
	w.Sees("Nothing waits.")
	subscribe := func() {
		t.Helper()
		var key struct{ Key []byte }
		w.Call("api.js", `return await m.ask(args[0])`, &key, "push")
		s.Key = key.Key
		w.Call("api.js", `const [endpoint, pub, auth] = args; return await m.ask("push", { endpoint, public: pub, auth })`, nil,
			"https://"+s.Authority+told.PushPath, s.Public, s.Auth)
	}
	subscribe()
	const title = "A title that only the agent knows"
	card := r.unseen(r.work, issue("ada/site", title)...)
	got := r.told(s, "push", 1)[0]
	if got.Title != "A decision waits" || !strings.Contains(got.Text, "work") || got.Link != r.Place.PageOrigin()+"/#card="+card.ID {
		t.Errorf("told is %+v", got)
	}
	if bytes.Contains(got.Raw, []byte(title)) {
		t.Error("the notice says what the agent wrote")
	}
	for _, q := range s.Rec.All() {
		for _, never := range []string{"work", "github", card.ID} {
			if bytes.Contains(q.Body, []byte(never)) || strings.Contains(fmt.Sprint(q.Header, q.Target), never) {
				t.Errorf("the push service sees %q", never)
			}
		}
	}
	w.Run(chromedp.Navigate(got.Link))
	w.Press("Deny")
	w.Sees("Denied.")
	if next := r.told(s, "push", 2)[1]; next.Tag != got.Tag || next.Title != "Denied" {
		t.Errorf("told is %+v, which does not replace the first", next)
	}
	s.Faults.Add(standin.Fault{Path: told.PushPath, Status: 410, Times: 1})
	r.unseen(r.home, issue("ada/site", title)...)
	r.eventually("the browser is gone", func() bool {
		return !strings.Contains(r.doorward(0, "notice", "list").Stdout, "browser of ada")
	})
	subscribe()
	r.has(r.doorward(0, "notice", "list").Stdout, "browser of ada")
	if res, err = r.Person(0).Doorward(r.ctx(), "", "approver", "remove", "ada"); err != nil || res.Code != 0 {
		t.Fatalf("%v %v", res, err)
	}
	if out := r.doorward(0, "notice", "list").Stdout; strings.Contains(out, "browser of ada") {
		t.Errorf("somebody who was removed is told: %s", out)
	}
	r.rules(s)
}

// Who watches has each state of each call once, and in order, whatever of Doorward is killed meanwhile.
func TestWatchingOverRestarts(t *testing.T) {
	r := newRig(t, world.Options{})
	out := filepath.Join(t.TempDir(), "events")
	if err := os.WriteFile(out, nil, 0o666); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(out, 0o666); err != nil {
		t.Fatal(err)
	}
	to, err := os.OpenFile(out, os.O_WRONLY|os.O_APPEND, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer to.Close()
	p, err := r.ada.Start(world.Cmd{Args: []string{filepath.Join(r.Prefix, "bin/doorward"), "watch", "--", "/bin/cat"}, StdoutFile: to})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		p.Kill()
		_, _ = p.Wait()
	})
	heard := func() (all []wire.Event) {
		b, err := os.ReadFile(out)
		if err != nil {
			t.Fatal(err)
		}
		for line := range strings.Lines(string(b)) {
			var e wire.Event
			if strings.HasSuffix(line, "\n") {
				if err := json.Unmarshal([]byte(line), &e); err != nil {
					t.Fatalf("%q: %v", line, err)
				}
				all = append(all, e)
			}
		}
		return all
	}
	var first wire.Card
	r.eventually("it watches", func() bool { // nothing says when it does
		first = r.unseen(r.work, issue("ada/site", rand.Text())...)
		r.decide(first, false)
		return len(heard()) > 0
	})
	var want []string
	for i := range 4 {
		card := r.unseen(r.work, issue("ada/site", fmt.Sprint("card ", i))...)
		r.Daemon("sentinel").Kill() // what came just before may not have been told
		if err := r.Daemon("sentinel").Start(); err != nil {
			t.Fatal(err)
		}
		r.approve(card)
		for _, s := range []wire.State{wire.StateParked, wire.StateApproved, "executing", wire.StateDone} {
			want = append(want, card.ID+" "+string(s))
		}
	}
	var got []string
	r.eventually("all is told", func() bool {
		got = nil
		last := int64(0)
		for _, e := range heard() {
			if e.N <= last {
				t.Fatalf("event %d comes behind %d", e.N, last)
			}
			last = e.N
			if s := e.ID + " " + string(e.State); slices.Contains(want, s) {
				got = append(got, s)
			}
		}
		return len(got) >= len(want)
	})
	if !slices.Equal(got, want) {
		t.Errorf("told is\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}
