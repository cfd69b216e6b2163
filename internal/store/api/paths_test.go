package api_test

import (
	"context"
	"io"
	"net/http"
	"strings"
	"testing"

	"sovereign/internal/base/tenant"
	"sovereign/internal/store/api"
)

type model struct {
	ID string `path:"id"`
}

// pathRoutes are routes of the kinds that callers mistake for each other.
func pathRoutes() []api.Route {
	answer := func(text string) func(http.ResponseWriter, *http.Request) error {
		return func(w http.ResponseWriter, _ *http.Request) error {
			_, err := io.WriteString(w, text)
			return err
		}
	}
	return []api.Route{
		api.Raw[thing, thing]("/chat/completions", api.Reader, answer("chat"), "x"),
		api.Raw[thing, thing]("/rerank", api.Reader, answer("first"), "x"),
		api.Raw[thing, thing]("/rerank", api.Reader, answer("second"), "x", api.Version2),
		api.Get("/models/{id...}", api.Reader, func(context.Context, tenant.Caller, model) (thing, error) { return thing{}, nil }, "x"),
		api.Get("/healthz", api.Public, nothing, "x"),
	}
}

func TestAMissingPathIsNamedWithTheOneThatWasMeant(t *testing.T) {
	f := newFrame(t, sqlite(t), nil, pathRoutes()...)
	const chat = "/v1/chat/completions"
	for path, want := range map[string]string{
		"/chat/completions":                     chat, // a base URL without the version
		"/v1/v1/chat/completions":               chat, // and with it twice
		"/api/chat/completions":                 chat,
		"/openai/v1/chat/completions":           chat,
		"/v1/chat/completions/chat/completions": chat,
		"/v1/chat/completions/":                 chat,
		"/V1/chat/completions":                  chat,
		"//v1/chat/completions":                 chat,
		"/v1//chat/completions":                 chat,
		"/models/up/small":                      "/v1/models/up/small",
		"/v1/healthz":                           "/healthz",
		"/v2/chat/completions":                  chat,
		"/v1/completions":                       "",
		"/nothing":                              "",
		"/v2":                                   "",
	} {
		got := f.ask(t, "POST", path, "{}")
		code, _, message := got.refusal(t)
		expected := "no such path: " + path
		if want != "" {
			expected += "; did you mean " + want + "?"
		}
		if got.status != http.StatusNotFound || code != "not_found" || message != expected {
			t.Errorf("%s: %d %s, want %s", path, got.status, got.body, expected)
		}
	}
	long := f.ask(t, "POST", "/"+strings.Repeat("a/", 4000)+"chat/completions", "{}")
	if long.status != http.StatusNotFound || len(long.body) > 500 {
		t.Errorf("%d, and %d bytes", long.status, len(long.body))
	}
}

// Without a key, what exists and what does not look the same below /v1 and /v2.
func TestWithoutAKeyNoPathBelowAVersionIsSuggested(t *testing.T) {
	f := newFrame(t, sqlite(t), nil, pathRoutes()...)
	for _, path := range []string{"/v1/v1/chat/completions", "/v2/rerank", "/v2/nothing", "/v2", "/api/v2/rerank", "/api/v2", "/v1/healthz"} {
		if got := f.ask(t, "POST", path, "{}", "Authorization", "Bearer nonsense"); got.status != http.StatusUnauthorized || strings.Contains(got.body, "mean") {
			t.Errorf("%s: %d %s", path, got.status, got.body)
		}
	}
}

func TestTheSecondVersionIsBesideTheFirst(t *testing.T) {
	f := newFrame(t, sqlite(t), nil, pathRoutes()...)
	for path, want := range map[string]string{"/v1/rerank": "first", "/api/v1/rerank": "first", "/v2/rerank": "second", "/api/v2/rerank": "second"} {
		if got := f.ask(t, "POST", path, "{}"); got.status != http.StatusOK || got.body != want {
			t.Errorf("%s: %d %s", path, got.status, got.body)
		}
	}
	spec := f.ask(t, "GET", "/openapi.json", "").body
	if !strings.Contains(spec, `"/v2/rerank"`) || strings.Count(spec, `"operationId":"post-rerank"`) != 1 || !strings.Contains(spec, `"operationId":"post-v2-rerank"`) {
		t.Error(spec)
	}
}

func TestTheRootLeadsToTheDocumentation(t *testing.T) {
	f := newFrame(t, sqlite(t), nil, pathRoutes()...)
	ask := func(method, accept string) *http.Response {
		request, err := http.NewRequestWithContext(t.Context(), method, f.url+"/", http.NoBody)
		if err != nil {
			t.Fatal(err)
		}
		request.Header.Set("Accept", accept)
		response, err := http.DefaultTransport.RoundTrip(request)
		if err != nil {
			t.Fatal(err)
		}
		_ = response.Body.Close()
		return response
	}
	browser := ask("GET", "text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8")
	if browser.StatusCode != http.StatusFound || browser.Header.Get("Location") != "/docs" {
		t.Errorf("a browser: %d %v", browser.StatusCode, browser.Header)
	}
	for _, other := range []*http.Response{ask("GET", "*/*"), ask("POST", "text/html")} {
		if other.StatusCode != http.StatusNotFound || other.Header.Get("Location") != "" {
			t.Errorf("%d %v", other.StatusCode, other.Header)
		}
	}
	if got := f.ask(t, "GET", "/", ""); !strings.Contains(got.body, "described at /docs") {
		t.Error(got.body)
	}
}
