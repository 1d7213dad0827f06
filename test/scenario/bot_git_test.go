// SPDX-License-Identifier: Apache-2.0

package scenario

import (
	"crypto/rand"
	"crypto/tls"
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
	s.mu.Lock()
	s.seen = append(s.seen, q.Method+" "+q.URL.Path+" "+credential)
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

func (s *gitServer) take() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	out := s.seen
	s.seen = nil
	return out
}

// gitOutside runs git on the machine itself.
func gitOutside(t *testing.T, dir string, args ...string) string {
	t.Helper()
	cmd := exec.Command("git", append([]string{"-c", "user.name=a", "-c", "user.email=a@example.test", "-c", "safe.directory=*"}, args...)...)
	cmd.Dir, cmd.Env = dir, append(os.Environ(), "GIT_CONFIG_GLOBAL=/dev/null")
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("git %s: %v: %s", strings.Join(args, " "), err, out)
	}
	return strings.TrimSpace(string(out))
}

// TestSW01_HT03_GitOverHTTPS: a git that nobody changed, with a surrogate for a password, clones and fetches; a push asks, with the refs on
// its card, and goes once that is approved: those refs, that once. A surrogate in another form of Basic is refused.
// HT-03 is a push of a pack of 64 MiB, and its clone, which pass in a bounded memory of the cell's egress.
func TestSW01_HT03_GitOverHTTPS(t *testing.T) {
	r := newBotRig(t, "{two} git.example")
	repos, password := filepath.Join(r.dir, "repos"), "ghp-"+rand.Text()
	bare := filepath.Join(repos, "ada", "notes.git")
	if err := os.MkdirAll(filepath.Dir(bare), 0o755); err != nil {
		t.Fatal(err)
	}
	seed := filepath.Join(r.dir, "seed")
	gitOutside(t, r.dir, "init", "-q", "-b", "main", seed)
	gitOutside(t, seed, "commit", "-q", "--allow-empty", "-m", "first")
	gitOutside(t, r.dir, "clone", "-q", "--bare", seed, bare)
	server := newGitServer(t, r.discord.CA, r.two, repos, password)
	text, ok := connectors.Named("github-git")
	if !ok {
		t.Fatal("no manifest github-git")
	}
	manifest := r.path("git.toml")
	if err := os.WriteFile(manifest, []byte(strings.Replace(string(text), "github.com\"]", "git.example\"]", 1)), 0o644); err != nil {
		t.Fatal(err)
	}
	r.issueOf("work", "git", manifest, password)
	sur := r.surrogate(r.work, "git")
	const url = "https://git.example/ada/notes.git"
	try := func(dir string, args ...string) world.Result {
		t.Helper()
		res, err := r.work.Actor().Do(r.ctx(), world.Cmd{UID: 1000, Env: []string{"HOME=" + r.dir, "GIT_TERMINAL_PROMPT=0"},
			Args: append([]string{"/usr/bin/git", "-C", dir, "-c", "user.name=c", "-c", "user.email=c@example.test"}, args...)})
		if err != nil {
			t.Fatal(err)
		}
		return res
	}
	in := func(dir string, args ...string) string {
		t.Helper()
		res := try(dir, args...)
		if res.Code != 0 {
			t.Fatalf("git %s: %v", strings.Join(args, " "), res)
		}
		return strings.TrimSpace(res.Stdout)
	}
	real := func(what string) {
		t.Helper()
		seen := server.take()
		for _, line := range seen {
			if !strings.HasSuffix(line, " real") {
				t.Errorf("%s: %s", what, line)
			}
		}
		if len(seen) == 0 {
			t.Errorf("%s: nothing came", what)
		}
	}

	in(r.dir, "clone", "-q", "https://"+gitUser+":"+sur+"@git.example/ada/notes.git", "clone")
	dir := r.path("clone")
	real("clone")
	gitOutside(t, seed, "commit", "-q", "--allow-empty", "-m", "second")
	gitOutside(t, seed, "push", "-q", bare, "main")
	in(dir, "fetch", "-q")
	real("fetch")
	if got, want := in(dir, "rev-parse", "origin/main"), gitOutside(t, bare, "rev-parse", "main"); got != want {
		t.Errorf("fetched %s, want %s", got, want)
	}

	// In another form.
	for name, args := range map[string][]string{
		"the user": {"--user", sur + ":"}, "another user's": {"--user", "me:" + sur}, "Bearer": {"--header", "Authorization: Bearer " + sur},
	} {
		a := r.curlIn(r.work, append(args, url+"/info/refs?service=git-upload-pack")...)
		if e := a.refused(); e.Code != wire.CodeBadSurrogate || len(server.take()) > 0 {
			t.Errorf("as %s: %v", name, a)
		}
	}

	// push has git push, with the refs on the card, and again once that is approved.
	push := func(words []string, args ...string) {
		t.Helper()
		before := r.pending()
		if res := try(dir, append([]string{"push", "-q"}, args...)...); res.Code == 0 {
			t.Fatalf("git push %v asks nobody: %v", args, res)
		}
		for _, line := range server.take() {
			if strings.HasPrefix(line, "POST ") {
				t.Errorf("git push %v: %s came", args, line)
			}
		}
		fresh := slices.DeleteFunc(r.pending(), func(k wire.Card) bool {
			return slices.ContainsFunc(before, func(o wire.Card) bool { return o.ID == k.ID })
		})
		if len(fresh) != 1 {
			t.Fatalf("git push %v: %d cards", args, len(fresh))
		}
		r.has(fmt.Sprint(fresh[0].Fields), words...)
		r.doorward(0, "approve", fresh[0].ID, "--yes")
	}
	in(dir, "commit", "-q", "--allow-empty", "-m", "third")
	push([]string{"git push create refs/heads/of-the-cell"}, "origin", "HEAD:refs/heads/of-the-cell")
	if res := try(dir, "push", "-q", "origin", "HEAD:refs/heads/another"); res.Code == 0 {
		t.Errorf("the approval of one ref lets another through: %v", res)
	}
	for _, card := range r.pending() {
		r.decide(card, false)
	}
	server.take()
	in(dir, "push", "-q", "origin", "HEAD:refs/heads/of-the-cell")
	real("push")
	if got, want := gitOutside(t, bare, "rev-parse", "of-the-cell"), in(dir, "rev-parse", "HEAD"); got != want {
		t.Errorf("pushed %s, want %s", got, want)
	}
	push([]string{"git push delete refs/heads/of-the-cell"}, "origin", ":refs/heads/of-the-cell")
	in(dir, "push", "-q", "origin", ":refs/heads/of-the-cell")
	if refs := gitOutside(t, bare, "for-each-ref"); strings.Contains(refs, "of-the-cell") {
		t.Errorf("it is there: %s", refs)
	}
	server.take()

	// HT-03.
	const size = 64
	r.resetPeak("egress@work")
	idle := r.resident("egress@work")
	if res, err := r.work.Actor().Do(r.ctx(), world.Cmd{UID: 1000, Args: []string{"/bin/sh", "-c",
		fmt.Sprintf("head -c %d /dev/urandom > %s/big", size<<20, dir)}}); err != nil || res.Code != 0 {
		t.Fatalf("%v, %v", err, res)
	}
	in(dir, "config", "core.compression", "0")
	in(dir, "config", "core.bigFileThreshold", "1m")
	in(dir, "add", "big")
	in(dir, "commit", "-q", "-m", "big")
	push([]string{"git push create refs/heads/big"}, "origin", "HEAD:refs/heads/big")
	in(dir, "push", "-q", "origin", "HEAD:refs/heads/big")
	real("push of a large pack")
	if got, want := gitOutside(t, bare, "rev-parse", "big"), in(dir, "rev-parse", "HEAD"); got != want {
		t.Errorf("pushed %s, want %s", got, want)
	}
	in(r.dir, "clone", "-q", "--branch", "big", "https://"+gitUser+":"+sur+"@git.example/ada/notes.git", "again")
	if a, b := in(r.path("again"), "rev-parse", "HEAD^{tree}"), in(dir, "rev-parse", "HEAD^{tree}"); a != b {
		t.Errorf("cloned %s, want %s", a, b)
	}
	if most := r.peak("egress@work"); most > idle+size/2 {
		t.Errorf("the cell's egress took %d MiB for packs of %d MiB, and had %d before", most, size, idle)
	} else {
		t.Logf("the cell's egress had %d MiB, and %d at most", idle, most)
	}
}
