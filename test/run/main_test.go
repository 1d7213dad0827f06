// SPDX-License-Identifier: Apache-2.0

package main

import "testing"

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
