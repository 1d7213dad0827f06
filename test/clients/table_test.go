// SPDX-License-Identifier: Apache-2.0

package clients

import (
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/doorward/doorward/test/world"
)

// scripts are programs as anybody writes them: none knows of Doorward.
var scripts = map[string]string{
	"fetch.mjs": `const base = process.argv[2]
const r = await fetch(base + "/echo", {method: "POST", body: "from node ".repeat(1000)})
const text = await r.text()
console.log(r.status, text.length, r.headers.get("trailer"))
const s = await fetch(base + "/v1/messages", {method: "POST", headers: {"content-type": "application/json"}, body: '{"model":"m","stream":true}'})
let n = 0, all = ""
for await (const part of s.body) {
  if (n++ == 0) await (await fetch(base + "/began")).text()
  all += Buffer.from(part).toString()
}
console.log(all)
`,
	"undici.mjs": `import {request} from "undici"
const r = await request(process.argv[2] + "/echo", {method: "PUT", body: "from undici"})
console.log(r.statusCode, await r.body.text(), JSON.stringify(r.trailers))
process.exit(0)
`,
	"ws.mjs": `import WebSocket from "ws"
const w = new WebSocket(process.argv[2].replace("https:", "wss:") + "/ws", {headers: {origin: "https://app.example"}, perMessageDeflate: false})
let n = 0
w.on("message", m => { console.log(m.toString()); if (n++ == 0) w.send("one"); else if (n == 2) w.send("x".repeat(70000)); else w.close() })
w.on("error", e => { console.error(e); process.exit(1) })
w.on("close", () => process.exit(0))
`,
	"by_requests.py": `import sys, requests
base = sys.argv[1]
s = requests.Session()
r = s.post(base + "/echo", data=b"from requests")
print(r.status_code, r.text)
r = s.post(base + "/sum", data=iter([b"in ", b"chunks"]))
print(r.status_code, r.text)
r = s.post(base + "/v1/messages", json={"stream": True}, stream=True)
for n, line in enumerate(r.iter_lines(chunk_size=1)):
    if n == 0:
        requests.get(base + "/began")
    print(line.decode())
`,
	"by_httpx.py": `import sys, httpx
with httpx.Client(http2=True) as c:
    r = c.post(sys.argv[1] + "/echo", content=b"from httpx")
    print(r.http_version, r.status_code, r.text)
`,
	"by_websockets.py": `import asyncio, sys, websockets
async def main():
    async with websockets.connect(sys.argv[1].replace("https:", "wss:") + "/ws", origin="https://app.example", compression=None) as w:
        print(await w.recv())
        await w.send("from python")
        print(await w.recv())
asyncio.run(main())
`,
	"Client.java": `import java.net.URI;
import java.net.http.*;
public class Client {
  public static void main(String[] args) throws Exception {
    var c = HttpClient.newHttpClient();
    var r = c.send(HttpRequest.newBuilder(URI.create(args[0] + "/echo")).POST(HttpRequest.BodyPublishers.ofString("from java")).build(),
        HttpResponse.BodyHandlers.ofString());
    System.out.println(r.version() + " " + r.statusCode() + " " + r.body());
  }
}
`,
	"lookup.mjs": `import dns from "node:dns/promises"
const begin = Date.now()
console.log((await dns.lookup(process.argv[2])).address)
if (Date.now() - begin > 3000) throw new Error("it took " + (Date.now() - begin) + " ms")
`,
	"Lookup.java": `import java.net.InetAddress;
public class Lookup {
  public static void main(String[] args) throws Exception {
    long begin = System.currentTimeMillis();
    System.out.println(InetAddress.getByName(args[0]).getHostAddress());
    if (System.currentTimeMillis() - begin > 3000) throw new Exception("it took long");
  }
}
`,
}

// client is one program, with what it differs in from run to run by itself.
type client struct {
	name   string
	needs  func(*testing.T, *rig)
	server string
	args   func(r *rig, base string) []string
	says   string         // that it has to say
	own    *regexp.Regexp // of what the server saw
}

func has(programs ...string) func(*testing.T, *rig) {
	return func(t *testing.T, _ *rig) { t.Helper(); installed(t, programs...) }
}

func module(names ...string) func(*testing.T, *rig) {
	return func(t *testing.T, _ *rig) { t.Helper(); python(t, names...) }
}

// webSocket is what each WebSocket draws for itself: its key, and the masks of its frames.
var webSocket = regexp.MustCompile(`(?is)sec-websocket-key: [^\r]*|(?:\r\n\r\n).*`)

var table = []client{
	{"curl", has("curl"), "web", func(_ *rig, base string) []string {
		return []string{"curl", "-sS", "-d", "from curl", "-i", base + "/echo"}
	}, "from curl", nil},
	{"curl two requests", has("curl"), "web", func(_ *rig, base string) []string {
		return []string{"curl", "-sS", "-d", "one", base + "/echo", "--next", "-sS", "-X", "DELETE", "-H", "Transfer-Encoding: chunked",
			"-d", "two", base + "/echo"}
	}, "onetwo", nil},
	{"curl upload", has("curl"), "web", func(r *rig, base string) []string { // with Expect: 100-continue
		return []string{"curl", "-sS", "-H", "Expect: 100-continue", "-T", r.path("file"), base + "/sum"}
	}, "3145728 ", nil},
	{"curl resume", has("curl"), "web", func(_ *rig, base string) []string {
		return []string{"/bin/sh", "-c", `rm -f f; curl -sS -r 0-99999 -o f "$1/file" && curl -sS -C - -o f "$1/file" && sha256sum f`, "sh", base}
	}, "  f", nil},
	{"curl h2", has("curl"), "two", func(_ *rig, base string) []string {
		return []string{"curl", "-sS", "--http2", "-d", "from curl", "-w", " %{http_version}", base + "/echo"}
	}, "from curl 2", nil},
	{"curl h2 upload", has("curl"), "two", func(r *rig, base string) []string {
		return []string{"curl", "-sS", "--http2", "-T", r.path("file"), base + "/sum"}
	}, "3145728 ", nil},
	{"curl stream", has("curl"), "web", func(_ *rig, base string) []string {
		return []string{"/bin/sh", "-c", `curl -sSN -d '{"stream":true}' "$1/v1/messages" | while read -r l; do ` +
			`[ -n "$began" ] || curl -sS -o /dev/null "$1/began"; began=yes; echo "$l"; done`, "sh", base}
	}, "event: message_stop", nil},
	{"wget", has("wget"), "web", func(_ *rig, base string) []string {
		return []string{"wget", "-q", "-O", "-", "--post-data=from wget", base + "/echo"}
	}, "from wget", nil},
	{"openssl s_client", has("openssl"), "web", func(_ *rig, base string) []string {
		host := strings.TrimPrefix(base, "https://")
		return []string{"/bin/sh", "-c", `printf 'GET /sum HTTP/1.1\r\nHost: '"$1"'\r\nConnection: close\r\n\r\n' | ` +
			`openssl s_client -quiet -ign_eof -verify_return_error -verify_hostname "$1" -servername "$1" -connect "$1:443" 2>/dev/null | grep '^0 '`, "sh", host}
	}, "0 e3b0c442", nil},
	{"node fetch", has("node"), "web", func(r *rig, base string) []string { return []string{"node", r.path("fetch.mjs"), base} },
		"event: message_stop", nil},
	{"undici", npm, "web", func(r *rig, base string) []string { return []string{"node", r.path("undici.mjs"), base} }, "from undici", nil},
	{"ws", npm, "web", func(r *rig, base string) []string { return []string{"node", r.path("ws.mjs"), base} }, "echo one", webSocket},
	{"requests", module("requests"), "web", func(r *rig, base string) []string {
		return []string{"/usr/bin/python3", r.path("by_requests.py"), base}
	}, "event: message_stop", nil},
	{"httpx", module("httpx", "h2"), "two", func(r *rig, base string) []string {
		return []string{"/usr/bin/python3", r.path("by_httpx.py"), base}
	}, "HTTP/2 200 from httpx", nil},
	{"websockets", module("websockets"), "web", func(r *rig, base string) []string {
		return []string{"/usr/bin/python3", r.path("by_websockets.py"), base}
	}, "echo from python", webSocket},
	{"go http", has(), "web", func(r *rig, base string) []string { return []string{r.path("goclient"), "http", base + "/echo"} },
		"HTTP/1.1 200 OK from go", nil},
	{"go http2", has(), "two", func(r *rig, base string) []string { return []string{r.path("goclient"), "http", base + "/echo"} },
		"HTTP/2.0 200 OK from go", nil},
	{"go grpc", has(), "grpc", func(r *rig, base string) []string {
		return []string{r.path("goclient"), "grpc", strings.TrimPrefix(base, "https://") + ":443"}
	}, "trailer: [three]\nfails: rpc error: code = NotFound desc = no such service: none", nil},
	{"java", has("java", "javac"), "two", func(r *rig, base string) []string {
		return []string{"java", "-Xint", "-XX:TieredStopAtLevel=1", "-cp", r.dir, "Client", base}
	}, "HTTP_2 200 from java", nil},
}

// npm installs what the registry has, once, outside of the cell; where there is none to be had it skips.
func npm(t *testing.T, r *rig) {
	t.Helper()
	installed(t, "node", "npm")
	if !fromNPM(r) {
		t.Skip("client skipped: ws and undici are not to be had from npm's registry")
	}
}

var (
	npmOnce sync.Once
	npmDone bool
)

func fromNPM(r *rig) bool {
	npmOnce.Do(func() {
		cmd := exec.Command("npm", "install", "--no-audit", "--no-fund", "--ignore-scripts", "--prefix", r.dir, "ws@8", "undici@6")
		npmDone = cmd.Run() == nil
	})
	return npmDone
}

// TestPrograms: what a program sends from the cell is what it sends without Doorward, byte for byte where the server speaks
// HTTP/1.1, and what it is answered is the same. Control: the run outside of the cell.
func TestPrograms(t *testing.T) {
	r := need(t)
	for _, c := range table {
		t.Run(strings.ReplaceAll(c.name, " ", "-"), func(t *testing.T) {
			c.needs(t, r)
			s := r.servers[c.server]
			run := func(domain string, do func(*testing.T, string, ...string) string) (said string, saw []string) {
				if s.handler != nil {
					s.take()
				}
				said = same(do(t, r.scratch(t), c.args(r, "https://"+c.server+"."+domain)...), domain)
				if s.handler != nil {
					for _, x := range s.take() {
						if c.own != nil {
							x = c.own.ReplaceAllString(x, "*")
						}
						saw = append(saw, same(x, domain))
					}
				}
				slices.Sort(saw)
				return said, saw
			}
			said, saw := run(outside, func(t *testing.T, dir string, args ...string) string { return r.without(t, dir, args...).String() })
			if !strings.HasPrefix(said, "exit code 0\n") || !strings.Contains(said, c.says) || s.handler != nil && len(saw) == 0 {
				t.Fatalf("control: without Doorward it does not work: %s", said)
			}
			for _, m := range modes {
				got, came := run(m.domain, func(t *testing.T, dir string, args ...string) string {
					return r.asks(t, m, func() world.Result {
						s.take() // of a run that was refused in its middle
						return r.inCell(t, dir, args...)
					}).String()
				})
				if noDate(got) != noDate(said) {
					t.Errorf("%s: in the cell it says\n%s\nand outside\n%s", m.setting, got, said)
				}
				if d := diff(came, saw); d != "" {
					t.Errorf("%s: the server saw other than without Doorward: %s", m.setting, d)
				}
			}
		})
	}
}

var date = regexp.MustCompile(`Date: [^\r\n]*`)

func noDate(s string) string { return date.ReplaceAllString(s, "Date") }
