// SPDX-License-Identifier: Apache-2.0

package wire

type (
	// PersonSurrogateResp answers PersonSurrogateReq. Of add there is Widening, the card that issues it once it is approved; of
	// revoke Lines say what was ended; of list there are Issued and, where one answer does not hold them, Next.
	PersonSurrogateResp struct {
		Widening string         `msgpack:"w,omitempty"`
		Lines    []string       `msgpack:"l,omitempty"`
		Issued   []IssuedCustom `msgpack:"i,omitempty"`
		Next     string         `msgpack:"n,omitempty"` // Name of PersonSurrogateReq with Op list: what follows
	}
	// IssuedCustom is a custom surrogate that a person issued into a cell.
	IssuedCustom struct {
		Issue   string   `msgpack:"i" json:"issue"`
		Name    string   `msgpack:"n" json:"name"` // of its account
		Cell    string   `msgpack:"c" json:"cell"`
		Hosts   []string `msgpack:"h" json:"hosts"`                     // host:port or *.host:port
		Made    int64    `msgpack:"m" json:"made"`                      // seconds, like all that follow
		Until   int64    `msgpack:"u,omitempty" json:"until,omitempty"` // 0: until it is revoked
		LastUse int64    `msgpack:"l,omitempty" json:"last_use,omitempty"`
		By      string   `msgpack:"b,omitempty" json:"by,omitempty"` // who approved it
	}
)
