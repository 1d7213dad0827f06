// SPDX-License-Identifier: Apache-2.0

package inside

import (
	"encoding/hex"
	"fmt"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/doorward/doorward/internal/wire"
	"github.com/doorward/doorward/test/vendors/caldav"
	"github.com/doorward/doorward/test/vendors/github"
)

// ready starts the vendors, the accounts and the cell, once.
func ready(t *testing.T) {
	t.Helper()
	if dav != nil {
		return
	}
	d, err := caldav.New(caldav.Options{User: "ada", Password: davPassword})
	if err != nil {
		t.Fatal(err)
	}
	g, err := github.New(github.Options{Credentials: []string{githubToken}})
	if err != nil {
		t.Fatal(err)
	}
	account(t, "github", "code", g.Base(), g.CAPEM(), githubToken)
	account(t, "dav", "diary", d.Base(), d.CAPEM(), davPassword, "--user", "ada", "--owner", "ada@example.test")
	must(t, "systemctl", "start", "doorward-cell@work")
	dav, gh = d, g
}

func issues() int { return gh.Rec.Handled("POST", "/repos/") }

// reads makes a call that policy allows, and holds it to what the vendor saw.
func reads(t *testing.T) error { return readsOf(t, "dav") }

func readsOf(t *testing.T, vendor string) error {
	t.Helper()
	rec, args := dav.Rec, []string{"dav", "calendars"}
	if vendor == "github" {
		rec, args = gh.Rec, []string{"github", "issues", "--repo", "ada/site"}
	}
	before := len(rec.All())
	if r := connector(t, args...); r.code != 0 {
		return fmt.Errorf("a read: %v", r)
	}
	seen := rec.All()[before:]
	if len(seen) == 0 {
		return fmt.Errorf("the vendor saw nothing")
	}
	for _, q := range seen {
		if q.Credential != "real" {
			return fmt.Errorf("the vendor saw %s %s with the credential %q", q.Method, q.Path, q.Credential)
		}
	}
	return nil
}

// parks makes a call that waits for the person and returns its id.
func parks(t *testing.T, title string) string {
	t.Helper()
	r := connector(t, "github", "issue-create", "--repo", "ada/site", "--title", title, "--wait", "1s")
	want(t, r, 4, "a write")
	_, after, _ := strings.Cut(r.stderr, "connector result ")
	id, _, _ := strings.Cut(after, "\n")
	if id == "" {
		t.Fatalf("a write is parked without an id: %v", r)
	}
	if r = person(t, "", "show", id); r.code != 0 || !strings.Contains(r.stdout, title) {
		t.Fatalf("doorward show: %v", r)
	}
	return id
}

func TestTheCellHasNothingButLo(t *testing.T) {
	ready(t)
	r := inCell(t, "run-1", "sh", "-c", "cat /proc/self/cgroup; ls /sys/class/net; ls /run/doorward /run/doorward/cell; id -u")
	want := "0::/doorward.slice/doorward-cells.slice/doorward-cell@work.service/run-1\nlo\n/run/doorward:\nca\ncell\n\n" +
		"/run/doorward/cell:\ndav.sock\ngithub.sock\nsentinel.sock\n1000\n"
	// In a cgroup namespace the path would be another; which process it is does not depend on it.
	if r.stdout != want {
		t.Errorf("in the cell: %v, want %s", r, want)
	}
}

func TestAReadAndAnApprovedWrite(t *testing.T) {
	ready(t)
	if err := reads(t); err != nil {
		t.Fatal(err)
	}
	before := issues()
	id := parks(t, "It stalls")
	if n := issues() - before; n != 0 {
		t.Fatalf("the vendor saw %d issues before the approval", n)
	}
	want(t, person(t, "", "approve", id, "--yes"), 0, "approve")
	want(t, connector(t, "wait", id), 0, "wait for what was approved")
	if n := issues() - before; n != 1 {
		t.Errorf("the vendor saw %d issues, want one", n)
	}
}

// ask sends one message from somewhere and returns whether an answer of the protocol came.
func answered(r result) bool {
	return r.code == 0 && !strings.Contains(r.stdout, `"fault"`) && strings.Contains(r.stdout, `{`)
}

// A process that is in no cell is refused at the cell's sockets, root and the daemons' own neighbours included; the same
// program in the cell is answered.
func TestOutsideOfTheCellNobodyIsAnswered(t *testing.T) {
	ready(t)
	empty, err := wire.Marshal(&wire.Empty{})
	if err != nil {
		t.Fatal(err)
	}
	b, err := os.ReadFile(bench + "/ask")
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile("/usr/bin/ask", b, 0o755); err != nil {
		t.Fatal(err)
	}
	list := []string{"list", hex.EncodeToString(empty)}
	if r := inCell(t, "run-1", append([]string{"/usr/bin/ask", wire.PathCellSentinel}, list...)...); !answered(r) {
		t.Fatalf("control: the cell is not answered: %v", r)
	}
	sentinel := wire.CellDir + "sentinel.sock"
	for _, place := range []struct{ user, slice string }{
		{"root", "system.slice"}, {"root", "doorward.slice"}, {"root", "doorward-cells.slice"}, {"root", "user-1000.slice"}, {"eve", "user-1001.slice"},
	} {
		if r := as(t, place.user, place.slice, "", append([]string{"/usr/bin/ask", sentinel}, list...)...); answered(r) {
			t.Errorf("%s in %s is answered as a cell: %v", place.user, place.slice, r)
		}
	}
	// The person's socket: open to the group alone, and there to those in a person's slice.
	pending := []string{"/usr/bin/ask", wire.PathApprove, "pending", hex.EncodeToString(empty)}
	if r := as(t, "ada", "user-1000.slice", "", pending...); !answered(r) {
		t.Errorf("control: the person is not answered: %v", r)
	}
	for _, place := range []struct{ user, slice string }{{"eve", "user-1001.slice"}, {"ada", "system.slice"}, {"doorward-egress", "doorward.slice"}} {
		if r := as(t, place.user, place.slice, "", pending...); answered(r) {
			t.Errorf("%s in %s is answered as a person: %v", place.user, place.slice, r)
		}
	}
	if r := inCell(t, "run-1", pending...); answered(r) {
		t.Errorf("the cell is answered as a person: %v", r)
	}
}

// vendorOf is the vendor whose calls go through a unit.
func vendorOf(unit string) string {
	if strings.Contains(unit, "github") {
		return "github"
	}
	return "dav"
}

func TestAKilledDaemonIsBackForTheNextCall(t *testing.T) {
	ready(t)
	for _, unit := range services {
		t.Run(unit, func(t *testing.T) {
			pid := mainPID(t, unit)
			if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
				t.Fatal(err)
			}
			begin, tries := time.Now(), 0
			eventually(t, "a read after "+unit+" was killed", func() error {
				tries++
				err := readsOf(t, vendorOf(unit))
				if err != nil {
					t.Log(err)
				}
				return err
			})
			t.Logf("%s: call %d went through, %.1f s after the kill", unit, tries, time.Since(begin).Seconds())
			another(t, unit, pid)
		})
	}
}

// another waits until a unit is ready as another process than pid.
func another(t *testing.T, unit string, pid int) {
	t.Helper()
	eventually(t, unit+" is ready as another process", func() error {
		now, state := property(t, unit, "MainPID"), property(t, unit, "ActiveState")
		if now == "0" || now == fmt.Sprint(pid) || state != "active" {
			return fmt.Errorf("process %s, %s", now, state)
		}
		return nil
	})
	session(t) // what ran in a cell was ended by the daemon of cells before it was ready
}

func TestFullARestartUnderAParkedCall(t *testing.T) {
	ready(t)
	for i, unit := range services {
		t.Run(unit, func(t *testing.T) {
			before := issues()
			id := parks(t, fmt.Sprintf("Restarted %d", i))
			must(t, "systemctl", "restart", unit)
			session(t)
			eventually(t, "approve", func() error {
				if r := person(t, "", "approve", id, "--yes"); r.code != 0 {
					return fmt.Errorf("%v", r)
				}
				return nil
			})
			want(t, connector(t, "wait", id), 0, "wait for what was approved")
			if n := issues() - before; n != 1 {
				t.Errorf("the vendor saw %d issues, want one", n)
			}
		})
	}
}
