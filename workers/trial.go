// SPDX-License-Identifier: Apache-2.0

package workers

import (
	"context"
	"io"
	"log/slog"
	"os"

	"github.com/doorward/doorward/internal/wire"
)

// Trial runs a connector's calls in the process of a test, with authd and sentinel played by functions. Everything else
// is what a worker does.
type Trial struct {
	Connector *Connector
	Egress    string // socket that requests go to
	Borrow    func(*wire.BorrowReq) (*wire.BorrowResp, error)
	Finish    func(*wire.FinishReq) error
}

// Run runs one call as sentinel's execute does. An answer that came as a file is read back into JSON.
func (t *Trial) Run(ctx context.Context, req *wire.CallReq, files ...*os.File) (*wire.Output, error) {
	if _, err := t.Connector.verify(); err != nil {
		return nil, err
	}
	w := newWorker(t.Connector, slog.New(slog.DiscardHandler), t, t, t.Egress)
	res, err := w.execute(ctx, req, files)
	if err != nil {
		return nil, err
	}
	if res.file != nil {
		defer res.file.Close()
		if res.out.JSON, err = io.ReadAll(io.NewSectionReader(res.file, 0, res.out.Bytes)); err != nil {
			return nil, err
		}
	}
	return res.out, nil
}

// Prepare renders a body as sentinel's prepare does.
func (t *Trial) Prepare(req *wire.PrepareReq) (*wire.PrepareResp, error) {
	if _, err := t.Connector.verify(); err != nil {
		return nil, err
	}
	return newWorker(t.Connector, slog.New(slog.DiscardHandler), t, t, t.Egress).prepare(req)
}

// Call plays authd and sentinel.
func (t *Trial) Call(_ context.Context, verb string, req, resp any) error {
	switch req := req.(type) {
	case *wire.BorrowReq:
		lent, err := t.Borrow(req)
		if err != nil {
			return err
		}
		*resp.(*wire.BorrowResp) = *lent
		return nil
	case *wire.FinishReq:
		return t.Finish(req)
	}
	return wire.Refuse(wire.CodeInternal, "a trial has no verb "+verb, "")
}
