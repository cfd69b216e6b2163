package app

import (
	"net/http"
	"net/http/httptest"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"sovereign/internal/base/clock"
	"sovereign/internal/base/tenant"
	"sovereign/internal/domain/workspace"
	"sovereign/internal/store/api"
)

// A key whose scope is inference opens what it needs to call models, and nothing else, whatever its user's role is.
func TestAnInferenceKeyOpensInferenceAlone(t *testing.T) {
	eachInstance(t, func(t *testing.T, i *instance) {
		ws, _ := addCallers(t, i)
		scope := workspace.ScopeInference
		_, text, err := i.domains.workspaces.MintKey(t.Context(), ws, tenant.Operator, "owner@one.test", "x", &workspace.LimitsChange{Scope: &scope})
		if err != nil {
			t.Fatal(err)
		}
		wildcard := regexp.MustCompile(`\{[^}]*\}`)
		var open []string
		for _, route := range i.routers.routes {
			if route.Permission != api.Reader && route.Permission != api.Admin {
				continue
			}
			request := httptest.NewRequestWithContext(t.Context(), route.Method, wildcard.ReplaceAllString(route.Pattern(), "some-id"), strings.NewReader("{}"))
			request.Header.Set("Authorization", "Bearer "+text.Reveal())
			recorder := httptest.NewRecorder()
			i.routers.public.ServeHTTP(recorder, request)
			if recorder.Code != http.StatusForbidden || !strings.Contains(recorder.Body.String(), `"code":"insufficient_scope"`) {
				open = append(open, route.Method+" "+route.Pattern())
			}
		}
		slices.Sort(open)
		want := []string{
			"GET /v1/models", "GET /v1/models/{id...}", "GET /v1/setup/status", "POST /v1/chat/completions", "POST /v1/embeddings",
			"POST /v1/rerank", "POST /v1/responses", "POST /v2/rerank",
		}
		if !slices.Equal(open, want) {
			t.Errorf("it opens %q", open)
		}
	})
}

func TestAnExpiryIsADurationADateOrATime(t *testing.T) {
	now := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	for text, want := range map[string]string{
		"90d": "2026-05-30T12:00:00.000Z", "12h": "2026-03-02T00:00:00.000Z", "2027-01-31": "2027-01-31T00:00:00.000Z",
		"2027-01-31T10:00:00+02:00": "2027-01-31T08:00:00.000Z", "never": "",
		"": "error", "d": "error", "-1d": "error", "0d": "error", "-5h": "error", "soon": "error",
	} {
		at, err := parseExpiry(text, now)
		got := ""
		switch {
		case err != nil:
			got = "error"
		case at != nil:
			got = at.String()
		}
		if got != want {
			t.Errorf("%q: %s, want %s", text, got, want)
		}
	}
}

func TestBudgetsAndNamesAreReadFromTheCommandLine(t *testing.T) {
	var day, month budget
	if day.UnmarshalText([]byte("5.5/day")) != nil || month.UnmarshalText([]byte("100/month")) != nil || day.month || !month.month || day.amount.String() != "5.5" {
		t.Error(day, month)
	}
	for _, text := range []string{"5", "5/week", "/day", "five/day"} {
		if new(budget).UnmarshalText([]byte(text)) == nil {
			t.Errorf("%q is a budget", text)
		}
	}
	var names nameList
	if _ = names.UnmarshalText([]byte("a,b*")); !slices.Equal(names, nameList{"a", "b*"}) {
		t.Error(names)
	}
	if _ = names.UnmarshalText([]byte("any")); names == nil || len(names) > 0 {
		t.Error(names)
	}
}

// The table of keys fits 120 columns, whatever the names and the limits are.
func TestTheTableOfKeysFits120Columns(t *testing.T) {
	long := strings.Repeat("é", 64)
	at := clock.Now()
	key := workspace.Key{ID: "key_06gxtc7yxksehgndzw4964jewg", Name: long, Email: long + "@example.test", Hint: "abcd", LastUsedAt: &at, RevokedAt: &at}
	key.Limits = workspace.Limits{
		RequestsPerMinute: 1e12, TokensPerMinute: 1e12, Concurrency: 1e12, BudgetDay: 1<<63 - 1, BudgetMonth: 1<<63 - 1, Scope: workspace.ScopeInference,
		Models: slices.Repeat(workspace.Names{strings.Repeat("m", 256), "sim/chat"}, 5), ExpiresAt: &at, AllowedAddresses: slices.Repeat(workspace.Names{"2001:db8:ffff:ffff::/64"}, 9),
	}
	text := keyLines(&key)
	for line := range strings.SplitSeq(text, "\n") {
		if n := len([]rune(line)); n > tableWidth {
			t.Errorf("%d columns: %s", n, line)
		}
	}
	for _, part := range []string{"1000000000000 requests/minute", "inference only", "until ", "from 2001:db8:ffff:ffff::/64", "model sim/chat", "revoked"} {
		if !strings.Contains(text, part) {
			t.Errorf("%q is not in\n%s", part, text)
		}
	}
}
