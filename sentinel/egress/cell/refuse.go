// SPDX-License-Identifier: Apache-2.0

package cell

import (
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/doorward/doorward/internal/wire"
)

// Alerts of TLS (RFC 8446 6.2, RFC 6066 9) that a refusal is.
const (
	alertAccessDenied     = 49
	alertDecodeError      = 50
	alertInternalError    = 80
	alertUnrecognizedName = 112
)

// ErrorHeader carries the code of a refusal that is ours and not a server's.
const ErrorHeader = "Doorward-Error"

// Bounds of a refusal's end: what a client still sends is read, since bytes that nobody reads have the kernel reset the connection,
// and the client's system throw the refusal away. A client that reads nothing before it has sent all of a file goes on for as long as it
// sends, within lingerMost; one that rests is left after lingerTime. lingerBytes is what of a body is read for a connection that goes on.
const (
	lingerTime  = time.Second
	lingerMost  = 10 * time.Second
	lingerBytes = 256 << 10
)

// linger reads on.
func linger(c net.Conn) {
	buf := many.Get().(*[manyBytes]byte)
	defer many.Put(buf)
	for end := time.Now().Add(lingerMost); time.Now().Before(end); {
		_ = c.SetReadDeadline(time.Now().Add(lingerTime))
		if _, err := c.Read(buf[:]); err != nil {
			return
		}
	}
}

// say refuses a connection in the words that it understands, as far as it has any.
func say(c *net.TCPConn, begins, method string, e *wire.Error) {
	var b []byte
	switch begins {
	case wire.BeginsTLS:
		b = []byte{21, 3, 3, 0, 2, 2, alert(e.Code)}
	case wire.BeginsHTTP:
		b = httpAnswer(status(e.Code), e, e.Code, method == http.MethodHead)
	}
	finish(c, b)
}

// finish writes last bytes, and lets the client read them.
func finish(c *net.TCPConn, b []byte) {
	_ = c.SetDeadline(time.Now().Add(lingerTime))
	if _, err := c.Write(b); err == nil && c.CloseWrite() == nil {
		linger(c)
	}
	_ = c.Close()
}

// httpAnswer is an answer with v as JSON; code, where there is one, says that it is a refusal.
func httpAnswer(status int, v any, code wire.Code, head bool) []byte {
	body, err := json.Marshal(v)
	if err != nil {
		body = []byte("{}")
	}
	body = append(body, '\n')
	b := fmt.Appendf(nil, "HTTP/1.1 %d %s\r\nContent-Type: application/json\r\nContent-Length: %d\r\nConnection: close\r\n"+
		"Cache-Control: no-store\r\n", status, http.StatusText(status), len(body))
	if code != "" {
		b = fmt.Appendf(b, "%s: %s\r\n", ErrorHeader, code)
	}
	b = append(b, "\r\n"...)
	if !head {
		b = append(b, body...)
	}
	return b
}

// status is what HTTP calls a refusal.
func status(c wire.Code) int {
	switch c {
	case wire.CodeUsage:
		return http.StatusBadRequest
	case wire.CodeBadTarget:
		return http.StatusMisdirectedRequest
	case wire.CodeTooLarge:
		return http.StatusRequestHeaderFieldsTooLarge
	case wire.CodeTooMany:
		return http.StatusTooManyRequests
	case wire.CodeUnavailable, wire.CodeFull, wire.CodeLocked:
		return http.StatusServiceUnavailable
	case wire.CodeVendorDown:
		return http.StatusBadGateway
	case wire.CodeInternal:
		return http.StatusInternalServerError
	}
	return http.StatusForbidden
}

// alert is what TLS calls it.
func alert(c wire.Code) byte {
	switch c {
	case wire.CodeUsage, wire.CodeTooLarge:
		return alertDecodeError
	case wire.CodeBadTarget:
		return alertUnrecognizedName
	case wire.CodeTooMany, wire.CodeUnavailable, wire.CodeFull, wire.CodeLocked, wire.CodeVendorDown, wire.CodeInternal:
		return alertInternalError
	}
	return alertAccessDenied
}

// Refused is one refusal as the gate's list shows it to the cell.
type Refused struct {
	Time time.Time `json:"time"`
	To   string    `json:"to"` // host:port
	*wire.Error
}

// keptRefusals is how many the list has.
const keptRefusals = 64

// refusals are the newest of a cell. A refusal by TLS is one byte; its words are here.
type refusals struct {
	mu   sync.Mutex
	list []Refused // newest last
}

func (r *refusals) add(to string, e *wire.Error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.list) == keptRefusals {
		r.list = slices.Delete(r.list, 0, 1)
	}
	r.list = append(r.list, Refused{time.Now().UTC().Truncate(time.Second), to, e})
}

// newest are all, newest first.
func (r *refusals) newest() []Refused {
	r.mu.Lock()
	defer r.mu.Unlock()
	out := slices.Clone(r.list)
	slices.Reverse(out)
	return out
}
