// SPDX-License-Identifier: Apache-2.0

// Package chromium drives Debian's Chromium for tests of the page: windows with storage and a passkey of their own, that wait for
// what a person would wait to see and press what a person would press.
package chromium

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/emulation"
	cdplog "github.com/chromedp/cdproto/log"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/cdproto/target"
	"github.com/chromedp/cdproto/webauthn"
	"github.com/chromedp/chromedp"
)

// Missing is what a test says that is skipped without a browser.
const Missing = "no chromium: apt-get install -y --no-install-recommends chromium"

const patience = time.Minute // for a browser on a machine that is busy

// Browser is one process of Chromium.
type Browser struct{ ctx context.Context }

// Start starts one. It is nil where there is no Chromium; end stops it either way.
func Start() (b *Browser, end func(), err error) {
	path, err := exec.LookPath("chromium")
	if err != nil {
		return nil, func() {}, nil
	}
	dir, err := os.MkdirTemp("", "doorward-chromium")
	if err != nil {
		return nil, nil, err
	}
	options := append(slices.Clone(chromedp.DefaultExecAllocatorOptions[:]), chromedp.ExecPath(path), chromedp.UserDataDir(dir),
		chromedp.WSURLReadTimeout(patience))
	if os.Getuid() == 0 {
		options = append(options, chromedp.NoSandbox) // which it refuses to be without as root; the pages are our own
	}
	alloc, stop := chromedp.NewExecAllocator(context.Background(), options...)
	ctx, cancel := chromedp.NewContext(alloc)
	end = func() {
		cancel()
		stop()
		_ = os.RemoveAll(dir)
	}
	if err := chromedp.Run(ctx); err != nil {
		end()
		return nil, nil, fmt.Errorf("start chromium: %w", err)
	}
	return &Browser{ctx}, end, nil
}

// Window is one, with storage of its own and an authenticator that confirms whatever it is asked.
type Window struct {
	T   testing.TB
	Ctx context.Context

	mu     sync.Mutex // guards what follows
	faults []string
}

// Open opens a window, so many CSS pixels large, at an address.
func (br *Browser) Open(t testing.TB, width, height int64, address string) *Window {
	t.Helper()
	browser := cdp.WithExecutor(br.ctx, chromedp.FromContext(br.ctx).Browser)
	store, err := target.CreateBrowserContext().Do(browser)
	if err != nil {
		t.Fatal(err)
	}
	// A window: newer browsers open no tab in a store that has none.
	window, err := target.CreateTarget("about:blank").WithBrowserContextID(store).WithNewWindow(true).Do(browser)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := chromedp.NewContext(br.ctx, chromedp.WithTargetID(window))
	t.Cleanup(func() {
		cancel()
		_ = target.DisposeBrowserContext(store).Do(browser)
	})
	if err := chromedp.Run(ctx); err != nil { // the first of a window lasts as long as that
		t.Fatal(err)
	}
	w := &Window{T: t, Ctx: ctx}
	chromedp.ListenTarget(ctx, w.hear)
	w.Run(chromedp.EmulateViewport(width, height), webauthn.Enable(), chromedp.ActionFunc(func(ctx context.Context) error {
		_, err := webauthn.AddVirtualAuthenticator(&webauthn.VirtualAuthenticatorOptions{Protocol: webauthn.AuthenticatorProtocolCtap2,
			Transport: webauthn.AuthenticatorTransportInternal, HasResidentKey: true, HasUserVerification: true, IsUserVerified: true,
			AutomaticPresenceSimulation: true}).Do(ctx)
		return err
	}), chromedp.Navigate(address))
	return w
}

// hear keeps what the console says is wrong. That the API refused a request is no fault of the page.
func (w *Window) hear(event any) {
	said := ""
	switch e := event.(type) {
	case *cdplog.EventEntryAdded:
		if e.Entry.Source != cdplog.SourceNetwork || !strings.Contains(e.Entry.URL, "/v1/") {
			said = fmt.Sprintf("%s: %s %s", e.Entry.Source, e.Entry.Text, e.Entry.URL)
		}
	case *runtime.EventExceptionThrown:
		said = e.ExceptionDetails.Error()
	case *runtime.EventConsoleAPICalled:
		if e.Type == runtime.APITypeError || e.Type == runtime.APITypeWarning {
			said = fmt.Sprintf("console: %+v", e.Args)
		}
	}
	if said != "" {
		w.mu.Lock()
		w.faults = append(w.faults, said)
		w.mu.Unlock()
	}
}

// Complaints are what the console said is wrong.
func (w *Window) Complaints() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Clone(w.faults)
}

func (w *Window) Run(actions ...chromedp.Action) {
	w.T.Helper()
	ctx, cancel := context.WithTimeout(w.Ctx, patience)
	defer cancel()
	if err := chromedp.Run(ctx, actions...); err != nil {
		w.T.Fatalf("%v; the console: %q", err, w.Complaints())
	}
}

// Eval runs a script in the page and decodes what its promise becomes into out, which may be nil.
func (w *Window) Eval(script string, out any) {
	w.T.Helper()
	w.Run(chromedp.Evaluate(script, out, func(p *runtime.EvaluateParams) *runtime.EvaluateParams { return p.WithAwaitPromise(true) }))
}

// Call runs a body of JavaScript with one of the page's modules as m, and args.
func (w *Window) Call(module, body string, out any, args ...any) {
	w.T.Helper()
	text, err := json.Marshal(args)
	if err != nil {
		w.T.Fatal(err)
	}
	w.Eval(fmt.Sprintf(`import("/%s").then((m) => (async (...args) => { %s })(...%s))`, module, body, text), out)
}

// Text is what the page shows.
func (w *Window) Text() string {
	w.T.Helper()
	var s string
	w.Eval(`document.body.innerText`, &s)
	return s
}

// Until waits until a script's value is true; what says what is waited for.
func (w *Window) Until(script, what string) {
	w.T.Helper()
	for end := time.Now().Add(patience); ; time.Sleep(20 * time.Millisecond) {
		var is bool
		if w.Eval(script, &is); is {
			return
		}
		if time.Now().After(end) {
			w.T.Fatalf("%s: not so after %v, but\n%s\nthe console: %q", what, patience, w.Text(), w.Complaints())
		}
	}
}

// Sees waits until the page shows the text.
func (w *Window) Sees(text string) {
	w.T.Helper()
	w.Until(fmt.Sprintf(`document.body.innerText.includes(%s)`, quote(text)), fmt.Sprintf("%q is seen", text))
}

// Press waits for the button, summary or link of that text, and presses it.
func (w *Window) Press(text string) {
	w.T.Helper()
	w.Until(fmt.Sprintf(`(() => { const e = [...document.querySelectorAll("button, summary, a")].find((e) =>
		e.innerText.trim() === %s && !e.disabled && e.checkVisibility()); e?.click(); return Boolean(e); })()`, quote(text)),
		fmt.Sprintf("%q can be pressed", text))
}

// Key types a key, as chromedp's kb names it.
func (w *Window) Key(key string) {
	w.T.Helper()
	w.Run(chromedp.KeyEvent(key))
}

// Scheme has the page drawn light or dark.
func (w *Window) Scheme(scheme string) {
	w.T.Helper()
	w.Run(emulation.SetEmulatedMedia().WithFeatures([]*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: scheme}}))
}

// Picture is what the window shows, as PNG.
func (w *Window) Picture() (png []byte) {
	w.T.Helper()
	w.Run(chromedp.CaptureScreenshot(&png))
	return png
}

func quote(s string) string {
	b, err := json.Marshal(s) // is a string of JavaScript too
	if err != nil {
		panic(err) // a string always can
	}
	return string(b)
}
