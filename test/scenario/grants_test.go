// SPDX-License-Identifier: Apache-2.0

package scenario

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/doorward/doorward/internal/describe"
	"github.com/doorward/doorward/internal/wire"
	"github.com/doorward/doorward/test/world"
)

// granted has a cell's session ask sentinel for a read that passes, and returns what its worker would borrow.
func (r *rig) granted(as *world.Actor, session, vendor, method string) wire.BorrowReq {
	r.t.Helper()
	d, err := describe.Load(filepath.Join(r.Prefix, "share", "doorward"), vendor)
	if err != nil {
		r.t.Fatal(err)
	}
	frame := wire.Frame{Connector: vendor, Description: d.Digest(), Method: method}
	var resp wire.DecideResp
	if err := as.Ask(r.ctx(), wire.PathCellSentinel, "decide", &wire.DecideReq{Frame: frame}, &resp); err != nil {
		r.t.Fatal(err)
	}
	if resp.Verdict != wire.Allow || resp.Grant == "" {
		r.t.Fatalf("%s %s: %+v, %v", vendor, method, resp, resp.Err)
	}
	digest, err := wire.FrameDigest(&frame)
	if err != nil {
		r.t.Fatal(err)
	}
	return wire.BorrowReq{Grant: resp.Grant, Cell: "work", Session: session, Frame: digest}
}

// Must hold 1: whatever a worker asks of authd that is not its own to ask is refused, and the record says so. The
// honest worker with the same grant is the control.
func TestWhatIsNotAWorkersOwnIsRefusedAndRecorded(t *testing.T) {
	r := newRig(t, world.Options{})
	cell := r.work.Session("run-1a")
	github, dav, egress := r.Inside("worker-github"), r.Inside("worker-dav"), r.Inside("egress")
	borrow := func(as *world.Actor, req wire.BorrowReq) (wire.BorrowResp, error) {
		var resp wire.BorrowResp
		err := as.Ask(r.ctx(), wire.PathAuthdWorker, "borrow", &req, &resp)
		return resp, err
	}
	resolve := func(grant, surrogate string) (string, error) {
		var resp wire.ResolveResp
		err := egress.Ask(r.ctx(), wire.PathAuthdEgress, "resolve",
			&wire.ResolveReq{Grant: grant, Surrogate: surrogate, Worker: "github"}, &resp)
		return resp.Secret, err
	}
	refused := func(what string, from int64, err error, want wire.Code, peer, why string) {
		t.Helper()
		if code(err) != want {
			t.Errorf("%s: %v, want %s", what, err, want)
		}
		r.eventually(what+" is in the record", func() bool {
			for _, e := range r.events(from) {
				if strings.Contains(e.Raw, peer) && strings.Contains(e.Raw, why) {
					return true
				}
			}
			return false
		})
	}
	const githubUnit, davUnit = "doorward-worker@github.service", "doorward-worker@dav.service"
	mine := r.granted(cell, "run-1a", "github", "repos")
	others := r.granted(cell, "run-1a", "dav", "calendars")

	from := r.end()
	_, err := borrow(dav, mine)
	refused("another worker's grant", from, err, wire.CodeBadGrant, davUnit, "another worker's")
	from = r.end()
	_, err = borrow(github, others)
	refused("another's credential", from, err, wire.CodeBadGrant, githubUnit, "another worker's")
	for what, change := range map[string]func(*wire.BorrowReq){
		"another frame":   func(b *wire.BorrowReq) { b.Frame = others.Frame },
		"another session": func(b *wire.BorrowReq) { b.Session = "payload" },
		"another cell":    func(b *wire.BorrowReq) { b.Cell = "home" },
		"no caller":       func(b *wire.BorrowReq) { b.Cell, b.Session = "", "" },
	} {
		from = r.end()
		wrong := mine
		change(&wrong)
		_, err = borrow(github, wrong)
		why := "another caller's"
		if what == "another frame" {
			why = "another frame"
		}
		refused(what, from, err, wire.CodeBadGrant, githubUnit, why)
	}
	lent, err := borrow(github, mine)
	if err != nil || lent.Surrogate == "" || lent.Surrogate == r.githubToken {
		t.Fatalf("control: the honest worker: %v", err)
	}
	from = r.end()
	_, err = borrow(github, mine)
	refused("a second borrow", from, err, wire.CodeBadGrant, githubUnit, "borrowed already")
	if secret, err := resolve(mine.Grant, lent.Surrogate); secret != r.githubToken {
		t.Fatalf("control: egress gets no credential: %v", err)
	}

	for _, daemon := range []string{"authd", "sentinel"} {
		mine = r.granted(cell, "run-1a", "github", "repos")
		unborrowed := r.granted(cell, "run-1a", "github", "repos")
		if lent, err = borrow(github, mine); err != nil {
			t.Fatal(err)
		}
		if err := r.Daemon(daemon).Restart(); err != nil {
			t.Fatal(err)
		}
		r.eventually("a call passes again", func() bool {
			res, err := r.work.Actor().Connector(r.ctx(), "github", "repos", "--json")
			return err == nil && res.Code == 0
		})
		from = r.end()
		_, err = borrow(github, unborrowed)
		refused("a grant from before "+daemon+" restarted", from, err, wire.CodeBadGrant, githubUnit, "no live grant")
		from = r.end()
		secret, err := resolve(mine.Grant, lent.Surrogate)
		refused("a surrogate from before "+daemon+" restarted", from, err, wire.CodeBadGrant,
			"doorward-egress.service", "no live grant")
		if secret != "" {
			t.Error("it got the credential")
		}
	}
}
