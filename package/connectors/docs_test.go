// SPDX-License-Identifier: Apache-2.0

package connectors

import (
	"os"
	"strings"
	"testing"

	"github.com/doorward/doorward/internal/manifest"
	"github.com/doorward/doorward/internal/wire"
)

// The manifest that docs/custom-connector.md has a reader write is one, and does what the page says of it.
func TestTheManifestOfTheDocument(t *testing.T) {
	b, err := os.ReadFile("../../docs/custom-connector.md")
	if err != nil {
		t.Fatal(err)
	}
	_, text, _ := strings.Cut(string(b), "```toml\n")
	text, _, found := strings.Cut(text, "```")
	if !found {
		t.Fatal("there is no manifest in the document")
	}
	m, err := manifest.Parse([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	if m.Setting != "ask-before-changes" || m.Placement != shipped(t, "discord").Placement {
		t.Errorf("setting %s, placement %+v", m.Setting, m.Placement)
	}
	const channel = "/api/v10/channels/1180000000000000001"
	for _, c := range []struct{ method, path, want string }{
		{"GET", channel, "read"},
		{"GET", channel + "/messages", "read"},
		{"POST", channel + "/messages", "write"},
		{"PATCH", channel + "/messages/1", "write"},
		{"DELETE", channel + "/messages/1", "destructive"},
		{"DELETE", channel, ""},
		{"POST", channel + "/messages/bulk-delete", ""},
		{"POST", channel + "/invites", ""},
		{"PUT", "/api/v10/guilds/1/bans/2", ""},
	} {
		if got := classOf(t, m, c.method, c.path); got != c.want {
			t.Errorf("%s %s is %q, want %q", c.method, c.path, got, c.want)
		}
	}
	// "To hold the helper to one channel, write its number".
	one, err := manifest.Parse([]byte(strings.ReplaceAll(text, "{channel}", "1180000000000000001")))
	if err != nil {
		t.Fatal(err)
	}
	if got := classOf(t, one, "GET", channel+"/messages"); got != "read" {
		t.Errorf("its channel is %q", got)
	}
	if got := classOf(t, one, "GET", "/api/v10/channels/2/messages"); got != "" {
		t.Errorf("another channel is %q", got)
	}
	if _, err := one.Match(&wire.RequestReq{Name: "discord.com", Port: 443, Method: "GET", Path: channel + "/../2/messages"}); err == nil {
		t.Error("another channel by dots is read")
	}
	for _, name := range Names() {
		if !strings.Contains(string(b), "`"+name+"`") {
			t.Errorf("the document does not name %s", name)
		}
	}
}
