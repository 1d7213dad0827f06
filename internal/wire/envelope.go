// SPDX-License-Identifier: Apache-2.0

package wire

// Entry is one request that an allowed call may send, every value filled in by sentinel. What it does not list is
// refused. Package describe has the template it is filled from; package envelope of egress matches requests to it.
type Entry struct {
	Name   string `msgpack:"n"` // of the template, for the record
	Scheme string `msgpack:"s"`
	Host   string `msgpack:"h"` // canonical; with Follow, the hosts that may be named: exact or "*.x"
	Port   int    `msgpack:"p"`
	Method string `msgpack:"m"`
	// Path is the canonical absolute path as it stands in the request line, without query. AnyPath: any canonical
	// path that begins with it (reads whose hrefs only the server knows).
	Path    string  `msgpack:"t"`
	AnyPath bool    `msgpack:"ta,omitempty"`
	Query   []Match `msgpack:"q,omitempty"`
	Header  []Match `msgpack:"e,omitempty"` // besides the neutral ones that egress lists
	Body    Body    `msgpack:"b,omitempty"`
	// Uses is how many requests may match it; authd counts.
	Uses int `msgpack:"u"`
	// Credential: the account's credential goes along. authd refuses a grant whose entry sends it elsewhere than to
	// the account's base.
	Credential bool `msgpack:"c,omitempty"`
	// Follow: the request must go to the very Location that an earlier request of this grant, by the entry named,
	// was answered with. Path and Query are then not looked at.
	Follow string `msgpack:"f,omitempty"`
	// Also are further authorities (host:port) that a Follow entry may go to: a setting of a self-hosted account.
	Also  []string `msgpack:"al,omitempty"`
	MaxIn int64    `msgpack:"mi,omitempty"` // bytes of the answer; 0 is the default of egress
}

// Match holds one query parameter or header to values. Values must stand in this order, and nothing beside them;
// Any leaves the value open (a cursor from an earlier answer), Optional lets it be absent.
type Match struct {
	Name     string   `msgpack:"n"`
	Values   []string `msgpack:"v,omitempty"`
	Any      bool     `msgpack:"a,omitempty"`
	Optional bool     `msgpack:"o,omitempty"`
}

// Body says what the request's body must be. At most one of SHA256, JSON and File is set; with none of them there
// must be no body.
type Body struct {
	Media  string `msgpack:"m,omitempty"` // Content-Type, compared without parameters but charset=utf-8
	SHA256 Digest `msgpack:"h,omitempty"` // of the whole body: prepared bodies and filled templates
	// JSON: the body is one JSON object whose leaves are exactly these, no key twice.
	JSON []Leaf `msgpack:"j,omitempty"`
	// File: the body is a file of the call, raw, of this digest and size. It may stream.
	File *FileBody `msgpack:"f,omitempty"`
}

// FileBody is a file's digest and size in bytes.
type FileBody struct {
	SHA256 Digest `msgpack:"h"`
	Size   int64  `msgpack:"s"`
}

// Leaf is one JSON-pointer field (RFC 6901) with the value that must stand there. An array is one leaf. Value is JSON
// as RFC 8785 writes it; Base64 instead holds a string to standard base64 of a file, Text one to the very bytes of a
// file, which is then UTF-8.
type Leaf struct {
	Pointer string    `msgpack:"p"`
	Value   []byte    `msgpack:"v,omitempty"`
	Base64  *FileBody `msgpack:"b,omitempty"`
	Text    *FileBody `msgpack:"x,omitempty"`
}

// MaxIssuedUses is how many uses sentinel asks for at a time of a grant that has Issue, and authd keeps at most.
const MaxIssuedUses = 64

// GrantReq is sentinel -> authd, verb grant: a call may use a credential. It lives in authd's memory only.
type GrantReq struct {
	Grant  string `msgpack:"g"`
	Call   string `msgpack:"c"` // with Issue that again
	Worker string `msgpack:"w"` // vendor of the worker; empty with Issue
	// Issue, in the place of Worker, is of a custom surrogate: the egress of Cell resolves those that were minted under it, for as
	// many requests as the one entry has uses.
	Issue      string  `msgpack:"u,omitempty"`
	Cell       string  `msgpack:"l,omitempty"` // the caller; both empty: sentinel executes
	Session    string  `msgpack:"s,omitempty"`
	Frame      Digest  `msgpack:"f"`
	Account    string  `msgpack:"a"`
	Generation int64   `msgpack:"n"` // of its login, as the person decided it
	Digest     Digest  `msgpack:"d"` // of the account as the person decided it
	Entries    []Entry `msgpack:"e"`
	Mark       string  `msgpack:"m,omitempty"`
	Unix       int64   `msgpack:"x"` // expiry, seconds; authd counts the same span on the boot clock too
}

// GrantRef names a grant: revoke (sentinel -> authd) and cut (sentinel -> egress). With Cell or Account set instead
// of Grant it names all of them.
type GrantRef struct {
	Grant   string `msgpack:"g,omitempty"`
	Cell    string `msgpack:"l,omitempty"`
	Account string `msgpack:"a,omitempty"`
	All     bool   `msgpack:"all,omitempty"`
}

// RevokeResp says what revoke ended.
type RevokeResp struct {
	Grants []string `msgpack:"g,omitempty"`
}

// ResolveReq is egress -> authd, verb resolve: one request is about to leave.
type (
	ResolveReq struct {
		Grant     string `msgpack:"g"`
		Surrogate string `msgpack:"s,omitempty"` // as found in the request; empty where the entry takes no credential
		Worker    string `msgpack:"w"`           // as the kernel named the peer; empty of a cell's own request
		Entry     int    `msgpack:"e"`
	}
	ResolveResp struct {
		Secret     string    `msgpack:"s,omitempty"` // what stands for the surrogate on the wire
		Placement  Placement `msgpack:"p,omitempty"`
		Entry      Entry     `msgpack:"e"`
		CA         []byte    `msgpack:"ca,omitempty"` // PEM; empty is the system's roots
		Permit     []string  `msgpack:"pm,omitempty"` // ip:port that the account may use though it is not public
		Call       string    `msgpack:"c"`
		Cell       string    `msgpack:"l,omitempty"`
		Account    string    `msgpack:"a"`
		Generation int64     `msgpack:"n"` // with Account: partitions the connection pools
		// Scrub is all that answers are scrubbed of; for Basic the password and the whole pair.
		Scrub []string `msgpack:"sc,omitempty"`
	}
)

// MaxWitness bounds in bytes the answers of which egress tells the digest.
const MaxWitness = 16 << 20

// SentReq is egress -> sentinel, verb sent: what became of one request, or of one connection of a cell. A refusal has Err and no
// Status. It is sent again until it is answered: Instance (of this run of egress) and Seq tell a repeated one.
type SentReq struct {
	Instance string `msgpack:"is,omitempty"`
	Seq      uint64 `msgpack:"q,omitempty"`
	Grant    string `msgpack:"g"`
	Conn     string `msgpack:"c,omitempty"` // of a cell's connection, in the place of Grant: ConnectResp.ID
	Worker   string `msgpack:"w,omitempty"`
	Entry    string `msgpack:"e,omitempty"` // its name
	Method   string `msgpack:"m,omitempty"`
	Host     string `msgpack:"h,omitempty"`
	Status   int    `msgpack:"s,omitempty"`
	Out      int64  `msgpack:"o,omitempty"` // bytes of body sent
	In       int64  `msgpack:"i,omitempty"` // bytes of body received
	Left     bool   `msgpack:"l,omitempty"` // a byte of the request may have reached the server
	Complete bool   `msgpack:"k,omitempty"` // the answer came to its end
	Swapped  int    `msgpack:"b,omitempty"` // times the answer was scrubbed of the credential
	Body     Digest `msgpack:"y,omitempty"` // of the answer's body as the worker got it; zero where it is longer than MaxWitness
	ETag     string `msgpack:"t,omitempty"` // of the answer as the worker got it; empty where longer than 256 bytes
	Err      *Error `msgpack:"r,omitempty"`
}

// authd -> sentinel on its link.
type (
	// AccountsReq, verb accounts: all accounts, at connect and at each change.
	AccountsReq struct {
		Instance   string    `msgpack:"i"` // of this run of authd: grants of another are void
		Locked     bool      `msgpack:"l,omitempty"`
		Accounts   []Account `msgpack:"a,omitempty"`
		Checkpoint []byte    `msgpack:"k,omitempty"` // the newest signed checkpoint that sentinel left
	}
	// Account is what others may know of a credential.
	Account struct {
		Name       string    `msgpack:"n"`
		Vendor     string    `msgpack:"v"`
		Base       Base      `msgpack:"b"`
		Placement  Placement `msgpack:"p"`
		Generation int64     `msgpack:"g"`
		Digest     Digest    `msgpack:"d"` // of vendor, base, CA, permit, also, allowlist: what a person decides
		Permit     []string  `msgpack:"t,omitempty"`
		Also       []string  `msgpack:"al,omitempty"` // host:port of a self-hosted vendor's second hosts
		PrivateCA  bool      `msgpack:"ca,omitempty"`
		Workers    []string  `msgpack:"w,omitempty"`
		Scopes     []string  `msgpack:"s,omitempty"`
		Owner      string    `msgpack:"o,omitempty"`
		Health     Code      `msgpack:"h,omitempty"`
		Unix       int64     `msgpack:"u,omitempty"` // of the newest change, seconds
	}
	// ReleasedReq, verb released: the credential went to egress for one request. Repeated until answered.
	ReleasedReq struct {
		Seq   uint64 `msgpack:"q"` // counts up within an instance
		Grant string `msgpack:"g"`
		Entry int    `msgpack:"e"`
		Unix  int64  `msgpack:"u"`
		// Whose it was, as the grant says: sentinel may have lost the call with its power.
		Call    string `msgpack:"c,omitempty"`
		Cell    string `msgpack:"l,omitempty"`
		Worker  string `msgpack:"w,omitempty"`
		Account string `msgpack:"a,omitempty"`
	}
	// RefusedReq, verb refused: authd said no, for the record.
	RefusedReq struct {
		Verb   string `msgpack:"v"`
		Peer   string `msgpack:"p"` // as the kernel named it
		Grant  string `msgpack:"g,omitempty"`
		Code   Code   `msgpack:"c"`
		Detail string `msgpack:"d,omitempty"`
	}
)

// CheckpointReq is sentinel -> authd, verb checkpoint: keep this signed checkpoint. An older one than authd has is
// refused.
type CheckpointReq struct {
	Note []byte `msgpack:"n"`
	Size int64  `msgpack:"s"` // of the tree
}

// doorward -> authd on authd/admin/sock.
type (
	UnlockReq struct {
		Passphrase []byte `msgpack:"p"`
	}
	// AddReq adds an account, or with Replace changes what is set of it (a new credential raises the login generation).
	AddReq struct {
		Name      string    `msgpack:"n"`
		Vendor    string    `msgpack:"v"`
		Base      Base      `msgpack:"b"`
		Placement Placement `msgpack:"p"`
		Secret    []byte    `msgpack:"s,omitempty"`
		CA        []byte    `msgpack:"ca,omitempty"`
		Permit    []string  `msgpack:"t,omitempty"`  // ip:port
		Also      []string  `msgpack:"al,omitempty"` // host:port
		Workers   []string  `msgpack:"w,omitempty"`  // empty is the vendor's own
		Scopes    []string  `msgpack:"c,omitempty"`
		Owner     string    `msgpack:"o,omitempty"`
		Replace   bool      `msgpack:"r,omitempty"`
	}
	AccountsResp struct {
		Accounts []Account `msgpack:"a,omitempty"`
	}
	AccountRef struct {
		Name string `msgpack:"n"`
	}
	RenameReq struct {
		From string `msgpack:"f"`
		To   string `msgpack:"t"`
	}
)
