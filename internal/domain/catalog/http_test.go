package catalog_test

import (
	"log/slog"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/go-json-experiment/json"

	"sovereign/internal/base/apikey"
	"sovereign/internal/base/clock"
	"sovereign/internal/base/tenant"
	"sovereign/internal/domain/catalog"
	"sovereign/internal/live"
	"sovereign/internal/plane/edge"
	"sovereign/internal/store/api"
)

// asked is the answer to a member of some workspace.
func asked(t *testing.T, c *live.Catalog, path string) (int, string) {
	t.Helper()
	return askedWith(t, c, live.NewAliases(), path)
}

func askedWith(t *testing.T, c *live.Catalog, aliases *live.Aliases, path string) (int, string) {
	t.Helper()
	return askedOf(t, live.Models{Catalog: c, Own: live.NewOwnModels(), Keys: live.NewKeyring()}, aliases, path)
}

func askedOf(t *testing.T, models live.Models, aliases *live.Aliases, path string) (int, string) {
	t.Helper()
	dir, bounds, log := live.NewDirectory(), edge.NewBounds(), slog.New(slog.DiscardHandler)
	bounds.Buffered.Set(1 << 20)
	bounds.Operations.Set(8)
	bounds.Timeout.Store(int64(10 * time.Second))
	key, digest, _ := apikey.New()
	dir.PutKey(digest, live.Key{ID: "key_1", Workspace: "ws_1", User: "usr_1"})
	dir.PutMember(live.Member{Workspace: "ws_1", User: "usr_1"}, tenant.Member)
	router, err := api.NewRouter(api.Config{Bounds: bounds, Log: log}, catalog.NewHandler(func() live.Models { return models }, aliases).Routes())
	if err != nil {
		t.Fatal(err)
	}
	request := httptest.NewRequestWithContext(t.Context(), http.MethodGet, path, nil)
	request.Header.Set("Authorization", "Bearer "+key.Reveal())
	recorder := httptest.NewRecorder()
	edge.New(edge.Config{Directory: dir, Bounds: bounds, Log: log}, router).ServeHTTP(recorder, request)
	return recorder.Code, strings.TrimSpace(recorder.Body.String())
}

const small = `{"id":"up/small","object":"model","created":1767225600,"owned_by":"up","kind":"chat","context_window":128000,"max_output_tokens":4096,` +
	`"price":{"input_per_mtok_usd":0.15,"cached_input_per_mtok_usd":0.15,"written_input_per_mtok_usd":0.15,"audio_input_per_mtok_usd":0.15,` +
	`"output_per_mtok_usd":0.6,"reasoning_per_mtok_usd":0.6,"audio_output_per_mtok_usd":0.6,"search_per_million_usd":0},"simulated":false}`

func TestAModelOnTheWire(t *testing.T) {
	c := good(t, provider+"    api_key: sk-canary\n"+model+"  - {id: up/a/b, provider: up, upstream_model: hidden, context_window: 9, max_output_tokens: 8, price: {input_per_mtok_usd: 0, output_per_mtok_usd: 0}}\n")
	if status, body := asked(t, c, "/v1/models/up/small"); status != http.StatusOK || body != small {
		t.Errorf("%d %s\nwant %s", status, body, small)
	}
	for path, want := range map[string]string{"/v1/models/up/a/b": `"id":"up/a/b"`, "/api/v1/models/up/small": `"id":"up/small"`, "/v1/models/sim/chat": `"simulated":true`, "/v1/models/sim/embedding": `"kind":"embedding"`} {
		if status, body := asked(t, c, path); status != http.StatusOK || !strings.Contains(body, want) {
			t.Errorf("%s: %d %s", path, status, body)
		}
	}
	callable := 0
	for _, m := range c.Models() {
		if m.Provider.Configured {
			callable++
		}
	}
	status, body := asked(t, c, "/v1/models")
	var list struct {
		Object string               `json:"object"`
		Data   []catalog.ModelEntry `json:"data"`
	}
	if err := json.Unmarshal([]byte(body), &list); err != nil || status != http.StatusOK || list.Object != "list" || len(list.Data) != callable {
		t.Errorf("%d %s %v", status, body, err)
	}
	for i, m := range list.Data {
		if m.Object != "model" || i > 0 && list.Data[i-1].ID >= m.ID {
			t.Errorf("%+v is not in its place", m)
		}
	}
	if !strings.HasPrefix(body, `{"object":"list","data":[{"id":`) || !strings.Contains(body, small) {
		t.Error(body)
	}
	for _, hidden := range []string{"sk-canary", "hidden", "api.example.com"} {
		if strings.Contains(body, hidden) {
			t.Errorf("%s is shown", hidden)
		}
	}
}

func TestAnAliasIsAModelOfItsWorkspaceAlone(t *testing.T) {
	c := good(t, provider+"    api_key: sk-canary\n"+model+"  - {id: bare, provider: up, context_window: 9, max_output_tokens: 8, price: {input_per_mtok_usd: 0, output_per_mtok_usd: 0}}\n")
	aliases := live.NewAliases()
	for _, alias := range []live.Alias{
		{Name: "prod", Target: "up/small", Created: clock.Of(time.Unix(1_800_000_000, 0))},
		{Name: "backed", Target: "up/gone", Fallbacks: []string{"up/gone-too", "sim/chat"}},
		{Name: "lost", Target: "up/gone"},  // nothing answers to it
		{Name: "bare", Target: "sim/chat"}, // the catalog has that id since
	} {
		aliases.Put("ws_1", &alias)
	}
	aliases.Put("ws_2", &live.Alias{Name: "theirs", Target: "up/small"})
	prod := strings.NewReplacer(`"up/small"`, `"prod"`, "1767225600", "1800000000", `"owned_by":"up"`, `"owned_by":"ws_1"`,
		`"simulated":false`, `"simulated":false,"target_model":"up/small"`).Replace(small)
	if status, body := askedWith(t, c, aliases, "/v1/models/prod"); status != http.StatusOK || body != prod {
		t.Errorf("%d %s\nwant %s", status, body, prod)
	}
	for name, want := range map[string]string{
		"backed": `"target_model":"sim/chat"`, "bare": `"owned_by":"up"`, "lost": `"code":"model_not_found"`, "theirs": `"code":"model_not_found"`,
	} {
		if _, body := askedWith(t, c, aliases, "/v1/models/"+name); !strings.Contains(body, want) {
			t.Errorf("%s: %s", name, body)
		}
	}
	_, body := askedWith(t, c, aliases, "/v1/models")
	var list catalog.ModelList
	if err := json.Unmarshal([]byte(body), &list); err != nil {
		t.Fatal(err)
	}
	var owned []string
	seen := map[string]int{}
	for _, m := range list.Data {
		if seen[m.ID]++; m.OwnedBy == "ws_1" {
			owned = append(owned, m.ID)
		}
	}
	if !slices.Equal(owned, []string{"backed", "prod"}) || seen["bare"] != 1 || seen["theirs"] > 0 || !strings.Contains(body, prod) {
		t.Errorf("%v are the workspace's in\n%s", owned, body)
	}
}

func TestAMissingModelSaysWhatIsMissing(t *testing.T) {
	c := good(t, provider+model)
	for path, want := range map[string]struct {
		status int
		code   string
	}{
		"/v1/models/up/none":      {http.StatusNotFound, "model_not_found"},
		"/v1/models/none":         {http.StatusNotFound, "model_not_found"},
		"/v1/models/other/m":      {http.StatusBadRequest, "unknown_provider"},
		"/v1/models/dedicated/m":  {http.StatusNotFound, "dedicated_endpoint_not_found"},
		"/v1/models/endpoint/m":   {http.StatusNotFound, "model_not_found"},
		"/v1/models/UP/small":     {http.StatusBadRequest, "unknown_provider"},
		"/v1/models/up/small%00x": {http.StatusNotFound, "model_not_found"},
	} {
		if status, body := asked(t, c, path); status != want.status || !strings.Contains(body, `"code":"`+want.code+`"`) {
			t.Errorf("%s: %d %s, want %d %s", path, status, body, want.status, want.code)
		}
	}
}

func TestOwnModelsAreListedForTheirWorkspaceAlone(t *testing.T) {
	own := live.NewOwnModels()
	for _, ws := range []tenant.ID{"ws_1", "ws_2"} {
		own.Put(ws, &live.Model{ID: "ft/" + string(ws), Provider: live.Engines, Kind: live.Chat, Engines: "pool"})
	}
	models := live.Models{Catalog: live.NewCatalog(nil, nil), Own: own, Keys: live.NewKeyring()}
	status, body := askedOf(t, models, live.NewAliases(), "/v1/models")
	if status != http.StatusOK || !strings.Contains(body, `"id":"ft/ws_1","object":"model","created":0,"owned_by":"ws_1"`) || strings.Contains(body, "ws_2") {
		t.Errorf("%d %s", status, body)
	}
	for path, want := range map[string]int{"/v1/models/ft/ws_1": 200, "/v1/models/ft/ws_2": 404, "/v1/models/dedicated/x": 404} {
		if status, body := askedOf(t, models, live.NewAliases(), path); status != want {
			t.Errorf("%s: %d %s", path, status, body)
		}
	}
}
