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

	"github.com/doorward/doorward/internal/wire"
)

const passwdOfTree = "root:x:0:0::/root:/bin/sh\nagent:x:1000:1000::/home/agent:/bin/sh\nhalf:x:1001:0::/home/half:/bin/sh\n" +
	"docked:x:1002:999::/home/docked:/bin/sh\nshort:x:1003:27::/home/short\n"

func treeWith(t *testing.T, group string) string {
	t.Helper()
	tree := t.TempDir()
	if err := errors.Join(os.Mkdir(filepath.Join(tree, "etc"), 0o755),
		os.WriteFile(filepath.Join(tree, "etc/passwd"), []byte(passwdOfTree), 0o644),
		os.WriteFile(filepath.Join(tree, "etc/group"), []byte(group), 0o644)); err != nil {
		t.Fatal(err)
	}
	return tree
}

// Nothing is started in a cell whose user is in a group that makes more of it than a user; the refusal names the group.
func TestACellIsNotArmedWhoseUserIsInAGroup(t *testing.T) {
	for _, c := range []struct{ name, user, group, bad string }{
		{"control", "agent", "root:x:0:\nagent:x:1000:\nsudo:x:27:\ndocker:x:999:\nadm:x:4:agent\n", ""},
		{"root", "root", "root:x:0:\nsudo:x:27:\n", ""},
		{"root as a member", "root", "sudo:x:27:root\n", "sudo"},
		{"sudo", "agent", "sudo:x:27:agent\n", "sudo"},
		{"docker", "agent", "docker:x:999:eve,agent\n", "docker"},
		{"lxd", "agent", "lxd:x:998:agent", "lxd"},
		{"doorward", "agent", "doorward:x:997:agent\n", "doorward"},
		{"wheel", "agent", "wheel:x:10:agent\n", "wheel"},
		{"disk", "agent", "disk:x:6:agent\n", "disk"},
		{"the group of its passwd line", "docked", "docker:x:999:\n", "docker"},
		{"root's group, by passwd", "half", "root:x:0:\n", "root"},
		{"root's group, as a member", "agent", "root:x:0:agent\n", "root"},
		{"a group without a list", "docked", "docker:x:999\n", "docker"},
		{"another name for docker's number", "agent", "docker:x:999:\nharmless:x:999:agent\n", "docker"},
		{"a part of a name", "agent", "sudoers:x:27:agent\nsudo:x:28:agents,my-agent\n", ""},
		{"a user who is in no passwd", "ghost", "sudo:x:27:ghost\n", "sudo"},
		{"lines that are none", "agent", "sudo\nsudo:x\nsudo:x:y:agent\n\n", ""},
		{"carriage returns", "agent", "sudo:x:27:agent\r\n", "sudo"},
	} {
		conf := &config{Root: treeWith(t, c.group), User: c.user}
		err := conf.armed("work")
		var refused *wire.Error
		switch {
		case c.bad == "" && err != nil:
			t.Errorf("%s: %v", c.name, err)
		case c.bad == "":
		case !errors.As(err, &refused) || refused.Code != wire.CodeNotAllowed || !strings.Contains(refused.Reason, "the group "+c.bad+" ") ||
			!strings.Contains(refused.Next, "gpasswd -d "+c.user+" "+c.bad):
			t.Errorf("%s: %v", c.name, err)
		}
	}
}

// What the cell puts in the place of its files is not followed, and is no reason to start it.
func TestArmingDoesNotBelieveTheTree(t *testing.T) {
	outside := filepath.Join(t.TempDir(), "group")
	if err := os.WriteFile(outside, []byte("root:x:0:\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	tree := treeWith(t, "")
	group := filepath.Join(tree, "etc/group")
	conf := &config{Root: tree, User: "agent"}
	if err := conf.armed("work"); err != nil {
		t.Fatalf("control: %v", err)
	}
	conf.User = "short" // other readers take a line without a shell
	if err := conf.armed("work"); err == nil || !strings.Contains(err.Error(), "etc/passwd") {
		t.Errorf("a user whose line is passed over: %v", err)
	}
	conf.User = "agent"
	// What is behind the end of what is read counts no less.
	long := strings.Repeat("x:x:5:\n", maxPasswd/7) + "sudo:x:27:agent\n"
	if err := os.WriteFile(group, []byte(long), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := conf.armed("work"); err == nil || !strings.Contains(err.Error(), "more than") {
		t.Errorf("a group behind %d bytes: %v", maxPasswd, err)
	}
	if err := errors.Join(os.Remove(group), os.Mkdir(group, 0o755)); err != nil {
		t.Fatal(err)
	}
	if err := conf.armed("work"); err == nil {
		t.Error("a folder is read as groups")
	}
	if err := errors.Join(os.Remove(group), os.Symlink(outside, group)); err != nil {
		t.Fatal(err)
	}
	conf.User = "root"
	if g, err := func() (string, error) {
		root, err := os.Open(tree)
		if err != nil {
			return "", err
		}
		defer root.Close()
		return readIn(root, "etc/group")
	}(); err == nil {
		t.Errorf("a link out is followed, to %q", g)
	}
}

// nspawn gets a fixed environment; a variable that systemd does not set by itself starts nothing.
func TestNspawnGetsAFixedEnvironment(t *testing.T) {
	usual := []string{"PATH=/evil", "LANG=de_DE.UTF-8", "LC_TIME=C", "NOTIFY_SOCKET=/run/systemd/notify", "INVOCATION_ID=1",
		"JOURNAL_STREAM=8:1", "SYSTEMD_EXEC_PID=7", "MEMORY_PRESSURE_WATCH=/x", "MEMORY_PRESSURE_WRITE=eA==", "USER=root", "HOME=/root"}
	env, foreign := environment(usual)
	want := []string{"PATH=/usr/sbin:/usr/bin:/sbin:/bin", "LANG=C.UTF-8", "NOTIFY_SOCKET=/run/systemd/notify"}
	if foreign != "" || !slices.Equal(env, want) {
		t.Errorf("%q, refused %q", env, foreign)
	}
	for _, kv := range []string{"SYSTEMD_NSPAWN_API_VFS_WRITABLE=1", "SYSTEMD_NSPAWN_USE_CGNS=0", "SYSTEMD_NSPAWN_TMPFS_TMP=0",
		"SYSTEMD_SECCOMP=0", "LISTEN_FDS=1", "LD_PRELOAD=/x.so", "http_proxy=http://x", "GITHUB_TOKEN=ghp_secretsecret", "", "=x"} {
		env, foreign := environment(append(usual, kv))
		name, value, _ := strings.Cut(kv, "=")
		if foreign != name && name != "" {
			t.Errorf("%q: refused is %q", kv, foreign)
		}
		if !slices.Equal(env, want) {
			t.Errorf("%q: nspawn would get %q", kv, env)
		}
		if err := refusedEnv("work", name); value != "" && len(value) > 1 && strings.Contains(err.Error(), value) {
			t.Errorf("the value is said: %v", err)
		}
	}
}

// `cells nspawn`, which a cell's unit runs, refuses by itself, whoever started the unit.
func TestTheUnitItselfRefuses(t *testing.T) {
	dir := t.TempDir()
	conf := "root = \"" + treeWith(t, "sudo:x:27:agent\n") + "\"\nuser = \"agent\"\n"
	if err := os.WriteFile(filepath.Join(dir, "work.toml"), []byte(conf), 0o644); err != nil {
		t.Fatal(err)
	}
	err := become(dir, "work")
	var refused *wire.Error
	if !errors.As(err, &refused) || !strings.Contains(refused.Reason, "the group sudo") {
		t.Fatalf("%v", err)
	}
	// It says so in a form that the daemon reads back.
	if s := asStatus(refused); strings.Count(s, "\t") != 3 || strings.Contains(s, "\n") {
		t.Errorf("%q", s)
	}
	conf = "root = \"" + treeWith(t, "") + "\"\nuser = \"agent\"\n"
	if err := os.WriteFile(filepath.Join(dir, "work.toml"), []byte(conf), 0o644); err != nil {
		t.Fatal(err)
	}
	t.Setenv("SYSTEMD_NSPAWN_UNIFIED_HIERARCHY", "0")
	err = become(dir, "work")
	if !errors.As(err, &refused) || !strings.Contains(refused.Reason, " is in the environment") {
		t.Errorf("%v", err)
	}
	var said bytes.Buffer
	if code := Main([]string{"--help"}, &said); code != wire.ExitUsage || !strings.Contains(said.String(), "man doorward") {
		t.Errorf("help: %d %q", code, said.String())
	}
	if code := Main([]string{"nspawn", "no such"}, &said); code != wire.ExitFailure || !strings.Contains(said.String(), "next: ") {
		t.Errorf("%d %s", code, &said)
	}
}
