// SPDX-License-Identifier: Apache-2.0

package setup

import (
	"bufio"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
)

// agent is what is known of an agent's files. Paths are relative to the home of the person who uses it.
type agent struct {
	name     string // of its command, and in a configuration
	title    string
	settings []string // files and folders that make it what it is for the person: settings, logins, sessions
	programs []string // folders of an installation without npm that go with its command as a whole
	units    []string // user units that run it, as the beginnings of their names
	model    string   // the set of sites of the one provider that it is made for
}

// agents are those that setup takes into a cell. The places are those of the agents' own documentation and installers.
var agents = []agent{
	{name: "claude", title: "Claude Code", model: "anthropic",
		settings: []string{".claude", ".claude.json", ".config/claude", ".local/state/claude"},
		programs: []string{".local/share/claude"}},
	{name: "codex", title: "Codex", model: "openai", settings: []string{".codex"}},
	{name: "opencode", title: "OpenCode",
		settings: []string{".config/opencode", ".local/share/opencode", ".local/state/opencode"}},
	{name: "openclaw", title: "OpenClaw", settings: []string{".openclaw", ".moltbot", ".clawdbot"}, // its former names too
		units: []string{"openclaw-gateway", "openclaw-node", "moltbot-gateway", "clawdbot-gateway"}},
}

func agentNames() []string {
	var names []string
	for _, a := range agents {
		names = append(names, a.name)
	}
	return names
}

// programPlaces are folders of commands in a home, where npm, its relatives and the agents' own installers put them.
var programPlaces = []string{".local/bin", "bin", ".npm-global/bin", ".npm-packages/bin", ".node/bin", ".opencode/bin",
	".bun/bin", ".volta/bin", ".local/share/pnpm", ".claude/local", ".nvm/versions/node/*/bin",
	".local/share/fnm/node-versions/*/installation/bin"}

// systemPlaces are those for all users of the machine.
var systemPlaces = []string{"/usr/local/bin", "/usr/bin"}

// unitFolder is where a person's own units are.
const unitFolder = ".config/systemd/user"

// Found is an agent that is installed.
type Found struct {
	Name      string   `json:"name"`
	Title     string   `json:"title"`
	Commands  []string `json:"commands,omitempty"` // absolute paths of what starts it
	Settings  []string `json:"settings,omitempty"` // relative to the home
	Units     []string `json:"units,omitempty"`    // names of user units
	UnitFiles []string `json:"unit_files,omitempty"`
}

// find finds the agents of a person. An agent whose settings are there and whose command is not counts: it may be
// installed where nobody looks, and its settings are what it acts with.
func find(home string, system []string) []Found {
	places := slices.Clone(programPlaces)
	if p := npmPrefix(home); p != "" {
		places = append(places, p+"/bin")
	}
	var all []Found
	for _, a := range agents {
		f := Found{Name: a.name, Title: a.title}
		for _, place := range places {
			some, _ := filepath.Glob(filepath.Join(home, place, a.name)) // the patterns are right
			for _, p := range some {
				f.addCommand(p)
			}
		}
		for _, place := range system {
			f.addCommand(filepath.Join(place, a.name))
		}
		for _, s := range a.settings {
			_, err := os.Lstat(filepath.Join(home, s))
			if !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, syscall.ENOTDIR) { // what cannot be looked at is refused later
				f.Settings = append(f.Settings, s)
			}
		}
		for _, u := range a.units {
			// Of a profile the name goes on behind a hyphen; the link below a .wants folder is what starts it.
			for _, pattern := range []string{"%.service", "%-*.service", "*.wants/%.service", "*.wants/%-*.service"} {
				some, _ := filepath.Glob(filepath.Join(home, unitFolder, strings.Replace(pattern, "%", u, 1)))
				for _, p := range some {
					rel, _ := filepath.Rel(home, p)
					f.UnitFiles = append(f.UnitFiles, rel)
					if filepath.Dir(rel) == unitFolder {
						f.Units = append(f.Units, filepath.Base(p))
					}
				}
			}
		}
		if len(f.Commands)+len(f.Settings)+len(f.UnitFiles) > 0 {
			all = append(all, f)
		}
	}
	return all
}

// addCommand adds a command if it is one that can be started.
func (f *Found) addCommand(path string) {
	st, err := os.Stat(path) // a link that leads nowhere starts nothing
	if err != nil || !st.Mode().IsRegular() || st.Mode()&0o111 == 0 || slices.Contains(f.Commands, path) {
		return
	}
	f.Commands = append(f.Commands, path)
}

// npmPrefix is the folder below a home that ~/.npmrc has npm install into, relative to it, or "".
func npmPrefix(home string) string {
	in, err := os.OpenRoot(home)
	if err != nil {
		return ""
	}
	defer in.Close()
	file, err := in.OpenFile(".npmrc", os.O_RDONLY|syscall.O_NONBLOCK, 0) // a link within the home is followed
	if err != nil {
		return ""
	}
	defer file.Close()
	if st, err := file.Stat(); err != nil || !st.Mode().IsRegular() {
		return ""
	}
	for lines := bufio.NewScanner(io.LimitReader(file, maxConfig)); lines.Scan(); {
		key, value, ok := strings.Cut(lines.Text(), "=")
		if !ok || strings.TrimSpace(key) != "prefix" {
			continue
		}
		value = strings.Trim(strings.TrimSpace(value), `"'`)
		for _, own := range []string{"~", "${HOME}", "$HOME"} {
			if rest, ok := strings.CutPrefix(value, own+"/"); ok {
				value = filepath.Join(home, rest)
			}
		}
		if rel, ok := below(home, filepath.Clean(value)); ok && !strings.ContainsAny(rel, `*?[\`) {
			return rel
		}
	}
	return ""
}

// below is path relative to dir, where it is in it.
func below(dir, path string) (string, bool) {
	rel, err := filepath.Rel(dir, path)
	if err != nil || rel == "." || rel == ".." || strings.HasPrefix(rel, "../") {
		return "", false
	}
	return rel, true
}

// program are the files of a command in the home, relative to it, that make it run in another home of the same path:
// itself, what it leads to, and the node beside it. outside is set where it leads out of the home.
func program(home, command string) (files []string, outside string) {
	add := func(path string) bool {
		rel, ok := below(home, path)
		if ok && !slices.ContainsFunc(files, func(f string) bool { return rel == f || strings.HasPrefix(rel, f+"/") }) {
			files = append(files, rel)
		}
		return ok
	}
	if !add(command) {
		return nil, ""
	}
	real, err := filepath.EvalSymlinks(command)
	if err != nil {
		return files, ""
	}
	whole := real
	if before, after, ok := strings.Cut(real, "/node_modules/"); ok { // the package, with its own dependencies in it
		name := strings.SplitN(after, "/", 3)
		n := 1
		if strings.HasPrefix(name[0], "@") && len(name) > 1 {
			n = 2
		}
		whole = before + "/node_modules/" + strings.Join(name[:n], "/")
	}
	for _, a := range agents {
		for _, p := range a.programs {
			if _, ok := below(filepath.Join(home, p), real); ok {
				whole = filepath.Join(home, p)
			}
		}
	}
	if !add(whole) {
		outside = real
	}
	if node := filepath.Join(filepath.Dir(command), "node"); isFile(node) {
		add(node)
		if real, err := filepath.EvalSymlinks(node); err == nil {
			add(real)
		}
	}
	return files, outside
}

func isFile(path string) bool {
	st, err := os.Stat(path)
	return err == nil && st.Mode().IsRegular()
}
