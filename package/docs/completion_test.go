// SPDX-License-Identifier: Apache-2.0

package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// commands builds both commands, and lays their scripts out as the package does.
func commands(t *testing.T) (bin, share string) {
	t.Helper()
	bin, share = t.TempDir(), t.TempDir()
	cmd := exec.Command("go", "build", "-o", bin+"/", "../../cmd/doorward", "../../cmd/connector")
	if said, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("build: %v\n%s", err, said)
	}
	if err := completion(share, bin); err != nil {
		t.Fatal(err)
	}
	return bin, share
}

// Each shell that is here offers the words of both commands by the scripts that the package has, and none that there is
// not.
func TestTheShellsCompleteWords(t *testing.T) {
	bin, share := commands(t)
	run := func(command string, args ...string) string {
		t.Helper()
		cmd := exec.Command(command, args...)
		cmd.Env = append(os.Environ(), "PATH="+bin+":"+os.Getenv("PATH"), "SHARE="+share, "HOME="+t.TempDir(), "TERM=dumb")
		said, err := cmd.CombinedOutput()
		if err != nil {
			t.Errorf("%s: %v\n%s", command, err, said)
		}
		return string(said)
	}
	shells := map[string]func(command, word string) []string{
		"bash": func(command, word string) []string {
			script := `shopt -s progcomp; compopt() { :; }
[[ -r /usr/share/bash-completion/bash_completion ]] && source /usr/share/bash-completion/bash_completion
source "$SHARE/bash-completion/completions/$1"
COMP_WORDS=("$1" "$2"); COMP_CWORD=1; COMP_LINE="$1 $2"; COMP_POINT=${#COMP_LINE}; COMP_TYPE=9
f=$(complete -p "$1" | sed 's/.*-F \([^ ]*\).*/\1/'); "$f" "$1" "$2" "$1"; printf '%s\n' "${COMPREPLY[@]}"`
			return strings.Fields(run("bash", "--norc", "-c", script, "bash", command, word))
		},
		"zsh": func(command, word string) []string {
			// In a terminal of its own: completion is the line editor's. What is typed is completed in place.
			script := `zmodload zsh/zpty
zpty shell zsh -f -i
zpty -w shell "PS1=; unsetopt zle_bracketed_paste 2>/dev/null; fpath=($SHARE/zsh/vendor-completions \$fpath); autoload -Uz compinit; compinit -D -u"
zpty -w shell "bindkey -e; print READY"
while zpty -r shell line; do [[ $line == *READY* && $line != *print* ]] && break; done
zpty -w -n shell "$1 $2"$'\t\x01'"print -r -- RAN "$'\x05'" NAR"$'\n'
for i in {1..50}; do zpty -r shell line || break; if [[ $line == *RAN*NAR* && $line != *print* ]]; then print -r -- "$line"; break; fi; done
zpty -d shell`
			said := run("zsh", "-f", "-c", script, "zsh", command, word)
			_, rest, _ := strings.Cut(said, "RAN ")
			rest, _, _ = strings.Cut(rest, " NAR")
			return strings.Fields(rest)
		},
		"fish": func(command, word string) []string {
			var out []string
			for line := range strings.Lines(run("fish", "-N", "-c", "source "+
				filepath.Join(share, "fish/vendor_completions.d", command+".fish")+"; complete -C '"+command+" "+word+"'")) {
				first, _, _ := strings.Cut(line, "\t")
				out = append(out, strings.TrimSpace(first))
			}
			return out
		},
	}
	for shell, complete := range shells {
		t.Run(shell, func(t *testing.T) {
			if _, err := exec.LookPath(shell); err != nil {
				t.Skip("there is no " + shell + " here")
			}
			for _, c := range []struct{ command, word, want string }{
				{"connector", "gui", "guide"}, {"connector", "inb", "inbox"}, {"doorward", "pol", "policy"}, {"doorward", "gra", "grants"},
			} {
				if _, err := os.Stat("/usr/share/bash-completion/bash_completion"); err != nil && shell == "bash" && c.command == "doorward" {
					continue // its script calls functions of Debian's package bash-completion
				}
				if got := complete(c.command, c.word); !slices.Contains(got, c.want) {
					t.Errorf("%s %s<TAB>: %q, want %s", c.command, c.word, got, c.want)
				}
				if got := complete(c.command, "zzz"); slices.Contains(got, c.want) {
					t.Errorf("control: %s zzz<TAB>: %q", c.command, got)
				}
			}
		})
	}
}
