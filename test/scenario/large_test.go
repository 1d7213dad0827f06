// SPDX-License-Identifier: Apache-2.0

package scenario

import (
	"bytes"
	"crypto/sha256"
	"fmt"
	"os"
	"strconv"
	"strings"
	"testing"

	"github.com/doorward/doorward/internal/wire"
	"github.com/doorward/doorward/test/world"
)

// highWater is the most memory that a daemon has had since marked, in bytes (VmHWM of proc(5), which writing 5 to clear_refs resets).
func (r *rig) highWater(daemon string) int64 {
	r.t.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", r.Daemon(daemon).PID()))
	if err != nil {
		r.t.Fatal(err)
	}
	for line := range strings.Lines(string(text)) {
		if f := strings.Fields(line); len(f) == 3 && f[0] == "VmHWM:" {
			n, err := strconv.ParseInt(f[1], 10, 64)
			if err != nil {
				r.t.Fatal(err)
			}
			return n << 10
		}
	}
	r.t.Fatalf("no high water mark of %s", daemon)
	return 0
}

// A content of 10 MiB waits, is shown cut, can be had whole in parts, and runs as it was shown. Neither sentinel nor approvals has it in
// memory several times over. One byte more is refused in words.
func TestAContentOfTenMiB(t *testing.T) {
	const size, room = 10 << 20, 64 << 20 // room: several parts of 512 KiB, and what waits to be collected
	r := newRig(t, world.Options{Page: true})
	c := r.client()
	dir := readable(t)
	content := bytes.Repeat([]byte("A line of the content that is to be seen.\n"), size/42+1)[:size]
	args := func(file string) []string {
		return []string{"github", "file-put", "--repo", "ada/site", "--path", "large.txt", "--branch", "main", "--message", "m", "--file", file}
	}
	more := put(t, dir, "more", append(bytes.Clone(content), 'x'), 0o644)
	if res, err := r.work.Actor().Connector(r.ctx(), append(args(more), "--json", "--wait", "0s")...); err != nil || res.Code == 0 ||
		res.Code == wire.ExitWaiting || !strings.Contains(res.Stdout+res.Stderr, "10485760") {
		t.Errorf("a byte too many: %v, %v", res, err)
	}
	before := map[string]int64{}
	daemons := []string{"sentinel", "approvals"}
	for _, d := range daemons {
		if err := os.WriteFile(fmt.Sprintf("/proc/%d/clear_refs", r.Daemon(d).PID()), []byte("5"), 0); err != nil {
			t.Fatal(err)
		}
		before[d] = r.highWater(d)
	}
	card := r.park(r.work, args(put(t, dir, "large", content, 0o644))...)
	if len(card.Bodies) != 1 || card.Bodies[0].Size != size || !card.Bodies[0].Cut || len(card.Bodies[0].Text) > 128<<10 {
		t.Fatalf("the card shows %d bodies, the first of %+v", len(card.Bodies), card.Bodies[0].Size)
	}
	var got []byte
	for len(got) < size {
		var part struct{ Data []byte }
		if err := c.ask("body", map[string]any{"call": card.ID, "sha256": card.Bodies[0].SHA256[:], "from": len(got)}, &part); err != nil || len(part.Data) == 0 {
			t.Fatalf("from byte %d: %d more, %v", len(got), len(part.Data), err)
		}
		got = append(got, part.Data...)
	}
	if sha256.Sum256(got) != sha256.Sum256(content) || [32]byte(card.Bodies[0].SHA256) != sha256.Sum256(content) {
		t.Error("what is had of it is another content")
	}
	o, err := c.show(card.ID)
	if err != nil {
		t.Fatal(err)
	}
	if state, err := c.decide(c.signs(&o, true)); err != nil || state == "parked" {
		t.Fatalf("%s, %v", state, err)
	}
	if s := r.ended(card.ID); s != wire.StateDone {
		t.Errorf("it is %s: %v", s, r.card(card.ID).Err)
	}
	if arrived, _ := r.github.State.File("ada", "site", "main", "large.txt"); !bytes.Equal(arrived, content) {
		t.Errorf("%d bytes arrived of %d", len(arrived), len(content))
	}
	for _, d := range daemons {
		if grown := r.highWater(d) - before[d]; grown > room {
			t.Errorf("%s took %d MiB more", d, grown>>20)
		} else {
			t.Logf("%s took %d MiB more", d, grown>>20)
		}
	}
}
