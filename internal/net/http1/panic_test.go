package http1

import (
	"context"
	"io"
	"net"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"sovereign/internal/base/panics"
	"sovereign/internal/net/life"
)

// serveLane serves a handler on the fast lane alone, and returns its address.
func serveLane(t *testing.T, s *Server) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s.Targets, s.HeaderTimeout, s.BodyTimeout, s.IdleTimeout = testTargets, time.Minute, time.Minute, time.Minute
	go func() { _ = s.Serve(l) }()
	t.Cleanup(func() { _, _ = l.Close(), s.Close() })
	return l.Addr().String()
}

func dialLane(t *testing.T, address string) net.Conn {
	t.Helper()
	conn, err := net.Dial("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	_ = conn.SetDeadline(time.Now().Add(5 * time.Minute))
	return conn
}

// A panic in the lane itself, and not in the handler, closes that connection alone.
func TestAPanicOfTheLaneClosesItsConnectionAlone(t *testing.T) {
	var conns atomic.Int32
	before := panics.Count()
	address := serveLane(t, &Server{
		Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "ok") }),
		ConnContext: func(net.Conn) context.Context {
			if conns.Add(1) == 1 {
				panic("a poisonous connection")
			}
			return context.Background()
		},
		Fallback: func(net.Conn) { panic("a poisonous handover") },
	})
	for _, wire := range []string{plainPost(`{}`), getRequest} {
		conn := dialLane(t, address)
		write(t, conn, wire)
		if answer, _ := io.ReadAll(conn); len(answer) > 0 {
			t.Errorf("%.4s: %s", wire, answer)
		}
	}
	conn := dialLane(t, address)
	write(t, conn, plainPost(`{}`, "Connection: close"))
	if answer, err := io.ReadAll(conn); err != nil || !strings.HasPrefix(string(answer), "HTTP/1.1 200 ") {
		t.Errorf("%s, %v", answer, err)
	}
	if n := panics.Count() - before; n != 2 {
		t.Errorf("%d panics were counted", n)
	}
}

// What runs when a caller has left runs on a goroutine of the lane. A panic of it does not end the process, and the
// handler goes on.
func TestAPanicWhenTheCallerLeavesIsContained(t *testing.T) {
	ended := make(chan error, 1)
	before := panics.Count()
	address := serveLane(t, &Server{
		Fallback: func(conn net.Conn) { _ = conn.Close() },
		Handler: http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
			_, _ = io.Copy(io.Discard, r.Body)
			life.AfterFunc(r.Context(), func() { panic("a poisonous callback") })
			<-r.Context().Done()
			ended <- r.Context().Err()
		}),
	})
	conn := dialLane(t, address)
	write(t, conn, plainPost(`{}`))
	_ = conn.Close()
	select {
	case <-ended:
	case <-time.After(5 * time.Minute):
		t.Fatal("the handler does not hear that its caller has left")
	}
	for end := time.Now().Add(5 * time.Minute); panics.Count() == before && time.Now().Before(end); {
		time.Sleep(time.Millisecond)
	}
	if panics.Count() == before {
		t.Error("the panic was not counted")
	}
}
