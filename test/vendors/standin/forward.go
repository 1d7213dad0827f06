// SPDX-License-Identifier: Apache-2.0

package standin

import (
	"bytes"
	"io"
	"net/http"
	"net/http/httputil"
	"net/url"
	"slices"
)

// Forward answers by a real server: requests go on as they came, so that the record says what the real one got. A
// refusal of the real server (4xx, 5xx) or no answer counts as not acted on.
func Forward(target *url.URL, transport http.RoundTripper) Vendor {
	proxy := &httputil.ReverseProxy{
		Transport: transport,
		Rewrite: func(r *httputil.ProxyRequest) {
			r.Out.URL.Scheme, r.Out.URL.Host = target.Scheme, target.Host
			r.Out.Host = r.In.Host
			for name, values := range r.In.Header { // the proxy drops what it takes for its own
				if !slices.Contains([]string{"Connection", "Te", "Transfer-Encoding", "Upgrade"}, name) {
					r.Out.Header[name] = slices.Clone(values)
				}
			}
		},
		ErrorHandler: func(w http.ResponseWriter, _ *http.Request, err error) {
			http.Error(w, "the server behind the recorder did not answer: "+err.Error(), http.StatusBadGateway)
		},
	}
	return func(w http.ResponseWriter, r *http.Request, body []byte, note *Note) {
		r.Body = io.NopCloser(bytes.NewReader(body))
		r.ContentLength = int64(len(body))
		r.TransferEncoding = nil
		note.Operation = r.Method
		watched := &watcher{ResponseWriter: w}
		proxy.ServeHTTP(watched, r)
		note.Refused = watched.status >= 400
	}
}

// A watcher remembers the status.
type watcher struct {
	http.ResponseWriter
	status int
}

func (w *watcher) WriteHeader(status int) {
	if w.status == 0 {
		w.status = status
	}
	w.ResponseWriter.WriteHeader(status)
}
