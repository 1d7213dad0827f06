// SPDX-License-Identifier: Apache-2.0

package clients

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"net/http/cgi"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/doorward/doorward/test/world"
)

// git serves the repositories below repos by git's own program.
func (r *rig) git() http.Handler {
	out, _ := exec.Command("git", "--exec-path").Output()
	backend := &cgi.Handler{Path: filepath.Join(strings.TrimSpace(string(out)), "git-http-backend"),
		Env: []string{"GIT_PROJECT_ROOT=" + r.path("repos"), "GIT_HTTP_EXPORT_ALL=1", "GIT_CONFIG_COUNT=2", "GIT_CONFIG_KEY_0=safe.directory",
			"GIT_CONFIG_VALUE_0=*", "GIT_CONFIG_KEY_1=http.receivepack", "GIT_CONFIG_VALUE_1=true"}}
	return http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		if q.ContentLength < 0 { // CGI has no body in chunks
			body, err := io.ReadAll(q.Body)
			if err != nil {
				http.Error(w, err.Error(), http.StatusBadRequest)
				return
			}
			q.Body, q.ContentLength, q.TransferEncoding = io.NopCloser(bytes.NewReader(body)), int64(len(body)), nil
		}
		backend.ServeHTTP(w, q)
	})
}

func run(t *testing.T, dir, name string, args ...string) string {
	t.Helper()
	cmd := exec.Command(name, args...)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "GIT_CONFIG_GLOBAL=/dev/null", "GIT_AUTHOR_NAME=a", "GIT_AUTHOR_EMAIL=a@example.test",
		"GIT_COMMITTER_NAME=a", "GIT_COMMITTER_EMAIL=a@example.test")
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%s %s: %v: %s", name, strings.Join(args, " "), err, out)
	}
	return strings.TrimSpace(string(out))
}

// TestGit: clone, fetch and push with a pack of some megabytes each way; what arrives is whole, by git's own check.
func TestGit(t *testing.T) {
	installed(t, "git")
	r := need(t)
	for _, m := range modes {
		repos := r.path("repos")
		bare := filepath.Join(repos, m.setting+".git")
		seed := r.scratch(t)
		if err := os.MkdirAll(repos, 0o755); err != nil {
			t.Fatal(err)
		}
		run(t, seed, "git", "init", "-q", "-b", "main")
		if err := os.WriteFile(filepath.Join(seed, "big"), r.file, 0o644); err != nil {
			t.Fatal(err)
		}
		run(t, seed, "git", "add", "big")
		run(t, seed, "git", "commit", "-qm", "first")
		run(t, repos, "git", "clone", "-q", "--bare", seed, bare)
		url := fmt.Sprintf("https://git.%s/%s.git", m.domain, m.setting)
		dir := r.scratch(t)
		in := func(args ...string) string {
			t.Helper()
			res := r.asks(t, m, func() world.Result {
				return r.inCell(t, dir, append([]string{"git", "-c", "user.name=c", "-c", "user.email=c@example.test"}, args...)...)
			})
			if res.Code != 0 {
				t.Fatalf("git %s: %v", strings.Join(args, " "), res)
			}
			return strings.TrimSpace(res.Stdout)
		}
		in("clone", "-q", url, "work")
		dir = filepath.Join(dir, "work")
		first := run(t, bare, "git", "rev-parse", "main")
		if got := in("rev-parse", "HEAD"); got != first {
			t.Errorf("%s: cloned %s, want %s", m.setting, got, first)
		}
		in("fsck", "--strict")

		run(t, seed, "git", "commit", "-q", "--allow-empty", "-m", "second")
		run(t, seed, "git", "push", "-q", bare, "main")
		in("fetch", "-q")
		if got := in("rev-parse", "origin/main"); got == first || got != run(t, bare, "git", "rev-parse", "main") {
			t.Errorf("%s: fetched %s", m.setting, got)
		}

		if res := r.inCell(t, dir, "/bin/sh", "-c", "head -c 4000000 /dev/urandom > new"); res.Code != 0 { // which is sent in chunks
			t.Fatal(res)
		}
		in("add", "new")
		in("commit", "-q", "-m", "third")
		in("push", "-q", "origin", "HEAD:refs/heads/of-the-cell")
		if got, want := run(t, bare, "git", "rev-parse", "of-the-cell"), in("rev-parse", "HEAD"); got != want {
			t.Errorf("%s: pushed %s, want %s", m.setting, got, want)
		}
		run(t, bare, "git", "fsck", "--strict")
	}
}
