package http1

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"net/url"
	"sync"
	"sync/atomic"
	"time"

	"sovereign/internal/net/socket"
)

// A serverConn is a connection of a Server. Its goroutine serves one request after the other.
type serverConn struct {
	server     *Server
	conn       net.Conn
	base       context.Context //nolint:containedctx // for the values of the requests' contexts
	remoteAddr string
	socket     *socket.Socket // nil if the connection has none

	buffer     []byte
	start, end int // buffer[start:end] is unread

	// The previous head, since the requests of a connection repeat most of it.
	lastHead   []byte // its bytes, with the empty line
	lastTarget *url.URL
	lines      []line
	changed    []int // indexes of the lines whose value differs from the previous head's, when all names are the same
	head       requestHead

	// idleDeadlineSet is when the deadline was last set to IdleTimeout. It is longAgo when another deadline is set, and
	// zero before the first request.
	idleDeadlineSet time.Time
	request         *handlerRequest
	response        responseWriter
	state           atomic.Int32

	// What follows is shared with the background read.
	mutex          sync.Mutex
	timer          *time.Timer
	timerSet       bool            // the timer is running
	watched        *handlerRequest // the request under way, once its body was read
	requestNumber  int             // of watched
	timerNumber    int             // the requestNumber when the timer was last set
	backgroundDone chan struct{}   // closed when the background read has ended; nil if there is none
	pipelined      []byte          // what the background read has read: the beginning of the next request
}

func newServerConn(s *Server, conn net.Conn) *serverConn {
	sc := &serverConn{
		server: s, conn: conn, base: context.Background(), remoteAddr: conn.RemoteAddr().String(),
		socket: socket.Of(conn), buffer: make([]byte, maxRequestHead),
	}
	if s.ConnContext != nil {
		sc.base = s.ConnContext(conn)
	}
	sc.response.conn = sc
	return sc
}

// run serves the connection until it ends, or hands it off: then it returns true.
func (sc *serverConn) run() (handedOff bool) {
	sc.server.track(sc)
	defer sc.server.untrack(sc)
	if sc.serveAll() {
		sc.handOff()
		return true
	}
	if sc.request != nil && sc.request.body.remaining > 0 {
		sc.linger()
	}
	return false
}

// serveAll serves requests until the connection ends, or brings one for the fallback server: then it returns true.
func (sc *serverConn) serveAll() (foreign bool) {
	for sc.setIdle() {
		target, result := sc.readHead()
		if result != headPlain {
			return result == headForeign
		}
		if !sc.setActive() || !sc.serve(target) {
			break
		}
	}
	return false
}

// handOff passes the connection to the fallback server, without a deadline.
func (sc *serverConn) handOff() {
	sc.server.untrack(sc)
	_ = sc.conn.SetReadDeadline(time.Time{})
	sc.server.Fallback(newStrictConn(sc.conn, bytes.Clone(sc.buffer[sc.start:sc.end])))
}

// A headResult says what readHead has found.
type headResult int

const (
	headPlain   headResult = iota // a request to serve here
	headForeign                   // something for the fallback server
	headClosed                    // the end of the connection, or its deadline
)

// readHead reads up to the body of the next request.
func (sc *serverConn) readHead() (target *url.URL, result headResult) {
	sc.start, sc.end = 0, copy(sc.buffer, sc.buffer[sc.start:sc.end])
	if !sc.idleDeadlineSet.IsZero() && !sc.awaitRequest() {
		return nil, headClosed
	}
	headDeadlineSet := false
	for searched := 0; ; {
		unread := sc.buffer[:sc.end]
		if len(sc.lastHead) > 0 && bytes.HasPrefix(unread, sc.lastHead) && sc.repeatHead() {
			sc.start = len(sc.lastHead)
			return sc.lastTarget, headPlain
		}
		if end := bytes.Index(unread[searched:], []byte("\r\n\r\n")); end >= 0 {
			head := unread[:searched+end+2]
			target, ok := sc.parseHead(head)
			if !ok {
				return nil, headForeign
			}
			sc.start = len(head) + len("\r\n")
			sc.lastHead, sc.lastTarget = append(sc.lastHead[:0], unread[:sc.start]...), target
			return target, headPlain
		}
		if sc.end > 0 && !sc.mayBecomePlain(unread) || sc.end == len(sc.buffer) {
			return nil, headForeign
		}
		searched = max(0, sc.end-3)
		if !headDeadlineSet {
			headDeadlineSet, sc.idleDeadlineSet = true, longAgo
			_ = sc.conn.SetReadDeadline(time.Now().Add(sc.server.HeaderTimeout))
		}
		n, err := sc.read(sc.buffer[sc.end:])
		if sc.end += n; n == 0 && err != nil {
			if sc.end > 0 && errors.Is(err, io.EOF) {
				return nil, headForeign // the fallback server answers half a request as it should
			}
			return nil, headClosed
		}
	}
}

// awaitRequest waits for the first bytes of the next request. It skips one CR LF, which some clients send after a body.
// To save system calls, a deadline that was set within the last second is left as it is.
func (sc *serverConn) awaitRequest() bool {
	const few = 4 // bytes, which every request has
	emptyLine := []byte("\r\n")
	for sc.end < few && bytes.IndexByte(bytes.TrimPrefix(sc.buffer[:sc.end], emptyLine), '\n') < 0 {
		if now := time.Now(); now.Sub(sc.idleDeadlineSet) > time.Second {
			sc.idleDeadlineSet = now
			_ = sc.conn.SetReadDeadline(now.Add(sc.server.IdleTimeout))
		}
		n, err := sc.read(sc.buffer[sc.end:])
		if sc.end += n; n == 0 && err != nil {
			return false
		}
	}
	if rest, found := bytes.CutPrefix(sc.buffer[:sc.end], emptyLine); found {
		sc.end = copy(sc.buffer, rest)
	}
	return true
}

func (sc *serverConn) read(p []byte) (int, error) {
	if sc.socket == nil {
		return sc.conn.Read(p)
	}
	return sc.socket.Read(p)
}
