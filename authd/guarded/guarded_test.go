// SPDX-License-Identifier: Apache-2.0

package guarded

import (
	"bytes"
	"encoding/json"
	"fmt"
	"log/slog"
	"os"
	"strings"
	"sync"
	"testing"
	"unsafe"
)

const canary = "canary-3f9b2c71-value"

func TestValue(t *testing.T) {
	for _, size := range []int{0, 1, 4095, 4096, 4097, 100000} {
		given := bytes.Repeat([]byte{'x'}, size)
		v := New(given)
		if len(v.AppendTo(nil)) != size {
			t.Errorf("length %d, want %d", len(v.AppendTo(nil)), size)
		}
		if bytes.ContainsRune(given, 'x') {
			t.Error("what was given is not overwritten")
		}
		v.Use(func(b []byte) {
			if !bytes.Equal(b, bytes.Repeat([]byte{'x'}, size)) {
				t.Error("the value differs")
			}
		})
		if got := v.AppendTo([]byte("a")); len(got) != size+1 {
			t.Errorf("appended %d bytes", len(got))
		}
		v.Wipe()
		v.Wipe()
		if len(v.AppendTo(nil)) != 0 {
			t.Error("not empty after Wipe")
		}
	}
}

func TestKindsAreUsable(t *testing.T) {
	if b, err := secretPages(4096); err != nil {
		t.Logf("memfd_secret is not to be had here: %v", err)
	} else if b[0] = 1; b[0] != 1 {
		t.Error("memfd_secret does not keep a byte")
	}
	v := New([]byte(canary))
	defer v.Wipe()
	if v.Kind() == Plain {
		t.Skip("neither memfd_secret nor mlock is allowed here (see ulimit -l)")
	}
}

// What reads a process from outside cannot read these pages; ordinary memory is the control.
func TestMemoryFileDoesNotShowIt(t *testing.T) {
	v := New([]byte(canary))
	defer v.Wipe()
	if v.Kind() != Secret {
		t.Skip("memfd_secret is not to be had here")
	}
	mem, err := os.Open("/proc/self/mem")
	if err != nil {
		t.Skip("this process may not read its own memory file")
	}
	defer mem.Close()
	control := []byte(canary)
	got := make([]byte, len(canary))
	if _, err := mem.ReadAt(got, at(control)); err != nil || string(got) != canary {
		t.Fatalf("control: ordinary memory is not readable either: %v", err)
	}
	var where int64
	v.Use(func(b []byte) { where = at(b) })
	got = make([]byte, len(canary))
	if _, err := mem.ReadAt(got, where); err == nil {
		t.Fatalf("read %q", got)
	}
}

func at(b []byte) int64 { return int64(uintptr(unsafe.Pointer(&b[0]))) }

func TestNothingPrintsIt(t *testing.T) {
	v := New([]byte(canary))
	defer v.Wipe()
	var out bytes.Buffer
	for _, verb := range []string{"%v", "%+v", "%#v", "%s", "%q", "%x", "%d"} {
		fmt.Fprintf(&out, verb, v)
	}
	slog.New(slog.NewJSONHandler(&out, nil)).Info("m", "v", v)
	slog.New(slog.NewTextHandler(&out, nil)).Info("m", "v", v)
	if err := json.NewEncoder(&out).Encode(struct{ V *Value }{v}); err != nil {
		t.Fatal(err)
	}
	if strings.Contains(out.String(), "canary") || strings.Contains(out.String(), "63616e617279") {
		t.Fatal(out.String())
	}
}

func TestWipeWhileRead(t *testing.T) {
	v := New([]byte(canary))
	var readers sync.WaitGroup
	for range 4 {
		readers.Go(func() {
			for range 1000 {
				if got := v.AppendTo(nil); len(got) != 0 && string(got) != canary {
					t.Errorf("half a value: %q", got)
				}
			}
		})
	}
	v.Wipe()
	readers.Wait()
}
