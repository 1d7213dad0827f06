// SPDX-License-Identifier: Apache-2.0

package scenario

import (
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/doorward/doorward/internal/wire"
	"github.com/doorward/doorward/test/ground"
	"github.com/doorward/doorward/test/vendors/discord"
	"github.com/doorward/doorward/test/vendors/standin"
	"github.com/doorward/doorward/test/world"
	"golang.org/x/sys/unix"
)

// botRig is a world with a stand-in of Discord at discord.com, whose bot's token nobody but authd has, and two cells with a way
// out. What the stand-in's recorder saw is the truth.
type botRig struct {
	*rig
	discord *discord.Server
	token   string   // the bot's; drawn for each rig, see rig
	ip      string   // the machine's address of discord.com
	two     string   // another, for a test's own server
	dir     string   // that everybody may read and write in
	secrets []string // what was issued for; see holdsNone
}

// The addresses of discord.com.
const (
	api      = "https://discord.com" + discord.API
	general  = api + "/channels/" + discord.General
	messages = general + "/messages"
)

// newBotRig makes the world; hosts are further lines of names, with {ip} and {two} for its addresses.
func newBotRig(t *testing.T, hosts ...string) *botRig {
	t.Helper()
	if ground.Systemd() {
		t.Skip("a cell of the machine has no network with a way out yet")
	}
	ground.Need(t)
	// A bot's token has three parts; this one no other test has.
	r := &botRig{rig: &rig{t: t}, token: rand.Text() + "." + rand.Text()[:6] + "." + rand.Text() + rand.Text()[:1]}
	block := make([]byte, 3) // other tests of this machine have addresses of their own
	_, _ = rand.Read(block)
	r.ip = fmt.Sprintf("127.%d.%d.%d", 64+block[0]%128, block[1], 1+block[2]%200)
	r.two = fmt.Sprintf("127.%d.%d.%d", 64+block[0]%128, block[1], 201+block[2]%50)
	description, err := discord.Description()
	if err != nil {
		t.Log("requests are not held to Discord's description: ", err)
	}
	names := []string{"discord.com"}
	for i, line := range hosts {
		hosts[i] = strings.NewReplacer("{ip}", r.ip, "{two}", r.two).Replace(line)
		names = append(names, strings.Fields(line)[1:]...)
	}
	r.discord, err = discord.New(discord.Options{Token: r.token, Listen: r.ip + ":443", Names: names, Description: description})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(r.discord.Close)
	trusted(t, r.discord.CAPEM())
	r.World = world.Start(t, world.Options{Workers: []string{"dav"}, Net: true, Hosts: append(hosts, r.ip+" discord.com")})
	r.ada = r.Person(1000)
	if r.dir, err = os.MkdirTemp(ground.Dir, "bot-"); err == nil {
		err = os.Chmod(r.dir, 0o777)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(r.dir) })
	for name, cell := range map[string]**world.Cell{"work": &r.work, "home": &r.home} {
		if *cell, err = r.Cell(name); err != nil {
			t.Fatal(err)
		}
		r.connector(*cell, 0, "list") // from here on sentinel knows the session
	}
	t.Cleanup(r.holdsNone)
	return r
}

// holdsNone is what each of these tests ends with, whatever it tried: what the cell had a surrogate of is nowhere in its processes'
// memory and environment, nor in the files that it shares with the test, and in no log and no state of a daemon.
func (r *botRig) holdsNone() {
	for _, cell := range []*world.Cell{r.work, r.home} {
		p, err := cell.Actor().Start(world.Cmd{UID: 1000, Args: []string{"/bin/sleep", "600"}}) // so that something runs there
		if err != nil {
			r.t.Error(err)
			continue
		}
		defer p.Kill()
		r.eventually("it runs", func() bool { _, err := r.Search(cell, []byte(r.token)); return err == nil })
		for _, secret := range r.secrets {
			for _, f := range r.search(cell, secret).All() {
				r.t.Errorf("at the end, a credential: %v", f)
			}
		}
	}
}

// search looks for a value in a cell, and in what daemons keep and say.
func (r *botRig) search(cell *world.Cell, value string) *world.Found {
	r.t.Helper()
	f, err := r.Search(cell, []byte(value), filepath.Join(r.Dir, "log"), r.dir, r.State("egress@"+cell.Name), r.State("sentinel"), r.State("authd"))
	if err != nil {
		r.t.Fatal(err)
	}
	return f
}

func (r *botRig) ca() string { return r.path("discord.pem") }

// trusted has this ground's machine trust another authority beside its own, as if it were one of the public ones.
func trusted(t *testing.T, ca []byte) {
	t.Helper()
	system, err := os.ReadFile(wire.SystemBundle)
	if err != nil {
		t.Fatal(err)
	}
	f, err := os.CreateTemp(ground.Dir, "bundle-")
	if err == nil {
		_, err = f.Write(slices.Concat(system, []byte("\n"), ca))
		err = errors.Join(err, f.Chmod(0o644), f.Close(), unix.Mount(f.Name(), wire.SystemBundle, "", unix.MS_BIND, ""))
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = errors.Join(unix.Unmount(wire.SystemBundle, unix.MNT_DETACH), os.Remove(f.Name())) })
}

func (r *botRig) path(name string) string { return filepath.Join(r.dir, name) }

// rules takes up a policy, decided by the person.
func (r *botRig) rules(text string) { (&siteRig{rig: r.rig}).load(text) }

// issue does as a person does: adds the bot's token and issues surrogates of it into a cell, under a name; then decides both cards.
func (r *botRig) issue(cell, name string) {
	r.t.Helper()
	r.issueOf(cell, name, "discord", r.token)
}

// issueOf is issue of another manifest and credential.
func (r *botRig) issueOf(cell, name, manifest, secret string) {
	r.t.Helper()
	r.secrets = append(r.secrets, secret)
	res, err := r.ada.Doorward(r.ctx(), secret+"\n", "surrogate", "add", name, "--cell", cell, "--manifest", manifest, "--secret-stdin",
		"--permit", r.ip+":443", "--permit", r.two+":443", "--yes")
	if err != nil || res.Code != 0 {
		r.t.Fatalf("surrogate add %s: %v, %v", name, err, res)
	}
	if strings.Contains(res.Stdout+res.Stderr, secret) {
		r.t.Errorf("the command shows the credential: %v", res)
	}
}

// manifest writes a manifest of one host, or of several with commas between: reads of any path, with a placement.
func (r *botRig) manifest(name, hosts, placement string) string {
	r.t.Helper()
	text := fmt.Sprintf("about = \"a test\"\nhosts = [\"%s\"]\n[placement]\n%s\n[[route]]\nname = \"all\"\nmethods = [\"GET\", \"POST\"]\n"+
		"path = \"/**\"\nclass = \"read\"\n", strings.ReplaceAll(hosts, ",", `", "`), placement)
	if err := os.WriteFile(r.path(name+".toml"), []byte(text), 0o644); err != nil {
		r.t.Fatal(err)
	}
	return r.path(name + ".toml")
}

// site is a line of policy.toml for a host of this rig's address.
func (r *botRig) site(host, setting string) string {
	return fmt.Sprintf("[site.%q]\nsetting = %q\npermit = [%q]\n", host+":443", setting, r.ip+":443")
}

// surrogate has a program of the cell ask for one. It is in a file of the cell's.
func (r *botRig) surrogate(cell *world.Cell, name string) string {
	r.t.Helper()
	file := r.path(cell.Name + "-" + name)
	r.connector(cell, 0, "surrogate", name, "--out", file)
	b, err := os.ReadFile(file)
	if err != nil {
		r.t.Fatal(err)
	}
	if err := os.Remove(file); err != nil { // the next one may go there again
		r.t.Fatal(err)
	}
	return strings.TrimSpace(string(b))
}

// reply is an answer of HTTP as a program of a cell gets it. Status is 0 where there was none.
type reply struct {
	status int
	body   string
	said   string // by the program itself
}

func (a reply) String() string { return fmt.Sprintf("%d %s %s", a.status, a.body, a.said) }

// refused is the refusal that an answer is.
func (a reply) refused() (e wire.Error) {
	_ = json.Unmarshal([]byte(a.body), &e)
	return e
}

// curlIn runs an ordinary curl in a cell, which trusts what the cell trusts and names no proxy.
func (r *botRig) curlIn(cell *world.Cell, args ...string) reply {
	r.t.Helper()
	const mark = "\n==status=="
	res, err := cell.Actor().Do(r.ctx(), world.Cmd{UID: 1000, Args: append([]string{"/usr/bin/curl", "--disable", "--silent", "--show-error",
		"--max-time", "60", "--write-out", mark + "%{http_code}"}, args...)})
	if err != nil {
		r.t.Fatal(err)
	}
	a := reply{said: res.Stderr}
	body, status, _ := strings.Cut(res.Stdout, mark)
	a.body = body
	_, _ = fmt.Sscan(status, &a.status)
	return a
}

// bot asks Discord's interface with a token, in a cell. A body is JSON.
func (r *botRig) bot(cell *world.Cell, token, method, url, body string) reply {
	r.t.Helper()
	args := []string{"--header", "Authorization: Bot " + token, "--request", method}
	if body != "" {
		args = append(args, "--header", "Content-Type: application/json", "--data", body)
	}
	return r.curlIn(cell, append(args, url)...)
}

// came are the requests that reached Discord since n of them had.
func (r *botRig) came(n int) []standin.Request { return r.discord.Rec.All()[n:] }

// count is how many came.
func (r *botRig) count() int { return len(r.discord.Rec.All()) }

// real holds what Discord saw to the promise: the real credential came with each request that it acted on, no surrogate came at
// all, and nothing came that its description does not have.
func (r *botRig) real(requests []standin.Request, surrogates ...string) {
	r.t.Helper()
	for _, q := range requests {
		if q.Credential != "real" || len(q.Violations) > 0 {
			r.t.Errorf("%s %s came with %s credential; %q", q.Method, q.Target, q.Credential, q.Violations)
		}
		whole := fmt.Sprint(q.Target, q.Header, q.Trailer, string(q.Body))
		for _, s := range surrogates {
			if s == "" || strings.Contains(whole, s) {
				r.t.Errorf("%s %s came with the surrogate", q.Method, q.Target)
			}
		}
		for name := range q.Header {
			if strings.HasPrefix(name, "Doorward") || slices.Contains([]string{"Via", "Forwarded", "X-Forwarded-For"}, name) {
				r.t.Errorf("%s %s came with %s", q.Method, q.Target, name)
			}
		}
	}
}

// goesOnce holds one request to having been answered so, and having reached Discord as it was.
func (r *botRig) goesOnce(cell *world.Cell, token, method, url, body string, status int) reply {
	r.t.Helper()
	n := r.count()
	a := r.bot(cell, token, method, url, body)
	came := r.came(n)
	if a.status != status || len(came) != 1 {
		r.t.Fatalf("%s %s: %v; %d came", method, url, a, len(came))
	}
	q := came[0]
	if q.Method != method || "https://discord.com"+q.Target != url || string(q.Body) != body || q.Host != "discord.com" {
		r.t.Errorf("%s %s came as %s %s %s %q", method, url, q.Method, q.Host, q.Target, q.Body)
	}
	r.real(came, token)
	if strings.Contains(a.body, r.token) {
		r.t.Errorf("the answer shows the credential: %v", a)
	}
	return a
}

// stays holds one request to having been refused in a program's words, with nothing at Discord.
func (r *botRig) stays(a reply, n, status int, code wire.Code) wire.Error {
	r.t.Helper()
	e := a.refused()
	if a.status != status || e.Code != code || e.Reason == "" {
		r.t.Errorf("want %d %s, got %v", status, code, a)
	}
	if came := r.came(n); len(came) > 0 {
		r.t.Errorf("%s %s reached Discord: %v", came[0].Method, came[0].Target, a)
	}
	return e
}
