// SPDX-License-Identifier: Apache-2.0

package wire

import (
	"crypto/sha256"
	"encoding/binary"
)

// Messages of approvals -> sentinel on sentinel/web/sock. approvals carries a browser's JSON to sentinel and the answer back, and
// decides nothing: what it may see is what the browser's session shows, what runs is what a passkey signed, and what the person reads
// is what sentinel signed. Whoever holds approvals can withhold and delay; it can make neither an assertion nor an answer.
//
// The structs below are bodies of WebReq and WebResp, in JSON by their tags.
type (
	// WebReq is what a browser asks. Session is as the cookie has it: 32 bytes, empty for who has none; sentinel looks it up, and
	// without one every verb but login, logout and enrol is refused with CodeNoSession.
	WebReq struct {
		Session []byte `msgpack:"s,omitempty"`
		Nonce   []byte `msgpack:"n"` // 32 bytes, the script's for this request alone
		Body    []byte `msgpack:"b"` // as the script sent it
	}
	// WebResp is the answer, which approvals cannot make or change: Signature is ECDSA on P-256 with SHA-256 by the card key over
	// Answered, as 64 bytes r and s (IEEE P1363), which browsers verify themselves.
	WebResp struct {
		Body      []byte `msgpack:"b"`           // JSON: the verb's answer, or an Error
		Code      Code   `msgpack:"c,omitempty"` // of an Error in Body
		Signature []byte `msgpack:"g"`
		Session   []byte `msgpack:"s,omitempty"` // that a login began; no script gets it
		Until     int64  `msgpack:"u,omitempty"` // its end, seconds
	}
	// LoginReq is in two steps. Without an assertion it asks for a nonce; with one it begins a session, which views and decides
	// nothing.
	LoginReq struct {
		Nonce     []byte `json:"nonce,omitempty"`     // of the first step's answer
		Assertion []byte `json:"assertion,omitempty"` // PublicKeyCredential.toJSON() as UTF-8
	}
	// LoginResp is the first step's answer (Nonce and RP; to who has a session Allow, Name and Viewer too), or the second's (Until, Name
	// and Viewer). Session goes into WebResp alone.
	LoginResp struct {
		Nonce   []byte   `json:"nonce,omitempty"`
		RP      string   `json:"rp,omitempty"`
		Allow   [][]byte `json:"allow,omitempty"` // credential ids; only to who has a session
		Session []byte   `json:"-"`
		Until   int64    `json:"until,omitempty"` // seconds
		Name    string   `json:"name,omitempty"`
		Viewer  bool     `json:"viewer,omitempty"` // who may only see: the page shows it nothing to do
	}
	// EnrolReq registers a passkey, in two steps: without Credential it asks for the options. Code never leaves the browser: MAC is
	// HMAC-SHA256 under it (approver.EnrolMAC).
	EnrolReq struct {
		ID         string `json:"id"` // of the invitation or the recovery code (approver.RecoveryID), no secret
		Credential []byte `json:"credential,omitempty"`
		MAC        []byte `json:"mac,omitempty"`
	}
	EnrolResp struct {
		Challenge []byte   `json:"challenge,omitempty"`
		RP        string   `json:"rp,omitempty"`
		User      []byte   `json:"user,omitempty"` // user handle
		Name      string   `json:"name,omitempty"`
		Exclude   [][]byte `json:"exclude,omitempty"`
		Done      bool     `json:"done,omitempty"`
	}

	// Offer is a card to decide on, and what an assertion over it is made with; a viewer gets the card alone.
	Offer struct {
		Card    Card     `json:"card"`
		Nonce   []byte   `json:"nonce"`   // 32 random bytes, kept with the offer and used once
		Expires int64    `json:"expires"` // of the offer, seconds
		RP      string   `json:"rp"`
		Allow   [][]byte `json:"allow"` // credential ids that may decide
		Viewer  bool     `json:"viewer,omitempty"`
		Edits   *Edits   `json:"edits,omitempty"`
	}

	// WebDecideReq decides several cards with one assertion, each bound by itself.
	WebDecideReq struct {
		Items     []WebDecision `json:"items"`
		Assertion []byte        `json:"assertion"`
	}
	// WebDecision is one card's. Decision is the exact text, JSON of Decision, that the challenge is over.
	WebDecision struct {
		ID       string `json:"id"`
		Nonce    []byte `json:"nonce"`
		Decision []byte `json:"decision"`
	}
	// Decision is what a person decided of the card with that hash.
	Decision struct {
		Hash    []byte `json:"hash"`
		Approve bool   `json:"approve"`
		Grant   *Grant `json:"grant,omitempty"`
		Stop    bool   `json:"stop,omitempty"`
		Why     string `json:"why,omitempty"`
		// Edits is the hash of the card whose place this one takes (Offer.Edits); absent where it takes none.
		Edits []byte `json:"edits,omitempty"`
	}
	// WebDecided has an outcome for each item, in order.
	WebDecided struct {
		Outcomes []WebOutcome `json:"outcomes"`
	}
	// WebOutcome with a State and an Err: it was decided, and did not come to what it was for.
	WebOutcome struct {
		State State  `json:"state,omitempty"`
		Grant string `json:"grant,omitempty"`
		Err   *Error `json:"error,omitempty"`
	}
)

// Tags keep what is hashed or signed for one purpose from being used for another.
const (
	answerTag    = "doorward answer 1\x00"
	challengeTag = "doorward challenge 1\x00"
	loginTag     = "doorward login 1\x00"
	EnrolTag     = "doorward enrol 1\x00" // approver.EnrolMAC
)

// WebNonce is the size in bytes of a request's nonce.
const WebNonce = 32

// Answered is what is signed of an answer to a request: the tag, the verb and a zero byte, the request's nonce of WebNonce bytes, the
// SHA-256 of its body as it arrived, 1 for a refusal or 0, and the answer's body. So it is the answer to that question and to no other,
// however alike, earlier or of whomever.
func Answered(verb string, req *WebReq, resp *WebResp) []byte {
	asked := sha256.Sum256(req.Body)
	b := append([]byte(answerTag), verb...)
	b = append(b, 0)
	b = append(b, req.Nonce...)
	b = append(b, asked[:]...)
	refused := byte(0)
	if resp.Code != "" {
		refused = 1
	}
	return append(append(b, refused), resp.Body...)
}

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

// LoginChallenge is what a passkey signs to begin a session. The script makes it from the nonce: a challenge that it were sent could
// be that of a decision.
func LoginChallenge(nonce []byte) [sha256.Size]byte {
	return sha256.Sum256(append([]byte(loginTag), nonce...))
}
