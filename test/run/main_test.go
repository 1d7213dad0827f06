// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"errors"
	"slices"
	"testing"
)

// What failed is counted once: not again with the test and the package that it is in.
func TestAFailureIsCountedOnce(t *testing.T) {
	var got tally
	text := map[string]*bytes.Buffer{}
	for _, e := range []event{
		{Action: "fail", Package: "m/a", Test: "TestOne/x"},
		{Action: "fail", Package: "m/a", Test: "TestOne/y"},
		{Action: "fail", Package: "m/a", Test: "TestOne"},
		{Action: "pass", Package: "m/a", Test: "TestTwo"},
		{Action: "fail", Package: "m/a", Test: "TestOneMore"},
		{Action: "fail", Package: "m/a"},
		{Action: "fail", Package: "m/b"}, // does not build
		{Action: "pass", Package: "m/c", Test: "TestOne"},
	} {
		got.take(e, text)
	}
	want := []string{"m/a TestOne/x", "m/a TestOne/y", "m/a TestOneMore", "m/b"}
	if !slices.Equal(got.failed, want) || got.passed != 2 {
		t.Errorf("%q failed and %d passed, want %q and 2", got.failed, got.passed, want)
	}
}

func TestFuzzTimeIsADuration(t *testing.T) {
	for s, want := range map[string]bool{"5s": true, "1h30m": true, "100x": true, "abc": false, "": false, "5": false,
		"0s": false, "-5s": false, "0x": false, "x": false} {
		if fuzzable(s) != want {
			t.Errorf("%q: %v", s, !want)
		}
	}
}

// A fuzz target that used up its time is told from one that found something.
func TestRanOut(t *testing.T) {
	for _, c := range []struct {
		out  string
		want bool
	}{
		{"fuzz: elapsed: 5s, execs: 9 (1/sec)\n--- FAIL: FuzzCard (5.11s)\n    context deadline exceeded\nFAIL\nexit status 1\n", true},
		{"--- FAIL: FuzzCard (0.11s)\n    --- FAIL: FuzzCard (0.00s)\n        card_test.go:9: context deadline exceeded\n    \n    Failing input written to testdata/fuzz/FuzzCard/1\nFAIL\n", false},
		{"--- FAIL: FuzzCard (5.11s)\n    context deadline exceeded\n    Failing input written to testdata/fuzz/FuzzCard/1\nFAIL\n", false},
		{"--- FAIL: FuzzCard (0.01s)\n    card_test.go:9: no seed\nFAIL\n", false},
		{"./card.go:9: undefined: x\nFAIL\n", false},
		{"", false},
	} {
		if got := ranOut([]byte(c.out)); got != c.want {
			t.Errorf("%q: %v, want %v", c.out, got, c.want)
		}
	}
}

// The virtual machine's results count one by one; a machine that could not be had is a skip, and one that said nothing a
// failure.
func TestTheMachineIsCounted(t *testing.T) {
	failed := errors.New("exit status 2")
	for _, c := range []struct {
		said, results           string
		err                     error
		passed, failed, skipped int
	}{
		{"", `{"Passed":7,"Failed":null}`, nil, 7, 0, 0},
		{"", `{"Passed":7,"Failed":["inside TestA","inside TestB"]}`, failed, 7, 2, 0},
		{"make: ...\nVM ground skipped: apt-get install qemu\n", "", nil, 0, 0, 1},
		{"VM ground skipped: ", "", failed, 0, 1, 0},
		{"", "", failed, 0, 1, 0},
		{"", "", nil, 0, 1, 0},
		{"", `{"Passed":0}`, nil, 0, 1, 0},
		{"", `{"Passed":3}`, failed, 3, 1, 0},
		{"VM ground skipped in part: firsthour: x\n", `{"Passed":7,"Skipped":["firsthour: x"]}`, nil, 7, 0, 1},
		{"VM ground skipped in part: b: x\n", `{"Passed":7,"Failed":["inside TestA"],"Skipped":["b: x"]}`, failed, 7, 1, 1},
		{"a test says VM ground skipped: x\n", `{"Passed":7}`, nil, 7, 0, 0},
		{"VM ground skipped: inside: x\n", `{"Passed":0,"Skipped":["inside: x"]}`, nil, 0, 0, 1},
	} {
		var got tally
		got.takeMachine([]byte(c.said), []byte(c.results), c.err)
		if got.passed != c.passed || len(got.failed) != c.failed || got.skipped != c.skipped || len(got.grounds) != c.skipped {
			t.Errorf("%+v: %+v", c, got)
		}
	}
}
