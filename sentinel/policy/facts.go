// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/cedar-policy/cedar-go"
	"github.com/cedar-policy/cedar-go/types"
	"github.com/cedar-policy/cedar-go/x/exp/ast"

	"github.com/doorward/doorward/internal/describe"
	"github.com/doorward/doorward/internal/wire"
)

// Call is what a decision is about. Everything in it comes from the kernel, the description, the decoded frame or
// sentinel's own state; nothing is what a caller says of itself.
type Call struct {
	Connector *describe.Connector
	Method    *describe.Method
	Values    describe.Values
	Account   string   // its name
	Reach     string   // as Set.Reach has it; empty: the method's worst case
	Sensitive bool     // as Set.Reach has it; never taken to be less than Reach makes it
	Cell      string   // as the kernel named it
	Session   string   // as the kernel named it
	Attended  bool     // every live session of the cell was started from a person's terminal
	By        string   // the unit that started the run, where it is unattended
	Labels    []string // of the caller; where they are not known, pass both
	FirstTime []string // recipients never written to before
	// Recipients are all that the call reaches, a prepared body's included; empty: those that arguments name.
	Recipients []string
	Now        time.Time
	Reads      int64 // reads of this connector in this session so far, without this one
	ReadBytes  int64 // bytes of their answers

	site *site // of a connection, see Set.ConnectCall
}

func (c *Call) reach() string {
	if c.Reach == "" {
		return c.Method.Reach
	}
	return c.Reach
}

func (c *Call) sensitive() bool { return c.Sensitive || c.Method.SensitiveAt(c.reach()) }

// label says whether the caller carries a label. One that is not known counts as every one.
func (c *Call) label(l string) bool {
	return slices.ContainsFunc(c.Labels, func(x string) bool {
		return x == l || x != wire.LabelUntrusted && x != wire.LabelPrivate
	})
}

func (c *Call) untrusted() bool { return c.label(wire.LabelUntrusted) }

// recipients are the values of every argument that names one.
func (c *Call) recipients() []string {
	if c.Recipients != nil {
		return c.Recipients
	}
	var out []string
	for i := range c.Method.Args {
		if a := &c.Method.Args[i]; a.Role == "recipient" {
			out = append(out, c.Values[a.Name]...)
		}
	}
	return out
}

// fact is one attribute of the context that policies see: its name and type in the schema, and how it comes about.
type fact struct {
	name, typ string
	of        func(*Set, *Call) types.Value
}

// facts lists the context but for two: arguments, whose type is the method's, and approved.
func facts() []fact {
	text := func(of func(*Call) string) func(*Set, *Call) types.Value {
		return func(_ *Set, c *Call) types.Value { return types.String(of(c)) }
	}
	yes := func(of func(*Call) bool) func(*Set, *Call) types.Value {
		return func(_ *Set, c *Call) types.Value { return types.Boolean(of(c)) }
	}
	number := func(of func(*Call) int64) func(*Set, *Call) types.Value {
		return func(_ *Set, c *Call) types.Value { return types.Long(of(c)) }
	}
	set := func(of func(*Call) []string) func(*Set, *Call) types.Value {
		return func(_ *Set, c *Call) types.Value { return texts(of(c)) }
	}
	return []fact{
		{"account", "String", text(func(c *Call) string { return c.Account })},
		{"attended", "Bool", yes(func(c *Call) bool { return c.Attended })},
		{"bulk", "Bool", func(s *Set, c *Call) types.Value { return types.Boolean(s.bulk(c)) }},
		{"by", "String", text(func(c *Call) string { return c.By })},
		{"cell", "String", text(func(c *Call) string { return c.Cell })},
		{"class", "String", text(func(c *Call) string { return c.Method.Class })},
		{"connector", "String", text(func(c *Call) string { return c.Connector.Vendor })},
		{"firstTime", "Set<String>", set(func(c *Call) []string { return c.FirstTime })},
		{"hour", "Long", number(func(c *Call) int64 { return int64(c.Now.Hour()) })},
		{"method", "String", text(func(c *Call) string {
			if c.site != nil && c.site.request != nil {
				return c.site.request.Method
			}
			return c.Method.Name
		})},
		{"outsideOrganisation", "Bool", func(s *Set, c *Call) types.Value { return types.Boolean(s.outside(c)) }},
		{"private", "Bool", yes(func(c *Call) bool { return c.label(wire.LabelPrivate) })},
		{"reach", "String", text((*Call).reach)},
		{"readBytes", "Long", number(func(c *Call) int64 { return c.ReadBytes })},
		{"reads", "Long", number(func(c *Call) int64 { return c.Reads })},
		{"recipientDomains", "Set<String>", set((*Call).domains)},
		{"recipients", "Set<String>", set((*Call).recipients)},
		{"sensitive", "Bool", yes((*Call).sensitive)},
		{"session", "String", text(func(c *Call) string { return c.Session })},
		{"time", "datetime", func(_ *Set, c *Call) types.Value { return cedar.NewDatetime(c.Now) }},
		{"untrusted", "Bool", yes((*Call).untrusted)},
		{"weekday", "String", text(func(c *Call) string { return strings.ToLower(c.Now.Weekday().String()) })},
	}
}

const (
	factArguments = "arguments"
	factApproved  = "approved"
)

// needs is what the policies of a slice look at.
type needs struct {
	facts     map[string]bool
	arguments map[string]bool
	all       bool // the arguments as a whole
}

// of adds what a policy looks at. No policy takes the context as a whole: approvalForm has refused it.
func (n *needs) of(p *ast.Policy) {
	see := func(x ast.StrOpNode) bool {
		switch name := string(x.Value); {
		case isArguments(x.Arg):
			n.arguments[name] = true
		case isContext(x.Arg):
			n.facts[name] = true
			n.all = n.all || name == factArguments
		default:
			return true
		}
		return false
	}
	for _, c := range p.Conditions {
		ast.Inspect(ast.NewNode(c.Body), func(node ast.IsNode) bool {
			switch x := node.(type) {
			case ast.NodeTypeAccess:
				return see(x.StrOpNode)
			case ast.NodeTypeHas:
				return see(x.StrOpNode)
			}
			return true
		})
	}
}

// context makes the facts that the slice's policies look at, without approved: the more there are, the longer a
// decision takes.
func (s *Set) context(ms *methodSlice, c *Call) types.RecordMap {
	m := make(types.RecordMap, len(ms.facts)+2)
	for i := range ms.facts {
		m[types.String(ms.facts[i].name)] = ms.facts[i].of(s, c)
	}
	if ms.arguments != nil {
		m[factArguments] = arguments(c, ms.arguments)
	}
	return m
}

// domains are those of the recipients that are addresses.
func (c *Call) domains() []string {
	var out []string
	for _, r := range c.recipients() {
		if _, d, ok := strings.Cut(r, "@"); ok {
			out = append(out, d)
		}
	}
	return out
}

// outside says whether a recipient is not known to be of the organisation.
func (s *Set) outside(c *Call) bool {
	return slices.ContainsFunc(c.recipients(), func(r string) bool {
		_, d, _ := strings.Cut(r, "@")
		return !slices.Contains(s.settings.organisation, strings.ToLower(d))
	})
}

// bulk says whether a read comes after more of them than go unasked.
func (s *Set) bulk(c *Call) bool {
	return c.site == nil && c.Method.Class == describe.Read && (c.Reads >= s.ceiling.BulkReads || c.ReadBytes >= s.ceiling.BulkBytes)
}

// arguments is the record of a call's arguments, of those in list.
func arguments(c *Call, list []*describe.Arg) types.Record {
	m := make(types.RecordMap, len(list))
	for _, a := range list {
		v := c.Values[a.Name]
		switch {
		case a.Repeat > 1:
			all := make([]types.Value, len(v))
			for j := range v {
				all[j] = typed(a, v[j])
			}
			m[types.String(a.Name)] = types.NewSet(all...)
		case len(v) > 0:
			m[types.String(a.Name)] = typed(a, v[0])
		}
	}
	return types.NewRecord(m)
}

// typed is one canonical value as Cedar has it. Repositories and addresses are in lower case, or a rule about
// acme/secret could be walked round as Acme/Secret, which is the same to the vendor. Text that is no number where one
// is declared stays text: then what reads it fails, and the call is denied.
func typed(a *describe.Arg, v string) types.Value {
	switch a.Type {
	case describe.TypeInt:
		if n, err := strconv.ParseInt(v, 10, 64); err == nil {
			return types.Long(n)
		}
	case describe.TypeBool:
		if v == "true" || v == "false" {
			return types.Boolean(v == "true")
		}
	case describe.TypeRepo, describe.TypeEmail:
		return types.String(strings.ToLower(v))
	}
	return types.String(v)
}

// texts is a set of addresses, logins or domains, in lower case as in typed.
func texts(in []string) types.Set {
	out := make([]types.Value, len(in))
	for i := range in {
		out[i] = types.String(strings.ToLower(in[i]))
	}
	return types.NewSet(out...)
}
