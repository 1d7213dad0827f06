// SPDX-License-Identifier: Apache-2.0

package dav

import (
	"slices"
	"strings"

	"github.com/doorward/doorward/internal/wire"
	"github.com/doorward/doorward/workers"
)

// renderContact makes a new card, or the one at the server with the named fields replaced. Of several addresses those
// that stay keep their lines, with type and label.
func renderContact(r *workers.Rendering) ([]byte, string, error) {
	v := r.Values
	card := &block{name: "VCARD"}
	switch replace := v.One("contact") != ""; {
	case replace && v.One("book") != "":
		return nil, "", usage("--book: with --contact there is none")
	case replace:
		top, err := readLines(r.Base)
		if err != nil || top.name != "VCARD" || len(top.kids) > 0 {
			return nil, "", wire.Refuse(wire.CodeVendorRefused, "what stands there is no contact that can be changed",
				"change it in another program")
		}
		card = top
		if len(v["name"])+len(v["email"])+len(v["phone"]) == 0 {
			return nil, "", usage("nothing is to be changed; name a field")
		}
	case v.One("book") == "":
		return nil, "", usage("--book: say where the new contact goes, or --contact which is to be changed")
	case v.One("name") == "":
		return nil, "", usage("--name: a new contact needs one")
	default:
		card.lines = []line{plainLine("VERSION", "3.0"), plainLine("PRODID", product), plainLine("UID", r.Mark)}
	}
	if name := v.One("name"); name != "" {
		card.set(textLine("FN", name))
		card.set(plainLine("N", escapeText(name)+";;;;"))
	}
	card.values("EMAIL", v["email"])
	card.values("TEL", v["phone"])
	if card.has("REV") || r.Base == nil {
		card.set(plainLine("REV", stamp(r.Unix)))
	}
	return card.bytes(), mediaCard, nil
}

// values makes the lines of a property, in whatever group, hold exactly these; none given leaves them.
func (b *block) values(name string, values []string) {
	if len(values) == 0 {
		return
	}
	kept := map[string]bool{}
	b.lines = slices.DeleteFunc(b.lines, func(l line) bool {
		if l.name != name && !strings.HasSuffix(l.name, "."+name) {
			return false
		}
		text := unescape(l.value)
		if slices.Contains(values, text) && !kept[text] {
			kept[text] = true
			return false
		}
		return true
	})
	for _, v := range values {
		if !kept[v] {
			kept[v] = true
			b.lines = append(b.lines, textLine(name, v))
		}
	}
}

// renderContactDelete needs no body: the deletion is held to the version that was read.
func renderContactDelete(*workers.Rendering) ([]byte, string, error) { return nil, "", nil }
