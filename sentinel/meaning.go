// SPDX-License-Identifier: Apache-2.0

package sentinel

import (
	"context"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/doorward/doorward/internal/describe"
	"github.com/doorward/doorward/internal/wire"
	"github.com/doorward/doorward/sentinel/ledger"
	"github.com/doorward/doorward/sentinel/policy"
)

// An upgrade brings other descriptions. What a person allowed, ahead by a grant or in general by the policy, they allowed
// of methods as they were then; a method of the same name that means something else inherits nothing of it.

// meaningsKey names what the methods meant when the policy was decided: a JSON object, "vendor method" to the
// hexadecimal describe.Method.Meaning.
const meaningsKey = "meanings"

const whyChanged = "the method has changed with an upgrade since the grant was given"

// meaning is what a method means now; empty where there is no such method.
func (s *Sentinel) meaning(vendor, method string) string {
	c := s.vendors[vendor]
	if c == nil {
		if vendor == siteConnector && method == policy.SiteMethod {
			return siteMeaning
		}
		return ""
	}
	m, ok := c.Method(method)
	if !ok {
		return ""
	}
	if kept, ok := s.means.Load(m); ok {
		return kept.(string)
	}
	d := m.Meaning()
	text := hex.EncodeToString(d[:])
	s.means.Store(m, text)
	return text
}

// grantMeaning is what that which a grant is for means now, in its cell; empty where it is no more.
func (s *Sentinel) grantMeaning(g *ledger.Grant) string {
	if s.vendors[g.Connector] == nil && (g.Connector != siteConnector || g.Method != policy.SiteMethod) {
		return s.requestMeaning(g.Cell, g.Connector)
	}
	return s.meaning(g.Connector, g.Method)
}

// meanings is what every installed method means now, and which hosts the sets of sites have.
func (s *Sentinel) meanings() map[string]string {
	out := policy.SiteSets()
	for _, c := range s.sorted {
		for i := range c.Methods {
			out[c.Vendor+" "+c.Methods[i].Name] = s.meaning(c.Vendor, c.Methods[i].Name)
		}
	}
	return out
}

// compareMeanings finds the methods that mean something else than when the policy was decided, new ones of a known
// connector among them, and ends the grants that were given for another meaning. A connector that was never there before
// counts as decided: it has no account yet, and that is decided by itself.
func (s *Sentinel) compareMeanings(ctx context.Context) error {
	now, kept := s.meanings(), map[string]string{}
	if v, ok := s.ledger.Setting(meaningsKey); ok {
		if err := json.Unmarshal(v.Value, &kept); err != nil {
			return fmt.Errorf("read back what the methods meant: %w", err)
		}
	}
	known := map[string]bool{}
	for name := range kept {
		vendor, _, _ := strings.Cut(name, " ")
		known[vendor] = true
	}
	grown := false
	var changed []string
	for _, name := range slices.Sorted(maps.Keys(now)) {
		switch vendor, _, _ := strings.Cut(name, " "); {
		case !known[vendor]:
			kept[name], grown = now[name], true
		case kept[name] != now[name]:
			changed = append(changed, name)
		}
	}
	if grown {
		if err := s.keepMeanings(ctx, kept, "sentinel", nil); err != nil { // the disk is full; the next start tries again
			s.log.Error("what the methods mean is not kept", "err", err.Error())
		}
	}
	s.undecided.Store(&changed)
	if len(changed) > 0 {
		s.log.Warn("methods have changed since the policy was decided and ask until it is decided again; "+
			"doorward policy load shows it", "methods", strings.Join(changed, ", "))
	}
	s.endChangedGrants(ctx)
	return nil
}

func (s *Sentinel) keepMeanings(ctx context.Context, m map[string]string, by string, details any) error {
	b, err := json.Marshal(m)
	if err != nil {
		return err
	}
	return s.ledger.PutSetting(ctx, meaningsKey, b, by, details)
}

// endChangedGrants ends grants whose method means something else now, is gone, or of which nobody can tell.
// Where that cannot be written they cover nothing all the same.
func (s *Sentinel) endChangedGrants(ctx context.Context) {
	for _, g := range s.ledger.Grants(ledger.GrantFilter{}) {
		if g.State != ledger.GrantLive && g.State != ledger.GrantUnconfirmed {
			continue
		}
		if now := s.grantMeaning(&g); now != "" && now == g.Meaning {
			continue
		}
		if _, err := s.ledger.RevokeGrants(ctx, ledger.GrantFilter{ID: g.ID}, "sentinel", whyChanged); err != nil {
			s.log.Error("the end of a grant is not recorded", "grant", g.ID, "err", err.Error())
		}
		s.log.Warn("a grant ended: "+whyChanged, "grant", g.ID, "connector", g.Connector, "method", g.Method, "cell", g.Cell)
	}
}

// carryOver has a call that waited over an upgrade go on by the description of today, which its worker has too. It does so
// only where its own method is the same in all that was decided. The requests that may leave are those that were shown: they
// were bound then.
func (s *Sentinel) carryOver(c *ledger.Call, vendor *describe.Connector, f *wire.Frame) error {
	if vendor != nil && vendor.Digest() == f.Description {
		return nil
	}
	if vendor != nil && c.Meaning != "" && c.Meaning == s.meaning(c.Connector, c.Method) {
		f.Description = vendor.Digest()
		return nil
	}
	return wire.Refuse(wire.CodeWrongDescription, "the method has changed since it was approved", "ask again")
}

// changedMethods are those that ask because they have changed, as "vendor method".
func (s *Sentinel) changedMethods() []string {
	if p := s.undecided.Load(); p != nil {
		return *p
	}
	return nil
}

// notesNow are the notes about the set in force.
func (s *Sentinel) notesNow(set *policy.Set) []string {
	out := s.notes(set)
	if changed := s.changedMethods(); len(changed) > 0 {
		out = append(out, "changed with an upgrade, so they ask until doorward policy load is decided: "+strings.Join(changed, ", "))
	}
	return out
}

// comparedWith names what a policy that is put up for decision was compared with: the set in force, and what the methods
// mean.
func (s *Sentinel) comparedWith() string {
	d := s.policy.Load().Digest()
	b, err := json.Marshal(struct {
		Policy   string            `json:"policy"`
		Meanings map[string]string `json:"meanings"`
	}{hex.EncodeToString(d[:]), s.meanings()})
	if err != nil {
		panic(err) // strings only
	}
	sum := wire.Sum(b)
	return hex.EncodeToString(sum[:])
}
