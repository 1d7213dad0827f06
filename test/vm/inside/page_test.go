// SPDX-License-Identifier: Apache-2.0

package inside

import (
	"fmt"
	"net/http"
	"testing"
)

// pageAnswers waits until a browser would get the page from one port, and from the other approvals' word through page.
func pageAnswers(t *testing.T) {
	t.Helper()
	for url, want := range map[string]int{"http://localhost:8440/": http.StatusOK, "http://localhost:8441/v1/pending": http.StatusUnauthorized} {
		eventually(t, url+" answers", func() error {
			req, err := http.NewRequest(http.MethodPost, url, http.NoBody)
			if err != nil {
				return err
			}
			if want == http.StatusOK {
				req.Method = http.MethodGet
			}
			req.Header.Set("Origin", "http://localhost:8440")
			req.Header.Set("Content-Type", "application/json")
			resp, err := http.DefaultClient.Do(req)
			if err != nil {
				return err
			}
			defer resp.Body.Close()
			if resp.StatusCode != want {
				return fmt.Errorf("status %d, want %d", resp.StatusCode, want)
			}
			return nil
		})
	}
}

// Under systemd the page is served, and what it asks reaches approvals by page alone.
func TestThePageAnswers(t *testing.T) {
	ready(t)
	pageAnswers(t)
}
