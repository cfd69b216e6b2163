package gateway

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/goleak"
	"pgregory.net/rapid"

	"sovereign/internal/base/fault"
	"sovereign/internal/base/money"
	"sovereign/internal/base/outcome"
	"sovereign/internal/base/secret"
	"sovereign/internal/base/tenant"
	"sovereign/internal/live"
	"sovereign/internal/net/breaker"
	"sovereign/internal/plane/cache"
	"sovereign/internal/plane/edge"
	"sovereign/internal/plane/engines"
	"sovereign/internal/plane/funds"
	"sovereign/internal/plane/gateway/answer"
	"sovereign/internal/plane/gateway/request"
	"sovereign/internal/plane/journal"
	"sovereign/internal/plane/journal/journaltest"
	"sovereign/internal/plane/till"
	"sovereign/internal/wire/upstream"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// A bench is a gateway for tests: its provider is a function, and its till and journal are real.
type bench struct {
	*Gateway
	t       testing.TB
	funds   *funds.Funds
	journal *journal.Journal
	disk    *journaltest.Disk
	all     []journal.Entry // that were read
	at      journal.Position

	mu      sync.Mutex
	answer  func(*upstream.Request) (*upstream.Response, error)
	respond func(context.Context, *upstream.Request) (*upstream.Response, error) // in place of answer, if it is set
	sent    []*upstream.Request
}

const (
	credit = 1000 * money.Dollar
	home   = tenant.ID("ws_1")
)

var provider = &live.Provider{Name: "p", Protocol: "test", Configured: true, APIKey: secret.New("servers")}

func model(id string, more ...func(*live.Model)) *live.Model {
	m := &live.Model{
		ID: id, Provider: provider, Upstream: "up-" + id, Kind: live.Chat, ContextWindow: 100_000, MaxOutput: 1000,
		Price: price(1_000_000_000, 500_000_000, 4_000_000_000),
	}
	for _, change := range more {
		change(m)
	}
	return m
}

func price(input, cached, output money.Rate) live.Price {
	rates := live.Flat(input, output)
	rates.CachedInput = cached
	return live.Price{Rates: rates}
}

func newBench(t testing.TB, models ...*live.Model) *bench {
	t.Helper()
	b := &bench{t: t, funds: funds.New(), disk: journaltest.NewDisk(), at: journal.Position{Segment: 1}}
	var err error
	if b.journal, err = journal.Open(b.disk); err != nil {
		t.Fatal(err)
	}
	if err := b.journal.Begin(); err != nil {
		t.Fatal(err)
	}
	if len(models) == 0 {
		models = []*live.Model{model("m")}
	}
	providers := []*live.Provider{provider}
	for _, m := range models {
		providers = append(providers, m.Provider)
	}
	protocols := upstream.Protocols{Factories: map[live.Protocol]upstream.SenderFactory{"test": func(*live.Provider) (upstream.Sender, error) { return b, nil }}}
	fleet, err := upstream.NewFleet(live.NewCatalog(providers, models), protocols, nil)
	if err != nil {
		t.Fatal(err)
	}
	bounds := edge.NewBounds()
	bounds.Body.Store(1 << 20)
	bounds.Buffered.Set(1 << 30)
	log := slog.New(slog.DiscardHandler)
	metrics := NewMetrics(prometheus.NewRegistry())
	b.Gateway = New(Config{
		Fleet: func() *upstream.Fleet { return fleet }, Aliases: live.NewAliases(), Own: live.NewOwnModels(), Engines: engines.NewRegistry(), Keys: live.NewKeyring(), Cache: cache.New(1<<20, time.Hour), Breaker: breaker.New(breaker.Settings{}), Workspaces: live.NewSettings(), Bounds: bounds, Log: log, Metrics: metrics,
		Till: till.New(b.funds, b.journal, log, metrics.Excess, metrics.Overage), Count: func(text string) int64 { return int64(len(strings.Fields(text))) }, Random: func() float64 { return 0.5 },
	})
	b.Apply(Settings{TryTimeout: time.Minute, StallTimeout: time.Minute, RequestTimeout: 2 * time.Minute})
	b.funds.Credit(home, credit)
	return b
}

// Send implements upstream.Sender.
func (b *bench) Send(ctx context.Context, r *upstream.Request) (*upstream.Response, error) {
	b.mu.Lock()
	b.sent = append(b.sent, r)
	b.mu.Unlock()
	if b.respond != nil {
		return b.respond(ctx, r)
	}
	return b.answer(r)
}

func (b *bench) Close() {}

// ask serves a body, and returns what the caller got.
func (b *bench) ask(body string) (*httptest.ResponseRecorder, error) {
	return b.askFrom(context.Background(), request.Chat, body)
}

func (b *bench) askFrom(ctx context.Context, e *request.Endpoint, body string) (*httptest.ResponseRecorder, error) {
	w := httptest.NewRecorder()
	ask := &request.Request{Endpoint: e, Caller: tenant.Caller{Workspace: home, Key: "key_1"}, ID: "req_" + strconv.Itoa(len(b.entries())), Body: []byte(body)}
	err := b.Serve(ctx, ask, &httpWriter{w})
	if held := b.funds.Balance(home).Held; held != 0 && b.journal.Failure() == nil {
		b.t.Errorf("$%s are still held", held)
	}
	return w, err
}

// entries returns what the journal holds.
func (b *bench) entries() []journal.Entry {
	if err := b.journal.Sync(); err != nil {
		return nil
	}
	for {
		some, next, err := b.journal.Read(b.at)
		if err != nil {
			b.t.Fatal(err)
		}
		if len(some) == 0 {
			return b.all
		}
		b.all, b.at = append(b.all, some...), next
	}
}

// settled returns the charge of the last request.
func (b *bench) settled() journal.Entry {
	b.t.Helper()
	all := b.entries()
	if len(all) == 0 || all[len(all)-1].Kind != journal.Settled {
		b.t.Fatalf("nothing was settled: %+v", all)
	}
	return all[len(all)-1]
}

func whole(body string) func(*upstream.Request) (*upstream.Response, error) {
	return func(*upstream.Request) (*upstream.Response, error) {
		return &upstream.Response{Status: http.StatusOK, ContentType: "application/json", Body: io.NopCloser(strings.NewReader(body))}, nil
	}
}

func events(body io.Reader) func(*upstream.Request) (*upstream.Response, error) {
	return func(*upstream.Request) (*upstream.Response, error) {
		return &upstream.Response{Status: http.StatusOK, ContentType: "text/event-stream", Body: io.NopCloser(body)}, nil
	}
}

const (
	good                   = `{"id":"x","choices":[{"index":0,"message":{"role":"assistant","content":"hello"},"finish_reason":"stop"}],"usage":{"prompt_tokens":10,"completion_tokens":5}}`
	plainRequest           = `{"model":"m","messages":[{"role":"user","content":"hi"}]}`
	streamRequestWithUsage = `{"model":"m","messages":[{"role":"user","content":"hi"}],"stream":true,"stream_options":{"include_usage":true}}`
	streamRequest          = `{"model":"m","messages":[{"role":"user","content":"hi"}],"stream":true}`
)

// providerStream is a stream as OpenAI sends it when usage is asked for.
const providerStream = "data: {\"id\":\"x\",\"choices\":[{\"index\":0,\"delta\":{\"role\":\"assistant\",\"content\":\"\"},\"finish_reason\":null}],\"usage\":null}\n\n" +
	"data: {\"id\":\"x\",\"choices\":[{\"index\":0,\"delta\":{\"content\":\"one \"},\"finish_reason\":null}],\"usage\":null}\n\n" +
	"data: {\"id\":\"x\",\"choices\":[{\"index\":0,\"delta\":{\"content\":\"zwei \\u00e9 \"},\"finish_reason\":null}],\"usage\":null}\n\n" +
	"data: {\"id\":\"x\",\"choices\":[{\"index\":0,\"delta\":{},\"finish_reason\":\"stop\"}],\"usage\":null}\n\n" +
	"data: {\"id\":\"x\",\"choices\":[],\"usage\":{\"prompt_tokens\":10,\"completion_tokens\":5}}\n\n" +
	"data: [DONE]\n\n"

// streamWithoutUsage is the same stream for a caller that did not ask for usage.
const streamWithoutUsage = "data: {\"id\":\"x\",\"choices\":[{\"index\":0,\"delta\":{\"role\":\"assistant\",\"content\":\"\"},\"finish_reason\":null}]}\n\n" +
	"data: {\"id\":\"x\",\"choices\":[{\"index\":0,\"delta\":{\"content\":\"one \"},\"finish_reason\":null}]}\n\n" +
	"data: {\"id\":\"x\",\"choices\":[{\"index\":0,\"delta\":{\"content\":\"zwei \\u00e9 \"},\"finish_reason\":null}]}\n\n" +
	"data: {\"id\":\"x\",\"choices\":[{\"index\":0,\"delta\":{},\"finish_reason\":\"stop\"}]}\n\n" +
	"data: [DONE]\n\n"

// cut is a reader that returns its pieces one by one.
type cut struct{ pieces [][]byte }

func (c *cut) Read(p []byte) (int, error) {
	if len(c.pieces) == 0 {
		return 0, io.EOF
	}
	n := copy(p, c.pieces[0])
	if c.pieces[0] = c.pieces[0][n:]; len(c.pieces[0]) == 0 {
		c.pieces = c.pieces[1:]
	}
	return n, nil
}

func TestAStreamCutAnywhereReachesTheCallerToTheByteAndCostsTheSame(t *testing.T) {
	b := newBench(t)
	crlf := strings.ReplaceAll(providerStream, "\n", "\r\n")
	pings := strings.ReplaceAll(providerStream, "data: {", ": ping\n\ndata:{")
	for _, source := range []string{providerStream, crlf, pings} {
		for at := range len(source) {
			for body, want := range map[string]string{streamRequestWithUsage: providerStream, streamRequest: streamWithoutUsage} {
				b.answer = events(&cut{[][]byte{[]byte(source[:at]), []byte(source[at:])}})
				w, err := b.ask(body)
				if err != nil || w.Code != http.StatusOK || w.Body.String() != want {
					t.Fatalf("cut at %d: %v %d\n%s", at, err, w.Code, w.Body)
				}
				if e := b.settled(); e.Usage != (live.Usage{Input: 10, Output: 5}) || e.Counted || e.Outcome != string(outcome.Finished) || e.Charged != 10_000+20_000 {
					t.Fatalf("cut at %d: %+v", at, e)
				}
			}
		}
	}
}

func TestAStreamInSmallPiecesReachesTheCallerToTheByte(t *testing.T) {
	b := newBench(t)
	rapid.Check(t, func(t *rapid.T) {
		size := rapid.IntRange(1, 40).Draw(t, "size")
		var pieces [][]byte
		for rest := []byte(providerStream); len(rest) > 0; {
			n := min(size, len(rest))
			pieces, rest = append(pieces, rest[:n]), rest[n:]
		}
		b.answer = events(&cut{pieces})
		w, err := b.ask(streamRequest)
		if err != nil || w.Body.String() != streamWithoutUsage {
			t.Fatalf("in pieces of %d: %v\n%s", size, err, w.Body)
		}
	})
}

// endOf returns where the event that holds a text ends.
func endOf(events, text string) int {
	before, after, _ := strings.Cut(events, text)
	rest, _, _ := strings.Cut(after, "\n\n")
	return len(before) + len(text) + len(rest) + 2
}

// Wherever a provider breaks off, the caller gets whole events, then either the end or one error; and pays for what
// it got, or, before any content, nothing.
func TestAStreamThatBreaksOffAnywhereIsToldAndChargedForWhatWasDelivered(t *testing.T) {
	b := newBench(t)
	first, finished := endOf(providerStream, "one "), endOf(providerStream, `"stop"`)
	for at := range len(providerStream) {
		before, entries := b.funds.Balance(home).Spent, len(b.entries())
		b.answer = events(strings.NewReader(providerStream[:at]))
		w, err := b.ask(streamRequest)
		spent := b.funds.Balance(home).Spent - before
		switch {
		case at < first:
			if fault.From(err) == nil || fault.From(err).Status != http.StatusBadGateway || spent != 0 || len(b.entries()) != entries || w.Body.Len() > 0 {
				t.Fatalf("cut at %d: %v, $%s, %s", at, err, spent, w.Body)
			}
		case at < finished:
			text := w.Body.String()
			if err != nil || !strings.Contains(text, `data: {"error":{"message":`) || strings.Contains(text, "[DONE]") || !strings.HasSuffix(text, "\n\n") {
				t.Fatalf("cut at %d: %v\n%s", at, err, text)
			}
			if e := b.settled(); e.Outcome != string(outcome.Died) || !e.Counted || e.Usage.Output < 1 || spent == 0 {
				t.Fatalf("cut at %d: %+v", at, e)
			}
		default:
			if err != nil || !strings.HasSuffix(w.Body.String(), "data: [DONE]\n\n") || spent == 0 {
				t.Fatalf("cut at %d: %v\n%s", at, err, w.Body)
			}
		}
	}
}

func TestAQuietStreamIsKeptAliveBetweenEventsAlone(t *testing.T) {
	b := newBench(t)
	b.pingInterval = 5 * time.Millisecond
	half := endOf(providerStream, "one ") + 20 // in the middle of an event
	paused := false
	rest := strings.NewReader(providerStream[half:])
	b.answer = events(io.MultiReader(strings.NewReader(providerStream[:half]), readerFunc(func(p []byte) (int, error) {
		if !paused {
			paused = true
			time.Sleep(300 * time.Millisecond)
		}
		return rest.Read(p)
	})))
	w, err := b.ask(streamRequest)
	text := w.Body.String()
	if err != nil || strings.Count(text, ": ping\n") < 2 || strings.ReplaceAll(text, ": ping\n", "") != streamWithoutUsage {
		t.Errorf("%v\n%s", err, text)
	}
	if at := strings.Index(text, ": ping\n"); !strings.HasSuffix(text[:max(at, 0)], "\n\n") || strings.Contains(text, ": ping\n\n") {
		t.Errorf("a ping stands inside an event, or is one:\n%s", text)
	}
	if _, end, _ := strings.Cut(text, "[DONE]"); strings.Contains(end, "ping") {
		t.Errorf("a ping after the end: %q", end)
	}
}

func TestEveryChoiceMustFinishBeforeAStreamWithoutItsEndCountsAsWhole(t *testing.T) {
	b := newBench(t)
	piece := func(index int, delta, finish string) string {
		return `data: {"choices":[{"index":` + strconv.Itoa(index) + `,"delta":` + delta + `,"finish_reason":` + finish + "}]}\n\n"
	}
	two := piece(0, `{"content":"a"}`, "null") + piece(1, `{"content":"b"}`, "null") + piece(0, `{}`, `"stop"`)
	body := strings.Replace(streamRequest, `"stream"`, `"n":2,"stream"`, 1)
	b.answer = events(strings.NewReader(two))
	if w, _ := b.ask(body); strings.Contains(w.Body.String(), "[DONE]") || b.settled().Outcome != string(outcome.Died) {
		t.Errorf("one of two has finished: %s", w.Body)
	}
	b.answer = events(strings.NewReader(two + piece(1, `{}`, `"length"`)))
	if w, _ := b.ask(body); !strings.HasSuffix(w.Body.String(), "data: [DONE]\n\n") || b.settled().Outcome != string(outcome.Finished) {
		t.Errorf("both have finished: %s", w.Body)
	}
}

// The provider gets the caller's members, in their order, with only what must change in them.
func TestTheProviderGetsTheCallersBodyWithOnlyWhatMustChange(t *testing.T) {
	value := rapid.SampledFrom([]string{`null`, `true`, `-1.5e3`, `"a\"b\\"`, `"\u00e9é"`, `[]`, `{}`, `[1, {"model":"x"}]`, `{"model": {"a":[]}}`, `""`})
	space := rapid.SampledFrom([]string{"", " ", "\n\t", "  "})
	rapid.Check(t, func(t *rapid.T) {
		gap := func() string { return space.Draw(t, "gap") }
		type member struct{ name, value string }
		members := []member{{"model", `"m"`}, {"messages", `[{"role":"user","content":"hi"}]`}}
		for i := range rapid.IntRange(0, 4).Draw(t, "others") {
			members = append(members, member{"other" + strconv.Itoa(i), value.Draw(t, "value")})
		}
		streams, options := rapid.Bool().Draw(t, "stream"), rapid.SampledFrom([]string{"", `{}`, `{"include_usage":false}`, `{"include_usage":true}`, `{"x":1}`, ` null`}).Draw(t, "options")
		if streams {
			members = append(members, member{"stream", "true"})
		}
		if options != "" {
			members = append(members, member{"stream_options", options})
		}
		if rapid.Bool().Draw(t, "fallbacks") {
			members = append(members, member{"models", `["m"]`})
		}
		limited := rapid.Bool().Draw(t, "limited")
		if limited {
			members = append(members, member{"max_tokens", "7"})
		}
		members = rapid.Permutation(members).Draw(t, "order")
		var body strings.Builder
		for i, m := range members {
			if i == 0 {
				body.WriteString(gap() + "{" + gap())
			} else {
				body.WriteString("," + gap())
			}
			body.WriteString(`"` + m.name + `"` + gap() + ":" + strings.TrimSpace(gap()+m.value) + gap())
		}
		body.WriteString("}" + gap())

		a := &request.Request{Endpoint: request.Chat, Body: []byte(body.String())}
		if err := a.Parse(); err != nil {
			t.Fatalf("%s: %v", body.String(), err)
		}
		maxTokens := rapid.SampledFrom([]int64{0, 50}).Draw(t, "maxTokens")
		sent := bytes.Join(a.ProviderBody(nil, model("m"), false, maxTokens), nil)
		got, want := map[string]any{}, map[string]any{}
		if err := json.Unmarshal(sent, &got); err != nil {
			t.Fatalf("%s became %s: %v", body.String(), sent, err)
		}
		if err := json.Unmarshal([]byte(body.String()), &want); err != nil {
			t.Fatal(err)
		}
		want["model"] = "up-m"
		delete(want, "models")
		if streams {
			old, _ := want["stream_options"].(map[string]any)
			if old == nil {
				old = map[string]any{}
			}
			old["include_usage"] = true
			want["stream_options"] = old
		}
		if maxTokens > 0 && !limited {
			want["max_tokens"] = float64(maxTokens)
		}
		if a, b := mustJSON(got), mustJSON(want); a != b {
			t.Fatalf("%s became\n%s, not\n%s", body.String(), a, b)
		}
		if !strings.Contains(string(sent), `[{"role":"user","content":"hi"}]`) {
			t.Fatalf("the messages were written anew: %s", sent)
		}
	})
}

func mustJSON(v any) string {
	text, err := json.Marshal(v)
	if err != nil {
		panic(err)
	}
	return string(text)
}

func TestTheHoldCoversTheDearestModelThatMayRun(t *testing.T) {
	cheap, dear := model("m"), model("dear", func(m *live.Model) { m.Price.Output *= 10 })
	big := model("big", func(m *live.Model) { m.MaxOutput = 50_000 })
	cached := model("cached", func(m *live.Model) { m.Price.CachedInput = 9_000_000_000 })
	b := newBench(t, cheap, dear, big, cached)
	b.Aliases.Put(home, &live.Alias{Name: "split", Target: "m", Canary: "dear", CanaryPercent: 1})
	b.Aliases.Put(home, &live.Alias{Name: "backed", Target: "m", Fallbacks: []string{"big", "gone"}})
	var held money.Nano
	b.answer = func(r *upstream.Request) (*upstream.Response, error) {
		held = b.funds.Balance(home).Held
		return whole(good)(r)
	}
	limit := `,"max_tokens":100}`
	for body, output := range map[string]money.Nano{
		plainRequest: 1000 * 4000,
		strings.Replace(plainRequest, "}]}", "}]"+limit, 1):                                       100 * 4000,
		strings.Replace(plainRequest, "}]}", `}],"n":3`+limit, 1):                                 300 * 4000,
		strings.Replace(plainRequest, "}]}", `}],"max_tokens":9999999}`, 1):                       1000 * 4000,
		strings.Replace(plainRequest, "}]}", `}],"models":["dear"]`+limit, 1):                     100 * 40000,
		strings.Replace(strings.Replace(plainRequest, `"m"`, `"split"`, 1), "}]}", "}]"+limit, 1): 100 * 40000,
		strings.Replace(plainRequest, `"m"`, `"backed"`, 1):                                       50_000 * 4000,
	} {
		if _, err := b.ask(body); err != nil {
			t.Fatalf("%s: %v", body, err)
		}
		input := held - output
		if input < 2*1000 || input > money.Nano(len(body)+200)*1000 {
			t.Errorf("%s: $%s are held, of which $%s for the input", body, held, input)
		}
	}
	b.Workspaces.Put(home, live.Settings{DefaultMaxTokens: 10})
	if _, err := b.ask(plainRequest); err != nil || held > 10*4000+300*1000 {
		t.Errorf("$%s are held although the workspace's default is 10: %v", held, err)
	}
	if sent := bytes.Join(b.sent[len(b.sent)-1].Body, nil); !bytes.HasSuffix(sent, []byte(`,"max_tokens":10}`)) {
		t.Errorf("sent %s", sent)
	}
	b.Workspaces.Put(home, live.Settings{})
	if _, err := b.ask(strings.Replace(plainRequest, `"m"`, `"cached"`, 1)); err != nil || held < 1000*4000+2*9000 {
		t.Errorf("$%s are held although cached input is dearest: %v", held, err)
	}
}

func TestAttemptsFollowTheTableOfFailures(t *testing.T) {
	type row struct {
		status        int
		tries, models int
		told          int
	}
	for name, r := range map[string]row{
		"bad request": {status: 400, tries: 1, models: 1, told: 400}, "too large": {status: 413, tries: 1, models: 1, told: 400}, "unprocessable": {status: 422, tries: 1, models: 1, told: 400},
		"no key": {status: 401, tries: 1, models: 2, told: 502}, "forbidden": {status: 403, tries: 1, models: 2, told: 502}, "not found": {status: 404, tries: 1, models: 2, told: 502},
		"redirect": {status: 302, tries: 1, models: 2, told: 502}, "teapot": {status: 418, tries: 1, models: 2, told: 502},
		"limited": {status: 429, tries: 2, models: 2, told: 429}, "failed": {status: 500, tries: 2, models: 2, told: 502}, "away": {status: 503, tries: 2, models: 2, told: 502},
		"timeout": {status: 408, tries: 1, models: 2, told: 408},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newBench(t, model("m"), model("other"))
			s := *b.settings.Load()
			s.Retries = 1
			b.Apply(s)
			b.answer = func(*upstream.Request) (*upstream.Response, error) {
				return &upstream.Response{Status: r.status, Body: io.NopCloser(strings.NewReader(`{"error":{"message":"because","param":"x"}}`))}, nil
			}
			w, err := b.ask(strings.Replace(plainRequest, "}]}", `}],"models":["other"]}`, 1))
			f := fault.From(err)
			if f == nil || f.Status != r.told || w.Body.Len() > 0 {
				t.Errorf("%v", err)
			}
			if f != nil && r.told == 400 && (f.Message != "because" || f.Field != "x") {
				t.Errorf("told %q about %q", f.Message, f.Field)
			}
			if f != nil && r.told != 400 && strings.Contains(f.Message, "because") {
				t.Errorf("the provider's words reached the caller: %s", f.Message)
			}
			if len(b.sent) != r.tries*r.models {
				t.Errorf("%d attempts", len(b.sent))
			}
			if spent := b.funds.Balance(home).Spent; spent != 0 || len(b.entries()) != 0 {
				t.Errorf("$%s for nothing", spent)
			}
		})
	}
}

func TestAFallbackAnswersAndItsPriceCounts(t *testing.T) {
	b := newBench(t, model("m"), model("dear", func(m *live.Model) { m.Price.Output *= 10 }))
	b.Aliases.Put(home, &live.Alias{Name: "named", Target: "m", Fallbacks: []string{"dear"}})
	b.answer = func(r *upstream.Request) (*upstream.Response, error) {
		if r.Model.ID == "m" {
			return nil, errors.New("no route to host")
		}
		return whole(good)(r)
	}
	w, err := b.ask(strings.Replace(plainRequest, `"m"`, `"named"`, 1))
	e := b.settled()
	if err != nil || w.Header().Get("X-Service-Served-Model") != "dear" || w.Header().Get("X-Service-Alias") != "named" {
		t.Errorf("%v %v", err, w.Header())
	}
	if e.Model != "dear" || e.Requested != "named" || e.Alias != "named" || e.Cost != 10_000+5*40_000 || e.Price.Output != 40_000_000_000 {
		t.Errorf("%+v", e)
	}
	if !bytes.Contains(bytes.Join(b.sent[1].Body, nil), []byte(`"up-dear"`)) {
		t.Errorf("sent %s", bytes.Join(b.sent[1].Body, nil))
	}
}

func TestAnAliasWhoseModelLeftTheCatalogFallsBackOrSaysSo(t *testing.T) {
	b := newBench(t, model("m"), model("vector", func(m *live.Model) { m.Kind = live.Embedding }))
	b.Aliases.Put(home, &live.Alias{Name: "backed", Target: "gone", Fallbacks: []string{"gone-too", "m"}})
	b.Aliases.Put(home, &live.Alias{Name: "lost", Target: "gone"})
	b.answer = whole(good)
	if w, err := b.ask(strings.Replace(plainRequest, `"m"`, `"backed"`, 1)); err != nil || w.Header().Get("X-Service-Served-Model") != "m" {
		t.Errorf("%v %v", err, w.Header())
	}
	_, err := b.ask(strings.Replace(plainRequest, `"m"`, `"lost"`, 1))
	if f := fault.From(err); f == nil || f.Code != "model_not_found" || !strings.Contains(f.Message, `"lost" points to "gone"`) {
		t.Errorf("%v", err)
	}
	for body, field := range map[string]string{
		strings.Replace(plainRequest, `"m"`, `"vector"`, 1):                    "model",
		strings.Replace(plainRequest, "}]}", `}],"models":["m","vector"]}`, 1): "models[1]",
	} {
		if _, err := b.ask(body); fault.From(err) == nil || fault.From(err).Field != field {
			t.Errorf("%s: %v", body, err)
		}
	}
}

func TestAnErrorInTheFirstEventIsTriedElsewhere(t *testing.T) {
	b := newBench(t, model("m"), model("other"))
	b.answer = func(r *upstream.Request) (*upstream.Response, error) {
		if r.Model.ID == "m" {
			return events(strings.NewReader("data: {\"error\":{\"message\":\"overloaded\"}}\n\n"))(r)
		}
		return events(strings.NewReader(providerStream))(r)
	}
	w, err := b.ask(strings.Replace(streamRequest, "}],", `}],"models":["other"],`, 1))
	if err != nil || w.Body.String() != streamWithoutUsage || w.Header().Get("X-Service-Served-Model") != "other" {
		t.Errorf("%v %s", err, w.Body)
	}
}

func TestAnswersThatAreNoAnswersAreRefusedAndCostNothing(t *testing.T) {
	b := newBench(t)
	for _, body := range []string{
		``, `null`, `[]`, `"text"`, `{`, `{}`, `{"choices":[]}`, `{"choices":null}`, `{"choices":{}}`, `{"error":{"message":"x"}}`, `{"error":"x"}`,
		good + good, `<html>`, "{\"choices\":[{}]\x00}", `{"choices":[{}],"choices":[{}]}`,
	} {
		b.answer = whole(body)
		w, err := b.ask(plainRequest)
		if f := fault.From(err); f == nil || f.Status != http.StatusBadGateway || w.Body.Len() > 0 {
			t.Errorf("%s: %v %s", body, err, w.Body)
		}
	}
	for _, body := range []string{
		"", "data: \n\n", "data: [DONE]\n\n", "hello\n\n", "data: {\n\n", "data: [1]\n\n", "data: \"x\"\n\n", "{}", "data: {\"choices\":[]}\n\ndata: [DONE]\n\n", "<html>\n",
	} {
		b.answer = events(strings.NewReader(body))
		w, err := b.ask(streamRequest)
		if f := fault.From(err); f == nil || f.Status != http.StatusBadGateway || w.Body.Len() > 0 {
			t.Errorf("stream %q: %v %s", body, err, w.Body)
		}
	}
	b.answer = whole(good)
	if _, err := b.ask(streamRequest); fault.From(err) == nil {
		t.Error("a stream was asked for and a whole answer taken for one")
	}
	if spent := b.funds.Balance(home).Spent; spent != 0 || len(b.entries()) != 0 {
		t.Errorf("$%s", spent)
	}
}

func TestUsageThatIsNoCountWasNotReported(t *testing.T) {
	for text, want := range map[string]*live.Usage{
		`{"prompt_tokens":0,"completion_tokens":0}`:                                 {},
		`{"prompt_tokens":3,"completion_tokens":4.0}`:                               {Input: 3, Output: 4},
		`{"prompt_tokens":3}`:                                                       {Input: 3},
		`{"prompt_tokens":3,"completion_tokens":null,"prompt_tokens_details":null}`: {Input: 3},
		`{"prompt_tokens":3,"completion_tokens":9,"prompt_tokens_details":{"cached_tokens":99},"completion_tokens_details":{"reasoning_tokens":99}}`: {Input: 3, Cached: 3, Output: 9, Reasoning: 9},
		`{"prompt_tokens":1e30,"completion_tokens":1}`: nil,
		`{}`: nil, `null`: nil, `{"prompt_tokens":-1,"completion_tokens":4}`: nil, `{"prompt_tokens":"3"}`: nil, `{"prompt_tokens":1.5}`: nil, `[]`: nil, `{"completion_tokens":4}`: nil,
	} {
		got := answer.Usage([]byte(text))
		if (got == nil) != (want == nil) || got != nil && *got != *want {
			t.Errorf("%s: %+v, want %+v", text, got, want)
		}
	}
}

func TestWithoutAJournalNothingNewRunsAndWhatRanIsOwed(t *testing.T) {
	b := newBench(t)
	broken := errors.New("disk full")
	breakDisk := func() { b.disk.Fail = func(string, int) (int, error) { return 0, broken } }
	b.answer = func(r *upstream.Request) (*upstream.Response, error) {
		breakDisk()
		return whole(good)(r)
	}
	w, err := b.ask(plainRequest)
	if f := fault.From(err); f == nil || f.Status != http.StatusServiceUnavailable || w.Body.Len() > 0 {
		t.Fatalf("an answer whose charge could not be recorded: %v %s", err, w.Body)
	}
	if m := b.funds.Balance(home); m.Held != 0 || m.Spent != 0 {
		t.Errorf("%+v", m)
	}
	sent := len(b.sent)
	if _, err := b.ask(plainRequest); fault.From(err).Status != http.StatusServiceUnavailable || len(b.sent) != sent {
		t.Errorf("a new request: %v", err)
	}
	b.disk.Fail = nil
	if err := b.journal.Sync(); err != nil {
		t.Fatal(err)
	}

	b.answer = func(r *upstream.Request) (*upstream.Response, error) {
		half := endOf(providerStream, "one ")
		rest := strings.NewReader(providerStream[half:])
		return events(io.MultiReader(strings.NewReader(providerStream[:half]), readerFunc(func(p []byte) (int, error) {
			breakDisk()
			return rest.Read(p)
		})))(r)
	}
	w, err = b.ask(streamRequest)
	if err != nil || strings.Contains(w.Body.String(), "[DONE]") || !strings.Contains(w.Body.String(), `"unavailable"`) {
		t.Errorf("a stream whose charge could not be recorded: %v\n%s", err, w.Body)
	}
	if m := b.funds.Balance(home); m.Held == 0 || m.Spent != 0 {
		t.Errorf("the hold must stand: %+v", m)
	}
	b.disk.Fail = nil
	if left := b.Till.Collect(); left != 0 {
		t.Errorf("%d are owed although the journal works", left)
	}
	if e := b.settled(); e.Usage != (live.Usage{Input: 10, Output: 5}) || b.funds.Balance(home).Held != 0 {
		t.Errorf("%+v", e)
	}
}

func TestAStreamWhoseFirstContentCannotBeRecordedIsRefusedBeforeIt(t *testing.T) {
	b := newBench(t)
	b.answer = func(r *upstream.Request) (*upstream.Response, error) {
		b.disk.Fail = func(string, int) (int, error) { return 0, errors.New("disk full") }
		return events(strings.NewReader(providerStream))(r)
	}
	w, err := b.ask(streamRequest)
	b.disk.Fail = nil
	if f := fault.From(err); f == nil || f.Status != http.StatusServiceUnavailable || w.Body.Len() > 0 || b.funds.Balance(home).Held != 0 {
		t.Errorf("%v %s %+v", err, w.Body, b.funds.Balance(home))
	}
}

func TestWhateverAProviderSaysBesideTheRoleIsContentAndItsWordsAreCounted(t *testing.T) {
	b := newBench(t)
	for delta, words := range map[string]int64{
		`{"content":"one two"}`: 2, `{"reasoning_content":"one two"}`: 2, `{"reasoning":"one"}`: 1, `{"refusal":"no no no"}`: 3,
		`{"content":[{"type":"text","text":"one"}]}`:                                          1 + 1, // the type of a part is a word of its own
		`{"tool_calls":[{"index":0,"id":"c1","function":{"name":"f ","arguments":"{} {}"}}]}`: 3,
		`{"function_call":{"name":"f","arguments":""}}`:                                       1,
		`{"audio":{"data":"AAAA"}}`:                                                           0, `{"new_thing":true}`: 0,
	} {
		b.answer = events(strings.NewReader(`data: {"choices":[{"index":0,"delta":` + delta + "}]}\n\n"))
		w, err := b.ask(streamRequest)
		if err != nil || !strings.Contains(w.Body.String(), delta) || !strings.Contains(w.Body.String(), `{"error":`) {
			t.Errorf("%s: %v\n%s", delta, err, w.Body)
		}
		if e := b.settled(); e.Outcome != string(outcome.Died) || words > 0 && e.Usage.Output != words && !strings.Contains(delta, "type") {
			t.Errorf("%s: %+v", delta, e)
		}
	}
	for _, delta := range []string{`{}`, `{"role":"assistant"}`, `{"role":"assistant","content":""}`, `{"content":null,"tool_calls":[]}`, `null`} {
		b.answer = events(strings.NewReader(`data: {"choices":[{"index":0,"delta":` + delta + "}]}\n\n"))
		if w, err := b.ask(streamRequest); fault.From(err) == nil || w.Body.Len() > 0 {
			t.Errorf("%s: %v\n%s", delta, err, w.Body)
		}
	}
}

// +5 and 007 are no JSON: what one provider refuses, another reads as 5 or as an octal number.
func TestNumbersThatAreNoJSONAreRefusedBeforeAnythingIsSent(t *testing.T) {
	b := newBench(t)
	for _, member := range []string{`"max_tokens":+5`, `"max_tokens":007`, `"n":+1`, `"n":01`, `"temperature":.5`, `"seed":+7`} {
		_, err := b.ask(strings.Replace(plainRequest, "}]}", "}],"+member+"}", 1))
		if f := fault.From(err); f.Status != http.StatusBadRequest || len(b.sent) > 0 {
			t.Errorf("%s: %v, and %d requests were sent", member, err, len(b.sent))
		}
	}
}

func TestANameThatDiffersInCaseAloneIsRefused(t *testing.T) {
	b := newBench(t)
	b.answer = whole(good)
	for _, name := range []string{"Max_Tokens", "MODEL", "N", "Stream", "max_to\u212aens", "\u017ftream"} {
		body := strings.Replace(plainRequest, "}]}", `}],"`+name+`":1}`, 1)
		if _, err := b.ask(body); fault.From(err) == nil || fault.From(err).Status != http.StatusBadRequest {
			t.Errorf("%s: %v", name, err)
		}
	}
	if len(b.sent) > 0 {
		t.Error("one was sent")
	}
}

func TestAMaximumOfNullGetsTheDefaultOnce(t *testing.T) {
	a := &request.Request{Endpoint: request.Chat, Body: []byte(strings.Replace(plainRequest, "}]}", `}],"max_tokens":null}`, 1))}
	if err := a.Parse(); err != nil {
		t.Fatal(err)
	}
	if sent := string(bytes.Join(a.ProviderBody(nil, model("m"), false, 50), nil)); strings.Count(sent, "max_tokens") != 1 || !strings.Contains(sent, `"max_tokens":50`) {
		t.Error(sent)
	}
}

type readerFunc func([]byte) (int, error)

func (f readerFunc) Read(p []byte) (int, error) { return f(p) }
