package http1

import (
	"context"
	"errors"
	"io"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
)

func TestTheEndOfTheContextEndsTheExchangeInEveryPhase(t *testing.T) {
	const lengthy = "HTTP/1.1 200 OK\r\nContent-Length: 100000\r\n\r\nhello"
	a := newAuthority(t)
	large := post(strings.Repeat("x", 32<<20))
	for name, test := range map[string]struct {
		sends string // what the server sends before it stops
		large bool   // a request that the server does not read
	}{
		"while the request is written":      {large: true},
		"before the head":                   {},
		"in the first line":                 {sends: "HTTP/1.1 20"},
		"in the middle of the head":         {sends: "HTTP/1.1 200 OK\r\nContent-Len"},
		"after an interim answer":           {sends: "HTTP/1.1 100 Continue\r\n\r\n"},
		"before the body":                   {sends: "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n"},
		"in a body of known length":         {sends: lengthy},
		"in a body until the end":           {sends: "HTTP/1.1 200 OK\r\n\r\nhello"},
		"in a chunk":                        {sends: chunked + "8\r\nhello"},
		"between chunks":                    {sends: chunked + "5\r\nhello\r\n"},
		"in the middle of a chunk's end":    {sends: chunked + "5\r\nhello\r"},
		"in the line of a chunk":            {sends: chunked + "5\r\nhello\r\n5;x"},
		"before the trailers":               {sends: chunked + "5\r\nhello\r\n0\r\n"},
		"in the middle of the trailers":     {sends: chunked + "0\r\nExpires: ne"},
		"between the trailers and the end ": {sends: chunked + "0\r\nExpires: never\r\n\r"},
	} {
		for _, secure := range []bool{false, true} {
			for how, reads := range map[string][]byte{"Next": {0}, "Read": {9}, "large Read": {255}} {
				t.Run(name+" "+how+" "+strconv.FormatBool(secure), func(t *testing.T) {
					reached, closed, returned := make(chan bool), make(chan bool), make(chan bool)
					handle := func(oc *originConn) {
						defer close(closed)
						if test.large {
							_, _ = oc.Peek(1)
							close(reached)
							<-returned
						} else {
							_, _ = oc.readRequest()
							_, _ = io.WriteString(oc.Conn, test.sends)
							close(reached)
						}
						_, _ = io.Copy(io.Discard, oc)
					}
					config := a.serverConfig(t)
					if !secure {
						config = nil
					}
					c := newClient(t, newOrigin(t, config, handle).url, a.trust)
					ctx, cancel := context.WithCancel(context.Background())
					go func() { <-reached; cancel() }()
					r := getRoot()
					if test.large {
						r = large
					}
					response, err := c.Do(ctx, r)
					if err == nil {
						_, err = drain(response.Body, reads)
						defer func() { _ = response.Body.Close() }()
						if _, again := response.Body.Next(); !errors.Is(again, context.Canceled) {
							t.Errorf("then %v", again)
						}
						_ = response.Body.Close()
					}
					if !errors.Is(err, context.Canceled) {
						t.Error(err)
					}
					if idleConns(c) > 0 {
						t.Error("the connection is reused")
					}
					close(returned)
					<-closed
				})
			}
		}
	}
}

func TestTheEndOfTheContextEndsADial(t *testing.T) {
	ctx, cancel := context.WithCancel(context.Background())
	dialing := make(chan bool)
	c := newClient(t, "http://127.0.0.1:9")
	c.dialer.ControlContext = func(ctx context.Context, _, _ string, _ syscall.RawConn) error {
		close(dialing)
		<-ctx.Done()
		return ctx.Err()
	}
	go func() { <-dialing; cancel() }()
	if _, err := c.Do(ctx, getRoot()); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
}

func TestTheEndOfTheContextEndsAHandshake(t *testing.T) {
	reached, closed := make(chan bool), make(chan bool)
	s := newOrigin(t, nil, func(oc *originConn) {
		defer close(closed)
		_, _ = oc.Peek(1)
		close(reached)
		_, _ = io.Copy(io.Discard, oc)
	})
	ctx, cancel := context.WithCancel(context.Background())
	go func() { <-reached; cancel() }()
	c := newClient(t, strings.Replace(s.url, "http:", "https:", 1))
	if _, err := c.Do(ctx, getRoot()); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	<-closed
}

func TestNothingIsSentAfterTheEndOfTheContext(t *testing.T) {
	var requests atomic.Int32
	s := newOrigin(t, nil, func(oc *originConn) {
		for body, ok := oc.readRequest(); ok; body, ok = oc.readRequest() {
			requests.Add(1)
			oc.respond(body)
		}
	})
	c := newClient(t, s.url)
	if _, err := roundTrip(context.Background(), c, getRoot()); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if _, err := c.Do(ctx, getRoot()); !errors.Is(err, context.Canceled) || idleConns(c) != 1 {
		t.Errorf("%v, and %d idle", err, idleConns(c))
	}
	if _, err := roundTrip(context.Background(), c, getRoot()); err != nil || requests.Load() != 2 || s.accepted.Load() != 1 {
		t.Errorf("%v, %d requests, %d connections", err, requests.Load(), s.accepted.Load())
	}
}

// A context may end at any moment after its exchange, also during the next exchange on the same connection.
func TestAContextThatEndsAfterItsExchangeDoesNotAffectOthers(t *testing.T) {
	s := newOrigin(t, nil, echo)
	c := newClient(t, s.url)
	var all sync.WaitGroup
	for worker := range 8 {
		all.Go(func() {
			for i := range 1250 {
				ctx, cancel := context.WithCancel(context.Background())
				want := strconv.Itoa(worker*10_000 + i)
				response, err := c.Do(ctx, post(want))
				if err != nil {
					t.Error(err)
					cancel()
					return
				}
				got, err := drain(response.Body, []byte{byte(i % 3)})
				_ = response.Body.Close()
				if i%2 == 0 {
					cancel()
				} else {
					all.Go(cancel)
				}
				if string(got) != want || err != nil {
					t.Errorf("%q instead of %q: %v", got, want, err)
					return
				}
			}
		})
	}
	all.Wait()
	if s.accepted.Load() > 8 {
		t.Errorf("%d connections for 8 at a time", s.accepted.Load())
	}
}

// A context that ends while its exchange ends fails that exchange at most.
func TestAContextThatEndsDuringItsExchangeDoesNotAffectOthers(t *testing.T) {
	c := newClient(t, newOrigin(t, nil, echo).url)
	var all sync.WaitGroup
	for worker := range 4 {
		all.Go(func() {
			for i := range 500 {
				ctx, cancel := context.WithCancel(context.Background())
				all.Go(cancel)
				want := strconv.Itoa(worker*10_000 + i)
				if got, err := roundTrip(ctx, c, post(want)); got != want && !errors.Is(err, context.Canceled) {
					t.Errorf("%q instead of %q: %v", got, want, err)
				}
				if got, err := roundTrip(context.Background(), c, post(want)); got != want || err != nil {
					t.Errorf("the next: %q instead of %q: %v", got, want, err)
				}
			}
		})
	}
	all.Wait()
}

// The callback of a context that has ended may still abort the connection, so that no other exchange may use it.
func TestAConnectionWhoseContextHasEndedIsNotReused(t *testing.T) {
	c := newClient(t, "http://origin.test")
	for _, answer := range []string{"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello", chunked + "5\r\nhello\r\n0\r\n\r\n"} {
		ctx, cancel := context.WithCancel(context.Background())
		conn := &fakeConn{wire: []byte(answer)}
		response, err := c.exchange(ctx, newFakeClientConn(conn, initialBuffer), getRoot())
		if err != nil {
			t.Fatal(err)
		}
		if text, err := drain(response.Body, nil); string(text) != "hello" || err != nil {
			t.Fatal(string(text), err)
		}
		cancel()
		_ = response.Body.Close()
		if idleConns(c) > 0 || !conn.closed.Load() {
			t.Errorf("%q: the connection is reused", answer)
		}
	}
}

// A closed body does not touch its former connection, which another exchange may use.
func TestAClosedBodyDoesNotTouchItsConnection(t *testing.T) {
	s := newOrigin(t, nil, echo)
	c := newClient(t, s.url)
	for name, whole := range map[string]bool{"read to its end": true, "left": false} {
		ctx, cancel := context.WithCancel(context.Background())
		first, err := c.Do(ctx, post("first"))
		if err != nil {
			t.Fatal(err)
		}
		if whole {
			_, _ = drain(first.Body, nil)
		}
		_ = first.Body.Close()
		second, err := c.Do(context.Background(), post("second"))
		if err != nil {
			t.Fatal(err)
		}
		cancel()
		for _, size := range []int{1, maxBuffer} {
			if n, err := first.Body.Read(make([]byte, size)); n != 0 || err == nil {
				t.Errorf("%s: %d %v", name, n, err)
			}
		}
		if piece, err := first.Body.Next(); len(piece) > 0 || err == nil {
			t.Errorf("%s: %q %v", name, piece, err)
		}
		_ = first.Body.Close()
		if text, err := drain(second.Body, nil); string(text) != "second" || err != nil {
			t.Errorf("%s: the second: %q %v", name, text, err)
		}
		_ = second.Body.Close()
	}
}

// A countingContext counts the callbacks that are registered.
type countingContext struct {
	context.Context
	waiting atomic.Int32
}

func (w *countingContext) AfterFunc(f func()) func() bool {
	w.waiting.Add(1)
	stop := context.AfterFunc(w.Context, f)
	return func() bool {
		w.waiting.Add(-1)
		return stop()
	}
}

// A context may outlive many exchanges. None leaves its callback behind, however it ended.
func TestAnExchangeRemovesItsCallbackFromTheContext(t *testing.T) {
	ctx := &countingContext{Context: t.Context()}
	c := newClient(t, "http://origin.test")
	for _, answer := range responseSeeds {
		response, err := c.exchange(ctx, newFakeClientConn(&fakeConn{wire: []byte(answer)}, initialBuffer), getRoot())
		if err == nil {
			if ctx.waiting.Load() != 1 {
				t.Fatalf("%q: no callback is registered", answer)
			}
			_, _ = drain(response.Body, nil)
			_ = response.Body.Close()
			_ = response.Body.Close()
		}
		if ctx.waiting.Load() != 0 {
			t.Fatalf("%q: %d callbacks are left", answer, ctx.waiting.Load())
		}
	}
}
