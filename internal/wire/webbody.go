// SPDX-License-Identifier: Apache-2.0

package wire

// approvals -> sentinel, verb body: a part of a body or file of a call that waits. A card has no room for long ones.
type (
	// BodyReq names the body by its digest as the card has it, and the first byte that is wanted.
	BodyReq struct {
		Call   string `msgpack:"c" json:"call"`
		SHA256 []byte `msgpack:"h" json:"sha256"` // 32 bytes
		From   int64  `msgpack:"f,omitempty" json:"from,omitempty"`
	}
	// BodyResp has the bytes from there on, half a megabyte at most. Nothing vouches for them but the digest of the whole.
	BodyResp struct {
		Data []byte `msgpack:"d" json:"data"`
	}
)
