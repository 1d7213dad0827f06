// SPDX-License-Identifier: Apache-2.0

package scenario

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/doorward/doorward/test/world"
)

// moveState puts sentinel's state on a file system of its own, of so many bytes.
func (r *rig) moveState(size string) string {
	r.t.Helper()
	d, state := r.Daemon("sentinel"), r.State("sentinel")
	uid, err := r.User("sentinel")
	if err != nil {
		r.t.Fatal(err)
	}
	if err := d.Stop(); err != nil {
		r.t.Fatal(err)
	}
	kept := filepath.Join(r.t.TempDir(), "state")
	if err := os.CopyFS(kept, os.DirFS(state)); err != nil {
		r.t.Fatal(err)
	}
	if err := unix.Mount("small", state, "tmpfs", 0, "mode=0700,size="+size); err != nil {
		r.t.Fatal(err)
	}
	r.t.Cleanup(func() { _ = unix.Unmount(state, unix.MNT_DETACH) })
	if err := os.CopyFS(state, os.DirFS(kept)); err != nil {
		r.t.Fatal(err)
	}
	err = filepath.WalkDir(state, func(p string, e fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		mode := os.FileMode(0o600)
		if e.IsDir() {
			mode = 0o700
		}
		return errors.Join(os.Chown(p, uid, uid), os.Chmod(p, mode))
	})
	if err != nil {
		r.t.Fatal(err)
	}
	if err := d.Start(); err != nil {
		r.t.Fatal(err)
	}
	return state
}

// fill takes what is left of a file system.
func fill(t *testing.T, dir string) (free func()) {
	t.Helper()
	name := filepath.Join(dir, "fill")
	f, err := os.Create(name)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	for size := 64 << 10; size >= 512; {
		if _, err := f.Write(make([]byte, size)); errors.Is(err, syscall.ENOSPC) {
			size /= 2
		} else if err != nil {
			t.Fatal(err)
		}
	}
	return func() {
		if err := os.Remove(name); err != nil {
			t.Fatal(err)
		}
	}
}

// AD-01 on the full path: a full disk lets nothing through, says so, and loses nothing.
func TestCase_AD01_AFullDiskStopsCallsWithWords(t *testing.T) {
	r := newRig(t, world.Options{})
	dir := r.moveState("24m")
	work, home := r.work.Actor(), r.home.Actor()
	run := func(a *world.Actor, want int, args ...string) world.Result {
		t.Helper()
		res, err := a.Connector(r.ctx(), args...)
		if err != nil {
			t.Fatal(err)
		}
		if res.Code != want {
			t.Fatalf("connector %v: %v, want exit code %d", args, res, want)
		}
		return res
	}
	create := []string{"github", "issue-create", "--repo", "ada/site", "--wait", "100ms", "--title"}
	run(work, 0, "github", "repos") // control: with room, a read passes and a write waits
	run(home, 4, append(create, "before")...)
	seen := len(r.github.Rec.All())

	free := fill(t, dir)
	full := false
	for range 200 { // the ledger has some room of its own, which these use up
		res, err := home.Connector(r.ctx(), append(create, "x"+strings.Repeat("y", 200))...)
		if err != nil {
			t.Fatal(err)
		}
		if res.Code == 1 && strings.Contains(res.Stderr, "disk_full") {
			full = true
			break
		}
		if res.Code != 4 {
			t.Fatalf("a write on a filling disk: %v", res)
		}
		if res, err = home.Connector(r.ctx(), "cancel", callOf(t, res)); err != nil || res.Code > 5 {
			t.Fatalf("cancel: %v, %v", res, err)
		}
	}
	if !full {
		t.Fatal("the disk is full and nothing says so")
	}
	if res := run(work, 1, "github", "repos"); !strings.Contains(res.Stderr, "disk is full") {
		t.Errorf("a read without room for its record: %v", res)
	}
	if n := len(r.github.Rec.All()); n != seen {
		t.Errorf("%d requests reached the vendor without a record", n-seen)
	}

	free()
	r.eventually("calls pass again", func() bool {
		res, err := work.Connector(r.ctx(), "github", "repos")
		return err == nil && res.Code == 0
	})
	found := false
	for _, c := range r.pending() {
		for _, f := range c.Fields {
			found = found || strings.Contains(strings.Join(f.Values, ""), "before")
		}
	}
	if !found {
		t.Error("the call that waited before the disk was full is gone")
	}
	res, err := r.ada.Doorward(r.ctx(), "", "audit", "verify")
	if err != nil || res.Code != 0 {
		t.Errorf("the record is not whole: %v, %v", res, err)
	}
}
