// SPDX-License-Identifier: Apache-2.0

package clients

import (
	"archive/tar"
	"archive/zip"
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"crypto/sha512"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/doorward/doorward/test/world"
)

// registries is one of npm and one of Python's, each with one package.
func (r *rig) registries() http.Handler {
	tgz, wheel := npmPackage(), pyWheel()
	mux := http.NewServeMux()
	mux.HandleFunc("/npm/lantern", func(w http.ResponseWriter, q *http.Request) {
		sum := sha512.Sum512(tgz)
		_ = json.NewEncoder(w).Encode(map[string]any{"name": "lantern", "dist-tags": map[string]string{"latest": "1.2.3"},
			"versions": map[string]any{"1.2.3": map[string]any{"name": "lantern", "version": "1.2.3", "dist": map[string]string{
				"tarball": "https://" + q.Host + "/npm/lantern/-/lantern-1.2.3.tgz", "integrity": "sha512-" + base64.StdEncoding.EncodeToString(sum[:])}}}})
	})
	mux.HandleFunc("/npm/lantern/-/lantern-1.2.3.tgz", func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write(tgz) })
	const name = "lantern-1.2.3-py3-none-any.whl"
	mux.HandleFunc("/simple/lantern/", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/html")
		fmt.Fprintf(w, `<!DOCTYPE html><html><body><a href="../../files/%s#sha256=%x">%s</a></body></html>`, name, sha256.Sum256(wheel), name)
	})
	mux.HandleFunc("/files/"+name, func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write(wheel) })
	return mux
}

func npmPackage() []byte {
	var b bytes.Buffer
	z := gzip.NewWriter(&b)
	w := tar.NewWriter(z)
	for name, text := range map[string]string{"package/package.json": `{"name":"lantern","version":"1.2.3","main":"i.js"}`,
		"package/i.js": `module.exports = "lit by npm"`} {
		_ = w.WriteHeader(&tar.Header{Name: name, Mode: 0o644, Size: int64(len(text))})
		_, _ = io.WriteString(w, text)
	}
	_, _ = w.Close(), z.Close()
	return b.Bytes()
}

func pyWheel() []byte {
	var b bytes.Buffer
	z := zip.NewWriter(&b)
	record := ""
	for _, f := range [][2]string{{"lantern.py", "light = 'lit by pip'\n"},
		{"lantern-1.2.3.dist-info/METADATA", "Metadata-Version: 2.1\nName: lantern\nVersion: 1.2.3\n"},
		{"lantern-1.2.3.dist-info/WHEEL", "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n"}} {
		w, _ := z.Create(f[0])
		_, _ = io.WriteString(w, f[1])
		record += f[0] + ",,\n"
	}
	w, _ := z.Create("lantern-1.2.3.dist-info/RECORD")
	_, _ = io.WriteString(w, record+"lantern-1.2.3.dist-info/RECORD,,\n")
	_ = z.Close()
	return b.Bytes()
}

// TestRegistries: a package is installed by npm and by pip, and runs.
func TestRegistries(t *testing.T) {
	r := need(t)
	for _, m := range modes {
		t.Run("npm-"+m.setting, func(t *testing.T) {
			installed(t, "npm", "node")
			dir := r.scratch(t)
			res := r.inCell(t, dir, "npm", "install", "--no-audit", "--no-fund", "--no-update-notifier", "--registry", "https://reg."+m.domain+"/npm/", "lantern")
			if res.Code != 0 {
				t.Fatal(res)
			}
			if res := r.inCell(t, dir, "node", "-p", "require('lantern')"); res.Stdout != "lit by npm\n" {
				t.Error(res)
			}
		})
		t.Run("pip-"+m.setting, func(t *testing.T) {
			python(t, "pip")
			dir := r.scratch(t)
			res := r.inCell(t, dir, "/usr/bin/python3", "-m", "pip", "--isolated", "install", "--quiet", "--no-cache-dir", "--disable-pip-version-check",
				"--target", dir+"/site", "--index-url", "https://reg."+m.domain+"/simple/", "lantern")
			if res.Code != 0 {
				t.Fatal(res)
			}
			if res := r.inCell(t, dir, "/usr/bin/env", "PYTHONPATH="+dir+"/site", "/usr/bin/python3", "-c", "import lantern; print(lantern.light)"); res.Stdout != "lit by pip\n" {
				t.Error(res)
			}
		})
	}
}

var ofType = regexp.MustCompile(`(\w+): ?__type`)

// hub answers GitHub's own program what it asks for a list of issues: a POST that only reads.
func hub(w http.ResponseWriter, q *http.Request) {
	body, _ := io.ReadAll(q.Body)
	w.Header().Set("Content-Type", "application/json")
	if !strings.HasPrefix(q.Header.Get("Authorization"), "token ") && !strings.HasPrefix(q.Header.Get("Authorization"), "Bearer ") {
		http.Error(w, `{"message":"Bad credentials"}`, http.StatusUnauthorized)
		return
	}
	switch {
	case q.Method == http.MethodPost && q.URL.Path == "/api/graphql" && bytes.Contains(body, []byte("__type")): // what the server can do
		types := map[string]any{}
		for _, m := range ofType.FindAllSubmatch(body, -1) {
			types[string(m[1])] = map[string]any{"fields": []string{}}
		}
		_ = json.NewEncoder(w).Encode(map[string]any{"data": types})
	case q.Method == http.MethodPost && q.URL.Path == "/api/graphql" && bytes.Contains(body, []byte("query IssueList")):
		_, _ = io.WriteString(w, `{"data":{"repository":{"hasIssuesEnabled":true,"issues":{"totalCount":1,"pageInfo":{"hasNextPage":false,"endCursor":null},
			"nodes":[{"number":7,"title":"The lantern flickers","url":"https://x.example/ada/engine/issues/7","state":"OPEN",
			"updatedAt":"2026-01-01T00:00:00Z","labels":{"nodes":[],"totalCount":0}}]}}}}`)
	case q.Method == http.MethodGet && q.URL.Path == "/api/v3/repos/ada/engine":
		_, _ = io.WriteString(w, `{"full_name":"ada/engine"}`)
	default:
		http.Error(w, `{"message":"Not Found"}`, http.StatusNotFound)
	}
}

// TestGitHubsOwnProgram: `gh issue list`, and a read of its API.
func TestGitHubsOwnProgram(t *testing.T) {
	r := need(t)
	for _, m := range modes {
		t.Run("gh-"+m.setting, func(t *testing.T) {
			installed(t, "gh")
			dir := r.scratch(t)
			env := []string{"/usr/bin/env", "GH_HOST=hub." + m.domain, "GH_ENTERPRISE_TOKEN=gho_1", "GH_NO_UPDATE_NOTIFIER=1", "NO_COLOR=1", "GH_CONFIG_DIR=" + dir,
				"TMPDIR=" + dir} // where it keeps answers
			res := r.asks(t, m, func() world.Result {
				return r.inCell(t, dir, append(env, "gh", "issue", "list", "-R", "hub."+m.domain+"/ada/engine")...)
			})
			if res.Code != 0 || !strings.Contains(res.Stdout, "The lantern flickers") {
				t.Errorf("%v; the server saw %q", res, r.servers["hub"].take())
			}
			if res := r.inCell(t, dir, append(env, "gh", "api", "repos/ada/engine")...); res.Code != 0 || !strings.Contains(res.Stdout, "ada/engine") {
				t.Error(res)
			}
		})
		t.Run("curl-"+m.setting, func(t *testing.T) {
			installed(t, "curl")
			base := "https://hub." + m.domain + "/api/"
			body := `{"query":"query IssueList($owner: String!) { repository(owner: $owner) { hasIssuesEnabled } }","variables":{"owner":"ada"}}`
			if err := os.WriteFile(r.path("query.json"), []byte(body), 0o644); err != nil {
				t.Fatal(err)
			}
			res := r.asks(t, m, func() world.Result {
				return r.inCell(t, r.scratch(t), "curl", "-sS", "-H", "Authorization: Bearer x", "--json", "@"+r.path("query.json"), base+"graphql",
					"--next", "-sS", "-H", "Authorization: Bearer x", base+"v3/repos/ada/engine")
			})
			if res.Code != 0 || !strings.Contains(res.Stdout, "The lantern flickers") || !strings.Contains(res.Stdout, "ada/engine") {
				t.Error(res)
			}
		})
	}
}
