// SPDX-License-Identifier: Apache-2.0

package scenario

import (
	"context"
	"fmt"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/cdproto/webauthn"
	"github.com/chromedp/chromedp"
	"github.com/doorward/doorward/internal/wire"
	"github.com/doorward/doorward/test/ground"
	"github.com/doorward/doorward/test/world"
)

// window is the page in a browser, with a passkey that the browser plays.
type window struct {
	t   testing.TB
	ctx context.Context
}

// chromium is the browser; without one, or where there is no page, the test is skipped.
func chromium(t testing.TB) string {
	t.Helper()
	path, err := exec.LookPath("chromium")
	if err != nil {
		t.Skip("no chromium: apt-get install -y --no-install-recommends chromium")
	}
	if ground.Systemd() {
		t.Skip("there is no page on this ground")
	}
	return path
}

// open opens the page at a link.
func (r *rig) open(path, link string) *window {
	r.t.Helper()
	// No sandbox: it refuses one as root, and the pages are our own.
	alloc, cancel := chromedp.NewExecAllocator(context.Background(), append(chromedp.DefaultExecAllocatorOptions[:], chromedp.ExecPath(path),
		chromedp.NoSandbox, chromedp.WSURLReadTimeout(time.Minute))...)
	r.t.Cleanup(cancel)
	ctx, end := chromedp.NewContext(alloc)
	r.t.Cleanup(end)
	w := &window{r.t, ctx}
	w.run(webauthn.Enable(), chromedp.ActionFunc(func(ctx context.Context) error {
		_, err := webauthn.AddVirtualAuthenticator(&webauthn.VirtualAuthenticatorOptions{Protocol: webauthn.AuthenticatorProtocolCtap2,
			Transport: webauthn.AuthenticatorTransportInternal, HasResidentKey: true, HasUserVerification: true, IsUserVerified: true,
			AutomaticPresenceSimulation: true}).Do(ctx)
		return err
	}), chromedp.Navigate(link))
	return w
}

func (w *window) run(actions ...chromedp.Action) {
	w.t.Helper()
	if err := chromedp.Run(w.ctx, actions...); err != nil {
		w.t.Fatal(err)
	}
}

func (w *window) eval(script string, out any) {
	w.t.Helper()
	w.run(chromedp.Evaluate(script, out, func(p *runtime.EvaluateParams) *runtime.EvaluateParams { return p.WithAwaitPromise(true) }))
}

// sees waits until the page has the text.
func (w *window) sees(text string) {
	w.t.Helper()
	var have string
	for end := time.Now().Add(time.Minute); ; time.Sleep(50 * time.Millisecond) {
		if w.eval("document.body.innerText", &have); strings.Contains(have, text) {
			return
		}
		if time.Now().After(end) {
			w.t.Fatalf("%q is not seen, but\n%s", text, have)
		}
	}
}

// press presses what has that text.
func (w *window) press(text string) {
	w.t.Helper()
	w.sees(text)
	w.eval(fmt.Sprintf(`[...document.querySelectorAll("button, summary, a")].find((e) => e.innerText.trim() === %q)?.click()`, text), nil)
}

// A person enrols by the link, and decides a cell's call in a browser: what runs is what was shown, once.
func TestAPersonDecidesInABrowser(t *testing.T) {
	browser := chromium(t)
	r := newRig(t, world.Options{Page: true})
	res, err := r.Person(0).Doorward(r.ctx(), "", "approver", "add", "ada")
	if err != nil || res.Code != 0 {
		t.Fatalf("%v %v", res, err)
	}
	w := r.open(browser, strings.TrimSpace(res.Stdout))
	w.press("Make a passkey")
	w.press("Sign in with a passkey")
	w.sees("Nothing waits.")
	time.Sleep(time.Second) // for the stream of events
	card := r.park(r.work, issue("ada/site", "It stalls")...)
	w.sees("Something new waits for you.")
	w.press(card.Title)
	w.sees("ada/site")
	w.sees("It stalls")
	w.press("Approve once")
	w.sees("Approved.")
	if s := r.ended(card.ID); s != wire.StateDone {
		t.Errorf("it is %s", s)
	}
	r.sum("an issue", r.issues(), 1)

	denied := r.park(r.work, issue("ada/site", "It stalls again")...)
	w.press(denied.Title)
	w.sees("It stalls again")
	w.press("Deny")
	w.sees("Denied.")
	if s := r.ended(denied.ID); s != wire.StateDenied {
		t.Errorf("it is %s", s)
	}
	granted := r.park(r.work, issue("ada/site", "A third")...)
	w.press(granted.Title)
	w.press("Approve, and the like of it too")
	w.sees("only where repo is ada/site")
	w.press("Approve, and allow this ahead")
	w.sees("Approved, and allowed ahead.")
	if s := r.ended(granted.ID); s != wire.StateDone {
		t.Errorf("it is %s", s)
	}
	r.connector(r.work, wire.ExitDone, append(issue("ada/site", "A fourth"), "--json")...)
	r.sum("an issue", r.issues(), 3)
	w.press("Allowed ahead")
	w.sees("Used 1 times")
}
