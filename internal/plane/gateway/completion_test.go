package gateway

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"pgregory.net/rapid"

	"sovereign/internal/base/fault"
	"sovereign/internal/base/money"
	"sovereign/internal/base/outcome"
	"sovereign/internal/base/secret"
	"sovereign/internal/base/tenant"
	"sovereign/internal/live"
	"sovereign/internal/plane/capture"
	"sovereign/internal/plane/gateway/request"
	"sovereign/internal/plane/infer"
	"sovereign/internal/plane/journal/journaltest"
	"sovereign/internal/plane/spool"
	"sovereign/internal/wire/upstream"
)

// silence is an answer of one word, without usage.
const silence = `{"id":"x","choices":[{"index":0,"message":{"role":"assistant","content":"hello"},"finish_reason":"stop"}]}`

// internalTo returns a request of the product to a model.
func internalTo(model string) *infer.Request {
	return &infer.Request{Workspace: home, Origin: "cal_1", Model: model, Body: []byte(strings.Replace(plainRequest, `"m"`, strconv.Quote(model), 1)), MaxTokens: 50}
}

// complete completes a request, and checks that no money and no memory stays held.
func (b *bench) complete(ctx context.Context, q *infer.Request) (*infer.Answer, error) {
	b.t.Helper()
	a, err := b.Complete(ctx, q)
	if (a == nil) == (err == nil) {
		b.t.Fatalf("an answer %v with an error %v", a, err)
	}
	if held := b.funds.Balance(q.Workspace).Held; held != 0 && b.journal.Failure() == nil {
		b.t.Errorf("$%s are still held", held)
	}
	if used := b.Bounds.Buffered.Used(); used != 0 {
		b.t.Errorf("%d bytes are still held", used)
	}
	return a, err
}

// free checks that nothing was charged, nor recorded to be.
func (b *bench) free() {
	b.t.Helper()
	if m, all := b.funds.Balance(home), b.entries(); m.Spent != 0 || len(all) != 0 {
		b.t.Errorf("$%s were charged for nothing: %+v", m.Spent, all)
	}
}

// over puts the bench's model at a provider behind a real socket.
func (b *bench) over(p live.Provider, handler http.HandlerFunc) {
	b.t.Helper()
	server := httptest.NewServer(handler)
	b.t.Cleanup(server.Close)
	p.Name, p.Protocol, p.BaseURL, p.Configured, p.APIKey = "p", live.OpenAI, server.URL, true, secret.New("servers")
	t, ok := b.t.(*testing.T)
	if !ok {
		b.t.Fatal("a benchmark")
	}
	bridge(t, b, &p, nil, nil)
}

func wired(t *testing.T, handler http.HandlerFunc) *bench {
	t.Helper()
	b := newBench(t)
	b.over(live.Provider{}, handler)
	return b
}

func TestAnInternalRequestIsSentAnsweredAndChargedLikeACallers(t *testing.T) {
	for modern, most := range map[bool]string{false: `"max_tokens":50`, true: `"max_completion_tokens":50`} {
		got := make(chan [3]string, 1)
		b := newBench(t)
		b.over(live.Provider{Modern: modern}, func(w http.ResponseWriter, r *http.Request) {
			text, _ := io.ReadAll(r.Body)
			got <- [...]string{string(text), r.Header.Get("Authorization"), r.URL.Path}
			_, _ = io.WriteString(w, good)
		})
		b.Workspaces.Put(home, live.Settings{DefaultMaxTokens: 7})
		a, err := b.complete(t.Context(), internalTo("m"))
		if err != nil {
			t.Fatal(err)
		}
		if got, want := <-got, [...]string{`{"model":"up-m","messages":[{"role":"user","content":"hi"}],` + most + `}`, "Bearer servers", "/chat/completions"}; got != want {
			t.Errorf("%q", got)
		}
		if string(a.Body) != good || a.Model != "m" || a.Usage != (live.Usage{Input: 10, Output: 5}) || a.Cost != 10_000+20_000 || a.Latency <= 0 || !strings.HasPrefix(a.RequestID, "req_") {
			t.Errorf("%+v", a)
		}
		e := b.settled()
		if e.Key != "cal_1" || e.Workspace != home || e.Request != a.RequestID || e.Route != "chat" || e.Model != "m" || e.Requested != "m" || e.Alias != "" || e.Outcome != string(outcome.Finished) {
			t.Errorf("%+v", e)
		}
		if len(b.entries()) != 1 || e.Counted || e.Usage != a.Usage || e.Cost != a.Cost || e.Charged != a.Cost || b.funds.Balance(home).Spent != a.Cost {
			t.Errorf("%+v", b.entries())
		}
	}
}

func TestWithoutAMaximumTheWorkspacesDefaultApplies(t *testing.T) {
	b := newBench(t)
	b.answer = whole(good)
	b.Workspaces.Put(home, live.Settings{DefaultMaxTokens: 7})
	q := internalTo("m")
	q.MaxTokens = 0
	if _, err := b.complete(t.Context(), q); err != nil || !strings.HasSuffix(string(b.sent[0].Body[len(b.sent[0].Body)-2]), `"max_tokens":7`) {
		t.Errorf("%v %s", err, b.sent[0].Body)
	}
}

func TestAnInternalAnswerWithoutUsageIsCountedBeforeItIsKept(t *testing.T) {
	b := wired(t, func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, silence) })
	q := internalTo("m")
	want := live.Usage{Input: 2 + request.MessageOverhead, Output: 1} // the role, the text
	var kept infer.Answer
	q.Keep = func(a *infer.Answer) error {
		kept = *a
		b.free()
		return nil
	}
	a, err := b.complete(t.Context(), q)
	if err != nil || kept.Usage != want || kept.Cost != 6*1000+4000 || a.Usage != want || a.Cost != kept.Cost {
		t.Fatalf("%v %+v %+v", err, kept, a)
	}
	if e := b.settled(); !e.Counted || e.Usage != want || e.Charged != a.Cost || len(b.entries()) != 1 {
		t.Errorf("%+v", b.entries())
	}
}

func TestAnInternalRequestIsRetriedLikeAnyOther(t *testing.T) {
	var calls atomic.Int32
	b := wired(t, func(w http.ResponseWriter, _ *http.Request) {
		if calls.Add(1) == 1 {
			w.WriteHeader(http.StatusInternalServerError)
			return
		}
		_, _ = io.WriteString(w, good)
	})
	s := *b.settings.Load()
	s.Retries = 1
	b.Apply(s)
	if _, err := b.complete(t.Context(), internalTo("m")); err != nil || calls.Load() != 2 || len(b.entries()) != 1 {
		t.Errorf("%v, asked %d times, %+v", err, calls.Load(), b.entries())
	}
}

func TestAnInternalRequestIsRefusedBeforeItCostsAnything(t *testing.T) {
	b := newBench(t, model("m"), model("other"), model("vector", func(m *live.Model) { m.Kind = live.Embedding }))
	b.answer = whole(good)
	b.Aliases.Put(home, &live.Alias{Name: "named", Target: "m"})
	b.funds.Credit("ws_poor", 1000)
	with := func(member string) func(*infer.Request) {
		return func(q *infer.Request) { q.Body = []byte(strings.Replace(plainRequest, "}]}", "}],"+member+"}", 1)) }
	}
	body := func(text string) func(*infer.Request) { return func(q *infer.Request) { q.Body = []byte(text) } }
	for name, c := range map[string]struct {
		change func(*infer.Request)
		kind   fault.Kind
		field  string
	}{
		"an alias":               {func(q *infer.Request) { *q = *internalTo("named") }, fault.ModelNotFound, ""},
		"no model":               {func(q *infer.Request) { *q = *internalTo("none") }, fault.ModelNotFound, ""},
		"an unknown provider":    {func(q *infer.Request) { *q = *internalTo("none/m") }, fault.UnknownProvider, ""},
		"a model that embeds":    {func(q *infer.Request) { *q = *internalTo("vector") }, fault.InvalidParameter, "model"},
		"another model":          {func(q *infer.Request) { q.Model = "other" }, fault.InvalidParameter, "model"},
		"fallbacks":              {with(`"models":["other"]`), fault.InvalidParameter, "models"},
		"a stream":               {with(`"stream":true`), fault.InvalidParameter, "stream"},
		"no stream":              {with(`"stream":false`), fault.InvalidParameter, "stream"},
		"a stream's options":     {with(`"stream_options":{}`), fault.InvalidParameter, "stream_options"},
		"a maximum in the body":  {with(`"max_tokens":7`), fault.InvalidParameter, "max_tokens"},
		"a negative maximum":     {func(q *infer.Request) { q.MaxTokens = -1 }, fault.InvalidParameter, "max_tokens"},
		"too many choices":       {with(`"n":1000`), fault.InvalidParameter, "n"},
		"a name twice":           {with(`"model":"m"`), fault.InvalidBody, ""},
		"another case":           {with(`"Stream":true`), fault.InvalidParameter, "Stream"},
		"no messages":            {body(`{"model":"m"}`), fault.InvalidParameter, "messages"},
		"no JSON":                {body(`{"model":"m"`), fault.InvalidBody, ""},
		"nothing":                {body(``), fault.InvalidBody, ""},
		"a body that is too big": {body(strings.Replace(plainRequest, "hi", strings.Repeat("hi", 1<<20), 1)), fault.BodyTooLarge, ""},
		"too little money":       {func(q *infer.Request) { q.Workspace = "ws_poor" }, fault.InsufficientBalance, ""},
		"no origin":              {func(q *infer.Request) { q.Origin = "" }, fault.Internal, ""},
		"no workspace":           {func(q *infer.Request) { q.Workspace = "" }, fault.Internal, ""},
	} {
		q := internalTo("m")
		q.Keep = func(*infer.Answer) error { t.Errorf("%s: kept", name); return nil }
		c.change(q)
		_, err := b.complete(t.Context(), q)
		if f := fault.From(err); f == nil || f.Kind != c.kind || f.Field != c.field {
			t.Errorf("%s: %v", name, err)
		}
		if _, err := b.Estimate(q, 1); c.kind != fault.InsufficientBalance && fault.From(err) == nil {
			t.Errorf("%s: estimated", name)
		}
	}
	if len(b.sent) > 0 {
		t.Errorf("%d were sent", len(b.sent))
	}
	b.free()
}

func TestAnAnswerThatIsNoneIsNeverKept(t *testing.T) {
	b := newBench(t)
	b.over(live.Provider{}, func(w http.ResponseWriter, r *http.Request) {
		conn, out, err := http.NewResponseController(w).Hijack()
		if err != nil {
			t.Error(err)
			return
		}
		defer func() { _ = conn.Close() }()
		said, _ := io.ReadAll(r.Body)
		_, answer, _ := strings.Cut(string(said), `"content":"`)
		answer, _, _ = strings.Cut(answer, `"`)
		text, quiet := strings.CutSuffix(wires[answer], "…")
		text = strings.Replace(text, "\n", "\nConnection: close\n", 1) // or the next request may come before the end does
		_, _ = out.WriteString("HTTP/1.1 " + strings.ReplaceAll(text, "\n", "\r\n"))
		_ = out.Flush()
		if quiet {
			_, _ = conn.Read(make([]byte, 1))
		}
	})
	for name, status := range map[string]int{
		"cut length": 502, "cut chunk": 502, "cut JSON": 502, "no JSON": 502, "no choices": 502, "an error": 502, "an error of ours": 400, "refused": 400, "rejected": 502,
		"limited": 429, "broken": 502, "events": 502, "silent": 408, "stalled": 408,
	} {
		timeout := time.Minute
		if status == http.StatusRequestTimeout {
			timeout = 100 * time.Millisecond
		}
		b.Apply(Settings{TryTimeout: timeout, StallTimeout: timeout, RequestTimeout: 5 * time.Minute})
		q := internalTo("m")
		q.Body = []byte(strings.Replace(plainRequest, "hi", name, 1))
		q.Keep = func(a *infer.Answer) error { t.Errorf("%s: kept %s", name, a.Body); return nil }
		_, err := b.complete(t.Context(), q)
		if f := fault.From(err); f == nil || f.Status != status {
			t.Errorf("%s: %v", name, err)
		}
	}
	b.free()
}

// wires are raw responses that are no valid answers; those that end in … stay open.
var wires = map[string]string{
	"cut length":       "200 OK\nContent-Type: application/json\nContent-Length: 999\n\n" + good,
	"cut chunk":        "200 OK\nTransfer-Encoding: chunked\n\n" + strconv.FormatInt(int64(len(good)), 16) + "\n" + good + "\n",
	"cut JSON":         "200 OK\n\n" + good[:len(good)-1],
	"no JSON":          "200 OK\nContent-Length: 4\n\noops",
	"no choices":       "200 OK\nContent-Length: 14\n\n{\"choices\":[]}",
	"an error":         "200 OK\nContent-Length: 13\n\n{\"error\":\"x\"}",
	"an error of ours": "200 OK\nContent-Length: 42\n\n{\"error\":{\"type\":\"invalid_request_error\"}} ",
	"refused":          "400 Bad Request\nContent-Length: 2\n\n{}",
	"rejected":         "401 Unauthorized\nContent-Length: 2\n\n{}",
	"limited":          "429 Too Many Requests\nContent-Length: 2\n\n{}",
	"broken":           "500 Internal Server Error\nContent-Length: 2\n\n{}",
	"events":           "200 OK\nContent-Type: text/event-stream\n\n" + providerStream,
	"silent":           "…",
	"stalled":          "200 OK\nContent-Length: 999\n\n{…",
}

func TestCancellingBeforeTheAnswerIsKeptCostsNothing(t *testing.T) {
	gone := make(chan struct{})
	begun := make(chan struct{})
	b := wired(t, func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.ReadAll(r.Body)
		_, _ = io.WriteString(w, good[:50])
		_ = http.NewResponseController(w).Flush()
		close(begun)
		<-r.Context().Done()
		close(gone)
	})
	ctx, cancel := context.WithCancel(t.Context())
	go func() { <-begun; cancel() }()
	q := internalTo("m")
	q.Keep = func(*infer.Answer) error { t.Error("kept"); return nil }
	if _, err := b.complete(ctx, q); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	select {
	case <-gone:
	case <-time.After(time.Minute):
		t.Error("the provider still works although the context was cancelled")
	}
	b.free()

	// The answer is whole, and the context has just ended.
	b = newBench(t)
	ctx, cancel = context.WithCancel(t.Context())
	b.answer = func(r *upstream.Request) (*upstream.Response, error) {
		response, err := whole(good)(r)
		response.Body = io.NopCloser(io.MultiReader(response.Body, readerFunc(func([]byte) (int, error) { cancel(); return 0, io.EOF })))
		return response, err
	}
	if _, err := b.complete(ctx, q); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	b.free()
	if _, err := b.complete(ctx, q); !errors.Is(err, context.Canceled) { // and asks again
		t.Error(err)
	}
	b.free()
}

func TestCancellingAfterTheAnswerIsKeptIsCharged(t *testing.T) {
	b := newBench(t)
	b.answer = whole(good)
	ctx, cancel := context.WithCancel(t.Context())
	q := internalTo("m")
	q.Keep = func(*infer.Answer) error { cancel(); return nil }
	if a, err := b.complete(ctx, q); err != nil || b.settled().Charged != a.Cost {
		t.Errorf("%+v %v", a, err)
	}
}

func TestAStoppingServerEndsInternalRequestsToo(t *testing.T) {
	begun := make(chan struct{})
	b := wired(t, func(_ http.ResponseWriter, r *http.Request) {
		_, _ = io.ReadAll(r.Body)
		close(begun)
		<-r.Context().Done()
	})
	go func() { <-begun; b.Abort() }()
	for range 2 { // one that runs, and one that comes too late
		if _, err := b.complete(t.Context(), internalTo("m")); fault.From(err) == nil || fault.From(err).Status != http.StatusServiceUnavailable {
			t.Error(err)
		}
	}
	if b.Running() != 0 {
		t.Errorf("%d are running", b.Running())
	}
	b.free()
}

func TestAnInternalRequestHasTheTimeoutsOfAnyOther(t *testing.T) {
	b := newBench(t)
	b.Apply(Settings{TryTimeout: 5 * time.Second, StallTimeout: 5 * time.Second, RequestTimeout: 50 * time.Millisecond})
	b.over(live.Provider{}, func(_ http.ResponseWriter, r *http.Request) {
		_, _ = io.ReadAll(r.Body)
		<-r.Context().Done()
	})
	if _, err := b.complete(t.Context(), internalTo("m")); fault.From(err) == nil || fault.From(err).Status != http.StatusRequestTimeout {
		t.Error(err)
	}
	b.free()
}

func TestAnInternalRequestUsesTheWorkspacesOwnKey(t *testing.T) {
	keys := make(chan string, 2)
	b := wired(t, func(w http.ResponseWriter, r *http.Request) {
		keys <- r.Header.Get("Authorization")
		_, _ = io.WriteString(w, good)
	})
	b.Keys.Put("ws_poor", "p", &live.OwnKey{Key: secret.New("sk-own")})
	q := internalTo("m")
	q.Workspace = "ws_poor"
	a, err := b.complete(t.Context(), q)
	if err != nil || a.Cost != 0 || a.Usage.Input != 10 {
		t.Fatalf("%v: %+v", err, a)
	}
	if key := <-keys; key != "Bearer sk-own" {
		t.Error(key)
	}
	if e := b.settled(); !e.Own || e.Charged != 0 || e.Key != "cal_1" {
		t.Errorf("%+v", e)
	}
	s := *b.settings.Load()
	s.OwnKeyFee = 100_000
	b.Apply(s)
	b.funds.Credit("ws_poor", money.Dollar)
	if a, err = b.complete(t.Context(), q); err != nil || a.Cost != 3000 || b.settled().Charged != 3000 {
		t.Errorf("a tenth of the price: %v %+v", err, a)
	}
}

func TestAnInternalExchangeIsNeitherLoggedNorCached(t *testing.T) {
	b := newBench(t)
	b.answer = whole(good)
	rows, err := spool.Open(journaltest.NewDisk(), spool.Position{}, 1<<30)
	if err != nil {
		t.Fatal(err)
	}
	b.Workspaces.Put(home, live.Settings{Cache: true, LogDays: 7})
	b.Recorder = capture.NewRecorder(b.Workspaces, rows)
	step := func(sent, logged int) {
		t.Helper()
		if len(b.sent) != sent || b.Recorder.Counts().Logged != int64(logged) {
			t.Errorf("asked %d times, logged %d; want %d and %d", len(b.sent), b.Recorder.Counts().Logged, sent, logged)
		}
	}
	theirs := func() {
		t.Helper()
		ask := &request.Request{Endpoint: request.Chat, Caller: tenant.Caller{Workspace: home, Key: "key_1"}, ID: "req_" + strconv.Itoa(len(b.entries())), Body: []byte(plainRequest), Annotations: &request.Annotations{}}
		if err := b.Serve(t.Context(), ask, &httpWriter{httptest.NewRecorder()}); err != nil {
			t.Fatal(err)
		}
	}
	ours := func() {
		t.Helper()
		q := internalTo("m")
		q.MaxTokens = 0 // the same question as the caller's, to the letter
		if a, err := b.complete(t.Context(), q); err != nil || string(a.Body) != good {
			t.Fatal(err)
		}
	}
	ours()
	step(1, 0)
	ours()
	step(2, 0)
	theirs() // gets nothing of ours
	step(3, 1)
	theirs()
	step(3, 2)
	ours() // gets nothing of theirs
	step(4, 2)
}

func TestAnInternalAnswerIsBoundedAndCountsAgainstTheBudget(t *testing.T) {
	padded := func(size int) string {
		return strings.Replace(good, "hello", strings.Repeat("x", size-len(good)+len("hello")), 1)
	}
	var size atomic.Int64
	b := wired(t, func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, padded(int(size.Load()))) })
	size.Store(maxCompletion)
	if a, err := b.complete(t.Context(), internalTo("m")); err != nil || len(a.Body) != maxCompletion {
		t.Errorf("of the greatest size: %v", err)
	}
	spent := b.funds.Balance(home).Spent
	size.Add(1)
	if _, err := b.complete(t.Context(), internalTo("m")); fault.From(err) == nil || fault.From(err).Status != http.StatusBadGateway {
		t.Errorf("longer: %v", err)
	}
	size.Store(1 << 20)
	for _, budget := range []int64{10, 1000, 1<<20 + 1000} { // too little for the question, the first piece, the copy
		b.Bounds.Buffered.Set(budget)
		if _, err := b.complete(t.Context(), internalTo("m")); fault.From(err) == nil || fault.From(err).Status != http.StatusTooManyRequests {
			t.Errorf("in %d bytes: %v", budget, err)
		}
	}
	b.Bounds.Buffered.Set(1 << 30)
	q := internalTo("m")
	q.Keep = func(a *infer.Answer) error {
		if used := b.Bounds.Buffered.Used(); used != int64(len(a.Body)+len(q.Body)) {
			t.Errorf("%d bytes are held for an answer of %d", used, len(a.Body))
		}
		return errors.New("enough")
	}
	_, _ = b.complete(t.Context(), q)
	if b.funds.Balance(home).Spent != spent {
		t.Error("something was charged")
	}
}

func TestAnAnswerSharesNoMemoryWithAnother(t *testing.T) {
	n := 0
	b := wired(t, func(w http.ResponseWriter, _ *http.Request) {
		n++
		_, _ = io.WriteString(w, strings.Replace(good, "hello", fmt.Sprintf("%05d", n), 1))
	})
	var all []*infer.Answer
	for range 5 {
		a, err := b.complete(t.Context(), internalTo("m"))
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, a)
	}
	for i, a := range all {
		if !strings.Contains(string(a.Body), fmt.Sprintf("%05d", i+1)) {
			t.Errorf("%d: %s", i, a.Body)
		}
	}
}

// An answer of the estimated length, counted as the estimate counts, costs what was estimated.
func TestAnEstimateIsWhatACountedAnswerCosts(t *testing.T) {
	b := newBench(t, model("m", func(m *live.Model) {
		m.Price.Tiers = []live.Tier{{Over: 100, Rates: live.Flat(2_000_000_000, 8_000_000_000)}}
	}))
	b.Count = func(text string) int64 { return int64(len(text)+3) / 4 }
	rapid.Check(t, func(t *rapid.T) {
		words, output := rapid.IntRange(1, 200).Draw(t, "words"), rapid.IntRange(1, 500).Draw(t, "output")
		q := internalTo("m")
		q.MaxTokens = 1000
		q.Body = []byte(strings.Replace(plainRequest, "hi", strings.Repeat("word ", words), 1))
		b.answer = whole(fmt.Sprintf(`{"choices":[{"message":{"content":%q}}]}`, strings.Repeat("four", output)))
		estimate, err := b.Estimate(q, int64(output))
		if err != nil {
			t.Fatal(err)
		}
		a, err := b.complete(context.Background(), q)
		if err != nil {
			t.Fatal(err)
		}
		if a.Cost != estimate {
			t.Fatalf("%d words, %d tokens: estimated %s, cost %s", words, output, estimate, a.Cost)
		}
	})
}
