// SPDX-License-Identifier: Apache-2.0

package proxy

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"errors"
	"fmt"
	"html"
	"io"
	"math/big"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"os"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/doorward/doorward/internal/daemon"
	"github.com/doorward/doorward/internal/wire"
	"github.com/doorward/doorward/sentinel/egress/guard"
)

func TestCase_LK03_RedirectCarriesNothing(t *testing.T) {
	c := newCA(t)
	evil := startVendor(t, c.leaf(t, hour(), "evil.test", "127.0.0.1"), func(http.ResponseWriter, *http.Request) {})
	var location string
	v := startVendor(t, c.leaf(t, hour(), "vendor-a.test"), func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/a" {
			w.Header().Set("Location", location)
			w.WriteHeader(302)
		}
	})
	evilPort := evil.addr.Port()
	places := []struct {
		p      wire.Placement
		header string // where the surrogate stands
	}{
		{bearer, "Authorization"}, {wire.Placement{Kind: "header", Name: "X-Api-Key"}, "X-Api-Key"},
		{wire.Placement{Kind: "header", Name: "PRIVATE-TOKEN"}, "Private-Token"},
		{wire.Placement{Kind: "header", Name: "Cookie", Prefix: "session="}, "Cookie"}, {wire.Placement{Kind: "query",
			Name: "key"}, ""},
	}
	for _, place := range places {
		for _, loc := range []string{
			fmt.Sprintf("https://evil.test:%d/x", evilPort), fmt.Sprintf("https://vendor-a.test:%d/x", evilPort),
			fmt.Sprintf("http://vendor-a.test:%d/x", v.addr.Port()), fmt.Sprintf("//evil.test:%d/x", evilPort), "/same",
			"relative",
		} {
			location = loc
			w := newWorld(t)
			w.dns["evil.test."] = []netip.Addr{evil.addr.Addr()}
			both := func(r *wire.ResolveResp) {
				r.Placement, r.Permit = place.p, []string{v.addr.String(), evil.addr.String()}
			}
			w.grant("g", c, v.addr, both)
			// Entry 1 follows with the credential: only to the very authority. Entry 2 follows to evil.test without it.
			w.grant("g", c, v.addr, both, func(r *wire.ResolveResp) { r.Entry.Follow, r.Entry.Path = "e0", "" })
			w.grant("g", c, v.addr, both, func(r *wire.ResolveResp) {
				r.Secret, r.Entry.Credential, r.Entry.Follow, r.Entry.Path = "", false, "e0", ""
				r.Entry.Host, r.Entry.Port = "evil.test", int(evilPort)
			})
			ask := func(host, target string, entry int, credential bool) (*http.Response, string, error) {
				if credential && place.header == "" {
					target += "?key=" + sur
				}
				req := w.request("GET", host, target, "g", entry, nil)
				req.Header.Del("Authorization")
				if !credential {
					req.Header.Del(HeaderSurrogate)
				} else if place.header != "" {
					req.Header.Set(place.header, place.p.Prefix+sur)
				}
				return w.do(req)
			}
			before := len(evil.seen())
			// Not before it was received.
			resp, _, err := ask(fmt.Sprintf("evil.test:%d", evilPort), "/x", 2, false)
			w.wantRefusal(err, wire.CodeBadEnvelope, 403, resp)

			resp, _, err = ask(fmt.Sprintf("vendor-a.test:%d", v.addr.Port()), "/a", 0, true)
			if err != nil || resp.StatusCode != 302 || resp.Header.Get("Location") != loc {
				t.Fatalf("%s: %v, %+v", loc, err, resp)
			}
			if n := len(evil.seen()); n != before {
				t.Fatalf("%s: egress followed by itself", loc)
			}
			// With the credential to wherever it points: never, but to the same authority.
			for _, host := range []string{fmt.Sprintf("evil.test:%d", evilPort), fmt.Sprintf("vendor-a.test:%d", evilPort)} {
				if resp, _, err = ask(host, "/x", 1, true); err == nil {
					t.Errorf("%s: followed with the credential to %s", loc, host)
				}
			}
			resp, _, err = ask(fmt.Sprintf("vendor-a.test:%d", v.addr.Port()), "/same", 1, true)
			if follows := place.header != ""; loc == "/same" && follows && (err != nil || resp.StatusCode != 200) {
				t.Errorf("same authority: %v", err)
			} else if loc != "/same" && err == nil {
				t.Errorf("%s: followed to /same", loc)
			}
			// Without the credential, exactly where it points.
			_, _, err = ask(fmt.Sprintf("evil.test:%d", evilPort), "/x", 2, false)
			if points := strings.Contains(loc, "//evil.test"); points != (err == nil) {
				t.Errorf("%s: without the credential: %v", loc, err)
			}
			if resp, _, err := ask(fmt.Sprintf("evil.test:%d", evilPort), "/y", 2, false); err == nil {
				t.Errorf("%s: another path was followed: %+v", loc, resp)
			}
			for _, s := range evil.seen() {
				noSecret(t, fmt.Sprint(s.Header), s.Target, string(s.Body))
				if strings.Contains(fmt.Sprint(s.Header)+s.Target, sur) {
					t.Error("the surrogate was carried to another host")
				}
			}
			noSecret(t, w.log())
		}
	}
	// 307 and 308 ask for the body to be sent again, elsewhere. Egress passes that on and sends nothing; without an entry
	// for it no worker can.
	for _, status := range []int{307, 308} {
		body := []byte(`{"a":"b"}`)
		asks := startVendor(t, c.leaf(t, hour(), "vendor-a.test"), func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Location", fmt.Sprintf("https://evil.test:%d/x", evilPort))
			w.WriteHeader(status)
		})
		w := newWorld(t)
		w.dns["evil.test."] = []netip.Addr{evil.addr.Addr()}
		w.grant("g", c, asks.addr, func(r *wire.ResolveResp) {
			r.Entry.Method, r.Permit = "POST", []string{asks.addr.String(), evil.addr.String()}
			r.Entry.Body = wire.Body{Media: "application/json", SHA256: wire.Sum(body)}
		})
		before := len(evil.seen())
		for host, ok := range map[string]bool{fmt.Sprintf("vendor-a.test:%d", asks.addr.Port()): true,
			fmt.Sprintf("evil.test:%d", evilPort): false} {
			req := w.request("POST", host, "/a", "g", 0, bytes.NewReader(body))
			req.Header.Set("Content-Type", "application/json")
			resp, _, err := w.do(req)
			if ok && (err != nil || resp.StatusCode != status) || !ok && err == nil {
				t.Errorf("%d at %s: %v, %+v", status, host, err, resp)
			}
		}
		if n := len(evil.seen()) - before; n != 0 {
			t.Errorf("%d: the body was sent on", status)
		}
	}
	// Control: the same redirect followed by Go's client carries a custom key header along.
	location = fmt.Sprintf("https://127.0.0.1:%d/x", evilPort)
	client := &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}}
	req, _ := http.NewRequestWithContext(t.Context(), "GET", fmt.Sprintf("https://%s/a", v.addr), nil)
	req.Header.Set("X-Api-Key", secret)
	resp, err := client.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	_ = resp.Body.Close()
	all := evil.seen()
	if all[len(all)-1].Header.Get("X-Api-Key") != secret {
		t.Error("control: the custom header was not carried along, so this test shows nothing")
	}
}

func TestCase_LK04_VendorQuotesTheKey(t *testing.T) {
	c := newCA(t)
	b64 := base64.StdEncoding.EncodeToString([]byte("xx" + secret + "yy"))
	forms := map[string]string{"plain": secret, "base64": b64,
		"url base64": base64.RawURLEncoding.EncodeToString([]byte("x" + secret)),
		"percent":    strings.ReplaceAll(url.QueryEscape(secret), "-", "%2D"),
		"json":       strings.ReplaceAll(secret, "-", `\u002d`),
		"html":       strings.ReplaceAll(html.EscapeString(secret), "-", "&#45;")}
	inside := b64[4:20]
	for _, proto := range []string{"HTTP/1.1", "HTTP/2.0"} {
		for name, form := range forms {
			for _, zip := range []bool{false, true} {
				t.Run(fmt.Sprintf("%s %s zipped %v", proto, name, zip), func(t *testing.T) {
					v := startVendor(t, c.leaf(t, hour(), "vendor-a.test"), func(w http.ResponseWriter, r *http.Request) {
						w.Header().Set("Www-Authenticate", `Bearer error="`+form+`"`)
						w.Header().Set("Location", "/x?key="+strings.ReplaceAll(form, "\\", ""))
						w.Header().Set("Set-Cookie", "k="+secret)
						w.Header().Set("X-"+secret[4:8], form)
						w.Header().Set("Trailer", "X-Echo")
						w.Header().Set("Content-Digest", "sha-256=:abc=:")
						text := `{"error":"key ` + form + ` is not valid"}` + "\n" + form + "\n"
						var out io.Writer = w
						if zip {
							w.Header().Set("Content-Encoding", "gzip")
							z := gzip.NewWriter(w)
							defer z.Close()
							out = z
						} else {
							w.Header().Set("Content-Length", fmt.Sprint(len(text)))
							if r.ProtoMajor == 1 {
								w.Header().Del("Content-Length") // for the trailer
							}
						}
						w.WriteHeader(401)
						for i := range len(text) { // every border between two bytes
							_, _ = io.WriteString(out, text[i:i+1])
							if i%7 == 0 && !zip {
								_ = http.NewResponseController(w).Flush()
							}
						}
						w.Header().Set("X-Echo", form)
					})
					w := newWorld(t, func(s *Server) {
						if proto == "HTTP/2.0" {
							s.H2After = -1
						}
					})
					w.grant("g", c, v.addr)
					req := w.request("GET", fmt.Sprintf("vendor-a.test:%d", v.addr.Port()), "/a", "g", 0, nil)
					if zip {
						req.Header.Set("Accept-Encoding", "br, gzip")
					}
					resp, body, err := w.do(req)
					if err != nil || resp.StatusCode != 401 {
						t.Fatalf("%v, %+v", err, resp)
					}
					all := fmt.Sprint(resp.Header, resp.Trailer) + body
					for _, f := range append([]string{form, inside}, secret) {
						if strings.Contains(all, f) {
							t.Errorf("%q came through: %q", f, all)
						}
					}
					if strings.Count(body, sur) != 2 || !strings.HasPrefix(body, `{"error":"key `) || !strings.Contains(body,
						` is not valid"}`) {
						t.Errorf("body %q", body)
					}
					if resp.Trailer.Get("X-Echo") == "" || resp.Header.Get("Set-Cookie") != "" ||
						resp.Header.Get("Content-Digest") != "" {
						t.Errorf("headers %v, trailers %v", resp.Header, resp.Trailer)
					}
					if s := w.sent(1)[0]; s.Swapped < 4 || !s.Complete || s.Status != 401 {
						t.Errorf("the swap is not on record: %+v", s)
					}
					if got := v.seen()[0].Header.Get("Accept-Encoding"); (got == "gzip") != zip {
						t.Errorf("Accept-Encoding %q", got)
					}
					noSecret(t, w.log())

					// Control: under an entry without the credential there is nothing to search for, and the same answer
					// shows it wherever it was scrubbed above.
					w.dns["vendor-a.test."] = []netip.Addr{v.addr.Addr()}
					w.grant("bare", c, v.addr, func(r *wire.ResolveResp) {
						r.Secret, r.Scrub, r.Entry.Credential = "", nil, false
					})
					req = w.request("GET", fmt.Sprintf("vendor-a.test:%d", v.addr.Port()), "/a", "bare", 0, nil)
					req.Header.Del("Authorization")
					req.Header.Del(HeaderSurrogate)
					if zip {
						req.Header.Set("Accept-Encoding", "gzip")
					}
					resp, body, err = w.do(req)
					if err != nil || strings.Count(body, form) != 2 || !strings.Contains(resp.Header.Get("Www-Authenticate"), form) ||
						!strings.Contains(resp.Header.Get("Location"), strings.ReplaceAll(form, "\\", "")) ||
						resp.Trailer.Get("X-Echo") != form {
						t.Errorf("control: %v, %+v, %q", err, resp, body)
					}
				})
			}
		}
	}
}

// The control of what is scrubbed is TestCase_LK04_VendorQuotesTheKey; here the events that hold nothing, which arrive
// as they are and before the next one is sent, show that the stream is not just held or closed.
func TestCase_LK04_ServerSentEventsAreScrubbedAtOnce(t *testing.T) {
	c := newCA(t)
	next := make(chan struct{})
	v := startVendor(t, c.leaf(t, hour(), "vendor-a.test"), func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream")
		_ = http.NewResponseController(w).Flush()
		for _, event := range []string{"data: hello\n\n", ": keep-alive\n\n", "data: your key " + secret + "\n\n",
			"data: g\n\n"} {
			<-next
			_, _ = io.WriteString(w, event)
			_ = http.NewResponseController(w).Flush()
		}
	})
	w := newWorld(t)
	w.grant("g", c, v.addr)
	resp, err := w.client.Do(w.request("GET", fmt.Sprintf("vendor-a.test:%d", v.addr.Port()), "/a", "g", 0, nil))
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	buf := make([]byte, 4096)
	for _, want := range []string{"data: hello\n\n", ": keep-alive\n\n", "data: your key " + sur + "\n\n", "data: g\n\n"} {
		next <- struct{}{} // the server sends the next one only now, so whatever is held back would block here
		got := ""
		for len(got) < len(want) {
			n, err := resp.Body.Read(buf)
			if got += string(buf[:n]); err != nil {
				break
			}
		}
		if got != want {
			t.Fatalf("got %q, want %q", got, want)
		}
	}
}

func TestCase_LK07_AccessLogKeepsNoValues(t *testing.T) {
	c := newCA(t)
	v := startVendor(t, c.leaf(t, hour(), "vendor-a.test"), func(w http.ResponseWriter, r *http.Request) {})
	w := newWorld(t)
	host := fmt.Sprintf("vendor-a.test:%d", v.addr.Port())
	const value = "VALUE-that-must-not-be-logged"
	body := "token=" + value
	for i, p := range []wire.Placement{bearer, {Kind: "header", Name: "Cookie", Prefix: "s="}, {Kind: "header",
		Name: "X-Goog-Api-Key"},
		{Kind: "query", Name: "key"}, {Kind: "path", Prefix: "bot"}, {Kind: "basic", User: "ada"}} {
		for _, allowed := range []bool{true, false} {
			g := fmt.Sprintf("g%d%v", i, allowed)
			w.grant(g, c, v.addr, func(r *wire.ResolveResp) {
				r.Placement, r.Entry.Method = p, "POST"
				r.Entry.Query = []wire.Match{{Name: "q", Any: true}}
				r.Entry.Header = []wire.Match{{Name: "X-Note", Any: true}}
				r.Entry.Body = wire.Body{Media: "application/x-www-form-urlencoded", SHA256: wire.Sum([]byte(body))}
				if !allowed {
					r.Entry.Body.SHA256[0]++
				}
				if p.Kind == "path" {
					r.Entry.Path = "/bot{credential}/send"
				}
			})
			target, auth, name := "/a?q="+value, "", ""
			switch p.Kind {
			case "header":
				name, auth = p.Name, p.Prefix+sur
			case "basic":
				name, auth = "Authorization", "Basic "+base64.StdEncoding.EncodeToString([]byte("ada:"+sur))
			case "query":
				target += "&key=" + sur
			case "path":
				target = "/bot" + sur + "/send?q=" + value
			}
			req := w.request("POST", host, target, g, 0, strings.NewReader(body))
			req.Header.Del("Authorization")
			if name != "" {
				req.Header.Set(name, auth)
			}
			req.Header.Set("X-Note", value)
			req.Header.Set("Content-Type", "application/x-www-form-urlencoded")
			if _, _, err := w.do(req); (err == nil) != allowed {
				t.Errorf("%s: %v", g, err)
			}
		}
	}
	reports := fmt.Sprintf("%+v", w.sent(12))
	log := w.log()
	for _, bad := range []string{value, secret, sur, "/send", base64.StdEncoding.EncodeToString([]byte("ada:"))[:5]} {
		if strings.Contains(log, bad) {
			t.Errorf("the log has %q", bad)
		}
		if strings.Contains(reports, bad) {
			t.Errorf("the reports have %q", bad)
		}
	}
	if !strings.Contains(log, "X-Note") || !strings.Contains(log, "vendor-a.test") || !strings.Contains(log,
		"outside_envelope") {
		t.Errorf("the log lacks names: %s", log)
	}
	if len(v.seen()) != 6 {
		t.Errorf("%d requests at the vendor", len(v.seen()))
	}
}

func TestCase_SW02_CredentialThatWouldAddAHeader(t *testing.T) {
	c := newCA(t)
	v := startVendor(t, c.leaf(t, hour(), "vendor-a.test"), func(w http.ResponseWriter, r *http.Request) {})
	w := newWorld(t)
	w.grant("g", c, v.addr, func(r *wire.ResolveResp) {
		r.Secret = "a\"b&c=d%\r\nX-Evil: 1"
		r.Scrub = []string{r.Secret}
	})
	resp, _, err := w.get(v.addr, "/a", "g")
	w.wantRefusal(err, wire.CodeBadCredential, 403, resp)
	if v.conns() != 0 {
		t.Error("it left")
	}
	// Control: without the line break it is one header, as it is.
	w.grant("one", c, v.addr, func(r *wire.ResolveResp) {
		r.Secret = "a\"b&c=d%"
		r.Scrub = []string{r.Secret}
	})
	if _, _, err := w.get(v.addr, "/a", "one"); err != nil {
		t.Fatalf("control: %v", err)
	}
	if got := v.seen()[0].Header; got.Get("Authorization") != `Bearer a"b&c=d%` || got.Get("X-Evil") != "" {
		t.Errorf("control: the vendor got %v", got)
	}
}

// endless gives n bytes without holding them.
type endless struct{ n int64 }

func (e *endless) Read(p []byte) (int, error) {
	if e.n == 0 {
		return 0, io.EOF
	}
	n := 0
	for n < len(p) && int64(n) < e.n {
		n += copy(p[n:min(int64(len(p)), e.n)], pattern)
	}
	e.n -= int64(n)
	return n, nil
}

var pattern = bytes.Repeat([]byte("what a long file has in it, "), 1000)

func TestCase_SW04_HeaderSwapWhateverTheBody(t *testing.T) {
	c := newCA(t)
	var got int64
	var sum wire.Digest
	v := startVendor(t, c.leaf(t, hour(), "vendor-a.test"), func(w http.ResponseWriter, r *http.Request) {
		h := sha256.New()
		got, _ = io.Copy(h, r.Body)
		sum = wire.Digest(h.Sum(nil))
		if r.Header.Get("Authorization") != "Bearer "+secret {
			w.WriteHeader(401)
			return
		}
		w.WriteHeader(201)
	})
	for _, h2 := range []int{16, -1} {
		w := newWorld(t, func(s *Server) { s.H2After = h2 })
		for i, size := range []int64{0, 1, 1<<20 - 1, 1 << 20, 1<<20 + 1, 200 << 20} {
			if size > 2<<20 && (testing.Short() || h2 < 0) {
				continue
			}
			h := sha256.New()
			_, _ = io.Copy(h, &endless{size})
			want := wire.Digest(h.Sum(nil))
			g := fmt.Sprint("g", i)
			w.grant(g, c, v.addr, func(r *wire.ResolveResp) {
				r.Entry.Method = "PUT"
				r.Entry.Body = wire.Body{Media: "application/octet-stream", File: &wire.FileBody{SHA256: want, Size: size}}
			})
			got = -1
			var before, after runtime.MemStats
			runtime.GC()
			runtime.ReadMemStats(&before)
			req := w.request("PUT", fmt.Sprintf("vendor-a.test:%d", v.addr.Port()), "/a", g, 0, &endless{size})
			if req.ContentLength = size; size == 0 {
				req.Body = http.NoBody
			}
			req.Header.Set("Content-Type", "application/octet-stream")
			resp, _, err := w.do(req)
			runtime.ReadMemStats(&after)
			if err != nil || resp.StatusCode != 201 || got != size || sum != want {
				t.Errorf("%d bytes, h2 %d: %v, %+v, %d arrived", size, h2, err, resp, got)
			}
			if grown := int64(after.TotalAlloc - before.TotalAlloc); grown > 32<<20 {
				t.Errorf("%d bytes: %d bytes were allocated", size, grown)
			}
		}
		for _, s := range w.sent(len(w.grants)) {
			if !s.Complete {
				t.Errorf("%+v", s)
			}
		}
	}
	// A surrogate in a body is no swap position: it stays as it is, and a bound body that is too large to check is
	// refused with words, never sent half done.
	w := newWorld(t)
	big := bytes.Repeat([]byte(sur), (3<<20)/len(sur))
	w.grant("g", c, v.addr, func(r *wire.ResolveResp) {
		r.Entry.Method = "PUT"
		r.Entry.Body = wire.Body{Media: "text/plain", SHA256: wire.Sum(big)}
	})
	before := len(v.seen())
	req := w.request("PUT", fmt.Sprintf("vendor-a.test:%d", v.addr.Port()), "/a", "g", 0, bytes.NewReader(big))
	req.Header.Set("Content-Type", "text/plain")
	resp, _, err := w.do(req)
	w.wantRefusal(err, wire.CodeBadEnvelope, 403, resp)
	if len(v.seen()) != before {
		t.Error("a part of it left")
	}
	// Control: one that is small enough to check is sent, the surrogate in it as it is.
	small := big[:1000*len(sur)]
	w.grant("small", c, v.addr, func(r *wire.ResolveResp) {
		r.Entry.Method = "PUT"
		r.Entry.Body = wire.Body{Media: "text/plain", SHA256: wire.Sum(small)}
	})
	req = w.request("PUT", fmt.Sprintf("vendor-a.test:%d", v.addr.Port()), "/a", "small", 0, bytes.NewReader(small))
	req.Header.Set("Content-Type", "text/plain")
	if _, _, err := w.do(req); err != nil || sum != wire.Sum(small) {
		t.Errorf("control: %v, %d bytes arrived", err, got)
	}
}

func TestCase_SW05_BodiesArriveWholeOrNotAtAll(t *testing.T) {
	c := newCA(t)
	v := startVendor(t, c.leaf(t, hour(), "vendor-a.test"), func(w http.ResponseWriter, r *http.Request) {
		_, err := io.Copy(io.Discard, r.Body)
		if err != nil {
			panic(http.ErrAbortHandler)
		}
	})
	multipart := "--b\r\nContent-Disposition: form-data; name=\"f\"; filename=\"x\"\r\n\r\n\x00\xff\r\n--b--\r\n"
	jsonBody := `{"a": "\u0062", "n":1}`
	for _, h2 := range []int{16, -1} {
		w := newWorld(t, func(s *Server) { s.H2After = h2 })
		host := fmt.Sprintf("vendor-a.test:%d", v.addr.Port())
		for name, x := range map[string]struct {
			media, text string
			body        wire.Body
		}{
			"multipart": {"multipart/form-data", multipart, wire.Body{Media: "multipart/form-data",
				SHA256: wire.Sum([]byte(multipart))}},
			"json": {"application/json", jsonBody, wire.Body{Media: "application/json", JSON: []wire.Leaf{{Pointer: "/a",
				Value: []byte(`"b"`)},
				{Pointer: "/n", Value: []byte(`1`)}}}},
		} {
			for _, chunked := range []bool{false, true} {
				g := fmt.Sprint(name, chunked)
				w.grant(g, c, v.addr, func(r *wire.ResolveResp) { r.Entry.Method, r.Entry.Body = "POST", x.body })
				var body io.Reader = strings.NewReader(x.text)
				if chunked {
					body = struct{ io.Reader }{body}
				}
				req := w.request("POST", host, "/a", g, 0, body)
				req.Header.Set("Content-Type", x.media)
				if _, _, err := w.do(req); err != nil {
					t.Fatalf("%s: %v", g, err)
				}
				all := v.seen()
				if last := all[len(all)-1]; string(last.Body) != x.text || last.Err != nil {
					t.Errorf("%s: the vendor got %q, %v", g, last.Body, last.Err)
				}
			}
		}
		// A worker that breaks off after half of a file: aborted at the vendor, not passed on as complete.
		file := bytes.Repeat([]byte("x"), 900<<10)
		w.grant("file", c, v.addr, func(r *wire.ResolveResp) {
			r.Entry.Method = "PUT"
			r.Entry.Body = wire.Body{Media: "text/plain", File: &wire.FileBody{SHA256: wire.Sum(file), Size: int64(len(file))}}
		})
		for name, part := range map[string][]byte{"half": file[:len(file)/2], "other": append(bytes.Repeat([]byte("x"),
			len(file)-1), 'y')} {
			before := len(v.seen())
			conn, _ := w.dial()
			fmt.Fprint(conn, rawHead("PUT", host, "/a", "file", 0,
				fmt.Sprintf("Content-Type: text/plain\r\nContent-Length: %d\r\n", len(file))))
			_, _ = conn.Write(part)
			if name == "half" {
				_ = conn.Close()
			}
			var last seen
			for range 500 {
				if all := v.seen(); len(all) > before {
					last = all[len(all)-1]
					break
				}
				time.Sleep(10 * time.Millisecond)
			}
			if last.Err == nil || len(last.Body) >= len(file) {
				t.Errorf("%s, h2 %d: the vendor took %d bytes for the whole: %v", name, h2, len(last.Body), last.Err)
			}
		}
		reports := w.sent(6)
		for _, s := range reports[4:] {
			if s.Complete || s.Err == nil || !s.Left {
				t.Errorf("report of a broken body %+v", s)
			}
		}
		// A body that is read whole and broken off: not a byte leaves.
		w.grant("json", c, v.addr, func(r *wire.ResolveResp) {
			r.Entry.Method, r.Entry.Body = "POST", wire.Body{Media: "application/json", SHA256: wire.Sum([]byte(jsonBody))}
		})
		before := len(v.seen())
		conn, _ := w.dial()
		fmt.Fprint(conn, rawHead("POST", host, "/a", "json", 0,
			fmt.Sprintf("Content-Type: application/json\r\nContent-Length: %d\r\n", len(jsonBody)))+jsonBody[:5])
		_ = conn.Close()
		if s := w.sent(7)[6]; s.Left || s.Err == nil {
			t.Errorf("report %+v", s)
		}
		if len(v.seen()) != before {
			t.Error("it left")
		}
	}
}

func TestCase_HT05_EveryRequestIsJudgedAlone(t *testing.T) {
	c := newCA(t)
	v := startVendor(t, c.leaf(t, hour(), "vendor-a.test"), func(w http.ResponseWriter,
		r *http.Request) {
		fmt.Fprint(w, "ok")
	})
	w := newWorld(t)
	w.grant("g", c, v.addr, func(r *wire.ResolveResp) { r.Entry.Path = "/allowed" })
	host := fmt.Sprintf("vendor-a.test:%d", v.addr.Port())
	allowed := rawHead("GET", host, "/allowed", "g", 0, "")
	forbidden := rawHead("DELETE", host, "/forbidden", "g", 0, "")
	elsewhere := rawHead("GET", "vendor-b.test", "/allowed", "g", 0, "")
	bare := "GET /allowed HTTP/1.1\r\nHost: " + host + "\r\n\r\n" // without words of its own
	for name, writes := range map[string][]string{
		"one by one": {allowed, forbidden, elsewhere, bare, allowed},
		"pipelined":  {allowed + forbidden + elsewhere + bare + allowed},
	} {
		before := len(v.seen())
		conn, br := w.dial()
		var got []int
		read := func() {
			resp, err := http.ReadResponse(br, nil)
			if err != nil {
				t.Fatalf("%s: after %v: %v", name, got, err)
			}
			_, _ = io.Copy(io.Discard, resp.Body)
			got = append(got, resp.StatusCode)
		}
		for _, s := range writes {
			if _, err := io.WriteString(conn, s); err != nil {
				t.Fatal(err)
			}
			for range strings.Count(s, "HTTP/1.1") {
				read()
			}
		}
		if fmt.Sprint(got) != "[200 403 421 403 200]" {
			t.Errorf("%s: %v", name, got)
		}
		if n := len(v.seen()) - before; n != 2 {
			t.Errorf("%s: %d requests at the vendor", name, n)
		}
	}
	for _, s := range v.seen() {
		if s.Method != "GET" || s.Target != "/allowed" {
			t.Errorf("the vendor got %+v", s)
		}
	}
	// Control: under a grant that lists both, the same two on one connection, pipelined, are both sent. So it was the
	// envelope that refused the second one, and neither the vendor nor the connection.
	w.grant("both", c, v.addr, func(r *wire.ResolveResp) { r.Entry.Path = "/allowed" })
	w.grant("both", c, v.addr, func(r *wire.ResolveResp) { r.Entry.Method, r.Entry.Path = "DELETE", "/forbidden" })
	both, answers := w.dial()
	fmt.Fprint(both, rawHead("GET", host, "/allowed", "both", 0, "")+rawHead("DELETE", host, "/forbidden", "both", 1, ""))
	for range 2 {
		resp, err := http.ReadResponse(answers, nil)
		if err != nil || resp.StatusCode != 200 {
			t.Fatalf("control: %v, %+v", err, resp)
		}
		_, _ = io.Copy(io.Discard, resp.Body)
	}
	if all := v.seen(); all[len(all)-1].Method != "DELETE" {
		t.Error("control: the second request did not reach the vendor, so this test shows nothing")
	}
	// Smuggling: a body that holds a request, and two lengths.
	before := len(v.seen())
	conn, br := w.dial()
	fmt.Fprint(conn, rawHead("GET", host, "/allowed", "g", 0,
		fmt.Sprintf("Content-Length: %d\r\nTransfer-Encoding: chunked\r\n", len(forbidden)))+forbidden)
	resp, err := http.ReadResponse(br, nil)
	if err != nil || resp.StatusCode != 400 || !resp.Close {
		t.Errorf("two framings: %v, %+v", err, resp)
	}
	if len(v.seen()) != before {
		t.Error("a smuggled request left")
	}
}

// selfSigned is a server's certificate that only itself vouches for.
func selfSigned(t *testing.T, name string) tls.Certificate {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	tmpl := &x509.Certificate{SerialNumber: big.NewInt(3), NotBefore: time.Now().Add(-time.Hour), NotAfter: hour(),
		DNSNames: []string{name}, KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}}
	der, err := x509.CreateCertificate(rand.Reader, tmpl, tmpl, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}
}

func TestCase_HT06_UpstreamCertificateIsVerified(t *testing.T) {
	good, other := newCA(t), newCA(t)
	for name, x := range map[string]struct {
		cert tls.Certificate
		say  string
	}{
		"signed by another root": {other.leaf(t, hour(), "vendor-a.test"), "not signed by a CA that this account trusts"},
		"self-signed":            {selfSigned(t, "vendor-a.test"), "not signed by a CA that this account trusts"},
		"expired":                {good.leaf(t, time.Now().Add(-time.Minute), "vendor-a.test"), "expired"},
		"wrong name":             {good.leaf(t, hour(), "vendor-b.test"), "another name"},
		"address for a name":     {good.leaf(t, hour(), "127.0.0.1"), "another name"},
	} {
		t.Run(name, func(t *testing.T) {
			v := startVendor(t, x.cert, func(http.ResponseWriter, *http.Request) {})
			w := newWorld(t)
			w.grant("g", good, v.addr)
			resp, _, err := w.get(v.addr, "/a", "g")
			w.wantRefusal(err, wire.CodeVendorDown, 502, resp)
			var refusal *wire.Error
			if !errors.As(err, &refusal) || !strings.Contains(refusal.Reason, x.say) || !strings.Contains(refusal.Reason,
				"server") {
				t.Errorf("says %v, want %q", err, x.say)
			}
			if len(v.seen()) != 0 {
				t.Error("a request was sent")
			}
			if s := w.sent(1)[0]; s.Left {
				t.Errorf("report %+v", s)
			}
			// Without a CA of the account's own, the test CA is no root.
			w.grant("system", good, v.addr, func(r *wire.ResolveResp) { r.CA = nil })
			resp, _, err = w.get(v.addr, "/a", "system")
			w.wantRefusal(err, wire.CodeVendorDown, 502, resp)
		})
	}
	t.Run("trust of the caller's environment", func(t *testing.T) {
		// A root that only the caller trusts: variables of this process stand for it, and the account's CA is what counts.
		t.Setenv("SSL_CERT_FILE", writeFile(t, other.pem))
		v := startVendor(t, other.leaf(t, hour(), "vendor-a.test"), func(http.ResponseWriter, *http.Request) {})
		w := newWorld(t)
		w.grant("g", good, v.addr)
		resp, _, err := w.get(v.addr, "/a", "g")
		w.wantRefusal(err, wire.CodeVendorDown, 502, resp)
	})
	t.Run("old TLS", func(t *testing.T) {
		ln, err := tls.Listen("tcp", "127.0.0.1:0", &tls.Config{Certificates: []tls.Certificate{good.leaf(t, hour(),
			"vendor-a.test")},
			MaxVersion: tls.VersionTLS11, MinVersion: tls.VersionTLS10})
		if err != nil {
			t.Skipf("loopback skipped: %v", err)
		}
		defer ln.Close()
		go func() {
			for {
				c, err := ln.Accept()
				if err != nil {
					return
				}
				_ = c.(*tls.Conn).Handshake()
				_ = c.Close()
			}
		}()
		w := newWorld(t)
		addr := ln.Addr().(*net.TCPAddr).AddrPort()
		w.grant("g", good, addr)
		resp, _, err := w.get(addr, "/a", "g")
		w.wantRefusal(err, wire.CodeVendorDown, 502, resp)
	})
	// Control: with a good certificate it passes.
	v := startVendor(t, good.leaf(t, hour(), "vendor-a.test"), func(http.ResponseWriter, *http.Request) {})
	w := newWorld(t)
	w.grant("g", good, v.addr)
	if _, _, err := w.get(v.addr, "/a", "g"); err != nil {
		t.Errorf("control: %v", err)
	}
}

func writeFile(t *testing.T, b []byte) string {
	t.Helper()
	name := t.TempDir() + "/f"
	if err := os.WriteFile(name, b, 0o600); err != nil {
		t.Fatal(err)
	}
	return name
}

// baseAt is an account whose base is written so, on the port of v, with only that permitted.
func baseAt(host string, permit ...string) func(*wire.ResolveResp) {
	return func(r *wire.ResolveResp) { r.Entry.Host, r.Permit = host, permit }
}

func TestCase_EG01_WrappedAddressesOnTheWorkerPath(t *testing.T) {
	c := newCA(t)
	v := startVendor(t, c.leaf(t, hour(), "vendor-a.test", "wrapped.test", "127.0.0.1"), func(http.ResponseWriter,
		*http.Request) {
	})
	w := newWorld(t)
	for i, addr := range []string{"::ffff:127.0.0.1", "::127.0.0.1", "64:ff9b::7f00:1", "2002:7f00:1::1", "fec0::1",
		"::ffff:a9fe:a9fe",
		"64:ff9b:1::7f00:1", "2001::1", "100.64.0.1", "::1", "127.0.0.1"} {
		literal, named := fmt.Sprint("l", i), fmt.Sprint("n", i)
		a := netip.MustParseAddr(addr)
		host := addr
		if a.Is6() {
			host = "[" + addr + "]"
		}
		w.dns["wrapped.test."] = []netip.Addr{a}
		w.grant(literal, c, v.addr, baseAt(host))
		w.grant(named, c, v.addr, baseAt("wrapped.test"))
		for g, h := range map[string]string{literal: host, named: "wrapped.test"} {
			resp, _, err := w.do(w.request("GET", fmt.Sprintf("%s:%d", h, v.addr.Port()), "/a", g, 0, nil))
			w.wantRefusal(err, wire.CodeBadTarget, 502, resp)
		}
	}
	if v.conns() != 0 {
		t.Errorf("%d connections", v.conns())
	}
	// Control: permitted, exactly that address and port, it passes; another port does not.
	w.grant("ok", c, v.addr, baseAt("127.0.0.1", v.addr.String()))
	if _, _, err := w.do(w.request("GET", v.addr.String(), "/a", "ok", 0, nil)); err != nil {
		t.Errorf("control: %v", err)
	}
	w.grant("port", c, v.addr, baseAt("127.0.0.1", "127.0.0.1:1"))
	resp, _, err := w.do(w.request("GET", v.addr.String(), "/a", "port", 0, nil))
	w.wantRefusal(err, wire.CodeBadTarget, 502, resp)
}

// rebinding answers with one address first and with another ever after.
type rebinding struct {
	list []netip.Addr
	n    int
}

func (r *rebinding) LookupNetIP(context.Context, string, string) ([]netip.Addr, error) {
	a := r.list[min(r.n, len(r.list)-1)]
	r.n++
	return []netip.Addr{a}, nil
}

func TestCase_EG02_RebindingOnTheWorkerPath(t *testing.T) {
	c := newCA(t)
	v := startVendor(t, c.leaf(t, hour(), "rb.test"), func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/close" {
			w.Header().Set("Connection", "close")
		}
	})
	dns := &rebinding{list: []netip.Addr{v.addr.Addr(), netip.MustParseAddr("127.0.0.9")}}
	w := newWorld(t, func(s *Server) { s.Dialer.Resolver = dns })
	// No credential, so that the permitted address is not taken for the name without a look-up.
	entry := func(path string) func(*wire.ResolveResp) {
		return func(r *wire.ResolveResp) {
			r.Secret, r.Entry.Credential, r.Entry.Host, r.Entry.Path = "", false, "rb.test", path
		}
	}
	w.grant("g", c, v.addr, entry("/a"))
	w.grant("g", c, v.addr, entry("/close"))
	ask := func(path string, i int) (*http.Response, error) {
		req := w.request("GET", fmt.Sprintf("rb.test:%d", v.addr.Port()), path, "g", i, nil)
		req.Header.Del("Authorization")
		req.Header.Del(HeaderSurrogate)
		resp, _, err := w.do(req)
		return resp, err
	}
	for range 3 { // pooled: the address that was judged is the one that is used
		if _, err := ask("/a", 0); err != nil {
			t.Fatal(err)
		}
	}
	if dns.n != 1 || v.conns() != 1 {
		t.Errorf("%d look-ups, %d connections", dns.n, v.conns())
	}
	if _, err := ask("/close", 1); err != nil {
		t.Fatal(err)
	}
	resp, err := ask("/a", 0) // the next dial is judged anew
	w.wantRefusal(err, wire.CodeBadTarget, 502, resp)
	if dns.n != 2 {
		t.Errorf("%d look-ups", dns.n)
	}
	// Control: where the rebound address is permitted, it is dialled.
	ln, err := net.Listen("tcp", fmt.Sprintf("127.0.0.9:%d", v.addr.Port()))
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	dialled := make(chan struct{})
	go func() {
		if c, err := ln.Accept(); err == nil {
			_ = c.Close()
			close(dialled)
		}
	}()
	w.grant("rebound", c, v.addr, entry("/a"), func(r *wire.ResolveResp) { r.Permit = []string{ln.Addr().String()} })
	req := w.request("GET", fmt.Sprintf("rb.test:%d", v.addr.Port()), "/a", "rebound", 0, nil)
	req.Header.Del("Authorization")
	req.Header.Del(HeaderSurrogate)
	_, _, _ = w.do(req)
	select {
	case <-dialled:
	case <-time.After(5 * time.Second):
		t.Error("control: the rebound address is not dialled though it is permitted")
	}
}

func TestCase_EG03_MetadataOnTheWorkerPath(t *testing.T) {
	c := newCA(t)
	w := newWorld(t)
	w.dns["metadata.google.internal."] = []netip.Addr{netip.MustParseAddr("169.254.169.254")}
	v := startVendor(t, c.leaf(t, hour(), "vendor-a.test"), func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Location", "https://169.254.169.254/latest")
		w.WriteHeader(302)
	})
	for i, host := range []string{"[fd00:ec2::254]", "169.254.170.2", "100.100.100.200", "metadata.google.internal",
		"192.0.0.192",
		"169.254.169.254"} {
		g := fmt.Sprint("g", i)
		w.grant(g, c, netip.MustParseAddrPort("127.0.0.1:80"), baseAt(host, "169.254.169.254:80", "[fd00:ec2::254]:80",
			"192.0.0.192:80",
			"100.100.100.200:80", "169.254.170.2:80"))
		resp, _, err := w.do(w.request("GET", host+":80", "/a", g, 0, nil))
		w.wantRefusal(err, wire.CodeBadTarget, 502, resp)
	}
	// An allowed host that redirects there, and an entry that would follow anywhere.
	w.grant("r", c, v.addr)
	w.grant("r", c, v.addr, func(r *wire.ResolveResp) {
		r.Secret, r.Entry.Credential, r.Entry.Follow, r.Entry.Path = "", false, "e0", ""
		r.Entry.Host, r.Entry.Port = "169.254.169.254", 443
	})
	if resp, _, err := w.get(v.addr, "/a", "r"); err != nil || resp.StatusCode != 302 {
		t.Fatal(err)
	}
	req := w.request("GET", "169.254.169.254", "/latest", "r", 1, nil)
	req.Header.Del("Authorization")
	req.Header.Del(HeaderSurrogate)
	resp, _, err := w.do(req)
	w.wantRefusal(err, wire.CodeBadTarget, 502, resp)

	// Control: with an address that is no metadata service's in the place of those, the same name and the same redirect
	// go through. No test can take the guard away from the real addresses: nothing answers there.
	other := startVendor(t, c.leaf(t, hour(), "metadata.google.internal", "127.0.0.1"), func(http.ResponseWriter, *http.Request) {})
	w.dns["metadata.google.internal."] = []netip.Addr{other.addr.Addr()}
	at := func(r *wire.ResolveResp) {
		r.Secret, r.Entry.Credential, r.Entry.Host, r.Permit = "", false, "metadata.google.internal", []string{other.addr.String()}
	}
	w.grant("c", c, other.addr, at)
	redirects := startVendor(t, c.leaf(t, hour(), "vendor-a.test"), func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Location", "https://"+other.addr.String()+"/latest")
		w.WriteHeader(302)
	})
	w.grant("cr", c, redirects.addr)
	w.grant("cr", c, other.addr, at, func(r *wire.ResolveResp) {
		r.Entry.Host, r.Entry.Follow, r.Entry.Path = "127.0.0.1", "e0", ""
	})
	if _, _, err := w.get(redirects.addr, "/a", "cr"); err != nil {
		t.Fatal(err)
	}
	for _, x := range []struct {
		host, target, grant string
		entry               int
	}{{fmt.Sprintf("metadata.google.internal:%d", other.addr.Port()), "/a", "c", 0}, {other.addr.String(), "/latest", "cr", 1}} {
		req := w.request("GET", x.host, x.target, x.grant, x.entry, nil)
		req.Header.Del("Authorization")
		req.Header.Del(HeaderSurrogate)
		if resp, _, err := w.do(req); err != nil || resp.StatusCode != 200 {
			t.Errorf("control: %s: %v, %+v", x.host, err, resp)
		}
	}
}

// tell sends raw bytes to v itself and returns the status of the answer.
func tell(t *testing.T, v netip.AddrPort, raw string) int {
	t.Helper()
	conn, err := tls.Dial("tcp", v.String(), &tls.Config{InsecureSkipVerify: true})
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if _, err := io.WriteString(conn, raw); err != nil {
		t.Fatal(err)
	}
	resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode
}

func TestCase_EG04_OneFormOfAHostOnTheWorkerPath(t *testing.T) {
	c := newCA(t)
	var sni string
	v := startVendor(t, c.leaf(t, hour(), "vendor-a.test"), func(w http.ResponseWriter,
		r *http.Request) {
		sni = r.TLS.ServerName
	})
	w := newWorld(t)
	for i, base := range []string{"vendor-a.test", "vendor-a.test.", "Vendor-A.TEST"} {
		g := fmt.Sprint("g", i)
		w.grant(g, c, v.addr, baseAt(base, v.addr.String()))
		for host, ok := range map[string]bool{"vendor-a.test": true, "VENDOR-a.test": true, "vendor-a.test.": true,
			"vendor-a.test..": false,
			"evil.test":       false, "vendor-a.test.evil.test": false} {
			sni = ""
			conn, br := w.dial()
			fmt.Fprint(conn, rawHead("GET", fmt.Sprintf("%s:%d", host, v.addr.Port()), "/a", g, 0, ""))
			resp, err := http.ReadResponse(br, nil)
			if err != nil || (resp.StatusCode == 200) != ok || !ok && resp.StatusCode != 421 {
				t.Errorf("base %s, host %s: %v, %+v", base, host, err, resp)
			}
			if ok && sni != "vendor-a.test" {
				t.Errorf("base %s, host %s: SNI %q", base, host, sni)
			}
		}
	}
	for _, s := range v.seen() {
		if s.Host != fmt.Sprintf("vendor-a.test:%d", v.addr.Port()) {
			t.Errorf("Host %q at the vendor", s.Host)
		}
	}
	if v.conns() != 1 {
		t.Errorf("%d pools for one host", v.conns())
	}
	// Control: the vendor itself takes every one of those names, so what was refused was refused by egress.
	for _, host := range []string{"vendor-a.test..", "evil.test", "vendor-a.test.evil.test"} {
		if status := tell(t, v.addr, "GET /a HTTP/1.1\r\nHost: "+host+"\r\n\r\n"); status != 200 {
			t.Errorf("control: %s: %d", host, status)
		}
	}
}

func TestCase_EG06_TargetsThatTwoParsersReadDifferently(t *testing.T) {
	c := newCA(t)
	v := startVendor(t, c.leaf(t, hour(), "vendor-a.test"), func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Location", r.URL.Query().Get("to"))
		w.WriteHeader(302)
	})
	w := newWorld(t)
	host := fmt.Sprintf("vendor-a.test:%d", v.addr.Port())
	w.grant("g", c, v.addr, func(r *wire.ResolveResp) { r.Entry.Path, r.Entry.AnyPath = "/", true })
	lines := []string{`http://127.0.0.1:9\@198.51.100.7/`, "https://vendor-a.test@evil.test/",
		"//evil.test/", `/\evil.test`,
		"https://evil.test#@vendor-a.test/", "/a#@evil.test", "*", "vendor-a.test:443", "/a\tb", "/%2e%2e/", "/a/../b"}
	for _, line := range lines {
		conn, br := w.dial()
		fmt.Fprint(conn, rawHead("GET", host, line, "g", 0, ""))
		resp, err := http.ReadResponse(br, nil)
		if err != nil || resp.StatusCode != 400 && resp.StatusCode != 403 {
			t.Errorf("%s: %v, %+v", line, err, resp)
		}
	}
	hosts := []string{"vendor-a.test@evil.test", host + `\@evil.test`, "vendor-a.test#evil.test", "ven\tdor-a.test", host + "/"}
	for _, h := range hosts {
		conn, br := w.dial()
		fmt.Fprint(conn, rawHead("GET", h, "/a", "g", 0, ""))
		resp, err := http.ReadResponse(br, nil)
		if err != nil || resp.StatusCode != 421 {
			t.Errorf("Host %s: %v, %+v", h, err, resp)
		}
	}
	if len(v.seen()) != 0 {
		t.Errorf("the vendor got %+v", v.seen())
	}
	// Control: through egress a plain path below the entry's is sent; and a server that minds nothing takes each of those
	// lines and hosts, so it is no one's but egress's refusal.
	if resp, _, err := w.get(v.addr, "/a", "g"); err != nil || resp.StatusCode != 302 {
		t.Errorf("control: %v, %+v", err, resp)
	}
	careless := rawVendor(t, c.leaf(t, hour(), "vendor-a.test"), func(conn *tls.Conn, br *bufio.Reader) {
		if _, err := br.ReadString('\n'); err == nil {
			_, _ = io.WriteString(conn, "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")
		}
	})
	for _, line := range lines {
		if status := tell(t, careless, "GET "+line+" HTTP/1.1\r\nHost: "+host+"\r\n\r\n"); status != 200 {
			t.Errorf("control: %s: %d", line, status)
		}
	}
	for _, h := range hosts {
		if status := tell(t, careless, "GET /a HTTP/1.1\r\nHost: "+h+"\r\n\r\n"); status != 200 {
			t.Errorf("control: Host %s: %d", h, status)
		}
	}
	// A Location that two parsers read differently is passed on as text and cannot be followed.
	for _, to := range []string{"https://vendor-a.test@evil.test/", `https://evil.test\.vendor-a.test/`,
		"https:/\\evil.test", "https:///evil.test",
		"https://evil.test#@vendor-a.test/"} {
		if u, err := resolveLocation(guard.Authority{}, to); err == nil {
			t.Errorf("Location %s is read as %s", to, u)
		}
	}
	if u, err := resolveLocation(guard.Authority{}, "https://evil.test/"); err != nil || u.Host.String() != "evil.test" {
		t.Errorf("control: %s, %v", u, err)
	}
}

func TestCase_EG16_WithoutAuthdOrRecordNothingLeaves(t *testing.T) {
	c := newCA(t)
	v := startVendor(t, c.leaf(t, hour(), "vendor-a.test"), func(http.ResponseWriter, *http.Request) {})
	w := newWorld(t)
	w.grant("g", c, v.addr)
	if _, _, err := w.get(v.addr, "/a", "g"); err != nil { // control, and a warm pool
		t.Fatal(err)
	}
	owed := 1
	set := func(down error, full bool) {
		w.mu.Lock()
		w.down, w.full = down, full
		w.mu.Unlock()
	}
	gone := wire.Refuse(wire.CodeUnavailable, "authd does not answer", "")
	for name, x := range map[string]struct {
		down   error
		full   bool
		code   wire.Code
		report bool
	}{
		"authd is away":            {gone, false, wire.CodeUnavailable, false},
		"authd went away midway":   {fmt.Errorf("%w: %w", gone, daemon.ErrSent), false, wire.CodeUnavailable, true},
		"authd is locked":          {wire.Refuse(wire.CodeLocked, "locked", ""), false, wire.CodeLocked, false},
		"the record is far behind": {nil, true, wire.CodeUnavailable, true},
	} {
		set(x.down, x.full)
		for range 20 {
			resp, _, err := w.get(v.addr, "/a", "g")
			w.wantRefusal(err, x.code, 503, resp)
		}
		if x.report {
			owed += 20
		}
		w.sent(owed)
		if len(v.seen()) != 1 {
			t.Fatalf("%s: a request left unjudged", name)
		}
	}
	set(nil, false)
	if _, _, err := w.get(v.addr, "/a", "g"); err != nil {
		t.Errorf("when they are back: %v", err)
	}
}
