// SPDX-License-Identifier: Apache-2.0

package scenario

import (
	"crypto/rand"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/doorward/doorward/internal/leaks"
	"github.com/doorward/doorward/test/vendors/discord"
	"github.com/doorward/doorward/test/vendors/standin"
	"github.com/doorward/doorward/test/world"
)

// helper is a bot as somebody wrote it for Discord itself: it has two settings, where it speaks to and its token. It reads the
// channel again and again, keeps what it read, and writes it to a file.
const helper = `
const { DISCORD_API, DISCORD_TOKEN, KEEP } = process.env, fs = require('fs'), kept = [];
const ask = async (method, path, body) => {
	const r = await fetch(DISCORD_API + path, { method, headers: { Authorization: 'Bot ' + DISCORD_TOKEN, 'Content-Type': 'application/json' },
		body: body && JSON.stringify(body) });
	return { status: r.status, headers: [...r.headers], text: await r.text() };
};
(async () => {
	for (;;) {
		for (const [method, path, body] of [['GET', '/users/@me'], ['GET', '/channels/` + discord.General + `/messages?limit=10'],
			['POST', '/channels/` + discord.General + `/messages', { content: 'hi' }]]) {
			try { kept.push(JSON.stringify([method, path, await ask(method, path, body)])); } catch (e) { kept.push(String(e.stack) + e.cause); }
			fs.writeFileSync(KEEP, kept.join('\n'));
		}
		await new Promise(done => setTimeout(done, 100));
	}
})();`

// TestAHelperHoldsNoCredential is must-hold 7 of surrogates: a helper of Node's whose address and token are changed, and nothing
// else, works in the cell, also where Discord quotes the token in its answers (LK-04). While it does, the token is in no memory,
// environment, argument or file of the cell, in no log, and in nothing that is kept. Controls: what is put into each of these places is
// found there, and outside of a cell the same helper has it.
func TestAHelperHoldsNoCredential(t *testing.T) {
	const node = "/usr/bin/node"
	if _, err := os.Stat(node); err != nil {
		t.Skip("client skipped: node is not installed")
	}
	r := newBotRig(t)
	r.issue("work", "discord")
	sur := r.surrogate(r.work, "discord")
	if err := os.WriteFile(r.path("helper.js"), []byte(helper), 0o644); err != nil {
		t.Fatal(err)
	}
	runs := func(as *world.Actor, name, address, token string, more ...string) *world.Proc {
		t.Helper()
		p, err := as.Start(world.Cmd{UID: 1000, Args: []string{node, r.path("helper.js")},
			Env: append(more, "DISCORD_API="+address, "DISCORD_TOKEN="+token, "KEEP="+r.path(name))})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { p.Kill(); _, _ = p.Wait() })
		return p
	}
	quote := standin.Fault{Method: "GET", Path: discord.API + "/users", After: 3, Status: 401, Chunk: 7,
		Body:    `{"message":"key {credential} ({authorization}) is not valid"}`,
		Header:  map[string]string{"Www-Authenticate": `Bot key="{credential}"`, "X-Echo": "{authorization}", "Set-Cookie": "last={credential}"},
		Trailer: map[string]string{"X-Last": "{credential}"}}
	r.discord.Faults.Add(quote)
	runs(r.work.Actor(), "kept", api, sur)
	read := func(name string) string { b, _ := os.ReadFile(r.path(name)); return string(b) }
	r.eventually("the helper works", func() bool {
		k := read("kept")
		return strings.Contains(k, "Hello, bot.") && strings.Contains(k, "needs_approval") && strings.Contains(k, "key "+sur)
	})
	r.real(r.came(0), sur)
	if r.discord.Rec.Handled("POST", "/") > 0 {
		t.Error("a write came")
	}

	in := func(value string) *world.Found { t.Helper(); return r.search(r.work, value) }
	for _, f := range in(r.token).All() {
		t.Error(f)
	}
	for _, s := range in(sur).Logs {
		t.Errorf("the surrogate: %v", s)
	}

	// Controls: one value for each place.
	memory, environment, argument, file, logged := "memory-"+rand.Text(), "environ-"+rand.Text(), "argument-"+rand.Text(), "file-"+rand.Text(), "log-"+rand.Text()
	for _, c := range []world.Cmd{
		{Args: []string{"/bin/sh", "-c", "read -r x; while :; do sleep 1; done"}, Stdin: memory + "\n"},
		{Args: []string{"/bin/sleep", "600"}, Env: []string{"TOKEN=" + environment}},
		{Args: []string{"/bin/sh", "-c", "while :; do sleep 1; done", argument}},
	} {
		c.UID = 1000
		p, err := r.work.Actor().Start(c)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { p.Kill(); _, _ = p.Wait() })
	}
	log, err := os.OpenFile(filepath.Join(r.Dir, "log", "egress@work"), os.O_APPEND|os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	_, err = fmt.Fprintln(log, "Authorization: Bot", logged)
	if err != nil || log.Close() != nil || os.WriteFile(r.path("planted"), []byte("token="+file), 0o644) != nil {
		t.Fatal(err)
	}
	for value, there := range map[string]func(*world.Found) []leaks.Finding{
		memory:      func(f *world.Found) []leaks.Finding { return only(f.Processes.Findings, "memory") },
		environment: func(f *world.Found) []leaks.Finding { return only(f.Processes.Findings, "environ") },
		argument:    func(f *world.Found) []leaks.Finding { return only(f.Processes.Findings, "cmdline") },
		file:        func(f *world.Found) []leaks.Finding { return f.Files.Findings },
		logged:      func(f *world.Found) []leaks.Finding { return f.Logs },
	} {
		what, _, _ := strings.Cut(value, "-")
		r.eventually("control: what is put into "+what+" is found", func() bool { return len(there(in(value))) > 0 })
	}
	// Control: outside.
	if ca := os.WriteFile(r.path("ca.pem"), r.discord.CAPEM(), 0o644); ca != nil {
		t.Fatal(ca)
	}
	outside := runs(r.Local(1000), "outside", "https://"+r.discord.At+discord.API, r.token, "NODE_EXTRA_CA_CERTS="+r.path("ca.pem"))
	r.eventually("control: outside of a cell the same helper has the token", func() bool {
		return strings.Contains(read("outside"), "key "+r.token) && strings.Contains(read("outside"), `"POST"`)
	})
	outside.Kill()
	_, _ = outside.Wait()
	if err := os.Remove(r.path("outside")); err != nil { // in a folder that the cell has too
		t.Fatal(err)
	}
}

// only are the findings whose place has a word in it.
func only(all []leaks.Finding, word string) (out []leaks.Finding) {
	for _, f := range all {
		if strings.Contains(f.Where, word) {
			out = append(out, f)
		}
	}
	return out
}
