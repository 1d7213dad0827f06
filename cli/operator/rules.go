// SPDX-License-Identifier: Apache-2.0

package operator

import (
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/doorward/doorward/internal/wire"
)

func (a *app) grantsCmd() *cobra.Command {
	return &cobra.Command{
		Use: "grants", Short: "list what goes without asking",
		RunE: func(*cobra.Command, []string) error {
			grants, err := pages(wire.PathApprove, "grants", from,
				func(r *wire.GrantsResp) ([]wire.Grant, string) { return r.Grants, r.Next })
			if err != nil {
				return err
			}
			if a.json {
				return a.value(map[string]any{"items": notNil(grants)})
			}
			if len(grants) == 0 {
				a.line("no grants")
				return nil
			}
			rows := [][]string{{"ID", "ENDS", "USED", "LAST USE", "ALLOWS"}}
			for _, g := range grants {
				ends := g.Kind
				if g.Until > 0 {
					ends = a.left(g.Until)
				}
				used := strconv.FormatInt(g.Used, 10)
				if g.Count > 0 {
					used += " of " + strconv.FormatInt(g.Count, 10)
				}
				rows = append(rows, []string{g.ID, ends, used, a.at(g.LastUse), orElse(g.Sentence, strings.Join(a.grantText(&g),
					"; "))})
			}
			a.table(rows)
			return nil
		},
	}
}

func (a *app) revokeCmd() *cobra.Command {
	var r wire.PersonRevokeReq
	c := &cobra.Command{
		Use: "revoke [GRANT]", Short: "take back a grant, or all of an account, session or cell",
		RunE: func(_ *cobra.Command, args []string) error {
			if len(args) == 1 {
				r.Grant = args[0]
			}
			if r == (wire.PersonRevokeReq{}) {
				return wire.Refuse(wire.CodeUsage, "revoke takes the ID of a GRANT, or --account, --session or --cell",
					"doorward grants lists them; doorward stop takes back everything")
			}
			return a.told(ask[wire.Report](wire.PathApprove, "revoke", &r))
		},
	}
	c.Flags().StringVar(&r.Account, "account", "", "all of this account")
	c.Flags().StringVar(&r.Session, "session", "", "all of this session, and end it")
	c.Flags().StringVar(&r.Cell, "cell", "", "all of this cell")
	return c
}

// told prints a report.
func (a *app) told(r *wire.Report, err error) error {
	if err != nil {
		return err
	}
	if a.json {
		return a.value(map[string]any{"lines": notNil(r.Lines), "may_have_run": notNil(r.MayHaveRun), "widening": r.Widening})
	}
	for _, l := range r.Lines {
		a.line("%s", l)
	}
	for _, m := range r.MayHaveRun {
		a.line("may have run: %s", m)
	}
	return nil
}

func (a *app) stopCmd() *cobra.Command {
	var resume, yes bool
	c := &cobra.Command{
		Use: "stop [CELL]", Short: "the switch: nothing more goes out for a cell, or for all",
		Long: `Without a CELL it is for all cells. In this order: no new grants, live ones are void, live traffic
is cut, parked calls are dropped. What was in flight is reported as "may have run". --resume turns
it on again, which is decided like a call.`,
		RunE: func(_ *cobra.Command, args []string) error {
			r, err := ask[wire.Report](wire.PathApprove, "stop", &wire.StopReq{Cell: strings.Join(args, ""), Resume: resume})
			if err := a.told(r, err); err != nil {
				return err
			}
			if len(args) > 0 {
				a.noteCell(args[0])
			}
			return a.offer(r.Widening, yes)
		},
	}
	c.Flags().BoolVar(&resume, "resume", false, "turn it on again")
	c.Flags().BoolVar(&yes, "yes", false, "with --resume: decide at once, without asking")
	return c
}

func (a *app) taintCmd() *cobra.Command {
	var clear, yes bool
	c := &cobra.Command{
		Use: "taint CELL", Short: "the labels of a cell: whether it has read what others wrote, or what is private",
		RunE: func(_ *cobra.Command, args []string) error {
			r, err := ask[wire.TaintResp](wire.PathApprove, "taint", &wire.TaintReq{Cell: args[0], Clear: clear})
			if err != nil {
				return err
			}
			a.noteCell(args[0])
			if a.json {
				return a.value(map[string]any{"cell": args[0], "labels": notNil(r.Labels), "widening": r.Widening})
			}
			for _, l := range r.Labels {
				a.line("%s: %s (%s)", l.Label, l.Why, a.at(l.Unix))
			}
			if len(r.Labels) == 0 {
				a.line("cell %s has read nothing that others wrote and nothing private", args[0])
			}
			return a.offer(r.Widening, yes)
		},
	}
	c.Flags().BoolVar(&clear, "clear", false, "take the labels away, which is decided like a call")
	c.Flags().BoolVar(&yes, "yes", false, "with --clear: decide at once, without asking")
	return c
}

func (a *app) sessionCmd() *cobra.Command {
	list := func(end string) error {
		req := func(after string) any {
			r := &wire.SessionReq{After: after}
			if after == "" {
				r.End = end
			}
			return r
		}
		sessions, err := pages(wire.PathApprove, "session", req,
			func(r *wire.SessionResp) ([]wire.Session, string) { return r.Sessions, r.Next })
		if err != nil {
			return err
		}
		if a.json {
			items := []map[string]any{}
			for _, s := range sessions {
				items = append(items, map[string]any{"cell": s.Cell, "name": s.Name, "attended": s.Attended, "by": s.By,
					"began": time.Unix(s.Began, 0).UTC().Format(time.RFC3339)})
			}
			return a.value(map[string]any{"items": items})
		}
		if len(sessions) == 0 {
			a.line("no sessions")
			return nil
		}
		rows := [][]string{{"SESSION", "CELL", "BEGAN", "ATTENDED", "BY"}}
		for _, s := range sessions {
			rows = append(rows, []string{s.Name, s.Cell, a.at(s.Began), map[bool]string{true: "yes", false: "no"}[s.Attended],
				s.By})
		}
		a.table(rows)
		return nil
	}
	c := &cobra.Command{
		Use: "session", Short: "list live sessions, or end one",
		RunE: func(*cobra.Command, []string) error { return list("") },
	}
	c.AddCommand(&cobra.Command{
		Use: "end SESSION", Short: "end a session",
		RunE: func(_ *cobra.Command, args []string) error { return list(args[0]) },
	})
	return c
}
