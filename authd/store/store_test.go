// SPDX-License-Identifier: Apache-2.0

package store

import (
	"bytes"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/go-json-experiment/json"

	"github.com/doorward/doorward/authd/guarded"
	"github.com/doorward/doorward/authd/surrogate"
	"github.com/doorward/doorward/internal/wire"
)

const token = "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"

var now = time.Unix(1_796_000_000, 0)

func rootKey() []byte { return bytes.Repeat([]byte{7}, RootSize) }

func github(name string) Settings {
	return Settings{
		Name: name, Vendor: "github", Workers: []string{"github"},
		Base:      wire.Base{Scheme: "https", Host: "api.github.com", Port: 443},
		Placement: wire.Placement{Kind: "header", Name: "Authorization", Prefix: "Bearer "},
	}
}

// opened returns a store in dir, unlocked, closed at the end of the test or by the function returned.
func opened(t *testing.T, dir string) (*Store, func()) {
	t.Helper()
	s, err := Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	if err := s.UnlockCredential(rootKey()); err != nil {
		t.Fatal(err)
	}
	done := false
	shut := func() {
		if !done {
			done = true
			s.Close()
		}
	}
	t.Cleanup(shut)
	return s, shut
}

func reveal(a *Account) string { return string(a.Secret.AppendTo(nil)) }

func TestAccountsOutliveARestart(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "store")
	s, shut := opened(t, dir)
	if err := s.Add(github("work"), []byte(token), now); err != nil {
		t.Fatal(err)
	}
	first, _ := s.Account("work")
	if err := s.Rename("work", "job", now.Add(time.Hour)); err != nil {
		t.Fatal(err)
	}
	if err := s.KeepCheckpoint([]byte("note"), 12); err != nil {
		t.Fatal(err)
	}
	shut()

	s, _ = opened(t, dir)
	if _, ok := s.Account("work"); ok {
		t.Error("the old name still works")
	}
	a, ok := s.Account("job")
	if !ok || reveal(a) != token {
		t.Fatal("the account did not outlive the restart")
	}
	if a.Digest != first.Digest || a.Generation != 1 || a.Created != now.Unix() || a.Changed != now.Unix()+3600 {
		t.Errorf("%+v", a.Settings)
	}
	if note, size := s.Checkpoint(); string(note) != "note" || size != 12 {
		t.Errorf("checkpoint %q, %d", note, size)
	}
}

func TestLoginGenerationsAreNeverUsedTwice(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "store")
	s, shut := opened(t, dir)
	generation := func(name string) int64 {
		a, ok := s.Account(name)
		if !ok {
			t.Fatalf("no account %s", name)
		}
		return a.Generation
	}
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	must(s.Add(github("a"), []byte(token), now))
	must(s.Add(github("b"), []byte(token), now))
	must(s.Remove("b"))
	must(s.Add(github("b"), []byte(token), now))
	if generation("a") != 1 || generation("b") != 3 {
		t.Errorf("generations %d and %d, want 1 and 3", generation("a"), generation("b"))
	}
	shut()
	s, _ = opened(t, dir)
	must(s.Replace(github("a"), []byte("another-token"), now))
	if generation("a") != 4 {
		t.Errorf("generation %d after a new credential, want 4", generation("a"))
	}
	scoped := github("a")
	scoped.Scopes = []string{"repo"}
	must(s.Replace(scoped, nil, now))
	if generation("a") != 4 {
		t.Error("a change of scopes raised the login generation")
	}
}

// LK-08: the address of an account is part of its record, and a new address needs the credential given anew.
func TestLK08ReplaceDoesNotSendTheCredentialElsewhere(t *testing.T) {
	s, _ := opened(t, filepath.Join(t.TempDir(), "store"))
	if err := s.Add(github("work"), []byte(token), now); err != nil {
		t.Fatal(err)
	}
	before, _ := s.Account("work")
	changes := map[string]func(*Settings){
		"host":    func(s *Settings) { s.Base.Host = "evil.test" },
		"port":    func(s *Settings) { s.Base.Port = 8443 },
		"path":    func(s *Settings) { s.Base.Path = "/x" },
		"permit":  func(s *Settings) { s.Permit = []string{"192.0.2.7:443"} },
		"place":   func(s *Settings) { s.Placement = wire.Placement{Kind: "query", Name: "key"} },
		"vendor":  func(s *Settings) { s.Vendor = "dav" },
		"user":    func(s *Settings) { s.Placement = wire.Placement{Kind: "basic", User: "x"} },
		"workers": func(s *Settings) { s.Workers = []string{"dav", "github"} },
	}
	for name, change := range changes {
		set := github("work")
		change(&set)
		err := s.Replace(set, nil, now)
		if name == "workers" { // widens, and is decided by its digest
			if err != nil {
				t.Errorf("workers: %v", err)
			}
			if a, _ := s.Account("work"); a.Digest == before.Digest {
				t.Error("a changed allowlist left the digest as it was")
			}
			continue
		}
		if code(err) != wire.CodeBadCredential {
			t.Errorf("%s: %v, want a refusal", name, err)
		}
		if err := s.Replace(set, []byte("fresh-token"), now); err != nil { // the control
			t.Errorf("%s with a fresh credential: %v", name, err)
		}
		if a, _ := s.Account("work"); a.Digest == before.Digest {
			t.Errorf("a changed %s left the digest as it was", name)
		}
		if err := s.Replace(github("work"), []byte(token), now); err != nil {
			t.Fatal(err)
		}
	}
}

func code(err error) wire.Code {
	var refusal *wire.Error
	if errors.As(err, &refusal) {
		return refusal.Code
	}
	return ""
}

func TestRefusedAccounts(t *testing.T) {
	s, _ := opened(t, filepath.Join(t.TempDir(), "store"))
	if err := s.Add(github("taken"), []byte(token), now); err != nil {
		t.Fatal(err)
	}
	basic := func(s *Settings) { s.Placement = wire.Placement{Kind: "basic", User: "alice"} }
	tests := []struct {
		name   string
		change func(*Settings)
		secret string
		want   wire.Code
	}{
		{"well", nil, token, ""},
		{"basic with a space and an umlaut", basic, "pass wörd", ""},
		{"a loopback server without TLS", func(s *Settings) {
			s.Base, s.Permit = wire.Base{Scheme: "http", Host: "localhost", Port: 5232}, []string{"127.0.0.1:5232"}
		}, token, ""},
		{"a private server", func(s *Settings) {
			s.Base, s.Permit = wire.Base{Scheme: "https", Host: "dav.home.arpa", Port: 8443, Path: "/dav"},
				[]string{"10.0.0.5:8443"}
		}, token, ""},
		{"name taken", func(s *Settings) { s.Name = "taken" }, token, wire.CodeBadArgument},
		{"name empty", func(s *Settings) { s.Name = "" }, token, wire.CodeBadArgument},
		{"name with a slash", func(s *Settings) { s.Name = "a/b" }, token, wire.CodeBadArgument},
		{"name too long", func(s *Settings) { s.Name = strings.Repeat("a", 33) }, token, wire.CodeBadArgument},
		{"name of a dash", func(s *Settings) { s.Name = "-" }, token, wire.CodeBadArgument},
		{"vendor with a dash", func(s *Settings) { s.Vendor = "git-hub" }, token, wire.CodeBadArgument},
		{"no workers", func(s *Settings) { s.Workers = nil }, token, wire.CodeBadArgument},
		{"a worker twice", func(s *Settings) { s.Workers = []string{"a", "a"} }, token, wire.CodeBadArgument},
		{"a worker by prefix", func(s *Settings) { s.Workers = []string{"git*"} }, token, wire.CodeBadArgument},
		{"http", func(s *Settings) { s.Base.Scheme = "http" }, token, wire.CodeBadArgument},
		{"http to a private address", func(s *Settings) {
			s.Base, s.Permit = wire.Base{Scheme: "http", Host: "x", Port: 80}, []string{"10.0.0.1:80"}
		}, token, wire.CodeBadArgument},
		{"host in capitals", func(s *Settings) { s.Base.Host = "API.github.com" }, token, wire.CodeBadArgument},
		{"host with a dot at its end", func(s *Settings) { s.Base.Host = "api.github.com." }, token, wire.CodeBadArgument},
		{"host with user", func(s *Settings) { s.Base.Host = "a@b" }, token, wire.CodeBadArgument},
		{"host as a number", func(s *Settings) { s.Base.Host = "2130706433" }, token, wire.CodeBadArgument},
		{"host as an odd address", func(s *Settings) { s.Base.Host = "127.1" }, token, wire.CodeBadArgument},
		{"host as a mapped address", func(s *Settings) { s.Base.Host = "::ffff:127.0.0.1" }, token, wire.CodeBadArgument},
		{"port 0", func(s *Settings) { s.Base.Port = 0 }, token, wire.CodeBadArgument},
		{"path with ..", func(s *Settings) { s.Base.Path = "/a/.." }, token, wire.CodeBadArgument},
		{"path with a slash at its end", func(s *Settings) { s.Base.Path = "/a/" }, token, wire.CodeBadArgument},
		{"path with an escape", func(s *Settings) { s.Base.Path = "/%2e" }, token, wire.CodeBadArgument},
		{"permit without port", func(s *Settings) { s.Permit = []string{"10.0.0.1"} }, token, wire.CodeBadArgument},
		{"two permits and a second host", func(s *Settings) {
			s.Permit, s.Also = []string{"10.0.0.1:443", "[fd00::1]:8443"}, []string{"logs.home.arpa:8443", "[fd00::1]:443"}
		}, token, ""},
		{"http with one address of two on the loopback", func(s *Settings) {
			s.Base, s.Permit = wire.Base{Scheme: "http", Host: "x", Port: 80}, []string{"127.0.0.1:80", "10.0.0.1:80"}
		}, token, wire.CodeBadArgument},
		{"second host without a port", func(s *Settings) { s.Also = []string{"logs.home.arpa"} }, token,
			wire.CodeBadArgument},
		{"second host in capitals", func(s *Settings) { s.Also = []string{"Logs.home.arpa:443"} }, token,
			wire.CodeBadArgument},
		{"second host with a padded port", func(s *Settings) { s.Also = []string{"a.b:0443"} }, token, wire.CodeBadArgument},
		{"permit unspecified", func(s *Settings) { s.Permit = []string{"0.0.0.0:443"} }, token, wire.CodeBadArgument},
		{"permit mapped", func(s *Settings) { s.Permit = []string{"[::ffff:10.0.0.1]:443"} }, token, wire.CodeBadArgument},
		{"permit with a zone", func(s *Settings) { s.Permit = []string{"[fe80::1%eth0]:443"} }, token, wire.CodeBadArgument},
		{"CA of words", func(s *Settings) { s.CA = "trust me" }, token, wire.CodeBadArgument},
		{"CA with a key", func(s *Settings) {
			s.CA = "-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n"
		}, token, wire.CodeBadArgument},
		{"placement unknown", func(s *Settings) { s.Placement.Kind = "body" }, token, wire.CodeBadArgument},
		{"header Host", func(s *Settings) { s.Placement.Name = "Host" }, token, wire.CodeBadArgument},
		{"header with a line break", func(s *Settings) { s.Placement.Name = "X\r\nY" }, token, wire.CodeBadArgument},
		{"prefix with a line break", func(s *Settings) { s.Placement.Prefix = "Bearer\r\nX: " }, token, wire.CodeBadArgument},
		{"header with a user", func(s *Settings) { s.Placement.User = "x" }, token, wire.CodeBadArgument},
		{"basic user with a colon", func(s *Settings) { s.Placement = wire.Placement{Kind: "basic", User: "a:b"} }, token,
			wire.CodeBadArgument},
		{"query with &", func(s *Settings) { s.Placement = wire.Placement{Kind: "query", Name: "a&b"} }, token,
			wire.CodeBadArgument},
		{"path segment with a slash", func(s *Settings) { s.Placement = wire.Placement{Kind: "path", Prefix: "a/b"} }, token,
			wire.CodeBadArgument},
		{"owner with an escape", func(s *Settings) { s.Owner = "a\x1b[2J" }, token, wire.CodeBadArgument},
		{"secret empty", nil, "", wire.CodeBadCredential},
		{"secret short", nil, "1234567", wire.CodeBadCredential},
		{"secret too long", nil, strings.Repeat("a", MaxSecret+1), wire.CodeBadCredential},
		{"secret with CR LF", nil, "a\"b&c=d%\r\nX-Evil: 1", wire.CodeBadCredential},
		{"secret with LF at its end", nil, token + "\n", wire.CodeBadCredential},
		{"secret with NUL", nil, token + "\x00", wire.CodeBadCredential},
		{"secret with a space", nil, "Bearer " + token, wire.CodeBadCredential},
		{"secret outside ASCII", nil, "tökentöken", wire.CodeBadCredential},
		{"basic with a control byte", basic, "pass\x01word", wire.CodeBadCredential},
		{"basic not text", basic, "pass\xffword", wire.CodeBadCredential},
	}
	for i, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			set := github(fmt.Sprintf("n%d", i))
			if test.change != nil {
				test.change(&set)
			}
			err := s.Add(set, []byte(test.secret), now)
			if code(err) != test.want || (err == nil) != (test.want == "") {
				t.Fatalf("%v, want code %q", err, test.want)
			}
			if err != nil && len(test.secret) >= 7 && strings.Contains(err.Error(), test.secret) {
				t.Errorf("the refusal shows the credential: %v", err)
			}
			a, kept := s.Account(set.Name)
			if kept != (test.want == "" || set.Name == "taken") {
				t.Error("kept although refused, or the other way round")
			}
			if test.want == "" && reveal(a) != test.secret {
				t.Error("kept another credential")
			}
		})
	}
}

// SW-02: a header value with control bytes is refused at import, not at use; other characters are kept as they are.
func TestSW02CredentialWithLineBreakIsRefusedAtImport(t *testing.T) {
	s, _ := opened(t, filepath.Join(t.TempDir(), "store"))
	for _, bad := range []string{"abcdefgh\r\nX-Evil: 1", "abcdefgh\rX", "abcdefgh\nX", "abcdefgh\x00", "abcdefgh\t"} {
		if err := s.Add(github("a"), []byte(bad), now); code(err) != wire.CodeBadCredential {
			t.Errorf("%q: %v", bad, err)
		}
	}
	quoting := `a"b&c=d%'<>;`
	if err := s.Add(github("a"), []byte(quoting), now); err != nil {
		t.Fatal(err)
	}
	if a, _ := s.Account("a"); reveal(a) != quoting {
		t.Errorf("kept %q", reveal(a))
	}
}

// SW-08: what authd minted never becomes a credential.
func TestSW08SurrogateIsNoCredential(t *testing.T) {
	s, _ := opened(t, filepath.Join(t.TempDir(), "store"))
	if err := s.Add(github("a"), []byte(token), now); err != nil {
		t.Fatal(err)
	}
	a, _ := s.Account("a")
	minted, err := a.Shape.Mint(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Add(github("b"), bytes.Clone(minted), now); code(err) != wire.CodeBadCredential {
		t.Errorf("%s: %v", minted, err)
	}
}

func TestHolds(t *testing.T) {
	a := &Account{Settings: github("a")}
	entry := wire.Entry{Scheme: "https", Host: "api.github.com", Port: 443, Path: "/user/repos"}
	for name, test := range map[string]struct {
		change func(*wire.Entry)
		base   string
		want   bool
	}{
		"within":                     {func(*wire.Entry) {}, "", true},
		"another scheme":             {func(e *wire.Entry) { e.Scheme = "http" }, "", false},
		"another host":               {func(e *wire.Entry) { e.Host = "evil.test" }, "", false},
		"a host below":               {func(e *wire.Entry) { e.Host = "x.api.github.com" }, "", false},
		"another port":               {func(e *wire.Entry) { e.Port = 8443 }, "", false},
		"below the path":             {func(*wire.Entry) {}, "/user", true},
		"the path itself":            {func(*wire.Entry) {}, "/user/repos", true},
		"beside the path":            {func(*wire.Entry) {}, "/use", false},
		"outside the path":           {func(*wire.Entry) {}, "/dav", false},
		"following":                  {func(e *wire.Entry) { e.Follow, e.Path = "x", "" }, "/dav", true},
		"following to a second host": {func(e *wire.Entry) { e.Follow, e.Also = "x", []string{"b.test:443"} }, "", false},
		"following to there":         {func(e *wire.Entry) { e.Follow, e.Host = "x", "evil.test" }, "", false},
	} {
		e := entry
		test.change(&e)
		a.Base.Path = test.base
		if got := a.Holds(&e); got != test.want {
			t.Errorf("%s: %v, want %v", name, got, test.want)
		}
	}
}

func TestWrongKeyIsRefusedInWords(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "store")
	s, shut := opened(t, dir)
	if err := s.Add(github("work"), []byte(token), now); err != nil {
		t.Fatal(err)
	}
	shut()
	s, err := Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	if !s.Locked() || s.Source() != FromCredential {
		t.Error("a store opened without a key")
	}
	wrong := rootKey()
	wrong[31] ^= 1
	if err := s.UnlockCredential(wrong); !errors.Is(err, ErrWrongKey) {
		t.Errorf("%v, want %v", err, ErrWrongKey)
	}
	if err := s.UnlockCredential(make([]byte, 31)); err == nil {
		t.Error("a short key was taken")
	}
	if err := s.UnlockPassphrase([]byte("correct horse")); !errors.Is(err, ErrWrongKey) {
		t.Errorf("%v, want %v", err, ErrWrongKey)
	}
	if !s.Locked() || len(s.Accounts()) != 0 {
		t.Error("a wrong key showed accounts")
	}
	if err := s.Add(github("x"), []byte(token), now); !errors.Is(err, ErrLocked) {
		t.Errorf("add to a locked store: %v", err)
	}
	if err := s.UnlockCredential(rootKey()); err != nil || len(s.Accounts()) != 1 {
		t.Errorf("after the right key: %v, %d accounts", err, len(s.Accounts()))
	}
}

func TestPassphrase(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "store")
	s, err := Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	if err := s.UnlockPassphrase([]byte("short")); code(err) != wire.CodeBadCredential {
		t.Errorf("a short new passphrase: %v", err)
	}
	given := []byte("correct horse battery")
	if err := s.UnlockPassphrase(given); err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(given, make([]byte, len(given))) {
		t.Error("the passphrase is not overwritten")
	}
	if err := s.Add(github("work"), []byte(token), now); err != nil {
		t.Fatal(err)
	}
	s.Close()
	if s, err = Open(dir); err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	if err := s.UnlockPassphrase([]byte("correct horse batterz")); !errors.Is(err, ErrWrongKey) {
		t.Errorf("a wrong passphrase: %v", err)
	}
	if err := s.UnlockPassphrase([]byte("correct horse battery")); err != nil || len(s.Accounts()) != 1 {
		t.Errorf("the right passphrase: %v", err)
	}
}

func TestOneInstance(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "store")
	_, shut := opened(t, dir)
	if s, err := Open(dir); !errors.Is(err, ErrInUse) {
		t.Errorf("a second one: %v, %v", s, err)
	}
	shut()
	s, err := Open(dir) // the control
	if err != nil {
		t.Fatal(err)
	}
	s.Close()
}

// Every single byte of the folder that is changed, and every file that is lost, swapped or added, keeps the store shut.
func TestDamageKeepsTheStoreShut(t *testing.T) {
	good := filepath.Join(t.TempDir(), "store")
	s, shut := opened(t, good)
	for _, name := range []string{"a", "b"} {
		if err := s.Add(github(name), []byte(token+name), now); err != nil {
			t.Fatal(err)
		}
	}
	if err := s.KeepCheckpoint([]byte("note"), 3); err != nil {
		t.Fatal(err)
	}
	shut()
	names, err := filepath.Glob(good + "/accounts/*")
	if err != nil || len(names) != 2 {
		t.Fatal(names, err)
	}
	one, two := "accounts/"+filepath.Base(names[0]), "accounts/"+filepath.Base(names[1])

	attempt := func(t *testing.T, change func(dir string)) error {
		t.Helper()
		dir := filepath.Join(t.TempDir(), "store")
		if err := os.CopyFS(dir, os.DirFS(good)); err != nil {
			t.Fatal(err)
		}
		if err := os.Chmod(dir, 0o700); err != nil {
			t.Fatal(err)
		}
		change(dir)
		s, err := Open(dir)
		if err != nil {
			return err
		}
		defer s.Close()
		err = s.UnlockCredential(rootKey())
		if err != nil && (!s.Locked() || len(s.Accounts()) > 0) {
			t.Error("partly open after an error")
		}
		return err
	}
	if err := attempt(t, func(string) {}); err != nil {
		t.Fatalf("control: the copy does not open: %v", err)
	}

	rewrite := func(name string, change func([]byte) []byte) func(string) {
		return func(dir string) {
			b, err := os.ReadFile(dir + "/" + name)
			if err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(dir+"/"+name, change(b), 0o600); err != nil {
				t.Fatal(err)
			}
		}
	}
	for _, name := range []string{headerName, checkName, indexName, checkpointName, one} {
		b, err := os.ReadFile(good + "/" + name)
		if err != nil {
			t.Fatal(err)
		}
		step := max(1, len(b)/24)
		for i := 0; i < len(b); i += step {
			err := attempt(t, rewrite(name, func(b []byte) []byte { b[i] ^= 0x01; return b }))
			if err == nil {
				t.Errorf("%s with byte %d changed opened", name, i)
			}
		}
		for _, keep := range []int{0, 1, headSize, len(b) - 1} {
			if attempt(t, rewrite(name, func(b []byte) []byte { return b[:keep] })) == nil {
				t.Errorf("%s cut to %d bytes opened", name, keep)
			}
		}
		if attempt(t, rewrite(name, func(b []byte) []byte { return append(b, ' ') })) == nil {
			t.Errorf("%s with a byte more opened", name)
		}
	}
	swap := func(a, b string) func(string) {
		return func(dir string) {
			x, _ := os.ReadFile(dir + "/" + a)
			y, _ := os.ReadFile(dir + "/" + b)
			_ = os.WriteFile(dir+"/"+a, y, 0o600)
			_ = os.WriteFile(dir+"/"+b, x, 0o600)
		}
	}
	tests := map[string]func(dir string){
		"two accounts swapped": swap(one, two),
		"two purposes swapped": swap(indexName, checkpointName),
		"the check is lost":    func(dir string) { os.Remove(dir + "/" + checkName) },
		"the index is lost":    func(dir string) { os.Remove(dir + "/" + indexName) },
		"the header is lost":   func(dir string) { os.Remove(dir + "/" + headerName) },
		"an account is lost":   func(dir string) { os.Remove(dir + "/" + one) },
		"an account copied": func(dir string) {
			copyFile(t, dir+"/"+one, dir+"/accounts/"+strings.Repeat("0", 32))
		},
		"a stranger's file":           func(dir string) { copyFile(t, dir+"/"+one, dir+"/accounts/README") },
		"a stranger's file above":     func(dir string) { copyFile(t, dir+"/"+one, dir+"/README") },
		"an account that is a link":   func(dir string) { os.Remove(dir + "/" + one); os.Symlink(good+"/"+one, dir+"/"+one) },
		"an account that is a folder": func(dir string) { os.Remove(dir + "/" + one); os.Mkdir(dir+"/"+one, 0o700) },
		"others may read it":          func(dir string) { os.Chmod(dir, 0o755) },
	}
	for name, change := range tests {
		if err := attempt(t, change); err == nil {
			t.Errorf("%s: the store opened", name)
		} else {
			t.Logf("%s: %v", name, err)
		}
	}

	t.Run("a newer version is refused in words", func(t *testing.T) {
		err := attempt(t, rewrite(headerName, func(b []byte) []byte {
			return bytes.Replace(b, []byte(`"version":2`), []byte(`"version":3,"more":true`), 1)
		}))
		if !errors.Is(err, ErrNewer) {
			t.Errorf("header: %v", err)
		}
		err = attempt(t, rewrite(one, func(b []byte) []byte { b[9] = 3; return b }))
		if !errors.Is(err, ErrNewer) {
			t.Errorf("record: %v", err)
		}
	})
	t.Run("what a crash left half written is cleared", func(t *testing.T) {
		err := attempt(t, func(dir string) {
			_ = os.WriteFile(dir+"/accounts/"+strings.Repeat("a", 32)+newSuffix, []byte("half"), 0o600)
			_ = os.WriteFile(dir+"/"+indexName+newSuffix, nil, 0o600)
		})
		if err != nil {
			t.Error(err)
		}
	})
}

// An older file of a record, put back by someone who can write the folder, is refused; so is an older index.
func TestAnOlderFileIsRefused(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "store")
	s, shut := opened(t, dir)
	if err := s.Add(github("work"), []byte(token), now); err != nil {
		t.Fatal(err)
	}
	record := s.accounts["work"].path()
	older := map[string][]byte{}
	for _, name := range []string{record, indexName} {
		b, err := os.ReadFile(dir + "/" + name)
		if err != nil {
			t.Fatal(err)
		}
		older[name] = b
	}
	for range 2 {
		if err := s.Replace(github("work"), []byte("a-newer-token"), now); err != nil {
			t.Fatal(err)
		}
	}
	shut()
	unlock := func() error {
		s, err := Open(dir)
		if err != nil {
			return err
		}
		defer s.Close()
		return s.UnlockCredential(rootKey())
	}
	for name, old := range older {
		newest, err := os.ReadFile(dir + "/" + name)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(dir+"/"+name, old, 0o600); err != nil {
			t.Fatal(err)
		}
		if err := unlock(); !errors.Is(err, ErrCorrupt) {
			t.Errorf("with an older %s: %v", name, err)
		}
		if err := os.WriteFile(dir+"/"+name, newest, 0o600); err != nil {
			t.Fatal(err)
		}
		if err := unlock(); err != nil {
			t.Fatalf("control: %v", err)
		}
	}
}

// A crash between two writes leaves the state before or after the change, and never one that does not open.
func TestACrashBetweenWrites(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "store")
	s, shut := opened(t, dir)
	if err := s.Add(github("work"), []byte(token), now); err != nil {
		t.Fatal(err)
	}
	before := readIndex(t, dir)
	record := dir + "/" + s.accounts["work"].path()
	steps := []struct {
		name   string
		change func() error
		want   map[string]string // accounts that a start then finds
	}{
		{"replaced, the index not written", func() error {
			return s.Replace(github("work"), []byte("a-newer-token"), now)
		}, map[string]string{"work": "a-newer-token"}},
		{"added, the index not written", func() error {
			return s.Add(github("second"), []byte("another-token"), now)
		}, map[string]string{"work": "a-newer-token"}},
	}
	for _, step := range steps {
		if err := step.change(); err != nil {
			t.Fatal(err)
		}
		shut()
		if err := os.WriteFile(dir+"/"+indexName, before, 0o600); err != nil {
			t.Fatal(err)
		}
		s, shut = opened(t, dir)
		got := map[string]string{}
		for _, a := range s.Accounts() {
			got[a.Name] = reveal(a)
		}
		if !maps.Equal(got, step.want) {
			t.Errorf("%s: %d accounts", step.name, len(got))
		}
		before = readIndex(t, dir)
	}
	// Removed from the index, the file still there.
	b, err := os.ReadFile(record)
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Remove("work"); err != nil {
		t.Fatal(err)
	}
	shut()
	if err := os.WriteFile(record, b, 0o600); err != nil {
		t.Fatal(err)
	}
	s, _ = opened(t, dir)
	if len(s.Accounts()) != 0 {
		t.Error("a removed account came back")
	}
	if _, err := os.Stat(record); err == nil {
		t.Error("the file of a removed account is still there")
	}
}

func readIndex(t *testing.T, dir string) []byte {
	t.Helper()
	b, err := os.ReadFile(dir + "/" + indexName)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func copyFile(t *testing.T, from, to string) {
	t.Helper()
	b, err := os.ReadFile(from)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(to, b, 0o600); err != nil {
		t.Fatal(err)
	}
}

func TestNothingInClearOnDisk(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "store")
	s, _ := opened(t, dir)
	set := github("findme")
	set.Owner = "findme@example.org"
	if err := s.Add(set, []byte(token), now); err != nil {
		t.Fatal(err)
	}
	err := filepath.WalkDir(dir, func(path string, d os.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		b, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		for _, word := range []string{token, token[4:], "findme", "api.github.com"} {
			if bytes.Contains(b, []byte(word)) {
				t.Errorf("%s holds %q", path, word)
			}
		}
		if info, err := d.Info(); err != nil || info.Mode().Perm() != 0o600 {
			t.Errorf("%s: mode %v, %v", path, info.Mode(), err)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

// A full disk, or any other error in writing, changes nothing.
func TestAFailedWriteChangesNothing(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "store")
	s, shut := opened(t, dir)
	if err := s.Add(github("work"), []byte(token), now); err != nil {
		t.Fatal(err)
	}
	// A directory where the new file would go stops every kind of write, for root too.
	a := s.accounts["work"]
	block := filepath.Join(dir, accountsName, hex.EncodeToString(a.id[:])+newSuffix)
	if err := os.MkdirAll(block+"/x", 0o700); err != nil {
		t.Fatal(err)
	}
	if err := s.Replace(github("work"), []byte("another-token"), now); err == nil {
		t.Fatal("replaced, although it cannot be written")
	}
	if a, ok := s.Account("work"); !ok || reveal(a) != token {
		t.Error("the account changed although the write failed")
	}
	_ = os.RemoveAll(block)
	block = filepath.Join(dir, indexName+newSuffix)
	if err := os.MkdirAll(block+"/x", 0o700); err != nil {
		t.Fatal(err)
	}
	if err := s.Replace(github("work"), []byte("another-token"), now); err == nil {
		t.Fatal("replaced, although the index cannot be written")
	}
	if err := s.Add(github("second"), []byte("another-token"), now); err == nil {
		t.Fatal("added, although the index cannot be written")
	}
	if a, ok := s.Account("work"); !ok || reveal(a) != token || len(s.Accounts()) != 1 {
		t.Error("the account changed although the index could not be written")
	}
	_ = os.RemoveAll(block)
	shut()
	s, _ = opened(t, dir)
	if a, ok := s.Account("work"); !ok || reveal(a) != token {
		t.Error("the account on disk changed although the write failed")
	}
}

func TestCheckpointsOnlyGrow(t *testing.T) {
	s, _ := opened(t, filepath.Join(t.TempDir(), "store"))
	for _, step := range []struct {
		note string
		size int64
		want wire.Code
	}{
		{"a", 0, ""}, {"b", 10, ""}, {"b", 10, ""}, {"c", 10, wire.CodeBadArgument}, {"b", 9, wire.CodeBadArgument},
		{"", 11, wire.CodeBadArgument}, {"d", -1, wire.CodeBadArgument}, {"d", 11, ""},
		{strings.Repeat("x", MaxCheckpoint+1), 12, wire.CodeBadArgument},
	} {
		err := s.KeepCheckpoint([]byte(step.note), step.size)
		if code(err) != step.want || (err == nil) != (step.want == "") {
			t.Errorf("%q at %d: %v, want %q", step.note, step.size, err, step.want)
		}
	}
	if note, size := s.Checkpoint(); string(note) != "d" || size != 11 {
		t.Errorf("%q at %d", note, size)
	}
}

// The vectors were made by another implementation (Python's hmac and OpenSSL's AES-GCM): those of version 1, whose stores are still
// led on, and those of this one.
func TestVectors(t *testing.T) {
	for file, version := range map[string]uint16{"vectors.json": 1, "vectors2.json": Version} {
		t.Run(file, func(t *testing.T) { vectors(t, file, version) })
	}
}

func vectors(t *testing.T, file string, version uint16) {
	b, err := os.ReadFile("testdata/" + file)
	if err != nil {
		t.Fatal(err)
	}
	var v struct {
		Root, Header, Salt string
		Records            []struct {
			Name       string
			Purpose    uint16
			ID         string `json:"id"`
			Generation uint64
			Nonce, Key string
			Plain      string
			Record     string
		}
	}
	if err := json.Unmarshal(b, &v, json.MatchCaseInsensitiveNames(true)); err != nil {
		t.Fatal(err)
	}
	h, err := parseHeader([]byte(v.Header))
	if err != nil {
		t.Fatal(err)
	}
	encoded, salt, err := h.encode()
	if err != nil || h.Version != int(version) || string(encoded) != v.Header || hex.EncodeToString(salt[:]) != v.Salt {
		t.Fatalf("header %q, salt %x, %v", encoded, salt, err)
	}
	root, err := hex.DecodeString(v.Root)
	if err != nil {
		t.Fatal(err)
	}
	guardedRoot := guarded.New(root)
	defer guardedRoot.Wipe()
	for _, r := range v.Records {
		t.Run(r.Name, func(t *testing.T) {
			nonce, _ := hex.DecodeString(r.Nonce)
			id, _ := hex.DecodeString(r.ID)
			s := &sealer{guardedRoot, salt, bytes.NewReader(nonce), version}
			head := recordHead{purpose(r.Purpose), recordID(id), r.Generation}
			sealed, err := s.seal(head, []byte(r.Plain))
			if err != nil || hex.EncodeToString(sealed) != r.Record {
				t.Fatalf("sealed %x, %v", sealed, err)
			}
			plain, generation, err := s.open(sealed, head)
			if err != nil || generation != r.Generation || strings.TrimRight(string(plain), " ") != r.Plain {
				t.Fatalf("opened %q, %d, %v", plain, generation, err)
			}
			switch r.Name {
			case "minted":
				var m minted
				if err := json.Unmarshal(plain, &m, json.RejectUnknownMembers(true)); err != nil || m.check() != nil {
					t.Fatal(err, m.check())
				}
				again, err := json.Marshal(m, json.Deterministic(true))
				if v := m.Issues[0].Values; err != nil || string(again) != r.Plain ||
					v[1] != (value{surrogate.DigestOf([]byte("DoorWard9876543210987654321098")), 0}) || v[0].Until != 1798592000 {
					t.Fatalf("%s, %v", again, err)
				}
			case "index":
				var x index
				if err := json.Unmarshal(plain, &x, json.RejectUnknownMembers(true)); err != nil || x.Minted != uint64(version-1)*2 {
					t.Fatal(x, err)
				}
			case "account", "custom account":
				var rec record
				if err := json.Unmarshal(plain, &rec, json.RejectUnknownMembers(true)); err != nil {
					t.Fatal(err)
				}
				a, err := newAccount(rec.Settings, rec.Secret)
				if err != nil || reveal(a) != token {
					t.Fatal(err)
				}
			}
		})
	}
}

func TestArgon2idVector(t *testing.T) {
	a := &Argon2id{Time: 1, MemoryKiB: 64, Threads: 2, Salt: "000102030405060708090a0b0c0d0e0f"}
	if got := hex.EncodeToString(a.root([]byte("correct horse"))); got != argonVector {
		t.Errorf("%s", got)
	}
}

func FuzzParseHeader(f *testing.F) {
	f.Add([]byte(`{"version":1,"store":"000102030405060708090a0b0c0d0e0f","key":"credential"}`))
	f.Add([]byte(`{"version":1,"store":"000102030405060708090a0b0c0d0e0f","key":"passphrase","argon2id":` +
		`{"time":3,"memory_kib":65536,"threads":4,"salt":"000102030405060708090a0b0c0d0e0f"}}`))
	f.Add([]byte(`{"version":2}`))
	f.Fuzz(func(t *testing.T, in []byte) {
		h, err := parseHeader(in)
		if err != nil {
			if h != (Header{}) {
				t.Fatal("value returned with error")
			}
			return
		}
		if h.Argon2id != nil && h.Argon2id.MemoryKiB > maxArgonMemoryKiB {
			t.Fatal("asks for too much memory")
		}
		out, _, err := h.encode()
		if err != nil {
			t.Fatal(err)
		}
		if again, err := parseHeader(out); err != nil || again.Store != h.Store {
			t.Fatalf("%s: %v", out, err)
		}
	})
}

func FuzzOpenRecord(f *testing.F) {
	s := &sealer{root: guarded.New(rootKey()), random: bytes.NewReader(make([]byte, 12)), version: Version}
	good, err := s.seal(recordHead{purpose: purposeAccount, generation: 1}, []byte("{}"))
	if err != nil {
		f.Fatal(err)
	}
	f.Add(good)
	f.Add(good[:headSize])
	f.Add([]byte("doorward"))
	f.Fuzz(func(t *testing.T, in []byte) {
		plain, _, err := s.open(in, recordHead{purpose: purposeAccount})
		if err == nil && !bytes.Equal(in, good) {
			t.Fatalf("opened %x", in)
		}
		if err != nil && plain != nil {
			t.Fatal("value returned with error")
		}
	})
}

// argonVector was made by OpenSSL.
const argonVector = "9a738e40413414180ba35691cef9f6cadf058bfd8a32848a65637d35fe948254"
