// SPDX-License-Identifier: Apache-2.0

package sentinel

import (
	"encoding/json"
	"slices"
	"sync"

	"github.com/doorward/doorward/internal/describe"
	"github.com/doorward/doorward/internal/wire"
	"github.com/doorward/doorward/sentinel/ledger"
)

// health is which logins a vendor last refused. It only informs: some servers answer 401 for a path that is not the
// account's, so one refusal must not take the account from every other call. It is forgotten when sentinel starts again;
// the next refusal says it again.
type health struct {
	mu      sync.Mutex // guards refused
	refused map[int64]bool
}

// unauthorized is the status of HTTP that says that the credential is not taken. Sentinel links no package of HTTP.
const unauthorized = 401

// heed takes egress's report of a request that left under c. Only what the vendor answered to a request with the
// credential counts, so neither a worker's word nor an answer of a second host that never saw the credential does. The
// key is the login's generation, which authd never uses twice: a new credential is well until it is refused itself.
func (s *Sentinel) heed(c *ledger.Call, r *wire.SentReq) {
	v := s.vendors[c.Connector]
	if v == nil {
		return
	}
	m, ok := v.Method(c.Method)
	if !ok {
		return
	}
	for i := range m.Entries {
		if e := &m.Entries[i]; e.Name == r.Entry && e.Credential {
			s.health.heard(int64(c.Login), r.Status)
			return
		}
	}
}

func (h *health) heard(login int64, status int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	switch {
	case status == unauthorized:
		if h.refused == nil {
			h.refused = map[int64]bool{}
		}
		h.refused[login] = true
	case status >= 200 && status < 400:
		delete(h.refused, login)
	}
}

// healthOf is what a list says of an account: what authd says, or else what its vendor last answered.
func (s *Sentinel) healthOf(a *wire.Account) wire.Code {
	if a.Health != "" {
		return a.Health
	}
	s.health.mu.Lock()
	defer s.health.mu.Unlock()
	if s.health.refused[a.Generation] {
		return wire.CodeReconnectRequired
	}
	return ""
}

// unwell lists, for `check` without a name, the accounts that need attention, as JSON. Nothing is sent for it.
func (s *Sentinel) unwell() (*wire.Output, error) {
	type item struct {
		Account string    `json:"account"`
		Login   int64     `json:"login"`
		Health  wire.Code `json:"health"`
	}
	items := []item{}
	for _, v := range append(slices.Clone(s.sorted), &describe.Connector{Vendor: customVendor}) {
		for _, a := range s.accountsOf(v.Vendor) {
			h := s.healthOf(&a)
			if !s.decided(&a) {
				h = s.standing(&a)
			}
			if h != "" {
				items = append(items, item{a.Name, a.Generation, h})
			}
		}
	}
	b, err := json.Marshal(items)
	if err != nil {
		return nil, err
	}
	return &wire.Output{JSON: b}, nil
}
