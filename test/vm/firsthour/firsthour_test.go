// SPDX-License-Identifier: Apache-2.0

// Package firsthour is run within the machine of test/vm before anything of Doorward is on it: it installs the package, has
// ada set it up with an agent that npm has installed in her home, works, and takes all of it away again. What the machine
// then is it holds to what it was. Nothing stands in for systemd, apt, sudo or the agent; the vendor is the stand-in.
package firsthour

import (
	"crypto/rand"
	"crypto/sha256"
	"errors"
	"fmt"
	"io/fs"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/doorward/doorward/test/vendors/github"
)

const (
	bench = "/bench"
	home  = "/home/ada"
	pkg   = home + "/.npm-global/lib/node_modules/@openai/codex"
	codex = home + "/.npm-global/bin/codex"
)

// The first hour, and before it the same unattended, cut off in its middle and undone.
func TestFullFirstHour(t *testing.T) {
	if os.Getenv("DOORWARD_IN_VM") == "" {
		t.Skip("VM ground: `make vm-test-full` runs it, in a machine of its own")
	}
	newcomer(t)
	gh, token := vendor(t)
	before := look(t)
	must(t, "apt-get", "install", "-y", "--no-install-recommends", bench+"/doorward.deb")
	installed := look(t)
	if installed == nil || differ(before, installed) == "" {
		t.Fatal("control: installing the package changed nothing that is looked at")
	}
	t.Run("cut off and undone", func(t *testing.T) { cutOff(t, gh, installed) })
	if !t.Run("set up at a terminal", func(t *testing.T) { atTerminal(t, gh, token) }) {
		t.FailNow()
	}
	t.Run("a write is parked and approved", func(t *testing.T) { parked(t, gh) })
	t.Run("the agent works in the cell", works)
	t.Run("run again it changes nothing", again)
	t.Run("uninstalled", func(t *testing.T) { uninstalled(t, before) })
}

// newcomer makes ada, who may sudo and is in no group of Doorward's, with an agent as npm installs it.
func newcomer(t *testing.T) {
	t.Helper()
	must(t, "useradd", "--create-home", "--shell", "/bin/bash", "--uid", "1000", "ada")
	files := map[string]string{
		"/etc/sudoers.d/ada":          "ada ALL=(ALL) NOPASSWD: ALL\n",
		home + "/.npmrc":              "prefix=${HOME}/.npm-global\n",
		home + "/.codex/config.toml":  "model = \"gpt-5\"\n",
		home + "/.codex/auth.json":    "{\"OPENAI_API_KEY\": null}\n",
		home + "/engine/README.md":    "# Engine\n",
		home + "/.ssh/id_ed25519":     "of no use to anybody\n",
		home + "/.codex/log/tui.log":  "one\n",
		home + "/.bash_history":       "codex\n",
		home + "/.config/other/thing": "not an agent's\n",
	}
	for path, text := range files {
		if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, []byte(text), 0o600)); err != nil {
			t.Fatal(err)
		}
	}
	must(t, "install", "-m", "755", bench+"/node", "/usr/local/bin/node")
	must(t, "cp", "-a", bench+"/agent", home+"/.npm-global")
	if err := os.Symlink("config.toml", home+"/.codex/link.toml"); err != nil {
		t.Fatal(err)
	}
	must(t, "chown", "-R", "ada:ada", home)
	r := as(t, codex, "--version")
	if r.code != 0 || !strings.Contains(r.out, "codex") {
		t.Fatalf("control: the agent does not run before: %v", r)
	}
}

func vendor(t *testing.T) (*github.Server, string) {
	t.Helper()
	token := "ghp_" + rand.Text() + rand.Text()[:10]
	gh, err := github.New(github.Options{Credentials: []string{token}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(gh.Close)
	if err := os.WriteFile("/root/ca.pem", gh.CAPEM(), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile("/root/token", []byte(token+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	return gh, token
}

func host(t *testing.T, gh *github.Server) string {
	u, err := url.Parse(gh.Base())
	if err != nil {
		t.Fatal(err)
	}
	return u.Host
}

// cutOff sets up without a question, is killed at several points, and undone each time. The last time it is not killed.
func cutOff(t *testing.T, gh *github.Server, installed map[string]string) {
	config := fmt.Sprintf("person = \"ada\"\nprojects = [%q]\nsites = [\"npm\"]\nmemory = \"512M\"\n[account]\nconnector = \"github\"\n"+
		"name = \"code\"\nbase = %q\nca = \"/root/ca.pem\"\npermit = [%q]\nsecret_file = \"/root/token\"\napprove = true\n",
		home+"/engine", gh.Base(), host(t, gh))
	if err := os.WriteFile("/root/setup.toml", []byte(config), 0o644); err != nil {
		t.Fatal(err)
	}
	must(t, "chown", "root:root", home+"/.codex/log/tui.log") // as a careless sudo leaves it, or who wants it read by root
	if r := as(t, "sudo", "doorward", "setup", "--config", "/root/setup.toml"); r.code == 0 ||
		!strings.Contains(r.out, "belongs to another user") {
		t.Errorf("a file of root's among the settings: %v", r)
	}
	must(t, "chown", "ada:ada", home+"/.codex/log/tui.log")
	for _, at := range []string{"make the root tree", "move Codex", "start Doorward", ""} {
		if at != "" {
			killed(t, at)
		} else if r := as(t, "sudo", "doorward", "setup", "--config", "/root/setup.toml"); r.code != 0 ||
			!strings.Contains(r.out, "passed: from cell work: connector github repos --account code") ||
			!strings.Contains(r.out, "passed: Codex starts in cell work") {
			t.Errorf("unattended: %v", r)
		}
		r := as(t, "sudo", "doorward", "setup", "--undo", "--yes")
		if r.code != 0 {
			t.Fatalf("undo after %q: %v", at, r)
		}
		if diff := differ(installed, look(t)); diff != "" {
			t.Errorf("after a setup cut off at %q and its undoing the machine is another:\n%s", at, diff)
		}
	}
}

// killed runs setup and kills it as it says that it does something.
func killed(t *testing.T, at string) {
	t.Helper()
	cmd := exec.Command("systemd-run", "--quiet", "--pipe", "--wait", "--collect", "--slice=user-1000.slice", "--unit=cut.service",
		"--uid=ada", "--", "sudo", "doorward", "setup", "--config", "/root/setup.toml")
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	var said strings.Builder
	buf := make([]byte, 4096)
	for { // the plan names it first, the doing second
		n, err := out.Read(buf)
		said.Write(buf[:n])
		if strings.Count(said.String(), at) > 1 {
			break
		}
		if err != nil {
			t.Fatalf("setup ended before it came to %q:\n%s", at, said.String())
		}
	}
	must(t, "systemctl", "kill", "-s", "KILL", "cut.service")
	_ = cmd.Wait()
}

// atTerminal is setup as a person has it. What it asks is counted.
func atTerminal(t *testing.T, gh *github.Server, token string) {
	answers := []struct{ prompt, answer string }{
		{"Which go into the cell?", ""},
		{"Which project folders", "~/engine"},
		{"Which of them may it reach without asking?", ""},
		{"First account?", "github " + gh.Base() + " name=code ca=/root/ca.pem permit=" + host(t, gh)},
		{"Do this? Type yes:", "yes"},
		{"token (not shown):", token},
		{"Allow this? Type yes:", "yes"},
	}
	term := open(t, "sudo", "doorward", "setup")
	for _, a := range answers {
		term.until(t, a.prompt)
		term.keys(t, a.answer+"\n")
	}
	said, code := term.end(t)
	if code != 0 || !strings.Contains(said, "passed: from cell work: connector github repos --account code") {
		t.Fatalf("exit code %d:\n%s", code, said)
	}
	if n := strings.Count(said, "? ") + strings.Count(said, "(not shown)"); n > 9 {
		t.Errorf("%d questions:\n%s", n, said)
	}
	if strings.Contains(said, token) {
		t.Error("the token is on the screen")
	}
	// The provider of its model is reached as chosen, by the policy in force.
	if r := as(t, "doorward", "policy", "show"); r.code != 0 || !strings.Contains(r.out, `sites = ["openai"`) {
		t.Errorf("the policy in force: %v", r)
	}
	t.Log(said)
}

func parked(t *testing.T, gh *github.Server) {
	issues := func() int { return gh.Rec.Handled("POST", "/repos/") }
	r := as(t, "doorward", "run", "work", "--", "connector", "github", "issue-create", "--repo", "ada/site",
		"--title", "It stalls", "--wait", "1s")
	if r.code != 4 || issues() != 0 {
		t.Fatalf("a write: %v; the vendor saw %d", r, issues())
	}
	r = as(t, "doorward", "pending", "--json")
	_, rest, _ := strings.Cut(r.out, `"id":"`)
	id, _, ok := strings.Cut(rest, `"`)
	if !ok {
		t.Fatalf("nothing is pending: %v", r)
	}
	term := open(t, "doorward", "approve", id)
	term.until(t, "Run this once? Type yes:")
	term.keys(t, "yes\n")
	if said, code := term.end(t); code != 0 || !strings.Contains(said, "It stalls") {
		t.Fatalf("approve: %d\n%s", code, said)
	}
	r = as(t, "doorward", "run", "work", "--", "connector", "wait", id)
	if r.code != 0 || issues() != 1 {
		t.Fatalf("after the approval: %v; the vendor saw %d", r, issues())
	}
}

// works looks what the agent has and has not, started as its person always started it.
func works(t *testing.T) {
	r := as(t, codex, "--version")
	if r.code != 0 || !strings.Contains(r.out, "codex") {
		t.Errorf("its command: %v", r)
	}
	if b, err := os.ReadFile(codex); err != nil || !strings.Contains(string(b), "doorward run work -- codex") {
		t.Errorf("its command does not lead into the cell: %q %v", b, err)
	}
	if _, err := os.Lstat(home + "/.codex"); err == nil {
		t.Error("its settings are outside still")
	}
	script := "cat ~/.codex/config.toml; stat -c %U ~/.codex/log/tui.log; pwd; touch ~/engine/made; ls -a ~; ls /home; ls ~/.ssh; " +
		"id -un; which codex"
	r = as(t, "doorward", "run", "work", "--", "sh", "-c", script)
	for _, want := range []string{"model = \"gpt-5\"", "ada\n", home + "/engine\n", home + "/.local/bin/codex"} {
		if !strings.Contains(r.out, want) {
			t.Errorf("no %q in the cell: %v", want, r)
		}
	}
	if strings.Contains(r.out, "id_ed25519") || strings.Contains(r.out, ".bash_history") {
		t.Errorf("the cell sees the person's home: %v", r)
	}
	st, err := os.Stat(home + "/engine/made")
	if err != nil {
		t.Fatal(err)
	}
	if sys, ok := st.Sys().(*syscall.Stat_t); !ok || sys.Uid != 1000 {
		t.Errorf("what it made in the project is %d's", sys.Uid)
	}
	if err := os.Remove(home + "/engine/made"); err != nil {
		t.Fatal(err)
	}
}

func again(t *testing.T) {
	r := as(t, "sudo", "doorward", "setup", "--yes")
	if r.code != 0 || !strings.Contains(r.out, "passed: from cell work") || strings.Contains(r.out, "move Codex") {
		t.Errorf("%v", r)
	}
}

// uninstalled gives all back, and compares.
func uninstalled(t *testing.T, before map[string]string) {
	// What an agent may leave for who takes it out: a file that is larger than the disk, and a folder without an end.
	r := as(t, "doorward", "run", "work", "--", "sh", "-c", "truncate -s 8T ~/.codex/holes && mkdir ~/deep && cd ~/deep && "+
		"for i in $(seq 400); do mkdir d && cd -P d; done")
	if r.code != 0 {
		t.Fatalf("the agent cannot do harm: %v", r)
	}
	r = as(t, "sudo", "doorward", "uninstall", "--agent", "restore", "--yes")
	if r.code != 0 || !strings.Contains(r.out, "account code of github") || !strings.Contains(r.out, "apt remove doorward") {
		t.Fatalf("uninstall: %v", r)
	}
	if st, err := os.Lstat(home + "/.codex/holes"); err != nil || st.Size() != 8<<40 || st.Sys().(*syscall.Stat_t).Blocks > 1000 {
		t.Errorf("a file of holes: %v %v", st, err)
	}
	if err := os.Remove(home + "/.codex/holes"); err != nil {
		t.Fatal(err)
	}
	for _, kept := range []string{"/var/lib/doorward/authd/store", "/var/lib/doorward/sentinel",
		"/etc/credstore.encrypted/doorward.store-key"} {
		if _, err := os.Stat(kept); err != nil {
			t.Errorf("it is not kept: %v", err)
		}
	}
	if units := must(t, "systemctl", "list-units", "--plain", "--no-legend", "--state=active,activating,failed", "doorward*.service",
		"doorward*.socket", "doorward.target"); strings.TrimSpace(units) != "" {
		t.Errorf("these units are left:\n%s", units)
	}
	if r := as(t, codex, "--version"); r.code != 0 || !strings.Contains(r.out, "codex") {
		t.Errorf("the agent does not run as before: %v", r)
	}
	r = as(t, "sudo", "doorward", "uninstall", "--agent", "restore", "--purge", "--yes")
	if r.code != 0 {
		t.Fatalf("purge: %v", r)
	}
	must(t, "apt-get", "purge", "-y", "doorward")
	if diff := differ(before, look(t)); diff != "" {
		t.Errorf("the machine is another than before:\n%s", diff)
	}
}

// look is the machine, as far as Doorward could have changed it: users' files and /etc by content, owner and mode, what
// starts at boot, networks, cgroups, and what else is in its places.
func look(t *testing.T) map[string]string {
	t.Helper()
	have := map[string]string{}
	for _, top := range []string{"/home", "/etc", "/root", "/usr/local", "/var/lib/doorward", "/var/lib/private", "/usr/lib/systemd",
		"/usr/bin"} {
		err := filepath.WalkDir(top, func(path string, d fs.DirEntry, err error) error {
			if errors.Is(err, fs.ErrNotExist) {
				return nil
			}
			if err != nil {
				return err
			}
			if slices.Contains(passing, path) {
				return nil
			}
			st, err := d.Info()
			if err != nil {
				return err
			}
			sys, _ := st.Sys().(*syscall.Stat_t)
			what := fmt.Sprintf("%v %d:%d", st.Mode(), sys.Uid, sys.Gid)
			switch {
			case st.Mode()&fs.ModeSymlink != 0:
				to, err := os.Readlink(path)
				if err != nil {
					return err
				}
				what += " -> " + to
			case st.Mode().IsRegular():
				b, err := os.ReadFile(path)
				if err != nil {
					return err
				}
				if users[path] {
					b = withoutOwn(b)
				}
				what += fmt.Sprintf(" %x", sha256.Sum256(b))
			}
			have[path] = what
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	have["enabled"] = must(t, "systemctl", "list-unit-files", "--plain", "--no-legend", "--state=enabled")
	have["networks"] = must(t, "ip", "netns", "list")
	groups, _ := filepath.Glob("/sys/fs/cgroup/doorward.slice/*/*")
	have["cgroups"] = strings.Join(groups, " ")
	return have
}

// passing are files that the machine's own tools rewrite: copies of the user files, and locks.
var passing = []string{"/etc/passwd-", "/etc/group-", "/etc/shadow-", "/etc/gshadow-", "/etc/.pwd.lock", "/etc", "/root/setup.toml"}

// users are the files of users. The system users of a package stay when it goes, as Debian has it: their ids may be on
// files that were kept elsewhere.
var users = map[string]bool{"/etc/passwd": true, "/etc/group": true, "/etc/shadow": true, "/etc/gshadow": true}

func withoutOwn(b []byte) []byte {
	var out []byte
	for line := range strings.Lines(string(b)) {
		// An empty group `doorward` stays; a member would not.
		if !strings.HasPrefix(line, "doorward") || strings.HasPrefix(line, "doorward:") && strings.Contains(line, "ada") {
			out = append(out, line...)
		}
	}
	return out
}

// differ says how two looks differ.
func differ(a, b map[string]string) string {
	var out []string
	for k, v := range a {
		if b[k] != v {
			out = append(out, fmt.Sprintf("%s: was %s, is %s", k, v, b[k]))
		}
	}
	for k, v := range b {
		if _, ok := a[k]; !ok {
			out = append(out, fmt.Sprintf("%s: is new: %s", k, v))
		}
	}
	slices.Sort(out)
	if len(out) > 60 {
		out = append(out[:60], fmt.Sprintf("and %d more", len(out)-60))
	}
	return strings.Join(out, "\n")
}
