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
	m, s, err := openTerminal()
	if err != nil {
		t.Skip("plain ground skipped: no pseudo-terminals here: " + err.Error())
	}
	t.Cleanup(func() { m.Close(); s.Close() })
	if err := unix.IoctlSetWinsize(int(m.Fd()), unix.TIOCSWINSZ, &unix.Winsize{Row: 40, Col: 120}); err != nil {
		t.Fatal(err)
	}
	return m, s
}

func openTerminal() (master, slave *os.File, err error) {
	master, err = os.OpenFile("/dev/ptmx", os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		return nil, nil, err
	}
	n, err := unix.IoctlGetInt(int(master.Fd()), unix.TIOCGPTN)
	if err == nil {
		err = unix.IoctlSetPointerInt(int(master.Fd()), unix.TIOCSPTLCK, 0)
	}
	if err == nil {
		slave, err = os.OpenFile(fmt.Sprintf("/dev/pts/%d", n), os.O_RDWR|unix.O_NOCTTY, 0)
	}
	return master, slave, err
}

// atTerminal runs the command at a terminal, answers once it says prompt (before is what it said until then), and
// returns all that it said and its exit code.
func atTerminal(t *testing.T, dir, prompt, answer string, before func(string), args ...string) (string, int) {
	t.Helper()
	exe, err := exec.LookPath("doorward")
	if err != nil {
		t.Fatal(err)
	}
	pty, tty := terminal(t)
	cmd := exec.Command(exe, args...)
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
		if !asked && strings.Contains(seen.String(), prompt) {
			asked = true
			if before != nil {
				before(seen.String())
			}
			if _, err := io.WriteString(pty, answer); err != nil {
				t.Fatal(err)
			}
		}
		if err != nil {
			break // EIO: the command has ended
		}
	}
	_ = cmd.Wait() // the exit code says it
	return seen.String(), cmd.ProcessState.ExitCode()
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

			asked := false
			seen, code := atTerminal(t, dir, "Type yes: ", c.answer, func(before string) {
				asked = true
				for _, want := range []string{"To: ada@example.org", "the grant would allow", "where --to is ada@example.org",
					"Run this, and allow what the grant says?"} {
					if !strings.Contains(before, want) {
						t.Errorf("asked before it showed %q:\n%s", want, before)
					}
				}
			}, "approve", "c1", "--grant", "session")
			if !asked || code != c.code {
				t.Errorf("asked %v, exit code %d, want %d:\n%s", asked, code, c.code, seen)
			}
			log, _ := os.ReadFile(filepath.Join(dir, "seen"))
			if got := strings.Contains(string(log), "decide c1 hash=abcd approve=true"); got != c.decided {
				t.Errorf("decided %v, want %v: %s", got, c.decided, log)
			}
		})
	}
}

// Where to make a credential is said where one is asked for, once all else was checked, and of the vendor's own server
// only.
func TestAccountAddNamesThePageWhereItAsks(t *testing.T) {
	if !clitest.Ground() {
		t.Skip("host ground skipped: needs root and a mount namespace")
	}
	for _, c := range []struct {
		name        string
		args        []string
		asks, named bool
		want        string
	}{
		{"a new one", []string{"demo", "work"}, true, true, "name=Doorward+work&things=read"},
		{"one that is there", []string{"demo", "home"}, false, false, "there is an account home already"},
		{"of an address of its own", []string{"demo", "work", "--base", "https://other.example.org"}, true, false, ""},
		{"with a fault", []string{"demo", "work", "--user", "ada"}, false, false, "has no user name"},
	} {
		t.Run(c.name, func(t *testing.T) {
			dir := t.TempDir()
			s := &sham{Script: clitest.Script{Dir: dir}}
			clitest.ServeTest(t, s.Script, "approve/sock", s.sentinel)
			clitest.ServeTest(t, s.Script, "authd/admin/sock", s.authd)
			seen, _ := atTerminal(t, dir, "(not shown): ", "tok-0123456789\n", nil, append([]string{"account", "add"}, c.args...)...)
			if got := strings.Contains(seen, "(not shown): "); got != c.asks {
				t.Errorf("asked %v, want %v", got, c.asks)
			}
			if got := strings.Contains(seen, "make a new credential at https://example.org/new"); got != c.named {
				t.Errorf("named the page %v, want %v", got, c.named)
			}
			if !strings.Contains(seen, c.want) {
				t.Errorf("no %q", c.want)
			}
			if t.Failed() {
				t.Log(seen)
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

// An invitation at a terminal is a QR code too, and with --wait the command says when it was taken, or that it was not.
func TestAnInvitationAtATerminal(t *testing.T) {
	if !clitest.Ground() {
		t.Skip("host ground skipped: needs root and a mount namespace")
	}
	put := func(dir, name, body string) {
		t.Helper()
		if err := os.WriteFile(filepath.Join(dir, name+".new"), []byte(body), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Rename(filepath.Join(dir, name+".new"), filepath.Join(dir, name)); err != nil {
			t.Fatal(err)
		}
	}
	for name, c := range map[string]struct {
		then string // what sentinel lists from then on
		code int
		want string
	}{
		"taken": {`[{"name":"ada","made":1900000000,"by":"person:0"}]`, 0, "ada has registered a passkey"},
		"over":  {`[{"name":"eve","made":1900000000,"by":"person:0"}]`, 5, "nobody registered a passkey in time"},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			put(dir, "does", "approvers list.json\n")
			put(dir, "list.json", `[{"name":"ada","invited":4000000000,"by":"person:0"}]`)
			s := &sham{Script: clitest.Script{Dir: dir}}
			clitest.ServeTest(t, s.Script, "approve/sock", s.sentinel)
			seen, code := atTerminal(t, dir, "waiting for the passkey of ada", "", func(before string) {
				if !strings.Contains(before, "https://ward.example.org:8440/#enrol=i1") || !strings.Contains(before, "▀") {
					t.Errorf("no link, or no code of it:\n%s", before)
				}
				put(dir, "list.json", c.then)
			}, "approver", "add", "ada", "--wait")
			if code != c.code || !strings.Contains(seen, c.want) {
				t.Errorf("exit code %d:\n%s", code, seen)
			}
		})
	}
}
