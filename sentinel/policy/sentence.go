// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"fmt"
	"strings"
	"time"

	"github.com/doorward/doorward/internal/describe"
	"github.com/doorward/doorward/internal/wire"
)

// Sentence says in plain words what a grant lets through. It is what a person reads before making it. m is the
// grant's method; nil where it is no longer installed.
func Sentence(g *wire.Grant, m *describe.Method) string {
	if isRequest(g) {
		return RequestSentence(g)
	}
	var s strings.Builder
	if g.Connector == SiteConnector {
		fmt.Fprintf(&s, "programs of cell %s may connect to %s by %s", g.Cell, visible(g.Account), beginsWords(grantBegins(g)))
	} else {
		fmt.Fprintf(&s, "cell %s may %s with %s, account %s", g.Cell, g.Method, g.Connector, g.Account)
	}
	writeKind(&s, g)
	var free []string
	for i, l := range g.Limits {
		if g.Connector == SiteConnector {
			break
		}
		if l.Any {
			free = append(free, label(m, l.Field))
			continue
		}
		s.WriteString([]string{"; only where ", " and "}[min(i-len(free), 1)])
		s.WriteString(label(m, l.Field))
		switch {
		case l.Max != 0:
			fmt.Fprintf(&s, " is at most %d", l.Max)
		case len(l.Values) == 0:
			s.WriteString(" is not given")
		case len(l.Values) == 1:
			s.WriteString(" is " + visible(l.Values[0]))
		default:
			s.WriteString(map[bool]string{true: " is all of ", false: " is among "}[l.All])
			for j, v := range l.Values {
				if j > 0 {
					s.WriteString(", ")
				}
				s.WriteString(visible(v))
			}
		}
	}
	switch {
	case len(free) > 0:
		s.WriteString("; whatever " + strings.Join(free, " and ") + map[bool]string{true: " is", false: " are"}[len(free) == 1])
	case g.Connector == SiteConnector:
		s.WriteString("; whatever they send there")
	case len(g.Limits) == 0:
		s.WriteString("; whatever its arguments are")
	}
	if g.Tainted {
		s.WriteString("; also after it has read what others wrote")
	}
	return s.String()
}

// writeKind says for how long a grant of calls or connections is, and for how many.
func writeKind(s *strings.Builder, g *wire.Grant) {
	switch g.Kind {
	case Once:
		s.WriteString(", once more")
	case Session:
		fmt.Fprintf(s, ", in session %s", g.Session)
	case Until:
		s.WriteString(", until " + when(g.Until))
	case Standing:
		s.WriteString(", standing until " + when(g.Until))
	}
	switch {
	case g.Count == 1 && g.Kind != Once:
		s.WriteString(", once")
	case g.Count > 0 && g.Kind != Once:
		fmt.Fprintf(s, ", %d times at most", g.Count)
	}
}

func label(m *describe.Method, field string) string {
	if m != nil {
		if a, ok := m.Arg(field); ok {
			return a.Label + " (--" + field + ")"
		}
	}
	return "--" + field
}

func when(unix int64) string { return time.Unix(unix, 0).UTC().Format("2006-01-02 15:04 UTC") }

// visible writes a value so that nothing in it can pass for the sentence around it.
func visible(v string) string {
	plain := v != "" && strings.Trim(v, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-._~@/+:#=") == ""
	if plain {
		return v
	}
	return fmt.Sprintf("%+q", v)
}
