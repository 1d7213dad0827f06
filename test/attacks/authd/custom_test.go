// SPDX-License-Identifier: Apache-2.0

package authd

import (
	"encoding/json"
	"path/filepath"
	"testing"

	"github.com/doorward/doorward/internal/leaks"
	"github.com/doorward/doorward/internal/wire"
	"github.com/doorward/doorward/test/world"
)

const botToken = "MTk4NjIyNDgzNDcxOTI1MjQ4.Cl2FMQ.ZnCjm1XVW7vRze4b7Cq4se7kKWs"

// With the kernel's identities: a surrogate is worth something to the egress of its cell, for one request that sentinel allowed, and
// to nobody else; that goes on over restarts of both, and no file or log has it.
func TestACustomSurrogateIsItsCellsOnly(t *testing.T) {
	s := start(t)
	if got := s.ask(s.w.Person(1000), wire.PathAuthdAdmin, "add", wire.AddReq{Name: "bot", Vendor: "custom",
		Base: wire.Base{Scheme: "https", Host: "discord.com", Port: 443}, Also: []string{"*.discord.com:443"},
		Placement: wire.Placement{Kind: "header", Name: "Authorization", Prefix: "Bot "}, Secret: []byte(botToken)}); got.Code != "" {
		t.Fatalf("add: %+v", got)
	}
	n := s.sentinel()
	// granted is a grant for one request of the cell `work`.
	granted := func(id string) wire.GrantReq {
		t.Helper()
		g := n.grant(id, "bot")
		g.Worker, g.Session, g.Issue, g.Entries[0].Uses, g.Entries[0].Host = "", "", "issue-1", 1, "gateway.discord.com"
		if got := n.ask("grant", g); got.Code != "" {
			t.Fatalf("%+v", got)
		}
		return g
	}
	like := n.grant("like", "bot")
	mint := wire.MintReq{Issue: "issue-1", Cell: "work", Account: "bot", Generation: like.Generation, Digest: like.Digest}
	var minted wire.MintResp
	if got := n.ask("mint", mint); got.Code != "" || json.Unmarshal(got.Body, &minted) != nil || len(minted.Value) != len(botToken) {
		t.Fatalf("%+v", got)
	}
	value := string(minted.Value)
	work, play := s.w.InsideEgress("work"), s.w.InsideEgress("play")
	resolve := func(as *world.Actor, r wire.ResolveReq) (code, secret string) {
		t.Helper()
		got := s.ask(as, wire.PathAuthdEgress, "resolve", r)
		var resp wire.ResolveResp
		if got.Code == "" && got.Event == "answer" {
			if err := json.Unmarshal(got.Body, &resp); err != nil {
				t.Fatal(err)
			}
		}
		if got.Event == "error" {
			return "error", ""
		}
		return got.Code, resp.Secret
	}

	// A surrogate that is none ends its grant, so each attempt has its own.
	g, other, third := granted("a"), granted("b"), granted("c")
	const workUnit, playUnit = "doorward-egress@work.service", "doorward-egress@play.service"
	for _, c := range []struct {
		name       string
		as         *world.Actor
		r          wire.ResolveReq
		code, unit string
	}{
		{"another cell's egress", play, wire.ResolveReq{Grant: g.Grant, Surrogate: value}, "bad_grant", playUnit},
		{"the egress of workers", s.w.Inside("egress"), wire.ResolveReq{Grant: g.Grant, Surrogate: value}, "bad_grant", "doorward-egress.service"},
		{"as a worker's", work, wire.ResolveReq{Grant: g.Grant, Surrogate: value, Worker: "github"}, "bad_grant", workUnit},
		{"without a surrogate", work, wire.ResolveReq{Grant: other.Grant}, "bad_surrogate", workUnit},
		{"with the credential", work, wire.ResolveReq{Grant: third.Grant, Surrogate: botToken}, "bad_surrogate", workUnit},
	} {
		if code, secret := resolve(c.as, c.r); code != c.code || secret != "" {
			t.Errorf("%s: %q", c.name, code)
		}
		n.refusedAs(c.unit, "")
	}
	for name, as := range map[string]*world.Actor{"a worker": s.w.Inside("worker-github"), "another user": s.w.Local(1001),
		"a person": s.w.Person(1000)} {
		if code, _ := resolve(as, wire.ResolveReq{Grant: g.Grant, Surrogate: value}); code != "error" {
			t.Errorf("%s reaches the socket: %q", name, code)
		}
	}
	if code, secret := resolve(work, wire.ResolveReq{Grant: g.Grant, Surrogate: value}); secret != botToken {
		t.Fatalf("control: its egress is refused: %s", code)
	}
	var released wire.ReleasedReq
	if n.next("released", &released); released.Grant != g.Grant || released.Cell != "work" || released.Worker != "" {
		t.Errorf("%+v", released)
	}
	if code, _ := resolve(work, wire.ResolveReq{Grant: g.Grant, Surrogate: value}); code != "bad_grant" {
		t.Errorf("a second time: %q", code)
	}
	n.refusedAs(workUnit, "no live grant")
	// The egress of a cell reaches none of authd's other sockets.
	for _, path := range []string{wire.PathAuthdSentinel, wire.PathAuthdWorker, wire.PathAuthdAdmin} {
		if got := s.ask(work, path, "mint", mint); got.Event != "error" {
			t.Errorf("it was answered at %s: %+v", path, got)
		}
	}

	// Line 8: sentinel killed, then authd.
	n.end()
	n = s.sentinel()
	g = granted("b")
	if code, secret := resolve(work, wire.ResolveReq{Grant: g.Grant, Surrogate: value}); secret != botToken {
		t.Errorf("after sentinel's end: %q", code)
	}
	s.w.Daemon("authd").Kill()
	if err := s.w.Daemon("authd").Start(); err != nil {
		t.Fatal(err)
	}
	n.next("gone", nil)
	n.end()
	n = s.sentinel()
	g = granted("c")
	if code, secret := resolve(work, wire.ResolveReq{Grant: g.Grant, Surrogate: value}); secret != botToken {
		t.Errorf("after authd's end: %q", code)
	}
	if got := n.ask("revoke", wire.GrantRef{Grant: "issue-1"}); got.Code != "" {
		t.Fatalf("%+v", got)
	}
	if err := s.w.Daemon("authd").Restart(); err != nil {
		t.Fatal(err)
	}
	n.next("gone", nil)
	n.end()
	n = s.sentinel()
	g = granted("d")
	if code, secret := resolve(work, wire.ResolveReq{Grant: g.Grant, Surrogate: value}); code != "bad_surrogate" || secret != "" {
		t.Errorf("revoked: %q", code)
	}
	look, err := leaks.New(leaks.Secret{Name: "token", Value: []byte(botToken)}, leaks.Secret{Name: "surrogate", Value: minted.Value})
	if err != nil {
		t.Fatal(err)
	}
	if r := look.Files(s.w.State("authd"), filepath.Join(s.w.Dir, "log")); !r.Clean() || r.Bytes == 0 {
		t.Errorf("%+v", r)
	}
}
