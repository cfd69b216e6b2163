// Package fault defines the errors that API clients may see. A Fault is created where a rule is broken, wrapped like
// any error, and rendered once, by the API. Any other error is internal: its text is never sent to a client.
package fault

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"
)

// A Kind is one row of the error table: the status, code and type that clients branch on.
type Kind struct {
	Status int
	Code   string // empty is null on the wire
	Type   string
	When   string
}

// The types of the error envelope.
const (
	TypeInvalid  = "invalid_request_error"
	TypeQuota    = "insufficient_quota"
	TypeRate     = "rate_limit_error"
	TypeAPI      = "api_error"
	TypeUpstream = "upstream_error"
)

// All kinds of faults.
var (
	InvalidBody      = Kind{400, "invalid_body", TypeInvalid, "The body is not the JSON that the operation takes."}
	InvalidParameter = Kind{
		400, "invalid_parameter", TypeInvalid, "A field, path or query parameter breaks a rule; the message names it.",
	}
	UnsupportedParameter = Kind{
		400, "unsupported_parameter", TypeInvalid, "A parameter is known but cannot be honoured here.",
	}
	UnknownProvider = Kind{
		400, "unknown_provider", TypeInvalid, "No provider of the model's prefix is configured.",
	}
	InvalidKey  = Kind{401, "invalid_api_key", TypeInvalid, "The key is missing, malformed or revoked."}
	KeyExpired  = Kind{401, "api_key_expired", TypeInvalid, "The key, or its workspace, has expired."}
	NotSignedIn = Kind{
		401, "not_signed_in", TypeInvalid, "The dashboard's API needs a session, and there is none, or it has ended.",
	}
	InsufficientBalance = Kind{
		402, "insufficient_balance", TypeQuota, "The wallet cannot cover the request's worst case. Nothing is charged.",
	}
	BudgetExceeded = Kind{
		402, "budget_exceeded", TypeQuota,
		"A budget of the key or the workspace cannot cover the request's worst case.",
	}
	Forbidden = Kind{
		403, "insufficient_permissions", TypeInvalid, "The key's user lacks the role, or has left the workspace.",
	}
	ScopeNotAllowed = Kind{
		403, "insufficient_scope", TypeInvalid, "The scope of the key or the workspace is inference alone.",
	}
	ModelNotAllowed = Kind{
		403, "model_not_allowed", TypeInvalid, "The key or the workspace may not call this model.",
	}
	AddressNotAllowed = Kind{
		403, "address_not_allowed", TypeInvalid, "The key or the workspace may not be used from this address.",
	}
	CrossOrigin = Kind{
		403, "cross_origin", TypeInvalid,
		"A request to the dashboard's API comes from another site, or names a host that is not the dashboard's.",
	}
	Missing           = Kind{404, "not_found", TypeInvalid, "There is no such resource in the workspace."}
	ModelNotFound     = Kind{404, "model_not_found", TypeInvalid, "The model is not in the priced catalog."}
	DedicatedNotFound = Kind{
		404, "dedicated_endpoint_not_found", TypeInvalid, "The routing key is not the workspace's, or was deleted.",
	}
	MethodNotAllowed = Kind{
		405, "method_not_allowed", TypeInvalid, "The path exists, the method does not; see the Allow header.",
	}
	Timeout           = Kind{408, "request_timeout", TypeAPI, "The request took too long. Retry with backoff."}
	Conflicting       = Kind{409, "conflict", TypeInvalid, "The resource's state does not allow it."}
	LoggingDisabled   = Kind{409, "logging_disabled", TypeInvalid, "Request logging is off for the workspace."}
	SessionNotActive  = Kind{409, "session_not_active", TypeInvalid, "The reward session has ended."}
	SessionOverbudget = Kind{409, "session_overbudget", TypeInvalid, "The reward session's budget is spent."}
	StaleLease        = Kind{
		409, "stale_lease", TypeInvalid,
		"A worker has lost the lease of a training run, or never had it. It must stop.",
	}
	IdempotencyConflict = Kind{
		409, "idempotency_conflict", TypeInvalid,
		"The Idempotency-Key was used for something else, or its answer is not repeatable.",
	}
	QuotaExceeded = Kind{
		409, "quota_exceeded", TypeInvalid, "The workspace stores as many of these as its quota allows.",
	}
	Precondition = Kind{
		412, "precondition_failed", TypeInvalid, "Well formed and permitted, but the proof is not there yet.",
	}
	AnchorHeld = Kind{
		412, "anchor_held", TypeInvalid, "The run is held: its reward diverged from the anchor judge.",
	}
	BodyTooLarge      = Kind{413, "body_too_large", TypeInvalid, "The body is over the limit."}
	UnsupportedMedia  = Kind{415, "unsupported_media_type", TypeInvalid, "The body is not plain application/json."}
	RateLimited       = Kind{429, "rate_limited", TypeRate, "The server is at its limit. Retry after Retry-After."}
	RateLimitExceeded = Kind{
		429, "rate_limit_exceeded", TypeRate,
		"A limit of the key or the workspace is reached. Retry after Retry-After.",
	}
	AbuseGuard  = Kind{429, "abuse_guard", TypeRate, "The workspace started too much spending in a minute."}
	Internal    = Kind{500, "internal_error", TypeAPI, "A fault of ours; quote the request id."}
	Upstream    = Kind{502, "", TypeUpstream, "The provider failed; quote the request id."}
	Unavailable = Kind{
		503, "unavailable", TypeAPI, "Stopping, or without the database or the store of training files.",
	}
	StorageFull = Kind{
		507, "storage_full", TypeAPI, "The disk of training files is full. Nothing of the file is kept.",
	}
)

// Kinds returns all kinds in order of status. The documentation and the tests are generated from it.
func Kinds() []Kind {
	return []Kind{
		InvalidBody, InvalidParameter, UnsupportedParameter, UnknownProvider, InvalidKey, KeyExpired, NotSignedIn,
		InsufficientBalance,
		BudgetExceeded, Forbidden, ScopeNotAllowed, ModelNotAllowed, AddressNotAllowed, CrossOrigin, Missing,
		ModelNotFound, DedicatedNotFound, MethodNotAllowed, Timeout, Conflicting, LoggingDisabled, SessionNotActive,
		SessionOverbudget, StaleLease, IdempotencyConflict, QuotaExceeded, Precondition, AnchorHeld, BodyTooLarge,
		UnsupportedMedia, RateLimited, RateLimitExceeded, AbuseGuard, Internal, Upstream, Unavailable, StorageFull,
	}
}

// Name returns the code or, where that is null, the type: what metrics and spans call a refusal.
func (k Kind) Name() string { return cmp.Or(k.Code, k.Type) }

// Final reports whether every fault of the kind is final: see Fault.Final.
func (k Kind) Final() bool {
	return k.Status == 402 || k.Status == 409 || k.Status == 412 || k.Status == 500
}

// A Fault is an error whose message is sent to the caller.
type Fault struct {
	Kind
	Message      string
	Field        string        // the parameter at fault, where there is one
	ProviderCode string        // a model provider's own code, which callers see in place of the kind's
	RetryAfter   time.Duration // on 429 and 503
	Beside       any           // a struct whose members the envelope has beside error; nil for none
	Plain        string        // the refusal for callers that prefer text; "" where there is none
	final        bool
	cause        error // only for the log
}

// Error returns the message with its cause, for logs.
func (f *Fault) Error() string {
	if f.cause != nil {
		return fmt.Sprintf("%s: %v", f.Message, f.cause)
	}
	return f.Message
}

// Unwrap gives errors.Is and errors.As the cause.
func (f *Fault) Unwrap() error { return f.cause }

// New returns a fault of kind k.
func (k Kind) New(format string, args ...any) *Fault {
	return &Fault{Kind: k, Message: fmt.Sprintf(format, args...)}
}

// Because returns a fault of kind k whose cause is logged and not sent.
func (k Kind) Because(cause error, format string, args ...any) *Fault {
	f := k.New(format, args...)
	f.cause = cause
	return f
}

// maxClientWait is the longest Retry-After that OpenAI's SDKs obey. They retry after seconds where it is longer.
const maxClientWait = time.Minute

// Final reports whether a client should not retry the same request, although its SDK would by default: the kind is
// final, a retry was made and did not help, or the next try that could succeed is further away than an SDK waits.
func (f *Fault) Final() bool { return f.final || f.Kind.Final() || f.RetryAfter > maxClientWait }

// Finally makes the fault final.
func (f *Fault) Finally() *Fault {
	f.final = true
	return f
}

// In sets RetryAfter.
func (f *Fault) In(wait time.Duration) *Fault {
	f.RetryAfter = wait
	return f
}

// Invalid returns a fault for a field: Invalid("name", "must be 3 to 64 letters").
func Invalid(field, reason string) *Fault {
	return &Fault{Kind: InvalidParameter, Field: field, Message: field + " " + reason}
}

// NotFound returns the fault for an id that is not the caller's. It does not reveal whether the id exists elsewhere.
func NotFound(noun, name string) *Fault { return Missing.New("no %s %q in this workspace", noun, name) }

// Conflict returns the fault for a request that the current state does not allow.
func Conflict(format string, args ...any) *Fault { return Conflicting.New(format, args...) }

// From returns err as a caller may see it. Nil stays nil. An error that is not a Fault becomes one without details.
func From(err error) *Fault {
	var f *Fault
	switch {
	case err == nil:
		return nil
	case errors.As(err, &f):
		return f
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, context.Canceled):
		return Timeout.Because(err, "the request took too long")
	default:
		return Internal.Because(err, "internal error")
	}
}
