// SPDX-License-Identifier: Apache-2.0

package spool

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

var update = flag.Bool("update", false, "write the test vectors anew")

func plain(n int) []byte {
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(i % 251)
	}
	return b
}

// vector seals n bytes as FORMAT.md says.
func vector(t testing.TB, s *Spool, n int) (ref string, sealed []byte) {
	t.Helper()
	salt := make([]byte, saltSize)
	for i := range salt {
		salt[i] = byte(i)
	}
	ref = strings.Repeat("a", refLen)
	var out bytes.Buffer
	_, err := s.seal(t.Context(), func(b []byte) error { _, err := out.Write(b); return err }, bytes.NewReader(plain(n)),
		Meta{Call: "c", Kind: "body"}, ref, salt)
	if err != nil {
		t.Fatal(err)
	}
	return ref, out.Bytes()
}

func TestVectors(t *testing.T) {
	s := newSpool(t, filepath.Join(t.TempDir(), "spool"))
	var got strings.Builder
	for _, n := range []int{0, 1, 1000, blockSize - 1, blockSize, blockSize + 1, 3 * blockSize} {
		ref, b := vector(t, s, n)
		fmt.Fprintf(&got, "%d %x\n", n, sha256.Sum256(b))
		if err := os.WriteFile(filepath.Join(s.dir, ref), b, 0o600); err != nil {
			t.Fatal(err)
		}
		r, m, err := s.Open(ref)
		if err != nil {
			t.Fatal(n, err)
		}
		back, err := io.ReadAll(r)
		r.Close()
		if err != nil || !bytes.Equal(back, plain(n)) || m.Call != "c" || m.Size != int64(n) {
			t.Fatal(n, m, err)
		}
	}
	const file = "testdata/vectors.txt"
	if *update {
		if err := os.WriteFile(file, []byte(got.String()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if got.String() != string(want) {
		t.Errorf("the format changed: it needs another magic\n%s", got.String())
	}
}

// FuzzOpen: bytes that nobody sealed never open.
func FuzzOpen(f *testing.F) {
	dir := filepath.Join(f.TempDir(), "spool")
	key, err := DeriveKey(make([]byte, 32))
	if err != nil {
		f.Fatal(err)
	}
	s, err := Open(dir, key, nil)
	if err != nil {
		f.Fatal(err)
	}
	ref, good := vector(f, s, 100)
	f.Add(good)
	f.Add(good[:headerSize])
	f.Add([]byte(magic))
	f.Add(append(bytes.Clone(good), 0))
	f.Fuzz(func(t *testing.T, in []byte) {
		if err := os.WriteFile(filepath.Join(dir, ref), in, 0o600); err != nil {
			t.Fatal(err)
		}
		r, m, err := s.Open(ref)
		if err == nil {
			r.Close()
			if !bytes.Equal(in, good) {
				t.Fatal("a stranger's bytes opened:", m)
			}
			return
		}
		if r != nil || m != (Meta{}) || !errors.Is(err, ErrSealed) {
			t.Fatal("a value with an error, or another error:", err)
		}
	})
}

const childEnv = "SPOOL_TEST_CHILD"

// TestMain lets the test binary be a second process that spools until it is killed.
func TestMain(m *testing.M) {
	if dir := os.Getenv(childEnv); dir != "" {
		if err := spoolOn(dir); err != nil {
			fmt.Println("error", err)
			os.Exit(1)
		}
	}
	os.Exit(m.Run())
}

func spoolOn(dir string) error {
	go func() { // the test is gone when its end of the pipe is
		_, _ = os.Stdin.Read(make([]byte, 1))
		os.Exit(1)
	}()
	key, err := DeriveKey(make([]byte, 32))
	if err != nil {
		return err
	}
	s, err := Open(dir, key, nil)
	if err != nil {
		return err
	}
	for n := 0; ; n = (n + 7919) % (3 * blockSize) {
		ref, m, err := s.Put(context.Background(), bytes.NewReader(plain(n)), Meta{Call: fmt.Sprint(n)})
		if err != nil {
			return err
		}
		fmt.Println(ref, m.Size)
	}
}

// TestKilledWhileSpooling kills a process that spools, 50 times: each ref that it had got opens, no other does.
func TestKilledWhileSpooling(t *testing.T) {
	rounds := 50
	if testing.Short() {
		rounds = 10
	}
	dir := filepath.Join(t.TempDir(), "spool")
	acked := map[string]string{}
	for i := range rounds {
		cmd := exec.Command("/proc/self/exe")
		cmd.Env = append(os.Environ(), childEnv+"="+dir)
		if _, err := cmd.StdinPipe(); err != nil {
			t.Fatal(err)
		}
		out, err := cmd.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		time.AfterFunc(time.Duration(20+i%13)*time.Millisecond, func() { _ = cmd.Process.Kill() })
		said, _ := io.ReadAll(out)
		_ = cmd.Wait() // killed is how it should end
		for line := range strings.Lines(string(said)) {
			ref, size, ok := strings.Cut(strings.TrimSuffix(line, "\n"), " ")
			if !ok || ref == "error" {
				t.Fatal(line)
			}
			acked[ref] = size
		}
	}
	s := newSpool(t, dir)
	refs, err := s.Refs()
	if err != nil {
		t.Fatal(err)
	}
	for ref := range refs {
		r, m, err := s.Open(ref)
		if err != nil {
			t.Fatal("a file is there in part:", err)
		}
		r.Close()
		if size, ok := acked[ref]; ok && size != fmt.Sprint(m.Size) {
			t.Error(ref, size, m)
		}
	}
	for ref := range acked {
		if _, ok := refs[ref]; !ok {
			t.Error("lost:", ref)
		}
	}
	if len(acked) == 0 {
		t.Error("nothing was spooled")
	}
}

func TestLimits(t *testing.T) {
	s := newSpool(t, filepath.Join(t.TempDir(), "spool"))
	if _, _, err := s.Put(t.Context(), io.LimitReader(zeros{}, MaxFile+1), Meta{}); !errors.Is(err, ErrTooLarge) {
		t.Error(err)
	}
	long := Meta{Name: strings.Repeat("x", maxMeta)}
	if _, _, err := s.Put(t.Context(), strings.NewReader(""), long); !errors.Is(err, ErrTooLarge) {
		t.Error(err)
	}
	if es, _ := os.ReadDir(s.dir); len(es) != 0 || s.used != 0 {
		t.Error("left over:", es, s.used)
	}
	s.used = MaxTotal
	if _, _, err := s.Put(t.Context(), strings.NewReader("x"), Meta{}); !errors.Is(err, ErrFull) {
		t.Error(err)
	}
}

type zeros struct{}

func (zeros) Read(p []byte) (int, error) { clear(p); return len(p), nil }
