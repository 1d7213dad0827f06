// SPDX-License-Identifier: Apache-2.0

// Package passkey verifies what a person's authenticator made: a registration, and the assertions of the key that it registered
// (WebAuthn Level 3, 7.1 and 7.2). It is pure: it keeps nothing, reads no clock, and neither listens nor dials.
//
// The bytes come by approvals, which a stranger may have taken over. What it cannot do is make an assertion; so everything is held
// to what the authenticator signed: the challenge, the exact origin of the page, its host as RP id, and that the person was verified
// and not only present. A page of another origin, also of another port of the same host, or within a frame, gets nothing here.
//
// The attestation of a registration is not looked at. It would tell the maker of the authenticator; whose it is the code of the
// invitation tells, which the caller checks before it parses anything.
package passkey

import (
	"bytes"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"fmt"
	"slices"

	"github.com/go-webauthn/webauthn/protocol"
	"github.com/go-webauthn/webauthn/protocol/webauthncbor"
	"github.com/go-webauthn/webauthn/protocol/webauthncose"
)

// MaxJSON is the longest registration or assertion in bytes, as PublicKeyCredential.toJSON() has it.
const MaxJSON = 16 << 10

// What a registration or an assertion is refused for. The text is for the record and the person; it holds nothing of what was sent.
var (
	ErrMalformed = errors.New("it is no registration or assertion of a passkey")
	ErrCeremony  = errors.New("it was made for another purpose")
	ErrChallenge = errors.New("it was made over something else")
	ErrOrigin    = errors.New("it was made on another page")
	ErrUser      = errors.New("the authenticator did not verify who was there")
	ErrKey       = errors.New("it is of another passkey, or of a kind that is not taken")
	ErrSignature = errors.New("its signature is wrong")
	ErrCloned    = errors.New("its counter did not grow: there may be two of this passkey")
)

// Place is where an assertion counts.
type Place struct {
	Origin string // of the page, as a browser writes it: "https://host:8440"
	RP     string // the RP id: the host alone
}

// Key is a passkey.
type Key struct {
	ID     []byte // credential id, 1 to 1023 bytes
	User   []byte // user handle
	Public []byte // COSE_Key, CBOR
	Count  uint32 // of its newest signature that was taken; 0 for an authenticator that does not count
}

// algorithms are those that keys may have. Browsers are offered the same, in this order.
var algorithms = []webauthncose.COSEAlgorithmIdentifier{webauthncose.AlgES256, webauthncose.AlgEdDSA, webauthncose.AlgRS256}

// Register reads a registration that was made at place over challenge, for the user handle that was offered.
func Register(place Place, challenge, user, credential []byte) (*Key, error) {
	if len(credential) > MaxJSON {
		return nil, fmt.Errorf("%w: %d bytes, at most %d", ErrMalformed, len(credential), MaxJSON)
	}
	p, err := protocol.ParseCredentialCreationResponseBytes(credential)
	if err != nil {
		return nil, ErrMalformed
	}
	auth := &p.Response.AttestationObject.AuthData
	if err := place.check(&p.Response.CollectedClientData, auth, protocol.CreateCeremony, challenge); err != nil {
		return nil, err
	}
	id := auth.AttData.CredentialID
	if len(id) == 0 || !bytes.Equal(id, p.RawID) {
		return nil, ErrMalformed
	}
	if err := checkKey(auth.AttData.CredentialPublicKey); err != nil {
		return nil, err
	}
	return &Key{ID: slices.Clone(id), User: slices.Clone(user), Public: slices.Clone(auth.AttData.CredentialPublicKey),
		Count: auth.Counter}, nil
}

// Assertion is one that was read and not yet verified: nothing of it is to be believed.
type Assertion struct {
	parsed *protocol.ParsedCredentialAssertionData
}

// Parse reads an assertion.
func Parse(assertion []byte) (*Assertion, error) {
	if len(assertion) > MaxJSON {
		return nil, fmt.Errorf("%w: %d bytes, at most %d", ErrMalformed, len(assertion), MaxJSON)
	}
	p, err := protocol.ParseCredentialRequestResponseBytes(assertion)
	if err != nil {
		return nil, ErrMalformed
	}
	return &Assertion{p}, nil
}

// Credential is the id of the key that it claims to be of.
func (a *Assertion) Credential() []byte { return a.parsed.RawID }

// Verify holds the assertion to a key, a place and a challenge. It returns the key's new counter, which the caller keeps before it
// does what the assertion is for.
func (a *Assertion) Verify(k *Key, place Place, challenge []byte) (count uint32, err error) {
	r := &a.parsed.Response
	if !bytes.Equal(a.parsed.RawID, k.ID) || len(r.UserHandle) > 0 && !bytes.Equal(r.UserHandle, k.User) {
		return 0, ErrKey
	}
	if err := place.check(&r.CollectedClientData, &r.AuthenticatorData, protocol.AssertCeremony, challenge); err != nil {
		return 0, err
	}
	if err := checkKey(k.Public); err != nil {
		return 0, err
	}
	err = a.parsed.Verify(base64.RawURLEncoding.EncodeToString(challenge), place.RP, "", []string{place.Origin}, nil, nil,
		protocol.TopOriginExplicitVerificationMode, false, true, true, k.Public,
		protocol.SignaturePolicy{ECDSAEncoding: protocol.ECDSASignatureEncodingDER})
	if err != nil { // all else was looked at above
		return 0, ErrSignature
	}
	if count = r.AuthenticatorData.Counter; (count != 0 || k.Count != 0) && count <= k.Count {
		return 0, ErrCloned
	}
	return count, nil
}

// check holds what the browser and the authenticator say of themselves to the place and the challenge. The library takes an origin
// in other spellings too; here it is exact.
func (place Place) check(c *protocol.CollectedClientData, auth *protocol.AuthenticatorData, want protocol.CeremonyType,
	challenge []byte) error {
	rp := sha256.Sum256([]byte(place.RP))
	switch {
	case c.Type != want:
		return ErrCeremony
	case c.Challenge != base64.RawURLEncoding.EncodeToString(challenge):
		return ErrChallenge
	case c.Origin != place.Origin, c.CrossOrigin, c.TopOrigin != "", !bytes.Equal(auth.RPIDHash, rp[:]):
		return ErrOrigin
	case !auth.Flags.HasUserPresent(), !auth.Flags.HasUserVerified():
		return ErrUser
	}
	return nil
}

// checkKey takes keys of algorithms only, whose values are whole.
func checkKey(public []byte) error {
	var head webauthncose.PublicKeyData
	if err := webauthncbor.Unmarshal(public, &head); err != nil {
		return ErrKey
	}
	if !slices.Contains(algorithms, webauthncose.COSEAlgorithmIdentifier(head.Algorithm)) {
		return ErrKey
	}
	if _, err := webauthncose.ParsePublicKey(public); err != nil {
		return ErrKey
	}
	return nil
}
