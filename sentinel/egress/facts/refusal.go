// SPDX-License-Identifier: Apache-2.0

package facts

import (
	"encoding/json"
	"net/http"

	"github.com/doorward/doorward/internal/wire"
)

// Provider is whose error shape a host of a model's provider has, empty for any other: the kind for Refusal.
func Provider(host string) string {
	switch host {
	case "api.anthropic.com":
		return "anthropic"
	case "api.openai.com", "openrouter.ai":
		return "openai"
	case "generativelanguage.googleapis.com":
		return "google"
	}
	return ""
}

// Status is what HTTP calls a refusal of a request.
func Status(c wire.Code) int {
	switch c {
	case wire.CodeUsage, wire.CodeBadArgument, wire.CodeBadTarget:
		return http.StatusBadRequest
	case wire.CodeBadSurrogate:
		return http.StatusUnauthorized
	case wire.CodeTooLarge:
		return http.StatusRequestEntityTooLarge
	case wire.CodeTooMany, wire.CodeRateLimited:
		return http.StatusTooManyRequests
	case wire.CodeUnavailable, wire.CodeLocked, wire.CodeFull, wire.CodeInternal:
		return http.StatusServiceUnavailable
	case wire.CodeVendorDown:
		return http.StatusBadGateway
	}
	return http.StatusForbidden
}

// Refusal is the body of a refusal: in the provider's own error shape, so that its client shows the reason to whoever asked the
// model, or as {code, reason, next}.
func Refusal(kind string, e *wire.Error) (media string, body []byte) {
	said := e.Reason
	if e.Next != "" {
		said += "; " + e.Next
	}
	said += " (" + string(e.Code) + ", by Doorward)"
	status := Status(e.Code)
	names := map[int][2]string{ // Anthropic's type, Google's status
		http.StatusBadRequest:            {"invalid_request_error", "INVALID_ARGUMENT"},
		http.StatusUnauthorized:          {"authentication_error", "UNAUTHENTICATED"},
		http.StatusRequestEntityTooLarge: {"request_too_large", "INVALID_ARGUMENT"},
		http.StatusTooManyRequests:       {"rate_limit_error", "RESOURCE_EXHAUSTED"},
		http.StatusServiceUnavailable:    {"api_error", "UNAVAILABLE"},
		http.StatusBadGateway:            {"api_error", "UNAVAILABLE"},
		http.StatusForbidden:             {"permission_error", "PERMISSION_DENIED"},
	}[status]
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
