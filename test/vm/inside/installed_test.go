// SPDX-License-Identifier: Apache-2.0

package inside

import (
	"fmt"
	"io/fs"
	"maps"
	"os"
	"os/user"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/doorward/doorward/internal/wire"
)

func TestAnInstallationStartsNothing(t *testing.T) {
	if len(fresh) > 0 {
		t.Errorf("after dpkg these units ran: %q", fresh)
	}
}

func TestEveryUnitIsActive(t *testing.T) {
	units := append([]string{"doorward.target", "doorward-worker@dav.socket", "doorward-worker@github.socket",
		"doorward-cell-worker@dav.socket", "doorward-cell-worker@github.socket"}, services...)
	for _, e := range wire.Graph() {
		if e.To != "worker" && e.Name != "egress-cell" { // of those there is one for each cell
			units = append(units, "doorward-"+e.Name+".socket")
		}
	}
	for _, u := range units {
		if state := property(t, u, "ActiveState"); state != "active" {
			t.Errorf("%s is %s\n%s", u, state, must(t, "journalctl", "--no-pager", "-n", "30", "-u", u))
		}
	}
}

// places are where the socket of a row is: one for each vendor, or for each cell that has an egress now.
func places(t *testing.T, e wire.Edge) (paths []string) {
	t.Helper()
	names := []string{"dav", "github"}
	if e.Name == "egress-cell" {
		names = nil
		const before, after = "doorward-egress-cell-sentinel@", ".socket"
		for unit := range strings.FieldsSeq(must(t, "systemctl", "list-units", "--plain", "--no-legend", "--state=active", before+"*"+after)) {
			if cell, ok := strings.CutPrefix(unit, before); ok {
				names = append(names, strings.TrimSuffix(cell, after))
			}
		}
	}
	path := wire.RunDir + e.Socket
	if rest, ok := strings.CutPrefix(e.Socket, "cell/"); ok {
		path = wire.CellDir + rest
	}
	if !strings.Contains(path, "*") {
		return []string{path}
	}
	for _, name := range names {
		paths = append(paths, strings.Replace(path, "*", name, 1))
	}
	return paths
}

func TestEverySocketIsAsTheTableHasIt(t *testing.T) {
	group := map[string]string{"worker": "doorward-workers", "doorward": "doorward", "connector": "root"}
	want := map[string]string{}
	for _, e := range wire.Graph() {
		g := group[e.From]
		if g == "" {
			g = "doorward-" + e.From
		}
		for _, path := range places(t, e) {
			want[path] = fmt.Sprintf("%04o root:%s", e.Mode, g)
		}
	}
	have := map[string]string{}
	err := filepath.WalkDir(wire.RunDir, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		st := info.Sys().(*syscall.Stat_t)
		if path+"/" == wire.BPFDir { // a file system of the kernel's own, in which no socket can be
			var on syscall.Statfs_t
			if err := syscall.Statfs(path, &on); err != nil || on.Type != unix.BPF_FS_MAGIC || st.Uid != 0 || info.Mode().Perm() != 0o750 {
				t.Errorf("%s: %v of %d, type %x: %v", path, info.Mode(), st.Uid, on.Type, err)
			}
			return filepath.SkipDir
		}
		if strings.HasPrefix(path, wire.CADir) && info.Mode().IsRegular() && st.Uid == 0 && info.Mode().Perm()&0o022 == 0 {
			return nil // what a cell trusts
		}
		if d.IsDir() {
			if st.Uid != 0 || st.Gid != 0 || info.Mode().Perm()&0o022 != 0 {
				t.Errorf("%s: %v %d:%d", path, info.Mode(), st.Uid, st.Gid)
			}
			return nil
		}
		u, err := user.LookupId(strconv.Itoa(int(st.Uid)))
		if err != nil {
			return err
		}
		g, err := user.LookupGroupId(strconv.Itoa(int(st.Gid)))
		if err != nil {
			return err
		}
		if info.Mode().Type() != fs.ModeSocket {
			t.Errorf("%s is no socket", path)
		}
		have[path] = fmt.Sprintf("%04o %s:%s", info.Mode().Perm(), u.Username, g.Name)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	for path, w := range want {
		if have[path] != w {
			t.Errorf("%s is %q, want %q", path, have[path], w)
		}
	}
	for path := range have {
		if want[path] == "" {
			t.Errorf("%s is not in the table", path)
		}
	}
}

// What each daemon sees of /run, looked at through its own root.
func TestADaemonSeesOfRunOnlyItsRows(t *testing.T) {
	for _, unit := range services {
		client, _, _ := strings.Cut(strings.TrimSuffix(strings.TrimPrefix(unit, "doorward-"), ".service"), "@")
		var want []string
		if client != "cells" {
			want = append(want, "systemd/notify")
		}
		for _, e := range wire.Graph() {
			if e.From != client {
				continue
			}
			for _, path := range places(t, e) {
				want = append(want, strings.TrimPrefix(path, "/run/"))
			}
		}
		slices.Sort(want)
		want = slices.Compact(want)
		root := fmt.Sprintf("/proc/%d/root/run", mainPID(t, unit))
		var have []string
		err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
			if err != nil {
				return err
			}
			rel, _ := filepath.Rel(root, path)
			switch {
			case d.IsDir(), strings.HasPrefix(rel, "credentials/"+unit+"/"):
			// All of systemd's directory, see docs/decisions/0006; not the machine's root, which is mounted there for a moment.
			case client == "cells" && strings.HasPrefix(rel, "systemd/") && !strings.HasPrefix(rel, "systemd/mount-rootfs"):
			default:
				have = append(have, rel)
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
		slices.Sort(have)
		if !slices.Equal(have, want) {
			t.Errorf("%s sees of /run %q, want %q", unit, have, want)
		}
	}
}

// thresholds bound what `systemd-analyze security` says; each unit has a line on every point that it leaves. What the package does not
// have yet is bound from its first day on.
var thresholds = map[string]float64{"doorward-authd.service": 0.5, "doorward-sentinel.service": 0.6,
	"doorward-egress.service": 1.3, "doorward-egress@work.service": 1.4, "doorward-worker@dav.service": 0.5,
	"doorward-worker@github.service": 0.5,
	"doorward-cells.service":         4.1, "doorward-cell@work.service": 6.8, "doorward-cellnet@work.service": 4.4,
	"doorward-bpf.service": 4.5, "doorward-canary.service": 4.0, "doorward-walls.service": 3.0,
	"doorward-canary-workers.service": 3.4,
	"doorward-approvals.service":      0.6, "doorward-page.service": 0.6}

func TestExposure(t *testing.T) {
	ready(t)
	files, err := filepath.Glob("/usr/lib/systemd/system/doorward-*.service")
	if err != nil || len(files) == 0 {
		t.Fatalf("no unit is installed: %v", err)
	}
	installed := map[string]bool{}
	for _, f := range files {
		name, _, template := strings.Cut(strings.TrimSuffix(filepath.Base(f), ".service"), "@")
		installed[name] = true
		if !slices.ContainsFunc(slices.Collect(maps.Keys(thresholds)), func(unit string) bool {
			return unit == name+".service" || template && strings.HasPrefix(unit, name+"@")
		}) {
			t.Errorf("%s has no bound", f)
		}
	}
	for unit, most := range thresholds {
		if name, _, _ := strings.Cut(strings.TrimSuffix(unit, ".service"), "@"); !installed[name] {
			t.Logf("%s: not in this package", unit)
			continue
		}
		out := must(t, "systemd-analyze", "security", "--no-pager", unit)
		_, after, _ := strings.Cut(out, "Overall exposure level for "+unit+": ")
		number, _, _ := strings.Cut(after, " ")
		have, err := strconv.ParseFloat(number, 64)
		if err != nil {
			t.Fatalf("%s: no level in what systemd-analyze said: %v\n%s", unit, err, out)
		}
		t.Logf("%s: %.1f, at most %.1f", unit, have, most)
		if have > most {
			t.Errorf("%s: exposure %.1f, at most %.1f", unit, have, most)
		}
		for line := range strings.Lines(out) {
			if strings.HasPrefix(line, "✗") {
				t.Log(strings.Join(strings.Fields(line), " "))
			}
		}
		if err := os.WriteFile(filepath.Join(os.Getenv("OUT"), "security-"+unit+".txt"), []byte(out), 0o644); err != nil {
			t.Error(err)
		}
	}
}
