// SPDX-License-Identifier: Apache-2.0

package describe

import "fmt"

// Glance reads from a description's bytes what the cell's command needs of it to parse one call's flags: the vendor, and
// of the method named name all but its requests (Entries, Prepare, Settle, Lower, Scopes). Where there is no such
// method, Methods are all there are, by name only.
// It is not verified, has no digest, and must not be decided on; it spares a process that lives for a few milliseconds
// the decoding of the rest. The bytes come from a root-owned file. It never reads beyond b, and fails on any form that
// Seal does not write.
func Glance(b []byte, name string) (*Connector, error) {
	if len(b) > MaxFile {
		return nil, fmt.Errorf("%w: %d bytes, at most %d", ErrDescription, len(b), MaxFile)
	}
	g := glance{b: b}
	c := new(Connector)
	g.object(func(key []byte) {
		switch string(key) {
		case "v":
			c.Format = int(g.number())
		case "n":
			c.Vendor = g.text()
		case "t":
			c.Title = g.text()
		case "c":
			c.Check = g.text()
		case "m":
			all := g
			n := g.count(0x90, 0xdc)
			for ; n > 0 && !g.bad; n-- {
				start := g.b
				if string(g.named()) != name {
					continue
				}
				rest := g.b
				g.b = start
				c.Methods = make([]Method, 1)
				g.method(&c.Methods[0])
				g.b = rest
			}
			if c.Methods == nil {
				c.Methods = all.names()
			}
		default:
			g.skip(0)
		}
	})
	if g.bad || len(g.b) != 0 || c.Format != Format || !vendorName(c.Vendor) {
		return nil, fmt.Errorf("%w: not of format %d", ErrDescription, Format)
	}
	return c, nil
}

// glance reads MessagePack from the front of b. After a fault bad is set and b is empty.
type glance struct {
	b   []byte
	bad bool
}

func (g *glance) fail() {
	g.b, g.bad = nil, true
}

// take is the next n bytes.
func (g *glance) take(n int) []byte {
	if n < 0 || n > len(g.b) {
		g.fail()
		return nil
	}
	p := g.b[:n]
	g.b = g.b[n:]
	return p
}

func (g *glance) byte() byte {
	if p := g.take(1); p != nil {
		return p[0]
	}
	return 0xc1 // the one type byte that is never used
}

// size reads a big-endian number of n bytes.
func (g *glance) size(n int) int {
	v := 0
	for _, c := range g.take(n) {
		v = v<<8 | int(c)
	}
	return v
}

// count reads the head of a map (0x80, 0xde) or an array (0x90, 0xdc): how many follow. Each takes a byte at least.
func (g *glance) count(fix, wide byte) int {
	n := 0
	switch c := g.byte(); {
	case c&0xf0 == fix:
		n = int(c & 0x0f)
	case c == wide:
		n = g.size(2)
	case c == wide+1:
		n = g.size(4)
	default:
		g.fail()
	}
	if n > len(g.b) {
		g.fail()
		return 0
	}
	return n
}

func (g *glance) text() string { return string(g.raw()) }

// raw is the next text.
func (g *glance) raw() []byte {
	n := 0
	switch c := g.byte(); {
	case c&0xe0 == 0xa0:
		n = int(c & 0x1f)
	case c == 0xd9:
		n = g.size(1)
	case c == 0xda:
		n = g.size(2)
	case c == 0xdb:
		n = g.size(4)
	default:
		g.fail()
	}
	return g.take(n)
}

// number reads an integer from 0.
func (g *glance) number() int64 {
	switch c := g.byte(); {
	case c <= 0x7f:
		return int64(c)
	case c == 0xcc:
		return int64(g.size(1))
	case c == 0xcd:
		return int64(g.size(2))
	case c == 0xce:
		return int64(g.size(4))
	case c == 0xcf || c == 0xd3:
		return int64(g.size(8))
	default:
		g.fail()
		return 0
	}
}

func (g *glance) yes() bool {
	c := g.byte()
	if c != 0xc2 && c != 0xc3 {
		g.fail()
	}
	return c == 0xc3
}

// object calls value for each key of a map; value reads what stands there.
func (g *glance) object(value func(key []byte)) {
	for n := g.count(0x80, 0xde); n > 0 && !g.bad; n-- {
		value(g.raw())
	}
}

func (g *glance) texts() []string {
	n := g.count(0x90, 0xdc)
	if g.bad {
		return nil
	}
	list := make([]string, 0, n)
	for range n {
		list = append(list, g.text())
	}
	return list
}

// names reads an array of methods for their names only.
func (g *glance) names() []Method {
	n := g.count(0x90, 0xdc)
	list := make([]Method, 0, min(n, 256))
	for ; n > 0 && !g.bad; n-- {
		list = append(list, Method{Name: string(g.named())})
	}
	return list
}

// named goes past a map and returns the text at its key "n".
func (g *glance) named() (name []byte) {
	g.object(func(key []byte) {
		if string(key) == "n" {
			name = g.raw()
		} else {
			g.skip(0)
		}
	})
	return name
}

// skip goes past one value.
func (g *glance) skip(depth int) {
	if len(g.b) == 0 || depth > 16 {
		g.fail()
		return
	}
	n := 0
	switch c := g.b[0]; {
	case c&0xf0 == 0x80 || c == 0xde || c == 0xdf:
		n = 2 * g.count(0x80, 0xde)
	case c&0xf0 == 0x90 || c == 0xdc || c == 0xdd:
		n = g.count(0x90, 0xdc)
	case c&0xe0 == 0xa0:
		g.take(1 + int(c&0x1f))
	case c <= 0x7f || c >= 0xe0 || c == 0xc0 || c == 0xc2 || c == 0xc3:
		g.take(1)
	case c == 0xc4 || c == 0xd9:
		g.take(1)
		g.take(g.size(1))
	case c == 0xc5 || c == 0xda:
		g.take(1)
		g.take(g.size(2))
	case c == 0xc6 || c == 0xdb:
		g.take(1)
		g.take(g.size(4))
	case c >= 0xcc && c <= 0xd3:
		g.take(1 + 1<<(c&3))
	default:
		g.fail()
	}
	for ; n > 0 && !g.bad; n-- {
		g.skip(depth + 1)
	}
}

func (g *glance) method(m *Method) {
	g.object(func(key []byte) {
		switch string(key) {
		case "n":
			m.Name = g.text()
		case "s":
			m.Summary = g.text()
		case "c":
			m.Class = g.text()
		case "r":
			m.Reach = g.text()
		case "b":
			m.Labels = g.texts()
		case "a":
			n := g.count(0x90, 0xdc)
			m.Args = make([]Arg, min(n, 256))
			for i := range m.Args {
				g.arg(&m.Args[i])
			}
			if n > len(m.Args) {
				g.fail()
			}
		default:
			g.skip(0)
		}
	})
}

func (g *glance) arg(a *Arg) {
	g.object(func(key []byte) {
		switch string(key) {
		case "n":
			a.Name = g.text()
		case "l":
			a.Label = g.text()
		case "h":
			a.Help = g.text()
		case "t":
			a.Type = g.text()
		case "e":
			a.Enum = g.texts()
		case "r":
			a.Required = g.yes()
		case "m":
			a.Repeat = int(g.number())
		case "d":
			a.Default = g.text()
		case "i":
			a.Min = g.number()
		case "x":
			a.Max = g.number()
		case "o":
			a.Role = g.text()
		default:
			g.fail()
		}
	})
}
