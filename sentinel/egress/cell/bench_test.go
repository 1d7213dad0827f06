// SPDX-License-Identifier: Apache-2.0

package cell

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"os/exec"
	"testing"
)

// BenchmarkCarry is what carrying costs, beside splice(2), which is what io.Copy uses between two TCP connections.
func BenchmarkCarry(b *testing.B) {
	for name, carry := range map[string]func(to, from *net.TCPConn) error{
		"pump":   func(to, from *net.TCPConn) error { _, err := pump(to, from, func(int) {}); return err },
		"splice": func(to, from *net.TCPConn) error { _, err := io.Copy(to, from); return err },
	} {
		b.Run(name, func(b *testing.B) {
			const piece = 1 << 20
			a, in := tcpPair(b)
			out, z := tcpPair(b)
			go func() { _ = carry(out, in); _ = out.CloseWrite() }()
			go func() {
				buf := make([]byte, piece)
				for range b.N {
					_, _ = a.Write(buf)
				}
				_ = a.CloseWrite()
			}()
			b.SetBytes(piece)
			buf := make([]byte, piece)
			for {
				if _, err := z.Read(buf); err != nil {
					return
				}
			}
		})
	}
}

// BenchmarkDownload is 64 MiB by curl from a TLS server, straight and by the way out of a cell.
func BenchmarkDownload(b *testing.B) {
	w := newWorld(b)
	const size = 64 << 20
	h := http.HandlerFunc(func(rw http.ResponseWriter, _ *http.Request) { _, _ = io.CopyN(rw, zeros{}, size) })
	port := w.serveTLS(h, "vendor-a.test")
	url := fmt.Sprintf("https://vendor-a.test:%d/", port)
	args := []string{"-sS", "--http1.1", "--cacert", w.bundle, "-o", "/dev/null", url}
	for name, command := range map[string]func() *exec.Cmd{
		"straight": func() *exec.Cmd {
			return exec.Command("curl", append([]string{"--resolve", fmt.Sprintf("vendor-a.test:%d:127.0.0.1", port)}, args...)...)
		},
		"cell": func() *exec.Cmd { return w.command("curl", args...) },
	} {
		b.Run(name, func(b *testing.B) {
			b.SetBytes(size)
			for range b.N {
				if out, err := command().CombinedOutput(); err != nil {
					b.Fatalf("%v: %s", err, out)
				}
			}
		})
	}
}

// BenchmarkIntercepted is one small request with a surrogate over a kept connection, with the client and the server in it, and
// functions in the place of sentinel and authd.
func BenchmarkIntercepted(b *testing.B) {
	r := newReader(b)
	body := make([]byte, 1024)
	port := r.serveTLS(http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		if q.Header.Get("Authorization") != "Bearer "+realA {
			w.WriteHeader(http.StatusUnauthorized)
			return
		}
		_, _ = w.Write(body)
	}), "vendor-a.test")
	r.reads("vendor-a.test", &bearerPlace)
	c, url := r.client(false), site("vendor-a.test", port)+"/"
	b.ReportAllocs()
	for b.Loop() {
		if status, _, _ := get(b, c, "GET", url, nil, "Authorization", "Bearer "+surrogateA); status != 200 {
			b.Fatal(status)
		}
	}
}

type zeros struct{}

func (zeros) Read(b []byte) (int, error) { clear(b); return len(b), nil }
