// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/doorward/doorward/internal/describe"
	"github.com/doorward/doorward/internal/wire"
)

// send is a request with a surrogate, which changes what others see.
func send() *Request {
	return &Request{Target: Target{Name: "chat.example", Port: 443}, Surrogate: "chat", Route: "send", Class: describe.Write,
		Reach: describe.ReachPeople, Method: "POST", Path: "/channels/1/messages", Cell: "dev", Session: "run-1", Attended: true, Now: testNow}
}

// look is a request to a site that is read.
func look() *Request {
	return &Request{Target: Target{Name: "read.example", Port: 443}, Route: "read", Class: describe.Read, Reach: describe.ReachNone,
		Method: "GET", Path: "/a", Cell: "dev", Session: "run-1", Attended: true, Now: testNow}
}

func alter(r *Request, fn func(*Request)) *Request {
	fn(r)
	return r
}

func class(c, reach string) func(*Request) {
	return func(r *Request) { r.Class, r.Reach = c, reach }
}

func TestRequests(t *testing.T) {
	const chat = "[surrogate.chat]\nsetting = "
	tainted := func(r *Request) { r.Labels = []string{wire.LabelUntrusted} }
	for _, c := range []struct {
		name, toml string
		more       []string
		req        *Request
		want       Verdict
		by         string
	}{
		{"a read of a site that is read", readSite, nil, look(), Allow, `site read.example = "read"`},
		{"a read, tainted", readSite, nil, alter(look(), tainted), Allow, `site read.example = "read"`},
		{"a change at a site that is read", readSite, nil, alter(look(), class(describe.Write, describe.ReachPublic)), Ask, `site read.example = "read"`},
		{"a change that nobody sees there", readSite, nil, alter(look(), class(describe.Write, describe.ReachNone)), Ask, `site read.example = "read"`},
		{"a deletion there", readSite, nil, alter(look(), class(describe.Destructive, describe.ReachPublic)), Ask, "base.cedar"},
		{"a host of a set", "sites = [\"npm\"]\n", nil, alter(look(), func(r *Request) { r.Name = "registry.npmjs.org" }), Allow, `sites "npm"`},
		{"publishing there", "sites = [\"npm\"]\n", nil, alter(look(), func(r *Request) {
			r.Name, r.Class, r.Reach = "registry.npmjs.org", describe.Write, describe.ReachPublic
		}), Ask, `sites "npm"`},
		{"a site that no line names", "", nil, look(), Ask, "other-sites"},
		{"a site that is off", "[site.\"read.example\"]\nsetting = \"off\"\n", nil, look(), Deny, `= "off"`},
		{"the limits have it off", readSite, []string{LimitsFile, "[site.\"read.example\"]\nsetting = \"off\"\n"}, look(), Deny, "limits.toml"},
		{"the limits have reads ask", readSite, []string{LimitsFile, "always-ask = [\"read\"]\n"}, look(), Ask, `limits.toml:1 always-ask "read"`},
		{"a read with a surrogate", "", nil, alter(send(), class(describe.Read, describe.ReachNone)), Allow, "manifest surrogate setting"},
		{"and tainted", "", nil, alter(alter(send(), class(describe.Read, describe.ReachNone)), tainted), Allow, "manifest surrogate setting"},
		{"a change with a surrogate", "", nil, send(), Ask, "manifest surrogate setting"},
		{"issued as one that asks every time", "", nil, alter(alter(send(), class(describe.Read, describe.ReachNone)), func(r *Request) { r.Setting = AskEveryTime }), Ask, `manifest surrogate setting = "ask-every-time"`},
		{"issued as dont-ask", "", nil, alter(alter(send(), class(describe.Write, describe.ReachNone)), func(r *Request) { r.Setting = DontAsk }), Allow, `manifest surrogate setting = "dont-ask"`},
		{"issued as dont-ask, and others see it", "", nil, alter(send(), func(r *Request) { r.Setting = DontAsk }), Ask, "base.cedar"},
		{"issued as dont-ask, and a line says otherwise", chat + "\"ask-before-changes\"\n", nil, alter(alter(send(), class(describe.Write, describe.ReachNone)), func(r *Request) { r.Setting = DontAsk }), Ask, "policy.toml"},
		{"issued as what there is not", "", nil, alter(alter(send(), class(describe.Write, describe.ReachNone)), func(r *Request) { r.Setting = "allow" }), Ask, "ask-before-changes"},
		{"a read that asks every time", chat + "\"ask-every-time\"\n", nil, alter(send(), class(describe.Read, describe.ReachNone)), Ask, `surrogate chat setting = "ask-every-time"`},
		{"a change that others see, under dont-ask", chat + "\"dont-ask\"\n", nil, send(), Ask, "base.cedar"},
		{"a change that nobody sees, under dont-ask", chat + "\"dont-ask\"\n", nil, alter(send(), class(describe.Write, describe.ReachNone)), Allow, `= "dont-ask"`},
		{"and tainted", chat + "\"dont-ask\"\n", nil, alter(alter(send(), class(describe.Write, describe.ReachNone)), tainted), Ask, "base.cedar"},
		{"a deletion under dont-ask", chat + "\"dont-ask\"\n", nil, alter(send(), class(describe.Destructive, describe.ReachNone)), Ask, "base.cedar"},
		{"a deletion whose route is allowed", "[surrogate.chat.route]\nsend = \"allow\"\n", nil, alter(send(), class(describe.Destructive, describe.ReachNone)), Ask, "base.cedar"},
		{"a route that is allowed", "[surrogate.chat.route]\nsend = \"allow\"\n", nil, alter(send(), class(describe.Write, describe.ReachNone)), Allow, `surrogate chat send = "allow"`},
		{"a route that asks", "[surrogate.chat.route]\nsend = \"ask\"\n", nil, alter(send(), class(describe.Read, describe.ReachNone)), Ask, `surrogate chat send = "ask"`},
		{"a route that is off", "[surrogate.chat.route]\nsend = \"off\"\n", nil, send(), Deny, `surrogate chat send = "off"`},
		{"another route is off", "[surrogate.chat.route]\nlook = \"off\"\n", nil, send(), Ask, "manifest surrogate"},
		{"another surrogate is off", "[surrogate.chats.route]\nsend = \"off\"\n", nil, send(), Ask, "manifest surrogate"},
		{"the limits hold dont-ask back", chat + "\"dont-ask\"\n", []string{LimitsFile, "[surrogate.chat]\nsetting = \"ask-before-changes\"\n"},
			alter(send(), class(describe.Write, describe.ReachNone)), Ask, "limits.toml"},
		{"the limits have a route off", chat + "\"dont-ask\"\n", []string{LimitsFile, "[surrogate.chat.route]\nsend = \"off\"\n"}, send(), Deny, "limits.toml"},
		{"the limits have changes ask", chat + "\"dont-ask\"\n", []string{LimitsFile, "always-ask = [\"write\"]\n"},
			alter(send(), class(describe.Write, describe.ReachNone)), Ask, "limits.toml"},
		{"its host is off", "[site.\"chat.example\"]\nsetting = \"off\"\n", nil, send(), Deny, `site chat.example = "off"`},
		{"others are off", "other-sites = \"off\"\n", nil, send(), Deny, `other-sites = "off"`},
		{"a site of one's own asks, which a surrogate's requests do not", "[site.\"chat.example\"]\nsetting = \"ask\"\n", nil,
			alter(send(), class(describe.Read, describe.ReachNone)), Allow, "manifest surrogate"},
		{"a rule about a path", "", []string{"own.cedar", `forbid (principal, action == Action::"request", resource) when { context.path like "/channels/*" };`},
			alter(send(), class(describe.Read, describe.ReachNone)), Deny, "own.cedar"},
		{"a rule about a method", readSite, []string{"own.cedar", `@decision("ask") forbid (principal, action == Action::"request", resource)
			when { context.method == "GET" && context.route == "read" && !context.surrogate } unless { context.approved };`}, look(), Ask, "own.cedar"},
		{"a rule about what a body does", "", []string{"own.cedar", `forbid (principal, action == Action::"request", resource) when { context.does.contains("git push delete refs/heads/main") };`},
			alter(send(), func(r *Request) { r.Does = []string{"git push delete refs/heads/main"} }), Deny, "own.cedar"},
		{"a rule about a surrogate", "", []string{"own.cedar", `forbid (principal, action == Action::"request", resource) when { context.connector == "chat" };`},
			alter(send(), class(describe.Read, describe.ReachNone)), Deny, "own.cedar"},
		{"a rule about a model", "", []string{"own.cedar", `forbid (principal, action == Action::"request", resource) when { context.model == "large" };`},
			alter(send(), func(r *Request) { r.Model = "large" }), Deny, "own.cedar"},
		{"a rule about everything", readSite, []string{"own.cedar", "forbid (principal, action, resource) when { context.hour < 24 };"}, look(), Deny, "own.cedar"},
		{"a rule about what is in the clear", readSite, []string{"own.cedar", `forbid (principal, action == Action::"request", resource) when { context.begins == "http" };`},
			alter(look(), func(r *Request) { r.Clear, r.Port = true, 80 }), Deny, "own.cedar"},
		{"a permit of connections permits no request", "other-sites = \"off\"\n", []string{"own.cedar", `permit (principal, action == Action::"connect", resource);`}, look(), Deny, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := mustSet(t, c.toml, c.more...)
			call := s.RequestCall(c.req)
			d := s.Decide(call, nil)
			if d.Verdict != c.want || !strings.Contains(strings.Join(d.Policies, "\n"), c.by) {
				t.Errorf("%+v, want %s by %q", d, c.want, c.by)
			}
			if d.Verdict != Allow && (d.Reason == "" || d.Code == "") {
				t.Errorf("not said why: %+v", d)
			}
			if lines := s.Explain(call, nil); !strings.HasPrefix(lines[0], c.req.Method+" "+c.req.Target.String()+c.req.Path) {
				t.Errorf("%q", lines)
			}
		})
	}
}

// TestSurrogateConnections: where a surrogate was issued a connection is intercepted and does not ask, unless the site is off
// or the admin has it ask.
func TestSurrogateConnections(t *testing.T) {
	for _, c := range []struct {
		name, toml, limits string
		labels             []string
		want               Verdict
	}{
		{"a name that no line names", "", "", nil, Allow},
		{"tainted", "", "", []string{wire.LabelUntrusted}, Allow},
		{"a line has it ask", "[site.\"chat.example\"]\nsetting = \"ask\"\n", "", nil, Allow},
		{"others are off", "other-sites = \"off\"\n", "", nil, Deny},
		{"it is off", "[site.\"chat.example\"]\nsetting = \"off\"\n", "", nil, Deny},
		{"the admin has it ask", "", "[site.\"chat.example\"]\nsetting = \"ask\"\n", nil, Ask},
		{"the admin names others only", "", "sites = [\"debian\"]\n", nil, Deny},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := mustSet(t, c.toml, LimitsFile, c.limits)
			con := &Connect{Target: target(t, "chat.example:443"), Begins: wire.BeginsTLS, Cell: "dev", Labels: c.labels, Now: testNow, Surrogate: "chat"}
			call := s.ConnectCall(con)
			if d := s.Decide(call, nil); d.Verdict != c.want || !call.Intercepts() {
				t.Errorf("%+v, want %s", d, c.want)
			}
			con.Surrogate = "" // control: without it the name asks, or a tainted cell does
			call = s.ConnectCall(con)
			if d := s.Decide(call, nil); d.Verdict == Allow || call.Intercepts() {
				t.Errorf("control: %+v", d)
			}
		})
	}
}

// TestAGrantForOneRequestCoversNoOther: each case differs from what was approved in one thing. Control: the very request is
// covered.
func TestAGrantForOneRequestCoversNoOther(t *testing.T) {
	s := mustSet(t, readSite+"[surrogate.chat]\nsetting = \"ask-every-time\"\n")
	base := func() *Request {
		r := send()
		r.Query, r.Does, r.Model = "wait=true", []string{"jsonrpc a", "jsonrpc b"}, "small"
		return r
	}
	approved := func(r *Request) wire.Grant {
		g := s.PrefillRequest(s.RequestCall(r))
		g, err := s.ValidateRequest(g, g, true, testNow)
		if err != nil {
			t.Fatal(err)
		}
		g.ID = "g"
		return g
	}
	g := approved(base())
	if g.Count != 1 || g.Kind != Session || !strings.Contains(g.Sentence, "POST chat.example:443/channels/1/messages?wait=true") ||
		!strings.Contains(g.Sentence, ", in session ") || !strings.Contains(g.Sentence, ", once; whatever is in it") {
		t.Errorf("%+v", g)
	}
	covers := func(g wire.Grant, r *Request) bool {
		return s.Decide(s.RequestCall(r), []wire.Grant{g}).Verdict == Allow
	}
	if !covers(g, base()) {
		t.Fatal("control: the request that was approved")
	}
	other := alter(base(), func(r *Request) { r.Does = []string{"jsonrpc b", "jsonrpc a"} })
	if !covers(g, other) {
		t.Error("the order in which its parts stand")
	}
	for name, fn := range map[string]func(*Request){
		"another path":                func(r *Request) { r.Path = "/channels/2/messages" },
		"a path below":                func(r *Request) { r.Path += "/1" },
		"a path above":                func(r *Request) { r.Path = "/channels/1" },
		"a path with a slash more":    func(r *Request) { r.Path += "/" },
		"a path in other letters":     func(r *Request) { r.Path = "/Channels/1/messages" },
		"a path with a mark":          func(r *Request) { r.Path = "/channels/*/messages" },
		"another query":               func(r *Request) { r.Query = "wait=false" },
		"no query":                    func(r *Request) { r.Query = "" },
		"a query more":                func(r *Request) { r.Query += "&to=eve" },
		"another method":              func(r *Request) { r.Method = "PUT" },
		"the method in other letters": func(r *Request) { r.Method = "post" },
		"a deletion on that route":    func(r *Request) { r.Method, r.Class = "DELETE", describe.Destructive },
		"another route":               func(r *Request) { r.Route = "delete" },
		"another host":                func(r *Request) { r.Name = "chat2.example" },
		"a host below":                func(r *Request) { r.Name = "a.chat.example" },
		"another port":                func(r *Request) { r.Port = 8443 },
		"in the clear":                func(r *Request) { r.Clear = true },
		"another surrogate":           func(r *Request) { r.Surrogate = "mail" },
		"without a surrogate":         func(r *Request) { r.Surrogate, r.Name = "", "read.example" },
		"another cell":                func(r *Request) { r.Cell = "home" },
		"another session":             func(r *Request) { r.Session = "run-2" },
		"a session that is not known": func(r *Request) { r.Session = "" },
		"after reading others":        func(r *Request) { r.Labels = []string{wire.LabelUntrusted} },
		"it asks for WebSocket":       func(r *Request) { r.Upgrade = true },
		"something more is done":      func(r *Request) { r.Does = append(r.Does, "jsonrpc c") },
		"something less is done":      func(r *Request) { r.Does = r.Does[:1] },
		"nothing is said to be done":  func(r *Request) { r.Does = nil },
		"what is done is unreadable":  func(r *Request) { r.Does = []string{wire.Unreadable} },
		"another model":               func(r *Request) { r.Model = "large" },
		"no model":                    func(r *Request) { r.Model = "" },
		"later than its session":      func(r *Request) { r.Now = testNow.Add(13 * time.Hour) },
	} {
		if covers(g, alter(base(), fn)) {
			t.Errorf("it covers %s", name)
		}
	}
	for name, fn := range map[string]func(*wire.Grant){
		"it is used up":          func(g *wire.Grant) { g.Used = 1 },
		"it was revoked":         func(g *wire.Grant) { g.Revoked = testNow.Unix() },
		"it limits no path":      func(g *wire.Grant) { g.Limits = g.Limits[:2] },
		"it limits nothing":      func(g *wire.Grant) { g.Limits = nil },
		"its path is any":        func(g *wire.Grant) { g.Limits[2].Values = nil },
		"its path is one of two": func(g *wire.Grant) { g.Limits[2].Values = append(g.Limits[2].Values, "/x") },
		"a bound for a path":     func(g *wire.Grant) { g.Limits[2].Max = 1 },
		"a path twice":           func(g *wire.Grant) { g.Limits = append(g.Limits, g.Limits[2]) },
		"it is of the connection": func(g *wire.Grant) {
			g.Connector, g.Method, g.Limits = SiteConnector, SiteMethod, []wire.Limit{{Field: factBegins, Values: []string{wire.BeginsTLS}}}
		},
		"it is standing": func(g *wire.Grant) { g.Kind, g.Until = Standing, testNow.Add(day).Unix() },
	} {
		bad := g
		bad.Limits = nil
		for _, l := range g.Limits {
			l.Values = slices.Clone(l.Values)
			bad.Limits = append(bad.Limits, l)
		}
		fn(&bad)
		if covers(bad, base()) {
			t.Errorf("a grant covers it though %s", name)
		}
	}
	// Nor does one of a request cover a connection, or one of a push another push.
	call := connectOf(s, Target{Name: "chat.example", Port: 443})
	for _, method := range []string{g.Method, SiteMethod} {
		of := g
		of.Connector, of.Method = SiteConnector, method
		if d := s.Decide(call, []wire.Grant{of}); d.Verdict == Allow {
			t.Errorf("a grant of a request covers a connection: %+v", d)
		}
	}
	push := alter(base(), func(r *Request) { r.Does = []string{"git push update refs/heads/topic"} })
	g = approved(push)
	for _, ref := range []string{"git push update refs/heads/main", "git push delete refs/heads/topic", "git push create refs/heads/topic"} {
		if covers(g, alter(base(), func(r *Request) { r.Does = []string{ref} })) {
			t.Errorf("of a push to another: %s", ref)
		}
	}
	tainted := alter(base(), func(r *Request) { r.Labels = []string{wire.LabelUntrusted} })
	if g := approved(tainted); !g.Tainted || !covers(g, tainted) || !strings.Contains(g.Sentence, "also after it has read") {
		t.Errorf("approved for a cell that has read what others wrote: %+v", g)
	}
}

// TestValidateRequest: a person may have it hold longer or for more, never for something else.
func TestValidateRequest(t *testing.T) {
	s := mustSet(t, "")
	own := s.PrefillRequest(s.RequestCall(send()))
	for _, c := range []struct {
		name      string
		fn        func(*wire.Grant)
		sensitive bool
		want      string
	}{
		{"as it is", func(*wire.Grant) {}, true, ""},
		{"as often as it lasts", func(g *wire.Grant) { g.Count = 0 }, true, ""},
		{"a week", func(g *wire.Grant) { g.Kind, g.Session, g.Until = Until, "", testNow.Add(7*day).Unix() }, true, ""},
		{"a month", func(g *wire.Grant) { g.Kind, g.Session, g.Until = Until, "", testNow.Add(30*day).Unix() }, true, "at most 7 days"},
		{"a month of what nobody sees", func(g *wire.Grant) { g.Kind, g.Session, g.Until = Standing, "", testNow.Add(30*day).Unix() }, false, ""},
		{"a month, tainted", func(g *wire.Grant) {
			g.Kind, g.Session, g.Until, g.Tainted = Standing, "", testNow.Add(30*day).Unix(), true
		}, false, "no standing one"},
		{"another path", func(g *wire.Grant) {
			g.Limits = slices.Clone(g.Limits)
			g.Limits[2] = wire.Limit{Field: LimitPath, Values: []string{"/"}}
		}, true, "limits stay as they are"},
		{"no path", func(g *wire.Grant) { g.Limits = g.Limits[:2] }, true, "limits stay as they are"},
		{"another host", func(g *wire.Grant) { g.Account = "evil.example:443" }, true, "another request"},
		{"another route", func(g *wire.Grant) { g.Method = "delete" }, true, "another request"},
		{"another surrogate", func(g *wire.Grant) { g.Connector = "mail" }, true, "another request"},
		{"another cell", func(g *wire.Grant) { g.Cell = "home" }, true, "another request"},
		{"a count below none", func(g *wire.Grant) { g.Count = -1 }, true, "a count from 0"},
	} {
		g := own
		c.fn(&g)
		got, err := s.ValidateRequest(g, own, c.sensitive, testNow)
		if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v", c.name, err)
		}
		if err == nil && (got.Made != testNow.Unix() || got.Sentence == "") {
			t.Errorf("%s: %+v", c.name, got)
		}
	}
}

func TestBudget(t *testing.T) {
	s := mustSet(t, "[budget]\nconnections = 50\nrequests = 600\nbytes-out = 1000000\nnames = 30\n"+
		"[site.\"*.example.org\".budget]\nrequests = 10\n[site.\"a.example.org\".budget]\nrequests = 20\nbytes-out = 5\n",
		LimitsFile, "[budget]\nconnections = 10\nrequests = 6000\n[site.\"a.example.org\".budget]\nrequests = 15\n")
	for site, want := range map[string]wire.Spend{
		"a.example.org:443":  {Requests: 15, Out: 5},
		"b.example.org:443":  {Requests: 10},
		"example.org:443":    {},
		"a.example.org:8443": {},
	} {
		if b := s.Budget(target(t, site)); b == nil || b.Site != want || b.Cell != (wire.Spend{Conns: 10, Requests: 600, Out: 1000000, Names: 30}) {
			t.Errorf("%s: %+v", site, b)
		}
	}
	if b := mustSet(t, "").Budget(target(t, "example.org:443")); b != nil {
		t.Errorf("nothing is said: %+v", b)
	}
}

// TestSetsAreRead: every set is read but those that say why they are not, and read hosts are listed.
func TestSetsAreRead(t *testing.T) {
	spliced := []string{"anthropic", "google-ai", "openai", "openrouter"}
	for _, x := range siteSets() {
		if got := x.level() == allow; got != slices.Contains(spliced, x.name) {
			t.Errorf("%s: spliced %t", x.name, got)
		}
	}
	s := mustSet(t, "sites = [\"pypi\", \"openai\"]\n"+readSite)
	var got []string
	for _, x := range s.ReadHosts() {
		got = append(got, x[0])
	}
	if want := []string{"pypi.org:443", "files.pythonhosted.org:443", "read.example:443"}; !slices.Equal(got, want) {
		t.Errorf("%q", got)
	}
	if got := mustSet(t, readSite, LimitsFile, "[site.\"read.example\"]\nsetting = \"ask\"\n").ReadHosts(); len(got) != 0 {
		t.Errorf("held back: %q", got)
	}
}

// TestRequestSentence: it says once where it is for one request, and any number of times where it is for that.
func TestRequestSentence(t *testing.T) {
	s := mustSet(t, "")
	own := s.PrefillRequest(s.RequestCall(send()))
	week := testNow.Add(7 * day).Unix()
	for _, c := range []struct {
		kind  string
		count int64
		until int64
		want  string
	}{
		{Once, 0, 0, ", once; whatever"},
		{Once, 1, 0, ", once; whatever"},
		{Session, 1, 0, ", in session " + own.Session + ", once; whatever"},
		{Session, 0, 0, ", any number of times, in session " + own.Session + "; whatever"},
		{Until, 1, week, ", until " + when(week) + ", once; whatever"},
		{Until, 3, week, ", until " + when(week) + ", 3 times at most; whatever"},
		{Until, 0, week, ", any number of times, until " + when(week) + "; whatever"},
		{Standing, 0, week, ", any number of times, standing until " + when(week) + "; whatever"},
	} {
		g := own
		g.Kind, g.Count, g.Until = c.kind, c.count, c.until
		if got := RequestSentence(&g); !strings.Contains(got, c.want) {
			t.Errorf("%s %d: %s", c.kind, c.count, got)
		}
	}
}
