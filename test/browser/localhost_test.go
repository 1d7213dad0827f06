// SPDX-License-Identifier: Apache-2.0

package browser

import (
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/chromedp/chromedp"
)

// A name below localhost is a place as localhost is, and what else is on localhost gets neither its passkey nor its cookie. Control:
// what is on the very name, on another port, gets the cookie, as of any host.
func TestANameBelowLocalhostIsItsOwn(t *testing.T) {
	r := newRigAt(t, "ward.localhost")
	r.cards = append(r.cards, card("c1"))
	b := r.enrolled(t, 1280, 800)
	b.press("Open an issue")
	b.press("Approve once")
	b.Sees("Approved.")

	cookies := make(chan string, 1)
	other := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/" {
			cookies <- r.Header.Get("Cookie")
		}
		w.Header().Set("Content-Type", "text/html")
		_, _ = w.Write([]byte("<!doctype html><title>other</title>"))
	}))
	defer other.Close()
	_, port, _ := net.SplitHostPort(other.Listener.Addr().String())
	for host, may := range map[string]bool{"localhost": false, "other.localhost": false, "ward.localhost": true} {
		b.Run(chromedp.Navigate("http://" + host + ":" + port + "/"))
		if got := <-cookies; strings.Contains(got, "doorward=") != may {
			t.Errorf("%s gets the cookie %q", host, got)
		}
		if may {
			continue
		}
		var said string
		b.Eval(`navigator.credentials.get({ publicKey: { challenge: new Uint8Array(32), rpId: "ward.localhost" } }).then(() => "signed", (e) => e.name)`, &said)
		if said != "SecurityError" {
			t.Errorf("%s asks for its passkey: %s", host, said)
		}
	}
}
