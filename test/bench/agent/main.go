// SPDX-License-Identifier: Apache-2.0

// Command agent is both ends of the rows of a cell's network: what an agent runs in its cell, and the server that it talks to. The
// same program talks to the server straight, or by a peer. Anything but the answer that was asked for ends it with an error.
package main

import (
	"bufio"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"
)

var (
	mode  = flag.String("mode", "", "serve, get, download, events, rest")
	host  = flag.String("host", "", "host of the server; %d is the number of the request")
	to    = flag.String("to", "", "IP:PORT that is connected to in place of the host's; of serve, where it listens")
	ca    = flag.String("ca", "", "file of the roots in place of the machine's; of serve, the certificate and key")
	token = flag.String("token", "", "what is sent as the bearer's; of serve, what has to come")
	proxy = flag.String("proxy", "", "URL of a proxy")
	conns = flag.Int("conns", 1, "connections")
	n     = flag.Int("n", 1, "requests of each connection, events, or connections that rest")
	from  = flag.Int("from", 0, "number of the first request")
	warm  = flag.Int("warm", 0, "requests of each connection before those that count")
	cold  = flag.Bool("cold", false, "a connection for each request")
	size  = flag.Int64("size", 64<<20, "bytes of a download")
)

// took is what the program prints.
type took struct {
	Wall   float64   // ns
	NS     []float64 // of each request, or of each event's way
	Leaves int       // different certificates that were shown
}

func main() {
	flag.Parse()
	out, err := run(context.Background())
	if err == nil && out != nil {
		err = json.NewEncoder(os.Stdout).Encode(out)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "agent:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context) (*took, error) {
	switch *mode {
	case "serve":
		return nil, serve()
	case "get":
		return load(ctx)
	case "download":
		return download(ctx)
	case "events":
		return events(ctx)
	case "rest":
		return nil, rest()
	}
	return nil, fmt.Errorf("no mode %q", *mode)
}

func roots() (*x509.CertPool, error) {
	if *ca == "" {
		return nil, nil
	}
	pem, err := os.ReadFile(*ca)
	if err != nil {
		return nil, err
	}
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(pem)
	return pool, nil
}

// client is one with connections of its own.
func client() (*http.Client, error) {
	pool, err := roots()
	if err != nil {
		return nil, err
	}
	t := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: pool}, MaxIdleConnsPerHost: 256, DisableKeepAlives: *cold,
		DisableCompression: true, DialContext: func(ctx context.Context, network, addr string) (net.Conn, error) {
			if *to != "" && *proxy == "" {
				addr = *to
			}
			return new(net.Dialer).DialContext(ctx, network, addr)
		}}
	if *proxy != "" {
		u, err := url.Parse(*proxy)
		if err != nil {
			return nil, err
		}
		t.Proxy = http.ProxyURL(u)
	}
	return &http.Client{Transport: t, Timeout: 2 * time.Minute}, nil
}

func ask(ctx context.Context, c *http.Client, number int, path string) (*http.Response, error) {
	name := *host
	if strings.Contains(name, "%d") {
		name = fmt.Sprintf(name, number)
	}
	req, err := http.NewRequestWithContext(ctx, "GET", "https://"+name+path, nil)
	if err != nil {
		return nil, err
	}
	req.Header.Set("Authorization", "Bearer "+*token)
	resp, err := c.Do(req)
	if err != nil {
		return nil, err
	}
	if resp.StatusCode != http.StatusOK {
		b, _ := io.ReadAll(io.LimitReader(resp.Body, 1000))
		resp.Body.Close()
		return nil, fmt.Errorf("%s%s answered %s: %s", name, path, resp.Status, b)
	}
	return resp, nil
}

// load sends requests over connections that all begin at once.
func load(ctx context.Context) (*took, error) {
	type one struct {
		ns     []float64
		leaves map[string]bool
		err    error
	}
	all := make([]one, *conns)
	var ready, done sync.WaitGroup
	begin := make(chan time.Time)
	ready.Add(*conns)
	for k := range all {
		o := &all[k]
		o.leaves = map[string]bool{}
		done.Go(func() {
			c, err := client()
			get := func(i int) error {
				resp, err := ask(ctx, c, i, "/small")
				if err != nil {
					return err
				}
				defer resp.Body.Close()
				got, err := io.Copy(io.Discard, resp.Body)
				if err == nil && got != small {
					err = fmt.Errorf("an answer of %d bytes", got)
				}
				o.leaves[string(resp.TLS.PeerCertificates[0].Raw)] = true
				return err
			}
			for i := 0; err == nil && i < *warm; i++ {
				err = get(*from)
			}
			ready.Done()
			<-begin
			for i := 0; err == nil && i < *n; i++ {
				start := time.Now()
				err = get(*from + i)
				o.ns = append(o.ns, float64(time.Since(start)))
			}
			o.err = err
		})
	}
	ready.Wait()
	start := time.Now()
	close(begin)
	done.Wait()
	out := &took{Wall: float64(time.Since(start))}
	leaves := map[string]bool{}
	for _, o := range all {
		if o.err != nil {
			return nil, o.err
		}
		out.NS = append(out.NS, o.ns...)
		for l := range o.leaves {
			leaves[l] = true
		}
	}
	out.Leaves = len(leaves)
	return out, nil
}

// download reads a body, after a small one.
func download(ctx context.Context) (*took, error) {
	c, err := client()
	if err != nil {
		return nil, err
	}
	out := new(took)
	for _, want := range []int64{1 << 20, *size} {
		start := time.Now()
		resp, err := ask(ctx, c, 0, "/bulk?"+strconv.FormatInt(want, 10))
		if err != nil {
			return nil, err
		}
		got, err := io.CopyBuffer(struct{ io.Writer }{io.Discard}, resp.Body, make([]byte, 64<<10))
		resp.Body.Close()
		if err != nil || got != want {
			return nil, fmt.Errorf("%d of %d bytes: %w", got, want, err)
		}
		out.Wall = float64(time.Since(start))
	}
	return out, nil
}

// events is how long each event is on its way: the server writes when it sent it, by the clock of this machine.
func events(ctx context.Context) (*took, error) {
	c, err := client()
	if err != nil {
		return nil, err
	}
	resp, err := ask(ctx, c, 0, "/events?"+strconv.Itoa(*n))
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	out := new(took)
	lines := bufio.NewScanner(resp.Body)
	for lines.Scan() {
		if text, ok := strings.CutPrefix(lines.Text(), "data: "); ok {
			sent, err := strconv.ParseInt(text, 10, 64)
			if err != nil {
				return nil, err
			}
			out.NS = append(out.NS, float64(time.Now().UnixNano()-sent))
		}
	}
	if len(out.NS) != *n {
		return nil, fmt.Errorf("%d of %d events: %w", len(out.NS), *n, lines.Err())
	}
	return out, nil
}

// rest opens WebSockets and lets them rest until stdin ends.
func rest() error {
	pool, err := roots()
	if err != nil {
		return err
	}
	list := make([]*tls.Conn, 0, *n)
	for range *n {
		c, err := tls.Dial("tcp", net.JoinHostPort(*host, "443"), &tls.Config{RootCAs: pool})
		if err != nil {
			return err
		}
		fmt.Fprintf(c, "GET /socket HTTP/1.1\r\nHost: %s\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n"+
			"Sec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\nAuthorization: Bearer %s\r\n\r\n", *host, *token)
		resp, err := http.ReadResponse(bufio.NewReader(c), nil)
		if err != nil {
			return err
		}
		if resp.StatusCode != http.StatusSwitchingProtocols {
			b, _ := io.ReadAll(io.LimitReader(resp.Body, 1000))
			return fmt.Errorf("a WebSocket was answered %s: %s", resp.Status, b)
		}
		list = append(list, c)
	}
	fmt.Println("resting")
	_, err = io.Copy(io.Discard, os.Stdin)
	for _, c := range list {
		_ = c.Close()
	}
	return err
}

const small = 1024 // bytes

// serve is plain net/http with TLS. Who has not the credential is answered 401.
func serve() error {
	cert, err := tls.LoadX509KeyPair(*ca, *ca)
	if err != nil {
		return err
	}
	ln, err := net.Listen("tcp", *to)
	if err != nil {
		return err
	}
	body := make([]byte, small)
	piece := make([]byte, 64<<10)
	for i := range body {
		body[i] = 'x'
	}
	for i := range piece {
		piece[i] = byte('a' + i%26)
	}
	protocols := new(http.Protocols)
	protocols.SetHTTP1(true)
	s := &http.Server{Protocols: protocols, TLSConfig: &tls.Config{Certificates: []tls.Certificate{cert}},
		Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.Header.Get("Authorization") != "Bearer "+*token {
				w.WriteHeader(http.StatusUnauthorized)
				return
			}
			much, _ := strconv.ParseInt(r.URL.RawQuery, 10, 64)
			w.Header().Set("Content-Type", "application/octet-stream")
			switch r.URL.Path {
			case "/small":
				_, _ = w.Write(body)
			case "/bulk":
				w.Header().Set("Content-Length", strconv.FormatInt(much, 10))
				for much > 0 {
					k, err := w.Write(piece[:min(much, int64(len(piece)))])
					if err != nil {
						return
					}
					much -= int64(k)
				}
			case "/events":
				w.Header().Set("Content-Type", "text/event-stream")
				for range much {
					time.Sleep(2 * time.Millisecond)
					fmt.Fprintf(w, "data: %d\n\n", time.Now().UnixNano())
					if http.NewResponseController(w).Flush() != nil {
						return
					}
				}
			case "/socket":
				c, rw, err := http.NewResponseController(w).Hijack()
				if err != nil {
					return
				}
				defer c.Close()
				_, _ = rw.WriteString("HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n" +
					"Sec-WebSocket-Accept: ICX+Yqv66kxgM0FcWaLWlFLwTAI=\r\n\r\n")
				_ = rw.Flush()
				_, _ = io.Copy(io.Discard, rw)
			default:
				w.WriteHeader(http.StatusNotFound)
			}
		})}
	fmt.Println("ready")
	return s.ServeTLS(ln, "", "")
}
