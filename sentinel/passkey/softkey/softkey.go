// SPDX-License-Identifier: Apache-2.0

// Package softkey is an authenticator and a browser in software, for tests of what verifies them: it makes registrations and
// assertions as PublicKeyCredential.toJSON() has them, and lies where it is told to. No binary links it.
package softkey

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"fmt"

	"github.com/go-webauthn/webauthn/protocol/webauthncbor"

	"github.com/doorward/doorward/sentinel/passkey"
)

// Key is a passkey with its private half.
type Key struct {
	ID, User []byte
	Count    uint32 // of the newest signature; Still keeps it from counting
	Still    bool
	signer   crypto.Signer
}

// New makes a passkey for P-256 with SHA-256, as most are.
func New() *Key { return with(ecdsa.GenerateKey(elliptic.P256(), rand.Reader)) }

// NewEdDSA and NewRS256 make passkeys of the other two kinds.
func NewEdDSA() *Key {
	_, k, err := ed25519.GenerateKey(rand.Reader)
	return with(k, err)
}

// NewRS256 makes an RSA key of 2048 bits.
func NewRS256() *Key { return with(rsa.GenerateKey(rand.Reader, 2048)) }

func with[S crypto.Signer](s S, err error) *Key {
	if err != nil {
		panic(err)
	}
	k := &Key{ID: make([]byte, 16), signer: s}
	rand.Read(k.ID)
	return k
}

// Clone is a copy as who opened the authenticator has it: it counts by itself.
func (k *Key) Clone() *Key {
	c := *k
	return &c
}

// Making is what goes into one registration or assertion.
type Making struct {
	Type      string
	Challenge []byte
	Origin    string
	Top       string // topOrigin
	Cross     bool
	RP        string
	Flags     byte // 1 present, 4 verified
	Count     uint32
	Alg       int    // of the key, in a registration
	Raw       []byte // rawId
	Handle    []byte // user handle, in an assertion
	Forge     bool   // the signature is another's
}

// Lie changes what is made.
type Lie func(*Making)

func (k *Key) making(typ string, at passkey.Place, challenge []byte, flags byte, lies []Lie) *Making {
	if !k.Still {
		k.Count++
	}
	alg, _ := k.cose()
	m := &Making{Type: typ, Challenge: challenge, Origin: at.Origin, RP: at.RP, Flags: flags, Count: k.Count, Alg: alg, Raw: k.ID,
		Handle: k.User}
	for _, lie := range lies {
		lie(m)
	}
	return m
}

func (m *Making) clientData() []byte {
	data := map[string]any{"type": m.Type, "challenge": base64.RawURLEncoding.EncodeToString(m.Challenge), "origin": m.Origin,
		"crossOrigin": m.Cross}
	if m.Top != "" {
		data["topOrigin"] = m.Top
	}
	return asJSON(data)
}

func (m *Making) authData(attested []byte) []byte {
	rp := sha256.Sum256([]byte(m.RP))
	b := append(rp[:], m.Flags)
	return append(binary.BigEndian.AppendUint32(b, m.Count), attested...)
}

// Register makes a registration for the user handle.
func (k *Key) Register(at passkey.Place, challenge, user []byte, lies ...Lie) []byte {
	k.User = user
	m := k.making("webauthn.create", at, challenge, 0x45, lies) // present, verified, attested
	_, public := k.cose()
	public[3] = m.Alg
	attested := binary.BigEndian.AppendUint16(make([]byte, 16), uint16(len(k.ID))) // an AAGUID of zeros
	attested = append(append(attested, k.ID...), asCBOR(public)...)
	object := asCBOR(map[string]any{"fmt": "none", "attStmt": map[string]any{}, "authData": m.authData(attested)})
	return credential(m, map[string]any{"clientDataJSON": text(m.clientData()), "attestationObject": text(object),
		"transports": []string{"internal"}})
}

// Assert makes an assertion.
func (k *Key) Assert(at passkey.Place, challenge []byte, lies ...Lie) []byte {
	m := k.making("webauthn.get", at, challenge, 0x05, lies)
	client, auth := m.clientData(), m.authData(nil)
	sum := sha256.Sum256(client)
	signed := append(append([]byte{}, auth...), sum[:]...)
	if m.Forge {
		signed[0]++
	}
	var sig []byte
	var err error
	if _, plain := k.signer.(ed25519.PrivateKey); plain {
		sig, err = k.signer.Sign(rand.Reader, signed, crypto.Hash(0))
	} else {
		digest := sha256.Sum256(signed)
		sig, err = k.signer.Sign(rand.Reader, digest[:], crypto.SHA256)
	}
	if err != nil {
		panic(err)
	}
	return credential(m, map[string]any{"clientDataJSON": text(client), "authenticatorData": text(auth), "signature": text(sig),
		"userHandle": text(m.Handle)})
}

// cose is the public key as a COSE_Key (RFC 9053) and its algorithm.
func (k *Key) cose() (alg int, key map[int]any) {
	switch p := k.signer.Public().(type) {
	case *ecdsa.PublicKey:
		point, err := p.Bytes()
		if err != nil {
			panic(err)
		}
		return -7, map[int]any{1: 2, 3: -7, -1: 1, -2: point[1:33], -3: point[33:]}
	case ed25519.PublicKey:
		return -8, map[int]any{1: 1, 3: -8, -1: 6, -2: []byte(p)}
	case *rsa.PublicKey:
		return -257, map[int]any{1: 3, 3: -257, -1: p.N.Bytes(), -2: []byte{1, 0, 1}}
	}
	panic(fmt.Sprintf("a key of kind %T", k.signer))
}

func credential(m *Making, response map[string]any) []byte {
	id := text(m.Raw)
	return asJSON(map[string]any{"id": id, "rawId": id, "type": "public-key", "authenticatorAttachment": "platform",
		"clientExtensionResults": map[string]any{}, "response": response})
}

func text(b []byte) string { return base64.RawURLEncoding.EncodeToString(b) }

func asJSON(v any) []byte {
	b, err := json.Marshal(v)
	if err != nil {
		panic(err)
	}
	return b
}

func asCBOR(v any) []byte {
	b, err := webauthncbor.Marshal(v)
	if err != nil {
		panic(err)
	}
	return b
}
