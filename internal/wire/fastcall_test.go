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

// alike holds one type's own codec to what reflection does with plain, which has the same fields.
func alike[Fast, Plain any](t *testing.T) {
	t.Helper()
	if a, b := reflect.TypeFor[Fast](), reflect.TypeFor[Plain](); a.NumField() != b.NumField() {
		t.Fatalf("%s has %d fields, this test knows %d", a, a.NumField(), b.NumField())
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
		byValue, err := Marshal(*got)
		if err != nil || !bytes.Equal(byValue, fast) {
			t.Fatalf("not the same by value: %v", err)
		}
	})
}

func TestFastCallsDoWhatReflectionDoes(t *testing.T) {
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
