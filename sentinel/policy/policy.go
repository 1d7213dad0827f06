// SPDX-License-Identifier: Apache-2.0

// Package policy decides what a semantic call may do: go, ask a person, or not at all. It is the one place where that
// is decided, and a pure function of what it is given: the descriptions, the person's files, the admin's limits, the
// call and the grants that live. It reads no clock, no network and no state.
//
// A set is policy.toml compiled to Cedar, the person's own .cedar files, and the rules of default/base.cedar, all
// validated against a schema made from the descriptions. It is whole or it is not there: one wrong name and nothing
// of it is used, because a rule that is misspelt is a rule that is missing. What no policy permits is denied, what
// cannot be evaluated is denied, and no file can widen what sensitive calls or an untrusted caller may do unasked.
//
// What an attacker could do here: choose arguments that a policy reads otherwise than the vendor does (a look-alike
// recipient, another case of a repository's name), or have a grant that was made for one thing cover another. So
// comparisons are exact wherever the vendor's are not known to be wider, every grant field that a sensitive call can
// be sent to a stranger by must be limited, and a caller that has read strangers' text falls back to asking.
package policy

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"slices"
	"strings"

	"github.com/cedar-policy/cedar-go"
	"github.com/cedar-policy/cedar-go/types"
	"github.com/cedar-policy/cedar-go/x/exp/ast"

	"github.com/doorward/doorward/internal/describe"
	"github.com/doorward/doorward/internal/wire"
)

// Set is a whole, validated policy. It does not change, so it may be used from many goroutines.
type Set struct {
	files    Files
	descs    []*describe.Connector // sorted by vendor
	settings *settings
	limits   []*limits
	ceiling  Limits
	levels   map[string]map[string]methodLevel // vendor, method
	schema   string
	compiled string // Cedar of policy.toml and limits.toml
	rules    []*rule
	slices   map[string]map[string]*methodSlice
	connect  *methodSlice // what connections are judged by
	request  *methodSlice // and requests
}

// methodSlice is what one method's calls are judged by, made ready at load.
type methodSlice struct {
	rules     slice
	action    types.EntityUID
	entities  types.EntityMap // the action with its group
	facts     []fact          // that its policies look at
	arguments []*describe.Arg // likewise
}

// Load reads a folder and compiles it, see Read and Compile.
func Load(dir fs.FS, descs []*describe.Connector, limits ...[]byte) (*Set, error) {
	f, err := Read(dir)
	if err != nil {
		return nil, err
	}
	return Compile(f, descs, limits...)
}

// Default is the set that holds before a person has decided any: the installed policy.toml, without other files.
func Default(descs []*describe.Connector, limits ...[]byte) (*Set, error) {
	return Compile(Files{PolicyFile: DefaultPolicy()}, descs, limits...)
}

// Compile makes a set of a person's files under the admin's limits (the bytes of limits.toml; of several, the
// narrowest of each limit holds). The error joins every *Problem found; with one there is no set.
func Compile(f Files, descs []*describe.Connector, limitFiles ...[]byte) (*Set, error) {
	return Undecided(f, descs, nil, limitFiles...)
}

// Undecided is Compile, but the methods of changed ("vendor method") ask, whatever the files say of them: what the files
// allow was decided about methods that meant something else. A name may also
// be "sites" and that of a set of sites. Names that there are not are passed over.
func Undecided(f Files, descs []*describe.Connector, changed []string, limitFiles ...[]byte) (*Set, error) {
	s := &Set{files: maps.Clone(f), descs: slices.Clone(descs), levels: map[string]map[string]methodLevel{}}
	slices.SortFunc(s.descs, func(a, b *describe.Connector) int { return strings.Compare(a.Vendor, b.Vendor) })
	var faults []error
	if err := f.check(); err != nil {
		faults = append(faults, err)
	}
	s.ceiling = noLimits().Limits
	for _, b := range limitFiles {
		l, err := parseLimits(b, s.descs)
		if err != nil {
			faults = append(faults, err)
			continue
		}
		s.limits = append(s.limits, l)
		s.ceiling = s.ceiling.meet(l.Limits)
	}
	if len(changed) > 0 {
		l := noLimits()
		for _, name := range changed {
			m := mark{place{file: "upgrade"}, name + " has changed since the policy was decided"}
			if set, ok := strings.CutPrefix(name, setKey+" "); ok {
				l.changed = append(l.changed, &siteRule{set: set, level: ask, mark: m})
				continue
			}
			l.methods[name] = methodLimit{"", ask, m}
		}
		s.limits = append(s.limits, l)
	}
	var err error
	if s.settings, err = parseSettings(f[PolicyFile], s.descs); err != nil {
		faults = append(faults, err)
	}
	if len(faults) > 0 {
		return nil, errors.Join(faults...)
	}
	s.ceiling.BulkReads = min(s.ceiling.BulkReads, s.settings.bulkReads)
	s.ceiling.BulkBytes = min(s.ceiling.BulkBytes, s.settings.bulkBytes)
	s.schema = schemaText(s.descs)
	for _, c := range s.descs {
		s.levels[c.Vendor] = map[string]methodLevel{}
		s.compiled += compile(c, func(m *describe.Method) methodLevel {
			l := levelFor(s.settings, s.limits, c, m)
			s.levels[c.Vendor][m.Name] = l
			return l
		})
	}
	s.compiled += s.compileSites() + s.compileSurrogates()
	if err := s.addRules(); err != nil {
		return nil, err
	}
	s.cut()
	s.connect = s.cutSite(actionConnect, append(facts(), connectFacts()...))
	s.request = s.cutSite(actionRequest, append(facts(), requestFacts()...))
	return s, nil
}

// addRules reads and validates the policies of all sources.
func (s *Set) addRules() error {
	v, err := newValidator(s.schema)
	if err != nil {
		return err
	}
	var faults []error
	add := func(file string, text []byte, own bool) {
		rs, err := readCedar(file, text, own)
		if err != nil {
			faults = append(faults, err)
			return
		}
		for _, r := range rs {
			if own {
				if err := s.lint(file, text, r); err != nil {
					faults = append(faults, err)
					continue
				}
			}
			if err := v.policy((*ast.Policy)(r.policy.AST())); err != nil && len(s.descs) > 0 {
				pos := r.policy.Position()
				faults = append(faults, &Problem{file, pos.Line, pos.Column, brief(err)})
			}
		}
		s.rules = append(s.rules, rs...)
	}
	add("base.cedar", mustDefault("base.cedar"), false)
	add("compiled.cedar", []byte(s.compiled), false)
	for _, name := range slices.Sorted(maps.Keys(s.files)) {
		if name != PolicyFile {
			add(name, s.files[name], true)
		}
	}
	if len(faults) > 0 {
		return errors.Join(faults...)
	}
	number(s.rules)
	return nil
}

// brief is the validator's error in one line: of alike faults in many actions, the first.
func brief(err error) string {
	lines := strings.Split(err.Error(), "\n")
	slices.Sort(lines)
	if len(lines) == 1 {
		return lines[0]
	}
	return fmt.Sprintf("%s (and %d more like it)", lines[0], len(lines)-1)
}

// cut makes each method's slice.
func (s *Set) cut() {
	s.slices = map[string]map[string]*methodSlice{}
	for _, c := range s.descs {
		s.slices[c.Vendor] = map[string]*methodSlice{}
		group := cedar.NewEntityUID(typeAction, types.String(c.Vendor))
		for i := range c.Methods {
			name := c.Methods[i].Name
			ms := &methodSlice{action: cedar.NewEntityUID(typeAction, types.String(actionName(c.Vendor, name)))}
			ms.entities = types.EntityMap{
				ms.action: {UID: ms.action, Parents: types.NewEntityUIDSet(group)},
				group:     {UID: group},
			}
			need := needs{facts: map[string]bool{}, arguments: map[string]bool{}}
			for _, r := range s.rules {
				if r.applies(c.Vendor, name) {
					ms.rules = append(ms.rules, r.sliced())
					need.of((*ast.Policy)(r.policy.AST()))
				}
			}
			for _, f := range facts() {
				if need.facts[f.name] {
					ms.facts = append(ms.facts, f)
				}
			}
			if need.all || len(need.arguments) > 0 {
				ms.arguments = []*describe.Arg{}
			}
			for j := range c.Methods[i].Args {
				if a := &c.Methods[i].Args[j]; need.all || need.arguments[a.Name] {
					ms.arguments = append(ms.arguments, a)
				}
			}
			s.slices[c.Vendor][name] = ms
		}
	}
}

// Digest names the person's files that the set was made of.
func (s *Set) Digest() wire.Digest { return s.files.Digest() }

// Files are what the set was made of.
func (s *Set) Files() Files { return maps.Clone(s.files) }

// Limits is what the admin's ceiling and the person's settings leave besides connectors and methods.
func (s *Set) Limits() Limits { return s.ceiling }

// Setting is a connector's setting as it takes effect without what is said of single methods.
func (s *Set) Setting(vendor string) string {
	setting := AskBeforeChanges
	if c := s.settings.connectors[vendor]; c != nil && c.setting != "" {
		setting = c.setting
	}
	for _, l := range s.limits {
		if x, ok := l.settings[vendor]; ok && width(x.setting) < width(setting) {
			setting = x.setting
		}
	}
	return setting
}

func width(setting string) int {
	return slices.Index([]string{AskEveryTime, AskBeforeChanges, DontAsk}, setting)
}

// Off says whether a method is switched off: then it is in no list, help or completion, and calls of it are denied.
// What the set does not know is off.
func (s *Set) Off(vendor, method string) bool {
	l, ok := s.levels[vendor][method]
	return !ok || l.level == off
}

// Private says for an account whether a thing is private, as the settings have it: a calendar that only its owner sees,
// a repository that only its members see. An entry that ends in a slash takes in what is below it. GitHub and its like
// take a repository's name in any case, so owner/name is compared without case; paths are compared exactly.
func (s *Set) Private(vendor, account string) func(thing string) bool {
	var list []string
	if c := s.settings.connectors[vendor]; c != nil {
		list = c.private[account]
	}
	return func(thing string) bool {
		for _, p := range list {
			switch {
			case thing == p:
				return true
			case strings.HasPrefix(p, "/"):
				if strings.HasSuffix(p, "/") && strings.HasPrefix(thing, p) && privateOK(thing) {
					return true
				}
			case equalFold(thing, p):
				return true
			}
		}
		return false
	}
}

// Reach is how far a call goes and whether it is sensitive, by its arguments and the settings.
func (s *Set) Reach(c *describe.Connector, m *describe.Method, account string, v describe.Values) (string, bool) {
	r := m.ReachOf(v, s.Private(c.Vendor, account))
	return r, m.SensitiveAt(r)
}

// equalFold compares ASCII letters without case and all else exactly: Unicode folding would take in look-alikes.
func equalFold(a, b string) bool {
	if len(a) != len(b) {
		return false
	}
	for i := range len(a) {
		if lower(a[i]) != lower(b[i]) {
			return false
		}
	}
	return true
}

func lower(c byte) byte {
	if c >= 'A' && c <= 'Z' {
		return c + 'a' - 'A'
	}
	return c
}

// Cedar shows the whole set as Cedar: the schema, then every policy with where it came from.
func (s *Set) Cedar() string {
	var b strings.Builder
	b.WriteString("// Schema\n\n" + s.schema + "\n// Policies\n")
	for _, r := range s.rules {
		fmt.Fprintf(&b, "\n// %s\n%s\n", r, r.policy.MarshalCedar())
	}
	return b.String()
}
