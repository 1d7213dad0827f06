// SPDX-License-Identifier: Apache-2.0

package wire

// Bounds of a run's command.
const (
	MaxRunArgs  = 1024     // words
	MaxRunBytes = 96 << 10 // bytes of all words
)

// States of a cell.
const (
	CellStopped = "stopped"
	CellRunning = "running"
	CellFrozen  = "frozen" // no process of it moves until it is thawed
)

// Bounds of what cellnet tells of the kernel at once.
const (
	MaxWallRefusals = 256  // kinds
	MaxWallReason   = 1024 // bytes of CanaryReq.Failed
)

// Messages of cellnet -> sentinel.
type (
	// CanaryReq, verb canary: Failed says what got through the walls, or that they could not be tried, where cells were frozen for
	// it. Refused is what the walls have refused since the last time.
	CanaryReq struct {
		Failed   string        `msgpack:"f,omitempty"`
		Refused  []WallRefusal `msgpack:"r,omitempty"`
		Unlisted uint64        `msgpack:"u,omitempty"` // refusals that are counted and not told of
	}
	// WallRefusal are alike refusals of the programs in the kernel. What a field means is in package cellnet, Refusal.
	WallRefusal struct {
		Cell   string `msgpack:"c,omitempty"` // empty where it is not known any more, or it was a worker
		Worker string `msgpack:"v,omitempty"` // its vendor; empty where it was a cell, or is not known any more
		Why    string `msgpack:"w"`
		Family uint16 `msgpack:"f,omitempty"`
		Type   uint16 `msgpack:"t,omitempty"`
		Proto  uint32 `msgpack:"o,omitempty"`
		Port   uint16 `msgpack:"p,omitempty"`
		Count  uint64 `msgpack:"n"`
	}
)

// Messages of doorward and sentinel -> cells, and of cells -> sentinel. Who the person is comes from the kernel.
type (
	// CellsResp lists the cells that are configured or run, by name. Next is set where more follow.
	CellsResp struct {
		Cells []CellState `msgpack:"c,omitempty"`
		Next  string      `msgpack:"n,omitempty"`
	}
	// CellState is one cell. Problem says what is wrong with its configuration,
	// or whose user is in a group that arms no cell; such a cell does not start.
	CellState struct {
		Name     string   `msgpack:"n" json:"name"`
		State    string   `msgpack:"s" json:"state"`
		FrozenBy []string `msgpack:"f,omitempty" json:"frozen_by,omitempty"` // person, stop, canary
		Sessions []string `msgpack:"e,omitempty" json:"sessions,omitempty"`  // payload and runs
		Root     string   `msgpack:"r,omitempty" json:"root,omitempty"`
		User     string   `msgpack:"u,omitempty" json:"user,omitempty"`
		Command  []string `msgpack:"c,omitempty" json:"command,omitempty"`
		Projects []string `msgpack:"p,omitempty" json:"projects,omitempty"`
		Memory   int64    `msgpack:"m,omitempty" json:"memory,omitempty"` // bytes; 0 is no limit
		Tasks    int64    `msgpack:"t,omitempty" json:"tasks,omitempty"`  // 0 is the manager's default
		Problem  string   `msgpack:"b,omitempty" json:"problem,omitempty"`
		// Fingerprint is SHA-256 of the root of its egress's certificates, hex; empty where the egress has made none yet.
		Fingerprint string `msgpack:"i,omitempty" json:"ca_fingerprint,omitempty"`
	}
	// CellReq names a cell to start or stop.
	CellReq struct {
		Cell string `msgpack:"c"`
	}
	// FreezeReq freezes a cell, or with Thaw lets it go on. A person does not thaw what the switch froze. Only sentinel
	// may leave Cell empty, which is every cell that runs.
	FreezeReq struct {
		Cell string   `msgpack:"c,omitempty"`
		Thaw bool     `msgpack:"t,omitempty"` // of a person; sentinel asks thaw
		Keep []string `msgpack:"k,omitempty"` // with thaw of every cell: those that stay frozen
	}
	// FreezeResp: Failed says of each cell that could not be frozen why.
	FreezeResp struct {
		Cells  []string `msgpack:"c,omitempty"` // that are frozen now, or were let go on
		Failed []string `msgpack:"f,omitempty"`
	}
	// RunReq has exactly one set: Start begins a run, and its answer comes with the master of the terminal that the
	// command has; Wait is the name of a run that began on this connection, and is answered when that has ended. The
	// run ends with the connection.
	RunReq struct {
		Start *RunStart `msgpack:"s,omitempty"`
		Wait  string    `msgpack:"w,omitempty"`
	}
	// RunStart is a command for a cell; without Args it is the login shell of the cell's user.
	RunStart struct {
		Cell     string   `msgpack:"c"`
		Args     []string `msgpack:"a,omitempty"`
		Attended bool     `msgpack:"t,omitempty"` // a person sits at a terminal
		Plain    bool     `msgpack:"p,omitempty"` // the terminal neither echoes nor changes line ends
		Term     string   `msgpack:"m,omitempty"` // TERM
		Rows     uint16   `msgpack:"r,omitempty"`
		Cols     uint16   `msgpack:"o,omitempty"`
		// Dir is the folder where doorward was called. The command starts there if it lies in a project of the cell.
		Dir string `msgpack:"d,omitempty"`
	}
	// RunResp: Session is the run's name; Code is the command's exit code, 128 and the signal's number where one ended
	// it.
	RunResp struct {
		Session string `msgpack:"s,omitempty"`
		Code    int    `msgpack:"c,omitempty"`
	}
	// CellSessionReq, verb session of cells: a session begins, or with Ended is over. Session and Start are as sentinel
	// sees them of a caller: the component below the cell's unit, and its cgroup's id.
	CellSessionReq struct {
		Cell     string `msgpack:"c"`
		Session  string `msgpack:"s"`
		Start    uint64 `msgpack:"t"`
		Ended    bool   `msgpack:"e,omitempty"`
		Attended bool   `msgpack:"a,omitempty"`
		By       string `msgpack:"b,omitempty"` // the person, or the unit that started it
	}
)
