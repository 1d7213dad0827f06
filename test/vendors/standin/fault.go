// SPDX-License-Identifier: Apache-2.0

package standin

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"
)

// The points at which a fault may end the connection.
const (
	DropBefore = "before" // before acting
	DropAfter  = "after"  // after acting, without an answer
	DropMiddle = "middle" // after half of the answer's body
)

// The ways of a vendor to say "slow down".
const (
	LimitPrimary   = "primary"   // 403, nothing remaining
	LimitSecondary = "secondary" // 403 with retry-after
	Limit429       = "429"       // 429 with retry-after
)

// A Fault changes how the requests that match it are answered. In Header, Body and Trailer the word {credential} stands
// for the credential that was received and {authorization} for the Authorization header without its scheme.
type Fault struct {
	Method   string `json:"method,omitempty"`
	Path     string `json:"path,omitempty"` // prefix
	Listener string `json:"listener,omitempty"`
	Times    int    `json:"times,omitempty"` // 0: always
	After    int    `json:"after,omitempty"` // matches to let pass first

	DelayMS      int               `json:"delay_ms,omitempty"`
	Drop         string            `json:"drop,omitempty"`
	Act          bool              `json:"act,omitempty"` // act before answering with Status and Body
	Status       int               `json:"status,omitempty"`
	Header       map[string]string `json:"header,omitempty"`
	Body         string            `json:"body,omitempty"`
	Trailer      map[string]string `json:"trailer,omitempty"`
	Gzip         bool              `json:"gzip,omitempty"`
	Chunk        int               `json:"chunk,omitempty"` // bytes per write of the answer's body
	ChunkDelayMS int               `json:"chunk_delay_ms,omitempty"`
	RateLimit    string            `json:"rate_limit,omitempty"`
}

// Faults is the list of faults in force; the first that matches is used.
type Faults struct {
	mu   sync.Mutex // guards list
	list []*Fault
}

// Add puts a fault at the end of the list.
func (f *Faults) Add(fault Fault) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.list = append(f.list, &fault)
}

// Clear removes all faults.
func (f *Faults) Clear() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.list = nil
}

// take returns the fault for a request and counts its use.
func (f *Faults) take(listener, method, path string) *Fault {
	f.mu.Lock()
	defer f.mu.Unlock()
	for i, fault := range f.list {
		if (fault.Method != "" && fault.Method != method) || !strings.HasPrefix(path, fault.Path) ||
			(fault.Listener != "" && fault.Listener != listener) {
			continue
		}
		if fault.After > 0 {
			fault.After--
			continue
		}
		if fault.Times > 0 {
			fault.Times--
			if fault.Times == 0 {
				f.list = append(f.list[:i:i], f.list[i+1:]...)
			}
		}
		used := *fault
		return &used
	}
	return nil
}

// overrides says whether the fault answers instead of the vendor.
func (f *Fault) overrides() bool { return f.Status != 0 || f.RateLimit != "" }

// answer builds the fault's own answer.
func (f *Fault) answer(now time.Time) *answer {
	a := &answer{header: http.Header{}, status: f.Status, body: []byte(f.Body)}
	message := ""
	switch f.RateLimit {
	case LimitPrimary:
		a.status = http.StatusForbidden
		a.header.Set("X-Ratelimit-Limit", "5000")
		a.header.Set("X-Ratelimit-Remaining", "0")
		a.header.Set("X-Ratelimit-Used", "5000")
		a.header.Set("X-Ratelimit-Resource", "core")
		a.header.Set("X-Ratelimit-Reset", strconv.FormatInt(now.Add(90*time.Second).Unix(), 10))
		message = "API rate limit exceeded for user ID 1."
	case LimitSecondary:
		a.status = http.StatusForbidden
		a.header.Set("Retry-After", "30")
		message = "You have exceeded a secondary rate limit. Please wait a few minutes before you try again."
	case Limit429:
		a.status = http.StatusTooManyRequests
		a.header.Set("Retry-After", "30")
		message = "Too many requests"
	}
	if message != "" && f.Body == "" {
		a.header.Set("Content-Type", "application/json; charset=utf-8")
		a.body, _ = json.Marshal(map[string]string{"message": message})
	}
	return a
}

// finish applies the fault's headers, trailers and quotes to an answer.
func (f *Fault) finish(a *answer, r *http.Request) {
	credential, authorization := received(r)
	quote := func(s string) string {
		return strings.ReplaceAll(strings.ReplaceAll(s, "{credential}", credential), "{authorization}", authorization)
	}
	for name, value := range f.Header {
		a.header.Set(name, quote(value))
	}
	if f.Body != "" {
		a.body = []byte(quote(f.Body))
	}
	for name, value := range f.Trailer {
		if a.trailer == nil {
			a.trailer = http.Header{}
		}
		a.trailer.Set(name, quote(value))
	}
}

// received returns the credential of a request: a token, or the password of a Basic pair.
func received(r *http.Request) (credential, authorization string) {
	scheme, value, _ := strings.Cut(r.Header.Get("Authorization"), " ")
	if strings.EqualFold(scheme, "basic") {
		_, password, _ := r.BasicAuth()
		return password, value
	}
	return value, value
}

func (f *Fault) String() string {
	text, err := json.Marshal(f)
	if err != nil {
		return fmt.Sprintf("fault that cannot be shown: %v", err)
	}
	return string(text)
}
