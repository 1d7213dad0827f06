// SPDX-License-Identifier: Apache-2.0

// Package describe is what a connector says of itself: its methods, their typed arguments, what each may send, and
// what kind of thing it does. A connector's package declares it; the build writes it to one root-owned file; sentinel
// and the cell's command read that file. What a worker says at run time counts for nothing, so a worker that an
// attacker has taken over cannot widen what its methods mean. The package decides nothing: it checks values against
// their types, fills templates, and writes the canonical form that approvals are over.
package describe

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/doorward/doorward/internal/wire"
)

// Format is the version of the file. A reader refuses any other.
const Format = 1

// MaxFile is the largest description file in bytes.
const MaxFile = 512 << 10

// Ext is the name ending of description files.
const Ext = ".desc"

// Classes, from harmless to not.
const (
	Read        = "read"
	Write       = "write"
	Destructive = "destructive"
)

// Reaches, from narrow to wide: who sees what the call does.
const (
	ReachNone   = "none"   // only the owner
	ReachPeople = "people" // named recipients
	ReachSpace  = "space"  // members of a workspace, repository, calendar
	ReachPublic = "public"
)

// Connector is a vendor's description.
type Connector struct {
	Format  int      `msgpack:"v"`
	Vendor  string   `msgpack:"n"`           // [a-z0-9]{1,32}
	Title   string   `msgpack:"t"`           // as a person writes it
	Base    string   `msgpack:"b,omitempty"` // URL of an account that names none; empty: each account names its own
	Tokens  Tokens   `msgpack:"k"`
	Check   string   `msgpack:"c"` // the read without arguments that `account test` runs
	Methods []Method `msgpack:"m"` // sorted by name

	digest wire.Digest
}

// Tokens says which credentials an account may have and where the surrogate goes.
type Tokens struct {
	Kinds     []string       `msgpack:"k"` // token, basic
	Placement wire.Placement `msgpack:"p"`
	NewURL    string         `msgpack:"u,omitempty"` // page where a person makes one; {scopes} {name} are filled in
	Help      string         `msgpack:"h,omitempty"`
}

// Method is one thing the agent can ask for.
type Method struct {
	Name    string   `msgpack:"n"` // [a-z0-9-]{1,32}; the command word
	Summary string   `msgpack:"s"` // one line
	Class   string   `msgpack:"c"`
	Reach   string   `msgpack:"r"` // the worst case
	Lower   []Lower  `msgpack:"l,omitempty"`
	Always  bool     `msgpack:"y,omitempty"` // sensitive whatever its reach: it pays, changes access or runs code
	Args    []Arg    `msgpack:"a,omitempty"` // in the order of help
	Grant   []string `msgpack:"g,omitempty"` // arguments that a grant may limit
	Entries []Entry  `msgpack:"e"`
	Prepare *Prepare `msgpack:"p,omitempty"`
	Labels  []string `msgpack:"b,omitempty"` // of its answer
	Scopes  []string `msgpack:"o,omitempty"` // vendor permissions it needs
	Once    string   `msgpack:"i,omitempty"` // what makes it create-once at the vendor, in words; empty: nothing does
	Settle  *Settle  `msgpack:"t,omitempty"` // how to find out afterwards whether it ran
}

// Lower narrows the reach where all named arguments are empty and, with Private, where the value of that argument is
// among the things a person's settings call private, and where When holds.
type Lower struct {
	To      string   `msgpack:"t"`
	Empty   []string `msgpack:"e,omitempty"`
	Private string   `msgpack:"p,omitempty"`
	When    *Cond    `msgpack:"w,omitempty"`
}

// Arg is one typed argument.
type Arg struct {
	Name     string   `msgpack:"n"` // flag name without dashes, [a-z0-9-]{1,32}
	Label    string   `msgpack:"l"` // plain words for a card
	Help     string   `msgpack:"h"` // one line with units and bounds
	Type     string   `msgpack:"t"`
	Enum     []string `msgpack:"e,omitempty"`
	Required bool     `msgpack:"r,omitempty"`
	Repeat   int      `msgpack:"m,omitempty"` // how many values at most; 0 is one
	Default  string   `msgpack:"d,omitempty"` // value when absent
	Min      int64    `msgpack:"i,omitempty"` // int: least value; bytes and text: least length
	Max      int64    `msgpack:"x,omitempty"` // int: greatest value; text: bytes; file: bytes
	Role     string   `msgpack:"o,omitempty"` // recipient, amount, destination, content
}

// Types of arguments. Each has one canonical text form, which Decode enforces.
const (
	TypeString = "string" // one line, no control characters, at most Max or 1,024 bytes
	TypeText   = "text"   // lines; no control characters but tab, CR, LF; at most Max or 65,536 bytes
	TypeInt    = "int"
	TypeBool   = "bool" // true or false
	TypeEnum   = "enum"
	TypeTime   = "time"   // RFC 3339 with zone
	TypeDate   = "date"   // 2006-01-02
	TypeWhen   = "when"   // date, local time 2006-01-02T15:04:05, or RFC 3339
	TypeZone   = "zone"   // IANA time zone name
	TypeEmail  = "email"  // addr-spec, domain in lower case
	TypeRepo   = "repo"   // owner/name
	TypePath   = "path"   // relative path: segments joined by /, none empty, "." or ".."
	TypeHref   = "href"   // absolute path on the account's server, same segments, may end in /
	TypeFolder = "folder" // href that ends in /, so that a name can stand behind it
	TypeHex    = "hex"    // lower-case hexadecimal
	TypeName   = "name"   // [A-Za-z0-9._-]{1,100}: logins, labels of machines
	TypeFile   = "file"   // travels as a memfd; its value is the digest
	TypeCursor = "cursor" // what an earlier answer gave as next; printable ASCII, at most 1,024 bytes
)

// Entry is the template of one request, see wire.Entry. In templates {x} is argument x, {base} the base path of the
// account, {mark} the call's mark.
type Entry struct {
	Name       string  `msgpack:"n"`           // [a-z0-9-]{1,32}
	When       *Cond   `msgpack:"w,omitempty"` // absent unless this holds
	Method     string  `msgpack:"m"`
	Host       string  `msgpack:"h,omitempty"` // other than the account's: exact or "*.x"; https, port 443
	Path       string  `msgpack:"p,omitempty"`
	AnyPath    bool    `msgpack:"a,omitempty"`
	Query      []Match `msgpack:"q,omitempty"`
	Header     []Match `msgpack:"e,omitempty"`
	Body       *Body   `msgpack:"b,omitempty"`
	Uses       int     `msgpack:"u,omitempty"` // 0 is one
	Credential bool    `msgpack:"c,omitempty"`
	Follow     string  `msgpack:"f,omitempty"`
	MaxIn      int64   `msgpack:"x,omitempty"`
}

// Cond holds when the argument has a value (Has), has none (not Has), or equals Is.
type Cond struct {
	Arg string `msgpack:"a"`
	Has bool   `msgpack:"h,omitempty"`
	Is  string `msgpack:"i,omitempty"`
}

// Match binds one query parameter or header.
type Match struct {
	Name string `msgpack:"n"`
	Bind Bind   `msgpack:"b"`
}

// Bind says what a value must be. An Arg without a value leaves the field out.
type Bind struct {
	Const string `msgpack:"c,omitempty"`
	Arg   string `msgpack:"a,omitempty"`
	// Format is how Arg is written: "" as it is, "marked" with the mark appended, "join" with commas between.
	Format string `msgpack:"f,omitempty"`
	Map    []Pair `msgpack:"m,omitempty"` // Arg's value to what stands; a value that is not listed is left out
	ETag   bool   `msgpack:"e,omitempty"` // the ETag of the base read
	// As is how Arg stands in JSON: string (default), int, bool, list, base64 (of a file); map: name=value texts, each
	// a member below the pointer; texts: files, each a member named as the file that is {"content": its text}.
	As    string `msgpack:"s,omitempty"`
	Since bool   `msgpack:"n,omitempty"` // RFC 3339, some minutes before the call ran: of a Settle
	Tmpl  string `msgpack:"t,omitempty"` // text with {x} placeholders, values as they are
}

// Pair maps one value.
type Pair struct {
	From string `msgpack:"f"`
	To   string `msgpack:"t"`
}

// Body is the template of a request body; one of its fields but Media is set.
type Body struct {
	Media    string `msgpack:"m"`
	XML      string `msgpack:"x,omitempty"` // template; values XML-escaped, {x:ical} in UTC basic form
	JSON     []Leaf `msgpack:"j,omitempty"`
	File     string `msgpack:"f,omitempty"` // the file argument, raw
	Prepared bool   `msgpack:"p,omitempty"`
}

// Leaf binds one field of a JSON body.
type Leaf struct {
	Pointer string `msgpack:"p"` // RFC 6901, object members only
	Bind    Bind   `msgpack:"b"`
}

// Prepare says that the worker renders the body before the decision.
type Prepare struct {
	Kind string `msgpack:"k"`           // icalendar or vcard: which reader sentinel reads it back with
	Base string `msgpack:"b,omitempty"` // the read it builds on
	Args []Pair `msgpack:"a,omitempty"` // arguments of that read (From: its name, To: argument of this method)
	When *Cond  `msgpack:"w,omitempty"` // Base is read only where this holds
}

// Settle names the read whose answer holds the call's mark if the call ran.
type Settle struct {
	Method string  `msgpack:"m"`
	Args   []Match `msgpack:"a,omitempty"`
}

// ErrDescription covers every fault of a description file.
var ErrDescription = errors.New("bad description")

// Digest is the SHA-256 of the description's bytes; Load and Seal set it.
func (c *Connector) Digest() wire.Digest { return c.digest }

// Seal verifies a declared connector and returns its file's bytes. Equal declarations give equal bytes.
func (c *Connector) Seal() ([]byte, error) {
	c.Format = Format
	if err := c.verify(); err != nil {
		return nil, err
	}
	b, err := wire.Marshal(c)
	if err != nil {
		return nil, err
	}
	if len(b) > MaxFile {
		return nil, fmt.Errorf("%w: %s: %d bytes, at most %d", ErrDescription, c.Vendor, len(b), MaxFile)
	}
	c.digest = wire.Sum(b)
	return b, nil
}

// Parse reads a description's bytes.
func Parse(b []byte) (*Connector, error) {
	if len(b) > MaxFile {
		return nil, fmt.Errorf("%w: %d bytes, at most %d", ErrDescription, len(b), MaxFile)
	}
	c := new(Connector)
	if err := wire.Unmarshal(b, c); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrDescription, err)
	}
	if err := c.verify(); err != nil {
		return nil, err
	}
	c.digest = wire.Sum(b)
	return c, nil
}

// Load reads the description of vendor in dir.
func Load(dir, vendor string) (*Connector, error) {
	if !vendorName(vendor) {
		return nil, fmt.Errorf("%w: %q is no connector name", ErrDescription, vendor)
	}
	b, err := os.ReadFile(dir + "/" + vendor + Ext)
	if err != nil {
		return nil, err
	}
	c, err := Parse(b)
	if err != nil {
		return nil, err
	}
	if c.Vendor != vendor {
		return nil, fmt.Errorf("%w: file of %s describes %s", ErrDescription, vendor, c.Vendor)
	}
	return c, nil
}

// Dir is the folder of the installed descriptions: share/doorward of the prefix that the running binary is in.
func Dir() (string, error) {
	exe, err := os.Executable()
	if err != nil {
		return "", fmt.Errorf("find the installation: %w", err)
	}
	for i := strings.LastIndexByte(exe, '/'); i > 0; i = strings.LastIndexByte(exe[:i], '/') {
		d := exe[:i] + "/share/doorward"
		if _, err := os.Stat(d); err == nil {
			return d, nil
		}
	}
	return "", fmt.Errorf("find the descriptions: no share/doorward beside %s; reinstall doorward", exe)
}

// Method finds a method by name.
func (c *Connector) Method(name string) (*Method, bool) {
	for i := range c.Methods {
		if c.Methods[i].Name == name {
			return &c.Methods[i], true
		}
	}
	return nil, false
}

// Arg finds an argument by name.
func (m *Method) Arg(name string) (*Arg, bool) {
	for i := range m.Args {
		if m.Args[i].Name == name {
			return &m.Args[i], true
		}
	}
	return nil, false
}

// Names are the names of arguments. A grant may limit each: one that it could not speak of would be open without anybody having
// said so.
func Names(args []Arg) []string {
	var out []string
	for i := range args {
		out = append(out, args[i].Name)
	}
	return out
}

// Meaning is the SHA-256 of all that a person's decision about m can rest on: its class and reach, the arguments with
// their types and bounds, those that a grant may limit, the requests it may send, the labels of its answer, by which other
// calls ask, and the look-up that settles it, by which a call counts as not run. What a grant or a setting was decided for is
// known by it, so that a newer description of the same name does not inherit what was allowed of the older. Words that are
// only shown and the vendor's permissions do not count: none of them lets anything do more. A field that is added to
// Method or Arg counts until it is taken out here.
func (m *Method) Meaning() wire.Digest {
	k := *m
	k.Summary, k.Scopes, k.Once = "", nil, ""
	k.Args = slices.Clone(m.Args)
	for i := range k.Args {
		k.Args[i].Label, k.Args[i].Help = "", ""
	}
	slices.SortFunc(k.Args, func(a, b Arg) int { return strings.Compare(a.Name, b.Name) })
	b, err := wire.Marshal(&k)
	if err != nil {
		panic(err) // it came out of such bytes
	}
	return wire.Sum(b)
}

// SensitiveAt says whether a call of m that reaches reach is sensitive, design section 5.
func (m *Method) SensitiveAt(reach string) bool {
	return m.Class == Destructive || m.Always || m.Class == Write && reach != ReachNone
}

// ReachOf is the reach of a call: the worst case, unless a Lower applies. private says whether a thing is one that
// the person's settings call private.
func (m *Method) ReachOf(v Values, private func(string) bool) string {
next:
	for _, l := range m.Lower {
		for _, name := range l.Empty {
			if len(v[name]) > 0 {
				continue next
			}
		}
		if !l.When.holds(v) {
			continue
		}
		if l.Private != "" {
			if len(v[l.Private]) == 0 {
				continue
			}
			for _, x := range v[l.Private] {
				if !private(x) {
					continue next
				}
			}
		}
		return l.To
	}
	return m.Reach
}
