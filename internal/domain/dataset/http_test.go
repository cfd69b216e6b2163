package dataset_test

import (
	"context"
	"net/http"
	"regexp"
	"strings"
	"testing"

	"github.com/go-json-experiment/json"

	"sovereign/internal/domain/dataset"
	"sovereign/internal/store/api/apitest"
)

type client struct{ apitest.Client }

func (r fixture) client(t *testing.T) client {
	t.Helper()
	ctx, stop := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() { defer close(done); r.feed.Run(ctx) }()
	t.Cleanup(func() { stop(); <-done })
	return client{apitest.NewClient(t, r.db, r.feed, mine, theirs, dataset.NewHandler(r.Store).Routes(), func(text string) string { return shape.ReplaceAllString(text, "$1") })}
}

var shape = regexp.MustCompile(`\d{4}-\d\d-\d\dT[0-9:.]+Z|\b(ds|req|seg)_[0-9a-z]+\b`)

// create makes a dataset and returns it.
func (d client) create(t *testing.T, body string, headers ...string) dataset.Dataset {
	t.Helper()
	recorder := d.Do(t, d.Owner, "POST", "/v1/datasets/from_logs", body, headers...)
	var made dataset.Dataset
	if err := json.Unmarshal(recorder.Body.Bytes(), &made); err != nil || recorder.Code != http.StatusCreated {
		t.Fatalf("%s: %d %s", body, recorder.Code, recorder.Body)
	}
	return made
}

func TestTheLifeOfADatasetOnTheWire(t *testing.T) {
	eachStorage(t, func(t *testing.T, r fixture) {
		d := r.client(t)
		d.Wants(t, d.Member, "GET", "/v1/datasets", "", 200, `{"object":"list","data":[],"has_more":false}`)
		r.log(t, some("a", 4)...)
		const (
			provenance = `"provenance":{"source":"logs","filters":{"tag":"a","cache_hit":false,"start":""},"segment":"seg","first_at":"","last_at":"","created_by":"usr_owner"}`
			curation   = `"curation":{"scanned":4,"kept":4,"dropped":{"errored":0,"truncated":0,"empty":0,"duplicate":0},"folded_conversations":0,"folded_turns":0,"capped":false},"created_at":""}`
		)
		made := d.create(t, `{"name":"support","holdout_pct":12.5,"filters":{"tag":"a","cache_hit":false,"start":"2020-01-01T00:00:00Z"}}`)
		status, train := d.Ask(t, d.Member, "GET", "/v1/datasets/"+made.ID, "")
		if want := `{"id":"ds","object":"dataset","name":"support","role":"train","rows":3,` + provenance + `,"holdout_id":"ds","holdout_of":null,` + curation; status != 200 || seg(train) != want {
			t.Errorf("%d\n%s\n%s", status, train, want)
		}
		status, eval := d.Ask(t, d.Member, "GET", "/v1/datasets/"+*made.HoldoutID, "")
		if want := `{"id":"ds","object":"dataset","name":"support-eval","role":"eval","rows":1,` + provenance + `,"holdout_id":null,"holdout_of":"ds",` + curation; status != 200 || seg(eval) != want {
			t.Errorf("%d\n%s\n%s", status, eval, want)
		}
		d.Wants(t, d.Member, "GET", "/v1/datasets?limit=1", "", 200, `{"object":"list","data":[`+train+`],"has_more":true}`)
		d.Wants(t, d.Member, "GET", "/v1/datasets?limit=1&offset=1", "", 200, `{"object":"list","data":[`+eval+`],"has_more":false}`)
		r.logging(0) // what is frozen is read all the same
		answer := d.Do(t, d.Member, "GET", "/v1/datasets/"+made.ID+"/export", "")
		if answer.Code != 200 || answer.Header().Get("Content-Type") != "application/jsonl; charset=utf-8" || answer.Header().Get("X-Service-Export-Count") != "3" ||
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
		d.Wants(t, d.Member, "GET", "/v1/datasets?limit=1", "", 200, `{"object":"list","data":[`+train+`],"has_more":true}`)
		d.Wants(t, d.Owner, "DELETE", "/v1/datasets/"+made.ID, "", 200, `{"id":"ds","object":"dataset","deleted":true}`)
		for _, path := range []string{"", "/export"} {
			d.Refuses(t, d.Member, "GET", "/v1/datasets/"+made.ID+path, "", 404, "not_found", "")
		}
		d.Refuses(t, d.Owner, "DELETE", "/v1/datasets/"+made.ID, "", 404, "not_found", "")
		d.Wants(t, d.Member, "GET", "/v1/datasets", "", 200, `{"object":"list","data":[`+eval+`],"has_more":false}`)
	})
}

var family = regexp.MustCompile(`"segment":"[^"]+"`)

// seg reduces the name of a segment to its shape.
func seg(text string) string { return family.ReplaceAllString(text, `"segment":"seg"`) }

func TestWhoMayDoWhat(t *testing.T) {
	eachStorage(t, func(t *testing.T, r fixture) {
		d := r.client(t)
		r.log(t, some("a", 3)...)
		made := d.create(t, `{"name":"mine"}`)
		d.Refuses(t, d.Member, "POST", "/v1/datasets/from_logs", `{"name":"x"}`, 403, "insufficient_permissions", "")
		d.Refuses(t, d.Member, "DELETE", "/v1/datasets/"+made.ID, "", 403, "insufficient_permissions", "")
		for _, ask := range [][2]string{{"GET", ""}, {"GET", "/export"}, {"DELETE", ""}} {
			d.Refuses(t, d.Other, ask[0], "/v1/datasets/"+made.ID+ask[1], "", 404, "not_found", "")
		}
		d.Wants(t, d.Other, "GET", "/v1/datasets", "", 200, `{"object":"list","data":[],"has_more":false}`)
		r.has(t, [4]int{1, 3, 3, 0})
	})
}

func TestWhatIsRefusedMakesNothing(t *testing.T) {
	eachStorage(t, func(t *testing.T, r fixture) {
		d := r.client(t)
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
			d.Refuses(t, d.Owner, "POST", "/v1/datasets/from_logs", c.body, 400, c.code, c.param)
		}
		r.logging(0)
		d.Refuses(t, d.Owner, "POST", "/v1/datasets/from_logs", `{"name":"a"}`, 409, "logging_disabled", "")
		r.logging(7)
		r.has(t, [4]int{0, 0, 0, 0})
		for _, name := range []string{"x", strings.Repeat("é", 64), "Größe 7, \"v2\" (日本)/..", "a-eval"} {
			body, err := json.Marshal(map[string]any{"name": name, "holdout_pct": 50, "filters": map[string]any{}})
			if err != nil {
				t.Fatal(err)
			}
			d.create(t, string(body))
			d.Refuses(t, d.Owner, "POST", "/v1/datasets/from_logs", string(body), 409, "conflict", "")
		}
		d.Refuses(t, d.Owner, "POST", "/v1/datasets/from_logs", `{"name":"x-eval"}`, 409, "conflict", "")
		d.Refuses(t, d.Owner, "POST", "/v1/datasets/from_logs", `{"name":"a","holdout_pct":1}`, 409, "conflict", "")
		d.create(t, `{"name":"a","holdout_pct":null}`)
	})
}

func TestADatasetIsMadeOncePerIdempotencyKey(t *testing.T) {
	eachStorage(t, func(t *testing.T, r fixture) {
		d := r.client(t)
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
		if status, text := d.Ask(t, d.Owner, "POST", "/v1/datasets/from_logs", body, "Idempotency-Key", "other"); status != 409 {
			t.Errorf("%d %s", status, text)
		}
		r.has(t, [4]int{2, 200, 200, 0})
	})
}
