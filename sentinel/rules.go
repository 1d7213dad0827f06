// SPDX-License-Identifier: Apache-2.0

package sentinel

import (
	"bytes"
	"context"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/doorward/doorward/internal/daemon"
	"github.com/doorward/doorward/internal/wire"
	"github.com/doorward/doorward/sentinel/ledger"
	"github.com/doorward/doorward/sentinel/policy"
)

// policyKey names the decided policy set in the ledger. Before one was decided, the default of the first start holds, which
// defaultKey names: a package with a wider one must not widen what goes.
const (
	policyKey  = "policy"
	defaultKey = "policy-default"
)

// closed stands in for a policy that cannot be used.
const closed = `@reason("the policy on this machine has a fault, so everything is denied until a person has mended it")
forbid (principal, action, resource);`

// policyFolder is where a person edits; an edited file takes effect when it is loaded and, if it widens, decided.
func (s *Sentinel) policyFolder() string { return filepath.Join(s.config, "policy") }

// limits is limits.toml as it is now. Without the file there is only the design's own ceiling.
func (s *Sentinel) limits() ([][]byte, error) {
	b, err := os.ReadFile(filepath.Join(s.config, policy.LimitsFile))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read the admin's limits: %w", err)
	}
	return [][]byte{b}, nil
}

// loadPolicy takes up the set that was decided last, not what stands in the folder now. Where it cannot be used, with a
// typo in limits.toml say, nothing is allowed, loudly: the empty set denies all.
func (s *Sentinel) loadPolicy(ctx context.Context) error {
	limits, err := s.limits()
	if err != nil {
		return err
	}
	files, err := s.decidedPolicy(ctx)
	if err != nil {
		return fmt.Errorf("read the decided policy back: %w", err)
	}
	set, err := policy.Undecided(files, s.sorted, s.changedMethods(), limits...)
	if err != nil {
		s.log.Error("the decided policy cannot be used; everything is denied", "err", err.Error())
		if set, err = policy.Compile(policy.Files{"closed.cedar": []byte(closed)}, s.sorted); err != nil {
			return fmt.Errorf("make the set that denies all: %w", err)
		}
	}
	s.policy.Store(set)
	return nil
}

// decidedPolicy are the files of the set that was decided last, or of the default at the first start.
func (s *Sentinel) decidedPolicy(ctx context.Context) (policy.Files, error) {
	for _, key := range []string{policyKey, defaultKey} {
		if v, ok := s.ledger.Setting(key); ok {
			return policyFiles(v.Value)
		}
	}
	files := policy.Files{policy.PolicyFile: policy.DefaultPolicy()}
	value, err := json.Marshal(asList(files))
	if err != nil {
		return nil, err
	}
	if err := s.ledger.PutSetting(ctx, defaultKey, value, "sentinel", nil); err != nil { // the disk is full; the next start tries again
		s.log.Error("the default policy is not kept", "err", err.Error())
	}
	return files, nil
}

func policyFiles(b []byte) (policy.Files, error) {
	var list []wire.PolicyFile
	if err := json.Unmarshal(b, &list); err != nil {
		return nil, err
	}
	return asFiles(list), nil
}

func asFiles(list []wire.PolicyFile) policy.Files {
	out := policy.Files{}
	for _, f := range list {
		out[f.Name] = f.Body
	}
	return out
}

func asList(f policy.Files) []wire.PolicyFile {
	var out []wire.PolicyFile
	for name, body := range f {
		out = append(out, wire.PolicyFile{Name: name, Body: body})
	}
	slices.SortFunc(out, func(a, b wire.PolicyFile) int { return strings.Compare(a.Name, b.Name) })
	return out
}

// compile makes a set of given files, or of the folder.
func (s *Sentinel) compile(given []wire.PolicyFile) (*policy.Set, error) {
	limits, err := s.limits()
	if err != nil {
		return nil, err
	}
	if len(given) > 0 {
		return policy.Compile(asFiles(given), s.sorted, limits...)
	}
	if _, err := os.Stat(s.policyFolder()); errors.Is(err, fs.ErrNotExist) {
		return policy.Default(s.sorted, limits...)
	}
	return policy.Load(os.DirFS(s.policyFolder()), s.sorted, limits...)
}

// adopt makes a set the decided one, of the methods as they are now. What they mean is kept last: where only the first is
// durable, what has changed still asks.
func (s *Sentinel) adopt(ctx context.Context, value []byte, by string, details any) error {
	files, err := policyFiles(value)
	if err != nil {
		return err
	}
	limits, err := s.limits()
	if err != nil {
		return err
	}
	set, err := policy.Compile(files, s.sorted, limits...)
	if err != nil {
		return err
	}
	if err := s.ledger.PutSetting(ctx, policyKey, value, by, details); err != nil {
		return err
	}
	if err := s.keepMeanings(ctx, s.meanings(), by, details); err != nil {
		return err
	}
	s.undecided.Store(nil)
	s.policy.Store(set)
	return nil
}

// policyVerb shows, checks, explains and loads the policy.
func (s *Sentinel) policyVerb(ctx context.Context, c *daemon.Call, req *wire.PolicyReq) (*wire.PolicyResp, error) {
	now := s.policy.Load()
	switch req.Op {
	case "show":
		r := &wire.PolicyResp{}
		for _, f := range asList(now.Files()) {
			r.Lines = append(r.Lines, "# "+f.Name)
			r.Lines = append(r.Lines, strings.Split(strings.TrimRight(string(f.Body), "\n"), "\n")...)
		}
		r.Lines, r.Next = pageLines(r.Lines, req.From)
		d := now.Digest()
		r.Notes = append(s.notesNow(now), "digest "+hex.EncodeToString(d[:8]))
		return r, nil
	case "cedar":
		r := new(wire.PolicyResp)
		r.Lines, r.Next = pageLines(strings.Split(strings.TrimRight(now.Cedar(), "\n"), "\n"), req.From)
		return r, nil
	case "methods": // those that are not off, for the page on which a person makes a credential
		r := &wire.PolicyResp{}
		for _, d := range s.sorted {
			for i := range d.Methods {
				if m := d.Methods[i].Name; !now.Off(d.Vendor, m) {
					r.Lines = append(r.Lines, d.Vendor+" "+m)
				}
			}
		}
		return r, nil
	case "state":
		return &wire.PolicyResp{Lines: s.policyState(now)}, nil
	case "intercepted": // of a cell: lines "HOST:PORT why"
		r := new(wire.PolicyResp)
		r.Lines, r.Next = pageLines(s.intercepted(req.Cell), req.From)
		return r, nil
	case "explain":
		if req.Request != nil {
			lines, err := s.explainRequest(now, req)
			return &wire.PolicyResp{Lines: lines}, err
		}
		if req.Site != "" {
			lines, err := s.explainSite(now, req)
			return &wire.PolicyResp{Lines: lines}, err
		}
		if req.Frame == nil {
			return nil, wire.Refuse(wire.CodeBadArgument, "no call to explain", "")
		}
		lines, err := s.explain(now, req)
		return &wire.PolicyResp{Lines: lines}, err
	case "check", "load":
	default:
		return nil, wire.Refuse(wire.CodeUsage, "policy: no operation "+quote(req.Op), "")
	}
	return s.consider(ctx, req.Files, req.Op, actor(c.Peer))
}

// consider says what given files, or those of the folder, would change; with op load it takes them up.
func (s *Sentinel) consider(ctx context.Context, files []wire.PolicyFile, op, by string) (*wire.PolicyResp, error) {
	set, err := s.compile(files)
	if err != nil {
		return &wire.PolicyResp{Problems: few(problems(err), "doorward policy check, when these are mended")}, nil
	}
	issued := s.issuedNames()
	r := &wire.PolicyResp{Notes: s.notes(set)}
	for _, ch := range policy.Diff(s.policy.Load(), set) {
		if !ch.Widens && !issued.Meets(&ch) {
			continue
		}
		sign := "narrows: "
		if ch.Widens {
			sign = "widens: "
		}
		r.Lines = append(r.Lines, sign+ch.Text)
	}
	all := r.Lines // a card has them all or there is none
	r.Lines = few(r.Lines, "doorward policy show")
	if op == "check" {
		return r, nil
	}
	return s.takeUp(ctx, set, r, all, by)
}

// takeUp makes a set the decided one where it widens nothing, and puts it up for decision otherwise. lines are all
// differences from the set in force.
func (s *Sentinel) takeUp(ctx context.Context, set *policy.Set, r *wire.PolicyResp, lines []string, by string) (*wire.PolicyResp, error) {
	value, err := json.Marshal(asList(set.Files()))
	if err != nil {
		return nil, err
	}
	if len(value) > ledger.MaxSetting { // else it would fail once it is approved
		return nil, wire.Refuse(wire.CodeTooLarge, "the policy is larger than the record can keep", "say the same in less")
	}
	changed := s.changedMethods()
	if v, ok := s.ledger.Setting(policyKey); ok && bytes.Equal(v.Value, value) {
		// Decided already; the admin's limits may be others than when it was taken up.
		if err := s.loadPolicy(ctx); err != nil || len(changed) == 0 {
			return r, err
		}
	}
	if len(policy.Widens(s.policy.Load(), set)) == 0 {
		return r, s.ledgerError(s.adopt(ctx, value, by, nil))
	}
	for _, name := range changed {
		lines = append(lines, "changed with an upgrade: "+name)
	}
	to := set.Digest()
	r.Widening, err = s.widen(ctx, widening{Kind: widenPolicy, About: policy.PolicyFile, Digest: hex.EncodeToString(to[:]),
		From: s.comparedWith(), Lines: lines, Value: value}, "a policy that allows more", by)
	return r, err
}

// policyState says for a program what is in force: by which descriptions calls are judged, and what goes unasked.
func (s *Sentinel) policyState(now *policy.Set) []string {
	d := now.Digest()
	out := []string{"policy " + hex.EncodeToString(d[:8])}
	for _, c := range s.sorted {
		digest := c.Digest()
		out = append(out, "connector "+c.Vendor+" "+hex.EncodeToString(digest[:]))
	}
	for _, l := range now.DontAsk() {
		out = append(out, "dont-ask "+l.Connector+" "+l.By)
	}
	for _, l := range now.Loose() {
		out = append(out, "unasked "+l.Connector+" "+l.Method+" "+l.Class+" "+l.By)
	}
	return out
}

// notes say of a valid set what it does not cover, and which of its lines are about nothing.
func (s *Sentinel) notes(set *policy.Set) []string {
	var out []string
	for _, list := range [][]*policy.Problem{set.Check(), set.Idle(s.issuedNames())} {
		var lines []string
		for _, p := range list {
			lines = append(lines, p.Error())
		}
		out = append(out, few(lines, "doorward policy check, when these are mended")...)
	}
	return out
}

// issuedNames are the surrogates that cells have, with the routes that they are issued with.
func (s *Sentinel) issuedNames() policy.Issued {
	have := policy.Issued{}
	for _, is := range s.allIssued() {
		for i := range is.manifest.Routes {
			have[is.Name] = append(have[is.Name], is.manifest.Routes[i].Name)
		}
	}
	return have
}

// problems are the single faults of a joined error.
func problems(err error) []string {
	if many, ok := err.(interface{ Unwrap() []error }); ok {
		var out []string
		for _, e := range many.Unwrap() {
			out = append(out, problems(e)...)
		}
		return out
	}
	return []string{err.Error()}
}
