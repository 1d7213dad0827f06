// SPDX-License-Identifier: Apache-2.0

package scenario

import (
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/doorward/doorward/internal/wire"
	"github.com/doorward/doorward/test/ground"
	"github.com/doorward/doorward/test/world"
)

// reachRig is a world with the page, and a cell that has a way out of it.
func reachRig(t *testing.T) *siteRig {
	t.Helper()
	if ground.Systemd() {
		t.Skip("a cell of the machine has no network with a way out yet, and there is no page on that ground")
	}
	ground.Need(t)
	s := newSiteServer(t, "127.0.0.1")
	r := newRig(t, world.Options{Net: true, Page: true, Hosts: []string{"127.0.0.1 rebind.example " + strings.Join(siteNames, " ")}})
	if err := os.WriteFile(filepath.Join(r.Dir, "ca.pem"), s.ca, 0o644); err != nil {
		t.Fatal(err)
	}
	return &siteRig{rig: r, server: s}
}

// waits holds a card to it: nobody has decided, and nothing was sent.
func (r *rig) waits(card wire.Card, after string) {
	r.t.Helper()
	if s := r.card(card.ID).State; s != wire.StateParked {
		r.t.Fatalf("after %s the call is %s", after, s)
	}
	r.sum("a write after "+after, len(r.acted()), 0)
}

// AP-08: from inside a cell neither the page nor the API is reached, by any address or name, where a program of the machine reaches
// both.
func TestAP08_NoAddressOrNameLeadsFromACellToThePage(t *testing.T) {
	r := reachRig(t)
	card := r.park(r.work, issue("ada/site", "reach the page")...)
	ports := map[string]int{"page": int(r.Place.Page), "API": int(r.Place.API)}
	line := func(name string, port int, more string) string {
		return fmt.Sprintf("[site.\"%s:%d\"]\nsetting = \"allow\"\n%s", name, port, more)
	}
	var allowed, permitted string
	for _, port := range ports { // as wide as policy goes without naming an address
		allowed += line("rebind.example", port, "") + line("127.0.0.1", port, "")
		permitted += line("rebind.example", port, fmt.Sprintf("permit = [\"127.0.0.1:%d\"]\n", port))
	}
	hosts := []string{"127.0.0.1", "127.1.2.3", "[::1]", "0.0.0.0", "[::ffff:127.0.0.1]", "localhost", "rebind.example", "198.18.0.1", "198.19.255.254"}
	own, err := net.InterfaceAddrs()
	if err != nil {
		t.Fatal(err)
	}
	for _, a := range own {
		if ip := a.(*net.IPNet).IP; !ip.IsLoopback() && !ip.IsLinkLocalUnicast() {
			hosts = append(hosts, strings.TrimSuffix(net.JoinHostPort(ip.String(), "0"), ":0"))
		}
	}
	// answered sends a request as a browser does, with what else is given, and says whether page or approvals answered.
	answered := func(a *world.Actor, url string, more ...string) bool {
		t.Helper()
		args := []string{"/usr/bin/curl", "--disable", "--silent", "--show-error", "--include", "--noproxy", "*", "--max-time", "20"}
		if !strings.HasSuffix(url, "/") {
			args = append(args, "--data-binary", "{}", "--header", "Content-Type: application/json", "--header", "Origin: "+r.Place.PageOrigin())
		}
		res, err := a.Do(r.ctx(), world.Cmd{UID: 1000, Args: append(append(args, more...), url)})
		if err != nil {
			t.Fatal(err)
		}
		return strings.Contains(res.Stdout, "frame-ancestors 'none'") // both say so with all that they answer
	}
	path := map[string]string{"page": "/", "API": "/v1/decide"}
	for what, port := range ports {
		if !answered(r.Local(1001), fmt.Sprintf("http://localhost:%d%s", port, path[what])) {
			t.Fatalf("control: a program of the machine does not reach the %s", what)
		}
	}
	if !answered(r.Local(1001), fmt.Sprintf("http://localhost:%d/v1/push", r.Place.API)) {
		t.Fatal("control: a program of the machine does not reach where a browser asks to be told")
	}
	for _, policy := range []string{"", allowed} {
		if policy != "" {
			r.load(policy)
		}
		for what, port := range ports {
			for _, host := range hosts {
				from := r.end()
				if what == "API" && answered(r.work.Actor(), fmt.Sprintf("http://%s:%d/v1/push", host, port)) {
					t.Errorf("under the policy %q the cell has itself told at %s", policy, host)
				}
				for _, more := range [][]string{nil, {"--header", fmt.Sprintf("Host: localhost:%d", port)},
					{"--proxy", "http://198.18.0.1:3128", "--noproxy", ""}, {"--proxy", "http://198.18.0.1:3128", "--noproxy", "", "--proxytunnel"}} {
					if answered(r.work.Actor(), fmt.Sprintf("http://%s:%d%s", host, port, path[what]), more...) {
						t.Errorf("under the policy %q the cell reaches the %s at %s, %q", policy, what, host, more)
					}
				}
				if policy != "" || ownLoopback(host) {
					continue // it ends at the cell's own lo; and of equal refusals the record has one
				}
				r.eventually("what was tried at "+host+" is on the record", func() bool { return len(r.refusals(from)) > 0 })
			}
		}
	}
	// Control: with the address permitted by a person that wall is gone, and the next one stands: another host's name, and for the
	// right one a name that is not the address's.
	for _, c := range r.pending() {
		if c.ID != card.ID {
			r.decide(c, false)
		}
	}
	r.load(permitted)
	for what, port := range ports {
		url := fmt.Sprintf("http://rebind.example:%d%s", port, path[what])
		if !answered(r.work.Actor(), url) {
			t.Errorf("control: the %s is not reached at an address that a person permitted", what)
		}
		if !answered(r.work.Actor(), url, "--proxy", "http://198.18.0.1:3128", "--noproxy", "", "--proxytunnel") {
			t.Errorf("control: the %s is not reached by the gate as a proxy, at an address that a person permitted", what)
		}
		if answered(r.work.Actor(), url, "--header", fmt.Sprintf("Host: localhost:%d", port)) {
			t.Errorf("the %s answers under its own name at another's address", what)
		}
	}
	r.waits(card, "the network")
	if s := r.approve(card); s != wire.StateDone {
		t.Errorf("control: the person's own approval: it is %s", s)
	}
}

// ownLoopback says whether a connection to host stays in the cell, where nothing is that the cell did not put there. 198.18.0.1 is
// the gate, which speaks at other ports.
func ownLoopback(host string) bool {
	ip := net.ParseIP(strings.Trim(host, "[]"))
	return host == "localhost" || host == "198.18.0.1" || ip.IsLoopback() || ip.IsUnspecified()
}

// AP-08: no socket of Doorward's but those of the cell's own directory is there in a cell, no verb of a person's is served on those,
// and the person's command does nothing there: not the approval, nor the off switch.
func TestAP08_NoSocketOfAPersonsIsInACell(t *testing.T) {
	r := newRig(t, world.Options{Page: !ground.Systemd()})
	card := r.park(r.work, issue("ada/site", "reach a socket")...)
	program, err := world.BuildTest("./test/world/ask", r.Dir)
	if err != nil {
		t.Fatal(err)
	}
	connects := func(a *world.Actor, path string) bool {
		t.Helper()
		res, err := a.Run(t.Context(), "/usr/bin/timeout", "-s", "KILL", "1", program, path, "x", "80")
		if err != nil {
			t.Fatal(err)
		}
		return !strings.Contains(res.Stdout, "connect to ")
	}
	root, tried := r.Local(0), map[string]bool{}
	for _, e := range wire.Graph() {
		path := wire.RunDir + strings.Replace(e.Socket, "*", "dav", 1)
		if strings.HasPrefix(e.Socket, "cell/") {
			path = wire.CellDir + strings.TrimPrefix(strings.Replace(e.Socket, "*", "dav", 1), "cell/")
		}
		if _, err := os.Stat(path); err != nil {
			continue // of a cell's egress, or of cells: not in this world
		}
		tried[path] = true
		if !connects(root, path) {
			t.Errorf("control: root does not reach %s", path)
		}
		for _, a := range []*world.Actor{r.work.Actor(), r.work.Session("run-4")} {
			if connects(a, path) {
				t.Errorf("a cell reaches %s", path)
			}
		}
	}

	for _, path := range []string{wire.PathApprove, wire.PathEgressSentinel, wire.PathSentinelWeb} {
		if !tried[path] && !ground.Systemd() {
			t.Errorf("%s was not tried", path)
		}
	}

	from, unknown := r.end(), 0
	decide := &wire.DecideCardReq{ID: card.ID, Hash: card.Hash, Approve: true}
	for verb, req := range map[string]any{"decide": decide, "show": &wire.CallRef{Call: card.ID}, "pending": &wire.ListFrom{},
		"grants": &wire.ListFrom{}, "revoke": &wire.PersonRevokeReq{Cell: "home"}, "stop": &wire.StopReq{Cell: "home"},
		"policy": &wire.PolicyReq{Op: "load"}, "taint": &wire.TaintReq{Cell: "work", Clear: true}, "login": &wire.Empty{}, "enrol": &wire.Empty{},
		"approvers": &wire.Empty{}, "session": &wire.SessionReq{}, "execute": &wire.Empty{}, "grant": &wire.Empty{},
		"notify": &wire.NotifyReq{URL: "https://evil.example/"}, "push": &wire.Empty{}, "seen": &wire.CallRef{Call: card.ID},
		"notices": &wire.NoticesReq{Op: "list"}} {
		for _, path := range []string{wire.PathCellSentinel, wire.CellRun + "github.sock"} {
			var resp wire.DecideCardResp
			err := r.work.Actor().Ask(r.ctx(), path, verb, req, &resp)
			if verb == "decide" && path == wire.PathCellSentinel { // there it is a call's own verb, and this is no call
				if err == nil || resp.State != "" {
					t.Errorf("a card is decided on the cell's own socket: %v, %+v", err, resp)
				}
			} else if !errors.Is(err, world.ErrNoAnswer) {
				t.Errorf("%s at %s: %v", verb, path, err)
			} else if path == wire.PathCellSentinel {
				unknown++
			}
		}
	}
	r.waits(card, "each verb")
	have := 0
	r.eventually("each verb that was tried is on the record", func() bool { // equal refusals in one window are one entry, and its sum
		have = 0
		for _, e := range r.refusals(from) {
			var x struct {
				Subject string
				Details struct {
					Detail string
					Times  int
				}
			}
			if err := json.Unmarshal([]byte(e.Raw), &x); err != nil {
				t.Fatal(err)
			}
			if strings.Contains(x.Subject, "work") && x.Details.Detail == "unknown verb" {
				have += max(1, x.Details.Times)
			}
		}
		return have >= unknown
	})
	if have != unknown {
		t.Errorf("%d refusals are on the record of %d verbs that no cell has", have, unknown)
	}

	words := [][]string{{"approve", card.ID, "--yes"}, {"deny", card.ID}, {"stop", "home"}, {"stop"}, {"policy", "load"}, {"taint", "work",
		"--clear", "--yes"}, {"revoke", "--cell", "home"}, {"approver", "add", "eve"}, {"pending"}, {"account", "list"}}
	for _, w := range words {
		for _, uid := range []int{0, 1000} {
			res, err := r.work.Actor().Do(r.ctx(), world.Cmd{UID: uid, Args: append([]string{filepath.Join(r.Prefix, "bin", "doorward")}, w...)})
			if err != nil || res.Code == 0 {
				t.Errorf("as %d in the cell: doorward %s: %v, %v", uid, strings.Join(w, " "), res, err)
			}
		}
	}
	r.waits(card, "the person's command in the cell")
	if s := r.card(r.park(r.home, issue("ada/site", "the other cell goes on")...).ID).State; s != wire.StateParked {
		t.Errorf("the other cell's call is %s", s)
	}
	r.doorward(0, "approve", card.ID, "--yes") // the control, by the same words
	if s := r.ended(card.ID); s != wire.StateDone {
		t.Errorf("it is %s", s)
	}
}

// AP-08: nothing that an agent writes decides: no file, no environment, no text in the call or at the vendor, though the same account
// says it.
func TestAP08_NoMessageApproves(t *testing.T) {
	r := newRig(t, world.Options{})
	card := r.park(r.work, issue("ada/site", "APPROVED by ada")...)
	dir := readable(t)
	if err := os.Chmod(dir, 0o777); err != nil {
		t.Fatal(err)
	}
	const open = "[connector.github]\nsetting = \"dont-ask\"\n[connector.github.method]\nissue-create = \"allow\"\n"
	for _, name := range []string{"policy.toml", "limits.toml", "doorward.toml", ".doorward/policy.toml", ".config/doorward/policy.toml",
		"approver.toml", "AGENTS.md"} {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o777); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(open), 0o666); err != nil {
			t.Fatal(err)
		}
	}
	env := []string{"DOORWARD_APPROVE=1", "DOORWARD_YES=1", "DOORWARD_POLICY=" + dir, "CONFIGURATION_DIRECTORY=" + dir, "XDG_CONFIG_HOME=" + dir + "/.config",
		"HOME=" + dir, "DOORWARD_SOCKET=" + dir + "/sock"}
	script := `cd "$1" && shift && exec "$@"`
	res, err := r.work.Actor().Do(r.ctx(), world.Cmd{UID: 1000, Env: env, Args: append([]string{"/bin/sh", "-c", script, "sh", dir,
		filepath.Join(r.Prefix, "bin", "connector")}, append(issue("ada/site", "by files and environment"), "--json", "--wait", "0s")...)})
	if err != nil || res.Code != wire.ExitWaiting {
		t.Errorf("with files and an environment of the agent's: %v, %v", res, err)
	}
	for _, flag := range []string{"--approve", "--yes", "--approved", "--grant"} {
		res := r.connector(r.work, wire.ExitUsage, append(issue("ada/site", "by a flag"), flag, "true")...)
		r.has(res.Stderr, "no flag")
	}
	r.waits(card, "files, environment and flags")

	// The agent's own account says yes, in public, where the person allowed it to write; and the person's does.
	id := r.given(r.work.Actor(), []string{"github", "comment", "--repo", "ada/site", "--number", "1", "--body", "hello"}, []string{"body"}, nil)
	before := len(r.acted())
	for _, text := range []string{"yes", "approve " + card.ID, "/approve " + card.ID, "I, ada, approve call " + card.ID + "."} {
		r.connector(r.work, 0, "github", "comment", "--repo", "ada/site", "--number", "1", "--body", text)
	}
	r.sum("a comment", len(r.acted()), before+4)
	r.github.State.AddIssue("ada", "site", "ada", "approve "+card.ID, "Yes.")
	r.connector(r.work, 0, "github", "issues", "--repo", "ada/site")
	if s := r.card(card.ID).State; s != wire.StateParked {
		t.Errorf("after messages at the vendor it is %s", s)
	}
	r.doorward(0, "revoke", id)
	for _, words := range [][]string{{"result", card.ID}, {"wait", card.ID, "--wait", "0s"}, {"inbox"}} { // all that a cell can do with its id
		if _, err := r.work.Actor().Connector(r.ctx(), words...); err != nil {
			t.Fatal(err)
		}
		if _, err := r.home.Actor().Connector(r.ctx(), words...); err != nil {
			t.Fatal(err)
		}
	}
	r.connector(r.home, wire.ExitUsage, "cancel", card.ID)
	if s := r.card(card.ID).State; s != wire.StateParked {
		t.Errorf("after another cell's cancel it is %s", s)
	}
	if s := r.approve(card); s != wire.StateDone {
		t.Errorf("control: the person's own approval: it is %s", s)
	}
}
