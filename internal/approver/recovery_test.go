// SPDX-License-Identifier: Apache-2.0

package approver

import (
	"bytes"
	"os"
	"strings"
	"testing"
)

func TestARecoveryCodeIsReadAsItIsTyped(t *testing.T) {
	code := RecoveryCode([]byte("key"), []byte("nonce"), "ada")
	text := RecoveryText(code)
	if len(code) != RecoverySize || len(text) != 8*4+7 {
		t.Fatalf("%d bytes, %s", len(code), text)
	}
	bare := strings.ReplaceAll(text, "-", "")
	for name, typed := range map[string]string{"as printed": text, "lower case": strings.ToLower(text), "no hyphens": bare,
		"spaces": " " + strings.ReplaceAll(text, "-", "  ") + " ", "letters for digits": strings.NewReplacer("0", "o", "1", "l").Replace(text)} {
		if got, err := ParseRecovery(typed); err != nil || !bytes.Equal(got, code) {
			t.Errorf("%s: %x, %v", name, got, err)
		}
	}
	for i := range bare { // any one that is wrong
		other := byte('7')
		if bare[i] == other {
			other = '8'
		}
		if got, err := ParseRecovery(bare[:i] + string(other) + bare[i+1:]); err == nil || got != nil {
			t.Errorf("letter %d wrong: %x", i, got)
		}
	}
	for _, typed := range []string{"", bare[1:], bare + "0", bare[:31] + "U", strings.Repeat("0", 32), bare[:31] + "é"} {
		if got, err := ParseRecovery(typed); err == nil || got != nil {
			t.Errorf("%q: %x", typed, got)
		}
	}
}

// Another key, nonce or name is another code, and what is sent or asked of one is none.
func TestARecoveryCodeIsOfItsNonceAndName(t *testing.T) {
	key, nonce := bytes.Repeat([]byte{1}, 32), bytes.Repeat([]byte{2}, 32)
	seen := map[string]bool{}
	for _, c := range [][]byte{RecoveryCode(key, nonce, "ada"), RecoveryCode(nonce, nonce, "ada"), RecoveryCode(key, key, "ada"),
		RecoveryCode(key, nonce, "eve"), RecoveryChallenge(key, nonce, "ada")[:RecoverySize], RecoveryUser(key, nonce, "ada")[:RecoverySize]} {
		if seen[string(c)] {
			t.Errorf("%x twice", c)
		}
		seen[string(c)] = true
	}
}

// The vector of docs/protocol.md is what the code makes.
func TestTheRecoveryCodeOfTheProtocolPage(t *testing.T) {
	page, err := os.ReadFile("../../docs/protocol.md")
	if err != nil {
		t.Fatal(err)
	}
	code := bytes.Repeat([]byte{5}, RecoverySize)
	for _, want := range []string{"`" + RecoveryText(code) + "`", "`" + RecoveryID(code) + "`"} {
		if !strings.Contains(string(page), want) {
			t.Errorf("docs/protocol.md does not have %s", want)
		}
	}
}

func FuzzParseRecovery(f *testing.F) {
	f.Add(RecoveryText(make([]byte, RecoverySize)))
	f.Add("6t3m oooo-llll")
	f.Fuzz(func(t *testing.T, text string) {
		code, err := ParseRecovery(text)
		if (code == nil) == (err == nil) {
			t.Fatalf("%x, %v", code, err)
		}
		if code == nil {
			return
		}
		if again, err := ParseRecovery(RecoveryText(code)); err != nil || !bytes.Equal(again, code) {
			t.Fatalf("%x is read as %x, %v", code, again, err)
		}
	})
}
