// SPDX-License-Identifier: Apache-2.0

// Package pinned reads and writes maps of BPF that are pinned to a file, with the three calls of bpf(2) that it takes and no
// capability. It is there for egress, which reads what strangers send: the library that loads programs links far more, a way to
// start programs among it (os/exec).
//
// What an attacker who took egress over could do with a map is what the file's mode lets egress do, here or without this
// package.
package pinned

import (
	"errors"
	"fmt"
	"runtime"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Kind is what a map has to be; it is compared with what the kernel says before the map is used, since a key or value of
// another size would be read or written past its end.
type Kind struct {
	Type, Key, Value uint32 // BPF_MAP_TYPE_, sizes in bytes
	ReadOnly         bool   // open for lookups; else for updates too
}

// Map is an open map. It is safe for concurrent use, and closed by Close.
type Map struct {
	fd   int
	kind Kind
}

// ErrNone: the map has no such key.
var ErrNone = errors.New("the map has no such key")

// Attributes of bpf(2), union bpf_attr, as Linux 6.8 has them on machines of 64 bits; what is longer there is zero. Addresses
// are pointers and no numbers, so that they follow what Go moves.
type (
	objGet struct {
		path  unsafe.Pointer
		_     uint32
		flags uint32
	}
	element struct {
		fd         uint32
		_          uint32
		key, value unsafe.Pointer
		flags      uint64
	}
	objInfo struct {
		fd, length uint32
		info       unsafe.Pointer
	}
	// mapInfo is how struct bpf_map_info begins.
	mapInfo struct{ kind, id, key, value, entries, flags uint32 }
)

// Open opens the map that is pinned at path.
func Open(path string, kind Kind) (*Map, error) {
	name, err := unix.ByteSliceFromString(path)
	if err != nil {
		return nil, fmt.Errorf("open the map %q: %w", path, err)
	}
	get := objGet{path: unsafe.Pointer(&name[0])}
	if kind.ReadOnly {
		get.flags = unix.BPF_F_RDONLY
	}
	fd, err := bpf(unix.BPF_OBJ_GET, unsafe.Pointer(&get), unsafe.Sizeof(get))
	if err != nil {
		return nil, fmt.Errorf("open the map %s: %w", path, err)
	}
	m := &Map{fd, kind}
	var is mapInfo
	ask := objInfo{uint32(fd), uint32(unsafe.Sizeof(is)), unsafe.Pointer(&is)}
	_, err = bpf(unix.BPF_OBJ_GET_INFO_BY_FD, unsafe.Pointer(&ask), unsafe.Sizeof(ask))
	if err == nil && (is.kind != kind.Type || is.key != kind.Key || is.value != kind.Value) {
		err = fmt.Errorf("it is another map: type %d, %d bytes to %d", is.kind, is.key, is.value)
	}
	if err != nil {
		m.Close()
		return nil, fmt.Errorf("open the map %s: %w", path, err)
	}
	return m, nil
}

// Close closes the map.
func (m *Map) Close() { _ = unix.Close(m.fd) }

// Lookup reads the value of a key into value, or fails with ErrNone. The sizes of K and V are those of the map.
func Lookup[K, V any](m *Map, key *K, value *V) error {
	err := m.element(unix.BPF_MAP_LOOKUP_ELEM, unsafe.Pointer(key), unsafe.Sizeof(*key), unsafe.Pointer(value), unsafe.Sizeof(*value))
	if errors.Is(err, unix.ENOENT) {
		return ErrNone
	}
	return err
}

// Put writes the value of a key. The sizes of K and V are those of the map.
func Put[K, V any](m *Map, key *K, value *V) error {
	return m.element(unix.BPF_MAP_UPDATE_ELEM, unsafe.Pointer(key), unsafe.Sizeof(*key), unsafe.Pointer(value), unsafe.Sizeof(*value))
}

func (m *Map) element(call int, key unsafe.Pointer, ks uintptr, value unsafe.Pointer, vs uintptr) error {
	if ks != uintptr(m.kind.Key) || vs != uintptr(m.kind.Value) {
		return fmt.Errorf("use a map of %d bytes to %d as one of %d to %d", m.kind.Key, m.kind.Value, ks, vs)
	}
	e := element{fd: uint32(m.fd), key: key, value: value}
	_, err := bpf(call, unsafe.Pointer(&e), unsafe.Sizeof(e))
	return err
}

func bpf(call int, attr unsafe.Pointer, size uintptr) (int, error) {
	for {
		r, _, errno := unix.Syscall(unix.SYS_BPF, uintptr(call), uintptr(attr), size)
		runtime.KeepAlive(attr)
		switch errno {
		case 0:
			return int(r), nil
		case unix.EINTR, unix.EAGAIN:
		default:
			return -1, errno
		}
	}
}
