// SPDX-License-Identifier: Apache-2.0

package facts

import (
	"bytes"
	"compress/gzip"
	"fmt"
	"io"
	"net/http"
	"net/http/cgi"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
)

// What git itself sends is read as what it does: its own client against its own server over HTTP.
func TestGitByGit(t *testing.T) {
	git, err := exec.LookPath("git")
	if err != nil {
		t.Skip("git ground skipped: there is no git")
	}
	out, err := exec.Command(git, "--exec-path").Output()
	backend := filepath.Join(strings.TrimSpace(string(out)), "git-http-backend")
	if _, missing := os.Stat(backend); err != nil || missing != nil {
		t.Skip("git ground skipped: there is no git-http-backend")
	}
	dir := t.TempDir()
	env := []string{"PATH=" + os.Getenv("PATH"), "HOME=" + dir, "GIT_CONFIG_NOSYSTEM=1", "GIT_TERMINAL_PROMPT=0",
		"GIT_AUTHOR_NAME=a", "GIT_AUTHOR_EMAIL=a@vendor-a.test", "GIT_COMMITTER_NAME=a", "GIT_COMMITTER_EMAIL=a@vendor-a.test"}
	run := func(args ...string) {
		t.Helper()
		cmd := exec.Command(git, args...)
		cmd.Dir, cmd.Env = dir, env
		if b, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("git %q: %v\n%s", args, err, b)
		}
	}
	run("init", "-q", "--bare", "-b", "main", "srv/r.git")
	run("-C", "srv/r.git", "config", "http.receivepack", "true")

	var mu sync.Mutex
	var seen []string
	sent := map[string]bool{} // what kinds of fetches
	served := &cgi.Handler{Path: backend, Env: append(env, "GIT_PROJECT_ROOT="+filepath.Join(dir, "srv"), "GIT_HTTP_EXPORT_ALL=1",
		"GIT_CONFIG_COUNT=1", "GIT_CONFIG_KEY_0=safe.directory", "GIT_CONFIG_VALUE_0=*")}
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			t.Error(err)
		}
		plain := body
		if r.Header.Get("Content-Encoding") == "gzip" {
			z, err := gzip.NewReader(bytes.NewReader(body))
			if err != nil {
				t.Error(err)
				return
			}
			if plain, err = io.ReadAll(z); err != nil {
				t.Error(err)
			}
		}
		// The body comes in parts, and no more of it is looked at than is needed.
		media := r.Header.Get("Content-Type")
		does, need := Git(r.Method, r.URL.EscapedPath(), r.URL.RawQuery, media, nil, false)
		for need > 0 {
			n := min(need, len(plain))
			does, need = Git(r.Method, r.URL.EscapedPath(), r.URL.RawQuery, media, plain[:n], n == len(plain))
		}
		mu.Lock()
		seen = append(seen, strings.Join(does, ", "))
		if strings.HasSuffix(r.URL.Path, "/git-upload-pack") {
			sent["gzip"] = sent["gzip"] || r.Header.Get("Content-Encoding") == "gzip"
			sent["chunked"] = sent["chunked"] || r.ContentLength < 0
			sent["probe"] = sent["probe"] || string(plain) == flush
		}
		mu.Unlock()
		r.Body, r.ContentLength = io.NopCloser(bytes.NewReader(body)), int64(len(body))
		r.TransferEncoding = nil
		served.ServeHTTP(w, r)
	}))
	defer srv.Close()
	expect := func(what string, want ...string) {
		t.Helper()
		mu.Lock()
		defer mu.Unlock()
		if got := slices.Compact(seen); !slices.Equal(got, want) {
			t.Errorf("%s is %q, want %q", what, got, want)
		}
		seen = nil
	}
	remote := srv.URL + "/r.git"
	run("init", "-q", "-b", "main", "w")
	commit := func(args ...string) {
		run(append([]string{"-C", "w", "commit", "-q", "--allow-empty", "-m", "x"}, args...)...)
	}
	commit()
	run("-C", "w", "remote", "add", "origin", remote)
	run("-C", "w", "push", "-q", "origin", "main")
	expect("a first push", fetch, "git push create refs/heads/main")
	commit()
	run("-C", "w", "push", "-q", "origin", "main")
	expect("a push", fetch, "git push update refs/heads/main")
	commit("--amend", "-m", "another") // or within one second it would be the same commit
	run("-C", "w", "push", "-q", "-f", "origin", "main", "main:refs/heads/side", "HEAD:refs/tags/v1")
	mu.Lock()
	got := strings.Split(seen[len(seen)-1], ", ")
	seen = nil
	mu.Unlock()
	slices.Sort(got)
	if !slices.Equal(got, []string{"git push create refs/heads/side", "git push create refs/tags/v1", "git push update refs/heads/main"}) {
		t.Errorf("a forced push of three is %q", got)
	}
	run("clone", "-q", remote, "copy")
	expect("a clone", fetch)
	run("-c", "protocol.version=0", "clone", "-q", remote, "copy0")
	expect("a clone by version 0", fetch)
	run("-C", "copy", "fetch", "-q", "origin")
	run("ls-remote", "-q", remote)
	expect("a fetch", fetch)
	// Bodies of many lines: packed with gzip, and beyond http.postBuffer in chunks, with a probe before.
	run("-C", "srv/r.git", "config", "uploadpack.allowFilter", "true")
	tags := exec.Command(git, "-C", "srv/r.git", "fast-import", "--quiet")
	var history strings.Builder
	for i := range 1500 {
		fmt.Fprintf(&history, "commit refs/tags/t%d\ncommitter a <a@vendor-a.test> %d +0000\ndata 1\nx\n\n", i, 1700000000+i)
	}
	tags.Dir, tags.Env, tags.Stdin = dir, env, strings.NewReader(history.String())
	if b, err := tags.CombinedOutput(); err != nil {
		t.Fatalf("fast-import: %v\n%s", err, b)
	}
	for _, version := range []string{"0", "1", "2"} {
		in := func(name string, args ...string) {
			run(append([]string{"-c", "protocol.version=" + version}, args...)...)
			expect(name+" by version "+version, fetch)
		}
		in("a shallow clone", "clone", "-q", "--depth=1", remote, "shallow"+version)
		in("a deeper fetch", "-C", "shallow"+version, "fetch", "-q", "--deepen=1", "--filter=blob:none", "origin", "main", "t0")
		if version == "1" { // whose bodies are those of 0
			continue
		}
		in("all refs", "clone", "-q", "--mirror", remote, "all"+version)
		in("all refs in chunks", "clone", "-q", "--mirror", "-c", "http.postBuffer=70000", remote, "chunks"+version)
		in("a part since a day", "clone", "-q", "--filter=tree:0", "--shallow-since=1700001000", remote, "part"+version)
		in("the rest", "-C", "shallow"+version, "fetch", "-q", "--unshallow")
	}
	if !sent["gzip"] || !sent["chunked"] || !sent["probe"] {
		t.Errorf("git sent no fetch of each kind: %v", sent)
	}
	commit()
	run("-C", "srv/r.git", "config", "receive.advertisePushOptions", "true")
	run("-C", "w", "push", "-q", "-o", "merge_request.create", "-o", "merge_request.title=of an agent", "origin", "main")
	expect("a push with options", fetch,
		`git push update refs/heads/main, git push option "merge_request.create", git push option "merge_request.title=of an agent"`)
	commit()
	run("-C", "w", "push", "-q", "origin", "main")
	expect("a push without, where there may be some", fetch, "git push update refs/heads/main")
	// Larger than http.postBuffer: git asks with an empty list first, and then sends in chunks.
	if err := os.WriteFile(filepath.Join(dir, "w", "large"), bytes.Repeat([]byte("0123456789abcdef\x00\x01\x7f"), 1<<16), 0o600); err != nil {
		t.Fatal(err)
	}
	run("-C", "w", "add", "large")
	commit()
	run("-C", "w", "-c", "http.postBuffer=1024", "-c", "core.compression=0", "push", "-q", "origin", "main")
	expect("a large push", fetch, "git push update refs/heads/main")
	run("-C", "w", "push", "-q", "origin", ":side")
	expect("a deletion", fetch, "git push delete refs/heads/side")
}
