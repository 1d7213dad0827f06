// SPDX-License-Identifier: Apache-2.0

package store

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/go-json-experiment/json"

	"github.com/doorward/doorward/authd/surrogate"
	"github.com/doorward/doorward/internal/wire"
)

// bot is a custom account.
func bot(name string) Settings {
	return Settings{
		Name: name, Vendor: Custom, Also: []string{"*.discord.com:443", "cdn.example.org:8443"},
		Base:      wire.Base{Scheme: "https", Host: "discord.com", Port: 443},
		Placement: wire.Placement{Kind: "header", Name: "Authorization", Prefix: "Bot "},
	}
}

// issueOf is an issue into the cell `work` of the account `bot` as it is.
func issueOf(s *Store, id string) Issue {
	a, _ := s.Account("bot")
	if a == nil {
		return Issue{ID: id, Cell: "work", Account: "bot"}
	}
	return Issue{id, "work", "bot", a.Generation, a.Digest}
}

func mintBot(t *testing.T, s *Store, issue, value string) {
	t.Helper()
	save, err := s.Mint(issueOf(s, issue), surrogate.DigestOf([]byte(value)), 0, now)
	if err == nil {
		err = save()
	}
	if err != nil {
		t.Fatal(err)
	}
}

func lives(s *Store, issue, value string) bool {
	is := issueOf(s, issue)
	return s.Minted(&is, surrogate.DigestOf([]byte(value)), now)
}

// withBot is an open store with the account `bot`.
func withBot(t *testing.T) (s *Store, dir string, shut func()) {
	t.Helper()
	dir = filepath.Join(t.TempDir(), "store")
	s, shut = opened(t, dir)
	if err := s.Add(bot("bot"), []byte(token), now); err != nil {
		t.Fatal(err)
	}
	return s, dir, shut
}

func TestCustomAccounts(t *testing.T) {
	for name, test := range map[string]struct {
		change func(*Settings)
		well   bool
	}{
		"well":                           {func(*Settings) {}, true},
		"basic":                          {func(s *Settings) { s.Placement = wire.Placement{Kind: "basic", User: "ada"} }, true},
		"query":                          {func(s *Settings) { s.Placement = wire.Placement{Kind: "query", Name: "key"} }, true},
		"path":                           {func(s *Settings) { s.Placement = wire.Placement{Kind: "path", Prefix: "bot"} }, true},
		"in the body":                    {func(s *Settings) { s.Placement = wire.Placement{Kind: "body"} }, false},
		"a worker":                       {func(s *Settings) { s.Workers = []string{"github"} }, false},
		"a worker of its own name":       {func(s *Settings) { s.Workers = []string{"custom"} }, false},
		"in clear":                       {func(s *Settings) { s.Base.Scheme = "http" }, false},
		"in clear to the loopback":       {func(s *Settings) { s.Base.Scheme, s.Permit = "http", []string{"127.0.0.1:443"} }, false},
		"below a path":                   {func(s *Settings) { s.Base.Path = "/api" }, false},
		"first host is a pattern":        {func(s *Settings) { s.Base.Host = "*.discord.com" }, false},
		"a pattern of one label":         {func(s *Settings) { s.Also = []string{"*.com:443"} }, false},
		"a pattern of everything":        {func(s *Settings) { s.Also = []string{"*:443"} }, false},
		"a pattern in the middle":        {func(s *Settings) { s.Also = []string{"a.*.com:443"} }, false},
		"a pattern without a dot":        {func(s *Settings) { s.Also = []string{"*discord.com:443"} }, false},
		"two stars":                      {func(s *Settings) { s.Also = []string{"*.*.discord.com:443"} }, false},
		"a pattern of an address":        {func(s *Settings) { s.Also = []string{"*.0.0.1:443"} }, false},
		"a pattern in capitals":          {func(s *Settings) { s.Also = []string{"*.Discord.com:443"} }, false},
		"a pattern without a port":       {func(s *Settings) { s.Also = []string{"*.discord.com"} }, false},
		"control: a worker's, without":   {func(s *Settings) { s.Vendor = "github" }, false},
		"a pattern of a worker's second": {func(s *Settings) { s.Vendor, s.Workers = "github", []string{"github"} }, false},
	} {
		set := bot("bot")
		test.change(&set)
		a, err := newAccount(set, []byte(token))
		if (err == nil) != test.well {
			t.Errorf("%s: %v", name, err)
		}
		for _, worker := range []string{"github", "custom", ""} {
			if a != nil && a.Allows(worker) {
				t.Errorf("%s: the worker %q may borrow it", name, worker)
			}
		}
	}
}

func TestACustomAccountHolds(t *testing.T) {
	a := &Account{Settings: bot("bot")}
	for name, test := range map[string]struct {
		change func(*wire.Entry)
		want   bool
	}{
		"its first host":      {func(*wire.Entry) {}, true},
		"another path":        {func(e *wire.Entry) { e.Path = "/" }, true},
		"a host below":        {func(e *wire.Entry) { e.Host = "gateway.discord.com" }, true},
		"further below":       {func(e *wire.Entry) { e.Host = "a.b.discord.com" }, true},
		"another host":        {func(e *wire.Entry) { e.Host, e.Port = "cdn.example.org", 8443 }, true},
		"its other port":      {func(e *wire.Entry) { e.Host = "cdn.example.org" }, false},
		"below another host":  {func(e *wire.Entry) { e.Host, e.Port = "a.cdn.example.org", 8443 }, false},
		"of a longer name":    {func(e *wire.Entry) { e.Host = "xdiscord.com" }, false},
		"of a longer domain":  {func(e *wire.Entry) { e.Host = "discord.com.evil.test" }, false},
		"a host elsewhere":    {func(e *wire.Entry) { e.Host = "evil.test" }, false},
		"the pattern itself":  {func(e *wire.Entry) { e.Host = "*.discord.com" }, false},
		"an empty label":      {func(e *wire.Entry) { e.Host = ".discord.com" }, false},
		"in capitals":         {func(e *wire.Entry) { e.Host = "Gateway.discord.com" }, false},
		"another port":        {func(e *wire.Entry) { e.Port = 8443 }, false},
		"another port, below": {func(e *wire.Entry) { e.Host, e.Port = "gateway.discord.com", 444 }, false},
		"in clear":            {func(e *wire.Entry) { e.Scheme = "http" }, false},
		"following":           {func(e *wire.Entry) { e.Follow = "x" }, false},
		"to more":             {func(e *wire.Entry) { e.Also = []string{"evil.test:443"} }, false},
	} {
		e := wire.Entry{Scheme: "https", Host: "discord.com", Port: 443, Path: "/api/v10/users/@me"}
		test.change(&e)
		if got := a.Holds(&e); got != test.want {
			t.Errorf("%s: %v, want %v", name, got, test.want)
		}
	}
	only := &Account{Settings: bot("bot")}
	only.Base.Host = "api.example.org"
	if only.Holds(&wire.Entry{Scheme: "https", Host: "discord.com", Port: 443}) {
		t.Error("a pattern stands for the name above it")
	}
}

// The digest is of all that says where the credential goes, and is the same after a restart.
func TestTheDigestOfACustomAccount(t *testing.T) {
	s, dir, shut := withBot(t)
	was, _ := s.Account("bot")
	shut()
	s, _ = opened(t, dir)
	if a, _ := s.Account("bot"); a.Digest != was.Digest {
		t.Error("it is another after a restart")
	}
	for name, change := range map[string]func(*Settings){
		"host": func(s *Settings) { s.Base.Host = "discord.org" }, "fewer": func(s *Settings) { s.Also = s.Also[:1] },
		"wider":     func(s *Settings) { s.Also = append(slices.Clone(s.Also), "evil.test:443") },
		"placement": func(s *Settings) { s.Placement.Name = "X-Key" },
		"permit":    func(s *Settings) { s.Permit = []string{"192.0.2.1:443"} },
	} {
		set := bot("bot")
		change(&set)
		a, err := newAccount(set, []byte(token))
		if err != nil || a.Digest == was.Digest {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// Line 8: surrogates live on over a restart; each thing that ends one, ends it over a restart too.
func TestSurrogatesOutliveARestart(t *testing.T) {
	s, dir, shut := withBot(t)
	mintBot(t, s, "issue-a", "one")
	mintBot(t, s, "issue-a", "two")
	mintBot(t, s, "issue-b", "three")
	again := func() {
		t.Helper()
		shut()
		s, shut = opened(t, dir)
	}
	state := func() string {
		var out []string
		for _, v := range [][2]string{{"issue-a", "one"}, {"issue-a", "two"}, {"issue-b", "three"}} {
			if lives(s, v[0], v[1]) {
				out = append(out, v[1])
			}
		}
		return strings.Join(out, " ")
	}
	if again(); state() != "one two three" {
		t.Fatalf("after a restart there are %q", state())
	}
	for name, change := range map[string]func(*Issue){
		"another issue": func(i *Issue) { i.ID = "issue-b" }, "another cell": func(i *Issue) { i.Cell = "play" },
		"another account": func(i *Issue) { i.Account = "bot2" }, "another login": func(i *Issue) { i.Generation++ },
		"another decision": func(i *Issue) { i.Digest[0]++ }, "none": func(i *Issue) { *i = Issue{} },
	} {
		is := issueOf(s, "issue-a")
		change(&is)
		if s.Minted(&is, surrogate.DigestOf([]byte("one")), now) {
			t.Errorf("it is one of %s", name)
		}
	}
	if dropped, err := s.EndIssue("issue-a"); !dropped || err != nil || state() != "three" {
		t.Fatalf("%v, %v: %q", dropped, err, state())
	}
	if err := s.SaveMinted(); err != nil {
		t.Fatal(err)
	}
	if again(); state() != "three" {
		t.Fatalf("revoked, after a restart there are %q", state())
	}
	if dropped, err := s.EndIssue("issue-a"); dropped || err != nil {
		t.Errorf("revoked twice: %v, %v", dropped, err)
	}
	a, _ := s.Account("bot")
	was := issueOf(s, "issue-b")
	if err := s.Remove("bot"); err != nil {
		t.Fatal(err)
	}
	if again(); s.Minted(&was, surrogate.DigestOf([]byte("three")), now) || len(s.minted.Issues) != 0 {
		t.Error("it outlives its account")
	}
	if err := s.Add(bot("bot"), []byte(token), now); err != nil {
		t.Fatal(err)
	}
	if b, _ := s.Account("bot"); b.Digest != a.Digest || state() != "" {
		t.Error("it came back with another account of that name")
	}
}

// What changes the account ends its surrogates: a new credential, another host, another name. What leaves it as it is does not.
func TestSurrogatesEndWithWhatTheyStandFor(t *testing.T) {
	for name, test := range map[string]struct {
		change func(*Store) error
		live   bool
	}{
		"the owner":          {func(s *Store) error { set := bot("bot"); set.Owner = "ada"; return s.Replace(set, nil, now) }, true},
		"another account":    {func(s *Store) error { return s.Add(bot("bot2"), []byte(token), now) }, true},
		"a new credential":   {func(s *Store) error { return s.Replace(bot("bot"), []byte("another-token"), now) }, false},
		"one host less":      {func(s *Store) error { set := bot("bot"); set.Also = set.Also[:1]; return s.Replace(set, nil, now) }, false},
		"a name":             {func(s *Store) error { return s.Rename("bot", "robot", now) }, false},
		"a name, there-back": {func(s *Store) error { return errors.Join(s.Rename("bot", "x", now), s.Rename("x", "bot", now)) }, false},
	} {
		s, dir, shut := withBot(t)
		mintBot(t, s, "issue", "value")
		is := issueOf(s, "issue")
		if err := test.change(s); err != nil {
			t.Fatal(name, err)
		}
		if got := s.Minted(&is, surrogate.DigestOf([]byte("value")), now); got != test.live {
			t.Errorf("%s: it lives: %v", name, got)
		}
		shut()
		s, _ = opened(t, dir)
		if got := s.Minted(&is, surrogate.DigestOf([]byte("value")), now); got != test.live {
			t.Errorf("%s, restarted: it lives: %v", name, got)
		}
	}
}

func TestSurrogatesRunOut(t *testing.T) {
	s, dir, shut := withBot(t)
	is := issueOf(s, "issue")
	d := surrogate.DigestOf([]byte("short"))
	save, err := s.Mint(is, d, now.Unix()+60, now)
	if err != nil || save() != nil {
		t.Fatal(err)
	}
	if !s.Minted(&is, d, now.Add(59*time.Second)) || s.Minted(&is, d, now.Add(time.Minute)) {
		t.Error("its minute is none")
	}
	if _, err := s.Mint(is, surrogate.DigestOf([]byte("x")), now.Unix(), now); code(err) != wire.CodeBadArgument {
		t.Errorf("one that is over is minted: %v", err)
	}
	save, err = s.Mint(is, surrogate.DigestOf([]byte("long")), 0, now.Add(time.Hour))
	if err != nil || save() != nil {
		t.Fatal(err)
	}
	if n := len(s.minted.Issues[0].Values); n != 1 {
		t.Errorf("%d are kept", n)
	}
	shut()
	s, _ = opened(t, dir)
	if !s.Minted(&is, surrogate.DigestOf([]byte("long")), now.Add(99999*time.Hour)) {
		t.Error("one without an end ends")
	}
}

// Whatever a cell asks for, the record stays small, and other issues keep what is theirs.
func TestSurrogatesAreBounded(t *testing.T) {
	var m minted
	is := func(n int) Issue {
		return Issue{fmt.Sprintf("%064d", n), strings.Repeat("w", 32), strings.Repeat("b", 32), 1 << 62, wire.Digest{1}}
	}
	v := func(n int) value { return value{surrogate.DigestOf(fmt.Append(nil, n)), 9_999_999_999} }
	add := func(issue, n int) error { return m.add(is(issue), v(n), now) }
	count := func() (n int) {
		for _, i := range m.Issues {
			n += len(i.Values)
		}
		return n
	}
	for n := range MaxMintedIssue + 1 {
		if err := add(0, n); err != nil {
			t.Fatal(err)
		}
	}
	if got := m.Issues[0].Values; len(got) != MaxMintedIssue || got[0] != v(1) || got[MaxMintedIssue-1] != v(MaxMintedIssue) {
		t.Errorf("%d are kept of one issue, not the newest", len(got))
	}
	for issue := 1; issue < MaxIssues; issue++ {
		for n := range 4 {
			if err := add(issue, n); err != nil {
				t.Fatal(err)
			}
		}
	}
	if count() != MaxMinted || len(m.Issues) != MaxIssues {
		t.Errorf("%d of %d issues", count(), len(m.Issues))
	}
	if err := add(MaxIssues, 0); code(err) != wire.CodeTooMany || len(m.Issues) != MaxIssues {
		t.Errorf("an issue too many: %v", err)
	}
	for n := range MaxMinted / 4 { // one cell asks without end
		if err := add(7, n); err != nil {
			t.Fatal(err)
		}
	}
	for i, of := range m.Issues {
		if i != 7 && i != 0 && len(of.Values) < 3 {
			t.Fatalf("issue %d has %d left", i, len(of.Values))
		}
	}
	if count() != MaxMinted || m.check() != nil {
		t.Errorf("%d are kept, %v", count(), m.check())
	}
	b, err := json.Marshal(m)
	if err != nil || len(b) > maxRecord/4*3 {
		t.Errorf("the record has %d bytes, %v", len(b), err)
	}
	for name, is := range map[string]Issue{"no name": {"", "work", "bot", 1, wire.Digest{}}, "no cell": {"i", "", "bot", 1, wire.Digest{}},
		"a long name": {strings.Repeat("i", 65), "work", "bot", 1, wire.Digest{}}, "a name to escape": {"i\x00", "work", "bot", 1, wire.Digest{}},
		"no account": {"i", "work", "", 1, wire.Digest{}}, "another cell's": {is(0).ID, "play", "bot", 1, wire.Digest{}}} {
		if err := m.add(is, v(0), now); code(err) != wire.CodeBadArgument {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// Only of a custom account, as it was decided, and only in an open store.
func TestMintIsRefused(t *testing.T) {
	s, dir, shut := withBot(t)
	if err := s.Add(github("work"), []byte(token), now); err != nil {
		t.Fatal(err)
	}
	worker, _ := s.Account("work")
	good := issueOf(s, "issue")
	for name, is := range map[string]Issue{
		"a worker's account": {"issue", "work", "work", worker.Generation, worker.Digest},
		"no account":         {"issue", "work", "none", good.Generation, good.Digest},
		"another login":      {"issue", "work", "bot", good.Generation + 1, good.Digest},
		"another decision":   {"issue", "work", "bot", good.Generation, wire.Digest{}},
	} {
		if save, err := s.Mint(is, surrogate.Digest{}, 0, now); code(err) != wire.CodeNotConnected || save != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := s.Mint(good, surrogate.Digest{}, 0, now); err != nil {
		t.Errorf("control: %v", err)
	}
	shut()
	locked, err := Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer locked.Close()
	if _, err := locked.Mint(good, surrogate.Digest{}, 0, now); !errors.Is(err, ErrLocked) {
		t.Errorf("locked: %v", err)
	}
	if _, err := locked.EndIssue("issue"); !errors.Is(err, ErrLocked) {
		t.Errorf("locked: %v", err)
	}
}

// A write that fails leaves nothing that could be presented, and one that is half done is found at the next start.
func TestASurrogateThatCannotBeKept(t *testing.T) {
	s, dir, shut := withBot(t)
	mintBot(t, s, "issue", "one")
	older, err := os.ReadFile(filepath.Join(dir, mintedName))
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{mintedName, indexName} {
		block := filepath.Join(dir, name+newSuffix)
		if err := os.MkdirAll(block+"/x", 0o700); err != nil {
			t.Fatal(err)
		}
		save, err := s.Mint(issueOf(s, "issue"), surrogate.DigestOf([]byte(name)), 0, now)
		if err != nil {
			t.Fatal(err)
		}
		if save() == nil {
			t.Fatalf("%s: saved, although it cannot be written", name)
		}
		if lives(s, "issue", name) || !lives(s, "issue", "one") {
			t.Errorf("%s: it lives although it is not kept", name)
		}
		_ = os.RemoveAll(block)
	}
	shut() // the file is ahead of the index now, with one that nobody was given
	s, shut = opened(t, dir)
	if !lives(s, "issue", "one") {
		t.Error("a crash lost one that was given")
	}
	mintBot(t, s, "issue", "two")
	shut()
	unlock := func() error {
		s, err := Open(dir)
		if err != nil {
			return err
		}
		defer s.Close()
		return s.UnlockCredential(rootKey())
	}
	if err := unlock(); err != nil {
		t.Fatalf("control: %v", err)
	}
	path := filepath.Join(dir, mintedName)
	newest, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	changed := bytes.Clone(newest)
	changed[len(changed)-1] ^= 1
	for name, b := range map[string][]byte{"an older one": older, "a changed one": changed, "a cut one": newest[:headSize], "none": nil} {
		if err := errors.Join(os.Remove(path), os.WriteFile(path, b, 0o600)); err != nil {
			t.Fatal(err)
		}
		if b == nil {
			_ = os.Remove(path)
		}
		if err := unlock(); !errors.Is(err, ErrCorrupt) {
			t.Errorf("with %s: %v", name, err)
		}
		_ = os.WriteFile(path, newest, 0o600)
	}
	if err := unlock(); err != nil {
		t.Errorf("control: %v", err)
	}
}

// No surrogate, and nothing that names who has one, is in clear on the disk.
func TestNoSurrogateOnDisk(t *testing.T) {
	s, dir, shut := withBot(t)
	const value = "DoorWardFindMe0123456789012345678901"
	mintBot(t, s, "issue-findme", value)
	if !lives(s, "issue-findme", value) {
		t.Fatal("control: it does not live")
	}
	shut()
	err := filepath.WalkDir(dir, func(path string, d os.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		b, err := os.ReadFile(path)
		sum := surrogate.DigestOf([]byte(value))
		for _, word := range []string{value, "issue-findme", "discord", string(sum[:])} {
			if bytes.Contains(b, []byte(word)) {
				t.Errorf("%s holds %q", path, word)
			}
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}

// Whatever the record says once it is opened: it is within its bounds or not taken.
func FuzzMinted(f *testing.F) {
	f.Add([]byte(`{"issues":[{"issue":"i","cell":"work","account":"bot","generation":1,"digest":"` + strings.Repeat("A", 43) + `=","values":[{"sha256":"` +
		strings.Repeat("A", 43) + `=","until":5}]}]}`))
	f.Add([]byte(`{"issues":[null]}`))
	f.Fuzz(func(t *testing.T, in []byte) {
		var m minted
		if json.Unmarshal(in, &m, json.RejectUnknownMembers(true)) != nil || m.check() != nil {
			return
		}
		n := 0
		for _, i := range m.Issues {
			n += len(i.Values)
		}
		if n > MaxMinted || n < len(m.Issues) {
			t.Fatalf("%d values of %d issues", n, len(m.Issues))
		}
		m.keepOnly(func(*issued, *value) bool { return false })
		if len(m.Issues) != 0 {
			t.Fatal("not all is forgotten")
		}
	})
}
