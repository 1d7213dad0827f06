// SPDX-License-Identifier: Apache-2.0

// Package wiretest fills messages for tests, field by field as they are declared: a field that is added later is filled as well. No
// binary links it.
package wiretest

import (
	"fmt"
	"reflect"
	"strings"
)

// two is how many elements each list gets.
const two = 2

// Fill sets every field that a value reaches: text to what text says for the field's path, such as "Cards[1].Fields[0].Label",
// numbers to number, truth to true, and bytes to 32 of the same.
func Fill(v any, number int64, text func(path string) string) {
	fill(reflect.ValueOf(v).Elem(), "", number, text)
}

func fill(v reflect.Value, path string, number int64, text func(string) string) {
	switch v.Kind() {
	case reflect.String:
		v.SetString(text(path))
	case reflect.Bool:
		v.SetBool(true)
	case reflect.Int, reflect.Int32, reflect.Int64:
		v.SetInt(number)
	case reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64:
		v.SetUint(uint64(number))
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		fill(v.Elem(), path, number, text)
	case reflect.Slice:
		if v.Type().Elem().Kind() == reflect.Uint8 {
			v.SetBytes([]byte(strings.Repeat("\x02", 32)))
			return
		}
		v.Set(reflect.MakeSlice(v.Type(), two, two))
		fallthrough
	case reflect.Array:
		for i := range v.Len() {
			fill(v.Index(i), fmt.Sprintf("%s[%d]", path, i), number, text)
		}
	case reflect.Struct:
		for i := range v.NumField() {
			fill(v.Field(i), strings.TrimPrefix(path+"."+v.Type().Field(i).Name, "."), number, text)
		}
	default:
		panic(fmt.Sprintf("%s is a %s, which no message has", path, v.Kind()))
	}
}
