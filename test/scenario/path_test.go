// SPDX-License-Identifier: Apache-2.0

package scenario

import (
	"strings"
	"testing"

	"github.com/doorward/doorward/test/world"
)

// A read passes, a write parks, runs once when it is approved, and its result is collected by the cell.
func TestTheWholePath(t *testing.T) {
	r := newRig(t, world.Options{})
	res := r.connector(r.work, 0, "dav", "calendars", "--json")
	if !strings.Contains(res.Stdout, "Personal") {
		t.Errorf("calendars: %v", res)
	}
	res = r.connector(r.work, 0, "github", "issues", "--repo", "ada/site", "--json")
	if !strings.Contains(res.Stdout, "bug") {
		t.Errorf("issues: %v", res)
	}
}
