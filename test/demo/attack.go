// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"database/sql"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	_ "modernc.org/sqlite" // the record's own format, to rewrite a copy of it

	"github.com/doorward/doorward/test/vendors/standin"
	"github.com/doorward/doorward/test/world"
)

// stolen takes the surrogate of a call that is under way out of the worker's memory, as root could, and presents it to
// the vendor itself, and to egress from another worker's place.
func (d *demo) stolen() error {
	d.gh.Faults.Add(standin.Fault{Method: "GET", Path: "/user/repos", Times: 1, DelayMS: 3000})
	args := []string{"github", "repos"}
	prompt(d.at(d.work)+" connector", args, "the vendor is slow")
	done := make(chan error, 1)
	go func() {
		r, err := d.work.Connector(d.ctx, args...)
		if err == nil && r.Code != 0 {
			err = fmt.Errorf("exit code %d: %s", r.Code, r.Stderr)
		}
		done <- err
	}()
	var surrogate, grant string
	for range 25 {
		time.Sleep(100 * time.Millisecond)
		found, err := search(d.w.Daemon("worker-github").PID(), regexp.MustCompile(`(?s)Doorward-Grant: ([a-z2-7]{32})\r\n.{0,400}?(ghp_[0-9A-Za-z]{36})`))
		if err != nil {
			return err
		}
		if len(found) == 3 {
			grant, surrogate = found[1], found[2]
			break
		}
	}
	if surrogate == "" {
		return errors.New("no surrogate in the worker's memory while its call runs")
	}
	if surrogate == token {
		return errors.New("the worker holds the credential itself")
	}
	fmt.Printf("thief$ found %s… and its grant in the worker's memory; it looks like a token\n", surrogate[:12])
	status, err := d.atVendor(surrogate)
	if err != nil {
		return err
	}
	if status != http.StatusUnauthorized {
		return fmt.Errorf("the vendor answered %d to the surrogate, want 401", status)
	}
	fmt.Println("  vendor: 401, it knows no such token")
	if status, err = d.atVendor(token); err != nil || status != http.StatusOK {
		return fmt.Errorf("control: the vendor answered %d to the credential itself: %w", status, err)
	}
	fmt.Println("  vendor: 200 to the credential itself, so it is the surrogate that is worthless")
	r, err := d.w.Inside("worker-dav").Do(d.ctx, world.Cmd{Args: []string{"/bin/sh", "-c",
		`curl -s --unix-socket /run/doorward/egress/worker/sock ` +
			`-H "Host: ` + strings.TrimPrefix(d.gh.Base(), "https://") + `" -H "Doorward-Grant: ` + grant + `" -H "Doorward-Entry: 0" ` +
			`-H "Doorward-Surrogate: ` + surrogate + `" -H "Authorization: Bearer ` + surrogate + `" http://x/user/repos`}})
	if err != nil {
		return err
	}
	fmt.Printf("  egress, asked from the worker of dav: %s\n", strings.TrimSpace(r.Stdout))
	if !strings.Contains(r.Stdout, "bad_grant") {
		return fmt.Errorf("egress did not refuse: %v", r)
	}
	return <-done
}

func (d *demo) atVendor(bearer string) (int, error) {
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(d.gh.CAPEM())
	c := http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: roots}}, Timeout: 10 * time.Second}
	req, err := http.NewRequestWithContext(d.ctx, "GET", d.gh.Base()+"/user/repos?visibility=private", nil)
	if err != nil {
		return 0, err
	}
	req.Header.Set("Authorization", "Bearer "+bearer)
	resp, err := c.Do(req)
	if err != nil {
		return 0, err
	}
	defer resp.Body.Close()
	_, err = io.Copy(io.Discard, resp.Body)
	return resp.StatusCode, err
}

// search looks for a pattern in a process's writable memory.
func search(pid int, want *regexp.Regexp) ([]string, error) {
	maps, err := os.ReadFile(fmt.Sprintf("/proc/%d/maps", pid))
	if err != nil {
		return nil, err
	}
	mem, err := os.Open(fmt.Sprintf("/proc/%d/mem", pid))
	if err != nil {
		return nil, err
	}
	defer mem.Close()
	for line := range strings.Lines(string(maps)) {
		f := strings.Fields(line)
		if len(f) < 2 || !strings.HasPrefix(f[1], "rw") {
			continue
		}
		from, to, _ := strings.Cut(f[0], "-")
		a, err1 := strconv.ParseInt(from, 16, 64)
		b, err2 := strconv.ParseInt(to, 16, 64)
		if err1 != nil || err2 != nil || b-a > 1<<28 {
			continue
		}
		buf := make([]byte, b-a)
		n, _ := unix.Pread(int(mem.Fd()), buf, a) // pages that cannot be read are passed over
		if n > 0 {
			if m := want.FindStringSubmatch(string(buf[:n])); m != nil {
				return m, nil
			}
		}
	}
	return nil, nil
}

// record verifies the record, then rewrites one line in a copy, as sentinel's user could.
func (d *demo) record() error {
	r, err := d.brief(0, "", 4, "audit", "checkpoint")
	if err != nil {
		return err
	}
	note := filepath.Join(d.w.Dir, "checkpoint")
	if err := os.WriteFile(note, []byte(r.Stdout), 0o600); err != nil {
		return err
	}
	if err := os.Chown(note, 1000, -1); err != nil {
		return err
	}
	if _, err := d.human(0, "", "audit", "verify", "--checkpoint", note); err != nil {
		return err
	}
	if err := d.w.Daemon("sentinel").Stop(); err != nil {
		return err
	}
	copied := filepath.Join(d.w.Dir, "copy")
	if err := copyDir(filepath.Join(d.w.State("sentinel"), "ledger"), copied); err != nil {
		return err
	}
	db, err := sql.Open("sqlite", filepath.Join(copied, "ledger.db"))
	if err != nil {
		return err
	}
	defer db.Close()
	var n int64
	var line []byte
	if err := db.QueryRow(`SELECT n, line FROM events WHERE CAST(line AS TEXT) LIKE '%"type":"approve"%' AND CAST(line AS TEXT) LIKE '%"scope":"session"%' ORDER BY n LIMIT 1`).Scan(&n, &line); err != nil {
		return fmt.Errorf("find an approval to rewrite: %w", err)
	}
	forged := bytes.Replace(line, []byte("person:1000"), []byte("person:1001"), 1)
	if bytes.Equal(forged, line) {
		return errors.New("the approval does not say who gave it")
	}
	if _, err := db.Exec(`UPDATE events SET line = ? WHERE n = ?`, forged, n); err != nil {
		return err
	}
	db.Close()
	fmt.Printf("thief$ rewrote entry %d of a copy: the approval is now another person's\n", n)
	key := filepath.Join(d.w.Dir, "credentials", "sentinel", "checkpoint-key")
	args := []string{"audit", "verify", "--offline", copied, "--key", key, "--checkpoint", note}
	prompt("admin$ doorward", args, "")
	admin := d.w.Person(0)
	res, err := admin.Doorward(d.ctx, "", args...)
	if res, err = show(res, err, 1); err != nil {
		return err
	}
	if !strings.Contains(res.Stdout+res.Stderr, fmt.Sprintf("entry %d", n)) {
		return fmt.Errorf("the verification does not name entry %d", n)
	}
	return nil
}

func copyDir(from, to string) error { return os.CopyFS(to, os.DirFS(from)) }
