// SPDX-License-Identifier: Apache-2.0

// Command run is `make test`: vet, every test, every fuzz target for a short time, and the virtual machine's smoke tests.
// What failed is printed whole; the last lines name each ground that the machine could not give, and count.
package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"time"
)

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, "test:", err)
		os.Exit(1)
	}
}

func run() error {
	fuzzTime := flag.String("fuzz", "5s", "how long each fuzz target runs; with a value given, only those run")
	flag.Parse()
	only := flag.NFlag() > 0
	if !fuzzable(*fuzzTime) {
		return fmt.Errorf("FUZZTIME %q: no duration; write it as 30s, 5m, or 1000x for so many inputs", *fuzzTime)
	}
	var t tally
	if !only {
		fmt.Println("== vet")
		if err := stream("go", "vet", "./..."); err != nil {
			return fmt.Errorf("go vet: %w", err)
		}
		fmt.Println("== tests")
		if err := t.tests(); err != nil {
			return err
		}
	}
	fmt.Println("== fuzz, " + *fuzzTime + " each")
	if err := t.fuzz(*fuzzTime); err != nil {
		return err
	}
	if !only {
		fmt.Println("== virtual machine")
		t.machine()
	}
	slices.Sort(t.grounds)
	for _, g := range slices.Compact(t.grounds) {
		fmt.Println("skipped:", g)
	}
	fmt.Printf("%d passed, %d failed, %d skipped\n", t.passed, len(t.failed), t.skipped)
	if len(t.failed) > 0 {
		return errors.New("failed:\n  " + strings.Join(t.failed, "\n  "))
	}
	if t.passed == 0 {
		return fmt.Errorf("no test ran")
	}
	return nil
}

type tally struct {
	passed, skipped int
	failed          []string // "package test", or the package alone where no test of it is to blame
	grounds         []string // what was skipped, in the tests' own words
}

// event is one line of `go test -json`, see `go doc test2json`.
type event struct {
	Action, Package, Test, Output string
	Elapsed                       float64
}

// tests runs every test once. Packages run one after the other where they share the machine's cgroups and ports.
func (t *tally) tests() error {
	cmd := exec.Command("go", "test", "-json", "-count=1", "-timeout=40m", "./...")
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		return err
	}
	if err := cmd.Start(); err != nil {
		return err
	}
	text := map[string]*bytes.Buffer{}
	in := bufio.NewReaderSize(out, 1<<20)
	for {
		line, rerr := in.ReadBytes('\n')
		var e event
		if len(line) > 0 && json.Unmarshal(line, &e) == nil {
			t.take(e, text)
		}
		if rerr == io.EOF {
			break
		}
		if rerr != nil {
			return rerr
		}
	}
	if err := cmd.Wait(); err != nil && len(t.failed) == 0 {
		return fmt.Errorf("go test: %w", err)
	}
	return nil
}

func (t *tally) take(e event, text map[string]*bytes.Buffer) {
	key := e.Package + " " + e.Test
	switch e.Action {
	case "output", "build-output":
		b := text[key]
		if b == nil {
			b = new(bytes.Buffer)
			text[key] = b
		}
		b.WriteString(e.Output)
		return
	case "pass":
		if e.Test != "" {
			t.passed++
		} else {
			fmt.Printf("ok    %-60s %6.1fs\n", short(e.Package), e.Elapsed)
		}
	case "skip":
		if e.Test != "" {
			t.skipped++
			t.grounds = append(t.grounds, reason(text[key]))
		}
	case "fail":
		// A test fails with its subtest, and a package with its test: what failed is counted once, where it did.
		name, inner := short(e.Package), short(e.Package)+" "
		if e.Test != "" {
			name, inner = name+" "+e.Test, inner+e.Test+"/"
		}
		if !slices.ContainsFunc(t.failed, func(f string) bool { return strings.HasPrefix(f, inner) }) {
			t.failed = append(t.failed, name)
		}
		fmt.Printf("FAIL  %s\n", name)
		if b := text[key]; b != nil {
			fmt.Print(b.String())
		}
		if e.Test == "" { // a package that was ended, and what ran in it then
			for _, inner := range slices.Sorted(maps.Keys(text)) {
				if strings.HasPrefix(inner, key) && inner != key {
					fmt.Printf("%s had not ended:\n%s", strings.TrimPrefix(inner, key), text[inner])
					delete(text, inner)
				}
			}
		}
	default:
		return
	}
	delete(text, key)
}

// short is a package's path within this module.
func short(pkg string) string { return strings.TrimPrefix(pkg, "github.com/doorward/doorward/") }

// fuzzable says whether go test takes s as -fuzztime.
func fuzzable(s string) bool {
	if n, ok := strings.CutSuffix(s, "x"); ok {
		times, err := strconv.ParseUint(n, 10, 31)
		return err == nil && times > 0
	}
	d, err := time.ParseDuration(s)
	return err == nil && d > 0
}

// reason is the line that a skipped test gave, without its place.
func reason(b *bytes.Buffer) string {
	if b == nil {
		return "a test, for no reason that it gave"
	}
	for line := range strings.Lines(b.String()) {
		line = strings.TrimSpace(line)
		if line == "" || strings.HasPrefix(line, "=== ") || strings.HasPrefix(line, "--- ") {
			continue
		}
		if _, rest, ok := strings.Cut(line, ".go:"); ok {
			if _, words, ok := strings.Cut(rest, ": "); ok {
				return words
			}
		}
		return line
	}
	return "a test, for no reason that it gave"
}

// fuzz runs every fuzz target for a time.
func (t *tally) fuzz(fuzzTime string) error {
	list, err := exec.Command("go", "list", "-f", `{{.ImportPath}}`, "./...").Output()
	if err != nil {
		return fmt.Errorf("go list: %w", err)
	}
	for _, pkg := range strings.Fields(string(list)) {
		out, err := exec.Command("go", "test", "-list", "^Fuzz", pkg).Output()
		if err != nil {
			t.failed = append(t.failed, short(pkg)+": its fuzz targets cannot be listed")
			fmt.Printf("FAIL  %s: its fuzz targets cannot be listed: %v\n", short(pkg), err)
			continue
		}
		for _, name := range strings.Fields(string(out)) {
			if !strings.HasPrefix(name, "Fuzz") {
				continue
			}
			got, err := exec.Command("go", "test", "-run=^$", "-fuzz=^"+name+"$", "-fuzztime="+fuzzTime, "-fuzzminimizetime=100x", "-timeout=0", pkg).CombinedOutput()
			if err != nil && !ranOut(got) {
				t.failed = append(t.failed, short(pkg)+" "+name+" (fuzz)")
				fmt.Printf("FAIL  %s %s\n%s", short(pkg), name, got)
				continue
			}
			t.passed++
			fmt.Printf("ok    %s %s\n", short(pkg), name)
		}
	}
	return nil
}

// vmResults is where `make vm-test` writes what came of it.
const vmResults = "build/vm-last/results.json"

// machine runs the smoke tests of the virtual machine, where this one can boot it.
func (t *tally) machine() {
	begin := time.Now()
	_ = os.Remove(vmResults)
	out, err := exec.Command("make", "-s", "vm-test").CombinedOutput()
	results, bad := os.ReadFile(vmResults)
	if bad != nil {
		results = nil // it did not come to that
	}
	before := len(t.failed)
	t.takeMachine(out, results, err)
	if len(t.failed) > before {
		fmt.Printf("FAIL  VM ground\n%s", out)
	} else if results != nil {
		fmt.Printf("ok    %-60s %6.1fs\n", "VM ground", time.Since(begin).Seconds())
	}
}

// takeMachine counts what `make vm-test` said, wrote down and ended with. Neither a skip nor silence is a pass.
func (t *tally) takeMachine(said, results []byte, err error) {
	var r struct {
		Passed          int
		Failed, Skipped []string
	}
	none := json.Unmarshal(results, &r) != nil
	if i := bytes.Index(said, []byte("VM ground skipped: ")); none && err == nil && i >= 0 { // it did not come to a suite
		why, _, _ := strings.Cut(string(said[i:]), "\n")
		r.Skipped = []string{strings.TrimPrefix(why, "VM ground skipped: ")}
	}
	if r.Passed+len(r.Failed)+len(r.Skipped) == 0 || err != nil && len(r.Failed) == 0 {
		t.failed = append(t.failed, "VM ground: it gave no results")
	}
	t.passed += r.Passed
	for _, f := range r.Failed {
		t.failed = append(t.failed, "VM ground: "+f)
	}
	t.skipped += len(r.Skipped)
	for _, why := range r.Skipped {
		t.grounds = append(t.grounds, "VM ground: "+why)
	}
}

// ranOut reports that a fuzz target did no more than use up its time: Go before 1.27 at times calls that a failure
// (go.dev/issue/75804). A finding names the input that it wrote, and a fault in the target prints its own words.
func ranOut(out []byte) bool {
	var after []string
	for line := range strings.Lines(string(out)) {
		if len(after) > 0 || strings.HasPrefix(line, "--- FAIL: Fuzz") {
			after = append(after, strings.TrimSpace(line))
		}
	}
	return len(after) >= 3 && after[1] == "context deadline exceeded" && after[2] == "FAIL"
}

func stream(name string, args ...string) error {
	cmd := exec.Command(name, args...)
	cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
	return cmd.Run()
}
