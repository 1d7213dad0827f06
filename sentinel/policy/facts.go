// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/cedar-policy/cedar-go"
	"github.com/cedar-policy/cedar-go/types"

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
	Now       time.Time
	Reads     int64 // reads of this connector in this session so far, without this one
	ReadBytes int64 // bytes of their answers
}

func (c *Call) reach() string {
	if c.Reach == "" {
		return c.Method.Reach
	}
	return c.Reach
}

func (c *Call) sensitive() bool { return c.Sensitive || c.Method.SensitiveAt(c.reach()) }

func (c *Call) label(l string) bool { return slices.Contains(c.Labels, l) }

func (c *Call) untrusted() bool { return c.label(wire.LabelUntrusted) }

// recipients are the values of every argument that names one.
func (c *Call) recipients() []string {
	var out []string
	for i := range c.Method.Args {
		if a := &c.Method.Args[i]; a.Role == "recipient" {
			out = append(out, c.Values[a.Name]...)
		}
	}
	return out
}

// facts is the context that policies see. approved is false, then true where the first evaluation asks.
func (s *Set) facts(c *Call) types.RecordMap {
	recipients := c.recipients()
	domains := make([]types.Value, 0, len(recipients))
	outside := false
	for _, r := range recipients {
		_, d, ok := strings.Cut(r, "@")
		d = strings.ToLower(d)
		if ok {
			domains = append(domains, types.String(d))
		}
		outside = outside || !slices.Contains(s.settings.organisation, d)
	}
	return types.RecordMap{
		"account":             types.String(c.Account),
		"arguments":           arguments(c),
		"attended":            types.Boolean(c.Attended),
		"bulk":                types.Boolean(s.bulk(c)),
		"by":                  types.String(c.By),
		"cell":                types.String(c.Cell),
		"class":               types.String(c.Method.Class),
		"connector":           types.String(c.Connector.Vendor),
		"firstTime":           texts(c.FirstTime),
		"hour":                types.Long(c.Now.Hour()),
		"method":              types.String(c.Method.Name),
		"outsideOrganisation": types.Boolean(outside),
		"private":             types.Boolean(c.label(wire.LabelPrivate)),
		"reach":               types.String(c.reach()),
		"readBytes":           types.Long(c.ReadBytes),
		"reads":               types.Long(c.Reads),
		"recipientDomains":    types.NewSet(domains...),
		"recipients":          texts(recipients),
		"sensitive":           types.Boolean(c.sensitive()),
		"session":             types.String(c.Session),
		"time":                cedar.NewDatetime(c.Now),
		"untrusted":           types.Boolean(c.untrusted()),
		"weekday":             types.String(strings.ToLower(c.Now.Weekday().String())),
	}
}

// bulk says whether a read comes after more of them than go unasked.
func (s *Set) bulk(c *Call) bool {
	return c.Method.Class == describe.Read && (c.Reads >= s.ceiling.BulkReads || c.ReadBytes >= s.ceiling.BulkBytes)
}

func arguments(c *Call) types.Record {
	m := make(types.RecordMap, len(c.Method.Args))
	for i := range c.Method.Args {
		a := &c.Method.Args[i]
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

// typed is one canonical value as Cedar has it. Text that is no number where one is declared stays text: then what
// reads it fails, and the call is denied.
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
	}
	return types.String(v)
}

func texts(in []string) types.Set {
	out := make([]types.Value, len(in))
	for i := range in {
		out[i] = types.String(in[i])
	}
	return types.NewSet(out...)
}
