// SPDX-License-Identifier: Apache-2.0

package operator

import (
	"encoding/json"
	"fmt"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/doorward/doorward/internal/visible"
	"github.com/doorward/doorward/internal/wire"
)

// What this command prints, and where:
//
//   - stdout: what was asked for. stderr: questions, errors, remarks. Lines on stderr begin "doorward: ", without
//     capital or full stop; an error is "code: what happened", then "doorward: next: what to do".
//   - Every string that is not this program's own goes through package visible, in tables and cards alike.
//   - With --json stdout is one JSON value (or one a line where there is no end: follow, watch, export), ASCII only, so
//     that no terminal obeys it; stderr is a JSON object with code, reason, next.
//   - Times are local in text and RFC 3339 UTC, or seconds where a field says so, in JSON.

// report writes an error.
func (a *app) report(e *wire.Error) {
	if a.json {
		b, err := json.Marshal(e)
		if err == nil {
			fmt.Fprintf(a.err, "%s\n", ascii(b))
		}
		return
	}
	a.note(string(e.Code) + ": " + e.Reason)
	if e.Next != "" {
		a.note("next: " + e.Next)
	}
}

// note writes one remark to stderr.
func (a *app) note(s string) { fmt.Fprintln(a.err, "doorward: "+visible.Line(s)) }

// line writes one line of text to stdout, made visible.
func (a *app) line(format string, args ...any) {
	fmt.Fprintln(a.out, visible.Line(fmt.Sprintf(format, args...)))
}

// value writes v as JSON.
func (a *app) value(v any) error {
	b, err := json.Marshal(v)
	if err != nil {
		return wire.Refuse(wire.CodeInternal, "write JSON: "+err.Error(), "")
	}
	_, err = fmt.Fprintf(a.out, "%s\n", ascii(b))
	return err
}

// ascii writes every character of JSON text beyond ASCII as an escape.
func ascii(b []byte) []byte {
	var out []byte
	for i := 0; i < len(b); {
		r, n := utf8.DecodeRune(b[i:])
		switch {
		case r < 0x7f:
			out = append(out, b[i])
		case r > 0xffff:
			r -= 0x10000
			out = fmt.Appendf(out, `\u%04x\u%04x`, 0xd800+r>>10, 0xdc00+r&0x3ff)
		default:
			out = fmt.Appendf(out, `\u%04x`, r)
		}
		i += n
	}
	return out
}

// table writes rows in columns, made visible and cut to fit a reader's eye.
func (a *app) table(rows [][]string) {
	const widest = 60
	var widths []int
	for _, row := range rows {
		for i := range row {
			row[i] = visible.Line(row[i])
			if i < len(row)-1 && utf8.RuneCountInString(row[i]) > widest {
				row[i] = string([]rune(row[i])[:widest-1]) + "…"
			}
			if i == len(widths) {
				widths = append(widths, 0)
			}
			widths[i] = max(widths[i], utf8.RuneCountInString(row[i]))
		}
	}
	for _, row := range rows {
		var b strings.Builder
		for i, c := range row {
			b.WriteString(c)
			if i < len(row)-1 {
				b.WriteString(strings.Repeat(" ", widths[i]-utf8.RuneCountInString(c)+2))
			}
		}
		fmt.Fprintln(a.out, strings.TrimRight(b.String(), " "))
	}
}

// at is a time in seconds as a person reads it.
func (a *app) at(unix int64) string {
	if unix == 0 {
		return "never"
	}
	t := time.Unix(unix, 0)
	if t.Year() == a.now.Year() && t.YearDay() == a.now.YearDay() {
		return t.Format("15:04:05")
	}
	return t.Format("2006-01-02 15:04")
}

// left is how long it is until a time.
func (a *app) left(unix int64) string {
	d := time.Unix(unix, 0).Sub(a.now)
	switch {
	case d <= 0:
		return "over"
	case d < time.Hour:
		return fmt.Sprintf("%d min", int(d.Minutes())+1)
	case d < 48*time.Hour:
		return fmt.Sprintf("%d h", int(d.Hours()+0.5))
	default:
		return fmt.Sprintf("%d days", int(d.Hours()/24+0.5))
	}
}

func orElse(s, other string) string {
	if s == "" {
		return other
	}
	return s
}
