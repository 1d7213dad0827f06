// SPDX-License-Identifier: Apache-2.0

package cells

import (
	"os"
	"reflect"
	"regexp"
	"strings"
	"testing"
)

// doorward-cell(5) has every key of a cell's file and no other, and its example is valid.
func TestTheManualPage(t *testing.T) {
	b, err := os.ReadFile("../package/docs/doorward-cell.5.md")
	if err != nil {
		t.Fatal(err)
	}
	page := string(b)
	_, keys, _ := strings.Cut(page, "\n## KEYS\n")
	keys, _, _ = strings.Cut(keys, "\n## ")
	said := map[string]bool{}
	table := ""
	for _, m := range regexp.MustCompile("(?m)^(?:Under `\\[([a-z]+)\\]`|- `([^`]+)`):").FindAllStringSubmatch(keys, -1) {
		if m[1] != "" {
			table = m[1] + "."
		} else {
			said[table+m[2]] = true
		}
	}
	var walk func(prefix string, typ reflect.Type)
	walk = func(prefix string, typ reflect.Type) {
		for i := range typ.NumField() {
			f := typ.Field(i)
			tag := f.Tag.Get("toml")
			switch {
			case tag == "":
			case f.Type.Kind() == reflect.Struct:
				walk(prefix+tag+".", f.Type)
			case !said[prefix+tag]:
				t.Errorf("the page does not name %s", prefix+tag)
			default:
				delete(said, prefix+tag)
			}
		}
	}
	walk("", reflect.TypeFor[config]())
	for key := range said {
		t.Errorf("the page names %s, which is no key", key)
	}
	_, example, _ := strings.Cut(page, "\n## EXAMPLE\n\n```\n")
	example, _, _ = strings.Cut(example, "```")
	if c, err := parse("example.toml", "work", []byte(example)); err != nil || c.User != "agent" || c.memory != 4<<30 {
		t.Errorf("the example: %+v, %v", c, err)
	}
}
