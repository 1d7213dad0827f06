// SPDX-License-Identifier: Apache-2.0

package setup

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/doorward/doorward/internal/wire"
)

// made is a machine that is set up, its home, and its cell's tree.
func made(t *testing.T) (top, home, tree string) {
	t.Helper()
	top = inMemory(t)
	populate(t, top)
	if err := machine(t, top).setUp(false); err != nil {
		t.Fatal(err)
	}
	return top, top + "/home/ada", top + "/var/lib/doorward/cells/work"
}

// with sets a machine up with some agents.
func with(t *testing.T, top string, names ...string) (*rig, error) {
	t.Helper()
	r := machine(t, top)
	c := r.chosen()
	c.Agents = append([]string{}, names...) // nil would be all
	r.opts = Options{Yes: true, Config: c}
	return r, r.do(context.Background(), false)
}

func must(t *testing.T, errs ...error) {
	t.Helper()
	if err := errors.Join(errs...); err != nil {
		t.Fatal(err)
	}
}

func isThere(path string) bool {
	_, err := os.Lstat(path)
	return err == nil
}

// refused says whether an error is a refusal with a next step that says something.
func refused(t *testing.T, err error, why string) {
	t.Helper()
	var r *wire.Error
	if !errors.As(err, &r) || !strings.Contains(r.Reason+r.Next, why) || r.Next == "" {
		t.Errorf("%v; want a refusal with %q and a next step", err, why)
	}
}

// soon fails a test in which something waits for ever.
func soon(t *testing.T, what func()) {
	t.Helper()
	done := make(chan struct{})
	go func() { defer close(done); what() }()
	select {
	case <-done:
	case <-time.After(20 * time.Second):
		t.Fatal("it hangs")
	}
}

// Whatever the journal says, all is stopped before anything is undone, and by the kernel's word.
func TestNothingIsUndoneUnderALiveCell(t *testing.T) {
	for _, gone := range []opName{opStart, opEnable, ""} { // the record that a crash, or an uninstall, left out
		top, home, tree := made(t)
		r := machine(t, top)
		r.j.Records = slices.DeleteFunc(r.j.Records, func(x *Record) bool { return x.Op == gone })
		must(t, r.undoAll())
		stop, other := slices.Index(r.ran, "systemctl stop doorward-cell@*.service"), slices.IndexFunc(r.ran,
			func(s string) bool { return !strings.HasPrefix(s, "systemctl stop") })
		if stop < 0 || other < stop || isThere(tree) || !isThere(home+"/.codex") {
			t.Errorf("without %q it ran %q", gone, r.ran)
		}
	}
	for name, undo := range map[string]func(*rig) error{"undo": (*rig).undoAll, "purge": func(r *rig) error {
		return r.uninstall(context.Background(), true, UndoOptions{Yes: true, Purge: true})
	}} {
		top, home, tree := made(t)
		events := top + "/cgroup/doorward.slice/doorward-cells.slice/doorward-cell@work.service/cgroup.events"
		write(t, events, "populated 1\nfrozen 0\n", 0o644)
		refused(t, undo(machine(t, top)), "doorward-cell@work.service")
		if !isThere(tree+home+"/.codex/config.toml") || isThere(home+"/.codex") {
			t.Errorf("%s: a tree in use was touched", name)
		}
		write(t, events, "populated 0\nfrozen 0\n", 0o644)
		if must(t, undo(machine(t, top))); isThere(tree) || !isThere(home+"/.codex/config.toml") {
			t.Errorf("control, %s: with the cell ended it is not undone", name)
		}
	}
}

// An account that setup added goes while authd can be asked: before all is stopped. In a store that was there before it is
// the only thing that does.
func TestTheAccountGoesBeforeAuthdStops(t *testing.T) {
	for _, fails := range []bool{false, true} {
		top := inMemory(t)
		populate(t, top)
		write(t, top+"/var/lib/doorward/authd/store", "of others", 0o600)
		must(t, machine(t, top).setUp(false))
		r := machine(t, top)
		var ran []string
		r.RemoveAccount = func(name string) error {
			ran = slices.Clone(r.ran)
			if fails {
				return errors.New("it is down")
			}
			return nil
		}
		if err := r.undoAll(); fails {
			refused(t, err, "account code")
		} else if err != nil || len(ran) > 0 {
			t.Errorf("%v; asked after %q", err, ran)
		}
		if !isThere(top+"/var/lib/doorward/authd/store") || isThere(top+"/var/lib/doorward/cells/work") {
			t.Error("the store of others is gone, or the rest is not")
		}
	}
}

// A setup that goes on works in no tree of a cell that lives.
func TestNothingIsMovedIntoALiveCell(t *testing.T) {
	top := inMemory(t)
	populate(t, top)
	write(t, top+"/cgroup/doorward.slice/doorward-cells.slice/doorward-cell@work.service/cgroup.events", "populated 1\n", 0o644)
	r := machine(t, top)
	refused(t, r.setUp(false), "does not end")
	if !slices.Contains(r.ran, "systemctl stop doorward-cell@work.service") || !isThere(top+"/home/ada/.codex") {
		t.Errorf("ran %q", r.ran)
	}
}

// What the agent left in its tree keeps nothing from being undone that is not in the tree, and what cannot be moved back
// is not lost. There is a way on.
func TestTheAgentCannotKeepItselfFromBeingUndone(t *testing.T) {
	// As the agent leaves it. Each has the settings somewhere.
	for name, attack := range map[string]func(tree, home string) error{
		"a link for the home": func(tree, home string) error {
			return errors.Join(os.Rename(tree+home, tree+"/srv/was"), os.Symlink("/nowhere", tree+home))
		},
		"a link within": func(tree, home string) error {
			return errors.Join(os.Rename(tree+home, tree+"/srv/was"), os.Symlink("../../srv/was", tree+home))
		},
		"the home moved away": func(tree, home string) error { return os.Rename(tree+home, tree+"/srv/was") },
		"a file for the home": func(tree, home string) error {
			return errors.Join(os.Rename(tree+home, tree+"/srv/was"), os.WriteFile(tree+home, nil, 0o600))
		},
		"settings moved away": func(tree, home string) error { return os.Rename(tree+home+"/.codex", tree+"/srv/was") },
		"depth":               func(tree, home string) error { return deep(tree+home+"/.codex", 2000) },
		"names of a move": func(tree, home string) error {
			return errors.Join(os.WriteFile(tree+home+"/.codex"+going, nil, 0o600), os.Remove(tree+home+"/.codex/config.toml"))
		},
	} {
		for _, purge := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, purge %v", name, purge), func(t *testing.T) {
				top, home, tree := made(t)
				write(t, tree+home+"/work.txt", "a day's work", 0o600)
				must(t, attack(tree, home))
				undo := func() (*rig, error) {
					r := machine(t, top)
					if purge {
						return r, r.uninstall(context.Background(), len(r.j.Records) > 0, UndoOptions{Yes: true, Purge: true})
					}
					return r, r.undoAll()
				}
				for range 2 { // again it is no other
					r, err := undo()
					said := strings.Join(r.said, "\n")
					if err == nil {
						if b, err := os.ReadFile(home + "/.codex/deep/er/file"); err != nil || string(b) != "text" {
							t.Errorf("it is undone, without the settings: %v", err)
						}
						return
					}
					refused(t, err, ".codex")
					if !strings.Contains(said, tree) || !strings.Contains(said, "rm -rf --one-file-system") {
						t.Errorf("it does not say what is left and how to go on: %s", said)
					}
					kept := isThere(tree+"/srv/was/work.txt") || isThere(tree+home+"/work.txt")
					if isMember(r.hosts, "ada", group) || isThere(r.key("store-key")) || isThere(r.stores()[0]) || !kept {
						t.Errorf("member %v, key %v, store %v, work kept %v", isMember(r.hosts, "ada", group), isThere(r.key("store-key")),
							isThere(r.stores()[0]), kept)
					}
					if b, err := os.ReadFile(top + "/usr/local/bin/openclaw"); err != nil || string(b) != "#!/bin/sh\n" {
						t.Errorf("the start of the other agent: %q %v", b, err)
					}
					if !slices.ContainsFunc(r.ran, func(s string) bool { return strings.Contains(s, " disable ") }) && !isThere(r.journal()) {
						t.Error("nothing was disabled")
					}
				}
				must(t, exec.Command("rm", "-rf", tree).Run())
				journal := machine(t, top).journal()
				half := halfWritten(journal) // as a cut within its writing leaves it
				if isThere(journal) {
					write(t, half, "{", 0o600)
				}
				r, err := undo()
				if err != nil || isThere(r.journal()) || isThere(half) {
					t.Errorf("it cannot be ended: %v", err)
				}
			})
		}
	}
}

// A home of the cell that cannot be looked at has work in it, as far as anybody knows.
func TestWorkInAHomeThatIsElsewhereIsKept(t *testing.T) {
	for name, to := range map[string]string{"a link": "/srv/ada", "a link within": "../../srv/ada", "gone": "", "control": "-"} {
		t.Run(name, func(t *testing.T) {
			top := inMemory(t)
			populate(t, top)
			_, err := with(t, top)
			must(t, err)
			home, tree := top+"/home/ada", top+"/var/lib/doorward/cells/work"
			write(t, tree+home+"/work.txt", "a day's work", 0o600)
			if to != "-" {
				must(t, os.Rename(tree+home, tree+"/srv/ada"))
			}
			if to != "-" && to != "" {
				link(t, to, tree+home)
			}
			err = machine(t, top).undoAll()
			if name == "control" {
				kept, _ := filepath.Glob(home + "/doorward-work-*/work.txt")
				if must(t, err); len(kept) != 1 || isThere(tree) {
					t.Errorf("it is not kept: %q", kept)
				}
				return
			}
			if refused(t, err, "tree"); !isThere(tree + "/srv/ada/work.txt") {
				t.Error("it is lost")
			}
		})
	}
}

func deep(in string, depth int) error {
	fd, err := syscall.Open(in, syscall.O_DIRECTORY, 0)
	for i := 0; i < depth && err == nil; i++ {
		if err = syscall.Mkdirat(fd, "d", 0o755); err == nil {
			was := fd
			fd, err = syscall.Openat(was, "d", syscall.O_DIRECTORY, 0)
			_ = syscall.Close(was)
		}
	}
	return errors.Join(err, syscall.Close(fd))
}

// A file of nothing but holes fills no disk, and what is between the holes is there.
func TestHolesAreCopiedAsHoles(t *testing.T) {
	top, home, tree := made(t)
	f, err := os.Create(tree + home + "/.codex/big")
	must(t, err)
	_, err = f.WriteAt([]byte("in the middle"), 64<<20)
	must(t, err, f.Truncate(8<<40), f.Close())
	soon(t, func() {
		if err := machine(t, top).undoAll(); err != nil {
			t.Error(err)
		}
	})
	var st syscall.Stat_t
	must(t, syscall.Stat(home+"/.codex/big", &st))
	if f, err = os.Open(home + "/.codex/big"); err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	b := make([]byte, 13)
	if _, err := f.ReadAt(b, 64<<20); err != nil || string(b) != "in the middle" || st.Size != 8<<40 || st.Blocks > 1000 {
		t.Errorf("%q %v, %d bytes in %d blocks", b, err, st.Size, st.Blocks)
	}
}

// A copy has bounds, each with words.
func TestACopyHasBounds(t *testing.T) {
	top := inMemory(t)
	write(t, top+"/a/b/f", "text", 0o600)
	root, err := os.OpenRoot(top)
	must(t, err)
	defer root.Close()
	d, name, err := walk(root, "a")
	must(t, err)
	for _, c := range []struct {
		copier
		depth int
		bad   bool
	}{{}, {copier{entries: maxEntries - 1}, 0, true}, {copier{bytes: maxBytes - 1}, 0, true}, {depth: maxDepth - 1, bad: true}} {
		c.only = anyone
		must(t, os.RemoveAll(top+"/out"))
		err := c.one(d, name, d, "out", c.depth)
		if !c.bad && err != nil {
			t.Errorf("control: %v", err)
		}
		if c.bad {
			refused(t, err, "more than setup copies")
		}
	}
}

// A service that cannot be asked about is no service that does not run.
func TestAnAgentsServiceIsStoppedForGood(t *testing.T) {
	for name, c := range map[string]struct {
		state string
		err   error
		gone  bool // the person has no manager
		why   string
	}{
		"cannot be asked":   {err: errors.New("no bus"), why: "no bus"},
		"no manager at all": {err: errors.New("no bus"), gone: true},
		"comes up again":    {state: "activating\n", why: "activating"},
		"does not stop":     {state: "active\n", why: "active"},
		"control":           {state: "inactive\n"},
		"control, failed":   {state: "failed\n"},
	} {
		t.Run(name, func(t *testing.T) {
			top := inMemory(t)
			populate(t, top)
			if c.gone {
				must(t, os.RemoveAll(top+"/run/user"))
			}
			r := machine(t, top)
			inner := r.run
			r.run = func(ctx context.Context, in []byte, name string, args ...string) (string, error) {
				if name == "systemctl" && args[0] == "--user" && (args[2] == "show" || c.err != nil) {
					return c.state, c.err
				}
				return inner(ctx, in, name, args...)
			}
			err := r.setUp(false)
			if c.why == "" {
				if must(t, err); !c.gone && !slices.Contains(r.ran, "systemctl --user --machine=ada@.host stop openclaw-gateway.service") {
					t.Error("it was not stopped")
				}
				return
			}
			if refused(t, err, c.why); !isThere(top + "/home/ada/.openclaw") {
				t.Error("its settings were moved from under it")
			}
		})
	}
	top, home, _ := made(t)
	r := machine(t, top)
	if i := slices.Index(r.ran, "systemctl --user --machine=ada@.host daemon-reload"); isThere(home + "/.config/systemd/user/openclaw-gateway.service") {
		t.Error(i)
	}
}

// An agent that runs outside would run on outside.
func TestAnAgentThatRunsIsNotMoved(t *testing.T) {
	for name, put := range map[string]func(dir, home string) error{
		"by its interpreter": func(dir, home string) error {
			return os.WriteFile(dir+"/cmdline", []byte("node\x00"+home+"/.npm-global/bin/codex\x00"), 0o444)
		},
		"a file open": func(dir, home string) error { return os.Symlink(home+"/.codex/log", dir+"/fd/7") },
		"its program": func(dir, home string) error {
			return os.Symlink(home+"/.npm-global/lib/node_modules/@openai/codex/bin/codex.js", dir+"/exe")
		},
		"control": func(dir, home string) error {
			return os.WriteFile(dir+"/cmdline", []byte("vi\x00-R\x00"+home+"/.codex/config.toml\x00"), 0o444)
		},
	} {
		t.Run(name, func(t *testing.T) {
			top := inMemory(t)
			populate(t, top)
			must(t, os.MkdirAll(top+"/proc/4242/fd", 0o755), put(top+"/proc/4242", top+"/home/ada"))
			was := look(t, top)
			r, err := with(t, top, "codex")
			if name == "control" {
				must(t, err)
				return
			}
			if refused(t, err, "4242"); len(r.ran) > 0 || differ(was, look(t, top)) != "" {
				t.Errorf("something was done: %q", r.ran)
			}
			r.lookUp = func(string) (person, error) { p := r.person; return p, nil }
			r.person.uid++ // another user's process is not the person's
			if pids, err := running(r.proc, r.person.uid, []string{top}); err != nil || len(pids) > 0 {
				t.Errorf("control: %q %v", pids, err)
			}
		})
	}
}

// Settings that would stay where they are, or be believed to be moved, are refused before anything is done.
func TestSettingsThatOnlySeemToMove(t *testing.T) {
	for _, kind := range []string{"a link above", "a link above that stays within", "a link itself", "planted going",
		"planted going of root", "another user's", "control"} {
		t.Run(kind, func(t *testing.T) {
			top := inMemory(t)
			populate(t, top)
			home := top + "/home/ada"
			at, live := home+"/.config/opencode", home+"/.config/opencode/opencode.json"
			switch kind {
			case "a link above", "a link above that stays within":
				live = home + "/dots/config/opencode/opencode.json"
				to := home + "/dots/config"
				if kind != "a link above" {
					to = "dots/config"
				}
				must(t, os.RemoveAll(home+"/.config"))
				link(t, to, home+"/.config")
			case "a link itself":
				live = home + "/dots/opencode/opencode.json"
				link(t, home+"/dots/opencode", at)
			case "planted going":
				write(t, at+going, "x", 0o600)
			case "planted going of root":
				must(t, os.MkdirAll(at+going, 0o700))
			case "another user's":
				write(t, at+"/key", "of root", 0o600)
				if err := os.Chown(at+"/key", 1234, 1235); err != nil {
					t.Skip(err)
				}
			}
			write(t, live, "hooks", 0o600)
			write(t, home+"/.opencode/bin/opencode", "#!/bin/sh\n", 0o755)
			was := look(t, top)
			r, err := with(t, top, "opencode")
			if kind == "control" {
				if must(t, err); isThere(live) {
					t.Error("it is live outside")
				}
				return
			}
			refused(t, err, ".config")
			if differ(was, look(t, top)) != "" || len(r.ran) > 0 {
				t.Error("something was done")
			}
		})
	}
}

// What is planted after a move was begun is not believed either.
func TestAHalfMoveIsSetupsOwn(t *testing.T) {
	top := inMemory(t)
	write(t, top+"/home/.codex/f", "settings", 0o600)
	must(t, os.MkdirAll(top+"/home/.codex"+going+"/"+inside, 0o700), os.Mkdir(top+"/tree", 0o755))
	home, err1 := os.OpenRoot(top + "/home")
	tree, err2 := os.OpenRoot(top + "/tree")
	must(t, err1, err2)
	me := owner{os.Getuid(), os.Getgid()}
	// Of this user it cannot be told from a half move: then what it would take away stays, as there is no copy.
	if _, err := moveAll(home, ".codex", tree, ".codex", me, me, me.UID); err == nil || !isThere(top+"/home/.codex/f") {
		t.Errorf("%v", err)
	}
	must(t, os.RemoveAll(top+"/home/.codex"+going), os.Mkdir(top+"/home/.codex"+going, 0o755))
	_, err := moveAll(home, ".codex", tree, ".codex", me, me, me.UID)
	if refused(t, err, "setup has not made it"); !isThere(top + "/home/.codex/f") {
		t.Error("it is gone")
	}
}

// Claude Code in ~/.claude/local goes with ~/.claude, starts in the cell, and comes back.
func TestAProgramAmongTheSettings(t *testing.T) {
	top := inMemory(t)
	populate(t, top)
	home, tree := top+"/home/ada", top+"/var/lib/doorward/cells/work"
	write(t, home+"/.claude/settings.json", "{}", 0o600)
	write(t, home+"/.claude/local/node_modules/@anthropic-ai/claude-code/cli.js", "x", 0o755)
	link(t, "node_modules/@anthropic-ai/claude-code/cli.js", home+"/.claude/local/claude")
	was := look(t, top)
	r, err := with(t, top, "claude")
	must(t, err)
	cmd := home + "/.claude/local/claude"
	if to, err := os.Readlink(tree + home + "/.local/bin/claude"); err != nil || to != cmd || !r.ours(cmd, "claude") {
		t.Errorf("%q %v", to, err)
	}
	if !isThere(tree+cmd) || isThere(home+"/.claude/settings.json") {
		t.Error("it is not moved")
	}
	must(t, machine(t, top).setUp(true), machine(t, top).undoAll())
	if diff := differ(was, look(t, top)); diff != "" {
		t.Errorf("undone it is another:\n%s", diff)
	}
}

// A command is found in the cell wherever it is in the home.
func TestACommandIsFoundInTheCell(t *testing.T) {
	for _, place := range []string{".local/share/pnpm", ".volta/bin", ".npm-global/bin"} {
		top := inMemory(t)
		populate(t, top)
		home := top + "/home/ada"
		must(t, os.RemoveAll(home+"/.npm-global"))
		write(t, home+"/"+place+"/codex", "#!/bin/sh\n", 0o755)
		_, err := with(t, top, "codex")
		must(t, err)
		to, err := os.Readlink(top + "/var/lib/doorward/cells/work" + home + "/.local/bin/codex")
		if err != nil || to != home+"/"+place+"/codex" {
			t.Errorf("%s: %q %v", place, to, err)
		}
	}
}

// One in a folder that is a link is refused before anything is done: it could not be replaced, and would start outside.
func TestACommandBehindALinkIsRefusedFirst(t *testing.T) {
	top := inMemory(t)
	populate(t, top)
	home := top + "/home/ada"
	must(t, os.RemoveAll(home+"/.npm-global"))
	write(t, home+"/dots/bin/codex", "#!/bin/sh\n", 0o755)
	link(t, "dots/bin", home+"/bin")
	was := look(t, top)
	_, err := with(t, top, "codex")
	if refused(t, err, home+"/bin is a link"); differ(was, look(t, top)) != "" {
		t.Error("something was done")
	}
}

// A cell of the admin's is not taken over, nor removed.
func TestACellThatWasThereIsNotTaken(t *testing.T) {
	for _, path := range []string{"/etc/doorward/cells/work.toml", "/var/lib/doorward/cells/work/etc/passwd"} {
		top := inMemory(t)
		populate(t, top)
		write(t, top+path, "# the admin's\n", 0o600)
		was := look(t, top)
		r := machine(t, top)
		if refused(t, r.setUp(false), "cell ="); differ(was, look(t, top)) != "" {
			t.Errorf("%s is another:\n%s", path, differ(was, look(t, top)))
		}
	}
}

// Who has the person's uid turns names while root copies: what root makes and chowns is out of their reach.
func TestALinkSwappedInTheHome(t *testing.T) {
	dir := inMemory(t)
	must(t, os.MkdirAll(dir+"/tree/c/deep", 0o755), os.Chmod(dir+"/tree/c/deep", 0o777), os.MkdirAll(dir+"/home/roots/deep", 0o700))
	for i := range 400 {
		write(t, fmt.Sprintf("%s/tree/c/deep/f%d", dir, i), "x", 0o600)
		write(t, fmt.Sprintf("%s/home/roots/deep/f%d", dir, i), "of root", 0o600)
	}
	write(t, dir+"/home/roots/deep/secret", "s", 0o600)
	was := look(t, dir+"/home/roots")
	from, err1 := os.OpenRoot(dir + "/tree")
	to, err2 := os.OpenRoot(dir + "/home")
	must(t, err1, err2)
	end, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		for n := 0; ; n++ {
			select {
			case <-end:
				return
			default:
			}
			// A copy is made where only root gets, as this test does, so it has the best of chances.
			deep := dir + "/home/new" + coming + "/" + inside + "/deep"
			if isThere(deep+"/f190") && os.Rename(deep, fmt.Sprintf("%s/home/was%d", dir, n)) == nil {
				_ = os.Symlink(dir+"/home/roots/deep", deep)
			}
		}
	}()
	for range 20 {
		_, _ = copyAll(from, "c", to, "new", owner{1000, 1000}, anyone)
		_ = os.RemoveAll(dir + "/home/new" + coming)
		_ = os.RemoveAll(dir + "/home/new")
	}
	close(end)
	<-ended
	if diff := differ(was, look(t, dir+"/home/roots")); diff != "" {
		t.Errorf("root's folder is another:\n%s", diff)
	}
	must(t, os.RemoveAll(dir+"/home"), os.MkdirAll(dir+"/home", 0o755))
	to, err := os.OpenRoot(dir + "/home")
	must(t, err)
	if _, err := copyAll(from, "c", to, "new", owner{os.Getuid(), os.Getgid()}, anyone); err != nil || !isThere(dir+"/home/new/deep/f7") {
		t.Errorf("control: %v", err)
	}
}

// No link is followed, not even one that stays in the folder, and no pipe is waited at.
func TestNoLinkIsFollowed(t *testing.T) {
	dir := inMemory(t)
	write(t, dir+"/secret", "s", 0o600)
	link(t, "secret", dir+"/l")
	link(t, ".", dir+"/d")
	must(t, syscall.Mkfifo(dir+"/pipe", 0o600))
	root, err := os.OpenRoot(dir)
	must(t, err)
	if f, err := root.OpenFile("l", os.O_RDONLY|syscall.O_NOFOLLOW, 0); err != nil { // control: Root itself follows it
		t.Errorf("control: %v %v", f, err)
	}
	soon(t, func() {
		for _, name := range []string{"l", "pipe", "d/secret", ".", "gone"} {
			if _, err := openRegular(root, name); err == nil {
				t.Errorf("%s is opened", name)
			}
		}
	})
	f, err := openRegular(root, "secret")
	must(t, err, f.Close())
}

// An agent that was left stopped has all of it again, by setup and by undoing.
func TestAfterStoppedThereIsAWayBack(t *testing.T) {
	for _, again := range []bool{true, false} {
		top := inMemory(t)
		populate(t, top)
		was := look(t, top)
		must(t, machine(t, top).setUp(false),
			machine(t, top).uninstall(context.Background(), true, UndoOptions{Yes: true, Stopped: true}))
		if again {
			r := machine(t, top)
			must(t, r.setUp(true))
			for cmd, agent := range map[string]string{"/usr/local/bin/openclaw": "openclaw", "/home/ada/.npm-global/bin/codex": "codex"} {
				if !r.ours(top+cmd, agent) || r.isStopped(top+cmd, agent) {
					t.Errorf("%s does not start in the cell", cmd)
				}
			}
		}
		r := machine(t, top)
		must(t, r.undoAll())
		if diff := differ(was, look(t, top)); diff != "" {
			t.Errorf("again %v, undone it is another:\n%s", again, diff)
		}
		if !slices.Contains(r.ran, "systemctl --user --machine=ada@.host start openclaw-gateway.service") {
			t.Errorf("again %v: its service is not started: %q", again, r.ran)
		}
	}
}

// Pipes and devices where setup reads neither hang it nor are touched.
func TestPipesHangNothing(t *testing.T) {
	home := inMemory(t)
	must(t, syscall.Mkfifo(home+"/.npmrc", 0o600))
	soon(t, func() { find(home, nil) })
	must(t, os.Remove(home+"/.npmrc"), syscall.Mkfifo(home+"/conf", 0o600))
	soon(t, func() {
		_, err := Load(home + "/conf")
		refused(t, err, "no regular file")
	})

	top, at, _ := made(t)
	cmd := at + "/.npm-global/bin/codex"
	must(t, os.Remove(cmd), syscall.Mkfifo(cmd, 0o600))
	soon(t, func() {
		if err := machine(t, top).undoAll(); err != nil {
			t.Error(err)
		}
	})
	write(t, home+"/rc", "prefix=~/tools\n", 0o600)
	link(t, home+"/rc", home+"/.npmrc") // leads out of the home that is opened, by its words
	if p := npmPrefix(home); p != "" {
		t.Errorf("a path was followed: %q", p)
	}
	must(t, os.Remove(home+"/.npmrc"))
	link(t, "rc", home+"/.npmrc")
	if p := npmPrefix(home); p != "tools" {
		t.Errorf("control: %q", p)
	}
}

// What the agent wrote is the person's when it comes back, and nobody else's.
func TestWhatTheAgentWroteIsNoOtherUsers(t *testing.T) {
	top, home, tree := made(t)
	r := machine(t, top)
	for _, x := range r.j.Records {
		if x.Op == opMove { // as an earlier version wrote it
			x.Owners = []byte(`{"deep/er/file":{"uid":1234,"gid":1235}}`)
		}
	}
	must(t, r.j.save())
	write(t, tree+home+"/.codex/deep/er/file", "of the agent", 0o755)
	must(t, machine(t, top).undoAll())
	var st syscall.Stat_t
	must(t, syscall.Stat(home+"/.codex/deep/er/file", &st))
	if int(st.Uid) != os.Getuid() {
		t.Errorf("it is of %d", st.Uid)
	}
}

// A file of root's among the settings is refused, and one among the programs is copied only if all may read it.
func TestRootsFilesStayRoots(t *testing.T) {
	for path, c := range map[string]struct {
		mode os.FileMode
		bad  bool
	}{
		".codex/x": {0o600, true},
		".codex/y": {0o644, true}, // it would come back as the person's
		".npm-global/lib/node_modules/@openai/codex/x": {0o600, true},
		".npm-global/lib/node_modules/@openai/codex/y": {0o644, false}, // as "sudo npm install" leaves it
	} {
		top := inMemory(t)
		populate(t, top)
		write(t, top+"/home/ada/"+path, "of another", c.mode)
		if err := os.Chown(top+"/home/ada/"+path, 1234, 1235); err != nil {
			t.Skip(err)
		}
		was := look(t, top)
		_, err := with(t, top, "codex")
		if c.bad && differ(was, look(t, top)) != "" {
			t.Errorf("%s: something was done before it was refused", path)
		}
		there := isThere(top + "/var/lib/doorward/cells/work" + top + "/home/ada/" + path)
		if c.bad {
			refused(t, err, "belongs to another user")
		} else if err != nil {
			t.Errorf("control: %v", err)
		}
		if there == c.bad {
			t.Errorf("%s in the cell: %v", path, there)
		}
	}
}

// A project is no folder of what starts an agent.
func TestNoProjectHoldsWhatStartsAnAgent(t *testing.T) {
	for project, bad := range map[string]bool{"tools": true, "tools/bin": true, "tools/lib": true, "tools/sub": true, "go": true,
		"engine": false} {
		top := inMemory(t)
		populate(t, top)
		home := top + "/home/ada"
		write(t, home+"/.npmrc", "prefix=~/tools\n", 0o600)
		write(t, home+"/tools/bin/codex", "#!/bin/sh\n", 0o755)
		must(t, os.MkdirAll(home+"/go/bin", 0o755), os.MkdirAll(home+"/"+project, 0o755))
		r := machine(t, top)
		c := r.chosen()
		c.Agents, c.Projects = []string{"codex"}, []string{home + "/" + project}
		r.opts = Options{Yes: true, Config: c}
		if err := r.do(context.Background(), false); bad {
			refused(t, err, "programs that run as you")
		} else if err != nil {
			t.Errorf("control: %v", err)
		}
	}
}

// What an update has put in the place of a command is its start from then on, in the cell and when it is undone.
func TestAnUpdateReplacesTheCommand(t *testing.T) {
	top, _, _ := made(t)
	cmd := top + "/usr/local/bin/openclaw"
	must(t, os.Remove(cmd))
	write(t, cmd, "#!/bin/sh\nnew\n", 0o755)
	write(t, top+"/home/ada/.codex/config.toml", "anew", 0o600)
	r := machine(t, top)
	if again, err := r.outside(); err != nil || !slices.Equal(again, []string{top + "/home/ada/.codex", cmd}) {
		t.Errorf("outside again: %q %v", again, err)
	}
	must(t, os.RemoveAll(top+"/home/ada/.codex"), r.setUp(true))
	if again, err := r.outside(); err != nil || len(again) > 0 || !r.ours(cmd, "openclaw") {
		t.Errorf("it starts outside still: %q %v", again, err)
	}
	must(t, machine(t, top).undoAll())
	if b, err := os.ReadFile(cmd); err != nil || string(b) != "#!/bin/sh\nnew\n" || isThere(cmd+before) {
		t.Errorf("%q %v", b, err)
	}
}

// Nothing is removed through what is mounted, of whatever file system.
func TestNothingIsRemovedThroughAMount(t *testing.T) {
	top, home := inMemory(t), "/home/ada"
	populate(t, top)
	write(t, top+"/proc/self/mountinfo", "23 22 8:1 /p "+top+home+"/.codex/deep rw - ext4 /dev/sda1 rw\n", 0o644)
	if refused(t, machine(t, top).setUp(false), "umount"); !isThere(top + home + "/.codex/deep/er/file") {
		t.Error("it was removed through a mount among the settings")
	}
	for _, at := range []string{"/var/lib/doorward/cells/work/srv/a b", "/var/lib/doorward/cells/work", "/var/lib/doorward/authd"} {
		top, home, tree := made(t)
		write(t, tree+"/srv/a b/file", "of a project", 0o600)
		mounts := fmt.Sprintf("22 1 8:1 / / rw - ext4 /dev/sda1 rw\n23 22 8:1 /p %s rw - ext4 /dev/sda1 rw\n",
			strings.ReplaceAll(top+at, " ", `\040`))
		write(t, top+"/proc/self/mountinfo", mounts, 0o644)
		r := machine(t, top)
		err := r.undoAll()
		refused(t, err, "all is undone but this")
		if !strings.Contains(strings.Join(r.said, "\n"), "umount "+top+at) || !isThere(top+at) {
			t.Errorf("%s: it does not say to unmount it, or has removed it: %v", at, r.said)
		}
		if isMember(r.hosts, "ada", group) || !isThere(home+"/.codex") {
			t.Error("the rest is not undone")
		}
		write(t, top+"/proc/self/mountinfo", "", 0o644)
		if must(t, machine(t, top).undoAll()); isThere(top + at) {
			t.Error("control: it is not removed without the mount")
		}
	}
}

// Who may write a configuration chooses what goes where.
func TestAConfigurationOfOthersIsNotTaken(t *testing.T) {
	dir := inMemory(t)
	for mode, bad := range map[os.FileMode]bool{0o666: true, 0o620: true, 0o602: true, 0o644: false, 0o600: false} {
		path := fmt.Sprintf("%s/%o", dir, mode)
		write(t, path, "cell = \"work\"\n", mode)
		if _, err := Load(path); bad {
			refused(t, err, "may write it")
		} else if err != nil {
			t.Error(err)
		}
	}
	path := dir + "/other"
	write(t, path, "cell = \"work\"\n", 0o600)
	if err := os.Chown(path, 1234, 1234); err != nil {
		t.Skip(err)
	}
	_, err := Load(path)
	refused(t, err, "may write it")
	t.Setenv("SUDO_UID", "1234")
	if _, err := Load(path); err != nil {
		t.Errorf("control: who called sudo wrote it: %v", err)
	}
}

// Programs that run as root are the system's, whatever PATH the caller has.
func TestProgramsAreTheSystems(t *testing.T) {
	dir := t.TempDir()
	write(t, dir+"/true", "#!/bin/sh\necho mine\n", 0o755)
	write(t, dir+"/onlymine", "#!/bin/sh\necho mine\n", 0o755)
	t.Setenv("PATH", dir+":/usr/bin:/bin")
	if b, err := exec.Command("true").CombinedOutput(); err != nil || string(b) != "mine\n" {
		t.Errorf("control: %q %v", b, err)
	}
	if said, err := run(context.Background(), nil, "true"); err != nil || said != "" {
		t.Errorf("%q %v", said, err)
	}
	_, err := run(context.Background(), nil, "onlymine")
	refused(t, err, "not installed")
}

// A mark is what anybody may write.
func TestAMarkIsNotBelieved(t *testing.T) {
	top := inMemory(t)
	populate(t, top)
	home := top + "/home/ada"
	must(t, os.Remove(home+"/.npm-global/bin/codex"))
	write(t, home+"/.local/bin/codex", "#!/bin/sh\n"+mark+"\nexec /bin/evil\n", 0o755)
	r, err := with(t, top, "codex")
	must(t, err)
	if !r.ours(home+"/.local/bin/codex", "codex") || !isThere(home+"/.local/bin/codex"+before) {
		t.Error("it starts outside still")
	}
}

// Pipes and sockets among settings go, and are named.
func TestWhatIsNoFileIsNamed(t *testing.T) {
	top := inMemory(t)
	populate(t, top)
	must(t, syscall.Mkfifo(top+"/home/ada/.codex/pipe", 0o600))
	r := machine(t, top)
	must(t, r.setUp(false))
	if !slices.ContainsFunc(r.said, func(s string) bool { return strings.Contains(s, ".codex/pipe is neither") }) {
		t.Errorf("%q", r.said)
	}
}

// What no cell's start would take is refused first.
func TestLimitsAreThoseOfACell(t *testing.T) {
	for text, bad := range map[string]bool{`memory = "lots"`: true, `memory = "0"`: true, `memory = "-1G"`: true,
		`memory = "9999999999T"`: true, "tasks = -5": true, "tasks = " + strconv.Itoa(maxTasks+1): true,
		`memory = "4G"`: false, "tasks = 2000": false} {
		if _, err := parse("f", []byte(text)); (err != nil) != bad {
			t.Errorf("%s: %v", text, err)
		}
	}
}
