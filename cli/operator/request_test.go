// SPDX-License-Identifier: Apache-2.0

package operator

import (
	"reflect"
	"testing"

	"github.com/doorward/doorward/internal/wire"
)

func TestRequestOf(t *testing.T) {
	for words, want := range map[string]*wire.RequestReq{
		"https://example.org":                {Method: "GET", Name: "example.org", Port: 443, Path: "/"},
		"https://example.org:8443/a%2Fb?q=1": {Method: "GET", Name: "example.org", Port: 8443, Path: "/a%2Fb", Query: "q=1"},
		"http://example.org/a/../b":          {Method: "GET", Name: "example.org", Port: 80, Path: "/a/../b", Clear: true},
		"example.org/a":                      nil,
		"ftp://example.org/a":                nil,
		"https://ada@example.org/a":          nil,
		"https://example.org:0/a":            nil,
		"https://example.org:70000/a":        nil,
		"https:///a":                         nil,
	} {
		got, err := requestOf([]string{"GET", words})
		if (want == nil) != (err != nil) || want != nil && !reflect.DeepEqual(got, want) {
			t.Errorf("%s: %+v, %v", words, got, err)
		}
	}
	if _, err := requestOf([]string{"GET"}); err == nil {
		t.Error("a method alone")
	}
}
