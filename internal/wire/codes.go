// SPDX-License-Identifier: Apache-2.0

package wire

// Code is a reason that a caller can act on. The list is closed.
type Code string

const (
	CodeInternal    Code = "internal"    // a fault of Doorward; its log says more
	CodeUnavailable Code = "unavailable" // a part of Doorward is down, missing or locked; nothing ran
	CodeLocked      Code = "locked"      // authd waits for its passphrase
	CodeFull        Code = "disk_full"   // the record cannot be written, so nothing is let through

	CodeUsage            Code = "usage"             // the call's words are off
	CodeUnknownConnector Code = "unknown_connector" // no description of that name
	CodeUnknownMethod    Code = "unknown_method"    // no such method, or it is off
	CodeBadArgument      Code = "bad_argument"      // an argument is missing, malformed or out of bounds
	CodeWrongDescription Code = "wrong_description" // the caller read another version of the description
	CodeAmbiguousAccount Code = "ambiguous_account" // more than one account fits; name one
	CodeBadPreparedBody  Code = "bad_prepared_body" // the worker rendered other than the arguments say
	CodeNotFound         Code = "not_found"         // no such call, grant or account for this caller

	CodeNoSession  Code = "no_session"  // a browser that is not signed in, or not any more
	CodeNotAllowed Code = "not_allowed" // the policy denies, or the caller may not
	CodeDenied     Code = "denied"      // a person said no
	CodeStopped    Code = "stopped"     // the switch is off for this cell

	CodeNeedsApproval Code = "needs_approval" // parked; a person decides
	CodeBulkRead      Code = "bulk_read"      // parked: more reads in this session than go unasked

	CodeExpired Code = "expired" // nobody decided in time, or the grant ran out
	CodeRevoked Code = "revoked" // a person took it back

	CodeVendorRefused Code = "vendor_refused" // the vendor's server said no
	CodeConflict      Code = "conflict"       // the object changed meanwhile (ETag, sha)
	CodeRateLimited   Code = "rate_limited"   // the vendor asks to wait
	CodeVendorDown    Code = "vendor_down"    // the vendor cannot be reached, or its answer is no answer
	CodeUnknown       Code = "unknown"        // it may have run; look before repeating

	CodeNotConfigured     Code = "not_configured"     // no account of this connector
	CodeNotConnected      Code = "not_connected"      // the account waits for a person's decision
	CodeReconnectRequired Code = "reconnect_required" // the vendor no longer takes the credential
	CodeMissingScope      Code = "missing_scope"      // the credential lacks a permission the method needs

	CodeTooLarge Code = "too_large" // over a size limit
	CodeTooMany  Code = "too_many"  // over a count limit

	CodeBadEnvelope   Code = "outside_envelope" // a request that the allowed call does not list
	CodeBadGrant      Code = "bad_grant"        // no live grant of that name for this caller
	CodeBadSurrogate  Code = "bad_surrogate"    // not the surrogate of this grant
	CodeBadTarget     Code = "bad_target"       // an address, host or path that may not be reached
	CodeBadCredential Code = "bad_credential"   // a credential that cannot be stored or placed
)

// Exit codes of `connector`.
const (
	ExitDone    = 0
	ExitFailure = 1
	ExitUsage   = 2
	ExitDenied  = 3
	ExitWaiting = 4
	ExitExpired = 5
	ExitVendor  = 6
	ExitAccount = 7
	ExitLimits  = 8
)

// Exit is the exit code of `connector` for a reason; an unlisted one is a failure inside Doorward.
func (c Code) Exit() int {
	switch c {
	case CodeUsage, CodeUnknownConnector, CodeUnknownMethod, CodeBadArgument, CodeWrongDescription,
		CodeAmbiguousAccount, CodeNotFound:
		return ExitUsage
	case CodeNotAllowed, CodeDenied, CodeStopped:
		return ExitDenied
	case CodeNeedsApproval, CodeBulkRead:
		return ExitWaiting
	case CodeExpired, CodeRevoked:
		return ExitExpired
	case CodeVendorRefused, CodeConflict, CodeRateLimited, CodeVendorDown, CodeUnknown:
		return ExitVendor
	case CodeNotConfigured, CodeNotConnected, CodeReconnectRequired, CodeMissingScope:
		return ExitAccount
	case CodeTooLarge, CodeTooMany:
		return ExitLimits
	default:
		return ExitFailure
	}
}

// Error is a refusal as peers see it: a code, what happened, and what to do next. Detail stays in the journal.
type Error struct {
	Code   Code   `msgpack:"c" json:"code"`
	Reason string `msgpack:"r,omitempty" json:"reason"`
	Next   string `msgpack:"n,omitempty" json:"next,omitempty"`
}

func (e *Error) Error() string { return string(e.Code) + ": " + e.Reason }

// Refuse makes an Error.
func Refuse(code Code, reason, next string) *Error { return &Error{code, reason, next} }
