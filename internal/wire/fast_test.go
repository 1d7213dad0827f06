// SPDX-License-Identifier: Apache-2.0

package wire

import (
	"bytes"
	"reflect"
	"testing"

	"pgregory.net/rapid"
)

// Types with the same fields and no methods: reflection writes and reads them.
type (
	plainEntry Entry
	plainResp  struct {
		Secret     string     `msgpack:"s,omitempty"`
		Placement  Placement  `msgpack:"p,omitempty"`
		Entry      plainEntry `msgpack:"e"`
		CA         []byte     `msgpack:"ca,omitempty"`
		Permit     []string   `msgpack:"pm,omitempty"`
		Call       string     `msgpack:"c"`
		Cell       string     `msgpack:"l,omitempty"`
		Account    string     `msgpack:"a"`
		Generation int64      `msgpack:"n"`
		Scrub      []string   `msgpack:"sc,omitempty"`
	}
)

// fill sets every field of v, at any depth, to something; a field that a codec forgets then differs.
func fill(t *rapid.T, v reflect.Value) {
	switch v.Kind() {
	case reflect.String:
		v.SetString(rapid.StringN(1, 8, 40).Draw(t, "s"))
	case reflect.Bool:
		v.SetBool(true)
	case reflect.Int, reflect.Int64:
		v.SetInt(rapid.Int64Range(1, 1<<40).Draw(t, "n"))
	case reflect.Uint8:
		v.SetUint(uint64(rapid.ByteRange(1, 255).Draw(t, "b")))
	case reflect.Array:
		for i := range v.Len() {
			fill(t, v.Index(i))
		}
	case reflect.Slice:
		n := rapid.IntRange(1, 3).Draw(t, "len")
		v.Set(reflect.MakeSlice(v.Type(), n, n))
		for i := range n {
			fill(t, v.Index(i))
		}
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		fill(t, v.Elem())
	case reflect.Struct:
		for i := range v.NumField() {
			if rapid.IntRange(0, 3).Draw(t, "set") > 0 {
				fill(t, v.Field(i))
			}
		}
	default:
		t.Fatalf("a field of kind %s", v.Kind())
	}
}

func TestFastCodecDoesWhatReflectionDoes(t *testing.T) {
	if a, b := reflect.TypeFor[ResolveResp](), reflect.TypeFor[plainResp](); a.NumField() != b.NumField() {
		t.Fatalf("ResolveResp has %d fields, this test knows %d", a.NumField(), b.NumField())
	}
	rapid.Check(t, func(t *rapid.T) {
		var plain plainResp
		fill(t, reflect.ValueOf(&plain).Elem())
		slow, err := Marshal(&plain)
		if err != nil {
			t.Fatal(err)
		}
		var got ResolveResp
		if err := Unmarshal(slow, &got); err != nil {
			t.Fatalf("read what reflection wrote: %v", err)
		}
		fast, err := Marshal(&got)
		if err != nil {
			t.Fatal(err)
		}
		var back plainResp
		if err := Unmarshal(fast, &back); err != nil {
			t.Fatalf("reflection reads: %v", err)
		}
		if !reflect.DeepEqual(plain, back) {
			t.Fatalf("%+v\ncame back as\n%+v", plain, back)
		}
		again, err := Marshal(&got)
		if err != nil || !bytes.Equal(again, fast) {
			t.Fatalf("not the same twice: %v", err)
		}
	})
}

func TestFastFramesAreWhatReflectionWrites(t *testing.T) {
	type plainMsg Msg
	if n := reflect.TypeFor[Msg]().NumField(); n != 6 {
		t.Fatalf("Msg has %d fields, this test knows 6", n)
	}
	body, err := Marshal(&Entry{Name: "x"})
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range []Msg{{}, {Hello: 1}, {ID: 1, Verb: "v", Body: body, Files: 3}, {ID: 1 << 63,
		Err: &Error{CodeUsage, "r", "n"}},
		{ID: 300, Err: &Error{Code: CodeUsage}}} {
		plain := plainMsg(m)
		slow, err := Marshal(&plain)
		if err != nil {
			t.Fatal(err)
		}
		fast, err := Marshal(&m)
		if err != nil || !bytes.Equal(slow, fast) {
			t.Errorf("%+v: %x, by reflection %x, %v", m, fast, slow, err)
		}
		var back Msg
		if err := Unmarshal(slow, &back); err != nil || !reflect.DeepEqual(back, m) {
			t.Errorf("%+v came back as %+v, %v", m, back, err)
		}
	}
	bad, err := Marshal(struct {
		X int `msgpack:"x"`
	}{1})
	if err != nil {
		t.Fatal(err)
	}
	var m Msg
	if err := Unmarshal(bad, &m); err == nil {
		t.Error("an unknown field passes")
	}
}

func TestFastCodecRefusesWhatReflectionRefuses(t *testing.T) {
	for name, v := range map[string]any{
		"unknown field": struct {
			X string `msgpack:"zz"`
		}{"1"},
		"unknown field of the entry": struct {
			E any `msgpack:"e"`
		}{struct {
			X string `msgpack:"zz"`
		}{"1"}},
		"wrong type": struct {
			S int `msgpack:"s"`
		}{1},
		"short digest": struct {
			E any `msgpack:"e"`
		}{struct {
			B any `msgpack:"b"`
		}{struct {
			H []byte `msgpack:"h"`
		}{[]byte("short")}}},
	} {
		b, err := Marshal(v)
		if err != nil {
			t.Fatal(err)
		}
		var r ResolveResp
		if err := Unmarshal(b, &r); err == nil {
			t.Errorf("%s: read as %+v", name, r)
		}
	}
}

func FuzzResolveResp(f *testing.F) {
	b, err := Marshal(&ResolveResp{Secret: "s", Entry: Entry{Name: "n", Query: []Match{{Name: "q", Values: []string{"v"}}},
		Body: Body{Media: "m", JSON: []Leaf{{Pointer: "/p", Text: &FileBody{Size: 1}}}}}, Scrub: []string{"s"}})
	if err != nil {
		f.Fatal(err)
	}
	f.Add(b)
	f.Fuzz(func(t *testing.T, b []byte) {
		var r ResolveResp
		if Unmarshal(b, &r) != nil {
			return
		}
		out, err := Marshal(&r)
		if err != nil {
			t.Fatal(err)
		}
		var again ResolveResp
		if err := Unmarshal(out, &again); err != nil {
			t.Fatalf("what it wrote it does not read: %v", err)
		}
	})
}
