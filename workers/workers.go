// SPDX-License-Identifier: Apache-2.0

// Package workers is what every connector's worker is made of. A vendor's package declares its methods and gives one
// handler for each; this package does the rest, so that no vendor's package touches a descriptor, a surrogate, a grant
// or a socket.
//
// A worker is not trusted. It has no network and no credential: it borrows a surrogate for one call, and egress holds
// every request to the envelope that sentinel filled. So nothing here is a wall for others; it keeps an honest worker
// honest. It reads what strangers wrote (vendors' answers) and what cells sent, and both may be hostile: sizes, depths
// and counts are bounded before anything is allocated, a handler that panics fails its own call only, and a write is
// never sent twice.
package workers

import (
	"context"
	"fmt"

	"github.com/doorward/doorward/internal/describe"
)

// Handler runs one method. It sends requests by c.Do alone. An error that is no *wire.Error is told to the caller as
// a fault of Doorward and logged.
type Handler func(ctx context.Context, c *Call) (*Answer, error)

// Renderer makes the prepared body of a method. It gets no credential, no network and no clock: equal input gives equal
// bytes. A method that needs no body for these arguments returns none.
type Renderer func(r *Rendering) (body []byte, media string, err error)

// Rendering is what a body is made from.
type Rendering struct {
	Method *describe.Method
	Values describe.Values
	Mark   string // the call's mark: what is made is named by it
	Unix   int64  // seconds: the time that stamps get
	Owner  string // address of the account's owner, where known
	Base   []byte // what the method's base read answered, where it has one
}

// Connector is a vendor: its description, and the code of its methods.
type Connector struct {
	Describe  *describe.Connector
	Handlers  map[string]Handler
	Renderers map[string]Renderer
}

// verify seals the description and holds the code to it: each method has a handler, each prepared one a renderer, and
// nothing else has. It returns the description's bytes.
func (c *Connector) verify() ([]byte, error) {
	desc, err := c.Describe.Seal()
	if err != nil {
		return nil, err
	}
	prepared := 0
	for i := range c.Describe.Methods {
		m := &c.Describe.Methods[i]
		if c.Handlers[m.Name] == nil {
			return nil, fmt.Errorf("%s %s: declared, but it has no handler", c.Describe.Vendor, m.Name)
		}
		if m.Prepare != nil {
			prepared++
			if c.Renderers[m.Name] == nil {
				return nil, fmt.Errorf("%s %s: prepared, but it has no renderer", c.Describe.Vendor, m.Name)
			}
		}
	}
	if len(c.Handlers) != len(c.Describe.Methods) || len(c.Renderers) != prepared {
		return nil, fmt.Errorf("%s: there is code for a method that is not declared", c.Describe.Vendor)
	}
	return desc, nil
}
