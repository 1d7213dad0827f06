// SPDX-License-Identifier: Apache-2.0

package spool

import (
	"bytes"
	"errors"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

func newSpool(t *testing.T, dir string) *Spool {
	t.Helper()
	key, err := DeriveKey(make([]byte, 32))
	if err != nil {
		t.Fatal(err)
	}
	s, err := Open(dir, key, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func TestWhatIsPutIsReadBack(t *testing.T) {
	s := newSpool(t, filepath.Join(t.TempDir(), "spool"))
	for _, n := range []int{0, 1, blockSize - 1, blockSize, blockSize + 1, 3*blockSize + 5} {
		in := bytes.Repeat([]byte("x"), n)
		ref, m, err := s.Put(t.Context(), bytes.NewReader(in), Meta{Call: "c", Kind: "body"})
		if err != nil {
			t.Fatal(err)
		}
		r, got, err := s.Open(ref)
		if err != nil {
			t.Fatal(n, err)
		}
		out, err := io.ReadAll(r)
		r.Close()
		if err != nil || !bytes.Equal(in, out) || got != m || got.Size != int64(n) {
			t.Fatal(n, err, got, m)
		}
		raw, err := os.ReadFile(filepath.Join(s.dir, ref))
		if err != nil {
			t.Fatal(err)
		}
		if n > 16 && bytes.Contains(raw, in[:16]) {
			t.Fatal("plain bytes on the disk")
		}
	}
}

func TestAChangedFileDoesNotOpen(t *testing.T) {
	s := newSpool(t, filepath.Join(t.TempDir(), "spool"))
	put := func(b string) string {
		ref, _, err := s.Put(t.Context(), strings.NewReader(b), Meta{Call: "c"})
		if err != nil {
			t.Fatal(err)
		}
		return ref
	}
	long := strings.Repeat("ab", blockSize)
	for name, spoil := range map[string]func(raw []byte) []byte{
		"a bit turned":      func(b []byte) []byte { b[len(b)/2] ^= 1; return b },
		"the last byte cut": func(b []byte) []byte { return b[:len(b)-1] },
		"the last block cut": func(b []byte) []byte {
			return b[:len(b)-tagSize]
		},
		"two blocks cut": func(b []byte) []byte { return b[:len(b)-tagSize-blockSize-tagSize] },
		"a byte added":   func(b []byte) []byte { return append(b, 0) },
		"two blocks swapped": func(b []byte) []byte {
			end := len(b) - tagSize
			one := bytes.Clone(b[end-2*(blockSize+tagSize) : end-blockSize-tagSize])
			two := bytes.Clone(b[end-blockSize-tagSize : end])
			return append(append(append(b[:end-2*(blockSize+tagSize)], two...), one...), b[end:]...)
		},
		"header changed": func(b []byte) []byte { b[9] ^= 1; return b },
		"emptied":        func([]byte) []byte { return nil },
	} {
		ref := put(long)
		p := filepath.Join(s.dir, ref)
		raw, err := os.ReadFile(p)
		if err != nil {
			t.Fatal(err)
		}
		r, _, err := s.Open(ref) // the control: unspoiled it opens
		if err != nil {
			t.Fatal(err)
		}
		r.Close()
		if err := os.WriteFile(p, spoil(raw), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, _, err := s.Open(ref); !errors.Is(err, ErrSealed) {
			t.Errorf("%s: %v", name, err)
		}
	}
	a, b := put("one"), put("two")
	if err := os.Rename(filepath.Join(s.dir, a), filepath.Join(s.dir, b)); err != nil {
		t.Fatal(err)
	}
	if _, _, err := s.Open(b); !errors.Is(err, ErrSealed) {
		t.Error("a file under another ref opened:", err)
	}
	if _, _, err := s.Open("../../etc/passwd"); !errors.Is(err, ErrNotFound) {
		t.Error(err)
	}
}

func TestSweepDeletesExpiredOrphansAndHalves(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "spool")
	s := newSpool(t, dir)
	now := time.Now()
	put := func(m Meta) string {
		ref, _, err := s.Put(t.Context(), strings.NewReader("b"), m)
		if err != nil {
			t.Fatal(err)
		}
		return ref
	}
	kept, orphan := put(Meta{Call: "live"}), put(Meta{Call: "gone"})
	old := put(Meta{Call: "live", Expires: now.Add(-time.Second)})
	if err := os.WriteFile(filepath.Join(dir, tempPrefix+"half"), []byte("x"), 0o600); err != nil {
		t.Fatal(err)
	}
	s = newSpool(t, dir)
	if _, err := s.Sweep(now, func(_ string, m Meta) bool { return m.Call == "live" }); err != nil {
		t.Fatal(err)
	}
	for ref, want := range map[string]bool{kept: true, orphan: false, old: false} {
		r, _, err := s.Open(ref)
		if (err == nil) != want {
			t.Error(ref, err)
		}
		if err == nil {
			r.Close()
		}
	}
	if es, _ := os.ReadDir(dir); len(es) != 1 {
		t.Error("left over:", es)
	}
	if err := s.Delete(kept); err != nil || s.used != 0 {
		t.Error(err, s.used)
	}
}

// A spool with a file of a newer version is refused in words, and left as it is; what is no spooled file is not judged.
func TestANewerSpoolIsRefused(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "spool")
	s := newSpool(t, dir)
	ref, _, err := s.Put(t.Context(), strings.NewReader("x"), Meta{Call: "c"})
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(dir, ref)
	b, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	half := filepath.Join(dir, tempPrefix+"x")
	open := func(version string) error {
		t.Helper()
		for name, b := range map[string][]byte{file: append([]byte("dwspool"+version), b[len(magic):]...), half: []byte("half")} {
			if err := os.WriteFile(name, b, 0o600); err != nil {
				t.Fatal(err)
			}
		}
		_, err := Open(dir, make([]byte, 32), slog.New(slog.DiscardHandler))
		return err
	}
	err = open("2")
	if !errors.Is(err, ErrNewer) {
		t.Fatalf("a newer spool is opened: %v", err)
	}
	for _, words := range []string{"version 2", "knows 1", "install the newer program again"} {
		if !strings.Contains(err.Error(), words) {
			t.Errorf("it does not say %q: %v", words, err)
		}
	}
	if now, err := os.ReadFile(file); err != nil || !bytes.Equal(now[len(magic):], b[len(magic):]) {
		t.Errorf("it has changed the file: %v", err)
	}
	if _, err := os.Stat(half); err != nil {
		t.Error("it has cleaned a spool that it refuses")
	}
	for _, version := range []string{"1", "x"} {
		if err := open(version); err != nil {
			t.Errorf("version %s: %v", version, err)
		}
	}
}
