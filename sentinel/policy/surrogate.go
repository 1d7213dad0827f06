// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/doorward/doorward/internal/describe"
)

// surrogateRules are what one file says of custom surrogates, by name. Which names and routes there are the file cannot know:
// surrogates are issued into cells, with routes of their own. Of what is issued under no such name Set.Idle tells.
type surrogateRules map[string]*surrogateRule

type surrogateRule struct {
	setting string // as of a connector; empty: not said
	mark    mark
	routes  map[string]methodSetting
}

func (r surrogateRules) of(name string) *surrogateRule {
	x := r[name]
	if x == nil {
		x = &surrogateRule{routes: map[string]methodSetting{}}
		r[name] = x
	}
	return x
}

// issuedWith is what holds of a surrogate that no line names: the setting of the manifest that a person issued it with.
func issuedWith(setting string) mark {
	if setting != AskEveryTime && setting != DontAsk {
		setting = AskBeforeChanges
	}
	return mark{place{file: "manifest"}, fmt.Sprintf("surrogate setting = %q", setting)}
}

// SurrogateNameOK says whether a surrogate, or a route of one, may have that name.
func SurrogateNameOK(s string) bool {
	return s != "" && len(s) <= 64 && s[0] != '-' && strings.Trim(s, "abcdefghijklmnopqrstuvwxyz0123456789-") == ""
}

// ofSurrogate is [surrogate.NAME] with its keys.
func (f *form) ofSurrogate(it item) error {
	if len(it.path) == 1 {
		return header(it.path[0], it.val)
	}
	name := it.path[1]
	if !SurrogateNameOK(name.text) {
		return name.problem("no surrogate can be called %q: a-z, 0-9 and -", clipped(name.text))
	}
	switch {
	case len(it.path) == 2:
		return header(name, it.val)
	case it.path[2].text == "setting" && len(it.path) == 3:
		return f.surrogate(name.text, "", it.path[2], it.val)
	case it.path[2].text == "route" && len(it.path) == 3:
		return header(it.path[2], it.val)
	case it.path[2].text == "route" && len(it.path) == 4:
		route := it.path[3]
		if !SurrogateNameOK(route.text) {
			return route.problem("no route can be called %q: a-z, 0-9 and -", clipped(route.text))
		}
		return f.surrogate(name.text, route.text, route, it.val)
	case it.path[2].text == "route" || it.path[2].text == "setting":
		return it.path[len(it.path)-1].problem("unknown key %q: %s is no table", it.path[len(it.path)-1].text, it.path[len(it.path)-2].text)
	}
	return it.path[2].problem("unknown key %q%s", it.path[2].text, meant(it.path[2].text, []string{"setting", "route"}))
}

// read takes one line about a surrogate; levels are what a route may be set to.
func (r surrogateRules) read(name, route string, key word, v *value, levels ...string) error {
	if route == "" {
		x, err := v.choose(AskEveryTime, AskBeforeChanges, DontAsk)
		if err != nil {
			return err
		}
		o := r.of(name)
		o.setting, o.mark = x, mark{key.place, fmt.Sprintf("surrogate %s setting = %q", name, x)}
		return nil
	}
	x, err := v.choose(levels...)
	if err != nil {
		return err
	}
	r.of(name).routes[route] = methodSetting{levelOf(x), mark{key.place, fmt.Sprintf("surrogate %s %s = %q", name, route, x)}}
	return nil
}

// lines are those that decide on a route: its own, or else the surrogate's.
func (r surrogateRules) lines(name, route string) []mark {
	x := r[name]
	switch {
	case x == nil:
		return nil
	case x.routes[route].mark.text != "":
		return []mark{x.routes[route].mark}
	case x.setting != "":
		return []mark{x.mark}
	}
	return nil
}

// surrogateLines are the lines that speak of a request with a surrogate.
func (s *Set) surrogateLines(name, route, setting string) []mark {
	out := s.settings.surrogates.lines(name, route)
	if len(out) == 0 {
		out = []mark{issuedWith(setting)}
	}
	for _, l := range s.limits {
		if x := l.surrogates[name]; x != nil { // each of them narrows
			if m := x.routes[route].mark; m.text != "" {
				out = append(out, m)
			}
			if x.setting != "" {
				out = append(out, x.mark)
			}
		}
	}
	return out
}

// SurrogateOff says whether a surrogate's route is switched off by a line.
func (s *Set) SurrogateOff(name, route string) bool {
	offIn := func(r surrogateRules) bool {
		x := r[name]
		return x != nil && x.routes[route].mark.text != "" && x.routes[route].level == off
	}
	return offIn(s.settings.surrogates) || slices.ContainsFunc(s.limits, func(l *limits) bool { return offIn(l.surrogates) })
}

// Issued are the surrogates that cells have, by name, each with the names of its routes.
type Issued map[string][]string

// Meets says whether a change is about something that there is. What is said of a surrogate or route that is not issued
// narrows nothing; it still widens what may be issued later.
func (i Issued) Meets(c *Change) bool {
	routes, ok := i[c.Surrogate]
	return c.Surrogate == "" || ok && (c.Route == "" || slices.Contains(routes, c.Route))
}

// Idle notes each line about a surrogate that is issued into no cell, or a route that no manifest has that it is issued with: the
// file cannot know, and what is misspelt holds nothing back.
func (s *Set) Idle(issued Issued) []*Problem {
	var out []*Problem
	add := func(m mark, format string, a ...any) {
		if m.text != "" {
			out = append(out, &Problem{m.file, m.line, m.col, m.text + ": " + fmt.Sprintf(format, a...)})
		}
	}
	files := []surrogateRules{s.settings.surrogates}
	for _, l := range s.limits {
		files = append(files, l.surrogates)
	}
	for _, rules := range files {
		for _, name := range union(rules, rules) {
			x, has := rules[name], issued[name]
			if has == nil {
				m := x.mark
				for _, r := range x.routes { // one note for all of them
					if m.text == "" || r.mark.line < m.line {
						m = r.mark
					}
				}
				add(m, "no surrogate of that name is issued into any cell%s", near(name, slices.Sorted(maps.Keys(issued))))
				continue
			}
			for _, route := range union(x.routes, x.routes) {
				if !slices.Contains(has, route) {
					add(x.routes[route].mark, "no manifest issued as %s has a route %s%s", name, route, meant(route, has))
				}
			}
		}
	}
	slices.SortStableFunc(out, func(a, b *Problem) int { return cmp.Or(cmp.Compare(a.File, b.File), cmp.Compare(a.Line, b.Line)) })
	return out
}

// compileSurrogates writes what is said of surrogates as Cedar, line by line like compileSites.
func (s *Set) compileSurrogates() string {
	var w lineWriter
	const requests = typeAction + "::\"" + actionRequest + "\""
	asks := func(m mark, setting string) {
		switch setting {
		case AskEveryTime:
			w.ask(m, requests, "")
		case AskBeforeChanges:
			w.ask(m, requests, fmt.Sprintf("when { context.class != %s }\n", quote(describe.Read)))
		}
	}
	level := func(x methodSetting) {
		switch x.level {
		case off:
			w.forbid(x.mark, requests, "")
		case ask:
			w.ask(x.mark, requests, "")
		}
	}
	for _, setting := range []string{AskEveryTime, AskBeforeChanges, DontAsk} {
		w.permit(issuedWith(setting), requests, "")
		asks(issuedWith(setting), setting)
	}
	for _, name := range union(s.settings.surrogates, surrogateRules{}) {
		x := s.settings.surrogates[name]
		if x.setting != "" {
			w.permit(x.mark, requests, "")
			asks(x.mark, x.setting)
		}
		for _, route := range union(x.routes, x.routes) {
			if x.routes[route].level != off {
				w.permit(x.routes[route].mark, requests, "")
			}
			level(x.routes[route])
		}
	}
	for _, l := range s.limits {
		for _, name := range union(l.surrogates, surrogateRules{}) {
			x := l.surrogates[name]
			if x.setting != "" {
				asks(x.mark, x.setting)
			}
			for _, route := range union(x.routes, x.routes) {
				level(x.routes[route])
			}
		}
	}
	return w.b.String()
}

// effective is how wide a route of a surrogate is, for comparing: of a read and of a change that nobody else sees. Where no line
// says, its manifest does, which is anything from ask to allow: unsaid is taken for that.
func (s *Set) effective(name, route string, unsaid level) (reads, changes level) {
	reads, changes = unsaid, unsaid
	if x := s.settings.surrogates[name]; x != nil {
		switch r, ok := x.routes[route]; {
		case ok:
			reads, changes = r.level, r.level
		case x.setting != "":
			reads, changes = settingLevel(x.setting, describe.Read), settingLevel(x.setting, describe.Write)
		}
	}
	for _, l := range s.limits {
		x := l.surrogates[name]
		if x == nil {
			continue
		}
		if r, ok := x.routes[route]; ok {
			reads, changes = min(reads, r.level), min(changes, r.level)
		}
		if x.setting != "" {
			reads, changes = min(reads, settingLevel(x.setting, describe.Read)), min(changes, settingLevel(x.setting, describe.Write))
		}
	}
	return reads, changes
}

// diffSurrogates compares what is said of surrogates: of each that a line of either names, of its routes that are named, and of
// the others.
func diffSurrogates(old, new *Set, of func(surrogate, route string) adder) {
	routes := map[string]map[string]bool{}
	for _, s := range []*Set{old, new} {
		all := []surrogateRules{s.settings.surrogates}
		for _, l := range s.limits {
			all = append(all, l.surrogates)
		}
		for _, r := range all {
			for name, x := range r {
				if routes[name] == nil {
					routes[name] = map[string]bool{"": true}
				}
				for route := range x.routes {
					routes[name][route] = true
				}
			}
		}
	}
	for _, name := range union(routes, routes) {
		for _, route := range union(routes[name], routes[name]) {
			words := "surrogate " + name
			if route != "" {
				words += " " + route
			}
			compare := func(what string, at func(*Set, level) level) {
				low, high := [2]level{at(old, ask), at(new, ask)}, [2]level{at(old, allow), at(new, allow)}
				if low[0] == low[1] && high[0] == high[1] {
					return
				}
				said := func(i int) string {
					if low[i] != high[i] {
						return "as its manifest says"
					}
					return low[i].String()
				}
				of(name, route)(high[1] > low[0], "%s %s: %s, now %s", words, what, said(0), said(1))
			}
			compare("reads", func(s *Set, unsaid level) level { r, _ := s.effective(name, route, unsaid); return r })
			compare("changes", func(s *Set, unsaid level) level { _, c := s.effective(name, route, unsaid); return c })
		}
	}
}
