// SPDX-License-Identifier: Apache-2.0

package scenario

import (
	"bytes"
	"crypto/rand"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/cgi"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/doorward/doorward/internal/wire"
	"github.com/doorward/doorward/package/connectors"
	"github.com/doorward/doorward/test/vendors/standin"
	"github.com/doorward/doorward/test/world"
)

// gitServer is git's own server over HTTPS, at git.example, for one user and password.
type gitServer struct {
	repos, password string
	backend         *cgi.Handler

	mu   sync.Mutex // guards seen
	seen []string   // "METHOD PATH credential"
}

const gitUser = "x-access-token"

// newGitServer serves the repositories below repos at ip:443.
func newGitServer(t *testing.T, ca *standin.CA, ip, repos, password string) *gitServer {
	t.Helper()
	out, err := exec.Command("git", "--exec-path").Output()
	if err != nil {
		t.Skip("client skipped: git is not installed")
	}
	s := &gitServer{repos: repos, password: password}
	s.backend = &cgi.Handler{Path: filepath.Join(strings.TrimSpace(string(out)), "git-http-backend"),
		Env: []string{"GIT_PROJECT_ROOT=" + repos, "GIT_HTTP_EXPORT_ALL=1", "REMOTE_USER=" + gitUser, "GIT_CONFIG_COUNT=1", "GIT_CONFIG_KEY_0=safe.directory",
			"GIT_CONFIG_VALUE_0=*"}}
	leaf, err := ca.Issue(standin.Leaf{Names: []string{"git.example"}})
	if err != nil {
		t.Fatal(err)
	}
	ln, err := tls.Listen("tcp", ip+":443", &tls.Config{Certificates: []tls.Certificate{leaf}, NextProtos: []string{"http/1.1"}})
	if err != nil {
		t.Fatal(err)
	}
	hs := &http.Server{Handler: s, ReadHeaderTimeout: time.Minute, ErrorLog: log.New(io.Discard, "", 0)}
	go func() { _ = hs.Serve(ln) }()
	t.Cleanup(func() { _ = hs.Close() })
	return s
}

// ServeHTTP gives the body to git from a file: CGI has none in chunks, and one may be large.
func (s *gitServer) ServeHTTP(w http.ResponseWriter, q *http.Request) {
	user, password, ok := q.BasicAuth()
	credential := map[bool]string{false: "none", true: "other"}[ok]
	if user == gitUser && password == s.password {
		credential = "real"
	}
	method := q.Method
	if method == http.MethodPost && q.ContentLength == int64(len("0000")) { // by which git finds out whether it is known
		method = "PROBE"
	}
	s.mu.Lock()
	s.seen = append(s.seen, method+" "+q.URL.Path+" "+credential)
	s.mu.Unlock()
	if credential != "real" {
		w.Header().Set("WWW-Authenticate", `Basic realm="git"`)
		http.Error(w, "who are you", http.StatusUnauthorized)
		return
	}
	if q.ContentLength < 0 {
		f, err := os.CreateTemp("", "doorward-pack-")
		if err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
			return
		}
		defer func() { _ = f.Close(); _ = os.Remove(f.Name()) }()
		n, err := io.Copy(f, q.Body)
		if err == nil {
			_, err = f.Seek(0, io.SeekStart)
		}
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		q.Body, q.ContentLength, q.TransferEncoding = f, n, nil
	}
	s.backend.ServeHTTP(w, q)
}

func (s *gitServer) count() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.seen)
}

func (s *gitServer) take() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	out := s.seen
	s.seen = nil
	return out
}

// gitRig is a botRig with a repository at git.example, and a surrogate for its password in the cell.
type gitRig struct {
	*botRig
	server    *gitServer
	bare, dir string // the repository, and the cell's clone of it
	sur       string
}

const gitURL = "https://git.example/ada/notes.git"

func newGitRig(t *testing.T) *gitRig {
	t.Helper()
	g := &gitRig{botRig: newBotRig(t, "{two} git.example", "{ip} reads.example")}
	password := "ghp-" + rand.Text()
	repos := g.path("repos")
	g.bare, g.dir = filepath.Join(repos, "ada", "notes.git"), g.path("clone")
	if err := os.MkdirAll(filepath.Dir(g.bare), 0o755); err != nil {
		t.Fatal(err)
	}
	g.outside(g.path(""), "init", "-q", "-b", "main", g.path("seed"))
	g.outside(g.path("seed"), "commit", "-q", "--allow-empty", "-m", "first")
	g.outside(g.path(""), "clone", "-q", "--bare", g.path("seed"), g.bare)
	g.server = newGitServer(t, g.discord.CA, g.two, repos, password)
	text, ok := connectors.Named("github-git")
	if !ok {
		t.Fatal("no manifest github-git")
	}
	text = bytes.Replace(text, []byte(`"github.com"`), []byte(`"git.example"`), 1)
	if err := os.WriteFile(g.path("git.toml"), text, 0o644); err != nil {
		t.Fatal(err)
	}
	g.issueOf("work", "git", g.path("git.toml"), password)
	g.sur = g.surrogate(g.work, "git")
	g.in(g.path(""), "clone", "-q", g.with(), g.dir)
	g.real("clone")
	return g
}

// with is the repository's address with the surrogate in it.
func (g *gitRig) with() string { return strings.Replace(gitURL, "//", "//"+gitUser+":"+g.sur+"@", 1) }

// outside runs git on the machine itself.
func (g *gitRig) outside(dir string, args ...string) string {
	g.t.Helper()
	cmd := exec.Command("git", append([]string{"-c", "user.name=a", "-c", "user.email=a@example.test", "-c", "safe.directory=*"}, args...)...)
	cmd.Dir, cmd.Env = dir, append(os.Environ(), "GIT_CONFIG_GLOBAL=/dev/null")
	out, err := cmd.CombinedOutput()
	if err != nil {
		g.t.Fatalf("git %s: %v: %s", strings.Join(args, " "), err, out)
	}
	return strings.TrimSpace(string(out))
}

// try runs git in the cell, and in is one that goes. On a busy machine GnuTLS may need longer between connect and its first byte,
// for all the authorities that it reads then, than egress waits; nothing was asked by then.
func (g *gitRig) try(dir string, args ...string) world.Result {
	g.t.Helper()
	for range 5 {
		res, err := g.work.Actor().Do(g.ctx(), world.Cmd{UID: 1000, Env: []string{"HOME=" + g.path(""), "GIT_TERMINAL_PROMPT=0"},
			Args: append([]string{"/usr/bin/git", "-C", dir, "-c", "user.name=c", "-c", "user.email=c@example.test"}, args...)})
		if err != nil {
			g.t.Fatal(err)
		}
		if !strings.Contains(res.Stderr, "handshake() failed") {
			return res
		}
	}
	g.t.Fatalf("git %s: no handshake came to its end", strings.Join(args, " "))
	return world.Result{}
}

func (g *gitRig) in(dir string, args ...string) string {
	g.t.Helper()
	res := g.try(dir, args...)
	if res.Code != 0 {
		g.t.Fatalf("git %s: %v", strings.Join(args, " "), res)
	}
	return strings.TrimSpace(res.Stdout)
}

// real holds what came to having had the real credential.
func (g *gitRig) real(what string) {
	g.t.Helper()
	seen := g.server.take()
	for _, line := range seen {
		if !strings.HasSuffix(line, " real") {
			g.t.Errorf("%s: %s", what, line)
		}
	}
	if len(seen) == 0 {
		g.t.Errorf("%s: nothing came", what)
	}
}

// asks has git push, which is refused with nothing of it at the server, and approves its one card, which has those words.
func (g *gitRig) asks(words, refs string) {
	g.t.Helper()
	before := g.pending()
	g.server.take()
	var fresh []wire.Card
	var res world.Result
	for range 5 { // a busy machine may break one off before it is read
		if res = g.try(g.dir, "push", "-q", "origin", refs); res.Code == 0 {
			g.t.Fatalf("git push %s asks nobody: %v", refs, res)
		}
		fresh = slices.DeleteFunc(g.pending(), func(k wire.Card) bool {
			return slices.ContainsFunc(before, func(o wire.Card) bool { return o.ID == k.ID })
		})
		if len(fresh) > 0 {
			break
		}
	}
	for _, line := range g.server.take() {
		if strings.HasPrefix(line, "POST ") {
			g.t.Errorf("git push %s: %s came", refs, line)
		}
	}
	if len(fresh) != 1 {
		g.t.Fatalf("git push %s: %d cards: %v", refs, len(fresh), res)
	}
	g.has(fmt.Sprint(fresh[0].Fields), words)
	g.doorward(0, "approve", fresh[0].ID, "--yes")
}

// TestSW01_GitOverHTTPS: a git that nobody changed, with a surrogate for a password, clones and fetches; a push asks, with the refs
// on its card, and goes once that is approved: those refs, that once. A surrogate in another form of Basic is refused.
func TestSW01_GitOverHTTPS(t *testing.T) {
	g := newGitRig(t)
	g.outside(g.path("seed"), "commit", "-q", "--allow-empty", "-m", "second")
	g.outside(g.path("seed"), "push", "-q", g.bare, "main")
	g.in(g.dir, "fetch", "-q")
	g.real("fetch")
	if got, want := g.in(g.dir, "rev-parse", "origin/main"), g.outside(g.bare, "rev-parse", "main"); got != want {
		t.Errorf("fetched %s, want %s", got, want)
	}
	// In whichever half of the pair it stands, the pair that goes is the manifest's; elsewhere it is refused.
	const list = gitURL + "/info/refs?service=git-upload-pack"
	for name, args := range map[string][]string{"the user": {"--user", g.sur + ":"}, "another user's": {"--user", "me:" + g.sur}} {
		if a := g.curlIn(g.work, append(args, list)...); a.status != 200 {
			t.Errorf("as %s: %v", name, a)
		}
		g.real("as " + name)
	}
	for name, args := range map[string][]string{"Bearer": {"--header", "Authorization: Bearer " + g.sur}, "none": nil,
		"another password": {"--user", gitUser + ":attackers-own"}} {
		if a := g.curlIn(g.work, append(args, list)...); a.refused().Code != wire.CodeBadSurrogate || len(g.server.take()) > 0 {
			t.Errorf("as %s: %v", name, a)
		}
	}

	g.in(g.dir, "commit", "-q", "--allow-empty", "-m", "third")
	g.asks("git push create refs/heads/of-the-cell", "HEAD:refs/heads/of-the-cell")
	if res := g.try(g.dir, "push", "-q", "origin", "HEAD:refs/heads/another"); res.Code == 0 {
		t.Errorf("the approval of one ref lets another through: %v", res)
	}
	for _, card := range g.pending() {
		g.decide(card, false)
	}
	g.server.take()
	g.in(g.dir, "push", "-q", "origin", "HEAD:refs/heads/of-the-cell")
	g.real("push")
	if got, want := g.outside(g.bare, "rev-parse", "of-the-cell"), g.in(g.dir, "rev-parse", "HEAD"); got != want {
		t.Errorf("pushed %s, want %s", got, want)
	}
	g.asks("git push delete refs/heads/of-the-cell", ":refs/heads/of-the-cell")
	g.in(g.dir, "push", "-q", "origin", ":refs/heads/of-the-cell")
	if refs := g.outside(g.bare, "for-each-ref"); strings.Contains(refs, "of-the-cell") {
		t.Errorf("it is there: %s", refs)
	}
	// What a server is to do with a push stands on its card, and an approval is of that.
	g.outside(g.bare, "config", "receive.advertisePushOptions", "true")
	g.in(g.dir, "config", "push.pushOption", "merge_request.create")
	g.asks(`git push create refs/heads/topic git push option "merge_request.create"`, "HEAD:refs/heads/topic")
	if res := g.try(g.dir, "-c", "push.pushOption=ci.skip", "push", "-q", "origin", "HEAD:refs/heads/topic"); res.Code == 0 {
		t.Errorf("the approval of one option lets another through: %v", res)
	}
	g.in(g.dir, "push", "-q", "origin", "HEAD:refs/heads/topic")
	if got, want := g.outside(g.bare, "rev-parse", "topic"), g.in(g.dir, "rev-parse", "HEAD"); got != want {
		t.Errorf("pushed %s, want %s", got, want)
	}
}

// TestEG14_OnlyAFetchIsAFetch: at a site that is read, and with a surrogate whose fetches are reads, what begins as a fetch does and is
// something else stays; so does a form, and what has a query. Control: a fetch by hand goes, with the real credential where there is one.
func TestEG14_OnlyAFetchIsAFetch(t *testing.T) {
	g := newGitRig(t)
	g.rules(g.site("reads.example", "read"))
	want := "0032want " + strings.Repeat("a", 40) + "\n"
	loot := "&title=published&content=" + strings.Repeat("the person's mail, ", 50000)
	for _, to := range []struct {
		name, url string
		how       []string
		came      func() int
	}{
		{"a site", "https://reads.example/api/notes", nil, g.count},
		{"a surrogate", "https://git.example/api/v1/notes", []string{"--user", gitUser + ":" + g.sur}, g.server.count},
	} {
		post := func(path, media, body string) (reply, int) {
			t.Helper()
			file := g.path("body")
			if err := os.WriteFile(file, []byte(body), 0o644); err != nil {
				t.Fatal(err)
			}
			n := to.came()
			a := g.curlIn(g.work, append(to.how, "--header", "Content-Type: "+media, "--data-binary", "@"+file, to.url+path)...)
			return a, to.came() - n
		}
		const upload, receive, form = "application/x-git-upload-pack-request", "application/x-git-receive-pack-request",
			"application/x-www-form-urlencoded"
		for name, c := range map[string]struct{ path, media, body string }{
			"a form":                      {"/git-upload-pack", form, want + loot},
			"a form with a fetch in it":   {"/git-upload-pack", form, want + "00000009done\n"},
			"more than a fetch":           {"/git-upload-pack", upload, want + loot},
			"more behind a fetch":         {"/git-upload-pack", upload, want + "00000009done\n" + loot},
			"a fetch with a query":        {"/git-upload-pack?publish=true", upload, want + "00000009done\n"},
			"a form, by a push":           {"/git-receive-pack", form, "0000" + loot},
			"more behind a probe":         {"/git-receive-pack", receive, "0000" + loot},
			"a probe with a query":        {"/git-receive-pack?publish=true", receive, "0000"},
			"a list of refs, and a form":  {"/git-upload-pack", upload, "0014command=ls-refs\n" + loot},
			"to where nothing is fetched": {"/contents", upload, want + "00000009done\n"},
		} {
			if a, came := post(c.path, c.media, c.body); a.status != 403 || came > 0 {
				t.Errorf("to %s, %s: %d came: %d %.200s", to.name, name, came, a.status, a.body)
			}
		}
		for name, c := range map[string]struct{ path, media, body string }{
			"a fetch":           {"/git-upload-pack", upload, want + "00000009done\n"},
			"a list":            {"/git-upload-pack", upload, "0013command=ls-refs0000"},
			"a probe of a push": {"/git-receive-pack", receive, "0000"},
		} {
			if a, came := post(c.path, c.media, c.body); came != 1 {
				t.Errorf("control: to %s, %s: %d came: %v", to.name, name, came, a)
			}
		}
		if to.how != nil {
			g.real("control")
		}
	}
}

// TestHT03_ALargePackOfGit: a pack of 300 MiB is pushed and cloned back, both with a surrogate in Basic, and egress holds no more of it
// than it holds of a small one: what a push is about is read from its first bytes.
func TestHT03_ALargePackOfGit(t *testing.T) {
	g := newGitRig(t)
	const size = 300 << 20
	f, err := os.Create(filepath.Join(g.dir, "large"))
	if err == nil {
		_, err = io.CopyN(f, rand.Reader, size) // which no compression makes smaller
		err = errors.Join(err, f.Chmod(0o644), f.Close())
	}
	if err != nil {
		t.Fatal(err)
	}
	g.in(g.dir, "add", "large")
	g.in(g.dir, "commit", "-q", "-m", "large")
	g.asks("git push create refs/heads/large", "HEAD:refs/heads/large")
	g.resetPeak("egress@work")
	before := g.peak("egress@work")
	g.in(g.dir, "push", "-q", "origin", "HEAD:refs/heads/large")
	g.real("push")
	if got, want := g.outside(g.bare, "rev-parse", "large"), g.in(g.dir, "rev-parse", "HEAD"); got != want {
		t.Errorf("pushed %s, want %s", got, want)
	}
	back := g.path("back")
	g.in(g.path(""), "clone", "-q", "--branch", "large", g.with(), back)
	g.real("clone")
	if err := exec.Command("cmp", filepath.Join(g.dir, "large"), filepath.Join(back, "large")).Run(); err != nil {
		t.Error("what was cloned is not what was pushed: ", err)
	}
	if peak := g.peak("egress@work"); peak > 256 || peak-before > 32 {
		t.Errorf("for a pack of %d MiB egress took %d MiB, and %d before", size>>20, peak, before)
	}
}
