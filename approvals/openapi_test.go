// SPDX-License-Identifier: Apache-2.0

package approvals

import (
	"encoding/json"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/doorward/doorward/internal/wire"
)

// docs/openapi.json names the verbs that are carried, which of them need no session, and the status of each code.
func TestTheDescriptionOfTheAPI(t *testing.T) {
	text, err := os.ReadFile("../docs/openapi.json")
	if err != nil {
		t.Fatal(err)
	}
	var doc struct {
		Paths map[string]map[string]struct {
			Security *[]any
		}
		Codes map[string][]wire.Code `json:"x-codes"`
	}
	if err := json.Unmarshal(text, &doc); err != nil {
		t.Fatal(err)
	}
	for path, methods := range doc.Paths {
		name := strings.TrimPrefix(path, "/v1/")
		post, ok := methods["post"]
		switch {
		case name == "events" && len(methods) == 1 && !ok:
		case len(methods) != 1 || !ok || !known(name):
			t.Errorf("%s is described, and not carried", path)
		case (post.Security != nil) != slices.Contains(strangers, name):
			t.Errorf("%s: that it needs a session, or none, is described wrongly", path)
		}
	}
	for _, name := range slices.Concat(strangers, verbs, []string{"events"}) {
		if doc.Paths["/v1/"+name] == nil {
			t.Errorf("%s is carried, and not described", name)
		}
	}
	for text, codes := range doc.Codes {
		for _, c := range codes {
			if have := strconv.Itoa(status(c)); have != text {
				t.Errorf("%s is answered as %s, and described as %s", c, have, text)
			}
		}
	}
}
