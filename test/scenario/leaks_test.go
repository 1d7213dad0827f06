// SPDX-License-Identifier: Apache-2.0

package scenario

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/doorward/doorward/internal/leaks"
	"github.com/doorward/doorward/test/ground"
	"github.com/doorward/doorward/test/vendors/standin"
	"github.com/doorward/doorward/test/world"
)

// Must hold 8: no live credential, nor a usual encoding of one, in the memory, environment, arguments or open files of
// cell and worker processes, in logs, ledger, spool or core files. The vendors quote the credential in their answers
// while calls run; calls are read, parked, approved, refused and taken back.
func TestNoCredentialWhereItMustNotBe(t *testing.T) {
	r := newRig(t, world.Options{})
	look, err := leaks.New(
		leaks.Secret{Name: "GitHub's token", Value: []byte(r.githubToken)},
		leaks.Secret{Name: "the calendar's password", Value: []byte(r.davPassword)},
		leaks.Secret{Name: "the calendar's pair", Value: []byte("ada:" + r.davPassword)},
	)
	if err != nil {
		t.Fatal(err)
	}

	// Processes of the cells that live on, besides the workers.
	for _, cell := range []*world.Cell{r.work, r.home} {
		p, err := cell.Actor().Start(world.Cmd{Args: []string{"/bin/sleep", "600"}, UID: 1000})
		if err != nil {
			t.Fatal(err)
		}
		defer func() { p.Kill(); _, _ = p.Wait() }()
	}
	r.connector(r.work, 0, "github", "issues", "--repo", "ada/site", "--json")
	r.connector(r.home, 0, "dav", "calendars", "--json")
	quotes := []standin.Fault{
		{Status: 401, Body: `{"message":"key {credential} ({authorization}) is not valid"}`,
			Header: map[string]string{"Www-Authenticate": `Bearer key="{credential}"`, "X-Echo": "{authorization}"}},
		{Status: 500, Body: strings.Repeat("padding ", 9000) + "{authorization}", Gzip: true},
		{Status: 403, Body: "<b>{credential}</b>", Chunk: 7},
		{Status: 302, Header: map[string]string{"Location": "https://evil.test/?key={credential}"}},
	}
	for _, quote := range quotes {
		quote.Times = 2
		r.github.Faults.Add(quote)
		r.dav.Faults.Add(quote)
		for _, args := range [][]string{{"github", "issues", "--repo", "ada/site"}, {"dav", "calendars"}} {
			res, err := r.work.Actor().Connector(r.ctx(), append(args, "--json")...)
			if err != nil {
				t.Fatal(err)
			}
			if found := look.Bytes("the cell's answer", []byte(res.Stdout+res.Stderr)); len(found) > 0 {
				t.Errorf("%s: %v", strings.Join(args, " "), found)
			}
		}
		r.github.Faults.Clear()
		r.dav.Faults.Clear()
	}
	res := r.approved(r.work, "", "github", "issue-create", "--repo", "ada/notes", "--title", "T", "--body", "B")
	if res.Code != 0 {
		t.Fatalf("%v", res)
	}
	// One that stays in the spool.
	res, err = r.work.Actor().Connector(r.ctx(), "github", "comment", "--repo", "ada/notes", "--number", "1",
		"--body", "later", "--wait", "0s", "--json")
	if err != nil || res.Code != 4 {
		t.Fatalf("%v, %v", res, err)
	}

	pids := r.unprivileged()
	if len(pids) < 4 { // two workers, two cells
		t.Fatalf("only %d processes: %v", len(pids), pids)
	}
	processes := look.Processes(pids...)
	if !processes.Clean() || processes.Bytes < 1<<20 {
		t.Errorf("in cells and workers: %v; not read: %v; %d bytes read", processes.Findings, processes.Skipped,
			processes.Bytes)
	}
	files := look.Files(r.Kept()...)
	if !files.Clean() || files.Bytes < 4096 {
		t.Errorf("in state and logs: %v; not read: %v; %d bytes read", files.Findings, files.Skipped, files.Bytes)
	}
	for name, text := range r.Logs() {
		if found := look.Bytes("the log of "+name, []byte(text)); len(found) > 0 || text == "" && name != "cells" ||
			strings.HasPrefix(text, "no log: ") {
			t.Errorf("the log of %s, %d bytes: %v", name, len(text), found)
		}
	}
	for _, d := range r.Daemons() {
		limits, err := os.ReadFile(fmt.Sprintf("/proc/%d/limits", d.PID()))
		if err != nil || !strings.Contains(string(limits), "Max core file size        0                    0") {
			t.Errorf("%s may leave a core file: %v", d.Name, err)
		}
	}
	doctor := r.doctor()
	if doctor.Code != 0 {
		t.Errorf("doctor: %v", doctor)
	}

	// The control: a process of a cell that does hold a credential is found, in the same run and by the same code.
	for where, cmd := range map[string]world.Cmd{
		"environ": {Args: []string{"/bin/sleep", "600"}, Env: []string{"TOKEN=" + r.githubToken}},
		"cmdline": {Args: []string{"/bin/sh", "-c", "sleep 600; : " + r.davPassword}},
		"memory":  {Args: []string{"/bin/sh", "-c", "read key; sleep 600"}, Stdin: r.githubToken + "\n"},
	} {
		p, err := r.work.Actor().Start(cmd)
		if err != nil {
			t.Fatal(err)
		}
		found := false
		r.eventually("the control's credential is found in "+where, func() bool {
			for _, f := range look.Processes(r.unprivileged()...).Findings {
				found = found || strings.Contains(f.Where, where)
			}
			return found
		})
		if where == "environ" {
			if doctor := r.doctor(); doctor.Code == 0 || !strings.Contains(doctor.Stdout, "FOUND") {
				t.Errorf("control: doctor does not find it: %v", doctor)
			}
		}
		p.Kill()
		_, _ = p.Wait()
	}
}

// unprivileged are the processes that must not hold a credential.
func (r *rig) unprivileged() []int {
	r.t.Helper()
	var pids []int
	for _, slice := range []string{"doorward-cells.slice", "doorward-workers.slice"} {
		some, err := leaks.Pids(filepath.Join(ground.Cgroup, "doorward.slice", slice))
		if err != nil {
			r.t.Fatal(err)
		}
		pids = append(pids, some...)
	}
	return pids
}

// doctor runs the person's own check, as root.
func (r *rig) doctor() world.Result {
	r.t.Helper()
	res, err := r.Person(0).Doorward(r.ctx(), r.githubToken+"\n"+r.davPassword+"\n",
		"doctor", "--leaks", "--secret-stdin", "--in", r.Kept()[0])
	if err != nil {
		r.t.Fatal(err)
	}
	for _, secret := range []string{r.githubToken, r.davPassword} {
		if strings.Contains(res.Stdout+res.Stderr, secret) {
			r.t.Error("doctor prints a credential")
		}
	}
	return res
}
