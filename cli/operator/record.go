// SPDX-License-Identifier: Apache-2.0

package operator

import (
	"context"
	"crypto/ed25519"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/doorward/doorward/internal/wire"
)

func (a *app) auditCmd() *cobra.Command {
	c := &cobra.Command{Use: "audit", Short: "read and verify the record"}
	var about string
	var n int
	list := &cobra.Command{
		Use: "list", Short: "the newest entries",
		RunE: func(*cobra.Command, []string) error {
			return a.audit(&wire.AuditReq{Op: "list", ID: about, Limit: n})
		},
	}
	list.Flags().StringVar(&about, "about", "", "only what is about this call, grant or account")
	list.Flags().IntVarP(&n, "number", "n", 50, "how many entries, 500 at most")
	follow := &cobra.Command{
		Use: "follow", Short: "entries as they come",
		RunE: func(c *cobra.Command, _ []string) error { return a.follow(c.Context(), about) },
	}
	follow.Flags().StringVar(&about, "about", "", "only what is about this call, grant or account")
	show := &cobra.Command{
		Use: "show ID", Short: "the history of one call",
		RunE: func(_ *cobra.Command, args []string) error {
			return a.audit(&wire.AuditReq{Op: "show", ID: args[0]})
		},
	}
	var after int64
	export := &cobra.Command{
		Use: "export", Short: "all entries as JSON lines",
		RunE: func(*cobra.Command, []string) error {
			for {
				r, err := ask[wire.AuditResp](wire.PathApprove, "audit", &wire.AuditReq{Op: "export", After: after})
				if err != nil {
					return err
				}
				if len(r.Lines) == 0 {
					return nil
				}
				for _, l := range r.Lines {
					if _, err := fmt.Fprintf(a.out, "%s\n", ascii(l)); err != nil {
						return err
					}
				}
				after = r.Last
			}
		},
	}
	export.Flags().Int64Var(&after, "after", 0, "from this entry number")
	checkpoint := &cobra.Command{
		Use: "checkpoint", Short: "a signed statement of the record as it is; keep it elsewhere",
		RunE: func(*cobra.Command, []string) error {
			r, err := ask[wire.AuditResp](wire.PathApprove, "audit", &wire.AuditReq{Op: "checkpoint"})
			if err != nil {
				return err
			}
			for _, l := range r.Lines {
				if _, err := a.out.Write(l); err != nil {
					return err
				}
			}
			return nil
		},
	}
	c.AddCommand(list, follow, show, a.verifyCmd(), export, checkpoint)
	return c
}

// audit prints all that was asked for, page by page. Limit bounds them together; 0 is none.
func (a *app) audit(req *wire.AuditReq) error {
	for {
		r, err := ask[wire.AuditResp](wire.PathApprove, "audit", req)
		if err != nil {
			return err
		}
		if err := a.entries(r.Lines); err != nil {
			return err
		}
		if !r.More || len(r.Lines) == 0 {
			return nil
		}
		if req.Op == "list" { // it began so many entries before the end; from there on
			req.Op = "export"
			if req.Limit <= 0 || req.Limit > maxList {
				req.Limit = maxList
			}
		}
		if req.Limit > 0 {
			if req.Limit -= len(r.Lines); req.Limit <= 0 {
				return nil
			}
		}
		req.After = r.Last
	}
}

// maxList is the most that audit list shows.
const maxList = 500

// entry is an entry of the record as far as it is shown in text.
type entry struct {
	N       int64           `json:"n"`
	Time    string          `json:"time"`
	Type    string          `json:"type"`
	Actor   string          `json:"actor"`
	Cell    string          `json:"cell"`
	Call    string          `json:"call"`
	Subject string          `json:"subject"`
	Details json.RawMessage `json:"details"`
}

// entries prints JSON lines of the record.
func (a *app) entries(lines [][]byte) error {
	for _, l := range lines {
		if a.json {
			if _, err := fmt.Fprintf(a.out, "%s\n", ascii(l)); err != nil {
				return err
			}
			continue
		}
		var e entry
		if err := json.Unmarshal(l, &e); err != nil {
			a.line("%s", l)
			continue
		}
		s := fmt.Sprintf("%6d  %s  %-10s %s", e.N, localTime(e.Time), e.Type, e.Actor)
		for _, x := range []struct{ name, value string }{{"call", e.Call}, {"", e.Subject}, {"cell", e.Cell}} {
			if x.value != "" {
				s += "  " + x.name
				if x.name != "" {
					s += " "
				}
				s += x.value
			}
		}
		a.line("%s", s)
		if len(e.Details) > 0 && string(e.Details) != "null" && string(e.Details) != "{}" {
			a.line("        %s", e.Details)
		}
	}
	return nil
}

func localTime(s string) string {
	t, err := time.Parse(time.RFC3339Nano, s)
	if err != nil {
		return s
	}
	return t.Local().Format("2006-01-02 15:04:05")
}

func (a *app) follow(ctx context.Context, about string) error {
	r, err := ask[wire.AuditResp](wire.PathApprove, "audit", &wire.AuditReq{Op: "list", ID: about, Limit: 10})
	for {
		if err != nil {
			return err
		}
		if err := a.entries(r.Lines); err != nil {
			return err
		}
		if ctx.Err() != nil {
			return ctx.Err()
		}
		r, err = ask[wire.AuditResp](wire.PathApprove, "audit", &wire.AuditReq{Op: "follow", ID: about, After: r.Last})
	}
}

// report is what a verification found, as far as it is shown in text.
type report struct {
	Size     int64   `json:"size"`
	Root     string  `json:"root"`
	Signed   int64   `json:"signed"`
	Kept     []int64 `json:"kept"`
	Coded    bool    `json:"coded"`
	Findings []struct {
		Entry int64  `json:"entry"`
		Last  int64  `json:"last"`
		Row   string `json:"row"`
		What  string `json:"what"`
	} `json:"findings"`
}

func (a *app) verifyCmd() *cobra.Command {
	var checkpoint, offline, key string
	c := &cobra.Command{
		Use: "verify", Short: "hold the record against itself and against checkpoints kept elsewhere",
		Long: `Names the first wrong entry and exits 1 if there is one. --checkpoint FILE holds what "doorward
audit checkpoint" wrote earlier, one or more of them; without one, an older copy of the whole record
cannot be told from the newest.
--offline FOLDER verifies a ledger that sentinel does not have open, or a copy; --key FILE is the
checkpoint key (a seed of 32 bytes, or the public key in hexadecimal or base64 on one line).`,
		RunE: func(c *cobra.Command, _ []string) error {
			var file []byte
			var err error
			if checkpoint != "" {
				if file, err = readFile(checkpoint, 256<<10); err != nil {
					return err
				}
			}
			if offline != "" {
				return a.verifyOffline(c.Context(), offline, key, file)
			}
			if key != "" {
				return wire.Refuse(wire.CodeUsage, "--key goes with --offline", "doorward audit verify --help")
			}
			r, err := ask[wire.AuditResp](wire.PathApprove, "audit", &wire.AuditReq{Op: "verify", Checkpoint: file})
			if err != nil {
				return err
			}
			var line []byte
			if len(r.Lines) > 0 {
				line = r.Lines[0]
			}
			first := ""
			if r.Err != nil {
				first = r.Err.Reason
			}
			return a.verified(line, first)
		},
	}
	c.Flags().StringVar(&checkpoint, "checkpoint", "", "file of checkpoints that were kept elsewhere")
	c.Flags().StringVar(&offline, "offline", "", "folder of a ledger that is not open")
	c.Flags().StringVar(&key, "key", "", "with --offline: file of the checkpoint key")
	return c
}

func (a *app) verifyOffline(ctx context.Context, dir, keyFile string, file []byte) error {
	if a.VerifyFile == nil {
		return wire.Refuse(wire.CodeInternal, "this build cannot verify offline", "")
	}
	path := dir
	if st, err := os.Stat(dir); err != nil {
		return unreadable(dir, err)
	} else if st.IsDir() {
		path = filepath.Join(dir, "ledger.db")
		if _, err := os.Stat(path); err != nil {
			return wire.Refuse(wire.CodeUsage, "no ledger in "+dir+": there is no ledger.db that can be read",
				"name sentinel's ledger folder or a copy of it")
		}
	}
	var priv ed25519.PrivateKey
	var pub ed25519.PublicKey
	if keyFile != "" {
		b, err := readFile(keyFile, 4096)
		if err != nil {
			return err
		}
		if priv, pub = keys(b); pub == nil {
			return wire.Refuse(wire.CodeUsage, keyFile+" is no checkpoint key",
				"a seed of 32 bytes, or a public key in hexadecimal or base64")
		}
	}
	line, first, err := a.VerifyFile(ctx, path, pub, priv, file)
	if err != nil {
		return wire.Refuse(wire.CodeInternal, err.Error(), "a copy is verified whole and readable: stop sentinel, copy its "+
			"ledger folder with all that is in it, and give --key where --checkpoint is given")
	}
	return a.verified(line, first)
}

// verified prints a report; with something wrong the exit code is 1.
func (a *app) verified(line []byte, first string) error {
	a.fails = first != ""
	if a.json {
		_, err := fmt.Fprintf(a.out, "%s\n", ascii(line))
		return err
	}
	var r report
	if err := json.Unmarshal(line, &r); err != nil {
		return wire.Refuse(wire.CodeInternal, "read the report: "+err.Error(), "")
	}
	a.line("%d entries, root %s, %d signed checkpoints within, %d held against from elsewhere", r.Size, r.Root,
		r.Signed, len(r.Kept))
	if first == "" {
		a.line("the record is whole")
		if len(r.Kept) == 0 {
			a.note("without a checkpoint from elsewhere an older copy cannot be told from the newest: see --checkpoint")
		}
		return nil
	}
	a.line("NOT WHOLE: %s", first)
	for i, f := range r.Findings {
		if i == 10 {
			a.line("and %d more findings, see --json", len(r.Findings)-i)
			break
		}
		where := "entry " + strconv.FormatInt(f.Entry, 10)
		if f.Last != f.Entry {
			where += " (or one up to " + strconv.FormatInt(f.Last, 10) + ")"
		}
		if f.Row != "" {
			where += ", row " + f.Row
		}
		if l := where + ": " + f.What; l != first {
			a.line("  also %s", l)
		}
	}
	a.note("keep the machine as it is, and compare with the last checkpoint that left it")
	return nil
}

func (a *app) whyCmd() *cobra.Command {
	return &cobra.Command{
		Use: "why [ID|HOST]", Short: "explain the last refusals: all, of one call, or of requests to a HOST",
		RunE: func(_ *cobra.Command, args []string) error {
			req := &wire.WhyReq{}
			if len(args) == 1 {
				req.About = args[0]
			}
			r, err := ask[wire.AuditResp](wire.PathApprove, "why", req)
			if err != nil {
				return err
			}
			if a.json {
				return a.entries(r.Lines)
			}
			if len(r.Lines) == 0 {
				a.line("nothing was refused")
			}
			for _, l := range r.Lines {
				a.refusal(l)
			}
			if r.More {
				a.note("older ones are left out; for more see: doorward audit list --about ID")
			}
			return nil
		},
	}
}

// refusal prints one entry of why: what was refused, by which rule, and the remedy.
func (a *app) refusal(line []byte) {
	var e struct {
		entry
		Details struct {
			Connector string `json:"connector"`
			Method    string `json:"method"`
			Host      string `json:"host"`
			Code      string `json:"code"`
			Reason    string `json:"reason"`
			Why       string `json:"why"`
			Policy    string `json:"policy"`
			Next      string `json:"next"`
			Detail    string `json:"detail"`
			Times     int    `json:"times"`
		} `json:"details"`
	}
	if err := json.Unmarshal(line, &e); err != nil {
		a.line("%s", line)
		return
	}
	d := &e.Details
	what := d.Connector + " " + d.Method
	if d.Connector == "" {
		what = orElse(d.Host, orElse(e.Subject, e.Type))
	}
	a.line("%s  %s  %s", localTime(e.Time), orElse(e.Call, "-"), what)
	by := e.Actor
	if e.Cell != "" {
		by += ", for cell " + e.Cell
	}
	a.line("    by       %s (%s)", by, e.Type)
	because := strings.TrimSpace(d.Code + " " + d.Reason + " " + d.Why)
	if d.Detail != "" {
		because += ": " + d.Detail
	}
	if because != "" {
		a.line("    because  %s", because)
	}
	if d.Times > 0 {
		a.line("    and      %d more times", d.Times)
	}
	if d.Policy != "" {
		a.line("    rule     %s", d.Policy)
	}
	if d.Next != "" {
		a.line("    remedy   %s", d.Next)
	}
}

func (a *app) watchCmd() *cobra.Command {
	return &cobra.Command{
		Use: "watch [-- COMMAND [ARG]...]", Short: "tell of each change; with a command, by giving it JSON on stdin",
		Long: `Prints one line for each event: a call that waits, was decided, ran, ended. With a command it runs
that command once for each, with the event as one line of JSON on its stdin, as you and with your
environment; no daemon starts a program. A command that fails is told on stderr, and watching goes
on. Each event has a number of its own, and is told once, also over a restart of sentinel.

The JSON has n (the number), id (of the call: doorward show ID), state, summary, unix, and where there
is one cell, and object, the vendor's name of what was made. State parked is what waits for you.`,
		Example: "  doorward watch\n  doorward watch -- tee -a calls.jsonl",
		RunE:    func(c *cobra.Command, args []string) error { return a.watch(c.Context(), args) },
	}
}

// commandTime is how long one run of the person's command may take.
const commandTime = time.Minute

func (a *app) watch(ctx context.Context, command []string) error {
	after, down := int64(-1), false
	for ctx.Err() == nil {
		r, err := ask[wire.WatchResp](wire.PathApprove, "watch", &wire.WatchReq{After: after})
		if err != nil {
			if after < 0 {
				return err
			}
			if !down {
				a.note(err.Error() + "; trying again")
			}
			down = true
			select {
			case <-ctx.Done():
			case <-time.After(2 * time.Second):
			}
			continue
		}
		down = false
		if r.Last < after {
			a.note("an older record was put back: what it has lost is told by nobody; doorward pending")
		}
		after = r.Last
		for i := range r.Events {
			if err := a.event(ctx, &r.Events[i], command); err != nil {
				return err
			}
		}
	}
	return ctx.Err()
}

func (a *app) event(ctx context.Context, e *wire.Event, command []string) error {
	b, err := json.Marshal(e)
	if err != nil {
		return err
	}
	b = append(ascii(b), '\n')
	if len(command) == 0 {
		if a.json {
			_, err = a.out.Write(b)
			return err
		}
		a.line("%s  %s  %-10s %s", a.at(e.Unix), e.ID, e.State, e.Summary)
		return nil
	}
	ctx, stop := context.WithTimeout(ctx, commandTime)
	defer stop()
	if err := a.runCommand(ctx, command, b); err != nil && ctx.Err() != context.Canceled {
		a.note(command[0] + ": " + err.Error())
	}
	return nil
}

func (a *app) runCommand(ctx context.Context, command []string, stdin []byte) error {
	c := exec.CommandContext(ctx, command[0], command[1:]...)
	in, err := c.StdinPipe()
	if err != nil {
		return err
	}
	c.Stdout, c.Stderr = a.out, a.err
	if err := c.Start(); err != nil {
		return err
	}
	_, _ = in.Write(stdin) // a command that does not read it is its own affair
	_ = in.Close()
	return c.Wait()
}
