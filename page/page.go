// SPDX-License-Identifier: Apache-2.0

// Package page serves the static files of the page on which a person decides, and ends TLS for approvals, on another port, and so
// another origin. No name that it is asked for reaches a file system, and it dials approvals alone. What its script shows of a card
// it has checked against sentinel's signature first. A taken-over page is a taken-over script, which shows one thing and has another
// signed: therefore this program alone has the certificate's key, and reads nothing but TLS and the head of a GET; what approvals is
// asked it passes on unread.
package page

import (
	"bytes"
	"context"
	"crypto/sha256"
	"crypto/tls"
	"embed"
	"encoding/base64"
	"fmt"
	"html"
	"io/fs"
	"net/http"
	"path"
	"runtime/debug"
	"slices"
	"strconv"

	"github.com/doorward/doorward/internal/approver"
	"github.com/doorward/doorward/internal/approver/front"
	"github.com/doorward/doorward/internal/daemon"
	"github.com/doorward/doorward/internal/wire"
)

// memoryGoal, in bytes, is below MemoryMax= of the unit: with all connections in use the collector works, and the kernel does not.
const memoryGoal = 144 << 20

// Bounds in bytes: of what a first view loads, and of all files together.
const (
	MaxFirst = 100 << 10
	MaxAll   = 160 << 10
)

// later are the files that a first view does not load: what a person presses loads them, or the system that installs the page.
var later = []string{"diff.js", "edit.js", "icon-512.png", "recovery.js", "sw.js"}

//go:embed static
var static embed.FS

// media are the kinds of files that there are.
var media = map[string]string{
	".html": "text/html; charset=utf-8", ".js": "text/javascript; charset=utf-8", ".css": "text/css; charset=utf-8",
	".svg": "image/svg+xml", ".png": "image/png", ".webmanifest": "application/manifest+json",
}

// apiMark is where index.html has the origin of approvals.
const apiMark = "{{API}}"

// Run is the daemon.
func Run(ctx context.Context, p *daemon.Process) error {
	if len(p.Args) > 0 {
		return fmt.Errorf("read the arguments %q: want none", p.Args)
	}
	place, err := approver.Load(p.Dirs.Config)
	if err != nil {
		return err
	}
	files, err := New(place)
	if err != nil {
		return err
	}
	pages, err := p.TCPListener("page")
	if err != nil {
		return err
	}
	api, err := p.TCPListener("page-api")
	if err != nil {
		return err
	}
	var secure *tls.Config
	if place.Certificate != "" {
		if secure, err = TLS(place, p.Log); err != nil {
			return err
		}
	}
	debug.SetMemoryLimit(memoryGoal)
	serve := &front.Server{Listener: front.NewBounded(pages, front.Conns, front.OfAddress), TLS: secure, Handler: files, Log: p.Log}
	carry := &Pipe{Listener: front.NewBounded(api, pipes, pipesOfAddress), TLS: secure, Path: wire.PathApprovalsPage, Log: p.Log}
	return p.Run(ctx, serve.Serve, carry.Serve)
}

// Files are what is served, by path.
type Files struct {
	host   string // as browsers say it
	policy string
	all    map[string]file
}

type file struct {
	body       []byte
	media, tag string
}

// New prepares the files for a place.
func New(place *approver.Place) (*Files, error) {
	f := &Files{host: place.PageHost(), policy: policy(place.APIOrigin()), all: map[string]file{}}
	names, err := fs.ReadDir(static, "static")
	if err != nil {
		return nil, err
	}
	size, first := 0, 0
	for _, n := range names {
		b, err := static.ReadFile("static/" + n.Name())
		if err != nil {
			return nil, err
		}
		at := "/" + n.Name()
		if at == "/index.html" {
			at = "/"
			b = bytes.Replace(b, []byte(apiMark), []byte(html.EscapeString(place.APIOrigin())), 1)
		}
		kind, ok := media[path.Ext(n.Name())]
		if !ok {
			return nil, fmt.Errorf("prepare %s: a kind of file that there is none of", n.Name())
		}
		sum := sha256.Sum256(b)
		f.all[at] = file{b, kind, `"` + base64.RawURLEncoding.EncodeToString(sum[:18]) + `"`}
		size += len(b)
		if !slices.Contains(later, n.Name()) {
			first += len(b)
		}
	}
	if first > MaxFirst || size > MaxAll {
		return nil, fmt.Errorf("a first view has %d bytes, at most %d, and all files %d, at most %d", first, MaxFirst, size, MaxAll)
	}
	return f, nil
}

// policy lets the script of this origin run, and talk to approvals. No text can become a script, by Trusted Types also in a
// browser's own functions, but for the service worker's name, which push.js alone can give. Nobody can put the page into a frame to have
// it clicked on.
func policy(api string) string {
	return "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src " + api + "; manifest-src 'self'; " +
		"worker-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; " +
		"require-trusted-types-for 'script'; trusted-types sw"
}

func (f *Files) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	h := w.Header()
	front.Safe(h, f.policy)
	h.Set("Permissions-Policy", "publickey-credentials-get=(self), publickey-credentials-create=(self), camera=(), "+
		"microphone=(), geolocation=(), payment=(), usb=()")
	if r.Host != f.host { // a name that somebody else made point here
		refuse(w, http.StatusMisdirectedRequest, "this is another host's page; open "+f.host)
		return
	}
	it, ok := f.all[r.RequestURI]
	switch {
	case !ok:
		refuse(w, http.StatusNotFound, "there is no such file")
		return
	case r.Method != http.MethodGet && r.Method != http.MethodHead:
		h.Set("Allow", "GET, HEAD")
		refuse(w, http.StatusMethodNotAllowed, "files are only read")
		return
	}
	h.Set("ETag", it.tag)
	h.Set("Cache-Control", "no-cache") // kept, and asked for again each time
	if r.Header.Get("If-None-Match") == it.tag {
		w.WriteHeader(http.StatusNotModified)
		return
	}
	h.Set("Content-Type", it.media)
	h.Set("Content-Length", strconv.Itoa(len(it.body)))
	if r.Method == http.MethodGet {
		_, _ = w.Write(it.body)
	}
}

func refuse(w http.ResponseWriter, status int, why string) {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.Header().Set("Cache-Control", "no-store")
	w.WriteHeader(status)
	_, _ = w.Write([]byte(why + "\n"))
}
