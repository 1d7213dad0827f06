// SPDX-License-Identifier: Apache-2.0

package wire

import (
	"fmt"
	"strings"
)

// RunDir is where the sockets are; CellDir is the one directory of it that a cell sees.
const (
	RunDir  = "/run/doorward/"
	CellDir = RunDir + "private/cell/" // bound into each cell as CellRun
	CellRun = RunDir + "cell/"
)

// Edge is one row of the table of who may talk to whom: From dials Socket (below RunDir), which To accepts on, and asks
// Verbs. Back are verbs that To asks on the same connection. "worker" stands for each vendor's, and "*" in a socket
// for its name. "egress" is both the one of workers and those of cells; where the socket is below `egress-cell`, "*" stands for
// a cell, and its egress is meant. "cells" is also cellnet, which alone asks `canary`. What is not in the table does not exist; a
// test holds README.md, the units and the servers to it.
type Edge struct {
	From, To, Socket, Name string // Name is the FileDescriptorName of the socket
	Verbs, Back            []string
	Mode                   uint32 // of the socket
}

// Graph is the table.
func Graph() []Edge {
	return []Edge{
		{"connector", "sentinel", "cell/sentinel.sock", "cell-sentinel",
			[]string{"decide", "wait", "result", "cancel", "inbox", "list", "surrogate"}, nil, 0o666},
		{"connector", "worker", "cell/*.sock", "cell-worker", []string{"call"}, nil, 0o666},
		{"sentinel", "authd", "authd/sentinel/sock", "authd-sentinel",
			[]string{"grant", "revoke", "mint", "checkpoint"}, []string{"accounts", "released", "refused"}, 0o660},
		{"sentinel", "worker", "worker/*/sock", "worker-sentinel", []string{"prepare", "execute", "check"}, nil, 0o660},
		{"sentinel", "egress", "egress/sentinel/sock", "egress-sentinel", []string{"cut", "notify"}, nil, 0o660},
		{"sentinel", "egress", "egress-cell/*/sock", "egress-cell", []string{"cut"}, nil, 0o660},
		{"worker", "authd", "authd/worker/sock", "authd-worker", []string{"borrow"}, nil, 0o660},
		{"worker", "egress", "egress/worker/sock", "egress-worker", []string{"HTTP/1.1"}, nil, 0o660},
		{"worker", "sentinel", "sentinel/worker/sock", "sentinel-worker", []string{"finish"}, nil, 0o660},
		{"egress", "authd", "authd/egress/sock", "authd-egress", []string{"resolve"}, nil, 0o660},
		{"egress", "sentinel", "sentinel/egress/sock", "sentinel-egress", []string{"sent", "connect", "request"}, nil, 0o660},
		{"doorward", "sentinel", "approve/sock", "approve",
			[]string{"pending", "show", "decide", "watch", "grants", "revoke", "stop", "policy", "session", "check",
				"audit", "why", "taint", "surrogate", "approvers", "notices"}, nil, 0o660},
		{"doorward", "authd", "authd/admin/sock", "authd-admin",
			[]string{"unlock", "add", "list", "rename", "remove"}, nil, 0o660},
		{"doorward", "cells", "cells/person/sock", "cells-person",
			[]string{"list", "start", "stop", "freeze", "run"}, nil, 0o660},
		{"sentinel", "cells", "cells/sentinel/sock", "cells-sentinel", []string{"freeze", "thaw"}, nil, 0o660},
		{"cells", "sentinel", "sentinel/cells/sock", "sentinel-cells", []string{"session", "canary"}, nil, 0o660},
		{"page", "approvals", "approvals/page/sock", "approvals-page", []string{"HTTP/1.1", "HTTP/2"}, nil, 0o660},
		{"approvals", "sentinel", "sentinel/web/sock", "sentinel-web",
			[]string{"login", "logout", "enrol", "pending", "show", "body", "edit", "decide", "grants", "revoke", "stop", "session",
				"history", "events", "push", "seen", "accounts", "settings", "labels", "taint", "find"},
			nil, 0o660},
	}
}

// Paths that clients dial.
const (
	PathCellSentinel   = CellRun + "sentinel.sock"
	PathAuthdSentinel  = RunDir + "authd/sentinel/sock"
	PathAuthdWorker    = RunDir + "authd/worker/sock"
	PathAuthdEgress    = RunDir + "authd/egress/sock"
	PathAuthdAdmin     = RunDir + "authd/admin/sock"
	PathEgressWorker   = RunDir + "egress/worker/sock"
	PathEgressSentinel = RunDir + "egress/sentinel/sock"
	PathSentinelWorker = RunDir + "sentinel/worker/sock"
	PathSentinelEgress = RunDir + "sentinel/egress/sock"
	PathSentinelCells  = RunDir + "sentinel/cells/sock"
	PathSentinelWeb    = RunDir + "sentinel/web/sock"
	PathApprovalsPage  = RunDir + "approvals/page/sock"
	PathCellsPerson    = RunDir + "cells/person/sock"
	PathCellsSentinel  = RunDir + "cells/sentinel/sock"
	PathApprove        = RunDir + "approve/sock"
)

// PathEgressCell is the socket on which the egress of a cell accepts sentinel.
func PathEgressCell(cell string) string { return RunDir + "egress-cell/" + cell + "/sock" }

// CADir has, below the name of each cell, the files of its trust (CellCA).
const CADir = RunDir + "private/ca/"

// BPFDir is a file system of the kernel's own, root's, in which programs and maps have names. Of each cell, below its name:
// `listener`, a sockmap whose slot 0 takes the cell's connections, and drops them while it is empty, and `openers`, who opened
// which connection. Whatever is of all cells has a dash in its name, which no cell has.
const BPFDir = RunDir + "bpf/"

// Gate4 and Gate6 are the gate itself in each cell's network: its resolver, its list of refusals, and the proxy of programs that
// want one. They are the first of the two pools from which names get addresses, and no name's.
const (
	Gate4 = "198.18.0.1"
	Gate6 = "fd00:d00d::1"
)

// CellName holds s to what a cell can be called: 1 to 32 of a-z and 0-9. It becomes part of paths and of units' names.
func CellName(s string) error {
	if !isName(s) {
		return fmt.Errorf("%q names no cell: a cell's name is 1 to 32 of a-z and 0-9", s)
	}
	return nil
}

// ApproverName holds s to what an approver can be called: 1 to 32 of a-z and 0-9. It becomes part of the record.
func ApproverName(s string) error {
	if !isName(s) {
		return fmt.Errorf("%q names no approver: an approver's name is 1 to 32 of a-z and 0-9", s)
	}
	return nil
}

func isName(s string) bool {
	return s != "" && len(s) <= 32 && strings.Trim(s, "abcdefghijklmnopqrstuvwxyz0123456789") == ""
}

// PathCellWorker is the socket of a vendor's worker as a cell sees it.
func PathCellWorker(vendor string) string { return CellRun + vendor + ".sock" }

// PathWorkerSentinel is the socket on which a vendor's worker accepts sentinel.
func PathWorkerSentinel(vendor string) string { return RunDir + "worker/" + vendor + "/sock" }
