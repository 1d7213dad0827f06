// SPDX-License-Identifier: Apache-2.0

package wire

import (
	"bytes"
	"reflect"
	"testing"

	"github.com/vmihailenco/msgpack/v5"
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
	plainFrame  Frame
	plainDecide struct {
		Frame plainFrame `msgpack:"f"`
	}
	plainDecided DecideResp
	plainCall    struct {
		Grant    string     `msgpack:"g"`
		Frame    plainFrame `msgpack:"f"`
		Prepared bool       `msgpack:"p,omitempty"`
		Mark     string     `msgpack:"m,omitempty"`
		ETag     string     `msgpack:"e,omitempty"`
		Raw      bool       `msgpack:"r,omitempty"`
	}
	plainOutput Output
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

// alike holds one type's own codec to what reflection does with plain, which has the same fields.
func alike[Fast, Plain any](t *testing.T) {
	t.Helper()
	if a, b := reflect.TypeFor[Fast](), reflect.TypeFor[Plain](); a.NumField() != b.NumField() || a.NumField() > 15 {
		t.Fatalf("%s has %d fields, this test knows %d, and a head of one byte holds 15", a, a.NumField(), b.NumField())
	}
	rapid.Check(t, func(t *rapid.T) {
		plain := new(Plain)
		fill(t, reflect.ValueOf(plain).Elem())
		slow, err := Marshal(plain)
		if err != nil {
			t.Fatal(err)
		}
		got := new(Fast)
		if err := Unmarshal(slow, got); err != nil {
			t.Fatalf("read what reflection wrote: %v", err)
		}
		fast, err := Marshal(got)
		if err != nil {
			t.Fatal(err)
		}
		back := new(Plain)
		if err := Unmarshal(fast, back); err != nil {
			t.Fatalf("reflection reads: %v", err)
		}
		if !reflect.DeepEqual(plain, back) {
			t.Fatalf("%+v\ncame back as\n%+v", plain, back)
		}
		if _, ok := any(*got).(msgpack.CustomEncoder); ok {
			byValue, err := Marshal(*got)
			if err != nil || !bytes.Equal(byValue, fast) {
				t.Fatalf("not the same by value: %v", err)
			}
		}
	})
}

func TestFastCallsDoWhatReflectionDoes(t *testing.T) {
	t.Run("ResolveResp", alike[ResolveResp, plainResp])
	t.Run("Entry", alike[Entry, plainEntry])
	t.Run("Frame", alike[Frame, plainFrame])
	t.Run("DecideReq", alike[DecideReq, plainDecide])
	t.Run("DecideResp", alike[DecideResp, plainDecided])
	t.Run("CallReq", alike[CallReq, plainCall])
	t.Run("Output", alike[Output, plainOutput])
}

func TestFastCallsRefuseUnknownFields(t *testing.T) {
	type more struct {
		Frame Frame `msgpack:"f"`
		Extra bool  `msgpack:"x"`
	}
	b, err := Marshal(&more{Extra: true})
	if err != nil {
		t.Fatal(err)
	}
	for _, v := range []any{new(DecideReq), new(CallReq), new(DecideResp), new(Output), new(Frame)} {
		if err := Unmarshal(b, v); err == nil {
			t.Errorf("%T took a field that it has not", v)
		}
	}
}

// TestFastCallsTakeAnyOrder: keys in another order than ours, with one of two bytes and one in its longer form.
func TestFastCallsTakeAnyOrder(t *testing.T) {
	entry := "\x84\xa2mi\x07\xa1q\x91\x82\xa1v\x91\xa1x\xa1n\xa1k\xd9\x01p\x09\xa1n\xa1e"
	want := Entry{Name: "e", Port: 9, Query: []Match{{Name: "k", Values: []string{"x"}}}, MaxIn: 7}
	var e Entry
	if err := Unmarshal([]byte(entry), &e); err != nil || !reflect.DeepEqual(e, want) {
		t.Errorf("%+v, %v", e, err)
	}
	var r ResolveResp
	if err := Unmarshal([]byte("\x83\xa1a\xa1b\xa1e"+entry+"\xa1s\xa1c"), &r); err != nil ||
		!reflect.DeepEqual(r, ResolveResp{Secret: "c", Entry: want, Account: "b"}) {
		t.Errorf("%+v, %v", r, err)
	}
	for _, bad := range []string{"\x82\xa1n\xa1e\xa0\xa1x", "\x82\xa1n\xa1e\xa2zz\x01", "\x81\xa1b\xc0", "\x81\xa1q\x91\xc0"} {
		if err := Unmarshal([]byte(bad), &e); err == nil {
			t.Errorf("%x is read as %+v", bad, e)
		}
	}
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
