package api_test

import (
	"bufio"
	"context"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"reflect"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"sovereign/internal/base/apikey"
	"sovereign/internal/base/clock"
	"sovereign/internal/base/fault"
	"sovereign/internal/base/secret"
	"sovereign/internal/base/tenant"
	"sovereign/internal/live"
	"sovereign/internal/plane/edge"
	"sovereign/internal/store/api"
	"sovereign/internal/store/api/apitest"
	"sovereign/internal/store/db"
	"sovereign/internal/store/db/dbtest"
	"sovereign/internal/store/feed"
)

// A frame is a router with synthetic routes and a caller of every kind.
type frame struct {
	url     string
	handler http.Handler
	router  *api.Router
	bounds  *edge.Bounds
	keys    apitest.Keys
	log     *strings.Builder
}

type thing struct {
	Name   string     `json:"name" minLength:"3" maxLength:"8" pattern:"^[a-z]+$"`
	Count  int        `json:"count,omitempty" minimum:"0" maximum:"100"`
	Mode   string     `json:"mode,omitempty" enum:"fast,slow"`
	Secret string     `json:"secret,omitempty"`
	At     clock.Time `json:"at,omitempty"`
	Inner  *inner     `json:"inner,omitempty"`
}

type inner struct {
	Size int `json:"size"`
}

type named struct {
	ID   string `path:"id"`
	Body thing
}

type listed struct {
	api.Page
	Since clock.Time `query:"since"`
	Deep  bool       `query:"deep"`
	Score float64    `query:"score" minimum:"0" maximum:"1"`
}

func newFrame(t *testing.T, d *db.DB, source feed.Source, routes ...api.Route) *frame {
	t.Helper()
	dir := live.NewDirectory()
	f := feed.New(d, slog.New(slog.DiscardHandler), map[string]feed.Source{"test": source})
	ctx, stop := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() { defer close(done); f.Run(ctx) }()
	out := &frame{log: &strings.Builder{}, bounds: edge.NewBounds()}
	out.bounds.Body.Store(64 << 10)
	out.bounds.Buffered.Set(1 << 20)
	out.bounds.Operations.Set(64)
	out.bounds.Timeout.Store(int64(time.Minute))
	var err error
	var mu sync.Mutex
	log := slog.New(slog.NewTextHandler(writer(func(p []byte) (int, error) { mu.Lock(); defer mu.Unlock(); return out.log.Write(p) }), nil))
	out.router, err = api.NewRouter(api.Config{DB: d, Feed: f, Bounds: out.bounds, Log: log}, routes)
	if err != nil {
		t.Fatal(err)
	}
	out.handler = edge.New(edge.Config{Directory: dir, Bounds: out.bounds, Log: log}, out.router)
	server := httptest.NewServer(out.handler)
	t.Cleanup(func() { server.Close(); stop(); <-done })
	out.url = server.URL
	mint := func(user tenant.UserID, role tenant.Role) (string, apikey.Digest) {
		key, digest, _ := apikey.New()
		dir.PutKey(digest, live.Key{ID: tenant.KeyID("key_" + user), Workspace: "ws_a", User: user})
		dir.PutMember(live.Member{Workspace: "ws_a", User: user}, role)
		return key.Reveal(), digest
	}
	k := &out.keys
	var ownerDigest, revoked apikey.Digest
	k.Owner, ownerDigest = mint("owner", tenant.Owner)
	k.Admin, _ = mint("admin", tenant.Admin)
	k.Member, _ = mint("member", tenant.Member)
	k.Revoked, revoked = mint("revoked", tenant.Owner)
	dir.DropKey(revoked)
	k.Departed, _ = mint("departed", tenant.Owner)
	dir.DropMember(live.Member{Workspace: "ws_a", User: "departed"})
	other, otherDigest, _ := apikey.New()
	dir.PutKey(otherDigest, live.Key{ID: "key_other", Workspace: "ws_b", User: "owner"})
	dir.PutMember(live.Member{Workspace: "ws_b", User: "owner"}, tenant.Owner)
	k.Other = other.Reveal()
	stranger, _, _ := apikey.New()
	k.Stranger = stranger.Reveal()
	k.Digest = hex.EncodeToString(ownerDigest[:])
	return out
}

type writer func([]byte) (int, error)

func (w writer) Write(p []byte) (int, error) { return w(p) }

type reply struct {
	status int
	header http.Header
	body   string
}

func (r reply) refusal(t *testing.T) (code, param, message string) {
	t.Helper()
	var body struct {
		Error struct{ Code, Param, Message string }
	}
	if err := json.Unmarshal([]byte(r.body), &body); err != nil {
		t.Fatalf("%s: %v", r.body, err)
	}
	return body.Error.Code, body.Error.Param, body.Error.Message
}

func (f *frame) ask(t *testing.T, method, path, body string, headers ...string) reply {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), method, f.url+path, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	request.Header.Set("Authorization", "Bearer "+f.keys.Owner)
	if body != "" {
		request.Header.Set("Content-Type", "application/json")
	}
	for i := 0; i+1 < len(headers); i += 2 {
		request.Header.Set(headers[i], headers[i+1])
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = response.Body.Close() }()
	text, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatal(err)
	}
	return reply{status: response.StatusCode, header: response.Header, body: string(text)}
}

func nothing(context.Context, tenant.Caller, api.None) (thing, error) { return thing{Name: "abc"}, nil }

func echo(_ context.Context, _ tenant.Caller, in thing) (thing, error) { return in, nil }

func sqlite(t *testing.T) *db.DB {
	t.Helper()
	d, err := db.Open(t.Context(), t.TempDir(), secret.Text{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = d.Close() })
	if err := d.Migrate(t.Context()); err != nil {
		t.Fatal(err)
	}
	return d
}

func TestEveryRouteDeniesEveryBadCaller(t *testing.T) {
	var routes []api.Route
	for _, p := range []api.Permission{api.Public, api.Reader, api.Admin} {
		name := "/" + strings.ReplaceAll(p.String(), " ", "-")
		routes = append(
			routes,
			api.Get(name, p, nothing, "get"),
			api.Get(name+"/{id}", p, func(context.Context, tenant.Caller, struct {
				ID string `path:"id"`
			},
			) (thing, error) {
				return thing{}, nil
			}, "get one"),
		)
		if p != api.Public {
			routes = append(
				routes, api.Post(name, p, echo, "post"), api.Put(name, p, echo, "put"),
				api.Patch(name, p, echo, "patch"), api.Delete(name, p, nothing, "delete"),
			)
		}
	}
	f := newFrame(t, sqlite(t), nil, routes...)
	apitest.Matrix(t, f.url, f.router.Routes(), f.keys)
}

func TestRouteWithoutPermissionIsRefused(t *testing.T) {
	for _, p := range []api.Permission{0, -1, 99} {
		_, err := api.NewRouter(api.Config{}, []api.Route{api.Get("/x", p, nothing, "x")})
		if err == nil || !strings.Contains(err.Error(), "permission") {
			t.Errorf("permission %d: %v", p, err)
		}
	}
}

func TestOperatorRoutesAreServedOnTheSocketAlone(t *testing.T) {
	f := newFrame(t, sqlite(t), nil, api.Get("/thing", api.Operator, nothing, "operator's"))
	for _, path := range []string{"/admin/thing", "/v1/admin/thing", "/v1/thing", "/thing"} {
		if got := f.ask(t, "GET", path, ""); got.status != 404 {
			t.Errorf("%s: %d", path, got.status)
		}
	}
}

func TestBodiesAreStrict(t *testing.T) {
	const canary = "canary-in-a-bad-body"
	cases := []struct {
		name, body  string
		status      int
		code, param string
	}{
		{"empty", "", 400, "invalid_body", ""},
		{"not JSON", "{", 400, "invalid_body", ""},
		{"two values", `{"name":"abc"}{}`, 400, "invalid_body", ""},
		{"duplicate name", `{"name":"abc","name":"` + canary + `"}`, 400, "invalid_body", ""},
		{"invalid UTF-8", "{\"name\":\"a\xff\xfe\"}", 400, "invalid_body", ""},
		{"lone surrogate", `{"name":"\ud800"}`, 400, "invalid_body", ""},
		{"an array", `[]`, 400, "invalid_body", ""},
		{"null", `null`, 400, "invalid_body", ""},
		{"a string", `"` + canary + `"`, 400, "invalid_body", ""},
		{"depth 1000", strings.Repeat(`{"inner":`, 1000) + `1` + strings.Repeat(`}`, 1000), 400, "invalid_parameter", "name"},
		{"depth 20000", strings.Repeat(`[`, 20000), 400, "invalid_body", ""},
		{"unknown field", `{"name":"abc","` + canary[:6] + `":"` + canary + `"}`, 400, "invalid_parameter", "canary"},
		{"other case", `{"Name":"abc"}`, 400, "invalid_parameter", "Name"},
		{"missing", `{"count":1}`, 400, "invalid_parameter", "name"},
		{"wrong type", `{"name":5}`, 400, "invalid_parameter", "name"},
		{"too short", `{"name":"ab"}`, 400, "invalid_parameter", "name"},
		{"too long", `{"name":"abcdefghi"}`, 400, "invalid_parameter", "name"},
		{"pattern", `{"name":"ABC"}`, 400, "invalid_parameter", "name"},
		{"fraction", `{"name":"abc","count":1.5}`, 400, "invalid_parameter", "count"},
		{"over the maximum", `{"name":"abc","count":101}`, 400, "invalid_parameter", "count"},
		{"huge number", `{"name":"abc","count":1e400}`, 400, "invalid_body", ""},
		{"enum", `{"name":"abc","mode":"` + canary + `"}`, 400, "invalid_parameter", "mode"},
		{"nested unknown", `{"name":"abc","inner":{"size":1,"x":1}}`, 400, "invalid_parameter", "inner.x"},
		{"nested missing", `{"name":"abc","inner":{}}`, 400, "invalid_parameter", "inner.size"},
		{"bad time", `{"name":"abc","at":"` + canary + `"}`, 400, "invalid_parameter", "at"},
		{"secret of the wrong type", `{"name":"abc","secret":["` + canary + `"]}`, 400, "invalid_parameter", "secret"},
		{"too large", `{"name":"` + strings.Repeat("a", 64<<10) + `"}`, 413, "body_too_large", ""},
		{"right", `{"name":"abc","count":3,"inner":{"size":1},"at":"2026-01-02T03:04:05Z"}`, 200, "", ""},
	}
	f := newFrame(t, sqlite(t), nil, api.Post("/things", api.Reader, echo, "x"))
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			got := f.ask(t, "POST", "/v1/things", c.body)
			if got.status != c.status {
				t.Fatalf("want %d, got %d %s", c.status, got.status, got.body)
			}
			if strings.Contains(got.body, canary) {
				t.Errorf("the answer repeats the body: %s", got.body)
			}
			if c.status == 200 {
				return
			}
			if code, param, message := got.refusal(t); code != c.code || param != c.param || !strings.Contains(message, c.param) {
				t.Errorf("want %s %s, got %s", c.code, c.param, got.body)
			}
		})
	}
	for name, headers := range map[string][]string{
		"form":  {"Content-Type", "application/x-www-form-urlencoded"},
		"text":  {"Content-Type", "text/plain"},
		"gzip":  {"Content-Encoding", "gzip"},
		"zstd":  {"Content-Encoding", "zstd"},
		"bogus": {"Content-Type", ";;"},
	} {
		if got := f.ask(t, "POST", "/v1/things", `{"name":"abc"}`, headers...); got.status != 415 {
			t.Errorf("%s: %d %s", name, got.status, got.body)
		}
	}
	if got := f.ask(t, "POST", "/v1/things", `{"name":"abc"}`, "Content-Type", "application/json; charset=utf-8"); got.status != 200 {
		t.Errorf("charset: %d %s", got.status, got.body)
	}
}

// A body whose field is a pointer may be omitted; one that is sent is validated all the same.
func TestABodyMayBeOptional(t *testing.T) {
	type input struct {
		ID   string `path:"id"`
		Body *thing
	}
	name := func(_ context.Context, _ tenant.Caller, in input) (thing, error) {
		if in.Body == nil {
			return thing{Name: "none"}, nil
		}
		return *in.Body, nil
	}
	f := newFrame(t, sqlite(t), nil, api.Post("/things/{id}", api.Reader, name, "x"))
	for _, c := range []struct {
		body   string
		status int
		words  string
	}{
		{"", 200, `"none"`}, {`{"name":"abc"}`, 200, `"abc"`}, {`{}`, 400, "name"}, {`{"name":"abc","other":1}`, 400, "other"}, {`[]`, 400, "invalid_body"}, {`{`, 400, "invalid_body"},
	} {
		if got := f.ask(t, "POST", "/v1/things/1", c.body); got.status != c.status || !strings.Contains(got.body, c.words) {
			t.Errorf("%q: %d %s", c.body, got.status, got.body)
		}
	}
}

func TestParametersAreStrict(t *testing.T) {
	f := newFrame(t, sqlite(t), nil, api.Get("/things", api.Reader, func(_ context.Context, _ tenant.Caller, in listed) (listed, error) { return in, nil }, "x"),
		api.Put("/things/{id}", api.Reader, func(_ context.Context, _ tenant.Caller, in named) (thing, error) {
			in.Body.Name = in.ID + in.Body.Name
			return in.Body, nil
		}, "x"))
	for query, param := range map[string]string{
		"limit=0": "limit", "limit=1001": "limit", "limit=x": "limit", "limit=1&limit=2": "limit", "limit=": "limit", "offset=-1": "offset",
		"unknown=1": "unknown", "since=yesterday": "since", "deep=1": "deep", "score=2": "score", "score=NaN": "score", "limit=99999999999999999999": "limit",
	} {
		got := f.ask(t, "GET", "/v1/things?"+query, "")
		if code, at, _ := got.refusal(t); got.status != 400 || code != "invalid_parameter" || at != param {
			t.Errorf("%s: %d %s", query, got.status, got.body)
		}
	}
	if got := f.ask(t, "GET", "/v1/things?%zz", ""); got.status != 400 {
		t.Errorf("broken escape: %d", got.status)
	}
	if got := f.ask(t, "GET", "/v1/things", ""); !strings.Contains(got.body, `"Limit":50,"Offset":0`) {
		t.Errorf("defaults: %s", got.body)
	}
	if got := f.ask(t, "PUT", "/v1/things/a%2Fb", `{"name":"abc"}`); !strings.Contains(got.body, `"a/babc"`) {
		t.Errorf("path: %d %s", got.status, got.body)
	}
}

func TestFlatRoutesUseTheFlatRefusal(t *testing.T) {
	f := newFrame(t, sqlite(t), nil, api.Post("/jobs", api.Admin, echo, "x", api.Flat))
	got := f.ask(t, "POST", "/v1/jobs", `{}`)
	if got.status != 400 || got.body != `{"error":"name is required"}`+"\n" {
		t.Errorf("%d %s", got.status, got.body)
	}
	got = f.ask(t, "POST", "/v1/jobs", `{}`, "Authorization", "Bearer "+f.keys.Member)
	if code, _, _ := got.refusal(t); got.status != 403 || code != "insufficient_permissions" {
		t.Errorf("only validation is flat: %d %s", got.status, got.body)
	}
}

func TestRefusalsCarryRetryHeaders(t *testing.T) {
	kinds := fault.Kinds()
	f := newFrame(t, sqlite(t), nil, api.Get("/fail/{n}", api.Reader, func(_ context.Context, _ tenant.Caller, in struct {
		N int `path:"n"`
	},
	) (thing, error) {
		return thing{}, fmt.Errorf("wrapped: %w", kinds[in.N].Because(errors.New("inside story"), "outside story").In(1500*time.Millisecond))
	}, "x"))
	for n, kind := range kinds {
		got := f.ask(t, "GET", "/v1/fail/"+strconv.Itoa(n), "")
		code, _, message := got.refusal(t)
		if got.status != kind.Status || code != kind.Code || strings.Contains(got.body, "inside") || !strings.HasPrefix(message, "outside story") {
			t.Errorf("%v: %d %s", kind, got.status, got.body)
		}
		if kind.Code == "" && !strings.Contains(got.body, `"code":null`) {
			t.Errorf("%v: %s", kind, got.body)
		}
		if retry := got.header.Get("Retry-After"); (kind.Status == 429 || kind.Status == 503) != (retry == "2") {
			t.Errorf("%v: Retry-After %q", kind, retry)
		}
		if final := got.header.Get("X-Should-Retry"); kind.Final() != (final == "false") {
			t.Errorf("%v: X-Should-Retry %q", kind, final)
		}
		id := got.header.Get("X-Request-Id")
		if !strings.HasPrefix(id, "req_") || (kind.Status >= 500) != strings.Contains(message, id) {
			t.Errorf("%v: id %s in %s", kind, id, message)
		}
	}
}

func TestInternalErrorsAreLoggedAndNotShown(t *testing.T) {
	f := newFrame(t, sqlite(t), nil,
		api.Get("/error", api.Reader, func(context.Context, tenant.Caller, api.None) (thing, error) {
			return thing{}, errors.New("inside story")
		}, "x"),
		api.Get("/panic", api.Reader, func(context.Context, tenant.Caller, api.None) (thing, error) { panic("inside story") }, "x"),
		api.Get("/slow", api.Reader, func(ctx context.Context, _ tenant.Caller, _ api.None) (thing, error) {
			<-ctx.Done()
			return thing{}, fmt.Errorf("inside story: %w", ctx.Err())
		}, "x"))
	for path, want := range map[string]int{"/v1/error": 500, "/v1/panic": 500, "/v1/slow": 408} {
		timeout := time.Minute
		if want == 408 {
			timeout = 20 * time.Millisecond
		}
		f.bounds.Timeout.Store(int64(timeout))
		got := f.ask(t, "GET", path, "")
		if got.status != want || strings.Contains(got.body, "inside") {
			t.Errorf("%s: %d %s", path, got.status, got.body)
		}
	}
	if !strings.Contains(f.log.String(), "inside story") {
		t.Error("the log must tell what the answer does not")
	}
}

func TestAbuseGuardCountsPerWorkspace(t *testing.T) {
	f := newFrame(t, sqlite(t), nil,
		api.Post("/a", api.Admin, echo, "x", api.Spends), api.Post("/b", api.Admin, echo, "x", api.Spends), api.Post("/c", api.Admin, echo, "x"))
	for i := range 20 {
		path, body := "/v1/a", `{"name":"abc"}`
		if i%2 == 1 {
			path, body = "/api/v1/b", `{}` // a refused body counts as well
		}
		if got := f.ask(t, "POST", path, body); got.status == 429 {
			t.Fatalf("request %d was refused", i+1)
		}
	}
	got := f.ask(t, "POST", "/v1/a", `{"name":"abc"}`)
	code, _, _ := got.refusal(t)
	wait, err := strconv.Atoi(got.header.Get("Retry-After"))
	if got.status != 429 || code != "abuse_guard" || err != nil || wait < 1 || wait > 60 {
		t.Errorf("%d %s, Retry-After %q", got.status, got.body, got.header.Get("Retry-After"))
	}
	if got := f.ask(t, "POST", "/v1/c", `{"name":"abc"}`); got.status != 200 {
		t.Errorf("an unguarded route: %d", got.status)
	}
	if got := f.ask(t, "POST", "/v1/a", `{"name":"abc"}`, "Authorization", "Bearer "+f.keys.Member); got.status != 403 {
		t.Errorf("a caller without permission: %d", got.status)
	}
}

func TestMethodsAndUnknownPaths(t *testing.T) {
	f := newFrame(t, sqlite(t), nil, api.Get("/things", api.Reader, nothing, "x"), api.Delete("/things", api.Admin, nothing, "x"))
	got := f.ask(t, "PATCH", "/v1/things", "")
	if code, _, _ := got.refusal(t); got.status != 405 || code != "method_not_allowed" || got.header.Get("Allow") != "GET, DELETE" {
		t.Errorf("%d %s Allow %q", got.status, got.body, got.header.Get("Allow"))
	}
	for _, path := range []string{"/v1/nothing", "/v1", "/nothing", "/", "/v2/things"} {
		if got := f.ask(t, "GET", path, ""); got.status != 404 || !strings.Contains(got.body, `"not_found"`) {
			t.Errorf("%s: %d %s", path, got.status, got.body)
		}
	}
	if got := f.ask(t, "GET", "/v1/nothing", "", "Authorization", ""); got.status != 401 {
		t.Errorf("without a key nothing exists or not: %d", got.status)
	}
}

func TestBodiesAndOperationsInFlightAreBounded(t *testing.T) {
	hold, entered := make(chan struct{}), make(chan struct{}, 1)
	f := newFrame(t, sqlite(t), nil, api.Post("/things", api.Reader, func(_ context.Context, _ tenant.Caller, in thing) (thing, error) {
		entered <- struct{}{}
		<-hold
		return in, nil
	}, "x"))
	f.bounds.Buffered.Set(10_000) // room for one buffer of 4 KiB
	var group sync.WaitGroup
	group.Go(func() { f.ask(t, "POST", "/v1/things", `{"name":"abc","secret":"0123"}`) })
	<-entered
	if got := f.ask(t, "POST", "/v1/things", `{"name":"abc","secret":"0123"}`); got.status != 429 || !strings.Contains(got.body, "rate_limited") {
		t.Errorf("%d %s", got.status, got.body)
	}
	f.bounds.Buffered.Set(1 << 20)
	f.bounds.Operations.Set(1)
	if got := f.ask(t, "POST", "/v1/things", `{"name":"abc"}`); got.status != 429 || got.header.Get("Retry-After") == "" {
		t.Errorf("an operation over the bound: %d %s", got.status, got.body)
	}
	close(hold)
	group.Wait()
	if used := f.bounds.Buffered.Used() + f.bounds.Operations.Used(); used != 0 {
		t.Errorf("%d bytes and operations are still held", used)
	}
}

func TestTheSameIdempotencyKeyHasOneEffect(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		var effects atomic.Int64
		effect := func(ctx context.Context, _ tenant.Caller, in thing) (thing, error) {
			_, err := d.Tx(ctx, func(tx *db.Tx) error {
				_, err := db.Exec(ctx, tx.Across("test"), `INSERT INTO users (id, email, created_at) VALUES ($1, $1, 1)`, strconv.FormatInt(effects.Add(1), 10))
				return err
			})
			if in.Mode == "slow" {
				return in, fault.Conflict("after the effect")
			}
			in.Count = int(effects.Load())
			return in, err
		}
		f := newFrame(t, d, nil, api.Post("/things", api.Admin, effect, "x", api.Creates), api.Post("/keys", api.Admin, effect, "x", api.ShowsSecret), api.Post("/outside", api.Admin, effect, "x", api.Outside))
		rows := func() int {
			n, err := db.One[int](t.Context(), d.Across("test"), `SELECT COUNT(*) FROM users`)
			if err != nil {
				t.Fatal(err)
			}
			return n
		}

		var group sync.WaitGroup
		answers := make([]reply, 8)
		for i := range answers {
			group.Go(func() { answers[i] = f.ask(t, "POST", "/v1/things", `{"name":"abc"}`, "Idempotency-Key", "k1") })
		}
		group.Wait()
		for _, a := range answers {
			if a.status != 201 || a.body != answers[0].body {
				t.Errorf("%d %s, not %s", a.status, a.body, answers[0].body)
			}
		}
		if rows() != 1 {
			t.Errorf("%d effects", rows())
		}

		got := f.ask(t, "POST", "/v1/things", `{"name":"abd"}`, "Idempotency-Key", "k1")
		if code, _, _ := got.refusal(t); got.status != 409 || code != "idempotency_conflict" || got.header.Get("X-Should-Retry") != "false" {
			t.Errorf("another body: %d %s", got.status, got.body)
		}
		if got := f.ask(t, "POST", "/v1/things", `{"name":"abc","mode":"slow"}`, "Idempotency-Key", "k2"); got.status != 409 || rows() != 1 {
			t.Errorf("a refusal undoes its effect: %d, %d rows", got.status, rows())
		}
		if got := f.ask(t, "POST", "/v1/things", `{"name":"abc"}`, "Idempotency-Key", "k2"); got.status != 201 || rows() != 2 {
			t.Errorf("and leaves the key free: %d, %d rows", got.status, rows())
		}
		if got := f.ask(t, "POST", "/v1/keys", `{"name":"abc","secret":"shown"}`, "Idempotency-Key", "k1"); got.status != 200 || rows() != 3 {
			t.Errorf("another route is another request: %d, %d rows", got.status, rows())
		}
		if got := f.ask(t, "POST", "/v1/keys", `{"name":"abc","secret":"shown"}`, "Idempotency-Key", "k1"); got.status != 409 || strings.Contains(got.body, "shown") || rows() != 3 {
			t.Errorf("a shown secret is not kept: %d %s", got.status, got.body)
		}
		kept, err := db.Query[[]byte](t.Context(), d.Across("test"), `SELECT answer FROM idempotency_keys WHERE route = '/v1/keys'`)
		if err != nil || len(kept) != 1 || kept[0] != nil {
			t.Errorf("kept %q %v", kept, err)
		}
		if got := f.ask(t, "POST", "/v1/outside", `{"name":"abc"}`, "Idempotency-Key", "k1"); got.status != 400 || rows() != 3 {
			t.Errorf("an effect outside the database: %d", got.status)
		}
		if _, err := db.Exec(t.Context(), d.Across("test"), `UPDATE idempotency_keys SET created_at = $1`, clock.Now().Add(-25*time.Hour)); err != nil {
			t.Fatal(err)
		}
		if got := f.ask(t, "POST", "/v1/things", `{"name":"xyz"}`, "Idempotency-Key", "k1"); got.status != 201 || rows() != 4 {
			t.Errorf("after a day the key is free: %d %s", got.status, got.body)
		}
		if err := api.DeleteExpiredAnswers(t.Context(), d); err != nil {
			t.Fatal(err)
		}
		left, err := db.One[int](t.Context(), d.Across("test"), `SELECT COUNT(*) FROM idempotency_keys`)
		if err != nil || left != 1 {
			t.Errorf("%d answers are remembered, %v", left, err)
		}
	})
}

func TestOpenAPIDocumentsEveryRouteAndResolves(t *testing.T) {
	f := newFrame(t, sqlite(t), nil, api.Get("/things", api.Reader, nothing, "List them"), api.Post("/things", api.Admin, echo, "Make one", api.Flat), api.Put("/things/{id}", api.Admin, func(context.Context, tenant.Caller, named) (thing, error) { return thing{}, nil }, "Change one"))
	got := f.ask(t, "GET", "/openapi.json", "", "Authorization", "")
	var doc struct {
		OpenAPI string
		Info    struct{ Version string }
		Paths   map[string]map[string]struct {
			OperationID string
			Security    []any
			Responses   map[string]any
		}
		Components struct{ Schemas map[string]any }
	}
	if err := json.Unmarshal([]byte(got.body), &doc); err != nil {
		t.Fatal(err)
	}
	if !strings.HasPrefix(doc.OpenAPI, "3.1") || doc.Info.Version != "1.0.0" {
		t.Errorf("%s %s", doc.OpenAPI, doc.Info.Version)
	}
	ids := map[string]bool{}
	for _, r := range f.router.Routes() {
		if r.Permission >= api.Visitor {
			if doc.Paths[r.URL()] != nil {
				t.Errorf("%s is of the dashboard, and in the public document", r.URL())
			}
			continue
		}
		op, ok := doc.Paths[r.Pattern()][strings.ToLower(r.Method)]
		if !ok || ids[op.OperationID] || op.Responses["default"] == nil || (r.Permission != api.Public && r.Permission != api.Token) != (len(op.Security) == 1) {
			t.Errorf("%s %s: %+v", r.Method, r.Pattern(), op)
		}
		ids[op.OperationID] = true
	}
	for ref := range strings.SplitSeq(got.body, `"$ref":"#/components/schemas/`) {
		name, _, _ := strings.Cut(ref, `"`)
		if !strings.HasPrefix(ref, "{") && doc.Components.Schemas[name] == nil {
			t.Errorf("schema %s is not there", name)
		}
	}
	for _, kind := range fault.Kinds() {
		if (kind.Code != "" && !strings.Contains(got.body, `"`+kind.Code+`"`)) || !strings.Contains(got.body, `"`+kind.Type+`"`) {
			t.Errorf("the document does not name %s", kind.Code)
		}
	}
	if strings.Contains(got.body, `["array","null"]`) || !strings.Contains(got.body, "Idempotency-Key") {
		t.Error("a list is never null, and an Idempotency-Key may be sent")
	}
	page := f.ask(t, "GET", "/docs", "", "Authorization", "")
	for _, r := range f.router.Routes() {
		if r.Permission < api.Visitor && (!strings.Contains(page.body, r.Pattern()) || !strings.Contains(page.body, r.Summary)) {
			t.Errorf("the page does not show %s %s", r.Method, r.Pattern())
		}
	}
	if csp := page.header.Get("Content-Security-Policy"); !strings.Contains(csp, "default-src 'none'") || strings.Contains(page.body, "<script") {
		t.Errorf("the page runs scripts, or may: %s", csp)
	}
}

// A holey value has members that may be null: the document marks exactly those that are null in its encoding.
type holey struct {
	Part    *inner      `json:"part" doc:"null until it is there"`
	When    *clock.Time `json:"when"`
	Verdict *string     `json:"verdict" enum:"pass,fail"`
	Score   *float64    `json:"score,omitzero"`
	Later   *inner      `json:"later,omitempty"`
	All     []inner     `json:"all"`
	Name    string      `json:"name"`
}

func TestOpenAPISaysWhatMayBeNull(t *testing.T) {
	f := newFrame(t, sqlite(t), nil,
		api.Get("/holes", api.Reader, func(context.Context, tenant.Caller, api.None) (holey, error) { return holey{}, nil }, "Show one"),
		api.Post("/things", api.Admin, echo, "Make one"))
	if got := f.ask(t, "GET", "/v1/holes", ""); got.body != `{"part":null,"when":null,"verdict":null,"all":[],"name":""}`+"\n" {
		t.Fatal(got.body)
	}
	var doc struct {
		Components struct {
			Schemas map[string]struct{ Properties map[string]json.RawMessage }
		}
	}
	if err := json.Unmarshal([]byte(f.ask(t, "GET", "/openapi.json", "", "Authorization", "").body), &doc); err != nil {
		t.Fatal(err)
	}
	for member, want := range map[string]string{
		"part":    `{"anyOf":[{"$ref":"#/components/schemas/Inner"},{"type":"null"}],"description":"null until it is there"}`,
		"when":    `{"format":"date-time","type":["string","null"]}`,
		"verdict": `{"enum":["pass","fail",null],"type":["string","null"]}`,
		"score":   `{"format":"double","type":"number"}`,
		"later":   `{"$ref":"#/components/schemas/Inner"}`,
		"all":     `{"items":{"$ref":"#/components/schemas/Inner"},"type":"array"}`,
		"name":    `{"type":"string"}`,
	} {
		if got := string(doc.Components.Schemas["Holey"].Properties[member]); got != want {
			t.Errorf("%s: %s, want %s", member, got, want)
		}
	}
	if got := string(doc.Components.Schemas["Thing"].Properties["inner"]); got != `{"$ref":"#/components/schemas/Inner"}` {
		t.Errorf("what is sent to us is checked otherwise: %s", got)
	}
}

func TestOpenAPIShowsEveryShapeOfAnAnswer(t *testing.T) {
	f := newFrame(t, sqlite(t), nil, api.Get("/either", api.Reader, nothing, "Show one",
		api.Shapes(reflect.TypeFor[holey](), reflect.TypeFor[inner]())))
	document := f.ask(t, "GET", "/openapi.json", "", "Authorization", "").body
	for _, want := range []string{
		`"oneOf":[{"$ref":"#/components/schemas/Holey"},{"$ref":"#/components/schemas/Inner"}]`,
		`"when":{"format":"date-time","type":["string","null"]}`,
	} {
		if !strings.Contains(document, want) {
			t.Errorf("%s is not in %s", want, document)
		}
	}
	page := f.ask(t, "GET", "/docs", "", "Authorization", "").body
	if _, second, two := strings.Cut(page, `<p class="soft">or</p>`); !two || !strings.Contains(page, "<code>when</code>") || !strings.Contains(second, "<table>") {
		t.Error("the page does not show both")
	}
}

func TestListsTellWhetherThereIsMore(t *testing.T) {
	page := api.Page{Limit: 2}
	for n, more := range map[int]bool{0: false, 1: false, 2: false, 3: true} {
		got := api.NewList(page, make([]int, n))
		if got.HasMore != more || len(got.Data) != min(n, 2) || got.Object != "list" {
			t.Errorf("%d rows: %+v", n, got)
		}
	}
}

// A repeated request makes the promise of its first answer: the change is in force.
func TestIdempotentReplayWaitsUntilTheChangeIsInForce(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		source := &stuck{}
		source.broken.Store(true)
		f := newFrame(t, d, source, api.Post("/things", api.Admin, func(ctx context.Context, _ tenant.Caller, in thing) (thing, error) {
			_, err := d.Tx(ctx, func(tx *db.Tx) error { tx.Touch("test", "ws_a", in.Name); return nil })
			return in, err
		}, "x"))
		f.bounds.Timeout.Store(int64(200 * time.Millisecond))
		for range 2 {
			if got := f.ask(t, "POST", "/v1/things", `{"name":"abc"}`, "Idempotency-Key", "k"); got.status != 408 {
				t.Errorf("answered before it was in force: %d %s", got.status, got.body)
			}
		}
		f.bounds.Timeout.Store(int64(time.Minute))
		source.broken.Store(false)
		if got := f.ask(t, "POST", "/v1/things", `{"name":"abc"}`, "Idempotency-Key", "k"); got.status != 200 || source.applied.Load() != 1 {
			t.Errorf("afterwards: %d, applied %d times", got.status, source.applied.Load())
		}
	})
}

// A stuck source cannot publish while it is broken.
type stuck struct {
	broken  atomic.Bool
	applied atomic.Int64
}

func (s *stuck) Fill(context.Context) error { return nil }

func (s *stuck) Apply(context.Context, db.Change) error {
	if s.broken.Load() {
		return errors.New("cannot read")
	}
	s.applied.Add(1)
	return nil
}

func TestAnAbortedAnswerIsVisibleToTheCaller(t *testing.T) {
	half := func(end func()) api.Handler[api.None, api.Stream] {
		return func(context.Context, tenant.Caller, api.None) (api.Stream, error) {
			return api.Stream{ContentType: "text/plain", Filename: "x", Write: func(w io.Writer) error {
				_, _ = io.WriteString(w, strings.Repeat("x", 20_000))
				end()
				return errors.New("broke")
			}}, nil
		}
	}
	f := newFrame(t, sqlite(t), nil, api.Get("/fails", api.Reader, half(func() {}), "x"), api.Get("/panics", api.Reader, half(func() { panic("broke") }), "x"))
	for _, path := range []string{"/v1/fails", "/v1/panics"} {
		request, _ := http.NewRequestWithContext(t.Context(), http.MethodGet, f.url+path, http.NoBody)
		request.Header.Set("Authorization", "Bearer "+f.keys.Owner)
		response, err := http.DefaultClient.Do(request)
		if err != nil {
			continue
		}
		if _, err := io.ReadAll(response.Body); err == nil {
			t.Errorf("%s looks whole", path)
		}
		_ = response.Body.Close()
	}
}

func TestMalformedRequestsGetAnErrorEnvelope(t *testing.T) {
	f := newFrame(t, sqlite(t), nil, api.Get("/things", api.Reader, nothing, "x"), api.Post("/things", api.Reader, echo, "x"))
	got := f.ask(t, "GET", "/v1/things?%ff=1", "")
	if code, _, _ := got.refusal(t); got.status != 400 || code != "invalid_parameter" {
		t.Errorf("a name that is not UTF-8: %d %s", got.status, got.body)
	}
	conn, err := net.Dial("tcp", strings.TrimPrefix(f.url, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close() }()
	_, _ = fmt.Fprintf(conn, "POST /v1/things HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer %s\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n", f.keys.Owner)
	response, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil || response.StatusCode != http.StatusBadRequest {
		t.Errorf("a malformed chunk: %v %v", response, err)
	}
}

// A streamed answer may pause for longer than the timeout of an operation.
func TestAnswerMayPause(t *testing.T) {
	f := newFrame(t, sqlite(t), nil, api.Get("/slow", api.Reader, func(context.Context, tenant.Caller, api.None) (api.Stream, error) {
		return api.Stream{ContentType: "text/plain", Filename: "x", Write: func(w io.Writer) error {
			for range 2 {
				if _, err := io.WriteString(w, "part "); err != nil {
					return err
				}
				_ = http.NewResponseController(w.(http.ResponseWriter)).Flush()
				time.Sleep(300 * time.Millisecond)
			}
			return nil
		}}, nil
	}, "x", api.Long))
	f.bounds.Timeout.Store(int64(100 * time.Millisecond))
	secure := httptest.NewUnstartedServer(f.handler)
	secure.EnableHTTP2 = true
	secure.StartTLS()
	defer secure.Close()
	for url, client := range map[string]*http.Client{f.url: http.DefaultClient, secure.URL: secure.Client()} {
		request, _ := http.NewRequestWithContext(t.Context(), http.MethodGet, url+"/v1/slow", http.NoBody)
		request.Header.Set("Authorization", "Bearer "+f.keys.Owner)
		response, err := client.Do(request)
		if err != nil {
			t.Fatal(err)
		}
		text, err := io.ReadAll(response.Body)
		_ = response.Body.Close()
		if err != nil || string(text) != "part part " {
			t.Errorf("over HTTP/%d: %q %v", response.ProtoMajor, text, err)
		}
	}
}
