// SPDX-License-Identifier: Apache-2.0

package webpush

import (
	"bytes"
	"crypto/ecdh"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"errors"
	"math/big"
	"strings"
	"testing"
	"time"
)

func raw(t testing.TB, s string) []byte {
	t.Helper()
	b, err := base64.RawURLEncoding.DecodeString(s)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// The example of RFC 8291, section 5 and appendix A.
func TestTheExampleOfTheRFC(t *testing.T) {
	ours, err := ecdh.P256().NewPrivateKey(raw(t, "yfWPiYE-n46HLnH0KqZOF1fJJU3MYrct3AELtAQ-oRw"))
	if err != nil {
		t.Fatal(err)
	}
	to := &Receiver{
		Public: raw(t, "BCVxsr7N_eNgVRqvHtD0zTZsEc6-VV-JvLexhqUzORcxaOzi6-AYWXvTBHm4bjyPjs7Vd8pZGH6SRpkNtoIAiw4"),
		Auth:   raw(t, "BTBZMqHH6r4Tts7J_aSIgg"),
	}
	text := []byte("When I grow up, I want to be a watermelon")
	got, err := seal(to, ours, raw(t, "DGv6ra1nlYgDCS1FRnbzlw"), text, len(text))
	if err != nil {
		t.Fatal(err)
	}
	want := "DGv6ra1nlYgDCS1FRnbzlwAAEABBBP4z9KsN6nGRTbVYI_c7VJSPQTBtkgcy27mlmlMoZIIgDll6e3vCYLocInmYWAmS6TlzAC8wEqKK6PBru3jl7A_yl95bQpu6" +
		"cVPTpK4Mqgkf1CXztLVBSt2Ks3oZwbuwXPXLWyouBWLVWGNWQexSgSxsj_Qulcy4a-fN"
	if base64.RawURLEncoding.EncodeToString(got) != want {
		t.Errorf("%s", base64.RawURLEncoding.EncodeToString(got))
	}
}

// What is sealed has one length, fits into what services take, and is never sealed alike.
func TestTheLengthSaysNothing(t *testing.T) {
	k, err := ecdh.P256().GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	to := &Receiver{Public: k.PublicKey().Bytes(), Auth: make([]byte, authSize)}
	var last []byte
	for _, text := range []string{"", "a", strings.Repeat("b", MaxText), "a"} {
		b, err := Seal(to, []byte(text))
		if err != nil {
			t.Fatal(err)
		}
		if last != nil && len(b) != len(last) || len(b) > 4096 || bytes.Equal(b, last) {
			t.Errorf("%d bytes of text are sealed as %d", len(text), len(b))
		}
		last = b
	}
	if b, err := Seal(to, make([]byte, MaxText+1)); err == nil || b != nil {
		t.Error("a text that is too long is sealed")
	}
}

func TestKeysThatAreNone(t *testing.T) {
	k, err := ecdh.P256().GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	good := k.PublicKey().Bytes()
	off := bytes.Clone(good)
	off[64] ^= 1 // not on the curve
	for name, r := range map[string]*Receiver{
		"nothing": {}, "no auth": {Public: good}, "a long auth": {Public: good, Auth: make([]byte, 17)},
		"compressed":    {Public: append([]byte{2}, good[1:33]...), Auth: make([]byte, 16)},
		"off the curve": {Public: off, Auth: make([]byte, 16)},
		"infinity":      {Public: make([]byte, 65), Auth: make([]byte, 16)},
	} {
		t.Run(name, func(t *testing.T) {
			if err := r.Check(); !errors.Is(err, ErrReceiver) {
				t.Errorf("check: %v", err)
			}
			if b, err := Seal(r, nil); !errors.Is(err, ErrReceiver) || b != nil {
				t.Errorf("seal: %x, %v", b, err)
			}
		})
	}
	if err := (&Receiver{Public: good, Auth: make([]byte, 16)}).Check(); err != nil {
		t.Errorf("keys that are some: %v", err)
	}
}

func TestTheSenderIsKnown(t *testing.T) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	until := time.Unix(1900000000, 0)
	h, err := Authorization(key, "https://push.example.net", "https://ward.example.org", until)
	if err != nil {
		t.Fatal(err)
	}
	token, public, ok := strings.Cut(strings.TrimPrefix(h, "vapid t="), ", k=")
	parts := strings.Split(token, ".")
	if !ok || len(parts) != 3 {
		t.Fatal(h)
	}
	if own, _ := key.PublicKey.Bytes(); !bytes.Equal(raw(t, public), own) {
		t.Error("another key is named")
	}
	var claims map[string]any
	if err := json.Unmarshal(raw(t, parts[1]), &claims); err != nil || claims["aud"] != "https://push.example.net" ||
		claims["sub"] != "https://ward.example.org" || claims["exp"] != float64(until.Unix()) {
		t.Errorf("%v, %v", claims, err)
	}
	sig := raw(t, parts[2])
	digest := sha256.Sum256([]byte(parts[0] + "." + parts[1]))
	if len(sig) != 64 || !ecdsa.Verify(&key.PublicKey, digest[:], new(big.Int).SetBytes(sig[:32]), new(big.Int).SetBytes(sig[32:])) {
		t.Error("the signature does not hold")
	}
}

func FuzzSeal(f *testing.F) {
	k, err := ecdh.P256().GenerateKey(rand.Reader)
	if err != nil {
		f.Fatal(err)
	}
	f.Add(k.PublicKey().Bytes(), make([]byte, 16), []byte("text"))
	f.Add([]byte{4}, []byte{}, []byte{})
	f.Fuzz(func(t *testing.T, public, auth, text []byte) {
		r := &Receiver{Public: public, Auth: auth}
		b, err := Seal(r, text)
		if (b == nil) == (err == nil) {
			t.Fatalf("%x, %v", b, err)
		}
		if (err == nil) != (r.Check() == nil && len(text) <= MaxText) {
			t.Fatalf("sealed by keys that are none, or not by some: %v", err)
		}
	})
}
