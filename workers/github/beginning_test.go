// SPDX-License-Identifier: Apache-2.0

package github

import (
	"bytes"
	"errors"
	"io"
	"testing"
	"testing/iotest"
	"unicode/utf8"
)

func TestTheBeginningOfAFileIsExactAndEndsAtACharacter(t *testing.T) {
	text := bytes.Repeat([]byte("aé€😀\n"), 20_000)
	for _, limit := range []int64{1, 2, 3, 4, 5, 32 << 10, 32<<10 + 1, 32<<10 + 3, int64(len(text)) - 1, int64(len(text)), 1 << 30} {
		for name, r := range map[string]io.Reader{
			"whole": bytes.NewReader(text), "half": iotest.HalfReader(bytes.NewReader(text)),
			"with its end": iotest.DataErrReader(bytes.NewReader(text)),
		} {
			b := &beginning{r: r, left: limit}
			got, err := io.ReadAll(iotest.OneByteReader(b))
			if err != nil || !bytes.HasPrefix(text, got) || !utf8.Valid(got) {
				t.Fatalf("%s, %d: %d bytes, %v", name, limit, len(got), err)
			}
			want := min(limit, int64(len(text)))
			if int64(len(got)) > want || int64(len(got)) < want-3 || (b.Note() != "") != (limit < int64(len(text))) {
				t.Errorf("%s, %d: %d bytes, note %q", name, limit, len(got), b.Note())
			}
		}
	}
	broken := &beginning{r: iotest.TimeoutReader(bytes.NewReader(text)), left: 1 << 30}
	if got, err := io.ReadAll(broken); !errors.Is(err, iotest.ErrTimeout) {
		t.Errorf("a body that broke off: %d bytes, %v", len(got), err)
	}
}
