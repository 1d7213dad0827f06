// SPDX-License-Identifier: Apache-2.0

package operator

import (
	"bytes"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"github.com/doorward/doorward/cli/operator/machine"
	"github.com/doorward/doorward/internal/wire"
)

func (a *app) reportCmd() *cobra.Command {
	return &cobra.Command{
		Use: "report FILE", Short: "write one file about this machine that can be given to others",
		Long: `Writes what doctor finds, states of units, counts, and the newest lines of the daemons' journal into one
new file that only you can read. Names of accounts, cells and users stand in it as short codes that are
others in each report; addresses, hosts, titles, arguments, paths and errors' texts are left out. It is
made of what is known to be harmless, not cleaned of what is known not to be. Read it before you give
it away.`,
		RunE: func(_ *cobra.Command, args []string) error { return a.writeReport(args[0]) },
	}
}

// sources are all that a report is made of, as they are.
type sources struct {
	findings []machine.Finding
	units    []machine.UnitState
	journal  []byte // of journalctl -o json
	accounts []wire.Account
	cells    []wire.CellState
	vendors  []string
	people   []string // who has an account on this machine
	verify   *wire.AuditResp
	record   [][]byte // its newest entries
	counts   map[string]int
	now      time.Time
}

// newest is how much of the journal and of the record a report looks at.
const newest = 400

func (a *app) writeReport(path string) error {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0o600)
	if errors.Is(err, fs.ErrExist) {
		return wire.Refuse(wire.CodeUsage, path+" is there already", "name a file that is not")
	}
	if err != nil {
		return wire.Refuse(wire.CodeUsage, "write "+path+": "+plainly(err),
			"name a new file in a folder that is there and that you may write")
	}
	b, err := redacted(a.sources())
	if err == nil {
		_, err = f.Write(b)
		err = errors.Join(err, f.Sync(), f.Close())
	}
	if err != nil {
		_ = f.Close()
		_ = os.Remove(path)
		return err
	}
	if a.json {
		return a.value(map[string]any{"file": path, "bytes": len(b)})
	}
	a.line("%s has %d bytes, for you alone", path, len(b))
	a.note("read it before you give it away")
	return nil
}

// sources reads them. What cannot be read is left empty; the findings say so.
func (a *app) sources() *sources {
	s := &sources{now: a.now, counts: map[string]int{}, findings: a.findings(), people: machine.People()}
	_, s.vendors, _ = descriptions()
	s.units = machine.Look(s.vendors).States()
	s.journal = machine.Journal(newest)
	if machine.Person() != nil {
		return s
	}
	s.accounts, _ = accounts()
	s.cells, _ = cells()
	if cards, err := pendingCards(); err == nil {
		s.counts["waiting"] = len(cards)
	}
	if all, err := pages(wire.PathApprove, "grants", from, func(r *wire.GrantsResp) ([]wire.Grant, string) {
		return r.Grants, r.Next
	}); err == nil {
		s.counts["grants"] = len(all)
	}
	if all, err := pages(wire.PathApprove, "session", func(after string) any { return &wire.SessionReq{After: after} },
		func(r *wire.SessionResp) ([]wire.Session, string) { return r.Sessions, r.Next }); err == nil {
		s.counts["sessions"] = len(all)
	}
	s.verify, _ = ask[wire.AuditResp](wire.PathApprove, "audit", &wire.AuditReq{Op: "verify"})
	if r, err := ask[wire.AuditResp](wire.PathApprove, "audit", &wire.AuditReq{Op: "list", Limit: newest}); err == nil {
		s.record = r.Lines
	}
	return s
}

// redactor stands for names by codes. They are others in each report, so nobody can try names until one fits.
type redactor struct {
	salt    [16]byte
	private []string // in lower case: what no message may have as a word
	vendors []string
}

func newRedactor(s *sources) *redactor {
	r := &redactor{vendors: s.vendors}
	_, _ = rand.Read(r.salt[:])
	add := func(words ...string) {
		for _, w := range words {
			if w = strings.ToLower(w); w != "" {
				r.private = append(r.private, w)
			}
		}
	}
	for _, acc := range s.accounts {
		add(acc.Name, acc.Owner, acc.Placement.User, acc.Base.Host)
		add(acc.Also...)
	}
	for _, c := range s.cells {
		add(c.Name, c.User)
		add(c.Projects...)
	}
	add(s.people...)
	return r
}

func (r *redactor) mask(n machine.Name) string {
	if n == "" {
		return ""
	}
	sum := sha256.Sum256(append(r.salt[:], n...))
	return "#" + hex.EncodeToString(sum[:4])
}

// unit is a unit's name, any but Doorward's masked, and a cell's too. A name of a cell has no dash and no dot.
func (r *redactor) unit(name string) string {
	ours := strings.HasPrefix(name, "doorward-") || strings.HasPrefix(name, "doorward.")
	if !ours || strings.HasPrefix(name, "doorward-cell@") || strings.HasPrefix(name, "doorward-cellnet@") {
		return r.mask(machine.Name(name))
	}
	return name
}

// redacted makes the report.
func redacted(s *sources) ([]byte, error) {
	r := newRedactor(s)
	findings := []map[string]any{}
	for _, f := range s.findings {
		of := ""
		if f.Of != "" {
			of = r.unit(string(f.Of))
		}
		findings = append(findings, map[string]any{"check": f.Check, "of": of, "state": f.State, "what": f.What.Redacted(r.mask)})
	}
	units := []map[string]any{}
	for _, u := range s.units {
		units = append(units, map[string]any{"unit": r.unit(u.Name), "state": u.State, "restarts": u.Restarts})
	}
	accounts, cells := map[string]int{}, map[string]int{}
	for _, acc := range s.accounts {
		vendor := acc.Vendor
		if !slices.Contains(s.vendors, vendor) && vendor != customVendor {
			vendor = "another"
		}
		accounts[vendor+" "+orElse(known(string(acc.Health)), "well")]++
	}
	for _, c := range s.cells {
		cells[known(c.State)]++
	}
	out := map[string]any{
		"doorward": release, "protocol": wire.Version, "made": s.now.UTC().Format(time.RFC3339), "root": os.Geteuid() == 0,
		"findings": findings, "units": units, "accounts": accounts, "cells": cells, "counts": s.counts, "record": record(s),
		"journal": r.journal(s.journal),
	}
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetIndent("", " ")
	if err := e.Encode(out); err != nil {
		return nil, err
	}
	for _, p := range r.private { // a second look for what cannot be a word of ours
		if strings.ContainsAny(p, "@./") && len(p) > 5 && bytes.Contains(bytes.ToLower(b.Bytes()), []byte(p)) {
			return nil, wire.Refuse(wire.CodeInternal, "the report would have had a name in it that is yours; it is not written",
				"doorward doctor --json, for your own eyes")
		}
	}
	return ascii(b.Bytes()), nil
}

// known is a code of package wire or a state of a cell, or "other": they come from daemons, and the file goes to strangers.
func known(code string) string {
	if code == "" || isWord(code) {
		return code
	}
	return "other"
}

// isWord says whether s is one word as this program's own constants are: lower case, with underscores or dashes.
func isWord(s string) bool {
	return len(s) > 0 && len(s) <= 40 && strings.Trim(s, "abcdefghijklmnopqrstuvwxyz_-") == ""
}

// record is whether the record is whole, how long it is, and how many entries of each kind are among the newest.
func record(s *sources) map[string]any {
	out := map[string]any{"verified": false}
	if s.verify != nil && len(s.verify.Lines) > 0 {
		var r struct {
			Size, Signed int64
			Coded        bool
			Kept         []int64
			Findings     []json.RawMessage
		}
		if json.Unmarshal(s.verify.Lines[0], &r) == nil {
			out["verified"], out["entries"], out["signed"], out["coded"] = true, r.Size, r.Signed, r.Coded
			out["checkpoints"], out["faults"] = len(r.Kept), len(r.Findings)
		}
		if s.verify.Err != nil {
			out["code"] = known(string(s.verify.Err.Code))
		}
	}
	kinds := map[string]int{}
	for _, line := range s.record {
		var e struct{ Type string }
		if json.Unmarshal(line, &e) == nil && isWord(e.Type) {
			kinds[e.Type]++
		}
	}
	out["newest"] = kinds
	return out
}
