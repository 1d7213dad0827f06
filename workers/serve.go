// SPDX-License-Identifier: Apache-2.0

package workers

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"runtime/debug"
	"slices"
	"sync"
	"time"

	"github.com/doorward/doorward/internal/daemon"
	"github.com/doorward/doorward/internal/describe"
	"github.com/doorward/doorward/internal/peer"
	"github.com/doorward/doorward/internal/wire"
)

const (
	concurrent   = 48               // calls at once; more wait
	ofOneCell    = 32               // of them of one cell, so that its slow calls do not keep the others out
	slotTime     = 20 * time.Second // to wait for a place; a grant is borrowed within 30 s or not at all
	callTime     = 2 * time.Minute
	fileTime     = 15 * time.Minute // of a call that carries files
	linkTime     = 20 * time.Second // borrow and finish
	maxRendering = 1 << 20          // bytes of a prepared body and of its base; a frame holds each
)

// asker asks another daemon.
type asker interface {
	Call(ctx context.Context, verb string, req, resp any) error
}

// worker runs the calls of one connector.
type worker struct {
	c        *Connector
	log      *slog.Logger
	authd    asker // borrow
	sentinel asker // finish
	egress   *client
	slots    chan struct{}
	large    chan struct{} // see largeAnswers

	mu  sync.Mutex               // guards own
	own map[string]chan struct{} // by cell; sentinel's calls count as one cell's
}

// enter waits for a place among the calls that run. leave gives it back.
func (w *worker) enter(cell string) (leave func(), err error) {
	w.mu.Lock()
	own := w.own[cell]
	if own == nil {
		own = make(chan struct{}, ofOneCell)
		w.own[cell] = own
	}
	w.mu.Unlock()
	end := time.NewTimer(slotTime)
	defer end.Stop()
	busy := wire.Refuse(wire.CodeUnavailable, "the worker is busy; nothing ran", "try again later")
	select {
	case own <- struct{}{}:
	case <-end.C:
		return nil, busy
	}
	select {
	case w.slots <- struct{}{}:
		return func() { <-w.slots; <-own }, nil
	case <-end.C:
		<-own
		return nil, busy
	}
}

// job is a call as it came in.
type job struct {
	*wire.CallReq
	cell, session string // empty: sentinel asked
	files         []*os.File
}

// call is verb call, asked by a cell.
func (w *worker) call(ctx context.Context, who peer.Identity, req *wire.CallReq, files []*os.File) (*result, error) {
	if req.Prepared || req.Raw || req.Mark != "" || req.ETag != "" {
		return nil, wire.Refuse(wire.CodeNotAllowed, "only sentinel says how a prepared call is run", "")
	}
	if m, ok := w.c.Describe.Method(req.Frame.Method); ok && m.Prepare != nil {
		return nil, wire.Refuse(wire.CodeNotAllowed, "sentinel itself runs this method once it is allowed", "connector wait")
	}
	return w.run(ctx, &job{CallReq: req, cell: who.Name, session: who.Session, files: files})
}

// execute is verb execute, asked by sentinel.
func (w *worker) execute(ctx context.Context, req *wire.CallReq, files []*os.File) (*result, error) {
	return w.run(ctx, &job{CallReq: req, files: files})
}

// check is verb check, asked by sentinel: the connector's declared read without arguments.
func (w *worker) check(ctx context.Context, req *wire.CallReq, files []*os.File) (*result, error) {
	if req.Frame.Method != w.c.Describe.Check || len(req.Frame.Args) > 0 || req.Prepared {
		return nil, wire.Refuse(wire.CodeNotAllowed, "an account is checked by "+w.c.Describe.Check+" without arguments", "")
	}
	return w.execute(ctx, req, files)
}

// prepare is verb prepare, asked by sentinel: render a body, without credential or network.
func (w *worker) prepare(req *wire.PrepareReq) (resp *wire.PrepareResp, err error) {
	m, v, err := w.method(&req.Frame)
	if err != nil {
		return nil, err
	}
	if m.Prepare == nil {
		return nil, wire.Refuse(wire.CodeNotAllowed, m.Name+" has no prepared body", "")
	}
	defer w.caught(m.Name, &err)
	body, media, err := w.c.Renderers[m.Name](&Rendering{m, v, req.Mark, req.Unix, req.Owner, req.Base})
	if err != nil {
		return nil, w.refusal(m.Name, err)
	}
	if len(body) > maxRendering/2 {
		return nil, wire.Refuse(wire.CodeTooLarge, fmt.Sprintf("the body to be sent has %d bytes, at most %d",
			len(body), maxRendering/2), "")
	}
	return &wire.PrepareResp{Body: body, Media: media}, nil
}

// method finds the method of a frame and reads its arguments.
func (w *worker) method(f *wire.Frame) (*describe.Method, describe.Values, error) {
	d := w.c.Describe
	if f.Connector != d.Vendor {
		return nil, nil, wire.Refuse(wire.CodeUnknownConnector, "this is the worker of "+d.Vendor, "")
	}
	if f.Description != d.Digest() {
		return nil, nil, wire.Refuse(wire.CodeWrongDescription,
			"the caller and the worker of "+d.Vendor+" have different descriptions", "restart the cell after an update")
	}
	m, ok := d.Method(f.Method)
	if !ok {
		return nil, nil, wire.Refuse(wire.CodeUnknownMethod, d.Vendor+" has no such method", "connector list "+d.Vendor)
	}
	v, err := m.Decode(f)
	if err != nil {
		return nil, nil, wire.Refuse(wire.CodeBadArgument, err.Error(), "connector describe "+d.Vendor+" "+m.Name)
	}
	return m, v, nil
}

// result is an answer that may be released.
type result struct {
	out  *wire.Output
	file *os.File // accompanies it; may be nil
}

// run does a whole call: it proves frame and files, borrows, runs the handler, and reports how it ended before it lets
// the answer go.
func (w *worker) run(ctx context.Context, j *job) (*result, error) {
	m, v, err := w.method(&j.Frame)
	if err != nil {
		return nil, err
	}
	c := &Call{Method: m, Values: v, Raw: j.Raw, grant: j.Grant, egress: w.egress, large: w.large}
	sum, err := wire.FrameDigest(&j.Frame)
	if err != nil {
		return nil, err
	}
	span := callTime
	if len(j.files) > 0 {
		span = fileTime
	}
	// What was begun ends, and is reported, also when the caller has gone.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), span)
	defer cancel()
	leave, err := w.enter(j.cell)
	if err != nil {
		return nil, err
	}
	defer leave()
	prepared, err := c.take(j) // what digesting many files costs is bounded by the slots
	if err != nil {
		return nil, wire.Refuse(wire.CodeBadArgument, err.Error(), "")
	}
	var lent wire.BorrowResp
	err = ask(ctx, w.authd, "borrow", &wire.BorrowReq{Grant: j.Grant, Cell: j.cell, Session: j.session, Frame: sum}, &lent)
	if err != nil {
		return nil, err
	}
	res, err := w.lent(ctx, c, j, &lent, prepared)
	fin := &wire.FinishReq{Grant: j.Grant, Outcome: wire.OutcomeDone}
	if err != nil {
		refusal := w.refusal(m.Name, err)
		fin.Outcome = wire.OutcomeFailed
		if c.ran || c.unsure || refusal.Code == wire.CodeUnknown {
			fin.Outcome = wire.OutcomeUnknown
		}
		if fin.Outcome == wire.OutcomeUnknown && refusal.Code != wire.CodeUnknown {
			refusal = wire.Refuse(wire.CodeUnknown, "it may have run, but then: "+refusal.Reason, "look before repeating it")
		}
		fin.Err, err = refusal, refusal
	} else {
		fin.Object, fin.Labels, fin.Bytes = res.out.Object, res.out.Labels, res.out.Bytes
	}
	// The deadline of the call may be over; its end is told all the same.
	if ferr := ask(context.WithoutCancel(ctx), w.sentinel, "finish", fin, &wire.Empty{}); ferr != nil {
		if res != nil && res.file != nil {
			res.file.Close()
		}
		return nil, ferr // an answer whose end is not on the record is not given out
	}
	return res, err
}

func ask(ctx context.Context, a asker, verb string, req, resp any) error {
	ctx, cancel := context.WithTimeout(ctx, linkTime)
	defer cancel()
	return a.Call(ctx, verb, req, resp)
}

// take proves the descriptors that came with the call against its frame.
func (c *Call) take(j *job) (*File, error) {
	want := len(j.Frame.Files)
	if j.Prepared {
		want++
	}
	if len(j.files) != want {
		return nil, fmt.Errorf("%d files came, the call names %d", len(j.files), want)
	}
	for i := range j.Frame.Files {
		f := &j.Frame.Files[i]
		fd := int(j.files[i].Fd())
		if err := wire.CheckFile(fd, f, wire.MaxFile); err != nil { // Decode held its size to the argument's bound
			return nil, fmt.Errorf("--%s: %w", f.Arg, err)
		}
		c.files = append(c.files, File{*f, fd})
	}
	if !j.Prepared {
		return nil, nil
	}
	if c.Method.Prepare == nil {
		return nil, errors.New(c.Method.Name + " has no prepared body")
	}
	fd := int(j.files[want-1].Fd())
	b, err := wire.ReadFile(fd, maxRendering)
	if err != nil {
		return nil, fmt.Errorf("the prepared body: %w", err)
	}
	return &File{wire.File{Size: int64(len(b)), SHA256: wire.Sum(b)}, fd}, nil
}

// lent runs the handler of a call that has its surrogate. A handler that panics fails its own call.
func (w *worker) lent(ctx context.Context, c *Call, j *job, l *wire.BorrowResp, prepared *File) (
	res *result, err error) {
	defer w.caught(c.Method.Name, &err)
	if j.Mark != "" && j.Mark != l.Mark {
		return nil, errors.New("authd and sentinel name different marks")
	}
	if c.Raw && c.Method.Class != describe.Read {
		return nil, wire.Refuse(wire.CodeNotAllowed, "only a read is answered raw", "")
	}
	c.surrogate, c.place, c.Base = l.Surrogate, l.Placement, l.Base
	c.Account, c.Owner, c.Mark, c.prepared = l.Account, l.Owner, l.Mark, prepared
	c.fill = &describe.Call{Values: c.Values, Files: j.Frame.Files, Base: l.Base, Mark: l.Mark, ETag: j.ETag}
	if prepared != nil {
		c.fill.Prepared = prepared.SHA256
	}
	if c.entries, err = c.Method.Fill(c.fill); err != nil {
		var arg *describe.ArgError
		if errors.As(err, &arg) {
			return nil, wire.Refuse(wire.CodeBadArgument, arg.Error(), "")
		}
		return nil, err
	}
	defer c.close()
	a, err := w.c.Handlers[c.Method.Name](ctx, c)
	if err != nil {
		return nil, err
	}
	out, fd, err := a.output(slices.Clone(c.Method.Labels))
	if err != nil {
		return nil, err
	}
	res = &result{out: out}
	if fd >= 0 {
		res.file = os.NewFile(uintptr(fd), "answer")
	}
	return res, nil
}

// caught turns a panic of a vendor's code into an error. Its stack goes to the log, without the answer that caused it.
func (w *worker) caught(method string, err *error) {
	if p := recover(); p != nil {
		w.log.Error("a handler panicked", daemon.KeyOp, method, "stack", string(debug.Stack()))
		*err = errors.New("the handler panicked")
	}
}

// refusal is err as the caller sees it. What is no *wire.Error is logged and told as a fault of Doorward.
func (w *worker) refusal(method string, err error) *wire.Error {
	var r *wire.Error
	switch {
	case errors.As(err, &r):
		return r
	case errors.Is(err, wire.ErrTooLarge):
		return wire.Refuse(wire.CodeTooLarge, "the answer is too large", "ask for less")
	}
	w.log.Error("a call failed", daemon.KeyOp, method, daemon.KeyErr, err.Error())
	return wire.Refuse(wire.CodeInternal, "a fault inside the worker of "+w.c.Describe.Vendor,
		"the worker's log has the detail")
}
