package gateway

import (
	"context"
	"fmt"
	"io"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"sovereign/internal/base/outcome"
	"sovereign/internal/base/panics"
	"sovereign/internal/base/tenant"
	"sovereign/internal/plane/gateway/request"
)

// askPanicking serves a body, and returns the panic.
func (b *bench) askPanicking(body string, w Writer) (panicked any) {
	defer func() { panicked = recover() }()
	ask := &request.Request{Endpoint: request.Chat, Caller: tenant.Caller{Workspace: home, Key: "key_1"}, ID: "req_1", Body: []byte(body)}
	return b.Serve(context.Background(), ask, w)
}

// An answer of a provider that makes the gateway panic is charged what was delivered of it, and holds nothing after.
func TestARequestThatPanicsIsSettled(t *testing.T) {
	b := newBench(t)
	half := endOf(providerStream, "one ")
	b.answer = events(io.MultiReader(strings.NewReader(providerStream[:half]), readerFunc(func([]byte) (int, error) { panic("a poisonous answer") })))
	w := httptest.NewRecorder()
	if p := b.askPanicking(streamRequest, &httpWriter{w}); fmt.Sprint(p) != "a poisonous answer" {
		t.Fatalf("%v", p)
	}
	if left := b.Till.Collect(); left > 0 {
		t.Fatalf("%d are owed", left)
	}
	e := b.settled()
	if money := b.funds.Balance(home); e.Outcome != string(outcome.Broken) || e.Charged == 0 || money.Held != 0 || money.Spent != e.Charged {
		t.Errorf("%+v, %+v", e, money)
	}
	if b.Running() != 0 || !strings.Contains(w.Body.String(), "one ") {
		t.Errorf("%d are running; %s", b.Running(), w.Body)
	}
}

// pingPanics panics when a stream is kept alive.
type pingPanics struct{ *httpWriter }

func (w pingPanics) Send(p []byte) error {
	if strings.HasPrefix(string(p), ": ping") {
		panic("a poisonous ping")
	}
	return w.httpWriter.Send(p)
}

// A timer of the gateway that panics ends its stream alone, which is charged what it delivered.
func TestAPanicOfATimerEndsItsStreamAlone(t *testing.T) {
	b := newBench(t)
	b.pingInterval = time.Millisecond
	before := panics.Count()
	half := endOf(providerStream, "one ")
	b.answer = events(io.MultiReader(strings.NewReader(providerStream[:half]), readerFunc(func([]byte) (int, error) {
		for end := time.Now().Add(time.Minute); panics.Count() == before && time.Now().Before(end); {
			time.Sleep(time.Millisecond)
		}
		return 0, io.ErrUnexpectedEOF
	})))
	w := httptest.NewRecorder()
	if err := b.askPanicking(streamRequest, pingPanics{&httpWriter{w}}); err != nil {
		t.Fatalf("%v", err)
	}
	if e := b.settled(); e.Outcome != string(outcome.Died) || e.Charged == 0 || b.funds.Balance(home).Held != 0 {
		t.Errorf("%+v", e)
	}
	if n := panics.Count() - before; n != 1 {
		t.Errorf("%d panics", n)
	}
}
