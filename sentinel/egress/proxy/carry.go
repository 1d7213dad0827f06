// SPDX-License-Identifier: Apache-2.0

package proxy

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"time"

	"golang.org/x/sys/unix"

	"github.com/doorward/doorward/internal/peer"
	"github.com/doorward/doorward/sentinel/egress/envelope"
)

// inline is the largest body that is written together with the head, before the answer is looked for.
const inline = 64 << 10

// waited ends what wait began.
func (x *exchange) waited() {
	if x.a.waited() {
		x.noReadBy()
	}
}

// hungUp waits until the worker has closed its end (true), has sent more, or the read deadline passes.
func hungUp(c *peer.Conn) bool {
	raw, err := c.SyscallConn()
	if err != nil {
		return false
	}
	gone := false
	err = raw.Read(func(fd uintptr) bool {
		var b [1]byte
		n, _, err := unix.Recvfrom(int(fd), b[:], unix.MSG_PEEK|unix.MSG_DONTWAIT)
		if errors.Is(err, unix.EAGAIN) {
			return false
		}
		gone = n == 0 || err != nil
		return true
	})
	return err == nil && gone
}

// viaH1 sends the request over one HTTP/1.1 connection and carries the answer. Whatever goes wrong, it is not sent
// again.
func (x *exchange) viaH1(c *h1conn, plan envelope.Kind, whole []byte) (err error) {
	given := false
	give := func(reusable bool) {
		if !given {
			given = true
			x.a.uses(nil) // from here on it may be another's
			x.part.put(c, reusable)
		}
	}
	defer give(false)
	if !x.a.uses(c) {
		return cutOff(false)
	}
	length := int64(-1)
	switch {
	case plan == envelope.Whole:
		length = int64(len(whole))
	case plan == envelope.File:
		length = x.entry.Body.File.Size
	case hasBody(x.r.Method):
		length = 0
	}
	x.sent.Left = true
	c.readBy(headTimeout)
	c.writeHead(x.r, x.to.Header(), length)
	var up *upload
	if plan == envelope.File || len(whole) > inline {
		up = x.upload(c, plan, whole)
	} else {
		if _, err = c.bw.Write(whole); err == nil {
			err = c.bw.Flush()
		}
		if err != nil && isTimeout(err) {
			return afterLeft(fmt.Errorf("send: %w", err))
		} // else it may have answered before it stopped to listen
		x.sent.Out = int64(len(whole))
	}
	if up == nil {
		defer x.waited()
		x.a.wait()
	}
	resp, rerr := x.readH1(c)
	if up != nil {
		if uerr := up.end(resp); uerr != nil {
			return uerr
		}
		defer x.waited()
		x.a.wait()
	}
	if rerr != nil {
		return afterLeft(rerr)
	}
	// The connection is given back as soon as the answer has been read, before the worker, which may ask again at once,
	// has it all.
	x.release = func() { give(c.reusable(resp) && (up == nil || up.whole)) }
	return x.answer(resp, c)
}

// readH1 waits for the answer's head. An error quotes nothing that the server sent.
func (x *exchange) readH1(c *h1conn) (*http.Response, error) {
	resp, err := c.readAnswer(&http.Request{Method: x.r.Method})
	switch {
	case err == nil:
		return resp, nil
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
		return nil, errors.New("the server closed the connection without an answer")
	case isTimeout(err):
		return nil, fmt.Errorf("the server did not answer within %s: %w", headTimeout, context.DeadlineExceeded)
	case isNetwork(err):
		return nil, fmt.Errorf("read the answer: %w", err)
	}
	return nil, errors.New("the server's answer is not HTTP as it should be")
}

// upload is a body under way while the answer is waited for: a server may answer before it has read all.
type upload struct {
	x      *exchange
	c      *h1conn
	result chan error
	whole  bool // it went out to its end
	broken bool // the worker's part failed: the worker, or the digest
}

func (x *exchange) upload(c *h1conn, plan envelope.Kind, whole []byte) *upload {
	u := &upload{x: x, c: c, result: make(chan error, 1)}
	dst := &outWriter{c: c}
	go func() {
		var err error
		if plan == envelope.File {
			src := &workerReader{x}
			x.sent.Out, err = envelope.Stream(dst, src, x.entry.Body.File, make([]byte, 2*blockSize))
			u.broken = err != nil && dst.err == nil
		} else {
			x.sent.Out, err = io.Copy(dst, bytes.NewReader(whole))
		}
		if err == nil {
			err = c.bw.Flush()
		}
		if u.broken {
			_ = c.Close() // the server must not take a part for the whole
		}
		u.whole = err == nil
		u.result <- err
	}()
	return u
}

// end waits for the upload, or stops it where the server has answered already and does not want the rest. Its error
// is one that the worker must be told; a server that stopped listening but answered is none.
func (u *upload) end(resp *http.Response) error {
	var err error
	select {
	case err = <-u.result:
	default:
		if resp == nil || resp.StatusCode >= 300 {
			u.x.closing = true
			_ = u.x.c.SetReadDeadline(time.Unix(1, 0))
			_ = u.c.SetWriteDeadline(time.Unix(1, 0))
		}
		err = <-u.result
		u.x.noReadBy()
	}
	switch {
	case err == nil, resp != nil && (!u.broken || resp.StatusCode >= 300):
		return nil
	case errors.Is(err, envelope.ErrOutside):
		return err // its last block has not left
	case u.broken:
		u.x.closing = true
		return afterLeft(fmt.Errorf("the worker broke off, and so was the request: %w", err))
	}
	return afterLeft(fmt.Errorf("send: %w", err))
}

// outWriter writes to the server with a deadline for each write.
type outWriter struct {
	c   *h1conn
	err error
}

func (o *outWriter) Write(p []byte) (int, error) {
	o.c.readBy(headTimeout)
	n, err := o.c.bw.Write(p)
	if err == nil {
		err = o.c.bw.Flush()
	}
	if err != nil {
		o.err = err
	}
	return n, err
}

// workerReader reads the request's body with a deadline for each read.
type workerReader struct{ x *exchange }

func (r *workerReader) Read(p []byte) (int, error) {
	r.x.readBy(workerTimeout)
	return r.x.body.Read(p)
}

// viaH2 sends the request as one stream of an HTTP/2 connection. http.ClientConn does not repeat it, and cannot: the
// body is given once.
func (x *exchange) viaH2(ctx context.Context, cc *h2conn, plan envelope.Kind, whole []byte) error {
	defer func() { x.part.done(cc, ctx.Err() != nil) }()
	if !x.a.uses(nopCloser{}) { // its context ends it
		cc.Release()
		return cutOff(false)
	}
	req := (&http.Request{
		Method: x.r.Method, Host: x.to.Header(), Header: make(http.Header, len(x.r.Fields)),
		URL: &url.URL{Scheme: "https", Host: x.to.String(), Opaque: x.r.Path, RawQuery: x.r.Query,
			ForceQuery: x.r.HasQuery},
	}).WithContext(ctx)
	for _, f := range x.r.Fields {
		req.Header[f.Name] = append(req.Header[f.Name], f.Value)
	}
	var result chan error
	var pr *io.PipeReader
	switch {
	case plan == envelope.File && x.entry.Body.File.Size > 0:
		var pw *io.PipeWriter
		pr, pw = io.Pipe()
		result = make(chan error, 1)
		go func() {
			n, err := envelope.Stream(pw, &workerReader{x}, x.entry.Body.File, make([]byte, 2*blockSize))
			x.sent.Out = n
			_ = pw.CloseWithError(err) // nil is the end; anything else resets the stream
			result <- err
		}()
		req.Body, req.ContentLength = pr, x.entry.Body.File.Size
	case len(whole) > 0:
		req.Body, req.ContentLength = io.NopCloser(bytes.NewReader(whole)), int64(len(whole))
		x.sent.Out = int64(len(whole))
	}
	x.sent.Left = true
	if result == nil {
		defer x.waited()
		x.a.wait()
	}
	resp, err := cc.RoundTrip(req)
	if result != nil {
		var uerr error
		select {
		case uerr = <-result:
		default:
			if err != nil || resp.StatusCode >= 300 {
				x.closing = true
				_ = pr.CloseWithError(errors.New("answered"))
				_ = x.c.SetReadDeadline(time.Unix(1, 0))
			}
			uerr = <-result
			x.noReadBy()
		}
		// A server may answer well before it has all, and then the body's end is what counts; one that closes it (the pipe's
		// own error) wants no more of it.
		if uerr != nil && (err != nil || resp.StatusCode < 300 && !errors.Is(uerr, io.ErrClosedPipe)) {
			x.closing = true
			if err == nil {
				_ = resp.Body.Close()
			}
			if errors.Is(uerr, envelope.ErrOutside) {
				return uerr
			}
			return afterLeft(fmt.Errorf("the worker broke off, and so was the request: %w", uerr))
		}
	}
	if err != nil {
		if errors.Is(err, context.Canceled) {
			return afterLeft(errors.New("it was ended"))
		}
		return afterLeft(errors.New("HTTP/2: the server did not answer the request"))
	}
	if result != nil {
		defer x.waited()
		x.a.wait()
	}
	x.release = func() {}
	err = x.answer(resp, nil)
	_ = resp.Body.Close()
	return err
}

type nopCloser struct{}

func (nopCloser) Close() error { return nil }

// isNetwork says that the fault is one of the connection, whose text quotes nothing of the server.
func isNetwork(err error) bool {
	var errno unix.Errno
	return errors.As(err, &errno)
}
