// SPDX-License-Identifier: Apache-2.0

package page

import (
	"io/fs"
	"net/http"
	"net/http/httptest"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/doorward/doorward/internal/approver"
)

func files(t *testing.T) *Files {
	t.Helper()
	f, err := New(&approver.Place{Host: "localhost", Page: 8440, API: 8441})
	if err != nil {
		t.Fatal(err)
	}
	return f
}

func fetch(f *Files, method, target, host string, header ...string) *httptest.ResponseRecorder {
	r := httptest.NewRequest(method, "/", nil)
	r.RequestURI, r.Host = target, host
	for i := 0; i < len(header); i += 2 {
		r.Header.Set(header[i], header[i+1])
	}
	w := httptest.NewRecorder()
	f.ServeHTTP(w, r)
	return w
}

func TestOnlyTheFilesAreServed(t *testing.T) {
	f := files(t)
	const host = "localhost:8440"
	for path, it := range f.all {
		w := fetch(f, "GET", path, host)
		if w.Code != 200 || w.Body.String() != string(it.body) || w.Header().Get("Content-Type") == "" {
			t.Errorf("%s: %d", path, w.Code)
		}
		tag := w.Header().Get("ETag")
		if w := fetch(f, "GET", path, host, "If-None-Match", tag); w.Code != http.StatusNotModified || w.Body.Len() > 0 {
			t.Errorf("%s, kept: %d", path, w.Code)
		}
		if w := fetch(f, "HEAD", path, host); w.Code != 200 || w.Body.Len() > 0 || w.Header().Get("ETag") != tag {
			t.Errorf("%s, HEAD: %d, %d bytes", path, w.Code, w.Body.Len())
		}
	}
	for _, c := range []struct {
		method, target, host string
		code                 int
	}{
		{"GET", "/index.html", host, 404}, {"GET", "/static/app.js", host, 404}, {"GET", "/app.js?x", host, 404},
		{"GET", "//app.js", host, 404}, {"GET", "/./app.js", host, 404}, {"GET", "/%61pp.js", host, 404}, {"GET", "/../page.go", host, 404},
		{"GET", "http://localhost:8440/app.js", host, 404}, {"GET", "/favicon.ico", host, 404}, {"OPTIONS", "*", host, 404},
		{"POST", "/", host, 405}, {"PUT", "/app.js", host, 405}, {"OPTIONS", "/", host, 405}, {"CONNECT", "localhost:443", host, 404},
		{"GET", "/", "evil.example:8440", 421}, {"GET", "/", "localhost", 421}, {"GET", "/", "localhost:8441", 421},
		{"GET", "/", "LOCALHOST:8440", 421}, {"GET", "/", "", 421}, {"GET", "/", "127.0.0.1:8440", 421},
	} {
		w := fetch(f, c.method, c.target, c.host)
		if w.Code != c.code || w.Header().Get("Location") != "" || w.Header().Get("Content-Security-Policy") == "" {
			t.Errorf("%s %s of %q: %d, want %d; %v", c.method, c.target, c.host, w.Code, c.code, w.Header())
		}
	}
}

func TestThePolicyOfThePage(t *testing.T) {
	h := fetch(files(t), "GET", "/", "localhost:8440").Header()
	for k, want := range map[string]string{
		"Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; " +
			"connect-src http://localhost:8441; manifest-src 'self'; worker-src 'self'; base-uri 'none'; form-action 'none'; " +
			"frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types sw",
		"X-Content-Type-Options":       "nosniff",
		"Referrer-Policy":              "no-referrer",
		"Cross-Origin-Opener-Policy":   "same-origin",
		"Cross-Origin-Resource-Policy": "same-origin",
		"Cache-Control":                "no-cache",
	} {
		if h.Get(k) != want {
			t.Errorf("%s: %q, want %q", k, h.Get(k), want)
		}
	}
	if p := h.Get("Permissions-Policy"); !strings.Contains(p, "publickey-credentials-get=(self)") {
		t.Errorf("Permissions-Policy: %q", p)
	}
}

func TestTheFirstViewIsSmallAndTheAPIsOriginIsInIt(t *testing.T) {
	f := files(t)
	// What the page names is loaded with it, and what a module imports with that; what it imports as it goes is not.
	loads := regexp.MustCompile(`(?:\bfrom|href=|src=) ?"(/[\w.-]+)"`)
	first := map[string]bool{}
	var load func(string)
	load = func(path string) {
		if first[path] {
			return
		}
		first[path] = true
		for _, m := range loads.FindAllSubmatch(f.all[path].body, -1) {
			load(string(m[1]))
		}
	}
	load("/")
	size := 0
	for path, it := range f.all {
		if first[path] {
			size += len(it.body)
		}
		if first[path] == slices.Contains(later, path[1:]) {
			t.Errorf("%s: a first view loads it: %t", path, first[path])
		}
	}
	t.Logf("%d bytes", size)
	if size > MaxFirst {
		t.Errorf("%d bytes, at most %d", size, MaxFirst)
	}
	index := string(f.all["/"].body)
	if !strings.Contains(index, `<meta name="api" content="http://localhost:8441">`) || strings.Contains(index, apiMark) {
		t.Error("index.html does not say where the API is")
	}
}

// Whatever the scripts name is there, nothing is loaded from elsewhere, and text becomes markup nowhere.
func TestTheScriptsLoadNothingElseAndMakeNoMarkup(t *testing.T) {
	f := files(t)
	named := regexp.MustCompile(`(?:from|import\(|href=|src=|"src": ?) ?"(/[^"#]*)"`)
	foreign := regexp.MustCompile(`(?i)https?://[^\s"'` + "`" + `]+`)
	markup := regexp.MustCompile(`innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\b|new Function|srcdoc|DOMParser|createContextualFragment|javascript:|setHTML|setTimeout\("`)
	n := 0
	for path, it := range f.all {
		text := string(it.body)
		for _, m := range named.FindAllStringSubmatch(text, -1) {
			n++
			if _, ok := f.all[m[1]]; !ok {
				t.Errorf("%s names %s, which is not there", path, m[1])
			}
		}
		for _, u := range foreign.FindAllString(text, -1) {
			if u != "http://www.w3.org/2000/svg" && u != "http://localhost:8441" {
				t.Errorf("%s has %s", path, u)
			}
		}
		if m := markup.FindString(text); m != "" {
			t.Errorf("%s has %s", path, m)
		}
		if strings.HasSuffix(path, ".js") && !strings.HasPrefix(text, "// SPDX-License-Identifier: Apache-2.0\n") {
			t.Errorf("%s does not begin with its licence", path)
		}
		for i, line := range strings.Split(text, "\n") {
			if strings.HasSuffix(path, ".js") && len([]rune(line)) > 180 {
				t.Errorf("%s:%d: a line of more than 180 columns", path, i+1)
			}
		}
	}
	if n < 10 {
		t.Errorf("only %d names are found", n)
	}
	if !markup.MatchString("x.innerHTML = y") || foreign.FindString("import 'https://evil.example/x.js'") == "" {
		t.Error("control: what is looked for is not found")
	}
	if entries, err := fs.ReadDir(static, "static"); err != nil || len(entries) != len(f.all) {
		t.Errorf("%d files are served of %d, %v", len(f.all), len(entries), err)
	}
}
