// SPDX-License-Identifier: Apache-2.0

package operator

import (
	"os"
	"strings"
	"testing"

	"github.com/doorward/doorward/cli/clitest"
)

// Every command that the documents show is one that there is, with flags that it has.
func TestCommandsOfTheDocuments(t *testing.T) {
	all := clitest.Documents(t, "../..", "doorward")
	if len(all) < 10 {
		t.Fatalf("only %d commands are found", len(all))
	}
	for _, shown := range all {
		if len(shown.Args) == 0 {
			continue
		}
		var args []string
		for _, w := range shown.Args {
			if !shown.Whole {
				w = strings.Trim(w, "[]…") // what may be left out
			}
			args = append(args, w)
		}
		a := &app{in: os.Stdin, out: os.Stdout, err: os.Stderr}
		c, rest, err := a.root().Find(args)
		if err == nil {
			err = c.ParseFlags(rest)
		}
		if words := c.Flags().Args(); err == nil && (shown.Whole || c.HasSubCommands() && len(words) > 0) {
			err = c.ValidateArgs(words)
			if err == nil && c.HasSubCommands() && len(words) > 0 {
				err = noCommand(c, words[0])
			}
		}
		if err != nil {
			t.Errorf("%s: doorward %s: %v", shown.Where, strings.Join(shown.Args, " "), err)
		}
	}
}
