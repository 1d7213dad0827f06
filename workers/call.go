// SPDX-License-Identifier: Apache-2.0

package workers

import (
	"bytes"
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"

	"github.com/doorward/doorward/internal/describe"
	"github.com/doorward/doorward/internal/wire"
)

// defaultMaxIn bounds an answer in bytes where the entry names no bound.
const defaultMaxIn = 16 << 20

// largeAnswer is the part of an answer, in bytes, beyond which a call needs one of largeAnswers places: read and parsed, an
// answer takes some times its size, and what a hostile server sends must not take the machine's memory.
const (
	largeAnswer  = 1 << 20
	largeAnswers = 8
)

// Call is one call that is allowed and being run. One goroutine uses it.
type Call struct {
	Method  *describe.Method
	Values  describe.Values
	Account string
	Owner   string // address or login of the account's owner, where known
	Mark    string
	Base    wire.Base
	Raw     bool // a base read: answer the vendor's own bytes, and their ETag as Object

	grant     string
	surrogate string
	place     wire.Placement
	files     []File
	prepared  *File
	fill      *describe.Call
	entries   []wire.Entry
	egress    *client
	open      []io.Closer
	large     chan struct{} // places of calls that hold much of an answer
	holds     bool          // one of them is this call's
	ran       bool          // the vendor took a write
	unsure    bool          // a write left, and whether it ran is not known
}

// File is a sealed file of the call. Its bytes do not change.
type File struct {
	wire.File
	fd int
}

// Reader reads the file from its start.
func (f *File) Reader() io.Reader { return io.NewSectionReader(wire.FDReader(f.fd), 0, f.Size) }

// Files are the files given as argument arg.
func (c *Call) Files(arg string) []File {
	var out []File
	for _, f := range c.files {
		if f.Arg == arg {
			out = append(out, f)
		}
	}
	return out
}

func (c *Call) file(sum wire.Digest) (*File, error) {
	for i := range c.files {
		if c.files[i].SHA256 == sum {
			return &c.files[i], nil
		}
	}
	return nil, errors.New("the call has no such file")
}

// Has says whether the arguments select the entry.
func (c *Call) Has(entry string) bool {
	_, ok := c.entry(entry)
	return ok
}

func (c *Call) entry(name string) (int, bool) {
	for i := range c.entries {
		if c.entries[i].Name == name {
			return i, true
		}
	}
	return 0, false
}

// Option sets what an entry leaves open.
type Option func(*request)

type request struct{ path, accept string }

func with(options []Option) (r request) {
	for _, o := range options {
		o(&r)
	}
	return r
}

// Path is the canonical path of a request by an entry with AnyPath, as it stands in the request line.
func Path(p string) Option { return func(r *request) { r.path = p } }

// Accept is the media type asked for.
func Accept(media string) Option { return func(r *request) { r.accept = media } }

// Do sends the request that the entry describes, once, and returns the vendor's answer whatever its status. An error is
// an *wire.Error: nothing came back, or egress refused.
func (c *Call) Do(ctx context.Context, entry string, options ...Option) (*Response, error) {
	i, ok := c.entry(entry)
	if !ok {
		return nil, fmt.Errorf("send %s: these arguments do not select it", entry)
	}
	e := &c.entries[i]
	if e.Follow != "" {
		return nil, fmt.Errorf("send %s: it follows a redirect", entry)
	}
	in := with(options)
	path := e.Path
	if in.path != "" {
		if !e.AnyPath || !strings.HasPrefix(in.path, e.Path) {
			return nil, fmt.Errorf("send %s: path %q is not below %q", entry, in.path, e.Path)
		}
		path = in.path
	}
	return c.send(ctx, i, authority(e.Scheme, e.Host, e.Port), path, queryOf(e), in.accept)
}

// Follow sends the request of a redirect entry to the Location that from was answered with.
func (c *Call) Follow(ctx context.Context, entry string, from *Response, options ...Option) (*Response, error) {
	i, ok := c.entry(entry)
	if !ok || c.entries[i].Follow == "" {
		return nil, fmt.Errorf("follow %s: no redirect entry that these arguments select", entry)
	}
	in := with(options)
	at, err := url.Parse(from.url)
	if err != nil {
		return nil, fmt.Errorf("follow %s: %w", entry, err)
	}
	to, err := at.Parse(from.Header.Get("Location"))
	if err != nil || to.Host == "" || to.User != nil {
		return nil, wire.Refuse(wire.CodeVendorDown, "the server redirects to an address that is none", "")
	}
	return c.send(ctx, i, strings.ToLower(to.Host), to.EscapedPath(), to.RawQuery, in.accept)
}

func authority(scheme, host string, port int) string {
	if port == 0 || scheme == "https" && port == 443 || scheme == "http" && port == 80 {
		return host
	}
	return host + ":" + strconv.Itoa(port)
}

// queryOf writes the query of e: k=v pairs in the order of the entry, everything but RFC 3986's unreserved encoded.
func queryOf(e *wire.Entry) string {
	var pairs []string
	for _, m := range e.Query {
		for _, v := range m.Values {
			pairs = append(pairs, escape(m.Name)+"="+escape(v))
		}
	}
	return strings.Join(pairs, "&")
}

func escape(s string) string { return strings.ReplaceAll(url.QueryEscape(s), "+", "%20") }

func (c *Call) send(ctx context.Context, i int, host, path, query, accept string) (*Response, error) {
	e := &c.entries[i]
	head := http.Header{
		"User-Agent":     {"doorward"},
		"Doorward-Grant": {c.grant},
		"Doorward-Entry": {strconv.Itoa(i)},
	}
	if accept != "" {
		head.Set("Accept", accept)
	}
	for _, m := range e.Header {
		head[http.CanonicalHeaderKey(m.Name)] = m.Values
	}
	if e.Credential {
		path, query = c.placed(head, path, query)
	}
	body, size, err := c.body(e)
	if err != nil {
		return nil, fmt.Errorf("send %s: %w", e.Name, err)
	}
	if body != nil {
		head.Set("Content-Type", e.Body.Media)
	}
	r := (&http.Request{
		Method: e.Method, Host: host, Header: head, ContentLength: size,
		URL:   &url.URL{Scheme: "http", Host: host, Opaque: path, RawQuery: query},
		Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
	}).WithContext(ctx)
	if body != nil {
		r.Body = io.NopCloser(body)
	}
	write, was := c.writes(e), c.unsure
	c.unsure = was || write
	resp, err := c.egress.roundTrip(ctx, r)
	if err != nil {
		if errors.Is(err, errNotSent) {
			c.unsure = was
			return nil, wire.Refuse(wire.CodeUnavailable, "egress cannot be reached; nothing was sent", "doorward doctor")
		}
		if write {
			return nil, wire.Refuse(wire.CodeUnknown, "the request may have left, and no answer came back",
				"look before repeating it")
		}
		return nil, wire.Refuse(wire.CodeUnavailable, "egress gave no answer: "+cause(ctx, err), "try again later")
	}
	out := &Response{Status: resp.StatusCode, Header: resp.Header, write: write,
		url: e.Scheme + "://" + host + path}
	limit := e.MaxIn
	if limit == 0 {
		limit = defaultMaxIn
	}
	out.Body = &Body{r: resp.Body, left: limit, ctx: ctx, call: c}
	c.open = append(c.open, resp.Body)
	if code := resp.Header.Get("Doorward-Error"); code != "" {
		refusal := egressError(code, out.Body)
		resp.Body.Close()
		switch {
		case refusal.Code != wire.CodeUnknown:
			c.unsure = was
		case write:
		case resp.StatusCode == http.StatusForbidden: // it was ended
			refusal.Code, refusal.Next = wire.CodeRevoked, ""
		default: // what only reads has not run, whatever became of it
			refusal.Code, refusal.Next = wire.CodeVendorDown, "try again later"
		}
		return nil, refusal
	}
	switch s := resp.StatusCode; {
	case !write:
	case s/100 == 2:
		c.ran, c.unsure = true, was
	case s/100 != 5 || s == http.StatusNotImplemented || s == http.StatusInsufficientStorage:
		c.unsure = was // the vendor said no
	}
	return out, nil
}

func cause(ctx context.Context, err error) string {
	if ctx.Err() != nil {
		return "it took too long"
	}
	return err.Error()
}

// writes says whether a request by e can change something at the vendor.
func (c *Call) writes(e *wire.Entry) bool {
	switch e.Method {
	case http.MethodGet, http.MethodHead, "PROPFIND", "REPORT":
		return false
	}
	return c.Method.Class != describe.Read
}

// placed puts the surrogate where the credential goes.
func (c *Call) placed(head http.Header, path, query string) (string, string) {
	head.Set("Doorward-Surrogate", c.surrogate)
	switch p := c.place; p.Kind {
	case "basic":
		pair := p.User + ":" + c.surrogate
		if p.User == "" {
			pair = c.surrogate + ":"
		}
		head.Set("Authorization", "Basic "+base64.StdEncoding.EncodeToString([]byte(pair)))
	case "query":
		if query != "" {
			query += "&"
		}
		query += escape(p.Name) + "=" + escape(c.surrogate)
	case "path":
		path = strings.Replace(path, "{credential}", escape(c.surrogate), 1)
	default: // header
		head.Set(p.Name, p.Prefix+c.surrogate)
	}
	return path, query
}

// body is what e says that the request carries; nil is no body.
func (c *Call) body(e *wire.Entry) (io.Reader, int64, error) {
	switch b := &e.Body; {
	case b.JSON != nil:
		return jsonBody(b.JSON, c.file)
	case b.File != nil:
		f, err := c.file(b.File.SHA256)
		if err != nil {
			return nil, 0, err
		}
		return f.Reader(), f.Size, nil
	case b.Media == "":
		return nil, 0, nil
	}
	for i := range c.Method.Entries {
		t := &c.Method.Entries[i]
		if t.Name != e.Name {
			continue
		}
		if t.Body.Prepared {
			if c.prepared == nil {
				return nil, 0, errors.New("the call has no prepared body")
			}
			return c.prepared.Reader(), c.prepared.Size, nil
		}
		x, err := c.Method.XML(t.Body.XML, c.fill)
		return strings.NewReader(x), int64(len(x)), err
	}
	return nil, 0, errors.New("no template of that name")
}

// close ends what the handler left open.
func (c *Call) close() {
	for _, o := range c.open {
		o.Close()
	}
	if c.holds {
		c.holds = false
		<-c.large
	}
}

// hold waits for a place among the calls that hold much of an answer.
func (c *Call) hold(ctx context.Context) error {
	if c.holds {
		return nil
	}
	select {
	case c.large <- struct{}{}:
		c.holds = true
		return nil
	case <-ctx.Done():
		return wire.Refuse(wire.CodeUnavailable, "too many large answers are being read at once", "try again later, or ask for less")
	}
}

// Response is a vendor's answer.
type Response struct {
	Status int
	Header http.Header
	Body   *Body

	write bool
	url   string
}

// Body is the body of an answer. Its errors are *wire.Error: too_large beyond the entry's bound, vendor_down where it
// broke off.
type Body struct {
	r    io.Reader
	left int64
	ctx  context.Context
	call *Call
	read int64
	err  error
}

// Read never returns a body that broke off as if it had ended.
func (b *Body) Read(p []byte) (int, error) {
	if b.err != nil {
		return 0, b.err
	}
	if b.left == 0 { // is it at its end, or longer than it may be?
		var one [1]byte
		n, err := b.r.Read(one[:])
		if n > 0 {
			err = wire.Refuse(wire.CodeTooLarge, "the server's answer is larger than this method takes", "ask for less")
		}
		return 0, b.fail(err)
	}
	n, err := b.r.Read(p[:min(int64(len(p)), b.left)])
	b.left -= int64(n)
	if b.read += int64(n); b.read > largeAnswer {
		if err := b.call.hold(b.ctx); err != nil {
			return 0, b.fail(err)
		}
	}
	return n, b.fail(err)
}

func (b *Body) fail(err error) error {
	var refusal *wire.Error
	switch {
	case err == nil || err == io.EOF || errors.As(err, &refusal):
	case b.ctx.Err() != nil:
		err = wire.Refuse(wire.CodeVendorDown, "the server's answer took too long", "try again later, or ask for less")
	default:
		err = wire.Refuse(wire.CodeVendorDown, "the server's answer broke off", "try again later")
	}
	b.err = err
	return err
}

// Bytes reads the whole body.
func (r *Response) Bytes() ([]byte, error) {
	var b bytes.Buffer
	if _, err := b.ReadFrom(r.Body); err != nil {
		return nil, err
	}
	return b.Bytes(), nil
}
