package http1

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"sync"
	"sync/atomic"
	"time"

	"sovereign/internal/base/panics"
)

// A Server is a fast path in front of net/http's server. It answers plain requests itself. When a connection brings any
// other request, it passes the connection to Fallback, with everything it has read. It decides by a list of what it
// accepts, never by a list of what it refuses. What Fallback reads is checked strictly: see strictConn.
//
// It accepts a POST of HTTP/1.1 to one of its Targets, with a Content-Length and a short head in which no field is
// repeated and none asks for a special treatment, such as Expect or Upgrade. Handlers and callers see what they would
// see with net/http's server, with these exceptions. The request's Header may be used for the connection's next request
// once the handler has returned, if the handler did not change it. Interim (1xx) responses of a handler are not sent.
// The request's context ends up to 200 ms after the caller has disconnected, and has the values of ConnContext, not its
// end.
type Server struct {
	Handler     http.Handler
	Targets     []string                       // the paths that are served here
	ConnContext func(net.Conn) context.Context // for the values of the requests' contexts; nil for none
	Fallback    func(net.Conn)                 // takes over a connection
	Log         *slog.Logger                   // for panics of the handler; nil for no log

	HeaderTimeout time.Duration // for the first request's head, and for the rest of a later one that has begun
	BodyTimeout   time.Duration // for the body of a request
	BodyRate      int64         // bytes per second at which a body must arrive: see package pace; 0 for any rate
	IdleTimeout   time.Duration // between two requests

	urls    map[string]*url.URL // by target
	mutex   sync.Mutex
	conns   map[*serverConn]struct{}
	closing atomic.Bool
}

// Serve serves the connections of a listener until Accept fails.
func (s *Server) Serve(l net.Listener) error {
	s.mutex.Lock()
	s.urls = map[string]*url.URL{}
	for _, target := range s.Targets {
		s.urls[target] = &url.URL{Path: target}
	}
	if s.conns == nil {
		s.conns = map[*serverConn]struct{}{}
	}
	s.mutex.Unlock()
	return acceptAll(l, func(conn net.Conn) { go s.serve(conn) })
}

// serve serves a connection, and closes it unless it was handed off. A panic closes it.
func (s *Server) serve(conn net.Conn) {
	handedOff := false
	err := panics.Call(s.Log, "the fast lane", func() error {
		handedOff = newServerConn(s, conn).run()
		return nil
	})
	if err != nil || !handedOff {
		_ = conn.Close()
	}
}

// acceptAll calls serve with every connection of a listener until Accept fails.
func acceptAll(l net.Listener, serve func(net.Conn)) error {
	for pause := time.Duration(0); ; {
		conn, err := l.Accept()
		if err != nil {
			var temporary interface{ Temporary() bool }
			if !errors.As(err, &temporary) || !temporary.Temporary() || errors.Is(err, net.ErrClosed) {
				return err
			}
			pause = min(max(2*pause, 5*time.Millisecond), time.Second) // out of file descriptors, most likely
			time.Sleep(pause)
			continue
		}
		pause = 0
		serve(conn)
	}
}

// The states of a serverConn. Shutdown closes idle ones only.
const (
	stateIdle   int32 = iota // waiting for a request, or reading its head
	stateActive              // serving a request
	stateClosed
)

// setIdle marks a connection as waiting for a request. It returns false if the server is shutting down: then the
// connection should be closed.
func (sc *serverConn) setIdle() bool {
	sc.state.Store(stateIdle)
	return !sc.server.closing.Load()
}

// setActive marks a connection as serving a request. It returns false if Shutdown has closed the connection just
// before.
func (sc *serverConn) setActive() bool { return sc.state.CompareAndSwap(stateIdle, stateActive) }

func (s *Server) track(sc *serverConn) {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	s.conns[sc] = struct{}{}
}

func (s *Server) untrack(sc *serverConn) {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	delete(s.conns, sc)
}

// Shutdown closes idle connections at once and the others after their response. It returns when none is left, or with
// the error of ctx. The caller closes the listener.
func (s *Server) Shutdown(ctx context.Context) error {
	for wait := time.Millisecond; ; wait = min(2*wait, 100*time.Millisecond) {
		if s.closeConns(false) == 0 {
			return nil
		}
		timer := time.NewTimer(wait)
		select {
		case <-ctx.Done():
			timer.Stop()
			return ctx.Err()
		case <-timer.C:
		}
	}
}

// Close closes all connections at once.
func (s *Server) Close() error {
	s.closeConns(true)
	return nil
}

// closeConns closes the idle connections, or all, and returns how many are left.
func (s *Server) closeConns(all bool) int {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	s.closing.Store(true)
	for sc := range s.conns {
		if sc.state.CompareAndSwap(stateIdle, stateClosed) || all {
			_ = sc.conn.Close()
			delete(s.conns, sc)
		}
	}
	return len(s.conns)
}
