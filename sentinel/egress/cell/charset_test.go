// SPDX-License-Identifier: Apache-2.0

package cell

import (
	"encoding/binary"
	"io"
	"net/http"
	"strings"
	"testing"
	"unicode/utf16"
)

// TestAnswersInOtherAlphabets: a vendor that quotes the credential in the alphabet that was asked for is asked for none, and one that
// answers in such a one unasked is refused. Control: in the usual one it is found and taken out.
func TestAnswersInOtherAlphabets(t *testing.T) {
	r := newReader(t)
	port := r.serveTLS(http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		text := `{"error":"key ` + q.Header.Get("Authorization") + ` is not valid"}`
		if strings.Contains(strings.ToLower(q.Header.Get("Accept-Charset")+q.Header.Get("Accept")+q.URL.RawQuery), "utf-16") {
			w.Header().Set("Content-Type", "application/json; charset=utf-16")
			b := []byte{0xff, 0xfe}
			for _, u := range utf16.Encode([]rune(text)) {
				b = binary.LittleEndian.AppendUint16(b, u)
			}
			w.WriteHeader(401)
			_, _ = w.Write(b)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(401)
		_, _ = io.WriteString(w, text)
	}), "vendor-a.test")
	r.reads("vendor-a.test", &bearerPlace)
	for _, h2 := range []bool{false, true} {
		for _, f := range [][]string{{"Accept", "application/json"}, {"Accept-Charset", "utf-16"}, {"Accept", "application/json;charset=utf-16"},
			{"Accept", `text/x, application/json; charset="utf-16,x"`}} {
			status, body, h := get(t, r.client(h2), "GET", site("vendor-a.test", port)+"/", nil, append(f, "Authorization", "Bearer "+surrogateA)...)
			if status != 401 || !strings.Contains(body, surrogateA) {
				t.Errorf("control: h2 %v, %q: %d %q", h2, f, status, body)
			}
			if strings.Contains(strings.ReplaceAll(body, "\x00", ""), realA) {
				t.Errorf("h2 %v, %q: THE CREDENTIAL IS IN THE CELL, as %s", h2, f, h.Get("Content-Type"))
			}
		}
	}
	for _, h2 := range []bool{false, true} {
		status, body, _ := get(t, r.client(h2), "GET", site("vendor-a.test", port)+"/?utf-16", nil, "Authorization", "Bearer "+surrogateA)
		if status != http.StatusForbidden || strings.Contains(strings.ReplaceAll(body, "\x00", ""), realA) {
			t.Errorf("unasked, h2 %v: %d %q", h2, status, body)
		}
	}
}
