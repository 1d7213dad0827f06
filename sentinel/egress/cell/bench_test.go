// SPDX-License-Identifier: Apache-2.0

package cell

import (
	"io"
	"net"
	"testing"
)

// pairs are two ends of a TCP connection on loopback.
func pairs(b *testing.B) (*net.TCPConn, *net.TCPConn) {
	b.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		b.Fatal(err)
	}
	defer ln.Close()
	c, err := net.Dial("tcp", ln.Addr().String())
	if err != nil {
		b.Fatal(err)
	}
	s, err := ln.Accept()
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = c.Close(); _ = s.Close() })
	return c.(*net.TCPConn), s.(*net.TCPConn)
}

// BenchmarkCarry is what carrying costs, beside splice(2), which is what io.Copy uses between two TCP connections.
func BenchmarkCarry(b *testing.B) {
	for name, carry := range map[string]func(to, from *net.TCPConn) error{
		"pump":   func(to, from *net.TCPConn) error { _, err := pump(to, from, func(int) {}); return err },
		"splice": func(to, from *net.TCPConn) error { _, err := io.Copy(to, from); return err },
	} {
		b.Run(name, func(b *testing.B) {
			const piece = 1 << 20
			a, in := pairs(b)
			out, z := pairs(b)
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
