// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"os"
	"slices"
	"strings"
	"testing"
)

// docs/kernel.md has the table of the code, row by row.
func TestTheDocumentHasTheTableOfTheCode(t *testing.T) {
	b, err := os.ReadFile("../../../docs/kernel.md")
	if err != nil {
		t.Fatal(err)
	}
	var have, want []string
	for line := range strings.Lines(string(b)) {
		if strings.HasPrefix(line, "| `") {
			have = append(have, strings.TrimSpace(line))
		}
	}
	for _, f := range Features() {
		want = append(want, "| `"+f.Check+"` | "+f.Since+" | "+f.For+" | "+f.Without+" |")
		if kind, _, _ := strings.Cut(f.Without, ":"); kind != map[bool]string{true: "refused", false: "degraded"}[f.Need] {
			t.Errorf("%s: needed is %v, and without it it is %s", f.Check, f.Need, kind)
		}
	}
	if !slices.Equal(have, want) {
		t.Errorf("docs/kernel.md has\n%s\nthe code\n%s", strings.Join(have, "\n"), strings.Join(want, "\n"))
	}
}

// What is needed and missing is wrong, what is missing and stood in for is weak, and what could not be tried is neither.
func TestAFeatureIsWrongWeakOrUntried(t *testing.T) {
	missing := func() (string, error) { return "", os.ErrNotExist }
	for _, c := range []struct {
		f    Feature
		want State
		says string
	}{
		{Feature{Check: "a", Without: "refused: x", Need: true, try: missing}, Wrong, "refused: x"},
		{Feature{Check: "a", Without: "degraded: x", try: missing}, Weak, "degraded: x"},
		{Feature{Check: "a", For: "y", try: func() (string, error) { return "", cannot("why") }}, Untried, "y: why"},
		{Feature{Check: "a", Need: true, try: func() (string, error) { return "there", nil }}, OK, "there"},
	} {
		got := c.f.finding()
		if got.State != c.want || !strings.Contains(got.What.String(), c.says) || (got.Next == "") != (c.want == OK || c.want == Untried) {
			t.Errorf("%+v: %s %s, next %q", c.f, got.State, got.What, got.Next)
		}
	}
}

// Every feature is tried here, and says something; what this machine has is its own affair.
func TestEveryFeatureIsTriedHere(t *testing.T) {
	for _, f := range Kernel() {
		t.Logf("%-8s %-18s %s", f.State, f.Check, f.What)
		if f.What.String() == "" || f.State == "" || f.State == Wrong && f.Next == "" {
			t.Errorf("%+v", f)
		}
	}
}

// No daemon runs without systemd, so that is no thing left untried.
func TestAMachineWithoutSystemdIsWrong(t *testing.T) {
	if Booted() {
		t.Skip("systemd runs this machine")
	}
	for _, f := range Kernel() {
		if f.Check == "systemd.version" && (f.State != Wrong || !strings.Contains(f.Next, "as process 1")) {
			t.Errorf("%+v", f)
		}
	}
}

func TestARedactedTextKeepsOnlyWhatIsOurs(t *testing.T) {
	text := Say("account %s of %s: %s, after %d (%v)", Name("diary"), "dav", Detail("ada@example.test"), 3, struct{ s string }{"eve"})
	if got := text.String(); !strings.Contains(got, "diary") || !strings.Contains(got, "ada@example.test") || !strings.Contains(got, "eve") {
		t.Errorf("control: %s", got)
	}
	got := text.Redacted(func(Name) string { return "#1" })
	if want := "account #1 of dav: (left out), after 3 ((left out))"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
	_, err := os.Open("/nonexistent/ada")
	if got := Say("read: %v", err).Redacted(nil); got != "read: no such file or directory" {
		t.Errorf("%q", got)
	}
}
