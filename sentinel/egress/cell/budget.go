// SPDX-License-Identifier: Apache-2.0

package cell

import (
	"fmt"
	"sync"
	"time"

	"github.com/doorward/doorward/internal/wire"
)

// maxSpending bounds the sites whose use is counted; those that have used nothing lately give way.
const maxSpending = 4096

// meter counts what was used over a time; what was used is forgotten evenly.
type meter struct {
	used float64
	at   time.Time
}

// take uses n of limit for each span, if one of it is left; else it says after how long there is. A limit of 0 is none. What
// cannot be known beforehand, a request's bytes, may so go over it once, and is waited for.
func (m *meter) take(now time.Time, n, limit int64, per time.Duration) (wait time.Duration, ok bool) {
	if limit <= 0 {
		return 0, true
	}
	rate := float64(limit) / float64(per)
	if past := now.Sub(m.at); past > 0 { // a clock that was set back forgets nothing
		m.used = max(0, m.used-float64(past)*rate)
	}
	m.at = now
	if over := m.used + 1 - float64(limit); over > 1e-6 {
		return time.Duration(over/rate) + time.Millisecond, false
	}
	m.used += float64(n)
	return 0, true
}

// spending is what a site or the cell uses, and may.
type spending struct {
	limit         wire.Spend
	conns         int64
	requests, out meter
}

// budgets is what the cell uses. The zero value has no limits; sentinel gives them with each connection.
type budgets struct {
	now func() time.Time // nil is time.Now

	mu    sync.Mutex // guards what follows
	cell  spending
	sites map[string]*spending
}

func (b *budgets) time() time.Time {
	if b.now != nil {
		return b.now()
	}
	return time.Now()
}

// site gives a site's row. Precondition: b.mu is held.
func (b *budgets) site(name string) *spending {
	if b.sites == nil {
		b.sites = map[string]*spending{}
	}
	s := b.sites[name]
	if s == nil {
		if len(b.sites) >= maxSpending {
			for k, old := range b.sites {
				if now := b.time(); old.conns == 0 && now.Sub(old.out.at) > time.Hour && now.Sub(old.requests.at) > time.Minute {
					delete(b.sites, k)
				}
			}
		}
		s = new(spending)
		b.sites[name] = s
	}
	return s
}

// open counts a connection to a site in, under the budget that sentinel gives with it. Whoever gets no error calls close once.
func (b *budgets) open(site string, given *wire.Budget) *wire.Error {
	b.mu.Lock()
	defer b.mu.Unlock()
	s := b.site(site)
	b.cell.limit, s.limit = wire.Spend{}, wire.Spend{}
	if given != nil {
		b.cell.limit, s.limit = given.Cell, given.Site
	}
	for _, r := range []struct {
		of  string
		use *spending
	}{{site, s}, {"this cell", &b.cell}} {
		if r.use.limit.Conns > 0 && r.use.conns >= r.use.limit.Conns {
			return wire.Refuse(wire.CodeTooMany, fmt.Sprintf("%s has its %d connections", r.of, r.use.limit.Conns),
				"end one of them, and try again")
		}
	}
	s.conns++
	b.cell.conns++
	return nil
}

func (b *budgets) close(site string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.site(site).conns--
	b.cell.conns--
}

// request counts a request to a site.
func (b *budgets) request(site string) *wire.Error {
	b.mu.Lock()
	defer b.mu.Unlock()
	now := b.time()
	s := b.site(site)
	if wait, ok := s.requests.take(now, 1, s.limit.Requests, time.Minute); !ok {
		return spent(site, fmt.Sprintf("its %d requests of a minute", s.limit.Requests), wait)
	}
	if wait, ok := b.cell.requests.take(now, 1, b.cell.limit.Requests, time.Minute); !ok {
		return spent("this cell", fmt.Sprintf("its %d requests of a minute", b.cell.limit.Requests), wait)
	}
	return nil
}

// send counts bytes that go out to a site. None of them may go where it is refused.
func (b *budgets) send(site string, n int64) *wire.Error {
	b.mu.Lock()
	defer b.mu.Unlock()
	now := b.time()
	s := b.site(site)
	if wait, ok := s.out.take(now, n, s.limit.Out, time.Hour); !ok {
		return spent(site, fmt.Sprintf("its %d bytes of an hour", s.limit.Out), wait)
	}
	if wait, ok := b.cell.out.take(now, n, b.cell.limit.Out, time.Hour); !ok {
		return spent("this cell", fmt.Sprintf("its %d bytes of an hour", b.cell.limit.Out), wait)
	}
	return nil
}

func spent(who, what string, wait time.Duration) *wire.Error {
	return wire.Refuse(wire.CodeTooMany, who+" has used "+what,
		fmt.Sprintf("try again in %s", max(time.Second, wait.Round(time.Second))))
}
