// SPDX-License-Identifier: Apache-2.0

// Package webpush seals and signs what a push service carries to a browser: RFC 8291 over RFC 8188 for the text, RFC 8292 (VAPID) for
// who sends it. The service learns when something comes and for whom, not what; who has its operator's access, or the endpoint alone,
// can neither read a notice nor make one.
package webpush

import (
	"crypto/aes"
	"crypto/cipher"
	"crypto/ecdh"
	"crypto/ecdsa"
	"crypto/hkdf"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"time"
)

// MaxText is the longest text in bytes. Every one is padded to it, so that its length says nothing of it; sealed it is far below the
// 4096 bytes that a push service has to take (RFC 8030, 7.2).
const MaxText = 2048

const (
	recordSize = 4096 // RFC 8291, 4: one record, and not smaller than what is in it
	publicSize = 65   // of an uncompressed point of P-256
	authSize   = 16
	saltSize   = 16
)

// Receiver is a browser's subscription: its public key, an uncompressed point of P-256 (`p256dh`), and the 16 bytes of `auth`.
type Receiver struct {
	Public, Auth []byte
}

// ErrReceiver is wrapped where a subscription's keys are none.
var ErrReceiver = errors.New("no keys of a push subscription")

// Check says whether the keys are some.
func (r *Receiver) Check() error {
	_, err := r.key()
	return err
}

func (r *Receiver) key() (*ecdh.PublicKey, error) {
	if len(r.Public) != publicSize || len(r.Auth) != authSize {
		return nil, fmt.Errorf("%w: %d and %d bytes, want %d and %d", ErrReceiver, len(r.Public), len(r.Auth), publicSize, authSize)
	}
	k, err := ecdh.P256().NewPublicKey(r.Public)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrReceiver, err)
	}
	return k, nil
}

// Seal encrypts a text of at most MaxText bytes for one browser, as the body of a request with Content-Encoding aes128gcm.
func Seal(to *Receiver, text []byte) ([]byte, error) {
	if len(text) > MaxText {
		return nil, fmt.Errorf("seal a notice: %d bytes, at most %d", len(text), MaxText)
	}
	ours, err := ecdh.P256().GenerateKey(rand.Reader)
	if err != nil {
		return nil, fmt.Errorf("seal a notice: %w", err)
	}
	salt := make([]byte, saltSize)
	rand.Read(salt)
	return seal(to, ours, salt, text, MaxText)
}

// seal pads text to a length. Key and salt are of one message only.
func seal(to *Receiver, ours *ecdh.PrivateKey, salt, text []byte, padded int) ([]byte, error) {
	theirs, err := to.key()
	if err != nil {
		return nil, err
	}
	shared, err := ours.ECDH(theirs)
	if err != nil {
		return nil, fmt.Errorf("seal a notice: %w", err)
	}
	public := ours.PublicKey().Bytes()
	key, nonce, err := keys(shared, to.Auth, to.Public, public, salt)
	if err != nil {
		return nil, fmt.Errorf("seal a notice: %w", err)
	}
	block, err := aes.NewCipher(key)
	if err != nil {
		return nil, fmt.Errorf("seal a notice: %w", err)
	}
	gcm, err := cipher.NewGCM(block)
	if err != nil {
		return nil, fmt.Errorf("seal a notice: %w", err)
	}
	plain := append(make([]byte, 0, padded+1), text...)
	plain = append(plain, 2) // the delimiter of the last record (RFC 8188, 2), then the padding
	plain = append(plain, make([]byte, max(0, padded-len(text)))...)
	out := append([]byte(nil), salt...)
	out = binary.BigEndian.AppendUint32(out, recordSize)
	out = append(out, byte(len(public)))
	out = append(out, public...)
	return gcm.Seal(out, nonce, plain, nil), nil
}

// keys derives the content's key and nonce (RFC 8291, 3.4).
func keys(shared, auth, receiver, sender, salt []byte) (key, nonce []byte, err error) {
	info := "WebPush: info\x00" + string(receiver) + string(sender)
	input, err := hkdf.Key(sha256.New, shared, auth, info, 32)
	if err != nil {
		return nil, nil, err
	}
	if key, err = hkdf.Key(sha256.New, input, salt, "Content-Encoding: aes128gcm\x00", 16); err != nil {
		return nil, nil, err
	}
	nonce, err = hkdf.Key(sha256.New, input, salt, "Content-Encoding: nonce\x00", 12)
	return key, nonce, err
}

// Authorization is the header by which a push service knows the sender (RFC 8292): for the origin of the endpoint, and until then, at
// most 24 hours from now. contact is a mailto: or https: address of who runs the sender.
func Authorization(key *ecdsa.PrivateKey, origin, contact string, until time.Time) (string, error) {
	claims, err := json.Marshal(struct {
		Aud string `json:"aud"`
		Exp int64  `json:"exp"`
		Sub string `json:"sub"`
	}{origin, until.Unix(), contact})
	if err != nil {
		return "", fmt.Errorf("sign for a push service: %w", err)
	}
	text := base64.RawURLEncoding.EncodeToString
	token := text([]byte(`{"typ":"JWT","alg":"ES256"}`)) + "." + text(claims)
	digest := sha256.Sum256([]byte(token))
	r, s, err := ecdsa.Sign(rand.Reader, key, digest[:])
	if err != nil {
		return "", fmt.Errorf("sign for a push service: %w", err)
	}
	signature := make([]byte, 64)
	r.FillBytes(signature[:32])
	s.FillBytes(signature[32:])
	public, err := key.PublicKey.Bytes()
	if err != nil {
		return "", fmt.Errorf("sign for a push service: %w", err)
	}
	return "vapid t=" + token + "." + text(signature) + ", k=" + text(public), nil
}
