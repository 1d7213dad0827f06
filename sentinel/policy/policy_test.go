// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"strings"
	"testing"
	"time"

	"github.com/doorward/doorward/internal/describe"
	"github.com/doorward/doorward/internal/wire"
)

var testNow = time.Date(2030, 3, 11, 14, 0, 0, 0, time.UTC) // a Monday

// callOf makes a call as sentinel would: defaults filled in, reach computed.
func callOf(t testing.TB, s *Set, vendor, name string, v describe.Values) *Call {
	t.Helper()
	c := (&form{descs: s.descs}).connector(vendor)
	m, ok := c.Method(name)
	if !ok {
		t.Fatalf("no method %s %s", vendor, name)
	}
	if v == nil {
		v = describe.Values{}
	}
	for i := range m.Args {
		if a := &m.Args[i]; a.Default != "" && v[a.Name] == nil {
			v[a.Name] = []string{a.Default}
		}
	}
	call := &Call{Connector: c, Method: m, Values: v, Account: "home", Cell: "dev", Session: "run-1", Attended: true,
		Now: testNow}
	call.Reach, call.Sensitive = s.Reach(c, m, call.Account, v)
	return call
}

// values reads "repo=a/b label=x label=y".
func values(s string) describe.Values {
	v := describe.Values{}
	for _, f := range strings.Fields(s) {
		name, x, _ := strings.Cut(f, "=")
		v[name] = append(v[name], x)
	}
	return v
}

func mustSet(t testing.TB, toml string, more ...string) *Set {
	t.Helper()
	s, err := compileTest(t, toml, more...)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// compileTest compiles policy.toml with further files as name, text pairs; limits.toml is one of them.
func compileTest(t testing.TB, toml string, more ...string) (*Set, error) {
	t.Helper()
	f := Files{PolicyFile: []byte(toml)}
	var limits [][]byte
	for i := 0; i+1 < len(more); i += 2 {
		if more[i] == LimitsFile {
			limits = append(limits, []byte(more[i+1]))
			continue
		}
		f[more[i]] = []byte(more[i+1])
	}
	return Compile(f, testDescs(t), limits...)
}

// change alters a call before it is decided.
type change func(*Call)

func labels(l ...string) change { return func(c *Call) { c.Labels = l } }

const (
	dontAsk = "[connector.github]\nsetting = \"dont-ask\"\n[connector.dav]\nsetting = \"dont-ask\"\n" +
		"[connector.dav.private]\nhome = [\"/ada/diary/\"]\n"
	everyTime = "[connector.github]\nsetting = \"ask-every-time\"\n"
	methods   = "[connector.github.method]\nissues = \"ask\"\nrepo-create = \"allow\"\n" +
		"comment = \"allow\"\ngist-create = \"off\"\n"
	night = `@decision("ask") @reason("it is night")
forbid (principal, action in Action::"github", resource) when { context.hour < 6 } unless { context.approved };`
	secret = `forbid (principal, action in Action::"github", resource)
when { context.arguments has repo && context.arguments.repo like "acme/secret*" };`
	partial = `@decision("ask") forbid (principal, action == Action::"github.repos", resource)
when { context.readBytes * 9223372036854775807 > 1 } unless { context.approved };`
)

func TestDecide(t *testing.T) {
	for _, x := range []struct {
		name     string
		toml     string
		more     []string
		call     string
		with     change
		want     Verdict
		code     wire.Code
		policies string // what the first of them contains
	}{
		{"read by default", "", nil, "github repos", nil, Allow, "", "default github setting"},
		{"change by default", "", nil, "github repo-create name=x", nil, Ask, wire.CodeNeedsApproval, "default github"},
		{"sensitive by default", "", nil, "github comment repo=a/b number=1 body=x", nil, Ask, wire.CodeNeedsApproval,
			"base.cedar"},
		{"read, ask every time", everyTime, nil, "github repos", nil, Ask, wire.CodeNeedsApproval,
			`policy.toml:2 github setting = "ask-every-time"`},
		{"change, dont ask", dontAsk, nil, "github repo-create name=x", nil, Allow, "", "policy.toml:2 github"},
		{"dont-ask and sensitive by reach", dontAsk, nil, "github comment repo=a/b number=1 body=x", nil, Ask,
			wire.CodeNeedsApproval, "base.cedar"},
		{"dont-ask and destructive", dontAsk, nil, "dav contact-delete contact=/ada/x.vcf", nil, Ask,
			wire.CodeNeedsApproval, "base.cedar"},
		{"dont-ask and runs code", dontAsk, nil, "github workflow-run repo=a/b workflow=ci.yml", nil, Ask,
			wire.CodeNeedsApproval, "base.cedar"},
		{"dont-ask and nobody else sees it", dontAsk, nil, "dav event-create calendar=/ada/diary/ title=x", nil, Allow, "",
			"policy.toml:4 dav"},
		{"dont-ask and a guest", dontAsk, nil, "dav event-create calendar=/ada/diary/ title=x attendee=b@x.org", nil, Ask,
			wire.CodeNeedsApproval, "base.cedar"},
		{"dont-ask and a calendar others see", dontAsk, nil, "dav event-create calendar=/ada/team/ title=x", nil, Ask,
			wire.CodeNeedsApproval, "base.cedar"},
		{"private of another account", dontAsk, nil, "dav event-create calendar=/ada/diary/ title=x",
			func(c *Call) { c.Account = "work"; c.Reach, c.Sensitive = "people", true }, Ask, wire.CodeNeedsApproval, ""},
		{"reach that sentinel forgot is the worst", dontAsk, nil, "github comment repo=a/b number=1 body=x",
			func(c *Call) { c.Reach, c.Sensitive = "", false }, Ask, wire.CodeNeedsApproval, ""},
		{"sensitive is never less than the reach", dontAsk, nil, "github comment repo=a/b number=1 body=x",
			func(c *Call) { c.Sensitive = false }, Ask, wire.CodeNeedsApproval, ""},
		{"method ask", methods, nil, "github issues repo=a/b", nil, Ask, wire.CodeNeedsApproval,
			`policy.toml:2 github issues = "ask"`},
		{"method allow", methods, nil, "github repo-create name=x", nil, Allow, "",
			`policy.toml:3 github repo-create = "allow"`},
		{"method allow does not cover sensitive", methods, nil, "github comment repo=a/b number=1 body=x", nil, Ask,
			wire.CodeNeedsApproval, "base.cedar"},
		{"method off", methods, nil, "github gist-create file=00", nil, Deny, wire.CodeUnknownMethod,
			`policy.toml:5 github gist-create = "off"`},
		{"untrusted read", dontAsk, nil, "github repos", labels("untrusted"), Allow, "", ""},
		{"untrusted change", dontAsk, nil, "github repo-create name=x", labels("untrusted"), Ask, wire.CodeNeedsApproval,
			"base.cedar"},
		{"untrusted change, method allow", methods, nil, "github repo-create name=x", labels("private", "untrusted"), Ask,
			wire.CodeNeedsApproval, "base.cedar"},
		{"a label that is not known", dontAsk, nil, "github repo-create name=x", labels("odd"), Ask, wire.CodeNeedsApproval,
			"base.cedar"},
		{"private change", dontAsk, nil, "github repo-create name=x", labels("private"), Allow, "", ""},
		{"reads below the count", "", nil, "github repos", func(c *Call) { c.Reads = 199 }, Allow, "", ""},
		{"reads at the count", "", nil, "github repos", func(c *Call) { c.Reads = 200 }, Ask, wire.CodeBulkRead,
			"base.cedar"},
		{"bytes at the limit", "", nil, "github repos", func(c *Call) { c.ReadBytes = 64 << 20 }, Ask, wire.CodeBulkRead, ""},
		{"bulk and asking anyway", everyTime, nil, "github repos", func(c *Call) { c.Reads = 200 }, Ask, wire.CodeBulkRead,
			""},
		{"own count", "bulk-reads = 3", nil, "github repos", func(c *Call) { c.Reads = 3 }, Ask, wire.CodeBulkRead, ""},
		{"count above the admin's", "bulk-reads = 900", []string{LimitsFile, "bulk-reads = 5"}, "github repos",
			func(c *Call) { c.Reads = 5 }, Ask, wire.CodeBulkRead, ""},
		{"changes do not count as reads", dontAsk, nil, "github repo-create name=x", func(c *Call) { c.Reads = 999 }, Allow,
			"", ""},
		{"admin: connector not listed", dontAsk, []string{LimitsFile, `connectors = ["dav"]`}, "github repos", nil, Deny,
			wire.CodeUnknownMethod, "limits.toml:1"},
		{"admin: method off", dontAsk, []string{LimitsFile, "[connector.github.method]\nrepo-create = \"off\""},
			"github repo-create name=x", nil, Deny, wire.CodeUnknownMethod, "limits.toml:2"},
		{"admin: method ask", dontAsk, []string{LimitsFile, "[connector.github.method]\nrepo-create = \"ask\""},
			"github repo-create name=x", nil, Ask, wire.CodeNeedsApproval, "limits.toml:2"},
		{"admin: setting", dontAsk, []string{LimitsFile, "[connector.github]\nsetting = \"ask-before-changes\""},
			"github repo-create name=x", nil, Ask, wire.CodeNeedsApproval, "limits.toml:2"},
		{"admin: setting over a method", methods, []string{LimitsFile,
			"[connector.github]\nsetting = \"ask-before-changes\""},
			"github repo-create name=x", nil, Ask, wire.CodeNeedsApproval, "limits.toml:2"},
		{"admin: class", dontAsk, []string{LimitsFile, `always-ask = ["write"]`}, "github repo-create name=x", nil, Ask,
			wire.CodeNeedsApproval, "limits.toml:1"},
		{"admin: class of reads", "", []string{LimitsFile, `always-ask = ["read"]`}, "github repos", nil, Ask,
			wire.CodeNeedsApproval, "limits.toml:1"},
		{"admin: what is off stays off", methods, []string{LimitsFile, "[connector.github.method]\ngist-create = \"ask\""},
			"github gist-create file=00", nil, Deny, wire.CodeUnknownMethod, "policy.toml:5"},
		{"two limits: the narrower", dontAsk, []string{LimitsFile, "[connector.github.method]\nrepo-create = \"ask\"",
			LimitsFile, "[connector.github.method]\nrepo-create = \"off\""}, "github repo-create name=x", nil, Deny,
			wire.CodeUnknownMethod, ""},
		{"own rule, by night", "", []string{"own.cedar", night}, "github repos",
			func(c *Call) { c.Now = testNow.Add(-12 * time.Hour) }, Ask, wire.CodeNeedsApproval, "own.cedar:1 it is night"},
		{"own rule, by day", "", []string{"own.cedar", night}, "github repos", nil, Allow, "", ""},
		{"own forbid", dontAsk, []string{"own.cedar", secret}, "github issues repo=acme/secret-plan", nil, Deny,
			wire.CodeNotAllowed, "own.cedar:1"},
		{"own forbid, another case of the name", dontAsk, []string{"own.cedar", secret},
			"github issues repo=ACME/Secret-plan",
			nil, Deny, wire.CodeNotAllowed, "own.cedar:1"},
		{"own forbid, another repository", dontAsk, []string{"own.cedar", secret}, "github issues repo=acme/public", nil,
			Allow,
			"", ""},
		{"own forbid beats asking", "", []string{"own.cedar", secret}, "github comment repo=acme/secret number=1 body=x", nil,
			Deny, wire.CodeNotAllowed, "own.cedar:1"},
		{"cannot be evaluated", "", []string{"own.cedar", partial}, "github repos", func(c *Call) { c.ReadBytes = 3 }, Deny,
			wire.CodeNotAllowed, "own.cedar:1"},
		{"own permit does not widen", "", []string{"own.cedar", "permit (principal, action, resource);"},
			"github comment repo=a/b number=1 body=x", nil, Ask, wire.CodeNeedsApproval, "base.cedar"},
		{"own permit does not bring back what is off", methods, []string{"own.cedar",
			"permit (principal, action, resource);"},
			"github gist-create file=00", nil, Deny, wire.CodeUnknownMethod, "policy.toml:5"},
		{"by cell", "", []string{"own.cedar", `forbid (principal == Cell::"dev", action, resource);`}, "github repos", nil,
			Deny, wire.CodeNotAllowed, ""},
		{"by another cell", "", []string{"own.cedar", `forbid (principal == Cell::"dev2", action, resource);`},
			"github repos",
			nil, Allow, "", ""},
		{"by account", "", []string{"own.cedar", `forbid (principal, action, resource == Account::"github/home");`},
			"github repos", nil, Deny, wire.CodeNotAllowed, ""},
		{"by the account's connector", "", []string{"own.cedar",
			`forbid (principal, action, resource in Connector::"github");`},
			"github repos", nil, Deny, wire.CodeNotAllowed, ""},
		{"by another's connector", "", []string{"own.cedar", `forbid (principal, action, resource in Connector::"dav");`},
			"github repos", nil, Allow, "", ""},
		{"outside the organisation", "organisation = [\"Example.org\"]", []string{"own.cedar",
			`forbid (principal, action, resource) when { context.outsideOrganisation };`},
			"dav event-create calendar=/x/ title=x attendee=a@example.org attendee=b@example.org.evil.net", nil, Deny,
			wire.CodeNotAllowed, ""},
		{"inside the organisation", "organisation = [\"Example.org\"]", []string{"own.cedar",
			`forbid (principal, action, resource) when { context.outsideOrganisation };`},
			"dav event-create calendar=/x/ title=x attendee=a@example.org", nil, Ask, wire.CodeNeedsApproval, ""},
		{"a login is outside", "organisation = [\"example.org\"]", []string{"own.cedar",
			`forbid (principal, action, resource) when { context.outsideOrganisation };`},
			"github issue-create repo=a/b title=x assignee=mallory", nil, Deny, wire.CodeNotAllowed, ""},
		{"first time", "", []string{"own.cedar",
			`forbid (principal, action, resource) when { !context.firstTime.isEmpty() };`},
			"dav event-create calendar=/x/ title=x attendee=a@example.org",
			func(c *Call) { c.FirstTime = []string{"a@example.org"} }, Deny, wire.CodeNotAllowed, ""},
		{"recipient in another case", "", []string{"own.cedar",
			`forbid (principal, action, resource) when { context.recipients.contains("boss@example.org") };`},
			"dav event-create calendar=/x/ title=x attendee=Boss@example.org", nil, Deny, wire.CodeNotAllowed, ""},
		{"domains", "", []string{"own.cedar",
			`forbid (principal, action, resource) when { context.recipientDomains.containsAny(["evil.net"]) };`},
			"dav event-create calendar=/x/ title=x attendee=a@example.org attendee=b@evil.net", nil, Deny, wire.CodeNotAllowed,
			""},
		{"unattended", "", []string{"own.cedar", `forbid (principal, action, resource) when { !context.attended };`},
			"github repos", func(c *Call) { c.Attended, c.By = false, "nightly.timer" }, Deny, wire.CodeNotAllowed, ""},
		{"typed arguments", "", []string{"own.cedar",
			`forbid (principal, action == Action::"github.comment", resource) when { context.arguments.number > 99 };`},
			"github comment repo=a/b number=100 body=x", nil, Deny, wire.CodeNotAllowed, ""},
		{"a flag", "", []string{"own.cedar",
			`forbid (principal, action == Action::"github.repo-create", resource) unless { context.arguments["private"] };`},
			"github repo-create name=x private=false", nil, Deny, wire.CodeNotAllowed, ""},
		{"a set that is absent is empty", "", []string{"own.cedar",
			`forbid (principal, action == Action::"github.issue-create", resource) when { context.arguments.label.isEmpty() };`},
			"github issue-create repo=a/b title=x", nil, Deny, wire.CodeNotAllowed, ""},
		{"weekday", "", []string{"own.cedar", `forbid (principal, action, resource) when { context.weekday == "monday" };`},
			"github repos", nil, Deny, wire.CodeNotAllowed, ""},
		{"time", "", []string{"own.cedar",
			`forbid (principal, action, resource) when { context.time > datetime("2030-03-11T13:00:00Z") };`},
			"github repos", nil, Deny, wire.CodeNotAllowed, ""},
		{"labels in rules", "", []string{"own.cedar",
			`forbid (principal, action, resource) when { context.untrusted && context["private"] };`},
			"github repos", labels("untrusted", "private"), Deny, wire.CodeNotAllowed, ""},
		{"the whole context", "", []string{"own.cedar", `forbid (principal, action, resource)
			when { context.cell == "dev" && context.session == "run-1" && context.by == "" && context.account == "home" &&
			context.method == "repos" && context.connector == "github" && context.reach == "none" && context.reads == 7 };`},
			"github repos", func(c *Call) { c.Reads = 7 }, Deny, wire.CodeNotAllowed, ""},
	} {
		t.Run(x.name, func(t *testing.T) {
			s := mustSet(t, x.toml, x.more...)
			vendor, rest, _ := strings.Cut(x.call, " ")
			method, args, _ := strings.Cut(rest, " ")
			c := callOf(t, s, vendor, method, values(args))
			if x.with != nil {
				x.with(c)
			}
			d := s.Decide(c, nil)
			if d.Verdict != x.want || d.Code != x.code {
				t.Fatalf("got %s %s, want %s %s: %+v", d.Verdict, d.Code, x.want, x.code, d)
			}
			if len(d.Policies) == 0 || !strings.Contains(d.Policies[0], x.policies) {
				t.Errorf("policies %q, want %q first", d.Policies, x.policies)
			}
			if d.Reason == "" || (x.want != Allow) != (d.Next != "") || strings.Contains(d.Reason, ".toml") {
				t.Errorf("reason %q, next %q", d.Reason, d.Next)
			}
			if list := verdictInFull(t, s, c); list != d.Verdict {
				t.Errorf("sliced: %s, in full: %s", d.Verdict, list)
			}
		})
	}
}

// TestDecideUnknown: what the set was not made of is denied.
func TestDecideUnknown(t *testing.T) {
	s := mustSet(t, dontAsk)
	other := &describe.Connector{Vendor: "evil", Methods: []describe.Method{{Name: "repos", Class: "read", Reach: "none"}}}
	for _, c := range []*Call{
		{Connector: other, Method: &other.Methods[0], Now: testNow},
		{Connector: &describe.Connector{Vendor: "github"}, Method: &describe.Method{Name: "nuke", Class: "read",
			Reach: "none"}},
		{Now: testNow},
	} {
		if d := s.Decide(c, nil); d.Verdict != Deny || d.Code != wire.CodeUnknownMethod {
			t.Errorf("%+v", d)
		}
	}
}

// TestDefault: the installed files are a valid set, and changes ask under it.
func TestDefault(t *testing.T) {
	s, err := Default(testDescs(t), DefaultLimits())
	if err != nil {
		t.Fatal(err)
	}
	for call, want := range map[string]Verdict{"repos": Allow, "repo-create": Ask, "comment": Ask, "pull-merge": Ask} {
		if d := s.Decide(callOf(t, s, "github", call, values("repo=a/b name=x number=1 body=x")), nil); d.Verdict != want {
			t.Errorf("%s: %s, want %s", call, d.Verdict, want)
		}
	}
	if got := Widens(s, s); len(got) != 0 {
		t.Errorf("a set widens itself: %q", got)
	}
	empty := mustSet(t, "")
	if got := Diff(s, empty); len(got) != 0 {
		t.Errorf("no file is other than the default: %v", got)
	}
}
