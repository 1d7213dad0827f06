// SPDX-License-Identifier: Apache-2.0

package setup

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/doorward/doorward/internal/wire"
)

func write(t *testing.T, path, text string, mode os.FileMode) {
	t.Helper()
	if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, []byte(text), mode), os.Chmod(path, mode)); err != nil {
		t.Fatal(err)
	}
}

func link(t *testing.T, to, path string) {
	t.Helper()
	if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.Symlink(to, path)); err != nil {
		t.Fatal(err)
	}
}

// Each agent is found by the files that its installers make.
func TestAgentsAreFoundByTheirFiles(t *testing.T) {
	const npm = "lib/node_modules/"
	for _, c := range []struct {
		name     string
		programs map[string]string // command, and what it leads to; "" is a file itself
		files    []string
		system   bool
		want     Found
		copied   []string // of the first command
	}{
		{name: "nothing"},
		{name: "Claude Code by its own installer",
			programs: map[string]string{".local/bin/claude": "../share/claude/versions/2.0.1"},
			files:    []string{".claude/settings.json", ".claude.json"},
			want: Found{Name: "claude", Title: "Claude Code", Commands: []string{"~/.local/bin/claude"},
				Settings: []string{".claude", ".claude.json"}},
			copied: []string{".local/bin/claude", ".local/share/claude"}},
		{name: "Codex by npm in a prefix of the person's",
			programs: map[string]string{".npm-global/bin/codex": "../" + npm + "@openai/codex/bin/codex.js"},
			files:    []string{".codex/config.toml"},
			want: Found{Name: "codex", Title: "Codex", Commands: []string{"~/.npm-global/bin/codex"},
				Settings: []string{".codex"}},
			copied: []string{".npm-global/bin/codex", ".npm-global/" + npm + "@openai/codex"}},
		{name: "Codex by npm in the prefix that .npmrc names",
			programs: map[string]string{"tools/bin/codex": "../" + npm + "@openai/codex/bin/codex.js"},
			files:    []string{".npmrc"},
			want:     Found{Name: "codex", Title: "Codex", Commands: []string{"~/tools/bin/codex"}},
			copied:   []string{"tools/bin/codex", "tools/" + npm + "@openai/codex"}},
		{name: "OpenCode by nvm's npm, with the node beside it",
			programs: map[string]string{".nvm/versions/node/v22.1.0/bin/opencode": "../" + npm + "opencode-ai/bin/opencode",
				".nvm/versions/node/v22.1.0/bin/node": ""},
			files: []string{".config/opencode/opencode.json", ".local/share/opencode/auth.json"},
			want: Found{Name: "opencode", Title: "OpenCode", Commands: []string{"~/.nvm/versions/node/v22.1.0/bin/opencode"},
				Settings: []string{".config/opencode", ".local/share/opencode"}},
			copied: []string{".nvm/versions/node/v22.1.0/bin/opencode", ".nvm/versions/node/v22.1.0/" + npm + "opencode-ai",
				".nvm/versions/node/v22.1.0/bin/node"}},
		{name: "OpenCode by its own installer", programs: map[string]string{".opencode/bin/opencode": ""},
			want:   Found{Name: "opencode", Title: "OpenCode", Commands: []string{"~/.opencode/bin/opencode"}},
			copied: []string{".opencode/bin/opencode"}},
		{name: "OpenClaw for all users, with its gateway's unit", system: true,
			programs: map[string]string{"usr/local/bin/openclaw": "../" + npm + "openclaw/openclaw.mjs"},
			files: []string{".openclaw/openclaw.json", ".config/systemd/user/openclaw-gateway.service",
				".config/systemd/user/openclaw-gateway-two.service", ".config/systemd/user/default.target.wants/openclaw-gateway.service",
				".config/systemd/user/openclawed.service"},
			want: Found{Name: "openclaw", Title: "OpenClaw", Commands: []string{"/usr/local/bin/openclaw"}, Settings: []string{".openclaw"},
				Units: []string{"openclaw-gateway.service", "openclaw-gateway-two.service"},
				UnitFiles: []string{".config/systemd/user/openclaw-gateway.service", ".config/systemd/user/openclaw-gateway-two.service",
					".config/systemd/user/default.target.wants/openclaw-gateway.service"}}},
		{name: "settings alone", files: []string{".codex/auth.json"},
			want: Found{Name: "codex", Title: "Codex", Settings: []string{".codex"}}},
		{name: "a command that leads nowhere"},
		{name: "a command with setup's own mark in it", files: []string{".local/bin/claude"},
			want:   Found{Name: "claude", Title: "Claude Code", Commands: []string{"~/.local/bin/claude"}},
			copied: []string{".local/bin/claude"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			root := t.TempDir()
			home := filepath.Join(root, "home/ada")
			if err := os.MkdirAll(home, 0o755); err != nil {
				t.Fatal(err)
			}
			top := home
			if c.system {
				top = root
			}
			for command, to := range c.programs {
				if to == "" {
					write(t, filepath.Join(top, command), "#!/bin/sh\n", 0o755)
					continue
				}
				write(t, filepath.Join(top, filepath.Dir(command), to), "#!/usr/bin/env node\n", 0o755)
				link(t, to, filepath.Join(top, command))
			}
			for _, f := range c.files {
				text, mode := "prefix = ${HOME}/tools\n", os.FileMode(0o600)
				if f == ".local/bin/claude" {
					text, mode = "#!/bin/sh\n"+mark+"\n", 0o755
				}
				write(t, filepath.Join(home, f), text, mode)
			}
			link(t, "/nowhere", filepath.Join(home, "bin/codex"))
			found := find(home, []string{filepath.Join(root, "usr/local/bin"), filepath.Join(root, "usr/bin")})
			if c.want.Name == "" {
				if len(found) != 0 {
					t.Fatalf("found %+v", found)
				}
				return
			}
			if len(found) != 1 {
				t.Fatalf("found %+v, want one", found)
			}
			have := found[0]
			var files []string
			if len(have.Commands) > 0 {
				files, _ = program(home, have.Commands[0])
			}
			for i, cmd := range have.Commands {
				have.Commands[i] = strings.Replace(strings.Replace(cmd, home, "~", 1), root, "", 1)
			}
			if fmt.Sprintf("%+v", have) != fmt.Sprintf("%+v", c.want) {
				t.Errorf("found %+v\nwant  %+v", have, c.want)
			}
			if !slices.Equal(files, c.copied) {
				t.Errorf("it goes with %q, want %q", files, c.copied)
			}
		})
	}
}

func TestProjectFoldersThatNoAgentGets(t *testing.T) {
	root := t.TempDir()
	home := filepath.Join(root, "home/ada")
	uid := os.Getuid()
	for _, d := range []string{"engine", ".ssh", ".config/thing", "bin", "a:b", "a\"b", "site"} {
		if err := os.MkdirAll(filepath.Join(home, d), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	link(t, ".ssh", filepath.Join(home, "innocent"))
	link(t, "/etc", filepath.Join(home, "site/etc"))
	link(t, "engine", filepath.Join(home, "alias"))
	write(t, filepath.Join(home, "file"), "", 0o644)
	for path, why := range map[string]string{
		"/": "whole machine", home: "your whole home", filepath.Dir(home): "home lies in it", root: "home lies in it",
		home + "/.ssh": "settings or keys", home + "/.config/thing": "settings or keys", home + "/innocent": "settings or keys",
		home + "/bin": "programs that run as you", home + "/a:b": "colon", home + "/a\"b": "quoted", home + "/file": "no folder",
		home + "/gone": "cannot be opened", "engine": "no absolute path", "/etc": "belongs to the system", "/usr/local": "belongs to the system",
		home + "/site/etc": "belongs to the system", "/var": "belongs to the system", "/proc/self": "", "/dev": "belongs to the system",
		"/home": "", "/tmp": "", "/boot": "belongs to the system", home + "/engine/../.ssh": "settings or keys",
	} {
		real, err := project(path, home, uid)
		var refused *wire.Error
		if !errors.As(err, &refused) || !strings.Contains(refused.Reason, why) || refused.Next == "" {
			t.Errorf("%s: %q %v, want a refusal with %q", path, real, err, why)
		}
	}
	for path, want := range map[string]string{home + "/engine": "engine", "~/engine": "engine", home + "/alias": "engine", home + "/site/": "site"} {
		if real, err := project(path, home, uid); err != nil || real != filepath.Join(home, want) {
			t.Errorf("%s: %q %v", path, real, err)
		}
	}
	if _, err := project(home+"/engine", home, uid+1); err == nil || !strings.Contains(err.Error(), "not yours") {
		t.Errorf("a folder of another user: %v", err)
	}
}

func TestProjectFoldersLieApart(t *testing.T) {
	top := t.TempDir()
	populate(t, top)
	if err := os.Mkdir(top+"/home/ada/engine/part", 0o755); err != nil {
		t.Fatal(err)
	}
	r := machine(t, top)
	for _, list := range [][]string{{"~/engine", "~/engine/part"}, {"~/engine/part", "~/engine"}} {
		r.j.Config.Projects = list
		if err := r.folders(); err == nil || !strings.Contains(err.Error(), "lie in each other") {
			t.Errorf("%q: %v", list, err)
		}
	}
	r.j.Config.Projects = []string{"~/engine", top + "/home/ada/engine/"}
	if err := r.folders(); err != nil || len(r.j.Config.Projects) != 1 {
		t.Errorf("one folder twice: %q %v", r.j.Config.Projects, err)
	}
}

func TestAConfigurationIsReadStrictly(t *testing.T) {
	c, err := parse("f", []byte("projects = [\"/srv/x\"]\n[account]\nconnector = \"dav\"\nsecret_fd = 3\n"))
	if err != nil || c.Cell != "work" || c.Tree != "usr" || c.Key != "machine" || c.Account.Name != "dav" || c.Agents != nil {
		t.Fatalf("%+v %v", c, err)
	}
	for text, why := range map[string]string{
		"persn = \"ada\"\n":                        `f:1:1: there is no key "persn"; did you mean "person"?`,
		"cell = \"work\"\n[account]\nsecret=\"x\"": `f:3:1: there is no key "account.secret"; no secret is in this file: secret_file names`,
		"[account]\npassword = \"x\"":              `there is no key "account.password"`,
		"cell = \"Work\"":                          "no name of a cell",
		"cell = 1":                                 "f:1:8: cell: want a text in quotes",
		"agents = \"claude\"":                      "f:1:10: agents: want a list of texts",
		"tasks = \"many\"":                         "tasks: want a whole number",
		"[account]\napprove = \"yes\"":             "f:2:11: account.approve: want true or false",
		"acount = 1":                               `did you mean "account"?`,
		"":                                         "it says nothing",
		"# nothing\n":                              "it says nothing",
		"tree = \"docker\"":                        "neither",
		"key = \"none\"":                           "neither",
		"agents = [\"emacs\"]":                     "none of claude, codex, opencode, openclaw",
		"workers = [\"../x\"]":                     "no connector",
		"passphrase_file = \"/x\"":                 "goes with key",
		"[account]\nname = \"x\"":                  "no connector",
		"[account]\nconnector=\"dav\"\nsecret_file=\"/x\"\nsecret_fd=3": "two sources",
		"[account]\nconnector=\"dav\"\nsecret_fd=1":                     "from 3 on",
		"cell = ": "f:1:",
	} {
		if c, err := parse("f", []byte(text)); err == nil || !strings.Contains(err.Error(), why) {
			t.Errorf("%q: %+v %v, want %q", text, c, err, why)
		}
	}
	if _, err := Load(t.TempDir()); err == nil {
		t.Error("a folder is read")
	}
}

// SD-03: a secret whose file a group may read is refused.
func TestSD03ASecretsFileIsItsOwnersAlone(t *testing.T) {
	dir := t.TempDir()
	write(t, dir+"/good", "s", 0o600)
	fd, err := openSecret(dir + "/good")
	if err != nil {
		t.Fatal(err)
	}
	f := os.NewFile(uintptr(fd), "good")
	if b, err := io.ReadAll(f); err != nil || string(b) != "s" {
		t.Errorf("%q %v", b, err)
	}
	f.Close()
	write(t, dir+"/group", "s", 0o640)
	write(t, dir+"/all", "s", 0o604)
	link(t, "good", dir+"/link")
	if err := syscall.Mkfifo(dir+"/pipe", 0o600); err != nil {
		t.Fatal(err)
	}
	bad := []string{"group", "all", "link", "pipe", "gone", "."}
	if os.Getuid() == 0 {
		write(t, dir+"/other", "s", 0o600)
		if err := os.Chown(dir+"/other", 1234, 1234); err != nil {
			t.Fatal(err)
		}
		bad = append(bad, "other")
	}
	for _, name := range bad {
		if fd, err := openSecret(filepath.Join(dir, name)); err == nil {
			syscall.Close(fd)
			t.Errorf("%s is read", name)
		}
	}
}

func TestWordsOfAnAccount(t *testing.T) {
	a, err := account(strings.Fields("dav https://cal.example.org/dav user=ada owner=ada@example.org ca=/x permit=10.0.0.5:443 name=diary"))
	if err != nil || fmt.Sprintf("%+v", *a) != "{Connector:dav Name:diary Base:https://cal.example.org/dav CA:/x User:ada "+
		"Owner:ada@example.org Permit:[10.0.0.5:443] Also:[] Scopes:[] SecretFile: SecretFD:0 Approve:false}" {
		t.Errorf("%+v %v", a, err)
	}
	for _, words := range []string{"dav", "github password=x", "github secret_file=/x", "dav https://ada:x@cal.example.org", "github nonsense",
		"github https://a.example https://b.example"} {
		if a, err := account(strings.Fields(words)); err == nil {
			t.Errorf("%s: %+v", words, a)
		}
	}
}

// look is a folder and all below it, by content, mode and owner.
func look(t *testing.T, dir string) string {
	t.Helper()
	var b strings.Builder
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		st, err := d.Info()
		if err != nil {
			return err
		}
		sys := st.Sys().(*syscall.Stat_t)
		fmt.Fprintf(&b, "%s %v %d:%d", path, st.Mode(), sys.Uid, sys.Gid)
		switch {
		case st.Mode()&fs.ModeSymlink != 0:
			to, _ := os.Readlink(path)
			fmt.Fprint(&b, " -> ", to)
		case st.Mode().IsRegular():
			text, err := os.ReadFile(path)
			if err != nil {
				return err
			}
			fmt.Fprintf(&b, " %x", sha256.Sum256(text))
			if strings.Contains(path, "/home/") {
				fmt.Fprint(&b, " of ", st.ModTime().Unix())
			}
		}
		b.WriteByte('\n')
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return b.String()
}

// inMemory is a folder on which a sync costs nothing, where there is one.
func inMemory(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("/dev/shm", "setup-")
	if err != nil {
		return t.TempDir()
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	return dir
}

// differ says which lines two looks have not in common.
func differ(before, after string) string {
	var out []string
	for l := range strings.Lines(before) {
		if !strings.Contains(after, l) {
			out = append(out, "was "+l)
		}
	}
	for l := range strings.Lines(after) {
		if !strings.Contains(before, l) {
			out = append(out, "is  "+l)
		}
	}
	return strings.Join(out, "")
}

// rig is a machine in a folder, whose systemd, users and daemons only write down what they were asked.
type rig struct {
	*setup
	top    string
	said   []string
	ran    []string
	member bool
	added  []string
	loads  int // of the policy
	cutAt  int // the call of run or a daemon, or the step, at which the power fails; 0 is never
	calls  int
	doing  bool
}

var errCut = errors.New("the power failed")

func (r *rig) cut() error {
	if r.calls++; r.calls == r.cutAt {
		return errCut
	}
	return nil
}

// halt are the user units that are stopped, by the machine's folder and their name.
var halt = map[string]bool{}

// machine makes a rig over a folder: what is in it stays when another is made over it, as over a power cut.
func machine(t *testing.T, top string) *rig {
	t.Helper()
	r := &rig{top: top}
	uid, gid := os.Getuid(), os.Getgid()
	calls := Calls{
		Terminal: true,
		Say: func(f string, a ...any) {
			r.said = append(r.said, fmt.Sprintf(f, a...))
			if r.doing && r.cut() != nil { // between two steps
				panic(errCut)
			}
		},
		Note:     func(s string) { r.said = append(r.said, s) },
		Question: func(string) (string, error) { return "", errors.New("a question") },
		Yes:      func(string) (bool, error) { return true, nil }, Check: func() error { return nil },
		CheckAccount: func(*Account) error { return nil },
		AddAccount: func(a *Account, _ int) error {
			r.added = append(r.added, a.Name)
			way := top + "/var/lib/private/doorward/egress-cell/work" // as systemd has it of a user that it makes anew
			return errors.Join(os.MkdirAll(top+"/var/lib/doorward/authd", 0o700), os.MkdirAll(way, 0o700),
				os.MkdirAll(top+"/var/lib/doorward/egress-cell", 0o755), os.RemoveAll(top+"/var/lib/doorward/egress-cell/work"),
				os.Symlink(way, top+"/var/lib/doorward/egress-cell/work"), r.cut())
		},
		Decide:        func(string, bool) error { return r.cut() },
		Accounts:      func() ([]wire.Account, error) { return nil, r.cut() },
		RemoveAccount: func(string) error { return nil },
		StartCell:     func(string) error { return r.cut() },
		LoadPolicy:    func() error { r.loads++; return r.cut() },
		TestCall:      func(c, a string) ([]string, error) { return []string{"connector", c, "check", "--account", a}, nil },
		InCell:        func(context.Context, string, []string) (string, int, error) { return "fine", 0, nil },
	}
	r.setup = &setup{Calls: calls, system: []string{top + "/usr/local/bin"}, j: &Journal{Version: version},
		places: places{state: top + "/var/lib/doorward", own: top + "/var/lib/private/doorward", etc: top + "/etc/doorward", creds: top + "/etc/credstore.encrypted",
			hosts: top + "/etc", share: top + "/usr/share/doorward", cgroups: top + "/cgroup", proc: top + "/proc", runtimes: top + "/run/user"},
		person: person{"ada", uid, gid, top + "/home/ada"}}
	r.lookUp = func(string) (person, error) { return r.person, nil }
	r.run = func(_ context.Context, _ []byte, name string, args ...string) (string, error) {
		r.ran = append(r.ran, name+" "+strings.Join(args, " "))
		switch name {
		case "systemd-creds":
			return "", errors.Join(os.WriteFile(args[len(args)-1], []byte("sealed"), 0o600), r.cut())
		case "gpasswd":
			member := ""
			if args[0] == "--add" {
				member = args[1]
			}
			return "", errors.Join(os.WriteFile(top+"/etc/group", []byte("doorward:x:999:"+member+"\n"), 0o644), r.cut())
		case "systemctl":
			if args[0] != "--user" {
				break
			}
			switch unit := args[len(args)-1]; args[2] {
			case "show":
				if halt[top+unit] {
					return "inactive\n", nil
				}
				return "active\n", nil
			case "stop", "start":
				halt[top+unit] = args[2] == "stop"
			}
		}
		return "", r.cut()
	}
	j, _, err := openJournal(r.journal())
	if err != nil {
		t.Fatal(err)
	}
	r.j = j
	return r
}

// populate fills a folder with a machine on which the package is, with two agents.
func populate(t *testing.T, top string) {
	t.Helper()
	home := top + "/home/ada"
	for _, d := range []string{"/etc/doorward", "/var/lib/private", "/home/ada/engine", "/usr/local/bin"} {
		if err := os.MkdirAll(top+d, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	write(t, top+"/etc/group", "doorward:x:999:\n", 0o644)
	write(t, top+"/proc/self/mountinfo", "22 1 8:1 / / rw - ext4 /dev/sda1 rw\n", 0o644)
	if err := os.MkdirAll(fmt.Sprintf("%s/run/user/%d", top, os.Getuid()), 0o700); err != nil {
		t.Fatal(err)
	}
	write(t, top+"/etc/profile", "export A=1\n", 0o644)
	write(t, top+"/usr/share/doorward/policy.toml", "# remarks\n", 0o644)
	write(t, home+"/.codex/config.toml", "model = 1\n", 0o600)
	write(t, home+"/.codex/deep/er/file", "text", 0o640)
	if err := os.Chtimes(home+"/.codex/config.toml", time.Unix(1e9, 0), time.Unix(1e9, 0)); err != nil {
		t.Fatal(err)
	}
	link(t, "config.toml", home+"/.codex/link")
	link(t, "/etc/shadow", home+"/.codex/out")
	write(t, home+"/.npm-global/lib/node_modules/@openai/codex/bin/codex.js", "#!/usr/bin/env node\n", 0o755)
	link(t, "../lib/node_modules/@openai/codex/bin/codex.js", home+"/.npm-global/bin/codex")
	write(t, home+"/.openclaw/openclaw.json", "{}", 0o600)
	write(t, home+"/.config/systemd/user/openclaw-gateway.service", "[Service]\n", 0o644)
	link(t, "../openclaw-gateway.service", home+"/.config/systemd/user/default.target.wants/openclaw-gateway.service")
	write(t, top+"/usr/local/bin/openclaw", "#!/bin/sh\n", 0o755)
	write(t, home+"/.ssh/id", "key", 0o600)
}

func (r *rig) chosen() *Config {
	return &Config{Person: "ada", Cell: "work", Tree: "usr", Key: "machine", Agents: []string{"codex", "openclaw"},
		Projects: []string{r.top + "/home/ada/engine"}, Sites: []string{"npm", "openai"}, Account: &Account{Connector: "github", Name: "code"}}
}

// setUp does what Run does.
func (r *rig) setUp(again bool) (err error) {
	defer func() {
		if cut := recover(); cut == errCut {
			err = errCut
		} else if cut != nil {
			panic(cut)
		}
	}()
	r.opts = Options{Yes: true}
	r.doing = true
	if !again {
		r.opts.Config = r.chosen()
	}
	return r.do(context.Background(), again)
}

func (r *rig) undoAll() error {
	again := len(r.j.Records) > 0
	return r.undo(context.Background(), again, UndoOptions{Yes: true})
}

// A plan says what would be done and the machine's faults, and leaves all as it is; so does a file with a fault.
func TestAPlanDoesNothing(t *testing.T) {
	top := t.TempDir()
	populate(t, top)
	was := look(t, top)
	r := machine(t, top)
	bad := errors.New("no systemd here")
	r.Check = func() error { return bad }
	r.opts = Options{Config: r.chosen(), Plan: true}
	if err := r.do(context.Background(), false); !errors.Is(err, bad) {
		t.Errorf("%v", err)
	}
	said := strings.Join(r.said, "\n")
	for _, want := range []string{"What will be done", "make the root tree", "each other site that the agent connects to asks you once",
		"reach the sites of npm, openai without asking, by a line in " + top + "/etc/doorward/policy/policy.toml"} {
		if !strings.Contains(said, want) {
			t.Errorf("%q is not in %s", want, said)
		}
	}
	r.CheckAccount = func(*Account) error { return errors.New("no such connector") }
	r.opts = Options{Config: r.chosen()}
	if err := r.do(context.Background(), false); err == nil || errors.Is(err, bad) {
		t.Errorf("the file's own fault is not said first: %v", err)
	}
	if now := look(t, top); now != was || len(r.ran) > 0 || len(r.j.Records) > 0 {
		t.Errorf("ran %q, records %v, and\n%v\nwas\n%v", r.ran, r.j.Records, now, was)
	}
}

// An account that is added already is not held to files that were needed for it once.
func TestAnAddedAccountIsNotCheckedAgain(t *testing.T) {
	top := t.TempDir()
	populate(t, top)
	r := machine(t, top)
	if err := r.setUp(false); err != nil || r.j.Config.Account == nil {
		t.Fatal(err)
	}
	r.CheckAccount = func(*Account) error { return errors.New("its ca file is gone") }
	if err := r.setUp(true); err != nil {
		t.Error(err)
	}
}

func TestASetupAndItsUndoing(t *testing.T) {
	top := t.TempDir()
	populate(t, top)
	former, was := before, look(t, top)
	r := machine(t, top)
	if err := r.setUp(false); err != nil {
		t.Fatal(err)
	}
	home, tree := top+"/home/ada", top+"/var/lib/doorward/cells/work"
	for path, want := range map[string]string{
		tree + home + "/.codex/config.toml":                                           "model = 1\n",
		tree + home + "/.openclaw/openclaw.json":                                      "{}",
		tree + home + "/.npm-global/bin/codex":                                        "#!/usr/bin/env node\n",
		top + "/var/lib/doorward/setup/.config/systemd/user/openclaw-gateway.service": "[Service]\n",
		tree + "/etc/profile":                                                         "export A=1\n",
		top + "/etc/group":                                                            "doorward:x:999:ada\n",
		top + "/usr/local/bin/openclaw" + former:                                      "#!/bin/sh\n",
		top + "/etc/doorward/policy/policy.toml":                                      "# remarks\n\n# By doorward setup:\nsites = [\"npm\", \"openai\"]\n",
	} {
		if b, err := os.ReadFile(path); err != nil || string(b) != want {
			t.Errorf("%s: %q %v", path, b, err)
		}
	}
	if to, err := os.Readlink(tree + home + "/.local/bin/codex"); err != nil || to != home+"/.npm-global/bin/codex" {
		t.Errorf("a run in the cell does not find codex: %q %v", to, err)
	}
	for _, path := range []string{home + "/.codex", home + "/.openclaw", home + "/.config/systemd/user/openclaw-gateway.service", tree + home + "/.ssh"} {
		if _, err := os.Lstat(path); err == nil {
			t.Errorf("%s is there", path)
		}
	}
	for _, cmd := range []string{home + "/.npm-global/bin/codex", top + "/usr/local/bin/openclaw"} {
		if !machine(t, top).ours(cmd, map[bool]string{true: "openclaw", false: "codex"}[strings.HasSuffix(cmd, "openclaw")]) {
			t.Errorf("%s starts it outside still", cmd)
		}
	}
	want := []string{"systemctl --user --machine=ada@.host stop openclaw-gateway.service",
		"systemctl enable doorward.target doorward-cell@work.service doorward-worker@github.service"}
	for _, w := range want {
		if !slices.Contains(r.ran, w) {
			t.Errorf("it did not run %q but %q", w, r.ran)
		}
	}
	if st, err := os.Stat(r.journal()); err != nil || st.Mode().Perm() != 0o600 {
		t.Errorf("the journal: %v %v", st, err)
	}

	// Again: nothing is done twice.
	r2 := machine(t, top)
	if err := r2.setUp(true); err != nil {
		t.Fatal(err)
	}
	for _, ran := range r2.ran {
		if strings.HasPrefix(ran, "gpasswd") || strings.HasPrefix(ran, "systemd-creds") || strings.Contains(ran, "enable") {
			t.Errorf("again it ran %q", ran)
		}
	}
	if len(r2.added) > 0 || r.loads != 1 || r2.loads > 0 {
		t.Errorf("again it added %q; the policy was loaded %d times, and %d", r2.added, r.loads, r2.loads)
	}

	r3 := machine(t, top)
	if err := r3.undoAll(); err != nil {
		t.Fatalf("%v\n%s", err, strings.Join(r3.said, "\n"))
	}
	if diff := differ(was, look(t, top)); diff != "" {
		t.Errorf("undone it is another:\n%s", diff)
	}
}

// A user unit runs outside of the cell as soon as it is back: the agent has no hand in it meanwhile.
func TestAUnitComesBackAsItWas(t *testing.T) {
	top := t.TempDir()
	populate(t, top)
	r := machine(t, top)
	if err := r.setUp(false); err != nil {
		t.Fatal(err)
	}
	unit := "/home/ada/.config/systemd/user/openclaw-gateway.service"
	cell := top + "/var/lib/doorward/cells/work" + top
	write(t, cell+unit, "[Service]\nExecStart=/bin/sh -c 'id'\n", 0o644)
	write(t, cell+"/home/ada/.openclaw/openclaw.json", "{\"of\": \"the agent\"}", 0o600)
	if st, err := os.Stat(r.aside()); err != nil || st.Mode().Perm() != 0o700 {
		t.Errorf("what is put aside: %v %v", st, err)
	}
	if err := machine(t, top).undoAll(); err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]string{
		unit:                                "[Service]\n",
		"/home/ada/.openclaw/openclaw.json": "{\"of\": \"the agent\"}", // control: settings are as the agent left them
	} {
		if b, err := os.ReadFile(top + path); err != nil || string(b) != want {
			t.Errorf("%s: %q %v", path, b, err)
		}
	}
	if _, err := os.Stat(r.aside()); err == nil {
		t.Error("what was put aside is left")
	}
}

// Wherever the power fails, in setup or in its undoing, all of it can be undone, and setup goes on.
func TestACutAnywhereCanBeUndone(t *testing.T) {
	calls := func(cutAt int) (undone, resumed bool) {
		top := inMemory(t)
		populate(t, top)
		before := look(t, top)
		r := machine(t, top)
		r.cutAt = cutAt
		err := r.setUp(false)
		if err == nil {
			return false, false
		}
		if !errors.Is(err, errCut) && !strings.Contains(err.Error(), errCut.Error()) {
			t.Fatalf("cut at %d: %v", cutAt, err)
		}
		if cutAt%2 == 0 {
			on := machine(t, top)
			if err := on.setUp(on.j.Config.Person != ""); err != nil { // before the first record nothing was chosen
				t.Fatalf("cut at %d, it does not go on: %v", cutAt, err)
			}
			resumed = true
		}
		r = machine(t, top)
		r.cutAt = 2 // the first undoing is cut too
		_ = r.undoAll()
		r = machine(t, top)
		if len(r.j.Records) > 0 {
			if err := r.undoAll(); err != nil {
				t.Fatalf("cut at %d: undo: %v\n%s", cutAt, err, strings.Join(r.said, "\n"))
			}
		}
		if diff := differ(before, look(t, top)); diff != "" {
			t.Errorf("cut at %d, undone it is another:\n%s", cutAt, diff)
		}
		return true, resumed
	}
	n, resumed := 0, 0
	for cutAt := 1; ; cutAt++ {
		undone, on := calls(cutAt)
		if !undone {
			break
		}
		n++
		if on {
			resumed++
		}
	}
	if n < 40 || resumed < 15 {
		t.Errorf("only %d places were cut at, %d gone on from", n, resumed)
	}
}

// A move is whole in one of its two places at each point.
func TestAMoveCutAnywhere(t *testing.T) {
	for cutAt := range 6 {
		t.Run(fmt.Sprint(cutAt), func(t *testing.T) {
			top := t.TempDir()
			write(t, top+"/home/.codex/a", "a", 0o600)
			write(t, top+"/home/.codex/b/c", "c", 0o640)
			if err := os.Mkdir(top+"/tree", 0o755); err != nil {
				t.Fatal(err)
			}
			before := look(t, top+"/home")
			home, err1 := os.OpenRoot(top + "/home")
			tree, err2 := os.OpenRoot(top + "/tree")
			if err := errors.Join(err1, err2); err != nil {
				t.Fatal(err)
			}
			defer home.Close()
			defer tree.Close()
			me := owner{os.Getuid(), os.Getgid()}
			move := func() {
				t.Helper()
				if _, err := moveAll(home, ".codex", tree, "home/.codex", me, me, me.UID); err != nil {
					t.Fatal(err)
				}
			}
			copyTo := func(dst string) {
				t.Helper()
				if _, err := copyAll(home, ".codex", tree, dst, me, me.UID); err != nil {
					t.Fatal(err)
				}
			}
			stage := func(path string) {
				t.Helper()
				if err := os.Mkdir(top+path, 0o700); err != nil {
					t.Fatal(err)
				}
			}
			if err := parents(tree, "home/.codex", me); err != nil {
				t.Fatal(err)
			}
			switch cutAt { // the states on the way
			case 1: // half a copy
				stage("/tree/home/.codex" + coming)
				write(t, top+"/tree/home/.codex"+coming+"/"+inside+"/a", "a", 0o600)
			case 2, 3: // a whole copy
				stage("/tree/home/.codex" + coming)
				copyTo("home/.codex" + coming + "/" + inside)
				stage("/home/.codex" + going)
				if cutAt == 2 {
					break
				}
				if err := home.Rename(".codex", ".codex"+going+"/"+inside); err != nil { // the old one gave way
					t.Fatal(err)
				}
			case 4: // the new one is in place, the old one half removed
				copyTo("home/.codex")
				stage("/home/.codex" + going)
				old := ".codex" + going + "/" + inside
				if err := errors.Join(home.Rename(".codex", old), home.Remove(old+"/a")); err != nil {
					t.Fatal(err)
				}
			case 5:
				move()
			}
			if cutAt%2 == 1 { // it goes on
				move()
				for path, want := range map[string]bool{"/home/.codex": false, "/home/.codex" + going: false, "/tree/home/.codex/b/c": true,
					"/tree/home/.codex" + coming: false} {
					if _, err := os.Lstat(top + path); (err == nil) != want {
						t.Errorf("%s: %v", path, err)
					}
				}
			}
			if aside, err := moveBack(home, ".codex", tree, "home/.codex", me); err != nil || aside != "" {
				t.Fatalf("%q %v", aside, err)
			}
			if aside, err := moveBack(home, ".codex", tree, "home/.codex", me); err != nil || aside != "" {
				t.Fatalf("again: %q %v", aside, err)
			}
			if diff := differ(before, look(t, top+"/home")); diff != "" {
				t.Errorf("back it is another:\n%s", diff)
			}
			if left := look(t, top+"/tree"); strings.Contains(left, "codex") {
				t.Errorf("in the tree is left\n%s", left)
			}
		})
	}
}

// What the agent started anew outside of the cell meanwhile is kept.
func TestSettingsMadeSinceAreKept(t *testing.T) {
	top := t.TempDir()
	populate(t, top)
	if err := machine(t, top).setUp(false); err != nil {
		t.Fatal(err)
	}
	write(t, top+"/home/ada/.codex/config.toml", "since", 0o600)
	if err := machine(t, top).undoAll(); err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]string{"/home/ada/.codex/config.toml": "model = 1\n", "/home/ada/.codex.since-doorward/config.toml": "since"} {
		if b, err := os.ReadFile(top + path); err != nil || string(b) != want {
			t.Errorf("%s: %q %v", path, b, err)
		}
	}
}

// A link that the agent has put into its tree leads no file of this machine anywhere. The control follows it by path.
func TestALinkInTheTreeLeadsNowhere(t *testing.T) {
	top := t.TempDir()
	populate(t, top)
	if err := machine(t, top).setUp(false); err != nil {
		t.Fatal(err)
	}
	outside := t.TempDir()
	write(t, outside+"/.codex/config.toml", "stolen", 0o600)
	tree := top + "/var/lib/doorward/cells/work"
	home := top + "/home/ada"
	if err := errors.Join(os.Rename(tree+home, tree+home+"-was"), os.Symlink(outside, tree+home)); err != nil {
		t.Fatal(err)
	}
	if b, err := os.ReadFile(tree + home + "/.codex/config.toml"); err != nil || string(b) != "stolen" {
		t.Fatalf("control: the link leads nowhere for anybody: %q %v", b, err)
	}
	refused(t, machine(t, top).undoAll(), ".codex") // and the rest is undone, see attacks_test.go
	if b, err := os.ReadFile(home + "/.codex/config.toml"); err == nil && string(b) == "stolen" {
		t.Error("a file of outside of the tree was brought into the home")
	}
	if _, err := os.Stat(outside + "/.codex/config.toml"); err != nil {
		t.Errorf("a file of outside of the tree was taken away: %v", err)
	}
}

// Left stopped, an agent has its files and no start, and says how to have it again.
func TestAnAgentIsLeftStopped(t *testing.T) {
	top := t.TempDir()
	populate(t, top)
	if err := machine(t, top).setUp(false); err != nil {
		t.Fatal(err)
	}
	r := machine(t, top)
	if err := r.uninstall(context.Background(), true, UndoOptions{Yes: true, Stopped: true}); err != nil {
		t.Fatal(err)
	}
	home := top + "/home/ada"
	for _, cmd := range []string{home + "/.npm-global/bin/codex", top + "/usr/local/bin/openclaw"} {
		b, err := os.ReadFile(cmd)
		if err != nil || !strings.Contains(string(b), "left stopped") || !strings.Contains(string(b), "mv "+cmd+before) {
			t.Errorf("%s: %q %v", cmd, b, err)
		}
	}
	for _, path := range []string{home + "/.codex/config.toml", home + "/.config/systemd/user/openclaw-gateway.service", r.key("store-key"), r.cell("work")} {
		if _, err := os.Stat(path); err != nil {
			t.Errorf("it is not kept: %v", err)
		}
	}
	if _, err := os.Lstat(home + "/.config/systemd/user/default.target.wants/openclaw-gateway.service"); err == nil {
		t.Error("its service starts again")
	}
	if slices.ContainsFunc(r.ran, func(s string) bool { return strings.Contains(s, "--user") && strings.Contains(s, " start ") }) {
		t.Errorf("its service was started: %q", r.ran)
	}
	if isMember(r.hosts, "ada", group) {
		t.Error("ada is in the group still")
	}
}

// Whatever is asked, it is not more than a person was promised; the account's secret and the decision on it count.
func TestAtMostSoManyQuestions(t *testing.T) {
	top := inMemory(t)
	populate(t, top)
	r := machine(t, top)
	answers := map[string]string{"Whose agent": "ada", "Which go into": "", "Which project": top + "/home/ada/engine",
		"First account": "dav https://cal.example.org/dav", "Which of them may it reach": ""}
	asked := 0
	r.Question = func(q string) (string, error) {
		asked++
		for begin, a := range answers {
			if strings.HasPrefix(q, begin) {
				return a, nil
			}
		}
		return "", fmt.Errorf("asked %q", q)
	}
	r.Yes = func(string) (bool, error) { asked++; return true, nil }
	r.AddAccount = func(a *Account, fd int) error {
		if a.Connector != "dav" || a.User != "ada" || fd >= 0 {
			return fmt.Errorf("%+v %d", a, fd)
		}
		asked += 2 // the secret, the decision
		return nil
	}
	if err := r.do(context.Background(), false); err != nil {
		t.Fatal(err)
	}
	if asked != 8 || r.loads != 1 { // as docs/first-hour.md and the command's help have it
		t.Errorf("%d questions, want 8", asked)
	}
	if got := r.j.Config; !slices.Equal(got.Agents, []string{"codex", "openclaw"}) || !slices.Equal(got.Sites, []string{"openai"}) || got.Account.Base != "https://cal.example.org/dav" {
		t.Errorf("%+v", got)
	}
	if b, err := os.ReadFile(r.journal()); err != nil || !strings.Contains(string(b), "cal.example.org") {
		t.Errorf("what was chosen is not kept: %v", err)
	}
}

// Nobody is asked, and nothing done, where there is no terminal; and a no is a no.
func TestNothingIsDoneUnasked(t *testing.T) {
	top := inMemory(t)
	populate(t, top)
	before := look(t, top)
	r := machine(t, top)
	r.Terminal = false
	var refused *wire.Error
	if err := r.do(context.Background(), false); !errors.As(err, &refused) || !strings.Contains(refused.Next, "--config") {
		t.Errorf("without a terminal: %v", err)
	}
	r = machine(t, top)
	r.opts.Login = "ada"
	r.Question = func(string) (string, error) { return "", nil }
	r.Yes = func(string) (bool, error) { return false, nil }
	if err := r.do(context.Background(), false); err != nil {
		t.Fatal(err)
	}
	if diff := differ(before, look(t, top)); diff != "" {
		t.Errorf("after a no:\n%s", diff)
	}
	if len(r.ran) > 0 {
		t.Errorf("after a no it ran %q", r.ran)
	}
}

// Elsewhere than with its person an agent's command is what it was: for other users, and in the cell.
func TestTheCommandOfOthersIsTheFormerOne(t *testing.T) {
	dir := t.TempDir()
	cmd := dir + "/it's"
	write(t, cmd+before, "#!/bin/sh\necho former \"$@\"\n", 0o755)
	for uid, want := range map[int]string{os.Getuid() + 1: "former a b\n", os.Getuid(): ""} {
		write(t, cmd, string(wrapper("work", "codex", cmd, person{uid: uid})), 0o755)
		sh := exec.Command(cmd, "a", "b")
		sh.Env = []string{"PATH=" + dir + ":/bin:/usr/bin"}
		write(t, dir+"/doorward", "#!/bin/sh\necho doorward \"$@\"\n", 0o755)
		b, err := sh.CombinedOutput()
		if want == "" {
			want = "doorward run work -- codex a b\n"
		}
		if err != nil || string(b) != want {
			t.Errorf("%q %v, want %q", b, err, want)
		}
	}
	write(t, cmd, string(stopped("codex", cmd)), 0o755)
	if b, err := exec.Command(cmd).CombinedOutput(); err == nil || !strings.Contains(string(b), "mv ") {
		t.Errorf("left stopped: %q %v", b, err)
	}
}

func TestAJournalThatCannotBeRead(t *testing.T) {
	path := t.TempDir() + "/setup.json"
	for _, text := range []string{"", "{", `{"version":2}`, `{"version":1,"more":1}`} {
		write(t, path, text, 0o600)
		if _, _, err := openJournal(path); err == nil {
			t.Errorf("%q is read", text)
		}
	}
	const newer = `{"version":2,"more":1}`
	write(t, path, newer, 0o600)
	if _, _, err := openJournal(path); err == nil || !strings.Contains(err.Error(), "is of version 2, here 1") {
		t.Errorf("one of a newer version: %v", err)
	}
	if b, err := os.ReadFile(path); err != nil || string(b) != newer {
		t.Errorf("it is changed: %q, %v", b, err)
	}
}
