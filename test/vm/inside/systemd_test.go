// SPDX-License-Identifier: Apache-2.0

package inside

import (
	"crypto/rand"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// dropIn changes a unit until undo is called; both reload systemd, neither restarts the unit.
func dropIn(t *testing.T, unit, content string) (undo func()) {
	t.Helper()
	dir := "/run/systemd/system/" + unit + ".d"
	err := errors.Join(os.MkdirAll(dir, 0o755), os.WriteFile(filepath.Join(dir, "test.conf"), []byte("[Service]\n"+content), 0o644))
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
func TestSD02NoDaemonNeedsASystemCallThatIsFiltered(t *testing.T) {
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

// A credential that is wrong or missing stops its unit with words, and the right one brings it back without more.
func TestSD03AWrongCredentialIsSaid(t *testing.T) {
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

// A worker that ends at once, under calls, is tried again and again, ever slower; its sockets stay. Once the cause is
// gone, calls pass without anybody's help.
func TestSD04AFailingWorkerKeepsItsSockets(t *testing.T) {
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
	undo()
	eventually(t, "a read once the cause is gone", func() error { return reads(t) })
}

// A daemon that hangs is restarted by its watchdog.
func TestSD04AHungDaemonIsRestarted(t *testing.T) {
	ready(t)
	for _, unit := range services {
		pid := mainPID(t, unit)
		if err := syscall.Kill(pid, syscall.SIGSTOP); err != nil {
			t.Fatal(err)
		}
		begin := time.Now()
		eventually(t, unit+" is restarted", func() error {
			now, err := run("systemctl", "show", "--value", "-p", "MainPID", unit)
			if s := strings.TrimSpace(now); err != nil || s == fmt.Sprint(pid) || s == "0" {
				return fmt.Errorf("process %s: %w", s, err)
			}
			return nil
		})
		if result := time.Since(begin); result > 40*time.Second {
			t.Errorf("%s: restarted after %.0f s", unit, result.Seconds())
		}
		eventually(t, "a read", func() error { return readsOf(t, vendorOf(unit)) })
	}
}
