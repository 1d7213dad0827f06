// SPDX-License-Identifier: Apache-2.0

// Command page is the page with one wall less: its script believes an answer that sentinel did not sign. It is the control of what a
// taken-over approvals tries.
package main

import (
	"bytes"
	"context"
	"errors"
	"net/http"
	"net/http/httptest"

	"github.com/doorward/doorward/internal/approver"
	"github.com/doorward/doorward/internal/approver/front"
	"github.com/doorward/doorward/internal/daemon"
	"github.com/doorward/doorward/internal/wire"
	"github.com/doorward/doorward/page"
)

// wall is what verify.js has, once, where it refuses an answer.
const wall = "if (!signature || !("

func main() { daemon.Main("page", run) }

func run(ctx context.Context, p *daemon.Process) error {
	place, err := approver.Load(p.Dirs.Config)
	if err != nil {
		return err
	}
	files, err := page.New(place)
	if err != nil {
		return err
	}
	pages, err := p.TCPListener("page")
	if err != nil {
		return err
	}
	api, err := p.TCPListener("page-api")
	if err != nil {
		return err
	}
	ask := httptest.NewRequest(http.MethodGet, "/verify.js", nil)
	ask.Host = place.PageHost()
	script := httptest.NewRecorder()
	files.ServeHTTP(script, ask)
	if bytes.Count(script.Body.Bytes(), []byte(wall)) != 1 {
		return errors.New("verify.js refuses elsewhere than it did: this control is none")
	}
	open := bytes.Replace(script.Body.Bytes(), []byte(wall), []byte("if (false && !("), 1)
	h := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.RequestURI != "/verify.js" {
			files.ServeHTTP(w, r)
			return
		}
		w.Header().Set("Content-Type", script.Header().Get("Content-Type"))
		_, _ = w.Write(open)
	})
	serve := &front.Server{Listener: pages, Handler: h, Log: p.Log}
	carry := &page.Pipe{Listener: api, Path: wire.PathApprovalsPage, Log: p.Log}
	return p.Run(ctx, serve.Serve, carry.Serve)
}
