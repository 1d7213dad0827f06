// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"strings"

	"github.com/doorward/doorward/internal/describe"
	"github.com/doorward/doorward/internal/wire"
)

// builtin are the command's own words.
var builtin = [...]string{"cancel", "completion", "describe", "doctor", "guide", "help", "inbox", "list", "result", "surrogate",
	"version", "wait"}

const bashScript = `_connector() {
	local IFS=$'\n'
	COMPREPLY=($(connector __complete -- "${COMP_WORDS[@]:1:COMP_CWORD}" 2>/dev/null | cut -f1))
	[[ ${#COMPREPLY[@]} -eq 0 ]] && compopt -o default
}
complete -F _connector connector
`

const zshScript = `#compdef connector
_connector() {
	local -a found
	found=("${(@f)$(connector __complete -- "${(@)words[2,CURRENT]}" 2>/dev/null | sed 's/:/\\:/g; s/\t/:/')}")
	[[ -n "${found[1]}" ]] && _describe connector found || _files
}
if [[ "$funcstack[1]" == _connector ]]; then # loaded by name, at the first use
	_connector "$@"
else
	compdef _connector connector
fi
`

const fishScript = `complete -c connector \
	-a '(connector __complete -- (commandline -opc)[2..] (commandline -ct) 2>/dev/null)'
`

func (a *app) completion(args []string) *wire.Error {
	if len(args) == 0 {
		return usage("completion takes the name of a shell: bash, zsh or fish", "connector help")
	}
	shell := strings.Join(args, " ")
	switch shell {
	case "bash":
		return a.print([]byte(bashScript))
	case "zsh":
		return a.print([]byte(zshScript))
	case "fish":
		return a.print([]byte(fishScript))
	}
	return usage("completion is for bash, zsh or fish, not "+quote(shell), "connector help")
}

// complete prints what may stand at the last of the words: one a line, with a tab and a description. It says nothing
// where it knows nothing; the shell then offers files.
func (a *app) complete(args []string) *wire.Error {
	if len(args) > 0 && args[0] == "--" {
		args = args[1:]
	}
	if len(args) == 0 {
		args = []string{""}
	}
	before, at := args[:len(args)-1], args[len(args)-1]
	var b []byte
	offer := func(word, help string) {
		if strings.HasPrefix(word, at) {
			b = append(b, oneLine(word)+"\t"+oneLine(help)+"\n"...)
		}
	}
	switch {
	case len(before) == 0:
		for _, v := range a.vendors() {
			offer(v, "connector")
		}
		for _, w := range builtin {
			offer(w, "command")
		}
	case len(before) == 1 && (before[0] == "list" || before[0] == "describe" || before[0] == "help"):
		for _, v := range a.vendors() {
			offer(v, "connector")
		}
	case len(before) == 1 && before[0] == "completion":
		for _, s := range []string{"bash", "fish", "zsh"} {
			offer(s, "shell")
		}
	case len(before) == 1 && (before[0] == "result" || before[0] == "wait" || before[0] == "cancel"):
		a.completeCalls(offer)
	case before[0] == "describe" && len(before) == 2:
		a.completeMethods(before[1], offer)
	case len(before) == 1:
		a.completeMethods(before[0], offer)
	default:
		a.completeFlags(before, at, offer)
	}
	return a.print(b)
}

func (a *app) completeMethods(vendor string, offer func(word, help string)) {
	c, err := a.load(vendor)
	if err != nil {
		return
	}
	on, _ := a.shown(c)
	for _, name := range on {
		if m, ok := c.Method(name); ok {
			offer(name, m.Summary)
		}
	}
}

func (a *app) completeCalls(offer func(word, help string)) {
	s, err := dial(wire.PathCellSentinel, "sentinel", askTimeout)
	if err != nil {
		return
	}
	defer s.Close()
	var r wire.InboxResp
	if _, err := s.Call("inbox", &wire.Empty{}, &r); err == nil {
		for _, it := range r.Items {
			what := it.Title
			if what == "" {
				what = it.Connector + " " + it.Method
			}
			offer(it.Call, string(stateOf(it.State, it.Title))+" "+what)
		}
	}
}

// completeFlags offers a method's flags, or the values of the one that stands before.
func (a *app) completeFlags(before []string, at string, offer func(word, help string)) {
	c, err := a.load(before[0])
	if err != nil {
		return
	}
	m, ok := c.Method(before[1])
	if !ok {
		return
	}
	p := parser{c: c, m: m}
	name, _, given := flag(at)
	prefix := "--" + name + "="
	if !given {
		name, _, given = flag(before[len(before)-1])
		prefix = ""
		if given || len(before) == 2 {
			name = ""
		}
	}
	if arg, path, alone, ok := p.kind(name); ok && (!alone || prefix != "") {
		if arg != nil && !path {
			for _, v := range arg.Enum {
				offer(prefix+v, arg.Label)
			}
			if arg.Type == describe.TypeBool {
				offer(prefix+"true", arg.Label)
				offer(prefix+"false", arg.Label)
			}
		}
		return
	}
	if !strings.HasPrefix(at, "-") && at != "" {
		return
	}
	for i := range m.Args {
		offer("--"+m.Args[i].Name, m.Args[i].Help)
		if m.Args[i].Type == describe.TypeText {
			offer("--"+m.Args[i].Name+"-file", m.Args[i].Label+" from a file or stdin")
		}
	}
	for _, o := range common {
		offer("--"+o.name, o.help)
	}
}
