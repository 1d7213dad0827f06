// SPDX-License-Identifier: Apache-2.0

package wire

import (
	"fmt"

	"github.com/vmihailenco/msgpack/v5"
)

// Every frame, and the answer to resolve with its entry, are on the path of every request that a worker sends, and by
// reflection they cost more than the TLS of that request. So they write and read themselves. A test holds them to what
// reflection does; a field that is added to the types must be added here, or that test fails.

// mapOf writes a map of the pairs whose value is not zero.
type mapOf struct {
	e   *msgpack.Encoder
	err error
}

func (m *mapOf) begin(n int)     { m.keep(m.e.EncodeMapLen(n)) }
func (m *mapOf) key(name string) { m.keep(m.e.EncodeString(name)) }
func (m *mapOf) keep(err error) {
	if m.err == nil {
		m.err = err
	}
}

func (m *mapOf) text(name, v string) {
	if v != "" {
		m.key(name)
		m.keep(m.e.EncodeString(v))
	}
}

func (m *mapOf) number(name string, v int64) {
	if v != 0 {
		m.key(name)
		m.keep(m.e.EncodeInt(v))
	}
}

func (m *mapOf) yes(name string, v bool) {
	if v {
		m.key(name)
		m.keep(m.e.EncodeBool(true))
	}
}

func (m *mapOf) bytes(name string, v []byte) {
	if len(v) > 0 {
		m.key(name)
		m.keep(m.e.EncodeBytes(v))
	}
}

func (m *mapOf) texts(name string, v []string) {
	if len(v) > 0 {
		m.key(name)
		m.keep(m.e.EncodeArrayLen(len(v)))
		for _, s := range v {
			m.keep(m.e.EncodeString(s))
		}
	}
}

func (m *mapOf) matches(name string, v []Match) {
	if len(v) == 0 {
		return
	}
	m.key(name)
	m.keep(m.e.EncodeArrayLen(len(v)))
	for i := range v {
		x := &v[i]
		m.begin(set(x.Name != "", len(x.Values) > 0, x.Any, x.Optional))
		m.text("n", x.Name)
		m.texts("v", x.Values)
		m.yes("a", x.Any)
		m.yes("o", x.Optional)
	}
}

func (m *mapOf) file(name string, v *FileBody) {
	if v != nil {
		m.key(name)
		m.begin(set(v.SHA256 != Digest{}, v.Size != 0))
		m.digest("h", v.SHA256)
		m.number("s", v.Size)
	}
}

func (m *mapOf) digest(name string, v Digest) {
	if v != (Digest{}) {
		m.bytes(name, v[:])
	}
}

// set counts what is.
func set(is ...bool) int {
	n := 0
	for _, b := range is {
		if b {
			n++
		}
	}
	return n
}

// EncodeMsgpack writes e for this package's Marshal.
func (e *Entry) EncodeMsgpack(enc *msgpack.Encoder) error {
	m := &mapOf{e: enc}
	e.encode(m)
	return m.err
}

func (e *Entry) encode(m *mapOf) {
	b := &e.Body
	body := set(b.Media != "", b.SHA256 != Digest{}, len(b.JSON) > 0, b.File != nil)
	m.begin(set(e.Name != "", e.Scheme != "", e.Host != "", e.Port != 0, e.Method != "", e.Path != "", e.AnyPath,
		len(e.Query) > 0, len(e.Header) > 0, body > 0, e.Uses != 0, e.Credential, e.Follow != "", len(e.Also) > 0,
		e.MaxIn != 0))
	m.text("n", e.Name)
	m.text("s", e.Scheme)
	m.text("h", e.Host)
	m.number("p", int64(e.Port))
	m.text("m", e.Method)
	m.text("t", e.Path)
	m.yes("ta", e.AnyPath)
	m.matches("q", e.Query)
	m.matches("e", e.Header)
	if body > 0 {
		m.key("b")
		m.begin(body)
		m.text("m", b.Media)
		m.digest("h", b.SHA256)
		if len(b.JSON) > 0 {
			m.key("j")
			m.keep(m.e.EncodeArrayLen(len(b.JSON)))
			for i := range b.JSON {
				l := &b.JSON[i]
				m.begin(set(l.Pointer != "", len(l.Value) > 0, l.Base64 != nil, l.Text != nil))
				m.text("p", l.Pointer)
				m.bytes("v", l.Value)
				m.file("b", l.Base64)
				m.file("x", l.Text)
			}
		}
		m.file("f", b.File)
	}
	m.number("u", int64(e.Uses))
	m.yes("c", e.Credential)
	m.text("f", e.Follow)
	m.texts("al", e.Also)
	m.number("mi", e.MaxIn)
}

// EncodeMsgpack writes r for this package's Marshal.
func (r *ResolveResp) EncodeMsgpack(enc *msgpack.Encoder) error {
	m := &mapOf{e: enc}
	p := &r.Placement
	place := set(p.Kind != "", p.Name != "", p.Prefix != "", p.User != "")
	m.begin(1 + set(r.Secret != "", place > 0, len(r.CA) > 0, len(r.Permit) > 0, r.Call != "", r.Cell != "",
		r.Account != "", r.Generation != 0, len(r.Scrub) > 0))
	m.text("s", r.Secret)
	if place > 0 {
		m.key("p")
		m.begin(place)
		m.text("k", p.Kind)
		m.text("n", p.Name)
		m.text("p", p.Prefix)
		m.text("u", p.User)
	}
	m.key("e")
	r.Entry.encode(m)
	m.bytes("ca", r.CA)
	m.texts("pm", r.Permit)
	m.text("c", r.Call)
	m.text("l", r.Cell)
	m.text("a", r.Account)
	m.number("n", r.Generation)
	m.texts("sc", r.Scrub)
	return m.err
}

// EncodeMsgpack writes m for this package's Marshal.
func (f *Msg) EncodeMsgpack(enc *msgpack.Encoder) error {
	m := &mapOf{e: enc}
	m.begin(set(f.Hello != 0, f.ID != 0, f.Verb != "", len(f.Body) > 0, f.Err != nil, f.Files != 0))
	m.number("h", int64(f.Hello))
	if f.ID != 0 {
		m.key("i")
		m.keep(enc.EncodeUint(f.ID))
	}
	m.text("v", f.Verb)
	if len(f.Body) > 0 {
		m.key("b")
		m.keep(f.Body.EncodeMsgpack(enc))
	}
	if f.Err != nil {
		m.key("e")
		m.keep(enc.Encode(f.Err))
	}
	m.number("f", int64(f.Files))
	return m.err
}

// DecodeMsgpack reads m for this package's Unmarshal.
func (f *Msg) DecodeMsgpack(d *msgpack.Decoder) error {
	m := &mapFrom{d: d}
	*f = Msg{}
	m.each(func(key string) {
		var err error
		switch key {
		case "h":
			f.Hello = int(m.number())
		case "i":
			f.ID, err = d.DecodeUint64()
		case "v":
			f.Verb = m.text()
		case "b":
			f.Body, err = d.DecodeRaw()
		case "e":
			f.Err = new(Error)
			err = d.Decode(f.Err)
		case "f":
			f.Files = int(m.number())
		default:
			m.unknown(key)
		}
		m.keep(err)
	})
	return m.err
}

// mapFrom reads maps and keeps the first error.
type mapFrom struct {
	d   *msgpack.Decoder
	err error
}

func (m *mapFrom) keep(err error) {
	if m.err == nil {
		m.err = err
	}
}

// each reads one map; field reads the value of each key. Counts have been checked against the bytes that are there.
func (m *mapFrom) each(field func(key string)) {
	n, err := m.d.DecodeMapLen()
	if err == nil && n < 0 {
		err = ErrMalformed
	}
	m.keep(err)
	for ; n > 0 && m.err == nil; n-- {
		key, err := m.d.DecodeString()
		m.keep(err)
		if m.err == nil {
			field(key)
		}
	}
}

// list reads one array; item reads each.
func (m *mapFrom) list(start func(n int), item func(i int)) {
	n, err := m.d.DecodeArrayLen()
	m.keep(err)
	if m.err != nil || n <= 0 {
		return
	}
	start(n)
	for i := 0; i < n && m.err == nil; i++ {
		item(i)
	}
}

func (m *mapFrom) unknown(key string) {
	m.keep(fmt.Errorf("%w: unknown field %.20q", ErrMalformed, key))
}

func (m *mapFrom) text() string {
	s, err := m.d.DecodeString()
	m.keep(err)
	return s
}

func (m *mapFrom) number() int64 {
	n, err := m.d.DecodeInt64()
	m.keep(err)
	return n
}

func (m *mapFrom) yes() bool {
	b, err := m.d.DecodeBool()
	m.keep(err)
	return b
}

func (m *mapFrom) bytes() []byte {
	b, err := m.d.DecodeBytes()
	m.keep(err)
	return b
}

func (m *mapFrom) texts() (v []string) {
	m.list(func(n int) { v = make([]string, n) }, func(i int) { v[i] = m.text() })
	return v
}

func (m *mapFrom) digest() (v Digest) {
	b := m.bytes()
	if len(b) != len(v) && m.err == nil {
		m.keep(fmt.Errorf("%w: digest of %d bytes", ErrMalformed, len(b)))
	}
	copy(v[:], b)
	return v
}

func (m *mapFrom) file() *FileBody {
	f := new(FileBody)
	m.each(func(key string) {
		switch key {
		case "h":
			f.SHA256 = m.digest()
		case "s":
			f.Size = m.number()
		default:
			m.unknown(key)
		}
	})
	return f
}

func (m *mapFrom) matches() (v []Match) {
	m.list(func(n int) { v = make([]Match, n) }, func(i int) {
		m.each(func(key string) {
			switch key {
			case "n":
				v[i].Name = m.text()
			case "v":
				v[i].Values = m.texts()
			case "a":
				v[i].Any = m.yes()
			case "o":
				v[i].Optional = m.yes()
			default:
				m.unknown(key)
			}
		})
	})
	return v
}

func (m *mapFrom) body(b *Body) {
	m.each(func(key string) {
		switch key {
		case "m":
			b.Media = m.text()
		case "h":
			b.SHA256 = m.digest()
		case "j":
			m.list(func(n int) { b.JSON = make([]Leaf, n) }, func(i int) { m.leaf(&b.JSON[i]) })
		case "f":
			b.File = m.file()
		default:
			m.unknown(key)
		}
	})
}

func (m *mapFrom) leaf(l *Leaf) {
	m.each(func(key string) {
		switch key {
		case "p":
			l.Pointer = m.text()
		case "v":
			l.Value = m.bytes()
		case "b":
			l.Base64 = m.file()
		case "x":
			l.Text = m.file()
		default:
			m.unknown(key)
		}
	})
}

// DecodeMsgpack reads e for this package's Unmarshal.
func (e *Entry) DecodeMsgpack(d *msgpack.Decoder) error {
	m := &mapFrom{d: d}
	e.decode(m)
	return m.err
}

func (e *Entry) decode(m *mapFrom) {
	*e = Entry{}
	m.each(func(key string) {
		switch key {
		case "n":
			e.Name = m.text()
		case "s":
			e.Scheme = m.text()
		case "h":
			e.Host = m.text()
		case "p":
			e.Port = int(m.number())
		case "m":
			e.Method = m.text()
		case "t":
			e.Path = m.text()
		case "ta":
			e.AnyPath = m.yes()
		case "q":
			e.Query = m.matches()
		case "e":
			e.Header = m.matches()
		case "b":
			m.body(&e.Body)
		case "u":
			e.Uses = int(m.number())
		case "c":
			e.Credential = m.yes()
		case "f":
			e.Follow = m.text()
		case "al":
			e.Also = m.texts()
		case "mi":
			e.MaxIn = m.number()
		default:
			m.unknown(key)
		}
	})
}

// DecodeMsgpack reads r for this package's Unmarshal.
func (r *ResolveResp) DecodeMsgpack(d *msgpack.Decoder) error {
	m := &mapFrom{d: d}
	*r = ResolveResp{}
	m.each(func(key string) {
		switch key {
		case "s":
			r.Secret = m.text()
		case "p":
			m.placement(&r.Placement)
		case "e":
			r.Entry.decode(m)
		case "ca":
			r.CA = m.bytes()
		case "pm":
			r.Permit = m.texts()
		case "c":
			r.Call = m.text()
		case "l":
			r.Cell = m.text()
		case "a":
			r.Account = m.text()
		case "n":
			r.Generation = m.number()
		case "sc":
			r.Scrub = m.texts()
		default:
			m.unknown(key)
		}
	})
	return m.err
}

func (m *mapFrom) placement(p *Placement) {
	m.each(func(key string) {
		switch key {
		case "k":
			p.Kind = m.text()
		case "n":
			p.Name = m.text()
		case "p":
			p.Prefix = m.text()
		case "u":
			p.User = m.text()
		default:
			m.unknown(key)
		}
	})
}
