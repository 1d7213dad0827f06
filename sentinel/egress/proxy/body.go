// SPDX-License-Identifier: Apache-2.0

package proxy

import (
	"bufio"
	"fmt"
	"io"
	"net/http/httputil"

	"github.com/doorward/doorward/sentinel/egress/envelope"
	"github.com/doorward/doorward/sentinel/egress/head"
)

// workerBody is the body of one request as the worker sends it.
type workerBody struct {
	br   *bufio.Reader
	r    io.Reader
	left int64 // -1: chunked
	done bool  // read to its end
}

func newBody(br *bufio.Reader, length int64) *workerBody {
	b := &workerBody{br: br, left: length, done: length == 0}
	if length < 0 {
		b.r = httputil.NewChunkedReader(br)
	}
	return b
}

// Read ends with io.EOF only where the worker sent the whole body.
func (b *workerBody) Read(p []byte) (int, error) {
	if b.done {
		return 0, io.EOF
	}
	if b.left >= 0 {
		n, err := b.br.Read(p[:min(int64(len(p)), b.left)])
		b.left -= int64(n)
		switch {
		case b.left == 0:
			b.done = true
			return n, io.EOF
		case err == io.EOF:
			err = io.ErrUnexpectedEOF
		}
		return n, err
	}
	n, err := b.r.Read(p)
	if err == io.EOF {
		line, lerr := b.br.ReadSlice('\n')
		if lerr != nil || string(line) != "\r\n" {
			return n, fmt.Errorf("%w: trailer or broken end of a chunked body", head.ErrMalformed)
		}
		b.done = true
	}
	return n, err
}

// whole reads a body of at most limit bytes to its end.
func (b *workerBody) whole(limit int64) ([]byte, error) {
	if b.left > 0 {
		data := make([]byte, b.left)
		if _, err := io.ReadFull(b, data); err != nil && !b.done {
			return nil, fmt.Errorf("read the body: %w", err)
		}
		return data, nil
	}
	data, err := io.ReadAll(io.LimitReader(b, limit+1))
	if err != nil {
		return nil, fmt.Errorf("read the body: %w", err)
	}
	if int64(len(data)) > limit {
		return nil, fmt.Errorf("%w: body above %d bytes", envelope.ErrOutside, limit)
	}
	return data, nil
}
