// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/fstest"
)

// TestRefused: what is wrong in a file is named with its place and, where one is near, the right name; and there is
// no set then.
func TestRefused(t *testing.T) {
	for _, x := range []struct{ file, text, want string }{
		{"policy.toml", "setings = 1", `policy.toml:1:1: unknown key "setings"`},
		{"policy.toml", "\norganization = []", `policy.toml:2:1: unknown key "organization"; did you mean "organisation"?`},
		{"policy.toml", "[connector.githb]\nsetting=\"dont-ask\"",
			`policy.toml:1:12: no connector "githb" is installed; did you mean "github"?`},
		{"policy.toml", "[connector.github]\n  settings=\"dont-ask\"",
			`policy.toml:2:3: unknown key "settings"; did you mean "setting"?`},
		{"policy.toml", "[connector.github]\nsetting=\"dontask\"",
			`policy.toml:2:9: "dontask" is no choice; did you mean "dont-ask"?`},
		{"policy.toml", "[connector.github.method]\nisue-create=\"ask\"",
			`policy.toml:2:1: github has no method "isue-create"; did you mean "issue-create"?`},
		{"policy.toml", "[connector.github.method]\nissues=\"aks\"",
			`policy.toml:2:8: "aks" is no choice; did you mean "ask"?`},
		{"policy.toml", "[connector.github.method]\nissues=\"ask\"\nbank=\"off\"",
			`policy.toml:3:1: github has no method "bank"`},
		{"policy.toml", "[connector.github]\nissue-create=\"ask\"",
			`policy.toml:2:1: unknown key "issue-create"; a method stands in [connector.github.method]`},
		{"policy.toml", "[github]", `policy.toml:1:2: unknown key "github"; a connector stands in [connector.github]`},
		{"policy.toml", "[connector.github.methods]\n", `did you mean "method"?`},
		{"policy.toml", "a = ", "policy.toml:1:4:"},
		{"policy.toml", "[connector.github]\nsetting = true", "policy.toml:2:11: wants text"},
		{"policy.toml", "organisation = \"x\"", "policy.toml:1:16: wants a list"},
		{"policy.toml", "organisation = [\"a.org\", 3]", "policy.toml:1:26: wants text"},
		{"policy.toml", "organisation = [\"x\"]", `policy.toml:1:17: "x" is no domain`},
		{"policy.toml", "organisation = [\"*.example.org\"]", "is no domain"},
		{"policy.toml", "[[connector]]", "policy.toml:1:3:"},
		{"policy.toml", "connector.github.method = {issues=\"ask\", isues=\"off\"}",
			`policy.toml:1:42: github has no method`},
		{"policy.toml", "[connector.github]\n[connector.github]", "policy.toml:2:2:"},
		{"policy.toml", "[connector.github]\nsetting=\"dont-ask\"\nsetting=\"ask-every-time\"", "policy.toml:3:1:"},
		{"policy.toml", "bulk-reads = -1", "policy.toml:1:14: wants a whole number from 0"},
		{"policy.toml", "bulk-reads = 1.5", "policy.toml:1:14:"},
		{"policy.toml", "bulk-reads = 99999999999999999999", "policy.toml:1:14:"},
		{"policy.toml", "[connector.dav.private]\nhome=[\"/\"]", "policy.toml:2:7:"},
		{"policy.toml", "[connector.dav.private]\nhome=[\"/ada/*\"]", "policy.toml:2:7:"},
		{"policy.toml", "[connector.dav.private]\nhome=[\"/ada/../eve/\"]", "policy.toml:2:7:"},
		{"policy.toml", "[connector.dav]\nprivate=[\"/ada/\"]", "private is a table"},
		{"policy.toml", "connector = 3", "policy.toml:1:13: connector is a table"},
		{"policy.toml", "[connector.github]\nsetting.x = 1", "policy.toml:2:9:"},
		{"policy.toml", "[organisation]", "policy.toml:1:2:"},
		{"policy.toml", "organisation.x = 1", "policy.toml:1:14:"},
		{"policy.toml", "[connector.github.method]\nissues.x = \"ask\"", "policy.toml:2:8:"},
		{"policy.toml", "[connector.github.method]\nissues = 1979-05-27", "policy.toml:2:"},
		{"policy.toml", "a = " + strings.Repeat("[", 50000), "open brackets"},
		{"policy.toml", strings.Repeat("#\n", maxFile), "at most"},
		{"policy.toml", "terminal-approvals = false", `unknown key "terminal-approvals"`}, // the admin's, not the person's
		{"limits.toml", "terminal-aprovals = false", `limits.toml:1:1: unknown key "terminal-aprovals"; did you mean`},
		{"limits.toml", "connectors = [\"githb\"]", `limits.toml:1:15: no connector "githb"`},
		{"limits.toml", "always-ask = [\"writes\"]", `did you mean "write"?`},
		{"limits.toml", "grant-days = 91", "from 0 to 90"},
		{"limits.toml", "sensitive-grant-days = 8", "from 0 to 7"},
		{"limits.toml", "pending = 51", "from 0 to 50"},
		{"limits.toml", "[connector.github.method]\nissues = \"allow\"", `"allow" is no choice`},
		{"limits.toml", "[connector.github.private]\nhome = []", `unknown key "private"`},
		{"limits.toml", "organisation = []", `unknown key "organisation"`},
		{"own.cedar", `forbid (principal, action == Action::"github.isue-create", resource);`,
			`own.cedar:1:39: no action "github.isue-create"; did you mean "github.issue-create"?`},
		{"own.cedar", "\n\nforbid (principal, action in Action::\"githb\", resource);",
			`own.cedar:3:39: no action "githb"; did you mean "github"?`},
		{"own.cedar", "forbid (principal, action, resource)\nwhen { context.arguments has rpo };",
			`own.cedar:2:30: no argument "rpo" of what it is about; did you mean "repo"?`},
		{"own.cedar", `forbid (principal, action, resource) when { context["class"] == "wrte" };`,
			`no class "wrte"; did you mean "write"?`},
		{"own.cedar", `forbid (principal, action, resource) when { "wrte" != context["class"] };`, `no class "wrte"`},
		{"own.cedar", `forbid (principal, action, resource) when { ["red"].contains(context["class"]) };`, `no class "red"`},
		{"own.cedar", `forbid (principal, action, resource) when { context.weekday == "Sunday" };`, `no weekday "Sunday"`},
		{"own.cedar", `forbid (principal, action, resource) when { context.reach == "all" };`, `no reach "all"`},
		{"own.cedar", `forbid (principal, action, resource in Connector::"githb");`, `no connector "githb"`},
		{"own.cedar", `forbid (principal, action, resource == Account::"githb/home");`, `no connector "githb"`},
		{"own.cedar", `forbid (principal, action, resource == Account::"home");`, `Account::"connector/name"`},
		{"own.cedar", `forbid (principal, action, resource) when { resource == Account::"githb/x" };`,
			`no connector "githb"`},
		{"own.cedar", `forbid (principal is Cel, action, resource);`, `no entity type Cel; did you mean "Cell"?`},
		{"own.cedar",
			`forbid (principal, action == Action::"dav.respond", resource) when { context.arguments.answer == "yes" };`,
			`no value of answer "yes"`},
		{"own.cedar", `forbid (principal, action, resource) when { context.recipents.contains("x") };`,
			`own.cedar:1:53: no fact "recipents"; did you mean "recipients"?`},
		{"own.cedar", `forbid (principal, action, resource) when { context has recipents };`, `no fact "recipents"`},
		{"own.cedar", `forbid (principal, action, resource) when { context.recipients.contains("Boss@x.org") };`,
			`write "boss@x.org"`},
		{"own.cedar",
			`forbid (principal, action == Action::"github.comment", resource) when { context.arguments.repo like "Acme/*" };`,
			`write "acme/*"`},
		{"own.cedar",
			`forbid (principal, action == Action::"github.comment", resource) when { context.arguments.repo == 3 };`,
			"own.cedar:1:1: the types"},
		{"own.cedar", `forbid (principal, action, resource) when { context.arguments.repo == "a/b" };`, "not found (and 1"},
		{"own.cedar",
			`forbid (principal, action == Action::"github.issues", resource) when { context.arguments.state == "x" };`,
			"optional attribute"},
		{"own.cedar", "forbid (principal,\n action, resource", "own.cedar:2:"},
		{"own.cedar", "@descision(\"ask\")\nforbid (principal, action, resource);",
			`own.cedar:1:1: unknown annotation @descision; did you mean "decision"?`},
		{"own.cedar", `@decision("aks") forbid (principal, action, resource) unless { context.approved };`,
			`@decision("ask")`},
		{"own.cedar", `@code("x") forbid (principal, action, resource);`, "unknown annotation @code"},
		{"own.cedar", `@decision("ask") forbid (principal, action, resource);`, "needs one clause"},
		{"own.cedar", `@decision("ask") forbid (principal, action, resource) when { !context.approved };`, "one way only"},
		{"own.cedar", `forbid (principal, action, resource) unless { context.approved };`, `needs @decision("ask")`},
		{"own.cedar", `@decision("ask") permit (principal, action, resource) unless { context.approved };`, "on a forbid"},
		{"own.cedar", `permit (principal, action, resource) when { context.approved };`, "one way only"},
		{"own.cedar", `permit (principal, action, resource) when { context == {} };`, "one way only"},
		{"own.cedar", `permit (principal, action, resource) when { (if true then context else context).approved };`,
			"one way only"},
		{"own.cedar", `permit (principal, action, resource) when { {a: context}.a.approved };`, "one way only"},
		{"own.cedar", `permit (principal, action, resource) when ` + strings.Repeat("{(", 5000), "open brackets"},
	} {
		toml, more := "", []string{x.file, x.text}
		if x.file == PolicyFile {
			toml, more = x.text, nil
		}
		s, err := compileTest(t, toml, more...)
		if s != nil || err == nil || !strings.Contains(err.Error(), x.want) {
			t.Errorf("%s %.80q\n got %v\nwant %s", x.file, x.text, err, x.want)
			continue
		}
		var p *Problem
		if !errors.As(err, &p) || p.File != x.file {
			t.Errorf("%.80q: %v names no file", x.text, err)
		}
	}
}

// TestAllFaults: one load names every fault, each once.
func TestAllFaults(t *testing.T) {
	_, err := compileTest(t, "setings = 1\n[connector.githb]\nsetting=\"x\"\n[connector.dav]\nsetting=\"y\"", LimitsFile,
		"pendin = 1")
	if got := strings.Count(err.Error(), "\n") + 1; got != 4 { // githb once, though it has a header and a key
		t.Errorf("%d faults:\n%v", got, err)
	}
}

func TestRead(t *testing.T) {
	good := fstest.MapFS{
		"policy.toml": {Data: []byte(dontAsk)}, "own.cedar": {Data: []byte(night)},
		"limits.toml": {Data: []byte("nonsense")}, ".policy.toml.swp": {Data: []byte("x")},
		"policy.toml~": {Data: []byte("x")},
	}
	s, err := Load(good, testDescs(t))
	if err != nil {
		t.Fatal(err)
	}
	if len(s.Files()) != 2 || s.Digest() != s.Files().Digest() {
		t.Errorf("files %d", len(s.Files()))
	}
	moved := Files{"a.cedar": s.files["own.cedar"], PolicyFile: s.files[PolicyFile]}
	if moved.Digest() == s.Digest() || (Files{}).Digest() == s.Digest() {
		t.Error("other files, equal digest")
	}
	for want, dir := range map[string]fs.FS{
		`did you mean "policy.toml"`: fstest.MapFS{"polcy.toml": {}},
		"no policy file":             fstest.MapFS{"own.ceder": {}},
		"no regular file":            fstest.MapFS{"own.cedar/x": {}},
		"linked.cedar: no regular":   fstest.MapFS{"linked.cedar": {Mode: fs.ModeSymlink}},
		"read the policy folder":     os.DirFS(filepath.Join(t.TempDir(), "absent")),
	} {
		if s, err := Load(dir, testDescs(t)); s != nil || err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %s", err, want)
		}
	}
	for _, name := range []string{"x", "limits.toml", "../own.cedar", "a\nb.cedar", ".cedar"} {
		if s, err := Compile(Files{name: nil}, testDescs(t)); s != nil || err == nil {
			t.Errorf("file %q was taken", name)
		}
	}
	if f, err := Read(fstest.MapFS{}); err != nil || len(f) != 0 {
		t.Errorf("empty folder: %v %v", f, err)
	}
}
