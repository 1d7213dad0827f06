// SPDX-License-Identifier: Apache-2.0

package cell

import (
	"bytes"
	"errors"
	"fmt"
	"strings"

	"github.com/doorward/doorward/sentinel/egress/head"
)

const (
	maxMethod = 20  // bytes
	maxLines  = 128 // of a head
)

// errHTTP is wrapped by every refusal of bytes that begin like HTTP/1.
var errHTTP = errors.New("not an HTTP/1 request that can be read in one way only")

// httpHead is what counts of the head of an HTTP/1 request, and the lines to write it again.
type httpHead struct {
	Method  string
	Target  string // as written
	Host    string // of the Host field as written; empty where there is none
	Version string // HTTP/1.0 or HTTP/1.1
	Length  int64  // of the body in bytes; -1 is chunked
	Upgrade string // websocket where that is asked for; another protocol is not
	strip   bool   // there is an Upgrade to something else, or by half
	size    int    // of the head in bytes
	lines   []string
}

// httpSays is how far bytes can be HTTP.
type httpSays int

const (
	httpMaybe httpSays = iota // more bytes will tell
	httpYes                   // its first line is whole, and one of HTTP/1
	httpNo
)

// isHTTP looks at a first line: METHOD SP target SP HTTP/1.x CRLF. The preface of HTTP/2 is none. What a server may take for
// HTTP/1 all the same, an empty line before it or another end of the line, counts as one too, and parseHTTP refuses it: as
// something else it would be carried unread, to whatever host it names.
func isHTTP(b []byte) httpSays {
	if len(b) > 0 && (b[0] == '\r' || b[0] == '\n') {
		return httpYes
	}
	i := 0
	for i < len(b) && ('A' <= b[i] && b[i] <= 'Z' || b[i] == '-') {
		i++
	}
	switch {
	case i > maxMethod || i == 0 && len(b) > 0:
		return httpNo
	case i == len(b):
		return httpMaybe
	case b[i] != ' ' && b[i] != '\t':
		return httpNo
	}
	line, _, whole := bytes.Cut(b, []byte("\n"))
	switch {
	case !whole:
		return httpMaybe
	case bytes.Contains(line, []byte("HTTP/1.")):
		return httpYes
	}
	return httpNo
}

// parseHTTP reads the head that b begins with, strictly (RFC 9112): two readers of one head must not come to two hosts or
// to two ends of its body, since one of them judges and the other acts. more says that its end is not there yet.
func parseHTTP(b []byte) (h *httpHead, more bool, err error) {
	end := bytes.Index(b, []byte("\r\n\r\n"))
	if end < 0 {
		return nil, true, nil
	}
	h = &httpHead{size: end + 4}
	h.lines = strings.Split(string(b[:end]), "\r\n")
	bad := func(why string) (*httpHead, bool, error) { return nil, false, fmt.Errorf("%s: %w", why, errHTTP) }
	if len(h.lines) > maxLines {
		return bad("more lines than a head may have")
	}
	first := strings.Split(h.lines[0], " ")
	if len(first) != 3 || first[0] == "" || strings.Trim(first[0], "ABCDEFGHIJKLMNOPQRSTUVWXYZ-") != "" ||
		!isVisible(first[1]) || first[2] != "HTTP/1.1" && first[2] != "HTTP/1.0" {
		return bad("its first line")
	}
	h.Method, h.Target, h.Version = first[0], first[1], first[2]
	count := map[string]int{}
	var upgrades bool
	for _, line := range h.lines[1:] {
		name, value, ok := cutField(line)
		if !ok {
			return bad("a field line")
		}
		count[name]++
		switch name {
		case "host":
			h.Host = value
			if value == "" {
				return bad("an empty Host")
			}
		case "content-length":
			if h.Length, ok = parseLength(value); !ok {
				return bad("Content-Length")
			}
		case "transfer-encoding":
			if !strings.EqualFold(value, "chunked") {
				return bad("Transfer-Encoding other than chunked")
			}
			h.Length = -1
		case "connection":
			upgrades = upgrades || hasToken(value, "upgrade")
		case "upgrade":
			h.Upgrade = strings.ToLower(value)
		}
	}
	switch {
	case count["host"] > 1 || count["host"] == 0 && h.Version == "HTTP/1.1":
		return bad("must have one Host")
	case count["content-length"]+count["transfer-encoding"] > 1 || h.Length < 0 && h.Version == "HTTP/1.0":
		return bad("the length of its body is said twice")
	case count["upgrade"] > 1:
		return bad("Upgrade twice")
	case !upgrades || h.Upgrade != "websocket":
		h.Upgrade, h.strip = "", count["upgrade"] > 0
	}
	return h, false, nil
}

// write gives the head as it goes on: untouched, but for what is meant for a proxy, and for an upgrade to anything but
// WebSocket, such as HTTP/2, in which each stream could name another host. target takes the place of its own where it is not empty.
func (h *httpHead) write(raw []byte, target string) []byte {
	drop := map[string]bool{}
	if target != "" {
		drop["proxy-connection"], drop["proxy-authorization"] = true, true
	}
	if h.strip {
		drop["upgrade"], drop["http2-settings"] = true, true
	}
	if len(drop) == 0 {
		return raw[:h.size]
	}
	if target == "" {
		target = h.Target
	}
	out := append(make([]byte, 0, h.size), h.Method+" "+target+" "+h.Version+"\r\n"...)
	for _, line := range h.lines[1:] {
		name, value, _ := cutField(line)
		if drop[name] {
			continue
		}
		if name == "connection" {
			var kept []string
			for t := range strings.SplitSeq(value, ",") {
				if t = strings.TrimSpace(t); t != "" && !drop[strings.ToLower(t)] {
					kept = append(kept, t)
				}
			}
			if len(kept) == 0 {
				continue
			}
			line = "Connection: " + strings.Join(kept, ", ")
		}
		out = append(append(out, line...), "\r\n"...)
	}
	return append(out, "\r\n"...)
}

// cutField takes a field line apart; the name is in lower case.
func cutField(line string) (name, value string, ok bool) {
	name, value, ok = strings.Cut(line, ":")
	if !ok || !head.IsToken(name) {
		return "", "", false
	}
	value = strings.Trim(value, " \t")
	for i := range len(value) {
		if c := value[i]; c < ' ' && c != '\t' || c == 0x7f {
			return "", "", false
		}
	}
	return strings.ToLower(name), value, true
}

func hasToken(list, token string) bool {
	for t := range strings.SplitSeq(list, ",") {
		if strings.EqualFold(strings.Trim(t, " \t"), token) {
			return true
		}
	}
	return false
}

// isVisible says that s is visible ASCII.
func isVisible(s string) bool {
	for i := range len(s) {
		if s[i] <= ' ' || s[i] >= 0x7f {
			return false
		}
	}
	return s != ""
}

// parseLength reads decimal digits without sign, below 10^15.
func parseLength(s string) (n int64, ok bool) {
	for i := range len(s) {
		if s[i] < '0' || s[i] > '9' {
			return 0, false
		}
		n = n*10 + int64(s[i]-'0')
	}
	return n, len(s) > 0 && len(s) <= 15
}
