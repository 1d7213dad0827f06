// SPDX-License-Identifier: Apache-2.0

// Command demo shows the main job on real processes: it starts every daemon as systemd would, with an embedded CalDAV
// server and a stand-in for GitHub at the far end, and goes through what an agent and its person do. Every line that is
// not a heading comes from a process; every step is held to what the vendors' own recorders saw, and anything else than
// what is expected ends the demo with an error.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"net/url"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/doorward/doorward/test/ground"
	"github.com/doorward/doorward/test/vendors/caldav"
	"github.com/doorward/doorward/test/vendors/github"
	"github.com/doorward/doorward/test/world"
)

// The credentials, which no cell and no worker may ever hold.
const (
	token    = "ghp_DemoDemoDemoDemoDemoDemoDemoDe0Fm7gO" // of the right shape; its checksum is of no matter to the stand-in
	password = "correct horse battery staple"
)

func main() {
	err := run()
	switch {
	case err == nil:
	case errors.Is(err, errInterrupted):
		fmt.Fprintln(os.Stderr, "\ndemo: interrupted; everything it made is removed")
		os.Exit(130)
	default:
		fmt.Fprintln(os.Stderr, "demo:", err)
		os.Exit(1)
	}
}

var errInterrupted = errors.New("interrupted")

func run() error {
	prefix := flag.String("prefix", "build", "installation to show, as `make build` makes it")
	flag.Parse()
	abs, err := filepath.Abs(*prefix)
	if err != nil {
		return err
	}
	if err := os.Setenv("DOORWARD_PREFIX", abs); err != nil {
		return err
	}
	inside, code, err := world.Enter()
	if err != nil {
		return fmt.Errorf("make cgroups and namespaces of its own: %w (it needs root, Linux 6.8 or newer and cgroup v2; a "+
			"container needs to be a privileged one)", err)
	}
	if !inside {
		os.Exit(code)
	}
	// Not before: this program is also the first process of the cells, which may not see where it lies.
	if err := fit(abs, os.Geteuid()); err != nil {
		return err
	}
	if !ground.Inside() {
		return errors.New("there is no cgroup v2 here, by which Doorward knows who calls: boot with systemd's unified " +
			"hierarchy, or mount cgroup2 on /sys/fs/cgroup")
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	err = play(ctx)
	if ctx.Err() != nil { // whatever failed, failed by that
		return errInterrupted
	}
	return err
}

// fit says why the demo cannot be shown from an installation, by a user.
func fit(prefix string, uid int) error {
	for _, file := range []string{"bin/connector", "bin/doorward", "libexec/doorward/sentinel", "share/doorward/github.desc"} {
		if _, err := os.Stat(filepath.Join(prefix, file)); err != nil {
			return fmt.Errorf("-prefix %s is no installation of Doorward: %w; `make build` makes one in build/", prefix, err)
		}
	}
	if uid != 0 {
		return errors.New("only root may make the cgroups and namespaces that it runs in; all of them are its own, and are " +
			"removed: sudo make demo")
	}
	return nil
}

// play opens a world, goes through all steps in it, and removes it.
func play(ctx context.Context) error {
	d, err := newDemo(ctx)
	if err != nil {
		return err
	}
	defer d.close()
	start := time.Now()
	for _, s := range d.steps() {
		fmt.Printf("\n== %s\n", s.title)
		err := s.do()
		if err == nil {
			continue
		}
		if ctx.Err() != nil {
			return err
		}
		for name, log := range d.w.Logs() {
			fmt.Fprintf(os.Stderr, "-- log of %s\n%s", name, log)
		}
		return fmt.Errorf("%s: %w", s.title, err)
	}
	fmt.Printf("\nAll of it held, in %.0f s. Nothing of it is left on this machine.\n", time.Since(start).Seconds())
	fmt.Println("What next: docs/threat-model.md says what holds against whom, docs/policy.md how a person says what goes and what\n" +
		"asks, docs/limits.md what is not there yet; `make test` tries all of it.")
	return nil
}

type step struct {
	title string
	do    func() error
}

type demo struct {
	ctx    context.Context
	w      *world.World
	gh     *github.Server
	dav    *caldav.Server
	person *world.Actor
	work   *world.Actor // a cell that reads what others wrote
	home   *world.Actor // a cell that has read nothing
	last   string       // the newest call that waited
}

func newDemo(ctx context.Context) (*demo, error) {
	gh, err := github.New(github.Options{Credentials: []string{token}})
	if err != nil {
		return nil, err
	}
	dav, err := caldav.New(caldav.Options{User: "ada", Password: password})
	if err != nil {
		return nil, err
	}
	w, err := world.Open(world.Options{})
	if err != nil {
		return nil, err
	}
	d := &demo{ctx: ctx, w: w, gh: gh, dav: dav, person: w.Person(1000)}
	for name, to := range map[string]**world.Actor{"work": &d.work, "home": &d.home} {
		c, err := w.Cell(name)
		if err != nil {
			d.close()
			return nil, err
		}
		*to = c.Actor()
	}
	return d, nil
}

func (d *demo) close() {
	if err := d.w.Close(); err != nil {
		fmt.Fprintln(os.Stderr, "demo: clean up:", err)
	}
	d.gh.Close()
	d.dav.Close()
}

// at is the prompt of an agent, with the cell that it is in.
func (d *demo) at(cell *world.Actor) string {
	if cell == d.work {
		return "agent@work$"
	}
	return "agent@home$"
}

// agent runs connector in a cell and prints what it prints.
func (d *demo) agent(cell *world.Actor, want int, args ...string) (world.Result, error) {
	prompt(d.at(cell)+" connector", args, "")
	r, err := cell.Connector(d.ctx, args...)
	return show(r, err, want)
}

// human runs doorward as the person.
func (d *demo) human(want int, stdin string, args ...string) (world.Result, error) {
	return d.brief(want, stdin, 0, args...)
}

// brief is human for an answer of which so many lines are enough; 0 is all.
func (d *demo) brief(want int, stdin string, lines int, args ...string) (world.Result, error) {
	note := ""
	if stdin != "" {
		note = "the secret comes by a pipe"
	}
	prompt("person$ doorward", args, note)
	r, err := d.person.Doorward(d.ctx, stdin, args...)
	return showLines(r, err, want, lines)
}

// prompt prints a command as one could type it.
func prompt(who string, args []string, note string) {
	var b strings.Builder
	b.WriteString(who)
	for _, a := range args {
		b.WriteString(" " + quoted(a))
	}
	if note != "" {
		b.WriteString(" # " + note)
	}
	fmt.Println(b.String())
}

// quoted is a as a shell reads it back.
func quoted(a string) string {
	if a != "" && strings.Trim(a, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_./:=@,+%") == "" {
		return a
	}
	return "'" + strings.ReplaceAll(a, "'", `'\''`) + "'"
}

func show(r world.Result, err error, want int) (world.Result, error) {
	return showLines(r, err, want, 0)
}

// showLines prints what a command printed, so many lines of it at most (0: all), and holds it to an exit code.
func showLines(r world.Result, err error, want, lines int) (world.Result, error) {
	if err != nil {
		return r, err
	}
	for _, out := range []string{r.Stdout, r.Stderr} {
		n, all := 0, strings.Count(out, "\n")
		for line := range strings.Lines(out) {
			if n++; lines > 0 && n > lines {
				fmt.Printf("  … and %d lines more\n", all-lines)
				break
			}
			fmt.Print("  ", strings.TrimRight(line, "\n"), "\n")
		}
	}
	if r.Code != want {
		return r, fmt.Errorf("exit code %d, want %d", r.Code, want)
	}
	if strings.Contains(r.Stdout+r.Stderr, token) || strings.Contains(r.Stdout+r.Stderr, password) {
		return r, errors.New("a credential was printed")
	}
	return r, nil
}

// pending is the one call that waits; its id is remembered.
func (d *demo) pending() error {
	r, err := d.person.Doorward(d.ctx, "", "pending", "--json")
	if err != nil {
		return err
	}
	var p struct{ Items []struct{ ID string } }
	if err := json.Unmarshal([]byte(r.Stdout), &p); err != nil {
		return fmt.Errorf("doorward pending --json: %w: %s", err, r.Stdout)
	}
	if len(p.Items) != 1 {
		return fmt.Errorf("%d calls wait, want one", len(p.Items))
	}
	d.last = p.Items[0].ID
	return nil
}

// parks has the agent make a call that waits for the person.
func (d *demo) parks(cell *world.Actor, args ...string) error {
	if _, err := d.agent(cell, 4, append(args, "--wait", "1s")...); err != nil {
		return err
	}
	return d.pending()
}

// acted holds how often the vendor did something to a number.
func acted(what string, have, want int) error {
	if have != want {
		return fmt.Errorf("the vendor's recorder saw %s %d times, want %d", what, have, want)
	}
	fmt.Printf("  recorder: %s happened %d times\n", what, have)
	return nil
}

func (d *demo) issues() int   { return d.gh.Rec.Handled("POST", "/repos/") }
func (d *demo) contacts() int { return d.dav.Rec.Handled("PUT", "/contacts/") }

// add stores an account; the secret goes over stdin.
func (d *demo) add(vendor, name, base string, ca []byte, secret string, more ...string) error {
	u, err := url.Parse(base)
	if err != nil {
		return err
	}
	file := filepath.Join(d.w.Dir, name+".pem")
	if err := os.WriteFile(file, ca, 0o644); err != nil {
		return err
	}
	args := append([]string{"account", "add", vendor, name, "--base", base, "--ca", file, "--permit", u.Host,
		"--secret-stdin", "--yes"}, more...)
	_, err = d.human(0, secret, args...)
	return err
}

func (d *demo) steps() []step {
	return []step{
		{"The person adds two accounts; each is usable once it is decided on", func() error {
			if err := d.add("github", "code", d.gh.Base(), d.gh.CAPEM(), token); err != nil {
				return err
			}
			return d.add("dav", "diary", d.dav.Base(), d.dav.CAPEM(), password, "--user", "ada", "--owner", "ada@example.test")
		}},
		{"A read passes; the vendor saw the real credential, the cell never did", func() error {
			if _, err := d.agent(d.work, 0, "dav", "calendars"); err != nil {
				return err
			}
			for _, q := range d.dav.Rec.All() {
				if q.Credential != "real" {
					return fmt.Errorf("the vendor saw %s %s with the credential %q", q.Method, q.Path, q.Credential)
				}
			}
			if len(d.dav.Rec.All()) == 0 {
				return errors.New("the vendor saw nothing")
			}
			fmt.Printf("  recorder: %d requests, all with the real credential\n", len(d.dav.Rec.All()))
			return nil
		}},
		{"A write waits; the person is shown the whole of it, approves, and it runs once", func() error {
			if err := d.parks(d.home, "github", "issue-create", "--repo", "ada/site", "--title", "The page is slow",
				"--body", "It takes nine seconds."); err != nil {
				return err
			}
			if err := acted("an issue", d.issues(), 0); err != nil {
				return err
			}
			r, err := d.human(0, "", "show", d.last)
			if err != nil {
				return err
			}
			for _, want := range []string{"ada/site", "The page is slow", "It takes nine seconds."} {
				if !strings.Contains(r.Stdout, want) {
					return fmt.Errorf("the card does not show %q", want)
				}
			}
			if _, err := d.human(0, "", "approve", d.last, "--yes"); err != nil {
				return err
			}
			if _, err := d.agent(d.home, 0, "wait", d.last); err != nil {
				return err
			}
			if _, err := d.human(2, "", "approve", d.last, "--yes"); err != nil { // a second yes changes nothing
				return err
			}
			return acted("an issue", d.issues(), 1)
		}},
		{"The same under a grant: approved once for the session, then it goes unasked", func() error {
			if err := d.parks(d.home, "github", "issue-create", "--repo", "ada/site", "--title", "A second one"); err != nil {
				return err
			}
			if _, err := d.human(0, "", "approve", d.last, "--yes", "--grant", "session", "--limit", "repo=ada/site", "--any", "title"); err != nil {
				return err
			}
			if _, err := d.agent(d.home, 0, "wait", d.last); err != nil {
				return err
			}
			if _, err := d.agent(d.home, 0, "github", "issue-create", "--repo", "ada/site", "--title", "A third one"); err != nil {
				return err
			}
			return acted("an issue", d.issues(), 3)
		}},
		{"Outside the grant it waits again; the person says no", func() error {
			if err := d.parks(d.home, "github", "issue-create", "--repo", "ada/notes", "--title", "Elsewhere"); err != nil {
				return err
			}
			if _, err := d.human(0, "", "deny", d.last, "--why", "not in that repository"); err != nil {
				return err
			}
			if _, err := d.agent(d.home, 3, "result", d.last); err != nil {
				return err
			}
			return acted("an issue", d.issues(), 3)
		}},
		{"A grant for a harmless write, made before the cell has read what others wrote", func() error {
			if err := d.parks(d.home, "dav", "contact-put", "--book", "/contacts/ada/people/", "--name", "First Contact",
				"--email", "first@example.test"); err != nil {
				return err
			}
			if _, err := d.human(0, "", "approve", d.last, "--yes", "--grant", "session"); err != nil {
				return err
			}
			if _, err := d.agent(d.home, 0, "wait", d.last); err != nil {
				return err
			}
			if _, err := d.agent(d.home, 0, "dav", "contact-put", "--book", "/contacts/ada/people/", "--name",
				"Second Contact", "--email", "second@example.test"); err != nil {
				return err
			}
			return acted("a contact", d.contacts(), 2)
		}},
		{"After reading a stranger's text the same call asks again; \"also after reading\" answered no, then yes", func() error {
			if _, err := d.agent(d.home, 0, "github", "issues", "--repo", "ada/site"); err != nil {
				return err
			}
			if _, err := d.human(0, "", "taint", "home"); err != nil {
				return err
			}
			put := func(name string) []string {
				return []string{"dav", "contact-put", "--book", "/contacts/ada/people/", "--name", name, "--email",
					strings.ToLower(strings.Fields(name)[0]) + "@example.test"}
			}
			if err := d.parks(d.home, put("Third Contact")...); err != nil {
				return err
			}
			if _, err := d.human(0, "", "approve", d.last, "--yes", "--grant", "session"); err != nil { // no: not after reading
				return err
			}
			if _, err := d.agent(d.home, 0, "wait", d.last); err != nil {
				return err
			}
			if err := d.parks(d.home, put("Fourth Contact")...); err != nil {
				return err
			}
			if _, err := d.human(0, "", "approve", d.last, "--yes", "--grant", "session", "--also-after-reading"); err != nil { // yes
				return err
			}
			if _, err := d.agent(d.home, 0, "wait", d.last); err != nil {
				return err
			}
			if _, err := d.agent(d.home, 0, put("Fifth Contact")...); err != nil {
				return err
			}
			if err := d.parks(d.home, "github", "issue-create", "--repo", "ada/site", "--title", "Sensitive stays asked"); err != nil {
				return err
			}
			if _, err := d.human(0, "", "deny", d.last); err != nil {
				return err
			}
			if err := acted("a contact", d.contacts(), 5); err != nil {
				return err
			}
			return acted("an issue", d.issues(), 3)
		}},
		{"A surrogate that was stolen is worthless elsewhere", d.stolen},
		{"The switch", func() error {
			if err := d.parks(d.work, "github", "issue-create", "--repo", "ada/site", "--title", "Dropped by the switch"); err != nil {
				return err
			}
			if _, err := d.human(0, "", "stop", "work"); err != nil {
				return err
			}
			fmt.Println("  (this demo has no `cells`, the service that freezes what runs in a cell: hence \"not frozen\")")
			if _, err := d.agent(d.work, 5, "result", d.last); err != nil {
				return err
			}
			before := len(d.dav.Rec.All())
			if _, err := d.agent(d.work, 3, "dav", "calendars"); err != nil {
				return err
			}
			return acted("a request from the stopped cell", len(d.dav.Rec.All())-before, 0)
		}},
		{"The record is whole; then somebody rewrites it, and is caught", d.record},
	}
}
