// SPDX-License-Identifier: Apache-2.0

package scenario

import (
	"net/http"
	"strings"
	"testing"

	"github.com/doorward/doorward/internal/wire"
	"github.com/doorward/doorward/test/vendors/discord"
)

// TestADiscordBotInACell is must-hold 6: a helper that reads and writes in a Discord server, with a surrogate for a token. Reads pass
// and carry the real credential; a write, a change and a removal of its own message are refused with needs_approval and one card
// each; after an approval exactly that goes, once; what the manifest does not name is refused.
func TestADiscordBotInACell(t *testing.T) {
	r := newBotRig(t)
	r.issue("work", "discord")
	sur := r.surrogate(r.work, "discord")
	if sur == r.token || len(sur) != len(r.token) {
		t.Errorf("the surrogate %q has not the length of a token", sur)
	}
	// Reads.
	for _, path := range []string{"/users/@me", "/users/@me/guilds", "/guilds/" + discord.Guild + "/channels", "/channels/" + discord.General,
		"/channels/" + discord.General + "/messages?limit=50", "/channels/" + discord.General + "/messages/" + discord.Hello} {
		n := r.count()
		a := r.goesOnce(r.work, sur, "GET", api+path, "", 200)
		if q := r.came(n)[0]; q.Operation != "" {
			if err := r.discord.Answer(q.Operation, a.status, []byte(a.body)); err != nil {
				t.Errorf("%s: what came back is no answer of Discord's: %v", path, err)
			}
		}
	}
	if a := r.bot(r.work, sur, "GET", messages, ""); !strings.Contains(a.body, "Hello, bot.") {
		t.Errorf("%v", a)
	}

	// What changes something asks, one card each, and again does not make another.
	own := r.discord.Put(discord.General, discord.Bot, "mine")
	for i, c := range []struct{ method, url, body string }{
		{"POST", messages, `{"content":"hi"}`},
		{"PATCH", messages + "/" + own, `{"content":"changed"}`},
		{"DELETE", messages + "/" + own, ""},
	} {
		n := r.count()
		before := r.pending()
		e := r.stays(r.bot(r.work, sur, c.method, c.url, c.body), n, http.StatusForbidden, wire.CodeNeedsApproval)
		r.stays(r.bot(r.work, sur, c.method, c.url, c.body), n, http.StatusForbidden, wire.CodeNeedsApproval)
		cards := r.pending()
		if len(cards) != len(before)+1 {
			t.Fatalf("%s: %d cards, then %d", c.method, len(before), len(cards))
		}
		card := cards[len(cards)-1]
		for _, k := range cards {
			if strings.HasPrefix(k.Title, c.method+" ") {
				card = k
			}
		}
		if !strings.Contains(card.Title, strings.TrimPrefix(c.url, "https://")) || !strings.Contains(e.Next, card.ID) {
			t.Errorf("card %q; next: %q", card.Title, e.Next)
		}
		text := r.doorward(0, "show", card.ID).Stdout
		r.has(text, "discord.com", c.method, "curl")
		if strings.Contains(text, sur) || strings.Contains(text, r.token) {
			t.Errorf("the card shows a credential:\n%s", text)
		}
		// Exactly that goes, once.
		r.has(r.doorward(0, "approve", card.ID, "--yes").Stdout, "is done")
		for _, other := range []struct{ method, url, body string }{
			{c.method, strings.Replace(c.url, discord.General, discord.Secret, 1), c.body}, // another channel
			{c.method, c.url + "?reason=x", c.body},
			{"PUT", c.url, c.body},
		} {
			n := r.count()
			if a := r.bot(r.work, sur, other.method, other.url, other.body); a.status != http.StatusForbidden || r.count() != n {
				t.Errorf("the approval of %s lets %s %s through: %v", c.method, other.method, other.url, a)
			}
		}
		want := 200
		if c.method == "DELETE" {
			want = 204
		}
		r.goesOnce(r.work, sur, c.method, c.url, c.body, want)
		n = r.count()
		r.stays(r.bot(r.work, sur, c.method, c.url, c.body), n, http.StatusForbidden, wire.CodeNeedsApproval)
		if m := r.discord.Messages(discord.General); i == 0 && (len(m) != 3 || m[2].Content != "hi") || i == 1 && m[1].Content != "changed" ||
			i == 2 && len(m) != 2 {
			t.Errorf("after the %s there are %v", c.method, m)
		}
	}

	// What no route names.
	for _, c := range [][2]string{
		{"GET", "/channels/" + discord.General + "/invites"}, {"GET", "/guilds/" + discord.Guild}, {"DELETE", "/channels/" + discord.General},
		{"POST", "/channels/" + discord.General + "/messages/bulk-delete"}, {"PUT", "/channels/" + discord.General + "/messages/" + own},
		{"GET", "/oauth2/@me"}, {"GET", "/users/" + discord.Ada}, {"GET", "/../v9/users/@me"}, {"GET", "/users/@me/"}, {"HEAD", "/users/@me"},
		{"PATCH", "/users/@me"}, {"POST", "/users/@me/channels"},
	} {
		n := r.count()
		a := r.curlIn(r.work, "--path-as-is", "--header", "Authorization: Bot "+sur, "--request", c[0], "--max-time", "10", api+c[1])
		if a.status != 403 && a.status != 400 || r.count() != n {
			t.Errorf("%s %s: %v; %d came", c[0], c[1], a, r.count()-n)
		}
		if e := a.refused(); c[0] != "HEAD" && e.Code != wire.CodeNotAllowed && e.Code != wire.CodeUsage {
			t.Errorf("%s %s: %v", c[0], c[1], a)
		}
	}

	// It is on the record, by name and not by value.
	var lines strings.Builder
	for _, e := range r.events(0) {
		lines.WriteString(e.Raw + "\n")
	}
	r.has(lines.String(), `"type":"request"`, `"surrogate":"discord"`, `"route":"message-post"`, `"program":"curl"`)
	for what, s := range map[string]string{"credential": r.token, "surrogate": sur} {
		if strings.Contains(lines.String(), s) {
			t.Errorf("the record has the %s", what)
		}
	}
	r.has(r.doorward(0, "surrogate", "list").Stdout, "discord", "work", "discord.com:443")
}
