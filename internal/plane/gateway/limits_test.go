package gateway

import (
	"bufio"
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"sovereign/internal/base/apikey"
	"sovereign/internal/base/clock"
	"sovereign/internal/base/money"
	"sovereign/internal/base/outcome"
	"sovereign/internal/base/tenant"
	"sovereign/internal/live"
	"sovereign/internal/net/life"
	"sovereign/internal/plane/edge"
	"sovereign/internal/plane/funds"
	"sovereign/internal/plane/gateway/request"
	"sovereign/internal/plane/meter"
	"sovereign/internal/wire/upstream"
)

func addresses(texts ...string) (all live.AddressRange) {
	for _, text := range texts {
		all = append(all, netip.MustParsePrefix(text))
	}
	return all
}

// An entrance is a bench behind an edge and a socket, with one key.
type entrance struct {
	*bench
	limits    *live.AllLimits
	directory *live.Directory
	digest    apikey.Digest
	server    *httptest.Server
	key       string
}

var member = live.Member{Workspace: home, User: "usr_1"}

func newEntrance(t *testing.T, b *bench) *entrance {
	t.Helper()
	e := &entrance{bench: b, limits: live.NewLimits(), directory: live.NewDirectory()}
	key, digest, _ := apikey.New()
	e.key, e.digest = key.Reveal(), digest
	e.directory.PutKey(digest, live.Key{ID: "key_1", Workspace: home, User: member.User})
	e.directory.PutMember(member, tenant.Member)
	b.Meter = meter.New(e.limits)
	b.Bounds.Timeout.Store(int64(time.Minute))
	chat := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if err := b.ServeChat(w, r); err != nil {
			edge.Refuse(w, r, err)
		}
	})
	e.server = httptest.NewServer(edge.New(edge.Config{Directory: e.directory, Limits: e.limits, Bounds: b.Bounds, Log: b.Log}, chat))
	t.Cleanup(e.server.Close)
	return e
}

// post sends a chat request. The caller closes the body.
func (e *entrance) post(t *testing.T, body string) *http.Response {
	t.Helper()
	q, err := http.NewRequestWithContext(t.Context(), http.MethodPost, e.server.URL+"/v1/chat/completions", strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	q.Header.Set("Authorization", "Bearer "+e.key)
	response, err := e.server.Client().Do(q)
	if err != nil {
		t.Fatal(err)
	}
	return response
}

// status sends a chat request, and returns the status, the headers and the code of a refusal.
func (e *entrance) status(t *testing.T, body string) (int, http.Header, string) {
	t.Helper()
	response := e.post(t, body)
	defer func() { _ = response.Body.Close() }()
	text, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatal(err)
	}
	_, code, _ := strings.Cut(string(text), `"code":"`)
	code, _, _ = strings.Cut(code, `"`)
	return response.StatusCode, response.Header, code
}

func (e *entrance) wants(t *testing.T, what, body string, status int, code string) http.Header {
	t.Helper()
	got, header, gotCode := e.status(t, body)
	if got != status || gotCode != code {
		t.Errorf("%s: want %d %s, got %d %s", what, status, code, got, gotCode)
	}
	return header
}

func TestRequestsPerMinuteAreRefusedWithTheHeadersThatSDKsRead(t *testing.T) {
	b := newBench(t)
	b.answer = whole(good)
	e := newEntrance(t, b)
	if header := e.wants(t, "without limits", plainRequest, 200, ""); header.Get("x-ratelimit-limit-requests") != "" {
		t.Error(header)
	}
	e.limits.Put("key_1", &live.Limits{RequestsPerMinute: 2, TokensPerMinute: 10_000})
	for left := 1; left >= 0; left-- {
		header := e.wants(t, "within the limit", plainRequest, 200, "")
		if header.Get("x-ratelimit-limit-requests") != "2" || header.Get("x-ratelimit-remaining-requests") != strconv.Itoa(left) ||
			header.Get("x-ratelimit-limit-tokens") != "10000" || header.Get("x-ratelimit-reset-requests") == "" {
			t.Errorf("%v", header)
		}
	}
	header := e.wants(t, "one too many", plainRequest, 429, "rate_limit_exceeded")
	wait, err := strconv.Atoi(header.Get("Retry-After"))
	if err != nil || wait < 1 || wait > 61 || header.Get("x-ratelimit-remaining-requests") != "0" {
		t.Errorf("%v", header)
	}
	if len(b.sent) != 3 {
		t.Errorf("the provider was asked %d times", len(b.sent))
	}
	e.limits.Put("key_1", nil)
	e.wants(t, "after the limit was removed", plainRequest, 200, "")
}

func TestTokensPerMinuteCountWhatWasUsed(t *testing.T) {
	b := newBench(t)
	b.answer = whole(strings.Replace(good, `"prompt_tokens":10`, `"prompt_tokens":400`, 1))
	e := newEntrance(t, b)
	small := strings.Replace(plainRequest, "}]}", `}],"max_tokens":50}`, 1)
	e.limits.Put("ws_1", &live.Limits{TokensPerMinute: 500})
	if header := e.wants(t, "the first", small, 200, ""); header.Get("x-ratelimit-limit-tokens") != "500" {
		t.Error(header)
	}
	e.wants(t, "the second, of which 405 are used", strings.Replace(small, "50}", "90}", 1), 429, "rate_limit_exceeded")
	e.wants(t, "a smaller one", small, 200, "")
	e.wants(t, "what can never fit", strings.Replace(small, "50}", "501}", 1), 429, "rate_limit_exceeded")
}

// Without a maximum a request may answer at length: it waits for the whole limit, but it is not refused for ever.
func TestARequestWithoutAMaximumReservesAtMostTheWholeLimit(t *testing.T) {
	b := newBench(t)
	b.answer = whole(good)
	e := newEntrance(t, b)
	e.limits.Put("key_1", &live.Limits{TokensPerMinute: 100}) // the model may answer 1,000
	e.wants(t, "alone", plainRequest, 200, "")
	e.wants(t, "after 15 tokens", plainRequest, 429, "rate_limit_exceeded")
}

func TestConcurrencyAndBudgetsCountRunningRequests(t *testing.T) {
	b := newBench(t)
	begun, release := make(chan struct{}, 2), make(chan struct{})
	blocked := whole(good)
	e := newEntrance(t, b)
	b.answer = blocked
	e.wants(t, "to learn the hold", plainRequest, 200, "")
	b.answer = func(r *upstream.Request) (*upstream.Response, error) {
		begun <- struct{}{}
		<-release
		return blocked(r)
	}
	b.Meter.Begin("key_1", time.Now())
	e.limits.Put("key_1", &live.Limits{Concurrency: 1, BudgetPerDay: 5_000_000}) // about one hold of 1,000 tokens at $4
	var group sync.WaitGroup
	group.Go(func() { e.wants(t, "the one that runs", plainRequest, 200, "") })
	<-begun
	header := e.wants(t, "beside it", plainRequest, 429, "rate_limit_exceeded")
	if header.Get("Retry-After") != "1" {
		t.Error(header)
	}
	e.limits.Put("key_1", &live.Limits{BudgetPerDay: 5_000_000})
	e.wants(t, "beside it, over the budget", plainRequest, 402, "budget_exceeded")
	close(release)
	group.Wait()
	e.wants(t, "after it", plainRequest, 200, "")
}

func TestABudgetCountsTheCostAndNamesWhatWouldFit(t *testing.T) {
	b := newBench(t)
	b.answer = whole(good) // costs 10 × 1000 + 5 × 4000
	e := newEntrance(t, b)
	b.Meter.Add("ws_1", b.Meter.Begin("ws_1", time.Now()), meter.Spent{Day: 0, Month: 95_000_000})
	e.limits.Put("ws_1", &live.Limits{BudgetPerMonth: 100_000_000})
	small := strings.Replace(plainRequest, "}]}", `}],"max_tokens":10}`, 1)
	e.wants(t, "within it", small, 200, "")
	response := e.post(t, strings.Replace(plainRequest, "}]}", `}],"n":2}`, 1))
	text, _ := io.ReadAll(response.Body)
	_ = response.Body.Close()
	if response.StatusCode != http.StatusPaymentRequired || !strings.Contains(string(text), "the workspace's budget of $0.1 per month has $0.00497 left until") ||
		!strings.Contains(string(text), "with max_tokens of at most") || !strings.Contains(string(text), `"type":"insufficient_quota"`) {
		t.Errorf("%d %s", response.StatusCode, text)
	}
}

// Whoever leaves before the answer comes pays for it with the budget, also where the wallet does not pay.
func TestABudgetCountsTheCostOfAbandonedRequests(t *testing.T) {
	b := newBench(t)
	b.freeWait = 0
	b.funds.Allow(funds.Allowance{Least: credit})
	e := newEntrance(t, b)
	b.Meter.Begin("key_1", time.Now())
	e.limits.Put("key_1", &live.Limits{BudgetPerDay: credit})
	left := new(life.Life)
	b.answer = func(r *upstream.Request) (*upstream.Response, error) {
		left.End(context.Canceled)
		return whole(good)(r)
	}
	caller := tenant.Caller{Workspace: home, Key: "key_1"}
	pass, err := b.Meter.Enter(&caller, time.Now())
	if err != nil {
		t.Fatal(err)
	}
	defer pass.Leave()
	ask := &request.Request{Endpoint: request.Chat, Caller: caller, ID: "req_1", Body: []byte(plainRequest), Pass: pass}
	_ = b.Serve(left, ask, &httpWriter{httptest.NewRecorder()})
	if s := b.settled(); s.Outcome != string(outcome.Abandoned) || s.Charged != 0 || s.Cost == 0 || pass.Free(time.Now()) != credit-s.Cost {
		t.Errorf("%+v, $%s are left of the budget", s, pass.Free(time.Now()))
	}
}

// A provider that reports what cannot be takes the hold from the budget, and the estimate from the tokens.
func TestAnImplausibleUsageDoesNotEmptyALimit(t *testing.T) {
	b := newBench(t)
	b.answer = whole(strings.Replace(good, `"completion_tokens":5`, `"completion_tokens":100000000`, 1))
	e := newEntrance(t, b)
	b.Meter.Begin("key_1", time.Now())
	e.limits.Put("key_1", &live.Limits{BudgetPerDay: money.Dollar, TokensPerMinute: 10_000})
	small := strings.Replace(plainRequest, "}]}", `}],"max_tokens":10}`, 1)
	for range 5 {
		e.wants(t, "with a lying provider", small, 200, "")
	}
}

func TestModelsMustBeAllowed(t *testing.T) {
	b := newBench(t, model("m"), model("n"))
	b.answer = whole(good)
	b.Aliases.Put(home, &live.Alias{Name: "fast", Target: "m"})
	b.Aliases.Put(home, &live.Alias{Name: "slow", Target: "n"})
	b.Aliases.Put(home, &live.Alias{Name: "split", Target: "m", Canary: "n", CanaryPercent: 1})
	e := newEntrance(t, b)
	for _, c := range []struct {
		allowed live.ModelNames
		body    string
		status  int
	}{
		{nil, `"model":"n"`, 200},
		{live.ModelNames{"m"}, `"model":"m"`, 200},
		{live.ModelNames{"m"}, `"model":"n"`, 403},
		{live.ModelNames{"m"}, `"model":"fast"`, 200}, // it can only be m
		{live.ModelNames{"m"}, `"model":"slow"`, 403},
		{live.ModelNames{"m"}, `"model":"split"`, 403}, // it may be n
		{live.ModelNames{"slow"}, `"model":"slow"`, 200},
		{live.ModelNames{"slow"}, `"model":"n"`, 403},
		{live.ModelNames{"f*"}, `"model":"fast"`, 200},
		{live.ModelNames{"m"}, `"model":"m","models":["n"]`, 403},
		{live.ModelNames{"m", "n"}, `"model":"m","models":["n"]`, 200},
	} {
		code := ""
		if c.status == 403 {
			code = "model_not_allowed"
		}
		for _, id := range []string{"key_1", "ws_1"} {
			e.limits.Replace(map[string]*live.Limits{id: {Models: c.allowed, Concurrency: 5}})
			e.wants(t, id+" "+c.body, strings.Replace(plainRequest, `"model":"m"`, c.body, 1), c.status, code)
		}
	}
}

func TestAnExpiredKeyAndAForeignAddressAreRefused(t *testing.T) {
	b := newBench(t)
	b.answer = whole(good)
	e := newEntrance(t, b)
	e.limits.Put("key_1", &live.Limits{ExpiresAt: clock.Now().Add(time.Hour), Addresses: addresses("127.0.0.0/8", "::1/128")})
	e.wants(t, "in force", plainRequest, 200, "")
	e.limits.Put("key_1", &live.Limits{ExpiresAt: clock.Now()})
	e.wants(t, "expired", plainRequest, 401, "api_key_expired")
	e.limits.Put("key_1", &live.Limits{Addresses: addresses("10.0.0.0/8")})
	e.wants(t, "from elsewhere", plainRequest, 403, "address_not_allowed")
}

// A proxy's word counts only if the proxy is trusted.
func TestTheAddressBehindATrustedProxyCounts(t *testing.T) {
	b := newBench(t)
	b.answer = whole(good)
	e := newEntrance(t, b)
	e.limits.Put("key_1", &live.Limits{Addresses: addresses("10.0.0.0/8")})
	forwarded := func() int {
		q, _ := http.NewRequestWithContext(t.Context(), http.MethodPost, e.server.URL+"/v1/chat/completions", strings.NewReader(plainRequest))
		q.Header.Set("Authorization", "Bearer "+e.key)
		q.Header.Set("X-Forwarded-For", "10.1.2.3")
		response, err := e.server.Client().Do(q)
		if err != nil {
			t.Fatal(err)
		}
		_ = response.Body.Close()
		return response.StatusCode
	}
	if got := forwarded(); got != 403 {
		t.Errorf("a caller that claims to be a proxy: %d", got)
	}
	trusted := []netip.Prefix(addresses("127.0.0.0/8", "::1/128"))
	b.Bounds.Proxies.Store(&trusted)
	if got := forwarded(); got != 200 {
		t.Errorf("behind a trusted proxy: %d", got)
	}
}

// Whatever ends a key ends its running requests: streams with the error event, charged for what was delivered; requests
// that wait for a whole answer with a refusal, free of charge. Others go on.
func TestTheRunningRequestsOfARefusedKeyEnd(t *testing.T) {
	for name, c := range map[string]struct {
		end  func(*entrance)
		code string
	}{
		"revoked": {func(e *entrance) { e.directory.DropKey(e.digest) }, "invalid_api_key"},
		"removed": {func(e *entrance) { e.directory.DropMember(member) }, "invalid_api_key"},
		"expired": {func(e *entrance) { e.limits.Put("key_1", &live.Limits{ExpiresAt: clock.Now()}) }, "api_key_expired"},
	} {
		t.Run(name, func(t *testing.T) {
			asked := make(chan struct{}, 1)
			b := wired(t, func(w http.ResponseWriter, r *http.Request) {
				body, _ := io.ReadAll(r.Body)
				if strings.Contains(string(body), `"stream":true`) {
					w.Header().Set("Content-Type", "text/event-stream")
					_, _ = io.WriteString(w, providerStream[:endOf(providerStream, "one ")])
					_ = http.NewResponseController(w).Flush()
				}
				asked <- struct{}{}
				<-r.Context().Done()
			})
			e := newEntrance(t, b)
			other, digest, _ := apikey.New()
			e.directory.PutKey(digest, live.Key{ID: "key_2", Workspace: home, User: "usr_2"})
			e.directory.PutMember(live.Member{Workspace: home, User: "usr_2"}, tenant.Member)

			stream := e.post(t, streamRequest)
			defer func() { _ = stream.Body.Close() }()
			<-asked
			events := bufio.NewReader(stream.Body)
			if line, err := events.ReadString('\n'); err != nil || !strings.HasPrefix(line, "data: ") {
				t.Fatal(line, err)
			}
			own := e.key
			e.key = other.Reveal()
			goesOn := e.post(t, streamRequest)
			defer func() { _ = goesOn.Body.Close() }()
			<-asked
			e.key = own
			waited := make(chan string)
			go func() {
				status, _, code := e.status(t, plainRequest)
				waited <- strconv.Itoa(status) + " " + code
			}()
			<-asked

			c.end(e)
			b.EndDenied()
			rest, err := io.ReadAll(events)
			if err != nil || !strings.Contains(string(rest), `"code":"`+c.code+`"`) || strings.Contains(string(rest), "[DONE]") {
				t.Errorf("the stream ends with %q %v", rest, err)
			}
			if got := <-waited; got != "401 "+c.code {
				t.Errorf("the waiting request got %s", got)
			}
			if e := b.settled(); e.Outcome != string(outcome.Died) || e.Charged == 0 || e.Key != "key_1" {
				t.Errorf("%+v", e)
			}
			if n := b.Running(); n != 1 {
				t.Errorf("%d requests run, of one whose key is in force", n)
			}
			b.Abort()
			_, _ = io.Copy(io.Discard, goesOn.Body)
			if b.funds.Balance(home).Held != money.Nano(0) {
				t.Error("something is still held")
			}
		})
	}
}

// A request whose key is revoked after it was accepted, and before it is among the running ones, ends too.
func TestAKeyThatIsRevokedBeforeItsRequestRunsEndsIt(t *testing.T) {
	b := wired(t, func(_ http.ResponseWriter, r *http.Request) {
		_, _ = io.ReadAll(r.Body)
		<-r.Context().Done()
	})
	e := newEntrance(t, b)
	body, send := io.Pipe()
	q, _ := http.NewRequestWithContext(t.Context(), http.MethodPost, e.server.URL+"/v1/chat/completions", body)
	q.Header.Set("Authorization", "Bearer "+e.key)
	go func() {
		_, _ = io.WriteString(send, plainRequest[:10])
		for b.Bounds.Buffered.Used() == 0 { // the key was accepted, and the body is read
			time.Sleep(time.Millisecond)
		}
		e.directory.DropKey(e.digest)
		b.EndDenied()
		_, _ = io.WriteString(send, plainRequest[10:])
		_ = send.Close()
	}()
	response, err := e.server.Client().Do(q)
	if err != nil {
		t.Fatal(err)
	}
	if _ = response.Body.Close(); response.StatusCode != http.StatusUnauthorized {
		t.Errorf("%d", response.StatusCode)
	}
}
