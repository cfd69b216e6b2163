package gateway

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"testing"
	"time"

	"sovereign/internal/base/fault"
	"sovereign/internal/base/money"
	"sovereign/internal/base/secret"
	"sovereign/internal/base/tenant"
	"sovereign/internal/live"
	"sovereign/internal/net/breaker"
	"sovereign/internal/plane/gateway/request"
	"sovereign/internal/wire/upstream"
)

// at puts a model at a provider of its own, which has a key if it is configured.
func at(p live.Provider) func(*live.Model) {
	p.Protocol = "test"
	if p.Configured {
		p.APIKey = secret.New("servers")
	}
	return func(m *live.Model) { m.Provider = &p }
}

// by answers each model by its own function.
func by(answers map[string]func(*upstream.Request) (*upstream.Response, error)) func(*upstream.Request) (*upstream.Response, error) {
	return func(r *upstream.Request) (*upstream.Response, error) { return answers[r.Model.ID](r) }
}

func refuse(err error) func(*upstream.Request) (*upstream.Response, error) {
	return func(*upstream.Request) (*upstream.Response, error) { return nil, err }
}

func answers(status int, body string) func(*upstream.Request) (*upstream.Response, error) {
	return func(*upstream.Request) (*upstream.Response, error) {
		return &upstream.Response{Status: status, ContentType: "application/json", Body: io.NopCloser(strings.NewReader(body))}, nil
	}
}

// askWith serves a workspace's request of an endpoint; caching is its X-Service-Cache.
func (b *bench) askWith(e *request.Endpoint, ws tenant.ID, caching, body string) (*httptest.ResponseRecorder, error) {
	w := httptest.NewRecorder()
	ask := &request.Request{Endpoint: e, Caller: tenant.Caller{Workspace: ws, Key: "key_1"}, ID: "req_" + strconv.Itoa(len(b.entries())), Body: []byte(body), Cache: caching}
	err := b.Serve(context.Background(), ask, &httpWriter{w})
	return w, err
}

func TestAWorkspaceWithItsOwnKeyPaysTheFeeAlone(t *testing.T) {
	b := newBench(t)
	b.answer = whole(good)
	own := &live.OwnKey{Key: secret.New("sk-own"), BaseURL: "https://models.example.com"}
	b.Keys.Put("ws_poor", "p", own)
	ask := func() { // the wallet of ws_poor is empty
		t.Helper()
		if w, err := b.askWith(request.Chat, "ws_poor", "", plainRequest); err != nil || w.Code != http.StatusOK {
			t.Fatal(w.Code, err)
		}
	}
	ask()
	if sent := b.sent[0].Credentials; sent == nil || sent.Key.Reveal() != "sk-own" || sent.BaseURL != own.BaseURL {
		t.Errorf("%+v", sent)
	}
	if e := b.settled(); !e.Own || e.Charged != 0 || e.Cost != 0 || e.Usage.Input != 10 {
		t.Errorf("%+v", e)
	}
	b.funds.Credit("ws_poor", money.Dollar)
	b.Apply(Settings{TryTimeout: time.Minute, StallTimeout: time.Minute, RequestTimeout: time.Minute, OwnKeyFee: 100_000})
	ask()
	if e := b.settled(); !e.Own || e.Charged != (10_000+20_000)/10 {
		t.Errorf("a tenth of the price: %+v", e)
	}
	if _, err := b.ask(plainRequest); err != nil || b.sent[2].Credentials != nil || b.settled().Own {
		t.Errorf("another workspace's request: %+v %v", b.sent[2].Credentials, err)
	}
}

func TestAProviderThatIsNotConfiguredServesOwnKeysAlone(t *testing.T) {
	b := newBench(t, model("offered/m", at(live.Provider{Name: "offered"})), model("m"))
	b.answer = whole(good)
	ask := func(body string) *fault.Fault {
		_, err := b.ask(body)
		return fault.From(err)
	}
	offered := strings.Replace(plainRequest, `"m"`, `"offered/m"`, 1)
	unknown := strings.Replace(plainRequest, `"m"`, `"offered/none"`, 1)
	for _, body := range []string{offered, unknown} {
		if f := ask(body); f == nil || f.Kind != fault.UnknownProvider {
			t.Errorf("%s: %v", body, f)
		}
	}
	fallback := strings.Replace(plainRequest, `"messages"`, `"models":["offered/m"],"messages"`, 1)
	if f := ask(fallback); f == nil || f.Field != "models[0]" {
		t.Errorf("as a fallback: %v", f)
	}
	b.Keys.Put(home, "offered", &live.OwnKey{Key: secret.New("k")})
	if f := ask(offered); f != nil {
		t.Errorf("with an own key: %v", f)
	}
	if f := ask(unknown); f == nil || f.Kind != fault.ModelNotFound {
		t.Errorf("with an own key, a model that is none: %v", f)
	}
	b.Keys.Put(home, "offered", &live.OwnKey{Broken: true})
	if f := ask(offered); f == nil || f.Kind != fault.UnknownProvider || !strings.Contains(f.Message, "set it again") {
		t.Errorf("with a broken key: %v", f)
	}
}

func TestAKeyThatAProviderRepeatsIsRedacted(t *testing.T) {
	b := newBench(t)
	b.Keys.Put(home, "p", &live.OwnKey{Key: secret.New("sk-own-canary")})
	b.answer = answers(http.StatusBadRequest, `{"error":{"message":"the key sk-own-canary may not do that"}}`)
	_, err := b.ask(plainRequest)
	if f := fault.From(err); f == nil || f.Message != "the key [redacted] may not do that" {
		t.Errorf("%v", err)
	}
}

func TestAFallbackThatCannotExpressTheRequestIsSkipped(t *testing.T) {
	cannot := refuse(fault.UnsupportedParameter.New("seed cannot be expressed"))
	down := refuse(errors.New("connection refused"))
	body := `{"model":"a","models":["b","c"],"messages":[{"role":"user","content":"hi"}]}`
	type sender = func(*upstream.Request) (*upstream.Response, error)
	for name, c := range map[string]struct {
		a, b, c sender
		status  int // 0: an answer
		sent    string
	}{
		"the model that was asked for cannot": {cannot, whole(good), whole(good), http.StatusBadRequest, "a"},
		"the first fallback cannot":           {down, cannot, whole(good), 0, "abc"},
		"none of the fallbacks can":           {down, cannot, cannot, http.StatusBadGateway, "abc"},
		"the last one cannot":                 {down, answers(http.StatusTooManyRequests, "{}"), cannot, http.StatusTooManyRequests, "abc"},
	} {
		b := newBench(t, model("a"), model("b"), model("c"))
		b.answer = by(map[string]sender{"a": c.a, "b": c.b, "c": c.c})
		_, err := b.ask(body)
		var sent string
		for _, r := range b.sent {
			sent += r.Model.ID
		}
		if f := fault.From(err); (f == nil) != (c.status == 0) || f != nil && f.Status != c.status || sent != c.sent {
			t.Errorf("%s: %v, sent to %s", name, err, sent)
		}
	}
}

func TestAnOwnURLThatLeadsNowhereFallsBack(t *testing.T) {
	b := newBench(t, model("a"), model("b"))
	nowhere := refuse(fault.UnknownProvider.New("the workspace's own URL for p cannot be used"))
	b.answer = by(map[string]func(*upstream.Request) (*upstream.Response, error){"a": nowhere, "b": whole(good)})
	if w, err := b.ask(`{"model":"a","models":["b"],"messages":[{"role":"user","content":"hi"}]}`); err != nil || w.Header().Get("X-Service-Served-Model") != "b" {
		t.Errorf("%v", err)
	}
	if _, err := b.ask(`{"model":"a","messages":[{"role":"user","content":"hi"}]}`); fault.From(err) == nil || fault.From(err).Kind != fault.UnknownProvider || len(b.sent) != 3 {
		t.Errorf("%v, after %d attempts", err, len(b.sent))
	}
}

func TestAModelWithAnOpenCircuitIsNotCalledForAWhile(t *testing.T) {
	b := newBench(t, model("a"), model("b"))
	b.Breaker.Apply(breaker.Settings{Failures: 3, Pause: time.Hour, Longest: time.Hour})
	type sender = func(*upstream.Request) (*upstream.Response, error)
	b.answer = by(map[string]sender{"a": answers(http.StatusServiceUnavailable, "{}"), "b": whole(good)})
	alone := `{"model":"a","messages":[{"role":"user","content":"hi"}]}`
	for i := range 5 {
		if _, err := b.ask(alone); fault.From(err) == nil || fault.From(err).Status != http.StatusBadGateway {
			t.Fatalf("%d: %v", i, err)
		}
	}
	if len(b.sent) != 3 {
		t.Errorf("asked %d times", len(b.sent))
	}
	if w, err := b.ask(`{"model":"a","models":["b"],"messages":[{"role":"user","content":"hi"}]}`); err != nil || w.Header().Get("X-Service-Served-Model") != "b" || len(b.sent) != 4 {
		t.Errorf("its fallback: %v, asked %d times", err, len(b.sent))
	}
	// A workspace's own URL fails for that workspace alone, and the server's for the others.
	b.Keys.Put(home, "p", &live.OwnKey{Key: secret.New("k"), BaseURL: "https://models.example.com"})
	if _, err := b.ask(alone); len(b.sent) != 5 {
		t.Errorf("at another URL it was not asked: %v", err)
	}
}

func TestARefusalDoesNotOpenTheCircuit(t *testing.T) {
	b := newBench(t)
	b.Breaker.Apply(breaker.Settings{Failures: 2, Pause: time.Hour, Longest: time.Hour})
	for i, status := range []int{400, 401, 404, 422, 429, 400, 403, 429} {
		b.answer = answers(status, "{}")
		_, _ = b.ask(plainRequest)
		if len(b.sent) != i+1 {
			t.Fatalf("after %d answers it is left alone", i)
		}
	}
}

func TestAnAnswerIsCachedForTheWorkspaceThatWantsIt(t *testing.T) {
	b := newBench(t)
	b.funds.Credit("ws_other", credit)
	b.answer = whole(good)
	said := func(ws tenant.ID, caching, body string) (header, text string) {
		t.Helper()
		w, err := b.askWith(request.Chat, ws, caching, body)
		if err != nil {
			t.Fatal(err)
		}
		if w.Header().Get("X-Service-Served-Model") != "m" {
			t.Errorf("%v", w.Header())
		}
		return w.Header().Get("X-Service-Cache"), w.Body.String()
	}
	step := func(ws tenant.ID, caching, body, want string, sent int) {
		t.Helper()
		got, text := said(ws, caching, body)
		if got != want || len(b.sent) != sent || text != good {
			t.Errorf("%q, asked %d times, want %q and %d: %s", got, len(b.sent), want, sent, text)
		}
	}
	step(home, "", plainRequest, "", 1)
	step(home, "", plainRequest, "", 2)
	step(home, "on", plainRequest, "miss", 3)
	spent := b.funds.Balance(home).Spent
	step(home, "on", plainRequest, "hit", 3)
	step(home, "on", `{ "messages":[{"content":"hi","role":"user"}], "model" :"m"}`, "hit", 3) // the same, laid out otherwise
	if now := b.funds.Balance(home).Spent; now != spent {
		t.Errorf("a hit cost $%s", now-spent)
	}
	step("ws_other", "on", plainRequest, "miss", 4)
	b.Workspaces.Put(home, live.Settings{Cache: true})
	step(home, "", plainRequest, "hit", 4)
	step(home, "off", plainRequest, "", 5)
	step(home, "", strings.Replace(plainRequest, "hi", "ho", 1), "miss", 6)
	step(home, "", strings.Replace(plainRequest, `"model"`, `"temperature":0.5,"model"`, 1), "miss", 7)
}

func TestACachedAnswerCanBeStreamedAndAStreamIsCached(t *testing.T) {
	b := newBench(t)
	b.answer = events(strings.NewReader(providerStream))
	w, err := b.askWith(request.Chat, home, "on", streamRequest)
	if err != nil || w.Body.String() != streamWithoutUsage || w.Header().Get("X-Service-Cache") != "miss" {
		t.Fatalf("%v %s", err, w.Body)
	}
	w, err = b.askWith(request.Chat, home, "on", plainRequest)
	const text = `"content":"one zwei`
	if err != nil || w.Header().Get("X-Service-Cache") != "hit" || !strings.Contains(w.Body.String(), text) || !strings.Contains(w.Body.String(), `"prompt_tokens":10`) {
		t.Errorf("the stream as a whole: %v %v %s", err, w.Header(), w.Body)
	}
	for _, c := range []struct {
		body  string
		usage bool
	}{{streamRequest, false}, {streamRequestWithUsage, true}} {
		w, err = b.askWith(request.Chat, home, "on", c.body)
		got := w.Body.String()
		if err != nil || w.Header().Get("Content-Type") != "text/event-stream; charset=utf-8" || !strings.Contains(got, "one zwei") ||
			!strings.HasSuffix(got, "data: [DONE]\n\n") || strings.Contains(got, "prompt_tokens") != c.usage {
			t.Errorf("streamed again: %v\n%s", err, got)
		}
	}
	if len(b.sent) != 1 {
		t.Errorf("asked %d times", len(b.sent))
	}
}

func TestAFallbacksAnswerAndABrokenOneAreNotCached(t *testing.T) {
	b := newBench(t, model("m"), model("b"))
	type sender = func(*upstream.Request) (*upstream.Response, error)
	b.answer = by(map[string]sender{"m": answers(http.StatusServiceUnavailable, "{}"), "b": whole(good)})
	body := strings.Replace(plainRequest, `"messages"`, `"models":["b"],"messages"`, 1)
	for range 2 {
		if w, err := b.askWith(request.Chat, home, "on", body); err != nil || w.Header().Get("X-Service-Cache") != "miss" {
			t.Errorf("%v %v", err, w.Header())
		}
	}
	for range 2 {
		b.answer = events(strings.NewReader(providerStream[:endOf(providerStream, "zwei")]))
		if w, _ := b.askWith(request.Chat, home, "on", streamRequest); w.Header().Get("X-Service-Cache") != "miss" {
			t.Errorf("%v", w.Header())
		}
	}
}

func TestLongInputsAndWrittenTokensHaveTheirOwnPrices(t *testing.T) {
	b := newBench(t, model("m", func(m *live.Model) {
		m.Price.WrittenInput = 1_250_000_000
		m.Price.Tiers = []live.Tier{{Over: 100, Rates: live.Flat(2_000_000_000, 8_000_000_000)}}
	}))
	const usage = `{"choices":[{"message":{"content":"x"}}],"usage":{"prompt_tokens":%d,"completion_tokens":5,"prompt_tokens_details":{"cached_tokens":10,"cache_write_tokens":20}}}`
	b.answer = whole(fmt.Sprintf(usage, 100))
	if _, err := b.ask(plainRequest); err != nil {
		t.Fatal(err)
	}
	if e := b.settled(); e.Usage != (live.Usage{Input: 100, Cached: 10, Written: 20, Output: 5}) || e.Cost != 70_000+5_000+25_000+20_000 {
		t.Errorf("%+v", e)
	}
	b.answer = whole(fmt.Sprintf(usage, 101))
	if _, err := b.ask(plainRequest); err != nil {
		t.Fatal(err)
	}
	if e := b.settled(); e.Cost != 101*2000+5*8000 || e.Price.Input != 2_000_000_000 {
		t.Errorf("over the tier: %+v", e)
	}
}

func TestADefaultMaximumIsNamedAsTheProviderWants(t *testing.T) {
	for name, c := range map[string]struct {
		e     *request.Endpoint
		fresh bool
		body  string
		want  string
	}{
		"chat":                     {request.Chat, false, plainRequest, `"max_tokens":77`},
		"chat at a newer provider": {request.Chat, true, plainRequest, `"max_completion_tokens":77`},
		"responses":                {request.Responses, false, `{"model":"m","input":"hi"}`, `"max_output_tokens":77`},
	} {
		b := newBench(t, model("m", at(live.Provider{Name: "p", Configured: true, Modern: c.fresh})))
		b.answer = refuse(errors.New("enough"))
		b.Workspaces.Put(home, live.Settings{DefaultMaxTokens: 77})
		_, _ = b.askFrom(context.Background(), c.e, c.body)
		var sent string
		for _, part := range b.sent[0].Body {
			sent += string(part)
		}
		if !strings.Contains(sent, c.want) {
			t.Errorf("%s: %s", name, sent)
		}
	}
}

func TestRankingsComeBestFirstAndAreChargedByTheSearch(t *testing.T) {
	b := newBench(t, model("r", func(m *live.Model) {
		m.Kind, m.MaxOutput, m.Price = live.Rerank, 0, live.Price{Rates: live.Rates{Search: 2_000_000_000_000}}
	}))
	b.answer = whole(`{"id":"x","results":[{"index":0,"relevance_score":0.1},{"index":1,"relevance_score":0.9,"document":{"text":"forged"}}],"usage":{"search_units":1}}`)
	w, err := b.askFrom(context.Background(), request.Rerank, `{"model":"r","query":"which?","documents":["one",{"text":"two"}],"return_documents":true}`)
	if err != nil {
		t.Fatal(err)
	}
	text := w.Body.String()
	if first, second := strings.Index(text, `"index":1`), strings.Index(text, `"index":0`); first < 0 || second < first || !strings.Contains(text, `"two"`) || strings.Contains(text, "forged") {
		t.Errorf("%s", text)
	}
	if e := b.settled(); e.Usage.Searches != 1 || e.Cost != money.Dollar*2/1000 || e.Route != "rerank" {
		t.Errorf("%+v", e)
	}
	b.answer = whole(`{"results":[{"index":7,"relevance_score":0.1}]}`)
	if _, err := b.askFrom(context.Background(), request.Rerank, `{"model":"r","query":"which?","documents":["one"]}`); fault.From(err) == nil || fault.From(err).Status != http.StatusBadGateway {
		t.Errorf("a document that is none: %v", err)
	}
}

func TestTheDeveloperRoleBecomesSystemForOtherProviders(t *testing.T) {
	const body = `{"messages":[{"role": "developer","content":"developer"},{"content":[{"role":"developer"}],"role":"developer" },{"role":"user","content":"\"developer\"","name":"developer"}],"model":"m"}`
	const system = `{"messages":[{"role": "system","content":"developer"},{"content":[{"role":"developer"}],"role":"system" },{"role":"user","content":"\"developer\"","name":"developer"}],"model":"up-m"}`
	for modern, want := range map[bool]string{false: system, true: strings.Replace(body, `"m"`, `"up-m"`, 1)} {
		a := &request.Request{Endpoint: request.Chat, Body: []byte(body)}
		if err := a.Parse(); err != nil {
			t.Fatal(err)
		}
		m := model("m")
		m.Provider = &live.Provider{Protocol: live.OpenAI, Modern: modern}
		if got := string(bytes.Join(a.ProviderBody(nil, m, false, 0), nil)); got != want {
			t.Errorf("%s\nwant %s", got, want)
		}
	}
}

func TestMembersWithTheirOwnPriceNeedAnOwnKey(t *testing.T) {
	for member, value := range map[string]string{"service_tier": `"priority"`, "web_search_options": `{}`} {
		b := newBench(t, model("m", at(live.Provider{Name: "p", Configured: true, Modern: true})))
		b.answer = whole(good)
		body := strings.Replace(plainRequest, `"model"`, `"`+member+`":`+value+`,"model"`, 1)
		if _, err := b.ask(body); fault.From(err) == nil || fault.From(err).Field != member || len(b.sent) != 0 {
			t.Errorf("%s: %v", member, err)
		}
		b.Keys.Put(home, "p", &live.OwnKey{Key: secret.New("k")})
		if _, err := b.ask(body); err != nil {
			t.Errorf("%s, with an own key: %v", member, err)
		}
	}
	b := newBench(t, model("plain"), model("m", at(live.Provider{Name: "modern", Configured: true, Modern: true})))
	b.answer = refuse(errors.New("down"))
	_, _ = b.ask(`{"model":"plain","models":["m"],"service_tier":"flex","messages":[{"role":"user","content":"hi"}]}`)
	if len(b.sent) != 1 || b.sent[0].Model.ID != "plain" {
		t.Errorf("as a fallback it was asked: %d", len(b.sent))
	}
	b.answer = whole(good)
	for _, tier := range []string{`null`, `"auto"`, `"default"`} {
		if _, err := b.ask(strings.Replace(plainRequest, `"model"`, `"service_tier":`+tier+`,"model"`, 1)); err != nil {
			t.Errorf("%s: %v", tier, err)
		}
	}
}
