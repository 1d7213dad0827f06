// SPDX-License-Identifier: Apache-2.0

package browser

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	permit "github.com/chromedp/cdproto/browser"
	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/serviceworker"
	"github.com/chromedp/cdproto/target"
	"github.com/chromedp/chromedp"
	"github.com/doorward/doorward/internal/wire"
)

// push is the verb, of a sentinel that tells one browser.
func (s *standIn) push(q *wire.WebPushReq) (*wire.WebPushResp, error) {
	r := &wire.WebPushResp{Key: make([]byte, 65)}
	switch {
	case q.Off:
		s.told = nil
	case len(q.Public) > 0:
		told := *q
		s.told = &told
	}
	r.On = s.told != nil && s.told.Endpoint == q.Endpoint
	return r, nil
}

// mayNotify lets the page show notifications, or not.
func (b *tab) mayNotify(setting permit.PermissionSetting) {
	b.T.Helper()
	b.Run(chromedp.ActionFunc(func(ctx context.Context) error {
		c := chromedp.FromContext(ctx)
		info, err := target.GetTargetInfo().WithTargetID(c.Target.TargetID).Do(cdp.WithExecutor(ctx, c.Browser))
		if err != nil {
			return err
		}
		return permit.SetPermission(&permit.PermissionDescriptor{Name: "notifications"}, setting).
			WithBrowserContextID(info.BrowserContextID).Do(cdp.WithExecutor(ctx, c.Browser))
	}))
}

// A push service is not to be had here: the browser's part of one is played, the service worker is a real one.
const played = `(() => {
	let made = null;
	const sub = () => ({ endpoint: "https://push.example.org/a", options: {}, unsubscribe: async () => { made = null; return true; },
		getKey: (n) => new Uint8Array(n === "auth" ? 16 : 65).fill(n === "auth" ? 1 : 4).buffer });
	PushManager.prototype.getSubscription = async () => made;
	PushManager.prototype.subscribe = async (o) => {
		if (!o.userVisibleOnly || o.applicationServerKey.length !== 65) throw new TypeError("no key");
		return made = sub();
	};
})()`

// A browser is told after a press of a button, and no more after another.
func TestABrowserAsksToBeTold(t *testing.T) {
	r := newRig(t)
	b := r.enrolled(t, 390, 844)
	b.mayNotify(permit.PermissionSettingGranted)
	b.Eval(played, nil)
	b.press("Notices")
	b.Sees("This browser is not told")
	b.press("Tell me on this device")
	b.Sees("Stop telling me here")
	r.with(func() {
		if q := r.told; q == nil || q.Endpoint != "https://push.example.org/a" || len(q.Public) != 65 || len(q.Auth) != 16 {
			t.Errorf("sentinel has %+v", q)
		}
	})
	b.press("Stop telling me here")
	b.Sees("Tell me on this device")
	r.with(func() {
		if r.told != nil {
			t.Errorf("sentinel has %+v still", r.told)
		}
	})
	if c := b.Complaints(); len(c) > 0 {
		t.Errorf("the console: %q", c)
	}
	b.mayNotify(permit.PermissionSettingDenied)
	b.Eval(`location.hash = "pending"`, nil)
	b.press("Notices")
	b.Sees("switched off in the browser's settings")
}

// No script but that one is let in by name, whatever asks for it: Trusted Types hold for the service worker too.
func TestOneServiceWorkerAlone(t *testing.T) {
	r := newRig(t)
	b := r.enrolled(t, 1280, 900)
	for _, script := range []string{
		`navigator.serviceWorker.register("/app.js", { scope: "/", type: "module" })`,
		`navigator.serviceWorker.register("/sw.js")`, // as text: by nobody but who made the policy
		`Promise.resolve().then(() => trustedTypes.createPolicy("sw", { createScriptURL: (u) => u }))`,
		`Promise.resolve().then(() => trustedTypes.createPolicy("other", { createScriptURL: (u) => u }))`,
		`Promise.resolve().then(() => new Worker("/app.js"))`,
	} {
		var got string
		b.Eval(script+`.then(() => "let in", (e) => e.name)`, &got)
		if got != "TypeError" {
			t.Errorf("%s: %s", script, got)
		}
	}
}

// What is pushed is shown as text, the newer in the place of the older; what is no notice says only that something happened.
func TestWhatIsPushedIsShown(t *testing.T) {
	r := newRig(t)
	b := r.enrolled(t, 1280, 900)
	b.mayNotify(permit.PermissionSettingGranted)
	b.Eval(played, nil)
	var mu sync.Mutex
	var id serviceworker.RegistrationID
	chromedp.ListenTarget(b.Ctx, func(event any) {
		if e, ok := event.(*serviceworker.EventWorkerRegistrationUpdated); ok {
			mu.Lock()
			defer mu.Unlock()
			for _, reg := range e.Registrations {
				if strings.HasPrefix(reg.ScopeURL, r.place.PageOrigin()) && !reg.IsDeleted {
					id = reg.RegistrationID
				}
			}
		}
	})
	b.Run(serviceworker.Enable())
	b.press("Notices")
	b.press("Tell me on this device")
	b.Sees("Stop telling me here")
	for end := time.Now().Add(time.Minute); ; time.Sleep(20 * time.Millisecond) {
		mu.Lock()
		known := id
		mu.Unlock()
		if known != "" {
			break
		}
		if time.Now().After(end) {
			t.Fatal("the service worker is not registered")
		}
	}
	push := func(text string) {
		t.Helper()
		b.Run(serviceworker.DeliverPushMessage(r.place.PageOrigin(), id, text))
	}
	shows := func(want string) {
		t.Helper()
		b.Until(`navigator.serviceWorker.getRegistration("/").then((r) => r.getNotifications()).then((all) =>
			JSON.stringify(all.map((n) => [n.tag, n.title, n.body, n.data])) === `+"`"+want+"`"+`)`, want)
	}
	push(`{"tag":"t1","title":"A decision waits","body":"cell work: github","link":"` + r.place.PageOrigin() + `/#card=c1"}`)
	shows(`[["t1","Doorward: A decision waits","cell work: github","` + r.place.PageOrigin() + `/#card=c1"]]`)
	push(`{"tag":"t1","title":"Done","body":"<b>cell</b>","link":"https://evil.example/"}`)
	shows(`[["t1","Doorward: Done","<b>cell</b>","https://evil.example/"]]`)
	push(`{"tag":"t1","title":{"a":1},"body":[2]}`)
	shows(`[["t1","Doorward: something happened","",""]]`)

	// Where it leads, asked of the worker itself: nowhere but to a place of the page.
	worker := b.worker("/sw.js")
	for link, want := range map[string]string{
		r.place.PageOrigin() + "/#card=c1": "/#card=c1", "https://evil.example/#card=c1": "/", "javascript:alert(1)": "/", "": "/",
		r.place.PageOrigin() + "/other?x#card=c2": "/#card=c2", "//evil.example/": "/",
	} {
		var got string
		if err := chromedp.Run(worker, chromedp.Evaluate(fmt.Sprintf("to(%q)", link), &got)); err != nil || got != want {
			t.Errorf("%q leads to %q, %v; want %q", link, got, err, want)
		}
	}
}

// worker is the service worker of that script, to run scripts in.
func (b *tab) worker(script string) context.Context {
	b.T.Helper()
	for end := time.Now().Add(time.Minute); time.Now().Before(end); time.Sleep(20 * time.Millisecond) {
		all, err := chromedp.Targets(b.Ctx)
		if err != nil {
			b.T.Fatal(err)
		}
		for _, t := range all {
			if t.Type == "service_worker" && strings.HasSuffix(t.URL, script) {
				ctx, cancel := chromedp.NewContext(b.Ctx, chromedp.WithTargetID(t.TargetID))
				b.T.Cleanup(cancel)
				return ctx
			}
		}
	}
	b.T.Fatalf("no service worker %s", script)
	return nil
}
