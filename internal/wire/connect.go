// SPDX-License-Identifier: Apache-2.0

package wire

// What a connection of a cell begins with, as its egress read it before a byte went out.
const (
	BeginsTLS   = "tls"  // a whole ClientHello
	BeginsHTTP  = "http" // the head of an HTTP/1 request in the clear
	BeginsOther = "other"
)

// What is to become of a connection that is allowed.
const (
	HowSplice    = "splice"    // its bytes go to that name untouched
	HowIntercept = "intercept" // egress ends TLS, and asks for each request
)

// Messages of a cell's egress -> sentinel, verb connect. Which cell it is the kernel says.
type (
	// ConnectReq asks whether the cell may open that connection.
	ConnectReq struct {
		// Name is what the cell asked the resolver for, canonical (lower case, A-labels, no final dot), and equal to the
		// server name of TLS or to Host where the connection has one. It is empty where the address stands for no name.
		Name   string `msgpack:"n,omitempty"`
		Addr   string `msgpack:"a,omitempty"` // an address that stands for no name
		Port   uint16 `msgpack:"p"`
		Begins string `msgpack:"b"`
		Task   Task   `msgpack:"t"`
	}
	// Task is who opened a connection, as the kernel's hooks wrote it down at connect; zero where they did not. It names
	// a session and tells a person which program it was; it allows nothing.
	Task struct {
		Cgroup  uint64 `msgpack:"c,omitempty"` // id of the process's cgroup
		PID     uint32 `msgpack:"p,omitempty"` // on this machine
		Start   uint64 `msgpack:"s,omitempty"` // its start in nanoseconds since boot, so that the number can be checked
		Program string `msgpack:"g,omitempty"` // its comm, which the cell chooses; for a card only
	}
	// ConnectResp allows it. What is refused is an Error, whose reason the cell may read.
	ConnectResp struct {
		// ID is of the decision; what became of the connection is told under it. Alike connections within some seconds share one.
		ID  string `msgpack:"i"`
		How string `msgpack:"h"`
		// Under is the grant that turned ask into allow, empty where policy allowed it. `cut` with it as GrantRef.Grant ends the
		// connections that it allowed, and with an ID those of that decision; sentinel may have forgotten which those are.
		Under string `msgpack:"u,omitempty"`
		// Permit are ip:port that may be dialled for it though they are not public; they open nothing else.
		Permit []string `msgpack:"pm,omitempty"`
		// Of an intercepted connection. Credential is where its requests carry a surrogate; a request without one is then answered
		// by egress, and where Credential is nil a surrogate anywhere is refused. Read are bodies to read.
		Credential *Placement `msgpack:"cr,omitempty"`
		Surrogate  string     `msgpack:"sn,omitempty"` // the name of the surrogate that was issued for it
		Read       []Reading  `msgpack:"r,omitempty"`
		Budget     *Budget    `msgpack:"bu,omitempty"`
		Shape      string     `msgpack:"sh,omitempty"` // whose error shape refusals of requests have; see docs/custom-connector.md
	}
)
