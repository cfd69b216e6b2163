package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"sovereign/internal/base/money"
	"sovereign/internal/base/secret"
)

// A streamed answer is logged as the same answer would be in one piece, on every wire.
func TestAnAnswerIsLoggedAsItWasGiven(t *testing.T) {
	t.Parallel()
	models := map[string]string{
		"mock/chat": "mock?chunks=5", "mock/odd": "mock?chunks=5&crlf&ping=blank&split=7", "mock/tools": "mock?tool&text=2", "mock/reasoning": "mock?reasoning=2&chunks=4",
		"mock/length": "mock?chunks=3&finish=length", "mock/unasked": "mock?chunks=5&usage=last", "claude/chat": "mock?chunks=5", "claude/tools": "mock?tool&text=2",
		"gemini/chat": "mock?chunks=5", "gemini/tools": "mock?tool&text=2",
	}
	eachEngine(t, func(t *testing.T, p instance) {
		provider := startProvider(t)
		s := p.serve(t, "--config", wireConfig(t, provider, models))
		c := s.caller()
		p.mustAdmin(t, nil, "logging", "on", "--workspace", "default", "--retention", "7", "--json")
		for model := range models {
			t.Run(strings.ReplaceAll(model, "/", "-"), func(t *testing.T) {
				tools := `"tools":[{"type":"function","function":{"name":"look_up","parameters":{"type":"object","properties":{"city":{"type":"string"}}}}}]`
				ask := func(stream bool) (*answer, logRow) {
					more := []string{tools, fmt.Sprintf(`"stream":%v`, stream)}
					if stream {
						more = append(more, `"stream_options":{"include_usage":true}`)
					}
					a := c.must(t, chat(model, "What is it?", more...))
					if a.status != 200 || !a.done {
						t.Fatalf("%d %s %v", a.status, a.body, a.events)
					}
					return a, c.logged(t, a.id())
				}
				whole, row := ask(false)
				var body struct {
					Choices []struct {
						Message      map[string]any
						FinishReason string `json:"finish_reason"`
					}
				}
				if err := json.Unmarshal(whole.body, &body); err != nil {
					t.Fatal(err)
				}
				_, streamed := ask(true)
				used := p.usage(t, "default")
				for how, r := range map[string]logRow{"whole": row, "streamed": streamed} {
					var response map[string]any
					if err := json.Unmarshal(r.Response, &response); err != nil {
						t.Fatal(err)
					}
					want := comparable(body.Choices[0].Message)
					if diff := cmp.Diff(want, comparable(response)); diff != "" {
						t.Errorf("%s:\n%s", how, diff)
					}
					charge := used[r.RequestID]
					if r.FinishReason != body.Choices[0].FinishReason || r.PromptTokens != charge.Input || r.CompletionTokens != charge.Output || r.CostUSD != charge.Cost ||
						r.Model != model || r.Stream != (how == "streamed") || r.Cached || r.ExpiresAt.Sub(r.CreatedAt) != 7*24*time.Hour || r.Segment != "none" || string(r.Tools) == "null" {
						t.Errorf("%s: %+v, charged %+v", how, r, charge)
					}
					if string(r.Messages) != `[{"role":"user","content":"What is it?"}]` {
						t.Errorf("%s: %s", how, r.Messages)
					}
				}
			})
		}
	})
}

// comparable is a message without what differs from one answer to the next: the ids of calls, and empty members.
func comparable(message map[string]any) map[string]any {
	for name, value := range message {
		if list, ok := value.([]any); value == nil || ok && len(list) == 0 || value == "" {
			delete(message, name)
		}
	}
	calls, _ := message["tool_calls"].([]any)
	for _, call := range calls {
		if call, ok := call.(map[string]any); ok {
			delete(call, "id")
			delete(call, "index")
		}
	}
	return message
}

func TestWhatIsNeverLogged(t *testing.T) {
	t.Parallel()
	s, _, _ := wires(t, map[string]string{
		"mock/chat": "mock?chunks=3", "mock/slow": "mock?chunks=200&chunk_delay=10ms", "mock/dies": "mock?chunks=5&die_after=2", "mock/broken": "mock?chunks=5&error_event_after=2",
		"mock/down": "mock?status=503", "mock/refuses": "mock?status=400", "mock/embedding": "mock", "cohere/rerank": "mock", "mock/garbage": "mock?garbage_after=0",
	}, "--limits-retries", "0")
	s.mustAdmin(t, nil, "logging", "on", "--workspace", "default", "--json")
	c := s.caller()
	send := func(path, body string, header http.Header, stop func([]string) bool) *answer {
		with := *c
		with.header = header
		a, err := with.post(t.Context(), path, body, stop)
		if err != nil {
			t.Fatal(err)
		}
		return a
	}
	const route = "/v1/chat/completions"
	for _, body := range []string{
		chat("mock/dies", "x", `"stream":true`), chat("mock/broken", "x", `"stream":true`), chat("mock/down", "x"), chat("mock/refuses", "x"), chat("mock/none", "x"),
		chat("mock/garbage", "x", `"stream":true`), `{"model":"mock/chat"}`,
	} {
		send(route, body, nil, nil)
	}
	send(route, chat("mock/slow", "x", `"stream":true`), nil, func(events []string) bool { return len(events) == 3 }) // a caller that leaves
	if a := send(route, chat("mock/chat", "x"), http.Header{"X-Service-Log": {"off"}}, nil); a.status != 200 {
		t.Errorf("%d", a.status)
	}
	for path, body := range map[string]string{
		"/v1/embeddings": `{"model":"mock/embedding","input":"x"}`, "/v1/rerank": `{"model":"cohere/rerank","query":"x","documents":["y"]}`, "/v1/responses": `{"model":"mock/chat","input":"x"}`,
	} {
		if a := send(path, body, nil, nil); a.status != 200 {
			t.Errorf("%s: %d %s", path, a.status, a.body)
		}
	}
	last := send(route, chat("mock/chat", "the one that is"), nil, nil)
	c.logged(t, last.id())
	time.Sleep(300 * time.Millisecond)
	if rows := c.logs(t, ""); len(rows) != 1 {
		t.Errorf("%d rows: %+v", len(rows), rows)
	}
}

// When the command returns, logging is on or off for every route that reads logs.
func TestLoggingIsOffUntilItIsTurnedOnAndOffAtOnce(t *testing.T) {
	t.Parallel()
	eachEngine(t, func(t *testing.T, p instance) {
		provider := startProvider(t)
		s := p.serve(t, "--config", mockConfig(t, provider, map[string]string{"chat": "mock"}))
		c := s.caller()
		paths := []string{"/v1/logs", "/v1/logs/export", "/v1/logs/log_1", "/v1/segments", "/v1/traces", "/v1/traces/x"}
		refused := func(when string) {
			t.Helper()
			for _, path := range paths {
				var envelope struct{ Error struct{ Code string } }
				if status := c.get(t, path, &envelope); status != 409 || envelope.Error.Code != "logging_disabled" {
					t.Errorf("%s, %s: %d %+v", when, path, status, envelope)
				}
			}
		}
		state := func() bool {
			var setup struct{ Logging bool }
			c.get(t, "/v1/setup/status", &setup)
			return setup.Logging
		}
		if refused("at first"); state() {
			t.Error("it is on at first")
		}
		c.must(t, chat("mock/chat", "before"))
		p.mustAdmin(t, nil, "logging", "on", "--workspace", "default", "--retention", "90", "--json")
		if !state() {
			t.Error("it is not on")
		}
		c.logged(t, c.must(t, chat("mock/chat", "while it is on")).id())
		ctx, stop := context.WithCancel(t.Context())
		var group sync.WaitGroup
		for range 4 {
			group.Go(func() {
				for ctx.Err() == nil {
					_, _ = c.post(ctx, "/v1/chat/completions", chat("mock/chat", "all the time"), nil)
				}
			})
		}
		eventually(t, "the load is logged", func() bool {
			var page struct{ Total int }
			c.get(t, "/v1/logs?limit=1", &page)
			return page.Total > 1
		})
		p.mustAdmin(t, nil, "logging", "off", "--workspace", "default", "--json")
		off := time.Now()
		refused("off")
		time.Sleep(300 * time.Millisecond)
		stop()
		group.Wait()
		refused("still off")
		p.mustAdmin(t, nil, "logging", "on", "--workspace", "default", "--retention", "7", "--json")
		rows := c.logs(t, "")
		for _, r := range rows {
			if r.CreatedAt.After(off) {
				t.Errorf("a row of %s, and it was off at %s", r.CreatedAt, off)
			}
			if r.ExpiresAt.Sub(r.CreatedAt) != 90*24*time.Hour {
				t.Errorf("the deadline of a row moved: %+v", r)
			}
			if strings.Contains(string(r.Messages), "before") {
				t.Error("what was said before is logged")
			}
		}
		if len(rows) < 2 {
			t.Errorf("%d rows", len(rows))
		}
	})
}

func TestLogsTellOfAliasesFallbacksTagsTracesAndReplays(t *testing.T) {
	t.Parallel()
	s, _, _ := wires(t, map[string]string{"mock/chat": "mock?chunks=3", "mock/down": "mock?status=503"}, "--limits-retries", "0")
	p := s.instance
	p.mustAdmin(t, nil, "logging", "on", "--workspace", "default", "--json")
	c := s.caller()
	body := func(model, text string) string { return chat(model, text) }
	put, err := http.NewRequestWithContext(t.Context(), http.MethodPut, c.address+"/v1/aliases", strings.NewReader(`{"name":"fast","target_model":"mock/down","fallback_models":["mock/chat"]}`))
	if err != nil {
		t.Fatal(err)
	}
	put.Header.Set("Authorization", "Bearer "+c.key)
	put.Header.Set("Content-Type", "application/json")
	if response, err := c.client.Do(put); err != nil || response.StatusCode != http.StatusOK {
		t.Fatal(response, err)
	}
	c.header = http.Header{"X-Service-Tag": {"task/ü"}, "X-Service-Trace-Id": {"run 1"}, "X-Service-Cache": {"on"}}
	fell := c.logged(t, c.must(t, body("fast", "one")).id())
	if fell.Model != "mock/chat" || *fell.Alias != "fast" || fell.RequestedModel != "fast" || *fell.FallbackFrom != "mock/down" || *fell.Tag != "task/ü" || *fell.TraceID != "run 1" {
		t.Errorf("%+v", fell)
	}
	first := c.logged(t, c.must(t, body("mock/chat", "two")).id())
	again := c.logged(t, c.must(t, body("mock/chat", "two")).id())
	if first.Cached || !again.Cached || again.CostUSD != 0 || again.PromptTokens != first.PromptTokens || string(again.Response) != string(first.Response) {
		t.Errorf("%+v\n%+v", first, again)
	}
	for filters, want := range map[string]int{
		"tag=" + url.QueryEscape("task/ü"): 3, "cache_hit=true": 1, "cache_hit=false": 2, "model=mock/chat": 3, "model=mock/down": 0, "tag=x": 0,
		"model=mock/chat&cache_hit=true": 1, "finish_reason=stop": 3, "segment=none": 3, "start=" + first.CreatedAt.Format(time.RFC3339Nano): 2, "end=2020-01-01T00:00:00Z": 0,
	} {
		if rows := c.logs(t, filters); len(rows) != want {
			t.Errorf("%s: %d rows, want %d", filters, len(rows), want)
		}
	}
	for _, bad := range []string{"cache_hit=perhaps", "start=yesterday", "end=1", "limit=0", "offset=-1", "start=2026-01-02T00:00:00Z&end=2026-01-01T00:00:00Z", "tags=x"} {
		var envelope struct {
			Error struct{ Code, Param, Message string }
		}
		field, _, _ := strings.Cut(bad, "=")
		if strings.HasPrefix(bad, "start=2026") {
			field = "end"
		}
		if status := c.get(t, "/v1/logs?"+bad, &envelope); status != 400 || !strings.Contains(envelope.Error.Message, field) {
			t.Errorf("%s: %d %+v", bad, status, envelope)
		}
	}
	for _, odd := range []string{`{"role":"user","content":"half a pair \ud83d"}`, `{"role":"user","content":"a","content":"b"}`, `{"role":"user","content":"a NUL: \u0000"}`} {
		with := *c
		with.header = nil
		a := with.must(t, `{"model":"mock/chat","messages":[`+odd+`]}`)
		if row := c.logged(t, a.id()); a.status != 200 || !strings.Contains(odd, "NUL") && len(row.Messages) == 0 {
			t.Errorf("%s: %d, %s", odd, a.status, row.Messages)
		}
	}
	var run struct {
		Steps int
		Data  []logRow
	}
	if c.get(t, "/v1/traces/run%201", &run); run.Steps != 3 || len(run.Data) != 3 || run.Data[0].ID != fell.ID || run.Data[2].ID != again.ID {
		t.Errorf("%+v", run)
	}
	var one logRow
	if c.get(t, "/v1/logs/"+fell.ID, &one); one.RequestID != fell.RequestID {
		t.Errorf("%+v", one)
	}
	stranger := s.callerWith(p.newWorkspace(t, "other", money.Dollar))
	p.mustAdmin(t, nil, "logging", "on", "--workspace", "other", "--json")
	if status := stranger.get(t, "/v1/logs/"+fell.ID, nil); status != 404 {
		t.Errorf("another workspace's row: %d", status)
	}
	if rows := stranger.logs(t, ""); len(rows) != 0 {
		t.Errorf("another workspace's rows: %+v", rows)
	}
}

// Rows survive kill -9, except those of the last moment, and no row comes twice.
func TestDrillKillUnderLoadLogsNothingTwice(t *testing.T) {
	t.Parallel()
	p := newInstance(t, secret.Text{})
	provider := startProvider(t)
	config := mockConfig(t, provider, map[string]string{"chat": "mock?chunks=3&in=1&out=1"})
	const callers = 4
	finished := map[string]bool{}
	var mu sync.Mutex
	count := func() int {
		mu.Lock()
		defer mu.Unlock()
		return len(finished)
	}
	kills, key := drills(3, 40), ""
	for range kills {
		s := p.serve(t, "--config", config)
		if key == "" {
			key = s.key() // it is shown once
			p.mustAdmin(t, nil, "logging", "on", "--workspace", "default", "--json")
		}
		ctx, stop := context.WithCancel(t.Context())
		c := s.callerWith(key)
		var group sync.WaitGroup
		for i := range callers {
			group.Go(func() {
				for ctx.Err() == nil {
					a, err := c.post(ctx, "/v1/chat/completions", chat("mock/chat", "x", fmt.Sprintf(`"stream":%v`, i%2 == 0)), nil)
					if err == nil && a.done && a.status == 200 {
						mu.Lock()
						finished[a.id()] = true
						mu.Unlock()
					}
				}
			})
		}
		before := count()
		eventually(t, "answers finish", func() bool { return count() > before+100 })
		s.kill()
		stop()
		group.Wait()
	}
	s := p.serve(t, "--config", config)
	c := s.callerWith(key)
	seen := map[string]bool{}
	for _, r := range c.logs(t, "") {
		if seen[r.RequestID] {
			t.Errorf("%s is logged twice", r.RequestID)
		}
		seen[r.RequestID] = true
	}
	missing := 0
	for id := range finished {
		if !seen[id] {
			missing++
		}
	}
	t.Logf("%d kills: %d answers finished, %d rows, %d answers without one", kills, len(finished), len(seen), missing)
	if most := 2 * callers * kills; missing > most || len(finished) < 100 {
		t.Errorf("%d of %d rows are missing; the last moments could cost %d", missing, len(finished), most)
	}
}
