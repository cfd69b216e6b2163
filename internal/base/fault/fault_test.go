package fault_test

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io"
	"slices"
	"strings"
	"testing"
	"time"

	"sovereign/internal/base/fault"
)

type row struct {
	status     int
	code, kind string
}

// The contract with clients, written out: the table of docs/contract.md.
var table = []row{
	{400, "unknown_provider", "invalid_request_error"},
	{401, "invalid_api_key", "invalid_request_error"},
	{402, "insufficient_balance", "insufficient_quota"},
	{403, "insufficient_permissions", "invalid_request_error"},
	{404, "not_found", "invalid_request_error"},
	{404, "model_not_found", "invalid_request_error"},
	{404, "dedicated_endpoint_not_found", "invalid_request_error"},
	{409, "logging_disabled", "invalid_request_error"},
	{412, "precondition_failed", "invalid_request_error"},
	{502, "", "upstream_error"},

	{400, "invalid_body", "invalid_request_error"},
	{400, "invalid_parameter", "invalid_request_error"},
	{400, "unsupported_parameter", "invalid_request_error"},
	{405, "method_not_allowed", "invalid_request_error"},
	{408, "request_timeout", "api_error"},
	{409, "conflict", "invalid_request_error"},
	{409, "session_not_active", "invalid_request_error"},
	{409, "session_overbudget", "invalid_request_error"},
	{409, "idempotency_conflict", "invalid_request_error"},
	{412, "anchor_held", "invalid_request_error"},
	{413, "body_too_large", "invalid_request_error"},
	{415, "unsupported_media_type", "invalid_request_error"},
	{429, "rate_limited", "rate_limit_error"},
	{429, "abuse_guard", "rate_limit_error"},
	{401, "api_key_expired", "invalid_request_error"},
	{401, "not_signed_in", "invalid_request_error"},
	{402, "budget_exceeded", "insufficient_quota"},
	{403, "insufficient_scope", "invalid_request_error"},
	{403, "model_not_allowed", "invalid_request_error"},
	{403, "address_not_allowed", "invalid_request_error"},
	{403, "cross_origin", "invalid_request_error"},
	{409, "quota_exceeded", "invalid_request_error"},
	{409, "stale_lease", "invalid_request_error"},
	{429, "rate_limit_exceeded", "rate_limit_error"},
	{500, "internal_error", "api_error"},
	{503, "unavailable", "api_error"},
	{507, "storage_full", "api_error"},
}

func TestKindsAreTheTableOfTheContract(t *testing.T) {
	var have []row
	for _, k := range fault.Kinds() {
		have = append(have, row{k.Status, k.Code, k.Type})
		if k.When == "" {
			t.Errorf("%d %s does not say when", k.Status, k.Code)
		}
	}
	order := func(a, b row) int { return cmp.Or(cmp.Compare(a.status, b.status), cmp.Compare(a.code, b.code)) }
	want := slices.SortedFunc(slices.Values(table), order)
	slices.SortFunc(have, order)
	if !slices.Equal(have, want) {
		t.Errorf("want\n%v\ngot\n%v", want, have)
	}
}

func TestNoStatusAndCodeTwiceAndInOrderOfStatus(t *testing.T) {
	seen, last := map[string]bool{}, 0
	for _, k := range fault.Kinds() {
		pair := fmt.Sprint(k.Status, " ", k.Code)
		if seen[pair] || k.Status < last {
			t.Errorf("%s is there twice or out of order", pair)
		}
		seen[pair], last = true, k.Status
	}
}

func TestEveryKindIsInTheTable(t *testing.T) {
	file, err := parser.ParseFile(token.NewFileSet(), "fault.go", nil, parser.SkipObjectResolution)
	if err != nil {
		t.Fatal(err)
	}
	declared := 0
	ast.Inspect(file, func(n ast.Node) bool {
		literal, ok := n.(*ast.CompositeLit)
		if !ok {
			return true
		}
		if name, ok := literal.Type.(*ast.Ident); ok && name.Name == "Kind" {
			declared++
		}
		return true
	})
	if declared != len(fault.Kinds()) {
		t.Errorf("%d kinds are declared and Kinds lists %d", declared, len(fault.Kinds()))
	}
}

func TestNoMoneyConflictsPreconditionsAndInternalErrorsAreFinal(t *testing.T) {
	for _, k := range fault.Kinds() {
		if want := slices.Contains([]int{402, 409, 412, 500}, k.Status); k.Final() != want || k.New("x").Final() != want {
			t.Errorf("%d %s: final = %v", k.Status, k.Code, k.Final())
		}
	}
}

// The SDKs of OpenAI ignore a Retry-After of more than a minute, and would retry after a second.
func TestAFaultIsFinalWhenARetryDidNotHelpOrIsFarAway(t *testing.T) {
	if f := fault.Upstream.New("x"); f.Final() || !f.Finally().Final() || fault.Upstream.Final() {
		t.Error("a provider's failure is final only where it is said to be")
	}
	for wait, want := range map[time.Duration]bool{0: false, time.Minute: false, time.Minute + 1: true, time.Hour: true} {
		if f := fault.RateLimited.New("x").In(wait); f.Final() != want {
			t.Errorf("in %v: final = %v", wait, f.Final())
		}
	}
}

func TestAnErrorThatIsNotAFaultRevealsNothing(t *testing.T) {
	cause := fmt.Errorf("select password from users: %w", io.ErrUnexpectedEOF)
	f := fault.From(cause)
	if f.Kind != fault.Internal || strings.Contains(f.Message, "password") || f.Field != "" {
		t.Errorf("a caller sees %+v", f)
	}
	if !errors.Is(f, io.ErrUnexpectedEOF) || !strings.Contains(f.Error(), "password") {
		t.Errorf("the log sees %v", f)
	}
}

func TestAnEndedContextIsATimeoutWithoutDetails(t *testing.T) {
	for _, cause := range []error{context.DeadlineExceeded, context.Canceled} {
		f := fault.From(fmt.Errorf("canary: %w", cause))
		if f.Kind != fault.Timeout || strings.Contains(f.Message, "canary") {
			t.Errorf("%v: a caller sees %+v", cause, f)
		}
	}
}

func TestFromFindsAWrappedFault(t *testing.T) {
	refusal := fault.NotFound("key", "key_1")
	for _, err := range []error{
		refusal,
		fmt.Errorf("revoke: %w", refusal),
		fmt.Errorf("tx: %w", fmt.Errorf("revoke: %w", refusal)),
		errors.Join(errors.New("rollback"), refusal),
		errors.Join(context.Canceled, fmt.Errorf("revoke: %w", refusal)),
	} {
		if got := fault.From(err); got != refusal {
			t.Errorf("%v: got %v", err, got)
		}
	}
	if fault.From(nil) != nil {
		t.Error("nil is a refusal")
	}
}

func TestTheCauseIsLoggedAndNotSent(t *testing.T) {
	cause := errors.New("canary")
	f := fault.Unavailable.Because(cause, "the database is not available").In(time.Second)
	if strings.Contains(f.Message, "canary") || !strings.Contains(f.Error(), "canary") || !errors.Is(f, cause) || f.RetryAfter != time.Second {
		t.Errorf("%+v", f)
	}
}

func TestAnInvalidFieldIsNamed(t *testing.T) {
	f := fault.Invalid("name", "must be short")
	if f.Kind != fault.InvalidParameter || f.Field != "name" || f.Message != "name must be short" {
		t.Errorf("%+v", f)
	}
}
