// SPDX-License-Identifier: Apache-2.0

package setup

import (
	"context"
	"fmt"
	"strings"

	"github.com/doorward/doorward/internal/wire"
)

// prove ends a setup with what was it all for: the agent's programs, and a read of the account, in the cell and through
// the real units.
func (s *setup) prove(ctx context.Context) error {
	c := &s.j.Config
	var failed []string
	say := func(what, said string, code int, err error, next string) {
		said = strings.Join(strings.Fields(said), " ")
		if r := []rune(said); len(r) > 300 {
			said = string(r[:300]) + "…"
		}
		switch {
		case err != nil:
			said = err.Error()
		case code == 0:
			s.Say("passed: %s", what)
			return
		}
		failed = append(failed, what)
		s.Say("FAILED: %s: exit code %d: %s", what, code, said)
		s.Say("        next: %s", next)
	}
	for _, f := range s.j.Found {
		if len(f.Commands) == 0 {
			continue
		}
		said, code, err := s.InCell(ctx, c.Cell, []string{f.Name, "--version"})
		say(fmt.Sprintf("%s starts in cell %s", f.Title, c.Cell), said, code, err,
			"doorward shell "+c.Cell+", and install it there, in ~/.local/bin")
	}
	if a := c.Account; a != nil {
		words, err := s.TestCall(a.Connector, a.Name)
		if err != nil {
			return err
		}
		said, code, err := s.InCell(ctx, c.Cell, words)
		next := "doorward account test " + a.Name
		if code == 7 || strings.Contains(said, string(wire.CodeNotConnected)) {
			next = "doorward pending; doorward approve ID; then doorward setup again"
		}
		say("from cell "+c.Cell+": "+strings.Join(words, " "), said, code, err, next)
	}
	for _, line := range s.last() {
		s.Say("%s", line)
	}
	if len(failed) > 0 {
		return wire.Refuse(wire.CodeUnavailable, "it is set up, and this does not work: "+strings.Join(failed, "; "),
			"what is said above; doorward setup goes on from there")
	}
	return nil
}

// last is what a person does from here on.
func (s *setup) last() []string {
	c := &s.j.Config
	what := "bash"
	for _, f := range s.j.Found {
		if len(f.Commands) > 0 {
			what = f.Name
			break
		}
	}
	out := []string{"It is set up. How " + s.person.name + " works: doorward run " + c.Cell + " -- " + what}
	if r := s.j.find(&Record{Op: opMember, Name: s.person.name}); r != nil {
		out = append(out, s.person.name+" is new in group "+group+": log in again first, or that is refused")
	}
	return append(out, "What waits: doorward pending. To take all of this back: doorward setup --undo, or doorward uninstall")
}
