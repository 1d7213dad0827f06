// SPDX-License-Identifier: Apache-2.0

package proxy

import (
	"compress/gzip"
	"crypto/sha256"
	"errors"
	"fmt"
	"hash"
	"io"
	"net/http"
	"strconv"
	"strings"

	"github.com/doorward/doorward/internal/wire"
	"github.com/doorward/doorward/sentinel/egress/head"
	"github.com/doorward/doorward/sentinel/egress/swap"
)

// gather is how much of a body is kept back while more of it is at hand, so that a short answer goes out in one write.
const gather = 64 << 10

// answer carries one answer to the worker: scrubbed, without what only a browser needs, as it comes. c is nil for
// HTTP/2.
func (x *exchange) answer(resp *http.Response, c *h1conn) error {
	if resp.StatusCode < 200 || resp.StatusCode > 599 {
		return afterLeft(errors.New("the server's answer has no usable status"))
	}
	x.sent.Status = resp.StatusCode
	x.remember(resp)
	o := &output{x: x, resp: resp, c: c, left: x.entry.MaxIn, sum: sha256.New()}
	if o.left <= 0 {
		o.left = defaultMaxIn
	}
	if tag := resp.Header["Etag"]; len(tag) == 1 && len(tag[0]) <= 256 {
		x.sent.ETag, _ = x.scrub.Text(blanks(tag[0]), x.repl)
	}
	o.none = x.r.Method == http.MethodHead || resp.StatusCode == http.StatusNoContent ||
		resp.StatusCode == http.StatusNotModified
	zipped := false
	switch coding := strings.ToLower(strings.TrimSpace(strings.Join(resp.Header["Content-Encoding"], ","))); coding {
	case "", "identity":
		if !o.none && resp.ContentLength > o.left {
			return tooLarge()
		}
	case "gzip", "x-gzip":
		zipped = !o.none
		if resp.StatusCode == http.StatusPartialContent {
			return unusable("a part of a compressed answer cannot be searched for the credential")
		}
	default:
		return unusable("it is compressed in a way that cannot be searched for the credential")
	}
	var err error
	if x.out, err = o.appendHead(x.out[:0]); err != nil {
		return err
	}
	x.text = x.text[:0]
	if o.none {
		return o.last()
	}
	most := 2*o.left + gather
	src := &capped{resp.Body, most}
	if zipped {
		z, err := gzip.NewReader(src)
		if err != nil {
			return unusable("it says gzip and is not")
		}
		src = &capped{z, most}
	}
	return o.copy(src, zipped)
}

// capped bounds what is read of an answer. What the worker gets of it has its own bound; but a server can send without
// end what little or nothing comes out of, and egress would read it as long as the worker waits.
type capped struct {
	r    io.Reader
	left int64
}

func (c *capped) Read(p []byte) (int, error) {
	if c.left <= 0 {
		return 0, tooLarge()
	}
	n, err := c.r.Read(p[:min(int64(len(p)), c.left)])
	c.left -= int64(n)
	return n, err
}

// remember notes where the answer redirects to, if anybody may follow it: an address that shows the credential is
// never followed.
func (x *exchange) remember(resp *http.Response) {
	switch resp.StatusCode {
	case http.StatusMovedPermanently, http.StatusFound, http.StatusSeeOther, http.StatusTemporaryRedirect,
		http.StatusPermanentRedirect:
	default:
		return
	}
	location := resp.Header["Location"]
	if len(location) != 1 || x.entry.Scheme != "https" {
		return
	}
	if _, hits := x.scrub.Text(location[0], ""); hits > 0 {
		return
	}
	if u, err := resolveLocation(x.to, location[0]); err == nil {
		x.s.follow.remember(x.sent.Grant, x.resolved.Cell, x.resolved.Account, x.entry.Name, u)
	}
}

// unusable refuses an answer that cannot be let through; the request has left.
func unusable(why string) *refusal {
	return refuse(http.StatusBadGateway, wire.CodeUnknown, nextLook,
		errors.New("the server's answer cannot be used: "+why))
}

// output is one answer on its way to the worker.
type output struct {
	x       *exchange
	resp    *http.Response
	c       *h1conn
	stream  *swap.Stream
	none    bool  // an answer without a body
	left    int64 // bytes of body that the worker may still get
	sum     hash.Hash
	summed  int64 // bytes in sum
	chunked bool  // the head is out, and the body goes out in chunks
}

// dropped headers: of one hop, of the connection to the vendor, for browsers, or no longer true of what was scrubbed.
// Names that end in '-' are prefixes. A vendor's header must never pass for Doorward's own.
var dropped = map[string]bool{
	"Alt-Svc": true, "Clear-Site-Data": true, "Connection": true, "Content-Digest": true, "Content-Encoding": true,
	"Content-Length": true, "Content-Md5": true, "Digest": true, "Http2-Settings": true, "Keep-Alive": true,
	"Nel": true, "Proxy-Authenticate": true, "Proxy-Authentication-Info": true, "Proxy-Connection": true,
	"Public-Key-Pins": true, "Report-To": true, "Repr-Digest": true, "Set-Cookie": true, "Set-Cookie2": true,
	"Strict-Transport-Security": true, "Te": true, "Trailer": true, "Transfer-Encoding": true, "Upgrade": true,
}

func isDropped(name string) bool {
	return dropped[name] || strings.HasPrefix(name, "Doorward-") || !head.IsToken(name)
}

// appendHead writes status line and fields, without the framing and the final empty line.
func (o *output) appendHead(b []byte) ([]byte, error) {
	b = append(b, "HTTP/1.1 "...)
	b = strconv.AppendInt(b, int64(o.resp.StatusCode), 10)
	b = append(b, ' ')
	b = append(b, http.StatusText(o.resp.StatusCode)...)
	b = append(b, "\r\n"...)
	start := len(b)
	for name, values := range o.resp.Header {
		if isDropped(name) {
			continue
		}
		for _, v := range values {
			b = appendField(b, name, v)
		}
	}
	if len(b) > maxHead {
		return nil, unusable("its head is too large")
	}
	if !o.x.scrub.In(b[start:]) {
		return b, nil
	}
	b = b[:start]
	for name, values := range o.resp.Header {
		if isDropped(name) {
			continue
		}
		name, n := o.x.scrub.Text(name, "X-Scrubbed")
		o.x.sent.Swapped += n
		for _, v := range values {
			v, n := o.x.scrub.Text(blanks(v), o.x.repl)
			o.x.sent.Swapped += n
			b = appendField(b, name, v)
		}
	}
	return b, nil
}

// appendField writes one field.
func appendField(b []byte, name, value string) []byte {
	b = append(append(append(b, name...), ": "...), blanks(value)...)
	return append(b, "\r\n"...)
}

// blanks is value with a blank for each byte that would end the line or is no part of a value. It is what is scrubbed, or
// a password with a blank could come as one with a tab.
func blanks(value string) string {
	for i := 0; i < len(value); i++ {
		if c := value[i]; c < ' ' || c == 0x7f {
			b := []byte(value)
			for i, c := range b {
				if c < ' ' || c == 0x7f {
					b[i] = ' '
				}
			}
			return string(b)
		}
	}
	return value
}

// copy carries the body. As long as more of a short one is at hand it is gathered; else what is there goes out, so that
// an event never waits for the next.
func (o *output) copy(src io.Reader, zipped bool) error {
	x := o.x
	o.stream = swap.NewStream(o, x.scrub, x.repl)
	if o.resp.ContentLength < 0 && (o.c == nil || o.c.br.Buffered() == 0) {
		// The body may let wait for itself: events, or a slow listing. Its head does not.
		o.begin()
		if err := o.send(); err != nil {
			return o.fail(err)
		}
	}
	for {
		if o.c != nil && o.c.br.Buffered() == 0 {
			o.c.readBy(silence)
		}
		n, err := src.Read(x.buf)
		x.sent.In += int64(n)
		if n > 0 {
			if _, werr := o.stream.Write(x.buf[:n]); werr != nil {
				return o.fail(werr)
			}
		}
		if err == io.EOF {
			break
		}
		if err != nil {
			return o.fail(broken(err))
		}
		if o.c != nil && !zipped && o.c.br.Buffered() > 0 && len(x.text) < gather || x.sent.In == o.resp.ContentLength {
			continue // the rest, or the end, is at hand
		}
		if err := o.flush(); err != nil {
			return o.fail(err)
		}
	}
	if err := o.stream.Close(); err != nil {
		return o.fail(err)
	}
	x.sent.Swapped += o.stream.Hits
	if err := o.last(); err != nil {
		return o.fail(err)
	}
	return nil
}

func broken(err error) error {
	var ref *refusal
	switch {
	case errors.As(err, &ref):
		return ref
	case isTimeout(err):
		return afterLeft(fmt.Errorf("the server fell silent for %s", silence))
	case errors.Is(err, gzip.ErrChecksum), errors.Is(err, gzip.ErrHeader):
		return afterLeft(errors.New("the server's compressed answer is damaged"))
	}
	return afterLeft(errors.New("the server broke off inside its answer"))
}

// Write takes scrubbed bytes. Of an answer that is longer than it may be, and whose beginning is out, the worker gets
// more than it may have: it has the same bound, and so knows that the answer is too large and not that the server broke
// off.
func (o *output) Write(p []byte) (int, error) {
	o.x.text = append(o.x.text, p...)
	if o.summed += int64(len(p)); o.summed <= wire.MaxWitness {
		o.sum.Write(p)
	}
	if o.left -= int64(len(p)); o.left < 0 {
		if o.chunked {
			_ = o.flush()
		}
		return 0, tooLarge()
	}
	if len(o.x.text) >= gather {
		return len(p), o.flush()
	}
	return len(p), nil
}

// flush sends what there is as one chunk, behind the head if that is still due: of an answer that breaks off the worker
// has the status then, though all of the body so far is held back.
func (o *output) flush() error {
	if len(o.x.text) == 0 && o.chunked {
		return nil
	}
	if !o.chunked {
		o.begin()
	}
	o.chunk()
	return o.send()
}

// chunk puts what there is of the body into one chunk.
func (o *output) chunk() {
	x := o.x
	if len(x.text) == 0 {
		return // an empty one would be the last
	}
	x.out = strconv.AppendInt(x.out, int64(len(x.text)), 16)
	x.out = append(x.out, "\r\n"...)
	x.out = append(x.out, x.text...)
	x.out = append(x.out, "\r\n"...)
	x.text = x.text[:0]
}

// begin ends the head of an answer whose length is not known.
func (o *output) begin() {
	x := o.x
	x.out = append(x.out, "Transfer-Encoding: chunked\r\n"...)
	sep := "Trailer: "
	for name := range o.resp.Trailer {
		if !isDropped(name) {
			name, _ = x.scrub.Text(name, "X-Scrubbed")
			x.out = append(append(x.out, sep...), name...)
			sep = ", "
		}
	}
	if sep == ", " {
		x.out = append(x.out, "\r\n"...)
	}
	if x.closing {
		x.out = append(x.out, "Connection: close\r\n"...)
	}
	x.out = append(x.out, "\r\n"...)
	o.chunked = true
}

func (o *output) send() error {
	if o.x.a.isCut() { // not a byte more, even if it is here already
		return cutOff(true)
	}
	o.x.writeBy(workerTimeout)
	_, err := o.x.c.Write(o.x.out)
	o.x.out = o.x.out[:0]
	if err != nil {
		return afterLeft(errors.New("the worker did not take the answer"))
	}
	return nil
}

// last ends the answer. That of a request that may have changed something is reported before its last byte goes out:
// whatever happens to egress then, sentinel has heard what the worker says.
func (o *output) last() error {
	x := o.x
	switch {
	case o.none:
		if n := o.resp.Header.Get("Content-Length"); x.r.Method == http.MethodHead && isDigits(n) {
			x.out = appendField(x.out, "Content-Length", n)
		}
	case !o.chunked && len(o.resp.Trailer) == 0:
		x.out = append(x.out, "Content-Length: "...)
		x.out = strconv.AppendInt(x.out, int64(len(x.text)), 10)
		x.out = append(x.out, "\r\n"...)
	}
	if o.none || !o.chunked && len(o.resp.Trailer) == 0 {
		if x.closing {
			x.out = append(x.out, "Connection: close\r\n"...)
		}
		x.out = append(x.out, "\r\n"...)
		x.out = append(x.out, x.text...)
	} else {
		if !o.chunked {
			o.begin()
		}
		o.chunk()
		x.out = append(x.out, "0\r\n"...)
		for name, values := range o.resp.Trailer {
			if isDropped(name) {
				continue
			}
			name, n := x.scrub.Text(name, "X-Scrubbed")
			x.sent.Swapped += n
			for _, v := range values {
				v, n := x.scrub.Text(blanks(v), x.repl)
				x.sent.Swapped += n
				x.out = appendField(x.out, name, v)
			}
		}
		x.out = append(x.out, "\r\n"...)
	}
	if x.a.isCut() {
		return cutOff(true)
	}
	x.sent.Complete = true
	if o.summed <= wire.MaxWitness {
		o.sum.Sum(x.sent.Body[:0])
	}
	if isWrite(x.r.Method) {
		x.report()
	}
	x.release()
	o.chunked = true
	return o.send()
}

// fail marks an error after which the worker must not get another answer on this connection.
func (o *output) fail(err error) error {
	if o.stream != nil {
		o.x.sent.Swapped = max(o.x.sent.Swapped, o.stream.Hits)
	}
	if o.chunked {
		return fmt.Errorf("%w: %w", errBegun, err)
	}
	return err
}

func tooLarge() error {
	return refuse(http.StatusBadGateway, wire.CodeTooLarge, "ask for less, or for a page",
		errors.New("the server's answer is larger than this call may read"))
}

func isDigits(s string) bool { return s != "" && len(s) < 19 && strings.Trim(s, "0123456789") == "" }
