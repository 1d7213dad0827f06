// SPDX-License-Identifier: Apache-2.0

package operator

import (
	"bytes"
	"strings"
	"testing"

	"github.com/doorward/doorward/cli/operator/machine"
)

// Walls of one daemon that all hold share a line; one that does not has its own, and splits it. No text of others gets at
// the terminal.
func TestFindingsAreReadable(t *testing.T) {
	of := func(who string, f machine.Finding) machine.Finding { f.Of = machine.Name(who); return f }
	var out bytes.Buffer
	(&app{out: &out}).printFindings([]machine.Finding{
		machine.Ok("kernel.version", "kernel %s", "6.12"),
		machine.Less("policy.dontask", "doorward policy show", "%s is set to dont-ask (%s)", "dav", machine.Detail("policy.toml:2")),
		of("authd", machine.Ok("wall.network", "a")), of("authd", machine.Ok("wall.run", "b")),
		of("egress", machine.Ok("wall.run", "c")), of("egress", machine.Bad("wall.files", "mend it", "egress: %s", machine.Detail("\x1b[2J\u202e"))),
		of("egress", machine.Ok("wall.memory", "d")),
		machine.Not("wall", "walls of x: it does not run"),
	})
	want := "ok      kernel.version      kernel 6.12\n" +
		"weak    policy.dontask      dav is set to dont-ask (policy.toml:2)\n" +
		"                            next: doorward policy show\n" +
		"ok      walls hold          authd: wall.network, wall.run\n" +
		"ok      walls hold          egress: wall.run\n" +
		"WRONG   wall.files          egress: "
	got := out.String()
	rest, ok := strings.CutPrefix(got, want)
	if !ok || strings.ContainsAny(got, "\x1b\u202e") || !strings.HasSuffix(rest, "\n                            next: mend it\n"+
		"ok      walls hold          egress: wall.memory\nuntried wall                walls of x: it does not run\n") {
		t.Errorf("%q\nwant %q...", got, want)
	}
}
