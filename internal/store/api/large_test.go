package api_test

import (
	"context"
	"strings"
	"sync"
	"testing"

	"github.com/go-json-experiment/json/jsontext"

	"sovereign/internal/base/tenant"
	"sovereign/internal/store/api"
)

type batch struct {
	Name  string           `json:"name" minLength:"3"`
	Tasks []jsontext.Value `json:"tasks,omitempty" large:"2097152" maxItems:"3"`
}

type counted struct {
	Name  string   `json:"name"`
	Tasks []string `json:"tasks"`
}

func count(_ context.Context, _ tenant.Caller, in batch) (counted, error) {
	out := counted{Name: in.Name, Tasks: []string{}}
	for _, task := range in.Tasks {
		out.Tasks = append(out.Tasks, string(task[:min(len(task), 20)]))
	}
	return out, nil
}

// A large member may be larger than other bodies, and all of it is as strict as they are.
func TestALargeMemberIsTakenAsItIs(t *testing.T) {
	f := newFrame(t, sqlite(t), nil, api.Post("/batches", api.Reader, count, "x"))
	f.bounds.Body.Store(16 << 20)
	f.bounds.Buffered.Set(64 << 20)
	large, spaces := strings.Repeat("x", 3<<19), strings.Repeat(" ", 1<<20)
	for name, c := range map[string]struct {
		body   string
		status int
		words  string
	}{
		"left out":         {`{"name":"abc"}`, 200, `{"name":"abc","tasks":[]}`},
		"empty":            {`{"name":"abc","tasks":[ ]}`, 200, `"tasks":[]`},
		"first":            {`{"tasks":[{"a":1}, 2 ,"x"],"name":"abc"}`, 200, `["{\"a\":1}","2","\"x\""]`},
		"large":            {`{"name":"abc","tasks":["` + large + `"]}`, 200, `"xxxxxxx`},
		"too large":        {`{"name":"abc","tasks":["` + large + `","` + large + `"]}`, 413, "body_too_large"},
		"too large inside": {`{"name":"abc","tasks":["` + large + spaces + `"]}`, 413, "tasks is over 2097152 bytes"},
		"too many":         {`{"name":"abc","tasks":[1,2,3,4]}`, 400, "tasks must be a list of at most 3"},
		"too much else":    {`{"name":"` + large + `","tasks":[]}`, 413, "body_too_large"},
		"an object":        {`{"name":"abc","tasks":{}}`, 400, "tasks must be a list"},
		"null":             {`{"name":"abc","tasks":null}`, 400, "tasks must be a list"},
		"commas":           {`{"name":"abc","tasks":[1,,2]}`, 400, "tasks must be"},
		"two of a name":    {`{"name":"abc","tasks":[{"a":1,"a":2}]}`, 400, "tasks must be valid JSON"},
		"twice":            {`{"name":"abc","tasks":[],"tasks":[1]}`, 400, "two members of one name"},
		"invalid inside":   {`{"name":"abc","tasks":[tru]}`, 400, "tasks must be valid JSON"},
		"invalid UTF-8":    {"{\"name\":\"abc\",\"tasks\":[\"\xff\"]}", 400, "UTF-8"},
		"unknown field":    {`{"name":"abc","tasks":[1],"other":1}`, 400, "other is not a known field"},
		"missing":          {`{"tasks":[1]}`, 400, "name is required"},
		"not JSON":         {`{"tasks":[1]`, 400, "invalid_body"},
		"a list":           {`[1]`, 400, "invalid_body"},
		"deep":             {`{"name":"abc","tasks":[` + strings.Repeat("[", 500) + strings.Repeat("]", 500) + `]}`, 400, "nested deeper"},
	} {
		if got := f.ask(t, "POST", "/v1/batches", c.body); got.status != c.status || !strings.Contains(got.body, c.words) {
			t.Errorf("%s: %d %.300s, want %d %s", name, got.status, got.body, c.status, c.words)
		}
	}
}

func TestLargeBodiesInFlightAreBounded(t *testing.T) {
	hold, entered := make(chan struct{}), make(chan struct{}, 10)
	f := newFrame(t, sqlite(t), nil, api.Post("/batches", api.Reader, func(ctx context.Context, c tenant.Caller, in batch) (counted, error) {
		entered <- struct{}{}
		<-hold
		return count(ctx, c, in)
	}, "x"))
	f.bounds.Body.Store(16 << 20)
	f.bounds.Buffered.Set(64 << 20)
	body := `{"name":"abc","tasks":["` + strings.Repeat("x", 3<<19) + `"]}`
	var group sync.WaitGroup
	for range 4 {
		group.Go(func() {
			if got := f.ask(t, "POST", "/v1/batches", body); got.status != 200 {
				t.Errorf("%d %.300s", got.status, got.body)
			}
		})
		<-entered
	}
	if got := f.ask(t, "POST", "/v1/batches", body); got.status != 429 || got.header.Get("Retry-After") == "" {
		t.Errorf("a fifth: %d %.300s", got.status, got.body)
	}
	close(hold)
	group.Wait()
	if got := f.ask(t, "POST", "/v1/batches", body); got.status != 200 {
		t.Errorf("afterwards: %d %.300s", got.status, got.body)
	}
}
