// SPDX-License-Identifier: Apache-2.0

package prepared

import (
	"errors"
	"slices"
	"strings"

	"github.com/doorward/doorward/internal/wire"
)

// card holds the body of a contact to the call.
func (c *change) card(base, body []byte) error {
	switch c.method {
	case "contact-delete":
		if len(body) > 0 {
			return errors.New("a deletion has no body")
		}
		_, err := oneCard(base)
		return err
	case "contact-put":
	default:
		return errors.New(quoted(c.method) + " has no body")
	}
	replace := c.values.One("contact") != ""
	want := &component{name: "VCARD"}
	switch {
	case replace == (c.values.One("book") != ""):
		return usage("--book: say where a new contact goes, or --contact which is to be changed")
	case replace:
		var err error
		if want, err = oneCard(base); err != nil {
			return err
		}
	case len(base) > 0:
		return errors.New("a new contact builds on nothing")
	case c.values.One("name") == "":
		return usage("--name: a new contact needs one")
	default:
		want.props = []property{simple("VERSION", "3.0"), simple("PRODID", product), simple("UID", c.mark)}
	}
	if name := c.values.One("name"); name != "" {
		want.put(simple("FN", inText(name)))
		want.put(simple("N", inText(name)+";;;;"))
	}
	for arg, name := range map[string]string{"email": "EMAIL", "phone": "TEL"} {
		if v := c.values[arg]; len(v) > 0 {
			only(want, name, v)
		}
	}
	if !replace || want.get("REV") != nil {
		want.put(simple("REV", c.stamp()))
	}
	got, err := read(body, true)
	if err != nil {
		return err
	}
	return equal(want, got)
}

// oneCard is the contact that the server holds: what is called a contact must be one, or its deletion would take an
// event, with the mails that the server then sends, or all of an address book.
func oneCard(base []byte) (*component, error) {
	c, err := read(base, false)
	if err != nil || c.name != "VCARD" || len(c.subs) > 0 {
		return nil, wire.Refuse(wire.CodeVendorRefused, "what the server holds there is no contact that can be changed",
			"change it in another program")
	}
	return c, nil
}

// only makes the values of a property, whatever its group, these: lines that say one of them stay, others go, and what
// is missing is added.
func only(card *component, name string, values []string) {
	var there []string
	card.props = slices.DeleteFunc(card.props, func(p property) bool {
		if _, of, ok := strings.Cut(p.name, "."); p.name != name && (!ok || of != name) {
			return false
		}
		text := outText(p.value)
		if !slices.Contains(values, text) || slices.Contains(there, text) {
			return true
		}
		there = append(there, text)
		return false
	})
	for _, v := range values {
		if !slices.Contains(there, v) {
			there = append(there, v)
			card.props = append(card.props, simple(name, inText(v)))
		}
	}
}
