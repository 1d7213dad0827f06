// SPDX-License-Identifier: Apache-2.0

// Package machine says what of Doorward is in force on this machine, by trying it: what the kernel can do, which
// units run and where, who may open which socket, and, for each wall, whether what it forbids is refused. It changes
// nothing and decides nothing; package operator prints what it found. It believes no unit file and no configuration
// about a wall: a drop-in, another mount or an older kernel takes a wall away without a word, and the file still has it.
//
// Every finding is made of a constant sentence and of values. A value that says something about a person (a name they
// chose, a path, an error's text) has a type of its own, so that a report can leave it out without a list of what to
// look for.
package machine

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"golang.org/x/sys/unix"
)

// State is how a check ended.
type State string

// The states. Only Wrong makes a machine unfit; Weak is what holds less than it could, and is named each time.
const (
	OK      State = "ok"
	Weak    State = "weak"
	Wrong   State = "wrong"
	Untried State = "untried" // what says why
)

// Finding is one thing that was tried. Check names it for programs and documents, and is constant.
type Finding struct {
	Check string `json:"check"`
	Of    Name   `json:"of,omitempty"` // the daemon or cell that a wall is of
	State State  `json:"state"`
	What  Text   `json:"what"`
	Next  string `json:"next,omitempty"` // what to do; of this program's own words and names of units only
}

// Name is a value that a person chose: of an account, a cell, a user, a path. Detail is text of others, as an error's.
type (
	Name   string
	Detail string
)

// Text is a sentence with its values.
type Text struct {
	format string
	args   []any
}

// Say makes a text. format is a constant; args that are no Name or Detail are ours: numbers, versions, names of units.
func Say(format string, args ...any) Text { return Text{format, args} }

// String is the whole text, for the person's own screen.
func (t Text) String() string { return fmt.Sprintf(t.format, t.args...) }

// MarshalJSON writes the whole text.
func (t Text) MarshalJSON() ([]byte, error) { return json.Marshal(t.String()) }

// Redacted is the text with each Name as mask says, and each Detail left out but for the kernel's error in it.
func (t Text) Redacted(mask func(Name) string) string {
	args := make([]any, len(t.args))
	for i, a := range t.args {
		switch v := a.(type) {
		case Name:
			args[i] = mask(v)
		case Detail:
			args[i] = "(left out)"
		case error:
			args[i] = kernelWord(v)
		case string, int, int64, uint64, uint32, bool, State:
			args[i] = v
		default:
			args[i] = "(left out)"
		}
	}
	return fmt.Sprintf(t.format, args...)
}

// kernelWord is what of an error the kernel said; the rest may name files and hosts.
func kernelWord(err error) string {
	var no unix.Errno
	if errors.As(err, &no) {
		return no.Error()
	}
	return "(left out)"
}

// Ok, Bad, Less and Not make findings: one that holds, one that is wrong, one that holds less than it could, and one that
// could not be tried.
func Ok(check, format string, args ...any) Finding {
	return Finding{Check: check, State: OK, What: Say(format, args...)}
}

func Bad(check, next, format string, args ...any) Finding {
	return Finding{Check: check, State: Wrong, What: Say(format, args...), Next: next}
}

func Less(check, next, format string, args ...any) Finding {
	return Finding{Check: check, State: Weak, What: Say(format, args...), Next: next}
}

func Not(check, format string, args ...any) Finding {
	return Finding{Check: check, State: Untried, What: Say(format, args...)}
}

// onlyRoot is what to do about what only root could try.
const onlyRoot = "sudo doorward doctor"

func rootOnly(check, format string, args ...any) Finding {
	f := Not(check, format, args...)
	f.Next = onlyRoot
	return f
}

// oneLine is text of a program's output as one line.
func oneLine(s string) string { return strings.Join(strings.Fields(s), " ") }
