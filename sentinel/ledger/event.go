// SPDX-License-Identifier: Apache-2.0

package ledger

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"math"
	"strconv"
	"strings"
	"unicode/utf8"
)

// Bounds of one event. A stranger chooses hosts, paths, subjects and file names: none of them can make a line long,
// break it, or look like another.
const (
	MaxDetails = 64 << 10 // bytes of encoded details
	MaxString  = 8 << 10  // bytes of one encoded string in details
	maxName    = 512      // bytes of actor, subject and the like
)

// Event is one entry of the record. It must not hold a credential, a surrogate or a result.
type Event struct {
	Type    string // what happened: one of the words below or the caller's own, [a-z-]
	Actor   string // who did it: "cell:NAME", "person:UID", "passkey:NAME", "worker:VENDOR", "authd", "egress", "sentinel"
	Cell    string // whose it is, if it is a cell's
	Session string
	Call    string // id of the call that it belongs to, if any
	Subject string // a host, a grant, a setting: what `why` and `audit` may look for
	Details any    // encoded with encoding/json; nil for none
}

// Words for Event.Type that the ledger itself writes.
const (
	EvOpen     = "open"
	EvDeny     = "deny"
	EvPark     = "park"
	EvJoin     = "join"
	EvStart    = "start"
	EvApprove  = "approve"
	EvExecute  = "execute"
	EvFinish   = "finish"
	EvSettle   = "settle"
	EvExpire   = "expire"
	EvRevoke   = "revoke"
	EvCollect  = "collect"
	EvGrant    = "grant"
	EvGrantEnd = "grant-end"
	EvLabel    = "label"
	EvClear    = "label-clear"
	EvSession  = "session"
	EvSetting  = "setting"
	EvReleased = "released"
	EvSent     = "sent"
	EvConnect  = "connect"
	EvRequest  = "request"
	EvMint     = "mint"
	EvRefused  = "refused"
	EvAlarm    = "alarm"
	EvRewound  = "rewound"
	EvResult   = "result"
)

// Entry is one event as it was recorded.
type Entry struct {
	N       int64           `json:"n"`
	Time    string          `json:"time"` // RFC 3339, UTC
	Boot    int64           `json:"boot"` // ns since boot; the boot is named by the open event before
	Type    string          `json:"type"`
	Actor   string          `json:"actor,omitempty"`
	Cell    string          `json:"cell,omitempty"`
	Session string          `json:"session,omitempty"`
	Call    string          `json:"call,omitempty"`
	Subject string          `json:"subject,omitempty"`
	Details json.RawMessage `json:"details,omitempty"`
	Writes  []Write         `json:"writes,omitempty"`

	line []byte
}

// Line returns the entry as one line of JSON, ASCII only, ending in a line break. It is what the Merkle tree hashes,
// with the entry's number put first.
func (e Entry) Line() []byte { return numbered(e.N, e.line) }

// Write binds a row of the state tables to the event that wrote it.
type Write struct {
	Row string `json:"row"` // table/key
	Sum string `json:"sum"` // SHA-256 of the row's bytes, hex
}

// numbered puts the number into a line, after its brace.
func numbered(n int64, line []byte) []byte {
	out := make([]byte, 0, len(line)+24)
	out = append(out, `{"n":`...)
	out = strconv.AppendInt(out, n, 10)
	out = append(out, ',')
	out = append(out, line[1:]...)
	return append(out, '\n')
}

// bounded returns the event with every name cut to maxName bytes of valid UTF-8, what was cut off told by length and
// SHA-256.
func (ev Event) bounded() Event {
	for _, s := range []*string{&ev.Type, &ev.Actor, &ev.Cell, &ev.Session, &ev.Call, &ev.Subject} {
		*s = bound(*s)
	}
	return ev
}

func bound(s string) string {
	v := strings.ToValidUTF8(s, "\ufffd")
	if len(v) <= maxName {
		return v
	}
	sum := sha256.Sum256([]byte(s))
	return strings.ToValidUTF8(v[:maxName], "") + "\u2026[cut: " + strconv.Itoa(len(s)) + " bytes, sha256 " +
		hex.EncodeToString(sum[:]) + "]"
}

// encode writes the bounded event as its line, without the number: the Merkle tree proves the place.
func (ev Event) encode(now Moment, details []byte, writes []Write) []byte {
	b := make([]byte, 0, 192+len(details)+len(writes)*128)
	b = append(b, `{"time":"`...)
	b = now.Time().AppendFormat(b, "2006-01-02T15:04:05.000000Z")
	b = append(b, `","boot":`...)
	b = strconv.AppendInt(b, now.Boot, 10)
	b = appendField(b, "type", ev.Type)
	b = appendField(b, "actor", ev.Actor)
	b = appendField(b, "cell", ev.Cell)
	b = appendField(b, "session", ev.Session)
	b = appendField(b, "call", ev.Call)
	b = appendField(b, "subject", ev.Subject)
	if len(details) > 0 {
		b = append(b, `,"details":`...)
		b = append(b, details...)
	}
	if len(writes) > 0 {
		b = append(b, `,"writes":[`...)
		for i, w := range writes {
			if i > 0 {
				b = append(b, ',')
			}
			b = append(b, `{"row":`...)
			b = appendString(b, w.Row, math.MaxInt)
			b = append(b, `,"sum":"`...)
			b = append(b, w.Sum...)
			b = append(b, `"}`...)
		}
		b = append(b, ']')
	}
	return append(b, '}')
}

func appendField(b []byte, name, value string) []byte {
	if value == "" {
		return b
	}
	b = append(b, `,"`...)
	b = append(b, name...)
	b = append(b, `":`...)
	return appendString(b, value, math.MaxInt)
}

// parse reads a line back.
func parse(n int64, line []byte) (Entry, error) {
	var e Entry
	if err := json.Unmarshal(line, &e); err != nil {
		return Entry{}, fmt.Errorf("entry %d: %w", n, err)
	}
	e.N, e.line = n, line
	return e, nil
}

// encodeDetails returns v as JSON in ASCII, each string and the whole bounded; what was cut off is told by length and
// SHA-256.
func encodeDetails(v any) ([]byte, error) {
	if v == nil {
		return nil, nil
	}
	raw, err := json.Marshal(v)
	if err != nil {
		return nil, fmt.Errorf("encode an event's details: %w", err)
	}
	out := make([]byte, 0, len(raw)+16)
	for i := 0; i < len(raw); {
		if raw[i] != '"' {
			out = append(out, raw[i])
			i++
			continue
		}
		end := i + 1
		for raw[end] != '"' {
			if raw[end] == '\\' {
				end++
			}
			end++
		}
		out = appendRaw(out, raw[i+1:end], MaxString)
		i = end + 1
	}
	if len(out) <= MaxDetails {
		return out, nil
	}
	sum := sha256.Sum256(raw)
	cut := []byte(`{"cut":true,"bytes":`)
	cut = strconv.AppendInt(cut, int64(len(raw)), 10)
	cut = append(cut, `,"sha256":"`...)
	cut = hex.AppendEncode(cut, sum[:])
	cut = append(cut, `","head":`...)
	cut = appendString(cut, string(out[:MaxDetails/4]), MaxDetails/2)
	return append(cut, '}'), nil
}

// appendRaw appends the inside of a JSON string, as encoding/json wrote it, quoted, in ASCII and cut at limit bytes.
func appendRaw(b, in []byte, limit int) []byte {
	b = append(b, '"')
	start := len(b)
	for i := 0; i < len(in); {
		from := len(b)
		size := 1
		switch c := in[i]; {
		case c == '\\' && in[i+1] == 'u':
			size = 6
			b = append(b, in[i:i+6]...)
		case c == '\\':
			size = 2
			b = append(b, in[i:i+2]...)
		case c >= utf8.RuneSelf || c == 0x7f:
			var r rune
			r, size = utf8.DecodeRune(in[i:])
			b = appendRune(b, r)
		default:
			b = append(b, c)
		}
		if len(b)-start > limit {
			sum := sha256.Sum256(in)
			b = append(b[:from], `\u2026[cut: `...)
			b = strconv.AppendInt(b, int64(len(in)), 10)
			b = append(b, ` bytes, sha256 `...)
			b = hex.AppendEncode(b, sum[:])
			b = append(b, ']')
			break
		}
		i += size
	}
	return append(b, '"')
}

// appendString appends s as a JSON string in ASCII, cut at limit bytes.
func appendString(b []byte, s string, limit int) []byte {
	plain := len(s) <= limit
	for i := 0; plain && i < len(s); i++ {
		c := s[i]
		plain = c >= 0x20 && c < 0x7f && c != '"' && c != '\\'
	}
	if plain {
		b = append(b, '"')
		b = append(b, s...)
		return append(b, '"')
	}
	raw, err := json.Marshal(s) // bytes that are no UTF-8 become U+FFFD
	if err != nil {
		return append(b, `""`...)
	}
	return appendRaw(b, raw[1:len(raw)-1], limit)
}

// appendRune appends r as one \u escape or, above U+FFFF, as two (RFC 8259 section 7).
func appendRune(b []byte, r rune) []byte {
	const digits = "0123456789abcdef"
	one := func(v rune) {
		b = append(b, '\\', 'u', digits[v>>12&15], digits[v>>8&15], digits[v>>4&15], digits[v&15])
	}
	if r > 0xffff {
		r -= 0x10000
		one(0xd800 + r>>10)
		r = 0xdc00 + r&0x3ff
	}
	one(r)
	return b
}
