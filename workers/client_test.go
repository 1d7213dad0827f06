// SPDX-License-Identifier: Apache-2.0

package workers

import (
	"bufio"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"
)

// peerOf runs script for each connection that the client makes, with its number.
func peerOf(t *testing.T, script func(n int, c net.Conn, in *bufio.Reader)) *client {
	t.Helper()
	path := filepath.Join(t.TempDir(), "s")
	ln, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { ln.Close() })
	go func() {
		for n := 0; ; n++ {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			go func() {
				defer c.Close()
				script(n, c, bufio.NewReader(c))
			}()
		}
	}()
	return &client{path: path}
}

func get(t *testing.T, c *client, method string) (string, error) {
	t.Helper()
	r, err := http.NewRequest(method, "http://x/", nil)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	resp, err := c.roundTrip(ctx, r)
	if err != nil {
		return "", err
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	return string(b), err
}

func TestARequestIsSentOnceWhateverBecomesOfIt(t *testing.T) {
	for _, method := range []string{"GET", "PROPFIND", "POST", "DELETE"} {
		var seen atomic.Int32
		c := peerOf(t, func(_ int, conn net.Conn, in *bufio.Reader) {
			for {
				r, err := http.ReadRequest(in)
				if err != nil {
					return
				}
				if seen.Add(1) == 2 { // the second, on a kept connection, gets no answer
					return
				}
				_ = (&http.Response{StatusCode: 200, ProtoMajor: 1, ProtoMinor: 1, Request: r, ContentLength: 2,
					Body: io.NopCloser(strings.NewReader("ok"))}).Write(conn)
			}
		})
		if got, err := get(t, c, method); got != "ok" || err != nil {
			t.Fatalf("%s: %q %v", method, got, err)
		}
		if _, err := get(t, c, method); err == nil || errors.Is(err, errNotSent) {
			t.Errorf("%s: unanswered: %v", method, err)
		}
		if n := seen.Load(); n != 2 {
			t.Errorf("%s: %d requests arrived, 2 were sent", method, n)
		}
	}
}

func TestAKeptConnectionThatEndedIsNotUsed(t *testing.T) {
	for name, rest := range map[string]string{"closed": "",
		"spoken to": "HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nevil"} {
		said := make(chan struct{}, 1)
		c := peerOf(t, func(_ int, conn net.Conn, in *bufio.Reader) {
			if _, err := http.ReadRequest(in); err == nil {
				_, _ = io.WriteString(conn, "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")
				time.Sleep(20 * time.Millisecond)
				_, _ = io.WriteString(conn, rest)
				if rest == "" {
					conn.Close()
				}
			}
			said <- struct{}{}
			if rest != "" {
				time.Sleep(5 * time.Second)
			}
		})
		for range 3 {
			if got, err := get(t, c, "POST"); got != "ok" || err != nil {
				t.Errorf("%s: %q %v", name, got, err)
			}
			<-said
		}
	}
}

func TestAnAnswerThatDoesNotEndIsAnError(t *testing.T) {
	for name, answer := range map[string]string{
		"cut":            "HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nhalf",
		"cut chunk":      "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n4\r\nha",
		"no last chunk":  "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n4\r\nhalf\r\n",
		"no length":      "HTTP/1.1 200 OK\r\n\r\nhalf",
		"cut head":       "HTTP/1.1 200 OK\r\nContent-",
		"endless head":   "HTTP/1.1 200 OK\r\n" + strings.Repeat("A: "+strings.Repeat("b", 1000)+"\r\n", 2000) + "\r\n",
		"interim only":   strings.Repeat("HTTP/1.1 103 Early Hints\r\n\r\n", 9),
		"something else": "SSH-2.0-x\r\n",
	} {
		c := peerOf(t, func(_ int, conn net.Conn, in *bufio.Reader) {
			if _, err := http.ReadRequest(in); err == nil {
				_, _ = io.WriteString(conn, answer)
			}
		})
		if got, err := get(t, c, "GET"); err == nil {
			t.Errorf("%s: taken as %q", name, got)
		}
		if len(c.idle) != 0 {
			t.Errorf("%s: the connection was kept", name)
		}
	}
}

func TestWithoutEgressNothingIsSent(t *testing.T) {
	c := &client{path: filepath.Join(t.TempDir(), "absent")}
	if _, err := get(t, c, "POST"); !errors.Is(err, errNotSent) {
		t.Error(err)
	}
}
