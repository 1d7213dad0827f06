// SPDX-License-Identifier: Apache-2.0

package ledger

import (
	"crypto/rand"
	"encoding/json"
	"time"
)

// Bounds of a call's record.
const (
	MaxFrame  = 2 << 20 // bytes of a call's fixed part, canonical call and card included
	MaxParked = 50      // calls of one cell that wait at a time
)

// Frame is what is fixed about a call when it is decided. It holds no credential, surrogate or result.
type Frame struct {
	ID        string          `json:"id"`
	Cell      string          `json:"cell"`
	Session   string          `json:"session"`
	Attended  bool            `json:"attended,omitzero"`
	Run       string          `json:"run,omitzero"` // the unit or run that started an unattended session
	Connector string          `json:"connector"`
	Account   string          `json:"account"`
	Login     uint64          `json:"login,omitzero"` // generation of the account's login
	Method    string          `json:"method"`
	Meaning   string          `json:"meaning,omitzero"` // of the method as it was then, hex (describe.Method.Meaning)
	Class     string          `json:"class"`            // read, write, destructive
	Reach     string          `json:"reach"`
	Sensitive bool            `json:"sensitive,omitzero"`
	Canonical json.RawMessage `json:"canonical"`         // RFC 8785
	Hash      string          `json:"hash"`              // SHA-256 of Canonical, hex
	Dedup     string          `json:"dedup,omitzero"`    // equal for equal writes of one caller; "" joins nothing
	Envelope  string          `json:"envelope,omitzero"` // digest of the envelope with its bodies' digests, hex
	Approval  string          `json:"approval,omitzero"` // the hash that an approval must be over, hex
	Card      json.RawMessage `json:"card,omitzero"`     // what a person is shown
	Mark      string          `json:"mark,omitzero"`     // what the call leaves at the vendor to be found by
	Labels    []string        `json:"labels,omitzero"`   // of its answer
	Spool     []string        `json:"spool,omitzero"`    // refs of files and prepared bodies
	Data      json.RawMessage `json:"data,omitzero"`     // what the decider needs again at execution: its own
	After     string          `json:"after,omitzero"`    // an equal call that may have run
	Under     string          `json:"under,omitzero"`    // the grant that allowed it
	Decision  string          `json:"decision"`          // allow, ask, deny
	Policy    string          `json:"policy,omitzero"`   // the deciding policy
	Reason    string          `json:"reason,omitzero"`   // reason code of a denial or an ask
	Next      string          `json:"next,omitzero"`     // the next step for the caller, in words
	Created   Moment          `json:"created"`
	Deadline  Moment          `json:"deadline,omitzero"` // when silence becomes denial
}

// Progress is what changes about a call.
type Progress struct {
	State     State    `json:"state"`
	Changed   Moment   `json:"changed"`            // when it came into State
	By        string   `json:"by,omitzero"`        // who brought it there
	Approver  string   `json:"approver,omitzero"`  // who approved it
	Scope     string   `json:"scope,omitzero"`     // what the approval covered: once, session, until, standing
	Pass      string   `json:"pass,omitzero"`      // authd's grant for the execution
	Executing Moment   `json:"executing,omitzero"` // since when
	Outcome   string   `json:"outcome,omitzero"`   // reason code of how it ended
	Why       string   `json:"why,omitzero"`       // the same in words
	NotRun    bool     `json:"not_run,omitzero"`   // it is certain that nothing left
	Object    string   `json:"object,omitzero"`    // the vendor's id of what was made
	Status    int      `json:"status,omitzero"`    // HTTP status that egress saw last
	Out       int64    `json:"out,omitzero"`       // bytes to the vendor, as egress counted
	In        int64    `json:"in,omitzero"`        // bytes from the vendor
	Releases  []int64  `json:"releases,omitzero"`  // sequence numbers of the credential's releases, ascending
	Reports   []string `json:"reports,omitzero"`   // which reports of egress are counted, as digests
	Result    string   `json:"result,omitzero"`    // spool ref of the result
	Collected Moment   `json:"collected,omitzero"` // when the cell took the result
	Successor string   `json:"successor,omitzero"` // of a revoked call: what a person made of it (Replace)
	Inbox     bool     `json:"inbox,omitzero"`     // the cell sees it in its inbox until it is collected
}

// Call is one call in the ledger.
type Call struct {
	Frame
	Progress
	N int64 `json:"n"` // the entry that changed it last
}

// callBody is the row of a call.
type callBody struct {
	ID    string `json:"id"`
	Cell  string `json:"cell"`
	Dedup string `json:"dedup,omitzero"`
	Class string `json:"class"`
	Under string `json:"under,omitzero"`
	Frame string `json:"frame"` // SHA-256 of the frame's row, hex
	Progress
}

// Outcome is how an execution ended.
type Outcome struct {
	State  State  // Done, Failed or Unknown
	Code   string // reason code
	Why    string // in words
	NotRun bool   // it is certain that nothing left: gives the grant's count back; only with Failed
	Object string // the vendor's id of what was made
	Result string // spool ref of the result
	Status int    // HTTP status, if known
	In     int64  // bytes of the answer, if known
	Told   []Told // what was said of the call and is not recorded yet: it is, in one transaction with the end
}

// NewID returns a fresh id: 26 characters of [0-9a-z], 48 bits of milliseconds and 80 random ones, so ids sort by
// time and cannot be guessed.
func NewID() string {
	const alphabet = "0123456789abcdefghjkmnpqrstvwxyz"
	var b [16]byte
	if _, err := rand.Read(b[6:]); err != nil {
		panic("ledger: no randomness: " + err.Error()) // crypto/rand never returns an error (Go 1.24)
	}
	ms := uint64(time.Now().UnixMilli())
	for i := range 6 {
		b[i] = byte(ms >> (40 - 8*i))
	}
	var out [26]byte
	var acc uint32
	var bits, j int
	acc, bits = 0, 2 // 130 bits hold 128: two zero bits first
	for _, c := range b {
		acc, bits = acc<<8|uint32(c), bits+8
		for bits >= 5 {
			bits -= 5
			out[j] = alphabet[acc>>bits&31]
			j++
		}
	}
	return string(out[:])
}
