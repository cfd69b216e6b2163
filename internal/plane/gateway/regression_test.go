package gateway

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"sovereign/internal/base/fault"
	"sovereign/internal/base/money"
	"sovereign/internal/base/outcome"
	"sovereign/internal/base/secret"
	"sovereign/internal/base/tenant"
	"sovereign/internal/live"
	"sovereign/internal/net/breaker"
	"sovereign/internal/plane/gateway/answer"
	"sovereign/internal/plane/gateway/request"
	"sovereign/internal/text/sse"
	"sovereign/internal/wire/responses"
	"sovereign/internal/wire/upstream"
)

type sends = func(*upstream.Request) (*upstream.Response, error)

// gone is a Writer whose caller has left.
type gone struct{ *httptest.ResponseRecorder }

func (gone) Send([]byte) error { return errors.New("broken pipe") }
func (gone) End([]byte) error  { return errors.New("broken pipe") }

func TestAnOwnKeyForAKeylessProviderChangesNothing(t *testing.T) {
	b := newBench(t, model("vllm/m", func(m *live.Model) { m.Provider = &live.Provider{Name: "vllm", Protocol: "test", Configured: true} }))
	b.answer = whole(good)
	b.Keys.Put(home, "vllm", &live.OwnKey{Key: secret.New("junk")})
	if _, err := b.ask(strings.Replace(plainRequest, `"m"`, `"vllm/m"`, 1)); err != nil || b.settled().Cost == 0 {
		t.Errorf("the operator's own machine answered for nothing: %v", err)
	}
}

func TestInvalidRequestsOfOneCallerDoNotOpenTheCircuit(t *testing.T) {
	sse := func(text string) func() sends { return func() sends { return events(strings.NewReader(text)) } }
	for name, c := range map[string]struct {
		e    *request.Endpoint
		body string
		ans  func() sends
	}{
		"responses stream, error event": {request.Responses, responding, sse("event: error\ndata: {\"type\":\"error\",\"error\":{\"type\":\"invalid_request_error\",\"code\":\"context_length_exceeded\",\"message\":\"too long\"}}\n\n")},
		"responses stream, failed":      {request.Responses, responding, sse("event: response.failed\ndata: {\"type\":\"response.failed\",\"response\":{\"status\":\"failed\",\"error\":{\"code\":\"invalid_image_url\",\"message\":\"no such image\"}}}\n\n")},
		"responses whole, failed": {request.Responses, `{"model":"m","input":"hi"}`, func() sends {
			return whole(`{"id":"r","status":"failed","error":{"code":"invalid_prompt","message":"x"},"output":[]}`)
		}},
		"chat stream": {request.Chat, streamRequest, sse("data: {\"error\":{\"message\":\"too long\",\"type\":\"invalid_request_error\",\"code\":\"context_length_exceeded\"}}\n\n")},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t, native())
			b.funds.Credit("ws_victim", credit)
			b.Breaker.Apply(breaker.Settings{Failures: 10, Pause: time.Hour, Longest: time.Hour})
			for range 10 {
				b.answer = c.ans()
				_, _ = b.askFrom(context.Background(), c.e, c.body)
			}
			b.answer = whole(good)
			n := len(b.sent)
			if _, err := b.askWith(request.Chat, "ws_victim", "", plainRequest); len(b.sent) == n {
				t.Errorf("another workspace is refused: %v", err)
			}
		})
	}
}

func TestAFailingOwnKeyDoesNotOpenTheSharedCircuit(t *testing.T) {
	b := newBench(t)
	b.funds.Credit("ws_victim", credit)
	b.Breaker.Apply(breaker.Settings{Failures: 3, Pause: time.Hour, Longest: time.Hour})
	b.Keys.Put(home, "p", &live.OwnKey{Key: secret.New("k")})
	b.answer = answers(http.StatusInternalServerError, "{}")
	for range 3 {
		_, _ = b.ask(plainRequest)
	}
	b.answer = whole(good)
	if _, err := b.askWith(request.Chat, "ws_victim", "", plainRequest); err != nil {
		t.Errorf("the server's own key is not tried any more: %v", err)
	}
}

// bridge puts a model at a provider that is reached through a dialect, or by its own sender.
func bridge(t *testing.T, b *bench, p *live.Provider, s upstream.Sender, d upstream.Dialect) {
	t.Helper()
	m := model("m")
	m.Provider = p
	fleet, err := upstream.NewFleet(live.NewCatalog([]*live.Provider{p}, []*live.Model{m}), upstream.Protocols{
		Factories: map[live.Protocol]upstream.SenderFactory{"test": func(*live.Provider) (upstream.Sender, error) { return s, nil }},
		Dialects:  map[live.Protocol]upstream.Dialect{live.Anthropic: d},
		Responses: responses.Dialect{Now: time.Now, New: func(s string) string { return s + "_1" }},
	}, nil)
	if err != nil {
		t.Fatal(err)
	}
	b.Fleet = func() *upstream.Fleet { return fleet }
	t.Cleanup(fleet.Sender(m).Close)
}

// says is a sender whose answer is always the same stream.
type says struct{ text string }

func (*says) Close() {}
func (s *says) Send(_ context.Context, r *upstream.Request) (*upstream.Response, error) {
	return events(strings.NewReader(s.text))(r)
}

func TestAStreamMayRepeatLongInstructionsBeforeItAnswers(t *testing.T) {
	long := strings.Repeat("be good. ", 60_000) // 540 KB
	body := `{"model":"m","stream":true,"input":"hi","instructions":"` + long + `"}`
	b := newBench(t)
	bridge(t, b, provider, &says{providerStream}, nil) // the gateway's own bridge repeats them twice, as OpenAI does
	if _, err := respond(b, body); err != nil {
		t.Error(err)
	}
}

func TestAFinishedStreamWithoutItsEndEventIsComplete(t *testing.T) {
	b := newBench(t)
	bridge(t, b, provider, &says{strings.TrimSuffix(providerStream, "data: [DONE]\n\n")}, nil)
	if _, err := b.ask(streamRequest); err != nil {
		t.Error("chat", err)
	}
	if got, err := respond(b, responding); err != nil || !strings.Contains(got, "response.completed") {
		t.Errorf("responses: %v …%s", err, got[max(0, len(got)-200):])
	}
}

func TestCommentsResetTheStallTimeoutOnEveryProtocol(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.ReadAll(r.Body)
		w.Header().Set("Content-Type", "text/event-stream")
		for range 8 { // longer, together, than the timeouts
			time.Sleep(500 * time.Millisecond)
			_, _ = io.WriteString(w, ": PROCESSING\n\n")
			_ = http.NewResponseController(w).Flush()
		}
		_, _ = io.WriteString(w, providerStream)
	}))
	defer server.Close()
	for e, body := range map[*request.Endpoint]string{request.Chat: streamRequest, request.Responses: responding} {
		b := newBench(t)
		b.Apply(Settings{TryTimeout: 3 * time.Second, StallTimeout: 3 * time.Second, RequestTimeout: time.Minute})
		bridge(t, b, &live.Provider{Name: "a", Protocol: live.OpenAI, BaseURL: server.URL, Configured: true}, nil, nil)
		if _, err := b.askFrom(context.Background(), e, body); err != nil {
			t.Errorf("%s: %v", e.Name, err)
		}
	}
}

// short is a dialect that translates a long answer into a short one.
type short struct{}

func (short) NewExchange(*upstream.Request) (upstream.Exchange, error) { return short{}, nil }
func (short) ErrorAnswer(s int, b []byte) (int, []byte)                { return s, b }
func (short) Request() (string, []byte)                                { return "/x", nil }
func (short) Answer([]byte) ([]byte, error)                            { return []byte(good), nil }
func (short) Event(to []byte, _ sse.Event) ([]byte, error)             { return to, nil }
func (short) End(to []byte) ([]byte, error)                            { return to, nil }

func TestTranslatedBytesCountAgainstTheBudget(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write(make([]byte, 32<<20)) }))
	defer server.Close()
	b := newBench(t)
	b.Bounds.Buffered.Set(1 << 20)
	bridge(t, b, &live.Provider{Name: "a", Protocol: live.Anthropic, BaseURL: server.URL, Configured: true}, nil, short{})
	if _, err := b.ask(plainRequest); err == nil {
		t.Error("32 MiB were held that a budget of 1 MiB does not know of")
	}
}

func TestReferencesToStoredItemsNeedAnOwnKey(t *testing.T) {
	b := newBench(t, native())
	b.answer = whole(`{"id":"r","status":"completed","output":[],"usage":{"input_tokens":90000,"output_tokens":1}}`)
	_, err := b.askFrom(context.Background(), request.Responses, `{"model":"m","max_output_tokens":16,"input":[{"type":"item_reference","id":"msg_of_another"}]}`)
	if err == nil {
		t.Errorf("sent with the server's key, charged $%s", b.settled().Cost)
	}
}

func TestUnreportedSearchesAreCounted(t *testing.T) {
	for _, usage := range []string{``, `,"usage":{"total_tokens":12}`} {
		b := newBench(t, model("r", func(m *live.Model) {
			m.Kind, m.MaxOutput, m.Price = live.Rerank, 0, live.Price{Rates: live.Rates{Search: 2_000_000_000_000}}
		}))
		b.answer = whole(`{"results":[{"index":0,"relevance_score":0.1}]` + usage + `}`)
		_, err := b.askFrom(context.Background(), request.Rerank, `{"model":"r","query":"which?","documents":["one"]}`)
		if err != nil || b.settled().Cost == 0 {
			t.Errorf("delivered, charged nothing %v", err)
		}
	}
}

func TestAnAnswerThatWasNotChargedIsNotCached(t *testing.T) {
	b := newBench(t)
	b.answer = events(strings.NewReader(providerStream))
	ask := &request.Request{Endpoint: request.Chat, Caller: tenant.Caller{Workspace: home, Key: "key_1"}, ID: "req_a", Body: []byte(streamRequest), Cache: "on"}
	_ = b.Serve(context.Background(), ask, gone{httptest.NewRecorder()})
	if w, _ := b.askWith(request.Chat, home, "on", streamRequest); w.Header().Get("X-Service-Cache") == "hit" && b.funds.Balance(home).Spent == 0 {
		t.Error("delivered whole, never charged")
	}
}

func TestOnlyTheAttemptThatAnsweredIsCached(t *testing.T) {
	b := newBench(t)
	b.Apply(Settings{TryTimeout: time.Minute, StallTimeout: time.Minute, RequestTimeout: 2 * time.Minute, Retries: 1})
	b.answer = func(r *upstream.Request) (*upstream.Response, error) {
		if len(b.sent) == 1 {
			return events(strings.NewReader("data: {\"id\":\"dead\",\"system_fingerprint\":\"fp_dead\",\"choices\":[{\"index\":0,\"delta\":{\"role\":\"assistant\"},\"logprobs\":{\"content\":[{\"token\":\"dead\"}]}}]}\n\n"))(r)
		}
		return events(strings.NewReader(providerStream))(r)
	}
	_, _ = b.askWith(request.Chat, home, "on", streamRequest)
	if w, _ := b.askWith(request.Chat, home, "on", plainRequest); strings.Contains(w.Body.String(), "dead") {
		t.Errorf("%s %s", w.Header().Get("X-Service-Cache"), w.Body)
	}
}

func TestTheCacheKeyIncludesTheDefaultMaximum(t *testing.T) {
	b := newBench(t)
	b.answer = whole(good)
	b.Workspaces.Put(home, live.Settings{Cache: true, DefaultMaxTokens: 1})
	_, _ = b.askWith(request.Chat, home, "", plainRequest)
	b.Workspaces.Put(home, live.Settings{Cache: true, DefaultMaxTokens: 1000})
	if w, _ := b.askWith(request.Chat, home, "", plainRequest); w.Header().Get("X-Service-Cache") == "hit" {
		t.Error("the answer that was cut at 1 token is given to a request of 1000")
	}
}

func TestAFallbackThatNeedsAnOwnKeyIsSkipped(t *testing.T) {
	b := newBench(t, model("m", at(live.Provider{Name: "p1", Configured: true, Responses: true})), model("n", at(live.Provider{Name: "p2", Configured: true, Responses: true})))
	b.Keys.Put(home, "p1", &live.OwnKey{Key: secret.New("k")})
	b.Aliases.Put(home, &live.Alias{Name: "al", Target: "m", Fallbacks: []string{"n"}})
	b.answer = whole(`{"id":"r","status":"completed","output":[],"usage":{"input_tokens":9,"output_tokens":1}}`)
	if _, err := b.askFrom(context.Background(), request.Responses, `{"model":"al","input":"hi","tools":[{"type":"web_search"}]}`); err != nil {
		t.Errorf("the target can, its fallback cannot, and the caller is refused: %v", err)
	}
}

func TestACanaryWhoseProviderHasNoKeyIsReplaced(t *testing.T) {
	b := newBench(t, model("m"), model("o/m", at(live.Provider{Name: "o"})))
	b.answer = whole(good)
	b.Aliases.Put(home, &live.Alias{Name: "al", Target: "m", Canary: "o/m", CanaryPercent: 60})
	if _, err := b.ask(strings.Replace(plainRequest, `"m"`, `"al"`, 1)); err != nil {
		t.Errorf("%d %v", fault.From(err).Status, err)
	}
}

func TestAPartialImageIsContent(t *testing.T) {
	b := newBench(t, native())
	b.answer = events(strings.NewReader("data: {\"type\":\"response.image_generation_call.partial_image\",\"partial_image_b64\":\"" + strings.Repeat("A", 1<<20) + "\"}\n\n" +
		"data: {\"type\":\"response.completed\",\"response\":{\"status\":\"completed\",\"usage\":{\"input_tokens\":10,\"output_tokens\":5}}}\n\n"))
	b.Keys.Put(home, "p", &live.OwnKey{Key: secret.New("k")})
	if _, err := respond(b, `{"model":"m","input":"hi","stream":true,"tools":[{"type":"image_generation"}]}`); err != nil {
		t.Error(err)
	}
}

func TestRefusalsFitTheEndpointAndTheFailedAttempt(t *testing.T) {
	b := newBench(t, native())
	b.funds.Credit("ws_poor", money.Dollar*2/1000)
	_, err := b.askWith(request.Responses, "ws_poor", "", `{"model":"m","input":"hi"}`)
	if !strings.Contains(err.Error(), "max_output_tokens") {
		t.Error(err)
	}
	b.Apply(Settings{TryTimeout: time.Minute, StallTimeout: time.Minute, RequestTimeout: 2 * time.Minute, Retries: 2})
	b.Breaker.Apply(breaker.Settings{Failures: 1, Pause: time.Hour, Longest: time.Hour})
	b.answer = answers(503, "{}")
	if _, err := b.ask(plainRequest); strings.Contains(err.Error(), "was not asked") {
		t.Errorf("it was asked %d times: %v", len(b.sent), err)
	}
	if got := answer.ResponseText([]byte(`[{"type":"x","content":"odd"},{"type":"message","content":[{"type":"output_text","text":"a long text"}]}]`)); len(got) == 0 {
		t.Error("one odd item, and the whole output counts 0")
	}
}

func TestEmbeddingsAlwaysReportUsage(t *testing.T) {
	b := newBench(t, model("e", func(m *live.Model) { m.Kind, m.MaxOutput = live.Embedding, 0 }))
	for answer, want := range map[string]string{
		`{"object":"list","data":[{"embedding":[1]}]}`:                              `{"object":"list","data":[{"embedding":[1]}],"usage":{"prompt_tokens":2,"total_tokens":2}}`,
		`{"data":[{"embedding":[1]}],"usage":{"prompt_tokens":9,"total_tokens":9}}`: `{"data":[{"embedding":[1]}],"usage":{"prompt_tokens":9,"total_tokens":9}}`,
	} {
		b.answer = whole(answer)
		w, err := b.askFrom(context.Background(), request.Embeddings, `{"model":"e","input":"two words"}`)
		if err != nil || w.Body.String() != want {
			t.Errorf("%v %s", err, w.Body)
		}
	}
}

// A hesitant body returns an empty piece first, as a translation may.
type hesitant struct {
	pieces
	told bool
}

func (h *hesitant) Next() ([]byte, error) {
	if !h.told {
		h.told = true
		return nil, nil
	}
	return h.pieces.Next()
}

func TestAnEmptyPieceIsNoAnswer(t *testing.T) {
	b := newBench(t)
	b.answer = func(*upstream.Request) (*upstream.Response, error) {
		return &upstream.Response{Status: http.StatusOK, ContentType: "application/json", Body: &hesitant{pieces: pieces{all: [][]byte{[]byte(good)}}}}, nil
	}
	if w, err := b.ask(plainRequest); err != nil || w.Body.String() != good {
		t.Errorf("%v: %s", err, w.Body)
	}
}

// endingWriter records that the answer was ended, and what was sent before.
type endingWriter struct {
	*httptest.ResponseRecorder
	sent []string
	over chan struct{}
}

func (p *endingWriter) Send(text []byte) error {
	p.sent = append(p.sent, string(text))
	return nil
}

func (p *endingWriter) End([]byte) error {
	close(p.over)
	return nil
}

// Read blocks until End was called.
func (p *endingWriter) Read([]byte) (int, error) {
	select {
	case <-p.over:
		return 0, io.EOF
	case <-time.After(time.Minute):
		return 0, errors.New("the caller waits for the end")
	}
}

// A provider that has ended its answer may take long to end the body. The caller gets the end of the answer before
// that.
func TestACallerDoesNotWaitForWhatComesAfterTheEnd(t *testing.T) {
	b := newBench(t)
	w := &endingWriter{ResponseRecorder: httptest.NewRecorder(), over: make(chan struct{})}
	b.answer = events(io.MultiReader(strings.NewReader(providerStream), w))
	ask := &request.Request{Endpoint: request.Chat, Caller: tenant.Caller{Workspace: home, Key: "key_1"}, ID: "req_a", Body: []byte(streamRequest)}
	if err := b.Serve(context.Background(), ask, w); err != nil || b.settled().Outcome != string(outcome.Finished) {
		t.Errorf("%v %+v", err, b.settled())
	}
	select {
	case <-w.over:
	default:
		t.Error("the answer was not ended")
	}
	if len(w.sent) > 0 {
		t.Errorf("sent apart from the end: %q", w.sent)
	}
}
