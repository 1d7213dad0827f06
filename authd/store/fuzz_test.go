// SPDX-License-Identifier: Apache-2.0

package store

import (
	"net"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/doorward/doorward/internal/wire"
)

// Whatever is accepted as an account can stand in a request without making it another one.
func FuzzAccount(f *testing.F) {
	f.Add("work", "api.github.com", 443, "", "header", "Authorization", "Bearer ", "", token)
	f.Add("cal", "dav.example.org", 8443, "/dav", "basic", "", "", "alice", "pass wörd")
	f.Add("bot", "api.telegram.org", 443, "", "path", "", "bot", "", "123456:abcdefgh")
	f.Add("x", "h.test", 443, "/a", "query", "key", "", "", "a\"b&c=d%\r\nX-Evil: 1")
	f.Fuzz(func(t *testing.T, name, host string, port int, path, kind, pname, prefix, user, secret string) {
		set := Settings{
			Name: name, Vendor: "github", Workers: []string{"github"},
			Base:      wire.Base{Scheme: "https", Host: host, Port: port, Path: path},
			Placement: wire.Placement{Kind: kind, Name: pname, Prefix: prefix, User: user},
		}
		a, err := newAccount(set, []byte(secret))
		if err != nil {
			if a != nil {
				t.Fatal("value returned with error")
			}
			return
		}
		defer a.Secret.Wipe()
		for _, s := range []string{name, host, path, pname, prefix, user, secret} {
			if strings.ContainsAny(s, "\r\n\x00\x7f\t\x1b") {
				t.Fatalf("a control byte in %q", s)
			}
		}
		if strings.Contains(host, ":") {
			host = "[" + host + "]"
		}
		u, err := url.Parse("https://" + host + ":" + strconv.Itoa(port) + path)
		if err != nil || u.Host != host+":"+strconv.Itoa(port) || u.EscapedPath() != path || u.RawQuery != "" ||
			u.Fragment != "" || u.User != nil || u.JoinPath().EscapedPath() != path && path != "" {
			t.Fatalf("the base %q %d %q is read as %v, %v", host, port, path, u, err)
		}
		if kind == "basic" && strings.Contains(user, ":") {
			t.Fatal("a colon in the user name")
		}
	})
}

// Whatever hosts a custom account is accepted with: its credential goes to them, and to names below a pattern's, label by label.
func FuzzCustomHosts(f *testing.F) {
	f.Add("discord.com", "*.discord.com:443", "gateway.discord.com", 443)
	f.Add("api.example.org", "*.com:443", "evil.com", 443)
	f.Add("a.b", "*.*.x.y:443", "*.x.y", 443)
	f.Add("a.b", "[::1]:443", "::1", 443)
	f.Fuzz(func(t *testing.T, base, also, host string, port int) {
		set := bot("bot")
		set.Base.Host, set.Also = base, []string{also}
		a, err := newAccount(set, []byte(token))
		if err != nil {
			return
		}
		defer a.Secret.Wipe()
		if !a.Holds(&wire.Entry{Scheme: "https", Host: host, Port: port}) || host == base && port == 443 {
			return
		}
		at, on, err := net.SplitHostPort(also)
		labels, of := strings.Split(host, "."), strings.Split(strings.TrimPrefix(at, "*."), ".")
		below := strings.HasPrefix(at, "*.") && len(of) >= 2 && len(labels) > len(of) && slices.Equal(labels[len(labels)-len(of):], of)
		if err != nil || on != strconv.Itoa(port) || host != at && !below || strings.ContainsAny(host, "*/@?#% \r\n\x00") {
			t.Fatalf("%q at %d by %q", host, port, also)
		}
	})
}
