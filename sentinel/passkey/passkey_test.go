// SPDX-License-Identifier: Apache-2.0

package passkey_test

import (
	"bytes"
	"errors"
	"strings"
	"testing"

	"github.com/doorward/doorward/sentinel/passkey"
	"github.com/doorward/doorward/sentinel/passkey/softkey"
)

var (
	here      = passkey.Place{Origin: "https://ward.example.org:8440", RP: "ward.example.org"}
	challenge = bytes.Repeat([]byte{7}, 32)
	user      = bytes.Repeat([]byte{9}, 32)
)

func registered(t *testing.T, soft *softkey.Key) *passkey.Key {
	t.Helper()
	k, err := passkey.Register(here, challenge, user, soft.Register(here, challenge, user))
	if err != nil {
		t.Fatal(err)
	}
	return k
}

// Keys of every kind that is taken register, and assert as often as they are asked.
func TestAPasskeyOfEachKindIsTaken(t *testing.T) {
	for name, soft := range map[string]*softkey.Key{"ES256": softkey.New(), "EdDSA": softkey.NewEdDSA(), "RS256": softkey.NewRS256()} {
		t.Run(name, func(t *testing.T) {
			k := registered(t, soft)
			if !bytes.Equal(k.ID, soft.ID) || !bytes.Equal(k.User, user) {
				t.Errorf("%+v", k)
			}
			for range 2 {
				a, err := passkey.Parse(soft.Assert(here, challenge))
				if err != nil {
					t.Fatal(err)
				}
				n, err := a.Verify(k, here, challenge)
				if err != nil || n != soft.Count {
					t.Fatalf("count %d, %v; the authenticator is at %d", n, err, soft.Count)
				}
				k.Count = n
			}
		})
	}
}

// lies are those that a registration and an assertion are refused for alike.
var lies = []struct {
	name string
	lie  softkey.Lie
	want error
}{
	{"another challenge", func(m *softkey.Making) { m.Challenge = bytes.Repeat([]byte{8}, 32) }, passkey.ErrChallenge},
	{"a longer challenge", func(m *softkey.Making) { m.Challenge = append(bytes.Clone(challenge), 0) }, passkey.ErrChallenge},
	{"no challenge", func(m *softkey.Making) { m.Challenge = nil }, passkey.ErrChallenge},
	{"another port", func(m *softkey.Making) { m.Origin = "https://ward.example.org:8441" }, passkey.ErrOrigin},
	{"another scheme", func(m *softkey.Making) { m.Origin = "http://ward.example.org:8440" }, passkey.ErrOrigin},
	{"another host", func(m *softkey.Making) { m.Origin = "https://evil.example:8440" }, passkey.ErrOrigin},
	{"a host below", func(m *softkey.Making) { m.Origin = "https://x.ward.example.org:8440" }, passkey.ErrOrigin},
	{"another spelling", func(m *softkey.Making) { m.Origin = "https://WARD.example.org:8440" }, passkey.ErrOrigin},
	{"a path", func(m *softkey.Making) { m.Origin = here.Origin + "/x" }, passkey.ErrOrigin},
	{"within a frame", func(m *softkey.Making) { m.Cross = true }, passkey.ErrOrigin},
	{"within a frame of another", func(m *softkey.Making) { m.Cross, m.Top = true, "https://evil.example" }, passkey.ErrOrigin},
	{"a top that is none", func(m *softkey.Making) { m.Top = here.Origin }, passkey.ErrOrigin},
	{"another RP", func(m *softkey.Making) { m.RP = "example.org" }, passkey.ErrOrigin},
	{"present and not verified", func(m *softkey.Making) { m.Flags &^= 4 }, passkey.ErrUser},
	{"verified and not present", func(m *softkey.Making) { m.Flags &^= 1 }, passkey.ErrUser},
	{"the id of another", func(m *softkey.Making) { m.Raw = []byte("another") }, nil},
}

func TestARegistrationIsHeldToWhatWasAsked(t *testing.T) {
	for _, c := range append(lies[:len(lies):len(lies)], []struct {
		name string
		lie  softkey.Lie
		want error
	}{
		{"an assertion", func(m *softkey.Making) { m.Type = "webauthn.get" }, passkey.ErrCeremony},
		{"an algorithm that is not taken", func(m *softkey.Making) { m.Alg = -35 }, passkey.ErrKey},
		{"an algorithm of another kind of key", func(m *softkey.Making) { m.Alg = -257 }, passkey.ErrKey},
		{"nothing attested", func(m *softkey.Making) { m.Flags &^= 0x40 }, passkey.ErrMalformed},
	}...) {
		t.Run(c.name, func(t *testing.T) {
			want := c.want
			if want == nil {
				want = passkey.ErrMalformed
			}
			soft := softkey.New()
			k, err := passkey.Register(here, challenge, user, soft.Register(here, challenge, user, c.lie))
			if k != nil || !errors.Is(err, want) {
				t.Errorf("%+v, %v; want %v", k, err, want)
			}
			registered(t, soft) // the control: the same without the lie
		})
	}
}

func TestAnAssertionIsHeldToWhatWasAsked(t *testing.T) {
	for _, c := range append(lies[:len(lies):len(lies)], []struct {
		name string
		lie  softkey.Lie
		want error
	}{
		{"a registration", func(m *softkey.Making) { m.Type = "webauthn.create" }, passkey.ErrCeremony},
		{"the handle of another", func(m *softkey.Making) { m.Handle = []byte("another") }, passkey.ErrKey},
		{"a forged signature", func(m *softkey.Making) { m.Forge = true }, passkey.ErrSignature},
		{"a counter that stands", func(m *softkey.Making) { m.Count = 1 }, passkey.ErrCloned},
		{"a counter set back", func(m *softkey.Making) { m.Count = 0 }, passkey.ErrCloned},
	}...) {
		t.Run(c.name, func(t *testing.T) {
			want := c.want
			if want == nil {
				want = passkey.ErrKey
			}
			soft := softkey.New()
			k := registered(t, soft)
			verify := func(lies ...softkey.Lie) (uint32, error) {
				a, err := passkey.Parse(soft.Assert(here, challenge, lies...))
				if err != nil {
					t.Fatal(err)
				}
				return a.Verify(k, here, challenge)
			}
			if n, err := verify(c.lie); n != 0 || !errors.Is(err, want) {
				t.Errorf("%d, %v; want %v", n, err, want)
			}
			if _, err := verify(); err != nil {
				t.Errorf("control: %v", err)
			}
		})
	}
}

// What is signed is what is verified: no byte of either part can be another.
func TestAnAlteredAssertionIsRefused(t *testing.T) {
	soft := softkey.New()
	k := registered(t, soft)
	whole := soft.Assert(here, challenge)
	other := softkey.New()
	registered(t, other)
	for name, b := range map[string][]byte{
		"the signature of another": replaced(t, whole, other.Assert(here, challenge), "signature"),
		"its counter":              replaced(t, whole, soft.Assert(here, challenge), "authenticatorData"),
	} {
		a, err := passkey.Parse(b)
		if err != nil {
			t.Fatal(name, err)
		}
		if _, err := a.Verify(k, here, challenge); !errors.Is(err, passkey.ErrSignature) {
			t.Errorf("%s: %v", name, err)
		}
	}
	a, err := passkey.Parse(whole)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := a.Verify(k, here, challenge); err != nil {
		t.Errorf("control: %v", err)
	}
}

// replaced is a with the value of one key of b.
func replaced(t *testing.T, a, b []byte, key string) []byte {
	t.Helper()
	value := func(in []byte) string {
		_, rest, ok := strings.Cut(string(in), `"`+key+`":"`)
		v, _, ok2 := strings.Cut(rest, `"`)
		if !ok || !ok2 {
			t.Fatalf("no %s in %s", key, in)
		}
		return v
	}
	return bytes.Replace(a, []byte(value(a)), []byte(value(b)), 1)
}

// An authenticator that never counts is no clone; one that once counted, and does not any more, is.
func TestCounters(t *testing.T) {
	soft := softkey.New()
	soft.Still = true
	k := registered(t, soft)
	for range 2 {
		a, err := passkey.Parse(soft.Assert(here, challenge))
		if err != nil {
			t.Fatal(err)
		}
		if n, err := a.Verify(k, here, challenge); n != 0 || err != nil {
			t.Errorf("%d, %v", n, err)
		}
	}
	k.Count = 5
	a, err := passkey.Parse(soft.Assert(here, challenge))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := a.Verify(k, here, challenge); !errors.Is(err, passkey.ErrCloned) {
		t.Errorf("%v", err)
	}
}

func TestWhatIsTooLongIsNotRead(t *testing.T) {
	long := append(softkey.New().Assert(here, challenge), bytes.Repeat([]byte{' '}, passkey.MaxJSON)...)
	if a, err := passkey.Parse(long); a != nil || !errors.Is(err, passkey.ErrMalformed) {
		t.Errorf("%v, %v", a, err)
	}
	long = append(softkey.New().Register(here, challenge, user), bytes.Repeat([]byte{' '}, passkey.MaxJSON)...)
	if k, err := passkey.Register(here, challenge, user, long); k != nil || !errors.Is(err, passkey.ErrMalformed) {
		t.Errorf("%v, %v", k, err)
	}
}

// FuzzRegister: an error comes without a key, and a key is one that was made here and now.
func FuzzRegister(f *testing.F) {
	soft := softkey.New()
	f.Add(soft.Register(here, challenge, user))
	f.Add(soft.Register(here, challenge, user, func(m *softkey.Making) { m.Alg = -35 }))
	f.Add([]byte(`{"id":"AA","rawId":"AA","type":"public-key","response":{}}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		k, err := passkey.Register(here, challenge, user, b)
		if err != nil {
			if k != nil {
				t.Fatal("a key came with an error")
			}
			return
		}
		if len(k.ID) == 0 || len(k.ID) > 1023 || len(k.Public) == 0 {
			t.Fatalf("%+v", k)
		}
	})
}

// FuzzParse: an error comes without an assertion, and nothing but the key's own passes.
func FuzzParse(f *testing.F) {
	soft := softkey.New()
	k, err := passkey.Register(here, challenge, user, soft.Register(here, challenge, user))
	if err != nil {
		f.Fatal(err)
	}
	f.Add(soft.Assert(here, bytes.Repeat([]byte{8}, 32)))
	f.Add(soft.Assert(here, challenge, func(m *softkey.Making) { m.Forge = true }))
	f.Add([]byte(`{"id":"AA","rawId":"AA","type":"public-key","response":{}}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		a, err := passkey.Parse(b)
		if err != nil {
			if a != nil {
				t.Fatal("an assertion came with an error")
			}
			return
		}
		if _, err := a.Verify(k, here, challenge); err == nil {
			t.Fatalf("%s passes, which the key did not sign", b)
		}
	})
}
