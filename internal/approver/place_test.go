// SPDX-License-Identifier: Apache-2.0

package approver

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestWhereThePageIs(t *testing.T) {
	const files = "certificate = \"/etc/doorward/tls/cert.pem\"\nkey = \"/etc/doorward/tls/key.pem\"\n"
	for _, c := range []struct{ name, text, page, api, wrong string }{
		{"a tunnel", "host = \"localhost\"\n", "http://localhost:8440", "http://localhost:8441", ""},
		{"a tunnel to a name of its own", "host = \"ward.localhost\"\n", "http://ward.localhost:8440", "http://ward.localhost:8441", ""},
		{"a name", "host = \"ward.example.org\"\n" + files, "https://ward.example.org:8440", "https://ward.example.org:8441", ""},
		{"the usual port", "host = \"ward.example.org\"\npage = 443\napi = 8443\n" + files, "https://ward.example.org",
			"https://ward.example.org:8443", ""},
		{"the usual port of the other scheme", "host = \"localhost\"\npage = 443\napi = 80\n", "http://localhost:443", "http://localhost", ""},
		{"nothing", "", "", "", "host is missing"},
		{"a typo", "hots = \"localhost\"\n", "", "", `line 1: there is no key "hots"`},
		{"an address", "host = \"192.0.2.1\"\n" + files, "", "", "is an address"},
		{"no certificate", "host = \"ward.example.org\"\n", "", "", "needs a certificate"},
		{"a name that only ends so", "host = \"notlocalhost\"\n", "", "", "needs a certificate"},
		{"below nothing", "host = \".localhost\"\n", "", "", "no host name"},
		{"a name of localhost's elsewhere", "host = \"localhost.example.org\"\n", "", "", "needs a certificate"},
		{"half of one", "host = \"localhost\"\nkey = \"/x\"\n", "", "", "go together"},
		{"from here", "host = \"ward.example.org\"\ncertificate = \"a\"\nkey = \"b\"\n", "", "", "absolute"},
		{"one port", "host = \"localhost\"\npage = 80\napi = 80\n", "", "", "two different ports"},
		{"no port", "host = \"localhost\"\npage = 0\n", "", "", "two different ports"},
		{"capitals", "host = \"Ward.example.org\"\n" + files, "", "", "no host name"},
		{"a port in the name", "host = \"localhost:80\"\n", "", "", "no host name"},
		{"a quote", "host = \"x\\\"y\"\n" + files, "", "", "no host name"},
		{"a final dot", "host = \"ward.example.org.\"\n" + files, "", "", "no host name"},
	} {
		t.Run(c.name, func(t *testing.T) {
			p, err := Parse([]byte(c.text))
			if c.wrong != "" {
				if p != nil || err == nil || !strings.Contains(err.Error(), c.wrong) {
					t.Errorf("%v, %v; want %q", p, err, c.wrong)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if p.PageOrigin() != c.page || p.APIOrigin() != c.api {
				t.Errorf("%s and %s, want %s and %s", p.PageOrigin(), p.APIOrigin(), c.page, c.api)
			}
			if !strings.HasSuffix(c.page, "://"+p.PageHost()) || !strings.HasSuffix(c.api, "://"+p.APIHost()) {
				t.Errorf("hosts %s and %s", p.PageHost(), p.APIHost())
			}
		})
	}
}

func TestNoPlaceIsSaidAsSuch(t *testing.T) {
	dir := t.TempDir()
	if _, err := Load(dir); !errors.Is(err, ErrNone) {
		t.Error(err)
	}
	if err := os.WriteFile(filepath.Join(dir, File), []byte(strings.Repeat("#", maxFile+1)), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := Load(dir); err == nil || errors.Is(err, ErrNone) {
		t.Error("a file that is too long:", err)
	}
}

func FuzzParse(f *testing.F) {
	f.Add([]byte("host = \"localhost\"\n"))
	f.Add([]byte("host = \"a.b\"\ncertificate = \"/c\"\nkey = \"/k\"\n"))
	f.Fuzz(func(t *testing.T, b []byte) {
		p, err := Parse(b)
		if (p == nil) == (err == nil) {
			t.Fatalf("%v, %v", p, err)
		}
		if p != nil && strings.Trim(p.Host, "abcdefghijklmnopqrstuvwxyz0123456789-.") != "" {
			t.Fatalf("host %q stands in headers as it is", p.Host)
		}
	})
}
