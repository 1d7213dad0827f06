// SPDX-License-Identifier: Apache-2.0

package wire

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"io"

	"golang.org/x/sys/unix"
)

// allSeals keep a memfd from ever changing again, see fcntl(2). Without all four its owner could change the bytes
// after they were judged.
const allSeals = unix.F_SEAL_SEAL | unix.F_SEAL_SHRINK | unix.F_SEAL_GROW | unix.F_SEAL_WRITE

// ErrFile covers a descriptor that is no sealed memfd of the bytes the frame says.
var ErrFile = errors.New("not a sealed file of the bytes the frame names")

// SealFile copies r, at most limit bytes, into a new sealed memfd. The caller closes it.
func SealFile(r io.Reader, limit int64) (fd int, size int64, sum Digest, err error) {
	fd, err = unix.MemfdCreate("doorward", unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING|unix.MFD_NOEXEC_SEAL)
	if errors.Is(err, unix.EINVAL) { // MFD_NOEXEC_SEAL came with 6.3
		fd, err = unix.MemfdCreate("doorward", unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING)
	}
	if err != nil {
		return -1, 0, sum, fmt.Errorf("make a memfd: %w", err)
	}
	h := sha256.New()
	size, err = io.Copy(io.MultiWriter(fdWriter(fd), h), io.LimitReader(r, limit+1))
	if err == nil && size > limit {
		err = fmt.Errorf("%w: more than %d bytes", ErrTooLarge, limit)
	}
	if err == nil {
		_, err = unix.FcntlInt(uintptr(fd), unix.F_ADD_SEALS, allSeals)
	}
	if err != nil {
		unix.Close(fd)
		return -1, 0, sum, fmt.Errorf("fill a memfd: %w", err)
	}
	return fd, size, Digest(h.Sum(nil)), nil
}

// CheckFile proves that fd is a sealed memfd of f's size and digest. It reads it whole once; nobody can change it
// afterwards.
func CheckFile(fd int, f *File, limit int64) error {
	seals, err := unix.FcntlInt(uintptr(fd), unix.F_GET_SEALS, 0)
	if err != nil || seals&allSeals != allSeals {
		return fmt.Errorf("%w: it is not sealed", ErrFile)
	}
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return fmt.Errorf("%w: %v", ErrFile, err)
	}
	if st.Size != f.Size || st.Size > limit {
		return fmt.Errorf("%w: %d bytes, the frame says %d, at most %d", ErrFile, st.Size, f.Size, limit)
	}
	h := sha256.New()
	if _, err := io.Copy(h, io.NewSectionReader(FDReader(fd), 0, st.Size)); err != nil {
		return fmt.Errorf("read a sealed file: %w", err)
	}
	if Digest(h.Sum(nil)) != f.SHA256 {
		return fmt.Errorf("%w: the digest differs", ErrFile)
	}
	return nil
}

// ReadFile returns the bytes of a sealed memfd, at most limit.
func ReadFile(fd int, limit int64) ([]byte, error) {
	seals, err := unix.FcntlInt(uintptr(fd), unix.F_GET_SEALS, 0)
	if err != nil || seals&allSeals != allSeals {
		return nil, fmt.Errorf("%w: it is not sealed", ErrFile)
	}
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return nil, fmt.Errorf("%w: %v", ErrFile, err)
	}
	if st.Size > limit {
		return nil, fmt.Errorf("%w: %d bytes, at most %d", ErrTooLarge, st.Size, limit)
	}
	b := make([]byte, st.Size)
	if _, err := io.ReadFull(io.NewSectionReader(FDReader(fd), 0, st.Size), b); err != nil {
		return nil, fmt.Errorf("read a sealed file: %w", err)
	}
	return b, nil
}

// FDReader reads a descriptor at any offset, without moving the one it shares with others.
type FDReader int

// ReadAt is pread(2).
func (f FDReader) ReadAt(p []byte, off int64) (int, error) {
	for {
		n, err := unix.Pread(int(f), p, off)
		switch {
		case err == unix.EINTR:
		case err != nil:
			return 0, err
		case n < len(p) && n == 0:
			return 0, io.EOF
		case n < len(p):
			return n, io.ErrUnexpectedEOF
		default:
			return n, nil
		}
	}
}

type fdWriter int

func (f fdWriter) Write(p []byte) (int, error) {
	done := 0
	for done < len(p) {
		n, err := unix.Write(int(f), p[done:])
		if err == unix.EINTR {
			continue
		}
		if err != nil {
			return done, err
		}
		done += n
	}
	return done, nil
}
