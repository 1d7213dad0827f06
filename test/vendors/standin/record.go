// SPDX-License-Identifier: Apache-2.0

package standin

import (
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"
)

// A Request is one request as the vendor received it.
type Request struct {
	N         int         `json:"n"` // counts from 1
	At        time.Time   `json:"at"`
	Listener  string      `json:"listener"` // "api", "logs" or "dav"
	Proto     string      `json:"proto"`
	Method    string      `json:"method"`
	Target    string      `json:"target"` // as the request line had it
	Path      string      `json:"path"`
	Query     string      `json:"query,omitempty"`
	Host      string      `json:"host"`
	Header    http.Header `json:"header"`
	Trailer   http.Header `json:"trailer,omitempty"`
	Body      []byte      `json:"body,omitempty"`
	BodyError string      `json:"body_error,omitempty"` // the body did not arrive whole

	Credential string   `json:"credential"` // "real", "other" or "none"
	Handled    bool     `json:"handled"`    // the vendor acted on it
	Status     int      `json:"status"`     // 0: no answer was sent
	Fault      string   `json:"fault,omitempty"`
	Operation  string   `json:"operation,omitempty"`  // the vendor's name of the operation
	Violations []string `json:"violations,omitempty"` // against the vendor's description
}

// A Recorder keeps every request, in order of arrival. Nothing of it reaches the caller of the vendor.
type Recorder struct {
	mu       sync.Mutex // guards requests
	requests []*Request
}

// All returns copies of the requests so far.
func (r *Recorder) All() []Request {
	r.mu.Lock()
	defer r.mu.Unlock()
	out := make([]Request, 0, len(r.requests))
	for _, request := range r.requests {
		out = append(out, *request)
	}
	return out
}

// Find returns the requests with that method whose path begins so. An empty method or path matches all.
func (r *Recorder) Find(method, pathPrefix string) []Request {
	return slices.DeleteFunc(r.All(), func(q Request) bool {
		return (method != "" && q.Method != method) || !strings.HasPrefix(q.Path, pathPrefix)
	})
}

// Handled counts the requests with that method and path prefix that the vendor acted on and did not refuse.
func (r *Recorder) Handled(method, pathPrefix string) int {
	return len(slices.DeleteFunc(r.Find(method, pathPrefix), func(q Request) bool { return !q.Handled }))
}

// Violations returns what requests had against the vendor's description, one line each.
func (r *Recorder) Violations() []string {
	var out []string
	for _, request := range r.All() {
		for _, violation := range request.Violations {
			out = append(out, request.Method+" "+request.Target+": "+violation)
		}
	}
	return out
}

// Reset forgets the requests so far.
func (r *Recorder) Reset() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.requests = nil
}

func (r *Recorder) add(request *Request) {
	r.mu.Lock()
	defer r.mu.Unlock()
	request.N = len(r.requests) + 1
	r.requests = append(r.requests, request)
}

// change edits a recorded request under the lock.
func (r *Recorder) change(edit func()) {
	r.mu.Lock()
	defer r.mu.Unlock()
	edit()
}
