// SPDX-License-Identifier: Apache-2.0

package scenario

import (
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"io"
	"net/http"
	"os"
	"path"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/doorward/doorward/internal/wire"
	"github.com/doorward/doorward/test/ground"
	"github.com/doorward/doorward/test/world"
)

// takenOver builds the taken-over worker and gives it the names of both.
func takenOver(t *testing.T) map[string]string {
	t.Helper()
	ground.Need(t)
	dir, err := os.MkdirTemp(ground.Dir, "evil")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	bin, err := world.BuildTest("./test/scenario/evil", dir)
	if err != nil {
		t.Fatal(err)
	}
	out := map[string]string{}
	for _, vendor := range []string{"github", "dav"} {
		name := filepath.Join(dir, "evil-"+vendor)
		if err := os.Link(bin, name); err != nil {
			t.Fatal(err)
		}
		out["worker-"+vendor] = name
	}
	return out
}

// try is one line of the taken-over worker.
type try struct {
	Evil, Step, Text string
	Status           int
	Through          bool
}

// tries are the lines that a worker has written, from the n-th on.
func (r *rig) tries(worker string, n int) []try {
	r.t.Helper()
	var out []try
	for line := range strings.Lines(r.Daemon(worker).Log()) {
		var v try
		if strings.HasPrefix(line, `{"evil":`) {
			if err := json.Unmarshal([]byte(line), &v); err != nil {
				r.t.Fatal(err)
			}
			out = append(out, v)
		}
	}
	return out[min(n, len(out)):]
}

// refusals are the entries of the record for what egress or authd refused, from entry n on.
func (r *rig) refusals(n int64) []event {
	var out []event
	for _, e := range r.events(n) {
		if strings.HasPrefix(e.Type, "refus") {
			out = append(out, e)
		}
	}
	return out
}

// A worker that was taken over and granted the read `issues` sends what it was not allowed. Nothing of it reaches the
// vendor, and each try is on the record.
func TestATakenOverWorkerGainsNothing(t *testing.T) {
	r := newRig(t, world.Options{Binary: takenOver(t)})
	ask := func(cell *world.Cell, try string) (seen int, tries []try, refusals []event) {
		t.Helper()
		before, lines, from := len(r.github.Rec.All()), len(r.tries("worker-github", 0)), r.end()
		if _, err := cell.Actor().Connector(r.ctx(), "github", "issues", "--repo", "ada/site", "--label",
			"try:"+try); err != nil {
			t.Fatal(err)
		}
		r.eventually("the worker says what came of "+try, func() bool { return len(r.tries("worker-github", lines)) > 0 })
		// A line may come after the command's end, and an entry after its line.
		for range 40 {
			time.Sleep(50 * time.Millisecond)
			if tries = r.tries("worker-github", lines); try == "nothing" {
				break
			}
			if refusals = r.refusals(from); len(refusals) > 0 && (len(tries) > 1 || !tries[0].Through) {
				break
			}
		}
		return len(r.github.Rec.All()) - before, tries, refusals
	}
	// Control: the same program that changes nothing gets through.
	if seen, tries, refusals := ask(r.work, "nothing"); seen != 1 || len(tries) != 1 || !tries[0].Through ||
		len(refusals) != 0 {
		t.Fatalf("control: %d requests at the vendor, %+v, %+v", seen, tries, refusals)
	}
	for try, status := range map[string]int{
		"another-method": 403, "a-write": 403, "another-repository": 403, "a-parent": 403, "an-encoded-parent": 403,
		"another-host": 421, "an-absolute-target": 400, "an-override": 403, "another-header": 403, "another-query": 403,
		"no-grant": 403, "another-grant": 403, "another-entry": 403, "another-surrogate": 403, "no-surrogate": 403,
		"two-places": 403, "smuggled": 400,
	} {
		seen, tries, refusals := ask(r.work, try)
		if seen != 0 {
			t.Errorf("%s: %d requests reached the vendor", try, seen)
		}
		if len(tries) != 1 || tries[0].Through || tries[0].Status != status {
			t.Errorf("%s: %+v, want %d", try, tries, status)
		}
		if len(refusals) == 0 {
			t.Errorf("%s: not on the record", try)
		}
	}
	// A second request behind an allowed one: the first is answered, the second judged alone.
	if seen, tries, refusals := ask(r.work, "pipelined"); seen != 1 || len(tries) != 1 || tries[0].Through ||
		len(refusals) == 0 {
		t.Errorf("pipelined: %d requests at the vendor, %+v, %+v", seen, tries, refusals)
	}
	// The surrogate outlives neither its use nor its call.
	for _, try := range []string{"use-after-finish", "skip-finish", "use-the-last-surrogate"} {
		if try == "use-the-last-surrogate" {
			ask(r.work, "nothing") // whose surrogate that is: equal refusals of one grant are summed in the record
		}
		seen, tries, refusals := ask(r.work, try)
		last := tries[len(tries)-1]
		if seen != 1 || len(tries) != 2 || !tries[0].Through || last.Through || last.Status != 403 || len(refusals) == 0 {
			t.Errorf("%s: %d requests at the vendor, %+v, %+v", try, seen, tries, refusals)
		}
	}
	if seen, tries, _ := ask(r.home, "use-the-last-surrogate"); seen != 1 || tries[len(tries)-1].Through {
		t.Errorf("another cell's: %d requests at the vendor, %+v", seen, tries)
	}
	// Nothing but what was granted is lent.
	for try, through := range map[string]bool{"borrow-for-another-cell": false, "borrow-another-frame": false,
		"borrow-the-last-grant": false, "borrow-twice": false} {
		_, tries, refusals := ask(r.work, try)
		if tries[0].Step != "borrow" || tries[0].Through != through || len(refusals) == 0 {
			t.Errorf("%s: %+v, %+v", try, tries, refusals)
		}
	}

	// Control: the vendor itself would have done it, so it was egress that did not.
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(r.github.CAPEM())
	client := &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: roots}}}
	for _, x := range []struct {
		method, path, body string
		status             int
	}{{"GET", "/repos/ada/notes/issues", "", 200}, {"POST", "/repos/ada/site/issues", `{"title":"evil"}`, 201}} {
		req, err := http.NewRequestWithContext(r.ctx(), x.method, r.github.Base()+x.path, strings.NewReader(x.body))
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Authorization", "Bearer "+r.githubToken)
		req.Header.Set("Accept", "application/vnd.github+json")
		req.Header.Set("User-Agent", "control")
		req.Header.Set("X-GitHub-Api-Version", "2022-11-28")
		if x.body != "" {
			req.Header.Set("Content-Type", "application/json")
		}
		resp, err := client.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		b, _ := io.ReadAll(resp.Body)
		_ = resp.Body.Close()
		if resp.StatusCode != x.status {
			t.Errorf("control: %s %s: %d %.300s", x.method, x.path, resp.StatusCode, b)
		}
	}
}

// A taken-over worker that was granted one new title for an event cannot change another field, nor render more than the
// arguments say.
func TestATakenOverWorkerCannotChangeWhatWasApproved(t *testing.T) {
	r := newRig(t, world.Options{Binary: takenOver(t)})
	at := r.dav.Calendar() + "meeting.ics"
	put := func() {
		t.Helper()
		if err := r.dav.Put(at, []byte("BEGIN:VCALENDAR\r\nVERSION:2.0\r\nPRODID:x\r\nBEGIN:VEVENT\r\nUID:"+path.Base(at)+"\r\n"+
			"DTSTAMP:20300101T000000Z\r\nDTSTART:20300310T100000Z\r\nDTEND:20300310T110000Z\r\nSUMMARY:Meet\r\n"+
			"END:VEVENT\r\nEND:VCALENDAR\r\n")); err != nil {
			t.Fatal(err)
		}
	}
	stored := func() string {
		t.Helper()
		b, _, ok := r.dav.Object(at)
		if !ok {
			t.Fatal("the event is gone")
		}
		return string(b)
	}
	update := func(try string) []string {
		return []string{"dav", "event-update", "--event", at, "--title", "try:" + try, "--notify", "none"}
	}
	for _, try := range []string{"another-body", "another-title", "a-longer-body", "half-a-body", "no-condition",
		"another-method"} {
		put()
		from, lines := r.end(), len(r.tries("worker-dav", 0))
		res := r.approved(r.work, "", update(try)...)
		got := r.tries("worker-dav", lines)
		if len(got) == 0 || got[len(got)-1].Through || got[len(got)-1].Status != 403 && try != "half-a-body" {
			t.Errorf("%s: %+v, %v", try, got, res)
		}
		if s := stored(); !strings.Contains(s, "SUMMARY:Meet\r\n") || strings.Contains(s, "Evil") {
			t.Errorf("%s: the server holds\n%s", try, s)
		}
		if len(r.refusals(from)) == 0 {
			t.Errorf("%s: not on the record", try)
		}
	}
	// A rendering that says more than the arguments is refused before anybody is asked.
	put()
	res, err := r.work.Actor().Connector(r.ctx(), append(update("rendering"), "--json")...)
	if err != nil || refusal(t, res).Code != wire.CodeBadPreparedBody || len(r.pending()) != 0 {
		t.Errorf("rendering: %v, %v, %d cards", err, res, len(r.pending()))
	}
	// Control: what was approved is done.
	put()
	if res := r.approved(r.work, "", update("nothing")...); res.Code != 0 || !strings.Contains(stored(),
		"SUMMARY:try:nothing") {
		t.Errorf("control: %v\n%s", res, stored())
	}
	// What the call builds on is what the server answered, or it is refused: else a worker would put other fields in.
	at = r.dav.Calendar() + "forged-body.ics"
	put()
	res, err = r.work.Actor().Connector(r.ctx(), append(update("nothing"), "--json")...)
	if err != nil || refusal(t, res).Code != wire.CodeBadPreparedBody || len(r.pending()) != 0 {
		t.Errorf("a forged base: %v, %v, %d cards", err, res, len(r.pending()))
	}
	// The ETag is the server's own, whatever the worker says of it.
	at = r.dav.Calendar() + "forged-tag.ics"
	put()
	if res := r.approved(r.work, "", update("nothing")...); res.Code != 0 || !strings.Contains(stored(), "SUMMARY:try:nothing") {
		t.Errorf("a forged ETag: %v\n%s", res, stored())
	}
}

// While authd, sentinel or egress die and come back, nothing reaches the vendor that was not judged: the record knows
// of every request that the vendor has seen.
func TestCase_EG16_DaemonsDieUnderLoad(t *testing.T) {
	r := newRig(t, world.Options{})
	// So many reads would be asked about as bulk reads.
	r.doorward(0, "policy", "load", "--yes", r.policyFile("bulk-reads = 1000000\nbulk-bytes = 1000000000\n"))
	before := len(r.github.Rec.All())
	from := r.end()
	var stop atomic.Bool
	var done, failed atomic.Int64
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			for !stop.Load() {
				res, err := r.work.Actor().Connector(r.ctx(), "github", "issues", "--repo", "ada/site", "--json")
				switch {
				case err != nil:
					t.Error(err)
					return
				case res.Code == 0:
					done.Add(1)
				default:
					failed.Add(1)
				}
				time.Sleep(20 * time.Millisecond)
			}
		})
	}
	for _, name := range []string{"sentinel", "authd", "egress", "sentinel", "egress", "authd"} {
		time.Sleep(300 * time.Millisecond)
		d := r.Daemon(name)
		d.Kill()
		seen := len(r.github.Rec.All())
		if name != "egress" {
			// What was in flight may still arrive; after that nothing does.
			time.Sleep(300 * time.Millisecond)
			seen = len(r.github.Rec.All())
		}
		time.Sleep(400 * time.Millisecond)
		if now := len(r.github.Rec.All()); now != seen {
			t.Errorf("with %s dead, %d requests reached the vendor", name, now-seen)
		}
		if err := d.Start(); err != nil {
			t.Fatal(err)
		}
	}
	// All is well again.
	at := done.Load()
	r.eventually("calls pass again", func() bool { return done.Load() > at+4 })
	stop.Store(true)
	wg.Wait()

	seen := r.github.Rec.All()[before:]
	released := 0
	for _, e := range r.events(from) {
		if e.Type == "released" {
			released++
		}
	}
	if len(seen) == 0 || len(seen) > released {
		t.Errorf("the vendor saw %d requests, the record knows of %d releases (%d calls done, %d failed)", len(seen),
			released,
			done.Load(), failed.Load())
	}
	for _, q := range seen {
		if q.Credential != "real" || q.Method != "GET" {
			t.Errorf("the vendor saw %s %s with credential %s", q.Method, q.Target, q.Credential)
		}
	}
	if failed.Load() == 0 {
		t.Error("no call failed, so nothing was tried")
	}
}
