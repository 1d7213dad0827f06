// SPDX-License-Identifier: Apache-2.0

package sentinel

import (
	"bytes"
	"crypto/ecdh"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/doorward/doorward/internal/wire"
	"github.com/doorward/doorward/sentinel/ledger"
	"github.com/doorward/doorward/sentinel/notices"
)

func hookAt(url string) *wire.NoticesReq {
	return &wire.NoticesReq{Op: "add", Name: "pager", Channel: &wire.NoticeChannel{Name: "pager", Kind: kindWebhook, URL: url, After: -1}}
}

func TestOnlyRootSaysWhoIsTold(t *testing.T) {
	s := newWard(t)
	for _, req := range []*wire.NoticesReq{hookAt("https://pager.example.org/in"), {Op: "remove", Name: "pager"}, {Op: "test", Name: "pager"}} {
		if _, err := s.noticesVerb(t.Context(), ada(), req); codeOf(err) != wire.CodeNotAllowed {
			t.Errorf("%s of a person: %v", req.Op, err)
		}
		if _, err := s.noticesVerb(t.Context(), root(), req); req.Op != "test" && err != nil {
			t.Errorf("control: %s of root: %v", req.Op, err)
		}
	}
}

func TestAChannelIsHeldToItsForm(t *testing.T) {
	with := func(kind, url, secret string) *channel {
		return &channel{NoticeChannel: wire.NoticeChannel{Name: "a", Kind: kind, URL: url, After: -1}, Secret: []byte(secret)}
	}
	long := strings.Repeat("a", maxEndpoint)
	for _, c := range []struct {
		name string
		c    *channel
		ok   bool
	}{
		{"ntfy", with("ntfy", "https://ntfy.example.org/topic", "tk_a"), true},
		{"ntfy below a path", with("ntfy", "https://example.org:8443/ntfy/topic", ""), true},
		{"ntfy without a topic", with("ntfy", "https://ntfy.example.org/", ""), false},
		{"a token with a line end", with("ntfy", "https://ntfy.example.org/topic", "a\r\nHost: b"), false},
		{"a webhook", with("webhook", "https://h.example.org/in?a=b", ""), true},
		{"a webhook with its own secret", with("webhook", "https://h.example.org/", "whsec_"+base64.StdEncoding.EncodeToString(make([]byte, 24))), true},
		{"a short secret", with("webhook", "https://h.example.org/", "whsec_AAAA"), false},
		{"a push service", with("pushservice", "https://push.example.org/", ""), true},
		{"a push service with a path", with("pushservice", "https://push.example.org/a", ""), false},
		{"another kind", with("smtp", "https://h.example.org/", ""), false},
		{"plain http", with("webhook", "http://h.example.org/", ""), false},
		{"a user", with("webhook", "https://u:p@h.example.org/", ""), false},
		{"a fragment", with("webhook", "https://h.example.org/#a", ""), false},
		{"a blank", with("webhook", "https://h.example.org/a b", ""), false},
		{"too long", with("webhook", "https://h.example.org/"+long, ""), false},
		{"no host", with("webhook", "https:///a", ""), false},
	} {
		if err := checkChannel(c.c); (err == nil) != c.ok {
			t.Errorf("%s: %v", c.name, err)
		}
	}
}

// The rows of channels are sealed, and each opens under its own key alone.
func TestAChannelsRowIsSealed(t *testing.T) {
	s := newWard(t)
	r, err := s.noticesVerb(t.Context(), root(), hookAt("https://pager.example.org/secret-path"))
	if err != nil || !bytes.HasPrefix(r.Secret, []byte("whsec_")) {
		t.Fatalf("%+v, %v", r, err)
	}
	v, _ := s.ledger.Setting(channelKey + "pager")
	if bytes.Contains(v.Value, []byte("secret-path")) || len(s.channels()) != 1 {
		t.Errorf("%q, %d channels", v.Value, len(s.channels()))
	}
	if err := s.ledger.PutSetting(t.Context(), channelKey+"other", v.Value, "sentinel", nil); err != nil {
		t.Fatal(err)
	}
	if all := s.channels(); len(all) != 1 || all[0].Name != "pager" {
		t.Errorf("a row under another key counts: %+v", all)
	}
	s.voidNotices(t.Context(), "an older record")
	if len(s.channels()) != 0 {
		t.Error("an older record's channels are told")
	}
}

func subscriptionOf(t *testing.T, endpoint string) *wire.WebPushReq {
	t.Helper()
	k, err := ecdh.P256().GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	return &wire.WebPushReq{Endpoint: endpoint, Public: k.PublicKey().Bytes(), Auth: make([]byte, 16)}
}

func (b *browser) push(req *wire.WebPushReq) (*wire.WebPushResp, error) {
	b.t.Helper()
	return answerTo(b, "push", b.s.webPush, *req)
}

// A browser is told by a push service that is known, while its approver is; whoever holds approvals has nothing else reached by it.
func TestAskingToBeTold(t *testing.T) {
	s := newWard(t)
	b := s.signedIn(t, "ada")
	for _, url := range []string{"https://evil.example/a", "https://127.0.0.1/a", "https://fcm.googleapis.com.evil.example/a",
		"https://evil.example/https://fcm.googleapis.com/a", "https://fcm.googleapis.com@evil.example/a", "https://fcm.googleapis.com:8080/a",
		"https://evilpush.apple.com/a", "http://fcm.googleapis.com/a", "https://push.apple.com.", "https://fcm.googleapis.com\\@evil.example/"} {
		if _, err := b.push(subscriptionOf(t, url)); codeOf(err) != wire.CodeNotAllowed {
			t.Errorf("%s: %v", url, err)
		}
	}
	bad := subscriptionOf(t, "https://fcm.googleapis.com/fcm/send/a")
	bad.Public[3] ^= 1
	if _, err := b.push(bad); codeOf(err) != wire.CodeBadArgument {
		t.Errorf("keys that are none: %v", err)
	}
	if len(s.browsers()) != 0 {
		t.Errorf("%+v", s.browsers())
	}
	first := subscriptionOf(t, "https://fcm.googleapis.com/fcm/send/a")
	for range 2 {
		if r, err := b.push(first); err != nil || !r.On {
			t.Fatalf("%+v, %v", r, err)
		}
	}
	for i := range maxBrowsers {
		_, err := b.push(subscriptionOf(t, fmt.Sprintf("https://web.push.apple.com/%d", i)))
		if (err == nil) != (i < maxBrowsers-1) {
			t.Errorf("browser %d: %v", i, err)
		}
	}
	if n := len(s.browsers()); n != maxBrowsers {
		t.Errorf("%d browsers", n)
	}
	if r, err := b.push(&wire.WebPushReq{Endpoint: first.Endpoint, Off: true}); err != nil || r.On || len(s.browsers()) != maxBrowsers-1 {
		t.Errorf("ending: %+v, %v", r, err)
	}
	if _, err := (&browser{t: t, s: s, card: b.card, session: make([]byte, 32)}).push(first); codeOf(err) != wire.CodeNoSession {
		t.Errorf("a stranger: %v", err)
	}
	// One of a name that was removed, and came again, is another approver.
	if err := s.removeApprover(t.Context(), "ada", "person:0", "test"); err != nil {
		t.Fatal(err)
	}
	if n := len(s.browsers()); n != 0 {
		t.Errorf("%d browsers of somebody who was removed", n)
	}
}

// A viewer's browser is told as an approver's is, and ends with the viewer; only who may approve has nobody told again.
func TestAViewersBrowserIsTold(t *testing.T) {
	s := newWard(t)
	s.soon(t)
	ada, eve := s.signedIn(t, "ada"), s.signedIn(t, "eve", true)
	for i, b := range []*browser{ada, eve} {
		if r, err := b.push(subscriptionOf(t, fmt.Sprintf("https://fcm.googleapis.com/fcm/send/%d", i))); err != nil || !r.On {
			t.Fatalf("%+v, %v", r, err)
		}
	}
	id := s.asks(t, "work")
	told := func() map[string]bool {
		t.Helper()
		s.outbox.mu.Lock()
		defer s.outbox.mu.Unlock()
		if err := s.takeNews(t.Context()); err != nil {
			t.Fatal(err)
		}
		out := map[string]bool{}
		to := s.browsers()
		for _, d := range s.outbox.book.Due(s.ledger.Now(), targets(nil, to)) {
			out[to[slices.IndexFunc(to, func(b subscription) bool { return pushTarget+b.ID == d.To })].Approver] = true
		}
		return out
	}
	if got := told(); !got["ada"] || !got["eve"] {
		t.Errorf("told are %v", got)
	}
	if _, err := answerTo(eve, "seen", s.webSeen, wire.CallRef{Call: id}); codeOf(err) != wire.CodeNotAllowed {
		t.Errorf("a viewer has nobody told again: %v", err)
	}
	if _, err := answerTo(ada, "seen", s.webSeen, wire.CallRef{Call: id}); err != nil {
		t.Error(err)
	}
	s.outbox.mu.Lock()
	if s.outbox.book.Seen(id) {
		t.Error("what an approver has seen nobody has seen")
	}
	s.outbox.mu.Unlock()
	if err := s.removeApprover(t.Context(), "eve", "person:0", "test"); err != nil {
		t.Fatal(err)
	}
	if got := told(); got["eve"] || !got["ada"] || len(s.browsers()) != 1 {
		t.Errorf("with the viewer removed told are %v", got)
	}
}

// What root named as a push service is one.
func TestAPushServiceOfRoots(t *testing.T) {
	s := newWard(t)
	b := s.signedIn(t, "ada")
	req := subscriptionOf(t, "https://push.example.org:8443/a")
	if _, err := b.push(req); codeOf(err) != wire.CodeNotAllowed {
		t.Errorf("before: %v", err)
	}
	_, err := s.noticesVerb(t.Context(), root(), &wire.NoticesReq{Op: "add", Name: "own", Channel: &wire.NoticeChannel{Name: "own",
		Kind: kindService, URL: "https://push.example.org:8443/", Permit: []string{"10.0.0.5:8443"}}})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := b.push(req); err != nil {
		t.Errorf("after: %v", err)
	}
	if to := targets(s.channels(), s.browsers()); len(to) != 1 || to[0].After != 0 {
		t.Errorf("%+v", to)
	}
}

func TestTheOrderOfChannels(t *testing.T) {
	at := func(after int64) channel {
		return channel{NoticeChannel: wire.NoticeChannel{Kind: kindNtfy, After: after}}
	}
	browser := []subscription{{ID: "b"}}
	for _, c := range []struct {
		name string
		all  []channel
		b    []subscription
		want []time.Duration
	}{
		{"alone", []channel{at(-1)}, nil, []time.Duration{0}},
		{"behind browsers", []channel{at(-1), at(-1)}, browser, []time.Duration{0, 10 * time.Minute, 20 * time.Minute}},
		{"at once", []channel{at(0), at(-1)}, browser, []time.Duration{0, 0, 10 * time.Minute}},
		{"as root says", []channel{at(1800), at(-1)}, nil, []time.Duration{30 * time.Minute, 40 * time.Minute}},
	} {
		var got []time.Duration
		for _, to := range targets(c.all, c.b) {
			got = append(got, to.After)
		}
		if fmt.Sprint(got) != fmt.Sprint(c.want) {
			t.Errorf("%s: %v, want %v", c.name, got, c.want)
		}
	}
}

// dueNow is what a webhook alone is told, in order, of what the record has.
func (s *Sentinel) dueNow(t *testing.T) (out []noticeText) {
	t.Helper()
	s.outbox.mu.Lock()
	defer s.outbox.mu.Unlock()
	if err := s.takeNews(t.Context()); err != nil {
		t.Fatal(err)
	}
	for {
		due := s.outbox.book.Due(s.ledger.Now(), targets(s.channels(), nil))
		if len(due) == 0 {
			return out
		}
		for _, next := range due {
			out = append(out, *s.textOf(&next, "title"))
			s.outbox.book.Sent(s.ledger.Now(), next, true, false, 0)
		}
	}
}

// Where what was made has an address at the vendor, a notice has it; at another server, and with --detail none, it has none.
func TestANoticeLinksToWhatWasMade(t *testing.T) {
	for base, want := range map[string]string{"api.github.com": "https://github.com/ada/site/issues/4", "git.example.org": ""} {
		s := newWard(t)
		if _, err := s.noticesVerb(t.Context(), root(), hookAt("https://pager.example.org/in")); err != nil {
			t.Fatal(err)
		}
		s.accounts["home"] = wire.Account{Name: "home", Vendor: "github", Base: wire.Base{Scheme: "https", Host: base, Port: 443}}
		now, id := s.ledger.Now(), ledger.NewID()
		c := ledger.Call{Frame: ledger.Frame{ID: id, Cell: "work", Connector: "github", Method: "issue-create", Account: "home", Class: "write",
			Decision: "ask", Dedup: id, Approval: strings.Repeat("00", 32), Card: []byte("{}"), Created: now, Deadline: now.Add(time.Hour)}}
		_, _, err := s.ledger.Park(t.Context(), c, "cell:work")
		if err == nil {
			_, err = s.ledger.Approve(t.Context(), ledger.Approval{ID: id, By: "passkey:ada", Hash: c.Approval, Scope: ledger.KindOnce})
		}
		if err == nil {
			_, err = s.ledger.Execute(t.Context(), id, ledger.NewID())
		}
		if err == nil {
			_, err = s.ledger.Finish(t.Context(), id, ledger.Outcome{State: ledger.Done, Object: "ada/site#4"}, "sentinel")
		}
		if err != nil {
			t.Fatal(err)
		}
		all := s.dueNow(t)
		if n := len(all); n != 2 || all[1].State != "done" || all[1].Object != "ada/site#4" || all[1].MadeAt != want || all[0].MadeAt != "" {
			t.Errorf("at %s: %+v", base, all)
		}
		quiet := s.textOf(&notices.Sending{Thread: &notices.Thread{}, Item: &notices.Item{State: "done", Call: id, MadeAt: want}}, "none")
		if quiet.MadeAt != "" {
			t.Errorf("with no detail: %+v", quiet)
		}
	}
}

// What a notice says: who receives it can verify it, the vendor's words are made visible, and --detail none leaves them out.
func TestWhatANoticeSays(t *testing.T) {
	s := newWard(t)
	c := &channel{NoticeChannel: wire.NoticeChannel{Name: "pager", Kind: kindWebhook, URL: "https://pager.example.org/in"}, Secret: []byte("key")}
	next := &notices.Sending{To: "pager", Thread: &notices.Thread{ID: newMark(), Cell: "work", Connector: "github", Method: "issue-create",
		Title: "open an issue"}, Item: &notices.Item{N: 7, State: "done", Count: 1, Call: "c1", Object: "ada/site#1\u202e" + strings.Repeat("x", 500)}}
	req, err := s.notice(s.ledger.Now(), []channel{*c}, nil, next)
	if err != nil {
		t.Fatal(err)
	}
	h := map[string]string{}
	for _, f := range req.Header {
		h[f.Name] = f.Value
	}
	m := hmac.New(sha256.New, []byte("key"))
	m.Write([]byte(h["Webhook-Id"] + "." + h["Webhook-Timestamp"] + "."))
	m.Write(req.Body)
	if h["Webhook-Signature"] != "v1,"+base64.StdEncoding.EncodeToString(m.Sum(nil)) || h["Webhook-Id"] != next.Thread.ID+".7" {
		t.Errorf("%v", h)
	}
	var got struct{ Data noticeText }
	if err := json.Unmarshal(req.Body, &got); err != nil {
		t.Fatal(err)
	}
	d := got.Data
	if d.Title != "open an issue" || d.Link != here.Origin+"/#card=c1" || strings.Contains(d.Object, "\u202e") || len(d.Object) > 2*maxLine {
		t.Errorf("%+v", d)
	}
	for _, kind := range []string{kindWebhook, kindNtfy} {
		c.Kind, c.Detail = kind, "none"
		if req, err = s.notice(s.ledger.Now(), []channel{*c}, nil, next); err != nil {
			t.Fatal(err)
		}
		for _, never := range []string{"work", "github", "issue", "ada/site"} {
			if bytes.Contains(req.Body, []byte(never)) {
				t.Errorf("%s with no detail has %q: %s", kind, never, req.Body)
			}
		}
	}
	if len(headlines) != 12 {
		t.Error("a state without a line")
	}
	for _, st := range ledger.States() {
		if st != ledger.None && st != ledger.Executing && headlines[string(st)] == "" {
			t.Errorf("nothing is said of %s", st)
		}
	}
}

func TestWhatCameOfASending(t *testing.T) {
	for _, c := range []struct {
		status      int
		err         error
		told, again bool
	}{
		{200, nil, true, false}, {201, nil, true, false}, {204, nil, true, false}, {301, nil, false, false}, {400, nil, false, false},
		{401, nil, false, false}, {404, nil, false, false}, {408, nil, false, true}, {410, nil, false, false}, {413, nil, false, false},
		{429, nil, false, true}, {500, nil, false, true}, {503, nil, false, true},
		{0, wire.Refuse(wire.CodeUnavailable, "no answer", ""), false, true},
		{0, wire.Refuse(wire.CodeNotAllowed, "the guard", ""), false, false},
	} {
		if told, again := whatCame(c.status, c.err); told != c.told || again != c.again {
			t.Errorf("%d, %v: told %v, again %v", c.status, c.err, told, again)
		}
	}
}

// A viewer who looks at a card has not seen it for those who decide. Control: an approver has.
func TestAViewersLookKeepsNothingFromApprovers(t *testing.T) {
	s := newWard(t)
	s.soon(t)
	if _, err := s.noticesVerb(t.Context(), root(), hookAt("https://pager.example.org/in")); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		by   *browser
		cell string
		seen bool
	}{{s.signedIn(t, "eve", true), "work", false}, {s.signedIn(t, "ada"), "play", true}} {
		id := s.asks(t, c.cell)
		s.outbox.mu.Lock()
		err := s.takeNews(t.Context())
		s.outbox.mu.Unlock()
		if err != nil {
			t.Fatal(err)
		}
		c.by.show(id)
		s.outbox.mu.Lock()
		seen := s.outbox.book.Of(id) && !s.outbox.book.Seen(id)
		s.outbox.mu.Unlock()
		if seen != c.seen {
			t.Errorf("what was looked at in cell %s is seen: %t", c.cell, seen)
		}
	}
}

// Who may decide is told of everywhere; a counter of a passkey that grew is nothing to tell.
func TestApproversAreTold(t *testing.T) {
	s := newWard(t)
	if _, err := s.noticesVerb(t.Context(), root(), hookAt("https://pager.example.org/in")); err != nil {
		t.Fatal(err)
	}
	s.signedIn(t, "ada")
	s.signedIn(t, "eve", true)
	for _, name := range []string{"ada", "eve"} {
		if err := s.removeApprover(t.Context(), name, "person:0", "test"); err != nil {
			t.Fatal(err)
		}
	}
	s.outbox.mu.Lock()
	defer s.outbox.mu.Unlock()
	if err := s.takeNews(t.Context()); err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, d := range s.outbox.book.Due(s.ledger.Now(), targets(s.channels(), nil)) {
		got = append(got, d.Item.State+" "+d.Thread.Title)
	}
	if want := "[approver-added approver ada approver-added viewer eve approver-removed approver ada approver-removed viewer eve]"; fmt.Sprint(got) != want {
		t.Errorf("%v", got)
	}
}

// A cell asks for a place whose name, or path, is a message: to whoever reads the notice, or to who carries it, without anybody's yes.
// The card has it (the control), and the notice does not.
func TestANoticeHasNoWordsOfACell(t *testing.T) {
	s := newWard(t)
	s.usePolicy(t, sitesToml, "")
	if _, err := s.noticesVerb(t.Context(), root(), hookAt("https://pager.example.org/in")); err != nil {
		t.Fatal(err)
	}
	s.begin(t, "work", 7)
	if _, e := s.connects(t, "work", site("call-0900-to-unlock.example")); e == nil || e.Code != wire.CodeNeedsApproval {
		t.Fatalf("%v", e)
	}
	now := s.ledger.Now()
	id := ledger.NewID()
	card, err := json.Marshal(&wire.Card{ID: id, Kind: "widening", Title: "GET new.example/call-0900-to-unlock", Method: widenRequest, Cell: "play"})
	if err != nil {
		t.Fatal(err)
	}
	c := ledger.Call{Frame: ledger.Frame{ID: id, Cell: "play", Connector: self, Method: widenRequest, Account: "new.example:443", Class: "read",
		Dedup: id, Decision: "ask", Approval: strings.Repeat("00", 32), Card: card, Created: now, Deadline: now.Add(time.Hour)}}
	if _, _, err := s.ledger.Park(t.Context(), c, "cell:play"); err != nil {
		t.Fatal(err)
	}
	channels := s.channels()
	s.outbox.mu.Lock()
	defer s.outbox.mu.Unlock()
	if err := s.takeNews(t.Context()); err != nil {
		t.Fatal(err)
	}
	var all []string
	for _, d := range s.outbox.book.Due(s.ledger.Now(), targets(channels, nil)) {
		req, err := s.notice(now, channels, nil, &d)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, string(req.Body))
	}
	said := strings.Join(all, "\n")
	if strings.Contains(said, "0900") || !strings.Contains(said, "connect to a site") || !strings.Contains(said, "send a request to a site") {
		t.Errorf("%s", said)
	}
	titles := ""
	for _, w := range s.ledger.Waiting() {
		c, err := s.ledger.Call(t.Context(), w.ID)
		if err != nil {
			t.Fatal(err)
		}
		titles += string(c.Card)
	}
	if strings.Count(titles, "0900") < 2 {
		t.Errorf("control: the cards do not say it: %s", titles)
	}
}

func FuzzEndpoint(f *testing.F) {
	f.Add("https://fcm.googleapis.com/fcm/send/a")
	f.Add("https://a:443?b")
	f.Fuzz(func(t *testing.T, s string) {
		host, path, ok := endpoint(s)
		if !ok && (host != "" || path != "") {
			t.Fatal("a value with a refusal")
		}
		if ok && (strings.ContainsAny(host, "/?#@ ") || path == "" || host == "" || len(s) > maxEndpoint) {
			t.Fatalf("%q: %q %q", s, host, path)
		}
	})
}
