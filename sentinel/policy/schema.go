// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"fmt"
	"strings"

	"github.com/cedar-policy/cedar-go/types"
	"github.com/cedar-policy/cedar-go/x/exp/ast"
	"github.com/cedar-policy/cedar-go/x/exp/schema"
	"github.com/cedar-policy/cedar-go/x/exp/schema/validate"

	"github.com/doorward/doorward/internal/describe"
)

// Entity types. A caller is a Cell, what it asks for an action "vendor.method" in the group "vendor", what that is
// done to an Account "vendor/name" in its Connector.
const (
	typeCell      = "Cell"
	typeAccount   = "Account"
	typeConnector = "Connector"
	typeAction    = "Action"
	typeSite      = "Site"     // "example.org:443", what a connection goes to
	typeSiteSet   = "SiteSet"  // a named set that it is in
	typeSiteRule  = "SiteRule" // the line of a file that speaks of it
)

func actionName(vendor, method string) string { return vendor + "." + method }

// schemaText is the Cedar schema of the descriptions. Arguments keep their names; one that may be given more than
// once is a set, empty when absent; any other that is not required is optional.
func schemaText(descs []*describe.Connector) string {
	var s strings.Builder
	context := fmt.Sprintf("\t\t%s: Bool,\n", factApproved)
	for _, f := range facts() {
		context += fmt.Sprintf("\t\t%s: %s,\n", quote(f.name), f.typ)
	}
	s.WriteString("entity Cell;\nentity Connector;\nentity Account in [Connector];\n" +
		"entity SiteSet;\nentity SiteRule;\nentity Site in [SiteSet, SiteRule];\n")
	fmt.Fprintf(&s, "\n// A connection of a cell's own program.\naction %s appliesTo {\n\tprincipal: [Cell],\n\tresource: [Site],\n"+
		"\tcontext: {\n%s", quote(actionConnect), context)
	for _, f := range connectFacts() {
		fmt.Fprintf(&s, "\t\t%s: %s,\n", quote(f.name), f.typ)
	}
	fmt.Fprintf(&s, "\t\t%s: {}\n\t}\n};\n", factArguments)
	fmt.Fprintf(&s, "\n// One request on a connection that is intercepted.\n"+
		"action %s appliesTo {\n\tprincipal: [Cell],\n\tresource: [Site],\n"+
		"\tcontext: {\n%s", quote(actionRequest), context)
	for _, f := range requestFacts() {
		fmt.Fprintf(&s, "\t\t%s: %s,\n", quote(f.name), f.typ)
	}
	fmt.Fprintf(&s, "\t\t%s: {}\n\t}\n};\n", factArguments)
	for _, c := range descs {
		fmt.Fprintf(&s, "\naction %s;\n", quote(c.Vendor))
		for i := range c.Methods {
			m := &c.Methods[i]
			fmt.Fprintf(&s, "\n// %s: %s\naction %s in [%s] appliesTo {\n\tprincipal: [Cell],\n\tresource: [Account],\n"+
				"\tcontext: {\n%s\t\t%s: {\n", c.Title, m.Summary, quote(actionName(c.Vendor, m.Name)), quote(c.Vendor),
				context, factArguments)
			for j := range m.Args {
				a := &m.Args[j]
				opt := "?"
				if a.Required || a.Default != "" || a.Repeat > 1 {
					opt = ""
				}
				fmt.Fprintf(&s, "\t\t\t%s%s: %s,\n", quote(a.Name), opt, cedarType(a))
			}
			s.WriteString("\t\t}\n\t}\n};\n")
		}
	}
	return s.String()
}

func cedarType(a *describe.Arg) string {
	t := "String"
	switch a.Type {
	case describe.TypeInt:
		t = "Long"
	case describe.TypeBool:
		t = "Bool"
	}
	if a.Repeat > 1 {
		return "Set<" + t + ">"
	}
	return t
}

// quote writes s as a Cedar string.
func quote(s string) string { return string(types.String(s).MarshalCedar()) }

// validator wraps Cedar's validator, which is in the library's experimental part: this is the only place that uses
// it, in its strict mode.
type validator struct{ v *validate.Validator }

func newValidator(text string) (*validator, error) {
	var s schema.Schema
	s.SetFilename("schema")
	if err := s.UnmarshalCedar([]byte(text)); err != nil {
		return nil, fmt.Errorf("read the schema of the descriptions: %w", err)
	}
	r, err := s.Resolve()
	if err != nil {
		return nil, fmt.Errorf("resolve the schema of the descriptions: %w", err)
	}
	return &validator{validate.New(r, validate.WithStrict())}, nil
}

func (v *validator) policy(p *ast.Policy) error { return v.v.Policy("", p) }
