// SPDX-License-Identifier: Apache-2.0

package facts

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/doorward/doorward/internal/wire"
)

var (
	nobody = strings.Repeat("0", 40)
	one    = strings.Repeat("1", 40)
	two    = strings.Repeat("2", 40)
)

func pkt(lines ...string) string {
	var b strings.Builder
	for _, l := range lines {
		if l == flush || l == delim {
			b.WriteString(l)
			continue
		}
		fmt.Fprintf(&b, "%04x%s", len(l)+4, l)
	}
	return b.String()
}

// media is the Content-Type of git's own POST to that path.
func media(path string) string {
	return "application/x-" + path[strings.LastIndexByte(path, '/')+1:] + "-request"
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
	// Options, where a capability says that they come.
	{pkt(one+" "+two+" refs/heads/a\x00 report-status push-options agent=x", "0000", "merge_request.create", "merge_request.target=main\n",
		"0000") + "PACK", `git push update refs/heads/a|git push option "merge_request.create"|git push option "merge_request.target=main"`},
	{pkt(one+" "+nobody+" refs/heads/a\x00push-options=", "0000", `a "quoted" bücher`, "0000"),
		`git push delete refs/heads/a|git push option "a \"quoted\" bücher"`},
	{pkt(one+" "+two+" refs/heads/a\x00push-options\n", "0000", "0000"), "git push update refs/heads/a"},
	{pkt(one+" "+two+" refs/heads/a\x00x push-options-not no-push-options agent=push-options", "0000", "ci.skip", "0000"),
		"git push update refs/heads/a"}, // which no server reads as options
	{pkt(one+" "+two+" refs/heads/a\x00push-options", "0000", "ci.skip"), unread},
	{pkt(one+" "+two+" refs/heads/a\x00push-options", "0000") + "PACK", unread},
	{pkt(one+" "+two+" refs/heads/a\x00push-options", "0000", "0001", "ci.skip", "0000"), unread},
	{pkt(one+" "+two+" refs/heads/a\x00push-options", "0000", "a\nb", "0000"), unread},
	{pkt(one+" "+two+" refs/heads/a\x00push-options", "0000", "\x1b[2J", "0000"), unread},
	{pkt(one+" "+two+" refs/heads/a\x00push-options", "0000", "\u202ea", "0000"), unread},
	{pkt(one+" "+two+" refs/heads/a\x00push-options", "0000", strings.Repeat("a", maxRef+1), "0000"), unread},
	{pkt(one+" "+two+" refs/heads/a\x00push-options", "0000") + strings.Repeat(pkt("ci.skip"), maxRefs) + "0000", unread},
	// A capability that some servers find and others do not.
	{pkt(one+" "+two+" refs/heads/a\x00x\tpush-options", "0000", "ci.skip", "0000"), unread},
	{pkt(one+" "+two+" refs/heads/a\x00x\x00push-options", "0000", "ci.skip", "0000"), unread},
	{pkt(one+" "+two+" refs/heads/a\n\x00push-options", "0000", "ci.skip", "0000"), unread},
	// What is no such list.
	{"0000PACK", unread},
	{"0000the person's mail", unread},
	{"00000000", unread},
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
		got, need := Git("POST", "/o/r.git/git-receive-pack", "", media("/git-receive-pack"), []byte(c.body), true)
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
			got, need := Git("POST", "/r/git-receive-pack", "", media("/git-receive-pack"), body[:have], false)
			if need == 0 {
				if strings.Join(got, "|") != c.want {
					t.Errorf("%.80q, %d bytes of it: %q, want %q", c.body, have, got, c.want)
				}
				break
			}
			if got != nil || need <= have || need > MaxGit {
				t.Fatalf("%.80q: %q, and %d bytes are needed where there are %d", c.body, got, need, have)
			}
			if have = need; have > len(c.body) { // which ends where it is not clear yet
				if got, need = Git("POST", "/r/git-receive-pack", "", media("/git-receive-pack"), body, true); need != 0 ||
					strings.Join(got, "|") != c.want {
					t.Errorf("%.80q: at its end %q, %d; want %q", c.body, got, need, c.want)
				}
				break
			}
		}
	}
	long := pkt(one+" "+two+" refs/heads/a\x00x", "0000")
	got, _ := Git("POST", "/r/git-receive-pack", "", media("/git-receive-pack"), append([]byte(long), make([]byte, 1<<20)...), false)
	if !slices.Equal(got, []string{"git push update refs/heads/a"}) {
		t.Errorf("with a megabyte behind it: %q", got)
	}
	// Commands without an end are not read for ever.
	endless := []byte(strings.Repeat(pkt("shallow "+one), MaxGit/50))
	for n := 0; ; {
		got, need := Git("POST", "/r/git-receive-pack", "", media("/git-receive-pack"), endless[:n], false)
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

// haves is a body of version 2 with as many lines of what is there.
func haves2(n int) string {
	return pkt("command=fetch", "agent=git/2.39.5", "object-format=sha1", delim, "thin-pack", "want "+one+"\n") +
		strings.Repeat(pkt("have "+two+"\n"), n) + flush
}

var fetches = []struct{ body, want string }{
	// Versions 0 and 1.
	{pkt("want "+one+" multi_ack_detailed no-done side-band-64k thin-pack ofs-delta deepen-since deepen-not agent=git/2.39.5\n",
		"want "+two+"\n", flush, "have "+two+"\n", flush, "have "+one+"\n", "done\n"), fetch},
	{pkt("want "+one+"\n", flush, "done\n"), fetch},
	{pkt("want "+one+" shallow\n", "shallow "+two, "deepen 1", "filter blob:none", flush), fetch},
	{pkt("want "+one, "deepen-since 1700000000", "deepen-not refs/tags/v1", "filter combine:blob:none+tree:0", flush), fetch},
	{pkt("want "+strings.Repeat("a", 64)+" object-format=sha256", flush, "done"), fetch},
	{flush, fetch}, // a probe for whether it is known
	// Version 2.
	{pkt("command=ls-refs\n", flush), fetch},
	{pkt("command=ls-refs\n", "agent=git/2.39.5-Linux\n", "session-id=20261201T000000.1Z-Hx-P1", "object-format=sha1", delim,
		"peel\n", "symrefs\n", "unborn\n", "ref-prefix HEAD\n", "ref-prefix refs/heads/\n", "ref-prefix refs/heads/bücher\n", flush), fetch},
	{pkt("command=fetch", "object-format=sha256", delim, "want "+strings.Repeat("b", 64), "done", flush), fetch},
	{pkt("command=fetch", delim, "thin-pack", "no-progress", "include-tag", "ofs-delta", "deepen-relative", "sideband-all", "wait-for-done",
		"shallow "+one, "deepen 3", "deepen-since 1", "deepen-not v1", "filter sparse:oid=main:path", "want-ref refs/heads/a",
		"packfile-uris https", "want "+one, "have "+two, flush), fetch},
	{haves2(80000), fetch},
	{haves2(90000), unread}, // more than is read
	// What is none, or more than one.
	{"", unread},
	{"any other body", unread},
	{pkt("the person's mail"), unread},
	{pkt("want x", flush), unread},
	{pkt("want "+one+"\n") + "&title=published&content=the+person's+mail", unread},
	{pkt("want "+one+"\n", flush) + "the person's mail", unread},
	{pkt("want "+one+"\n", flush, "have the person's mail\n", flush), unread},
	{pkt("want "+one+"\n", flush, "the person's mail\n", flush), unread},
	{pkt("want "+one+"\n", "have "+two+"\n", flush), unread},
	{pkt("want "+one+"\n", "filter the person's mail", flush), unread},
	{pkt("want "+one+"\n", "deepen mail", flush), unread},
	{pkt("want "+one+"\n", "want "+two+" the person's mail\n", flush), unread},
	{pkt("want "+one+" "+strings.Repeat("a", maxRef+1), flush), unread},
	{pkt("want "+one+" agent=\x00", flush), unread},
	{pkt("want " + one + "\n"), unread}, // without an end
	{pkt("want "+one+"\n", delim), unread},
	{pkt("shallow "+one, "want "+one, flush), unread},
	{flush + flush, unread},
	{flush + "the person's mail", unread},
	{pkt("command=ls-refs\n") + "&title=published&content=mail", unread},
	{pkt("command=ls-refs\n"), unread},
	{pkt("command=ls-refs", flush) + "the person's mail", unread},
	{pkt("command=ls-refs", flush, flush), unread},
	{pkt("command=ls-refs", flush, "command=ls-refs", flush), unread},
	{pkt("command=ls-refs", delim, delim, flush), unread},
	{pkt("command=ls-refs", delim, "want "+one, flush), unread},
	{pkt("command=ls-refs", delim, "ref-prefix the person's mail", flush), unread},
	{pkt("command=ls-refs", "peel", flush), unread},
	{pkt("command=ls-refs", "agent=the person's mail", flush), unread},
	{pkt("command=ls-refs", "agent", flush), unread},
	{pkt("command=ls-refs", "server-option=x", flush), unread}, // which only its server knows
	{pkt("command=ls-refs", "object-format=md5", flush), unread},
	{pkt("command=ls-refs", delim) + strings.Repeat(pkt("ref-prefix "+strings.Repeat("a", 1000)), 65) + flush, unread},
	{pkt("command=ls-refs") + strings.Repeat(pkt("agent="+strings.Repeat("a", 1000)), 66) + flush, unread},
	{pkt("command=fetch", delim, "have "+one+" x", flush), unread},
	{pkt("command=fetch", delim, "done x", flush), unread},
	{pkt("command=fetch", delim, "want-ref main", flush), unread},
	{pkt("command=fetch", delim, "peel", flush), unread},
	{pkt("command=bundle-uri", flush), unread},
	{pkt("command=", flush), unread},
	{pkt("command=fetch", "0002", flush), unread},
	{flush[:3], unread},
}

// A fetch is all of its body, not how that begins, also while it is not all there.
func TestGitFetch(t *testing.T) {
	const path = "/o/r/git-upload-pack"
	for _, c := range fetches {
		got, need := Git("POST", path, "", media(path), []byte(c.body), true)
		if strings.Join(got, "|") != c.want || need != 0 {
			t.Errorf("%.80q is %q, %d; want %q", c.body, got, need, c.want)
		}
		for have := 0; have <= len(c.body); have = max(2*have, need) {
			if got, need = Git("POST", path, "", media(path), []byte(c.body[:have]), false); need == 0 {
				if !slices.Equal(got, unreadable()) || c.want != unread {
					t.Errorf("%.80q is %q with %d bytes of it, want %q", c.body, got, have, c.want)
				}
				break
			}
			if got != nil || need <= have || need > wire.MaxRead {
				t.Fatalf("%.80q: %q, and %d bytes are needed where there are %d", c.body, got, need, have)
			}
		}
	}
	if got, need := Git("POST", path, "", media(path), nil, false); got != nil || need != 4 {
		t.Errorf("without a byte: %q, %d", got, need)
	}
}

// What a server may read as something else than git's is not git's.
func TestWhatIsGits(t *testing.T) {
	want := pkt("want "+one+" multi_ack side-band-64k\n", flush, "done\n")
	upload, receive := media("/git-upload-pack"), media("/git-receive-pack")
	for _, c := range []struct{ method, path, query, media, body, want string }{
		{"GET", "/o/r/info/refs", "service=git-upload-pack", "", "", "git fetch"},
		{"GET", "/o/r/info/refs", "service=git-receive-pack", "", "", "git fetch"},
		{"GET", "/o/r/info/refs", "service=git-upload-pack&x", "", "", ""},
		{"GET", "/o/r/info/refs", "", "", "", ""},
		{"GET", "/o/r/HEAD", "", "", "", ""},
		{"GET", "/o/r/objects/info/packs", "", "", "", ""},
		{"GET", "/o/r/git-upload-pack", "", "", "", ""},
		{"POST", "/o/r/git-upload-pack", "", upload, want, "git fetch"},
		{"POST", "/o/r/git-receive-pack", "", receive, flush, "git fetch"},
		{"POST", "/o/r/git-upload-pack", "publish=true", upload, want, ""},
		{"POST", "/o/r/git-receive-pack", "publish=true", receive, flush, ""},
		{"POST", "/o/r/git-upload-pack", "", receive, want, ""},
		{"POST", "/o/r/git-receive-pack", "", upload, flush, ""},
		{"POST", "/o/r/git-upload-pack", "", "", want, ""},
		{"POST", "/o/r/git-upload-pack", "", "text/plain", want, ""},
		{"POST", "/o/r/git-upload-pack", "", "application/x-www-form-urlencoded", want, ""},
		{"POST", "/o/r/git-receive-pack", "", "application/x-www-form-urlencoded", flush, ""},
		{"POST", "/o/r/git-upload-pack", "", upload + ";charset=utf-8", want, ""},
		{"POST", "/o/r/git-upload-pack", "", strings.ToUpper(upload), want, ""},
		{"POST", "/o/r/git-upload-archive", "", media("/git-upload-archive"), want, ""},
		{"PUT", "/o/r/git-upload-pack", "", upload, want, ""},
		{"POST", "/git-upload-pack/x", "", upload, want, ""},
		{"POST", "/x-git-upload-pack", "", media("/x-git-upload-pack"), want, ""},
	} {
		got, need := Git(c.method, c.path, c.query, c.media, []byte(c.body), true)
		if strings.Join(got, "|") != c.want || need != 0 {
			t.Errorf("%s %s?%s %s %q is %q, %d; want %q", c.method, c.path, c.query, c.media, c.body, got, need, c.want)
		}
	}
}
