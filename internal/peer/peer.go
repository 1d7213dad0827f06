// SPDX-License-Identifier: Apache-2.0

// Package peer turns an accepted connection into an identity, or closes it. The identity is the kernel's word and the
// only authorization between the processes of Doorward: a mistake here lets a cell pass for a worker, a worker for
// another vendor's, or any local program for the person.
//
// What is proved. SO_PEERPIDFD names the process that called connect, whatever happens to its number later. Its cgroup
// is read from /proc by that number, and the pidfd is asked last of all whether the process has ended: a process that
// has not ended held its number all the while, so what was read is its own. Where the kernel has PIDFD_GET_INFO (6.13),
// the cgroup id from the pidfd itself must be the inode of the directory of that path, so a process that moves while it
// is looked at is refused.
//
// The race that stays, and the contract. The identity is of the process that connected, at the moment of Identify.
// Afterwards that process may exec, move within what is delegated to it, or hand the descriptor to another: the
// connection speaks for the unit, cell or person that opened it, for as long as it is open, and whoever hands it on has
// done what it could have done by copying bytes. So a process of a cell speaks on a connection of its own, nobody
// vouches for anybody, and a decision is bound to the cell and session, never to a process.
// A process whose first thread has ended, while others run, is named by the cgroup in which that thread ended. Only who
// may write to the cgroup.procs of both places can move the others, and none of the three may write outside its own.
package peer

import (
	"errors"
	"net"
)

// Kind is what a caller is.
type Kind uint8

// The three kinds. The zero Kind is nobody and may do nothing.
const (
	Unit   Kind = iota + 1 // a daemon or worker of Doorward
	Cell                   // a process in a cell
	Person                 // a process in the session of a person of this machine
)

func (k Kind) String() string {
	switch k {
	case Unit:
		return "unit"
	case Cell:
		return "cell"
	case Person:
		return "person"
	}
	return "nobody"
}

// Identity is a caller as the kernel proved it. It is comparable and can be a map's key. The zero Identity is nobody.
type Identity struct {
	Kind Kind
	// Unit is the exact unit component of the cgroup, as `doorward-worker@github.service`; empty for a person.
	Unit string
	// Name is the daemon (`authd`), the vendor of a worker (`github`) or the cell (`work`); empty for a person.
	Name string
	// Of is the cell of a `doorward-egress@CELL.service`, and empty for all else.
	Of string
	// Worker is set for a Unit that is a worker; Name is then its vendor.
	Worker bool
	// Session is the component below a cell's unit: `payload`, or `run-` and an id.
	Session string
	// Start is the cgroup id of the session's directory: another start of a cell, or another run of the same name, has
	// another. The kernel gives each id once between two boots.
	Start uint64
	// UID is the person's, from the slice.
	UID uint32
	// Admin is set for a Person whose process has uid 0 outside every user namespace.
	Admin bool
}

// String names the caller for a log, with no word that the caller chose.
func (id Identity) String() string {
	switch id.Kind {
	case Unit:
		return id.Unit
	case Cell:
		return id.Unit + "/" + id.Session
	case Person:
		if id.Admin {
			return "admin of user-" + utoa(id.UID)
		}
		return "user-" + utoa(id.UID)
	}
	return "nobody"
}

// Identifier proves who is at the other end of a connection. Kernel is the one for callers on this machine; a caller
// on another machine would be another.
type Identifier interface {
	// Identify returns the caller, whole, or an error and the zero Identity. It does not close the connection.
	Identify(net.Conn) (Identity, error)
}

// Errors that Identify wraps; every one is a refusal.
var (
	// ErrGone: the process that connected has ended.
	ErrGone = errors.New("the process that connected has ended")
	// ErrUnknown: the process is alive, but it is nobody that Doorward knows.
	ErrUnknown = errors.New("the caller is no unit, cell or person of this machine")
	// ErrMismatch: the kernel's answers differ; the process moved while it was looked at, or a mount is forged.
	ErrMismatch = errors.New("the kernel's answers about the caller differ")
	// ErrUnsupported: the kernel or the mounts cannot prove anybody.
	ErrUnsupported = errors.New("this machine cannot prove who calls; needs Linux 6.8, /proc and cgroup2")
)

// Who says whether a caller may do something. The zero Identity passes none of those in this package.
type Who func(Identity) bool

// Daemon passes the one daemon of that name; none of those that are a cell's.
func Daemon(name string) Who {
	return func(id Identity) bool { return id.Kind == Unit && !id.Worker && id.Name == name && id.Of == "" }
}

// CellEgress passes the egress of each cell; Identity.Of says which.
func CellEgress(id Identity) bool {
	return id.Kind == Unit && !id.Worker && id.Name == "egress" && id.Of != ""
}

// Workers passes every worker.
func Workers(id Identity) bool { return id.Kind == Unit && id.Worker }

// Cells passes every process in a cell.
func Cells(id Identity) bool { return id.Kind == Cell }

// Persons passes every person, the admin too. The socket's mode says which persons reach it.
func Persons(id Identity) bool { return id.Kind == Person }
