// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"encoding/pem"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/doorward/doorward/internal/wire"
)

func TestDoctorLooksWhatTheCellTrusts(t *testing.T) {
	dir := t.TempDir()
	put := func(name string, text ...[]byte) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, slices.Concat(text...), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	cert := func(text string) []byte {
		return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: []byte(strings.Repeat(text, 60))})
	}
	root := put("root.pem", cert("root"))
	with, without := put("with", cert("a"), cert("root")), put("without", cert("a"), cert("b"))
	whole := wire.TrustEnv()
	look := func(p trustPlaces, change map[string]string) string {
		p.env = func(name string) (string, bool) {
			if v, ok := change[name]; ok {
				return v, v != "unset"
			}
			v, ok := whole[name]
			return v, ok
		}
		if p.installed == nil {
			p.installed = func(string) bool { return false }
		}
		return string(findingsText(p.findings()))
	}
	good := trustPlaces{root: root, bundle: with}
	for _, c := range []struct {
		name   string
		places trustPlaces
		change map[string]string
		want   string
	}{
		{"control", good, nil, "ok     trust: the root of the cell's egress is in " + with + "\n"},
		{"no root", trustPlaces{root: dir + "/none", bundle: with}, nil, "WRONG  trust: the cell has no root"},
		{"not in the bundle", trustPlaces{root: root, bundle: without}, nil, "WRONG  trust: the root of the cell's egress is not in"},
		{"no bundle", trustPlaces{root: root, bundle: dir}, nil, "WRONG  trust: " + dir + " cannot be read"},
		{"led elsewhere", good, map[string]string{"PIP_CERT": without}, "WRONG  trust: PIP_CERT leads to roots without"},
		{"led nowhere", good, map[string]string{"SSL_CERT_FILE": ""}, "next: export SSL_CERT_FILE=/etc/ssl/certs/ca-certificates.crt"},
		{"not set", good, map[string]string{"PIP_CERT": "unset"}, "ok     trust: PIP_CERT is not set"},
		{"a runtime with its own", trustPlaces{root: root, bundle: with, installed: func(p string) bool { return p == "java" }}, nil,
			"-Djavax.net.ssl.trustStore=/run/doorward/ca/cacerts"},
	} {
		if got := look(c.places, c.change); !strings.Contains(got, c.want) {
			t.Errorf("%s: %s", c.name, got)
		}
	}
	if got := look(good, map[string]string{"PIP_CERT": with}); strings.Contains(got, "PIP_CERT") {
		t.Errorf("one's own bundle with the root in it: %s", got)
	}
}
