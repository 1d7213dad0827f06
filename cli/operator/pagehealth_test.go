// SPDX-License-Identifier: Apache-2.0

package operator

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/doorward/doorward/cli/operator/machine"
	"github.com/doorward/doorward/internal/approver"
)

func TestDoctorLooksAtThePage(t *testing.T) {
	const named = "host = \"ward.example.org\"\ncertificate = \"/nowhere/cert.pem\"\nkey = \"/nowhere/key.pem\"\n"
	for _, c := range []struct {
		name, text string
		state      machine.State
		what       string
		root       bool
	}{
		{"none", "", "", "", false},
		{"a tunnel", "host = \"doorward.localhost\"\n", machine.OK, "http://doorward.localhost:8440", false},
		{"a typo", "hots = \"localhost\"\n", machine.Wrong, "no key", false},
		{"a certificate that is gone", named, machine.Wrong, "no such file", true},
	} {
		t.Run(c.name, func(t *testing.T) {
			if c.root && os.Geteuid() != 0 {
				t.Skip("host ground skipped: the key is root's to read")
			}
			dir := t.TempDir()
			if c.text != "" {
				if err := os.WriteFile(filepath.Join(dir, approver.File), []byte(c.text), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			have := pageInForce(dir)
			if c.state == "" {
				if len(have) > 0 {
					t.Errorf("%v", have)
				}
				return
			}
			if len(have) != 1 || have[0].State != c.state || !strings.Contains(fmt.Sprint(have[0].What), c.what) || c.state == machine.Wrong && have[0].Next == "" {
				t.Errorf("%+v", have)
			}
		})
	}
}
