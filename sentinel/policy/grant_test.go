// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"cmp"
	"strings"
	"testing"
	"time"

	"github.com/doorward/doorward/internal/describe"
	"github.com/doorward/doorward/internal/wire"
)

const hour = 3600

// limit reads "repo=a/b,c/d", "amount<50", "label" (absent only) or "note*" (left open).
func limit(s string) wire.Limit {
	if field, ok := strings.CutSuffix(s, "*"); ok && !strings.Contains(s, "=") {
		return wire.Limit{Field: field, Any: true}
	}
	if field, n, ok := strings.Cut(s, "<"); ok {
		var max int64
		for _, d := range n {
			max = max*10 + int64(d-'0')
		}
		return wire.Limit{Field: field, Max: max}
	}
	field, list, ok := strings.Cut(s, "=")
	if !ok {
		return wire.Limit{Field: field}
	}
	return wire.Limit{Field: field, Values: strings.Split(list, ",")}
}

// grantFor is a session's grant for "vendor method" with limits; change it as needed.
func grantFor(what string, limits ...string) wire.Grant {
	vendor, method, _ := strings.Cut(what, " ")
	g := wire.Grant{ID: "g1", Connector: vendor, Method: method, Account: "home", Cell: "dev", Kind: Session,
		Session: "run-1", Made: testNow.Unix() - 60}
	for _, l := range limits {
		g.Limits = append(g.Limits, limit(l))
	}
	return g
}

func TestCovers(t *testing.T) {
	comment := []string{"repo=acme/site", "number=7"}
	invite := []string{"calendar=/ada/team/", "attendee=ada@example.org,bob@example.org"}
	type alter func(*wire.Grant)
	kind := func(k string, until int64) alter {
		return func(g *wire.Grant) { g.Kind, g.Until = k, g.Made+until }
	}
	for _, x := range []struct {
		name   string
		call   string
		limits []string
		alter  alter
		with   change
		miss   string // what the reason contains; empty: covered
	}{
		// who and what
		{"the same call", "github comment repo=acme/site number=7 body=hi", comment, nil, nil, ""},
		{"another body", "github comment repo=acme/site number=7 body=else", comment, nil, nil, ""},
		{"another method", "github comment repo=acme/site number=7 body=hi", comment,
			func(g *wire.Grant) { g.Method = "issue-create" }, nil, "for method issue-create"},
		{"another connector", "github comment repo=acme/site number=7 body=hi", comment,
			func(g *wire.Grant) { g.Connector = "dav" }, nil, "for connector dav"},
		{"another account", "github comment repo=acme/site number=7 body=hi", comment, nil,
			func(c *Call) { c.Account = "work" }, "for account home"},
		{"another cell", "github comment repo=acme/site number=7 body=hi", comment, nil,
			func(c *Call) { c.Cell = "dev2" }, "for cell dev"},
		{"no cell in the grant", "github comment repo=acme/site number=7 body=hi", comment,
			func(g *wire.Grant) { g.Cell = "" }, func(c *Call) { c.Cell = "" }, "for cell"},
		{"no account in the grant", "github comment repo=acme/site number=7 body=hi", comment,
			func(g *wire.Grant) { g.Account = "" }, func(c *Call) { c.Account = "" }, "for account"},
		// limits
		{"another repository", "github comment repo=acme/other number=7 body=hi", comment, nil, nil, "repo is acme/other"},
		{"repository in another case", "github comment repo=Acme/SITE number=7 body=hi", comment, nil, nil, ""},
		{"repository that begins alike", "github comment repo=acme/site2 number=7 body=hi", comment, nil, nil, "repo is"},
		{"look-alike repository", "github comment repo=acme/s1te number=7 body=hi", comment, nil, nil, "repo is"},
		{"another number", "github comment repo=acme/site number=8 body=hi", comment, nil, nil, "number is 8"},
		{"number left open", "github comment repo=acme/site number=8 body=hi", []string{"repo=acme/site", "number*"}, nil, nil, ""},
		{"number left open, until a time", "github comment repo=acme/site number=8 body=hi", []string{"repo=acme/site", "number*"},
			kind(Until, 24*hour), nil, "leaves number open"},
		{"number not spoken of", "github comment repo=acme/site number=8 body=hi", comment[:1], nil, nil, "does not limit number"},
		{"open and limited", "github comment repo=acme/site number=7 body=hi", comment,
			func(g *wire.Grant) { g.Limits[1].Any = true }, nil, "two things"},
		{"repository left open", "github comment repo=acme/site number=7 body=hi", comment[1:], nil, nil,
			"does not limit repo"},
		{"no limits at all", "github comment repo=acme/site number=7 body=hi", nil, nil, nil, "limits nothing"},
		{"a field that is none", "github comment repo=acme/site number=7 body=hi", append(comment, "body=hi"), nil, nil,
			"no grant field body"},
		{"an argument there is not", "github comment repo=acme/site number=7 body=hi", append(comment, "x=1"), nil, nil,
			"no grant field x"},
		{"one of two repositories", "github comment repo=c/d number=7 body=hi", []string{"repo=acme/site,c/d", "number=7"}, nil, nil, ""},
		// addresses
		{"both guests", "dav event-create calendar=/ada/team/ title=x attendee=ada@example.org attendee=bob@example.org",
			invite, nil, nil, ""},
		{"one of the guests", "dav event-create calendar=/ada/team/ title=x attendee=bob@example.org", invite, nil, nil, ""},
		{"a guest more", "dav event-create calendar=/ada/team/ title=x attendee=bob@example.org attendee=eve@example.net",
			invite, nil, nil, "attendee is eve@example.net"},
		{"no guest", "dav event-create calendar=/ada/team/ title=x", invite, nil, nil, "attendee is absent"},
		{"domain in another case", "dav event-create calendar=/ada/team/ title=x attendee=bob@Example.ORG", invite, nil, nil,
			""},
		{"name in another case", "dav event-create calendar=/ada/team/ title=x attendee=Bob@example.org", invite, nil, nil,
			"attendee is Bob@"},
		{"plus address", "dav event-create calendar=/ada/team/ title=x attendee=bob+x@example.org", invite, nil, nil,
			"attendee is bob+x@"},
		{"address with a dot more", "dav event-create calendar=/ada/team/ title=x attendee=b.ob@example.org", invite, nil,
			nil,
			"attendee is"},
		{"domain with a label more", "dav event-create calendar=/ada/team/ title=x attendee=bob@example.org.net", invite, nil,
			nil, "attendee is"},
		{"look-alike domain", "dav event-create calendar=/ada/team/ title=x attendee=bob@examp1e.org", invite, nil, nil,
			"attendee is"},
		{"look-alike letter", "dav event-create calendar=/ada/team/ title=x attendee=bоb@example.org", invite, nil, nil,
			"attendee is"}, // the o is Cyrillic
		{"kelvin sign for k", "github comment repo=acme/\u212aite number=7 body=hi", []string{"repo=acme/kite", "number=7"}, nil, nil,
			"repo is"},
		{"another calendar", "dav event-create calendar=/ada/open/ title=x attendee=bob@example.org", invite, nil, nil,
			"calendar is /ada/open/"},
		{"calendar in another case", "dav event-create calendar=/Ada/team/ title=x attendee=bob@example.org", invite, nil,
			nil,
			"calendar is"},
		{"guests left open", "dav event-create calendar=/ada/team/ title=x attendee=bob@example.org", invite[:1], nil, nil,
			"does not limit attendee"},
		{"absent fits empty", "github issue-create repo=acme/site title=x", []string{"repo=acme/site", "label", "assignee"},
			nil, nil, ""},
		{"present does not fit empty", "github issue-create repo=acme/site title=x label=bug",
			[]string{"repo=acme/site", "label", "assignee"}, nil, nil, "label is bug, and it is for none"},
		{"assignee left open", "github issue-create repo=acme/site title=x", []string{"repo=acme/site", "label"}, nil, nil,
			"does not limit assignee"},
		// amounts
		{"below the bound", "bank pay to=ada amount=50", []string{"to=ada", "amount<50", "note"}, nil, nil, ""},
		{"above the bound", "bank pay to=ada amount=51", []string{"to=ada", "amount<50", "note"}, nil, nil, "more than 50"},
		{"bound on what is absent", "bank pay to=ada", []string{"to=ada", "amount<50", "note"}, nil, nil, "not bounded"},
		{"bound on what is no number", "bank pay to=ada amount=5", []string{"to<5", "amount<50", "note"}, nil, nil, "not bounded"},
		{"bound below nothing", "bank pay to=ada amount=5", []string{"to=ada", "amount<0", "note"}, nil, nil, "and it is for none"},
		{"amount exactly", "bank pay to=ada amount=5", []string{"to=ada", "amount=5,7", "note"}, nil, nil, ""},
		{"amount between the exact ones", "bank pay to=ada amount=6", []string{"to=ada", "amount=5,7", "note"}, nil, nil,
			"amount is 6"},
		{"another payee", "bank pay to=eve amount=5", []string{"to=ada", "amount<50", "note"}, nil, nil, "to is eve"},
		{"amount left open", "bank pay to=ada amount=5", []string{"to=ada"}, nil, nil, "does not limit amount"},
		// kinds and times
		{"another session", "github comment repo=acme/site number=7 body=hi", comment, nil,
			func(c *Call) { c.Session = "run-2" }, "for session run-1"},
		{"no session", "github comment repo=acme/site number=7 body=hi", comment,
			func(g *wire.Grant) { g.Session = "" }, func(c *Call) { c.Session = "" }, "for session"},
		{"session of 12 hours ago", "github comment repo=acme/site number=7 body=hi", comment,
			func(g *wire.Grant) { g.Made = testNow.Unix() - 12*hour }, nil, "time is over"},
		{"made in the future", "github comment repo=acme/site number=7 body=hi", comment,
			func(g *wire.Grant) { g.Made = testNow.Unix() + 5 }, nil, "has not come"},
		{"once", "github comment repo=acme/site number=7 body=hi", comment, kind(Once, 0), nil, "time is over"},
		{"once, no end", "github comment repo=acme/site number=7 body=hi", comment,
			func(g *wire.Grant) { g.Kind = Once }, nil, ""},
		{"once, used", "github comment repo=acme/site number=7 body=hi", comment,
			func(g *wire.Grant) { g.Kind, g.Used = Once, 1 }, nil, "was used"},
		{"until, 7 days", "github comment repo=acme/site number=7 body=hi", comment, kind(Until, 7*24*hour), nil, ""},
		{"until, 7 days and a second", "github comment repo=acme/site number=7 body=hi", comment, kind(Until, 7*24*hour+1),
			nil,
			"longer than the limits"},
		{"until, over", "github comment repo=acme/site number=7 body=hi", comment, kind(Until, 60), nil, "time is over"},
		{"until, not said", "github comment repo=acme/site number=7 body=hi", comment,
			func(g *wire.Grant) { g.Kind = Until }, nil, "time is over"},
		{"until, made not said", "github comment repo=acme/site number=7 body=hi", comment,
			func(g *wire.Grant) { g.Kind, g.Made, g.Until = Until, 0, testNow.Unix()+60 }, nil, "longer than"},
		{"standing and sensitive", "github comment repo=acme/site number=7 body=hi", comment, kind(Standing, 24*hour), nil,
			"longer than the limits"},
		{"standing and not sensitive", "github repo-create name=x", nil, kind(Standing, 90*24*hour), nil, ""},
		{"standing, 90 days and a second", "github repo-create name=x", nil, kind(Standing, 90*24*hour+1), nil,
			"longer than"},
		{"standing for a method, sensitive in this call",
			"dav event-create calendar=/ada/team/ title=x attendee=bob@example.org", invite, kind(Standing, 24*hour), nil,
			"longer than"},
		{"standing for a method, not sensitive in this call", "dav event-create calendar=/ada/diary/ title=x",
			[]string{"calendar=/ada/diary/", "attendee"}, kind(Standing, 24*hour), nil, ""},
		{"a kind there is not", "github comment repo=acme/site number=7 body=hi", comment,
			func(g *wire.Grant) { g.Kind = "forever" }, nil, "none there is"},
		{"no kind", "github comment repo=acme/site number=7 body=hi", comment, func(g *wire.Grant) { g.Kind = "" }, nil,
			"none there is"},
		{"revoked", "github comment repo=acme/site number=7 body=hi", comment,
			func(g *wire.Grant) { g.Revoked = 1 }, nil, "revoked"},
		{"counted, some left", "github comment repo=acme/site number=7 body=hi", comment,
			func(g *wire.Grant) { g.Count, g.Used = 3, 2 }, nil, ""},
		{"counted, used up", "github comment repo=acme/site number=7 body=hi", comment,
			func(g *wire.Grant) { g.Count, g.Used = 3, 3 }, nil, "used up"},
		{"count below nothing", "github comment repo=acme/site number=7 body=hi", comment,
			func(g *wire.Grant) { g.Count = -1 }, nil, "no count"},
		{"use below nothing", "github comment repo=acme/site number=7 body=hi", comment,
			func(g *wire.Grant) { g.Count, g.Used = 1, -5 }, nil, "no count"},
		// labels
		{"untrusted caller, not for that", "github repo-create name=x", nil, nil, labels("untrusted"), "not for that"},
		{"untrusted caller, for that", "github repo-create name=x", nil, func(g *wire.Grant) { g.Tainted = true },
			labels("untrusted"), ""},
		{"untrusted caller, sensitive", "github comment repo=acme/site number=7 body=hi", comment,
			func(g *wire.Grant) { g.Tainted = true }, labels("untrusted"), "no grant covers a sensitive call"},
		{"untrusted caller, once, sensitive", "github comment repo=acme/site number=7 body=hi", comment,
			func(g *wire.Grant) { g.Tainted, g.Kind = true, Once }, labels("untrusted", "private"), "no grant covers"},
		{"untrusted caller, read", "github issues repo=a/b", []string{"repo=a/b"}, nil, labels("untrusted"), "not for that"},
		{"private caller", "github comment repo=acme/site number=7 body=hi", comment, nil, labels("private"), ""},
		// destructive, runs code, bulk
		{"destructive", "github pull-merge repo=a/b number=1", []string{"repo=a/b"}, nil, nil, ""},
		{"destructive, nothing limited", "github pull-merge repo=a/b number=1", nil, nil, nil, "limits nothing"},
		{"destructive, until", "dav contact-delete contact=/a/x.vcf", []string{"contact=/a/x.vcf"}, kind(Until, 24*hour),
			nil, ""},
		{"destructive, another", "dav contact-delete contact=/a/y.vcf", []string{"contact=/a/x.vcf"}, nil, nil, "contact is"},
		{"runs code", "github workflow-run repo=a/b workflow=ci.yml", []string{"repo=a/b", "workflow=ci.yml"}, nil, nil, ""},
		{"runs code, standing", "github workflow-run repo=a/b workflow=ci.yml", []string{"repo=a/b"},
			kind(Standing, 24*hour), nil, "longer than"},
		{"answers", "dav respond event=/a/x.ics answer=accepted", []string{"event=/a/x.ics", "answer=accepted"}, nil, nil,
			""},
		{"answers otherwise", "dav respond event=/a/x.ics answer=declined", []string{"event=/a/x.ics", "answer=accepted"},
			nil,
			nil, "answer is declined"},
		{"bulk read, no count", "github issues repo=a/b", []string{"repo=a/b"}, nil, func(c *Call) { c.Reads = 200 },
			"how many reads"},
		{"bulk read, count", "github issues repo=a/b", []string{"repo=a/b"}, func(g *wire.Grant) { g.Count = 10 },
			func(c *Call) { c.Reads = 200 }, ""},
	} {
		t.Run(x.name, func(t *testing.T) {
			s := mustSet(t, dontAsk)
			vendor, rest, _ := strings.Cut(x.call, " ")
			method, args, _ := strings.Cut(rest, " ")
			c := callOf(t, s, vendor, method, values(args))
			if x.with != nil {
				x.with(c)
			}
			g := grantFor(vendor+" "+method, x.limits...)
			if x.alter != nil {
				x.alter(&g)
			}
			ok, why := s.Covers(&g, c)
			if ok != (x.miss == "") || !strings.Contains(why, x.miss) || ok != (why == "") {
				t.Errorf("covers %t %q, want %q", ok, why, x.miss)
			}
		})
	}
}

// TestCeilingsOfToday: a grant made under wider limits ends when the admin narrows them.
func TestCeilingsOfToday(t *testing.T) {
	s := mustSet(t, "", LimitsFile, "grant-days = 1\nsensitive-grant-days = 0")
	g := grantFor("github repo-create")
	g.Kind, g.Until = Standing, g.Made+2*24*hour
	if ok, _ := s.Covers(&g, callOf(t, s, "github", "repo-create", values("name=x"))); ok {
		t.Error("two days covered under a limit of one")
	}
	g = grantFor("github comment", "repo=a/b", "number*")
	g.Kind, g.Until = Until, g.Made+hour
	if ok, _ := s.Covers(&g, callOf(t, s, "github", "comment", values("repo=a/b number=1 body=x"))); ok {
		t.Error("until covered where the limits have none")
	}
}

// TestGrantTurnsAskOnly: a grant makes no deny an allow, and names itself where it decides.
func TestGrantTurnsAskOnly(t *testing.T) {
	g := grantFor("github comment", "repo=acme/site", "number*")
	call := values("repo=acme/site number=7 body=hi")
	s := mustSet(t, "")
	d := s.Decide(callOf(t, s, "github", "comment", call), []wire.Grant{g})
	if d.Verdict != Allow || d.Grant != "g1" || !strings.HasPrefix(d.Policies[0], "grant g1 ") {
		t.Errorf("under the grant: %+v", d)
	}
	for _, more := range [][]string{
		{"own.cedar", `forbid (principal, action in Action::"github", resource);`},
		{"own.cedar", `forbid (principal, action, resource) when { context.reads * 9223372036854775807 > 1 };`},
		{LimitsFile, "connectors = [\"dav\"]"},
	} {
		s := mustSet(t, "", more...)
		c := callOf(t, s, "github", "comment", call)
		c.Reads = 3
		if d := s.Decide(c, []wire.Grant{g}); d.Verdict != Deny || d.Grant != "" {
			t.Errorf("%q under the grant: %+v", more, d)
		}
	}
	// What is allowed anyway uses up no grant.
	g = grantFor("github repos")
	if d := s.Decide(callOf(t, s, "github", "repos", nil), []wire.Grant{g}); d.Verdict != Allow || d.Grant != "" {
		t.Errorf("allowed anyway: %+v", d)
	}
}

// TestGrantChoice: of several grants, one that the call uses up comes last, and the misses are told.
func TestGrantChoice(t *testing.T) {
	s := mustSet(t, "")
	once, counted, wrong, session := grantFor("github comment", "repo=a/b", "number*"), grantFor("github comment", "repo=a/b", "number*"),
		grantFor("github comment", "repo=c/d", "number*"), grantFor("github comment", "repo=a/b", "number*")
	once.ID, once.Kind = "once", Once
	counted.ID, counted.Count = "counted", 5
	wrong.ID, session.ID = "wrong", "session"
	c := callOf(t, s, "github", "comment", values("repo=a/b number=7 body=hi"))
	if d := s.Decide(c, []wire.Grant{once, counted, wrong, session}); d.Grant != "session" {
		t.Errorf("chose %q", d.Grant)
	}
	if d := s.Decide(c, []wire.Grant{wrong, once}); d.Grant != "once" {
		t.Errorf("chose %q", d.Grant)
	}
	d := s.Decide(c, []wire.Grant{wrong, grantFor("github issues")})
	if d.Verdict != Ask || len(d.Misses) != 1 || d.Misses[0].Grant != "wrong" {
		t.Errorf("%+v", d)
	}
}

func TestPrefill(t *testing.T) {
	s := mustSet(t, dontAsk)
	for _, x := range []struct {
		call, want string
		ok         bool
	}{
		{"github issue-create repo=acme/site title=x label=bug", "cell dev may issue-create with github, account home, " +
			"in session run-1; only where Repo (--repo) is acme/site and Label (--label) is bug and " +
			"Assignee (--assignee) is not given", true},
		{"bank pay to=ada amount=50", "cell dev may pay with bank, account home, in session run-1; only where To (--to) " +
			"is ada and Amount (--amount) is at most 50 and Note (--note) is not given", true},
		{"github gist-create file=00", "cell dev may gist-create with github, account home, in session run-1; " +
			"whatever its arguments are", false},
		{"github repo-create name=x", "cell dev may repo-create with github, account home, in session run-1; " +
			"whatever its arguments are", true},
	} {
		vendor, rest, _ := strings.Cut(x.call, " ")
		method, args, _ := strings.Cut(rest, " ")
		c := callOf(t, s, vendor, method, values(args))
		g, ok := s.Prefill(c)
		if ok != x.ok || g.Sentence != x.want {
			t.Errorf("%s: %t\n got %s\nwant %s", x.call, ok, g.Sentence, x.want)
		}
		if !ok {
			continue
		}
		kept, err := s.Validate(g, c.Sensitive, testNow)
		if err != nil {
			t.Errorf("%s: %v", x.call, err)
		}
		if covers, why := s.Covers(&kept, c); !covers {
			t.Errorf("%s: its own grant does not cover it: %s", x.call, why)
		}
	}
	c := callOf(t, s, "github", "issues", values("repo=a/b"))
	c.Reads = 300
	if g, ok := s.Prefill(c); !ok || g.Count != 200 {
		t.Errorf("bulk: %+v", g)
	}
	c.Session = ""
	if _, ok := s.Prefill(c); ok {
		t.Error("prefilled without a session")
	}
}

func TestValidate(t *testing.T) {
	now := testNow.Unix()
	for _, x := range []struct {
		name      string
		what      string
		limits    []string
		sensitive bool
		alter     func(*wire.Grant)
		want      string // of the error; empty: none
	}{
		{"session", "github comment", []string{"repo=a/b", "number*"}, true, nil, ""},
		{"number not spoken of", "github comment", []string{"repo=a/b"}, true, nil, "does not limit number"},
		{"recipient left open", "dav event-create", []string{"calendar=/x/", "attendee*"}, true, nil, "does not limit attendee"},
		{"open until a time", "github comment", []string{"repo=a/b", "number*"}, true,
			func(g *wire.Grant) { g.Kind, g.Until = Until, now+hour }, "leaves number open"},
		{"open and limited", "github comment", []string{"repo=a/b", "number=7"}, true,
			func(g *wire.Grant) { g.Limits[1].Any = true }, "at once"},
		{"values are made canonical", "dav event-create", []string{"attendee=a@EXAMPLE.org", "calendar=/x/"}, true, nil, ""},
		{"malformed value", "dav event-create", []string{"calendar=/x/", "attendee=nobody"}, true, nil, "--attendee"},
		{"pattern", "github comment", []string{"repo=acme/*"}, true, nil, "--repo"},
		{"nothing limited", "github comment", nil, true, nil, "limits nothing"},
		{"recipient open", "dav event-create", []string{"calendar=/x/"}, true, nil, "attendee"},
		{"nothing limited, not sensitive", "github repo-create", nil, false, nil, ""},
		{"sensitive and tainted", "github comment", []string{"repo=a/b"}, true, func(g *wire.Grant) { g.Tainted = true },
			"after it has read"},
		{"tainted, not sensitive", "github repo-create", nil, false, func(g *wire.Grant) { g.Tainted = true }, ""},
		{"sensitive and standing", "github comment", []string{"repo=a/b"}, true,
			func(g *wire.Grant) { g.Kind, g.Until = Standing, now+60 }, "no standing one"},
		{"sensitive, 8 days", "github comment", []string{"repo=a/b"}, true,
			func(g *wire.Grant) { g.Kind, g.Until = Until, now+8*24*hour }, "at most 7 days"},
		{"sensitive, 7 days", "github comment", []string{"repo=a/b", "number=7"}, true,
			func(g *wire.Grant) { g.Kind, g.Until = Until, now+7*24*hour }, ""},
		{"91 days", "github repo-create", nil, false, func(g *wire.Grant) { g.Kind, g.Until = Standing, now+91*24*hour },
			"at most 90 days"},
		{"over", "github repo-create", nil, false, func(g *wire.Grant) { g.Kind, g.Until = Until, now }, "is over"},
		{"session with an end", "github repo-create", nil, false, func(g *wire.Grant) { g.Until = now + 9 }, "no end time"},
		{"kind", "github repo-create", nil, false, func(g *wire.Grant) { g.Kind = "standin" }, `did you mean "standing"`},
		{"connector", "githb repo-create", nil, false, nil, `did you mean "github"`},
		{"method", "github repo-crate", nil, false, nil, "no method"},
		{"method that is off", "github gist-create", nil, false, nil, "it is off"},
		{"field", "github comment", []string{"rep=a/b"}, true, nil, `did you mean "repo"`},
		{"twice", "github comment", []string{"repo=a/b", "repo=c/d"}, true, nil, "twice"},
		{"bound on text", "github comment", []string{"repo<5", "number=7"}, true, nil, "a bound is a number"},
		{"count", "github repo-create", nil, false, func(g *wire.Grant) { g.Count = -1 }, "count"},
		{"used before", "github repo-create", nil, false, func(g *wire.Grant) { g.Used = 1 }, "has not been used"},
		{"account", "github repo-create", nil, false, func(g *wire.Grant) { g.Account = "a b" }, "account"},
		{"cell", "github repo-create", nil, false, func(g *wire.Grant) { g.Cell = "" }, "cell"},
		{"session that is none", "github repo-create", nil, false, func(g *wire.Grant) { g.Session = "" }, "session"},
	} {
		t.Run(x.name, func(t *testing.T) {
			s := mustSet(t, methods)
			g := grantFor(x.what, x.limits...)
			if x.alter != nil {
				x.alter(&g)
			}
			kept, err := s.Validate(g, x.sensitive, testNow)
			if x.want != "" {
				if err == nil || !strings.Contains(err.Error(), x.want) || kept.Connector != "" {
					t.Errorf("got %v, want %q", err, x.want)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if kept.Made != now || kept.Sentence == "" {
				t.Errorf("%+v", kept)
			}
			for _, l := range kept.Limits {
				for _, v := range l.Values {
					if strings.Contains(v, "EXAMPLE") {
						t.Errorf("kept %q", v)
					}
				}
			}
		})
	}
}

// TestHeldTexts: a long text is held by its digest, and so is one that looks like a digest: neither passes for the other.
func TestHeldTexts(t *testing.T) {
	a := &describe.Arg{Name: "body", Type: describe.TypeText, Role: "content"}
	long := strings.Repeat("x", maxHeld+1)
	digest := limitValue(a, long)
	for _, x := range []struct {
		call, limit string
		want        bool
	}{
		{"hi", "hi", true}, {"hi", "Hi", false}, {"hi ", "hi", false}, {long, digest, true}, {long + "x", digest, false}, {long, long, false},
		{digest, digest, false}, {digest, limitValue(a, digest), true}, {"sha256:", limitValue(a, "sha256:"), true}, {"sha256:", "sha256:", false},
	} {
		if got := sameValue(a, x.call, x.limit); got != x.want {
			t.Errorf("%.20q under %.80q: %t", x.call, x.limit, got)
		}
	}
	if !isDigest(a, digest) || isDigest(a, digest+"0") || isDigest(a, digest[:70]+"X") || isDigest(&describe.Arg{Type: describe.TypeEmail}, digest) {
		t.Error("what is a digest is not known")
	}
	m := with(method("say", "write", "people", "+body:text r"), func(*describe.Method) {})
	for _, v := range []string{long, digest} {
		got, err := canonLimits([]wire.Limit{{Field: "body", Values: []string{v}}}, &m)
		if err != nil || len(got) != 1 || got[0].Values[0] != digest {
			t.Errorf("%.20q is kept as %v, %v", v, got, err)
		}
	}
}

// TestAllOfThem: of several values each has to be there, but for recipients.
func TestAllOfThem(t *testing.T) {
	m := method("run", "write", "people", "+input:string *5", "+to:email *5 =recipient")
	limits, err := canonLimits([]wire.Limit{limit("input=a=1,b=2"), limit("to=x@example.org,y@example.org")}, &m)
	if err != nil || !limits[0].All || limits[1].All {
		t.Fatalf("%+v, %v", limits, err)
	}
	for call, want := range map[string]string{"input=a=1 input=b=2 to=x@example.org": "", "input=b=2 input=a=1 to=y@example.org": "",
		"input=a=1 to=x@example.org": "input is not b=2", "to=x@example.org": "input is absent",
		"input=a=1 input=b=2 input=c=3 to=x@example.org": "input is c=3"} {
		c := &Call{Method: &m, Values: values(call)}
		why := ""
		for i := range limits {
			why = cmp.Or(why, fits(&limits[i], c))
		}
		if !strings.Contains(why, want) || (why == "") != (want == "") {
			t.Errorf("%s: %q, want %q", call, why, want)
		}
	}
	g := grantFor("github run")
	g.Limits = append(limits, wire.Limit{Field: "note", Any: true}, wire.Limit{Field: "more", Any: true})
	if s := Sentence(&g, &m); !strings.HasSuffix(s, "only where Input (--input) is all of a=1, b=2 and "+
		"To (--to) is among x@example.org, y@example.org; whatever --note and --more are") {
		t.Errorf("it says %s", s)
	}
}

func TestSentence(t *testing.T) {
	s := mustSet(t, "")
	c := callOf(t, s, "github", "comment", values("repo=a/b"))
	g := grantFor("github comment", "repo=a/b,c/d")
	g.Kind, g.Until, g.Count, g.Tainted = Standing, time.Date(2030, 6, 1, 9, 0, 0, 0, time.UTC).Unix(), 3, true
	want := "cell dev may comment with github, account home, standing until 2030-06-01 09:00 UTC, 3 times at most; " +
		"only where Repo (--repo) is among a/b, c/d; also after it has read what others wrote"
	if got := Sentence(&g, c.Method); got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
	g = grantFor("github comment")
	g.Limits = []wire.Limit{{Field: "note", Values: []string{"x and Repo is anything\u202e", ""}}}
	if got := Sentence(&g, nil); !strings.Contains(got, `among "x and Repo is anything\u202e", ""`) {
		t.Errorf("got %s", got)
	}
	if s.longest(Standing, true) != 0 || s.longest(Until, true) != 7*day || s.longest(Standing, false) != 90*day {
		t.Error("a kind of grant lasts longer or shorter than it may")
	}
}
