// SPDX-License-Identifier: Apache-2.0

package envelope

import (
	"bytes"
	"crypto/sha256"
	"encoding/base64"
	"fmt"
	"io"
	"strings"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/doorward/doorward/internal/wire"
	"github.com/doorward/doorward/sentinel/egress/head"
)

// Kind is how a body must be handled.
type Kind int

// Kinds.
const (
	None  Kind = iota // there must be none
	Whole             // read to its end and checked before the first byte leaves
	File              // may stream; its last block waits for the digest
)

// MaxWhole is the largest body that is read whole, in bytes, without what files it carries in base64.
const MaxWhole = 2 << 20

// MaxText is the largest file that stands as text in a JSON body, in bytes.
const MaxText = 1 << 20

const mediaJSON = "application/json"

// Plan says how the body of r must be handled under b and how many bytes it may have, and holds its Content-Type and
// declared length to that. A body that is empty by declaration is fine where there must be none.
func Plan(b *wire.Body, r *head.Request) (kind Kind, limit int64, err error) {
	set := 0
	for _, is := range []bool{b.SHA256 != wire.Digest{}, isJSON(b), b.File != nil} {
		if is {
			set++
		}
	}
	media, _ := r.Get("Content-Type")
	switch {
	case set > 1:
		return None, 0, outside("body is bound in more than one way")
	case set == 0:
		if r.Length != 0 || media != "" {
			return None, 0, outside("there must be no body")
		}
		return None, 0, nil
	case !sameMedia(media, b.Media):
		return None, 0, outside("Content-Type is not %s", b.Media)
	case b.File != nil:
		if r.Length != b.File.Size {
			return None, 0, outside("Content-Length must be the file's %d bytes", b.File.Size)
		}
		return File, b.File.Size, nil
	}
	limit = MaxWhole
	for _, l := range b.JSON {
		if l.Base64 != nil {
			if l.Base64.Size < 0 || l.Base64.Size > wire.MaxFile {
				return None, 0, outside("file of %d bytes", l.Base64.Size)
			}
			limit += int64(base64.StdEncoding.EncodedLen(int(l.Base64.Size)))
		}
		if l.Text != nil {
			if l.Text.Size < 0 || l.Text.Size > MaxText {
				return None, 0, outside("text of %d bytes", l.Text.Size)
			}
			limit += 6 * l.Text.Size // every byte as \u00xx
		}
	}
	if r.Length > limit {
		return None, 0, outside("body of %d bytes, at most %d", r.Length, limit)
	}
	return Whole, limit, nil
}

// isJSON: an object without fields has no leaves, and its list is lost on the wire; then the media type says it.
func isJSON(b *wire.Body) bool {
	return len(b.JSON) > 0 || b.Media == mediaJSON && b.SHA256 == wire.Digest{} && b.File == nil
}

// sameMedia compares a Content-Type to the bound one without parameters; charset=utf-8 is the only one let through.
func sameMedia(got, want string) bool {
	bare := func(s string) string {
		s, _, _ = strings.Cut(s, ";")
		return strings.ToLower(strings.TrimSpace(s))
	}
	if _, param, ok := strings.Cut(got, ";"); ok {
		name, value, _ := strings.Cut(strings.TrimSpace(param), "=")
		if !strings.EqualFold(name, "charset") || !strings.EqualFold(strings.Trim(value, `"`), "utf-8") {
			return false
		}
	}
	return want != "" && bare(got) == bare(want)
}

// Check holds a whole body to b.
func Check(b *wire.Body, data []byte) error {
	if b.SHA256 != (wire.Digest{}) {
		if sha256.Sum256(data) != b.SHA256 {
			return outside("body is not the one that was allowed")
		}
		return nil
	}
	return checkJSON(b.JSON, data)
}

// maxDepth bounds nesting of objects.
const maxDepth = 16

// checkJSON reads data as one JSON object, strictly (UTF-8, no name twice, nothing after it), and holds every leaf to
// the list: each is there once, and none beside them.
func checkJSON(leaves []wire.Leaf, data []byte) error {
	want := make(map[string]*wire.Leaf, len(leaves))
	for i := range leaves {
		if want[leaves[i].Pointer] != nil {
			return outside("field %.60q is bound twice", leaves[i].Pointer)
		}
		want[leaves[i].Pointer] = &leaves[i]
	}
	d := jsontext.NewDecoder(bytes.NewBuffer(data))
	if err := object(d, want, "", 0); err != nil {
		return err
	}
	if _, err := d.ReadToken(); err != io.EOF {
		return outside("body goes on after the JSON value")
	}
	for p := range want {
		return outside("field %.60q is missing", p)
	}
	return nil
}

// object reads one object whose pointer is prefix, and strikes its leaves off want.
func object(d *jsontext.Decoder, want map[string]*wire.Leaf, prefix string, depth int) error {
	if depth > maxDepth {
		return outside("JSON is nested deeper than %d", maxDepth)
	}
	if t, err := d.ReadToken(); err != nil || t.Kind() != '{' {
		return outside("body is not a JSON object")
	}
	empty := true
	for ; d.PeekKind() != '}'; empty = false {
		name, err := d.ReadToken()
		if err != nil {
			return outside("body is not valid JSON")
		}
		p := prefix + "/" + pointerEscape.Replace(name.String())
		l := want[p]
		if l == nil && d.PeekKind() == '{' {
			if err := object(d, want, p, depth+1); err != nil {
				return err
			}
			continue
		}
		v, err := d.ReadValue()
		if err != nil {
			return outside("body is not valid JSON")
		}
		if l == nil {
			return outside("field %.60q is not listed", p)
		}
		if err := leaf(l, v); err != nil {
			return err
		}
		delete(want, p)
	}
	if empty && depth > 0 {
		return outside("field %.60q is an object that is not listed", prefix)
	}
	if _, err := d.ReadToken(); err != nil {
		return outside("body is not valid JSON")
	}
	return nil
}

var pointerEscape = strings.NewReplacer("~", "~0", "/", "~1")

func leaf(l *wire.Leaf, v jsontext.Value) error {
	bad := func() error { return outside("field %.60q: not the value that was allowed", l.Pointer) }
	if l.Base64 != nil || l.Text != nil {
		if l.Base64 != nil && l.Text != nil || len(l.Value) > 0 {
			return outside("field %.60q is bound in more than one way", l.Pointer)
		}
		if l.Text != nil {
			return textFile(l.Pointer, l.Text, v)
		}
		return base64File(l.Pointer, l.Base64, v)
	}
	if !plainNumbers(v) {
		return bad()
	}
	v = v.Clone()
	if err := v.Canonicalize(); err != nil || !bytes.Equal(v, l.Value) {
		return bad()
	}
	return nil
}

// plainNumbers says that every number in v is written as RFC 8785 would: two numbers that differ beyond what a double
// holds must not count as equal.
func plainNumbers(v jsontext.Value) bool {
	switch v.Kind() {
	case '0', '[', '{':
	default:
		return true
	}
	d := jsontext.NewDecoder(bytes.NewBuffer(v))
	for {
		if d.PeekKind() == '0' {
			n, err := d.ReadValue()
			if err != nil {
				return false
			}
			c := n.Clone()
			if c.Canonicalize() != nil || !bytes.Equal(bytes.TrimSpace(n), c) {
				return false
			}
			continue
		}
		if _, err := d.ReadToken(); err == io.EOF {
			return true
		} else if err != nil {
			return false
		}
	}
}

// base64File holds a string to the standard base64 of a file. It decodes as it reads, so a large file is not held
// twice.
func base64File(pointer string, f *wire.FileBody, v jsontext.Value) error {
	bad := func() error { return outside("field %.60q: not the file that was allowed, in base64", pointer) }
	text := bytes.TrimSpace(v)
	if len(text) < 2 || text[0] != '"' || bytes.IndexByte(text, '\\') >= 0 {
		return bad()
	}
	text = text[1 : len(text)-1]
	if len(text) != base64.StdEncoding.EncodedLen(int(f.Size)) || bytes.ContainsAny(text, "\r\n") {
		return bad()
	}
	h := sha256.New()
	n, err := io.Copy(h, base64.NewDecoder(base64.StdEncoding.Strict(), bytes.NewReader(text)))
	if err != nil || n != f.Size || wire.Digest(h.Sum(nil)) != f.SHA256 {
		return bad()
	}
	return nil
}

// textFile holds a string to the very bytes of a file. The decoder has refused what is not UTF-8.
func textFile(pointer string, f *wire.FileBody, v jsontext.Value) error {
	text, err := jsontext.AppendUnquote(nil, v)
	if err != nil || v.Kind() != '"' || int64(len(text)) != f.Size || sha256.Sum256(text) != f.SHA256 {
		return outside("field %.60q: not the file that was allowed, as text", pointer)
	}
	return nil
}

// Stream passes a file body from src to dst as it comes, digests it, and holds the last block back until the digest
// fits: a body that is not the allowed one never arrives whole. It returns how many bytes went out.
func Stream(dst io.Writer, src io.Reader, f *wire.FileBody, buf []byte) (sent int64, err error) {
	h := sha256.New()
	left := f.Size
	for left > 0 {
		n := int(min(left, int64(len(buf))))
		if left > int64(n) && left <= 2*int64(n) {
			n = int(left / 2) // so that the last block is never a tiny one
		}
		k, err := io.ReadFull(src, buf[:n])
		if err != nil {
			return sent, fmt.Errorf("read the body: %d of %d bytes came: %w", f.Size-left+int64(k), f.Size, err)
		}
		h.Write(buf[:n])
		if left -= int64(n); left == 0 && wire.Digest(h.Sum(nil)) != f.SHA256 {
			return sent, outside("body is not the file that was allowed")
		}
		k, err = dst.Write(buf[:n])
		sent += int64(k)
		if err != nil {
			return sent, err
		}
	}
	if f.Size == 0 && wire.Digest(h.Sum(nil)) != f.SHA256 {
		return 0, outside("body is not the file that was allowed")
	}
	return sent, nil
}
