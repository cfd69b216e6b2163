package apitest

import (
	"encoding/json"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"sovereign/internal/base/apikey"
	"sovereign/internal/base/tenant"
	"sovereign/internal/live"
	"sovereign/internal/plane/edge"
	"sovereign/internal/store/api"
	"sovereign/internal/store/db"
	"sovereign/internal/store/feed"
)

// A Desk answers requests to one domain's routes as the server would, for a caller of each kind.
type Client struct {
	Owner, Member string // keys of the workspace
	Other         string // of an admin of another

	handler http.Handler
	shape   func(string) string
}

// NewDesk serves routes to two workspaces. shape reduces what differs from run to run in an answer, such as times and ids.
func NewClient(t *testing.T, d *db.DB, f *feed.Feed, mine, theirs tenant.ID, routes []api.Route, shape func(string) string) Client {
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
	router, err := api.NewRouter(api.Config{DB: d, Feed: f, Bounds: bounds, Log: log}, routes)
	if err != nil {
		t.Fatal(err)
	}
	return Client{
		Owner: mint(mine, tenant.Owner), Member: mint(mine, tenant.Member), Other: mint(theirs, tenant.Admin),
		handler: edge.New(edge.Config{Directory: dir, Bounds: bounds, Log: log}, router), shape: shape,
	}
}

// Do asks with a key; headers are names and values in turn.
func (d Client) Do(t *testing.T, key, method, path, body string, headers ...string) *httptest.ResponseRecorder {
	t.Helper()
	request := httptest.NewRequestWithContext(t.Context(), method, path, strings.NewReader(body))
	request.Header.Set("Authorization", "Bearer "+key)
	for i := 0; i < len(headers); i += 2 {
		request.Header.Set(headers[i], headers[i+1])
	}
	recorder := httptest.NewRecorder()
	d.handler.ServeHTTP(recorder, request)
	return recorder
}

// Ask is the status and the body of the answer, reduced to its shape.
func (d Client) Ask(t *testing.T, key, method, path, body string, headers ...string) (int, string) {
	t.Helper()
	recorder := d.Do(t, key, method, path, body, headers...)
	text, err := io.ReadAll(recorder.Result().Body)
	if err != nil {
		t.Fatal(err)
	}
	return recorder.Code, d.shape(strings.TrimSpace(string(text)))
}

// Wants fails the test unless the answer is this one.
func (d Client) Wants(t *testing.T, key, method, path, body string, status int, answer string) {
	t.Helper()
	if got, text := d.Ask(t, key, method, path, body); got != status || text != answer {
		t.Errorf("%s %s %s: want %d\n%s\ngot %d\n%s", method, path, body, status, answer, got, text)
	}
}

// Refuses fails the test unless the answer is a refusal of that code, which names the parameter.
func (d Client) Refuses(t *testing.T, key, method, path, body string, status int, code, param string) {
	t.Helper()
	got, text := d.Ask(t, key, method, path, body)
	var answer struct {
		Error struct{ Message, Code, Param string } `json:"error"`
	}
	err := json.Unmarshal([]byte(text), &answer)
	if err != nil || got != status || answer.Error.Code != code || answer.Error.Param != param || !strings.Contains(answer.Error.Message, param) {
		t.Errorf("%s %s %s: want %d %s of %q, got %d %s", method, path, body, status, code, param, got, text)
	}
}
