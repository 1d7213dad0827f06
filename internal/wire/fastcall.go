// SPDX-License-Identifier: Apache-2.0

package wire

import "github.com/vmihailenco/msgpack/v5"

// What the cell's command sends and receives writes and reads itself too: that process lives for a few milliseconds, in
// which reflection over these types would not yet have paid. As in fast.go, a field that is added to the types must be
// added here, or a test fails.

// EncodeMsgpack writes f for this package's Marshal.
func (f Frame) EncodeMsgpack(enc *msgpack.Encoder) error {
	m := &mapOf{e: enc}
	f.encode(m)
	return m.err
}

func (f *Frame) encode(m *mapOf) {
	m.begin(set(f.Connector != "", f.Description != Digest{}, f.Account != "", f.Method != "", len(f.Args) > 0,
		len(f.Files) > 0))
	m.text("c", f.Connector)
	m.digest("d", f.Description)
	m.text("a", f.Account)
	m.text("m", f.Method)
	if len(f.Args) > 0 {
		m.key("g")
		m.keep(m.e.EncodeArrayLen(len(f.Args)))
		for i := range f.Args {
			a := &f.Args[i]
			m.begin(set(a.Name != "", len(a.Values) > 0))
			m.text("n", a.Name)
			m.texts("v", a.Values)
		}
	}
	if len(f.Files) > 0 {
		m.key("f")
		m.keep(m.e.EncodeArrayLen(len(f.Files)))
		for i := range f.Files {
			x := &f.Files[i]
			m.begin(set(x.Arg != "", x.Name != "", x.Size != 0, x.SHA256 != Digest{}))
			m.text("g", x.Arg)
			m.text("n", x.Name)
			m.number("s", x.Size)
			m.digest("h", x.SHA256)
		}
	}
}

// DecodeMsgpack reads f for this package's Unmarshal.
func (f *Frame) DecodeMsgpack(d *msgpack.Decoder) error {
	m := &mapFrom{d: d}
	f.decode(m)
	return m.err
}

func (f *Frame) decode(m *mapFrom) {
	*f = Frame{}
	m.each(func(key string) {
		switch key {
		case "c":
			f.Connector = m.text()
		case "d":
			f.Description = m.digest()
		case "a":
			f.Account = m.text()
		case "m":
			f.Method = m.text()
		case "g":
			m.list(func(n int) { f.Args = make([]Arg, n) }, func(i int) { m.arg(&f.Args[i]) })
		case "f":
			m.list(func(n int) { f.Files = make([]File, n) }, func(i int) { m.frameFile(&f.Files[i]) })
		default:
			m.unknown(key)
		}
	})
}

func (m *mapFrom) arg(a *Arg) {
	m.each(func(key string) {
		switch key {
		case "n":
			a.Name = m.text()
		case "v":
			a.Values = m.texts()
		default:
			m.unknown(key)
		}
	})
}

func (m *mapFrom) frameFile(f *File) {
	m.each(func(key string) {
		switch key {
		case "g":
			f.Arg = m.text()
		case "n":
			f.Name = m.text()
		case "s":
			f.Size = m.number()
		case "h":
			f.SHA256 = m.digest()
		default:
			m.unknown(key)
		}
	})
}

// EncodeMsgpack writes r for this package's Marshal.
func (r DecideReq) EncodeMsgpack(enc *msgpack.Encoder) error {
	m := &mapOf{e: enc}
	m.begin(1)
	m.key("f")
	r.Frame.encode(m)
	return m.err
}

// DecodeMsgpack reads r for this package's Unmarshal.
func (r *DecideReq) DecodeMsgpack(d *msgpack.Decoder) error {
	m := &mapFrom{d: d}
	*r = DecideReq{}
	m.each(func(key string) {
		if key == "f" {
			r.Frame.decode(m)
		} else {
			m.unknown(key)
		}
	})
	return m.err
}

// EncodeMsgpack writes r for this package's Marshal.
func (r DecideResp) EncodeMsgpack(enc *msgpack.Encoder) error {
	m := &mapOf{e: enc}
	m.begin(set(r.Verdict != "", r.Call != "", r.Grant != "", r.Account != "", r.Joined, r.Err != nil))
	m.text("v", string(r.Verdict))
	m.text("c", r.Call)
	m.text("g", r.Grant)
	m.text("a", r.Account)
	m.yes("j", r.Joined)
	if r.Err != nil {
		m.key("e")
		m.keep(enc.Encode(r.Err))
	}
	return m.err
}

// DecodeMsgpack reads r for this package's Unmarshal.
func (r *DecideResp) DecodeMsgpack(d *msgpack.Decoder) error {
	m := &mapFrom{d: d}
	*r = DecideResp{}
	m.each(func(key string) {
		switch key {
		case "v":
			r.Verdict = Verdict(m.text())
		case "c":
			r.Call = m.text()
		case "g":
			r.Grant = m.text()
		case "a":
			r.Account = m.text()
		case "j":
			r.Joined = m.yes()
		case "e":
			r.Err = new(Error)
			m.keep(d.Decode(r.Err))
		default:
			m.unknown(key)
		}
	})
	return m.err
}

// EncodeMsgpack writes r for this package's Marshal.
func (r CallReq) EncodeMsgpack(enc *msgpack.Encoder) error {
	m := &mapOf{e: enc}
	m.begin(1 + set(r.Grant != "", r.Prepared, r.Mark != "", r.ETag != "", r.Raw))
	m.text("g", r.Grant)
	m.key("f")
	r.Frame.encode(m)
	m.yes("p", r.Prepared)
	m.text("m", r.Mark)
	m.text("e", r.ETag)
	m.yes("r", r.Raw)
	return m.err
}

// DecodeMsgpack reads r for this package's Unmarshal.
func (r *CallReq) DecodeMsgpack(d *msgpack.Decoder) error {
	m := &mapFrom{d: d}
	*r = CallReq{}
	m.each(func(key string) {
		switch key {
		case "g":
			r.Grant = m.text()
		case "f":
			r.Frame.decode(m)
		case "p":
			r.Prepared = m.yes()
		case "m":
			r.Mark = m.text()
		case "e":
			r.ETag = m.text()
		case "r":
			r.Raw = m.yes()
		default:
			m.unknown(key)
		}
	})
	return m.err
}

// EncodeMsgpack writes o for this package's Marshal.
func (o Output) EncodeMsgpack(enc *msgpack.Encoder) error {
	m := &mapOf{e: enc}
	m.begin(set(len(o.JSON) > 0, o.File, o.Media != "", len(o.Labels) > 0, o.Next != "", o.Truncated != "",
		o.Object != "", o.Bytes != 0))
	m.bytes("j", o.JSON)
	m.yes("f", o.File)
	m.text("m", o.Media)
	m.texts("l", o.Labels)
	m.text("n", o.Next)
	m.text("t", o.Truncated)
	m.text("b", o.Object)
	m.number("y", o.Bytes)
	return m.err
}

// DecodeMsgpack reads o for this package's Unmarshal.
func (o *Output) DecodeMsgpack(d *msgpack.Decoder) error {
	m := &mapFrom{d: d}
	*o = Output{}
	m.each(func(key string) {
		switch key {
		case "j":
			o.JSON = m.bytes()
		case "f":
			o.File = m.yes()
		case "m":
			o.Media = m.text()
		case "l":
			o.Labels = m.texts()
		case "n":
			o.Next = m.text()
		case "t":
			o.Truncated = m.text()
		case "b":
			o.Object = m.text()
		case "y":
			o.Bytes = m.number()
		default:
			m.unknown(key)
		}
	})
	return m.err
}
