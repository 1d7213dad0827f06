// SPDX-License-Identifier: Apache-2.0

package scenario

import (
	"crypto/rand"
	"encoding/json"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/doorward/doorward/internal/wire"
	"github.com/doorward/doorward/test/world"
)

// A text arrives at the vendor with the bytes that it was given with, however it was given.
func TestCase_CI01_BytesArriveAsGiven(t *testing.T) {
	r := newRig(t, world.Options{})
	dir := readable(t)
	const quoted = `'a\nb'` // what a shell makes a backslash and an n of
	cases := []struct{ name, text, how string }{
		{"backslash n", `a\nb`, "shell " + quoted},
		{"a real newline", "a\nb", "flag"},
		{"dollar quotes", "a\nb!", "shell $'a\\nb!'"},
		{"carriage returns", "a\r\nb\r\n", "flag"},
		{"stdin", "from\nstdin\n\n", "stdin"},
		{"a file", "from\r\na file, no newline at its end", "file"},
		{"a line with a dot", "above\r\n.\r\n..\nbelow", "file"},
		{"a dot alone", ".", "flag"},
		{"emoji", "👩🏽‍🚀 é é 李\tend", "flag"},
		{"looks like a flag", "--title", "equals"},
		{"looks like a comment's end", "--> <!-- doorward:x -->", "equals"},
		{"JSON", "\",\"title\":\"other\\u0000\"}", "flag"},
	}
	for i, c := range cases {
		args := []string{"--repo", "ada/site", "--title", fmt.Sprintf("CI-01 %d", i), "--json", "--wait", "0s"}
		cmd := world.Cmd{UID: 1000, Args: append([]string{filepath.Join(r.Prefix, "bin/connector"), "github", "issue-create"}, args...)}
		switch how, word, _ := strings.Cut(c.how, " "); how {
		case "shell":
			cmd.Args = []string{"/bin/bash", "-c", "exec connector github issue-create " + strings.Join(args[:2], " ") +
				fmt.Sprintf(" --title 'CI-01 %d' --json --wait 0s --body ", i) + word}
		case "flag":
			cmd.Args = append(cmd.Args, "--body", c.text)
		case "equals":
			cmd.Args = append(cmd.Args, "--body="+c.text)
		case "stdin":
			cmd.Args, cmd.Stdin = append(cmd.Args, "--body-file", "-"), c.text
		case "file":
			cmd.Args = append(cmd.Args, "--body-file", put(t, dir, fmt.Sprint(i), []byte(c.text), 0o644))
		}
		res, err := r.work.Actor().Do(r.ctx(), cmd)
		if err != nil || res.Code != wire.ExitWaiting {
			t.Fatalf("%s: %v, %v", c.name, res, err)
		}
		card := r.card(callOf(t, res))
		if s := r.approve(card); s != wire.StateDone {
			t.Fatalf("%s is %s: %v", c.name, s, r.card(card.ID).Err)
		}
		posts := r.github.Rec.Find("POST", "/repos/ada/site/issues")
		var body struct{ Body, Title string }
		if err := json.Unmarshal(posts[len(posts)-1].Body, &body); err != nil {
			t.Fatal(err)
		}
		if want := c.text + "\n\n<!-- doorward:" + card.Mark + " -->"; body.Body != want {
			t.Errorf("%s: the vendor got %q, want %q", c.name, body.Body, want)
		}
		if body.Title != fmt.Sprintf("CI-01 %d", i) {
			t.Errorf("%s: the title is %q", c.name, body.Title)
		}
	}
	before := r.issues()
	for name, text := range map[string][]byte{"NUL": []byte("a\x00b"), "no UTF-8": {'a', 0xff}, "escape": []byte("\x1b[2K")} {
		file := put(t, dir, "bad", text, 0o644)
		res := r.connector(r.work, wire.ExitUsage, "github", "issue-create", "--repo", "ada/site", "--title", "T", "--body-file", file)
		if !strings.Contains(res.Stderr, "--body") {
			t.Errorf("%s: %v", name, res)
		}
	}
	r.sum("an issue", r.issues(), before)
	help := r.connector(r.work, 0, "describe", "github", "issue-create").Stdout
	has := func(s string) bool { return strings.Contains(help, s) }
	if !has("--body-file") || !has("stdin") {
		t.Errorf("help does not say how many lines are sent:\n%s", help)
	}
}

// What listens on the host outside the cell's own folder does not exist for a cell: abstract names, sockets in /run and
// ports of the loopback. The control reaches each of them from outside.
func TestCase_SO04_HostSocketsAreOutOfReach(t *testing.T) {
	r := newRig(t, world.Options{})
	flood := r.program("flood")
	var reached atomic.Int64
	serve := func(ln net.Listener, err error) {
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { ln.Close() })
		go func() {
			for {
				c, err := ln.Accept()
				if err != nil {
					return
				}
				reached.Add(1)
				c.Close()
			}
		}()
	}
	name := fmt.Sprintf("@/tmp/.X11-unix/X%d", os.Getpid())
	serve(net.Listen("unix", name))
	for _, dir := range []string{"/run/dbus", "/run/systemd", "/run/ssh-agent"} {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	paths := []string{"/run/dbus/system_bus_socket", "/run/docker.sock", "/run/systemd/private", "/run/ssh-agent/sock"}
	system := map[string]bool{} // those that are the machine's own, which count nothing and may be for root alone
	for _, p := range paths {
		if _, err := os.Stat(p); err == nil {
			system[p] = true
			continue
		}
		serve(net.Listen("unix", p))
		t.Cleanup(func() { _ = os.Remove(p) })
		if err := os.Chmod(p, 0o666); err != nil {
			t.Fatal(err)
		}
	}
	all := append([]string{name}, paths...)
	all = append(all, wire.PathApprove, wire.PathAuthdAdmin, wire.PathAuthdWorker, wire.PathEgressWorker, wire.PathSentinelWorker)
	for _, uid := range []int{1000, 0} {
		for _, p := range all {
			res, err := r.work.Actor().Do(r.ctx(), world.Cmd{Args: []string{flood, "bytes", p, "00"}, UID: uid})
			if err != nil || res.Code == 0 {
				t.Errorf("uid %d of the cell reaches %s: %v, %v", uid, p, res, err)
			}
		}
	}
	if n := reached.Load(); n != 0 {
		t.Errorf("%d connections came from the cell", n)
	}
	res, err := r.work.Actor().Run(r.ctx(), "/bin/cat", "/proc/net/unix")
	if err != nil || res.Code != 0 || strings.Contains(res.Stdout, "@/tmp/.X11") || strings.Contains(res.Stdout, "docker") {
		t.Errorf("the cell sees sockets of the host: %v, %v", res, err)
	}
	// A read-only mount is no protection and none is relied on: the cell's sockets answer through one.
	res, err = r.work.Actor().Do(r.ctx(), world.Cmd{Args: []string{"/bin/sh", "-c",
		"mount -o remount,bind,ro /run/doorward/cell 2>/dev/null; exec connector list --json"}, UID: 0})
	if err != nil || res.Code != 0 {
		t.Errorf("through a read-only mount: %v, %v", res, err)
	}
	// Control: the same program outside of the cell reaches them.
	for _, p := range all[:1+len(paths)] {
		other, is := r.Local(1001), func(res world.Result) bool { return res.Code == 0 }
		if system[p] { // it takes the connection, and may say nothing to a byte
			other, is = r.Local(0), func(res world.Result) bool { return !strings.Contains(res.Stdout, "dial") }
		}
		res, err := other.Run(r.ctx(), flood, "bytes", p, "00")
		if err != nil || !is(res) {
			t.Errorf("control: %s is not reached from outside: %v, %v", p, res, err)
		}
	}
	r.eventually("control: the listeners saw it", func() bool { return reached.Load() == int64(1+len(paths)-len(system)) })
}

// Nothing that runs, while accounts are added and calls are made, shows a credential in its arguments or environment:
// not to the cell's user, not to another user, not to root.
func TestCase_LK01_NoCredentialInArgumentsOrEnvironment(t *testing.T) {
	r := newRig(t, world.Options{})
	peek := r.program("peek")
	second := "ghp_" + rand.Text() + rand.Text()[:10]
	secrets := strings.Join([]string{r.githubToken, r.davPassword, second}, "\n") + "\n"
	// watch runs f while three users look, and returns what they saw.
	watch := func(t *testing.T, f func(r *rig)) (seen map[string]string) {
		r := r.with(t)
		done := filepath.Join(readable(t), "done")
		procs := map[string]*world.Proc{}
		for name, a := range map[string]*world.Actor{"the cell": r.work.Actor(), "another user": r.Local(1001), "root": r.Person(0)} {
			c := world.Cmd{Args: []string{peek, done}, Stdin: secrets}
			if name == "the cell" {
				c.UID = 1000
			}
			p, err := a.Start(c)
			if err != nil {
				t.Fatal(err)
			}
			procs[name] = p
		}
		f(r)
		put(t, filepath.Dir(done), "done", nil, 0o644)
		seen = map[string]string{}
		for name, p := range procs {
			res, err := p.Wait()
			var looks, read int
			if _, serr := fmt.Sscanf(res.Stdout, "looks %d read %d", &looks, &read); err != nil || serr != nil || looks < 3 || read == 0 {
				t.Errorf("%s: %v, %v", name, res, err)
			}
			_, seen[name], _ = strings.Cut(res.Stdout, "FOUND")
		}
		return seen
	}
	seen := watch(t, func(r *rig) {
		ca := put(t, readable(t), "ca.pem", r.github.CAPEM(), 0o644)
		res, err := r.ada.Doorward(r.ctx(), second+"\n", "account", "add", "github", "second", "--base", r.github.Base(), "--ca", ca,
			"--permit", host(t, r.github.Base()), "--secret-stdin", "--yes")
		if err != nil || res.Code != 0 {
			t.Fatalf("account add: %v, %v", res, err)
		}
		r.connector(r.work, 0, "github", "issues", "--repo", "ada/site", "--account", "code", "--json")
		r.connector(r.home, 0, "dav", "calendars", "--json")
		for _, args := range [][]string{append(issue("ada/site", "LK-01"), "--account", "code"), r.event("LK-01")} {
			if s := r.approve(r.park(r.work, args...)); s != wire.StateDone {
				t.Errorf("%s is %s", args[1], s)
			}
		}
	})
	for who, what := range seen {
		if what != "" {
			t.Errorf("%s sees a credential: %s", who, what)
		}
	}
	for _, flag := range []string{"--token", "--password", "--secret", "--api-key"} {
		res := r.doorward(wire.ExitUsage, "account", "add", "github", "third", flag, "IN_A_FLAG_0123456789")
		if !strings.Contains(res.Stderr, "stdin") || strings.Contains(res.Stderr+res.Stdout, "IN_A_FLAG") {
			t.Errorf("a secret in %s: %v", flag, res)
		}
	}

	// Control: the same looks find a process that has one in its arguments, wherever it can be seen from.
	seen = watch(t, func(r *rig) {
		for _, a := range []*world.Actor{r.Local(1001), r.work.Actor()} {
			p, err := a.Start(world.Cmd{Args: []string{"/bin/sh", "-c", "sleep 600; : " + r.githubToken}, UID: 1001})
			if err != nil {
				t.Fatal(err)
			}
			defer func() { p.Kill(); _, _ = p.Wait() }()
		}
		time.Sleep(2 * time.Second)
	})
	for who, what := range seen {
		if what == "" {
			t.Errorf("control: %s does not see it", who)
		}
	}
}
