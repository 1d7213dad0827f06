// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/doorward/doorward/test/vendors/standin"
)

// proxies are the rows of the worker's hop: requests of a worker under one grant, through egress, swapped, each on the
// record.
func (r *rig) proxies(t *table, nginx string) error {
	if t.wants("proxy/cold-uds") {
		if err := r.coldUDS(t); err != nil {
			return err
		}
	}
	if t.wants("proxy/warm-uds") {
		if _, err := os.Stat(nginx); err != nil {
			t.absent("proxy/warm-uds", "<= 1.0", "no nginx at "+nginx)
		} else if err := r.warmUDS(t, nginx); err != nil {
			return err
		}
	}
	if t.wants("proxy/rps16-worker") {
		_, rate, err := r.load(16, 4000)
		if err != nil {
			return err
		}
		d, err := r.straight(16, 4000)
		if err != nil {
			return err
		}
		t.add("proxy/rps16-worker", "report", "requests/s of straight HTTPS, 16 connections; once", []float64{rate / d})
	}
	return nil
}

// load has the load worker send n requests over k connections; it returns the median in ns and requests a second.
func (r *rig) load(k, n int) (float64, float64, error) {
	out, err := r.connector("load", "run", "--conns", fmt.Sprint(k), "--requests", fmt.Sprint(n), "--json")
	if err != nil {
		return 0, 0, err
	}
	var v struct {
		Wall float64
		NS   []float64
	}
	if err := json.Unmarshal([]byte(out), &v); err != nil || len(v.NS) == 0 {
		return 0, 0, fmt.Errorf("the load worker answered %q: %v", out, err)
	}
	return median(v.NS), float64(n/k*k) / (v.Wall / 1e9), nil
}

// straight is the same load by plain net/http to the origin itself.
func (r *rig) straight(k, n int) (float64, error) {
	c := &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: r.origin.roots}, MaxIdleConnsPerHost: k}}
	start := time.Now()
	errs := make(chan error, k)
	var wg sync.WaitGroup
	for range k {
		wg.Go(func() {
			for range n / k {
				if _, err := get(r.ctx, c, r.origin.base+"/load", token); err != nil {
					errs <- err
					return
				}
			}
		})
	}
	wg.Wait()
	select {
	case err := <-errs:
		return 0, err
	default:
		return float64(n/k*k) / time.Since(start).Seconds(), nil
	}
}

// get is one request that must be answered 200; it returns its time in ns.
func get(ctx context.Context, c *http.Client, url, bearer string) (float64, error) {
	req, err := http.NewRequestWithContext(ctx, "GET", url, nil)
	if err != nil {
		return 0, err
	}
	if bearer != "" {
		req.Header.Set("Authorization", "Bearer "+bearer)
	}
	start := time.Now()
	resp, err := c.Do(req)
	if err != nil {
		return 0, err
	}
	defer resp.Body.Close()
	if _, err := io.Copy(io.Discard, resp.Body); err != nil {
		return 0, err
	}
	if resp.StatusCode != http.StatusOK {
		return 0, fmt.Errorf("%s answered %s", url, resp.Status)
	}
	return float64(time.Since(start).Nanoseconds()), nil
}

// coldUDS: a worker's new connection to egress and its first answer, upstream warm, against a cold HTTPS request. The
// time is that of a whole `ping` call's only request, as the worker sees it.
func (r *rig) coldUDS(t *table) error {
	ratios, err := quiet(func() (float64, error) {
		var through, direct []float64
		for range 15 {
			m, _, err := r.load(1, 1)
			if err != nil {
				return 0, err
			}
			through = append(through, m)
			c := &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: r.origin.roots}, DisableKeepAlives: true}}
			d, err := get(r.ctx, c, r.origin.base+"/load", token)
			if err != nil {
				return 0, err
			}
			direct = append(direct, d)
		}
		return median(through) / median(direct), nil
	})
	if err != nil {
		return err
	}
	t.add("proxy/cold-uds", "<= 0.35", "a cold HTTPS request of plain Go", ratios)
	return nil
}

// warmUDS against nginx, which takes TLS and makes it anew with a pool of kept connections, and sets the credential.
func (r *rig) warmUDS(t *table, nginx string) error {
	n, err := r.startNginx(nginx)
	if err != nil {
		return err
	}
	defer n.stop()
	c := &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: n.roots}, MaxIdleConnsPerHost: 1}}
	ratios, err := quiet(func() (float64, error) {
		var peer []float64
		for range 600 {
			d, err := get(r.ctx, c, n.base+"/load", "")
			if err != nil {
				return 0, err
			}
			peer = append(peer, d)
		}
		ours, _, err := r.load(1, 600)
		if err != nil {
			return 0, err
		}
		return ours / median(peer[100:]), nil
	})
	if err != nil {
		return err
	}
	t.add("proxy/warm-uds", "<= 1.0", "nginx that re-encrypts, one kept connection each", ratios)
	return nil
}

type peer struct {
	base  string
	roots *x509.CertPool
	cmd   *exec.Cmd
}

func (p *peer) stop() {
	_ = p.cmd.Process.Kill()
	_ = p.cmd.Wait()
}

func (r *rig) startNginx(path string) (*peer, error) {
	ca, err := standin.NewCA()
	if err != nil {
		return nil, err
	}
	leaf, err := ca.Issue(standin.Leaf{Names: []string{"127.0.0.1", "localhost"}})
	if err != nil {
		return nil, err
	}
	cert, key, err := standin.PEMPair(leaf)
	if err != nil {
		return nil, err
	}
	origin := strings.TrimPrefix(r.origin.base, "https://")
	p, err := startNginx(r.ctx, path, filepath.Join(r.w.Dir, "nginx"), nginxFiles{cert: cert, key: key, originCA: r.origin.ca,
		origin: origin, host: origin, name: "localhost"})
	if err != nil {
		return nil, err
	}
	p.roots.AppendCertsFromPEM(ca.PEM())
	return p, nil
}

// nginxFiles is what an nginx that re-encrypts has: its own certificate, and the server's root, IP:PORT, Host and name in TLS.
type nginxFiles struct {
	cert, key, originCA []byte
	origin, host, name  string
}

// free is an IP:PORT that nobody listens at.
func free() (string, error) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	defer ln.Close()
	return ln.Addr().String(), nil
}

func startNginx(ctx context.Context, path, dir string, f nginxFiles) (*peer, error) {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, err
	}
	addr, err := free()
	if err != nil {
		return nil, err
	}
	conf := fmt.Sprintf(`daemon off; worker_processes 2; pid %[1]s/pid; error_log %[1]s/error.log;
events { worker_connections 256; }
http {
  access_log off; client_body_temp_path %[1]s/b; proxy_temp_path %[1]s/p; fastcgi_temp_path %[1]s/f; uwsgi_temp_path %[1]s/u; scgi_temp_path %[1]s/s;
  upstream origin { server %[2]s; keepalive 64; }
  server {
    listen %[3]s ssl; ssl_certificate %[1]s/cert.pem; ssl_certificate_key %[1]s/key.pem; keepalive_requests 1000000;
    location / {
      proxy_pass https://origin; proxy_http_version 1.1; proxy_set_header Connection ""; proxy_set_header Host %[5]s;
      proxy_set_header Authorization "Bearer %[4]s"; proxy_ssl_trusted_certificate %[1]s/origin.pem; proxy_ssl_verify on; proxy_ssl_name %[6]s;
    }
  }
}
`, dir, f.origin, addr, token, f.host, f.name)
	for name, b := range map[string][]byte{"nginx.conf": []byte(conf), "cert.pem": f.cert, "origin.pem": f.originCA,
		"key.pem": f.key} {
		if err := os.WriteFile(filepath.Join(dir, name), b, 0o600); err != nil {
			return nil, err
		}
	}
	cmd := exec.CommandContext(ctx, path, "-p", dir, "-c", filepath.Join(dir, "nginx.conf"))
	cmd.Stderr = os.Stderr
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	p := &peer{base: "https://" + addr, roots: x509.NewCertPool(), cmd: cmd}
	for range 100 {
		c, err := net.Dial("tcp", addr)
		if err == nil {
			c.Close()
			return p, nil
		}
		time.Sleep(50 * time.Millisecond)
	}
	p.stop()
	return nil, fmt.Errorf("nginx does not answer; see %s/error.log", dir)
}
