// SPDX-License-Identifier: Apache-2.0

package approver

import (
	"bytes"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base32"
	"encoding/base64"
	"errors"
	"strings"
)

// RecoverySize is the length of a recovery code in bytes: 136 random bits, so that nobody finds one by trying.
const RecoverySize = 17

// RecoveryPrefix begins the id of a recovery code where an invitation's id stands, which never has a hyphen there.
const RecoveryPrefix = "recovery-"

const (
	recoveryTag = "doorward recovery 1\x00"
	checkTag    = "doorward recovery check 1\x00"

	recoveryLetters = (RecoverySize + checkSize) * 8 / 5

	checkSize = 3 // bytes: of 16 million mistakes one is taken for a code, and then refused by sentinel
)

// crockford has no letter that is read as another or as a digit.
var crockford = base32.NewEncoding("0123456789ABCDEFGHJKMNPQRSTVWXYZ").WithPadding(base32.NoPadding)

// RecoveryCode is the code of a nonce and a name under sentinel's key: only the two of them together make it.
func RecoveryCode(key, nonce []byte, name string) []byte {
	return recoveryMAC(key, nonce, "code", name)[:RecoverySize]
}

// RecoveryChallenge is the challenge of the registration by that code, RecoveryUser the new passkey's user handle. They stay the same
// until the code is used, so strangers who ask for them fill no memory.
func RecoveryChallenge(key, nonce []byte, name string) []byte {
	return recoveryMAC(key, nonce, "challenge", name)
}

// RecoveryUser is as RecoveryChallenge.
func RecoveryUser(key, nonce []byte, name string) []byte {
	return recoveryMAC(key, nonce, "user", name)
}

func recoveryMAC(key, nonce []byte, of, name string) []byte {
	h := hmac.New(sha256.New, key)
	h.Write([]byte(of + "\x00" + name + "\x00")) // neither has a zero byte
	h.Write(nonce)
	return h.Sum(nil)
}

// RecoveryID is what is sent of a code. Who carries it cannot make the code of it, and so no MAC.
func RecoveryID(code []byte) string {
	sum := sha256.Sum256(append([]byte(recoveryTag), code...))
	return RecoveryPrefix + base64.RawURLEncoding.EncodeToString(sum[:])
}

// RecoveryText is a code as it is printed: with its checksum, in groups of four.
func RecoveryText(code []byte) string {
	all := crockford.EncodeToString(append(append([]byte(nil), code...), recoveryCheck(code)...))
	var groups []string
	for ; len(all) > 4; all = all[4:] {
		groups = append(groups, all[:4])
	}
	return strings.Join(append(groups, all), "-")
}

// ErrRecoveryText says that a text is no recovery code.
var ErrRecoveryText = errors.New("this is no recovery code: a letter is wrong, missing or too many")

// ParseRecovery reads what RecoveryText writes, in either case, with any spaces and hyphens, an O for 0 and an I or L for 1.
func ParseRecovery(text string) ([]byte, error) {
	text = strings.NewReplacer(" ", "", "-", "", "O", "0", "I", "1", "L", "1").Replace(strings.ToUpper(text))
	b, err := crockford.DecodeString(text)
	if err != nil || len(text) != recoveryLetters || len(b) != RecoverySize+checkSize ||
		!bytes.Equal(b[RecoverySize:], recoveryCheck(b[:RecoverySize])) {
		return nil, ErrRecoveryText
	}
	return b[:RecoverySize], nil
}

func recoveryCheck(code []byte) []byte {
	sum := sha256.Sum256(append([]byte(checkTag), code...))
	return sum[:checkSize]
}
