// SPDX-License-Identifier: Apache-2.0

package wire

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/binary"
)

// Messages of approvals -> sentinel on sentinel/web/sock. approvals turns a browser's JSON into them and back and decides nothing:
// what it may see is what the browser's session shows, and what runs is what a passkey signed. Whoever holds approvals can show and
// withhold; it cannot make an assertion.
type (
	// WebReq carries what a browser asks, and its session as the cookie has it: 32 bytes, empty for who has none. sentinel looks
	// the session up; of a session that is not there every verb but login and enrol is refused with CodeNoSession.
	WebReq[T any] struct {
		Session []byte `msgpack:"s,omitempty"`
		Body    T      `msgpack:"b"`
	}

	// LoginReq is in two steps. Without an assertion it asks for a challenge; with one it begins a session, which views and
	// decides nothing.
	LoginReq struct {
		Nonce     []byte `msgpack:"n,omitempty" json:"nonce,omitempty"`     // of the first step's answer
		Assertion []byte `msgpack:"a,omitempty" json:"assertion,omitempty"` // PublicKeyCredential.toJSON() as UTF-8
	}
	// LoginResp is the first step's answer (Nonce, Challenge, RP and Allow), or the second's (Session, Until, Name). Session never
	// reaches a script: approvals sets it as a cookie.
	LoginResp struct {
		Nonce     []byte   `msgpack:"n,omitempty" json:"nonce,omitempty"`
		Challenge []byte   `msgpack:"c,omitempty" json:"challenge,omitempty"`
		RP        string   `msgpack:"r,omitempty" json:"rp,omitempty"`
		Allow     [][]byte `msgpack:"l,omitempty" json:"allow,omitempty"` // credential ids; only to who has a session
		Session   []byte   `msgpack:"s,omitempty" json:"-"`
		Until     int64    `msgpack:"u,omitempty" json:"until,omitempty"` // seconds
		Name      string   `msgpack:"m,omitempty" json:"name,omitempty"`
	}

	// EnrolReq registers a passkey, in two steps: without Credential it asks for the options. Code never leaves the browser: MAC is
	// HMAC-SHA256 under it (EnrolMAC).
	EnrolReq struct {
		ID         string `msgpack:"i" json:"id"` // of the invitation, no secret
		Credential []byte `msgpack:"c,omitempty" json:"credential,omitempty"`
		MAC        []byte `msgpack:"m,omitempty" json:"mac,omitempty"`
	}
	EnrolResp struct {
		Challenge []byte   `msgpack:"c,omitempty" json:"challenge,omitempty"`
		RP        string   `msgpack:"r,omitempty" json:"rp,omitempty"`
		User      []byte   `msgpack:"u,omitempty" json:"user,omitempty"` // user handle
		Name      string   `msgpack:"n,omitempty" json:"name,omitempty"`
		Exclude   [][]byte `msgpack:"x,omitempty" json:"exclude,omitempty"`
		Done      bool     `msgpack:"d,omitempty" json:"done,omitempty"`
	}

	// WebShown is a card as sentinel signed it. Signed is the exact text (JSON of Offer) that Signature is over: ECDSA on P-256 with
	// SHA-256 over SignedTag and Signed, as 64 bytes r and s (IEEE P1363), which browsers verify themselves.
	WebShown struct {
		Signed    []byte `msgpack:"b" json:"signed"`
		Signature []byte `msgpack:"s" json:"signature"`
	}
	// Offer is a card to decide on, and what an assertion over it is made with.
	Offer struct {
		Card    Card     `json:"card"`
		Nonce   []byte   `json:"nonce"`   // 32 random bytes, kept with the offer and used once
		Expires int64    `json:"expires"` // of the offer, seconds
		RP      string   `json:"rp"`
		Allow   [][]byte `json:"allow"` // credential ids that may decide
	}

	// WebDecideReq decides several cards with one assertion, each bound by itself.
	WebDecideReq struct {
		Items     []WebDecision `msgpack:"i" json:"items"`
		Assertion []byte        `msgpack:"a" json:"assertion"`
	}
	// WebDecision is one card's. Decision is the exact text, JSON of Decision, that the challenge is over.
	WebDecision struct {
		ID       string `msgpack:"i" json:"id"`
		Nonce    []byte `msgpack:"n" json:"nonce"`
		Decision []byte `msgpack:"d" json:"decision"`
	}
	// Decision is what a person decided of the card with that hash.
	Decision struct {
		Hash    []byte `json:"hash"`
		Approve bool   `json:"approve"`
		Grant   *Grant `json:"grant,omitempty"`
		Stop    bool   `json:"stop,omitempty"`
		Why     string `json:"why,omitempty"`
	}
	// WebDecided has an outcome for each item, in order.
	WebDecided struct {
		Outcomes []WebOutcome `msgpack:"o" json:"outcomes"`
	}
	// WebOutcome with a State and an Err: it was decided, and did not come to what it was for.
	WebOutcome struct {
		State State  `msgpack:"s,omitempty" json:"state,omitempty"`
		Grant string `msgpack:"g,omitempty" json:"grant,omitempty"`
		Err   *Error `msgpack:"e,omitempty" json:"error,omitempty"`
	}
)

// Tags keep what is hashed or signed for one purpose from being used for another.
const (
	SignedTag    = "doorward card 1\x00"
	challengeTag = "doorward challenge 1\x00"
	loginTag     = "doorward login 1\x00"
	enrolTag     = "doorward enrol 1\x00"
)

// Signed is what Challenge hashes behind its tag: the number of items, and of each the nonce, the SHA-256 of the decision's text and
// the end of the offer in seconds, in order; numbers are big-endian. Every nonce has 32 bytes, and expires is as long as items.
func Signed(items []WebDecision, expires []int64) []byte {
	b := binary.BigEndian.AppendUint32(nil, uint32(len(items)))
	for i := range items {
		text := sha256.Sum256(items[i].Decision)
		b = append(b, items[i].Nonce...)
		b = append(b, text[:]...)
		b = binary.BigEndian.AppendUint64(b, uint64(expires[i]))
	}
	return b
}

// Challenge is what a passkey signs to decide the items: SHA-256 over its tag and Signed. The decision has the card's hash in it,
// which is over the canonical call, the requests and their bodies.
func Challenge(items []WebDecision, expires []int64) [sha256.Size]byte {
	return sha256.Sum256(append([]byte(challengeTag), Signed(items, expires)...))
}

// LoginChallenge is what a passkey signs to begin a session. The script makes it from the nonce and compares: if it signed whatever
// Challenge it is sent, a taken-over approvals would send that of a decision.
func LoginChallenge(nonce []byte) [sha256.Size]byte {
	return sha256.Sum256(append([]byte(loginTag), nonce...))
}

// EnrolMAC binds a new passkey to the code of an invitation: HMAC-SHA256 over the tag and the credential's bytes as sent.
func EnrolMAC(code, credential []byte) []byte {
	h := hmac.New(sha256.New, code)
	h.Write([]byte(enrolTag))
	h.Write(credential)
	return h.Sum(nil)
}
