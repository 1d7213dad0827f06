// SPDX-License-Identifier: Apache-2.0

package wire

import (
	"strings"
	"testing"
)

func TestNamesOfCells(t *testing.T) {
	for name, ok := range map[string]bool{"work": true, "0": true, strings.Repeat("a", 32): true, strings.Repeat("a", 33): false,
		"": false, "..": false, "a/b": false, "A": false, "a-b": false, "a\n": false, "-canary": false} {
		if err := CellName(name); (err == nil) != ok {
			t.Errorf("%q: %v", name, err)
		}
	}
}
