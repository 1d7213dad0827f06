// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"os"
	"strconv"
	"unicode"
	"unicode/utf8"

	"golang.org/x/sys/unix"

	"github.com/doorward/doorward/internal/describe"
	"github.com/doorward/doorward/internal/wire"
)

// What this command prints, and where:
//
//   - stdout: the answer and nothing else. After an error it is empty.
//   - stderr: lines that begin "connector: ", without capital or full stop; an error is "code: what happened",
//     followed by a line "connector: next: what to do".
//   - With --json stderr holds one JSON object a line with code, reason, next and, where there is one, call; the last
//     says how it ended. What --json prints on stdout is one JSON value and a line feed: the answer; with --out where it
//     went; of a call that is done and has no answer to print, its id and state.
//   - Text from others is one line on stderr, whatever it held, and never moves a cursor.

// Caps on what goes to stdout without --out, in bytes. A model reads it, so text is cut early; JSON cannot be cut.
const (
	textCap = 64 << 10
	jsonCap = wire.MaxInline
)

// tell writes for one run.
type tell struct {
	json bool
}

// print writes b to stdout.
func (t *tell) print(b []byte) *wire.Error {
	if _, err := os.Stdout.Write(b); err != nil {
		return wire.Refuse(wire.CodeInternal, "write the answer: "+err.Error(), "")
	}
	return nil
}

// note writes one line to stderr; with --json it is left out.
func (t *tell) note(s string) {
	if !t.json {
		line(s)
	}
}

func line(s string) { _, _ = os.Stderr.WriteString("connector: " + oneLine(s) + "\n") }

// report writes an error, about a call if there is one.
func (t *tell) report(err *wire.Error, call string) {
	if !t.json {
		s := "connector: " + oneLine(string(err.Code)+": "+err.Reason) + "\n"
		if err.Next != "" {
			s += "connector: next: " + oneLine(err.Next) + "\n"
		}
		_, _ = os.Stderr.WriteString(s)
		return
	}
	b := append([]byte(nil), `{"code":`...)
	b = jsonString(b, string(err.Code), true)
	b = append(b, `,"reason":`...)
	b = jsonString(b, err.Reason, true)
	b = append(b, `,"next":`...)
	b = jsonString(b, err.Next, true)
	if call != "" {
		b = append(b, `,"call":`...)
		b = jsonString(b, call, true)
	}
	_, _ = os.Stderr.Write(append(b, '}', '\n'))
}

func usage(reason, see string) *wire.Error {
	return wire.Refuse(wire.CodeUsage, reason, "see: "+see)
}

// unknown is an error about a name, with the one that was meant if near is any.
func unknown(code wire.Code, reason, near, see string) *wire.Error {
	if near != "" {
		return wire.Refuse(code, reason, "did you mean "+near+"? see: "+see)
	}
	return wire.Refuse(code, reason, "see: "+see)
}

// quote marks where a name that someone typed begins and ends.
func quote(s string) string {
	if len(s) > 64 {
		s = string(cut([]byte(s), 64)) + "..."
	}
	return `"` + oneLine(s) + `"`
}

func terminal(fd int) bool {
	_, err := unix.IoctlGetTermios(fd, unix.TCGETS)
	return err == nil
}

// hidden says whether a rune shows nothing, moves the cursor, or reorders what stands around it.
func hidden(r rune) bool {
	return !unicode.IsPrint(r) || r >= 0xe0100 && r <= 0xe01ef || r == 0x3164 || r == 0x115f || r == 0x1160 || r == 0xffa0
}

// oneLine is s with every hidden rune, line feeds included, written as an escape.
func oneLine(s string) string {
	for _, r := range s {
		if hidden(r) || r == utf8.RuneError {
			return string(visible(nil, s))
		}
	}
	return s
}

// visible appends s with hidden runes as \u{202e} and bytes that are no UTF-8 as \x{ff}.
func visible(b []byte, s string) []byte {
	for i := 0; i < len(s); {
		r, n := utf8.DecodeRuneInString(s[i:])
		switch {
		case r == utf8.RuneError && n == 1:
			b = append(b, `\x{`...)
			b = strconv.AppendUint(b, uint64(s[i]), 16)
			b = append(b, '}')
		case hidden(r):
			b = append(b, `\u{`...)
			b = strconv.AppendUint(b, uint64(r), 16)
			b = append(b, '}')
		default:
			b = append(b, s[i:i+n]...)
		}
		i += n
	}
	return b
}

// jsonString appends s as a JSON string; with safe, hidden runes are escaped too, so that no terminal obeys them.
func jsonString(b []byte, s string, safe bool) []byte {
	if !utf8.ValidString(s) {
		s = string([]rune(s))
	}
	if !safe {
		return describe.AppendString(b, s)
	}
	start := len(b)
	b = describe.AppendString(b, s)
	return append(b[:start], jsonSafe(append([]byte(nil), b[start:]...))...)
}

// jsonSafe writes hidden runes within strings of the valid JSON text b as \u escapes. Outside strings there are none
// but white space.
func jsonSafe(b []byte) []byte {
	out := make([]byte, 0, len(b))
	for i := 0; i < len(b); {
		r, n := utf8.DecodeRune(b[i:])
		if n == 1 && r != 0x7f || !hidden(r) {
			out = append(out, b[i:i+n]...)
		} else if r > 0xffff {
			r -= 0x10000
			out = hex4(hex4(out, 0xd800+r>>10), 0xdc00+r&0x3ff)
		} else {
			out = hex4(out, r)
		}
		i += n
	}
	return out
}

func hex4(b []byte, r rune) []byte {
	const hexes = "0123456789abcdef"
	return append(b, '\\', 'u', hexes[r>>12&15], hexes[r>>8&15], hexes[r>>4&15], hexes[r&15])
}

// cut is b up to n bytes, ending at a line where one ends in the last eighth, else at a whole rune.
func cut(b []byte, n int) []byte {
	if len(b) <= n {
		return b
	}
	for i := n; i > 0 && i >= n-n/8; i-- {
		if b[i-1] == '\n' {
			return b[:i]
		}
	}
	for n > 0 && !utf8.RuneStart(b[n]) {
		n--
	}
	return b[:n]
}
