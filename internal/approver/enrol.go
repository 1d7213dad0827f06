// SPDX-License-Identifier: Apache-2.0

package approver

import (
	"crypto/hmac"
	"crypto/sha256"

	"github.com/doorward/doorward/internal/wire"
)

// EnrolMAC binds a new passkey to the code of an invitation: HMAC-SHA256 over the tag and the credential's bytes as sent.
func EnrolMAC(code, credential []byte) []byte {
	h := hmac.New(sha256.New, code)
	h.Write([]byte(wire.EnrolTag))
	h.Write(credential)
	return h.Sum(nil)
}
