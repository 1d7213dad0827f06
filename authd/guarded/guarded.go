// SPDX-License-Identifier: Apache-2.0

// Package guarded keeps authd's root key and credentials in pages of their own.
//
// Where the kernel has memfd_secret(2), the pages are gone from the kernel's direct map too: neither another process
// with ptrace rights, nor /proc/kcore, nor a core file shows them. Elsewhere the pages are locked (never swapped) and
// left out of core files. Where the memory lock limit forbids even that, a value is in plain memory and Kind says so:
// a daemon that cannot start protects nothing. In each case an attacker who runs code inside authd reads them, and so
// do the short-lived copies in which a value is sealed or sent.
package guarded

import (
	"fmt"
	"sync"

	"golang.org/x/sys/unix"
)

// Kind is how well a value is kept.
type Kind string

// The kinds, best first.
const (
	Secret Kind = "memfd_secret"
	Locked Kind = "mlock"
	Plain  Kind = "plain"
)

// Value is one secret. The zero Value is empty.
type Value struct {
	mu   sync.RWMutex // guards the mapping against Wipe while it is read
	page []byte       // the mapping; nil when empty or plain
	data []byte       // the secret, within page where there is one
	kind Kind
}

// New copies b into pages of its own and overwrites b.
func New(b []byte) *Value {
	v := &Value{kind: Plain}
	if len(b) > 0 {
		v.page, v.kind = pages(len(b))
	}
	if v.page != nil {
		v.data = v.page[:len(b)]
	} else {
		v.data = make([]byte, len(b))
	}
	copy(v.data, b)
	clear(b)
	return v
}

// pages maps room for size bytes, as well guarded as this machine allows; nil where it allows nothing.
func pages(size int) ([]byte, Kind) {
	page := unix.Getpagesize()
	size = (size + page - 1) / page * page
	if b, err := secretPages(size); err == nil {
		return b, Secret
	}
	b, err := unix.Mmap(-1, 0, size, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS)
	if err != nil {
		return nil, Plain
	}
	if unix.Mlock(b) != nil || unix.Madvise(b, unix.MADV_DONTDUMP) != nil {
		_ = unix.Munmap(b) // nothing was written to it yet
		return nil, Plain
	}
	return b, Locked
}

// secretPages maps a memfd_secret. The kernel takes O_CLOEXEC as its flag, whatever the manual page says. The mapping
// outlives the descriptor, and is shared because the kernel allows no other; a child would inherit it, and authd
// starts none.
func secretPages(size int) ([]byte, error) {
	fd, err := unix.MemfdSecret(unix.O_CLOEXEC)
	if err != nil {
		return nil, fmt.Errorf("memfd_secret: %w", err)
	}
	defer unix.Close(fd)
	if err := unix.Ftruncate(fd, int64(size)); err != nil {
		return nil, fmt.Errorf("size memfd_secret: %w", err)
	}
	b, err := unix.Mmap(fd, 0, size, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		return nil, fmt.Errorf("map memfd_secret: %w", err)
	}
	return b, nil
}

// Kind says how the value is kept.
func (v *Value) Kind() Kind { return v.kind }

// Use calls f with the secret itself, which f neither keeps nor changes.
func (v *Value) Use(f func(b []byte)) {
	v.mu.RLock()
	defer v.mu.RUnlock()
	f(v.data)
}

// AppendTo appends the secret to dst. The copy is the caller's to wipe.
func (v *Value) AppendTo(dst []byte) []byte {
	v.mu.RLock()
	defer v.mu.RUnlock()
	return append(dst, v.data...)
}

// Wipe overwrites the secret and gives its pages back. The value is empty afterwards.
func (v *Value) Wipe() {
	v.mu.Lock()
	defer v.mu.Unlock()
	clear(v.data)
	if v.page != nil {
		_ = unix.Munmap(v.page) // the bytes are gone already
	}
	v.data, v.page = nil, nil
}

// Format prints a fixed word under every verb.
func (v *Value) Format(f fmt.State, _ rune) { _, _ = f.Write([]byte("[secret]")) }

// MarshalText serves text encoders and loggers the same word.
func (v *Value) MarshalText() ([]byte, error) { return []byte("[secret]"), nil }
