// SPDX-License-Identifier: Apache-2.0

package wire

import "fmt"

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

	// NoticesReq: Op is list, add, remove or test. All but list are root's alone: who is told what agents do is somebody else's server.
	NoticesReq struct {
		Op      string         `msgpack:"o"`
		Name    string         `msgpack:"n,omitempty"` // of a channel; of remove also the id of a browser
		Channel *NoticeChannel `msgpack:"c,omitempty"`
		Secret  []byte         `msgpack:"s,omitempty"` // of add: an ntfy server's token, or a webhook's secret
	}
	// NoticesResp: Secret, of add, is that of a webhook which was made here, to be shown once. Status, of test, is what was answered.
	NoticesResp struct {
		Channels []NoticeChannel `msgpack:"c,omitempty"`
		Browsers []NoticeBrowser `msgpack:"b,omitempty"`
		Secret   []byte          `msgpack:"s,omitempty"`
		Status   int             `msgpack:"t,omitempty"`
	}
	// NoticeChannel is a place where people are told, in the order in which they are.
	NoticeChannel struct {
		Name   string   `msgpack:"n" json:"name"` // NoticeName
		Kind   string   `msgpack:"k" json:"kind"` // ntfy, webhook, or pushservice: one more whose browsers may be told
		URL    string   `msgpack:"u" json:"url"`
		CA     []byte   `msgpack:"a,omitempty" json:"-"`
		Permit []string `msgpack:"p,omitempty" json:"permit,omitempty"`
		After  int64    `msgpack:"f" json:"after"`                      // seconds that nobody has looked; of add -1: by its place
		Detail string   `msgpack:"d,omitempty" json:"detail,omitempty"` // none: that something waits, not what
	}
	// NoticeBrowser is one that is told by Web Push.
	NoticeBrowser struct {
		ID       string `msgpack:"i" json:"id"`
		Approver string `msgpack:"a" json:"approver"`
		Service  string `msgpack:"h" json:"service"` // host
		Made     int64  `msgpack:"m" json:"made"`    // seconds
	}
	// WebPushReq, of a browser with a session: without Public it asks for the key, and whether it is told. Off ends it.
	WebPushReq struct {
		Endpoint string `msgpack:"e,omitempty" json:"endpoint,omitempty"`
		Public   []byte `msgpack:"p,omitempty" json:"public,omitempty"` // p256dh
		Auth     []byte `msgpack:"a,omitempty" json:"auth,omitempty"`
		Off      bool   `msgpack:"o,omitempty" json:"off,omitempty"`
	}
	// WebPushResp: Key is sentinel's, by which push services know it (RFC 8292).
	WebPushResp struct {
		Key []byte `msgpack:"k,omitempty" json:"key,omitempty"`
		On  bool   `msgpack:"o,omitempty" json:"on,omitempty"`
	}
)

// MaxNotice is the longest body of a notice in bytes.
const MaxNotice = 16 << 10

// NoticeHeaders are the headers that a notice may have, in lower case.
func NoticeHeaders() []string {
	return []string{"authorization", "content-type", "content-encoding", "ttl", "urgency", "topic", "webhook-id", "webhook-timestamp",
		"webhook-signature"}
}

// NoticeName holds s to what a channel of notices can be called: 1 to 32 of a-z and 0-9.
func NoticeName(s string) error {
	if !isName(s) {
		return fmt.Errorf("%q names no channel: its name is 1 to 32 of a-z and 0-9", s)
	}
	return nil
}
