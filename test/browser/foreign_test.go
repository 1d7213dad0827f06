// SPDX-License-Identifier: Apache-2.0

package browser

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"
)

// tap sees what comes to page and to approvals, and what they say to it.
type tap struct {
	mu   sync.Mutex // guards what follows
	seen []seen
}

type seen struct {
	path   string // with the port's name in front: page or api
	status int
}

func (t *tap) on(port string, h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h.ServeHTTP(&tapped{ResponseWriter: w, say: func(status int) {
			t.mu.Lock()
			t.seen = append(t.seen, seen{port + r.URL.Path, status})
			t.mu.Unlock()
		}}, r)
	})
}

// since are those behind the first n.
func (t *tap) since(n int) []seen {
	t.mu.Lock()
	defer t.mu.Unlock()
	return slices.Clone(t.seen[n:])
}

// tapped tells of an answer when its head is written: one of events has no end.
type tapped struct {
	http.ResponseWriter
	say    func(int)
	before func(http.Header)
	once   sync.Once
}

func (w *tapped) WriteHeader(status int) {
	w.once.Do(func() {
		if w.before != nil {
			w.before(w.Header())
		}
		if w.say != nil {
			w.say(status)
		}
	})
	w.ResponseWriter.WriteHeader(status)
}

func (w *tapped) Write(b []byte) (int, error) {
	w.once.Do(func() {
		if w.before != nil {
			w.before(w.Header())
		}
		if w.say != nil {
			w.say(http.StatusOK)
		}
	})
	return w.ResponseWriter.Write(b)
}

func (w *tapped) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// walls says which of the walls against other sites stand.
type walls struct{ origin, kind, frame, opener bool }

// openly takes the missing ones away: the API takes any origin, or any type of body, and no nonce; the page may be framed, or stays in its
// opener's hand.
func (w walls) openly(own func() string) between {
	return between{
		page: func(h http.Handler) http.Handler {
			return http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
				h.ServeHTTP(&tapped{ResponseWriter: rw, before: func(h http.Header) {
					if !w.frame {
						h.Del("Content-Security-Policy")
					}
					if !w.opener {
						h.Del("Cross-Origin-Opener-Policy")
					}
				}}, r)
			})
		},
		api: func(h http.Handler) http.Handler {
			return http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
				from := r.Header.Get("Origin")
				if !w.origin {
					r.Header.Set("Origin", own())
				}
				if !w.kind && r.Method == http.MethodPost && r.Header.Get("Doorward-Nonce") == "" {
					r.Header.Set("Content-Type", "application/json")
					r.Header.Set("Doorward-Nonce", strings.Repeat("A", 43)+"=")
				}
				h.ServeHTTP(&tapped{ResponseWriter: rw, before: func(h http.Header) {
					if !w.origin && from != "" {
						h.Set("Access-Control-Allow-Origin", from)
					}
				}}, r)
			})
		},
	}
}

// Scripts of another site. Each ends when its attempt has; api and page are the two origins, and ended(e, ...) waits for one of the
// events. stop narrows, and is the most that an answered request could do.
var attempts = map[string]string{
	"a form":         `form("text/plain", '{"cell":"', 'work"}')`,
	"a simple fetch": `fetch(api + "/v1/stop", { method: "POST", mode: "no-cors", credentials: "include", body: '{"cell":"work"}' }).catch(() => 0)`,
	"a fetch that says JSON": `fetch(api + "/v1/stop", { method: "POST", mode: "cors", credentials: "include",
		headers: { "Content-Type": "application/json" }, body: '{"cell":"work"}' }).catch(() => 0)`,
	"an XMLHttpRequest": `(() => { const x = new XMLHttpRequest(); x.open("POST", api + "/v1/stop"); x.withCredentials = true;
		x.send('{"cell":"work"}'); return ended(x, "loadend"); })()`,
	"the stream of events": `(() => { const s = new EventSource(api + "/v1/events?after=-1", { withCredentials: true });
		return ended(s, "open", "error").then(() => s.close()); })()`,
	"a WebSocket": `ended(new WebSocket(api.replace("http", "ws") + "/v1/events?after=-1"), "open", "error")`,
	"an image":    `(() => { const i = new Image(); i.src = api + "/v1/events?after=-1"; return ended(i, "load", "error"); })()`,
	"a script": `(() => { const s = document.createElement("script"); s.src = api + "/v1/events?after=-1"; document.head.append(s);
		return ended(s, "load", "error"); })()`,
	"a frame of the API": `frame("iframe", "src", api + "/v1/events?after=-1")`,
}

const tools = `const ended = (e, ...kinds) => new Promise((done) => kinds.forEach((k) => e.addEventListener(k, done, { once: true })));
	const frame = (kind, name, at) => { const f = document.createElement(kind); f[name] = at; document.body.append(f); return ended(f, "load", "error"); };
	const form = (kind, name, value) => { const to = document.createElement("iframe"); to.name = "to"; document.body.append(to); // loads now
		const f = document.createElement("form"); Object.assign(f, { method: "post", action: api + "/v1/stop", enctype: kind, target: "to" });
		const i = document.createElement("input"); Object.assign(i, { name, value, type: "hidden" }); f.append(i); document.body.append(f); f.submit();
		return ended(to, "load", "error"); };`

// foreign is a window of a person who is signed in, and who has come to another site.
type foreign struct {
	*tab
	r    *rig
	tap  *tap
	site string
}

// visit signs a person in and leads the window to the site: with the host of the page, and so with its cookie, or another.
func visit(t *testing.T, stand walls, host string) *foreign {
	t.Helper()
	seen := new(tap)
	var r *rig
	r = newRig(t, stand.openly(func() string { return r.place.PageOrigin() }), between{
		page: func(h http.Handler) http.Handler { return seen.on("page", h) },
		api:  func(h http.Handler) http.Handler { return seen.on("api", h) },
	})
	b := r.enrolled(t, 800, 600)
	evil := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/html")
		fmt.Fprint(w, "<!doctype html><title>another site</title><body>another site")
	}))
	t.Cleanup(evil.Close)
	f := &foreign{b, r, seen, strings.Replace(evil.URL, "127.0.0.1", host, 1)}
	f.anew()
	return f
}

// anew opens the site again, which ends what it had under way.
func (f *foreign) anew() {
	f.T.Helper()
	f.Run(chromedp.Navigate(f.site))
	f.Sees("another site")
}

// tries runs one attempt to its end, and returns what came of it at the two ports and at sentinel.
func (f *foreign) tries(script string) (came []seen, asked []string) {
	f.T.Helper()
	f.anew()
	before, verbs := len(f.tap.since(0)), 0
	f.r.with(func() { verbs = len(f.r.asked) })
	f.begin("await " + script)
	f.r.with(func() { asked = slices.Clone(f.r.asked[verbs:]) })
	return f.tap.since(before), asked
}

// gets begins an attempt, and waits until it is answered with that status: what comes through may have no end.
func (f *foreign) gets(script string, status int) bool {
	f.T.Helper()
	f.anew()
	before := len(f.tap.since(0))
	f.begin(script)
	for end := time.Now().Add(time.Minute); time.Now().Before(end); time.Sleep(10 * time.Millisecond) {
		if slices.ContainsFunc(f.tap.since(before), func(s seen) bool { return s.status == status }) {
			return true
		}
	}
	return false
}

// begin runs a script of the site, as after a press of the person's.
func (f *foreign) begin(script string) {
	f.T.Helper()
	f.Run(chromedp.Evaluate(fmt.Sprintf(`(async () => { const api = %q, page = %q; %s; %s; return null; })()`, f.r.place.APIOrigin(),
		f.r.place.PageOrigin(), tools, script), nil, func(p *runtime.EvaluateParams) *runtime.EvaluateParams {
		return p.WithAwaitPromise(true).WithUserGesture(true)
	}))
}

// Another site that a signed-in person opens asks nothing in that person's name: neither a stranger's, nor one of the page's own host
// on another port, whose requests have the cookie. Without the walls each attempt comes through, the stranger's as far as the session
// that its requests have not.
func TestAnotherSiteIsNotAnswered(t *testing.T) {
	for host, through := range map[string]int{"127.0.0.1": 401, "localhost": 200} {
		t.Run(host, func(t *testing.T) {
			f := visit(t, walls{true, true, true, true}, host)
			for name, script := range attempts {
				came, asked := f.tries(script)
				if len(came) == 0 || len(asked) > 0 || slices.ContainsFunc(came, func(s seen) bool { return s.status != 403 }) {
					t.Errorf("%s: %v, sentinel was asked %q", name, came, asked)
				}
			}
		})
		t.Run("control "+host, func(t *testing.T) {
			f := visit(t, walls{frame: true, opener: true}, host)
			for name, script := range attempts {
				if !f.gets(script, through) {
					t.Errorf("control: without the walls %s does not come through", name)
				}
			}
		})
	}
}

// A body's type is a wall by itself: a site can send others without a question before.
func TestASimpleRequestIsNoJSON(t *testing.T) {
	f := visit(t, walls{kind: true}, "localhost")
	for name, script := range map[string]string{"a form": attempts["a form"], "a simple fetch": attempts["a simple fetch"],
		"an XMLHttpRequest": attempts["an XMLHttpRequest"], "a form of the usual type": `form("application/x-www-form-urlencoded", '{"cell":"work"}', "")`} {
		if came, asked := f.tries(script); len(came) != 1 || came[0].status != 415 || len(asked) > 0 {
			t.Errorf("%s: %v, sentinel was asked %q", name, came, asked)
		}
	}
}

// A site that leads the window itself to the API gets no further: such a request has no origin.
func TestANavigationIsNotAnswered(t *testing.T) {
	for stands, status := range map[bool]int{true: 403, false: 200} {
		f := visit(t, walls{stands, stands, true, true}, "localhost")
		if !f.gets(`setTimeout(() => { location.href = api + "/v1/events?after=-1"; })`, status) {
			t.Errorf("wall %v: %v, want %d", stands, f.tap.since(0), status)
		}
	}
}

// No other site has the page in a frame of its own, in which it would have a person press what they do not see.
func TestThePageIsInNoFrame(t *testing.T) {
	kinds := map[string]string{"iframe": "src", "object": "data", "embed": "src"}
	for _, host := range []string{"127.0.0.1", "localhost"} {
		for _, stands := range []bool{true, false} {
			f := visit(t, walls{true, true, stands, true}, host)
			for kind, name := range kinds {
				came, _ := f.tries(fmt.Sprintf(`frame(%q, %q, page + "/")`, kind, name))
				ran := slices.ContainsFunc(came, func(s seen) bool { return s.path == "page/app.js" })
				if len(came) == 0 || ran == stands {
					t.Errorf("%s of %s, wall %v: the page's script runs: %v (%v)", kind, host, stands, ran, came)
				}
			}
		}
	}
}

// Who opens the page in a window has no hold of that window: it could be led to another view just before a press.
func TestAnOpenerHasNoHold(t *testing.T) {
	for _, stands := range []bool{true, false} {
		f := visit(t, walls{true, true, true, stands}, "localhost")
		if !f.gets(`window.other = open(page + "/")`, 200) {
			t.Fatal("no window was opened")
		}
		if stands {
			f.Until(`window.other.closed`, "the hold is gone")
			continue
		}
		f.Until(`window.other !== null && !window.other.closed`, "control: without the header the opener has a hold")
	}
}
