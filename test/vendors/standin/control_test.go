// SPDX-License-Identifier: Apache-2.0

package standin

import (
	"io"
	"net/http"
	"path/filepath"
	"testing"
)

func TestControlReachesAStandInOfAnotherProcess(t *testing.T) {
	s, err := New()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	address, err := s.Open(Options{
		Listener: "up", Classify: Bearer("real"),
		Vendor: func(w http.ResponseWriter, _ *http.Request, _ []byte, _ *Note) { _, _ = io.WriteString(w, "hello") },
	})
	if err != nil {
		t.Fatal(err)
	}
	socket := filepath.Join(t.TempDir(), "control.sock")
	if err := s.ServeControl(socket, func() any { return map[string]int{"a": 1} }); err != nil {
		t.Fatal(err)
	}
	c, ctx := Dial(socket), t.Context()
	if err := c.Fault(ctx, Fault{Path: "/a", Times: 1, Status: 503}); err != nil {
		t.Fatal(err)
	}
	client := s.Client()
	for _, want := range []int{503, 200} {
		response, err := client.Get("https://" + address + "/a")
		if err != nil {
			t.Fatal(err)
		}
		_ = response.Body.Close()
		if response.StatusCode != want {
			t.Errorf("status %d, want %d", response.StatusCode, want)
		}
	}
	got, err := c.Requests(ctx, "GET", "/a")
	if err != nil || len(got) != 2 || got[0].Handled || !got[1].Handled || got[1].Status != 200 {
		t.Errorf("requests: %+v, %v", got, err)
	}
	state := map[string]int{}
	if err := c.State(ctx, &state); err != nil || state["a"] != 1 {
		t.Errorf("state: %v, %v", state, err)
	}
	if err := c.Reset(ctx); err != nil {
		t.Error(err)
	}
	if err := c.Clear(ctx); err != nil {
		t.Error(err)
	}
	if violations, err := c.Violations(ctx); err != nil || len(violations) != 0 {
		t.Errorf("violations: %v, %v", violations, err)
	}
	if got, err := c.Requests(ctx, "", ""); err != nil || len(got) != 0 {
		t.Errorf("after a reset: %d requests, %v", len(got), err)
	}
}
