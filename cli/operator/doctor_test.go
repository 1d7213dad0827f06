// SPDX-License-Identifier: Apache-2.0

package operator

import (
	"bytes"
	"errors"
	"os"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/doorward/doorward/cli/operator/machine"
	"github.com/doorward/doorward/internal/wire"
)

// A cell that stops the canary, or holds its terminal open behind it, does not hold doctor. The control is one that ends.
func TestACanaryThatDoesNotEndIsLeft(t *testing.T) {
	said := func(within time.Duration, words string, hold bool) (string, error) {
		fds := make([]int, 2)
		if err := unix.Pipe2(fds, unix.O_CLOEXEC); err != nil {
			t.Fatal(err)
		}
		end := os.NewFile(uintptr(fds[1]), "cell")
		t.Cleanup(func() { end.Close() })
		go func() {
			_, _ = end.WriteString(words)
			if !hold {
				end.Close()
			}
		}()
		return readSaid(fds[0], within)
	}
	if got, err := said(time.Minute, "a\tok\t\n", false); err != nil || got != "a\tok\t\n" {
		t.Errorf("control: %q %v", got, err)
	}
	var refused *wire.Error
	if got, err := said(50*time.Millisecond, "a\tok\t\n", true); !errors.As(err, &refused) || refused.Code != wire.CodeUnavailable || got != "" {
		t.Errorf("it holds on: %q %v", got, err)
	}
	if got, err := said(time.Minute, strings.Repeat("x", 2*saidMax), true); err != nil || len(got) != saidMax {
		t.Errorf("it says too much: %d bytes, %v", len(got), err)
	}
}

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
