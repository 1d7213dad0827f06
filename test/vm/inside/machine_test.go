// SPDX-License-Identifier: Apache-2.0

// Package inside is run within the machine of test/vm, as root, by a unit of its own: it installs Doorward, starts it
// under systemd and tries it. Nothing here stands in for systemd, a unit, or the kernel; the vendors are stand-ins in the
// test's own process, which is in system.slice and so nobody to Doorward.
package inside

import (
	"context"
	"crypto/rand"
	"errors"
	"flag"
	"fmt"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/doorward/doorward/test/vendors/caldav"
	"github.com/doorward/doorward/test/vendors/github"
)

// bench is where the second disk is mounted.
const bench = "/bench"

// services are the daemons of today.
var services = []string{"doorward-authd.service", "doorward-sentinel.service", "doorward-egress.service",
	"doorward-worker@dav.service", "doorward-worker@github.service", "doorward-cells.service", "doorward-page.service",
	"doorward-approvals.service"}

// The credentials are drawn for each run: a constant would stand in the test's own binary.
var (
	davPassword = "pass-" + rand.Text()
	githubToken = "ghp_" + rand.Text() + rand.Text()[:10]
	dav         *caldav.Server
	gh          *github.Server
)

func TestMain(m *testing.M) {
	flag.Parse()
	if os.Getenv("DOORWARD_IN_VM") == "" {
		// Elsewhere none of them runs; `make vm-test` asks for their names.
		if err := flag.Set("test.run", "^$"); err != nil {
			fmt.Println(err)
			os.Exit(1)
		}
		os.Exit(m.Run())
	}
	if err := install(); err != nil {
		fmt.Println("install:", err)
		said, _ := run("journalctl", "--no-pager", "-n", "100", "-u", "doorward*")
		fmt.Println(said)
		os.Exit(1)
	}
	code := m.Run()
	if dav != nil {
		dav.Close()
		gh.Close()
	}
	os.Exit(code)
}

// run runs a program to its end and returns what it said.
func run(name string, args ...string) (string, error) {
	ctx, cancel := context.WithTimeout(context.Background(), 3*time.Minute)
	defer cancel()
	b, err := exec.CommandContext(ctx, name, args...).CombinedOutput()
	if err != nil {
		return string(b), fmt.Errorf("%s %s: %w\n%s", name, strings.Join(args, " "), err, b)
	}
	return string(b), nil
}

func must(t testing.TB, name string, args ...string) string {
	t.Helper()
	out, err := run(name, args...)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// fresh are the units that the package's installation left running.
var fresh []string

// installed runs a step that makes users; systemd-sysusers ends with 0 also where it passes over a line.
func installed(name string, args ...string) error {
	said, err := run(name, args...)
	if err == nil && strings.Contains(said, ".conf:") {
		err = errors.New(said)
	}
	return err
}

// install has the package and then the admin do their part: files and users, then keys, a cell's tree, the target.
func install() error {
	if boot := os.Getenv("DOORWARD_BOOT"); boot != "" && boot != "1" {
		return nil // it is on the disk
	}
	const cell = "/var/lib/doorward/cells/work"
	steps := []func() error{
		func() error { return installed("dpkg", "-i", bench+"/doorward.deb") },
		func() error {
			said, err := run("systemctl", "list-units", "--plain", "--no-legend", "--state=active,activating,failed", "doorward*")
			fresh = strings.Fields(said)
			return err
		},
		// A person, who is a user of this machine and in the group; and one who is not.
		func() error {
			return errors.Join(os.MkdirAll("/etc/sysusers.d", 0o755),
				os.WriteFile("/etc/sysusers.d/bench.conf", []byte("u ada 1000 -\nm ada doorward\nu eve 1001 -\n"), 0o644))
		},
		func() error { return installed("systemd-sysusers") },
		func() error { return makeKey("store-key") },
		func() error { return makeKey("checkpoint-key") },
		func() error { return makeTree(cell) },
		func() error {
			return os.WriteFile("/etc/doorward/approver.toml", []byte("host = \"localhost\"\n"), 0o644)
		},
		func() error {
			_, err := run("systemctl", "enable", "doorward.target", "doorward-worker@dav", "doorward-worker@github")
			return err
		},
		func() error { _, err := run("systemctl", "start", "doorward.target"); return err },
	}
	for _, step := range steps {
		if err := step(); err != nil {
			return err
		}
	}
	return nil
}

// makeKey draws a key that only its unit gets, and the machine's own key seals.
func makeKey(name string) error {
	if err := os.MkdirAll("/etc/credstore.encrypted", 0o700); err != nil {
		return err
	}
	key := make([]byte, 32)
	_, _ = rand.Read(key)
	cmd := exec.Command("systemd-creds", "encrypt", "--name="+name, "-", "/etc/credstore.encrypted/doorward."+name)
	cmd.Stdin = strings.NewReader(string(key))
	if b, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("systemd-creds: %w\n%s", err, b)
	}
	return nil
}

// makeTree makes a cell's root: its own but for /usr, which is the machine's.
func makeTree(dir string) error {
	var errs []error
	for _, d := range []string{"usr", "etc", "tmp", "run", "proc", "sys", "dev", "var/tmp", "root", "home/agent"} {
		errs = append(errs, os.MkdirAll(filepath.Join(dir, d), 0o755))
	}
	for _, l := range []string{"bin", "sbin", "lib", "lib64"} {
		errs = append(errs, os.Symlink("usr/"+l, filepath.Join(dir, l)))
	}
	errs = append(errs,
		os.WriteFile(filepath.Join(dir, "etc/passwd"), []byte("root:x:0:0::/root:/bin/sh\nagent:x:1000:1000::/home/agent:/bin/sh\n"), 0o644),
		os.WriteFile(filepath.Join(dir, "etc/group"), []byte("root:x:0:\nagent:x:1000:\n"), 0o644),
		os.WriteFile(filepath.Join(dir, "etc/os-release"), []byte("ID=doorward-cell\n"), 0o644),
		os.Chown(filepath.Join(dir, "home/agent"), 1000, 1000))
	return errors.Join(errs...)
}

// result is how a command ended.
type result struct {
	code           int
	stdout, stderr string
}

func (r result) String() string {
	return fmt.Sprintf("exit code %d\nstdout: %s\nstderr: %s", r.code, r.stdout, r.stderr)
}

func do(cmd *exec.Cmd, stdin string) (result, error) {
	var out, errs strings.Builder
	cmd.Stdin, cmd.Stdout, cmd.Stderr = strings.NewReader(stdin), &out, &errs
	err := cmd.Run()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		return result{}, err
	}
	return result{cmd.ProcessState.ExitCode(), out.String(), errs.String()}, nil
}

// property is one property of a unit.
func property(t testing.TB, unit, name string) string {
	t.Helper()
	return strings.TrimSpace(must(t, "systemctl", "show", "--value", "-p", name, unit))
}

func mainPID(t testing.TB, unit string) int {
	t.Helper()
	pid, err := strconv.Atoi(property(t, unit, "MainPID"))
	if err != nil || pid == 0 {
		t.Fatalf("%s has no process: %v", unit, err)
	}
	return pid
}

const cellUnit = "/sys/fs/cgroup/doorward.slice/doorward-cells.slice/doorward-cell@work.service"

// inCell runs a command as the agent in a session of the cell, as `doorward run` does: in a cgroup beside the payload,
// and in the namespaces of the cell's first process.
func inCell(t testing.TB, session string, args ...string) result {
	t.Helper()
	return inCellAs(t, 1000, session, args...)
}

func inCellAs(t testing.TB, uid int, session string, args ...string) result {
	t.Helper()
	return enter(t, "work", uid, session, args...)
}

func enter(t testing.TB, cell string, uid int, session string, args ...string) result {
	t.Helper()
	r, err := entered(cell, uid, session, args...)
	if err != nil {
		t.Fatalf("in the cell: %v", err)
	}
	return r
}

func entered(cell string, uid int, session string, args ...string) (result, error) {
	unit := strings.Replace(cellUnit, "@work.", "@"+cell+".", 1)
	b, err := os.ReadFile(unit + "/payload/cgroup.procs")
	leader, _, _ := strings.Cut(string(b), "\n")
	if err != nil || leader == "" {
		return result{}, fmt.Errorf("the cell has no process: %w", err)
	}
	dir := filepath.Join(unit, session)
	if err := os.Mkdir(dir, 0o755); err != nil && !errors.Is(err, os.ErrExist) {
		return result{}, err
	}
	cg, err := os.Open(dir)
	if err != nil {
		return result{}, err
	}
	defer cg.Close()
	cmd := exec.Command("nsenter", append([]string{"-t", leader, "-U", "-m", "-n", "-p", "-i", "-u",
		"-S", strconv.Itoa(uid), "-G", strconv.Itoa(uid), "--"}, args...)...)
	cmd.Env = []string{"PATH=/usr/bin:/bin", "HOME=/home/agent", "LANG=C.UTF-8", "TERM=dumb"}
	cmd.SysProcAttr = &syscall.SysProcAttr{UseCgroupFD: true, CgroupFD: int(cg.Fd())}
	return do(cmd, "")
}

func connector(t testing.TB, args ...string) result {
	t.Helper()
	return inCell(t, "run-1", append([]string{"/usr/bin/connector"}, args...)...)
}

// as runs a command as a user of this machine, in the user's slice or in another place.
func as(t testing.TB, user, slice, stdin string, args ...string) result {
	t.Helper()
	cmd := exec.Command("systemd-run", append([]string{"--quiet", "--pipe", "--wait", "--collect", "--slice=" + slice, "--uid=" + user,
		"--"}, args...)...)
	r, err := do(cmd, stdin)
	if err != nil {
		t.Fatalf("as %s: %v", user, err)
	}
	return r
}

// person runs doorward as ada.
func person(t testing.TB, stdin string, args ...string) result {
	t.Helper()
	return as(t, "ada", "user-1000.slice", stdin, append([]string{"/usr/bin/doorward"}, args...)...)
}

func want(t testing.TB, r result, code int, what string) {
	t.Helper()
	if r.code != code {
		t.Fatalf("%s: want exit code %d: %v", what, code, r)
	}
}

// eventually waits for something that takes a while on a slow machine.
func eventually(t testing.TB, what string, f func() error) {
	t.Helper()
	var err error
	for end := time.Now().Add(90 * time.Second); time.Now().Before(end); time.Sleep(200 * time.Millisecond) {
		if err = f(); err == nil {
			return
		}
	}
	said, _ := run("journalctl", "--no-pager", "-o", "short-monotonic", "-n", "60", "-u", "doorward-*.service")
	t.Fatalf("%s: not within 90 s: %v\n%s", what, err, said)
}

// account adds an account as the person does.
func account(t testing.TB, vendor, name, base string, ca []byte, secret string, more ...string) {
	t.Helper()
	u, err := url.Parse(base)
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join("/tmp", name+".pem")
	if err := os.WriteFile(file, ca, 0o644); err != nil {
		t.Fatal(err)
	}
	r := person(t, secret, append([]string{"account", "add", vendor, name, "--base", base, "--ca", file, "--permit", u.Host,
		"--secret-stdin", "--yes"}, more...)...)
	want(t, r, 0, "add the account "+name)
}
