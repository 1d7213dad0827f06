// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"embed"
	"fmt"
	"regexp"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/doorward/doorward/cli"
	"github.com/doorward/doorward/cli/operator"
)

//go:embed *.md
var sources embed.FS

// pages are the pages in roff, by name as "doorward.8".
func pages() (map[string][]byte, error) {
	list, err := sources.ReadDir(".")
	if err != nil {
		return nil, err
	}
	out := map[string][]byte{}
	for _, e := range list {
		b, err := sources.ReadFile(e.Name())
		if err != nil {
			return nil, err
		}
		name := strings.TrimSuffix(e.Name(), ".md")
		if out[name], err = page(name, filled(string(b))); err != nil {
			return nil, fmt.Errorf("%s: %w", e.Name(), err)
		}
	}
	return out, nil
}

// filled puts what the commands take in the place of its marks.
func filled(source string) string {
	words, flags := cli.Words()
	return strings.NewReplacer(
		"{{doorward commands}}\n", operatorCommands(operator.Commands()),
		"{{connector commands}}\n", definitions("connector ", words),
		"{{connector flags}}\n", definitions("--", flags)).Replace(source)
}

func definitions(prefix string, list [][2]string) string {
	var s strings.Builder
	for _, d := range list {
		fmt.Fprintf(&s, "- `%s%s`: %s\n", prefix, strings.TrimSpace(d[0]), oneLine(d[1]))
	}
	return s.String()
}

// operatorCommands is every command that a person may give, with its flags, in the order of the words.
func operatorCommands(c *cobra.Command) string {
	var s strings.Builder
	for _, sub := range c.Commands() {
		if !sub.IsAvailableCommand() && sub.Name() != "help" || sub.Name() == "completion" && c.HasParent() {
			continue
		}
		if sub.Runnable() && !(sub.HasSubCommands() && sub.Args != nil && sub.RunE == nil) {
			fmt.Fprintf(&s, "- `%s`: %s\n", heading(sub), oneLine(sub.Short))
			if sub.Name() != "completion" && !shells[sub.Name()] {
				s.WriteString(long(sub.Long))
			}
			sub.NonInheritedFlags().VisitAll(func(f *pflag.Flag) {
				if f.Hidden || f.Name == "help" {
					return
				}
				kind, usage := pflag.UnquoteUsage(f)
				switch kind {
				case "": // it takes no value
				case "int", "uint64", "int64":
					kind = " N"
				default:
					if kind = " " + kind; kind != strings.ToUpper(kind) { // it has no name of its own
						kind = " VALUE"
					}
				}
				fmt.Fprintf(&s, "  `--%s%s`: %s\n", f.Name, kind, oneLine(usage))
			})
		}
		s.WriteString(operatorCommands(sub))
	}
	return s.String()
}

// heading is a command's Use line, with a mark where it takes flags.
func heading(c *cobra.Command) string {
	line, takes := strings.TrimSuffix(c.UseLine(), " [flags]"), false
	c.NonInheritedFlags().VisitAll(func(f *pflag.Flag) { takes = takes || !f.Hidden && f.Name != "help" })
	if takes && !strings.Contains(line, "[FLAGS]") {
		line += " [FLAGS]"
	}
	return line
}

// long is a command's further text: paragraphs flow, but for those that are laid out by spaces.
func long(text string) string {
	var s strings.Builder
	for _, paragraph := range strings.Split(text, "\n\n") {
		if !strings.Contains("\n"+paragraph, "\n ") {
			paragraph = oneLine(paragraph)
		}
		for line := range strings.Lines(paragraph) {
			if line = oneLine(line); line != "" {
				fmt.Fprintf(&s, "  | %s\n", line)
			}
		}
	}
	return s.String()
}

// shells are the words behind completion, whose long text is about how a shell takes scripts.
var shells = map[string]bool{"bash": true, "zsh": true, "fish": true, "powershell": true}

func oneLine(s string) string { return strings.Join(strings.Fields(s), " ") }

var (
	code = regexp.MustCompile("`([^`]*)`")
	term = regexp.MustCompile("^- ((?:`[^`]*`(?:, )?)+): (.*)$")
)

// page writes a source as man(7). Of Markdown it has: headings, paragraphs, lists of `terms` with a text, code in
// backticks and behind fences.
func page(name, source string) ([]byte, error) {
	var b bytes.Buffer
	title, section := name[:len(name)-2], name[len(name)-1:]
	fmt.Fprintf(&b, ".\\\" SPDX-License-Identifier: Apache-2.0\n.TH %s %s \"\" Doorward \"Doorward manual\"\n.nh\n.ad l\n",
		strings.ToUpper(title), section)
	fenced, listed := false, false
	for n, line := range strings.Split(source, "\n") {
		switch {
		case strings.HasPrefix(line, "```"):
			if fenced = !fenced; fenced {
				b.WriteString(".PP\n.RS 4\n.nf\n")
			} else {
				b.WriteString(".fi\n.RE\n")
			}
		case fenced:
			b.WriteString(escape(line) + "\n")
		case n == 0: // the file says it itself, for who reads the source
			if line != "# "+title+"("+section+")" {
				return nil, fmt.Errorf("its first line is %q", line)
			}
		case strings.HasPrefix(line, "## "):
			fmt.Fprintf(&b, ".SH %s\n", strings.ToUpper(escape(line[3:])))
			listed = false
		case strings.HasPrefix(line, "### "):
			fmt.Fprintf(&b, ".SS %s\n", escape(line[4:]))
			listed = false
		case strings.HasPrefix(line, "- "):
			m := term.FindStringSubmatch(line)
			if m == nil {
				return nil, fmt.Errorf("line %d is no `term`: text", n+1)
			}
			fmt.Fprintf(&b, ".TP\n%s\n%s\n", inline(m[1]), inline(m[2]))
			listed = true
		case line == "":
			if listed { // what follows is no part of the last term
				listed = false
			}
			b.WriteString(".PP\n")
		case listed && strings.HasPrefix(line, "  `"): // a flag of the term
			fmt.Fprintf(&b, ".br\n%s\n", inline(strings.TrimSpace(line)))
		case listed && strings.HasPrefix(line, "  | "): // a new line of its text
			fmt.Fprintf(&b, ".br\n%s\n", inline(line[4:]))
		default:
			b.WriteString(inline(strings.TrimSpace(line)) + "\n")
		}
	}
	if fenced {
		return nil, fmt.Errorf("a fence does not end")
	}
	return tidy(b.Bytes()), nil
}

// tidy takes away paragraphs that are empty: before another request that begins one, and at the end.
func tidy(b []byte) []byte {
	empty := regexp.MustCompile(`(?m)^\.PP\n(\.PP\n|\.SH|\.SS|\.TP)`)
	for empty.Match(b) {
		b = empty.ReplaceAll(b, []byte("$1"))
	}
	b = regexp.MustCompile(`(?m)^(\.S[HS] .*\n)\.PP\n`).ReplaceAll(b, []byte("$1"))
	return append(bytes.TrimSuffix(bytes.TrimRight(b, "\n"), []byte("\n.PP")), '\n')
}

// inline writes code in bold.
func inline(s string) string {
	out, last := "", 0
	for _, m := range code.FindAllStringSubmatchIndex(s, -1) {
		out += escape(s[last:m[0]]) + `\fB` + escape(s[m[2]:m[3]]) + `\fR`
		last = m[1]
	}
	return guard(out + escape(s[last:]))
}

var special = strings.NewReplacer(`\`, `\e`, "-", `\-`, "'", `\(aq`, "^", `\(ha`, "~", `\(ti`, "…", "...")

func escape(s string) string { return guard(special.Replace(s)) }

// guard keeps a line that begins like a request from being one.
func guard(s string) string {
	if strings.HasPrefix(s, ".") {
		return `\&` + s
	}
	return s
}
