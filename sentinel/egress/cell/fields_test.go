// SPDX-License-Identifier: Apache-2.0

package cell

import (
	"bufio"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
)

// TestARequestWithoutHost does not leave: a server of many names would take it for another's. Control: with one it does.
func TestARequestWithoutHost(t *testing.T) {
	r := newReader(t)
	got := make(chan string, 4)
	port := r.bare("vendor-a.test", func(c net.Conn) {
		h := headFrom(bufio.NewReader(c))
		got <- h
		_, _ = io.WriteString(c, "HTTP/1.0 200 OK\r\n\r\nok")
	})
	r.reads("vendor-a.test", &bearerPlace)
	for _, host := range []string{"", "Host: " + strings.TrimPrefix(site("vendor-a.test", port), "https://") + "\r\n"} {
		c := r.tls("vendor-a.test", port, protocolH1)
		_, _ = io.WriteString(c, "GET /x HTTP/1.0\r\n"+host+"Authorization: Bearer "+surrogateA+"\r\n\r\n")
		answer, _ := io.ReadAll(c)
		select {
		case h := <-got:
			if host == "" || !strings.Contains(h, realA) {
				t.Errorf("with %q it arrives: %q", host, h)
			}
		default:
			if host != "" {
				t.Errorf("control: %q", answer)
			}
		}
	}
}

// TestAKeyBehindTheBody: another credential may not come as a trailer either. Control: another trailer does.
func TestAKeyBehindTheBody(t *testing.T) {
	r := newReader(t)
	got := make(chan http.Header, 64)
	port := r.serveTLS(http.HandlerFunc(func(_ http.ResponseWriter, q *http.Request) { _, _ = io.Copy(io.Discard, q.Body); got <- q.Trailer }), "vendor-a.test")
	r.reads("vendor-a.test", &bearerPlace)
	for _, h2 := range []bool{false, true} {
		for _, name := range []string{"X-Api-Key", "Private-Token", "X-Auth-Token", "X-Sum"} {
			q, _ := http.NewRequest("POST", site("vendor-a.test", port)+"/", io.MultiReader(strings.NewReader("{}")))
			q.Trailer = http.Header{name: {"attackers"}}
			q.Header.Set("Authorization", "Bearer "+surrogateA)
			resp, err := r.client(h2).Do(q)
			if err == nil {
				_ = resp.Body.Close()
			}
			arrived := false
			for len(got) > 0 { // also what came late of one before
				arrived = arrived || (<-got).Get(name) != ""
			}
			if arrived != (name == "X-Sum") {
				t.Errorf("h2 %v: %s arrives behind the body, beside the credential: %t (%v)", h2, name, arrived, err)
			}
		}
	}
}
