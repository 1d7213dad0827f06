// SPDX-License-Identifier: Apache-2.0

package operator

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/doorward/doorward/internal/wire"
)

func (a *app) pendingCmd() *cobra.Command {
	return &cobra.Command{
		Use: "pending", Short: "list what waits for a decision",
		RunE: func(*cobra.Command, []string) error {
			cards, err := pendingCards()
			if err != nil {
				return err
			}
			if a.json {
				return a.value(map[string]any{"items": notNil(cards)})
			}
			if len(cards) == 0 {
				a.line("nothing waits")
				return nil
			}
			rows := [][]string{{"ID", "EXPIRES", "CELL", "WHAT", "ABOUT"}}
			for i := range cards {
				k := &cards[i]
				rows = append(rows, []string{k.ID, a.left(k.Expires), k.Cell, title(k), about(k)})
			}
			a.table(rows)
			return nil
		},
	}
}

func title(k *wire.Card) string {
	s := k.Connector + " " + k.Method
	if k.Kind == "widening" {
		s = "wider: " + k.Title
	}
	if k.Sensitive {
		s += " (sensitive)"
	}
	if k.Alike > 0 {
		s += fmt.Sprintf(" (+%d alike)", k.Alike)
	}
	return s
}

// about is the line of a card that tells it from others: its main fields, else the first one.
func about(k *wire.Card) string {
	var s []string
	for _, f := range k.Fields {
		if f.Main || len(s) == 0 {
			s = append(s, strings.Join(f.Values, ", "))
		}
	}
	return strings.Join(s, "; ")
}

func notNil[T any](s []T) []T {
	if s == nil {
		return []T{}
	}
	return s
}

// card fetches one card whole.
func card(id string) (*wire.Card, error) {
	r, err := ask[wire.ShowResp](wire.PathApprove, "show", &wire.CallRef{Call: id})
	if err != nil {
		return nil, err
	}
	return &r.Card, nil
}

func (a *app) showCmd() *cobra.Command {
	return &cobra.Command{
		Use: "show ID", Short: "show one card in full",
		RunE: func(_ *cobra.Command, args []string) error {
			k, err := card(args[0])
			if err != nil {
				return err
			}
			if a.json {
				return a.value(k)
			}
			if err := a.showCard(k); err != nil {
				return err
			}
			if k.Grantable != nil && k.State == wire.StateParked {
				a.line("")
				if k.Kind == "widening" {
					a.line("  doorward approve %s --grant until=7d   allows it for longer, see: doorward approve --help", k.ID)
				} else {
					a.line("  doorward approve %s --grant session   would also allow the like of it, see: doorward approve --help",
						k.ID)
					if may := mayOpen(k.Grantable); len(may) > 0 {
						a.line("  --any FIELD,... would leave open what it says; it may be: %s", strings.Join(may, ", "))
					}
				}
			}
			return nil
		},
	}
}

// mayOpen are the fields that a grant holds to what the call says, and that a person may leave open.
func mayOpen(g *wire.Grant) []string {
	var out []string
	for _, l := range g.Limits {
		if !l.Held && !l.Any && len(l.Values) > 0 {
			out = append(out, l.Field)
		}
	}
	return out
}

// grantFlags are what approve takes to make a grant of a call.
type grantFlags struct {
	kind    string
	limits  []string
	drop    []string
	count   int64
	tainted bool
}

func (a *app) approveCmd() *cobra.Command {
	var yes bool
	var g grantFlags
	c := &cobra.Command{
		Use: "approve ID", Short: "approve one call, and the like of it if you say so",
		Long: `Shows the whole card, says what a grant would allow, asks, and approves what was shown: if anything
about the call differs from it, nothing runs. The call then runs once.

--grant also allows calls like it, without asking, within limits that are prefilled from the call:
  --grant once            one more
  --grant session         until this session ends
  --grant until=7d        for a time (sensitive calls: 7 days at most)
  --grant standing        90 days, or standing=30d; not for sensitive calls
Without --count it is for as often as is asked within that time, but for reads that ask because they are
many. A request of the cell's own programs is allowed once without --grant.
Of a sensitive call --any does for texts and the like, not for whom it reaches and where, and not until a
time: that covers what was approved, word for word. --also-after-reading is not for sensitive calls.`,
		RunE: func(_ *cobra.Command, args []string) error {
			k, err := card(args[0])
			if err != nil {
				return err
			}
			return a.approve(k, &g, yes)
		},
	}
	f := c.Flags()
	f.BoolVar(&yes, "yes", false, "do not ask; the card is printed all the same")
	f.StringVar(&g.kind, "grant", "", "also allow the like of it: once, session, until=7d, standing")
	f.StringArrayVar(&g.limits, "limit", nil, "FIELD=VALUE,... that the grant is limited to (of a number: its most)")
	f.StringArrayVar(&g.drop, "any", nil, "FIELD,... that the grant leaves open, whatever it is")
	f.Int64Var(&g.count, "count", 0, "how many calls the grant is good for; 0 is no limit")
	f.BoolVar(&g.tainted, "also-after-reading", false, "the grant holds after the cell has read what others wrote")
	return c
}

// approve shows a card and its grant, asks, and approves the hash that was shown.
func (a *app) approve(k *wire.Card, gf *grantFlags, yes bool) error {
	if k.State != wire.StateParked {
		return wire.Refuse(wire.CodeNotFound, "call "+k.ID+" is "+string(k.State)+" and waits for no decision",
			"doorward pending")
	}
	g, err := gf.grant(k, a.now)
	if err != nil {
		return err
	}
	if !a.json {
		if err := a.showCard(k); err != nil {
			return err
		}
		if g != nil {
			fmt.Fprintln(a.out)
			for _, l := range a.grantText(g) {
				fmt.Fprintln(a.out, "  "+l)
			}
			if !g.Tainted && slices.ContainsFunc(k.Labels, func(c wire.Cause) bool { return c.Label == wire.LabelUntrusted }) {
				fmt.Fprintln(a.out, "    ! the cell has read that already: this grant holds nothing until its labels are cleared")
			}
		}
	}
	if !yes {
		if !a.terminal() {
			return wire.Refuse(wire.CodeUsage, "no terminal to ask at",
				"run it at a terminal, or with --yes once you have read the card")
		}
		q := "Run this once?"
		if k.Kind == "widening" {
			q = "Allow this?"
		} else if g != nil {
			q = "Run this, and allow what the grant says?"
		}
		ok, err := a.yes(q)
		if err != nil {
			return err
		}
		if !ok {
			a.note("nothing is decided; it waits on. To refuse it: doorward deny " + k.ID)
			a.fails = true
			return nil
		}
	}
	r, err := ask[wire.DecideCardResp](wire.PathApprove, "decide",
		&wire.DecideCardReq{ID: k.ID, Hash: k.Hash, Approve: true, Grant: g})
	if err != nil {
		return err
	}
	if r.Err != nil {
		return wire.Refuse(r.Err.Code, k.ID+" was approved and is "+string(r.State)+": "+r.Err.Reason, r.Err.Next)
	}
	if a.json {
		return a.value(map[string]any{"id": k.ID, "state": r.State, "grant": r.Grant})
	}
	a.line("%s is %s", k.ID, r.State)
	if r.Grant != "" {
		a.line("grant %s is made; take it back with: doorward revoke %s", r.Grant, r.Grant)
	}
	return nil
}

// grant is the grant that the flags ask for: the card's own, changed. nil where they ask for none.
func (gf *grantFlags) grant(k *wire.Card, now time.Time) (*wire.Grant, error) {
	if gf.kind == "" {
		if len(gf.limits)+len(gf.drop) > 0 || gf.count != 0 || gf.tainted {
			return nil, wire.Refuse(wire.CodeUsage, "limits belong to a grant", "add --grant session, until=7d or standing")
		}
		return nil, nil
	}
	if k.Grantable == nil {
		return nil, wire.Refuse(wire.CodeUsage, "the like of this cannot be granted ahead", "approve it without --grant")
	}
	g := *k.Grantable
	g.Limits = slices.Clone(g.Limits)
	kind, span, timed := strings.Cut(gf.kind, "=")
	g.Kind, g.Sentence = kind, ""
	switch {
	case gf.count != 0:
		g.Count = gf.count
	case k.Kind == "widening": // the card's own count is that of a yes without a grant, which is once
		g.Count = 0
	}
	g.Tainted = gf.tainted
	switch {
	case kind == "once" && !timed, kind == "session" && !timed:
		g.Until = 0
	case kind == "until" && timed, kind == "standing":
		if !timed {
			span = "90d"
		}
		d, err := days(span)
		if err != nil {
			return nil, err
		}
		g.Until = now.Add(d).Unix()
	default:
		return nil, wire.Refuse(wire.CodeUsage, "--grant "+gf.kind+" is none there is",
			"once, session, until=7d, standing or standing=30d")
	}
	if g.Kind != "session" {
		g.Session = ""
	}
	for _, field := range strings.Split(strings.Join(gf.drop, ","), ",") {
		if field == "" {
			continue
		}
		i, err := limit(&g, field)
		if err != nil {
			return nil, err
		}
		g.Limits[i] = wire.Limit{Field: field, Any: true}
	}
	fresh := map[string]bool{}
	for _, s := range gf.limits {
		field, value, ok := strings.Cut(s, "=")
		i, err := limit(&g, field)
		if err != nil {
			return nil, err
		}
		if !ok {
			return nil, wire.Refuse(wire.CodeUsage, "--limit "+s+": no =", "write --limit "+field+"=VALUE,...")
		}
		l := &g.Limits[i]
		l.Any = false
		if l.Max > 0 {
			if l.Max, err = strconv.ParseInt(value, 10, 64); err != nil || l.Max < 1 {
				return nil, wire.Refuse(wire.CodeUsage, "--limit "+s+": a whole number from 1", "doorward approve --help")
			}
			continue
		}
		if !fresh[field] {
			fresh[field], l.Values = true, nil
		}
		if value != "" {
			l.Values = append(l.Values, strings.Split(value, ",")...)
		}
	}
	return &g, nil
}

// limit finds the limit of a field.
func limit(g *wire.Grant, field string) (int, error) {
	var names []string
	for i, l := range g.Limits {
		if l.Field == field {
			return i, nil
		}
		names = append(names, l.Field)
	}
	return 0, wire.Refuse(wire.CodeUsage, "a grant of "+g.Connector+" "+g.Method+" has no field "+field,
		"its fields are: "+orElse(strings.Join(names, ", "), "none"))
}

// days reads a span such as 7d, 12h or 30m.
func days(s string) (time.Duration, error) {
	if n, ok := strings.CutSuffix(s, "d"); ok {
		if d, err := strconv.Atoi(n); err == nil && d > 0 && d < 1000 {
			return time.Duration(d) * 24 * time.Hour, nil
		}
	} else if d, err := time.ParseDuration(s); err == nil && d > 0 {
		return d, nil
	}
	return 0, wire.Refuse(wire.CodeUsage, "no span of time: "+s, "write it as 7d, 12h or 30m")
}

func (a *app) denyCmd() *cobra.Command {
	var why string
	var stop bool
	c := &cobra.Command{
		Use: "deny ID", Short: "refuse one call",
		RunE: func(_ *cobra.Command, args []string) error {
			k, err := card(args[0])
			if err != nil {
				return err
			}
			r, err := ask[wire.DecideCardResp](wire.PathApprove, "decide",
				&wire.DecideCardReq{ID: k.ID, Hash: k.Hash, Why: why, Stop: stop})
			if err != nil {
				return err
			}
			if a.json {
				return a.value(map[string]any{"id": k.ID, "state": r.State})
			}
			a.line("%s is %s", k.ID, r.State)
			return nil
		},
	}
	c.Flags().StringVar(&why, "why", "", "what the agent is told")
	c.Flags().BoolVar(&stop, "stop", false, "end the session that asked")
	return c
}

// offer puts a widening before the person at once, where one sits at the terminal, and says how to decide it elsewhere.
func (a *app) offer(id string, yes bool) error {
	if id == "" {
		return nil
	}
	if !yes && (!a.terminal() || a.json) {
		a.note("it widens what may happen and waits for a decision: doorward approve " + id)
		return nil
	}
	k, err := card(id)
	if err != nil {
		return err
	}
	return a.approve(k, &grantFlags{}, yes)
}
