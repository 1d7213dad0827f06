// SPDX-License-Identifier: Apache-2.0

package proxy

import (
	"strings"
	"sync"
	"time"

	"github.com/doorward/doorward/internal/wire"
	"github.com/doorward/doorward/sentinel/egress/guard"
)

// Bounds of what is remembered.
const (
	followPerGrant = 16
	followGrants   = 4096
	followFor      = 10 * time.Minute
)

// follow remembers the Locations that answers under a grant had. Only those may be followed, and only under that grant.
type follow struct {
	mu     sync.Mutex // guards grants
	grants map[string]*trail
}

type trail struct {
	cell, account string
	last          time.Time
	hops          []hop
}

type hop struct {
	entry string // that was answered so
	url   guard.URL
}

func (f *follow) init() { f.grants = map[string]*trail{} }

// remember notes one Location. When there is no room it is forgotten, and following it is refused.
func (f *follow) remember(grant, cell, account, entry string, u guard.URL) {
	f.mu.Lock()
	defer f.mu.Unlock()
	t := f.grants[grant]
	if t == nil {
		if len(f.grants) >= followGrants {
			return
		}
		t = &trail{cell: cell, account: account}
		f.grants[grant] = t
	}
	t.last = time.Now()
	if len(t.hops) < followPerGrant {
		t.hops = append(t.hops, hop{entry, u})
	}
}

// find is the remembered Location that path and query name, or else any other of that entry, so that the refusal can
// say what is wrong; nil where there is none.
func (f *follow) find(grant, entry, host, path, query string) *guard.URL {
	f.mu.Lock()
	defer f.mu.Unlock()
	t := f.grants[grant]
	if t == nil {
		return nil
	}
	var other *guard.URL
	for i := range t.hops {
		if h := &t.hops[i]; h.entry == entry {
			u := h.url
			other = &u
			if a, err := guard.ParseAuthority(host, 443); err == nil && a == u.Authority && u.Path == path && u.Query == query {
				return &u
			}
		}
	}
	return other
}

// forget drops what ref names.
func (f *follow) forget(ref *wire.GrantRef) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for g, t := range f.grants {
		a := active{grant: g, cell: t.cell, account: t.account}
		if a.hit(ref) {
			delete(f.grants, g)
		}
	}
}

func (f *follow) prune(now time.Time) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for g, t := range f.grants {
		if now.Sub(t.last) > followFor {
			delete(f.grants, g)
		}
	}
}

// resolveLocation reads a Location header against the authority that sent it. Only absolute https addresses, //host and
// absolute paths are read; anything else cannot be followed.
func resolveLocation(from guard.Authority, location string) (guard.URL, error) {
	switch {
	case strings.HasPrefix(location, "//"):
		location = "https:" + location
	case strings.HasPrefix(location, "/"):
		location = "https://" + from.String() + location
	}
	return guard.ParseURL(location)
}
