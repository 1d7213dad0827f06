// SPDX-License-Identifier: Apache-2.0

package inside

import (
	"crypto/rand"
	"errors"
	"fmt"
	"os"
	"regexp"
	"strings"
	"syscall"
	"testing"

	"github.com/doorward/doorward/internal/wire"
	"github.com/doorward/doorward/test/vendors/discord"
)

// helper is a program that knows nothing of Doorward: what a bot of Discord's would do with a token from a file. Its words are the
// method, the address and the body; it says the status and the answer.
const helper = `
import sys, urllib.error, urllib.request
method, url, body = sys.argv[1:]
q = urllib.request.Request(url, method=method, data=body.encode() or None,
    headers={"Authorization": "Bot " + open("/home/agent/token").read().strip(), "Content-Type": "application/json"})
try:
    r = urllib.request.urlopen(q, timeout=60)
except urllib.error.HTTPError as e:
    r = e
except OSError as e:
    sys.exit("no answer: %s" % e)
print(r.status, r.read().decode())
`

// TestABotOfAnInstalledCell is what test/scenario's TestADiscordBotInACell is, under systemd: the cell's network, steering, the
// listener that systemd holds, the cell's own authority and the roots in its tree are those that the package makes. A read goes with
// the real credential; a write asks, and goes when it is approved, as it was; what is not allowed reaches nobody; egress killed comes back, and the surrogate
// is as good as before; revoked, it is worth nothing.
func TestABotOfAnInstalledCell(t *testing.T) {
	token := rand.Text() + "." + rand.Text()[:6] + "." + rand.Text()
	const at = "127.77.0.1:443"
	s, err := discord.New(discord.Options{Token: token, Listen: at, Names: []string{"discord.com", "other.example"}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	appended(t, "/etc/hosts", "127.77.0.1 discord.com other.example\n")
	appended(t, wire.SystemBundle, string(s.CAPEM()))
	denned(t)
	egress := "doorward-egress@" + den
	must(t, "systemctl", "restart", egress) // it reads the machine's roots once

	r := person(t, token, "surrogate", "add", "bot", "--cell", den, "--manifest", "discord", "--permit", at, "--secret-stdin", "--yes")
	want(t, r, 0, "add a surrogate")
	want(t, person(t, "", "run", den, "--", "connector", "surrogate", "bot", "--out", "/home/agent/token"), 0, "ask for it")
	b, err := os.ReadFile("/var/lib/doorward/cells/" + den + "/home/agent/token")
	sur := strings.TrimSpace(string(b))
	if err != nil || sur == "" || sur == token {
		t.Fatalf("the surrogate is %q, %v", sur, err)
	}
	bot := func(method, url, body string) (status int, said string) {
		r := person(t, "", "run", den, "--", "python3", "-c", helper, method, url, body)
		_, _ = fmt.Sscan(r.stdout, &status)
		return status, r.String()
	}
	api := "https://discord.com" + discord.API
	goes := func(method, url, body string) error {
		before := len(s.Rec.All())
		status, said := bot(method, url, body)
		came := s.Rec.All()[before:]
		if status != 200 || len(came) != 1 || came[0].Credential != "real" || strings.Contains(fmt.Sprint(came[0].Header), sur) {
			return fmt.Errorf("%s %s: %s; Discord saw %v", method, url, said, came)
		}
		return nil
	}
	stays := func(method, url, body string, status int) string {
		t.Helper()
		before := len(s.Rec.All())
		got, said := bot(method, url, body)
		if got != status || len(s.Rec.All()) != before {
			t.Errorf("%s %s: %s, want %d; %d came", method, url, said, status, len(s.Rec.All())-before)
		}
		return said
	}
	messages := api + "/channels/" + discord.General + "/messages"
	if err := goes("GET", messages, ""); err != nil {
		t.Fatal(err)
	}
	const hi = `{"content":"hi"}`
	said := stays("POST", messages, hi, 403)
	id := regexp.MustCompile(`\b[0-9a-z]{26}\b`).FindString(said)
	// For a time: each run is a session of its own, and an approval without one is over with the session that asked.
	want(t, person(t, "", "approve", id, "--grant", "until=1h", "--yes"), 0, "approve what was refused: "+said)
	if err := goes("POST", messages, hi); err != nil {
		t.Error(err)
	}
	stays("POST", messages+"?x=y", hi, 403)
	stays("DELETE", api+"/channels/"+discord.General, "", 403)
	stays("GET", "https://other.example/", "", 0) // by name, and the same server by its address
	stays("GET", "https://127.77.0.1/", "", 0)

	pid := mainPID(t, egress)
	if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	eventually(t, "a read after its egress was killed", func() error {
		if now := property(t, egress, "MainPID"); now == "0" || now == fmt.Sprint(pid) {
			return errors.New("it is not back")
		}
		return goes("GET", messages, "")
	})
	want(t, person(t, "", "surrogate", "revoke", "bot", "--cell", den), 0, "revoke it")
	stays("GET", messages, "", 0)
	want(t, person(t, "", "account", "remove", "bot"), 0, "remove the credential")
}

// appended adds to a file of the machine, as it is until the test ends.
func appended(t *testing.T, path, text string) {
	t.Helper()
	old, err := os.ReadFile(path)
	if err == nil {
		err = os.WriteFile(path, append(append([]byte(nil), old...), text...), 0o644)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := os.WriteFile(path, old, 0o644); err != nil {
			t.Error(err)
		}
	})
}
