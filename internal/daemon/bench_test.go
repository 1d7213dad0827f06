// SPDX-License-Identifier: Apache-2.0

package daemon

import (
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"testing"
	"time"

	"github.com/doorward/doorward/internal/peer"
	"github.com/doorward/doorward/internal/peer/peertest"
)

// serveEcho is the other process of BenchmarkCall.
func serveEcho(path string) error {
	ln, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	if err != nil {
		return err
	}
	OneThread()
	s := &Server{Name: "bench", Listener: peer.NewListener(ln, peertest.Worker("a"), nil), Log: newLog(os.Stderr, "b", false),
		Verbs: []Verb{On("echo", peer.Workers, echo).InOrder()}}
	return s.Serve(context.Background())
}

// BenchmarkCall is row ipc/call: a warm call through the protocol to another process, of 64 bytes with what frames them.
func BenchmarkCall(b *testing.B) {
	path := b.TempDir() + "/s"
	server := exec.Command(os.Args[0], "echo", path)
	server.Stderr = os.Stderr
	if err := server.Start(); err != nil {
		b.Fatal(err)
	}
	defer func() { _ = server.Process.Kill(); _ = server.Wait() }()
	c := &Client{Path: path, Log: newLog(b.Output(), "b", false)}
	req, resp := &echoReq{Text: fmt.Sprintf("%040d", 1)}, &echoResp{}
	for try := 0; ; try++ {
		err := c.Call(b.Context(), "echo", req, resp)
		if err == nil {
			break
		}
		if try == 100 {
			b.Fatal(err)
		}
		time.Sleep(10 * time.Millisecond) // the server is not there yet
	}
	b.ReportAllocs()
	for b.Loop() {
		if err := c.Call(b.Context(), "echo", req, resp); err != nil {
			b.Fatal(err)
		}
	}
}
