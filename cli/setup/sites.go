// SPDX-License-Identifier: Apache-2.0

package setup

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/pelletier/go-toml/v2"
)

// siteSets are the named sets of sites that policy knows, which a test holds against it.
var siteSets = []string{"anthropic", "crates", "debian", "github-read", "go", "google-ai", "npm", "openai", "openrouter", "pypi"}

// registries are the sets of the programs that fetch packages, by the programs' names.
var registries = []struct{ program, set string }{{"npm", "npm"}, {"pip", "pypi"}, {"pip3", "pypi"}, {"uv", "pypi"}, {"cargo", "crates"},
	{"go", "go"}}

// wanted are the sets that the chosen agents need to begin with: those of their models' providers, where an agent has one of
// its own, and those of the package programs that the cell gets with this machine's /usr.
func (s *setup) wanted() []string {
	var out []string
	for _, f := range s.j.Found {
		for _, a := range agents {
			if a.name == f.Name && a.model != "" {
				out = append(out, a.model)
			}
		}
	}
	if s.j.Config.Tree == "mmdebstrap" {
		out = append(out, "debian")
	} else {
		for _, r := range registries {
			if slices.ContainsFunc(s.system, func(dir string) bool { return isFile(filepath.Join(dir, r.program)) }) {
				out = append(out, r.set)
			}
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// askSites asks which sets of sites cells reach without a question each. A policy that says so already is not asked about.
func (s *setup) askSites() error {
	if says, _ := saysSites(s.policy()); says {
		return nil
	}
	want := s.wanted()
	s.Say("sets of sites that policy knows: %s", strings.Join(siteSets, ", "))
	line, err := s.question(fmt.Sprintf("Which of them may it reach without asking? [%s]:",
		strings.TrimPrefix(strings.Join(append(want, "- for none"), "; "), "; ")))
	if err != nil {
		return err
	}
	c := &s.j.Config
	switch words := strings.Fields(strings.NewReplacer(",", " ", ";", " ").Replace(line)); {
	case len(words) == 0:
		c.Sites = want
	case words[0] != "-":
		c.Sites = words
	}
	return c.fill()
}

// saysSites says whether a policy names sets of sites itself. What cannot be read as one is the person's to mend, and counts so.
func saysSites(path string) (bool, error) {
	b, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return true, err
	}
	var doc map[string]any
	if err := toml.Unmarshal(b, &doc); err != nil {
		return true, fmt.Errorf("%s: %w", path, err)
	}
	_, says := doc["sites"]
	return says, nil
}

func sitesLine(sets []string) string {
	return "sites = [" + strings.Join(quoted(sets), ", ") + "]\n"
}

func quoted(words []string) []string {
	var out []string
	for _, w := range words {
		out = append(out, fmt.Sprintf("%q", w))
	}
	return out
}

// sitesStep writes the line into the policy, which is the person's file: only where the file or the line is missing. One that
// setup has made is taken up at once, by the yes to setup, and holds nothing but that line and remarks. In one that was there
// may be what nobody has decided yet, so that a person loads it.
func (s *setup) sitesStep() step {
	path, line := s.policy(), sitesLine(s.j.Config.Sites)
	own := Record{Op: opSites, Path: path}
	return step{says: "have cells reach the sites of " + strings.Join(s.j.Config.Sites, ", ") + " without asking, by a line in " + path,
		record: own,
		there: func() (bool, error) {
			if r := s.j.find(&own); r != nil {
				return r.Done, nil
			}
			says, _ := saysSites(path)
			return says, nil
		},
		do: func(_ context.Context, r *Record) error {
			text, err := os.ReadFile(path)
			switch {
			case errors.Is(err, fs.ErrNotExist):
				text = s.firstPolicy(line)
				r.To, r.Sum = line, sum(text)
			case err != nil:
				return err
			case r.To != "" && bytes.Contains(text, []byte(r.To)): // of a run that was cut off
				line = r.To
			default: // before all tables
				text = append([]byte(line), text...)
				r.To, r.Sum = line, ""
			}
			if err := errors.Join(s.j.save(), writeDurably(path, text, 0o644)); err != nil {
				return err
			}
			if !s.alone(r) {
				s.Note(path + " was there and now has: " + strings.TrimSpace(line) + "; it is in force after: doorward policy load")
				return nil
			}
			return s.LoadPolicy()
		}}
}

// firstPolicy is a policy with the package's remarks, which are all of its default, and one line.
func (s *setup) firstPolicy(line string) []byte {
	text, err := os.ReadFile(filepath.Join(s.share, "policy.toml"))
	var doc map[string]any
	if err != nil || toml.Unmarshal(text, &doc) != nil || len(doc) > 0 {
		text = []byte("# What your agents may do. After a change: doorward policy check, then doorward policy load.\n")
	}
	return slices.Concat(bytes.TrimRight(text, "\n"), []byte("\n\n# By doorward setup:\n"), []byte(line))
}

// alone says whether the policy's folder holds what setup wrote there and nothing else.
func (s *setup) alone(r *Record) bool {
	all, err := os.ReadDir(filepath.Dir(r.Path))
	b, bad := os.ReadFile(r.Path)
	return err == nil && bad == nil && len(all) == 1 && r.Sum != "" && sum(b) == r.Sum
}

// unsite takes the line back. A file that setup has made and nobody has changed since goes as a whole.
func (u *undoing) unsite(r *Record) error {
	st, err := os.Stat(r.Path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	b, err := os.ReadFile(r.Path)
	switch {
	case err != nil:
		return err
	case r.Sum != "" && sum(b) == r.Sum:
		return os.Remove(r.Path)
	case r.To == "": // cut off before it was written
		return nil
	case bytes.HasPrefix(b, []byte(r.To)):
		b = b[len(r.To):]
	case bytes.Contains(b, []byte("\n"+r.To)):
		b = bytes.Replace(b, []byte("\n"+r.To), []byte("\n"), 1)
	default:
		return nil
	}
	if r.Sum != "" {
		u.Note(r.Path + " was changed since setup made it, and stays, without setup's line of sites")
	}
	return writeDurably(r.Path, b, st.Mode().Perm())
}
