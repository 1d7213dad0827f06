// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"fmt"
	"iter"
	"slices"
	"strconv"
	"strings"

	"github.com/cedar-policy/cedar-go"
	publicast "github.com/cedar-policy/cedar-go/ast"
	"github.com/cedar-policy/cedar-go/types"
	"github.com/cedar-policy/cedar-go/x/exp/ast"

	"github.com/doorward/doorward/internal/wire"
)

// rule is one Cedar policy of a set and what a person needs to know of it.
type rule struct {
	key    cedar.PolicyID // its number in the set
	policy *cedar.Policy
	id     string // "policy.toml:12", "team.cedar:3", "base.cedar:8"
	says   string // in words: `github issue-create = "ask"`, or the policy's @reason
	ask    bool   // @decision("ask")
	code   wire.Code
	own    bool // from a person's .cedar file
}

func (r *rule) String() string { return r.id + " " + r.says }

func (r *rule) forbid() bool { return r.policy.Effect() == cedar.Forbid }

// slice is the policies that can match one action. It is what Cedar iterates over.
type slice []sliced

// sliced is a rule whose scope has been found to take in the slice's action. policy is the rule's without that part
// of its scope, which would be the dearest part to evaluate.
type sliced struct {
	*rule
	policy *cedar.Policy
}

func (r *rule) sliced() sliced {
	tree := *(*ast.Policy)(r.policy.AST())
	tree.Action = ast.ScopeTypeAll{}
	return sliced{r, cedar.NewPolicyFromAST((*publicast.Policy)(&tree))}
}

// All makes a slice a cedar.PolicyIterator.
func (s slice) All() iter.Seq2[cedar.PolicyID, *cedar.Policy] {
	return func(yield func(cedar.PolicyID, *cedar.Policy) bool) {
		for i := range s {
			if !yield(s[i].key, s[i].policy) {
				return
			}
		}
	}
}

func (s slice) find(key cedar.PolicyID) *rule {
	for i := range s {
		if s[i].key == key {
			return s[i].rule
		}
	}
	return nil
}

// readCedar reads the policies of a file. Those of a person (own) may carry the annotations id, decision and reason;
// base policies also code. What asks must be forbid … unless { context.approved }, and approval may be looked at
// nowhere else: otherwise an approved call could be one that no policy was ever asked about.
func readCedar(file string, text []byte, own bool) ([]*rule, error) {
	if err := shallow(file, text); err != nil {
		return nil, err
	}
	list, err := cedar.NewPolicyListFromBytes(file, text)
	if err != nil {
		return nil, syntax(file, err)
	}
	var out []*rule
	for i, p := range list {
		r := &rule{policy: p, own: own, code: wire.CodeNotAllowed}
		pos := p.Position()
		at := place{file, pos.Line, pos.Column}
		r.id = mark{place: at}.id()
		tree := (*ast.Policy)(p.AST())
		for _, a := range tree.Annotations {
			switch v := string(a.Value); {
			case a.Key == "id" && own:
				r.says = cmpOr(r.says, v)
			case a.Key == "id":
				r.id = v
			case a.Key == "reason":
				r.says = v
			case a.Key == "decision" && v == "ask" && r.forbid():
				r.ask = true
			case a.Key == "decision":
				return nil, at.problem("@decision(%q): there is @decision(\"ask\"), on a forbid", v)
			case a.Key == "code" && !own:
				r.code = wire.Code(v)
			default:
				return nil, at.problem("unknown annotation @%s%s", a.Key, meant(string(a.Key),
					[]string{"id", "decision", "reason"}))
			}
		}
		if r.says == "" {
			r.says = fmt.Sprintf("%s %d of %s", effectWord(r), i+1, file)
		}
		if r.ask && r.code == wire.CodeNotAllowed {
			r.code = wire.CodeNeedsApproval
		}
		if err := approvalForm(at, tree, r.ask); err != nil {
			return nil, err
		}
		out = append(out, r)
	}
	return out, nil
}

// syntax takes the place out of the parser's words, "parse error at <input>:3:7 ...".
func syntax(file string, err error) error {
	const at = "parse error at <input>:"
	p := &Problem{File: file, Text: err.Error()}
	_, rest, ok := strings.Cut(p.Text, at)
	if where, what, cut := strings.Cut(rest, " "); ok && cut {
		line, col, _ := strings.Cut(where, ":")
		p.Line, _ = strconv.Atoi(line)
		p.Col, _ = strconv.Atoi(col)
		p.Text = "not Cedar at " + what
	}
	return p
}

func cmpOr(a, b string) string {
	if a != "" {
		return a
	}
	return b
}

func effectWord(r *rule) string {
	if r.forbid() {
		return "forbid"
	}
	return "permit"
}

// approvalForm holds a policy to the one use of context.approved there is.
func approvalForm(at place, p *ast.Policy, asks bool) error {
	form := 0
	for _, c := range p.Conditions {
		if c.Condition == ast.ConditionUnless && isApproved(c.Body) {
			form++
			continue
		}
		bad := false
		ast.Inspect(ast.NewNode(c.Body), func(n ast.IsNode) bool {
			switch x := n.(type) {
			case ast.NodeTypeAccess:
				if isContext(x.Arg) {
					bad = bad || x.Value == "approved"
					return false
				}
			case ast.NodeTypeHas:
				if isContext(x.Arg) {
					bad = bad || x.Value == "approved"
					return false
				}
			case ast.NodeTypeVariable:
				bad = bad || x.Name == "context" // context as a whole includes approved
			}
			return true
		})
		if bad {
			return at.problem("approval is looked at in one way only: " +
				"@decision(\"ask\") forbid (…) … unless { context.approved }")
		}
	}
	switch {
	case asks && form != 1:
		return at.problem("@decision(\"ask\") needs one clause unless { context.approved }")
	case !asks && form > 0:
		return at.problem("unless { context.approved } needs @decision(\"ask\") on a forbid")
	}
	return nil
}

func isContext(n ast.IsNode) bool {
	v, ok := n.(ast.NodeTypeVariable)
	return ok && v.Name == "context"
}

func isApproved(n ast.IsNode) bool {
	a, ok := n.(ast.NodeTypeAccess)
	return ok && a.Value == "approved" && isContext(a.Arg)
}

// applies says whether a rule's action scope takes in method of vendor. Names that stand for nothing have been
// refused by the validator.
func (r *rule) applies(vendor, method string) bool {
	is := func(e types.EntityUID) bool {
		return e.Type == typeAction && (string(e.ID) == vendor || string(e.ID) == actionName(vendor, method))
	}
	switch a := r.policy.AST().Action.(type) {
	case ast.ScopeTypeEq:
		return a.Entity.Type == typeAction && string(a.Entity.ID) == actionName(vendor, method)
	case ast.ScopeTypeIn:
		return is(a.Entity)
	case ast.ScopeTypeInSet:
		return slices.ContainsFunc(a.Entities, is)
	default:
		return true
	}
}

// number gives the rules of a set their keys.
func number(all []*rule) {
	for i, r := range all {
		r.key = cedar.PolicyID(strconv.Itoa(i))
	}
}
