// SPDX-License-Identifier: Apache-2.0

package scenario

import (
	"strings"
	"testing"

	"github.com/doorward/doorward/internal/wire"
	"github.com/doorward/doorward/test/vendors/standin"
	"github.com/doorward/doorward/test/world"
)

// What a vendor says of a credential is shown to the agent and the person, refuses nothing by itself, and is over when
// the vendor takes the credential again or there is a new one. A worker's word for it is not believed.
func TestTheVendorsRefusalIsShownAsTheAccountsHealth(t *testing.T) {
	r := newRig(t, world.Options{Binary: takenOver(t)})
	issues := func(code int, more ...string) {
		t.Helper()
		r.connector(r.work, code, append([]string{"github", "issues", "--repo", "ada/site", "--json"}, more...)...)
	}
	// is waits, for a read's report may come after its answer.
	is := func(what string, unwell bool) {
		t.Helper()
		r.eventually(what+": the list says so", func() bool {
			res := r.connector(r.work, 0, "list", "github", "--json")
			return strings.Contains(res.Stdout, `"health":"reconnect_required"`) == unwell
		})
		for _, args := range [][]string{{"account", "list"}, {"account", "show", "code"}} {
			res, err := r.ada.Doorward(r.ctx(), "", args...)
			if err != nil || res.Code != 0 || strings.Contains(res.Stdout, "reconnect_required") != unwell {
				t.Errorf("%s: doorward %v: %v, %v", what, args, res, err)
			}
		}
	}
	is("at first", false)
	// The worker was taken over and says so of an answer that was well.
	issues(0, "--label", "try:claim-a-refusal")
	from := r.end()
	issues(0)
	r.eventually("the reports of both are in", func() bool {
		for _, e := range r.events(from) {
			if e.Type == "sent" {
				return true
			}
		}
		return false
	})
	is("by a worker's word", false)

	refuse := func() {
		r.github.Faults.Add(standin.Fault{Path: "/repos", Times: 1, Status: 401, Body: `{"message":"Bad credentials"}`,
			Header: map[string]string{"Content-Type": "application/json"}})
		issues(wire.ExitAccount)
	}
	refuse()
	is("refused", true)
	issues(0) // it was of one path: no call is refused for it
	is("taken again", false)
	refuse()
	is("refused again", true)

	var resp wire.AccountsResp
	if err := r.Person(0).Ask(r.ctx(), wire.PathAuthdAdmin, "add", &wire.AddReq{Name: "code", Vendor: "github",
		Base: base(t, r.github.Base()), Secret: []byte(r.githubToken), CA: r.github.CAPEM(), Owner: "ada", Replace: true,
		Placement: wire.Placement{Kind: "header", Name: "Authorization", Prefix: "Bearer "},
		Permit:    []string{host(t, r.github.Base()), host(t, r.github.LogBase())},
		Also:      []string{host(t, r.github.LogBase())}}, &resp); err != nil {
		t.Fatal(err)
	}
	r.decide(r.waitPending(1)[0], true)
	is("with a new credential", false)
}
