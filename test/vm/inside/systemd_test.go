// SPDX-License-Identifier: Apache-2.0

package inside

import (
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/doorward/doorward/test/vm/arm64"
)

// dropIn changes a unit until undo is called; both reload systemd, neither restarts the unit.
func dropIn(t *testing.T, unit, content string) (undo func()) {
	t.Helper()
	return dropInFor(t, unit, "[Service]\n"+content)
}

// dropInFor is dropIn for a unit of any kind.
func dropInFor(t *testing.T, unit, content string) (undo func()) {
	t.Helper()
	dir := "/run/systemd/system/" + unit + ".d"
	err := errors.Join(os.MkdirAll(dir, 0o755), os.WriteFile(filepath.Join(dir, "test.conf"), []byte(content), 0o644))
	if err != nil {
		t.Fatal(err)
	}
	must(t, "systemctl", "daemon-reload")
	var once sync.Once
	undo = func() {
		once.Do(func() {
			if err := os.RemoveAll(dir); err != nil {
				t.Error(err)
			}
			must(t, "systemctl", "daemon-reload")
		})
	}
	t.Cleanup(undo)
	return undo
}

func since(t *testing.T, unit string, from time.Time) string {
	t.Helper()
	return must(t, "journalctl", "--no-pager", "-o", "cat", "-u", unit, "--since=@"+fmt.Sprint(from.Unix()))
}

// Egress lists the machine's addresses to refuse them. Without netlink it must not dial as if there were none.
func TestSD01WithoutNetlinkEgressRefuses(t *testing.T) {
	ready(t)
	const unit = "doorward-egress.service"
	undo := dropIn(t, unit, "RestrictAddressFamilies=\nRestrictAddressFamilies=AF_UNIX AF_INET AF_INET6\n")
	must(t, "systemctl", "restart", unit)
	before := len(dav.Rec.All())
	r := connector(t, "dav", "calendars")
	t.Logf("without netlink: %v", r)
	if r.code == 0 || len(dav.Rec.All()) != before {
		t.Errorf("a call went through: %v", r)
	}
	undo()
	must(t, "systemctl", "restart", unit)
	eventually(t, "control: a read with netlink", func() error { return reads(t) })
}

// Every daemon does its work where a system call outside of the filter kills it, so none is refused it in silence.
func TestFullSD02NoDaemonNeedsASystemCallThatIsFiltered(t *testing.T) {
	ready(t)
	start := time.Now()
	var undo []func()
	for _, unit := range services {
		undo = append(undo, dropIn(t, unit, "SystemCallErrorNumber=kill\n"))
		must(t, "systemctl", "restart", unit)
	}
	for _, vendor := range []string{"dav", "github"} {
		eventually(t, "a read of "+vendor, func() error { return readsOf(t, vendor) })
	}
	pageAnswers(t)
	id := parks(t, "Under the strict filter")
	want(t, person(t, "", "approve", id, "--yes"), 0, "approve")
	want(t, connector(t, "wait", id), 0, "wait for what was approved")
	for _, unit := range services {
		if said := since(t, unit, start); strings.Contains(said, "SYS") {
			t.Errorf("%s was killed:\n%s", unit, said)
		}
	}
	// Control: the filter is there, and a call outside of it kills.
	r, err := do(exec.Command("systemd-run", "--quiet", "--pipe", "--wait", "--collect", "-p", "SystemCallFilter=@system-service",
		"-p", "SystemCallFilter=~@privileged @resources @aio", "-p", "SystemCallErrorNumber=kill", "chroot", "/", "true"), "")
	if err != nil || r.code == 0 {
		t.Errorf("control: chroot(2) passed the filter: %v %v", err, r)
	}
	for i, u := range undo {
		u()
		must(t, "systemctl", "restart", services[i])
	}
	eventually(t, "a read", func() error { return reads(t) })
}

// On arm64 Go's runtime makes other system calls than here. No machine of that kind is at hand: what it calls there is listed
// in package arm64, and each unit's filter, as this systemd reads it, lets all of it through.
func TestFullSD02TheFiltersLetArm64Through(t *testing.T) {
	for _, unit := range services {
		said, refuses := strings.CutPrefix(must(t, "systemctl", "show", "--value", "-p", "SystemCallFilter", unit), "~")
		names := strings.Fields(said)
		if slices.Contains(names, "swapon") != refuses || len(names) < 20 {
			t.Errorf("control: %s has no filter that can be read: %v", unit, names)
		}
		for _, call := range arm64.Calls() {
			if slices.Contains(names, call) == refuses {
				t.Errorf("%s refuses %s, which Go calls on arm64", unit, call)
			}
		}
	}
}

// Where a daemon cannot have more open files, which Go asks for at its start, it works all the same. Where it may set no
// limit at all, it would leave cores, so it does not start; and where that system call ends it, its unit fails for everybody
// to see. Its heap grows, and it executes no helper.
func TestFullSD02ADaemonLivesWithoutMoreFiles(t *testing.T) {
	ready(t)
	const unit = "doorward-worker@github.service"
	t.Cleanup(func() {
		must(t, "systemctl", "restart", unit)
		eventually(t, "a read", func() error { return readsOf(t, "github") })
	})
	undo := dropIn(t, unit, "LimitNOFILE=64\n")
	must(t, "systemctl", "restart", unit)
	eventually(t, "a read", func() error { return readsOf(t, "github") })
	limits, err := os.ReadFile(fmt.Sprintf("/proc/%d/limits", mainPID(t, unit)))
	if err != nil || !strings.Contains(string(limits), "Max open files            64 ") {
		t.Errorf("control: it has more: %v\n%s", err, limits)
	}
	// A body that the worker, with half a megabyte of heap, takes in whole.
	id := parks(t, "Grown")
	want(t, person(t, "", "deny", id), 0, "deny")
	r := inCell(t, "run-1", "sh", "-c", "head -c 60000 /dev/zero | tr '\\0' 'x' | connector github issue-create --repo ada/site "+
		"--title Large --body-file - --wait 0s --json")
	want(t, r, 4, "a write of 60,000 bytes")
	want(t, person(t, "", "approve", parkedAs(t, r), "--yes"), 0, "approve")
	want(t, connector(t, "wait", parkedAs(t, r)), 0, "wait for it")
	undo()
	for lines, says := range map[string]string{
		"SystemCallFilter=~prlimit64 setrlimit\n":                             "core",
		"SystemCallFilter=~prlimit64 setrlimit\nSystemCallErrorNumber=kill\n": "SYS",
	} {
		start := time.Now()
		undo := dropIn(t, unit, lines)
		if _, err := run("systemctl", "restart", unit); err == nil {
			t.Errorf("with %q it starts", lines)
		}
		if said := since(t, unit, start); !strings.Contains(said, says) {
			t.Errorf("with %q the unit says nothing of %s:\n%s", lines, says, said)
		}
		undo()
	}
}

// A credential that is wrong or missing stops its unit with words, and the right one brings it back without more.
func TestFullSD03AWrongCredentialIsSaid(t *testing.T) {
	ready(t)
	const unit, path = "doorward-sentinel.service", "/etc/credstore.encrypted/doorward.checkpoint-key"
	right, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	restore := func() {
		if err := os.WriteFile(path, right, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	t.Cleanup(restore)
	for _, c := range []struct {
		name string
		size int
		says string
	}{{"too short", 31, "has 31 bytes, want 32"}, {"too long", 64<<10 + 1, "at most 65536"}, {"missing", 0, "checkpoint-key"}} {
		start := time.Now()
		if err := os.Remove(path); err != nil {
			t.Fatal(err)
		}
		if c.size > 0 {
			cmd := exec.Command("systemd-creds", "encrypt", "--name=checkpoint-key", "-", path)
			key := make([]byte, c.size)
			_, _ = rand.Read(key)
			cmd.Stdin = strings.NewReader(string(key))
			if b, err := cmd.CombinedOutput(); err != nil {
				t.Fatalf("systemd-creds: %v\n%s", err, b)
			}
		}
		_, _ = run("systemctl", "restart", unit) // fails
		if said := since(t, unit, start); !strings.Contains(said, c.says) {
			t.Errorf("%s: the unit does not say %q:\n%s", c.name, c.says, said)
		}
		if r := inCell(t, "run-1", "timeout", "5", "/usr/bin/connector", "dav", "calendars"); r.code == 0 {
			t.Errorf("%s: a call went through: %v", c.name, r)
		}
		restore()
	}
	must(t, "systemctl", "restart", unit)
	eventually(t, "a read", func() error { return reads(t) })
}

// What systemd bounds of credentials: too large, too many, and a long name. A unit fails with words or has them all, and
// nothing goes through without. One that changed on the disk counts from the next start, and `reload` says that it is none.
func TestFullSD03TheBoundsOfCredentials(t *testing.T) {
	ready(t)
	const unit, sealed = "doorward-authd.service", "/etc/credstore.encrypted/doorward.store-key"
	t.Cleanup(func() {
		must(t, "systemctl", "restart", unit)
		eventually(t, "a read", func() error { return reads(t) })
	})
	dir := t.TempDir()
	file := func(name string, size int) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, make([]byte, size), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	var many strings.Builder
	for i := range 10 {
		fmt.Fprintf(&many, "LoadCredential=extra-%d:%s\n", i, file(fmt.Sprint(i), 150<<10))
	}
	long := strings.Repeat("n", 200)
	for _, c := range []struct{ name, lines, says string }{
		{"1 MB and 1 byte", "LoadCredential=large:" + file("large", 1<<20+1) + "\n", "credentials"},
		{"ten of 150 KB", many.String(), "credentials"},
		{"a name of 200 characters", "LoadCredential=" + long + ":" + file("named", 32) + "\n", ""},
		{"our own key of 1 MB and 1 byte", "LoadCredentialEncrypted=\nLoadCredential=store-key:" + file("key", 1<<20+1) + "\n", "credentials"},
		{"our own key of 65,537 bytes", "LoadCredentialEncrypted=\nLoadCredential=store-key:" + file("our", 64<<10+1) + "\n", "at most 65536"},
	} {
		start := time.Now()
		undo := dropIn(t, unit, c.lines)
		_, err := run("systemctl", "restart", unit)
		said := since(t, unit, start)
		switch {
		case c.says == "" && err != nil:
			t.Errorf("%s: %v\n%s", c.name, err, said)
		case c.says != "" && (err == nil || !strings.Contains(strings.ToLower(said), c.says)):
			t.Errorf("%s: %v, and the unit does not say %q:\n%s", c.name, err, c.says, said)
		}
		if r := inCell(t, "run-1", "timeout", "5", "/usr/bin/connector", "dav", "calendars"); c.says != "" && r.code == 0 {
			t.Errorf("%s: a call went through: %v", c.name, r)
		}
		undo()
	}
	must(t, "systemctl", "restart", unit)
	eventually(t, "a read", func() error { return reads(t) })

	// Another key on the disk.
	right, err := os.ReadFile(sealed)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := os.WriteFile(sealed, right, 0o600); err != nil {
			t.Error(err)
		}
	})
	if err := os.Remove(sealed); err != nil {
		t.Fatal(err)
	}
	if err := makeKey("store-key"); err != nil {
		t.Fatal(err)
	}
	if said, err := run("systemctl", "reload", unit); err == nil || !strings.Contains(said, "not applicable") {
		t.Errorf("systemctl reload: %v: %s", err, said)
	}
	if err := reads(t); err != nil {
		t.Errorf("the key of the start counts no more: %v", err)
	}
	start := time.Now()
	_, _ = run("systemctl", "restart", unit)
	if r := inCell(t, "run-1", "timeout", "5", "/usr/bin/connector", "dav", "calendars"); r.code == 0 {
		t.Errorf("with another key a call went through: %v", r)
	}
	if said := since(t, unit, start); !strings.Contains(said, "store") {
		t.Errorf("with another key authd says nothing of its store:\n%s", said)
	}
	if err := os.WriteFile(sealed, right, 0o600); err != nil {
		t.Fatal(err)
	}
}

// A worker that ends at once, under calls, is tried again and again, ever slower; its sockets stay. Once the cause is
// gone, calls pass without anybody's help.
func TestFullSD04AFailingWorkerKeepsItsSockets(t *testing.T) {
	ready(t)
	const unit = "doorward-worker@dav.service"
	undo := dropIn(t, unit, "ExecStart=\nExecStart=/bin/false\nNoExecPaths=\n")
	_, _ = run("systemctl", "restart", unit) // fails
	var wg sync.WaitGroup
	for range 10 {
		wg.Go(func() {
			if r := inCell(t, "run-1", "timeout", "20", "/usr/bin/connector", "dav", "calendars"); r.code == 0 {
				t.Errorf("a call went through without a worker: %v", r)
			}
		})
	}
	wg.Wait()
	t.Logf("%s restarts", property(t, unit, "NRestarts"))
	for _, socket := range []string{"doorward-worker@dav.socket", "doorward-cell-worker@dav.socket"} {
		if state := property(t, socket, "ActiveState"); state != "active" {
			t.Errorf("%s is %s", socket, state)
		}
	}
	// The person is told which unit it is, and what to do.
	r := person(t, "", "doctor")
	if r.code != 1 || !strings.Contains(r.stdout, "systemctl start "+unit) || !strings.Contains(r.stdout, "journalctl -u "+unit) {
		t.Errorf("doctor does not say what to do about %s: %v", unit, r)
	}
	undo()
	eventually(t, "a read once the cause is gone", func() error { return reads(t) })
}

// hang has a daemon stand still until its watchdog has it restarted.
func hang(t *testing.T, unit string) {
	t.Helper()
	pid := mainPID(t, unit)
	if err := syscall.Kill(pid, syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	another(t, unit, pid)
}

// A daemon that hangs is restarted by its watchdog.
func TestFullSD04AHungDaemonIsRestarted(t *testing.T) {
	ready(t)
	for _, unit := range services {
		hang(t, unit)
		eventually(t, "a read", func() error { return readsOf(t, vendorOf(unit)) })
	}
}

// A watchdog that is missed three times, one behind the other, leaves the unit and its sockets as they are: started.
func TestFullSD04TheWatchdogMissedThreeTimes(t *testing.T) {
	ready(t)
	const unit = "doorward-worker@dav.service"
	for range 3 {
		eventually(t, "it is ready", func() error { // until then it has another time limit
			if state := property(t, unit, "ActiveState"); state != "active" {
				return errors.New(state)
			}
			return nil
		})
		hang(t, unit)
	}
	for _, u := range []string{unit, "doorward-worker@dav.socket", "doorward-cell-worker@dav.socket"} {
		eventually(t, u+" is active", func() error {
			if state := property(t, u, "ActiveState"); state != "active" {
				return errors.New(state)
			}
			return nil
		})
	}
	eventually(t, "a read", func() error { return readsOf(t, "dav") })
}

// Without a key of the machine's the store is opened by a person after each start, and by nothing else.
func TestFullAStoreWithAPassphrase(t *testing.T) {
	ready(t)
	const unit, key, store = "doorward-authd.service", "/etc/credstore.encrypted/doorward.store-key", "/var/lib/doorward/authd/store"
	aside := func(path string) {
		t.Helper()
		if err := os.Rename(path, path+".aside"); err != nil {
			t.Fatal(err)
		}
	}
	must(t, "systemctl", "stop", unit)
	aside(key)
	aside(store)
	t.Cleanup(func() {
		must(t, "systemctl", "stop", unit)
		if err := errors.Join(os.RemoveAll(store), os.Rename(store+".aside", store), os.Rename(key+".aside", key)); err != nil {
			t.Fatal(err)
		}
		must(t, "systemctl", "start", unit)
		// The account is another store's now, so it is decided anew, like one that was changed.
		eventually(t, "a read of the account before", func() error {
			r := person(t, "", "pending", "--json")
			var p struct{ Items []struct{ ID string } }
			if err := json.Unmarshal([]byte(r.stdout), &p); err != nil {
				return fmt.Errorf("doorward pending: %w: %v", err, r)
			}
			for _, i := range p.Items {
				person(t, "", "approve", i.ID, "--yes")
			}
			return reads(t)
		})
	})
	must(t, "systemctl", "start", unit)
	unlock := func(passphrase string) result { return person(t, passphrase, "unlock", "--secret-stdin") }
	call := func() result { return inCell(t, "run-1", "timeout", "60", "/usr/bin/connector", "dav", "calendars") }
	right, wrong := "pass "+rand.Text(), "pass "+rand.Text()
	want(t, unlock(right), 0, "a passphrase for a new store")
	account(t, "dav", "diary", dav.Base(), dav.CAPEM(), davPassword, "--user", "ada", "--owner", "ada@example.test")
	eventually(t, "a read", func() error { return reads(t) })
	must(t, "systemctl", "restart", unit)
	if r := call(); r.code == 0 || !strings.Contains(r.stderr, "doorward unlock") {
		t.Errorf("a call before the store is open: %v", r)
	}
	if r := unlock(wrong); r.code == 0 || strings.Contains(r.stderr, wrong) {
		t.Errorf("another passphrase: %v", r)
	}
	if r := call(); r.code == 0 {
		t.Errorf("a call after another passphrase: %v", r)
	}
	want(t, unlock(right), 0, "the passphrase")
	eventually(t, "a read once the store is open", func() error { return reads(t) })
}
