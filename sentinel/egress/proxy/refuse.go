// SPDX-License-Identifier: Apache-2.0

package proxy

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"strconv"

	"github.com/doorward/doorward/internal/wire"
	"github.com/doorward/doorward/sentinel/egress/envelope"
	"github.com/doorward/doorward/sentinel/egress/guard"
	"github.com/doorward/doorward/sentinel/egress/head"
	"github.com/doorward/doorward/sentinel/egress/swap"
)

// refusal is an answer of egress's own.
type refusal struct {
	status int
	err    *wire.Error
	detail string // for the journal; quotes nothing that a worker or vendor wrote unbounded, and no value of a header
}

func (r *refusal) Error() string { return r.err.Error() }

func refuse(status int, code wire.Code, next string, err error) *refusal {
	return &refusal{status, wire.Refuse(code, err.Error(), next), err.Error()}
}

const (
	nextLook = "look at the account before repeating it: it may have run"
	nextTry  = "try again in a moment"
	nextSrv  = "check the account's address, CA and permitted address, and the server itself"
	nextBug  = "a request that the call does not need was refused; if the connector is sound, report it"
)

// classify turns an error from before the first byte left into a refusal.
func classify(err error) *refusal {
	var r *refusal
	var w *wire.Error
	switch {
	case errors.As(err, &r):
		return r
	case errors.Is(err, envelope.ErrAuthority):
		return refuse(http.StatusMisdirectedRequest, wire.CodeBadEnvelope, nextBug, err)
	case errors.Is(err, envelope.ErrOutside):
		return refuse(http.StatusForbidden, wire.CodeBadEnvelope, nextBug, err)
	case errors.Is(err, swap.ErrSurrogate):
		return refuse(http.StatusForbidden, wire.CodeBadSurrogate, nextBug, err)
	case errors.Is(err, swap.ErrPlace):
		return refuse(http.StatusForbidden, wire.CodeBadCredential,
			"store the credential anew with `doorward account add`", err)
	case errors.Is(err, head.ErrTooLarge):
		return refuse(http.StatusRequestHeaderFieldsTooLarge, wire.CodeTooLarge, nextBug, err)
	case errors.Is(err, head.ErrMalformed):
		return refuse(http.StatusBadRequest, wire.CodeBadEnvelope, nextBug, err)
	case errors.Is(err, guard.ErrRefused), errors.Is(err, guard.ErrHost):
		return refuse(http.StatusBadGateway, wire.CodeBadTarget, nextSrv, err)
	case errors.As(err, &w):
		status := http.StatusForbidden
		if w.Code == wire.CodeUnavailable || w.Code == wire.CodeLocked || w.Code == wire.CodeInternal {
			status = http.StatusServiceUnavailable
		}
		return &refusal{status, w, err.Error()}
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, os.ErrDeadlineExceeded):
		return refuse(http.StatusGatewayTimeout, wire.CodeVendorDown, nextTry, err)
	}
	return unreachable(err)
}

// unreachable names what is wrong with the server, never Doorward's own trust.
func unreachable(err error) *refusal {
	var (
		cert *tls.CertificateVerificationError
		name x509.HostnameError
		inv  x509.CertificateInvalidError
		root x509.UnknownAuthorityError
		dns  *net.DNSError
	)
	next := nextSrv
	switch {
	case errors.As(err, &inv) && inv.Reason == x509.Expired:
		err = fmt.Errorf("the server's certificate has expired or is not valid yet: %w", err)
	case errors.As(err, &name):
		err = fmt.Errorf("the server's certificate is for another name: %w", err)
	case errors.As(err, &root):
		err = fmt.Errorf("the server's certificate is not signed by a CA that this account trusts: %w", err)
	case errors.As(err, &cert):
		err = fmt.Errorf("the server's certificate is not acceptable: %w", err)
	case alert(err) != "":
		err = fmt.Errorf("the server refused the TLS handshake: %w", err)
	case errors.As(err, &dns):
		err = fmt.Errorf("the server's name cannot be looked up: %w", err)
	default:
		next = nextTry
	}
	return refuse(http.StatusBadGateway, wire.CodeVendorDown, next, err)
}

// afterLeft turns an error from after the first byte may have left into a refusal: nobody knows whether it ran.
func afterLeft(err error) *refusal {
	status := http.StatusBadGateway
	if errors.Is(err, context.DeadlineExceeded) || errors.Is(err, os.ErrDeadlineExceeded) {
		status = http.StatusGatewayTimeout
	}
	return refuse(status, wire.CodeUnknown, nextLook, fmt.Errorf("the request left, and then: %w", err))
}

// cutOff is the refusal of a request that sentinel ended.
func cutOff(left bool) *refusal {
	code, next := wire.CodeRevoked, "a person took it back"
	if left {
		code, next = wire.CodeUnknown, nextLook
	}
	return refuse(http.StatusForbidden, code, next, errors.New("the grant was ended while the request was under way"))
}

// ErrorHeader marks an answer as egress's own; no vendor's answer has it.
const ErrorHeader = "Doorward-Error"

// appendRefusal writes r as a whole answer.
func appendRefusal(b []byte, r *refusal, closing, noBody bool) []byte {
	body, err := json.Marshal(r.err)
	if err != nil {
		body = []byte(`{"code":"internal"}`)
	}
	b = append(b, "HTTP/1.1 "...)
	b = strconv.AppendInt(b, int64(r.status), 10)
	b = append(b, ' ')
	b = append(b, http.StatusText(r.status)...)
	b = append(b, "\r\n"+ErrorHeader+": "...)
	b = append(b, r.err.Code...)
	b = append(b, "\r\nContent-Type: application/json\r\nContent-Length: "...)
	b = strconv.AppendInt(b, int64(len(body)), 10)
	if closing {
		b = append(b, "\r\nConnection: close"...)
	}
	b = append(b, "\r\n\r\n"...)
	if noBody {
		return b
	}
	return append(b, body...)
}
