// SPDX-License-Identifier: Apache-2.0

package scenario

import (
	"crypto/rand"
	"fmt"
	"net"
	"net/http"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/doorward/doorward/internal/wire"
	"github.com/doorward/doorward/test/vendors/discord"
	"github.com/doorward/doorward/test/vendors/standin"
	"github.com/doorward/doorward/test/world"
)

// TestASurrogateIsWorthNothingElsewhere: a surrogate that got out of its place is refused, or is told to a server that knows
// nothing of it: from another cell, at another host, in another place of a request. Control of each: what belongs there goes.
func TestASurrogateIsWorthNothingElsewhere(t *testing.T) {
	r := newBotRig(t, "{ip} reads.example", "{ip} open.example")
	r.issue("work", "discord")
	r.issue("home", "bot2")
	r.rules(r.site("reads.example", "read") + r.site("open.example", "allow"))
	sur, others := r.surrogate(r.work, "discord"), r.surrogate(r.home, "bot2")
	const me = api + "/users/@me"
	auth := "Authorization: Bot "

	// From another cell.
	n := r.count()
	r.stays(r.bot(r.home, sur, "GET", me, ""), n, 403, wire.CodeBadSurrogate)
	r.goesOnce(r.home, others, "GET", me, "", 200)
	n = r.count()
	r.stays(r.bot(r.work, others, "GET", me, ""), n, 403, wire.CodeBadSurrogate)
	r.goesOnce(r.work, sur, "GET", me, "", 200)

	// At another host: one whose requests are read, and one that is carried unread and sees what is worth nothing.
	n = r.count()
	r.stays(r.curlIn(r.work, "--header", auth+sur, "https://reads.example/x"), n, 403, wire.CodeBadSurrogate)
	if a := r.curlIn(r.work, "--header", auth+"made-up", "https://reads.example/x"); r.count() != n+1 {
		t.Errorf("control: another credential does not reach a site that is read: %v", a)
	}
	n = r.count()
	a := r.curlIn(r.work, "--header", auth+sur, "https://open.example/x")
	if came := r.came(n); a.status != 401 || len(came) != 1 || came[0].Credential != "other" || came[0].Header.Get("Authorization") != "Bot "+sur {
		t.Errorf("at a host that is carried unread: %v", a)
	}
	// By a name that the client says inside of the connection alone.
	for _, args := range [][]string{
		{"--header", "Host: discord.com", "https://reads.example/x"}, {"--connect-to", "reads.example:443:discord.com:443", "https://reads.example/x"},
		{"--connect-to", "discord.com:443:reads.example:443", me},
	} {
		n := r.count()
		a := r.curlIn(r.work, append(args, "--header", auth+sur)...)
		for _, q := range r.came(n) {
			t.Errorf("%q: %s came with %s credential: %v", args, q.Target, q.Credential, a)
		}
	}

	// In another place.
	n = r.count()
	for _, c := range []struct {
		args   []string
		status int
	}{
		{[]string{me}, 401},
		{[]string{"--header", "X-Token: " + sur, me}, 403},
		{[]string{"--header", "Authorization: Bearer " + sur, me}, 403},
		{[]string{"--header", "Authorization: " + sur, me}, 403},
		{[]string{"--user", "x:" + sur, me}, 403},
		{[]string{"--cookie", "token=" + sur, me}, 403},
		{[]string{me + "?token=" + sur}, 403},
		{[]string{api + "/channels/" + sur}, 403},
		{[]string{"--header", auth + sur, "--header", "X-Token: " + sur, me}, 403},
		{[]string{"--header", auth + sur, me + "?token=" + sur}, 403},
		{[]string{"--header", auth + sur, "--header", auth + sur, me}, 400}, // a field twice has two readings
		{[]string{"--header", auth + sur, "--header", auth + "another", me}, 400},
		{[]string{"--header", auth + sur + "x", me}, 403},
		{[]string{"--header", "Sec-WebSocket-Key: " + sur, me}, 403},
	} {
		a := r.curlIn(r.work, c.args...)
		if e := a.refused(); a.status != c.status || (e.Code == wire.CodeUsage) != (c.status == 400) ||
			c.status != 400 && e.Code != wire.CodeBadSurrogate || len(r.came(n)) > 0 {
			t.Errorf("%q: %v; %d came", c.args, a, len(r.came(n)))
		}
	}
	r.goesOnce(r.work, sur, "GET", me, "", 200)
	// The value in a body is no surrogate to anybody, and nothing is put in its place.
	r.stays(r.bot(r.work, sur, "POST", messages, `{"content":"`+sur+`"}`), r.count(), 403, wire.CodeNeedsApproval)
	for _, card := range r.pending() {
		r.doorward(0, "approve", card.ID, "--yes")
	}
	n = r.count()
	r.bot(r.work, sur, "POST", messages, `{"content":"`+sur+`"}`)
	if came := r.came(n); len(came) != 1 || came[0].Credential != "real" || string(came[0].Body) != `{"content":"`+sur+`"}` {
		t.Errorf("a surrogate in a body: %v", came)
	}
}

// TestEG15_AnAttackersOwnKey: at a host whose credential the person gave, only this cell's surrogate goes: not a key of the
// attacker's, and not nothing; a program that waits for a challenge gets one. Control: where no surrogate was issued, and the
// person lets that host through, the attacker's key reaches it.
func TestEG15_AnAttackersOwnKey(t *testing.T) {
	r := newBotRig(t)
	r.issue("work", "discord")
	r.rules(r.site("discord.com", "allow"))
	loot := r.path("loot")
	if err := os.WriteFile(loot, []byte("what the cell should not give away"), 0o644); err != nil {
		t.Fatal(err)
	}
	upload := []string{"--include", "--data-binary", "@" + loot, messages}
	for name, how := range map[string][]string{"a key of the attacker's": {"--header", "Authorization: Bot attackers.own.key-" + rand.Text()},
		"in another form": {"--user", "attacker:key"}, "none": nil} {
		n := r.count()
		a := r.curlIn(r.work, append(how, upload...)...)
		if a.status != 401 || len(r.came(n)) > 0 || !strings.Contains(a.body, "bad_surrogate") ||
			!strings.Contains(strings.ToLower(a.body), `www-authenticate: bot realm="doorward"`) {
			t.Errorf("%s: %v; %d came", name, a, len(r.came(n)))
		}
	}
	n := r.count()
	a := r.curlIn(r.home, append([]string{"--header", "Authorization: Bot attackers.own.key"}, upload...)...)
	if came := r.came(n); len(came) != 1 || came[0].Header.Get("Authorization") != "Bot attackers.own.key" {
		t.Errorf("control: in a cell without a surrogate: %v", a)
	}
}

// clearServer is HTTP without TLS, which keeps what came.
type clearServer struct {
	mu   sync.Mutex // guards seen
	seen []string
}

func (s *clearServer) ServeHTTP(w http.ResponseWriter, q *http.Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.seen = append(s.seen, fmt.Sprint(q.Method, q.Host, q.RequestURI, q.Header))
}

func (s *clearServer) all() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]string(nil), s.seen...)
}

// TestLK03_ARedirectCarriesNothing: a server that was given a credential sends its client elsewhere, to another host, another port
// and in the clear. A client of the cell follows with all that it has, which is a surrogate; nothing real gets there, for each place
// of a credential. Control: a host that the person named in the manifest gets it, so the redirect is followed.
func TestLK03_ARedirectCarriesNothing(t *testing.T) {
	r := newBotRig(t, "{ip} evil.example", "{ip} header.example", "{ip} token.example", "{ip} query.example", "{ip} basic.example", "{ip} both.example",
		"{ip} ours.example")
	evil := func(w http.ResponseWriter, _ *http.Request, _ []byte, _ *standin.Note) {}
	if _, err := r.discord.Open(standin.Options{Listener: "port", Listen: r.ip + ":8443", Vendor: evil,
		Names: []string{"header.example", "token.example", "query.example", "basic.example", "discord.com"}}); err != nil {
		t.Fatal(err)
	}
	ln, err := net.Listen("tcp", r.ip+":80")
	if err != nil {
		t.Fatal(err)
	}
	plain := new(clearServer)
	hs := &http.Server{Handler: plain, ReadHeaderTimeout: time.Minute}
	go func() { _ = hs.Serve(ln) }()
	t.Cleanup(func() { _ = hs.Close() })

	kinds := []struct{ host, placement, curl string }{
		{"header.example", "kind = \"header\"\nname = \"X-Api-Key\"", "--header|X-Api-Key: SUR"},
		{"token.example", "kind = \"header\"\nname = \"PRIVATE-TOKEN\"", "--header|PRIVATE-TOKEN: SUR"},
		{"query.example", "kind = \"query\"\nname = \"key\"", ""},
		{"basic.example", "kind = \"basic\"\nuser = \"me\"", "--user|me:SUR"},
		{"discord.com", "", "--header|Authorization: Bot SUR"},
	}
	rules := r.site("evil.example", "allow")
	for _, k := range kinds {
		rules += fmt.Sprintf("[site.\"%s:8443\"]\nsetting = \"allow\"\npermit = [\"%s:8443\"]\n", k.host, r.ip)
		rules += fmt.Sprintf("[site.\"%s:80\"]\nsetting = \"allow\"\npermit = [\"%s:80\"]\n", k.host, r.ip)
	}
	r.rules(rules)
	secrets := map[string]string{}
	real := func(text string) string {
		for host, s := range secrets {
			if strings.Contains(text, s) {
				return host
			}
		}
		return ""
	}
	for _, k := range kinds {
		name := strings.ReplaceAll(k.host, ".", "-")
		secrets[k.host] = "real-" + rand.Text()
		if k.host == "discord.com" {
			secrets[k.host] = r.token
			r.issue("work", name)
		} else {
			r.issueOf("work", name, r.manifest(name, k.host, k.placement), secrets[k.host])
		}
		sur := r.surrogate(r.work, name)
		path, sub := discord.API+"/users/@me", ""
		if k.curl == "" {
			sub = "?key=" + sur
		}
		for _, status := range []int{302, 307} {
			if status == 307 && k.host != "header.example" { // which differs by its body alone
				continue
			}
			for _, to := range []string{"https://evil.example/", "//evil.example/", "https://" + k.host + ":8443/", "http://" + k.host + "/"} {
				r.discord.Faults.Clear()
				r.discord.Faults.Add(standin.Fault{Listener: "api", Path: path, Times: 1, Status: status, Header: map[string]string{"Location": to + "loot" + sub}})
				n, clear := r.count(), len(plain.all())
				args := []string{"--location-trusted", "--max-redirs", "2", "https://" + k.host + path + sub}
				if k.curl != "" {
					args = append(args, strings.Split(strings.ReplaceAll(k.curl, "SUR", sur), "|")...)
				}
				if status == 307 {
					args = append(args, "--data", "body")
				}
				a := r.curlIn(r.work, args...)
				came := r.came(n)
				if len(came) == 0 || real(fmt.Sprint(came[0].Target, came[0].Header)) == "" && k.host != "basic.example" {
					t.Errorf("%s: the first request came without its credential, so nothing is tried: %v, %v", k.host, a, came)
					continue
				}
				for _, q := range came[1:] {
					if user, pass, ok := (&http.Request{Header: q.Header}).BasicAuth(); real(fmt.Sprint(q.Target, q.Header, string(q.Body), user, pass, ok)) != "" {
						t.Errorf("%s, %d to %s: the credential went along to %s", k.host, status, to, q.Host)
					}
				}
				for _, line := range plain.all()[clear:] {
					if real(line) != "" {
						t.Errorf("%s, %d to %s: the credential went along in the clear: %s", k.host, status, to, line)
					}
				}
				if !strings.HasPrefix(to, "http:") && len(came) < 2 {
					t.Errorf("%s, %d to %s: it was not followed, so nothing is tried: %v", k.host, status, to, a)
				}
			}
		}
	}
	// Control.
	r.discord.Faults.Clear()
	secrets["both"] = "real-" + rand.Text()
	r.issueOf("work", "both", r.manifest("both", "both.example,ours.example", "kind = \"header\"\nname = \"X-Api-Key\""), secrets["both"])
	r.discord.Faults.Add(standin.Fault{Path: "/go", Times: 1, Status: 302, Header: map[string]string{"Location": "https://ours.example/there"}})
	n := r.count()
	a := r.curlIn(r.work, "--location-trusted", "--header", "X-Api-Key: "+r.surrogate(r.work, "both"), "https://both.example/go")
	if came := r.came(n); len(came) != 2 || came[1].Host != "ours.example" || came[1].Header.Get("X-Api-Key") != secrets["both"] {
		t.Errorf("control: %v; %v", a, came)
	}
}

// TestRevokingASurrogateEndsItsTraffic: an answer that is on its way is cut, the next request is refused, and so is the next
// surrogate; where the person lets the host through unread, it is Discord that answers 401. Control: another cell's goes on. One
// that is issued anew does not bring the old values back.
func TestRevokingASurrogateEndsItsTraffic(t *testing.T) {
	r := newBotRig(t)
	r.issue("work", "discord")
	r.issue("home", "bot2")
	sur, others := r.surrogate(r.work, "discord"), r.surrogate(r.home, "bot2")
	// A long poll: an answer that comes slowly and has, for this test, no end. Of what has no line feed egress holds back as much as
	// a form of the credential could have (package swap).
	for range 400 {
		r.discord.Put(discord.General, discord.Ada, strings.Repeat("so it goes on ", 20))
	}
	r.discord.Faults.Add(standin.Fault{Method: "GET", Path: discord.API + "/channels/" + discord.General + "/messages", Chunk: 1000, ChunkDelayMS: 400})
	polls := func(cell *world.Cell, token string) *world.Proc {
		t.Helper()
		file := r.path("poll-" + cell.Name)
		p, err := cell.Actor().Start(world.Cmd{UID: 1000, Args: []string{"/usr/bin/curl", "--disable", "--silent", "--show-error", "--no-buffer", "--output", file,
			"--header", "Authorization: Bot " + token, messages}})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(p.Kill)
		r.eventually("the answer has begun", func() bool { st, err := os.Stat(file); return err == nil && st.Size() > 0 })
		return p
	}
	work, home := polls(r.work, sur), polls(r.home, others)
	r.has(r.doorward(0, "surrogate", "revoke", "discord", "--cell", "work").Stdout, "surrogate discord of cell work is revoked",
		"cell work has no surrogate of discord any more")
	(&siteRig{rig: r.rig}).ends(work)

	n := r.count()
	if a := r.bot(r.work, sur, "GET", api+"/users/@me", ""); a.status == 200 || r.count() != n {
		t.Errorf("after it was revoked: %v", a)
	}
	r.connector(r.work, wire.ExitUsage, "surrogate", "discord", "--out", r.path("none"))
	r.rules(r.site("discord.com", "allow"))
	n = r.count()
	a := r.bot(r.work, sur, "GET", api+"/users/@me", "")
	if came := r.came(n); a.status != 401 || len(came) != 1 || came[0].Credential != "other" {
		t.Errorf("after it was revoked, at a host that is let through: %v", a)
	}
	r.goesOnce(r.home, others, "GET", api+"/users/@me", "", 200)
	home.Kill()
	if res, err := home.Wait(); err != nil || res.Code != 128+9 {
		t.Errorf("control: another cell's ended by itself: %v, %v", res, err)
	}

	r.doorward(0, "surrogate", "add", "discord", "--cell", "work", "--manifest", "discord", "--yes")
	n = r.count()
	r.stays(r.bot(r.work, sur, "GET", api+"/users/@me", ""), n, 403, wire.CodeBadSurrogate)
	r.goesOnce(r.work, r.surrogate(r.work, "discord"), "GET", api+"/users/@me", "", 200)
}
