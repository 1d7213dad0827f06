// SPDX-License-Identifier: Apache-2.0

package workers

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"strings"

	"github.com/doorward/doorward/internal/wire"
)

// Answer is what a handler answers: a JSON object, or bytes of a media type.
type Answer struct {
	Value     any       // one JSON object; texts of others in it are Text
	Raw       io.Reader // instead of Value: the vendor's own bytes; it may be a Noter
	Media     string    // of Raw
	Object    string    // the vendor's name of what was made or changed
	Next      string    // value of --page (or the method's own flag) for what follows
	Truncated string    // what was cut, and how to get it
	Labels    []string  // beyond those that the method declares
}

// Noter is a reader that knows at its end what it left out.
type Noter interface{ Note() string }

// Text is a text that somebody else may have written. It stands in answers as data, with where it comes from.
type Text struct {
	Text      string `json:"text"`
	Untrusted bool   `json:"untrusted"`
	Source    string `json:"source"`           // such as "github issue o/r#1"
	Author    string `json:"author,omitempty"` // as the vendor says; itself a claim
}

// Untrusted is s as a Text, cut to at most limit bytes at a character's border; nil where s is empty.
func Untrusted(s, source, author string, limit int) *Text {
	if s == "" {
		return nil
	}
	return &Text{Cut(s, limit), true, source, author}
}

// cutMark ends a text that was cut.
const cutMark = " [cut]"

// Cut shortens s to at most limit bytes, never within a character, and says so at its end.
func Cut(s string, limit int) string {
	s = strings.ToValidUTF8(s, "\uFFFD")
	if len(s) <= limit {
		return s
	}
	cut := max(0, limit-len(cutMark))
	for cut > 0 && s[cut]&0xc0 == 0x80 {
		cut--
	}
	return s[:cut] + cutMark
}

// Cap returns at most limit items, and a note where some were cut.
func Cap[T any](items []T, limit int, more string) ([]T, string) {
	if len(items) <= limit {
		return items, ""
	}
	return items[:limit], fmt.Sprintf("%d of %d items shown; %s", limit, len(items), more)
}

// output makes the message of a, and the descriptor of a sealed memfd where the answer is above wire.MaxInline; the
// caller closes it. Answers above wire.MaxFile are refused.
func (a *Answer) output(labels []string) (*wire.Output, int, error) {
	out := &wire.Output{Labels: labels, Next: a.Next, Truncated: a.Truncated, Object: a.Object}
	for _, l := range a.Labels {
		out.Labels = append(out.Labels[:len(out.Labels):len(out.Labels)], l)
	}
	r := a.Raw
	if r == nil {
		var b bytes.Buffer
		e := json.NewEncoder(&b)
		e.SetEscapeHTML(false)
		if err := e.Encode(a.Value); err != nil {
			return nil, -1, fmt.Errorf("encode the answer: %w", err)
		}
		r = bytes.NewReader(bytes.TrimSuffix(b.Bytes(), []byte("\n")))
	} else {
		out.Media = a.Media
	}
	head := make([]byte, wire.MaxInline+1)
	n, err := io.ReadFull(r, head)
	note := func() {
		if n, ok := r.(Noter); ok {
			out.Truncated = n.Note()
		}
	}
	if err == io.EOF || err == io.ErrUnexpectedEOF {
		out.JSON, out.Bytes = head[:n:n], int64(n)
		note()
		return out, -1, nil
	}
	if err != nil {
		return nil, -1, err
	}
	fd, size, _, err := wire.SealFile(io.MultiReader(bytes.NewReader(head[:n]), r), wire.MaxFile)
	if err != nil {
		return nil, -1, err
	}
	out.File, out.Bytes = true, size
	note()
	return out, fd, nil
}
