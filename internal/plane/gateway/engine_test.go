package gateway

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"sovereign/internal/base/fault"
	"sovereign/internal/base/outcome"
	"sovereign/internal/base/secret"
	"sovereign/internal/base/tenant"
	"sovereign/internal/live"
	"sovereign/internal/net/breaker"
	"sovereign/internal/net/life"
	"sovereign/internal/plane/engines"
	"sovereign/internal/plane/gateway/request"
)

// An engine is an HTTP server that answers as an engine does.
type engine struct {
	*httptest.Server
	bodies chan string // that it was sent
}

func newEngine(t *testing.T) *engine {
	t.Helper()
	e := &engine{bodies: make(chan string, 2000)}
	e.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		e.bodies <- r.URL.Path + " " + string(body)
		if strings.Contains(string(body), `"stream":true`) {
			w.Header().Set("Content-Type", "text/event-stream")
			_, _ = io.WriteString(w, providerStream)
			return
		}
		_, _ = io.WriteString(w, good)
	}))
	t.Cleanup(e.Close)
	return e
}

func (e *engine) replica(id string) engines.Replica {
	return engines.Replica{ID: id, BaseURL: e.URL + "/v1"}
}

// An ownBench is a gateway for a workspace with a dedicated endpoint, and a trained model that costs as
// much as the model of the catalog. One group of engines serves both.
type ownBench struct {
	*bench
	group *engines.Group
	wakes atomic.Int64
}

const (
	dedicatedRequest = `{"model":"dedicated/d","messages":[{"role":"user","content":"hi"}]}`
	trainedRequest   = `{"model":"ft/t","messages":[{"role":"user","content":"hi"}]}`
)

func newOwnBench(t *testing.T, wait time.Duration) *ownBench {
	t.Helper()
	b := &ownBench{bench: newBench(t)}
	b.group = b.Engines.Open(engines.GroupConfig{Name: "g", Wait: wait, Wake: func() { b.wakes.Add(1) }})
	t.Cleanup(func() { b.Engines.Close("g") })
	own := func(m *live.Model) { m.Provider, m.Engines, m.Upstream = live.Engines, "g", "there" }
	b.Own.Put(home, model("dedicated/d", own, func(m *live.Model) { m.Price = live.Price{} }))
	b.Own.Put(home, model("ft/t", own))
	return b
}

func TestADedicatedEndpointAnswersAndCostsNothing(t *testing.T) {
	b, e := newOwnBench(t, 0), newEngine(t)
	b.group.Set([]engines.Replica{e.replica("r")})
	b.funds.Credit(home, 0) // the hour is paid for, and a request needs nothing
	for _, c := range []struct {
		endpoint         *request.Endpoint
		body, want, path string
	}{
		{request.Chat, dedicatedRequest, good, "/v1/chat/completions"},
		{request.Chat, strings.Replace(dedicatedRequest, `{`, `{"stream":true,`, 1), streamWithoutUsage, "/v1/chat/completions"},
		{request.Responses, `{"model":"dedicated/d","input":"hi"}`, "", "/v1/chat/completions"}, // bridged
	} {
		if err := b.checkFunds(b.t.Context(), home, ""); err != nil {
			t.Fatal(err)
		}
		w, err := b.askFrom(t.Context(), c.endpoint, c.body)
		if err != nil || w.Header().Get("X-Service-Served-Model") != "dedicated/d" || c.want != "" && w.Body.String() != c.want {
			t.Fatalf("%s: %v\n%s", c.body, err, w.Body)
		}
		if sent := <-e.bodies; !strings.HasPrefix(sent, c.path+" ") || !strings.Contains(sent, `"model":"there"`) {
			t.Errorf("%s was sent", sent)
		}
		if s := b.settled(); s.Charged != 0 || s.Usage.Output != 5 || s.Outcome != string(outcome.Finished) || s.Provider != live.Engines.Name {
			t.Errorf("%+v", s)
		}
	}
	if u := b.group.Use(); u.Outstanding != 0 || u.LastUsed == 0 {
		t.Errorf("%+v", u)
	}
}

func TestATrainedModelIsChargedLikeAnyModel(t *testing.T) {
	b, e := newOwnBench(t, 0), newEngine(t)
	b.group.Set([]engines.Replica{e.replica("r")})
	b.Keys.Put(home, live.Engines.Name, &live.OwnKey{Key: secret.New("k")}) // which is no provider's: it is not used
	if _, err := b.ask(trainedRequest); err != nil {
		t.Fatal(err)
	}
	if s := b.settled(); s.Charged != 10_000+20_000 || s.Model != "ft/t" || s.Own {
		t.Errorf("%+v", s)
	}
}

func TestAnotherWorkspacesModelIsNotFound(t *testing.T) {
	b := newOwnBench(t, 0)
	b.Own.Put("ws_2", model("dedicated/other"))
	for body, want := range map[string]fault.Kind{
		strings.Replace(dedicatedRequest, "/d", "/other", 1): fault.DedicatedNotFound,
		strings.Replace(dedicatedRequest, "/d", "/none", 1):  fault.DedicatedNotFound,
		strings.Replace(trainedRequest, "/t", "/none", 1):    fault.ModelNotFound,
	} {
		if _, err := b.ask(body); fault.From(err) == nil || fault.From(err).Kind != want {
			t.Errorf("%s: %v", body, err)
		}
	}
}

func TestRequestsWaitForAnEngineThatIsWokenOnce(t *testing.T) {
	b, e := newOwnBench(t, time.Hour), newEngine(t)
	var group sync.WaitGroup
	for range 8 {
		group.Go(func() {
			w := httptest.NewRecorder()
			ask := &request.Request{Endpoint: request.Chat, Caller: tenant.Caller{Workspace: home}, ID: "req", Body: []byte(dedicatedRequest)}
			if err := b.Serve(context.Background(), ask, &httpWriter{w}); err != nil || w.Body.String() != good {
				t.Errorf("%v %s", err, w.Body)
			}
		})
	}
	for b.group.Use().Waiting < 8 {
		runtime.Gosched()
	}
	b.group.Set([]engines.Replica{e.replica("r")})
	if group.Wait(); b.wakes.Load() != 1 || b.group.Use().Outstanding != 0 {
		t.Errorf("woken %d times, %+v", b.wakes.Load(), b.group.Use())
	}
}

// Neither the timeout of a try nor the circuit breaker has to do with the wait.
func TestAnEngineThatIsNotReadyInTimeIsRefusedWithATimeToTryAgain(t *testing.T) {
	b := newOwnBench(t, 200*time.Millisecond)
	b.Apply(Settings{TryTimeout: time.Millisecond, StallTimeout: time.Minute, RequestTimeout: time.Hour, Retries: 3})
	b.Breaker.Apply(breaker.Settings{Failures: 1, Pause: time.Hour, Longest: time.Hour})
	for range 2 {
		_, err := b.ask(dedicatedRequest)
		if f := fault.From(err); f == nil || f.Kind != fault.Unavailable || f.RetryAfter <= 0 || f.Final() {
			t.Errorf("%+v", f)
		}
	}
	if b.wakes.Load() != 2 || len(b.entries()) != 0 {
		t.Errorf("woken %d times, and charged %+v", b.wakes.Load(), b.entries())
	}
	b.group.Fail(errors.New("no GPU is free"))
	if _, err := b.ask(dedicatedRequest); fault.From(err).Kind != fault.Unavailable || !strings.Contains(err.Error(), "no GPU is free") {
		t.Error(err)
	}
}

// A whole answer that was awaited for a while is awaited to its end, because it costs. A wait for an engine costs
// nothing.
func TestACallerThatLeavesDoesNotWaitForAnEngine(t *testing.T) {
	b := newOwnBench(t, time.Hour)
	b.freeWait = 0
	caller, done := new(life.Life), make(chan error)
	go func() {
		_, err := b.askFrom(caller, request.Chat, trainedRequest)
		done <- err
	}()
	for b.group.Use().Waiting == 0 {
		runtime.Gosched()
	}
	caller.End(context.Canceled)
	if err := <-done; err == nil || b.group.Use().Waiting != 0 || len(b.entries()) != 0 {
		t.Errorf("%v, %+v, charged %+v", err, b.group.Use(), b.entries())
	}
}

// It is idle, and so it would be asked first every time.
func TestALostReplicaIsReplacedByAnother(t *testing.T) {
	b, lost, e := newOwnBench(t, 0), newEngine(t), newEngine(t)
	b.Apply(Settings{TryTimeout: time.Minute, StallTimeout: time.Minute, RequestTimeout: time.Hour, Retries: 1})
	b.group.Set([]engines.Replica{e.replica("r")})
	busy, err := b.group.Acquire(t.Context(), "there")
	if err != nil {
		t.Fatal(err)
	}
	defer busy.Release(false)
	b.group.Set([]engines.Replica{lost.replica("lost"), e.replica("r")})
	lost.Close()
	for range 4 {
		if _, err := b.ask(dedicatedRequest); err != nil {
			t.Fatal(err)
		}
	}
	if len(e.bodies) != 4 {
		t.Errorf("the other engine was asked %d times", len(e.bodies))
	}
}

func TestAnOwnModelHasACircuitPerWorkspace(t *testing.T) {
	b, lost, e := newOwnBench(t, 0), newEngine(t), newEngine(t)
	b.Breaker.Apply(breaker.Settings{Failures: 1, Pause: time.Nanosecond, Longest: time.Hour})
	lost.Close()
	b.group.Set([]engines.Replica{lost.replica("lost")})
	if _, err := b.ask(trainedRequest); err == nil {
		t.Fatal("a lost engine has answered")
	}
	if open := b.Breaker.Open(); len(open) != 1 || open[0] != "ft/t for ws_1" {
		t.Errorf("%q are open", open)
	}
	b.group.Set(nil)
	if _, err := b.ask(trainedRequest); err == nil || len(b.Breaker.Open()) != 1 { // the probe found no engine
		t.Errorf("%v, and %q are open", err, b.Breaker.Open())
	}
	b.Breaker.Apply(breaker.Settings{Failures: 1, Pause: time.Hour, Longest: time.Hour})
	b.group.Set([]engines.Replica{e.replica("r")})
	b.Own.Put("ws_2", model("ft/t", func(m *live.Model) { m.Provider, m.Engines = live.Engines, "g" }))
	b.funds.Credit("ws_2", credit)
	ask := &request.Request{Endpoint: request.Chat, Caller: tenant.Caller{Workspace: "ws_2"}, ID: "req", Body: []byte(trainedRequest)}
	if err := b.Serve(t.Context(), ask, &httpWriter{httptest.NewRecorder()}); err != nil {
		t.Errorf("the model of the same name of another workspace: %v", err)
	}
}

// Callers that wait hold memory, and nothing that others need: no goroutine beside their own, no connection, no CPU.
func TestAThousandWaitingCallersCostMemoryOnly(t *testing.T) {
	const callers = 1000
	b := newOwnBench(t, time.Hour)
	b.answer = whole(good)
	before, refused := runtime.NumGoroutine(), atomic.Int64{}
	var group sync.WaitGroup
	for range callers {
		group.Go(func() {
			ask := &request.Request{Endpoint: request.Chat, Caller: tenant.Caller{Workspace: home}, ID: "req", Body: []byte(dedicatedRequest)}
			if err := b.Serve(context.Background(), ask, &discard{header: http.Header{}}); fault.From(err) != nil && fault.From(err).Kind == fault.Unavailable {
				refused.Add(1)
			}
		})
	}
	for b.group.Use().Waiting < callers {
		runtime.Gosched()
	}
	if n := runtime.NumGoroutine() - before; n > callers+10 {
		t.Errorf("%d goroutines for %d callers", n, callers)
	}
	ask := &request.Request{Endpoint: request.Chat, Caller: tenant.Caller{Workspace: home}, ID: "other", Body: []byte(plainRequest)}
	if err := b.Serve(t.Context(), ask, &discard{header: http.Header{}}); err != nil {
		t.Errorf("another model, meanwhile: %v", err)
	}
	b.Engines.Close("g")
	if group.Wait(); refused.Load() != callers || b.wakes.Load() != 1 {
		t.Errorf("%d of %d refused, woken %d times", refused.Load(), callers, b.wakes.Load())
	}
}

func TestATrainedModelIsLoggedAndADedicatedEndpointNever(t *testing.T) {
	for id, rows := range map[string]int{"dedicated/d": 0, "ft/t": 1} {
		for _, cache := range []string{"off", "on"} {
			g := newGated(t)
			g.Own.Put(home, model(id))
			g.request.Body, g.request.Cache = []byte(strings.Replace(plainRequest, `"m"`, `"`+id+`"`, 1)), cache
			for range 2 {
				if err := g.serve(); err != nil {
					t.Fatal(err)
				}
			}
			if draws, logged := g.records(); len(draws) != 0 || logged != 2*rows {
				t.Errorf("%s, cache %s: %d rows, want %d", id, cache, logged, 2*rows)
			}
		}
	}
}

func TestACachedAnswerWakesNoEngine(t *testing.T) {
	b, e := newOwnBench(t, 0), newEngine(t)
	b.Workspaces.Put(home, live.Settings{Cache: true})
	b.group.Set([]engines.Replica{e.replica("r")})
	for range 2 {
		if w, err := b.ask(dedicatedRequest); err != nil || w.Body.String() != good {
			t.Fatalf("%v %s", err, w.Body)
		}
		b.group.Set(nil)
	}
	if b.wakes.Load() != 0 || len(e.bodies) != 1 {
		t.Errorf("woken %d times, asked %d times", b.wakes.Load(), len(e.bodies))
	}
}

// Workspaces name their own models, and metrics must not grow with what they name.
func TestMetricsCountOwnModelsByTheirPrefix(t *testing.T) {
	for id, want := range map[string]string{"dedicated/d": "dedicated", "ft/a": "ft", "ft/b": "ft", "p/m": "p/m"} {
		if got := modelLabel(model(id)); got != want {
			t.Errorf("%s is counted as %s, want %s", id, got, want)
		}
	}
}
