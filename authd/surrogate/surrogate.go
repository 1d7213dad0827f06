// SPDX-License-Identifier: Apache-2.0

// Package surrogate makes the stand-ins that workers and cells hold instead of credentials.
//
// A surrogate has the prefix, the alphabet and the length class of the credential it stands for, and the vendor's
// checksum where there is one, so that vendors' own tools accept its form. It carries nothing of the credential but
// those: 128 random bits at least, and a fixed marker by which authd knows its own. Without the marker an attacker
// who can add an account could have a surrogate kept as a credential, or a credential taken for a surrogate. Only a
// surrogate's digest is kept, so authd's memory does not hold what would open a grant.
package surrogate

import (
	"bytes"
	"crypto/sha256"
	"crypto/subtle"
	"fmt"
	"io"
)

// MinBits is the least number of random bits in a surrogate.
const MinBits = 128

// MaxLength bounds a surrogate's length in bytes, whatever the credential's.
const MaxLength = 1024

// Digest is what is kept of a surrogate: the SHA-256 of its bytes.
type Digest [sha256.Size]byte

// DigestOf returns the digest of a surrogate, or of what is presented as one.
func DigestOf(value []byte) Digest { return sha256.Sum256(value) }

// Equal compares in constant time: the time of a refusal tells nothing of a surrogate.
func (d Digest) Equal(other Digest) bool { return subtle.ConstantTimeCompare(d[:], other[:]) == 1 }

// Shape is what a credential and its surrogates have in common. It holds no part of the credential beyond a prefix
// that is public.
type Shape struct {
	prefix   string // as listed in prefixes
	lead     string // what follows the prefix in every value of this form, before the marker
	alphabet *alphabet
	length   int  // of the whole value, in bytes
	joint    int  // offset of a "_" inside the value; 0 for none
	sum      bool // the last six characters are a checksum
}

// prefixes are the public beginnings of vendors' tokens. A prefix that is not listed is not kept: what stands before
// a dash in a passphrase is part of the secret. Longer ones come before those they begin with.
var prefixes = [...]string{
	"github_pat_", "ghp_", "gho_", "ghu_", "ghs_", "ghr_", "glpat-", "npm_", "pypi-", "hf_", "dop_v1_",
	"sk-ant-", "sk-", "xoxb-", "xoxp-", "xapp-", "lin_api_", "ntn_", "secret_", "ya29.",
}

const (
	fineGrained = "github_pat_"
	// GitHub's fine-grained tokens are github_pat_, 22 characters, "_", 59 characters.
	fineGrainedLength = len(fineGrained) + 22 + 1 + 59
	fineGrainedJoint  = len(fineGrained) + 22
)

// ShapeOf returns the shape for surrogates of credential.
func ShapeOf(credential []byte) Shape {
	s := Shape{prefix: prefixOf(credential)}
	rest := credential[len(s.prefix):]
	switch {
	case s.prefix == fineGrained && len(credential) == fineGrainedLength && credential[fineGrainedJoint] == '_':
		s.lead, s.alphabet, s.length, s.joint, s.sum = "11", &base62, fineGrainedLength, fineGrainedJoint, true
		return s
	case checksummed(s.prefix) && len(rest) == classicBody+checksumLength && base62.holds(rest):
		s.sum = true
	}
	s.alphabet = alphabetOf(rest)
	least := len(s.prefix) + s.alphabet.least()
	if s.sum {
		least += checksumLength
	}
	s.length = min(max(len(credential), least), max(MaxLength, least))
	return s
}

func prefixOf(credential []byte) string {
	for _, p := range prefixes {
		if bytes.HasPrefix(credential, []byte(p)) {
			return p
		}
	}
	return ""
}

// checksummed says whether tokens with this prefix end in the checksum of package file github.go.
func checksummed(prefix string) bool {
	switch prefix {
	case "ghp_", "gho_", "ghu_", "ghs_", "ghr_", "npm_":
		return true
	default:
		return false
	}
}

// Mint returns a new surrogate of this shape, made from random (crypto/rand.Reader outside tests). On error it
// returns nil.
func (s Shape) Mint(random io.Reader) ([]byte, error) {
	if s.alphabet == nil {
		return nil, fmt.Errorf("mint surrogate: no shape given; take it from the credential with ShapeOf")
	}
	value := make([]byte, 0, s.length)
	value = append(value, s.prefix...)
	value = append(value, s.lead...)
	value = append(value, s.alphabet.marker...)
	end := s.length
	if s.sum {
		end -= checksumLength
	}
	value = value[:end]
	from := len(s.prefix) + len(s.lead) + len(s.alphabet.marker)
	if err := s.alphabet.fill(value[from:], random); err != nil {
		return nil, fmt.Errorf("mint surrogate: %w", err)
	}
	if s.joint > 0 {
		value[s.joint] = '_'
	}
	if s.sum {
		part := value[len(s.prefix):]
		if s.joint > 0 {
			part = value[s.joint+1:]
		}
		value = appendChecksum(value, part)
	}
	return value, nil
}

// Marked says whether value has the form of a surrogate of any shape. A credential that is Marked is refused at
// import, and a value that is not is never looked up as a surrogate.
func Marked(value []byte) bool {
	if len(value) > max(MaxLength, fineGrainedLength) {
		return false
	}
	prefix := prefixOf(value)
	rest := value[len(prefix):]
	if prefix == fineGrained {
		rest = bytes.TrimPrefix(rest, []byte("11"))
	}
	for _, a := range alphabets {
		if bytes.HasPrefix(rest, []byte(a.marker)) && len(rest) >= len(a.marker)+a.randomLeast() {
			return true
		}
	}
	return false
}
