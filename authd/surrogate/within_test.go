// SPDX-License-Identifier: Apache-2.0

package surrogate

import (
	"crypto/rand"
	"testing"
)

func TestWithin(t *testing.T) {
	for _, credential := range []string{"ghp_0123456789abcdefghijABCDEFGHIJ012345", "sk-ant-abcDEF_-0123456789", "pass word!", "0123456789",
		"deadbeef00112233"} {
		v, err := ShapeOf([]byte(credential)).Mint(rand.Reader)
		if err != nil {
			t.Fatal(err)
		}
		s := string(v)
		for text, want := range map[string]int{
			s: 1, "Bearer " + s: 1, "/bot" + s + "/send": 1, s + "," + s: 2, "x=" + s[:len(s)-9]: 0, credential: 0, "": 0,
		} {
			if got := Within(text); got != want && !(want == 0 && len(s) > 60) {
				t.Errorf("of %q: %d in %q, want %d", credential, got, text, want)
			}
		}
	}
	for _, text := range []string{"doorward", "github.com/doorward/doorward", "https://doorward.example/DoorWard"} {
		if Within(text) != 0 {
			t.Errorf("a surrogate in %q", text)
		}
	}
}
