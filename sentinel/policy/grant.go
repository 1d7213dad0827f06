// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"encoding/hex"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/doorward/doorward/internal/describe"
	"github.com/doorward/doorward/internal/wire"
)

// Kinds of grants.
const (
	Once     = "once"
	Session  = "session"
	Until    = "until"
	Standing = "standing"
)

const day = 24 * time.Hour

// Covers says whether a grant turns ask into allow for a call that the policies ask about, and if not, why, in words
// for a person. It is a pure function: c.Now is the time.
func (s *Set) Covers(g *wire.Grant, c *Call) (bool, string) {
	for _, same := range []struct{ what, has, want string }{
		{"connector", c.Connector.Vendor, g.Connector},
		{"method", c.Method.Name, g.Method},
		{"account", c.Account, g.Account},
		{"cell", c.Cell, g.Cell},
	} {
		if same.want == "" || same.has != same.want {
			return false, fmt.Sprintf("it is for %s %s", same.what, same.want)
		}
	}
	if ok, why := s.live(g, c); !ok {
		return false, why
	}
	switch sensitive := c.sensitive(); {
	case c.untrusted() && sensitive && c.site == nil:
		return false, "the caller has read what others wrote, and no grant covers a sensitive call then"
	case c.untrusted() && !g.Tainted:
		return false, "the caller has read what others wrote, and it is not for that"
	case s.bulk(c) && g.Count == 0:
		return false, "it does not say how many reads it is for"
	case sensitive && g.Kind == Standing:
		return false, "it is a standing one, and none covers a sensitive call"
	case sensitive && c.site == nil:
		if missing := open(g, c.Connector, c.Method); missing != "" {
			return false, missing
		}
	}
	if c.site != nil && c.site.request != nil {
		why := requestLimits(g, c.site.request)
		return why == "", why
	}
	if c.site != nil {
		if begins := grantBegins(g); begins == "" || begins != c.site.begins {
			return false, "it is for connections that begin otherwise"
		}
		return true, ""
	}
	for i := range g.Limits {
		if why := fits(&g.Limits[i], c); why != "" {
			return false, why
		}
	}
	return true, ""
}

// live says whether a grant still holds: not revoked, not used up, in its session or time, and not made for longer
// than the limits allow now.
func (s *Set) live(g *wire.Grant, c *Call) (bool, string) {
	now := c.Now.Unix()
	most := int64(s.longest(g.Kind, c.sensitive()) / time.Second)
	switch {
	case g.Revoked != 0:
		return false, "it was revoked"
	case g.Count < 0 || g.Used < 0:
		return false, "its count is no count"
	case g.Count > 0 && g.Used >= g.Count:
		return false, fmt.Sprintf("its %d calls are used up", g.Count)
	case g.Made > now:
		return false, "it was made at a time that has not come"
	}
	switch g.Kind {
	case Once, Session:
		switch {
		case g.Kind == Once && g.Used > 0:
			return false, "it was for once, and was used"
		case g.Kind == Session && (g.Session == "" || g.Session != c.Session):
			return false, "it was for session " + g.Session
		case g.Until != 0 && g.Until <= now, g.Made <= now-most:
			return false, "its time is over"
		}
	case Until, Standing:
		switch {
		case g.Until <= now:
			return false, "its time is over"
		case g.Made <= 0 || g.Until-g.Made > most:
			return false, "it is longer than the limits allow for such a call"
		}
	default:
		return false, fmt.Sprintf("its kind %q is none there is", g.Kind)
	}
	return true, ""
}

// longest is how long a grant of a kind may be; 0 where there may be none.
func (s *Set) longest(kind string, sensitive bool) time.Duration {
	switch {
	case kind == Once:
		return day
	case kind == Session:
		return 12 * time.Hour
	case sensitive && kind == Standing:
		return 0
	case sensitive:
		return time.Duration(min(s.ceiling.SensitiveGrantDays, s.ceiling.GrantDays)) * day
	default:
		return time.Duration(s.ceiling.GrantDays) * day
	}
}

// open names what a grant for sensitive calls of m leaves open and may not: who is reached, how much is paid and where it goes,
// ever; and until a time everything but times. What a person would have to read to know what it is for, above all texts, a person
// reads then each time, or has approved it as it is: else a grant to answer carries whatever the agent has been talked into. A
// field that a grant does not speak of is no field that somebody left open.
func open(g *wire.Grant, v *describe.Connector, m *describe.Method) string {
	if len(g.Limits) == 0 {
		return "it limits nothing, and the call is sensitive"
	}
	if changesOthers(v, m) {
		return "the call changes what others wrote, and no grant covers a sensitive one then"
	}
	for _, name := range m.Grant {
		a, _ := m.Arg(name)
		i := slices.IndexFunc(g.Limits, func(l wire.Limit) bool { return l.Field == name })
		switch {
		case i >= 0 && !g.Limits[i].Any:
		case i < 0 || mustLimit(a):
			return fmt.Sprintf("it does not limit %s, and the call is sensitive", name)
		case g.Kind != Once && g.Kind != Session && !isTime(a):
			return fmt.Sprintf("it leaves %s open; for sensitive calls only one for once or a session may", name)
		}
	}
	return ""
}

func mustLimit(a *describe.Arg) bool {
	return a == nil || a.Role == "recipient" || a.Role == "amount" || a.Role == "destination"
}

func isTime(a *describe.Arg) bool {
	return a.Type == describe.TypeTime || a.Type == describe.TypeDate || a.Type == describe.TypeWhen || a.Type == describe.TypeZone
}

// changesOthers says whether a call of m builds on what others may have written: that is read before each decision, so the caller
// has read it by then. Whom such a call reaches stands at the vendor, where it may change after a grant was made.
func changesOthers(v *describe.Connector, m *describe.Method) bool {
	if m.Prepare == nil || m.Prepare.Base == "" {
		return false
	}
	base, ok := v.Method(m.Prepare.Base)
	return !ok || slices.Contains(base.Labels, wire.LabelUntrusted)
}

// fits says why a call is outside a limit, or "".
func fits(l *wire.Limit, c *Call) string {
	a, ok := c.Method.Arg(l.Field)
	if !ok || !slices.Contains(c.Method.Grant, l.Field) {
		return fmt.Sprintf("%s has no grant field %s", c.Method.Name, l.Field)
	}
	values := c.Values[l.Field]
	if l.Any {
		if l.Max != 0 || len(l.Values) > 0 {
			return fmt.Sprintf("of %s it says two things", l.Field)
		}
		return ""
	}
	if l.Max != 0 {
		if a.Type != describe.TypeInt || l.Max < 0 || len(l.Values) > 0 || len(values) == 0 {
			return fmt.Sprintf("%s is not bounded by a number", l.Field)
		}
		for _, v := range values {
			if n, err := strconv.ParseInt(v, 10, 64); err != nil || n > l.Max {
				return fmt.Sprintf("%s is %s, more than %d", l.Field, v, l.Max)
			}
		}
		return ""
	}
	if len(values) == 0 {
		if len(l.Values) == 0 {
			return ""
		}
		return fmt.Sprintf("%s is absent, and it is for %s", l.Field, strings.Join(l.Values, ", "))
	}
	for _, v := range values {
		if !slices.ContainsFunc(l.Values, func(w string) bool { return sameValue(a, v, w) }) {
			if len(l.Values) == 0 {
				return fmt.Sprintf("%s is %s, and it is for none", l.Field, v)
			}
			return fmt.Sprintf("%s is %s, and it is for %s", l.Field, v, strings.Join(l.Values, ", "))
		}
	}
	for _, w := range l.Values {
		if l.All && !slices.ContainsFunc(values, func(v string) bool { return sameValue(a, v, w) }) {
			return fmt.Sprintf("%s is not %s, and it is for that", l.Field, w)
		}
	}
	return ""
}

// all says whether of several values of a each has to be there: fewer recipients are a part of what was allowed, fewer inputs of a
// workflow another run of it.
func all(a *describe.Arg) bool { return a.Repeat > 1 && a.Role != "recipient" }

// maxHeld is how many bytes of a text a grant repeats; longer ones it holds by their digest.
const maxHeld = 256

const heldDigest = "sha256:"

// limitValue is a value as a limit has it: a long text by its SHA-256, and one that looks like such a digest too.
func limitValue(a *describe.Arg, v string) string {
	if !isText(a) || len(v) <= maxHeld && !strings.HasPrefix(v, heldDigest) {
		return v
	}
	sum := wire.Sum([]byte(v))
	return heldDigest + hex.EncodeToString(sum[:])
}

func isText(a *describe.Arg) bool {
	return a.Type == describe.TypeString || a.Type == describe.TypeText
}

// isDigest says whether a limit's value is what limitValue makes of a text.
func isDigest(a *describe.Arg, v string) bool {
	d, ok := strings.CutPrefix(v, heldDigest)
	return ok && isText(a) && len(d) == 64 && strings.Trim(d, "0123456789abcdef") == ""
}

// sameValue compares a call's value x with a limit's y, as the vendor does where that is known, else exactly. A repository's name
// is the same in any case of its letters; of an address only the domain is (RFC 5321 section 2.3.11, 2.4).
func sameValue(a *describe.Arg, x, y string) bool {
	switch a.Type {
	case describe.TypeRepo:
		return equalFold(x, y)
	case describe.TypeEmail:
		i, j := strings.LastIndexByte(x, '@'), strings.LastIndexByte(y, '@')
		return i >= 0 && j >= 0 && x[:i] == y[:j] && equalFold(x[i:], y[j:])
	default:
		return limitValue(a, x) == y
	}
}

// counted says whether a grant is used up by calls, so that another is better used first.
func counted(g *wire.Grant) bool { return g.Kind == Once || g.Count > 0 }
