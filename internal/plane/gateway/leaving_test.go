package gateway

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"sovereign/internal/base/money"
	"sovereign/internal/base/outcome"
	"sovereign/internal/base/tenant"
	"sovereign/internal/live"
	"sovereign/internal/net/life"
	"sovereign/internal/plane/funds"
	"sovereign/internal/plane/gateway/request"
	"sovereign/internal/plane/journal"
	"sovereign/internal/text/token"
	"sovereign/internal/wire/upstream"
)

// chunk is an event of a chat's stream.
func chunk(delta, usage string) string {
	choices := "[]"
	if delta != "" {
		choices = `[{"index":0,"delta":` + delta + `,"finish_reason":null}]`
	}
	return `data: {"id":"x","choices":` + choices + `,"usage":` + usage + "}\n\n"
}

// leaveAfter streams body to a caller that leaves after so many writes. The provider sends the pieces, and then falls
// silent until it is cancelled, unless they hold the end.
func (b *bench) leaveAfter(writes int, body string, pieces ...string) journal.Entry {
	b.t.Helper()
	b.answerWith(func(ctx context.Context) io.Reader {
		var all [][]byte
		for _, p := range pieces {
			all = append(all, []byte(p))
		}
		return io.MultiReader(&cut{all}, readerFunc(func([]byte) (int, error) {
			<-ctx.Done()
			return 0, ctx.Err()
		}))
	})
	q := &request.Request{
		Endpoint: request.Chat, Caller: tenant.Caller{Workspace: home, Key: "key_1"}, ID: "req_left", Body: []byte(body),
	}
	if err := b.Serve(b.t.Context(), q, &leaving{httptest.NewRecorder(), writes}); err != nil {
		b.t.Fatal(err)
	}
	return b.settled()
}

// answerWith lets the provider answer with a stream that knows when it is cancelled.
func (b *bench) answerWith(body func(context.Context) io.Reader) {
	b.respond = func(ctx context.Context, _ *upstream.Request) (*upstream.Response, error) {
		return &upstream.Response{Status: http.StatusOK, ContentType: "text/event-stream", Body: io.NopCloser(body(ctx))}, nil
	}
}

const leftBody = `{"model":"m","messages":[{"role":"user","content":"hi"}],"stream":true}`

func TestACallerWhoLeavesEarlyPaysWhatTheProviderReportsInTime(t *testing.T) {
	b := newBench(t)
	b.Apply(Settings{TryTimeout: time.Minute, StallTimeout: time.Minute, RequestTimeout: 2 * time.Minute, LeaveTimeout: time.Minute})
	hidden := `{"prompt_tokens":20,"completion_tokens":900,"completion_tokens_details":{"reasoning_tokens":890}}`
	e := b.leaveAfter(1, leftBody,
		chunk(`{"role":"assistant","content":"MARK"}`, "null"),
		chunk(`{"content":" padding"}`, "null"),
		chunk(`{"content":" padding"}`, "null")+`data: {"choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}`+"\n\n"+
			chunk("", hidden)+"data: [DONE]\n\n")
	if want := (live.Usage{Input: 20, Output: 900, Reasoning: 890}); e.Usage != want || e.Outcome != string(outcome.Left) || e.Counted {
		t.Errorf("charged %+v, %s; the provider reported %+v", e.Usage, e.Outcome, want)
	}
}

func TestACallerWhoLeavesEarlyPaysAtLeastWhatWasReportedSoFar(t *testing.T) {
	b := newBench(t)
	b.Apply(Settings{TryTimeout: time.Minute, StallTimeout: time.Minute, RequestTimeout: 2 * time.Minute, LeaveTimeout: time.Millisecond})
	long := strings.Replace(leftBody, "hi", strings.Repeat("word ", 60_000), 1)
	e := b.leaveAfter(1, long, chunk("", `{"prompt_tokens":50000,"completion_tokens":1}`),
		chunk(`{"role":"assistant","content":"one two three"}`, "null"), chunk(`{"content":" four"}`, "null"))
	if e.Usage.Input != 50_000 || e.Usage.Output != 3 || e.Outcome != string(outcome.Left) || !e.Counted {
		t.Errorf("charged %+v, %s", e.Usage, e.Outcome)
	}
}

func TestACallerWhoLeavesEarlyPaysForTheMediaThatWereHeldFor(t *testing.T) {
	b := newBench(t)
	image := `{"type":"image_url","image_url":{"url":"data:image/png;base64,` + strings.Repeat("iVBORw0KGgo", 50) + `"}},`
	body := strings.Replace(leftBody, `"hi"`, `[`+strings.Repeat(image, 20)+`{"type":"text","text":"what is it"}]`, 1)
	e := b.leaveAfter(1, body, chunk(`{"content":"one"}`, "null"), chunk(`{"content":" two"}`, "null"))
	if e.Usage.Input < 20*token.Medium {
		t.Errorf("twenty images count %d tokens", e.Usage.Input)
	}
}

func TestNoStreamThatEndsEarlyCostsMoreThanItsHold(t *testing.T) {
	for name, ended := range map[string]string{"left": "", "died": "data: broken\n\n"} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t)
			body := strings.Replace(leftBody, `"stream"`, `"max_tokens":10,"stream"`, 1)
			writes := 1
			if ended != "" {
				writes = 9
			}
			e := b.leaveAfter(writes, body, chunk(`{"content":"one"}`, `{"prompt_tokens":90000,"completion_tokens":900}`),
				chunk(`{"content":" two"}`, "null")+ended)
			if hold := model("m").Price.Worst(token.Most(len(body)), 10, 0); e.Outcome != name || e.Charged != hold || e.Cost <= hold {
				t.Errorf("%s: charged $%s of $%s; $%s were held", e.Outcome, e.Charged, e.Cost, hold)
			}
		})
	}
}

// A caller that leaves shortly before the answers come gets the provider's work for nothing, up to an allowance.
func TestUnstreamedRequestsThatAreAbandonedAreFreeWithinTheAllowanceAlone(t *testing.T) {
	b := newBench(t)
	b.freeWait = 0
	b.funds.Allow(funds.Allowance{Share: 10_000, Least: money.Dollar / 10})
	const cost = 10_000*1000 + 1000*4000 // of the usage below: $0.014
	answer := strings.Replace(good, `"prompt_tokens":10,"completion_tokens":5`, `"prompt_tokens":10000,"completion_tokens":1000`, 1)
	var unpaid, paid money.Nano
	for i := range 15 {
		caller := new(life.Life)
		b.answer = func(r *upstream.Request) (*upstream.Response, error) {
			caller.End(context.Canceled)
			return whole(answer)(r)
		}
		if _, err := b.askFrom(caller, request.Chat, strings.Replace(plainRequest, "hi", strings.Repeat("word ", 12_000), 1)); err != nil {
			t.Fatal(err)
		}
		e := b.settled()
		if e.Outcome != string(outcome.Abandoned) || e.Cost != cost || e.Charged != 0 && e.Charged != cost {
			t.Fatalf("request %d: %s, $%s of $%s charged", i, e.Outcome, e.Charged, e.Cost)
		}
		paid, unpaid = paid+e.Charged, unpaid+e.Cost-e.Charged
	}
	if unpaid != 7*cost || paid != 8*cost { // seven fit into $0.10
		t.Errorf("$%s were charged and $%s were not", paid, unpaid)
	}
	if got := b.funds.Balance(home); got.Spent != paid || got.Excused != unpaid || got.Held != 0 {
		t.Errorf("the wallet says %+v", got)
	}
}

func TestAnUnstreamedRequestWhoseCallerLeavesAtOnceIsCancelledAndFree(t *testing.T) {
	b := newBench(t)
	b.freeWait = time.Hour
	ctx, leave := context.WithCancel(t.Context())
	b.respond = func(attempt context.Context, _ *upstream.Request) (*upstream.Response, error) {
		leave()
		<-attempt.Done()
		return nil, attempt.Err()
	}
	if _, err := b.askFrom(ctx, request.Chat, plainRequest); err == nil || len(b.entries()) != 0 {
		t.Errorf("%v, %+v", err, b.entries())
	}
}

// An answer that nobody paid for must not be had from the cache.
func TestAnAbandonedAnswerIsNotCached(t *testing.T) {
	b := newBench(t)
	b.freeWait = 0
	b.funds.Allow(funds.Allowance{Least: money.Dollar})
	b.Workspaces.Put(home, live.Settings{Cache: true})
	for range 2 {
		caller := new(life.Life)
		b.answer = func(r *upstream.Request) (*upstream.Response, error) {
			caller.End(context.Canceled)
			return whole(good)(r)
		}
		if _, err := b.askFrom(caller, request.Chat, plainRequest); err != nil {
			t.Fatal(err)
		}
	}
	if len(b.sent) != 2 {
		t.Errorf("the provider was asked %d times", len(b.sent))
	}
}

func TestAnAbandonedRequestIsNotTriedAgain(t *testing.T) {
	b := newBench(t)
	b.freeWait = 0
	b.Apply(Settings{TryTimeout: time.Minute, StallTimeout: time.Minute, RequestTimeout: 2 * time.Minute, Retries: 5})
	caller := new(life.Life)
	b.answer = func(*upstream.Request) (*upstream.Response, error) {
		caller.End(context.Canceled)
		return &upstream.Response{Status: http.StatusBadGateway, Body: io.NopCloser(strings.NewReader(""))}, nil
	}
	if _, err := b.askFrom(caller, request.Chat, plainRequest); err == nil || len(b.sent) != 1 || len(b.entries()) != 0 {
		t.Errorf("%v after %d attempts, %+v", err, len(b.sent), b.entries())
	}
}

// A provider that reports what its model cannot have used does not empty a wallet.
func TestUsageBeyondTheModelsLimitsIsChargedAtMostTheHold(t *testing.T) {
	const window, most = 100_000, 1000 // of the model of the tests
	for _, c := range []struct {
		input, output int64
		believed      bool
	}{
		{10, 5, true},
		{10, most, true}, // more than max_tokens, and possible
		{window, most, true},
		{window + 1, 5, false},
		{10, most + 1, false},
		{10, 100_000_000, false},
		{100_000_000, 100_000_000, false},
	} {
		for _, body := range []string{plainRequest, streamRequest} {
			b := newBench(t)
			usage := fmt.Sprintf(`{"prompt_tokens":%d,"completion_tokens":%d}`, c.input, c.output)
			b.answer = whole(strings.Replace(good, `{"prompt_tokens":10,"completion_tokens":5}`, usage, 1))
			if body == streamRequest {
				b.answer = events(strings.NewReader(strings.Replace(providerStream, `{"prompt_tokens":10,"completion_tokens":5}`, usage, 1)))
			}
			limited := strings.Replace(body, `"model"`, `"max_tokens":10,"model"`, 1)
			if _, err := b.ask(limited); err != nil {
				t.Fatal(err)
			}
			e := b.settled()
			want := e.Cost
			if hold := model("m").Price.Worst(token.Most(len(limited)), 10, 0); !c.believed {
				want = hold
			}
			if e.Charged != want || e.Usage.Output != min(c.output, most) || e.Usage.Input != min(c.input, window) {
				t.Errorf("%d and %d tokens: charged $%s of $%s, want $%s", c.input, c.output, e.Charged, e.Cost, want)
			}
		}
	}
}

// A caller that leaves during the pause before a retry is not served another attempt.
func TestARequestThatIsAbandonedBeforeARetryIsNotTriedAgain(t *testing.T) {
	b := newBench(t)
	b.freeWait = 0
	b.Apply(Settings{TryTimeout: time.Minute, StallTimeout: time.Minute, RequestTimeout: 2 * time.Minute, Retries: 5})
	caller := new(life.Life)
	b.answer = func(*upstream.Request) (*upstream.Response, error) {
		time.AfterFunc(20*time.Millisecond, func() { caller.End(context.Canceled) }) // long before the pause is over
		return &upstream.Response{Status: http.StatusBadGateway, RetryAfter: 3 * time.Second, Body: io.NopCloser(strings.NewReader(""))}, nil
	}
	if _, err := b.askFrom(caller, request.Chat, plainRequest); err == nil || len(b.sent) != 1 {
		t.Errorf("%v after %d attempts", err, len(b.sent))
	}
}
