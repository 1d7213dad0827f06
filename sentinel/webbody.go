// SPDX-License-Identifier: Apache-2.0

package sentinel

import (
	"context"
	"fmt"
	"io"
	"slices"

	"github.com/doorward/doorward/internal/daemon"
	"github.com/doorward/doorward/internal/wire"
	"github.com/doorward/doorward/sentinel/ledger"
)

// maxPart is how many bytes of a body one answer has: in base64 they fit into a frame.
const maxPart = 512 << 10

// webBody is a part of a body that a card does not show whole. Only what a card that waits names by its digest can be asked for: the
// spool has answers of vendors too, which are the cell's.
func (s *Sentinel) webBody(ctx context.Context, _ *daemon.Call, req *wire.BodyReq) (*wire.BodyResp, error) {
	from := func(b []byte) (*wire.BodyResp, error) {
		if req.From < 0 || req.From > int64(len(b)) {
			return nil, wire.Refuse(wire.CodeBadArgument, fmt.Sprintf("byte %d of %d", req.From, len(b)), "")
		}
		b = b[req.From:]
		return &wire.BodyResp{Data: b[:min(maxPart, len(b))]}, nil
	}
	id := req.Call
	if d := s.draftOf(id); d != nil {
		if b, ok := d.content(req.SHA256); ok {
			return from(b)
		}
		id = d.old // whose files it has
	}
	call, err := s.ledger.Call(ctx, id)
	if err != nil {
		return nil, s.ledgerError(err)
	}
	if call.State != ledger.Parked {
		return nil, wire.Refuse(wire.CodeConflict, "the call is "+string(call.State)+"; its content is kept while it waits", "")
	}
	ref, err := s.bodyRef(&call, req.SHA256)
	if err != nil {
		return nil, err
	}
	r, m, err := s.spool.Open(ref)
	if err != nil {
		return nil, fmt.Errorf("open a body of call %s: %w", call.ID, err)
	}
	defer r.Close()
	if req.From < 0 || req.From > m.Size {
		return nil, wire.Refuse(wire.CodeBadArgument, fmt.Sprintf("byte %d of %d", req.From, m.Size), "")
	}
	if _, err := io.CopyN(io.Discard, r, req.From); err != nil {
		return nil, fmt.Errorf("read a body of call %s: %w", call.ID, err)
	}
	b := make([]byte, min(maxPart, m.Size-req.From))
	if _, err := io.ReadFull(r, b); err != nil {
		return nil, fmt.Errorf("read a body of call %s: %w", call.ID, err)
	}
	return &wire.BodyResp{Data: b}, nil
}

// bodyRef finds in the spool what the card of a call has the digest of: a file of the call, or what was kept last, which is the body
// that is sent or what stands at the server.
func (s *Sentinel) bodyRef(c *ledger.Call, sum []byte) (string, error) {
	k, err := cardOf(c)
	if err != nil {
		return "", err
	}
	is := func(d wire.Digest) bool { return string(d[:]) == string(sum) }
	if slices.ContainsFunc(k.Bodies, func(b wire.Shown) bool { return is(b.SHA256) }) {
		o, err := s.recallBound(c)
		if err != nil {
			return "", err
		}
		files := o.Frame.Files
		i := slices.IndexFunc(files, func(f wire.File) bool { return is(f.SHA256) })
		if i < 0 && len(c.Spool) > len(files) {
			i = len(c.Spool) - 1
		}
		if i >= 0 && i < len(c.Spool) {
			return c.Spool[i], nil
		}
	}
	return "", wire.Refuse(wire.CodeNotFound, "the card has no body of that digest, or it is not kept", "look at the card again")
}
