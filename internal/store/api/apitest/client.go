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

// A Client calls one domain's routes as the server would serve them, as a caller of each kind.
type Client struct {
	Owner, Member string // keys of the workspace
	Other         string // of an admin of another workspace
	Cookies       Cookies

	Directory *live.Directory // of the roles of Cookies, and
	Sessions  *live.Sessions  // their sessions: a test may end them

	workspace tenant.ID
	handler   http.Handler
	shape     func(string) string
}

// NewClient serves routes to two workspaces. shape removes from an answer what differs from run to run, such as times
// and ids.
func NewClient(
	t *testing.T, d *db.DB, f *feed.Feed, mine, theirs tenant.ID, routes []api.Route, shape func(string) string,
) Client {
	t.Helper()
	dir, bounds, log := live.NewDirectory(), edge.NewBounds(), slog.New(slog.DiscardHandler)
	bounds.Body.Store(64 << 10)
	bounds.Buffered.Set(1 << 20)
	bounds.Operations.Set(8)
	bounds.Timeout.Store(int64(time.Minute))
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
	sessions := live.NewSessions()
	config := edge.Config{
		Directory: dir, Bounds: bounds, Log: log,
		Dashboard: &edge.Dashboard{Sessions: sessions, Visitor: router.Visitor},
	}
	return Client{
		Owner: mint(mine, tenant.Owner), Member: mint(mine, tenant.Member), Other: mint(theirs, tenant.Admin),
		Cookies: newCookies(t, dir, sessions, mine, theirs), Directory: dir, Sessions: sessions, workspace: mine,
		handler: edge.New(config, router), shape: shape,
	}
}

// Do sends a request with a key; headers are names and values in turn.
func (c Client) Do(t *testing.T, key, method, path, body string, headers ...string) *httptest.ResponseRecorder {
	t.Helper()
	request := httptest.NewRequestWithContext(t.Context(), method, path, strings.NewReader(body))
	request.Header.Set("Authorization", "Bearer "+key)
	for i := 0; i < len(headers); i += 2 {
		request.Header.Set(headers[i], headers[i+1])
	}
	recorder := httptest.NewRecorder()
	c.handler.ServeHTTP(recorder, request)
	return recorder
}

// Ask returns the status and the body of the answer, after shape.
func (c Client) Ask(t *testing.T, key, method, path, body string, headers ...string) (int, string) {
	t.Helper()
	recorder := c.Do(t, key, method, path, body, headers...)
	text, err := io.ReadAll(recorder.Result().Body)
	if err != nil {
		t.Fatal(err)
	}
	return recorder.Code, c.shape(strings.TrimSpace(string(text)))
}

// Wants fails the test unless the answer is this one.
func (c Client) Wants(t *testing.T, key, method, path, body string, status int, answer string) {
	t.Helper()
	if got, text := c.Ask(t, key, method, path, body); got != status || text != answer {
		t.Errorf("%s %s %s: want %d\n%s\ngot %d\n%s", method, path, body, status, answer, got, text)
	}
}

// Refuses fails the test unless the answer is a refusal with that code that names the parameter.
func (c Client) Refuses(t *testing.T, key, method, path, body string, status int, code, param string) {
	t.Helper()
	got, text := c.Ask(t, key, method, path, body)
	var answer struct {
		Error struct{ Message, Code, Param string } `json:"error"`
	}
	err := json.Unmarshal([]byte(text), &answer)
	if err != nil || got != status || answer.Error.Code != code || answer.Error.Param != param ||
		!strings.Contains(answer.Error.Message, param) {
		t.Errorf("%s %s %s: want %d %s of %q, got %d %s", method, path, body, status, code, param, got, text)
	}
}
