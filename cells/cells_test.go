// SPDX-License-Identifier: Apache-2.0

package cells

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/doorward/doorward/cells/trust"
	"github.com/doorward/doorward/internal/wire"
)

func TestAConfigurationIsReadStrictly(t *testing.T) {
	dir := t.TempDir()
	write := func(text string) {
		if err := os.WriteFile(filepath.Join(dir, "work.toml"), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	write("root = \"/srv/work\"\ncommand = [\"agent\", \"--serve\"]\nuser = \"agent\"\nprojects = [\"/home/ada/engine\"]\n" +
		"[limits]\nmemory = \"4G\"\ntasks = 512\n")
	c, err := load(dir, "work")
	if err != nil || c.memory != 4<<30 || c.Limits.Tasks != 512 || c.User != "agent" || c.Root != "/srv/work" {
		t.Fatalf("%+v %v", c, err)
	}
	args := strings.Join(c.nspawn("work", []trust.Bind{{From: "/run/x", To: "/run/y"}}), " ")
	for _, want := range []string{"--directory=/srv/work", "--private-users=pick", "--user=agent -- agent --serve",
		"--bind=/home/ada/engine:/home/ada/engine:owneridmap", "--bind-ro=/run/x:/run/y ",
		"--setenv=SSL_CERT_FILE=/etc/ssl/certs/ca-certificates.crt ",
		"--bind-ro=/run/doorward/private/cell/:/run/doorward/cell/"} {
		if !strings.Contains(args, want) {
			t.Errorf("no %q in %s", want, args)
		}
	}
	own := *c
	if own.Usr = "own"; !strings.Contains(args, "--bind-ro=/usr ") {
		t.Errorf("no /usr of this machine's in %s", args)
	}
	if args := strings.Join(own.nspawn("work", nil), " "); strings.Contains(args, "--bind-ro=/usr ") ||
		!strings.Contains(args, "--bind-ro=/usr/bin/connector") || !strings.Contains(args, "--bind-ro=/usr/bin/doorward ") ||
		!strings.Contains(args, "--bind-ro=/usr/share/doorward") {
		t.Errorf("a tree with a /usr of its own has %s", args)
	}
	for _, c := range []struct{ text, want string }{
		{"rott = \"x\"", `work.toml:1:1: there is no key "rott"`},
		{"usr = \"theirs\"", "usr:"},
		{"[limits]\nmemoryy = \"1G\"", `work.toml:2:1: there is no key "limits.memoryy"`},
		{"user = 7", "work.toml:1:"},
		{"user = \"a:b\"", "user:"},
		{"user = \"-u\"", "user:"},
		{"user = \"1000\"", "user:"},
		{"user = \"\"", "user:"},
		{"root = \"/\"", "root:"},
		{"root = \"work\"", "root:"},
		{"root = \"/srv/../etc\"", "root:"},
		{"projects = [\"/home/ada:/etc\"]", "projects:"},
		{"projects = [\"/\"]", "projects:"},
		{"command = [\"\"]", "command:"},
		{"[limits]\nmemory = \"lots\"", "limits.memory:"},
		{"[limits]\nmemory = \"0\"", "limits.memory:"},
		{"[limits]\nmemory = \"99999999999T\"", "limits.memory:"},
		{"[limits]\ntasks = -1", "limits.tasks:"},
		{"user = \"a\"\nuser = \"b\"", "work.toml:2"},
		{strings.Repeat("#", maxConfig+1), "more than"},
	} {
		write(c.text)
		_, err := load(dir, "work")
		var refused *wire.Error
		if !errors.As(err, &refused) || !strings.Contains(refused.Reason, c.want) || refused.Next == "" {
			t.Errorf("%.40q: %v, want %q and a next step", c.text, err, c.want)
		}
	}
	if c, err := load(dir, "other"); err != nil || c.exists || c.User != "root" {
		t.Errorf("none: %+v %v", c, err)
	}
	for _, bad := range []string{"", "..", "../work", "Work", "a-b", "a/b", "work.toml", strings.Repeat("a", 33)} {
		if _, err := load(dir, bad); err == nil {
			t.Errorf("%q is a name", bad)
		}
	}
	for _, f := range []string{"b.toml", "a-b.toml", "c.txt"} {
		if err := os.WriteFile(filepath.Join(dir, f), nil, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if got, err := names(dir); err != nil || !slices.Equal(got, []string{"b", "work"}) {
		t.Errorf("names: %q %v", got, err)
	}
	var said bytes.Buffer
	if code := Main([]string{"nspawn", "../x"}, &said); code == 0 || !strings.Contains(said.String(), "no name of a cell") {
		t.Errorf("nspawn ../x: %d %s", code, &said)
	}
}

// What a cell puts in the place of a file that is looked at leads nowhere.
func TestTheTreeOfACellIsNotBelieved(t *testing.T) {
	dir := t.TempDir()
	tree := filepath.Join(dir, "tree")
	if err := errors.Join(os.MkdirAll(filepath.Join(tree, "etc"), 0o755), os.MkdirAll(filepath.Join(tree, "dev/pts"), 0o755),
		os.WriteFile(filepath.Join(dir, "outside"), []byte("agent:x:0:0::/:/bin/sh\n"), 0o644)); err != nil {
		t.Fatal(err)
	}
	root, err := os.OpenFile(tree, unix.O_PATH|unix.O_DIRECTORY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer root.Close()
	l := &leader{root: root}
	passwd := filepath.Join(tree, "etc/passwd")
	put := func(f func() error) {
		t.Helper()
		if err := os.Remove(passwd); err != nil && !errors.Is(err, os.ErrNotExist) {
			t.Fatal(err)
		}
		if err := f(); err != nil {
			t.Fatal(err)
		}
	}
	put(func() error {
		return os.WriteFile(passwd, []byte("root:x:0:0::/root:/bin/bash\nagent:x:1000:1001::/home/agent:/bin/sh\n"), 0o644)
	})
	if a, err := l.user("agent"); err != nil || a.uid != 1000 || a.gid != 1001 || a.home != "/home/agent" {
		t.Fatalf("control: %+v %v", a, err)
	}
	for name, f := range map[string]func() error{
		"a link out":      func() error { return os.Symlink("../../outside", passwd) },
		"an absolute one": func() error { return os.Symlink(filepath.Join(dir, "outside"), passwd) },
		"a magic one":     func() error { return os.Symlink("/proc/self/root"+filepath.Join(dir, "outside"), passwd) },
		"a pipe":          func() error { return unix.Mkfifo(passwd, 0o644) },
		"a folder":        func() error { return os.Mkdir(passwd, 0o755) },
		"no home":         func() error { return os.WriteFile(passwd, []byte("agent:x:1:1::x:/bin/sh\n"), 0o644) },
		"a huge uid":      func() error { return os.WriteFile(passwd, []byte("agent:x:99999999999:1::/:/bin/sh\n"), 0o644) },
	} {
		put(f)
		done := make(chan error, 1)
		go func() { _, err := l.user("agent"); done <- err }()
		select {
		case err := <-done:
			if err == nil {
				t.Errorf("%s: it is believed", name)
			}
		case <-time.After(5 * time.Second):
			t.Fatalf("%s: it hangs", name)
		}
	}
	ptmx := filepath.Join(tree, "dev/pts/ptmx")
	for name, f := range map[string]func() error{
		"a file": func() error { return os.WriteFile(ptmx, nil, 0o666) },
		"a link": func() error { return os.Symlink("/dev/ptmx", ptmx) },
		"a pipe": func() error { return unix.Mkfifo(ptmx, 0o666) },
	} {
		if err := f(); err != nil {
			t.Fatal(err)
		}
		if m, s, err := l.terminal(&wire.RunStart{}, 1, 1); err == nil {
			m.Close()
			s.Close()
			t.Errorf("%s: it is a terminal", name)
		}
		if err := os.Remove(ptmx); err != nil {
			t.Fatal(err)
		}
	}
}

func TestUsersOfACellAreNotThisMachines(t *testing.T) {
	m := idMap{{0, 1 << 20, 1 << 16}}
	if got, err := m.outside(1000); err != nil || got != 1<<20+1000 {
		t.Errorf("%d %v", got, err)
	}
	for _, id := range []int64{1 << 16, -1, 1 << 40} {
		if got, err := m.outside(id); err == nil {
			t.Errorf("%d is %d", id, got)
		}
	}
	if got, err := (idMap{{0, 0, 1 << 32}}).outside(0); err == nil {
		t.Errorf("root of the cell is %d of this machine", got)
	}
	if m.has(0) || !m.has(1<<20) || m.has(1<<20+1<<16) {
		t.Error("whose files they are")
	}
	for status, want := range map[string]bool{"NSpid:\t77\t1\n": true, "NSpid:\t77\t5\t1\n": false, "NSpid:\t77\n": false,
		"Name:\tNSpid: 1 1\nNSpid:\t77\t2\n": false, "": false} {
		if isFirst(status) != want {
			t.Errorf("%q", status)
		}
	}
	for term, want := range map[string]bool{"": true, "xterm-256color": true, "a b": false, "x\n": false, "x=y": false} {
		if isTerm(term) != want {
			t.Errorf("TERM %q", term)
		}
	}
}

func TestWhereARunStarts(t *testing.T) {
	c := &config{Projects: []string{"/srv/a", "/home/ada/b"}}
	usual := []string{"/srv/a", "/home/ada/b", "/home/agent"}
	for here, first := range map[string]string{
		"/srv/a": "/srv/a", "/srv/a/x/y": "/srv/a/x/y", "/home/ada/b/c": "/home/ada/b/c",
		"": "", "/": "", "/srv": "", "/srv/ab": "", "/home/ada": "", "srv/a": "", "/srv/a/..": "", "/srv/a/../../etc": "",
		"/srv/a/b:c": "", "/srv/a/b\x00c": "",
	} {
		want := usual
		if first != "" {
			want = append([]string{first}, usual...)
		}
		if got := c.workDirs(here, "/home/agent"); !slices.Equal(got, want) {
			t.Errorf("from %q: %q, want %q", here, got, want)
		}
	}
	if !slices.Equal(c.Projects, usual[:2]) {
		t.Errorf("the configuration became %q", c.Projects)
	}
}

// Who froze a cell decides how it goes on, and what walls that did not hold have frozen goes on by no thaw.
func TestHowAFrozenCellGoesOn(t *testing.T) {
	for _, tt := range []struct {
		by   []string
		next string
	}{
		{[]string{byPerson}, "doorward cell thaw work"},
		{[]string{byPerson, byStop}, "doorward stop --resume work"},
		{[]string{byPerson, byStop, byCanary}, "sudo doorward doctor; doorward cell stop work; doorward cell start work"},
	} {
		var refused *wire.Error
		if err := frozen("work", tt.by); !errors.As(err, &refused) || refused.Next != tt.next {
			t.Errorf("%q: %v", tt.by, err)
		}
	}
}
