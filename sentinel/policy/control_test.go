// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"sync"
	"testing"

	"github.com/cedar-policy/cedar-go"
	"github.com/cedar-policy/cedar-go/types"
	"github.com/cedar-policy/cedar-go/x/exp/ast"
)

// TestTypoWeakens: a misspelt name in a forbid is refused by lint. Control: the validator alone takes it, and then the
// forbid is one that never matches.
func TestTypoWeakens(t *testing.T) {
	const good = `forbid (principal, action, resource) when { context["class"] == "write" };`
	for _, typo := range []string{
		`forbid (principal, action, resource) when { context["class"] == "wrte" };`,
		`forbid (principal, action, resource) when { context.arguments has nmae };`,
		`forbid (principal, action, resource in Connector::"githb");`,
	} {
		if _, err := compileTest(t, dontAsk, "own.cedar", typo); err == nil {
			t.Errorf("taken: %s", typo)
		}
		s := mustSet(t, dontAsk)
		rs, err := readCedar("own.cedar", []byte(typo), true)
		if err != nil {
			t.Fatal(err)
		}
		v, err := newValidator(s.schema)
		if err != nil {
			t.Fatal(err)
		}
		if err := v.policy((*ast.Policy)(rs[0].policy.AST())); err != nil {
			t.Errorf("control: the validator finds it by itself: %s", err)
		}
		s.rules = append(s.rules, rs...)
		number(s.rules)
		s.cut()
		if d := s.Decide(callOf(t, s, "github", "repo-create", values("name=x")), nil); d.Verdict != Allow {
			t.Errorf("control: %s does no harm: %+v", typo, d)
		}
	}
	s := mustSet(t, dontAsk, "own.cedar", good)
	if d := s.Decide(callOf(t, s, "github", "repo-create", values("name=x")), nil); d.Verdict != Deny {
		t.Errorf("spelt right: %+v", d)
	}
}

// TestAnotherCase: a rule about a repository holds for every case of its name. Control: compared as the caller wrote
// it, the rule does not match.
func TestAnotherCase(t *testing.T) {
	s := mustSet(t, dontAsk, "own.cedar", secret)
	c := callOf(t, s, "github", "issues", values("repo=Acme/Secret-plan"))
	if d := s.Decide(c, nil); d.Verdict != Deny {
		t.Errorf("%+v", d)
	}
	own := s.rules[len(s.rules)-1]
	permit, err := readCedar("x", []byte(`permit (principal, action, resource);`), false)
	if err != nil {
		t.Fatal(err)
	}
	with := slice{own.sliced(), permit[0].sliced()}
	number([]*rule{own, permit[0]})
	run := func(repo string) bool {
		yes, _ := cedar.Authorize(with, types.EntityMap{}, cedar.Request{
			Principal: cedar.NewEntityUID("Cell", "dev"), Action: cedar.NewEntityUID("Action", "github.issues"),
			Resource: cedar.NewEntityUID("Account", "github/home"),
			Context: types.NewRecord(types.RecordMap{"arguments": types.NewRecord(types.RecordMap{
				"repo": types.String(repo)})}),
		})
		return bool(yes)
	}
	if run("acme/secret-plan") || !run("Acme/Secret-plan") {
		t.Error("control: the rule matches as the caller wrote it")
	}
}

// TestConcurrent: a set decides for many at once.
func TestConcurrent(t *testing.T) {
	s := mustSet(t, methods, "own.cedar", night)
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for range 50 {
				c := callOf(t, s, "github", "issue-create", values("repo=a/b title=x"))
				if d := s.Decide(c, nil); d.Verdict != Ask {
					t.Errorf("%+v", d)
				}
			}
		})
	}
	wg.Wait()
}
