// SPDX-License-Identifier: Apache-2.0

package operator

import (
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/doorward/doorward/internal/wire"
)

// Manifest is what the command needs of the manifest of a custom connector.
type Manifest struct {
	Hosts []string // that its credential may go to, each as host:port or *.host:port and the first of them one host
	Place wire.Placement
	Lines []string // what it allows, as a card has it
	Notes []string // what is likely not meant
}

func (a *app) checkManifestCmd() *cobra.Command {
	return &cobra.Command{
		Use: "check FILE|MANIFEST", Short: "check a manifest, and say what it would allow",
		Long: `Reads a manifest and prints the lines that a card would have. It asks no daemon and no secret, and
changes nothing.`,
		RunE: func(_ *cobra.Command, args []string) error {
			text, err := a.manifest(args[0])
			if err != nil {
				return err
			}
			m, err := a.readManifest(args[0], text)
			if err != nil {
				return err
			}
			if a.json {
				return a.value(map[string]any{"lines": notNil(m.Lines), "notes": notNil(m.Notes)})
			}
			for _, l := range m.Lines {
				a.line("%s", l)
			}
			for _, n := range m.Notes {
				a.note("note: " + n)
			}
			return nil
		},
	}
}

func (a *app) printManifestCmd() *cobra.Command {
	return &cobra.Command{
		Use: "manifest [MANIFEST]", Short: "print a manifest that came with Doorward, or list them",
		RunE: func(_ *cobra.Command, args []string) error {
			if a.Names == nil || a.BuiltIn == nil {
				return wire.Refuse(wire.CodeInternal, "this build has no manifests", "reinstall doorward")
			}
			if len(args) == 0 {
				return a.listManifests()
			}
			text, ok := a.BuiltIn(args[0])
			if !ok {
				return wire.Refuse(wire.CodeNotFound, "no manifest "+quote(args[0])+" came with Doorward", meant("", args[0], a.Names())+
					"doorward surrogate manifest")
			}
			if a.json {
				return a.value(map[string]any{"name": args[0], "text": string(text)})
			}
			_, err := a.out.Write(text) // it is this program's own
			return err
		},
	}
}

func (a *app) listManifests() error {
	rows := [][]string{{"NAME", "FOR", "HOSTS"}}
	for _, name := range a.Names() {
		text, _ := a.BuiltIn(name)
		m, err := a.readManifest(name, text)
		if err != nil {
			return err
		}
		about := ""
		if len(m.Lines) > 0 {
			about = strings.TrimPrefix(m.Lines[0], "for: ")
		}
		rows = append(rows, []string{name, about, strings.Join(m.Hosts, ", ")})
	}
	if a.json {
		return a.value(map[string]any{"items": a.Names()})
	}
	a.table(rows)
	return nil
}

// readManifest reads the text of a manifest that a person named.
func (a *app) readManifest(name string, text []byte) (*Manifest, error) {
	if a.Manifest == nil {
		return nil, wire.Refuse(wire.CodeInternal, "this build reads no manifests", "reinstall doorward")
	}
	m, err := a.Manifest(name, text)
	if err != nil {
		return nil, wire.Refuse(wire.CodeBadArgument, "manifest "+oneLine(err.Error()),
			"mend it there; doorward surrogate manifest has examples")
	}
	return m, nil
}

// differs says in which key of the manifest, or flag, the account that is there is not the one that is asked for; empty: in none.
func differs(acc *wire.Account, req *wire.AddReq, f *surrogateFlags) string {
	sorted := func(list []string) []string { return slices.Sorted(slices.Values(list)) }
	list := func(s []string) string { return orElse(strings.Join(s, ", "), "none") }
	hosts := func(b wire.Base, also []string) []string {
		return append([]string{fmt.Sprintf("%s:%d", b.Host, b.Port)}, sorted(also)...)
	}
	place, want := acc.Placement, req.Placement
	place.User, want.User = "", ""
	switch {
	case acc.Base != req.Base || !slices.Equal(sorted(acc.Also), sorted(req.Also)):
		return "hosts: it is for " + list(hosts(acc.Base, acc.Also)) + ", and not for " + list(hosts(req.Base, req.Also))
	case place != want:
		return "[placement]: its credential stands in another place than this manifest says"
	case acc.Placement.User != req.Placement.User:
		return "the user: it is of " + quote(acc.Placement.User) + ", and not of " + quote(req.Placement.User)
	case len(f.permit) > 0 && !slices.Equal(sorted(acc.Permit), sorted(req.Permit)):
		return "--permit: it may be reached at " + list(sorted(acc.Permit)) + ", and not at " + list(sorted(req.Permit))
	case f.ca != "":
		return "--ca: it keeps the certificates that it was added with"
	}
	return ""
}
