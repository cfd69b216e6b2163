package alias_test

import (
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/go-json-experiment/json"

	"sovereign/internal/alias"
	"sovereign/internal/api"
	"sovereign/internal/apikey"
	"sovereign/internal/edge"
	"sovereign/internal/live"
	"sovereign/internal/tenant"
)

// A desk answers requests as the server would, for a caller of each kind.
type desk struct {
	handler              http.Handler
	owner, member, other string
}

func (r room) desk(t *testing.T) desk {
	t.Helper()
	dir, bounds, log := live.NewDirectory(), edge.NewBounds(), slog.New(slog.DiscardHandler)
	bounds.Body.Store(64 << 10)
	bounds.Buffered.Set(1 << 20)
	bounds.Operations.Set(8)
	bounds.Timeout.Store(int64(10 * time.Second))
	mint := func(ws tenant.ID, role tenant.Role) string {
		key, digest, _ := apikey.New()
		user := tenant.UserID("usr_" + role)
		dir.PutKey(digest, live.Key{ID: tenant.KeyID("key_" + role), Workspace: ws, User: user})
		dir.PutMember(live.Member{Workspace: ws, User: user}, role)
		return key.Reveal()
	}
	routes := alias.NewHandler(r.Store, func() *live.Catalog { return catalog }, live.NewKeyring()).Routes()
	router, err := api.NewRouter(api.Config{DB: r.db, Feed: r.feed, Bounds: bounds, Log: log}, routes)
	if err != nil {
		t.Fatal(err)
	}
	return desk{
		handler: edge.New(edge.Config{Directory: dir, Bounds: bounds, Log: log}, router),
		owner:   mint(mine, tenant.Owner), member: mint(mine, tenant.Member), other: mint(theirs, tenant.Admin),
	}
}

// ask is the status and the body of the answer, its times and ids reduced to their shape.
func (d desk) ask(t *testing.T, key, method, path, body string) (int, string) {
	t.Helper()
	request := httptest.NewRequestWithContext(t.Context(), method, path, strings.NewReader(body))
	request.Header.Set("Authorization", "Bearer "+key)
	recorder := httptest.NewRecorder()
	d.handler.ServeHTTP(recorder, request)
	text, err := io.ReadAll(recorder.Result().Body)
	if err != nil {
		t.Fatal(err)
	}
	return recorder.Code, shape.ReplaceAllString(strings.TrimSpace(string(text)), "X")
}

var shape = regexp.MustCompile(`\d{4}-\d\d-\d\dT[0-9:.]+Z|\b(req|aud)_[0-9a-z]{26}\b`)

func (d desk) wants(t *testing.T, key, method, path, body string, status int, answer string) {
	t.Helper()
	if got, text := d.ask(t, key, method, path, body); got != status || text != answer {
		t.Errorf("%s %s %s: want %d %s, got %d %s", method, path, body, status, answer, got, text)
	}
}

func (d desk) refuses(t *testing.T, key, method, path, body string, status int, code, param string) {
	t.Helper()
	got, text := d.ask(t, key, method, path, body)
	var answer struct {
		Error struct{ Message, Code, Param string } `json:"error"`
	}
	err := json.Unmarshal([]byte(text), &answer, json.MatchCaseInsensitiveNames(true))
	if err != nil || got != status || answer.Error.Code != code || answer.Error.Param != param || !strings.Contains(answer.Error.Message, param) {
		t.Errorf("%s %s %s: want %d %s of %q, got %d %s", method, path, body, status, code, param, got, text)
	}
}

const (
	least = `{"object":"alias","name":"support","target_model":"sim/chat","description":"","canary_model":"","canary_percent":0,"fallback_models":[],"created_at":"X","updated_at":"X"}`
	most  = `{"object":"alias","name":"support","target_model":"sim/c","description":"d","canary_model":"sim/chat","canary_percent":5,"fallback_models":["sim/d","sim/chat"],"created_at":"X","updated_at":"X"}`
)

func TestTheLifeOfAnAliasOnTheWire(t *testing.T) {
	each(t, func(t *testing.T, r room) {
		d := r.desk(t)
		d.wants(t, d.member, "GET", "/v1/aliases", "", 200, `{"object":"list","data":[],"has_more":false}`)
		d.wants(t, d.owner, "PUT", "/v1/aliases", `{"name":"support","target_model":"sim/chat"}`, 200, least)
		d.wants(t, d.owner, "PUT", "/v1/aliases", `{"name":"support","target_model":"sim/c","description":"d","canary_model":"sim/chat","canary_percent":5,"fallback_models":["sim/d","sim/chat"]}`, 200, most)
		d.wants(t, d.member, "GET", "/v1/aliases/support", "", 200, most)
		d.wants(t, d.owner, "PUT", "/v1/aliases", `{"name":"support","target_model":"sim/chat","description":null,"canary_model":null,"canary_percent":null,"fallback_models":null}`, 200, least)
		d.wants(t, d.member, "GET", "/v1/aliases?limit=1", "", 200, `{"object":"list","data":[`+least+`],"has_more":false}`)
		d.wants(t, d.owner, "DELETE", "/v1/aliases/support", "", 200, `{"id":"support","object":"alias","deleted":true}`)
		d.refuses(t, d.owner, "DELETE", "/v1/aliases/support", "", 404, "not_found", "")
		d.refuses(t, d.member, "GET", "/v1/aliases/support", "", 404, "not_found", "")
		entry := func(action, before, after string) string {
			return `{"id":"X","object":"audit_entry","at":"X","actor":{"kind":"key","user_id":"usr_owner","key_id":"key_owner"},"request_id":"X","action":"` + action + `","subject":"support","before":` + before + `,"after":` + after + `}`
		}
		d.wants(t, d.member, "GET", "/v1/aliases/support/history?limit=2", "", 200,
			`{"object":"list","data":[`+entry("alias.delete", least, "null")+`,`+entry("alias.put", most, least)+`],"has_more":true}`)
		d.wants(t, d.member, "GET", "/v1/aliases/support/history?limit=2&offset=2", "", 200,
			`{"object":"list","data":[`+entry("alias.put", least, most)+`,`+entry("alias.put", "null", least)+`],"has_more":false}`)
		d.refuses(t, d.member, "GET", "/v1/aliases/never/history", "", 404, "not_found", "")
	})
}

func TestARefusedPutChangesNothing(t *testing.T) {
	each(t, func(t *testing.T, r room) {
		d := r.desk(t)
		d.wants(t, d.owner, "PUT", "/v1/aliases", `{"name":"support","target_model":"sim/chat"}`, 200, least)
		for body, field := range map[string]string{
			`{"target_model":"sim/c"}`:                                                                   "name",
			`{"name":"support"}`:                                                                         "target_model",
			`{"name":"support","target_model":null}`:                                                     "target_model",
			`{"name":"support","target_model":"sim/none"}`:                                               "target_model",
			`{"name":"support","target_model":"dedicated/x"}`:                                            "target_model",
			`{"name":"plain-model","target_model":"sim/c"}`:                                              "name",
			`{"name":"support","target_model":"sim/c","canary_percent":1}`:                               "canary_model",
			`{"name":"support","target_model":"sim/c","canary_model":"sim/d","canary_percent":1.5}`:      "canary_percent",
			`{"name":"support","target_model":"sim/c","canary_model":"sim/d","canary_percent":"5"}`:      "canary_percent",
			`{"name":"support","target_model":"sim/c","canary_model":"sim/d","canary_percent":1e30}`:     "canary_percent",
			`{"name":"support","target_model":"sim/c","canary_model":"sim/embedding"}`:                   "canary_model",
			`{"name":"support","target_model":"sim/c","fallback_models":["sim/d","sim/d"]}`:              "fallback_models[1]",
			`{"name":"support","target_model":"sim/c","fallback_models":["sim/d",7]}`:                    "fallback_models[1]",
			`{"name":"support","target_model":"sim/c","fallback_models":"sim/d"}`:                        "fallback_models",
			`{"name":"support","target_model":"sim/c","gate":{}}`:                                        "gate",
			`{"name":"support","target_model":"sim/c","created_at":"2026-01-02T03:04:05Z"}`:              "created_at",
			`{"name":"support","target_model":"sim/c","description":"` + strings.Repeat("d", 501) + `"}`: "description",
		} {
			d.refuses(t, d.owner, "PUT", "/v1/aliases", body, 400, "invalid_parameter", field)
		}
		for _, field := range []string{"gate_criterion_id", "gate_mode", "gate_min_samples", "gate_rollback_threshold", "gate_window_hours", "gate_sample_percent"} {
			for _, value := range []string{`"crit_1"`, `0`, `null`, `{"a":[1]}`} {
				d.refuses(t, d.owner, "PUT", "/v1/aliases", `{"name":"support","target_model":"sim/c","`+field+`":`+value+`}`, 400, "unsupported_parameter", field)
			}
		}
		d.refuses(t, d.member, "PUT", "/v1/aliases", `{"name":"support","target_model":"sim/c"}`, 403, "insufficient_permissions", "")
		d.refuses(t, d.member, "DELETE", "/v1/aliases/support", "", 403, "insufficient_permissions", "")
		d.wants(t, d.owner, "GET", "/v1/aliases", "", 200, `{"object":"list","data":[`+least+`],"has_more":false}`)
		if entries := r.history(t, mine, "support"); len(entries) != 1 || r.target(mine, "support") != "sim/chat" {
			t.Errorf("routes to %s after %v", r.target(mine, "support"), entries)
		}
	})
}

func TestAnotherWorkspacesAliasIsNotFoundOnAnyRoute(t *testing.T) {
	each(t, func(t *testing.T, r room) {
		d := r.desk(t)
		d.wants(t, d.owner, "PUT", "/v1/aliases", `{"name":"support","target_model":"sim/chat"}`, 200, least)
		d.refuses(t, d.other, "GET", "/v1/aliases/support", "", 404, "not_found", "")
		d.refuses(t, d.other, "DELETE", "/v1/aliases/support", "", 404, "not_found", "")
		d.refuses(t, d.other, "GET", "/v1/aliases/support/history", "", 404, "not_found", "")
		d.wants(t, d.other, "GET", "/v1/aliases", "", 200, `{"object":"list","data":[],"has_more":false}`)
		d.wants(t, d.owner, "GET", "/v1/aliases/support", "", 200, least)
	})
}
