// SPDX-License-Identifier: Apache-2.0

package operator

import (
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/doorward/doorward/cli/clitest"
	"github.com/doorward/doorward/internal/wire"
)

// terminal is a pseudo-terminal: the test's end, and the command's.
func terminal(t *testing.T) (test, command *os.File) {
	t.Helper()
	m, err := os.OpenFile("/dev/ptmx", os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Skip("plain ground skipped: no pseudo-terminals here: " + err.Error())
	}
	t.Cleanup(func() { m.Close() })
	if err := unix.IoctlSetPointerInt(int(m.Fd()), unix.TIOCSPTLCK, 0); err != nil {
		t.Fatal(err)
	}
	n, err := unix.IoctlGetInt(int(m.Fd()), unix.TIOCGPTN)
	if err != nil {
		t.Fatal(err)
	}
	s, err := os.OpenFile(fmt.Sprintf("/dev/pts/%d", n), os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	if err := unix.IoctlSetWinsize(int(m.Fd()), unix.TIOCSWINSZ, &unix.Winsize{Row: 40, Col: 120}); err != nil {
		t.Fatal(err)
	}
	return m, s
}

// A person at a terminal sees the card and what the grant would allow before the question, and only "yes" is a yes.
func TestApproveAsksAtTheTerminal(t *testing.T) {
	if !clitest.Ground() {
		t.Skip("host ground skipped: needs root and a mount namespace")
	}
	for _, c := range []struct {
		name, answer string
		code         int
		decided      bool
	}{
		{"yes", "yes\n", 0, true},
		{"y is no yes", "y\n", 1, false},
		{"an empty line is no yes", "\n", 1, false},
		{"hanging up is no yes", "\x04", 1, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			dir := t.TempDir()
			for name, body := range map[string]string{"does": "show cards.json\n",
				"cards.json": `[{"id":"c1","kind":"call","state":"parked",` +
					`"title":"make a thing","connector":"demo","method":"create","account":"home","cell":"main","session":"s1","hash":"q80=","expires":2900000000,` +
					`"fields":[{"label":"To","values":["ada@example.org"],"main":true}],` +
					`"grantable":{"connector":"demo","method":"create","account":"home","cell":"main","session":"s1","kind":"session","limits":[{"field":"to","values":["ada@example.org"]}]}}]`} {
				if err := os.WriteFile(filepath.Join(dir, name), []byte(body), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			s := &sham{Script: clitest.Script{Dir: dir}}
			clitest.ServeTest(t, s.Script, "approve/sock", s.sentinel)

			exe, err := exec.LookPath("doorward")
			if err != nil {
				t.Fatal(err)
			}
			pty, tty := terminal(t)
			cmd := exec.Command(exe, "approve", "c1", "--grant", "session")
			cmd.Env = append(os.Environ(), clitest.Env+"="+filepath.Join(dir, "run"))
			cmd.Stdin, cmd.Stdout, cmd.Stderr = tty, tty, tty
			cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true}
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			tty.Close()
			var seen strings.Builder
			asked := false
			buf := make([]byte, 4096)
			for {
				n, err := pty.Read(buf)
				seen.Write(buf[:n])
				if !asked && strings.Contains(seen.String(), "Type yes: ") {
					asked = true
					before := seen.String()
					for _, want := range []string{"To: ada@example.org", "the grant would allow", "where --to is ada@example.org",
						"Run this, and allow what the grant says?"} {
						if !strings.Contains(before, want) {
							t.Errorf("asked before it showed %q:\n%s", want, before)
						}
					}
					if _, err := io.WriteString(pty, c.answer); err != nil {
						t.Fatal(err)
					}
				}
				if err != nil {
					break // EIO: the command has ended
				}
			}
			code := 0
			if err := cmd.Wait(); err != nil {
				code = cmd.ProcessState.ExitCode()
			}
			if !asked || code != c.code {
				t.Errorf("asked %v, exit code %d, want %d:\n%s", asked, code, c.code, seen.String())
			}
			log, _ := os.ReadFile(filepath.Join(dir, "seen"))
			if got := strings.Contains(string(log), "decide c1 hash=abcd approve=true"); got != c.decided {
				t.Errorf("decided %v, want %v: %s", got, c.decided, log)
			}
		})
	}
}

func TestGrantTextSaysWhatItAllows(t *testing.T) {
	a := &app{now: time.Unix(1900000000, 0)}
	got := strings.Join(a.grantText(&wire.Grant{Connector: "demo", Method: "create", Account: "home", Cell: "main",
		Kind:  "until",
		Until: 1900000000 + 7*86400, Count: 3, Limits: []wire.Limit{{Field: "to",
			Values: []string{"ada@example.org\u202e"}}, {Field: "cc"}, {Field: "amount", Max: 5}}}), "\n")
	for _, want := range []string{"calls of demo create", "account home, from cell main",
		`where --to is ada@example.org\u{202e}`, "where --cc is not given",
		"where --amount is at most 5", "3 times in all", "in 7 days", "not after the cell has read what others wrote"} {
		if !strings.Contains(got, want) {
			t.Errorf("no %q in:\n%s", want, got)
		}
	}
}

func TestDaysReadsSpans(t *testing.T) {
	for in, want := range map[string]time.Duration{"7d": 7 * 24 * time.Hour, "12h": 12 * time.Hour,
		"30m": 30 * time.Minute} {
		if got, err := days(in); err != nil || got != want {
			t.Errorf("%s: %v, %v", in, got, err)
		}
	}
	for _, in := range []string{"", "d", "-1d", "0d", "1w", "7 d", "-5m", "99999d"} {
		if got, err := days(in); err == nil {
			t.Errorf("%q: %v", in, got)
		}
	}
}

func TestBaseOfReadsAddresses(t *testing.T) {
	for in, want := range map[string]wire.Base{
		"https://api.example.org":              {Scheme: "https", Host: "api.example.org", Port: 443},
		"https://API.example.org.:8443/dav/x/": {Scheme: "https", Host: "api.example.org", Port: 8443, Path: "/dav/x"},
		"https://[2001:db8::1]:8443":           {Scheme: "https", Host: "2001:db8::1", Port: 8443},
	} {
		if got, err := baseOf(in, nil); err != nil || got != want {
			t.Errorf("%s: %+v, %v", in, got, err)
		}
	}
	for _, in := range []string{"", "example.org", "http://example.org", "ftp://example.org", "https://u:p@example.org",
		"https://example.org?x",
		"https://example.org#x", "https://example.org:0", "https://example.org:99999", "https://"} {
		if got, err := baseOf(in, nil); err == nil {
			t.Errorf("%q: %+v", in, got)
		}
	}
	if _, err := baseOf("http://127.0.0.1:8080", []string{"127.0.0.1:8080"}); err != nil {
		t.Error(err)
	}
	if _, err := baseOf("http://127.0.0.1:8080", []string{"127.0.0.1:8080", "192.0.2.1:80"}); err == nil {
		t.Error("http with an address that is not loopback was taken")
	}
}

func TestASCIIJSONHasNothingElse(t *testing.T) {
	if got := string(ascii([]byte(`{"a":"é\u0000` + "\x7f\u202e\U0001f600" +
		`"}`))); got != `{"a":"\u00e9\u0000\u007f\u202e\ud83d\ude00"}` {
		t.Error(got)
	}
}
