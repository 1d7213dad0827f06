// SPDX-License-Identifier: Apache-2.0

package facts

import (
	"strings"

	"github.com/go-json-experiment/json/jsontext"
)

// jsonrpc reads JSON-RPC 2.0: one request or notification, or a batch. What a client answers to a server's own request names
// no method, and is not read.
func jsonrpc(body []byte) []string {
	var does []string
	keys := []string{"jsonrpc", "method", "params", "id"}
	if !each(body, func(d *jsontext.Decoder) bool {
		version, method := "", ""
		ok := object(d, keys, func(key string) (ok bool) {
			switch key {
			case "jsonrpc":
				version, ok = text(d, false)
				return ok
			case "method":
				method, ok = text(d, false)
				return ok
			case "params", "id":
				return skip(d)
			}
			return false
		})
		if !ok || version != "2.0" || !isMethod(method) {
			return false
		}
		does = append(does, "jsonrpc "+method)
		return true
	}) {
		return unreadable()
	}
	return does
}

// isMethod: visible ASCII, so that it is one word wherever it stands.
func isMethod(s string) bool {
	return s != "" && len(s) <= maxName && !strings.ContainsFunc(s, func(r rune) bool { return r <= ' ' || r >= 0x7f })
}
