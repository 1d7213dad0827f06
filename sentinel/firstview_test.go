// SPDX-License-Identifier: Apache-2.0

package sentinel

import (
	"context"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"

	cdppage "github.com/chromedp/cdproto/page"
	"github.com/chromedp/chromedp"
	approvalsd "github.com/doorward/doorward/approvals"
	"github.com/doorward/doorward/internal/approver"
	"github.com/doorward/doorward/internal/approver/front"
	"github.com/doorward/doorward/internal/daemon"
	"github.com/doorward/doorward/internal/peer"
	"github.com/doorward/doorward/internal/peer/peertest"
	"github.com/doorward/doorward/internal/wire"
	pagefiles "github.com/doorward/doorward/page"
	"github.com/doorward/doorward/test/chromium"
)

// opened serves the page and the API of a sentinel, and returns its origin.
func (s *Sentinel) opened(b *testing.B) string {
	b.Helper()
	listen := func() (net.Listener, uint16) {
		ln, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			b.Fatal(err)
		}
		return ln, uint16(ln.Addr().(*net.TCPAddr).Port)
	}
	unix := func() (*net.UnixListener, string) {
		path := filepath.Join(b.TempDir(), "s")
		ln, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
		if err != nil {
			b.Fatal(err)
		}
		return ln, path
	}
	pages, pagePort := listen()
	api, apiPort := listen()
	text := fmt.Sprintf("host = \"localhost\"\npage = %d\napi = %d\n", pagePort, apiPort)
	if err := os.WriteFile(filepath.Join(s.config, approver.File), []byte(text), 0o644); err != nil {
		b.Fatal(err)
	}
	place, err := approver.Load(s.config)
	if err != nil {
		b.Fatal(err)
	}
	files, err := pagefiles.New(place)
	if err != nil {
		b.Fatal(err)
	}
	web, path := unix()
	carried, pipe := unix()
	one, two := &daemon.Client{Path: path, Name: "sentinel", Log: s.log}, &daemon.Client{Path: path, Name: "sentinel", Log: s.log}
	ctx, cancel := context.WithCancel(b.Context())
	var all sync.WaitGroup
	for _, serve := range []func(context.Context) error{
		(&daemon.Server{Name: "sentinel-web", Log: s.log, Listener: peer.NewListener(web, peertest.Daemon("approvals"), nil), Verbs: s.webVerbs()}).Serve,
		(&front.Server{Listener: front.NewBounded(pages, front.Conns, front.OfAddress), Handler: files, Log: s.log}).Serve,
		(&pagefiles.Pipe{Listener: front.NewBounded(api, front.Conns, front.OfAddress), Path: pipe, Log: s.log}).Serve,
		(&front.Server{Listener: approvalsd.NewCarried(peer.NewListener(carried, peertest.Daemon("page"), nil), s.log),
			Handler: approvalsd.New(place, one, two, s.log), Log: s.log}).Serve,
	} {
		all.Go(func() {
			if err := serve(ctx); err != nil {
				b.Error(err)
			}
		})
	}
	b.Cleanup(func() {
		cancel()
		one.Close()
		two.Close()
		all.Wait()
	})
	return place.PageOrigin()
}

// stands notes in window.stood when the list was drawn, in milliseconds since the navigation began.
const stands = `new MutationObserver((_, all) => {
	if (!document.title.startsWith("Waiting") || !document.querySelector("main h1")) return;
	all.disconnect();
	requestAnimationFrame(() => setTimeout(() => { window.stood = performance.now(); }, 0));
}).observe(document, { childList: true, subtree: true, characterData: true })`

// BenchmarkFirstView is what a person waits for who opens the page and is signed in: from the navigation until the list stands, with
// the crowd in the ledger and with nothing in it, in rounds that alternate. The daemons are one process here, and nothing is TLS.
func BenchmarkFirstView(b *testing.B) {
	browser, end, err := chromium.Start()
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(end)
	if browser == nil {
		b.Skip(chromium.Missing)
	}
	window := func(pending, past int) func() float64 {
		s := newSentinel(b)
		s.crowd(b, pending, past)
		origin := s.opened(b)
		r, err := s.approvers(b.Context(), root(), &wire.ApproversReq{Op: "add", Name: "ada"})
		if err != nil {
			b.Fatal(err)
		}
		w := browser.Open(b, 390, 844, r.Link)
		w.Press("Make a passkey")
		w.Press("Sign in with a passkey")
		w.Until(`document.title.startsWith("Waiting")`, "the list")
		w.Run(chromedp.ActionFunc(func(ctx context.Context) error {
			_, err := cdppage.AddScriptToEvaluateOnNewDocument(stands).Do(ctx)
			return err
		}))
		return func() (took float64) {
			w.Run(chromedp.Navigate("about:blank"), chromedp.Navigate(origin+"/"))
			w.Until(`Boolean(window.stood)`, "the list is drawn")
			w.Eval(`window.stood`, &took)
			return took
		}
	}
	empty, full := window(0, 0), window(manyPending, manyPast)
	var with, without []float64
	for b.Loop() {
		with, without = append(with, full()), append(without, empty())
	}
	slices.Sort(with)
	slices.Sort(without)
	b.ReportMetric(with[len(with)/2], "ms")
	b.ReportMetric(without[len(without)/2], "ms-empty")
	b.ReportMetric(with[len(with)/2]/without[len(without)/2], "ratio")
}
