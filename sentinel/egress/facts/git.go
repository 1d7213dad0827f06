// SPDX-License-Identifier: Apache-2.0

package facts

import (
	"net/http"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Bounds of what a push says before its objects.
const (
	MaxGit  = 256 << 10 // bytes
	maxRefs = 256       // refs and options, and as many lines before the first
	maxRef  = 1024      // bytes of a ref's name, and of an option
)

const fetch = "git fetch"

// Git reads what a request of git's smart HTTP protocol does (gitprotocol-http). start is how the body begins, without
// Content-Encoding, and all says that there is no more of it; need, where it is not 0, is how many bytes of it there must be before
// it can be said. It returns nothing of a request that is none of git's. The dumb protocol is plain GETs; and a POST with a query or
// another media type a server may read as anything, as a form for one.
//
// The answer to a GET of info/refs is the list of refs, also where a push is to follow: it changes nothing, and which refs a
// push is about only its body says. A push that updates may force: whether it does no server tells beforehand.
func Git(method, path, query, media string, start []byte, all bool) (does []string, need int) {
	switch last := path[strings.LastIndexByte(path, '/')+1:]; {
	case method == http.MethodGet && last == "refs" && strings.HasSuffix(path, "/info/refs"):
		if query == "service=git-upload-pack" || query == "service=git-receive-pack" {
			return []string{fetch}, 0
		}
	case method != http.MethodPost || query != "" || media != "application/x-"+last+"-request":
		return nil, 0
	case last == "git-upload-pack":
		does, need = uploadPack(start, all)
	case last == "git-receive-pack":
		does, need = receivePack(start, all)
	}
	if need > 0 && all {
		return unreadable(), 0
	}
	return does, need
}

// Pkt-lines that have no content.
const (
	flush = "0000"
	delim = "0001"
)

// line is the first pkt-line of b (gitprotocol-common): its content, or which of those without it is, and what follows. need
// says how much of b there must be; -1: it is none.
func line(b []byte) (content, rest []byte, mark string, need int) {
	if len(b) < 4 {
		return nil, nil, "", 4
	}
	n := 0
	for _, c := range b[:4] {
		d := strings.IndexByte("0123456789abcdef", c|0x20)
		if d < 0 || c < '0' {
			return nil, nil, "", -1
		}
		n = n<<4 | d
	}
	switch {
	case n <= 1:
		return nil, b[4:], string(b[:4]), 0
	case n <= 4 || n > 65520: // 0002 a server alone says
		return nil, nil, "", -1
	case len(b) < n:
		return nil, nil, "", n
	}
	return b[4:n], b[n:], "", 0
}

// receivePack reads the commands up to the flush, and where a capability says so the options up to the next. A flush that is all
// there is, which a client sends to find out whether it is known, changes nothing.
func receivePack(start []byte, all bool) (does []string, need int) {
	rest, refs, lines := start, 0, 0
	optional, options := false, false // there are options to come; they are what is read
	for {
		content, after, mark, need := line(rest)
		read := len(start) - len(rest)
		switch {
		case need < 0 || mark == delim || read+need > MaxGit:
			return unreadable(), 0
		case need > 0:
			return nil, read + need
		case mark == flush && read == 0 && len(after) == 0:
			if !all {
				return nil, len(flush) + 1
			}
			return []string{fetch}, 0
		case mark == flush && refs == 0:
			return unreadable(), 0
		case mark == flush && optional && !options:
			rest, options = after, true
			continue
		case mark == flush:
			return does, 0
		case lines == 2*maxRefs || len(does) == maxRefs || len(start)-len(after) > MaxGit:
			return unreadable(), 0
		}
		rest = after
		lines++
		s := strings.TrimSuffix(string(content), "\n")
		if options {
			if s == "" || len(s) > maxRef || !isVisible(s) {
				return unreadable(), 0
			}
			does = append(does, "git push option "+strconv.Quote(s))
			continue
		}
		if id, ok := strings.CutPrefix(s, "shallow "); ok && refs == 0 && isObject(id) {
			continue
		}
		if refs == 0 {
			var able string
			s, able, _ = strings.Cut(s, "\x00")
			if !isPlain(able) {
				return unreadable(), 0
			}
			for c := range strings.SplitSeq(able, " ") {
				optional = optional || c == "push-options" || strings.HasPrefix(c, "push-options=")
			}
		}
		c, ok := command(s)
		if !ok {
			return unreadable(), 0 // a signed push too: its commands stand within what is signed
		}
		does = append(does, c)
		refs++
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
	return strings.HasPrefix(s, "refs/") && isName(s) && !strings.HasSuffix(s, "/")
}

// isName: a ref, or how the names of some begin.
func isName(s string) bool {
	return s != "" && len(s) <= maxRef && isVisible(s) && !strings.ContainsAny(s, " ~^:?*[\\") && !strings.Contains(s, "..") &&
		!strings.Contains(s, "//")
}

func isVisible(s string) bool {
	return utf8.ValidString(s) && !strings.ContainsFunc(s, func(r rune) bool { return !unicode.IsPrint(r) })
}

// isPlain: words of ASCII with spaces between them, which no two readers part in different ways; none too.
func isPlain(s string) bool {
	return len(s) <= maxRef && !strings.ContainsFunc(s, func(r rune) bool { return r < ' ' || r > '~' })
}

func isWord(s string) bool { return s != "" && isPlain(s) && !strings.Contains(s, " ") }

func isNumber(s string) bool { return s != "" && len(s) <= 20 && strings.Trim(s, "0123456789") == "" }
