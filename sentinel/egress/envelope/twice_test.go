// SPDX-License-Identifier: Apache-2.0

package envelope

import (
	"errors"
	"testing"

	"github.com/doorward/doorward/internal/wire"
	"github.com/doorward/doorward/sentinel/egress/head"
)

// A header that may be there once must not be there twice: the one that is judged may not be the one that the server
// reads. A body that is JSON to egress would be a form to the vendor.
func TestNeutralHeadersStandOnce(t *testing.T) {
	entry := func() *wire.Entry {
		return &wire.Entry{Scheme: "https", Host: "a.test", Port: 443, Method: "POST", Path: "/x",
			Body: wire.Body{Media: "application/json", JSON: []wire.Leaf{{Pointer: "/a", Value: []byte(`"b"`)}}}}
	}
	for _, name := range []string{"Content-Type", "Accept", "Accept-Encoding", "Accept-Language", "User-Agent"} {
		for n, want := range map[int]error{1: nil, 2: ErrOutside} {
			r := &head.Request{Method: "POST", Path: "/x", Host: "a.test", Length: 9}
			for range n {
				r.Fields = append(r.Fields, head.Field{Name: name, Value: "application/json"})
			}
			if err := Head(entry(), r, nil); !errors.Is(err, want) || (want == nil) != (err == nil) {
				t.Errorf("%s %d times: %v", name, n, err)
			}
		}
	}
}
