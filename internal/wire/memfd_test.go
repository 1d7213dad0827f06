// SPDX-License-Identifier: Apache-2.0

package wire

import (
	"bytes"
	"errors"
	"os"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

func TestOnlyASealedFileOfTheNamedBytesPasses(t *testing.T) {
	body := bytes.Repeat([]byte("x"), 100_000)
	fd, size, sum, err := SealFile(bytes.NewReader(body), MaxFile)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(fd)
	good := File{Size: size, SHA256: sum}
	if err := CheckFile(fd, &good, MaxFile); err != nil {
		t.Fatalf("control: a sealed file is refused: %v", err)
	}
	if got, err := ReadFile(fd, MaxFile); err != nil || !bytes.Equal(got, body) {
		t.Fatalf("reads back %d bytes, %v", len(got), err)
	}
	if _, err := unix.Write(fd, []byte("y")); err == nil {
		t.Error("a sealed file takes a write")
	}
	for name, f := range map[string]File{
		"another digest": {Size: size}, "another size": {Size: size - 1, SHA256: sum},
	} {
		if err := CheckFile(fd, &f, MaxFile); !errors.Is(err, ErrFile) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if err := CheckFile(fd, &good, size-1); !errors.Is(err, ErrFile) {
		t.Errorf("over the limit: %v", err)
	}
	if _, _, _, err := SealFile(strings.NewReader("12345"), 4); !errors.Is(err, ErrTooLarge) {
		t.Errorf("a file over the limit was taken: %v", err)
	}
}

func TestAFileThatCanStillChangeIsRefused(t *testing.T) {
	body := []byte("harmless")
	f := File{Size: int64(len(body)), SHA256: Sum(body)}
	for _, seals := range []int{0, unix.F_SEAL_SHRINK | unix.F_SEAL_GROW | unix.F_SEAL_SEAL, allSeals &^ unix.F_SEAL_SEAL} {
		fd, err := unix.MemfdCreate("t", unix.MFD_ALLOW_SEALING|unix.MFD_CLOEXEC)
		if err != nil {
			t.Fatal(err)
		}
		unix.Write(fd, body)
		unix.FcntlInt(uintptr(fd), unix.F_ADD_SEALS, seals)
		if err := CheckFile(fd, &f, MaxFile); !errors.Is(err, ErrFile) {
			t.Errorf("seals %#x: %v", seals, err)
		}
		if _, err := ReadFile(fd, MaxFile); !errors.Is(err, ErrFile) {
			t.Errorf("seals %#x: read: %v", seals, err)
		}
		unix.Close(fd)
	}
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	defer w.Close()
	if err := CheckFile(int(r.Fd()), &f, MaxFile); !errors.Is(err, ErrFile) {
		t.Errorf("a pipe: %v", err)
	}
}
