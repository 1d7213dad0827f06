// SPDX-License-Identifier: Apache-2.0

package scenario

import (
	"bytes"
	"crypto/sha256"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/doorward/doorward/internal/wire"
	"github.com/doorward/doorward/test/vendors/github"
	"github.com/doorward/doorward/test/vendors/standin"
	"github.com/doorward/doorward/test/world"
)

// approved runs a write that parks, has the person approve it, and returns what the cell then collects.
func (r *rig) approved(cell *world.Cell, stdin string, args ...string) world.Result {
	r.t.Helper()
	res, err := cell.Actor().Do(r.ctx(), world.Cmd{
		Args:  append([]string{filepath.Join(r.Prefix, "bin", "connector")}, append(args, "--wait", "0s", "--json")...),
		Stdin: stdin, UID: 1000,
	})
	if err != nil || res.Code != wire.ExitWaiting {
		r.t.Fatalf("connector %s: want it parked, got %v, %v", strings.Join(args, " "), res, err)
	}
	cards := r.waitPending(1)
	if state := r.decide(cards[0], true); state != wire.StateApproved && state != wire.StateExecuting &&
		state != wire.StateDone {
		r.t.Fatalf("approved card is %s", state)
	}
	res, err = cell.Actor().Connector(r.ctx(), "wait", cards[0].ID, "--json")
	if err != nil {
		r.t.Fatal(err)
	}
	return res
}

// readable makes a folder that a cell's user can read.
func readable(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "doorward-scenario-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	if err := os.Chmod(dir, 0o777); err != nil {
		t.Fatal(err)
	}
	return dir
}

func put(t *testing.T, dir, name string, content []byte, mode os.FileMode) string {
	t.Helper()
	path := filepath.Join(dir, name)
	if err := os.WriteFile(path, content, mode); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(path, mode); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestAnIssueIsOpenedOnceAfterApproval(t *testing.T) {
	r := newRig(t, world.Options{})
	before := len(r.github.State.Repo("ada", "notes").Issues)
	res := r.approved(r.work, "", "github", "issue-create", "--repo", "ada/notes", "--title", "T", "--body", "B")
	if res.Code != 0 || !strings.Contains(res.Stdout, `"number"`) {
		t.Fatalf("%v", res)
	}
	issues := r.github.State.Repo("ada", "notes").Issues
	if len(issues) != before+1 || !strings.HasPrefix(issues[before].Body, "B\n\n<!-- doorward:") {
		t.Errorf("issues: %d, want %d; the last is %+v", len(issues), before+1, issues[len(issues)-1])
	}
	if n := r.github.Rec.Handled("POST", "/"); n != 1 {
		t.Errorf("%d writes reached GitHub", n)
	}
	for _, violation := range r.github.Rec.Violations() {
		t.Error(violation)
	}
}

func TestAJobLogComesFromTheSecondHostWithoutTheCredential(t *testing.T) {
	r := newRig(t, world.Options{})
	res := r.connector(r.work, 0, "github", "job-log", "--repo", "ada/site", "--job", "7001", "--tail", "1")
	if !strings.Contains(res.Stdout, "exit code 2") || strings.Contains(res.Stdout, "Run make") {
		t.Errorf("%v", res)
	}
	for _, q := range r.github.Rec.All() {
		if (q.Listener == "logs") == (q.Credential == "real") {
			t.Errorf("%s %s went to %s with credential %s", q.Method, q.Target, q.Listener, q.Credential)
		}
	}
}

// CI-07: a text is sent as it is given; a file goes along only where a flag says so, and only what the cell may read.
func TestCase_CI07_OnlyANamedFlagReadsAFile(t *testing.T) {
	r := newRig(t, world.Options{})
	dir := readable(t)
	secret := put(t, dir, "secret", []byte("SECRET"), 0o600)
	link := filepath.Join(dir, "link")
	if err := os.Symlink(secret, link); err != nil {
		t.Fatal(err)
	}
	comments := func() []*github.Comment { return r.github.State.Repo("ada", "site").Issues[0].Comments }
	for i, text := range []string{"@" + secret, "@ada please look", "@-"} {
		res := r.approved(r.work, "from stdin", "github", "comment", "--repo", "ada/site", "--number", "1", "--body", text)
		if got := comments(); res.Code != 0 || len(got) != i+1 || !strings.HasPrefix(got[i].Body, text+"\n\n<!-- ") {
			t.Fatalf("%q: %v", text, res)
		}
	}
	res := r.approved(r.work, "a\\nb\nc\n", "github", "comment", "--repo", "ada/site", "--number", "1", "--body-file", "-")
	if got := comments(); res.Code != 0 || !strings.HasPrefix(got[len(got)-1].Body, "a\\nb\nc\n\n\n<!-- ") {
		t.Errorf("stdin: %v", res)
	}
	posts := len(r.github.Rec.Find("POST", "/"))
	for _, args := range [][]string{
		{"comment", "--repo", "ada/site", "--number", "1", "--body-file", link},
		{"comment", "--repo", "ada/site", "--number", "1", "--body-file", "@" + secret},
		{"comment", "--repo", "ada/site", "--number", "1", "--body-file", "/dev/zero"},
		{"file-put", "--repo", "ada/site", "--path", "x", "--message", "m", "--file", link},
		{"file-put", "--repo", "ada/site", "--path", "x", "--message", "m", "--file", dir},
	} {
		r.connector(r.work, wire.ExitUsage, append([]string{"github"}, args...)...)
	}
	if n := len(r.pending()); n != 0 || len(r.github.Rec.Find("POST", "/")) != posts {
		t.Errorf("%d cards wait after calls that could not be read", n)
	}
}

// CI-08: what is printed is bounded, says what is missing, and never splits a character; the whole goes to a file.
func TestCase_CI08_HugeAnswersAreCutAndGoToAFileWhole(t *testing.T) {
	r := newRig(t, world.Options{})
	dir := readable(t)
	long := bytes.Repeat([]byte("é"), 12<<20) // 24 MiB on one line
	binary := bytes.Repeat([]byte{0, 1, 0xfe, 0xff}, 1000)
	r.github.State.AddFile("ada", "site", "long.txt", long)
	r.github.State.AddFile("ada", "site", "binary", binary)

	res := r.connector(r.work, 0, "github", "file-get", "--repo", "ada/site", "--path", "long.txt", "--max-bytes", "67108864")
	if len(res.Stdout) > 65<<10 || !utf8.ValidString(res.Stdout) || !strings.Contains(res.Stderr, "--out") {
		t.Errorf("%d bytes on stdout; stderr %s", len(res.Stdout), res.Stderr)
	}
	res = r.connector(r.work, 0, "github", "file-get", "--repo", "ada/site", "--path", "long.txt")
	if len(res.Stdout) > 65<<10 || !strings.Contains(res.Stderr, "--max-bytes") {
		t.Errorf("%d bytes on stdout; stderr %s", len(res.Stdout), res.Stderr)
	}
	out := filepath.Join(dir, "out")
	r.connector(r.work, 0, "github", "file-get", "--repo", "ada/site", "--path", "long.txt", "--max-bytes", "67108864",
		"--out", out)
	if got, err := os.ReadFile(out); err != nil || sha256.Sum256(got) != sha256.Sum256(long) {
		t.Errorf("%d of %d bytes in the file, %v", len(got), len(long), err)
	}
	// The other cell: this one has read so much by now that it would be asked about.
	res = r.connector(r.home, wire.ExitLimits, "github", "file-get", "--repo", "ada/site", "--path", "binary")
	if res.Stdout != "" || !strings.Contains(res.Stderr, "--out") {
		t.Errorf("bytes that are no text: %v", res)
	}
	number := r.github.State.AddIssue("ada", "site", "mallory", "big", string(long[:1<<20]))
	res = r.connector(r.home, 0, "github", "issue-get", "--repo", "ada/site", "--number", fmt.Sprint(number), "--json")
	if len(res.Stdout) > 256<<10 || !utf8.ValidString(res.Stdout) || !strings.Contains(res.Stdout, "[cut]") {
		t.Errorf("an issue of 1 MiB: %d bytes", len(res.Stdout))
	}
}

// CI-09: what goes up and comes down has the same digest, whatever its bytes.
func TestCase_CI09_FilesComeBackToTheByte(t *testing.T) {
	r := newRig(t, world.Options{})
	dir := readable(t)
	all := make([]byte, 256)
	for i := range all {
		all[i] = byte(i)
	}
	for n, content := range [][]byte{{}, {0xff}, {0, 1}, {1, 2, 3}, all} {
		name := fmt.Sprintf("bytes-%d", n)
		path := put(t, dir, name, content, 0o644)
		res := r.approved(r.work, "", "github", "file-put", "--repo", "ada/site", "--path", "b/"+name, "--message", "m",
			"--file", path)
		if got, ok := r.github.State.File("ada", "site", "main", "b/"+name); res.Code != 0 || !ok || !bytes.Equal(got, content) {
			t.Fatalf("%d bytes arrived as %d: %v", len(content), len(got), res)
		}
		out := filepath.Join(dir, "out-"+name)
		r.connector(r.work, 0, "github", "file-get", "--repo", "ada/site", "--path", "b/"+name, "--out", out)
		if got, err := os.ReadFile(out); err != nil || !bytes.Equal(got, content) {
			t.Errorf("%d bytes came down as %d, %v", len(content), len(got), err)
		}
	}
}

// AP-05: a reply that is lost ends as unknown, is sent by nobody again, and says how to look.
func TestCase_AP05_ALostReplyIsSentByNobodyAgain(t *testing.T) {
	r := newRig(t, world.Options{})
	r.github.Faults.Add(standin.Fault{Method: "POST", Times: 1, Drop: standin.DropAfter})
	args := []string{"github", "comment", "--repo", "ada/site", "--number", "1", "--body", "once"}
	res := r.approved(r.work, "", args...)
	if n := r.github.Rec.Handled("POST", "/"); n != 1 {
		t.Fatalf("%d comments were made: %v", n, res)
	}
	// Sentinel may already have found the mark: then it is done, and else it says that it may have run.
	if res.Code != 0 && (res.Code != wire.ExitVendor || refusal(t, res).Code != wire.CodeUnknown) {
		t.Errorf("%v", res)
	}
	if n := len(r.github.Rec.Find("POST", "/")); n != 1 {
		t.Errorf("%d requests were sent", n)
	}
}

// LK-08: where an account is belongs to the credential's own record. Nothing that a cell can set moves it.
func TestCase_LK08_ACellCannotPointAnAccountElsewhere(t *testing.T) {
	r := newRig(t, world.Options{})
	evil, err := standin.New()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(evil.Close)
	address, err := evil.Open(standin.Options{Listener: "evil", Classify: standin.Bearer(r.githubToken)})
	if err != nil {
		t.Fatal(err)
	}
	url := "https://" + address
	for _, flag := range []string{"--base", "--base-url", "--host", "--url", "--api", "--endpoint", "--proxy", "--ca"} {
		r.connector(r.work, wire.ExitUsage, "github", "repos", flag, url)
	}
	r.connector(r.work, wire.ExitUsage, "github", "repo-get", "--repo", url)
	r.connector(r.work, wire.ExitUsage, "github", "file-get", "--repo", "ada/site", "--path", "//"+address+"/x")

	dir := readable(t)
	for _, name := range []string{".doorward", ".doorward.toml", "doorward.toml", ".connector.toml", ".env", "policy.toml"} {
		put(t, dir, name, []byte("base = \""+url+"\"\nGITHUB_API_URL="+url+"\n[github]\nbase = \""+url+"\"\n"), 0o644)
	}
	env := []string{"HOME=" + dir, "XDG_CONFIG_HOME=" + dir, "SSL_CERT_FILE=" + put(t, dir, "ca.pem", evil.CAPEM(), 0o644)}
	for _, name := range []string{"GITHUB_API_URL", "GH_HOST", "GITHUB_BASE_URL", "DOORWARD_BASE", "DOORWARD_GITHUB_BASE",
		"HTTPS_PROXY", "https_proxy", "ALL_PROXY", "HTTP_PROXY"} {
		env = append(env, name+"="+url)
	}
	env = append(env, "CONFIGURATION_DIRECTORY="+dir, "STATE_DIRECTORY="+dir, "DOORWARD_PREFIX="+dir)
	before := len(r.github.Rec.All())
	for _, args := range [][]string{{"github", "repos", "--json"}, {"list", "github", "--json"}} {
		res, err := r.work.Actor().Do(r.ctx(), world.Cmd{
			Args: append([]string{"/bin/sh", "-c", `cd "$0" && exec "$@"`, dir, filepath.Join(r.Prefix, "bin", "connector")},
				args...), Env: env, UID: 1000,
		})
		if err != nil || res.Code != 0 {
			t.Errorf("connector %s: %v, %v", strings.Join(args, " "), res, err)
		}
	}
	if len(r.github.Rec.All()) == before {
		t.Error("control: the account's own server got nothing")
	}
	if got := evil.Rec.All(); len(got) != 0 {
		t.Errorf("the other server got %d requests", len(got))
	}
	// Control: where a person has put an account there, a call of the same cell gets there.
	var resp wire.AccountsResp
	if err := r.Person(0).Ask(r.ctx(), wire.PathAuthdAdmin, "add", &wire.AddReq{Name: "elsewhere", Vendor: "github",
		Base: base(t, url), Secret: []byte("ghp_" + strings.Repeat("e", 36)), CA: evil.CAPEM(), Permit: []string{address},
		Placement: wire.Placement{Kind: "header", Name: "Authorization", Prefix: "Bearer "}}, &resp); err != nil {
		t.Fatal(err)
	}
	r.decide(r.waitPending(1)[0], true)
	if _, err := r.work.Actor().Connector(r.ctx(), "github", "repos", "--account", "elsewhere"); err != nil {
		t.Fatal(err)
	}
	if got := evil.Rec.All(); len(got) != 1 || got[0].Credential == "real" {
		t.Errorf("control: the other server got %+v", got)
	}
}
