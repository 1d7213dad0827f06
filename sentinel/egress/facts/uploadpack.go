// SPDX-License-Identifier: Apache-2.0

package facts

import (
	"slices"
	"strings"

	"github.com/doorward/doorward/internal/wire"
)

// maxWords is how many bytes a request to upload-pack may have of what names no object. Of those that do it has some 80,000.
const maxWords = 64 << 10

// uploadPack holds all of a body to what clients ask (gitprotocol-pack, gitprotocol-v2): by any other a fetch would be a name for
// sending anything.
func uploadPack(start []byte, all bool) ([]string, int) {
	if len(start) > wire.MaxRead {
		return unreadable(), 0
	}
	var a asking
	for rest := start; ; {
		if all && len(rest) == 0 && (a.at == over || a.at == haves) {
			return []string{fetch}, 0
		}
		content, after, mark, need := line(rest)
		read := len(start) - len(rest)
		switch {
		case need > 0 && read+need <= wire.MaxRead:
			return nil, read + need
		case need != 0 || !a.takes(strings.TrimSuffix(string(content), "\n"), mark):
			return unreadable(), 0
		}
		rest = after
	}
}

// asking is how far such a body was read.
type asking struct {
	at      part
	command string // of version 2
	words   int    // bytes
}

type part int

const (
	begin part = iota
	// Versions 0 and 1: what is wanted and how much of it; what is there.
	wants
	haves
	// Version 2: of its command.
	capabilities
	arguments
	over // nothing may follow
)

// What the value of a line must be, by its first word; those without a value are in bare.
var (
	limits = map[string]func(string) bool{"want": isObject, "shallow": isObject, "deepen": isNumber, "deepen-since": isNumber,
		"deepen-not": isName, "filter": isWord}
	values = map[string]map[string]func(string) bool{
		"ls-refs": {"ref-prefix": isName},
		"fetch": {"want": isObject, "have": isObject, "shallow": isObject, "deepen": isNumber, "deepen-since": isNumber,
			"deepen-not": isName, "filter": isWord, "want-ref": isRef, "packfile-uris": isWord},
	}
	bare = map[string][]string{
		"ls-refs": {"peel", "symrefs", "unborn"},
		"fetch": {"done", "thin-pack", "no-progress", "include-tag", "ofs-delta", "deepen-relative", "sideband-all",
			"wait-for-done"},
	}
)

// takes says whether that line may stand next.
func (a *asking) takes(s, mark string) bool {
	switch {
	case mark == delim:
		was := a.at
		a.at = arguments
		return was == capabilities
	case mark == flush:
		was := a.at
		a.at = over
		if was == wants || was == haves {
			a.at = haves
		}
		return was != over // at the beginning, alone: a client finds out whether it is known
	}
	word, value, valued := strings.Cut(s, " ")
	object := (word == "want" || word == "have" || word == "shallow") && isObject(value)
	if !object {
		a.words += len(s)
	}
	if a.words > maxWords {
		return false
	}
	is := func(known map[string]func(string) bool) bool {
		return valued && known[word] != nil && known[word](value)
	}
	switch a.at {
	case begin:
		if c, ok := strings.CutPrefix(s, "command="); ok {
			a.at, a.command = capabilities, c
			return values[c] != nil
		}
		a.at = wants
		id, able, _ := strings.Cut(value, " ")
		return word == "want" && isObject(id) && isPlain(able)
	case wants:
		return is(limits)
	case haves:
		return s == "done" || object && word == "have"
	case capabilities:
		name, value, _ := strings.Cut(s, "=")
		return name == "object-format" && (value == "sha1" || value == "sha256") ||
			(name == "agent" || name == "session-id") && isWord(value)
	case arguments:
		return is(values[a.command]) || slices.Contains(bare[a.command], s)
	}
	return false
}
