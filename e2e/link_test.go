package e2e

import (
	"errors"
	"io"
	"net"
	"sync"
	"testing"
)

// A link carries the connections of one server to its database. It can be cut, as by a firewall that resets them, and
// stalled, as by a cable that is pulled: bytes stand still, and no side is told.
type link struct {
	listener net.Listener
	to       string

	mu     sync.Mutex
	isCut  bool
	stalls [2]chan struct{} // by direction; nil while bytes flow, and closed when they flow again
	conns  map[net.Conn]struct{}
}

// The directions of a link.
const (
	requests = iota // to the database
	answers
)

// newLink opens a link to an address, for the length of the test.
func newLink(t *testing.T, to string) *link {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	l := &link{listener: listener, to: to, conns: map[net.Conn]struct{}{}}
	t.Cleanup(func() {
		_ = listener.Close()
		l.cut()
		l.flow()
	})
	go func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			go l.carry(conn)
		}
	}()
	return l
}

func (l *link) address() string { return l.listener.Addr().String() }

// carry joins a connection with one to the database until either ends.
func (l *link) carry(near net.Conn) {
	defer func() { _ = near.Close() }()
	if !l.keep(near) {
		return
	}
	defer l.forget(near)
	far, err := net.Dial("tcp", l.to)
	if err != nil {
		return
	}
	defer func() { _ = far.Close() }()
	if !l.keep(far) {
		return
	}
	defer l.forget(far)
	var both sync.WaitGroup
	both.Go(func() { l.pump(far, near, requests) })
	both.Go(func() { l.pump(near, far, answers) })
	both.Wait()
}

// pump copies bytes, and holds those that it has while the direction is stalled.
func (l *link) pump(to, from net.Conn, direction int) {
	defer func() { _, _ = to.Close(), from.Close() }()
	buffer := make([]byte, 32<<10)
	for {
		n, err := from.Read(buffer)
		if stalled := l.stalled(direction); stalled != nil {
			<-stalled
		}
		if n > 0 {
			if _, err := to.Write(buffer[:n]); err != nil {
				return
			}
		}
		if errors.Is(err, io.EOF) || err != nil {
			return
		}
	}
}

func (l *link) stalled(direction int) chan struct{} {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.stalls[direction]
}

// keep registers a connection. It is false while the link is cut.
func (l *link) keep(conn net.Conn) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.isCut {
		l.conns[conn] = struct{}{}
	}
	return !l.isCut
}

func (l *link) forget(conn net.Conn) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.conns, conn)
}

// cut closes every connection, and every new one at once, until the link is mended.
func (l *link) cut() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.isCut = true
	l.drop()
}

func (l *link) drop() {
	for conn := range l.conns {
		_ = conn.Close()
	}
	clear(l.conns)
}

// stall lets bytes stand still in the directions, on open connections and on new ones, until they flow.
func (l *link) stall(directions ...int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, direction := range directions {
		if l.stalls[direction] == nil {
			l.stalls[direction] = make(chan struct{})
		}
	}
}

// flow delivers what was held, late. After lose it delivers nothing.
func (l *link) flow() {
	l.mu.Lock()
	defer l.mu.Unlock()
	for direction, stalled := range l.stalls {
		if stalled != nil {
			close(stalled)
			l.stalls[direction] = nil
		}
	}
}

// lose closes the connections that are open, and what is held on them never arrives.
func (l *link) lose() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.drop()
}

// mend undoes everything.
func (l *link) mend() {
	l.mu.Lock()
	l.isCut = false
	l.mu.Unlock()
	l.flow()
}
