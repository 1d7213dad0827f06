// SPDX-License-Identifier: Apache-2.0

package wire

import (
	"fmt"
	"time"
)

// Frame is a semantic call as the cell's command sends it to sentinel and to the worker alike.
type Frame struct {
	Connector   string `msgpack:"c"`           // vendor name, [a-z0-9]{1,32}
	Description Digest `msgpack:"d"`           // of the description file the command read
	Account     string `msgpack:"a,omitempty"` // account name; empty is the only one there is
	Method      string `msgpack:"m"`
	Args        []Arg  `msgpack:"g,omitempty"` // sorted by name, no name twice
	Files       []File `msgpack:"f,omitempty"` // one a descriptor, in their order
}

// Arg is one argument. Values are text in the form that its type in package describe accepts.
type Arg struct {
	Name   string   `msgpack:"n"`
	Values []string `msgpack:"v"`
}

// File is what the frame says of one sealed memfd that accompanies it.
type File struct {
	Arg    string `msgpack:"g"`           // the argument it is the value of
	Name   string `msgpack:"n,omitempty"` // base name as the caller had it; data, not a path
	Size   int64  `msgpack:"s"`
	SHA256 Digest `msgpack:"h"`
}

// FrameDigest names a frame. Encoding is deterministic, so every process computes the same from the decoded frame.
func FrameDigest(f *Frame) (Digest, error) {
	b, err := Marshal(f)
	if err != nil {
		return Digest{}, err
	}
	return Sum(b), nil
}

// Labels of a caller or an answer, design section 9.
const (
	LabelUntrusted = "untrusted" // others wrote it
	LabelPrivate   = "private"   // the person's own data
)

// Verdict of decide.
type Verdict string

// Verdicts. With Run the call is allowed and sentinel runs it itself (a prepared body): the command waits for it.
const (
	Allow  Verdict = "allow"
	Deny   Verdict = "deny"
	Parked Verdict = "parked"
	Run    Verdict = "run"
)

// State of a call, design section 6.
type State string

// States.
const (
	StateParked    State = "parked"
	StateApproved  State = "approved"
	StateExecuting State = "executing"
	StateDone      State = "done"
	StateFailed    State = "failed"
	StateUnknown   State = "unknown"
	StateDenied    State = "denied"
	StateExpired   State = "expired"
	StateRevoked   State = "revoked"
)

// connector -> sentinel, verb decide; the frame's files accompany it.
type (
	DecideReq struct {
		Frame Frame `msgpack:"f"`
	}
	DecideResp struct {
		Verdict Verdict `msgpack:"v"`
		Call    string  `msgpack:"c,omitempty"` // id of the call; for result, wait, cancel
		Grant   string  `msgpack:"g,omitempty"` // with allow
		Account string  `msgpack:"a,omitempty"` // the account it is about
		Joined  bool    `msgpack:"j,omitempty"` // the same write was pending or running; this is that call
		Err     *Error  `msgpack:"e,omitempty"` // with deny and parked
	}
)

// connector -> sentinel, verbs wait (until it ended or Timeout passed), result (no waiting) and cancel.
type (
	WaitReq struct {
		Call    string        `msgpack:"c"`
		Timeout time.Duration `msgpack:"t,omitempty"` // at most 10 minutes
	}
	// Result is where a call stands. An Output above MaxInline accompanies it as a memfd.
	Result struct {
		Call   string  `msgpack:"c"`
		State  State   `msgpack:"s"`
		Output *Output `msgpack:"o,omitempty"`
		Err    *Error  `msgpack:"e,omitempty"`
		Title  string  `msgpack:"t,omitempty"` // as of InboxItem
	}
	CallRef struct {
		Call string `msgpack:"c"`
	}
	Empty struct{}
)

// Output is what a method answered.
type Output struct {
	JSON      []byte   `msgpack:"j,omitempty"` // the answer; absent where File
	File      bool     `msgpack:"f,omitempty"` // the answer is the one memfd that accompanies it
	Media     string   `msgpack:"m,omitempty"` // media type of a raw answer; empty is JSON
	Labels    []string `msgpack:"l,omitempty"`
	Next      string   `msgpack:"n,omitempty"` // value of --page for what follows
	Truncated string   `msgpack:"t,omitempty"` // what was cut and how to get it
	Object    string   `msgpack:"b,omitempty"` // the vendor's name of what was made or changed
	Bytes     int64    `msgpack:"y,omitempty"`
}

// connector -> sentinel, verb inbox: the cell's calls that wait or have an uncollected answer, newest first.
type (
	InboxResp struct {
		Items []InboxItem `msgpack:"i,omitempty"`
	}
	InboxItem struct {
		Call      string `msgpack:"c"`
		State     State  `msgpack:"s"`
		Connector string `msgpack:"n"`
		Method    string `msgpack:"m"`
		Unix      int64  `msgpack:"u"` // seconds
		Collected bool   `msgpack:"k,omitempty"`
		// Title is what a program of the cell wanted to connect to or to send, and that had to be approved first. Of such a call
		// nothing is kept and nothing runs: approved, the program may send it again.
		Title string `msgpack:"t,omitempty"`
	}
)

// connector -> sentinel, verb list: what the cell may ask for.
type (
	ListReq struct {
		Connector string `msgpack:"c,omitempty"` // empty is all
	}
	ListResp struct {
		Connectors []ListConnector `msgpack:"c,omitempty"`
	}
	ListConnector struct {
		Name     string        `msgpack:"n"`
		Setting  string        `msgpack:"s"`           // ask-every-time, ask-before-changes, dont-ask
		Accounts []ListAccount `msgpack:"a,omitempty"` // none: not_configured
		Methods  []ListMethod  `msgpack:"m,omitempty"` // without those that are off
		// Description is the digest of the one that calls are judged by.
		Description Digest `msgpack:"d"`
	}
	ListAccount struct {
		Name   string `msgpack:"n"`
		Health Code   `msgpack:"h,omitempty"` // empty is well
	}
	ListMethod struct {
		Name string `msgpack:"n"`
		Ask  string `msgpack:"a"` // allow, ask or deny, as of now for this caller without arguments
	}
)

// connector -> worker, verb call; sentinel -> worker, verbs execute and check. The frame's files accompany it; with
// Prepared the rendered body is one more, the last. The answer is an Output.
type CallReq struct {
	Grant    string `msgpack:"g"`
	Frame    Frame  `msgpack:"f"`
	Prepared bool   `msgpack:"p,omitempty"` // execute only
	Mark     string `msgpack:"m,omitempty"` // the call's mark; execute only (a borrow tells it to call)
	ETag     string `msgpack:"e,omitempty"` // of the base read, with its quotes; execute only
	Raw      bool   `msgpack:"r,omitempty"` // execute only: answer a base read's own bytes, its ETag as Object
}

// sentinel -> worker, verb prepare: render the body of a call, without credential or network. Base is what the
// method's read answered (the vendor's own bytes). Everything that varies is given, so a second rendering is equal.
type (
	PrepareReq struct {
		Frame Frame  `msgpack:"f"`
		Mark  string `msgpack:"m"` // the call's mark: UIDs and boundaries come from it
		Unix  int64  `msgpack:"u"` // seconds: the time that stamps get
		Base  []byte `msgpack:"b,omitempty"`
		Owner string `msgpack:"o,omitempty"` // the account owner's address, where the account has one
	}
	PrepareResp struct {
		Body  []byte `msgpack:"b"`
		Media string `msgpack:"m"`
	}
)

// worker -> authd, verb borrow.
type (
	BorrowReq struct {
		Grant   string `msgpack:"g"`
		Cell    string `msgpack:"c,omitempty"` // the caller as the kernel named it; both empty: sentinel asked
		Session string `msgpack:"s,omitempty"`
		Frame   Digest `msgpack:"f"`
	}
	BorrowResp struct {
		Surrogate string    `msgpack:"s"`
		Placement Placement `msgpack:"p"`
		Base      Base      `msgpack:"b"`
		Account   string    `msgpack:"a"`
		Owner     string    `msgpack:"o,omitempty"` // the account owner's address or login, where known
		Mark      string    `msgpack:"m,omitempty"` // the call's mark
	}
)

// Placement says where in a request the credential stands.
type Placement struct {
	Kind   string `msgpack:"k"`           // header, basic, query or path
	Name   string `msgpack:"n,omitempty"` // header or query parameter name
	Prefix string `msgpack:"p,omitempty"` // in front of it in the header, such as "Bearer "
	User   string `msgpack:"u,omitempty"` // basic: the user name, which is no secret; the password is
}

// Words says where that is.
func (p *Placement) Words() string {
	behind := ""
	if p.Prefix != "" {
		behind = fmt.Sprintf(", behind %q", p.Prefix)
	}
	switch p.Kind {
	case "header":
		return "the header " + p.Name + behind
	case "basic":
		if p.User == "" {
			return "the header Authorization, as the password of Basic, of any user"
		}
		return fmt.Sprintf("the header Authorization, as the password of Basic, of user %q", p.User)
	case "query":
		return "the query parameter " + p.Name
	}
	return "a segment of the path" + behind
}

// Base is where an account lives.
type Base struct {
	Scheme string `msgpack:"s"` // https; http only for a permitted loopback address
	Host   string `msgpack:"h"` // canonical: lower case, no trailing dot
	Port   int    `msgpack:"p"`
	Path   string `msgpack:"t,omitempty"` // prefix of every path, no trailing slash
}

// Outcomes of finish.
const (
	OutcomeDone    = "done"
	OutcomeFailed  = "failed"  // the vendor refused, or nothing was sent
	OutcomeUnknown = "unknown" // it may have run
)

// FinishReq is worker -> sentinel, verb finish: how a call ended, before its answer is released. The answer to finish
// comes when the call's record is durable.
type FinishReq struct {
	Grant   string   `msgpack:"g"`
	Outcome string   `msgpack:"o"`
	Object  string   `msgpack:"b,omitempty"`
	Labels  []string `msgpack:"l,omitempty"`
	Bytes   int64    `msgpack:"y,omitempty"` // of the answer
	Err     *Error   `msgpack:"e,omitempty"`
}
