// SPDX-License-Identifier: Apache-2.0

package facts

import (
	"encoding/json"
	"net/http"

	"github.com/doorward/doorward/internal/wire"
)

// Refusal is the body of a refusal that HTTP calls by that status: in the error shape of a model's provider, of anthropic, openai or
// google, so that its client shows the reason to whoever asked the model, or as {code, reason, next}.
func Refusal(kind string, status int, e *wire.Error) (media string, body []byte) {
	said := e.Reason
	if e.Next != "" {
		said += "; " + e.Next
	}
	said += " (" + string(e.Code) + ", by Doorward)"
	shapes := map[int][2]string{ // Anthropic's type, Google's status
		http.StatusUnauthorized:                {"authentication_error", "UNAUTHENTICATED"},
		http.StatusRequestHeaderFieldsTooLarge: {"request_too_large", "INVALID_ARGUMENT"},
		http.StatusTooManyRequests:             {"rate_limit_error", "RESOURCE_EXHAUSTED"},
		http.StatusForbidden:                   {"permission_error", "PERMISSION_DENIED"},
	}
	names, known := shapes[status]
	if !known && status < 500 {
		names = [2]string{"invalid_request_error", "INVALID_ARGUMENT"}
	} else if !known {
		names = [2]string{"api_error", "UNAVAILABLE"}
	}
	type object = map[string]any
	var v any = e
	switch kind {
	case "anthropic":
		v = object{"type": "error", "error": object{"type": names[0], "message": said}}
	case "openai":
		v = object{"error": object{"message": said, "type": "invalid_request_error", "param": nil, "code": e.Code}}
	case "google":
		v = object{"error": object{"code": status, "message": said, "status": names[1]}}
	}
	body, err := json.Marshal(v)
	if err != nil {
		body = []byte("{}")
	}
	return "application/json", append(body, '\n')
}
