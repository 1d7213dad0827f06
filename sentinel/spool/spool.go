// SPDX-License-Identifier: Apache-2.0

// Package spool keeps, sealed beside the ledger, what a parked call needs to run later (its files and prepared
// bodies) and what a call answered until its cell collects it, 24 h at most.
//
// Whoever reads the disk sees sizes and times only. Whoever writes it can delete, which is found as missing, but
// cannot change a byte, swap two files, cut one, or put an old one back under another ref: each block is sealed to
// the file's own ref, its place and whether it is the last. A file is whole or not there: it gets its name after it
// is on the disk.
//
// FORMAT.md in this folder has the format, with test vectors in testdata.
package spool

import (
	"bytes"
	"context"
	"crypto/aes"
	"crypto/cipher"
	"crypto/hkdf"
	"crypto/rand"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// Bounds.
const (
	blockSize  = 64 << 10   // plain bytes of a block
	MaxFile    = 128 << 20  // plain bytes of one file
	MaxTotal   = 2048 << 20 // sealed bytes of all files
	maxMeta    = 4 << 10    // bytes of a file's encoded Meta
	magic      = "dwspool" + version
	version    = "1"
	headerSize = len(magic) + saltSize + 4
	saltSize   = 32
	tagSize    = 16
	nonceSize  = 12
	tempPrefix = ".new-"
	refBytes   = 20
	refLen     = refBytes * 2
)

// What a caller can tell apart.
var (
	ErrNotFound = errors.New("not in the spool")
	ErrTooLarge = errors.New("too large for the spool")
	ErrFull     = errors.New("the spool has no space left")
	ErrSealed   = errors.New("the spooled file was changed or is not this spool's")
	ErrNewer    = errors.New("the spool was written by a newer version")
)

// Meta is what is known about a file. It is sealed too.
type Meta struct {
	Call    string    `json:"call"`             // id of the call it belongs to
	Kind    string    `json:"kind"`             // file, body or result
	Name    string    `json:"name,omitzero"`    // the argument that it is
	SHA256  string    `json:"-"`                // hex, of the plain bytes; set by Put and Open
	Size    int64     `json:"-"`                // plain bytes; set by Put and Open
	Expires time.Time `json:"expires,omitzero"` // when Sweep may delete it; zero for never
}

// Spool is an open spool. Its methods may be called from any goroutine.
type Spool struct {
	dir string
	key []byte
	log *slog.Logger

	mu   sync.Mutex // guards used
	used int64      // sealed bytes on the disk
}

// Open opens or makes the spool in dir, mode 0700 of this user. The key has 32 bytes: DeriveKey makes it. What a
// crash left half-written is deleted. A spool with a file of a newer version is refused as it is. Only one process may
// have it open: the ledger's lock sees to that.
func Open(dir string, key []byte, log *slog.Logger) (*Spool, error) {
	if len(key) != 32 {
		return nil, errors.New("open the spool: the key must have 32 bytes")
	}
	if err := os.Mkdir(dir, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
		return nil, fmt.Errorf("open the spool: %w", err)
	}
	st, err := os.Lstat(dir)
	if err != nil {
		return nil, fmt.Errorf("open the spool: %w", err)
	}
	sys, ok := st.Sys().(*syscall.Stat_t)
	if !st.IsDir() || !ok || int(sys.Uid) != os.Geteuid() || st.Mode().Perm()&0o077 != 0 {
		return nil, fmt.Errorf("open the spool: %s must be a folder of this user with mode 0700", dir)
	}
	s := &Spool{dir: dir, key: bytes.Clone(key), log: log}
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, fmt.Errorf("open the spool: %w", err)
	}
	for _, e := range entries { // before anything is deleted
		if err := s.older(e.Name()); err != nil {
			return nil, fmt.Errorf("open the spool: %w", err)
		}
	}
	for _, e := range entries {
		if strings.HasPrefix(e.Name(), tempPrefix) {
			if err := os.Remove(filepath.Join(dir, e.Name())); err != nil {
				return nil, fmt.Errorf("clean the spool: %w", err)
			}
			continue
		}
		if st, err := e.Info(); err == nil {
			s.used += st.Size()
		}
	}
	return s, nil
}

// older refuses a file of a version that this program does not know. What is no spooled file at all is another matter, and
// is found when it is opened.
func (s *Spool) older(name string) error {
	f, err := os.OpenFile(filepath.Join(s.dir, name), os.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil
	}
	defer f.Close()
	var head [len(magic)]byte
	if _, err := io.ReadFull(f, head[:]); err != nil {
		return nil
	}
	have, ok := strings.CutPrefix(string(head[:]), strings.TrimSuffix(magic, version))
	if ok && have > version && have <= "9" {
		return fmt.Errorf("%w: %s has version %s, this program knows %s; install the newer program again, or move the file away: "+
			"what it belongs to is then lost", ErrNewer, name, have, version)
	}
	return nil
}

// DeriveKey makes the spool's key from the seed of sentinel's checkpoint key, or from a key of its own.
func DeriveKey(seed []byte) ([]byte, error) {
	k, err := hkdf.Key(sha256.New, seed, nil, "doorward spool v1", 32)
	if err != nil {
		return nil, fmt.Errorf("derive the spool's key: %w", err)
	}
	return k, nil
}

// sealer makes the AEAD of one file: a key per file, so that block numbers are nonces that never repeat.
func (s *Spool) sealer(salt []byte, ref string) (cipher.AEAD, error) {
	k, err := hkdf.Key(sha256.New, s.key, salt, "doorward spool file v1 "+ref, 32)
	if err != nil {
		return nil, err
	}
	b, err := aes.NewCipher(k)
	if err != nil {
		return nil, err
	}
	return cipher.NewGCM(b)
}

// nonce of block i; the last block has another, so that a cut file does not open.
func nonce(i uint64, last bool) []byte {
	n := make([]byte, nonceSize)
	binary.BigEndian.PutUint64(n[3:11], i)
	if last {
		n[11] = 1
	}
	return n
}

// Put seals everything that r has and returns its ref once it is on the disk under its name. ErrTooLarge and ErrFull
// are told apart; on any error nothing is left.
func (s *Spool) Put(ctx context.Context, r io.Reader, m Meta) (ref string, got Meta, err error) {
	var id [refBytes]byte
	if _, err := rand.Read(id[:]); err != nil {
		return "", Meta{}, fmt.Errorf("spool a file: %w", err)
	}
	ref = hex.EncodeToString(id[:])
	salt := make([]byte, saltSize)
	if _, err := rand.Read(salt); err != nil {
		return "", Meta{}, fmt.Errorf("spool a file: %w", err)
	}
	m, err = s.put(ctx, r, m, ref, salt)
	if err != nil {
		if errors.Is(err, unix.ENOSPC) || errors.Is(err, unix.EDQUOT) {
			err = fmt.Errorf("%w: %w", ErrFull, err)
		}
		return "", Meta{}, fmt.Errorf("spool a file of call %.40s: %w", m.Call, err)
	}
	return ref, m, nil
}

func (s *Spool) put(ctx context.Context, r io.Reader, m Meta, ref string, salt []byte) (Meta, error) {
	temp := filepath.Join(s.dir, tempPrefix+ref)
	f, err := os.OpenFile(temp, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return m, err
	}
	var taken int64
	keep := false
	defer func() {
		f.Close()
		if !keep {
			_ = os.Remove(temp) // Open sweeps what stays
			s.give(taken)
		}
	}()
	take := func(b []byte) error {
		if err := s.take(int64(len(b))); err != nil {
			return err
		}
		taken += int64(len(b))
		_, err := f.Write(b)
		return err
	}
	m, err = s.seal(ctx, take, r, m, ref, salt)
	if err != nil {
		return m, err
	}
	if err := f.Sync(); err != nil {
		return m, err
	}
	if err := os.Rename(temp, filepath.Join(s.dir, ref)); err != nil {
		return m, err
	}
	keep = true
	if err := syncDir(s.dir); err != nil {
		return m, errors.Join(err, s.Delete(ref))
	}
	return m, nil
}

// seal writes the sealed form: header, meta block, data blocks, and a last block with size and digest.
func (s *Spool) seal(ctx context.Context, write func([]byte) error, r io.Reader, m Meta, ref string,
	salt []byte) (Meta, error) {
	meta, err := json.Marshal(m)
	if err != nil {
		return m, err
	}
	if len(meta) > maxMeta {
		return m, fmt.Errorf("%w: %d bytes of meta", ErrTooLarge, len(meta))
	}
	a, err := s.sealer(salt, ref)
	if err != nil {
		return m, err
	}
	head := append([]byte(magic), salt...)
	head = binary.BigEndian.AppendUint32(head, uint32(len(meta)))
	out := a.Seal(bytes.Clone(head), nonce(0, false), meta, head)
	if err := write(out); err != nil {
		return m, err
	}
	sum := sha256.New()
	buf := make([]byte, blockSize)
	for i := uint64(1); ; i++ {
		if err := ctx.Err(); err != nil {
			return m, err
		}
		n, err := io.ReadFull(r, buf)
		last := errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF)
		if err != nil && !last {
			return m, fmt.Errorf("read what is to be spooled: %w", err)
		}
		if m.Size += int64(n); m.Size > MaxFile {
			return m, fmt.Errorf("%w: at most %d bytes fit", ErrTooLarge, int64(MaxFile))
		}
		sum.Write(buf[:n])
		if err := write(a.Seal(nil, nonce(i, last), buf[:n], nil)); err != nil {
			return m, err
		}
		if last {
			m.SHA256 = hex.EncodeToString(sum.Sum(nil))
			return m, nil
		}
	}
}

func (s *Spool) take(n int64) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.used+n > MaxTotal {
		return fmt.Errorf("%w: it holds %d bytes of at most %d", ErrFull, s.used, int64(MaxTotal))
	}
	s.used += n
	return nil
}

func (s *Spool) give(n int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.used -= n
}

func syncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}

// path of a ref; what is no ref is not found, so no caller's text becomes a path.
func (s *Spool) path(ref string) (string, error) {
	if len(ref) != refLen || strings.Trim(ref, "0123456789abcdef") != "" {
		return "", fmt.Errorf("%w: %.48q is no ref", ErrNotFound, ref)
	}
	return filepath.Join(s.dir, ref), nil
}

// Open returns a file's bytes after all of them were checked once: what is read is what was put. Meta has size and
// digest.
func (s *Spool) Open(ref string) (io.ReadCloser, Meta, error) {
	p, err := s.path(ref)
	if err != nil {
		return nil, Meta{}, err
	}
	f, err := os.OpenFile(p, os.O_RDONLY|unix.O_NOFOLLOW, 0)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, Meta{}, fmt.Errorf("%w: %s", ErrNotFound, ref)
	}
	if err != nil {
		return nil, Meta{}, fmt.Errorf("open the spooled %s: %w", ref, err)
	}
	first, err := s.unseal(f, ref)
	if err != nil {
		f.Close()
		return nil, Meta{}, err
	}
	sum := sha256.New()
	m := first.meta
	m.Size, err = io.Copy(sum, first)
	if err == nil {
		m.SHA256 = hex.EncodeToString(sum.Sum(nil))
		if _, err = f.Seek(0, io.SeekStart); err == nil {
			first, err = s.unseal(f, ref)
		}
	}
	if err != nil {
		f.Close()
		return nil, Meta{}, err
	}
	return first, m, nil
}

// opener reads blocks one by one.
type opener struct {
	f    *os.File
	ref  string
	a    cipher.AEAD
	meta Meta
	i    uint64
	have []byte // opened, not read yet
	buf  []byte
	end  bool
}

func (s *Spool) unseal(f *os.File, ref string) (*opener, error) {
	bad := func(what string) (*opener, error) { return nil, fmt.Errorf("%w: %s: %s", ErrSealed, ref, what) }
	head := make([]byte, headerSize)
	if _, err := io.ReadFull(f, head); err != nil {
		return bad("it is cut in its header")
	}
	if string(head[:len(magic)]) != magic {
		return bad("it is of another format")
	}
	n := binary.BigEndian.Uint32(head[len(magic)+saltSize:])
	if n > maxMeta {
		return bad("its header is too long")
	}
	sealed := make([]byte, int(n)+tagSize)
	if _, err := io.ReadFull(f, sealed); err != nil {
		return bad("it is cut in its header")
	}
	a, err := s.sealer(head[len(magic):len(magic)+saltSize], ref)
	if err != nil {
		return nil, err
	}
	meta, err := a.Open(nil, nonce(0, false), sealed, head)
	if err != nil {
		return bad("its header does not open")
	}
	o := &opener{f: f, ref: ref, a: a, i: 1, buf: make([]byte, 2*(blockSize+tagSize))}
	if err := json.Unmarshal(meta, &o.meta); err != nil {
		return bad("its header cannot be read")
	}
	return o, nil
}

// Read implements io.Reader.
func (o *opener) Read(p []byte) (int, error) {
	for len(o.have) == 0 {
		if o.end {
			return 0, io.EOF
		}
		if err := o.next(); err != nil {
			return 0, err
		}
	}
	n := copy(p, o.have)
	o.have = o.have[n:]
	return n, nil
}

// next opens one block. A full one is never the last: after it comes one that is shorter, perhaps empty.
func (o *opener) next() error {
	const sealed = blockSize + tagSize
	n, err := io.ReadFull(o.f, o.buf[:sealed])
	last := errors.Is(err, io.ErrUnexpectedEOF)
	if err != nil && !last {
		return fmt.Errorf("%w: %s: it is cut", ErrSealed, o.ref)
	}
	plain, err := o.a.Open(o.buf[sealed:sealed], nonce(o.i, last), o.buf[:n], nil)
	if err != nil {
		return fmt.Errorf("%w: %s: block %d does not open", ErrSealed, o.ref, o.i)
	}
	o.have, o.end = plain, last
	o.i++
	return nil
}

// Close implements io.Closer.
func (o *opener) Close() error { return o.f.Close() }

// Delete removes a file; one that is not there is no error.
func (s *Spool) Delete(ref string) error {
	p, err := s.path(ref)
	if err != nil {
		return err
	}
	st, err := os.Lstat(p)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err == nil {
		err = os.Remove(p)
	}
	if err != nil {
		return fmt.Errorf("delete the spooled %s: %w", ref, err)
	}
	s.give(st.Size())
	return syncDir(s.dir)
}

// Refs lists every ref with its meta. What does not open is listed with an empty Meta.
func (s *Spool) Refs() (map[string]Meta, error) {
	entries, err := os.ReadDir(s.dir)
	if err != nil {
		return nil, fmt.Errorf("list the spool: %w", err)
	}
	out := map[string]Meta{}
	for _, e := range entries {
		p, err := s.path(e.Name())
		if err != nil {
			continue
		}
		f, err := os.OpenFile(p, os.O_RDONLY|unix.O_NOFOLLOW, 0)
		if err != nil {
			continue
		}
		o, err := s.unseal(f, e.Name())
		f.Close()
		if err != nil {
			out[e.Name()] = Meta{}
			continue
		}
		out[e.Name()] = o.meta
	}
	return out, nil
}

// Sweep deletes what is expired at now, and what keep does not know: at start, the refs that no call has. A nil keep
// keeps all. It returns the refs that it deleted.
func (s *Spool) Sweep(now time.Time, keep func(ref string, m Meta) bool) ([]string, error) {
	refs, err := s.Refs()
	if err != nil {
		return nil, err
	}
	var gone []string
	for ref, m := range refs {
		over := !m.Expires.IsZero() && !now.Before(m.Expires)
		if !over && (keep == nil || keep(ref, m)) {
			continue
		}
		if err := s.Delete(ref); err != nil {
			return gone, err
		}
		gone = append(gone, ref)
	}
	if len(gone) > 0 {
		s.log.Info("the spool was swept", "files", len(gone))
	}
	return gone, nil
}
