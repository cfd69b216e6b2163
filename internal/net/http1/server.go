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
)

// A Server answers the plainest requests on a connection itself, and hands the connection on when it meets another, with everything
// that it has read: what is plain is decided by what it takes, never by what it refuses. It hands its handler what net/http's
// server would, and answers in fewer steps. The request's header is the handler's until it returns: then the next may
// have it, if nobody has changed it.
//
// It takes a POST of HTTP/1.1 to one of its targets, with a body of known length and a short head in which no name comes twice and nothing
// asks for something special.
type Server struct {
	Handler     http.Handler
	Targets     []string                       // the paths that it takes
	ConnContext func(net.Conn) context.Context // what a connection's requests know; nil for nothing
	Fallback    func(net.Conn)                 // takes a connection over; its bytes can be read again
	Log         *slog.Logger                   // for handlers that panic

	HeaderTimeout time.Duration // for the first request's head, and the rest of another's
	BodyTimeout   time.Duration // for a whole request
	IdleTimeout   time.Duration // between two

	urls    map[string]*url.URL
	mutex   sync.Mutex
	conns   map[*serverConn]struct{}
	closing atomic.Bool
}

// Serve takes a listener's connections until it fails or is closed.
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
	for pause := time.Duration(0); ; {
		conn, err := l.Accept()
		if err != nil {
			var temporary interface{ Temporary() bool }
			if !errors.As(err, &temporary) || !temporary.Temporary() || errors.Is(err, net.ErrClosed) {
				return err
			}
			pause = min(max(2*pause, 5*time.Millisecond), time.Second) // out of files, most likely
			time.Sleep(pause)
			continue
		}
		pause = 0
		go newServerConn(s, conn).run()
	}
}

// A state is what a connection does. Only one that waits is closed before its time.
type state = int32

const (
	waits state = iota
	serves
	closed
)

// welcome counts a connection.
func (s *Server) track(v *serverConn) {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	s.conns[v] = struct{}{}
}

// wait says that a connection waits for a request. It is false when the server is closing: then it should go.
func (v *serverConn) setIdle() bool {
	v.state.Store(waits)
	return !v.server.closing.Load()
}

// begin says that a request has come. It is false when its connection was closed a moment before.
func (v *serverConn) setActive() bool { return v.state.CompareAndSwap(waits, serves) }

func (s *Server) forget(v *serverConn) {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	delete(s.conns, v)
}

// Shutdown closes connections as they have nothing to do, and returns when there is none, or with ctx's error when that ends
// before. The listener is its owner's to close.
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

// Close closes every connection at once.
func (s *Server) Close() error {
	s.closeConns(true)
	return nil
}

// end closes connections that wait, or all, and returns how many there are.
func (s *Server) closeConns(all bool) int {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	s.closing.Store(true)
	for v := range s.conns {
		if v.state.CompareAndSwap(waits, closed) || all {
			_ = v.conn.Close()
			delete(s.conns, v)
		}
	}
	return len(s.conns)
}

// handed is a connection of which some bytes were read already.
type replayConn struct {
	net.Conn
	pending []byte
}

func (h *replayConn) Read(p []byte) (int, error) {
	if len(h.pending) == 0 {
		return h.Conn.Read(p)
	}
	n := copy(p, h.pending)
	h.pending = h.pending[n:]
	return n, nil
}

// NetConn is the connection underneath.
func (h *replayConn) NetConn() net.Conn { return h.Conn }

// CloseWrite lets net/http end a connection without cutting off its last answer.
func (h *replayConn) CloseWrite() error {
	if inner, ok := h.Conn.(interface{ CloseWrite() error }); ok {
		return inner.CloseWrite()
	}
	return nil
}

// A Handover is a listener of connections that are handed over, for the server that takes them.
type Handover struct {
	at    net.Addr
	conns chan net.Conn
	done  chan struct{}
	once  sync.Once
}

// NewHandover is a listener whose connections come from an address.
func NewHandover(at net.Addr) *Handover {
	return &Handover{at: at, conns: make(chan net.Conn), done: make(chan struct{})}
}

// Hand gives a connection to whoever accepts next; after Close it is closed.
func (h *Handover) Deliver(conn net.Conn) {
	select {
	case h.conns <- conn:
	case <-h.done:
		_ = conn.Close()
	}
}

// Accept implements net.Listener.
func (h *Handover) Accept() (net.Conn, error) {
	select {
	case conn := <-h.conns:
		return conn, nil
	case <-h.done:
		return nil, net.ErrClosed
	}
}

// Close implements net.Listener.
func (h *Handover) Close() error {
	h.once.Do(func() { close(h.done) })
	return nil
}

// Addr implements net.Listener.
func (h *Handover) Addr() net.Addr { return h.at }
