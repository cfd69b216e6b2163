package e2e

import (
	"context"
	"fmt"
	"net/http"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"sovereign/internal/base/money"
	"sovereign/internal/base/secret"
)

// Prices of the mock's models, in money.Nano of a dollar per token.
const (
	inputPrice  = 2500
	outputPrice = 10000
)

// serveMock starts a mock provider, and a server with models at it.
func serveMock(t *testing.T, models map[string]string, flags ...string) (*process, string) {
	t.Helper()
	provider := startProvider(t)
	p := newInstance(t, secret.Text{})
	return p.serve(t, append([]string{"--config", mockConfig(t, provider, models)}, flags...)...), provider
}

var couldCost = regexp.MustCompile(`could cost \$([0-9.]+)`)

// worst is what the server holds for a request. The refusal to a caller without money names it.
func worst(t *testing.T, s *process, body string) money.Nano {
	t.Helper()
	broke := s.callerWith(s.newWorkspace(t, "broke", 1))
	a := broke.must(t, body)
	found := couldCost.FindSubmatch(a.body)
	if a.status != 402 || found == nil {
		t.Fatalf("%d %s", a.status, a.body)
	}
	var b money.Nano
	if err := b.UnmarshalJSON(found[1]); err != nil {
		t.Fatal(err)
	}
	return b
}

func TestOfAThousandRequestsExactlyThoseRunThatTheWalletCanPay(t *testing.T) {
	s, provider := serveMock(t, map[string]string{"chat": "mock?held&in=10&out=3"}, "--limits-connections", "2000")
	body := chat("mock/chat", "a thousand at once", `"max_tokens":100`)
	hold := worst(t, s, body)
	const fit, all = 10, 1000
	c := s.callerWith(s.newWorkspace(t, "ten", fit*hold))
	var ran, refused atomic.Int64
	var group sync.WaitGroup
	for range all {
		group.Go(func() {
			ctx, cancel := context.WithTimeout(context.Background(), limit)
			defer cancel()
			a, err := c.post(ctx, "/v1/chat/completions", body, nil)
			switch {
			case err != nil:
				t.Error(err)
			case a.status == 200:
				ran.Add(1)
			case a.status == 402 && a.code() == "insufficient_balance":
				refused.Add(1)
			default:
				t.Errorf("%d %s", a.status, a.body)
			}
		})
	}
	eventually(t, "990 are refused while ten run", func() bool { return refused.Load() == all-fit })
	if b := s.wallet(t, "ten"); b.Held != fit*hold || b.Balance != fit*hold {
		t.Errorf("while ten run the wallet is %+v; each holds %s", b, hold)
	}
	if response, err := http.Post(provider+"/release", "", http.NoBody); err != nil || response.StatusCode != http.StatusNoContent {
		t.Fatal(response, err)
	}
	group.Wait()
	if ran.Load() != fit || len(seenBy(t, provider, "a thousand at once")) != fit {
		t.Errorf("%d ran, and the provider saw %d", ran.Load(), len(seenBy(t, provider, "a thousand at once")))
	}
	if b := s.wallet(t, "ten"); b.Held != 0 || b.Spent != fit*(10*inputPrice+3*outputPrice) || b.Balance != fit*hold-b.Spent {
		t.Errorf("afterwards the wallet is %+v", b)
	}
	s.verifyLedger(t)
}

func TestDrillACallerWhoLeavesAtAnyChunkPaysForWhatWasDeliveredOnce(t *testing.T) {
	t.Parallel()
	const chunks = 8
	models := map[string]string{"leaves-0": "mock?hang"}
	for k := 1; k < chunks; k++ { // the provider falls silent, so that the caller leaves before the end
		models[fmt.Sprintf("leaves-%d", k)] = fmt.Sprintf("mock?chunks=%d&hang_after=%d", chunks, k)
	}
	s, provider := serveMock(t, models)
	c := s.caller()
	last := money.Nano(0)
	for k := range chunks { // with the last content comes the end
		text := fmt.Sprintf("leaves at chunk %d of the answer", k)
		ctx, cancel := context.WithCancel(context.Background())
		if k == 0 {
			go func() { // before the answer begins
				eventually(t, "the provider is asked", func() bool { return len(seenBy(t, provider, text)) == 1 })
				cancel()
			}()
		}
		before := s.wallet(t, "default")
		a, err := c.post(ctx, "/v1/chat/completions", chat(fmt.Sprintf("mock/leaves-%d", k), text, `"stream":true`), func(events []string) bool {
			return strings.Count(strings.Join(events, ""), `"content":"`)-strings.Count(strings.Join(events, ""), `"content":""`) >= k
		})
		left := time.Now()
		cancel()
		if k > 0 && (err != nil || a.done) {
			t.Fatalf("chunk %d: %v %+v", k, err, a)
		}
		eventually(t, "the provider sees the cancellation", func() bool {
			all := seenBy(t, provider, text)
			return len(all) == 1 && all[0].CancelledAt != nil
		})
		if at := seenBy(t, provider, text)[0].CancelledAt; measured() && at.Sub(left) > 3*time.Second {
			t.Errorf("chunk %d: the provider worked on for %s", k, at.Sub(left))
		}
		eventually(t, "the hold is free again", func() bool { return s.wallet(t, "default").Held == 0 })
		spent := s.wallet(t, "default").Spent - before.Spent
		row, there := usageRow{}, false
		if a != nil {
			row, there = s.usage(t, "default")[a.id()]
		}
		switch {
		case k == 0 && spent != 0:
			t.Errorf("nothing was delivered and $%s charged", spent)
		case k > 0 && (!there || row.Outcome != "left" || !row.Counted || row.Cost != spent || row.Input == 0):
			t.Errorf("chunk %d: charged $%s, row %+v", k, spent, row)
		case k > 0 && (row.Output < int64(k) || spent < last):
			t.Errorf("chunk %d: %d tokens of output, $%s after $%s", k, row.Output, spent, last)
		}
		last = spent
	}
	s.verifyLedger(t)
}

// What goes wrong at the provider, what the caller is told, and what it costs.
func TestWhatGoesWrongAtTheProviderIsToldAndCostsNothingButWhatWasDelivered(t *testing.T) {
	t.Parallel()
	faults := map[string]struct {
		model  string
		status int
		code   string
		stream bool // is asked for
		event  string
		paid   bool
	}{
		"hangs":                {model: "mock?hang", status: 408, code: "request_timeout"},
		"resets":               {model: "mock?reset", status: 502, code: "null"},
		"garbage":              {model: "mock?garbage", status: 502, code: "null"},
		"gzip":                 {model: "mock?gzip", status: 502, code: "null"},
		"our-key":              {model: "mock?status=401", status: 502, code: "null"},
		"forbidden":            {model: "mock?status=403", status: 502, code: "null"},
		"no-model":             {model: "mock?status=404", status: 502, code: "null"},
		"fails":                {model: "mock?status=500", status: 502, code: "null"},
		"overloaded":           {model: "mock?status=503", status: 502, code: "null"},
		"bad-request":          {model: "mock?status=400", status: 400, code: "invalid_parameter"},
		"too-large":            {model: "mock?status=413", status: 400, code: "invalid_parameter"},
		"unprocessable":        {model: "mock?status=422", status: 400, code: "invalid_parameter"},
		"limited":              {model: "mock?status=429&retry_after=7", status: 429, code: "rate_limited"},
		"stream-hangs":         {model: "mock?hang", status: 408, code: "request_timeout", stream: true},
		"stream-garbage":       {model: "mock?garbage", status: 502, code: "null", stream: true},
		"stream-error-first":   {model: "mock?error_event_after=0", status: 502, code: "null", stream: true},
		"stream-dies-first":    {model: "mock?die_after=0", status: 502, code: "null", stream: true},
		"stream-dies":          {model: "mock?chunks=6&die_after=3", status: 200, stream: true, event: "upstream_error", paid: true},
		"stream-ends":          {model: "mock?chunks=6&end_after=3", status: 200, stream: true, event: "upstream_error", paid: true},
		"stream-resets":        {model: "mock?chunks=6&reset_after=3&chunk_delay=20ms", status: 200, stream: true, event: "upstream_error", paid: true},
		"stream-error":         {model: "mock?chunks=6&error_event_after=3", status: 200, stream: true, event: "upstream_error", paid: true},
		"stream-turns-garbage": {model: "mock?chunks=6&garbage_after=3", status: 200, stream: true, event: "upstream_error", paid: true},
		"stream-stalls":        {model: "mock?chunks=6&hang_after=3", status: 200, stream: true, event: "request_timeout", paid: true},
	}
	models := map[string]string{}
	for name, f := range faults {
		models[name] = f.model
	}
	s, _ := serveMock(t, models, "--limits-try-timeout", "5s", "--limits-stall-timeout", "5s", "--limits-retries", "0")
	t.Run("each", func(t *testing.T) {
		for name, f := range faults {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				c := s.callerWith(s.newWorkspace(t, name, money.Dollar))
				more := []string{`"max_tokens":50`}
				if f.stream {
					more = append(more, `"stream":true`)
				}
				a := c.must(t, chat("mock/"+name, "what goes wrong", more...))
				if a.status != f.status || f.code != "" && a.code() != f.code {
					t.Errorf("%d %s", a.status, a.body)
				}
				if f.status == 429 && a.header.Get("Retry-After") != "7" {
					t.Errorf("Retry-After %q", a.header.Get("Retry-After"))
				}
				if f.status == 502 && !strings.Contains(string(a.body), a.id()) {
					t.Errorf("the message names no request: %s", a.body)
				}
				if f.event != "" {
					end := a.events[len(a.events)-1]
					if a.done || !strings.HasPrefix(end, `{"error":{"message":`) || !strings.Contains(end, f.event) {
						t.Errorf("done %v, the stream ends with %s", a.done, end)
					}
				}
				eventually(t, "the hold is free again", func() bool { return s.wallet(t, name).Held == 0 })
				if spent := s.wallet(t, name).Spent; spent > 0 != f.paid {
					t.Errorf("charged $%s", spent)
				}
				if f.paid {
					if row := s.usage(t, name)[a.id()]; row.Outcome != "died" || !row.Counted || row.Output == 0 {
						t.Errorf("%+v", row)
					}
				}
			})
		}
	})
	s.verifyLedger(t)
}

func TestUsageIsChargedAsTheProviderReportsItAndCountedWhenItDoesNot(t *testing.T) {
	t.Parallel()
	models := map[string]string{
		"normal": "mock?chunks=5&in=100&out=20&cached=40", "zero": "mock?usage=zero", "none": "mock?chunks=30&usage=none",
		"last": "mock?chunks=5&usage=last&in=9&out=4", "inline": "mock?chunks=5&inline_usage&in=9&out=4", "each": "mock?chunks=5&usage=each",
		"over": "mock?in=100000&out=1",
	}
	s, _ := serveMock(t, models)
	for _, stream := range []string{`"stream":false`, `"stream":true`} {
		for name, want := range map[string]struct {
			cost    money.Nano
			counted bool
		}{
			"normal": {cost: 60*inputPrice + 40*inputPrice/2 + 20*outputPrice},
			"zero":   {},
			"none":   {counted: true},
			"last":   {cost: 9*inputPrice + 4*outputPrice},
			"inline": {cost: 9*inputPrice + 4*outputPrice},
		} {
			t.Run(name+" "+stream, func(t *testing.T) {
				a := s.caller().must(t, chat("mock/"+name, "how much does this cost, and who says so?", stream))
				if a.status != 200 || !a.done {
					t.Fatalf("%d %s", a.status, a.body)
				}
				var row usageRow
				eventually(t, "a row", func() bool {
					found, there := s.usage(t, "default")[a.id()]
					row = found
					return there
				})
				if row.Outcome != "finished" || row.Counted != want.counted || !want.counted && row.Cost != want.cost || row.Charged != row.Cost {
					t.Errorf("%+v", row)
				}
				if want.counted && (row.Input < 10 || row.Input > 30 || row.Output < 15 || row.Output > 90) {
					t.Errorf("counted %+v", row)
				}
			})
		}
	}
	t.Run("over the hold", func(t *testing.T) {
		const credit = 200_000_000 // less than what the provider reports, which its model can have used
		c := s.callerWith(s.newWorkspace(t, "over", credit))
		a := c.must(t, chat("mock/over", "more than the wallet has", `"max_tokens":5`))
		row := s.usage(t, "over")[a.id()]
		if a.status != 200 || row.Charged != credit || row.Cost != 100_000*inputPrice+outputPrice {
			t.Errorf("%d %+v", a.status, row)
		}
		if b := s.wallet(t, "over"); b.Balance != 0 || b.Held != 0 || b.Spent != credit {
			t.Errorf("%+v", b)
		}
		for _, alarm := range []string{"operator's overage", "cost more than was held"} {
			if !strings.Contains(s.log.String(), alarm) {
				t.Errorf("no alarm %q", alarm)
			}
		}
		if a := c.must(t, chat("mock/over", "and once more")); a.status != 402 {
			t.Errorf("%d %s", a.status, a.body)
		}
	})
	s.verifyLedger(t)
}

func TestATopUpTellsTheBalanceAfterItAndCanBeSpentAtOnce(t *testing.T) {
	t.Parallel()
	s, _ := serveMock(t, map[string]string{"chat": "mock?in=5&out=5"})
	c := s.callerWith(s.newWorkspace(t, "poor", 1))
	if a := c.must(t, chat("mock/chat", "broke")); a.status != 402 {
		t.Fatal(a.status)
	}
	var after balance
	s.mustAdmin(t, &after, "wallet", "topup", "--workspace", "poor", "--amount-usd", "7", "--json")
	if want := (balance{Balance: 7*money.Dollar + 1}); after != want || s.wallet(t, "poor") != want {
		t.Errorf("told %+v, is %+v", after, s.wallet(t, "poor"))
	}
	if a := c.must(t, chat("mock/chat", "rich")); a.status != 200 {
		t.Errorf("%d %s", a.status, a.body)
	}
}

// An admin command reads the configuration file, but does not need the providers' keys from the environment.
func TestAdminNeedsNoProvidersKey(t *testing.T) {
	t.Parallel()
	p := newInstance(t, secret.Text{})
	config := filepath.Join(t.TempDir(), "sovereign.yaml")
	writeFile(t, config, "providers:\n  - {name: up, kind: openai, base_url: 'https://a.example/v1', api_key: 'env:SOVEREIGN_TEST_NO_SUCH'}\n")
	p.mustAdmin(t, nil, "bootstrap", "--config", config, "--workspace", "x", "--email", "x@x.test", "--json")
	if _, stderr, code := run(t, append([]string{"serve", "--listen", "127.0.0.1:0", "--operations-listen", "off", "--config", config}, p.flags()...)...); code != 1 || !strings.Contains(stderr, "yaml:2: ") || !strings.Contains(stderr, "SOVEREIGN_TEST_NO_SUCH") {
		t.Errorf("exit %d: %s", code, stderr)
	}
}

func TestARefusalForMoneyNamesAMaximumThatFits(t *testing.T) {
	t.Parallel()
	s, _ := serveMock(t, map[string]string{"chat": "mock?in=5&out=5"})
	c := s.callerWith(s.newWorkspace(t, "little", 20_000_000)) // two cents
	a := c.must(t, chat("mock/chat", "what can I afford?"))
	found := regexp.MustCompile(`max_tokens of at most (\d+)`).FindSubmatch(a.body)
	if a.status != 402 || found == nil {
		t.Fatalf("%d %s", a.status, a.body)
	}
	if a := c.must(t, chat("mock/chat", "what can I afford?", `"max_tokens":`+string(found[1])+"1")); a.status != 402 {
		t.Errorf("ten times as much: %d", a.status)
	}
	if a := c.must(t, chat("mock/chat", "what can I afford?", `"max_completion_tokens":`+string(found[1]))); a.status != 200 {
		t.Errorf("%d %s", a.status, a.body)
	}
}

func TestAnIdempotencyKeyIsIgnoredOnInference(t *testing.T) {
	t.Parallel()
	s, provider := serveMock(t, map[string]string{"chat": "mock?in=5&out=5"})
	c := s.caller()
	c.header = http.Header{"Idempotency-Key": {"the-same"}}
	for range 2 {
		if a := c.must(t, chat("mock/chat", "twice, and twice charged")); a.status != 200 {
			t.Fatal(a.status)
		}
	}
	if n := len(seenBy(t, provider, "twice, and twice charged")); n != 2 {
		t.Errorf("the provider saw %d", n)
	}
	if b := s.wallet(t, "default"); b.Spent != 2*(5*inputPrice+5*outputPrice) {
		t.Errorf("%+v", b)
	}
}
