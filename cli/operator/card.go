// SPDX-License-Identifier: Apache-2.0

package operator

import (
	"encoding/hex"
	"fmt"
	"strings"

	"github.com/doorward/doorward/internal/visible"
	"github.com/doorward/doorward/internal/wire"
)

// cardText is a card as lines: who and what, then recipients, amounts and destinations, then the other fields, the
// bodies whole, why it asks. Nothing that the agent chose stands at the beginning of a line, so it cannot look like a
// heading of the card.
func (a *app) cardText(k *wire.Card) []string {
	var out []string
	add := func(format string, args ...any) { out = append(out, fmt.Sprintf(format, args...)) }
	what := visible.Line(k.Title)
	if k.Kind != "widening" {
		what = visible.Line(k.Connector+" "+k.Method) + ": " + what
	} else {
		what = "wider than before: " + what
	}
	add("%s", what)
	add("  id         %s, %s, made %s, %s", visible.Line(k.ID), visible.Line(string(k.State)), a.at(k.Made), a.ends(k))
	if k.Account != "" && k.Kind != "widening" {
		add("  account    %s", visible.Line(k.Account))
	}
	if k.Cell != "" {
		run := "nobody attends it"
		if k.Attended {
			run = "a person attends it"
		}
		add("  asked by   cell %s, session %s (%s)", visible.Line(k.Cell), visible.Line(orElse(k.Session, "unknown")), run)
	}
	if k.Class != "" {
		s := k.Class + ", " + reach(k.Reach)
		if k.Sensitive {
			s += "; SENSITIVE"
		}
		add("  does       %s", visible.Line(s))
	}
	if k.Alike > 0 {
		add("  alike      %d more of the same shape wait", k.Alike)
	}
	for _, main := range []bool{true, false} {
		first := true
		for _, f := range k.Fields {
			if f.Main != main {
				continue
			}
			if first {
				add("")
				first = false
			}
			out = append(out, fieldText(f)...)
		}
	}
	for _, b := range k.Bodies {
		add("")
		out = append(out, bodyText(b)...)
	}
	if len(k.Facts)+len(k.Labels)+len(k.Policies) > 0 || k.Reason != "" {
		add("")
	}
	for _, f := range k.Facts {
		add("  note       %s", visible.Line(f))
	}
	for _, l := range k.Labels {
		add("  the cell   has read what is %s: %s (%s)", visible.Line(l.Label), visible.Line(l.Why), a.at(l.Unix))
	}
	if k.Reason != "" {
		add("  it asks    because %s", visible.Line(k.Reason))
	}
	for _, p := range k.Policies {
		add("  policy     %s", visible.Line(p))
	}
	if k.Mark != "" && k.Kind != "widening" {
		add("  mark       %s", visible.Line(k.Mark))
	}
	if k.Err != nil {
		add("  ended      %s: %s", visible.Line(string(k.Err.Code)), visible.Line(k.Err.Reason))
	}
	add("  hash       %s", hex.EncodeToString(k.Hash))
	return out
}

func (a *app) ends(k *wire.Card) string {
	if k.State != wire.StateParked {
		return "no decision is waited for"
	}
	return "expires in " + a.left(k.Expires)
}

func reach(r string) string {
	switch r {
	case "none", "":
		return "only the owner sees it"
	case "people":
		return "the people named see it"
	case "space":
		return "members of the place see it"
	case "public":
		return "anyone may see it"
	default:
		return "reach " + r
	}
}

func fieldText(f wire.Field) []string {
	label := "  " + visible.Line(f.Label)
	var out []string
	for _, v := range f.Values {
		lines := visible.Block(v)
		if len(lines) == 1 {
			out = append(out, label+": "+lines[0])
		} else {
			out = append(out, label+":")
			for _, l := range lines {
				out = append(out, "    | "+l)
			}
		}
		for _, w := range visible.Warnings(v) {
			out = append(out, "    ! "+w)
		}
	}
	return out
}

func bodyText(b wire.Shown) []string {
	media := ""
	if b.Media != "" {
		media = ", " + visible.Line(b.Media)
	}
	out := []string{fmt.Sprintf("  %s (%d bytes%s, sha256 %x)", visible.Line(orElse(b.Name, "file")), b.Size, media,
		b.SHA256)}
	if b.Text != "" {
		for _, l := range visible.Block(b.Text) {
			out = append(out, "    | "+l)
		}
		for _, w := range visible.Warnings(b.Text) {
			out = append(out, "    ! "+w)
		}
	}
	if b.Cut {
		out = append(out, "    ! NOT ALL OF IT IS SHOWN")
	}
	return out
}

// show prints a card, by the screenful where a person reads it.
func (a *app) showCard(k *wire.Card) error {
	lines := a.cardText(k)
	height := a.height()
	if height == 0 || len(lines) <= height {
		for _, l := range lines {
			fmt.Fprintln(a.out, l)
		}
		return nil
	}
	for i := 0; i < len(lines); i += height {
		for _, l := range lines[i:min(len(lines), i+height)] {
			fmt.Fprintln(a.out, l)
		}
		if rest := len(lines) - i - height; rest > 0 {
			fmt.Fprintf(a.err, "-- %d more lines; press Enter --", rest)
			if _, err := readLine(a.in, 256); err != nil {
				return wire.Refuse(wire.CodeUsage, "read the answer: "+err.Error(), "")
			}
		}
	}
	return nil
}

// isRequest says whether a grant is of one request of a cell's programs, by the limits that only such has.
func isRequest(g *wire.Grant) bool {
	return len(g.Limits) > 2 && g.Limits[0].Field == "begins" && g.Limits[1].Field == "method"
}

// grantText says exactly what a grant would allow.
func (a *app) grantText(g *wire.Grant) []string {
	out := []string{"the grant would allow, without asking, calls of " + visible.Line(g.Connector+" "+g.Method)}
	add := func(format string, args ...any) { out = append(out, "  "+visible.Line(fmt.Sprintf(format, args...))) }
	switch {
	case isRequest(g):
		out[0] = "the grant would allow, without asking, one request of programs to " + visible.Line(g.Account)
		add("from cell %s, whatever is in it", g.Cell)
	case g.Connector == "site":
		out[0] = "the grant would allow, without asking, connections of programs to " + visible.Line(g.Account)
		add("from cell %s, whatever they send there", g.Cell)
	default:
		add("with account %s, from cell %s", g.Account, g.Cell)
	}
	for _, l := range g.Limits {
		switch {
		case l.Any:
			add("whatever --%s is", l.Field)
		case l.All && len(l.Values) > 1:
			add("where --%s is all of %s", l.Field, strings.Join(l.Values, ", "))
		case l.Max > 0:
			add("where --%s is at most %d", l.Field, l.Max)
		case len(l.Values) == 0:
			add("where --%s is not given", l.Field)
		case len(l.Values) == 1:
			add("where --%s is %s", l.Field, l.Values[0])
		default:
			add("where every --%s is one of %s", l.Field, strings.Join(l.Values, ", "))
		}
	}
	if len(g.Limits) == 0 {
		add("with any arguments")
	}
	switch {
	case g.Count == 1 && g.Kind != "once":
		add("once in all")
	case g.Count > 0:
		add("%d times in all", g.Count)
	case g.Kind != "once":
		add("as often as is asked")
	}
	switch g.Kind {
	case "once":
		add("once")
	case "session":
		add("until session %s ends", g.Session)
	default:
		add("until %s (in %s)", a.at(g.Until), a.left(g.Until))
	}
	if g.Tainted {
		add("also after the cell has read what others wrote")
	} else {
		add("not after the cell has read what others wrote: then it asks")
	}
	return out
}
