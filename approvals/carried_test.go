// SPDX-License-Identifier: Apache-2.0

package approvals

import (
	"bytes"
	"io"
	"log/slog"
	"net"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/doorward/doorward/internal/approver/front"
	"github.com/doorward/doorward/internal/peer"
	"github.com/doorward/doorward/internal/peer/peertest"
)

var stated = &net.TCPAddr{IP: net.ParseIP("192.0.2.7"), Port: 4711}

// carriedAs accepts what somebody sends on a connection, and returns what came behind the address, or what was logged.
func carriedAs(t *testing.T, who peertest.As, sends []byte) (from net.Addr, rest []byte, said string) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "s")
	ln, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	log := new(bytes.Buffer)
	l := NewCarried(peer.NewListener(ln, who, nil), slog.New(slog.NewTextHandler(log, nil)))
	c, err := net.Dial("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	_, _ = c.Write(sends)
	_ = c.(*net.UnixConn).CloseWrite()
	accepted := make(chan net.Conn, 1)
	go func() {
		got, _ := l.Accept()
		accepted <- got
	}()
	_ = c.SetReadDeadline(time.Now().Add(20 * time.Second))
	closed := make(chan struct{})
	go func() {
		_, _ = c.Read(make([]byte, 1)) // ends when the other end closes it
		close(closed)
	}()
	select {
	case got := <-accepted:
		defer l.Close()
		defer got.Close()
		b, err := io.ReadAll(got)
		if err != nil {
			t.Error(err)
		}
		return got.RemoteAddr(), b, log.String()
	case <-closed:
		l.Close()
		<-accepted
		return nil, nil, log.String()
	}
}

// Whoever could say in page's place who connects had the bounds of every address.
func TestPageAloneSaysWhoConnected(t *testing.T) {
	head := front.AppendFrom(nil, stated)
	from, rest, _ := carriedAs(t, peertest.Daemon("page"), append(head, "GET"...))
	if from == nil || from.String() != "192.0.2.7:4711" || string(rest) != "GET" {
		t.Errorf("control: page's is %v, %q", from, rest)
	}
	ofCell := peertest.Daemon("page")
	ofCell.Of = "work"
	for name, who := range map[string]peertest.As{"a person": peertest.Person(1000), "root": peertest.Person(0), "a cell": peertest.Cell("page", "payload"),
		"a worker": peertest.Worker("page"), "another daemon": peertest.Daemon("egress"), "one of a cell": ofCell, "nobody": {}} {
		if from, _, said := carriedAs(t, who, head); from != nil || !strings.Contains(said, "is not page") {
			t.Errorf("%s is taken: %v, %s", name, from, said)
		}
	}
	for name, b := range map[string][]byte{"half of it": head[:10], "nothing": nil, "another version": append([]byte{2}, head[1:]...)} {
		if from, _, said := carriedAs(t, peertest.Daemon("page"), b); from != nil || !strings.Contains(said, "read who connected") {
			t.Errorf("%s is taken: %v, %s", name, from, said)
		}
	}
}
