// SPDX-License-Identifier: Apache-2.0

package setup

import (
	"fmt"
	"net/url"
	"slices"
	"strings"

	"github.com/doorward/doorward/internal/wire"
)

// ask asks for a configuration. What has a good default is not asked; a file says it.
func (s *setup) ask() error {
	if !s.Terminal {
		return wire.Refuse(wire.CodeUsage, "no terminal to ask at", "run it at a terminal, or with --config FILE")
	}
	c := &s.j.Config
	if c.Person = s.opts.Login; c.Person == "" {
		name, err := s.question("Whose agent is it? The name of a user of this machine:")
		if err != nil {
			return err
		}
		c.Person = name
	}
	var err error
	if s.person, err = s.lookUp(c.Person); err != nil {
		return err
	}
	if err := c.fill(); err != nil {
		return err
	}
	for _, part := range []func() error{s.askAgents, s.askProjects, s.askSites, s.askAccount} {
		if err := part(); err != nil {
			return err
		}
	}
	return nil
}

func (s *setup) question(q string) (string, error) {
	line, err := s.Question(q)
	return strings.TrimSpace(line), err
}

// askAgents asks which of the agents that are there go into the cell. Where there is none there is no question.
func (s *setup) askAgents() error {
	found := find(s.person.home, s.system)
	c := &s.j.Config
	c.Agents = []string{}
	if len(found) == 0 {
		s.Note("no agent is found for " + s.person.name + ": install one, then doorward setup again; or install it in the cell")
		return nil
	}
	var names []string
	for _, f := range found {
		names = append(names, f.Name)
		s.Say("found %s: %s", f.Title, strings.Join(slices.Concat(f.Commands, tilde(f.Settings), f.Units), ", "))
	}
	line, err := s.question(fmt.Sprintf("Which go into the cell? [%s; - for none]:", strings.Join(names, " ")))
	if err != nil {
		return err
	}
	switch words := strings.Fields(strings.ReplaceAll(line, ",", " ")); {
	case len(words) == 0:
		c.Agents = names
	case words[0] != "-":
		c.Agents = words
	}
	return s.take(found)
}

func tilde(paths []string) []string {
	var out []string
	for _, p := range paths {
		out = append(out, "~/"+p)
	}
	return out
}

func (s *setup) askProjects() error {
	line, err := s.question("Which project folders may it read and write? Full paths or ~/..., between spaces [none]:")
	if err != nil {
		return err
	}
	s.j.Config.Projects = strings.Fields(line)
	return s.folders()
}

// askAccount asks for the first account: "github", or "dav https://cal.example.org/dav". A server of one's own may need
// more, by the names that a configuration has for it: "ca=/root/ca.pem permit=10.0.0.5:443".
func (s *setup) askAccount() error {
	line, err := s.question("First account? `github`, `dav https://SERVER/PATH user=NAME`, or nothing for none:")
	if err != nil {
		return err
	}
	words := strings.Fields(line)
	if len(words) == 0 {
		return nil
	}
	a, err := account(words)
	if err != nil {
		return err
	}
	if _, err := s.TestCall(a.Connector, a.Name); err != nil {
		return err
	}
	if a.Connector == "dav" && a.User == "" { // which the plan says
		a.User = s.person.name
	}
	s.j.Config.Account = a
	return s.j.Config.fill()
}

// account reads the words of an account.
func account(words []string) (*Account, error) {
	bad := func(why, next string) (*Account, error) {
		return nil, wire.Refuse(wire.CodeBadArgument, "the account: "+why, next)
	}
	a := &Account{Connector: words[0], Name: words[0]}
	for _, w := range words[1:] {
		key, value, ok := strings.Cut(w, "=")
		switch {
		case !ok || strings.Contains(key, "/"):
			u, err := url.Parse(w)
			if err != nil || u.Host == "" || u.User != nil || a.Base != "" {
				return bad(fmt.Sprintf("%.80q is no address", w), "write it as https://cal.example.org/dav")
			}
			a.Base = w
		case key == "name":
			a.Name = value
		case key == "ca":
			a.CA = value
		case key == "user":
			a.User = value
		case key == "owner":
			a.Owner = value
		case key == "permit":
			a.Permit = append(a.Permit, value)
		default:
			return bad(fmt.Sprintf("there is no %.40q", key), "name, ca, user, owner or permit; the secret is asked for later")
		}
	}
	if a.Connector == "dav" && a.Base == "" {
		return bad("a calendar has a server of its own", "write it as: dav https://cal.example.org/dav")
	}
	return a, nil
}
