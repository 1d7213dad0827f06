// SPDX-License-Identifier: Apache-2.0

package wire

// Messages about notices: sentinel -> egress, and doorward -> sentinel on approve/sock.
type (
	// NotifyReq is one notice on its way out, sealed and signed where its channel asks for that. egress posts it once, to that address
	// and no other: a redirect is an answer.
	NotifyReq struct {
		URL    string         `msgpack:"u"` // https
		Header []NoticeHeader `msgpack:"h"` // NoticeHeaders alone
		Body   []byte         `msgpack:"b"` // at most MaxNotice bytes
		CA     []byte         `msgpack:"c,omitempty"`
		Permit []string       `msgpack:"p,omitempty"` // IP:PORT that root opened for this channel
	}
	NoticeHeader struct {
		Name  string `msgpack:"n"`
		Value string `msgpack:"v"`
	}
	// NotifyResp is what the server answered. What it says beside that is read by nobody.
	NotifyResp struct {
		Status int   `msgpack:"s"`
		Retry  int64 `msgpack:"r,omitempty"` // seconds to wait before the next try, where it says so; at most an hour
	}
)

// MaxNotice is the longest body of a notice in bytes.
const MaxNotice = 16 << 10

// NoticeHeaders are the headers that a notice may have, in lower case.
func NoticeHeaders() []string {
	return []string{"authorization", "content-type", "content-encoding", "ttl", "urgency", "topic", "webhook-id", "webhook-timestamp",
		"webhook-signature"}
}
