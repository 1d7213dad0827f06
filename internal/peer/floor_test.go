// SPDX-License-Identifier: Apache-2.0

package peer

import "testing"

func TestVersionsAreComparedAsNumbers(t *testing.T) {
	for _, c := range []struct {
		version, floor string
		want           bool
	}{
		{"6.8", "6.8", true}, {"6.8.0-31-generic", "6.8", true}, {"6.12.43+deb13-cloud-amd64", "6.8", true}, {"7.0-rc1", "6.8", true},
		{"6.10", "6.8", true}, {"6.1.0-37-amd64", "6.8", false}, {"6.7.12", "6.8", false}, {"5.15", "6.8", false}, {"", "6.8", false},
		{"six", "6.8", false}, {"6", "6.8", false}, {"7", "6.8", true}, {"257", "255", true},
		{"252.38-1~deb12u1", "255", false}, {"255~rc1", "255", true},
	} {
		if got := AtLeast(c.version, c.floor); got != c.want {
			t.Errorf("%q at least %s: %v", c.version, c.floor, got)
		}
	}
}
