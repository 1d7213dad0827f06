// SPDX-License-Identifier: Apache-2.0

package cell

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
)

// errAnswer is wrapped by every refusal of a server's bytes.
var errAnswer = errors.New("not an answer of HTTP/1 that can be read in one way only")

// answerHead is what counts of the head of a server's answer, and its lines.
type answerHead struct {
	Version string
	status  int
	length  int64 // of the body in bytes; -1 is chunked, -2 until the connection ends
	coding  string
	inner   string // coding of messages in the body
	media   string
	close   bool
	size    int
	lines   []string
}

// parseAnswer reads the head that b begins with, as strictly as parseHTTP does: a client that finds another end of the body than
// we do would take a part of it for the answer to its next request.
func parseAnswer(b []byte) (a *answerHead, more bool, err error) {
	end := bytes.Index(b, []byte("\r\n\r\n"))
	if end < 0 {
		return nil, true, nil
	}
	a = &answerHead{size: end + 4, length: -2}
	a.lines = strings.Split(string(b[:end]), "\r\n")
	bad := func(why string) (*answerHead, bool, error) { return nil, false, fmt.Errorf("%s: %w", why, errAnswer) }
	version, rest, _ := strings.Cut(a.lines[0], " ")
	code, _, _ := strings.Cut(rest, " ")
	if version != "HTTP/1.1" && version != "HTTP/1.0" || len(code) != 3 || code[0] < '1' || code[0] > '5' ||
		strings.Trim(code, "0123456789") != "" ||
		strings.ContainsFunc(rest, func(r rune) bool { return r < ' ' && r != '\t' || r == 0x7f }) {
		return bad("its first line")
	}
	a.Version = version
	a.status = int(code[0]-'0')*100 + int(code[1]-'0')*10 + int(code[2]-'0')
	a.close = version == "HTTP/1.0"
	lengths, codings := 0, 0
	for _, line := range a.lines[1:] {
		name, value, ok := cutField(line)
		if !ok {
			return bad("a field line")
		}
		switch name {
		case "content-length":
			n, ok := parseLength(value)
			if !ok || lengths > 0 && n != a.length {
				return bad("Content-Length")
			}
			a.length = n
			lengths++
		case "transfer-encoding":
			if !strings.EqualFold(value, "chunked") {
				return bad("Transfer-Encoding other than chunked")
			}
			codings++
		case "content-encoding":
			a.coding = strings.TrimPrefix(a.coding+","+value, ",")
		case "grpc-encoding", "connect-content-encoding":
			a.inner = strings.TrimPrefix(a.inner+","+value, ",")
		case "content-type":
			a.media = strings.TrimPrefix(a.media+","+value, ",")
		case "connection":
			if hasToken(value, "close") {
				a.close = true
			} else if hasToken(value, "keep-alive") {
				a.close = false
			}
		}
	}
	switch {
	case codings > 1 || codings > 0 && (lengths > 0 || version == "HTTP/1.0"):
		return bad("the length of its body is said twice")
	case codings > 0:
		a.length = -1
	}
	return a, false, nil
}

// nextAnswer reads the next head.
func nextAnswer(src *source) (*answerHead, error) {
	for seen := 0; ; {
		if bytes.Contains(src.b[max(0, seen-3):], []byte("\r\n\r\n")) {
			a, _, err := parseAnswer(src.b)
			return a, err
		}
		seen = len(src.b)
		switch {
		case len(src.b) >= maxAnswerHead:
			return nil, fmt.Errorf("its head is too large: %w", errAnswer)
		case src.err != nil:
			return nil, cutShort(src.err)
		}
		src.read()
	}
}

// text is the head as the client gets it, and how often the credential was taken out of it. body says that there is one, and
// framing, where it is not empty, is what is said of how it goes instead of what the server said.
func (a *answerHead) text(v *verdict, body bool, framing string) (text []byte, hits int) {
	out := append(make([]byte, 0, a.size+256), a.lines[0]...)
	if v.scrub != nil {
		first, n := v.scrub.Text(a.lines[0], v.shown)
		out, hits = append(out[:0], first...), n
	}
	out = append(out, "\r\n"...)
	for _, line := range a.lines[1:] {
		name, value, _ := cutField(line)
		switch {
		case ours(name):
			continue
		case framing != "" && (untrue(name) || name == "transfer-encoding" || name == "content-encoding" || name == "keep-alive"):
			continue
		case framing != "" && name == "connection" && strings.HasPrefix(framing, "Connection"):
			continue
		case v.scrub != nil:
			spelt, _, _ := strings.Cut(line, ":")
			spelt, n := v.scrub.Text(spelt, "x-scrubbed")
			value, m := v.scrub.Text(strings.ReplaceAll(value, "\t", " "), v.shown)
			hits += n + m
			line = spelt + ": " + value
		}
		out = append(append(out, line...), "\r\n"...)
	}
	out = append(out, framing...)
	return append(out, "\r\n"...), hits
}

// flags are those of the messages in it, where it is made of some.
func (a *answerHead) flags() string {
	if a.status != http.StatusOK {
		return ""
	}
	return messageFlags(a.media)
}

type writerFunc func([]byte) error

func (f writerFunc) Write(p []byte) (int, error) {
	if len(p) == 0 {
		return 0, nil
	}
	if err := f(p); err != nil {
		return 0, err
	}
	return len(p), nil
}

// counted counts what is read.
type counted struct {
	r io.Reader
	n *int64
}

func (c *counted) Read(p []byte) (int, error) {
	n, err := c.r.Read(p)
	*c.n += int64(n)
	return n, err
}

// unzip reads gzip. An empty body is one too: some servers say so of what has none.
func unzip(r io.Reader) (io.Reader, error) {
	br := bufio.NewReaderSize(r, fewBytes)
	if _, err := br.Peek(1); errors.Is(err, io.EOF) {
		return br, nil
	}
	z, err := gzip.NewReader(br)
	if err != nil {
		return nil, fmt.Errorf("unzip the answer: %w", err)
	}
	return z, nil
}
