// Package golang runs the official Go package against a server, in the same scenarios as those of the Node and Python
// packages beside it.
package golang

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/openai/openai-go/v3"
	"github.com/openai/openai-go/v3/option"
	"github.com/openai/openai-go/v3/packages/param"
	"github.com/openai/openai-go/v3/packages/ssestream"
)

// A Target is a server to run the scenarios against.
type Target struct {
	BaseURL, Key string
	PoorKey      string            // has no money to spend; empty when there is no gateway between
	Provider     string            // the mock provider behind the models
	Models       map[string]string // by scenario; a scenario without a model is left out
}

// answer is what the mock provider says in five chunks.
const answer = "every request is held before"

type suite struct {
	Target
	client openai.Client
	calls  atomic.Int64
}

// Run runs every scenario.
func Run(t *testing.T, target Target) {
	s := &suite{Target: target}
	s.client = s.connect()
	for _, c := range []struct {
		name   string
		models []string // "" for a scenario that needs none in particular
		run    func(*testing.T, string)
	}{
		{"models are listed and found, with a slash in the id", []string{""}, s.models},
		{"chat", []string{"chat", "sim_chat"}, s.chat},
		{"a stream without usage shows none", []string{
			"chat", "sim_chat", "odd", "plain", "unasked", "inline",
		}, s.hidden},
		{"a stream with usage ends with it", []string{"chat", "sim_chat", "odd"}, s.asked},
		{"the accumulator adds up", []string{"chat", "sim_chat", "odd"}, s.accumulated},
		{"tools are called in parallel", []string{"tools"}, s.tools},
		{"structured output is parsed", []string{"structured", "sim_chat"}, s.structured},
		{"reasoning is beside the answer", []string{"reasoning"}, s.reasoning},
		{"a response", []string{"chat", "sim_chat"}, s.response},
		{"a response's stream adds up", []string{"chat", "sim_chat", "odd"}, s.responseStream},
		{"a response calls functions, and goes on with what they say", []string{"tools"}, s.responseTools},
		{"a response that breaks off is an error", []string{"broken", "dies"}, s.responseBroken},
		{"embeddings are the same in both encodings", []string{
			"embedding", "sim_embedding", "numbers", "packed",
		}, s.embeddings},
		{"refusals are the right errors", []string{""}, s.refusals},
		{"a failure of the provider is tried three times by default, and a refusal once", []string{
			"down", "locked",
		}, s.down},
		{"retry-after is obeyed, and the answer comes in the end", []string{"flaky"}, s.flaky},
		{"x-should-retry is obeyed", []string{"final"}, s.final},
		{"an error in the middle of a stream is raised", []string{"broken", "dies", "ends"}, s.broken},
		{"request ids are seen", []string{""}, s.ids},
		{"an aborted stream is cancelled at the provider", []string{"slow"}, s.aborted},
	} {
		for _, name := range c.models {
			if name == "" {
				t.Run(c.name, func(t *testing.T) { c.run(t, "chat") })
			} else if s.Models[name] != "" {
				t.Run(c.name+": "+name, func(t *testing.T) { c.run(t, name) })
			}
		}
	}
}

func (s *suite) gateway() bool { return s.PoorKey != "" }

func (s *suite) connect(more ...option.RequestOption) openai.Client {
	return openai.NewClient(append([]option.RequestOption{
		option.WithBaseURL(s.BaseURL), option.WithAPIKey(s.Key), option.WithMaxRetries(0),
		option.WithRequestTimeout(2 * time.Minute),
		option.WithMiddleware(func(r *http.Request, next option.MiddlewareNext) (*http.Response, error) {
			s.calls.Add(1)
			return next(r)
		}),
	}, more...)...)
}

// ask is a question of three words, of which one is new, and that word.
func (s *suite) ask(name string) (params openai.ChatCompletionNewParams, nonce string) {
	nonce = rand.Text()
	return openai.ChatCompletionNewParams{
		Model:    s.Models[name],
		Messages: []openai.ChatCompletionMessageParamUnion{openai.UserMessage("one two " + nonce)},
	}, nonce
}

func withUsage(params openai.ChatCompletionNewParams) openai.ChatCompletionNewParams {
	params.StreamOptions = openai.ChatCompletionStreamOptionsParam{IncludeUsage: param.NewOpt(true)}
	return params
}

// collect reads a stream to its end or its error.
func collect(stream *ssestream.Stream[openai.ChatCompletionChunk]) (
	chunks []openai.ChatCompletionChunk, text string, err error,
) {
	var said strings.Builder
	for stream.Next() {
		chunk := stream.Current()
		chunks = append(chunks, chunk)
		for _, choice := range chunk.Choices {
			said.WriteString(choice.Delta.Content)
		}
	}
	return chunks, said.String(), stream.Err()
}

// only is the single choice of an answer or a chunk.
func only[T any](t *testing.T, choices []T) T {
	t.Helper()
	if len(choices) != 1 {
		t.Fatalf("%d choices", len(choices))
	}
	return choices[0]
}

// A request is what the provider recorded of one.
type request struct {
	Body        string     `json:"body"`
	Status      int        `json:"status"`
	Finished    bool       `json:"finished"`
	CancelledAt *time.Time `json:"cancelled_at"`
	ChunksSent  int        `json:"chunks_sent"`
}

func (s *suite) requests(t *testing.T, nonce string) (out []request) {
	t.Helper()
	response, err := http.Get(s.Provider + "/log")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = response.Body.Close() }()
	var all []request
	if err := json.NewDecoder(response.Body).Decode(&all); err != nil {
		t.Fatal(err)
	}
	for _, one := range all {
		if strings.Contains(one.Body, nonce) {
			out = append(out, one)
		}
	}
	return out
}

// refused asks, and fails the test unless it is refused.
func (s *suite) refused(
	t *testing.T, params openai.ChatCompletionNewParams, more ...option.RequestOption,
) *openai.Error {
	t.Helper()
	_, err := s.client.Chat.Completions.New(t.Context(), params, more...)
	var refusal *openai.Error
	if !errors.As(err, &refusal) {
		t.Fatalf("no refusal: %v", err)
	}
	if refusal.Response.Header.Get("X-Request-Id") == "" {
		t.Error("a refusal without a request id")
	}
	return refusal
}

func (s *suite) refusals(t *testing.T, name string) {
	params, _ := s.ask(name)
	if got := s.refused(
		t, params, option.WithAPIKey("sk_sovereign_wrong"),
	); got.StatusCode != http.StatusUnauthorized || got.Code != "invalid_api_key" {
		t.Error(got.RawJSON())
	}
	unknown := params
	unknown.Model = "nothing"
	if got := s.refused(t, unknown); got.StatusCode != http.StatusNotFound || got.Code != "model_not_found" {
		t.Error(got.RawJSON())
	}
	negative := params
	negative.MaxCompletionTokens = param.NewOpt[int64](-1)
	if got := s.refused(t, negative); got.StatusCode != http.StatusBadRequest || got.Type != "invalid_request_error" ||
		!strings.Contains(got.Message, "max_completion_tokens") {
		t.Error(got.RawJSON())
	}
	limited, _ := s.ask("limited")
	if got := s.refused(t, limited); got.StatusCode != http.StatusTooManyRequests || got.Type != "rate_limit_error" ||
		got.Response.Header.Get("Retry-After") != "7" {
		t.Error(got.RawJSON())
	}
	var early *openai.Error
	if _, _, err := collect(s.client.Chat.Completions.NewStreaming(t.Context(), limited)); !errors.As(err, &early) ||
		early.StatusCode != http.StatusTooManyRequests {
		t.Error(err)
	}
	if !s.gateway() {
		return
	}
	if got := s.refused(t, params, option.WithAPIKey(s.PoorKey)); got.StatusCode != http.StatusPaymentRequired ||
		got.Code != "insufficient_balance" || got.Type != "insufficient_quota" {
		t.Error(got.RawJSON())
	}
}

// defaultRetries is how often the package retries a call by itself, and the gateway an attempt.
const defaultRetries = 2

func (s *suite) down(t *testing.T, name string) {
	params, nonce := s.ask(name)
	s.calls.Store(0)
	got := s.refused(t, params, option.WithMaxRetries(defaultRetries))
	tries, calls := 1+defaultRetries, 1+defaultRetries
	if name == "locked" {
		tries, calls = 1, 1
	}
	if s.gateway() { // which has tried already, and says so
		calls = 1
	}
	if seen := len(s.requests(t, nonce)); int(s.calls.Load()) != calls || seen != tries {
		t.Errorf("%d calls and %d requests at the provider, want %d and %d: %d %s",
			s.calls.Load(), seen, calls, tries, got.StatusCode, got.RawJSON())
	}
	id := got.Response.Header.Get("X-Request-Id")
	if s.gateway() && (got.StatusCode != http.StatusBadGateway || got.Type != "upstream_error" || !strings.Contains(
		got.Message, id,
	)) {
		t.Errorf("%s: %s", id, got.RawJSON())
	}
}

func (s *suite) flaky(t *testing.T, name string) {
	params, nonce := s.ask(name)
	s.calls.Store(0)
	began := time.Now()
	completion, err := s.client.Chat.Completions.New(t.Context(), params, option.WithMaxRetries(5))
	if err != nil || only(t, completion.Choices).Message.Content == "" {
		t.Fatal(err)
	}
	if again := s.calls.Load() - 1; again < 1 || time.Since(began) < time.Duration(again)*990*time.Millisecond {
		t.Errorf("tried again %d times within %s", again, time.Since(began))
	}
	seen := s.requests(t, nonce)
	for i, one := range seen {
		if (one.Status == http.StatusOK) != (i == 3) {
			t.Errorf("request %d: %d", i, one.Status)
		}
	}
	if len(seen) != 4 {
		t.Errorf("the provider saw %d requests", len(seen))
	}
}

func (s *suite) final(t *testing.T, name string) {
	params, _ := s.ask(name)
	s.calls.Store(0)
	if got := s.refused(t, params, option.WithMaxRetries(2)); s.calls.Load() != 1 ||
		got.StatusCode != http.StatusServiceUnavailable {
		t.Errorf("%d calls", s.calls.Load())
	}
}

func (s *suite) broken(t *testing.T, name string) {
	params, _ := s.ask(name)
	_, text, err := collect(s.client.Chat.Completions.NewStreaming(t.Context(), params))
	var broken *ssestream.StreamError
	if !errors.As(err, &broken) || text != "every request " {
		t.Fatalf("%q, then %v", text, err)
	}
	var told struct {
		Error struct{ Message, Type string }
	}
	if err := json.Unmarshal(broken.Event.Data, &told); err != nil || told.Error.Message == "" ||
		told.Error.Type == "" {
		t.Errorf("%s: %v", broken.Event.Data, err)
	}
}

func (s *suite) ids(t *testing.T, name string) {
	seen := map[string]bool{}
	check := func(what string, response *http.Response, err error) {
		if err != nil {
			t.Fatal(what, err)
		}
		id := response.Header.Get("X-Request-Id")
		if seen[id] || !strings.HasPrefix(id, map[bool]string{true: "req_", false: "provider-"}[s.gateway()]) {
			t.Errorf("%s: %q", what, id)
		}
		seen[id] = true
	}
	var response *http.Response
	into := option.WithResponseInto(&response)
	_, err := s.client.Models.List(t.Context(), into)
	check("models", response, err)
	params, _ := s.ask(name)
	_, err = s.client.Chat.Completions.New(t.Context(), params, into)
	check("chat", response, err)
	_, _, err = collect(s.client.Chat.Completions.NewStreaming(t.Context(), params, into))
	check("stream", response, err)
	_, err = s.client.Embeddings.New(t.Context(), openai.EmbeddingNewParams{
		Model: s.Models["embedding"], Input: openai.EmbeddingNewParamsInputUnion{OfString: param.NewOpt("one")},
	}, into)
	check("embeddings", response, err)
}

func (s *suite) aborted(t *testing.T, name string) {
	params, nonce := s.ask(name)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	stream := s.client.Chat.Completions.NewStreaming(ctx, params)
	for heard := 0; heard < 3 && stream.Next(); {
		if only(t, stream.Current().Choices).Delta.Content != "" {
			heard++
		}
	}
	if stream.Err() != nil {
		t.Fatal(stream.Err())
	}
	cancel()
	_ = stream.Close()
	for left := time.Now(); ; time.Sleep(20 * time.Millisecond) {
		seen := s.requests(t, nonce)[0]
		if seen.CancelledAt != nil {
			if seen.Finished || seen.ChunksSent < 2 || seen.ChunksSent > 103 {
				t.Errorf("%+v", seen)
			}
			return
		}
		if time.Since(left) > 2*time.Minute {
			t.Fatalf("the provider goes on: %+v", seen)
		}
	}
}
