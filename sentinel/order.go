// SPDX-License-Identifier: Apache-2.0

package sentinel

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/doorward/doorward/internal/wire"
	"github.com/doorward/doorward/sentinel/ledger"
	"github.com/doorward/doorward/sentinel/spool"
)

// Bound is what of a call its approval is over, besides the canonical call: the very requests that may leave, and what
// the worker gets. It is kept in the ledger, and what runs is read back from there.
type Bound struct {
	Frame    wire.Frame   `msgpack:"f"`
	Entries  []wire.Entry `msgpack:"e"`
	ETag     string       `msgpack:"t,omitempty"`
	Account  wire.Digest  `msgpack:"a"` // of the account as decided
	Prepared bool         `msgpack:"p,omitempty"`
	// Recipients are whom the call reaches, as the policy saw them.
	Recipients []string `msgpack:"r,omitempty"`
	// Goes: behind all that the worker gets the spool has what stands at the server, for the person to read.
	Goes bool `msgpack:"g,omitempty"`
}

// order is what executing a call takes.
type order struct {
	Bound
	body  []byte
	files []*os.File
	raw   bool // answer the vendor's own bytes
}

func (j *judged) order() *order {
	return &order{Bound: Bound{Frame: j.frame, Entries: j.entries, ETag: j.etag, Account: j.account.Digest,
		Prepared: j.bodied, Recipients: j.facts.Recipients, Goes: j.goes()}, body: j.body, files: j.files}
}

// grant is what authd is told. With no cell the caller is sentinel itself.
func (o *order) grant(c *ledger.Call, cell, session string) (*wire.GrantReq, error) {
	d, err := wire.FrameDigest(&o.Frame)
	if err != nil {
		return nil, err
	}
	return &wire.GrantReq{Grant: c.Pass, Call: c.ID, Worker: c.Connector, Cell: cell, Session: session, Frame: d,
		Account: c.Account, Generation: int64(c.Login), Digest: o.Account, Entries: o.Entries, Mark: c.Mark,
		Unix: time.Now().Add(runFor).Unix()}, nil
}

// keep puts a parked call's files, its prepared body and what goes at the server into the spool. c.Spool names them in that order.
func (s *Sentinel) keep(ctx context.Context, c *ledger.Call, j *judged) error {
	put := func(b []byte) error {
		ref, err := s.put(ctx, b, c.ID)
		if err == nil {
			c.Spool = append(c.Spool, ref)
		}
		return err
	}
	for _, f := range j.files {
		b, err := wire.ReadFile(int(f.Fd()), wire.MaxFile)
		if err == nil {
			err = put(b)
		}
		if err != nil {
			s.forget(c.Spool)
			return s.ledgerError(err)
		}
	}
	var rest [][]byte
	if j.bodied {
		rest = append(rest, j.body)
	}
	if j.goes() {
		rest = append(rest, j.base)
	}
	for _, b := range rest {
		if err := put(b); err != nil {
			s.forget(c.Spool)
			return s.ledgerError(err)
		}
	}
	return nil
}

// recall makes the order of a parked call from the ledger and the spool. Nothing of it comes from the approval.
func (s *Sentinel) recall(c *ledger.Call) (*order, error) {
	o, err := s.recallBound(c)
	if err != nil {
		return nil, err
	}
	refs := c.Spool
	if o.Goes && len(refs) > 0 {
		refs = refs[:len(refs)-1]
	}
	if o.Prepared {
		if len(refs) == 0 {
			return nil, fmt.Errorf("read call %s back: its body is gone", c.ID)
		}
		b, err := s.get(refs[len(refs)-1])
		if err != nil {
			return nil, fmt.Errorf("read the body of call %s back: %w", c.ID, err)
		}
		o.body, refs = b, refs[:len(refs)-1]
	}
	if len(refs) != len(o.Frame.Files) {
		return nil, fmt.Errorf("read call %s back: %d files kept, %d named", c.ID, len(refs), len(o.Frame.Files))
	}
	for i, ref := range refs {
		b, err := s.get(ref)
		if err == nil && wire.Sum(b) != o.Frame.Files[i].SHA256 {
			err = fmt.Errorf("its digest differs")
		}
		var f *os.File
		if err == nil {
			f, err = sealed(b)
		}
		if err != nil {
			closeAll(o.files)
			return nil, fmt.Errorf("read a file of call %s back: %w", c.ID, err)
		}
		o.files = append(o.files, f)
	}
	return o, nil
}

// spoolFor is how long the spool keeps what nobody collects.
const spoolFor = 24 * time.Hour

func (s *Sentinel) put(ctx context.Context, b []byte, call string) (string, error) {
	ref, _, err := s.spool.Put(ctx, bytes.NewReader(b), spool.Meta{Call: call, Kind: "call", Expires: time.Now().Add(spoolFor + time.Hour)})
	return ref, err
}

func (s *Sentinel) get(ref string) ([]byte, error) {
	r, m, err := s.spool.Open(ref)
	if err != nil {
		return nil, err
	}
	defer r.Close()
	if m.Size > 2*wire.MaxFile {
		return nil, fmt.Errorf("read the spool: %d bytes, at most %d", m.Size, 2*wire.MaxFile)
	}
	b := make([]byte, m.Size)
	if _, err := io.ReadFull(r, b); err != nil {
		return nil, fmt.Errorf("read the spool: %w", err)
	}
	return b, nil
}

// recallBound is recall without the files.
func (s *Sentinel) recallBound(c *ledger.Call) (*order, error) {
	var bound []byte
	o := new(order)
	if err := json.Unmarshal(c.Data, &bound); err != nil {
		return nil, fmt.Errorf("read call %s back: %w", c.ID, err)
	}
	if err := wire.Unmarshal(bound, &o.Bound); err != nil {
		return nil, fmt.Errorf("read call %s back: %w", c.ID, err)
	}
	return o, nil
}

// forget deletes what the spool keeps of a call; what is left behind is swept at the next start.
func (s *Sentinel) forget(refs []string) {
	for _, r := range refs {
		if err := s.spool.Delete(r); err != nil {
			s.log.Warn("the spool keeps what it should not", "ref", r, "err", err.Error())
		}
	}
}

// keepResult puts a worker's answer into the spool, header and bytes in one file.
func (s *Sentinel) keepResult(ctx context.Context, call string, out *wire.Output) (string, error) {
	head := *out
	head.JSON = nil
	h, err := wire.Marshal(&head)
	if err != nil {
		return "", err
	}
	b, err := wire.AppendFrame(nil, h)
	if err != nil {
		return "", err
	}
	ref, err := s.put(ctx, append(b, out.JSON...), call)
	if err != nil {
		return "", fmt.Errorf("keep the result of call %s: %w", call, err)
	}
	return ref, nil
}

// result reads a kept answer back.
func (s *Sentinel) result(ref string) (*wire.Output, error) {
	b, err := s.get(ref)
	if err != nil {
		return nil, err
	}
	head, body, err := wire.CutFrame(b)
	if err != nil {
		return nil, err
	}
	out := new(wire.Output)
	if err := wire.Unmarshal(head, out); err != nil {
		return nil, err
	}
	out.JSON = body
	return out, nil
}
