// SPDX-License-Identifier: Apache-2.0

package operator

import (
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/doorward/doorward/internal/wire"
)

// release names this build: `make build` sets it with -X.
var release = "devel"

// helpTemplate is cobra's, with what a command is in short before the rest, which goes on from there.
const helpTemplate = `{{with .Short}}{{.}}

{{end}}{{with .Long}}{{. | trimTrailingWhitespaces}}

{{end}}{{if or .Runnable .HasSubCommands}}{{.UsageString}}{{end}}`

// tidy gives the whole tree of commands its rules for wrong words. How many words a command takes is said once, in its
// Use line.
func tidy(c *cobra.Command) {
	for _, sub := range c.Commands() {
		tidy(sub)
	}
	c.SetHelpTemplate(helpTemplate)
	switch {
	case c.HasSubCommands() && c.RunE == nil:
		c.Args, c.RunE = cobra.ArbitraryArgs, group
	case c.HasSubCommands(): // session lists without a word
		c.Args = func(c *cobra.Command, args []string) error {
			if len(args) > 0 {
				return noCommand(c, args[0])
			}
			return nil
		}
	default:
		c.Args = words
	}
}

// group is a command that only says what there is below it.
func group(c *cobra.Command, args []string) error {
	if len(args) == 0 {
		return c.Help()
	}
	return noCommand(c, args[0])
}

func noCommand(c *cobra.Command, word string) error {
	var names []string
	for _, sub := range c.Commands() {
		if sub.IsAvailableCommand() {
			names = append(names, sub.Name())
		}
	}
	return wire.Refuse(wire.CodeUsage, "no command "+quote(word)+" of "+c.CommandPath(),
		meant("", word, names)+c.CommandPath()+" --help")
}

// helpCmd is `doorward help`.
func helpCmd() *cobra.Command {
	return &cobra.Command{Use: "help [COMMAND]...", Short: "say what a command does and takes",
		RunE: func(c *cobra.Command, args []string) error {
			at := c.Root()
			for _, word := range args {
				var next *cobra.Command
				for _, sub := range at.Commands() {
					if sub.Name() == word {
						next = sub
					}
				}
				if next == nil {
					return noCommand(at, word)
				}
				at = next
			}
			at.InitDefaultHelpFlag()
			return at.Help()
		}}
}

// wordsOf is what the words in capitals of a Use line stands for.
var wordsOf = map[string]string{"ID": "the ID of one call", "NAME": "the NAME of an account", "NEW": "its NEW name",
	"CONNECTOR": "a CONNECTOR", "APPROVER": "the name of an APPROVER", "CHANNEL": "the name of a CHANNEL",
	"KIND": "the KIND of a channel", "ADDRESS": "its ADDRESS",
	"FILE": "the name of a new FILE", "CELL": "the name of a CELL", "SESSION": "the name of a SESSION", "GRANT": "the ID of a GRANT",
	"MANIFEST": "the name of a MANIFEST", "FILE|MANIFEST": "a FILE, or the name of a MANIFEST that came with Doorward",
	"ID|HOST": "the ID of a call, or a HOST"}

// words holds a command's words to its Use line: "show ID", "why [ID|HOST]".
func words(c *cobra.Command, args []string) error {
	if strings.Contains(c.Use, "...") { // as many as one likes
		return nil
	}
	var must, may []string
	for _, w := range strings.Fields(c.Use)[1:] {
		name, optional := strings.Trim(w, "[]"), w[0] == '['
		if name = orElse(wordsOf[name], name); optional {
			may = append(may, name)
		} else {
			must = append(must, name)
		}
	}
	path := strings.TrimPrefix(c.CommandPath(), c.Root().Name()+" ")
	var takes string
	switch {
	case len(args) >= len(must) && len(args) <= len(must)+len(may):
		return nil
	case len(must)+len(may) == 0:
		return wire.Refuse(wire.CodeUsage, path+" takes no words, not "+quote(args[0]), "see: "+c.CommandPath()+" --help")
	case len(must) == 0:
		takes = strings.Join(may, " and ") + " at most"
	default:
		takes = strings.Join(must, " and ")
	}
	if len(args) > 0 {
		takes += fmt.Sprintf(", not %d word", len(args))
		if len(args) > 1 {
			takes += "s"
		}
	}
	return wire.Refuse(wire.CodeUsage, path+" takes "+takes, "see: "+c.CommandPath()+" --help")
}

// flagFault says in plain words what is wrong with a flag. One that is named like a secret gets the advice.
func flagFault(c *cobra.Command, err error) error {
	see := c.CommandPath() + " --help"
	var missing *pflag.NotExistError
	var novalue *pflag.ValueRequiredError
	var bad *pflag.InvalidValueError
	switch {
	case errors.As(err, &missing):
		name := missing.GetSpecifiedName()
		if secretName(name) {
			return notAnArgument("--" + name)
		}
		if missing.GetSpecifiedShortnames() != "" {
			return wire.Refuse(wire.CodeUsage, "no flag -"+name+" of "+c.CommandPath(), "see: "+see)
		}
		var names []string
		c.Flags().VisitAll(func(f *pflag.Flag) { names = append(names, f.Name) })
		return wire.Refuse(wire.CodeUsage, "no flag --"+name+" of "+c.CommandPath(), meant("--", name, names)+see)
	case errors.As(err, &novalue):
		return wire.Refuse(wire.CodeUsage, "--"+novalue.GetFlag().Name+" needs a value", "see: "+see)
	case errors.As(err, &bad):
		want := "of another form"
		switch bad.GetFlag().Value.Type() {
		case "bool":
			want = "true or false, or nothing"
		case "int", "int64":
			want = "a whole number"
		}
		return wire.Refuse(wire.CodeUsage, "--"+bad.GetFlag().Name+" "+quote(bad.GetValue())+": must be "+want, "see: "+see)
	}
	return wire.Refuse(wire.CodeUsage, oneLine(err.Error()), "see: "+see)
}

// meant begins a hint with the name that was probably meant, if any is near.
func meant(dashes, word string, names []string) string {
	if near := nearest(word, names); near != "" {
		return "did you mean " + dashes + near + "? see: "
	}
	return "see: "
}

// nearest is the name that word was probably meant to be, or "". Two letters may be wrong, or a third of a long word.
func nearest(word string, names []string) string {
	if word == "" { // every name begins with it
		return ""
	}
	for far := 1; far <= max(2, len(word)/3) && len(word) <= 64; far++ {
		c := &cobra.Command{SuggestionsMinimumDistance: far}
		for _, n := range names {
			c.AddCommand(&cobra.Command{Use: n, Run: func(*cobra.Command, []string) {}})
		}
		if near := c.SuggestionsFor(word); len(near) > 0 {
			return near[0]
		}
	}
	return ""
}

// quote marks where a word that someone typed begins and ends.
func quote(s string) string {
	if r := []rune(s); len(r) > 64 {
		s = string(r[:64]) + "..."
	}
	return `"` + s + `"`
}

func (a *app) versionCmd() *cobra.Command {
	return &cobra.Command{Use: "version", Short: "say which build this is",
		RunE: func(*cobra.Command, []string) error {
			if a.json {
				return a.value(map[string]any{"version": release, "protocol": wire.Version})
			}
			a.line("doorward %s, protocol %d", release, wire.Version)
			return nil
		}}
}
