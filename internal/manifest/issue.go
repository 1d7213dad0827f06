// SPDX-License-Identifier: Apache-2.0

package manifest

import (
	"fmt"
	"strings"

	"github.com/doorward/doorward/internal/wire"
)

// ForIssue is Parse of a manifest that is yet to be issued. It refuses besides what authd or egress would: what is issued goes on
// to be read by Parse, whatever is learned about it.
func ForIssue(b []byte) (*Manifest, error) {
	m, err := Parse(b)
	if err != nil {
		return nil, err
	}
	if name := m.Placement.Name; m.Placement.Kind == "header" && (strings.EqualFold(name, "Cookie") || wire.NeverHeader(name) ||
		Override(name)) {
		return nil, &Problem{Text: "the header " + name + " is no place for a credential: servers or what is between read it as " +
			"something else; name the one that the vendor documents, as Authorization"}
	}
	return m, nil
}

// Notes say what a manifest may have, and is likely not meant.
func (m *Manifest) Notes() []string {
	var out []string
	p := m.Placement.Prefix
	if m.Placement.Kind == "header" && p != "" && strings.Trim(p[len(p)-1:], "abcdefghijklmnopqrstuvwxyz") == "" {
		out = append(out, fmt.Sprintf("prefix = %q has no space at its end, so the credential follows the word at once; "+
			"write %q if one is between them", p, p+" "))
	}
	for i := range m.Routes {
		r := &m.Routes[i]
		for _, s := range strings.Split(r.Path, "/") {
			if name, ok := strings.CutPrefix(s, ":"); ok && name != "" {
				out = append(out, fmt.Sprintf("route %s: the segment %s of its path is taken as it stands; "+
					"write {x} for any one segment", r.Name, clip(s)))
			}
		}
	}
	return out
}
