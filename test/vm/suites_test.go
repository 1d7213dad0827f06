// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// What a suite is without is left out by name, and its whole is the suite's all the same.
func TestASuiteLeavesOutWhatItIsWithout(t *testing.T) {
	old := suites
	t.Cleanup(func() { suites = old })
	suites = []suite{
		{name: "a", smoke: "^TestOne$", without: map[string]string{"TestTwo/x": "no clock"}},
		{name: "b", full: true},
	}
	smoke, err := choose(t.Context(), "", "", "", "", false)
	if err != nil || len(smoke) != 1 || smoke[0].run != "^TestOne$" || smoke[0].skip != "^TestTwo$/^x$|^TestFull" {
		t.Errorf("smoke: %+v %v", smoke, err)
	}
	full, err := choose(t.Context(), "", "", "", "", true)
	if err != nil || len(full) != 2 || full[0].run != "" || full[0].skip != "^TestTwo$/^x$" || full[1].skip != "" {
		t.Errorf("full: %+v %v", full, err)
	}
	named, err := choose(t.Context(), "", "", "^b$", "", false)
	if err != nil || len(named) != 1 || named[0].skip != "" {
		t.Errorf("b by its name: %+v %v", named, err)
	}
}

// Only what passed counts as passed, and a machine that ends early is no good end.
func TestResultsAreReadStrictly(t *testing.T) {
	var r results
	for _, line := range []string{"=== RUN   TestA", "--- PASS: TestA (0.01s)", "    --- SKIP: TestB/x (0.00s)", "--- FAIL: TestC (1.00s)"} {
		r.take(line)
	}
	if r.passed != 1 || !slices.Equal(r.bad, []string{"SKIP: TestB/x (0.00s)", "FAIL: TestC (1.00s)"}) || r.err() == nil {
		t.Errorf("%+v %v", r, r.err())
	}
	r.take("bench: end 1")
	if !r.ended || r.well || r.err() != nil {
		t.Errorf("%+v %v", r, r.err())
	}
	well := results{ended: true, well: true}
	if well.err() == nil {
		t.Error("a run without tests is well")
	}
}

// A suite that this machine cannot give hides no failure of another, and a run of nothing is no good one.
func TestASkipHidesNoFailure(t *testing.T) {
	for _, c := range []struct {
		all     tally
		skipped bool
		fails   bool
	}{
		{tally{Passed: 3}, false, false},
		{tally{Passed: 3, Skipped: []string{"b: x"}}, false, false},
		{tally{Skipped: []string{"a: x", "b: x"}}, true, true},
		{tally{Passed: 3, Failed: []string{"a TestA"}, Skipped: []string{"b: x"}}, false, true},
		{tally{Failed: []string{"a TestA"}, Skipped: []string{"b: x"}}, false, true},
		{tally{}, false, true},
	} {
		if err := c.all.say(nil, t.TempDir()); (err != nil) != c.fails || errors.Is(err, errSkipped) != c.skipped {
			t.Errorf("%+v: %v", c.all, err)
		}
	}
	var all tally
	all.take(&machine{suite: suite{name: "a"}}, results{}, fmt.Errorf("%w: no mirror", errSkipped))
	all.take(&machine{suite: suite{name: "b"}}, results{}, errors.New("no end"))
	all.take(&machine{suite: suite{name: "c"}}, results{passed: 2}, nil)
	if !slices.Equal(all.Skipped, []string{"a: no mirror"}) || !slices.Equal(all.Failed, []string{"b: no end"}) || all.Passed != 2 {
		t.Errorf("%+v", all)
	}
}

// A test that a suite is without is there, and so is its reason.
func TestWhatIsLeftOutIsThere(t *testing.T) {
	for _, s := range suites {
		files, err := filepath.Glob(filepath.Join("../..", s.pkg, "*_test.go"))
		if err != nil {
			t.Fatal(err)
		}
		var text []byte
		for _, f := range files {
			b, err := os.ReadFile(f)
			if err != nil {
				t.Fatal(err)
			}
			text = append(text, b...)
		}
		// What is chosen by name is there by that name, or a test that was named anew would be in no run. A name of a kind
		// stands for more than one.
		names := regexp.MustCompile(`(?m)^func (Test\w+)\(`).FindAllSubmatch(text, -1)
		for _, pattern := range []string{s.run, s.skip, s.smoke} {
			n := 0
			for _, m := range names {
				if pattern != "" && regexp.MustCompile(pattern).Match(m[1]) {
					n++
				}
			}
			if pattern != "" && n < strings.Count(pattern, "|")+1 {
				t.Errorf("%s: %d tests match %s", s.name, n, pattern)
			}
		}
		for name, why := range s.without {
			top, _, _ := strings.Cut(name, "/")
			if !bytes.Contains(text, []byte("func "+top+"(")) || why == "" {
				t.Errorf("%s is without %s, which is not there or has no reason", s.name, name)
			}
		}
	}
}
