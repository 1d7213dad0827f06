// SPDX-License-Identifier: Apache-2.0

// Package peertest stands in for the kernel in tests of servers. Nothing that is installed imports it: a program that
// did could be told whom to trust.
package peertest

import (
	"net"

	"github.com/doorward/doorward/internal/peer"
)

// As identifies every caller as one.
type As peer.Identity

// Identify returns the one identity.
func (a As) Identify(net.Conn) (peer.Identity, error) { return peer.Identity(a), nil }

// Daemon is a daemon of that name.
func Daemon(name string) As {
	return As{Kind: peer.Unit, Unit: "doorward-" + name + ".service", Name: name}
}

// Worker is the worker of a vendor.
func Worker(vendor string) As {
	return As{Kind: peer.Unit, Unit: "doorward-worker@" + vendor + ".service", Name: vendor, Worker: true}
}

// Cell is a process in a cell.
func Cell(name, session string) As {
	return As{Kind: peer.Cell, Unit: "doorward-cell@" + name + ".service", Name: name, Session: session}
}

// Person is a person; uid 0 is the admin.
func Person(uid uint32) As { return As{Kind: peer.Person, UID: uid, Admin: uid == 0} }
