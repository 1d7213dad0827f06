// SPDX-License-Identifier: Apache-2.0

package facts

import (
	"net/http"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Bounds of what a push says before its objects.
const (
	MaxGit  = 256 << 10 // bytes
	maxRefs = 256       // and as many lines before the first
	maxRef  = 1024      // bytes of a ref's name
)

const fetch = "git fetch"

// Git reads what a request of git's smart HTTP protocol does (gitprotocol-http). start is how the body begins, without
// Content-Encoding; need, where it is not 0, is how many bytes of it there must be before it can be said. A request whose body
// ends before that is wire.Unreadable. It returns nothing of a request that is none of git's: the dumb protocol is plain
// GETs.
//
// The answer to a GET of info/refs is the list of refs, also where a push is to follow: it changes nothing, and which refs a
// push is about only its body says. A push that updates may force: whether it does no server tells beforehand.
func Git(method, path, query string, start []byte) (does []string, need int) {
	switch last := path[strings.LastIndexByte(path, '/')+1:]; {
	case method == http.MethodGet && last == "refs" && strings.HasSuffix(path, "/info/refs"):
		if query == "service=git-upload-pack" || query == "service=git-receive-pack" {
			return []string{fetch}, 0
		}
	case method == http.MethodPost && last == "git-upload-pack":
		return uploadPack(start)
	case method == http.MethodPost && last == "git-receive-pack":
		return receivePack(start)
	}
	return nil, 0
}

// line is the first pkt-line of b (gitprotocol-common): its content, and what follows. flush is 0000. need says how much of
// b there must be; -1: it is none.
func line(b []byte) (content, rest []byte, flush bool, need int) {
	if len(b) < 4 {
		return nil, nil, false, 4
	}
	n := 0
	for _, c := range b[:4] {
		d := strings.IndexByte("0123456789abcdef", c|0x20)
		if d < 0 || c < '0' {
			return nil, nil, false, -1
		}
		n = n<<4 | d
	}
	switch {
	case n == 0:
		return nil, b[4:], true, 0
	case n <= 4 || n > 65520: // 0001 and 0002 stand in what upload-pack reads, never first
		return nil, nil, false, -1
	case len(b) < n:
		return nil, nil, false, n
	}
	return b[4:n], b[n:], false, 0
}

// uploadPack holds the first line to what clients ask: by any other body a fetch would be a name for sending anything.
func uploadPack(start []byte) ([]string, int) {
	content, _, flush, need := line(start)
	switch {
	case need > 0:
		return nil, need
	case need < 0 || flush:
		return unreadable(), 0
	}
	s := strings.TrimSuffix(string(content), "\n")
	switch s {
	case "command=ls-refs", "command=fetch", "command=object-info":
		return []string{fetch}, 0
	}
	if rest, ok := strings.CutPrefix(s, "want "); ok {
		if id, _, _ := strings.Cut(rest, " "); isObject(id) {
			return []string{fetch}, 0
		}
	}
	return unreadable(), 0
}

// receivePack reads the commands up to the flush. None at all, which a client sends to find out whether it is known, changes
// nothing.
func receivePack(start []byte) (does []string, need int) {
	rest, first, lines := start, true, 0
	for {
		content, after, flush, need := line(rest)
		read := len(start) - len(rest)
		switch {
		case need < 0 || read+need > MaxGit:
			return unreadable(), 0
		case need > 0:
			return nil, read + need
		case flush && len(does) == 0 && first:
			return []string{fetch}, 0
		case flush && len(does) == 0:
			return unreadable(), 0
		case flush:
			return does, 0
		case lines == 2*maxRefs || len(does) == maxRefs || len(start)-len(after) > MaxGit:
			return unreadable(), 0
		}
		rest, first = after, false
		lines++
		s := string(content)
		if id, ok := strings.CutPrefix(strings.TrimSuffix(s, "\n"), "shallow "); ok && len(does) == 0 && isObject(id) {
			continue
		}
		if len(does) == 0 {
			s, _, _ = strings.Cut(s, "\x00") // capabilities
		}
		c, ok := command(strings.TrimSuffix(s, "\n"))
		if !ok {
			return unreadable(), 0 // a signed push too: its commands stand within what is signed
		}
		does = append(does, c)
	}
}

// command reads OLD NEW REF.
func command(s string) (string, bool) {
	old, rest, _ := strings.Cut(s, " ")
	to, ref, _ := strings.Cut(rest, " ")
	if !isObject(old) || !isObject(to) || len(old) != len(to) || !isRef(ref) {
		return "", false
	}
	none := func(id string) bool { return strings.Trim(id, "0") == "" }
	switch {
	case none(old) && none(to):
		return "", false
	case none(old):
		return "git push create " + ref, true
	case none(to):
		return "git push delete " + ref, true
	}
	return "git push update " + ref, true
}

func isObject(id string) bool {
	return (len(id) == 40 || len(id) == 64) && strings.Trim(id, "0123456789abcdef") == ""
}

// isRef: below refs/, as git check-ref-format has it as far as a card needs.
func isRef(s string) bool {
	return strings.HasPrefix(s, "refs/") && len(s) <= maxRef && utf8.ValidString(s) && !strings.Contains(s, "..") &&
		!strings.Contains(s, "//") && !strings.HasSuffix(s, "/") &&
		!strings.ContainsFunc(s, func(r rune) bool { return !unicode.IsPrint(r) || strings.ContainsRune(" ~^:?*[\\", r) })
}
