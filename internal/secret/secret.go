// SPDX-License-Identifier: Apache-2.0

// Package secret holds a credential so that it cannot be printed by accident.
//
// Most leaks of a credential are not attacks: an error is formatted, a struct is logged, a value is put into JSON. A
// Bytes comes out as a fixed word under every formatting verb, text encoder and logger, as an error from every binary
// encoder (a fixed word on the wire would be taken for the credential), and never as what it holds. An attacker who can
// read the memory of the process still finds it there: Wipe makes that time shorter, not zero; Go may have copied it.
package secret

import (
	"errors"
	"fmt"
	"io"
	"log/slog"
)

const word = "[secret]"

// errEncode is what every binary encoder gets.
var errEncode = errors.New("secret: refused to encode a secret; Reveal it where the format is sealed")

// Bytes is a secret of any length. The zero value holds nothing. It is safe to copy; copies share the one secret.
//
// It keeps a closure and no field, because fmt does not call Format on unexported fields: there it prints what it
// finds, and a func prints as an address.
type Bytes struct{ open func(wipe bool) []byte }

// New takes over b: the caller neither changes nor keeps it.
func New(b []byte) Bytes {
	return Bytes{func(wipe bool) []byte {
		if wipe {
			clear(b)
			b = nil
		}
		return b
	}}
}

// Reveal is the only way out; review greps for it. The result is the secret itself, not a copy: it is not changed, and
// it is zeroes after Wipe. It is nil for the zero value and after Wipe.
func (s Bytes) Reveal() []byte {
	if s.open == nil {
		return nil
	}
	return s.open(false)
}

// Wipe overwrites the secret, also for every copy of s. No other goroutine may use s meanwhile.
func (s Bytes) Wipe() {
	if s.open != nil {
		s.open(true)
	}
}

// Format prints the fixed word under every verb, flag and width.
func (s Bytes) Format(f fmt.State, _ rune) { _, _ = io.WriteString(f, word) }

// String is for what asks for a Stringer without package fmt.
func (s Bytes) String() string { return word }

// LogValue is what log/slog prints.
func (s Bytes) LogValue() slog.Value { return slog.StringValue(word) }

// MarshalText serves encoding/json, encoding/xml and TOML, so that what logs a struct shows the fixed word.
func (s Bytes) MarshalText() ([]byte, error) { return []byte(word), nil }

// MarshalBinary refuses: binary formats are wires and files.
func (s Bytes) MarshalBinary() ([]byte, error) { return nil, errEncode }

// GobEncode refuses, as MarshalBinary does.
func (s Bytes) GobEncode() ([]byte, error) { return nil, errEncode }

// MarshalMsgpack refuses, as MarshalBinary does.
func (s Bytes) MarshalMsgpack() ([]byte, error) { return nil, errEncode }

// UnmarshalText refuses, so that the fixed word never becomes a secret.
func (s *Bytes) UnmarshalText([]byte) error {
	return errors.New("secret: refused to decode into a secret; decode bytes and call New")
}
