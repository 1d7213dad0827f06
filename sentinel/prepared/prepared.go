// SPDX-License-Identifier: Apache-2.0

// Package prepared reads back the bodies that a worker rendered, before anybody decides about them. A worker may be an
// attacker's: its rendering is not believed. From the call's arguments, its mark, its time, and what the server held,
// this package works out what the body must say, with code of its own, and refuses a body that says anything else: a
// guest or a link more, another time, a field that no argument names, a second event, a line that two readers would
// read differently. The order of lines and the places where they are folded are the renderer's to choose; nothing else
// is.
//
// What the server held is believed to be the server's: the read was a call of its own, recorded as the caller's.
package prepared

import (
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/doorward/doorward/internal/describe"
	"github.com/doorward/doorward/internal/wire"
)

// Kinds of bodies, as describe.Prepare names them.
const (
	Calendar = "icalendar"
	Card     = "vcard"
)

// change is all that a body may be made from.
type change struct {
	method string
	values describe.Values
	mark   string
	unix   int64
	owner  string
}

// Verify says whether body is what a call of m with these values, this mark and this time (in seconds) may send, where
// the server held base (empty: nothing) and the account is owner's. Every error is a *wire.Error: bad_argument where
// the arguments do not fit what the server holds, else bad_prepared_body.
func Verify(kind string, m *describe.Method, v describe.Values, mark string, unix int64, owner string,
	base, body []byte) error {
	c := &change{m.Name, v, mark, unix, owner}
	for _, arg := range []string{"event", "contact"} { // a deletion of a folder takes all that is in it
		if strings.HasSuffix(v.One(arg), "/") {
			return usage("--%s: that is a folder; name one event or contact in it", arg)
		}
	}
	var err error
	switch kind {
	case Calendar:
		err = c.calendar(base, body)
	case Card:
		err = c.card(base, body)
	default:
		err = fmt.Errorf("a body of kind %q has no reader", kind)
	}
	var refusal *wire.Error
	if err == nil || errors.As(err, &refusal) {
		return err
	}
	return wire.Refuse(wire.CodeBadPreparedBody, "the worker rendered something else than the call says: "+err.Error(),
		"nothing was sent; doorward audit show has the call")
}

func usage(format string, a ...any) error {
	return wire.Refuse(wire.CodeBadArgument, fmt.Sprintf(format, a...), "")
}

// explained bounds the parts of an object in which a difference is looked for in order to name it.
const explained = 50

// equal holds got to want, which may differ in the order of their lines only.
func equal(want, got *component) error {
	if want.canon() == got.canon() {
		return nil
	}
	if want.parts()+got.parts() < explained {
		if err := same("", want, got); err != nil {
			return err
		}
	}
	return fmt.Errorf("%s differs", quoted(got.name))
}

// same names a difference between want and got, where they are not equal. Its time grows with the square of parts.
func same(where string, want, got *component) error {
	if want.name != got.name {
		return fmt.Errorf("%s stands in place of %s", quoted(got.name), quoted(want.name))
	}
	left := map[string]int{}
	for i := range want.props {
		left[want.props[i].key()]++
	}
	for i := range got.props {
		k := got.props[i].key()
		if left[k] == 0 {
			return fmt.Errorf("%s%s: %s is more or other than the call says", where, got.name, quoted(k))
		}
		left[k]--
	}
	for k, n := range left {
		if n > 0 {
			return fmt.Errorf("%s%s: %s is missing", where, want.name, quoted(k))
		}
	}
	if len(want.subs) != len(got.subs) {
		return fmt.Errorf("%s%s holds %d parts, it should be %d", where, got.name, len(got.subs), len(want.subs))
	}
	// Parts are paired by what they say: each of got must equal one of want that is not taken.
	taken := make([]bool, len(want.subs))
next:
	for _, g := range got.subs {
		var why error
		for i, w := range want.subs {
			if taken[i] || w.name != g.name || w.id() != g.id() {
				continue
			}
			if why = same(where+got.name+" ", w, g); why == nil {
				taken[i] = true
				continue next
			}
		}
		if why == nil {
			why = fmt.Errorf("%s%s: %s is more than the call says", where, got.name, quoted(g.name))
		}
		return why
	}
	return nil
}

func quoted(s string) string {
	if len(s) > 80 {
		s = s[:80]
	}
	return strconv.QuoteToASCII(s)
}
