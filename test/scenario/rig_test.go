// SPDX-License-Identifier: Apache-2.0

// Package scenario holds the whole product to what it promises: real processes, real sockets and identities, a vendor's
// server at the far end with a recorder of its own. What the recorder saw is the truth of every test.
package scenario

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/doorward/doorward/internal/wire"
	"github.com/doorward/doorward/test/vendors/caldav"
	"github.com/doorward/doorward/test/vendors/github"
	"github.com/doorward/doorward/test/world"
)

func TestMain(m *testing.M) { world.Main(m) }

// rig is a world with a vendor's server for each connector and an account on each, decided by the person.
type rig struct {
	*world.World
	t      testing.TB
	dav    *caldav.Server
	github *github.Server
	ada    *world.Actor // the person
	work   *world.Cell
	home   *world.Cell

	// The credentials that must never be seen by a cell or worker. They are drawn for each rig: a constant would stand in
	// the test's own binary, which also supervises the cells.
	davPassword, githubToken string
}

func newRig(t testing.TB, o world.Options) *rig {
	t.Helper()
	r := &rig{t: t, davPassword: "pass-" + rand.Text(), githubToken: "ghp_" + rand.Text() + rand.Text()[:10]}
	var err error
	if r.dav, err = caldav.New(caldav.Options{User: "ada", Password: r.davPassword}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(r.dav.Close)
	description, _ := github.Description() // without it requests are not held to it here; other tests are
	r.github, err = github.New(github.Options{Credentials: []string{r.githubToken}, Description: description})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(r.github.Close)
	r.World = world.Start(t, o)
	r.ada = r.Person(1000)
	if r.work, err = r.Cell("work"); err != nil {
		t.Fatal(err)
	}
	if r.home, err = r.Cell("home"); err != nil {
		t.Fatal(err)
	}
	r.addAccounts()
	return r
}

func (r *rig) ctx() context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), 3*time.Minute)
	r.t.Cleanup(cancel)
	return ctx
}

// addAccounts adds both accounts and decides their widening cards, as the person.
func (r *rig) addAccounts() {
	r.t.Helper()
	admin := r.Person(0)
	for _, req := range []wire.AddReq{
		{Name: "calendar", Vendor: "dav", Base: base(r.t, r.dav.Base()), Secret: []byte(r.davPassword), CA: r.dav.CAPEM(),
			Placement: wire.Placement{Kind: "basic", User: "ada"}, Owner: "ada@example.test",
			Permit: []string{host(r.t, r.dav.Base())}},
		{Name: "code", Vendor: "github", Base: base(r.t, r.github.Base()), Secret: []byte(r.githubToken), CA: r.github.CAPEM(),
			Placement: wire.Placement{Kind: "header", Name: "Authorization", Prefix: "Bearer "}, Owner: "ada",
			Permit: []string{host(r.t, r.github.Base()), host(r.t, r.github.LogBase())},
			Also:   []string{host(r.t, r.github.LogBase())}},
	} {
		var resp wire.AccountsResp
		if err := admin.Ask(r.ctx(), wire.PathAuthdAdmin, "add", &req, &resp); err != nil {
			r.t.Fatalf("add account %s: %v", req.Name, err)
		}
	}
	for _, card := range r.waitPending(2) {
		r.decide(card, true)
	}
}

func base(t testing.TB, address string) wire.Base {
	t.Helper()
	u, err := url.Parse(address)
	if err != nil {
		t.Fatal(err)
	}
	port, err := strconv.Atoi(u.Port())
	if err != nil {
		t.Fatal(err)
	}
	return wire.Base{Scheme: u.Scheme, Host: u.Hostname(), Port: port, Path: strings.TrimSuffix(u.Path, "/")}
}

func host(t testing.TB, address string) string {
	t.Helper()
	u, err := url.Parse(address)
	if err != nil {
		t.Fatal(err)
	}
	return u.Host
}

// pending are the cards that wait.
func (r *rig) pending() []wire.Card {
	r.t.Helper()
	var resp wire.PendingResp
	if err := r.ada.Ask(r.ctx(), wire.PathApprove, "pending", &wire.Empty{}, &resp); err != nil {
		r.t.Fatalf("pending: %v", err)
	}
	return resp.Cards
}

// waitPending waits until n cards wait.
func (r *rig) waitPending(n int) []wire.Card {
	r.t.Helper()
	var cards []wire.Card
	r.eventually(fmt.Sprintf("%d cards wait", n), func() bool {
		cards = r.pending()
		return len(cards) >= n
	})
	return cards
}

// decide decides a card by its hash.
func (r *rig) decide(card wire.Card, approve bool) wire.State {
	r.t.Helper()
	state, err := r.tryDecide(card, approve)
	if err != nil {
		r.t.Fatalf("decide %q: %v", card.Title, err)
	}
	return state
}

func (r *rig) tryDecide(card wire.Card, approve bool) (wire.State, error) {
	var resp wire.DecideCardResp
	err := r.ada.Ask(r.ctx(), wire.PathApprove, "decide",
		&wire.DecideCardReq{ID: card.ID, Hash: card.Hash, Approve: approve}, &resp)
	return resp.State, err
}

func (r *rig) eventually(what string, ok func() bool) {
	r.t.Helper()
	for deadline := time.Now().Add(time.Minute); !ok(); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(deadline) {
			r.t.Fatalf("did not come about: %s", what)
		}
	}
}

// connector runs the cell's command and expects a code.
func (r *rig) connector(cell *world.Cell, code int, args ...string) world.Result {
	r.t.Helper()
	res, err := cell.Actor().Connector(r.ctx(), args...)
	if err != nil {
		r.t.Fatal(err)
	}
	if res.Code != code {
		r.t.Fatalf("connector %s: want exit code %d, got %v", strings.Join(args, " "), code, res)
	}
	return res
}

// refusal is the error object of `connector --json`.
func refusal(t testing.TB, res world.Result) wire.Error {
	t.Helper()
	var e struct {
		Error wire.Error `json:"error"`
	}
	for line := range strings.Lines(res.Stdout + "\n" + res.Stderr) {
		if json.Unmarshal([]byte(line), &e) == nil && e.Error.Code != "" {
			return e.Error
		}
		var flat wire.Error
		if json.Unmarshal([]byte(line), &flat) == nil && flat.Code != "" {
			return flat
		}
	}
	t.Fatalf("no error object in %v", res)
	return wire.Error{}
}

// code is the code of a refusal, or empty.
func code(err error) wire.Code {
	var e *wire.Error
	if errors.As(err, &e) {
		return e.Code
	}
	return ""
}
