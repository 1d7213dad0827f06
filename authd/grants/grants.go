// SPDX-License-Identifier: Apache-2.0

// Package grants is the table of live grants: which worker, or the egress of which cell, may have which request sent with which
// credential, for which caller, until when.
//
// It lives in memory only. Whatever it cannot find it refuses, so a restart, a lost link to sentinel or a mistake ends
// grants and never makes one. A worker that was taken over can borrow nothing that sentinel did not grant to its own
// name, for the caller and the frame it was granted for, and only once; what it borrowed opens nothing but that grant,
// and each of its requests as often as was granted. A taken-over egress can resolve only while such a grant lives, and
// sentinel is told each time. The table is a state machine without input or output: time is an argument.
//
//	granted --Borrow--> borrowed --Resolve, once a use--> borrowed
//	granted, borrowed --Revoke, Void, expiry--> gone
//
// A grant with an Issue is for requests of a cell's own, which carry a custom surrogate: one that was minted under that issue
// for that cell and account. A cell holds its surrogates for long, so each of their requests takes a use of a grant that sentinel made
// within the last seconds, and a taken-over egress of a cell can have nothing resolved for a cell that was allowed nothing just now.
// Neither kind of egress reaches the grants of the other.
//
//	granted --ResolveIssued, once a use--> granted --the last--> gone
package grants

import (
	"io"
	"slices"
	"sync"
	"time"

	"github.com/doorward/doorward/authd/store"
	"github.com/doorward/doorward/authd/surrogate"
	"github.com/doorward/doorward/internal/wire"
)

const (
	// BorrowWithin is how long a grant waits to be borrowed; one of an issue, to be resolved.
	BorrowWithin = 30 * time.Second
	// MaxLife is the longest life of a grant.
	MaxLife = time.Hour
	// MaxGrants, MaxEntries and MaxUses bound what sentinel may ask to be kept.
	MaxGrants  = 4096
	MaxEntries = 64
	MaxUses    = 10000
	// MaxIssued and MaxOfCell bound those of issues, of all cells and of one: a cell that has its requests allowed and goes away before
	// they are resolved, or sends what only looks like a surrogate, must not keep others, or workers, from theirs.
	MaxIssued = MaxGrants / 4 * 3
	MaxOfCell = 512
)

// Now is one moment on two clocks. A grant ends by the one that says so first: setting the wall clock back prolongs
// nothing.
type Now struct {
	Wall time.Time
	Boot time.Duration // CLOCK_BOOTTIME, which runs on in suspend and cannot be set
}

// grant is one live grant.
type grant struct {
	wire.GrantReq
	used     []int // per entry
	end      Now   // of the grant
	due      Now   // to be borrowed
	borrowed bool
	digest   surrogate.Digest // of the surrogate, once borrowed
}

func (n Now) reached(end Now) bool {
	return n.Boot >= end.Boot || !n.Wall.Before(end.Wall)
}

// Table holds the live grants. Its methods may run side by side.
type Table struct {
	mu     sync.Mutex // guards what follows; nothing is waited for under it
	grants map[string]*grant
	issued map[string]int // by cell: of grants, those of issues
	ofAll  int            // the sum of issued
}

// New returns an empty table.
func New() *Table { return &Table{grants: map[string]*grant{}, issued: map[string]int{}} }

// put keeps a grant, and drop ends one. Preconditions: t.mu is held; there is none of that name, or there is this one.
func (t *Table) put(g *grant) {
	t.grants[g.Grant] = g
	if g.Issue != "" {
		t.issued[g.Cell]++
		t.ofAll++
	}
}

func (t *Table) drop(g *grant) {
	delete(t.grants, g.Grant)
	if g.Issue == "" {
		return
	}
	t.ofAll--
	if t.issued[g.Cell]--; t.issued[g.Cell] == 0 {
		delete(t.issued, g.Cell)
	}
}

// full says whether there is no room for a grant. Preconditions: t.mu is held.
func (t *Table) full(req *wire.GrantReq) bool {
	return len(t.grants) >= MaxGrants || req.Issue != "" && (t.ofAll >= MaxIssued || t.issued[req.Cell] >= MaxOfCell)
}

// Refusal is a refusal of this package. The caller is told no more than lets an honest one go on; the record gets Why.
type Refusal struct {
	Told *wire.Error
	Why  string // one of the constants below
}

func (r *Refusal) Error() string { return string(r.Told.Code) + ": " + r.Why }

// Unwrap gives what the caller is told.
func (r *Refusal) Unwrap() error { return r.Told }

// Why something was refused, for the record.
const (
	WhyMalformed    = "the grant is malformed"
	WhyTaken        = "a grant of that name is live"
	WhyFull         = "too many grants are live"
	WhyNoAccount    = "no such account"
	WhyUndecided    = "the account differs from the one decided on"
	WhyNotListed    = "the worker is not on the account's list"
	WhyElsewhere    = "an entry sends the credential away from the account's base"
	WhyNoGrant      = "no live grant of that name"
	WhyOtherWorker  = "the grant is another worker's"
	WhyBorrowed     = "the grant was borrowed already"
	WhyLate         = "the grant was not borrowed in time"
	WhyExpired      = "the grant has run out"
	WhyOtherCaller  = "the grant is another caller's"
	WhyOtherFrame   = "the grant is for another frame"
	WhyNotBorrowed  = "the grant was not borrowed"
	WhyNoEntry      = "the grant has no such entry"
	WhySurrogate    = "not the surrogate of this grant"
	WhyNoCredential = "the entry takes no credential"
	WhyUsedUp       = "the entry's uses are used up"
	WhyUnheard      = "too many releases wait for sentinel"
	WhyNotCustom    = "the account is not a custom one"
	WhyOtherCell    = "the grant is another cell's, or no cell's"
	WhyNotMinted    = "not a live surrogate of this issue, cell and account"
)

// What callers are told most often.
const (
	askAgain = "ask sentinel for a new grant"
	noGrant  = "there is no live grant of that name for this caller"
)

func refuse(code wire.Code, why, told, next string) error {
	return &Refusal{wire.Refuse(code, told, next), why}
}

// none is the answer to whoever names a grant that is not theirs: the same as where there is no such grant.
func none(why string) error { return refuse(wire.CodeBadGrant, why, noGrant, askAgain) }

// Add takes a grant in. account is the one that it names, nil where there is none.
func (t *Table) Add(now Now, req wire.GrantReq, account *store.Account) error {
	if err := validate(now, &req); err != nil {
		return err
	}
	if err := fits(&req, account); err != nil {
		return err
	}
	for i := range req.Entries {
		if e := &req.Entries[i]; e.Credential && !account.Holds(e) {
			return refuse(wire.CodeBadTarget, WhyElsewhere, WhyElsewhere, "")
		}
	}
	life := time.Unix(req.Unix, 0).Sub(now.Wall)
	g := &grant{
		GrantReq: req,
		used:     make([]int, len(req.Entries)),
		end:      Now{time.Unix(req.Unix, 0), now.Boot + life},
		due:      Now{now.Wall.Add(BorrowWithin), now.Boot + BorrowWithin},
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.grants[req.Grant] != nil {
		return refuse(wire.CodeBadGrant, WhyTaken, WhyTaken, "give each grant a name of its own")
	}
	if len(t.grants) >= MaxGrants {
		t.sweep(now)
	}
	if t.full(&req) {
		return refuse(wire.CodeTooMany, WhyFull, WhyFull, "wait until some have ended")
	}
	t.put(g)
	return nil
}

// validate bounds what is kept; sentinel's word is believed for the rest.
func validate(now Now, req *wire.GrantReq) error {
	life := time.Unix(req.Unix, 0).Sub(now.Wall)
	switch {
	case len(req.Grant) < 16 || len(req.Grant) > 64 || req.Call == "" || len(req.Call) > 64:
		return malformed("the grant's or the call's name is too short or too long")
	case req.Issue != "" && (req.Worker != "" || req.Cell == ""):
		return malformed("the grant of an issue names a worker, or no cell")
	case req.Issue != "" && (len(req.Entries) != 1 || req.Entries[0].Uses > wire.MaxIssuedUses || !req.Entries[0].Credential):
		return malformed("the grant of an issue is not for requests with the credential, or for too many")
	case req.Issue == "" && (req.Worker == "" || (req.Cell == "") != (req.Session == "")):
		return malformed("the grant names no worker, or half a caller")
	case life <= 0 || life > MaxLife:
		return malformed("the grant has ended already, or would live too long")
	case len(req.Entries) == 0 || len(req.Entries) > MaxEntries:
		return malformed("the grant has no entries, or too many")
	}
	for i := range req.Entries {
		if uses := req.Entries[i].Uses; uses < 1 || uses > MaxUses {
			return malformed("an entry of the grant has no uses, or too many")
		}
	}
	return nil
}

func malformed(told string) error { return refuse(wire.CodeBadGrant, WhyMalformed, told, "") }

// fits says whether account is what the grant was decided for. It runs at each step: an account that was changed,
// removed or renamed meanwhile fits nothing.
func fits(req *wire.GrantReq, account *store.Account) error {
	switch {
	case account == nil || account.Name != req.Account:
		return refuse(wire.CodeNotConfigured, WhyNoAccount, "there is no account of that name",
			"see `doorward account list`")
	case account.Digest != req.Digest || account.Generation != req.Generation:
		return refuse(wire.CodeNotConnected, WhyUndecided, "the account is not the one that was decided on",
			"have a person decide on it: see `doorward pending`")
	case req.Issue != "" && account.Vendor != store.Custom:
		return refuse(wire.CodeNotAllowed, WhyNotCustom, WhyNotCustom, "")
	case req.Issue == "" && !account.Allows(req.Worker):
		return refuse(wire.CodeNotAllowed, WhyNotListed, "the account is not for this worker",
			"see `doorward account show`")
	}
	return nil
}

// Account names the account of a live grant; empty where there is no such grant. It saves the caller from holding the
// table's lock while it looks the account up.
func (t *Table) Account(id string) string {
	t.mu.Lock()
	defer t.mu.Unlock()
	if g := t.grants[id]; g != nil {
		return g.GrantReq.Account
	}
	return ""
}

// Borrow gives the worker of a grant its surrogate. worker is the vendor as the kernel named the peer.
func (t *Table) Borrow(
	now Now, worker string, req wire.BorrowReq, account *store.Account, random io.Reader,
) (wire.BorrowResp, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	g := t.grants[req.Grant]
	switch {
	case g == nil:
		return wire.BorrowResp{}, none(WhyNoGrant)
	case g.Issue != "" || g.Worker != worker:
		return wire.BorrowResp{}, none(WhyOtherWorker)
	case now.reached(g.end):
		t.drop(g)
		return wire.BorrowResp{}, refuse(wire.CodeExpired, WhyExpired, WhyExpired, askAgain)
	case g.borrowed:
		return wire.BorrowResp{}, refuse(wire.CodeBadGrant, WhyBorrowed, WhyBorrowed, askAgain)
	case now.reached(g.due):
		t.drop(g)
		return wire.BorrowResp{}, refuse(wire.CodeExpired, WhyLate, WhyLate, askAgain)
	case g.Cell != req.Cell || g.Session != req.Session:
		return wire.BorrowResp{}, none(WhyOtherCaller)
	case g.Frame != req.Frame:
		return wire.BorrowResp{}, none(WhyOtherFrame)
	}
	if err := fits(&g.GrantReq, account); err != nil {
		return wire.BorrowResp{}, err
	}
	value, err := account.Shape.Mint(random)
	if err != nil {
		return wire.BorrowResp{}, err
	}
	g.borrowed, g.digest = true, surrogate.DigestOf(value)
	return wire.BorrowResp{
		Surrogate: string(value), Placement: account.Placement, Base: account.Base,
		Account: account.Name, Owner: account.Owner, Mark: g.Mark,
	}, nil
}

// Resolve answers for one request that is about to leave, and counts it. The answer has neither credential nor scrub
// list yet: Secret is for the caller to add when wants says that the entry takes the credential.
func (t *Table) Resolve(
	now Now, req wire.ResolveReq, account *store.Account,
) (resp wire.ResolveResp, wants bool, err error) {
	presented := surrogate.DigestOf([]byte(req.Surrogate))
	t.mu.Lock()
	defer t.mu.Unlock()
	g := t.grants[req.Grant]
	switch {
	case g == nil:
		return resp, false, none(WhyNoGrant)
	case g.Issue != "" || g.Worker != req.Worker:
		return resp, false, none(WhyOtherWorker)
	case now.reached(g.end):
		t.drop(g)
		return resp, false, refuse(wire.CodeExpired, WhyExpired, WhyExpired, askAgain)
	case !g.borrowed:
		return resp, false, none(WhyNotBorrowed)
	case req.Entry < 0 || req.Entry >= len(g.Entries):
		return resp, false, refuse(wire.CodeBadEnvelope, WhyNoEntry, WhyNoEntry, "send only what the call lists")
	}
	e := &g.Entries[req.Entry]
	switch {
	case e.Credential && (!g.digest.Equal(presented) || !surrogate.Marked([]byte(req.Surrogate))):
		return resp, false, refuse(wire.CodeBadSurrogate, WhySurrogate, WhySurrogate, askAgain)
	case !e.Credential && req.Surrogate != "":
		return resp, false, refuse(wire.CodeBadSurrogate, WhyNoCredential, WhyNoCredential, "send it without")
	case g.used[req.Entry] >= e.Uses:
		return resp, false, refuse(wire.CodeTooMany, WhyUsedUp, WhyUsedUp, askAgain)
	}
	if err := fits(&g.GrantReq, account); err != nil {
		return resp, false, err
	}
	g.used[req.Entry]++
	return g.resolved(req.Entry, account), e.Credential, nil
}

func (g *grant) resolved(entry int, account *store.Account) wire.ResolveResp {
	return wire.ResolveResp{
		Placement: account.Placement, Entry: g.Entries[entry], CA: []byte(account.CA), Permit: account.Permit,
		Call: g.Call, Cell: g.Cell, Account: account.Name, Generation: account.Generation,
	}
}

// ResolveIssued answers the egress of a cell for one request, which takes a use of a grant with an issue, also where the surrogate
// is none of the issue's; with the last use the grant ends. cell is as the kernel named that egress. minted says whether a surrogate of
// that digest lives; it is asked under the table's lock. As with Resolve, the credential is for the caller to add.
func (t *Table) ResolveIssued(
	now Now, cell string, req wire.ResolveReq, account *store.Account, minted func(*store.Issue, surrogate.Digest) bool,
) (wire.ResolveResp, error) {
	presented := surrogate.DigestOf([]byte(req.Surrogate))
	t.mu.Lock()
	defer t.mu.Unlock()
	g := t.grants[req.Grant]
	switch {
	case g == nil:
		return wire.ResolveResp{}, none(WhyNoGrant)
	case g.Issue == "" || g.Cell != cell || req.Worker != "":
		return wire.ResolveResp{}, none(WhyOtherCell)
	case now.reached(g.end):
		t.drop(g)
		return wire.ResolveResp{}, refuse(wire.CodeExpired, WhyExpired, WhyExpired, askAgain)
	case now.reached(g.due):
		t.drop(g)
		return wire.ResolveResp{}, refuse(wire.CodeExpired, WhyLate, WhyLate, askAgain)
	case req.Entry != 0:
		return wire.ResolveResp{}, refuse(wire.CodeBadEnvelope, WhyNoEntry, WhyNoEntry, "send only what was allowed")
	}
	if err := fits(&g.GrantReq, account); err != nil {
		return wire.ResolveResp{}, err
	}
	issue := &store.Issue{ID: g.Issue, Cell: cell, Account: account.Name, Generation: account.Generation, Digest: account.Digest}
	if g.used[0]++; g.used[0] == g.Entries[0].Uses {
		t.drop(g)
	}
	if !surrogate.Marked([]byte(req.Surrogate)) || !minted(issue, presented) { // a use is gone: this request goes nowhere
		return wire.ResolveResp{}, refuse(wire.CodeBadSurrogate, WhyNotMinted, "no surrogate that this cell has, or it has ended",
			"get a new one: connector surrogate NAME")
	}
	return g.resolved(0, account), nil
}

// Revoke ends what ref names, by a grant's name or an issue's, and says which grants those were, sorted. A ref that names
// nothing ends nothing.
func (t *Table) Revoke(ref wire.GrantRef) []string {
	if ref == (wire.GrantRef{}) {
		return nil
	}
	return t.end(func(g *grant) bool {
		return ref.All || (ref.Grant != "" && (g.Grant == ref.Grant || g.Issue == ref.Grant)) || (ref.Cell != "" && g.Cell == ref.Cell) ||
			(ref.Account != "" && g.GrantReq.Account == ref.Account)
	})
}

// Void ends every grant: the link to sentinel has gone.
func (t *Table) Void() []string { return t.end(func(*grant) bool { return true }) }

// Expire ends the grants that have run out or were not borrowed in time.
func (t *Table) Expire(now Now) []string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.sweep(now)
}

// sweep is Expire. Preconditions: t.mu is held.
func (t *Table) sweep(now Now) []string {
	return t.endLocked(func(g *grant) bool { return now.reached(g.end) || (!g.borrowed && now.reached(g.due)) })
}

func (t *Table) end(which func(*grant) bool) []string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.endLocked(which)
}

func (t *Table) endLocked(which func(*grant) bool) []string {
	var ended []string
	for id, g := range t.grants {
		if which(g) {
			ended = append(ended, id)
			t.drop(g)
		}
	}
	slices.Sort(ended)
	return ended
}
