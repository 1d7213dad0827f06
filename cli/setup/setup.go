// SPDX-License-Identifier: Apache-2.0

// Package setup is `doorward setup` and `doorward uninstall`: it makes of an installed package a machine on which a
// person's agent works in a cell, and of that machine what it was before.
//
// It runs as root in folders of a person, and of an agent that may be hostile already. So nothing there is read or written
// through a path that somebody may turn (see files.go), or while a cell or the agent runs (see still.go), no secret is in
// its configuration or journal, and what it does is written down before it is done (see Journal).
package setup

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/doorward/doorward/internal/wire"
)

// Calls is what setup has the rest of the command do: to speak with the person, and with the daemons.
type Calls struct {
	Say      func(format string, args ...any)
	Note     func(string)
	Terminal bool                                // somebody sits there who can answer
	Question func(string) (string, error)        // one line
	Yes      func(question string) (bool, error) // only "yes" is one
	// Check says what of this machine does not do for Doorward, and what to do about it.
	Check func() error
	// CheckAccount says what of an account cannot be, before anything is done for it.
	CheckAccount func(a *Account) error
	// AddAccount adds an account and has it decided on. fd has its secret; below 0 it is asked for.
	AddAccount func(a *Account, fd int) error
	// Decide has it decided on whether an account may be used, where that waits.
	Decide        func(account string, yes bool) error
	Accounts      func() ([]wire.Account, error)
	RemoveAccount func(name string) error
	Unlock        func(fd int) error
	StartCell     func(name string) error
	// LoadPolicy takes up the policy folder, and decides what that widens.
	LoadPolicy func() error
	// TestCall is the words of a connector's read that proves an account, as a cell would write them.
	TestCall func(connector, account string) ([]string, error)
	// InCell runs a command in a cell and returns what it said and its exit code.
	InCell func(ctx context.Context, cell string, args []string) (string, int, error)
}

// Options are of one run of setup.
type Options struct {
	Config *Config // of --config; nil: it is asked for
	Yes    bool    // do not ask whether to begin
	Plan   bool    // say what would be done, and do nothing
	Login  string  // the person's name where it is known who they are, as from sudo; "" to ask
}

// setup is one run.
type setup struct {
	Calls
	places
	run    runner
	lookUp func(name string) (person, error)
	opts   Options
	j      *Journal
	person person
	system []string // folders of commands of all users
}

func start(c Calls, o Options) (*setup, bool, error) {
	s := &setup{Calls: c, places: installed, run: run, lookUp: lookUp, opts: o, system: systemPlaces}
	again, err := s.open()
	return s, again, err
}

// open reads the journal, and who the person is where it says so.
func (s *setup) open() (again bool, err error) {
	if s.j, again, err = openJournal(s.journal()); err != nil || !again {
		return again, err
	}
	s.person, err = s.lookUp(s.j.Config.Person)
	return again, err
}

// Run sets the machine up, or goes on where an earlier run stopped.
func Run(ctx context.Context, c Calls, o Options) error {
	// Of a file what can be said anywhere is said first, also on a machine that will not do. Nobody is asked for nothing.
	if o.Config == nil {
		if err := c.Check(); err != nil {
			return err
		}
	}
	s, again, err := start(c, o)
	if err != nil {
		return err
	}
	return s.do(ctx, again)
}

func (s *setup) do(ctx context.Context, again bool) error {
	var err error
	switch {
	case again && s.opts.Config == nil:
		s.Note("going on with what was chosen before; to choose anew: doorward setup --undo")
	case again:
		err = s.change(s.opts.Config)
	case s.opts.Config != nil:
		s.j.Config = *s.opts.Config
		err = s.choose()
	default:
		err = s.ask()
	}
	if a := s.j.Config.Account; err == nil && a != nil {
		var there bool // then its files are not needed any more
		if there, err = s.done(Record{Op: opAccount, Name: a.Name})(); err == nil && !there {
			err = s.CheckAccount(a)
		}
	}
	if err != nil {
		return err
	}
	steps, err := s.steps()
	if err != nil {
		return err
	}
	if s.opts.Config != nil && !s.opts.Plan {
		if err := s.Check(); err != nil {
			return err
		}
	}
	if ok, err := s.show(steps); err != nil || !ok {
		return err
	}
	if s.opts.Plan {
		s.Note("nothing was done")
		return s.Check()
	}
	for _, f := range s.j.Found { // an agent that a service runs is stopped first
		if len(f.Units) == 0 && !s.settled(f) {
			if err := s.idle(f); err != nil {
				return err
			}
		}
	}
	for _, st := range steps {
		if err := s.step(ctx, st); err != nil {
			return failed(st.says, err)
		}
	}
	return s.prove(ctx)
}

// failed is a step's error with what a person can do about it.
func failed(what string, err error) error {
	var refused *wire.Error
	if errors.As(err, &refused) {
		return refused
	}
	return wire.Refuse(wire.CodeInternal, what+": "+err.Error(),
		"doorward setup goes on from there; doorward setup --undo takes all of it back")
}

// change takes up another configuration for a machine that is set up, or half. Whose it is and how its cell is called
// stay: what was done before was done for them.
func (s *setup) change(c *Config) error {
	old := s.j.Config
	if c.Person == "" {
		c.Person = old.Person
	}
	if c.Agents == nil {
		c.Agents = old.Agents
	}
	if c.Person != old.Person || c.Cell != old.Cell || c.Tree != old.Tree || c.Key != old.Key ||
		!slices.Equal(c.Agents, old.Agents) {
		return wire.Refuse(wire.CodeBadArgument, "this machine was set up with another person, cell, tree, key or agents",
			"doorward setup --undo, then set it up anew")
	}
	s.j.Config = *c
	return s.folders()
}

// choose completes a configuration from a file.
func (s *setup) choose() error {
	c := &s.j.Config
	if c.Person == "" {
		c.Person = s.opts.Login
	}
	if c.Person == "" {
		return wire.Refuse(wire.CodeBadArgument, "the configuration does not say whose agent it is", `add person = "NAME"`)
	}
	var err error
	if s.person, err = s.lookUp(c.Person); err != nil {
		return err
	}
	found := find(s.person.home, s.system)
	if c.Agents == nil {
		c.Agents = []string{}
		for _, f := range found {
			c.Agents = append(c.Agents, f.Name)
		}
	}
	return errors.Join(s.take(found), s.folders())
}

// take keeps the chosen ones of the agents that were found.
func (s *setup) take(found []Found) error {
	s.j.Found = nil
	for _, name := range s.j.Config.Agents {
		i := slices.IndexFunc(found, func(f Found) bool { return f.Name == name })
		if i < 0 {
			return wire.Refuse(wire.CodeNotFound, "agent "+name+" is not installed for "+s.person.name,
				"install it, or leave it out")
		}
		s.j.Found = append(s.j.Found, found[i])
	}
	return nil
}

// folders holds the chosen project folders to what may be one.
func (s *setup) folders() error {
	list := s.j.Config.Projects
	s.j.Config.Projects = []string{}
	for _, p := range list {
		real, err := project(p, s.person.home, s.person.uid)
		if err != nil {
			return err
		}
		for _, other := range s.j.Config.Projects {
			_, in := below(other, real)
			_, around := below(real, other)
			if in || around { // no cell starts with such, see package cells
				return wire.Refuse(wire.CodeBadArgument, "project folders "+other+" and "+real+" lie in each other",
					"name the outer one alone")
			}
		}
		if err := s.harmless(real); err != nil {
			return err
		}
		if !slices.Contains(s.j.Config.Projects, real) {
			s.j.Config.Projects = append(s.j.Config.Projects, real)
		}
	}
	return nil
}

// step is one thing that setup does.
type step struct {
	says   string
	record Record
	// there says whether it need not be done; what was there before setup is not setup's to take back.
	there func() (bool, error)
	do    func(ctx context.Context, r *Record) error
}

// step does one step, unless it is done.
func (s *setup) step(ctx context.Context, st step) error {
	ok, err := st.there()
	if err != nil || ok {
		return err
	}
	s.Say("  %s", st.says)
	r, err := s.j.begin(&st.record)
	if err != nil {
		return err
	}
	if err := st.do(ctx, r); err != nil {
		return err
	}
	r.Done = true
	return s.j.save()
}

// show says what will be done, and asks whether to.
func (s *setup) show(steps []step) (bool, error) {
	n := 0
	for _, st := range steps {
		if ok, err := st.there(); err != nil {
			return false, err
		} else if ok {
			continue
		}
		if n++; n == 1 {
			s.Say("What will be done, and can be undone by `doorward setup --undo`:")
		}
		s.Say("  %s", st.says)
	}
	if n == 0 {
		return true, nil
	}
	for _, line := range s.warnings() {
		s.Note(line)
	}
	if s.opts.Plan || s.opts.Yes || s.opts.Config != nil {
		return true, nil
	}
	ok, err := s.Yes("Do this?")
	if err == nil && !ok {
		s.Note("nothing was done")
	}
	return ok, err
}

// warnings are what a person may not expect of what is to be done.
func (s *setup) warnings() []string {
	var out []string
	if len(s.j.Found) > 0 {
		other, first := "", ", its model's provider first"
		if len(s.j.Config.Sites) > 0 {
			other, first = "other ", ""
		}
		out = append(out, "in the cell each "+other+"site that the agent connects to asks you once"+first+": doorward pending")
	}
	if says, err := saysSites(s.policy()); err != nil {
		out = append(out, "the policy cannot be read, so no sites are written there: "+err.Error())
	} else if says && s.j.find(&Record{Op: opSites, Path: s.policy()}) == nil {
		out = append(out, s.policy()+" says itself which sets of sites may be reached, and stays as it is: doorward policy sites")
	}
	for _, f := range s.j.Found {
		if len(f.Settings) > 0 {
			out = append(out, f.Title+"'s own settings and its login at its model's provider go into the cell as they are; "+
				"outside of it, it starts as if new")
		}
		for _, cmd := range f.Commands {
			out = append(out, cmd+" will start it in the cell, by: doorward run "+s.j.Config.Cell+" -- "+f.Name)
		}
		if len(f.Units) > 0 {
			out = append(out, f.Title+"'s own service is stopped and does not start in the cell by itself")
		}
	}
	if s.j.Config.Key == "passphrase" {
		out = append(out, "after each start of this machine nothing works until: doorward unlock")
	}
	return out
}

// settled says whether an agent's settings are in the cell, so that it does not run outside by what was found.
func (s *setup) settled(f Found) bool {
	for _, rel := range f.Settings {
		if r := s.j.find(&Record{Op: opMove, Path: rel, Name: f.Name}); r == nil || !r.Done {
			return false
		}
	}
	for _, cmd := range f.Commands {
		if r := s.j.find(&Record{Op: opCommand, Path: cmd, Name: f.Name}); r == nil || !r.Done {
			return false
		}
	}
	return true
}

// isThere is the state of a step that makes a file.
func (s *setup) isThere(path string) func() (bool, error) {
	return func() (bool, error) {
		_, err := os.Lstat(path)
		if errors.Is(err, fs.ErrNotExist) {
			return false, nil
		}
		return err == nil, err
	}
}

// done says whether a step's own record is whole.
func (s *setup) done(r Record) func() (bool, error) {
	return func() (bool, error) {
		o := s.j.find(&r)
		return o != nil && o.Done, nil
	}
}

// homes opens the person's home and the cell's tree.
// The caller closes both.
func (s *setup) homes() (home, tree *os.Root, err error) {
	return s.homeAnd(s.tree(s.j.Config.Cell))
}

func (s *setup) homeAnd(other string) (home, tree *os.Root, err error) {
	if home, err = os.OpenRoot(s.person.home); err != nil {
		return nil, nil, err
	}
	if tree, err = os.OpenRoot(other); err != nil {
		_ = home.Close()
		return nil, nil, err
	}
	return home, tree, nil
}

// inTree is a path of the person's home as it is in the cell's tree.
func (s *setup) inTree(rel string) string {
	return filepath.Join(strings.TrimPrefix(s.person.home, "/"), rel)
}
