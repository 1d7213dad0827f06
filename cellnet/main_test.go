// SPDX-License-Identifier: Apache-2.0

package cellnet

import (
	"bytes"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"

	"github.com/doorward/doorward/internal/wire"
	"github.com/doorward/doorward/test/ground"
	"golang.org/x/sys/unix"
)

// The command as its units run it, with the capabilities that they leave it: everything is made, run again, and taken away.
// Control: with one capability less it is not.
func TestTheCommandAsItsUnitsRunIt(t *testing.T) {
	ground.Need(t)
	bin := t.TempDir() + "/cellnet"
	build := exec.Command("go", "build", "-o", bin, "./cmd/cellnet")
	build.Dir, build.Env = "..", append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	makeSlices(t, Machine)
	t.Cleanup(func() {
		_ = Machine.unname(canaryNet)
		_ = unix.Unmount(wire.BPFDir, unix.MNT_DETACH)
		if err := ground.RemoveCgroup("/doorward.slice"); err != nil {
			t.Error(err)
		}
	})
	canary := Machine.Slice + "/doorward-canary.service/payload"
	if _, err := ground.MakeCgroup(canary); err != nil {
		t.Fatal(err)
	}
	dir, err := os.Open(ground.Cgroup + canary)
	if err != nil {
		t.Fatal(err)
	}
	defer dir.Close()
	run := func(caps string, words ...string) (int, string) {
		cmd := exec.Command("setpriv", append([]string{"--no-new-privs", "--bounding-set=" + caps, "--inh-caps=" + caps, bin}, words...)...)
		if words[0] == "canary" {
			cmd.SysProcAttr = &syscall.SysProcAttr{UseCgroupFD: true, CgroupFD: int(dir.Fd())}
		}
		var said bytes.Buffer
		cmd.Stdout, cmd.Stderr = &said, &said
		err := cmd.Run()
		if cmd.ProcessState == nil {
			t.Fatal(err)
		}
		return cmd.ProcessState.ExitCode(), said.String()
	}
	const bpf, net, try = "-all,+sys_admin,+net_admin,+chown", "-all,+sys_admin,+net_admin,+chown", "-all,+sys_admin,+net_admin,+net_raw"
	for _, step := range []struct {
		caps  string
		code  int
		says  string
		words []string
	}{
		{net, 1, "doorward-bpf.service", []string{"cell", "work"}}, // before the walls
		{try, 1, "doorward-bpf.service", []string{"canary"}},
		{"-all,+chown", 1, "operation not permitted", []string{"bpf"}},
		{"-all,+sys_admin,+chown", 1, "operation not permitted", []string{"bpf"}},
		{bpf, 0, "", []string{"bpf"}},
		{bpf, 0, "", []string{"bpf"}},
		{"-all,+net_admin,+chown", 1, "operation not permitted", []string{"cell", "work"}},
		{net, 0, "", []string{"cell", "work"}},
		{net, 0, "", []string{"cell", "work"}},
		{try, 0, "", []string{"canary"}},
		{"-all,+net_admin", 1, "operation not permitted", []string{"canary"}},
		{try, 0, "", []string{"canary"}},
		{try, 1, "sentinel/cells/sock", []string{"report"}}, // of the canary before the walls; and nobody is there to tell
		{bpf, 0, "cell work udp 0", []string{"counts"}},
		{bpf, 0, "gate host 2", []string{"counts"}}, // the canaries that could begin
		{net, 0, "", []string{"cell", "work", "--stop"}},
		{net, 0, "", []string{"cell", "work", "--stop"}},
		{net, 1, "names no cell", []string{"cell", "../x"}},
		{net, 2, "usage", []string{"cell"}},
		{net, 2, "usage", []string{"--help"}},
		{net, 2, "usage", []string{"cell", "work", "--start"}},
	} {
		if code, said := run(step.caps, step.words...); code != step.code || !strings.Contains(said, step.says) || step.says == "" && said != "" {
			t.Errorf("%s: cellnet %q ends with %d and %q, want %d and %q", step.caps, step.words, code, said, step.code, step.says)
		}
	}
	if _, err := os.Lstat(Machine.netns("work")); !os.IsNotExist(err) {
		t.Errorf("the name of its network: %v", err)
	}
}
