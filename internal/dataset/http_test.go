package dataset_test

import (
	"context"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/go-json-experiment/json"

	"sovereign/internal/api"
	"sovereign/internal/apikey"
	"sovereign/internal/dataset"
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
	ctx, stop := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() { defer close(done); r.feed.Run(ctx) }()
	t.Cleanup(func() { stop(); <-done })
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
	router, err := api.NewRouter(api.Config{DB: r.db, Feed: r.feed, Bounds: bounds, Log: log}, dataset.NewHandler(r.Store, r.book.Open).Routes())
	if err != nil {
		t.Fatal(err)
	}
	return desk{
		handler: edge.New(edge.Config{Directory: dir, Bounds: bounds, Log: log}, router),
		owner:   mint(mine, tenant.Owner), member: mint(mine, tenant.Member), other: mint(theirs, tenant.Admin),
	}
}

func (d desk) do(t *testing.T, key, method, path, body string, headers ...string) *httptest.ResponseRecorder {
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

// ask is the status and the body of the answer, its times and ids reduced to their shape.
func (d desk) ask(t *testing.T, key, method, path, body string, headers ...string) (int, string) {
	t.Helper()
	recorder := d.do(t, key, method, path, body, headers...)
	text, err := io.ReadAll(recorder.Result().Body)
	if err != nil {
		t.Fatal(err)
	}
	return recorder.Code, shape.ReplaceAllString(strings.TrimSpace(string(text)), "$1")
}

var shape = regexp.MustCompile(`\d{4}-\d\d-\d\dT[0-9:.]+Z|\b(ds|req|seg)_[0-9a-z]+\b`)

func (d desk) wants(t *testing.T, key, method, path, body string, status int, answer string) {
	t.Helper()
	if got, text := d.ask(t, key, method, path, body); got != status || text != answer {
		t.Errorf("%s %s %s: want %d\n%s\ngot %d\n%s", method, path, body, status, answer, got, text)
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

// create makes a dataset and is its id.
func (d desk) create(t *testing.T, body string, headers ...string) dataset.Dataset {
	t.Helper()
	recorder := d.do(t, d.owner, "POST", "/v1/datasets/from_logs", body, headers...)
	var made dataset.Dataset
	if err := json.Unmarshal(recorder.Body.Bytes(), &made); err != nil || recorder.Code != http.StatusCreated {
		t.Fatalf("%s: %d %s", body, recorder.Code, recorder.Body)
	}
	return made
}

func TestTheLifeOfADatasetOnTheWire(t *testing.T) {
	each(t, func(t *testing.T, r room) {
		d := r.desk(t)
		d.wants(t, d.member, "GET", "/v1/datasets", "", 200, `{"object":"list","data":[],"has_more":false}`)
		r.log(t, some("a", 4)...)
		const (
			provenance = `"provenance":{"source":"logs","filters":{"tag":"a","cache_hit":false,"start":""},"segment":"seg","first_at":"","last_at":"","created_by":"usr_owner"}`
			curation   = `"curation":{"scanned":4,"kept":4,"dropped":{"errored":0,"truncated":0,"empty":0,"duplicate":0},"folded_conversations":0,"folded_turns":0,"capped":false},"created_at":""}`
		)
		made := d.create(t, `{"name":"support","holdout_pct":12.5,"filters":{"tag":"a","cache_hit":false,"start":"2020-01-01T00:00:00Z"}}`)
		status, train := d.ask(t, d.member, "GET", "/v1/datasets/"+made.ID, "")
		if want := `{"id":"ds","object":"dataset","name":"support","role":"train","rows":3,` + provenance + `,"holdout_id":"ds","holdout_of":null,` + curation; status != 200 || seg(train) != want {
			t.Errorf("%d\n%s\n%s", status, train, want)
		}
		status, eval := d.ask(t, d.member, "GET", "/v1/datasets/"+*made.HoldoutID, "")
		if want := `{"id":"ds","object":"dataset","name":"support-eval","role":"eval","rows":1,` + provenance + `,"holdout_id":null,"holdout_of":"ds",` + curation; status != 200 || seg(eval) != want {
			t.Errorf("%d\n%s\n%s", status, eval, want)
		}
		d.wants(t, d.member, "GET", "/v1/datasets?limit=1", "", 200, `{"object":"list","data":[`+train+`],"has_more":true}`)
		d.wants(t, d.member, "GET", "/v1/datasets?limit=1&offset=1", "", 200, `{"object":"list","data":[`+eval+`],"has_more":false}`)
		r.logging(0) // what is frozen is read all the same
		answer := d.do(t, d.member, "GET", "/v1/datasets/"+made.ID+"/export", "")
		if answer.Code != 200 || answer.Header().Get("Content-Type") != "application/jsonl" || answer.Header().Get("X-Service-Export-Count") != "3" ||
			strings.Count(answer.Body.String(), "\n") != 3 || !strings.Contains(answer.Header().Get("Content-Disposition"), made.ID+".jsonl") {
			t.Errorf("%d %v %s", answer.Code, answer.Header(), answer.Body)
		}
		for line := range strings.Lines(answer.Body.String()) {
			var example struct {
				Messages []struct{ Role, Content string }
			}
			if err := json.Unmarshal([]byte(line), &example, json.MatchCaseInsensitiveNames(true)); err != nil || len(example.Messages) != 3 || example.Messages[2].Role != "assistant" {
				t.Errorf("%v: %s", err, line)
			}
		}
		d.wants(t, d.member, "GET", "/v1/datasets?limit=1", "", 200, `{"object":"list","data":[`+train+`],"has_more":true}`)
		d.wants(t, d.owner, "DELETE", "/v1/datasets/"+made.ID, "", 200, `{"id":"ds","object":"dataset","deleted":true}`)
		for _, path := range []string{"", "/export"} {
			d.refuses(t, d.member, "GET", "/v1/datasets/"+made.ID+path, "", 404, "not_found", "")
		}
		d.refuses(t, d.owner, "DELETE", "/v1/datasets/"+made.ID, "", 404, "not_found", "")
		d.wants(t, d.member, "GET", "/v1/datasets", "", 200, `{"object":"list","data":[`+eval+`],"has_more":false}`)
	})
}

var family = regexp.MustCompile(`"segment":"[^"]+"`)

// seg reduces the name of a segment to its shape.
func seg(text string) string { return family.ReplaceAllString(text, `"segment":"seg"`) }

func TestWhoMayDoWhat(t *testing.T) {
	each(t, func(t *testing.T, r room) {
		d := r.desk(t)
		r.log(t, some("a", 3)...)
		made := d.create(t, `{"name":"mine"}`)
		d.refuses(t, d.member, "POST", "/v1/datasets/from_logs", `{"name":"x"}`, 403, "insufficient_permissions", "")
		d.refuses(t, d.member, "DELETE", "/v1/datasets/"+made.ID, "", 403, "insufficient_permissions", "")
		for _, ask := range [][2]string{{"GET", ""}, {"GET", "/export"}, {"DELETE", ""}} {
			d.refuses(t, d.other, ask[0], "/v1/datasets/"+made.ID+ask[1], "", 404, "not_found", "")
		}
		d.wants(t, d.other, "GET", "/v1/datasets", "", 200, `{"object":"list","data":[],"has_more":false}`)
		r.has(t, [4]int{1, 3, 3, 0})
	})
}

func TestWhatIsRefusedMakesNothing(t *testing.T) {
	each(t, func(t *testing.T, r room) {
		d := r.desk(t)
		r.log(t, some("a", 3)...)
		for _, c := range []struct{ body, code, param string }{
			{``, "invalid_body", ""},
			{`[]`, "invalid_body", ""},
			{`{}`, "invalid_parameter", "name"},
			{`{"name":""}`, "invalid_parameter", "name"},
			{`{"name":7}`, "invalid_parameter", "name"},
			{`{"name":"` + strings.Repeat("é", 65) + `"}`, "invalid_parameter", "name"},
			{`{"name":"a\nb"}`, "invalid_parameter", "name"},
			{`{"name":"a\u0000b"}`, "invalid_parameter", "name"},
			{`{"name":"a\u202eb"}`, "invalid_parameter", "name"},
			{`{"name":" a"}`, "invalid_parameter", "name"},
			{`{"name":"a","holdout_pct":-0.1}`, "invalid_parameter", "holdout_pct"},
			{`{"name":"a","holdout_pct":50.01}`, "invalid_parameter", "holdout_pct"},
			{`{"name":"a","holdout_pct":"10"}`, "invalid_parameter", "holdout_pct"},
			{`{"name":"a","color":"red"}`, "invalid_parameter", "color"},
			{`{"name":"a","filters":[]}`, "invalid_parameter", "filters"},
			{`{"name":"a","filters":{"colour":"red"}}`, "invalid_parameter", "filters.colour"},
			{`{"name":"a","filters":{"cache_hit":"yes"}}`, "invalid_parameter", "filters.cache_hit"},
			{`{"name":"a","filters":{"start":"yesterday"}}`, "invalid_parameter", "filters.start"},
			{`{"name":"a","filters":{"start":"2024-01-02T00:00:00Z","end":"2024-01-02T00:00:00Z"}}`, "invalid_parameter", "filters.end"},
		} {
			d.refuses(t, d.owner, "POST", "/v1/datasets/from_logs", c.body, 400, c.code, c.param)
		}
		r.logging(0)
		d.refuses(t, d.owner, "POST", "/v1/datasets/from_logs", `{"name":"a"}`, 409, "logging_disabled", "")
		r.logging(7)
		r.has(t, [4]int{0, 0, 0, 0})
		for _, name := range []string{"x", strings.Repeat("é", 64), "Größe 7, \"v2\" (日本)/..", "a-eval"} {
			body, err := json.Marshal(map[string]any{"name": name, "holdout_pct": 50, "filters": map[string]any{}})
			if err != nil {
				t.Fatal(err)
			}
			d.create(t, string(body))
			d.refuses(t, d.owner, "POST", "/v1/datasets/from_logs", string(body), 409, "conflict", "")
		}
		d.refuses(t, d.owner, "POST", "/v1/datasets/from_logs", `{"name":"x-eval"}`, 409, "conflict", "")
		d.refuses(t, d.owner, "POST", "/v1/datasets/from_logs", `{"name":"a","holdout_pct":1}`, 409, "conflict", "")
		d.create(t, `{"name":"a","holdout_pct":null}`)
	})
}

// With an Idempotency-Key all of a build is one transaction with the memory of its answer.
func TestADatasetIsMadeOncePerIdempotencyKey(t *testing.T) {
	each(t, func(t *testing.T, r room) {
		d := r.desk(t)
		r.log(t, some("a", 200)...)
		const body = `{"name":"all","holdout_pct":10}`
		first, second := d.create(t, body, "Idempotency-Key", "k"), d.create(t, body, "Idempotency-Key", "k")
		if first.ID != second.ID || *first.HoldoutID != *second.HoldoutID {
			t.Errorf("%s and %s", first.ID, second.ID)
		}
		r.has(t, [4]int{2, 200, 200, 0})
		if n := len(lines(r.export(t, first))) + len(lines(r.export(t, r.get(t, *first.HoldoutID)))); n != 200 {
			t.Errorf("%d examples", n)
		}
		if status, text := d.ask(t, d.owner, "POST", "/v1/datasets/from_logs", body, "Idempotency-Key", "other"); status != 409 {
			t.Errorf("%d %s", status, text)
		}
		r.has(t, [4]int{2, 200, 200, 0})
	})
}
