// SPDX-License-Identifier: Apache-2.0

package envelope

import (
	"strings"
	"testing"

	"github.com/doorward/doorward/internal/wire"
)

func TestAFileAsTextIsHeldToItsBytes(t *testing.T) {
	file := "a \"quoted\" é 😀\n\x01</script>"
	text := &wire.FileBody{SHA256: wire.Sum([]byte(file)), Size: int64(len(file))}
	leaves := []wire.Leaf{{Pointer: "/files/a~1b/content", Text: text}}
	body := func(s string) string { return `{"files":{"a/b":{"content":` + s + `}}}` }
	const plain = `"a \"quoted\" é 😀\n\u0001</script>"`
	for name, c := range map[string]struct {
		data string
		ok   bool
	}{
		"as it is":        {body(plain), true},
		"other escapes":   {body(strings.Replace(plain, "é 😀", `\u00e9 \ud83d\ude00`, 1)), true},
		"another letter":  {body(strings.Replace(plain, "é", "e", 1)), false},
		"more":            {body(strings.Replace(plain, "script>", "script> ", 1)), false},
		"half a pair":     {body(strings.Replace(plain, "😀", `\ud83d`, 1)), false},
		"not UTF-8":       {body(strings.Replace(plain, "é", "\xe9", 1)), false},
		"a number":        {body("1"), false},
		"an object":       {body(`{"content":` + plain + `}`), false},
		"another file":    {strings.Replace(body(plain), "a/b", "a", 1), false},
		"a field besides": {strings.Replace(body(plain), `{"content"`, `{"x":1,"content"`, 1), false},
	} {
		if err := Check(&wire.Body{Media: mediaJSON, JSON: leaves}, []byte(c.data)); (err == nil) != c.ok {
			t.Errorf("%s: %v, want allowed %v", name, err, c.ok)
		}
	}
}
