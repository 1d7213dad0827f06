// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"errors"
	"slices"
	"strings"

	"github.com/cedar-policy/cedar-go/types"
	"github.com/cedar-policy/cedar-go/x/exp/ast"

	"github.com/doorward/doorward/internal/describe"
	"github.com/doorward/doorward/internal/wire"
)

// lint finds misspelt names in a person's policy that the validator takes: to it `context.arguments has rpo` and
// `context.class == "wrte"` are merely false, and a forbid that is never true is a forbid that is missing. It also
// says of the others what was meant, which the validator does not.
type lint struct {
	descs  []*describe.Connector
	file   string
	text   string // of the file
	offset int    // where the policy begins in it
	facts  []string
	scope  []*describe.Method // methods that the policy's scope takes in
	// requests: requests are in its scope, whose methods and connectors are open.
	requests bool
	faults   []error
}

func (s *Set) lint(file string, text []byte, r *rule) error {
	l := &lint{descs: s.descs, file: file, text: string(text), offset: r.policy.Position().Offset}
	for _, f := range facts() {
		l.facts = append(l.facts, f.name)
	}
	l.facts = append(l.facts, factArguments, factApproved)
	l.requests = r.appliesSite(actionRequest)
	switch {
	case l.requests:
		for _, f := range requestFacts() {
			l.facts = append(l.facts, f.name)
		}
	case r.appliesSite(actionConnect):
		for _, f := range connectFacts() {
			l.facts = append(l.facts, f.name)
		}
	}
	for _, c := range s.descs {
		for i := range c.Methods {
			if r.applies(c.Vendor, c.Methods[i].Name) {
				l.scope = append(l.scope, &c.Methods[i])
			}
		}
	}
	tree := (*ast.Policy)(r.policy.AST())
	l.ofScope(tree.Principal)
	l.ofScope(tree.Action)
	l.ofScope(tree.Resource)
	if len(l.faults) == 0 { // else the scope is not known
		for _, c := range tree.Conditions {
			ast.Inspect(ast.NewNode(c.Body), l.node)
		}
	}
	return errors.Join(l.faults...)
}

// fault is at the first place where what stands in the policy's text, else where the policy begins.
func (l *lint) fault(what, format string, a ...any) {
	at := l.offset
	if i := strings.Index(l.text[at:], what); i >= 0 {
		at += i
	}
	before := l.text[:at]
	p := place{l.file, 1 + strings.Count(before, "\n"), at - strings.LastIndexByte(before, '\n')}
	l.faults = append(l.faults, p.problem(format, a...))
}

func (l *lint) ofScope(n ast.IsScopeNode) {
	switch x := n.(type) {
	case ast.ScopeTypeEq:
		l.entity(x.Entity)
	case ast.ScopeTypeIn:
		l.entity(x.Entity)
	case ast.ScopeTypeInSet:
		for _, e := range x.Entities {
			l.entity(e)
		}
	case ast.ScopeTypeIs:
		l.entityType(x.Type)
	case ast.ScopeTypeIsIn:
		l.entityType(x.Type)
		l.entity(x.Entity)
	}
}

func (l *lint) entityType(t types.EntityType) {
	all := []string{typeCell, typeAccount, typeConnector, typeAction, typeSite, typeSiteSet}
	if !slices.Contains(all, string(t)) {
		l.fault(string(t), "no entity type %s%s", t, meant(string(t), all))
	}
}

func (l *lint) entity(e types.EntityUID) {
	id := string(e.ID)
	switch e.Type {
	case typeAction:
		all := []string{actionConnect, actionRequest}
		for _, c := range l.descs {
			all = append(all, c.Vendor)
			for _, m := range methodNames(c) {
				all = append(all, actionName(c.Vendor, m))
			}
		}
		if !slices.Contains(all, id) {
			l.fault(id, "no action %q%s", id, meant(id, all))
		}
	case typeConnector:
		l.known(id, "connector", l.vendors())
	case typeAccount:
		vendor, name, ok := strings.Cut(id, "/")
		if !ok || name == "" {
			l.fault(id, "an account is Account::\"connector/name\"")
			return
		}
		l.known(vendor, "connector", l.vendors())
	case typeSite:
		if t, err := ParseSite(id); err != nil || t.String() != id {
			l.fault(id, "a site is Site::\"example.org:443\", in lower case and with its port")
		}
	case typeSiteSet:
		l.known(id, "set of sites", setNames())
	default:
		l.entityType(e.Type)
	}
}

func (l *lint) vendors() []string { return (&form{descs: l.descs}).vendors() }

func (l *lint) known(got, what string, all []string) {
	if !slices.Contains(all, got) {
		l.fault(got, "no %s %q%s", what, got, meant(got, all))
	}
}

func (l *lint) node(n ast.IsNode) bool {
	switch x := n.(type) {
	case ast.NodeValue:
		if e, ok := x.Value.(types.EntityUID); ok {
			l.entity(e)
		}
	case ast.NodeTypeAccess:
		l.name(x.StrOpNode)
	case ast.NodeTypeHas:
		l.name(x.StrOpNode)
	case ast.NodeTypeEquals:
		l.compared(x.Left, x.Right)
	case ast.NodeTypeNotEquals:
		l.compared(x.Left, x.Right)
	case ast.NodeTypeContains:
		l.compared(x.Left, x.Right)
	case ast.NodeTypeContainsAny:
		l.compared(x.Left, x.Right)
	case ast.NodeTypeContainsAll:
		l.compared(x.Left, x.Right)
	case ast.NodeTypeLike:
		if l.lowered(x.Arg) {
			l.lower(strings.Trim(string(x.Value.MarshalCedar()), `"`))
		}
	case ast.NodeTypeIs:
		l.entityType(x.EntityType)
	case ast.NodeTypeIsIn:
		l.entityType(x.EntityType)
	}
	return true
}

// name checks context.x and context.arguments.x, read or asked for with has.
func (l *lint) name(n ast.StrOpNode) {
	got := string(n.Value)
	if isContext(n.Arg) {
		l.known(got, "fact", l.facts)
		return
	}
	if !isArguments(n.Arg) {
		return
	}
	var all []string
	for _, m := range l.scope {
		for i := range m.Args {
			all = append(all, m.Args[i].Name)
		}
	}
	slices.Sort(all)
	all = slices.Compact(all)
	if !slices.Contains(all, got) {
		l.fault(got, "no argument %q of what it is about%s", got, meant(got, all))
	}
}

func isArguments(n ast.IsNode) bool {
	a, ok := n.(ast.NodeTypeAccess)
	return ok && a.Value == factArguments && isContext(a.Arg)
}

// compared checks the text that a fact of few values is compared to.
func (l *lint) compared(x, y ast.IsNode) {
	for _, p := range [][2]ast.IsNode{{x, y}, {y, x}} {
		a, ok := p[0].(ast.NodeTypeAccess)
		if !ok {
			continue
		}
		if l.lowered(a) {
			for _, v := range literals(p[1]) {
				l.lower(v)
			}
		}
		var what string
		var all []string
		switch {
		case isContext(a.Arg):
			what, all = string(a.Value), l.choices(string(a.Value))
		case isArguments(a.Arg):
			what, all = "value of "+string(a.Value), l.enum(string(a.Value))
		}
		if all == nil {
			continue
		}
		for _, v := range literals(p[1]) {
			l.known(v, what, all)
		}
	}
}

// lowered says whether a fact's text is always in lower case.
func (l *lint) lowered(n ast.IsNode) bool {
	a, ok := n.(ast.NodeTypeAccess)
	switch {
	case !ok:
		return false
	case isContext(a.Arg):
		return slices.Contains([]string{"recipients", "recipientDomains", "firstTime", "name"}, string(a.Value))
	case isArguments(a.Arg):
		return slices.ContainsFunc(l.scope, func(m *describe.Method) bool {
			arg, ok := m.Arg(string(a.Value))
			return ok && (arg.Type == describe.TypeRepo || arg.Type == describe.TypeEmail)
		})
	}
	return false
}

func (l *lint) lower(v string) {
	if low := strings.ToLower(v); low != v {
		l.fault(v, "%q is never met: repositories, addresses and domains are in lower case here; write %q", v, low)
	}
}

// choices are the values a fact can have, nil where they are open.
func (l *lint) choices(fact string) []string {
	switch fact {
	case "class":
		return []string{describe.Read, describe.Write, describe.Destructive}
	case "reach":
		return []string{describe.ReachNone, describe.ReachPeople, describe.ReachSpace, describe.ReachPublic}
	case "weekday":
		return []string{"monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday"}
	case "connector":
		if l.requests { // or the name of a surrogate
			return nil
		}
		return append(l.vendors(), SiteConnector)
	case "begins":
		return []string{wire.BeginsTLS, wire.BeginsHTTP, wire.BeginsOther}
	case "method":
		if l.requests {
			return nil
		}
		all := []string{SiteMethod}
		for _, m := range l.scope {
			all = append(all, m.Name)
		}
		return all
	default:
		return nil
	}
}

// enum is every value that an argument can have, nil where one of that name is open.
func (l *lint) enum(name string) []string {
	var all []string
	for _, m := range l.scope {
		if a, ok := m.Arg(name); ok {
			if a.Type != describe.TypeEnum {
				return nil
			}
			all = append(all, a.Enum...)
		}
	}
	return all
}

// literals are the texts of a literal, or of a set of them.
func literals(n ast.IsNode) []string {
	switch x := n.(type) {
	case ast.NodeValue:
		switch v := x.Value.(type) {
		case types.String:
			return []string{string(v)}
		case types.Set:
			var out []string
			for e := range v.All() {
				if s, ok := e.(types.String); ok {
					out = append(out, string(s))
				}
			}
			return out
		}
	case ast.NodeTypeSet:
		var out []string
		for _, e := range x.Elements {
			out = append(out, literals(e)...)
		}
		return out
	}
	return nil
}
