// SPDX-License-Identifier: Apache-2.0

package wire

// Messages of a cell's egress -> sentinel, verb request: one request on a connection whose answer to connect was
// HowIntercept. Which cell it is the kernel says.
type (
	// RequestReq asks whether the cell may send that request. A surrogate is in no field of it: where one stood in Path or
	// Query stands SurrogateMark.
	RequestReq struct {
		Conn   string `msgpack:"c"` // ConnectResp.ID of its connection
		Name   string `msgpack:"n"` // the authority, canonical; equal to the connection's
		Port   uint16 `msgpack:"p"`
		Clear  bool   `msgpack:"l,omitempty"` // without TLS
		Method string `msgpack:"m"`
		// Path is canonical (RFC 3986 6.2.2), absolute, without query. One that can be read in two ways never gets here.
		Path  string `msgpack:"t"`
		Query string `msgpack:"q,omitempty"` // as written
		// Upgrade: it asks for WebSocket (RFC 6455, RFC 8441).
		Upgrade bool `msgpack:"u,omitempty"`
		// Does is what its body says, where ConnectResp.Read had that read: "graphql query", "graphql mutation", "graphql
		// subscription", "jsonrpc METHOD"; and of git over HTTP "git fetch", "git push create REF", "git push update REF", "git
		// push delete REF". Unreadable, alone, is a body that was to be read and could not be.
		Does  []string  `msgpack:"d,omitempty"`
		Model *ModelUse `msgpack:"o,omitempty"`
		// Surrogate: it carries a surrogate in the place that ConnectResp.Credential names.
		Surrogate bool `msgpack:"s,omitempty"`
		Task      Task `msgpack:"k"`
	}
	// ModelUse is what a request to a model's provider asks for.
	ModelUse struct {
		Model string   `msgpack:"m"`
		Most  int64    `msgpack:"x,omitempty"` // tokens of the answer; 0 where it does not say
		Tools []string `msgpack:"t,omitempty"` // that the provider runs itself, by their types there
	}
	// RequestResp allows it. What is refused is an Error, whose reason the cell may read.
	RequestResp struct {
		ID string `msgpack:"i"` // of the decision, for sent
		// Grant, where the request carries a surrogate, is what authd resolves it under, once.
		Grant string `msgpack:"g,omitempty"`
		// Under are what the request goes by besides policy: the surrogate's issue and a person's grant. `cut` with one of them
		// as GrantRef.Grant ends its connection.
		Under []string `msgpack:"u,omitempty"`
	}

	// Reading has egress read the bodies of some requests before it asks, at most MaxRead bytes; a longer one is Unreadable.
	Reading struct {
		Methods []string `msgpack:"m"`
		Path    string   `msgpack:"t"` // a pattern of package manifest
		As      string   `msgpack:"a"` // ReadGraphQL and its like
	}
	// Budget bounds what a cell uses; 0 is egress's own bound. Site is of the name that was connected to, Cell of all of the cell.
	Budget struct {
		Site Spend `msgpack:"s,omitempty"`
		Cell Spend `msgpack:"c,omitempty"`
	}
	// Spend is one row of a budget.
	Spend struct {
		Conns    int64 `msgpack:"c,omitempty"` // at once
		Requests int64 `msgpack:"r,omitempty"` // a minute
		Out      int64 `msgpack:"o,omitempty"` // bytes sent, an hour
		Names    int64 `msgpack:"n,omitempty"` // new ones a minute; of the cell only
	}
)

// SurrogateMark stands for a surrogate where one is shown or matched.
const SurrogateMark = "{surrogate}"

// Unreadable is the one word of RequestReq.Does for a body that was to be read and could not be.
const Unreadable = "unreadable"

// What a body is read as.
const (
	ReadGraphQL = "graphql"
	ReadJSONRPC = "jsonrpc"
	ReadModel   = "model"
)

// MaxRead is the longest body that is read before a request is decided, in bytes.
const MaxRead = 4 << 20

// Messages about custom surrogates.
type (
	// MintReq is sentinel -> authd, verb mint: a new surrogate of an account of vendor `custom`, for one cell. authd keeps its
	// digest until Unix, or until the issue is revoked, over restarts too.
	MintReq struct {
		Issue      string `msgpack:"i"` // names what the person issued; GrantRef.Grant with it ends all that was minted
		Cell       string `msgpack:"l"`
		Account    string `msgpack:"a"`
		Generation int64  `msgpack:"n"`
		Digest     Digest `msgpack:"d"` // of the account as the person decided it
		Unix       int64  `msgpack:"x"` // expiry, seconds; 0: with the issue
	}
	MintResp struct {
		Value []byte `msgpack:"v"`
	}
	// SurrogateReq is connector -> sentinel, verb surrogate: a fresh value of what was issued into the caller's cell. An empty name
	// has listed what was issued there.
	SurrogateReq struct {
		Name string `msgpack:"n"`
	}
	SurrogateResp struct {
		Value  []byte       `msgpack:"v"`
		Unix   int64        `msgpack:"x,omitempty"` // when it ends, seconds; 0: with the issue
		Issued []IssuedHere `msgpack:"i,omitempty"`
	}
	// IssuedHere is a custom surrogate as its cell sees it.
	IssuedHere struct {
		Name  string   `msgpack:"n"`
		Hosts []string `msgpack:"h"`           // host:port or *.host:port
		Place string   `msgpack:"p"`           // in words (Placement.Words)
		Unix  int64    `msgpack:"x,omitempty"` // as of SurrogateResp
		Err   *Error   `msgpack:"e,omitempty"` // why it cannot be used; nil: it can
	}
	// PersonSurrogateReq is doorward -> sentinel, verb surrogate. Op is check, add (a widening), list or revoke. check
	// says whether add would be refused, but for the account, and changes nothing. What add issues is
	// of the account of vendor `custom` with that name, with routes and placement as in Manifest (package manifest). Of list
	// Name is where it begins: the Next of the page before.
	PersonSurrogateReq struct {
		Op       string `msgpack:"o"`
		Name     string `msgpack:"n,omitempty"`
		Cell     string `msgpack:"c,omitempty"`
		Manifest []byte `msgpack:"m,omitempty"`
		Until    int64  `msgpack:"u,omitempty"` // seconds; 0: until it is revoked
	}
)
