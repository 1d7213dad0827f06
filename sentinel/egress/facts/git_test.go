// SPDX-License-Identifier: Apache-2.0

package facts

import (
	"fmt"
	"slices"
	"strings"
	"testing"
)

var (
	nobody = strings.Repeat("0", 40)
	one    = strings.Repeat("1", 40)
	two    = strings.Repeat("2", 40)
)

func pkt(lines ...string) string {
	var b strings.Builder
	for _, l := range lines {
		if l == "0000" {
			b.WriteString(l)
			continue
		}
		fmt.Fprintf(&b, "%04x%s", len(l)+4, l)
	}
	return b.String()
}

var pushes = []struct{ body, want string }{
	{pkt(nobody+" "+one+" refs/heads/a\x00 report-status side-band-64k", "0000") + "PACK", "git push create refs/heads/a"},
	{pkt(one+" "+two+" refs/heads/a\x00 report-status\n", "0000") + "PACK", "git push update refs/heads/a"},
	{pkt(one+" "+nobody+" refs/heads/a\x00 report-status", "0000"), "git push delete refs/heads/a"},
	{pkt(one+" "+two+" refs/heads/a\x00x", nobody+" "+one+" refs/tags/v1\n", one+" "+nobody+" refs/heads/b", "0000"),
		"git push update refs/heads/a|git push create refs/tags/v1|git push delete refs/heads/b"},
	{pkt("shallow "+one, one+" "+two+" refs/heads/a\x00x", "0000"), "git push update refs/heads/a"},
	{pkt(strings.Repeat("0", 64)+" "+strings.Repeat("1", 64)+" refs/heads/a\x00object-format=sha256", "0000"), "git push create refs/heads/a"},
	{pkt(one+" "+two+" refs/heads/bücher\x00x", "0000"), "git push update refs/heads/bücher"},
	{"0000", "git fetch"}, // a probe for whether it is known
	// What is no such list.
	{pkt("shallow "+one, "0000"), unread},
	{pkt(one+" "+two+" HEAD\x00x", "0000"), unread},
	{pkt(one+" "+two+" refs/heads/../a\x00x", "0000"), unread},
	{pkt(one+" "+two+" refs/heads/a b\x00x", "0000"), unread},
	{pkt(one+" "+two+" refs/heads/\x1b[2J\x00x", "0000"), unread},
	{pkt(one+" "+two+" refs/heads/\u202ea\x00x", "0000"), unread},
	{pkt(one+" "+two+" refs/heads/\xff\x00x", "0000"), unread},
	{pkt(one+" "+two+" refs/heads/"+strings.Repeat("a", maxRef)+"\x00x", "0000"), unread},
	{pkt(one+" "+two+" refs/heads/a\x00x", one+" "+two+" refs/heads/b\x00refs/heads/c", "0000"), unread},
	{pkt(nobody+" "+nobody+" refs/heads/a\x00x", "0000"), unread},
	{pkt(one+" "+strings.Repeat("1", 64)+" refs/heads/a\x00x", "0000"), unread},
	{pkt(strings.ToUpper(strings.Repeat("a", 40))+" "+two+" refs/heads/a\x00x", "0000"), unread},
	{pkt(one+"  "+two+" refs/heads/a\x00x", "0000"), unread},
	{pkt("push-cert\x00x", "certificate version 0.1\n", "0000"), unread},
	{pkt("push-option=x", "0000"), unread},
	{"0001" + pkt(one+" "+two+" refs/heads/a", "0000"), unread},
	{"0004", unread},
	{"zzzz", unread},
	{"\x10\x10\x10\x10", unread},
	{"-001", unread},
	{"fff1", unread},
	{"PACK", unread},
	{pkt(strings.Split(strings.Repeat(one+" "+two+" refs/heads/a\n|", maxRefs), "|")[:maxRefs]...) + "0000",
		strings.TrimSuffix(strings.Repeat("git push update refs/heads/a|", maxRefs), "|")},
	{pkt(strings.Split(strings.Repeat(one+" "+two+" refs/heads/a\n|", maxRefs+1), "|")[:maxRefs+1]...) + "0000", unread},
}

func TestGitPush(t *testing.T) {
	for _, c := range pushes {
		got, need := Git("POST", "/o/r.git/git-receive-pack", "", []byte(c.body))
		if strings.Join(got, "|") != c.want || need != 0 {
			t.Errorf("%.80q is %.120q, %d; want %.120q", c.body, got, need, c.want)
		}
	}
}

// HT-03: which refs a push is about is known from its first bytes, however large it is and however they come.
func TestCase_HT03_RefsFromTheFirstBytes(t *testing.T) {
	for _, c := range pushes {
		have, body := 0, []byte(c.body)
		for {
			got, need := Git("POST", "/r/git-receive-pack", "", body[:have])
			if need == 0 {
				if strings.Join(got, "|") != c.want {
					t.Errorf("%.80q, %d bytes of it: %q, want %q", c.body, have, got, c.want)
				}
				break
			}
			if got != nil || need <= have || need > MaxGit {
				t.Fatalf("%.80q: %q, and %d bytes are needed where there are %d", c.body, got, need, have)
			}
			if have = need; have > len(c.body) {
				t.Fatalf("%.80q: %d bytes are needed", c.body, need)
			}
		}
	}
	long := pkt(one+" "+two+" refs/heads/a\x00x", "0000")
	got, _ := Git("POST", "/r/git-receive-pack", "", append([]byte(long), make([]byte, 1<<20)...))
	if !slices.Equal(got, []string{"git push update refs/heads/a"}) {
		t.Errorf("with a megabyte behind it: %q", got)
	}
	// Commands without an end are not read for ever.
	endless := []byte(strings.Repeat(pkt("shallow "+one), MaxGit/50))
	for n := 0; ; {
		got, need := Git("POST", "/r/git-receive-pack", "", endless[:n])
		if need == 0 {
			if !slices.Equal(got, unreadable()) {
				t.Errorf("endless: %q", got)
			}
			break
		}
		if n = need; n > MaxGit || n > len(endless) {
			t.Fatalf("endless: %d bytes are needed", need)
		}
	}
}

func TestGitFetch(t *testing.T) {
	want := pkt("want " + one + " multi_ack side-band-64k\n")
	for _, c := range []struct{ method, path, query, body, want string }{
		{"GET", "/o/r/info/refs", "service=git-upload-pack", "", "git fetch"},
		{"GET", "/o/r/info/refs", "service=git-receive-pack", "", "git fetch"},
		{"GET", "/o/r/info/refs", "service=git-upload-pack&x", "", ""},
		{"GET", "/o/r/info/refs", "", "", ""},
		{"GET", "/o/r/HEAD", "", "", ""},
		{"GET", "/o/r/objects/info/packs", "", "", ""},
		{"GET", "/o/r/git-upload-pack", "", "", ""},
		{"POST", "/o/r/git-upload-pack", "", want, "git fetch"},
		{"POST", "/o/r/git-upload-pack", "", pkt("command=ls-refs\n"), "git fetch"},
		{"POST", "/o/r/git-upload-pack", "", pkt("command=fetch"), "git fetch"},
		{"POST", "/o/r/git-upload-pack", "", pkt("command=bundle-uri"), unread},
		{"POST", "/o/r/git-upload-pack", "", pkt("the person's mail"), unread},
		{"POST", "/o/r/git-upload-pack", "", "0000", unread},
		{"POST", "/o/r/git-upload-pack", "", "any other body", unread},
		{"POST", "/o/r/git-upload-pack", "", pkt("want x"), unread},
		{"POST", "/o/r/git-upload-archive", "", want, ""},
		{"PUT", "/o/r/git-upload-pack", "", want, ""},
		{"POST", "/git-upload-pack/x", "", want, ""},
		{"POST", "/x-git-upload-pack", "", want, ""},
	} {
		got, need := Git(c.method, c.path, c.query, []byte(c.body))
		if strings.Join(got, "|") != c.want || need != 0 {
			t.Errorf("%s %s?%s %q is %q, %d; want %q", c.method, c.path, c.query, c.body, got, need, c.want)
		}
	}
	if got, need := Git("POST", "/r/git-upload-pack", "", nil); got != nil || need != 4 {
		t.Errorf("without a byte: %q, %d", got, need)
	}
}
