// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
)

// payloadEnv is what the first process of a cell, which is nspawn's own, may have of this machine: package cells sets it.
var payloadEnv = []string{"PATH", "LANG", "NOTIFY_SOCKET"}

// Payloads looks, as root, at what the starts of the cells that run have begun: a canary cannot be put among it.
func (m *Machine) Payloads() []Finding {
	const check = "cell.payload"
	if m.err != nil {
		return nil
	}
	var out []Finding
	for _, cell := range m.Cells() {
		if os.Geteuid() != 0 {
			f := rootOnly(check, "what cell %s was started with: only root may look at it", Name(cell))
			f.Of = Name(cell)
			out = append(out, f)
			continue
		}
		f := Ok(check, "cell %s: what it was started with has filters of system calls, and nothing of this machine in its environment",
			Name(cell))
		switch err := payload(CgroupRoot() + expectedGroup("doorward-cell@"+cell+".service") + "/payload"); {
		case errors.Is(err, errUntried):
			f = Not(check, "what cell %s was started with: %s", Name(cell), Detail(words(err)))
		case err != nil:
			f = Bad(check, "doorward cell stop CELL; doorward cell start CELL", "cell %s: %s", Name(cell), Detail(err.Error()))
		}
		f.Of = Name(cell)
		out = append(out, f)
	}
	return out
}

// payload looks at the processes of a payload's cgroup. Of what the cell began it reads nothing but what the kernel says.
func payload(group string) error {
	b, err := os.ReadFile(group + "/cgroup.procs")
	if err != nil {
		return err
	}
	seen := false
	for _, pid := range strings.Fields(string(b)) {
		n, err := strconv.Atoi(pid)
		if err != nil {
			return err
		}
		p, err := openProcess(n)
		if err != nil {
			continue // it has ended
		}
		if p.status["Seccomp"] != "2" {
			return fmt.Errorf("the system calls of process %s are not filtered", pid)
		}
		if nspid := strings.Fields(p.status["NSpid"]); len(nspid) != 2 || nspid[1] != "1" {
			continue // what the cell begins has the environment that it likes
		}
		env, err := os.ReadFile("/proc/" + pid + "/environ")
		if err != nil {
			continue
		}
		seen = true
		for kv := range bytes.SplitSeq(env, []byte{0}) {
			if name, _, _ := strings.Cut(string(kv), "="); name != "" && !slices.Contains(payloadEnv, name) {
				return fmt.Errorf("%.60q is in the environment of its first process", name)
			}
		}
	}
	if !seen { // root of the cell may make cgroups below this one, and move it there
		return cannot("its first process is not in the cgroup where it was started")
	}
	return nil
}
