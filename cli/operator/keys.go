// SPDX-License-Identifier: Apache-2.0

package operator

import (
	"bytes"
	"crypto/ed25519"
	"encoding/base64"
	"encoding/hex"
)

// keys reads a checkpoint key: a seed of 32 bytes as sentinel's unit has it, or a public key in hexadecimal or base64.
// Both are nil where b is neither.
func keys(b []byte) (ed25519.PrivateKey, ed25519.PublicKey) {
	if len(b) == ed25519.SeedSize {
		priv := ed25519.NewKeyFromSeed(b)
		pub, _ := priv.Public().(ed25519.PublicKey)
		return priv, pub
	}
	line := string(bytes.TrimSpace(b))
	if pub, err := hex.DecodeString(line); err == nil && len(pub) == ed25519.PublicKeySize {
		return nil, pub
	}
	if pub, err := base64.StdEncoding.DecodeString(line); err == nil && len(pub) == ed25519.PublicKeySize {
		return nil, pub
	}
	return nil, nil
}
