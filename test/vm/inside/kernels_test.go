// SPDX-License-Identifier: Apache-2.0

package inside

import (
	"encoding/json"
	"os"
	"slices"
	"strings"
	"testing"
)

// TestFullKernelWithoutBPF runs where the kernel was booted with a list of security modules that `bpf` is not in. doctor
// says so and calls it weak, as docs/kernel.md has it, and nothing is open that is closed elsewhere.
func TestFullKernelWithoutBPF(t *testing.T) {
	ready(t)
	b, err := os.ReadFile("/sys/kernel/security/lsm")
	if err != nil || strings.Contains(string(b), "bpf") {
		t.Fatalf("the kernel was booted with the list %q: %v", b, err)
	}
	t.Run("a read and an approved write", TestAReadAndAnApprovedWrite)
	t.Run("root of the cell", TestRootOfTheCellReachesNothing)
	t.Run("a daemon taken over", TestATakenOverDaemonReachesOnlyItsRows)
	r := as(t, "root", "user-0.slice", "", "/usr/bin/doorward", "doctor", "--json")
	var said struct {
		Items []struct{ Check, State, What, Next string }
	}
	if err := json.Unmarshal([]byte(r.stdout), &said); err != nil {
		t.Fatalf("%v: %v", err, r)
	}
	found := false
	for _, f := range said.Items {
		t.Logf("%s: %s: %s; next: %s", f.Check, f.State, f.What, f.Next)
		if strings.HasPrefix(f.Check, "kernel.") && f.State == "wrong" {
			t.Errorf("%s is wrong: %s", f.Check, f.What)
		}
		if f.Check == "kernel.bpflsm" {
			found = true
			if f.State != "weak" || !strings.Contains(f.Next, "lsm=") {
				t.Errorf("doctor says of bpf among the security modules %q and %q, want weak, and how to have it", f.State, f.Next)
			}
		}
	}
	if !found {
		t.Errorf("doctor says nothing of bpf: %v", r)
	}
}

// On a kernel of 6.13 or newer callers are told apart by what their pidfd says, too: what the other tests of this suite see
// there is that path.
func TestFullKernelThatSaysTheCgroup(t *testing.T) {
	ready(t)
	all := doctor(t)
	tell(t, all, "weak")
	if !slices.Contains(in(all, "ok"), "kernel.pidfdinfo") {
		t.Error("this kernel has no PIDFD_GET_INFO, so nothing here tries it")
	}
	tell(t, all, "wrong")
}
