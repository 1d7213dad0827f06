// SPDX-License-Identifier: Apache-2.0

package wire

import "strings"

// never are header names that must not hold a credential: what negotiates, routes, conditions or frames comes back
// transformed (Sec-WebSocket-Accept, ETag) and makes an oracle of it. Prefixes end in '-'.
var never = []string{
	"Accept", "Accept-", "Age", "Access-Control-", "Allow", "Alt-Svc", "Cache-Control", "Connection", "Content-", "Date",
	"Depth", "Destination", "Digest", "Doorward-", "Etag", "Expect", "Expires", "Forwarded", "From", "Host",
	"Http2-Settings", "If", "If-", "Keep-Alive", "Last-Modified", "Link", "Location", "Max-Forwards", "Origin", "Pragma",
	"Prefer", "Priority", "Proxy-", "Range", "Referer", "Sec-", "Server", "Set-Cookie", "Set-Cookie2", "Te", "Trailer",
	"Transfer-Encoding", "Upgrade", "Upgrade-Insecure-Requests", "User-Agent", "Vary", "Via", "Want-Digest", "Warning",
	"X-Forwarded-", "X-Http-Method", "X-Http-Method-Override", "X-Method-Override",
}

// NeverHeader says that a header of this name, in any case of its letters, is no place for a credential.
func NeverHeader(name string) bool {
	for _, n := range never {
		if strings.EqualFold(name, n) || strings.HasSuffix(n, "-") && len(name) >= len(n) && strings.EqualFold(name[:len(n)], n) {
			return true
		}
	}
	return false
}
