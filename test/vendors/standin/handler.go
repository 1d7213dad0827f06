// SPDX-License-Identifier: Apache-2.0

package standin

import (
	"bytes"
	"compress/gzip"
	"io"
	"net/http"
	"slices"
	"strconv"
	"time"
)

// maxBody is how much of a request's body is kept, in bytes.
const maxBody = 64 << 20

// A Note is how a vendor's handler adds to the record of the request at hand.
type Note struct {
	Operation  string
	Violations []string
	Refused    bool // the vendor did not act on it (401, 403, 404, 4xx)
}

// A Vendor answers one request. body is the whole body; what it writes to w is buffered.
type Vendor func(w http.ResponseWriter, r *http.Request, body []byte, note *Note)

// recording answers requests of one listener by vendor, records them and applies faults.
type recording struct {
	listener string
	rec      *Recorder
	faults   *Faults
	classify func(*http.Request) string
	vendor   Vendor
}

func (h *recording) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, bodyErr := io.ReadAll(io.LimitReader(r.Body, maxBody))
	request := &Request{
		At: time.Now(), Listener: h.listener, Proto: r.Proto, Method: r.Method, Target: r.RequestURI,
		Path: r.URL.EscapedPath(), Query: r.URL.RawQuery, Host: r.Host,
		Header: r.Header.Clone(), Trailer: r.Trailer.Clone(), Body: body, Credential: h.classify(r),
	}
	if bodyErr != nil {
		request.BodyError = bodyErr.Error()
	}
	fault := h.faults.take(h.listener, r.Method, request.Path)
	if fault == nil {
		fault = &Fault{}
	} else {
		request.Fault = fault.String()
	}
	h.rec.add(request)
	if bodyErr != nil {
		panic(http.ErrAbortHandler) // a request that was not whole is not acted on
	}
	wait(r, fault.DelayMS)
	if fault.Drop == DropBefore {
		panic(http.ErrAbortHandler)
	}
	var a *answer
	if !fault.overrides() || fault.Act {
		a = &answer{header: http.Header{}}
		note := &Note{}
		h.vendor(a, r, body, note)
		if a.status == 0 {
			a.status = http.StatusOK
		}
		h.rec.change(func() {
			request.Handled = !note.Refused
			request.Operation = note.Operation
			request.Violations = note.Violations
		})
	}
	if fault.Drop == DropAfter {
		panic(http.ErrAbortHandler)
	}
	if fault.overrides() {
		a = fault.answer(time.Now())
	}
	fault.finish(a, r)
	h.rec.change(func() { request.Status = a.status })
	a.send(w, r, fault)
}

// An answer is a buffered response.
type answer struct {
	header  http.Header
	trailer http.Header
	status  int
	body    []byte
}

func (a *answer) Header() http.Header { return a.header }

func (a *answer) WriteHeader(status int) {
	if a.status == 0 {
		a.status = status
	}
}

func (a *answer) Write(b []byte) (int, error) {
	a.WriteHeader(http.StatusOK)
	a.body = append(a.body, b...)
	return len(b), nil
}

// send writes the answer as the fault wants it: packed, in pieces, cut off.
func (a *answer) send(w http.ResponseWriter, r *http.Request, fault *Fault) {
	body := a.body
	header := w.Header()
	for name, values := range a.header {
		header[name] = slices.Clone(values)
	}
	if fault.Gzip && len(body) > 0 {
		var packed bytes.Buffer
		z := gzip.NewWriter(&packed)
		_, _ = z.Write(body) // into memory: cannot fail
		_ = z.Close()
		body = packed.Bytes()
		header.Set("Content-Encoding", "gzip")
	}
	bodyless := a.status == http.StatusNoContent || a.status == http.StatusNotModified || r.Method == http.MethodHead
	if !bodyless && a.trailer == nil && fault.Chunk == 0 {
		header.Set("Content-Length", strconv.Itoa(len(body)))
	}
	for name := range a.trailer {
		header.Add("Trailer", name)
	}
	w.WriteHeader(a.status)
	if bodyless {
		return
	}
	if fault.Drop == DropMiddle {
		_, _ = w.Write(body[:len(body)/2])
		_ = http.NewResponseController(w).Flush()
		panic(http.ErrAbortHandler)
	}
	piece := fault.Chunk
	if piece <= 0 {
		piece = max(len(body), 1)
	}
	for len(body) > 0 {
		n := min(piece, len(body))
		if _, err := w.Write(body[:n]); err != nil {
			return
		}
		body = body[n:]
		if fault.Chunk > 0 {
			_ = http.NewResponseController(w).Flush()
			wait(r, fault.ChunkDelayMS)
		}
	}
	for name, values := range a.trailer {
		header[name] = slices.Clone(values)
	}
}

func wait(r *http.Request, ms int) {
	if ms <= 0 {
		return
	}
	select {
	case <-time.After(time.Duration(ms) * time.Millisecond):
	case <-r.Context().Done():
	}
}
