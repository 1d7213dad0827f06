// SPDX-License-Identifier: Apache-2.0

package daemon

import (
	"context"
	"fmt"
	"os"

	"github.com/doorward/doorward/internal/peer"
	"github.com/doorward/doorward/internal/wire"
)

// Verb is one row of a table: what may be asked, by whom, and what answers it.
type Verb struct {
	Name    string
	who     peer.Who
	pushed  bool
	ordered bool
	handle  func(ctx context.Context, c *Call, body []byte) (any, error)
}

// Call is one request as its handler sees it.
type Call struct {
	// Peer is who asked, as the kernel proved it. It is nobody for a verb that the server pushes to its client.
	Peer peer.Identity
	// Link is the connection it came on.
	Link *Link
	Verb string
	// Files are the descriptors that came with it. They are closed when the handler returns, but for those it set to
	// nil to keep them.
	Files []*os.File

	attached []*os.File
	later    func(context.Context) error
}

// Later leaves the rest of a handler to f, which runs out of order: for a verb that is InOrder the next frame is read
// meanwhile. The answer goes out when f has returned; its error takes the answer's place.
func (c *Call) Later(f func(context.Context) error) { c.later = f }

// Attach sends f along with the answer, and closes it then, whatever becomes of the answer.
func (c *Call) Attach(f *os.File) { c.attached = append(c.attached, f) }

// On is the row of a verb that who may ask: the decoder is that of Req, a struct of package wire.
//
// The handler's context ends when the connection or the daemon does; work that must outlive its asker takes
// context.WithoutCancel. A *wire.Error goes to the peer as it is; any other error is logged and the peer gets
// CodeInternal. Handlers of one connection run side by side. A handler must not wait for an answer to what it asks on
// its own Link.
func On[Req, Resp any](name string, who peer.Who, h func(context.Context, *Call, *Req) (*Resp, error)) Verb {
	return Verb{Name: name, who: who, handle: func(ctx context.Context, c *Call, body []byte) (any, error) {
		req := new(Req)
		if err := wire.Decode(body, req); err != nil {
			return nil, &badBody{err}
		}
		resp, err := h(ctx, c, req)
		if err != nil {
			return nil, err
		}
		if resp == nil {
			return nil, fmt.Errorf("answer %s: the handler gave none", name)
		}
		return resp, nil
	}}
}

// Pushed is the row of a verb that a server asks its client, on the connection that the client made. It stands in a
// client's table only: the server is known by its path, a directory of root's.
func Pushed[Req, Resp any](name string, h func(context.Context, *Call, *Req) (*Resp, error)) Verb {
	v := On(name, nil, h)
	v.pushed = true
	return v
}

// InOrder has the handler run before the next frame of the connection is read, be it request or answer. It must be
// quick: nothing else of that connection moves meanwhile.
func (v Verb) InOrder() Verb {
	v.ordered = true
	return v
}

// badBody is a request whose body is no message of its verb.
type badBody struct{ err error }

func (e *badBody) Error() string { return e.err.Error() }
func (e *badBody) Unwrap() error { return e.err }

// table checks and indexes rows. A wrong one is a mistake in our own code, found at every start.
func table(verbs []Verb, pushed bool) (map[string]*Verb, error) {
	t := make(map[string]*Verb, len(verbs))
	for i := range verbs {
		v := &verbs[i]
		switch {
		case v.Name == "" || v.handle == nil:
			return nil, fmt.Errorf("verb table: row %d is empty", i)
		case t[v.Name] != nil:
			return nil, fmt.Errorf("verb table: %q stands there twice", v.Name)
		case v.pushed != pushed:
			return nil, fmt.Errorf("verb table: %q: Pushed belongs into a client's table, On into a server's", v.Name)
		case !pushed && v.who == nil:
			return nil, fmt.Errorf("verb table: %q does not say who may ask", v.Name)
		}
		t[v.Name] = v
	}
	return t, nil
}
