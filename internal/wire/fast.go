// SPDX-License-Identifier: Apache-2.0

package wire

import (
	"bytes"
	"fmt"

	"github.com/vmihailenco/msgpack/v5"
)

// Every frame, the answer to resolve with its entry, and what the cell's command sends and receives write and read
// themselves: the first two are on the path of every request that a worker sends, where reflection costs more than the
// TLS of that request, and the command lives for a few milliseconds, in which reflection would not yet have paid. Each
// type names its fields once, for both directions. A test holds them to what reflection does; a field that is added to
// a type must be added here, or that test fails.

// coder walks the fields of a message. Writing, it leaves out those that are zero. Reading, it takes each field whose
// key comes next, and goes over the fields again while keys are left; so keys that stand in the order of the fields, as
// ours do, need one pass.
type coder struct {
	e    *msgpack.Encoder // nil: reading
	w    *bytes.Buffer    // what e writes to
	d    *msgpack.Decoder
	r    *bytes.Reader // what d reads from
	n    int           // writing: fields written; reading: keys left, key included
	key  string        // reading: the key whose value is next; "" is none
	fail error         // the first
}

// writer is a coder for e, which must be of this package's Marshal.
func writer(e *msgpack.Encoder) *coder { return &coder{e: e, w: e.Writer().(*bytes.Buffer)} }

// reader is a coder for d, which must be of this package's Unmarshal.
func reader(d *msgpack.Decoder) *coder { return &coder{d: d, r: d.Buffered().(*bytes.Reader)} }

func (c *coder) keep(err error) {
	if c.fail == nil && err != nil {
		c.fail, c.key = err, ""
	}
}

// pass is one map that c is in, and where c was around it.
type pass struct {
	began bool
	at    int // writing: where the map's head stands; reading: keys that were left at the last pass
	n     int
	key   string
}

// over says whether to go over the fields of the map p (once more). Its first call begins the map, its last ends it.
func (c *coder) over(p *pass) bool {
	first := !p.began
	if first {
		p.began, p.n, p.key = true, c.n, c.key
	}
	if c.d != nil {
		return c.read(p, first)
	}
	if first {
		p.at, c.n = c.w.Len(), 0
		c.w.WriteByte(0)
		return true
	}
	c.w.Bytes()[p.at] = 0x80 | byte(c.n) // a map of at most 15; no type here has more fields
	c.n = p.n
	return false
}

func (c *coder) read(p *pass, first bool) bool {
	if first && c.fail == nil {
		// Counts have been checked against the bytes that are there.
		n, err := c.d.DecodeMapLen()
		if err == nil && n < 0 {
			err = ErrMalformed
		}
		c.n = n + 1
		c.got(err)
	} else if c.n == p.at && c.n > 0 {
		c.keep(fmt.Errorf("%w: unknown field %.20q", ErrMalformed, c.key))
	}
	p.at = c.n
	if c.n > 0 && c.fail == nil {
		return true
	}
	c.n, c.key = p.n, p.key
	return false
}

// next reads the next key of the map, once a value has been read.
func (c *coder) next() {
	if c.d == nil {
		return
	}
	c.n--
	c.key = ""
	if c.fail != nil || c.n <= 0 {
		return
	}
	head, err := c.r.ReadByte()
	if err == nil && head == 0xa1 { // a string of one byte, as most are
		head, err = c.r.ReadByte()
		c.key = string([]byte{head})
	} else if err == nil {
		c.r.UnreadByte()
		c.key, err = c.d.DecodeString()
	}
	c.keep(err)
}

// at says whether the value of the field name is to be read now, or, where it is set, to be written. What read it calls
// next.
func (c *coder) at(name string, set bool) bool {
	if c.d != nil {
		return c.key == name
	}
	return set && c.put(name)
}

// put writes a key.
func (c *coder) put(name string) bool {
	c.n++
	c.write(name)
	return true
}

// write writes a text; most are short, and then not worth the library's way.
func (c *coder) write(s string) {
	if len(s) > 31 {
		c.keep(c.e.EncodeString(s))
		return
	}
	c.w.WriteByte(0xa0 | byte(len(s)))
	c.w.WriteString(s)
}

// got ends the reading of a value.
func (c *coder) got(err error) {
	c.keep(err)
	c.next()
}

// array is the head of a list, which it makes when reading. After its items comes next.
func array[T any](c *coder, name string, v *[]T) bool {
	if !c.at(name, len(*v) > 0) {
		return false
	}
	if c.d == nil {
		c.keep(c.e.EncodeArrayLen(len(*v)))
		return true
	}
	n, err := c.d.DecodeArrayLen()
	c.keep(err)
	*v = nil
	if c.fail == nil && n > 0 {
		*v = make([]T, n)
	}
	return true
}

func (c *coder) text(name string, v *string) {
	if !c.at(name, *v != "") {
	} else if c.d == nil {
		c.write(*v)
	} else {
		x, err := c.d.DecodeString()
		*v = x
		c.got(err)
	}
}

func (c *coder) number(name string, v *int64) {
	if !c.at(name, *v != 0) {
	} else if c.d == nil {
		c.keep(c.e.EncodeInt(*v))
	} else {
		x, err := c.d.DecodeInt64()
		*v = x
		c.got(err)
	}
}

func (c *coder) int(name string, v *int) {
	n := int64(*v)
	c.number(name, &n)
	*v = int(n)
}

func (c *coder) yes(name string, v *bool) {
	if !c.at(name, *v) {
	} else if c.d == nil {
		c.keep(c.e.EncodeBool(*v))
	} else {
		x, err := c.d.DecodeBool()
		*v = x
		c.got(err)
	}
}

func (c *coder) bytes(name string, v *[]byte) {
	if !c.at(name, len(*v) > 0) {
	} else if c.d == nil {
		c.keep(c.e.EncodeBytes(*v))
	} else {
		x, err := c.d.DecodeBytes()
		*v = x
		c.got(err)
	}
}

func (c *coder) texts(name string, v *[]string) {
	if !array(c, name, v) {
		return
	}
	for i := range *v {
		if c.fail != nil {
			return
		}
		if c.d == nil {
			c.write((*v)[i])
		} else {
			s, err := c.d.DecodeString()
			(*v)[i] = s
			c.keep(err)
		}
	}
	c.next()
}

func (c *coder) digest(name string, v *Digest) {
	if !c.at(name, *v != Digest{}) {
	} else if c.d == nil {
		b := *v // what holds v need not go to the heap for it
		c.keep(c.e.EncodeBytes(b[:]))
	} else {
		b, err := c.d.DecodeBytes()
		if err == nil && len(b) != len(v) {
			err = fmt.Errorf("%w: digest of %d bytes", ErrMalformed, len(b))
		}
		copy(v[:], b)
		c.got(err)
	}
}

// refusal goes by reflection: it is seldom there.
func (c *coder) refusal(name string, v **Error) {
	if !c.at(name, *v != nil) {
	} else if c.d == nil {
		c.keep(c.e.Encode(*v))
	} else {
		*v = new(Error)
		c.got(c.d.Decode(*v))
	}
}

func (c *coder) file(name string, v **FileBody) {
	if !c.at(name, *v != nil) {
		return
	}
	if c.d != nil {
		*v = new(FileBody)
	}
	for p := (pass{}); c.over(&p); {
		c.digest("h", &(*v).SHA256)
		c.number("s", &(*v).Size)
	}
	c.next()
}

func (c *coder) matches(name string, v *[]Match) {
	if !array(c, name, v) {
		return
	}
	for i := range *v {
		m := &(*v)[i]
		for p := (pass{}); c.over(&p); {
			c.text("n", &m.Name)
			c.texts("v", &m.Values)
			c.yes("a", &m.Any)
			c.yes("o", &m.Optional)
		}
	}
	c.next()
}

func (c *coder) leaves(name string, v *[]Leaf) {
	if !array(c, name, v) {
		return
	}
	for i := range *v {
		l := &(*v)[i]
		for p := (pass{}); c.over(&p); {
			c.text("p", &l.Pointer)
			c.bytes("v", &l.Value)
			c.file("b", &l.Base64)
			c.file("x", &l.Text)
		}
	}
	c.next()
}

func (b *Body) code(c *coder) {
	for p := (pass{}); c.over(&p); {
		c.text("m", &b.Media)
		c.digest("h", &b.SHA256)
		c.leaves("j", &b.JSON)
		c.file("f", &b.File)
	}
}

func (e *Entry) code(c *coder) error {
	b := &e.Body
	for p := (pass{}); c.over(&p); {
		c.text("n", &e.Name)
		c.text("s", &e.Scheme)
		c.text("h", &e.Host)
		c.int("p", &e.Port)
		c.text("m", &e.Method)
		c.text("t", &e.Path)
		c.yes("ta", &e.AnyPath)
		c.matches("q", &e.Query)
		c.matches("e", &e.Header)
		if c.at("b", b.Media != "" || b.SHA256 != Digest{} || len(b.JSON) > 0 || b.File != nil) {
			b.code(c)
			c.next()
		}
		c.int("u", &e.Uses)
		c.yes("c", &e.Credential)
		c.text("f", &e.Follow)
		c.texts("al", &e.Also)
		c.number("mi", &e.MaxIn)
	}
	return c.fail
}

func (r *ResolveResp) code(c *coder) error {
	l := &r.Placement
	for p := (pass{}); c.over(&p); {
		c.text("s", &r.Secret)
		if c.at("p", *l != Placement{}) {
			for p := (pass{}); c.over(&p); {
				c.text("k", &l.Kind)
				c.text("n", &l.Name)
				c.text("p", &l.Prefix)
				c.text("u", &l.User)
			}
			c.next()
		}
		if c.at("e", true) {
			r.Entry.code(c)
			c.next()
		}
		c.bytes("ca", &r.CA)
		c.texts("pm", &r.Permit)
		c.text("c", &r.Call)
		c.text("l", &r.Cell)
		c.text("a", &r.Account)
		c.number("n", &r.Generation)
		c.texts("sc", &r.Scrub)
	}
	return c.fail
}

func (m *Msg) code(c *coder) error {
	var err error
	for p := (pass{}); c.over(&p); {
		c.int("h", &m.Hello)
		if !c.at("i", m.ID != 0) {
		} else if c.d == nil {
			c.keep(c.e.EncodeUint(m.ID))
		} else {
			m.ID, err = c.d.DecodeUint64()
			c.got(err)
		}
		c.text("v", &m.Verb)
		if !c.at("b", len(m.Body) > 0) {
		} else if c.d == nil {
			c.w.Write(m.Body)
		} else {
			m.Body, err = c.d.DecodeRaw()
			c.got(err)
		}
		c.refusal("e", &m.Err)
		c.int("f", &m.Files)
	}
	return c.fail
}

func (f *Frame) code(c *coder) error {
	for p := (pass{}); c.over(&p); {
		c.text("c", &f.Connector)
		c.digest("d", &f.Description)
		c.text("a", &f.Account)
		c.text("m", &f.Method)
		if array(c, "g", &f.Args) {
			for i := range f.Args {
				for p := (pass{}); c.over(&p); {
					c.text("n", &f.Args[i].Name)
					c.texts("v", &f.Args[i].Values)
				}
			}
			c.next()
		}
		if array(c, "f", &f.Files) {
			for i := range f.Files {
				x := &f.Files[i]
				for p := (pass{}); c.over(&p); {
					c.text("g", &x.Arg)
					c.text("n", &x.Name)
					c.number("s", &x.Size)
					c.digest("h", &x.SHA256)
				}
			}
			c.next()
		}
	}
	return c.fail
}

func (r *DecideReq) code(c *coder) error {
	for p := (pass{}); c.over(&p); {
		if c.at("f", true) {
			r.Frame.code(c)
			c.next()
		}
	}
	return c.fail
}

func (r *DecideResp) code(c *coder) error {
	for p := (pass{}); c.over(&p); {
		c.text("v", (*string)(&r.Verdict))
		c.text("c", &r.Call)
		c.text("g", &r.Grant)
		c.text("a", &r.Account)
		c.yes("j", &r.Joined)
		c.refusal("e", &r.Err)
	}
	return c.fail
}

func (r *CallReq) code(c *coder) error {
	for p := (pass{}); c.over(&p); {
		c.text("g", &r.Grant)
		if c.at("f", true) {
			r.Frame.code(c)
			c.next()
		}
		c.yes("p", &r.Prepared)
		c.text("m", &r.Mark)
		c.text("e", &r.ETag)
		c.yes("r", &r.Raw)
	}
	return c.fail
}

func (o *Output) code(c *coder) error {
	for p := (pass{}); c.over(&p); {
		c.bytes("j", &o.JSON)
		c.yes("f", &o.File)
		c.text("m", &o.Media)
		c.texts("l", &o.Labels)
		c.text("n", &o.Next)
		c.text("t", &o.Truncated)
		c.text("b", &o.Object)
		c.number("y", &o.Bytes)
	}
	return c.fail
}

// The methods that the library calls.

// EncodeMsgpack writes e for this package's Marshal.
func (e *Entry) EncodeMsgpack(enc *msgpack.Encoder) error { return e.code(writer(enc)) }

// DecodeMsgpack reads e for this package's Unmarshal.
func (e *Entry) DecodeMsgpack(d *msgpack.Decoder) error {
	*e = Entry{}
	return e.code(reader(d))
}

// EncodeMsgpack writes r for this package's Marshal.
func (r *ResolveResp) EncodeMsgpack(e *msgpack.Encoder) error { return r.code(writer(e)) }

// DecodeMsgpack reads r for this package's Unmarshal.
func (r *ResolveResp) DecodeMsgpack(d *msgpack.Decoder) error {
	*r = ResolveResp{}
	return r.code(reader(d))
}

// EncodeMsgpack writes m for this package's Marshal.
func (m *Msg) EncodeMsgpack(e *msgpack.Encoder) error { return m.code(writer(e)) }

// DecodeMsgpack reads m for this package's Unmarshal.
func (m *Msg) DecodeMsgpack(d *msgpack.Decoder) error {
	*m = Msg{}
	return m.code(reader(d))
}

// EncodeMsgpack writes f for this package's Marshal.
func (f Frame) EncodeMsgpack(e *msgpack.Encoder) error { return f.code(writer(e)) }

// DecodeMsgpack reads f for this package's Unmarshal.
func (f *Frame) DecodeMsgpack(d *msgpack.Decoder) error {
	*f = Frame{}
	return f.code(reader(d))
}

// EncodeMsgpack writes r for this package's Marshal.
func (r DecideReq) EncodeMsgpack(e *msgpack.Encoder) error { return r.code(writer(e)) }

// DecodeMsgpack reads r for this package's Unmarshal.
func (r *DecideReq) DecodeMsgpack(d *msgpack.Decoder) error {
	*r = DecideReq{}
	return r.code(reader(d))
}

// EncodeMsgpack writes r for this package's Marshal.
func (r DecideResp) EncodeMsgpack(e *msgpack.Encoder) error { return r.code(writer(e)) }

// DecodeMsgpack reads r for this package's Unmarshal.
func (r *DecideResp) DecodeMsgpack(d *msgpack.Decoder) error {
	*r = DecideResp{}
	return r.code(reader(d))
}

// EncodeMsgpack writes r for this package's Marshal.
func (r CallReq) EncodeMsgpack(e *msgpack.Encoder) error { return r.code(writer(e)) }

// DecodeMsgpack reads r for this package's Unmarshal.
func (r *CallReq) DecodeMsgpack(d *msgpack.Decoder) error {
	*r = CallReq{}
	return r.code(reader(d))
}

// EncodeMsgpack writes o for this package's Marshal.
func (o Output) EncodeMsgpack(e *msgpack.Encoder) error { return o.code(writer(e)) }

// DecodeMsgpack reads o for this package's Unmarshal.
func (o *Output) DecodeMsgpack(d *msgpack.Decoder) error {
	*o = Output{}
	return o.code(reader(d))
}
