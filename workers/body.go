// SPDX-License-Identifier: Apache-2.0

package workers

import (
	"bytes"
	"encoding/base64"
	"fmt"
	"io"
	"strings"
	"unicode/utf8"

	"github.com/doorward/doorward/internal/describe"
	"github.com/doorward/doorward/internal/wire"
)

// maxText bounds a file that stands as text in JSON, in bytes.
const maxText = 1 << 20

// jsonBody makes the JSON object of leaves: r of size bytes. Objects stand in the order in which leaves name them.
// Files are read as they are sent.
func jsonBody(leaves []wire.Leaf, file func(wire.Digest) (*File, error)) (r io.Reader, size int64, err error) {
	root := &node{}
	for i := range leaves {
		if err := root.put(leaves[i].Pointer, &leaves[i]); err != nil {
			return nil, 0, err
		}
	}
	p := parts{file: file}
	if err := p.object(root); err != nil {
		return nil, 0, err
	}
	p.flush()
	return io.MultiReader(p.readers...), p.size, nil
}

// node is an object, or a leaf of one.
type node struct {
	name string
	kids []*node
	leaf *wire.Leaf
}

var pointerUnescape = strings.NewReplacer("~1", "/", "~0", "~")

func (n *node) put(pointer string, l *wire.Leaf) error {
	if !strings.HasPrefix(pointer, "/") {
		return fmt.Errorf("pointer %q: it names no member", pointer)
	}
	names := strings.Split(pointer[1:], "/")
next:
	for i, name := range names {
		name = pointerUnescape.Replace(name)
		for _, k := range n.kids {
			if k.name == name {
				if k.leaf != nil || i == len(names)-1 {
					return fmt.Errorf("pointer %q: another leaf stands there", pointer)
				}
				n = k
				continue next
			}
		}
		k := &node{name: name}
		n.kids = append(n.kids, k)
		n = k
	}
	n.leaf = l
	return nil
}

type parts struct {
	file    func(wire.Digest) (*File, error)
	text    bytes.Buffer
	readers []io.Reader
	size    int64
}

func (p *parts) flush() {
	if p.text.Len() > 0 {
		b := bytes.Clone(p.text.Bytes())
		p.readers, p.size = append(p.readers, bytes.NewReader(b)), p.size+int64(len(b))
		p.text.Reset()
	}
}

func (p *parts) object(n *node) error {
	p.text.WriteByte('{')
	for i, k := range n.kids {
		if i > 0 {
			p.text.WriteByte(',')
		}
		p.text.Write(describe.AppendString(nil, k.name))
		p.text.WriteByte(':')
		switch {
		case k.leaf == nil:
			if err := p.object(k); err != nil {
				return err
			}
		case k.leaf.Base64 != nil:
			f, err := p.file(k.leaf.Base64.SHA256)
			if err != nil {
				return err
			}
			p.text.WriteByte('"')
			p.flush()
			p.readers = append(p.readers, encode(f.Reader()))
			p.size += int64(base64.StdEncoding.EncodedLen(int(f.Size)))
			p.text.WriteByte('"')
		case k.leaf.Text != nil:
			if err := p.fileText(k.leaf.Text.SHA256); err != nil {
				return err
			}
		default:
			p.text.Write(k.leaf.Value)
		}
	}
	p.text.WriteByte('}')
	return nil
}

// fileText writes a file's bytes as a JSON string.
func (p *parts) fileText(sum wire.Digest) error {
	f, err := p.file(sum)
	if err != nil {
		return err
	}
	if f.Size > maxText {
		return wire.Refuse(wire.CodeTooLarge, fmt.Sprintf("--%s: %d bytes, at most %d", f.Arg, f.Size, maxText), "")
	}
	b, err := io.ReadAll(f.Reader())
	if err != nil {
		return err
	}
	if !utf8.Valid(b) {
		return wire.Refuse(wire.CodeBadArgument, "--"+f.Arg+": the file is no text (UTF-8)", "")
	}
	p.text.Write(describe.AppendString(nil, string(b)))
	return nil
}

// encode is r in base64.
func encode(r io.Reader) io.Reader { return &encoder{r: r} }

type encoder struct {
	r    io.Reader
	in   [3 * 4096]byte
	out  [4 * 4096]byte
	rest []byte
	err  error
}

func (e *encoder) Read(p []byte) (int, error) {
	for len(e.rest) == 0 {
		if e.err != nil {
			return 0, e.err
		}
		n, err := io.ReadFull(e.r, e.in[:])
		if err == io.ErrUnexpectedEOF {
			err = io.EOF
		}
		e.err = err
		base64.StdEncoding.Encode(e.out[:], e.in[:n])
		e.rest = e.out[:base64.StdEncoding.EncodedLen(n)]
	}
	n := copy(p, e.rest)
	e.rest = e.rest[n:]
	return n, nil
}
