// SPDX-License-Identifier: Apache-2.0

package scenario

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/doorward/doorward/internal/describe"
	"github.com/doorward/doorward/internal/wire"
	"github.com/doorward/doorward/test/ground"
	"github.com/doorward/doorward/test/world"
)

// describes puts another description in the place of a vendor's, as an upgrade does, and starts sentinel anew. Cells that
// run keep the one that they have; the vendor's worker is the same, and refuses calls by another. What it returns puts the
// one before back.
func (r *rig) describes(vendor string, change func(*describe.Connector)) (undo func()) {
	r.t.Helper()
	dir := filepath.Join(r.Prefix, "share", "doorward")
	c, err := describe.Load(dir, vendor)
	if err != nil {
		r.t.Fatal(err)
	}
	change(c)
	b, err := c.Seal()
	if err != nil {
		r.t.Fatal(err)
	}
	other, err := os.CreateTemp(ground.Dir, vendor)
	if err != nil {
		r.t.Fatal(err)
	}
	defer other.Close()
	if _, err := other.Write(b); err != nil {
		r.t.Fatal(err)
	}
	if err := other.Chmod(0o644); err != nil {
		r.t.Fatal(err)
	}
	file := filepath.Join(dir, vendor+describe.Ext)
	if err := unix.Mount(other.Name(), file, "", unix.MS_BIND, ""); err != nil {
		r.t.Fatal(err)
	}
	mounted := true
	undo = func() {
		if mounted {
			_ = unix.Unmount(file, unix.MNT_DETACH)
			mounted = false
		}
	}
	r.t.Cleanup(undo)
	if err := r.Daemon("sentinel").Restart(); err != nil {
		r.t.Fatal(err)
	}
	return undo
}

// methodOf is a method that must be there.
func methodOf(t testing.TB, c *describe.Connector, name string) *describe.Method {
	t.Helper()
	m, ok := c.Method(name)
	if !ok {
		t.Fatalf("%s has no %s", c.Vendor, name)
	}
	return m
}

// An upgrade that changes what a method may send ends its grants, and what the policy lets go of it asks, until a person
// has decided the policy again. The controls are a start with the same descriptions, one with other words in them, and
// the methods that did not change.
func TestAnUpgradeThatChangesAMethodTakesWhatWasAllowed(t *testing.T) {
	r := newRig(t, world.Options{})
	work := r.work.Actor()
	changes := r.grant(r.asks(work, issue("ada/site", "before")...), nil)
	stays := r.grant(r.asks(work, contact("Stays Here")...), nil)
	if err := r.Daemon("sentinel").Restart(); err != nil {
		t.Fatal(err)
	}
	r.goes(work, issue("ada/site", "control: the same description")...)
	wordsGone := r.describes("github", func(c *describe.Connector) {
		for i := range c.Methods {
			c.Methods[i].Summary = "in other words, " + c.Methods[i].Summary
		}
	})
	r.has(r.doorward(0, "grants").Stdout, changes, stays)
	worded, err := r.Cell("worded") // it has the description in other words
	if err != nil {
		t.Fatal(err)
	}
	waits := r.asks(worded.Actor(), issue("ada/site", "waits over an upgrade")...)

	changeGone := r.describes("github", func(c *describe.Connector) {
		for _, name := range []string{"issue-create", "repos"} {
			methodOf(t, c, name).Entries[0].MaxIn++
		}
	})
	if s := r.doorward(0, "grants").Stdout; strings.Contains(s, changes) || !strings.Contains(s, stays) {
		t.Errorf("the grants are\n%s", s)
	}
	r.goes(work, contact("Stays There")...)
	r.has(r.Daemon("sentinel").Log(), "a grant ended", changes, "github issue-create, github repos")
	r.has(r.doorward(0, "audit", "list", "--about", changes, "--json").Stdout, "changed with an upgrade")
	shown := r.doorward(0, "policy", "show")
	r.has(shown.Stdout+shown.Stderr, "github issue-create, github repos")

	upgraded, err := r.Cell("third") // it has the newer description
	if err != nil {
		t.Fatal(err)
	}
	read := func(args ...string) world.Result {
		t.Helper()
		res, err := upgraded.Actor().Connector(r.ctx(), append(args, "--json", "--wait", "0s")...)
		if err != nil {
			t.Fatal(err)
		}
		return res
	}
	res := read("github", "repos")
	if res.Code != wire.ExitWaiting {
		t.Errorf("a read that changed: %v", res)
	}
	r.has(r.doorward(0, "show", callOf(t, res)).Stdout, "has changed since the policy was decided")
	if res := read("github", "issues", "--repo", "ada/site"); res.Code == wire.ExitWaiting {
		t.Errorf("control: a read that did not change: %v", res)
	}
	r.decide(r.card(callOf(t, res)), false)
	late := r.asks(upgraded.Actor(), issue("ada/site", "waits over a change")...)

	loaded := r.doorward(0, "policy", "load", "--yes")
	r.has(loaded.Stdout+loaded.Stderr, "github repos: ask, now allow", "changed with an upgrade: github repos")
	if res := read("github", "repos"); res.Code == wire.ExitWaiting {
		t.Errorf("it was decided, and asks all the same: %v", res)
	}
	if s := r.doorward(0, "grants").Stdout; strings.Contains(s, changes) {
		t.Errorf("a grant came back:\n%s", s)
	}
	if err := r.Daemon("sentinel").Restart(); err != nil {
		t.Fatal(err)
	}
	if res := read("github", "repos"); res.Code == wire.ExitWaiting {
		t.Errorf("after another start it asks: %v", res)
	}

	// What waits goes on where its own method is what it was, whatever else is said otherwise now, and not where it changed.
	changeGone()
	wordsGone()
	if err := r.Daemon("sentinel").Restart(); err != nil {
		t.Fatal(err)
	}
	before := r.issues()
	r.decide(waits, true)
	if s := r.ended(waits.ID); s != wire.StateDone {
		t.Errorf("what waited over an upgrade is %s: %v", s, r.card(waits.ID).Err)
	}
	r.decide(late, true)
	if s := r.ended(late.ID); s != wire.StateFailed {
		t.Errorf("what waited over a change of its method is %s", s)
	}
	r.sum("an issue", r.issues(), before+1)
}
