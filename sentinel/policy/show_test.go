// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"slices"
	"strings"
	"testing"

	"github.com/doorward/doorward/internal/describe"
	"github.com/doorward/doorward/internal/wire"
)

func TestCheck(t *testing.T) {
	s := mustSet(t, `[connector.github]
setting = "dont-ask"
[connector.github.method]
comment = "allow"
pull-merge = "allow"
repo-create = "allow"
workflow-run = "allow"
[connector.dav]
setting = "dont-ask"
[connector.dav.method]
event-create = "allow"
`, LimitsFile, "[connector.github.method]\nrepo-create = \"ask\"\n[connector.dav]\nsetting = \"ask-every-time\"")
	var got []string
	for _, p := range s.Check() {
		got = append(got, p.Error())
	}
	want := []string{
		`policy.toml:9:1: dav setting = "dont-ask" does not cover sensitive methods: contact-delete, event-delete, respond ` +
			`ask all the same`,
		`policy.toml:11:1: dav event-create = "allow" does not cover sensitive calls: what reaches named people asks all ` +
			`the same`,
		`policy.toml:11:1: dav event-create = "allow" held back to ask by limits.toml:4 dav setting = "ask-every-time"`,
		`policy.toml:9:1: dav setting = "dont-ask" held back to "ask-every-time" by limits.toml`,
		`policy.toml:2:1: github setting = "dont-ask" does not cover sensitive methods: gist-create, issue-create ask all ` +
			`the same`,
		`policy.toml:4:1: github comment = "allow" does not cover sensitive calls: it reaches the members of a space and ` +
			`asks all the same`,
		`policy.toml:5:1: github pull-merge = "allow" does not cover sensitive calls: it is destructive ` +
			`and asks all the same`,
		`policy.toml:6:1: github repo-create = "allow" held back to ask by limits.toml:2 github repo-create = "ask"`,
		`policy.toml:7:1: github workflow-run = "allow" does not cover sensitive calls: it pays, changes access or ` +
			`runs code and asks all the same`,
	}
	if !slices.Equal(got, want) {
		t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	if got := mustSet(t, "").Check(); len(got) != 0 {
		t.Errorf("the default has notes: %v", got)
	}
}

// TestCheckEmpty: a table that says nothing is noted, and loads as it did.
func TestCheckEmpty(t *testing.T) {
	s := mustSet(t, "\ufeff[site.\"a.example\"]\n[site.\"b.example\"]\n[site.\"b.example\".budget]\nrequests = 5\n[surrogate.bot]\n"+
		"[surrogate.mail.route]\nsend = \"off\"\n[connector.github.method]\n[connector.dav]\nmethod = {}\n[site]\n[budget]\n",
		LimitsFile, "[site.\"c.example\"]\n")
	var got []string
	for _, p := range s.Check() {
		got = append(got, p.Error())
	}
	if want := []string{
		`policy.toml:1:7: [site."a.example"] says nothing, so it changes nothing: it has no setting`,
		`policy.toml:5:12: [surrogate."bot"] says nothing, so it changes nothing: it has no setting`,
		`policy.toml:9:12: [connector."dav"] says nothing, so it changes nothing: it has no setting`,
		`limits.toml:1:7: [site."c.example"] says nothing, so it changes nothing: it has no setting`,
	}; !slices.Equal(got, want) {
		t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

func TestWidens(t *testing.T) {
	forbid := `forbid (principal, action in Action::"github", resource) when { context.hour < 6 };`
	for _, x := range []struct {
		name     string
		old, new []string // policy.toml, then files
		widens   bool
		text     string
	}{
		{"ask to allow", []string{""}, []string{methods}, true, "github repo-create: ask, now allow (policy.toml:3"},
		{"allow to ask", []string{methods}, []string{""}, true, "github gist-create: off, now ask (default"},
		{"allow to off", []string{""}, []string{"[connector.github.method]\nrepos = \"off\""}, false,
			"github repos: allow, now off"},
		{"wider setting", []string{""}, []string{dontAsk}, true, "github repo-create: ask, now allow"},
		{"narrower setting", []string{""}, []string{everyTime}, false, "github repos: allow, now ask"},
		{"the default, said", []string{""}, []string{"[connector.github]\nsetting = \"ask-before-changes\""}, false, ""},
		{"a comment", []string{""}, []string{"# hello"}, false, ""},
		{"private thing more", []string{""}, []string{"[connector.dav.private]\nhome = [\"/a/\"]"}, true,
			"home /a/ counts as private"},
		{"private thing less", []string{"[connector.dav.private]\nhome = [\"/a/\"]"}, []string{""}, false, "no longer"},
		{"private for another account", []string{"[connector.dav.private]\nhome = [\"/a/\"]"},
			[]string{"[connector.dav.private]\nwork = [\"/a/\"]"}, true, "work /a/ counts"},
		{"organisation more", []string{""}, []string{"organisation = [\"a.org\"]"}, true, "a.org counts as inside"},
		{"organisation less", []string{"organisation = [\"a.org\"]"}, []string{""}, false, "no longer counts"},
		{"organisation less, with own rules", []string{"organisation = [\"a.org\"]", "own.cedar", forbid},
			[]string{"", "own.cedar", forbid}, true, "no longer counts"},
		{"more reads", []string{""}, []string{"bulk-reads = 201"}, true, "200, now 201"},
		{"fewer reads", []string{""}, []string{"bulk-reads = 199"}, false, "200, now 199"},
		{"more bytes", []string{""}, []string{"bulk-bytes = 67108865"}, true, "now 67108865"},
		{"more reads, held back", []string{"", LimitsFile, "bulk-reads = 200"},
			[]string{"bulk-reads = 900", LimitsFile, "bulk-reads = 200"}, false, ""},
		{"own forbid more", []string{""}, []string{"", "own.cedar", forbid}, false, "new: own.cedar:1"},
		{"own forbid less", []string{"", "own.cedar", forbid}, []string{""}, true, "gone: own.cedar:1"},
		{"own forbid changed", []string{"", "own.cedar", forbid},
			[]string{"", "own.cedar", strings.Replace(forbid, "6", "5", 1)}, true, "gone: own.cedar:1"},
		{"own forbid moved", []string{"", "own.cedar", forbid}, []string{"", "other.cedar", "\n\n" + forbid}, false, ""},
		{"own forbid made to ask", []string{"", "own.cedar", forbid}, []string{"", "own.cedar", night}, true, "gone:"},
		{"own permit more", []string{""}, []string{"", "own.cedar", "permit (principal, action, resource);"}, true, "new:"},
		{"own permit less", []string{"", "own.cedar", "permit (principal, action, resource);"}, []string{""}, false, "gone:"},
		{"limit gone", []string{dontAsk, LimitsFile, "always-ask = [\"write\"]"}, []string{dontAsk}, true,
			"github repo-create: ask, now allow"},
		{"limit more", []string{""}, []string{"", LimitsFile, "connectors = [\"dav\"]"}, false,
			"github repos: allow, now off"},
		{"grant days more", []string{"", LimitsFile, "grant-days = 3"}, []string{""}, true,
			"days of a standing grant: 3, now 90"},
		{"terminal on", []string{"", LimitsFile, "terminal-approvals = false"}, []string{""}, true,
			"terminal: false, now true"},
		{"terminal off", []string{""}, []string{"", LimitsFile, "terminal-approvals = false"}, false, "true, now false"},
		{"fewer may wait", []string{""}, []string{"", LimitsFile, "pending = 5"}, false, "50, now 5"},
	} {
		t.Run(x.name, func(t *testing.T) {
			old, new := mustSet(t, x.old[0], x.old[1:]...), mustSet(t, x.new[0], x.new[1:]...)
			w := Widens(old, new)
			if (len(w) > 0) != x.widens {
				t.Errorf("widens %q", w)
			}
			var all []string
			for _, c := range Diff(old, new) {
				all = append(all, c.Text)
			}
			text := strings.Join(all, "\n")
			if !strings.Contains(text, x.text) || (x.text == "") != (text == "") {
				t.Errorf("diff %q, want %q", text, x.text)
			}
		})
	}
	if got := Widens(nil, mustSet(t, "")); len(got) < 19 {
		t.Errorf("from nothing: %d changes: %q", len(got), got)
	}
}

// TestWidensByDescription: a new description that calls a method less than it was is a widening too.
func TestWidensByDescription(t *testing.T) {
	old := mustSet(t, "")
	alter := func(f func(*describe.Method)) *Set {
		descs := testDescs(t)
		m, _ := descs[2].Method("comment")
		f(m)
		if _, err := descs[2].Seal(); err != nil {
			t.Fatal(err)
		}
		s, err := Compile(Files{}, descs)
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	for what, x := range map[string]struct {
		f      func(*describe.Method)
		widens bool
	}{
		"reach narrower": {func(m *describe.Method) { m.Reach = "none" }, true},
		"reach wider":    {func(m *describe.Method) { m.Reach = "public" }, false},
		"class":          {func(m *describe.Method) { m.Class, m.Reach = "read", "public" }, true},
		"lowered":        {func(m *describe.Method) { m.Lower = []describe.Lower{{To: "none"}} }, true},
		"lowered when": {func(m *describe.Method) {
			m.Lower = []describe.Lower{{To: "none", When: &describe.Cond{Arg: "number", Is: "1"}}}
		}, true},
		"always": {func(m *describe.Method) { m.Always = true }, false},
		"help":   {func(m *describe.Method) { m.Summary = "else" }, false},
	} {
		if got := Widens(old, alter(x.f)); (len(got) > 0) != x.widens {
			t.Errorf("%s: %q", what, got)
		}
	}
}

func TestExplain(t *testing.T) {
	s := mustSet(t, methods, LimitsFile, "[connector.github.method]\nrepo-create = \"ask\"")
	c := callOf(t, s, "github", "repo-create", values("name=x"))
	c.Labels = []string{wire.LabelUntrusted}
	g := grantFor("github repo-create")
	got := strings.Join(s.Explain(c, []wire.Grant{g}), "\n")
	want := `github repo-create, account home, for cell dev: asks a person
it is a write that reaches nobody but the owner
the caller carries the labels untrusted
decided by base.cedar:10 the caller has read what others wrote, so no change goes by itself
decided by limits.toml:2 github repo-create = "ask"
policy.toml:3 github repo-create = "allow" would give more, ` +
		`but limits.toml:2 github repo-create = "ask" is the admin's limit
grant g1 does not cover it: the caller has read what others wrote, and it is not for that`
	if got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
	got = strings.Join(s.Explain(callOf(t, s, "github", "comment", values("repo=a/b number=1 body=x")), nil), "\n")
	if !strings.Contains(got, "reaches the members of a space, so it is sensitive") {
		t.Error(got)
	}
}

func TestList(t *testing.T) {
	s := mustSet(t, methods, "own.cedar", secret+`
forbid (principal, action == Action::"github.comment", resource) when { context.arguments.number > 99 };
forbid (principal, action == Action::"github.code-search", resource);`)
	read := func(labels []string, grants ...wire.Grant) string {
		var out []string
		for _, m := range s.List("github", Call{Account: "home", Cell: "dev", Session: "run-1", Now: testNow, Labels: labels},
			grants) {
			out = append(out, m.Name+" "+m.Ask)
		}
		return strings.Join(out, ", ")
	}
	want := "code-search deny, comment ask, issue-create ask, issues ask, pull-merge ask, repo-create allow, " +
		"repos allow, workflow-run ask"
	if got := read(nil); got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
	if got := read([]string{"untrusted"}); !strings.Contains(got, "repo-create ask") {
		t.Errorf("untrusted: %s", got)
	}
	g := grantFor("github repo-create")
	g.Tainted = true
	if got := read([]string{"untrusted"}, g); !strings.Contains(got, "repo-create allow") {
		t.Errorf("untrusted, with a grant: %s", got)
	}
	if got := s.List("absent", Call{}, nil); got != nil {
		t.Errorf("absent: %v", got)
	}
}

// TestCedarIsWhatRuns: the text that is shown, compiled anew, decides the same.
func TestCedarIsWhatRuns(t *testing.T) {
	s := mustSet(t, methods, "own.cedar", night)
	text := s.Cedar()
	for _, want := range []string{`action "github.issue-create" in ["github"]`, `"label": Set<String>`, `"body"?: String`,
		`// policy.toml:2 github issues = "ask"`, `// own.cedar:1 it is night`, `// base.cedar:4 it is sensitive`} {
		if !strings.Contains(text, want) {
			t.Errorf("no %s in\n%s", want, text)
		}
	}
	_, policies, _ := strings.Cut(text, "// Policies\n")
	rs, err := readCedar("shown", []byte(policies), false)
	if err != nil {
		t.Fatal(err)
	}
	if len(rs) != len(s.rules) {
		t.Errorf("%d of %d policies shown", len(rs), len(s.rules))
	}
	for i, r := range rs {
		if got, want := string(r.policy.MarshalCedar()), string(s.rules[i].policy.MarshalCedar()); got != want {
			t.Errorf("shown %s\nruns %s", got, want)
		}
	}
}

func TestSettingAndOff(t *testing.T) {
	s := mustSet(t, dontAsk+methods, LimitsFile,
		"[connector.dav]\nsetting = \"ask-before-changes\"\n[connector.bank.method]\npay = \"off\"")
	for vendor, want := range map[string]string{"github": DontAsk, "dav": AskBeforeChanges, "bank": AskBeforeChanges} {
		if got := s.Setting(vendor); got != want {
			t.Errorf("%s: %s, want %s", vendor, got, want)
		}
	}
	for what, want := range map[string]bool{"github gist-create": true, "github repos": false, "bank pay": true,
		"bank balance": false, "bank absent": true, "absent x": true} {
		vendor, m, _ := strings.Cut(what, " ")
		if got := s.Off(vendor, m); got != want {
			t.Errorf("%s: off %t", what, got)
		}
	}
}

func TestPrivate(t *testing.T) {
	s := mustSet(t,
		"[connector.dav.private]\nhome = [\"/ada/diary/\", \"/ada/one.ics\"]\n"+
			"[connector.github.private]\nhome = [\"ada/Notes\"]")
	for _, x := range []struct {
		vendor, account, thing string
		want                   bool
	}{
		{"dav", "home", "/ada/diary/", true},
		{"dav", "home", "/ada/diary/x.ics", true},
		{"dav", "home", "/ada/diary/../team/x.ics", false},
		{"dav", "home", "/ada/diary", false},
		{"dav", "home", "/ada/diary2/", false},
		{"dav", "home", "/ada/Diary/", false},
		{"dav", "home", "/ada/one.ics", true},
		{"dav", "home", "/ada/one.icsx", false},
		{"dav", "work", "/ada/diary/", false},
		{"dav", "home", "", false},
		{"github", "home", "ADA/notes", true},
		{"github", "home", "ada/notes2", false},
		{"github", "home", "ada/note\u017f", false},
		{"absent", "home", "/ada/diary/", false},
	} {
		if got := s.Private(x.vendor, x.account)(x.thing); got != x.want {
			t.Errorf("%+v: %t", x, got)
		}
	}
}
