// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/doorward/doorward/cli"
	"github.com/doorward/doorward/cli/operator"
)

// plain is a page without roff's marks.
func plain(roff []byte) string {
	return strings.NewReplacer(`\fB`, "", `\fR`, "", `\-`, "-", `\(aq`, "'", `\e`, `\`, `\&`, "", `\(ha`, "^", `\(ti`, "~").Replace(string(roff))
}

// Every command and flag there is stands in its page, and no other.
func TestThePagesHaveEveryCommandAndFlag(t *testing.T) {
	all, err := pages()
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"connector.1", "doorward.8", "doorward-policy.5", "doorward-cell.5"} {
		if all[name] == nil {
			t.Errorf("there is no %s", name)
		}
	}
	// The terms of doorward(8), each with the lines of its text.
	have := map[string]string{}
	for _, s := range strings.Split(plain(all["doorward.8"]), "\n.TP\n")[1:] {
		name, text, _ := strings.Cut(s, "\n")
		have[name] = text
	}
	flag := regexp.MustCompile(`(?m)^--([a-z-]+)(?: [A-Z]+)?:`)
	n := 0
	var walk func(c *cobra.Command)
	walk = func(c *cobra.Command) {
		for _, sub := range c.Commands() {
			if (sub.IsAvailableCommand() || sub.Name() == "help") && sub.Runnable() {
				n++
				key := heading(sub)
				text, ok := have[key]
				if !ok {
					t.Errorf("doorward(8) has no %s", key)
				}
				said := map[string]bool{}
				for _, m := range flag.FindAllStringSubmatch(text, -1) {
					said[m[1]] = true
				}
				sub.NonInheritedFlags().VisitAll(func(f *pflag.Flag) {
					if !f.Hidden && f.Name != "help" && !said[f.Name] {
						t.Errorf("doorward(8) has no --%s of %s", f.Name, key)
					}
					delete(said, f.Name)
				})
				for f := range said {
					t.Errorf("doorward(8) has --%s of %s, which there is not", f, key)
				}
				delete(have, key)
			}
			walk(sub)
		}
	}
	walk(operator.Commands())
	for key := range have {
		if strings.HasPrefix(key, "doorward ") {
			t.Errorf("doorward(8) has %s, which there is not", key)
		}
	}
	if n < 30 {
		t.Errorf("only %d commands are found", n)
	}
	words, flags := cli.Words()
	page := plain(all["connector.1"])
	for _, w := range words {
		if !strings.Contains(page, "\nconnector "+w[0]+"\n") {
			t.Errorf("connector(1) has no %s", w[0])
		}
	}
	for _, f := range flags {
		if !strings.Contains(page, "\n--"+strings.TrimSpace(f[0])+"\n") {
			t.Errorf("connector(1) has no --%s", f[0])
		}
	}
}

// man finds nothing to warn of, and a page is what it was made from: the control is one with a fault.
func TestManTakesThePages(t *testing.T) {
	if _, err := exec.LookPath("man"); err != nil {
		t.Skip("there is no man here")
	}
	warnings := func(roff []byte) string {
		file := filepath.Join(t.TempDir(), "page.8")
		if err := os.WriteFile(file, roff, 0o644); err != nil {
			t.Fatal(err)
		}
		cmd := exec.Command("man", "--warnings", "-l", file)
		cmd.Env = append(os.Environ(), "LC_ALL=C.UTF-8", "MANWIDTH=100", "MANROFFSEQ=", "PAGER=cat")
		var out, bad bytes.Buffer
		cmd.Stdout, cmd.Stderr = &out, &bad
		if err := cmd.Run(); err != nil {
			t.Errorf("man: %v", err)
		}
		if !strings.Contains(out.String(), "NAME") {
			t.Errorf("man shows %q", out.String())
		}
		return bad.String()
	}
	all, err := pages()
	if err != nil {
		t.Fatal(err)
	}
	for name, roff := range all {
		if w := warnings(roff); w != "" {
			t.Errorf("%s: %s", name, w)
		}
	}
	if warnings([]byte(".TH X 8\n.SH NAME\nx\n.fx y\n\\*[none]\n")) == "" {
		t.Error("control: a page with a fault has no warning")
	}
}

func TestWhatIsNoSourceIsRefused(t *testing.T) {
	for _, source := range []string{"", "# other(8)\n", "# x(8)\n- no term\n", "# x(8)\n```\nopen\n"} {
		if b, err := page("x.8", source); err == nil || b != nil {
			t.Errorf("%q is taken", source)
		}
	}
	b, err := page("x.8", "# x(8)\n## NAME\n\n.a 'b' `-c\\n`\n\n```\n.d\n```\n")
	if want := ".SH NAME\n\\&.a \\(aqb\\(aq \\fB\\-c\\en\\fR\n.PP\n.RS 4\n.nf\n\\&.d\n.fi\n.RE\n"; err != nil || !strings.HasSuffix(string(b), want) {
		t.Errorf("%q, %v", b, err)
	}
}
