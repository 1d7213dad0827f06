// SPDX-License-Identifier: Apache-2.0

package standin

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"time"
)

// ServeControl answers tests of other processes on a Unix socket; state shows what the vendor holds.
func (s *Server) ServeControl(path string, state func() any) error {
	listener, err := net.Listen("unix", path)
	if err != nil {
		return fmt.Errorf("listen on the control socket: %w", err)
	}
	server := &http.Server{Handler: s.control(state), ReadHeaderTimeout: time.Minute}
	s.spawn(func() { _ = server.Serve(listener) }, func() { _ = server.Close() })
	return nil
}

func (s *Server) control(state func() any) http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /requests", func(w http.ResponseWriter, r *http.Request) {
		show(w, s.Rec.Find(r.FormValue("method"), r.FormValue("path")))
	})
	mux.HandleFunc("GET /violations", func(w http.ResponseWriter, _ *http.Request) {
		violations := s.Rec.Violations()
		if violations == nil {
			violations = []string{}
		}
		show(w, violations)
	})
	mux.HandleFunc("GET /state", func(w http.ResponseWriter, _ *http.Request) {
		if state == nil {
			show(w, struct{}{})
			return
		}
		show(w, state())
	})
	mux.HandleFunc("POST /reset", func(w http.ResponseWriter, _ *http.Request) {
		s.Rec.Reset()
		w.WriteHeader(http.StatusNoContent)
	})
	mux.HandleFunc("POST /faults", func(w http.ResponseWriter, r *http.Request) {
		var fault Fault
		decoder := json.NewDecoder(r.Body)
		decoder.DisallowUnknownFields()
		if err := decoder.Decode(&fault); err != nil {
			http.Error(w, "fault: "+err.Error(), http.StatusBadRequest)
			return
		}
		s.Faults.Add(fault)
		w.WriteHeader(http.StatusNoContent)
	})
	mux.HandleFunc("DELETE /faults", func(w http.ResponseWriter, _ *http.Request) {
		s.Faults.Clear()
		w.WriteHeader(http.StatusNoContent)
	})
	return mux
}

func show(w http.ResponseWriter, v any) {
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(v)
}

// A Control speaks to a stand-in in another process.
type Control struct{ client *http.Client }

// Dial returns a control for a socket; it connects at each call.
func Dial(socket string) *Control {
	return &Control{client: &http.Client{
		Timeout: time.Minute,
		Transport: &http.Transport{
			DisableKeepAlives: true,
			DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
				return (&net.Dialer{}).DialContext(ctx, "unix", socket)
			},
		},
	}}
}

// Requests returns the requests with that method and path prefix; empty matches all.
func (c *Control) Requests(ctx context.Context, method, pathPrefix string) ([]Request, error) {
	var out []Request
	query := url.Values{"method": {method}, "path": {pathPrefix}}
	err := c.do(ctx, http.MethodGet, "/requests?"+query.Encode(), nil, &out)
	return out, err
}

// Violations returns what requests had against the vendor's description.
func (c *Control) Violations(ctx context.Context) ([]string, error) {
	var out []string
	err := c.do(ctx, http.MethodGet, "/violations", nil, &out)
	return out, err
}

// State decodes into v what the vendor holds.
func (c *Control) State(ctx context.Context, v any) error {
	return c.do(ctx, http.MethodGet, "/state", nil, v)
}

// Reset forgets the requests so far.
func (c *Control) Reset(ctx context.Context) error {
	return c.do(ctx, http.MethodPost, "/reset", nil, nil)
}

// Fault puts a fault in force.
func (c *Control) Fault(ctx context.Context, fault Fault) error {
	body, err := json.Marshal(fault)
	if err != nil {
		return fmt.Errorf("encode a fault: %w", err)
	}
	return c.do(ctx, http.MethodPost, "/faults", body, nil)
}

// Clear removes all faults.
func (c *Control) Clear(ctx context.Context) error {
	return c.do(ctx, http.MethodDelete, "/faults", nil, nil)
}

func (c *Control) do(ctx context.Context, method, target string, body []byte, into any) error {
	request, err := http.NewRequestWithContext(ctx, method, "http://vendor"+target, bytes.NewReader(body))
	if err != nil {
		return fmt.Errorf("ask the stand-in: %w", err)
	}
	response, err := c.client.Do(request)
	if err != nil {
		return fmt.Errorf("ask the stand-in: %w", err)
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	if err != nil {
		return fmt.Errorf("read the stand-in's answer: %w", err)
	}
	if response.StatusCode/100 != 2 {
		return fmt.Errorf("stand-in answered %s %s with %d: %s", method, target, response.StatusCode, text)
	}
	if into == nil {
		return nil
	}
	if err := json.Unmarshal(text, into); err != nil {
		return fmt.Errorf("decode the stand-in's answer: %w", err)
	}
	return nil
}
