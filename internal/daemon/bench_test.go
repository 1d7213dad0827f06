// SPDX-License-Identifier: Apache-2.0

package daemon

import (
	"net"
	"testing"

	"github.com/doorward/doorward/internal/peer"
	"github.com/doorward/doorward/internal/peer/peertest"
	"golang.org/x/sys/unix"
)

// BenchmarkCall is a warm call through the protocol; BenchmarkPingPong is the same bytes over the same kind of socket
// without it.
func BenchmarkCall(b *testing.B) {
	path := b.TempDir() + "/s"
	ln, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	if err != nil {
		b.Fatal(err)
	}
	s := &Server{Name: "bench", Listener: peer.NewListener(ln, peertest.Worker("a"), nil), Log: newLog(b.Output(), "b"),
		Verbs: []Verb{On("echo", peer.Workers, echo)}}
	go func() { _ = s.Serve(b.Context()) }()
	c := &Client{Path: path, Log: s.Log}
	req, resp := &echoReq{Text: "issues"}, &echoResp{}
	if err := c.Call(b.Context(), "echo", req, resp); err != nil {
		b.Fatal(err)
	}
	b.ReportAllocs()
	for b.Loop() {
		if err := c.Call(b.Context(), "echo", req, resp); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkPingPong(b *testing.B) {
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM, 0)
	if err != nil {
		b.Fatal(err)
	}
	go func() {
		buf := make([]byte, 64)
		for {
			n, err := unix.Read(fds[1], buf)
			if err != nil || n == 0 {
				return
			}
			_, _ = unix.Write(fds[1], buf[:n])
		}
	}()
	defer unix.Close(fds[0])
	buf := make([]byte, 40)
	for b.Loop() {
		_, _ = unix.Write(fds[0], buf)
		_, _ = unix.Read(fds[0], buf)
	}
}
