// SPDX-License-Identifier: Apache-2.0

package scenario

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"crypto/tls"
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/doorward/doorward/internal/wire"
	"github.com/doorward/doorward/test/vendors/standin"
	"github.com/doorward/doorward/test/world"
)

// hostile is a vendor's server that answers by hand, byte by byte, as no server would. It offers exactly one protocol.
type hostile struct {
	base string
	ca   []byte

	mu   sync.Mutex // guards what follows
	h2   bool
	play func(*player)
}

// player plays one answer. Write errors are nothing: the other end may have had enough.
type player struct {
	net.Conn
	stream uint32 // of HTTP/2
}

func startHostile(t *testing.T) *hostile {
	t.Helper()
	ca, err := standin.NewCA()
	if err != nil {
		t.Fatal(err)
	}
	cert, err := ca.Issue(standin.Leaf{Names: []string{"127.0.0.1"}})
	if err != nil {
		t.Fatal(err)
	}
	h := &hostile{ca: ca.PEM()}
	ln, err := tls.Listen("tcp", "127.0.0.1:0", &tls.Config{GetConfigForClient: func(hello *tls.ClientHelloInfo) (*tls.Config, error) {
		protos := []string{"http/1.1"}
		if h2, _ := h.now(); h2 {
			protos = []string{"h2"}
			if !slices.Contains(hello.SupportedProtos, "h2") {
				protos = []string{"no protocol"} // crypto/tls would let HTTP/1.1 pass
			}
		}
		return &tls.Config{Certificates: []tls.Certificate{cert}, NextProtos: protos, MinVersion: tls.VersionTLS12}, nil
	}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = ln.Close() })
	h.base = "https://" + ln.Addr().String()
	go func() {
		for {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			t.Cleanup(func() { _ = c.Close() })
			go func() {
				defer c.Close()
				if h2, _ := h.now(); h2 {
					h.serveH2(c)
				} else {
					h.serveH1(c)
				}
			}()
		}
	}()
	return h
}

func (h *hostile) now() (h2 bool, play func(*player)) {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.h2, h.play
}

func (h *hostile) set(h2 bool, play func(*player)) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.h2, h.play = h2, play
}

func (h *hostile) serveH1(c net.Conn) {
	br := bufio.NewReader(c)
	for {
		for line := ""; line != "\r\n"; {
			var err error
			if line, err = br.ReadString('\n'); err != nil {
				return
			}
		}
		_, play := h.now()
		play(&player{Conn: c})
	}
}

// Frames of HTTP/2, RFC 9113 section 6.
const (
	fData         = 0
	fHeaders      = 1
	fReset        = 3
	fSettings     = 4
	fPing         = 6
	fWindow       = 8
	fContinuation = 9

	endStream  = 1
	endHeaders = 4
)

func (p *player) frame(kind, flags byte, stream uint32, body []byte) bool {
	b := make([]byte, 9, 9+len(body))
	binary.BigEndian.PutUint32(b, uint32(len(body))<<8)
	b[3], b[4] = kind, flags
	binary.BigEndian.PutUint32(b[5:], stream)
	_, err := p.Write(append(b, body...))
	return err == nil
}

// field is a literal header without indexing, RFC 7541 section 6.2.2, its lengths of at most 126 and 16510 bytes.
func field(name, value string) []byte {
	b := append([]byte{0, byte(len(name))}, name...)
	if n := len(value); n < 127 {
		b = append(b, byte(n))
	} else {
		b = append(b, 127, byte((n-127)&127|128), byte((n-127)>>7))
	}
	return append(b, value...)
}

// status is the first field of an answer's head.
func status(n int) []byte { return field(":status", strconv.Itoa(n)) }

func (h *hostile) serveH2(c net.Conn) {
	br := bufio.NewReader(c)
	if _, err := br.Discard(24); err != nil { // the preface
		return
	}
	p := &player{Conn: c}
	p.frame(fSettings, 0, 0, nil)
	var head [9]byte
	for {
		if _, err := io.ReadFull(br, head[:]); err != nil {
			return
		}
		n := int(binary.BigEndian.Uint32(head[:]) >> 8)
		if _, err := br.Discard(n); err != nil {
			return
		}
		switch head[3] {
		case fSettings:
			if head[4]&1 == 0 {
				p.frame(fSettings, 1, 0, nil)
			}
		case fHeaders:
			_, play := h.now()
			go play(&player{c, binary.BigEndian.Uint32(head[5:])})
		}
	}
}

const json200 = "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n"

// endlessly writes b until the other end has enough, or n times.
func (p *player) endlessly(b []byte, n int) {
	for range n {
		if _, err := p.Write(b); err != nil {
			return
		}
	}
}

// chunks writes b as many chunks, n bytes in all.
func (p *player) chunks(b []byte, n int) {
	p.endlessly(fmt.Appendf(nil, "%x\r\n%s\r\n", len(b), b), n/len(b))
}

// zipped is n bytes of zero after gzip.
func zipped(n int) []byte {
	var b bytes.Buffer
	z := gzip.NewWriter(&b)
	_, _ = z.Write(make([]byte, n))
	_ = z.Close()
	return b.Bytes()
}

// resetPeak forgets how much memory a daemon has had; peak is the most that it has had since, in MiB.
func (r *rig) resetPeak(daemon string) {
	r.t.Helper()
	if err := os.WriteFile(fmt.Sprintf("/proc/%d/clear_refs", r.Daemon(daemon).PID()), []byte("5"), 0); err != nil {
		r.t.Fatal(err)
	}
}

func (r *rig) peak(daemon string) int {
	r.t.Helper()
	return r.memory(daemon, "VmHWM:")
}

// addHostile gives the person an account at h.
func (r *rig) addHostile(h *hostile) {
	r.t.Helper()
	var resp wire.AccountsResp
	if err := r.Person(0).Ask(r.ctx(), wire.PathAuthdAdmin, "add", &wire.AddReq{Name: "hostile", Vendor: "github",
		Base: base(r.t, h.base), Secret: []byte(r.githubToken), CA: h.ca, Permit: []string{host(r.t, h.base)},
		Placement: wire.Placement{Kind: "header", Name: "Authorization", Prefix: "Bearer "}}, &resp); err != nil {
		r.t.Fatal(err)
	}
	r.decide(r.waitPending(1)[0], true)
}

// A vendor that answers by and by holds up those who ask it, for the two minutes that a call may take, and nobody else:
// however many calls of one cell wait for it, another cell and the person are served.
func TestSlowAnswersHoldUpNobodyElse(t *testing.T) {
	r := newRig(t, world.Options{})
	h := startHostile(t)
	r.addHostile(h)
	var slow atomic.Int64
	h.set(false, func(p *player) {
		slow.Add(1)
		fmt.Fprint(p, json200+"Transfer-Encoding: chunked\r\n\r\n")
		for {
			if _, err := fmt.Fprint(p, "1\r\n[\r\n"); err != nil {
				return
			}
			time.Sleep(time.Second)
		}
	})
	p, err := r.work.Actor().Start(world.Cmd{UID: 1000, Args: []string{"/bin/bash", "-c", "for i in $(seq 60); do " +
		"connector github issues --repo ada/site --account hostile --label $i >/dev/null 2>&1 & done; wait"}})
	if err != nil {
		t.Fatal(err)
	}
	defer p.Kill()
	// The control: there are more of them than the worker runs of one cell.
	r.eventually("the slow calls fill their places", func() bool { return slow.Load() >= 32 })
	time.Sleep(500 * time.Millisecond)
	began := time.Now()
	r.connector(r.home, 0, "github", "issues", "--repo", "ada/site", "--account", "code", "--json")
	res, err := r.ada.Doorward(r.ctx(), "", "account", "test", "code")
	if err != nil || res.Code != 0 {
		t.Errorf("account test: %v, %v", res, err)
	}
	if took := time.Since(began); took > 10*time.Second {
		t.Errorf("they waited %s", took)
	}
	if n := slow.Load(); n > 32 {
		t.Errorf("%d slow calls run at once", n)
	}
}

// A vendor that answers what no server should wears nothing down: the call ends at once with a reason, neither egress
// nor the worker takes more memory than an answer may have, and the next call works.
func TestAHostileVendorWearsNothingDown(t *testing.T) {
	r := newRig(t, world.Options{})
	// What is read of all these answers together would be asked about as bulk reads.
	r.doorward(0, "policy", "load", "--yes", r.policyFile("bulk-bytes = 1000000000\n"))
	h := startHostile(t)
	r.addHostile(h)

	mega := bytes.Repeat([]byte("x"), 1<<20)
	zeros := zipped(64 << 20)
	type hostility struct {
		name string
		play func(*player)
		want []wire.Code // any of these; none is a success
	}
	down := []wire.Code{wire.CodeVendorDown}
	large := []wire.Code{wire.CodeTooLarge}
	well := func(p *player) {
		fmt.Fprint(p, json200+"Content-Length: 2\r\nConnection: close\r\n\r\n[]")
		_ = p.Close()
	}
	h1 := []hostility{
		{"gzip of 10 MB that are 10 GB", func(p *player) {
			fmt.Fprint(p, json200+"Content-Encoding: gzip\r\nConnection: close\r\n\r\n")
			p.endlessly(zeros, 160)
		}, large},
		{"gzip of nothing, for ever", func(p *player) {
			fmt.Fprint(p, json200+"Content-Encoding: gzip\r\nConnection: close\r\n\r\n")
			p.endlessly(bytes.Repeat(zipped(0), 1000), 1<<30)
		}, down},
		{"1 GiB that is announced", func(p *player) {
			fmt.Fprint(p, json200+"Content-Length: 1073741824\r\n\r\n")
			p.endlessly(mega, 1024)
		}, large},
		{"1 GiB in chunks", func(p *player) {
			fmt.Fprint(p, json200+"Transfer-Encoding: chunked\r\n\r\n")
			p.chunks(mega, 1<<30)
		}, large},
		{"1 GiB in chunks of a byte", func(p *player) {
			fmt.Fprint(p, json200+"Transfer-Encoding: chunked\r\n\r\n")
			p.endlessly(bytes.Repeat([]byte("1\r\nx\r\n"), 10000), 1<<30)
		}, append(large, down...)},
		{"a head of 64 MiB", func(p *player) {
			fmt.Fprint(p, "HTTP/1.1 200 OK\r\n")
			p.endlessly([]byte("X-Long: "+string(mega[:1000])+"\r\n"), 64<<10)
		}, down},
		{"one header of 64 MiB", func(p *player) {
			fmt.Fprint(p, "HTTP/1.1 200 OK\r\nX: ")
			p.endlessly(mega, 64)
		}, down},
		{"a status line without end", func(p *player) { p.endlessly(mega, 64) }, down},
		{"interim answers without end", func(p *player) {
			p.endlessly(bytes.Repeat([]byte("HTTP/1.1 103 Early Hints\r\nLink: </x>\r\n\r\n"), 1000), 1<<20)
		}, down},
		{"switching protocols", func(p *player) {
			fmt.Fprint(p, "HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\nConnection: upgrade\r\n\r\n")
		}, down},
		{"trailers of 64 MiB", func(p *player) {
			fmt.Fprint(p, json200+"Transfer-Encoding: chunked\r\nTrailer: X-T\r\n\r\n2\r\n[]\r\n0\r\n")
			p.endlessly([]byte("X-T: "+string(mega[:1000])+"\r\n"), 64<<10)
		}, down},
		{"a chunk's extension of 64 MiB", func(p *player) {
			fmt.Fprint(p, json200+"Transfer-Encoding: chunked\r\n\r\n2;x=")
			p.endlessly(mega, 64)
		}, down},
		{"a length that is none", func(p *player) {
			fmt.Fprint(p, json200+"Content-Length: -1\r\n\r\n[]")
		}, down},
		{"JSON that nests for ever", func(p *player) {
			fmt.Fprint(p, json200+"Transfer-Encoding: chunked\r\n\r\n")
			p.chunks(bytes.Repeat([]byte("["), 1<<20), 8<<20)
			fmt.Fprint(p, "0\r\n\r\n")
		}, append(large, down...)},
		{"an answer that breaks off", func(p *player) {
			fmt.Fprint(p, json200+"Content-Length: 100\r\n\r\n[")
			_ = p.Close()
		}, down},
	}
	jsonHead := append(status(200), field("content-type", "application/json")...)
	wellH2 := func(p *player) {
		p.frame(fHeaders, endHeaders, p.stream, jsonHead)
		p.frame(fData, endStream, p.stream, []byte("[]"))
	}
	h2 := []hostility{
		{"HTTP/2 a head of 64 MiB", func(p *player) {
			if !p.frame(fHeaders, 0, p.stream, status(200)) {
				return
			}
			part := bytes.Repeat(field("x-long", string(mega[:1000])), 15)
			for range 4096 {
				if !p.frame(fContinuation, 0, p.stream, part) {
					return
				}
			}
		}, down},
		// Without end they are a test of egress alone: the call ends only when the worker gives it up.
		{"HTTP/2 many continuations", func(p *player) {
			p.frame(fHeaders, 0, p.stream, status(200))
			for range 1 << 14 {
				if !p.frame(fContinuation, 0, p.stream, nil) {
					return
				}
			}
			_ = p.Close()
		}, down},
		{"HTTP/2 a head that grows on reading", func(p *player) {
			// One entry of the dynamic table, named again and again by a byte: 60 MiB from 32 KiB.
			b := append(status(200), 0x40)
			b = append(b, field("x-a", string(mega[:3800]))[1:]...)
			b = append(b, bytes.Repeat([]byte{0xbe}, 12<<10)...)
			p.frame(fHeaders, endHeaders|endStream, p.stream, b)
		}, down},
		{"HTTP/2 reset after the head", func(p *player) {
			p.frame(fHeaders, endHeaders, p.stream, jsonHead)
			p.frame(fReset, 0, p.stream, []byte{0, 0, 0, 2})
		}, down},
		{"HTTP/2 reset at once", func(p *player) { p.frame(fReset, 0, p.stream, []byte{0, 0, 0, 7}) }, down},
		{"HTTP/2 interim answers without end", func(p *player) {
			for range 1 << 20 {
				if !p.frame(fHeaders, endHeaders, p.stream, status(103)) {
					return
				}
			}
		}, down},
		{"HTTP/2 trailers of 64 MiB", func(p *player) {
			p.frame(fHeaders, endHeaders, p.stream, append(slices.Clone(jsonHead), field("trailer", "x-t")...))
			p.frame(fData, 0, p.stream, []byte("[]"))
			p.frame(fHeaders, endStream, p.stream, field("x-t", "1"))
			part := bytes.Repeat(field("x-t", string(mega[:1000])), 15)
			for range 4096 {
				if !p.frame(fContinuation, 0, p.stream, part) {
					return
				}
			}
		}, down},
		{"HTTP/2 1 GiB that minds no window", func(p *player) {
			p.frame(fHeaders, endHeaders, p.stream, jsonHead)
			for range 1 << 16 {
				if !p.frame(fData, 0, p.stream, mega[:16<<10]) {
					return
				}
			}
		}, append(large, down...)},
		{"HTTP/2 empty data without end", func(p *player) {
			p.frame(fHeaders, endHeaders, p.stream, jsonHead)
			for range 1 << 16 {
				if !p.frame(fData, 0, p.stream, nil) {
					return
				}
			}
			_ = p.Close()
		}, down},
		{"HTTP/2 settings and pings without end", func(p *player) {
			for range 1 << 14 {
				if !p.frame(fSettings, 0, 0, nil) || !p.frame(fPing, 0, 0, mega[:8]) {
					return
				}
			}
			_ = p.Close()
		}, down},
		{"HTTP/2 a window that overflows", func(p *player) {
			for range 3 {
				p.frame(fWindow, 0, 0, []byte{0x7f, 0xff, 0xff, 0xff})
			}
		}, down},
		{"HTTP/2 goes away as text", func(p *player) { fmt.Fprint(p, "HTTP/1.1 400 Bad Request\r\n\r\n"); _ = p.Close() }, down},
	}
	issues := func(t *testing.T) world.Result {
		t.Helper()
		res, err := r.work.Actor().Connector(r.ctx(), "github", "issues", "--repo", "ada/site", "--account", "hostile", "--json")
		if err != nil {
			t.Fatal(err)
		}
		return res
	}
	pids := map[string]int{"egress": r.Daemon("egress").PID(), "worker-github": r.Daemon("worker-github").PID()}
	for _, protocol := range []struct {
		h2    bool
		list  []hostility
		plain func(*player)
	}{{false, h1, well}, {true, h2, wellH2}} {
		h.set(protocol.h2, protocol.plain)
		if res := issues(t); res.Code != 0 { // control: well-behaved, the same server is well
			t.Fatalf("control: %v", res)
		}
		for _, x := range protocol.list {
			t.Run(x.name, func(t *testing.T) {
				for name := range pids {
					r.resetPeak(name)
				}
				before := map[string]int{"egress": r.peak("egress"), "worker-github": r.peak("worker-github")}
				h.set(protocol.h2, x.play)
				began := time.Now()
				res := issues(t)
				took := time.Since(began)
				if res.Code == 0 || !slices.Contains(x.want, refusal(t, res).Code) {
					t.Errorf("%v, want %v", res, x.want)
				}
				if took > 2*time.Minute { // a call may run for ten; an emulated processor needs 30 s for a million chunks
					t.Errorf("it hung: it took %s", took)
				}
				for name, was := range before {
					grown := r.peak(name) - was
					t.Logf("%s: %s had %d MiB and took up to %d more", took.Round(time.Millisecond), name, was, grown)
					// An answer has at most 16 MiB, and a buffer doubles as it grows: old and new are there at once, and
					// what the collector has not seen yet.
					if grown > 96 {
						t.Errorf("%s took %d MiB", name, grown)
					}
				}
				t.Log(strings.TrimSpace(res.Stdout + res.Stderr))
				h.set(protocol.h2, protocol.plain)
				if res := issues(t); res.Code != 0 {
					t.Errorf("the next call: %v", res)
				}
			})
		}
	}
	r.connector(r.work, 0, "github", "issues", "--repo", "ada/site", "--account", "code", "--json")
	for name, pid := range pids {
		if r.Daemon(name).PID() != pid {
			t.Errorf("%s was started again", name)
		}
	}
}
