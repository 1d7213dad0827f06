// SPDX-License-Identifier: Apache-2.0

package repo

import (
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"unicode/utf8"
)

const module = "github.com/doorward/doorward/"

// may lists, for each package, the packages of this module that it may import; "x/..." is x and what is below it. A
// package that is not listed fails, so a new one needs a line here. Tests are held to it too, but for what stands
// behind "test:".
var may = map[string][]string{
	"internal/wire":          {},
	"internal/wire/wiretest": {},
	"internal/secret":        {},
	"internal/leaks":         {},
	"internal/peer":          {"test: test/ground", "test: internal/peer/..."},
	"internal/peer/peertest": {"internal/peer"},
	"internal/describe":      {"internal/wire"},
	"internal/daemon":        {"internal/peer", "internal/secret", "internal/wire", "test: internal/peer/...", "test: test/ground"},
	"internal/visible":       {},
	"internal/manifest":      {"internal/wire"},
	"internal/approver":      {"internal/wire"},

	"cli":          {"internal/wire", "internal/describe"},
	"cli/clitest":  {"internal/wire", "internal/describe"},
	"cli/operator": {"cli/operator/machine", "cli/origin", "cli/setup", "internal/approver", "internal/wire", "internal/describe", "internal/leaks", "internal/visible"},
	// What runs where is held against what package peer takes for whom.
	"cli/operator/machine": {"internal/peer", "internal/wire"},
	"cli/setup":            {"internal/wire", "test: sentinel/policy"},
	"cli/origin":           {"internal/approver", "internal/approver/keypair", "internal/wire", "test: internal/approver/front", "test: page"},

	"authd": {"authd/grants", "authd/store", "authd/surrogate", "internal/daemon", "internal/peer", "internal/wire",
		"test: internal/leaks"},
	"authd/store":     {"authd/guarded", "authd/surrogate", "internal/wire"},
	"authd/surrogate": {},
	"authd/guarded":   {},
	"authd/grants":    {"authd/store", "authd/surrogate", "internal/wire"},

	"sentinel": {"internal/approver", "internal/daemon", "internal/describe", "internal/manifest", "internal/peer", "internal/wire",
		"sentinel/ledger", "sentinel/notices", "sentinel/passkey", "sentinel/policy", "sentinel/prepared", "sentinel/spool",
		"internal/visible", "sentinel/webpush", "test: sentinel/passkey/softkey", "test: approvals", "test: page",
		"test: internal/approver/front"},
	"sentinel/notices":         {"sentinel/ledger"},
	"sentinel/webpush":         {},
	"sentinel/passkey":         {"test: sentinel/passkey/softkey"},
	"sentinel/passkey/softkey": {"sentinel/passkey"},
	"sentinel/ledger":          {"internal/wire"},
	"sentinel/spool":           {},
	"sentinel/policy":          {"internal/describe", "internal/wire"},
	"sentinel/prepared":        {"internal/describe", "internal/wire"},
	"sentinel/egress": {"cellnet/listener", "cellnet/openers", "internal/daemon", "internal/manifest", "internal/peer",
		"internal/wire", "sentinel/egress/..."},
	"sentinel/egress/cell": {"authd/surrogate", "internal/daemon", "internal/wire", "sentinel/egress/guard", "sentinel/egress/head",
		"sentinel/egress/mint", "sentinel/egress/swap", "test: internal/peer/..."},
	"sentinel/egress/facts":    {"internal/manifest", "internal/wire"},
	"sentinel/egress/guard":    {},
	"sentinel/egress/head":     {},
	"sentinel/egress/mint":     {"sentinel/egress/guard"},
	"sentinel/egress/notify":   {"internal/daemon", "internal/wire", "sentinel/egress/guard"},
	"sentinel/egress/swap":     {"authd/surrogate", "internal/wire", "sentinel/egress/head"},
	"sentinel/egress/envelope": {"internal/wire", "sentinel/egress/guard", "sentinel/egress/head"},
	"sentinel/egress/proxy": {"internal/daemon", "internal/peer", "internal/wire", "sentinel/egress/envelope",
		"sentinel/egress/guard", "sentinel/egress/head", "sentinel/egress/swap"},

	"package/docs":       {"cli", "cli/operator"},
	"package/repro":      {},
	"package/connectors": {"test: internal/manifest", "test: internal/wire"},

	"cells":       {"cells/trust", "internal/daemon", "internal/peer", "internal/wire"},
	"cells/trust": {},

	// sentinel reads where the page is, and links nothing that listens.
	"internal/approver/front":   {"internal/approver"},
	"internal/approver/keypair": {"internal/approver"},
	"approvals": {"internal/approver", "internal/approver/front", "internal/daemon", "internal/peer", "internal/wire",
		"test: internal/peer/...", "test: internal/wire/wiretest"},
	"page": {"internal/approver", "internal/approver/front", "internal/approver/keypair", "internal/daemon", "internal/wire"},

	"bpf":              {},
	"cellnet":          {"bpf", "cellnet/openers", "internal/peer", "internal/wire", "test: cellnet/...", "test: test/ground"},
	"cellnet/pinned":   {},
	"cellnet/listener": {"cellnet/pinned"},
	"cellnet/openers":  {"cellnet/pinned", "internal/wire"},

	"workers":        {"internal/daemon", "internal/describe", "internal/peer", "internal/wire"},
	"workers/dav":    {"internal/describe", "internal/wire", "workers"},
	"workers/github": {"internal/describe", "internal/wire", "workers"},
}

// mayBin lists what each binary's main may import: its own package and the daemon's start.
var mayBin = map[string][]string{
	"cmd/authd":     {"authd", "internal/daemon"},
	"cmd/sentinel":  {"sentinel", "internal/daemon"},
	"cmd/egress":    {"sentinel/egress/...", "internal/daemon"},
	"cmd/cells":     {"cells", "internal/daemon"},
	"cmd/cellnet":   {"cellnet"},
	"cmd/approvals": {"approvals", "internal/daemon"},
	"cmd/page":      {"page", "internal/daemon"},
	"cmd/connector": {"cli"},
	"cmd/doorward": {"cli/operator", "internal/describe", "internal/manifest", "internal/wire", "package/connectors",
		"sentinel/ledger", "sentinel/policy"}, // docs/decisions/0004 and 0005
	"cmd/worker-dav":    {"workers", "workers/dav"},
	"cmd/worker-github": {"workers", "workers/github"},
}

// goFiles calls f for each Go file of the tree but those of test and specs, which may import anything.
func goFiles(t *testing.T, f func(dir, file string)) {
	t.Helper()
	root := "../.."
	err := filepath.WalkDir(root, func(p string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		rel, _ := filepath.Rel(root, p)
		if d.IsDir() && (strings.HasPrefix(d.Name(), ".") && rel != "." || rel == "build" || rel == "test" || rel == "specs" ||
			d.Name() == "testdata") {
			return filepath.SkipDir
		}
		if strings.HasSuffix(p, ".go") {
			f(filepath.ToSlash(filepath.Dir(rel)), p)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

func allowed(rules []string, imp string, test bool) bool {
	for _, r := range rules {
		if rest, ok := strings.CutPrefix(r, "test: "); ok {
			if !test {
				continue
			}
			r = rest
		}
		if base, ok := strings.CutSuffix(r, "/..."); ok && (imp == base || strings.HasPrefix(imp, base+"/")) || r == imp {
			return true
		}
	}
	return false
}

func TestPackagesImportOnlyWhatTheTableAllows(t *testing.T) {
	seen := map[string]bool{}
	goFiles(t, func(dir, file string) {
		rules, ok := may[dir]
		if !ok {
			rules, ok = mayBin[dir]
		}
		seen[dir] = true
		if !ok {
			t.Errorf("%s: package %s is not in the table", file, dir)
			return
		}
		f, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.ImportsOnly)
		if err != nil {
			t.Fatal(err)
		}
		test := strings.HasSuffix(file, "_test.go")
		for _, i := range f.Imports {
			p, _ := strconv.Unquote(i.Path.Value)
			imp, ours := strings.CutPrefix(p, module)
			if !ours || test && (imp == dir || strings.HasPrefix(imp, "test/") || strings.HasSuffix(imp, "test")) {
				continue
			}
			if !allowed(rules, imp, test) {
				t.Errorf("%s imports %s, which the table does not allow %s", file, imp, dir)
			}
		}
	})
	for _, table := range []map[string][]string{may, mayBin} {
		for dir := range table {
			if !seen[dir] {
				t.Errorf("the table lists %s, which has no Go file", dir)
			}
		}
	}
}

func TestEveryPackageHasOneCommentAndEveryFileItsLicence(t *testing.T) {
	comments, packages := map[string]int{}, map[string]bool{}
	goFiles(t, func(dir, file string) {
		src, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		first, _, _ := strings.Cut(string(src), "\n")
		if first != "// SPDX-License-Identifier: Apache-2.0" && !strings.HasPrefix(first, "// Code generated") {
			t.Errorf("%s does not begin with its licence", file)
		}
		if strings.HasSuffix(file, "_test.go") {
			return
		}
		for n, line := range strings.Split(string(src), "\n") {
			if utf8.RuneCountInString(strings.ReplaceAll(line, "\t", "    ")) > 140 {
				t.Errorf("%s:%d: a line of more than 140 columns", file, n+1)
			}
		}
		packages[dir] = true
		f, err := parser.ParseFile(token.NewFileSet(), file, src, parser.PackageClauseOnly|parser.ParseComments)
		if err != nil {
			t.Fatal(err)
		}
		if f.Doc != nil && !strings.HasPrefix(f.Doc.Text(), "SPDX") {
			comments[dir]++
		}
	})
	for dir := range packages {
		if comments[dir] != 1 {
			t.Errorf("package %s (%s) has %d package comments, want one", dir, path.Base(dir), comments[dir])
		}
	}
}

// banned are packages that a binary must not link, and why; "" binaries are all.
var banned = []struct{ binary, pkg, why string }{
	{"cmd/connector", "net/http", "the cell's command starts fast and speaks to sockets only"},
	{"cmd/connector", "crypto/tls", "the cell's command speaks to sockets only"},
	{"cmd/connector", "github.com/spf13/cobra", "the cell's command parses its flags itself"},
	{"cmd/authd", "net/http", "authd parses nothing from strangers"},
	{"cmd/authd", "modernc.org/sqlite", "authd's store is sealed files"},
	{"cmd/egress", "modernc.org/sqlite", "egress keeps nothing"},
	{"cmd/egress", "github.com/cedar-policy/cedar-go", "egress decides nothing"},
	{"cmd/worker-dav", "github.com/doorward/doorward/workers/github", "vendors never see each other"},
	{"cmd/worker-github", "github.com/doorward/doorward/workers/dav", "vendors never see each other"},
	{"cmd/cells", "net/http", "cells speaks to nothing but Unix sockets"},
	{"cmd/cells", "modernc.org/sqlite", "cells keeps nothing"},
	{"cmd/cellnet", "net/http", "cellnet speaks to the kernel alone"},
	{"cmd/cellnet", "crypto/tls", "cellnet speaks to the kernel alone"},
	{"cmd/egress", "github.com/cilium/ebpf", "egress reads maps, and loads no program"},
	{"cmd/approvals", "modernc.org/sqlite", "approvals keeps nothing"},
	{"cmd/approvals", "github.com/cedar-policy/cedar-go", "approvals decides nothing"},
	{"cmd/page", "modernc.org/sqlite", "page keeps nothing"},
	{"", "os/exec", "no daemon starts a program"},
	{"", module + "sentinel/passkey/softkey", "it makes assertions without a person, for tests"},
}

// mayStart are the packages whose files may import os/exec: `doorward watch` runs the person's command, `doorward doctor`
// asks systemd, setup those of the system, cells is there to start commands in cells, clitest is for tests, and what is
// below package builds.
var mayStart = []string{"cells", "cli/operator", "cli/operator/machine", "cli/setup", "cli/clitest", "package/docs", "package/repro"}

// excepted says which bans do not reach a binary. The library under SQLite links os/exec into sentinel, and that of BPF into
// cellnet; that no file of ours there imports it is a test of its own.
func excepted(bin, pkg string) bool {
	return pkg == "os/exec" && (bin == "cmd/sentinel" || bin == "cmd/doorward" || bin == "cmd/cells" || bin == "cmd/cellnet")
}

func TestNobodyStartsAProgram(t *testing.T) {
	goFiles(t, func(dir, file string) {
		if strings.HasSuffix(file, "_test.go") || slices.Contains(mayStart, dir) {
			return
		}
		f, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.ImportsOnly)
		if err != nil {
			t.Fatal(err)
		}
		for _, i := range f.Imports {
			if i.Path.Value == `"os/exec"` {
				t.Errorf("%s imports os/exec", file)
			}
		}
	})
}

func TestBinariesLinkOnlyWhatTheirTrustLevelNeeds(t *testing.T) {
	linked := map[string][]string{}
	for bin := range mayBin {
		linked[bin] = deps(t, bin)
		if len(linked[bin]) < 10 {
			t.Fatalf("%s: only %d packages are listed", bin, len(linked[bin]))
		}
	}
	for _, b := range banned {
		for bin, all := range linked {
			if b.binary != "" && b.binary != bin || excepted(bin, b.pkg) {
				continue
			}
			if slices.Contains(all, b.pkg) {
				t.Errorf("%s links %s: %s", bin, b.pkg, b.why)
			}
		}
	}
}

// Sentinel links net/http, since the library that reads passkeys has handlers for it (docs/decisions/0013). Nothing of ours in there
// uses it, of that library only the readers are linked and what they pull in, and the unit has no network and no socket but Unix ones.
func TestSentinelLinksHTTPAndSpeaksNone(t *testing.T) {
	linked := deps(t, "cmd/sentinel")
	if !slices.Contains(linked, "net/http") {
		t.Error("sentinel does not link net/http any more: ban it, as for the other daemons")
	}
	const library = "github.com/go-webauthn/webauthn/"
	for _, pkg := range linked {
		of, ok := strings.CutPrefix(pkg, library)
		if ok && !slices.Contains([]string{"metadata", "protocol", "protocol/webauthncbor", "protocol/webauthncose"}, of) {
			t.Errorf("sentinel links %s", pkg)
		}
	}
	ours := 0
	goFiles(t, func(dir, file string) {
		if strings.HasSuffix(file, "_test.go") || !slices.Contains(linked, module+dir) {
			return
		}
		ours++
		f, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.ImportsOnly)
		if err != nil {
			t.Fatal(err)
		}
		for _, i := range f.Imports {
			if p, _ := strconv.Unquote(i.Path.Value); p == "net/http" || p == "crypto/tls" || strings.HasPrefix(p, library) && dir != "sentinel/passkey" {
				t.Errorf("%s imports %s", file, p)
			}
		}
	})
	if ours < 50 {
		t.Errorf("only %d files of ours are looked at", ours)
	}
	unit := readUnit(t, "doorward-sentinel.service")
	for key, want := range map[string]string{"PrivateNetwork": "yes", "RestrictAddressFamilies": "AF_UNIX", "IPAddressDeny": "any"} {
		if have := unit["[Service]"+key]; !slices.Equal(have, []string{want}) {
			t.Errorf("%s of its unit is %q, want %s", key, have, want)
		}
	}
	for _, socket := range unit.words("[Service]Sockets") {
		if at := readUnit(t, socket)["[Socket]ListenStream"]; len(at) != 1 || !strings.HasPrefix(at[0], "/") {
			t.Errorf("%s listens on %q", socket, at)
		}
	}
}
