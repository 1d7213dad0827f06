// SPDX-License-Identifier: Apache-2.0

package operator

import (
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/doorward/doorward/cli/operator/machine"
	"github.com/doorward/doorward/internal/leaks"
	"github.com/doorward/doorward/internal/wire"
)

// planted are what a report must not have: credentials, and what says something about a person.
func planted() map[string]string {
	p := map[string]string{"token": "ghp_" + rand.Text(), "password": "pass-" + rand.Text(), "host": "mail.ada-home.example.net",
		"address": "ada@example.test", "title": "Dinner with eve on Friday", "path": "/home/ada/engine-secret", "account": "adas-own-diary",
		"cell": "adaworkcell", "user": "adalogin", "project": "/srv/ada/thesis-draft", "repo": "ada/secret-engine", "person": "adalovelace"}
	return p
}

// sourcesWith plants them in everything that a report is made of.
func sourcesWith(p map[string]string) *sources {
	all := ""
	for _, v := range p {
		all += v + " "
	}
	s := &sources{now: time.Unix(1900000000, 0), vendors: []string{"dav", "github"}, people: []string{p["person"]},
		counts: map[string]int{"waiting": 3}}
	s.findings = []machine.Finding{
		machine.Ok("account", "account %s of %s", machine.Name(p["account"]), "dav"),
		machine.Bad("answers.sentinel", "doorward cell start "+p["cell"]+" "+all, "%s: %s: %s", "sentinel", "internal", machine.Detail(all)),
		machine.Less("policy.unasked", "", "%s %s goes without asking, a %s (%s)", "github", "comment", "write", machine.Detail(all)),
		machine.Not("wall", "walls: %v", &os.PathError{Op: "open", Path: p["path"], Err: errors.New(all)}),
	}
	s.findings[0].Of, s.findings[1].Of, s.findings[2].Of = machine.Name(p["cell"]), "doorward-sentinel.service", "doorwardadas"
	d := answered{installed: s.vendors, hasCells: true, accounts: []wire.Account{{Name: p["account"], Vendor: p["person"]},
		{Vendor: p["title"], Health: wire.Code(all)}, {Vendor: "github", Health: wire.CodeDenied}},
		cells: []wire.CellState{{Name: p["cell"], State: all}}}
	d.health()
	d.heard("sentinel", wire.Refuse(wire.Code(all), all, all))
	s.findings = append(append(s.findings, d.findings...), cellsArmed(&d)...)
	s.units = []machine.UnitState{{Name: "doorward-cell@" + p["cell"] + ".service", State: "active (running)"},
		{Name: "doorward-authd.service", State: "active (running)", Restarts: 2}}
	acc := wire.Account{Name: p["account"], Vendor: "dav", Owner: p["address"], Base: wire.Base{Host: p["host"]}, Also: []string{p["host"]},
		Health: wire.CodeReconnectRequired}
	acc.Placement.User = p["user"]
	s.accounts = []wire.Account{acc, {Name: p["token"], Vendor: p["title"], Health: wire.Code(all)}}
	s.cells = []wire.CellState{{Name: p["cell"], State: "running", User: p["user"], Projects: []string{p["project"]}, Problem: all},
		{State: all}}
	s.verify = &wire.AuditResp{Lines: [][]byte{fmt.Appendf(nil, `{"size":7,"signed":2,"coded":true,"kept":[1],"findings":[{"what":%q}]}`, all)},
		Err: wire.Refuse(wire.CodeInternal, all, all)}
	s.record = [][]byte{fmt.Appendf(nil, `{"n":1,"type":"park","details":{"title":%q}}`, all), fmt.Appendf(nil, `{"type":%q}`, all)}
	line := func(fields map[string]string, message any) {
		m := map[string]any{"__REALTIME_TIMESTAMP": "1900000000000000", "MESSAGE": message, "_HOSTNAME": p["host"], "_CMDLINE": all}
		for k, v := range fields {
			m[k] = v
		}
		b, _ := json.Marshal(m)
		s.journal = append(append(s.journal, b...), '\n')
	}
	sentinel := map[string]string{"_SYSTEMD_UNIT": "doorward-sentinel.service"}
	logged := func(msg string) string {
		b, _ := json.Marshal(map[string]any{"level": "WARN", "msg": msg, "daemon": "sentinel", "cell": p["cell"], "account": p["account"],
			"vendor": p["title"], "verb": p["repo"], "call": all, "count": 12, "err": "open " + p["path"] + ": permission denied", p["user"]: 1,
			"nested": map[string]string{"a": all}})
		return string(b)
	}
	line(sentinel, logged("a caller is refused"))
	line(sentinel, logged("a caller of "+p["person"]+" is refused"))
	line(sentinel, logged("a caller of "+p["person"]+"-laptop is refused"))
	for _, v := range p {
		line(sentinel, logged(v))
		line(sentinel, v)
		line(map[string]string{"_SYSTEMD_UNIT": "doorward-cell@" + p["cell"] + ".service"}, v)
		line(map[string]string{"_PID": "1", "UNIT": "doorward-cell@" + p["cell"] + ".service", "JOB_RESULT": v, "MESSAGE_ID": "39f5"}, v)
		line(sentinel, "panic: "+v)
		line(sentinel, "\t/home/"+v+"/x.go:12 +0x1d")
	}
	line(sentinel, []int{1, 2, 3}) // what is no text
	line(sentinel, "panic: runtime error: index out of range")
	line(sentinel, "github.com/doorward/doorward/sentinel.(*Sentinel).decide(0xc000, {0x1, 0x2})")
	line(sentinel, "\tgithub.com/doorward/doorward/sentinel/decide.go:77 +0x1d")
	return s
}

func scanner(t *testing.T, p map[string]string) *leaks.Scanner {
	t.Helper()
	var list []leaks.Secret
	for name, v := range p {
		list = append(list, leaks.Secret{Name: name, Value: []byte(v)})
	}
	s, err := leaks.New(list...)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// Nothing of a person and no credential is in a report, wherever it stood before. The control: in what a report is made
// of, every one is found.
func TestAReportHasNothingOfAPerson(t *testing.T) {
	p := planted()
	s := sourcesWith(p)
	look := scanner(t, p)
	b, err := redacted(s)
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range look.Bytes("the report", b) {
		t.Errorf("%s", f)
	}
	for _, small := range []string{"with eve", "lovelace", "thesis", "Dinner", "example.test", "doorwardadas"} {
		if strings.Contains(string(b), small) {
			t.Errorf("the report has %q", small)
		}
	}
	if t.Failed() {
		t.Logf("%s", b)
	}
	whole, err := json.Marshal(map[string]any{"findings": s.findings, "units": s.units, "accounts": s.accounts, "cells": s.cells,
		"people": s.people, "verify": s.verify})
	if err != nil {
		t.Fatal(err)
	}
	for name := range p {
		for where, text := range map[string][]byte{"the journal": s.journal, "the rest": whole} {
			hit := false
			for _, f := range look.Bytes(where, text) {
				hit = hit || f.Secret == name
			}
			if !hit {
				t.Errorf("control: %s is not found in %s", name, where)
			}
		}
	}
	// What is left says something.
	for _, want := range []string{`"check": "account"`, `of dav"`, `"sentinel: internal: (left out)"`, `"a caller is refused"`, `"permission denied"`,
		`"dav reconnect_required": 1`, `"another other": 1`, `"entries": 7`, `"faults": 1`, `"park": 1`, `"count": 12`, `"doorward-authd.service"`,
		`"running": 1`, `of github: denied"`, `sentinel.(*Sentinel).decide"`, `sentinel/decide.go:77 +0x1d"`, `"panic: runtime error: index out of range"`,
		`"waiting": 3`, `github comment goes without asking`} {
		if !strings.Contains(string(b), want) {
			t.Errorf("the report has no %s", want)
			t.Logf("%s", b)
		}
	}
	// The same name has one code in a report, and another in the next.
	code := func(b []byte) string {
		_, after, _ := strings.Cut(string(b), `"account #`)
		if len(after) < 8 {
			_, after, _ = strings.Cut(string(b), `account #`)
		}
		return after[:8]
	}
	again, err := redacted(s)
	if err != nil {
		t.Fatal(err)
	}
	if code(b) == code(again) {
		t.Errorf("two reports call the account %s", code(b))
	}
}

// A report is a new file for its owner alone, and nothing else of that name is touched.
func TestAReportIsANewFileForItsOwner(t *testing.T) {
	out, err := os.Create(filepath.Join(t.TempDir(), "out"))
	if err != nil {
		t.Fatal(err)
	}
	defer out.Close()
	a := &app{in: os.Stdin, out: out, err: out, now: time.Now()}
	dir := t.TempDir()
	path := filepath.Join(dir, "report.json")
	if err := a.writeReport(path); err != nil {
		t.Fatal(err)
	}
	info, err := os.Stat(path)
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Fatalf("%v %v", info, err)
	}
	b, err := os.ReadFile(path)
	if err != nil || !json.Valid(b) || !strings.Contains(string(b), "kernel.version") {
		t.Errorf("%v %.200s", err, b)
	}
	link, target := filepath.Join(dir, "link"), filepath.Join(dir, "target")
	if err := os.Symlink(target, link); err != nil {
		t.Fatal(err)
	}
	for _, there := range []string{path, link, dir} {
		err := a.writeReport(there)
		var refused *wire.Error
		if !errors.As(err, &refused) || refused.Code != wire.CodeUsage {
			t.Errorf("%s: %v", there, err)
		}
	}
	if _, err := os.Stat(target); err == nil {
		t.Error("a link is followed")
	}
	if now, _ := os.ReadFile(path); string(now) != string(b) {
		t.Error("a file that was there is changed")
	}
}
