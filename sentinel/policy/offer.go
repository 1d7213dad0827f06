// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/doorward/doorward/internal/describe"
	"github.com/doorward/doorward/internal/wire"
)

const (
	maxGrantCount = 1 << 20
	maxLimitParts = 100 // values of one limit
)

// Prefill is the narrowest grant that covers the like of a call, for its card: this session, every grant field held
// to the call's own values, but for what a call says that nobody but the owner sees, and what of a read is no place. It is
// false where calls of this kind cannot be granted ahead.
func (s *Set) Prefill(c *Call) (wire.Grant, bool) {
	g := wire.Grant{Connector: c.Connector.Vendor, Method: c.Method.Name, Account: c.Account, Cell: c.Cell,
		Session: c.Session, Kind: Session}
	for _, name := range c.Method.Grant {
		l := wire.Limit{Field: name}
		a, _ := c.Method.Arg(name)
		if n := c.Values.Int(name); a.Role == "amount" && a.Type == describe.TypeInt && n > 0 {
			l.Max = n
		} else {
			for _, v := range c.Values[name] {
				l.Values = append(l.Values, limitValue(a, v))
			}
			l.All = all(a) && len(l.Values) > 0
		}
		l.Held = c.sensitive() && mustLimit(a)
		if !c.sensitive() && (a.Role == "content" || c.Method.Class == describe.Read && !s.place(c, a)) {
			l = wire.Limit{Field: name, Any: true} // nobody else sees what it says
		}
		g.Limits = append(g.Limits, l)
	}
	if s.bulk(c) {
		g.Count = max(1, s.ceiling.BulkReads)
	}
	g.Sentence = Sentence(&g, c.Method)
	return g, c.Cell != "" && c.Session != "" && (!c.sensitive() || open(&g, c.Connector, c.Method) == "")
}

// place says whether an argument of a read says where it reads: of many at once the repository or the folder, else all that has to be
// named but times.
func (s *Set) place(c *Call, a *describe.Arg) bool {
	return a.Type == describe.TypeRepo || a.Type == describe.TypeFolder || !s.bulk(c) && a.Required && !isTime(a)
}

// Validate holds a grant that a person asks for to the ceilings, for the sensitivity of the call on whose card it
// stands, and returns it as it is to be kept: values in canonical form, limits in their order, made at now, with its
// sentence. The error says what to change.
func (s *Set) Validate(g wire.Grant, sensitive bool, now time.Time) (wire.Grant, error) {
	fail := func(format string, a ...any) (wire.Grant, error) {
		return wire.Grant{}, fmt.Errorf("grant: "+format, a...)
	}
	f := form{descs: s.descs}
	c := f.connector(g.Connector)
	if c == nil {
		return fail("no connector %q is installed%s", g.Connector, meant(g.Connector, f.vendors()))
	}
	m, ok := c.Method(g.Method)
	if !ok || s.Off(c.Vendor, g.Method) {
		return fail("%s has no method %q, or it is off", c.Vendor, g.Method)
	}
	switch {
	case !nameOK(g.Account):
		return fail("account %q", g.Account)
	case !nameOK(g.Cell):
		return fail("cell %q", g.Cell)
	case g.Count < 0 || g.Count > maxGrantCount:
		return fail("a count from 0, which is no limit, to %d", maxGrantCount)
	case g.Used != 0 || g.LastUse != 0 || g.Revoked != 0:
		return fail("a new one has not been used or revoked")
	case sensitive && g.Tainted:
		return fail("for sensitive calls there is none that holds after it has read what others wrote")
	}
	if err := s.validTime(&g, sensitive, now); err != nil {
		return fail("%w", err)
	}
	limits, err := canonLimits(g.Limits, m)
	if err != nil {
		return fail("%w", err)
	}
	g.Limits = limits
	if sensitive {
		if why := open(&g, c, m); why != "" {
			return fail("%s", why)
		}
	}
	g.Made = now.Unix()
	g.Sentence = Sentence(&g, m)
	return g, nil
}

// ValidateSite is Validate for a grant of a site. One that also holds after the cell has read what others wrote is held to
// what grants of sensitive calls are: what is sent there then, strangers may have worded.
func (s *Set) ValidateSite(g wire.Grant, now time.Time) (wire.Grant, error) {
	fail := func(format string, a ...any) (wire.Grant, error) {
		return wire.Grant{}, fmt.Errorf("grant: "+format, a...)
	}
	t, err := ParseSite(g.Account)
	switch {
	case g.Connector != SiteConnector || g.Method != SiteMethod:
		return fail("%s %s is no connection to a site", g.Connector, g.Method)
	case err != nil:
		return fail("%w", err)
	case t.String() != g.Account:
		return fail("site %q is written %s", clipped(g.Account), t)
	case !nameOK(g.Cell):
		return fail("cell %q", g.Cell)
	case g.Kind == Once:
		return fail("programs open more than one connection; take session, until or standing")
	case grantBegins(&g) == "":
		return fail("of a site there is one limit, which is with what a connection begins, and it stays as it is on the card")
	case g.Count != 0:
		return fail("connections are not counted")
	case g.Used != 0 || g.LastUse != 0 || g.Revoked != 0:
		return fail("a new one has not been used or revoked")
	}
	if err := s.validTime(&g, g.Tainted, now); err != nil {
		return fail("%w", err)
	}
	g.Made = now.Unix()
	g.Sentence = Sentence(&g, nil)
	return g, nil
}

// grantBegins is with what the connections begin that a grant of a site is for; empty where it does not say.
func grantBegins(g *wire.Grant) string {
	if len(g.Limits) != 1 || g.Limits[0].Field != factBegins || len(g.Limits[0].Values) != 1 || g.Limits[0].Max != 0 {
		return ""
	}
	switch b := g.Limits[0].Values[0]; b {
	case wire.BeginsTLS, wire.BeginsHTTP, wire.BeginsOther:
		return b
	}
	return ""
}

func (s *Set) validTime(g *wire.Grant, sensitive bool, now time.Time) error {
	switch g.Kind {
	case Once, Session:
		if g.Until != 0 {
			return fmt.Errorf("kind %s has no end time", g.Kind)
		}
		if g.Kind == Session && !nameOK(g.Session) {
			return fmt.Errorf("session %q", g.Session)
		}
	case Until, Standing:
		most := s.longest(g.Kind, sensitive)
		switch {
		case most == 0:
			return fmt.Errorf("no %s one may be made for such calls; take once or session", g.Kind)
		case g.Until <= now.Unix():
			return fmt.Errorf("its end %s is over", when(g.Until))
		case g.Until-now.Unix() > int64(most/time.Second):
			return fmt.Errorf("at most %d days for such calls", most/day)
		}
	default:
		return fmt.Errorf("kind %q is none there is%s", g.Kind, meant(g.Kind, []string{Once, Session, Until, Standing}))
	}
	if g.Kind != Session {
		g.Session = ""
	}
	return nil
}

// canonLimits checks limits against a method's grant fields and returns them in the order of those.
func canonLimits(in []wire.Limit, m *describe.Method) ([]wire.Limit, error) {
	var out []wire.Limit
	for _, l := range in {
		a, ok := m.Arg(l.Field)
		if !ok || !slices.Contains(m.Grant, l.Field) {
			return nil, fmt.Errorf("%s has no grant field %q%s", m.Name, l.Field, meant(l.Field, m.Grant))
		}
		switch {
		case slices.ContainsFunc(out, func(o wire.Limit) bool { return o.Field == l.Field }):
			return nil, fmt.Errorf("%s is limited twice", l.Field)
		case l.Max != 0 && (a.Type != describe.TypeInt || l.Max < 0 || len(l.Values) > 0):
			return nil, fmt.Errorf("%s: a bound is a number above 0, for a number, without values", l.Field)
		case l.Any && (l.Max != 0 || len(l.Values) > 0):
			return nil, fmt.Errorf("%s is limited and left open at once", l.Field)
		case len(l.Values) > maxLimitParts:
			return nil, fmt.Errorf("%s: more than %d values", l.Field, maxLimitParts)
		}
		n := wire.Limit{Field: l.Field, Max: l.Max, Any: l.Any, All: all(a) && len(l.Values) > 0}
		for _, v := range l.Values {
			if a.Type != describe.TypeFile && !isDigest(a, v) {
				var err error
				if v, err = a.Canon(v); err != nil {
					return nil, err
				}
				v = limitValue(a, v)
			}
			n.Values = append(n.Values, v)
		}
		out = append(out, n)
	}
	slices.SortFunc(out, func(x, y wire.Limit) int {
		return slices.Index(m.Grant, x.Field) - slices.Index(m.Grant, y.Field)
	})
	return out, nil
}

// nameOK takes the names of accounts, cells and sessions: one short line that can stand in a sentence.
func nameOK(s string) bool {
	return s != "" && len(s) <= 64 &&
		strings.Trim(s, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-@+") == ""
}
