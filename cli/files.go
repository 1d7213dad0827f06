// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"crypto/sha256"
	"os"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/doorward/doorward/internal/describe"
	"github.com/doorward/doorward/internal/wire"
)

// readDeadline bounds the whole of reading stdin.
const readDeadline = 2 * time.Minute

// seals are what makes a memfd unchangeable; receivers take no other.
const seals = unix.F_SEAL_SEAL | unix.F_SEAL_SHRINK | unix.F_SEAL_GROW | unix.F_SEAL_WRITE

// input is an opened source.
type input struct {
	fd    int
	own   bool // to be closed
	limit int64
	s     *source
	end   time.Time
}

// open opens a source. A path must lead to a regular file; what the cell's user may read is for the cell to say.
func (s *source) open() (*input, *wire.Error) {
	in := &input{s: s, limit: s.arg.Max, end: time.Now().Add(readDeadline)}
	if in.limit == 0 {
		in.limit = wire.MaxFile
		if s.arg.Type == describe.TypeText {
			in.limit = 65536
		}
	}
	if s.path == "-" {
		return in, nil
	}
	fd, err := unix.Open(s.path, unix.O_RDONLY|unix.O_NONBLOCK|unix.O_NOCTTY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, in.fault("open "+quote(s.path), err)
	}
	in.fd, in.own = fd, true
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		in.close()
		return nil, in.fault("read "+quote(s.path), err)
	}
	if st.Mode&unix.S_IFMT != unix.S_IFREG {
		in.close()
		return nil, wire.Refuse(wire.CodeBadArgument, "--"+s.flag+": "+quote(s.path)+" is no regular file",
			"pipe it in and write --"+s.flag+" -")
	}
	return in, nil
}

func (in *input) close() {
	if in.own {
		unix.Close(in.fd)
	}
}

func (in *input) fault(what string, err error) *wire.Error {
	return wire.Refuse(wire.CodeBadArgument, "--"+in.s.flag+": "+what+": "+err.Error(), "")
}

// each reads the source to its end, within its limit and the deadline, and hands it to f piece by piece.
func (in *input) each(f func([]byte) error) *wire.Error {
	buf := make([]byte, 64<<10)
	var size int64
	for {
		if in.s.path == "-" {
			if err := in.ready(); err != nil {
				return err
			}
		}
		n, err := unix.Read(in.fd, buf)
		switch {
		case err == unix.EINTR || err == unix.EAGAIN:
			continue
		case err != nil:
			return in.fault("read", err)
		case n == 0:
			return nil
		}
		if size += int64(n); size > in.limit {
			return wire.Refuse(wire.CodeTooLarge, "--"+in.s.flag+": more than "+strconv.FormatInt(in.limit, 10)+" bytes", "send less")
		}
		if err := f(buf[:n]); err != nil {
			return in.fault("keep", err)
		}
	}
}

// ready waits until stdin can be read.
func (in *input) ready() *wire.Error {
	for {
		left := time.Until(in.end)
		if left <= 0 {
			return wire.Refuse(wire.CodeBadArgument, "--"+in.s.flag+": stdin did not end within "+readDeadline.String(),
				"write it to a file first and name that")
		}
		n, err := unix.Poll([]unix.PollFd{{Fd: int32(in.fd), Events: unix.POLLIN}}, int(left/time.Millisecond)+1)
		if n > 0 {
			return nil
		}
		if err != nil && err != unix.EINTR {
			return in.fault("wait for stdin", err)
		}
	}
}

// readText reads a source whole.
func readText(s *source) ([]byte, *wire.Error) {
	in, err := s.open()
	if err != nil {
		return nil, err
	}
	defer in.close()
	var b []byte
	err = in.each(func(p []byte) error {
		b = append(b, p...)
		return nil
	})
	return b, err
}

// sealed reads a source into a memfd that nobody can change any more.
func sealed(s *source) (wire.File, int, *wire.Error) {
	in, fail := s.open()
	if fail != nil {
		return wire.File{}, 0, fail
	}
	defer in.close()
	f := wire.File{Arg: s.arg.Name}
	if s.path != "-" {
		f.Name = s.path[strings.LastIndexByte(s.path, '/')+1:]
	}
	fd, err := unix.MemfdCreate("doorward", unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING)
	if err != nil {
		return wire.File{}, 0, in.fault("keep", err)
	}
	h := sha256.New()
	fail = in.each(func(p []byte) error {
		h.Write(p)
		f.Size += int64(len(p))
		return writeAll(fd, p)
	})
	if fail == nil {
		if _, err := unix.FcntlInt(uintptr(fd), unix.F_ADD_SEALS, seals); err != nil {
			fail = in.fault("seal", err)
		}
	}
	if fail != nil {
		unix.Close(fd)
		return wire.File{}, 0, fail
	}
	h.Sum(f.SHA256[:0])
	return f, fd, nil
}

func writeAll(fd int, p []byte) error {
	for len(p) > 0 {
		n, err := unix.Write(fd, p)
		if err == unix.EINTR {
			continue
		}
		if err != nil {
			return os.NewSyscallError("write", err)
		}
		p = p[n:]
	}
	return nil
}
