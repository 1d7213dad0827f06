// SPDX-License-Identifier: Apache-2.0

// Package listener puts the listener of a cell's egress into the kernel's map from which the program on the cell's network
// takes it (bpf/steer.c). Who may write to that map gets every connection of the cell, so it is root's and, by its group, that
// of the cells' egress. The slot is empty before the first Put and after the listener is closed, and then every connection of
// the cell is refused.
package listener

import (
	"errors"
	"fmt"
	"net"

	"github.com/doorward/doorward/cellnet/pinned"
	"golang.org/x/sys/unix"
)

// Put puts ln into the map that is pinned at path (wire.BPFDir, the cell's name, "listener"), in place of what was in it. It may
// be called again, and needs no capability, but the right to write to that file.
//
// ln is a plain TCP listener in the cell's network namespace, of IPv6 without IPV6_V6ONLY, so that it takes IPv4 too; Multipath
// TCP is off, or the kernel takes it into no such map (net.ListenConfig.SetMultipathTCP). It leaves the map when it is closed.
func Put(path string, ln *net.TCPListener) error {
	if ln == nil {
		return errors.New("put a listener into its map: there is none")
	}
	m, err := pinned.Open(path, pinned.Kind{Type: unix.BPF_MAP_TYPE_SOCKMAP, Key: 4, Value: 8})
	if err != nil {
		return fmt.Errorf("put a listener into its map, which `cellnet cell NAME` makes: %w", err)
	}
	defer m.Close()
	conn, err := ln.SyscallConn()
	if err != nil {
		return fmt.Errorf("put the listener into %s: %w", path, err)
	}
	var put error
	err = conn.Control(func(fd uintptr) {
		slot, socket := uint32(0), uint64(fd)
		put = pinned.Put(m, &slot, &socket)
	})
	if err = errors.Join(err, put); err != nil {
		return fmt.Errorf("put the listener into %s; is it TCP without Multipath, and listening: %w", path, err)
	}
	return nil
}
