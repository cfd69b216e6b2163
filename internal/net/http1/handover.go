package http1

import (
	"net"
	"sync"
)

// A Handover is a listener whose connections come from Deliver. It connects Server.Fallback with the Serve of another
// server.
type Handover struct {
	addr  net.Addr
	conns chan net.Conn
	done  chan struct{}
	once  sync.Once
}

// NewHandover returns a listener with an address of its own to report.
func NewHandover(addr net.Addr) *Handover {
	return &Handover{addr: addr, conns: make(chan net.Conn), done: make(chan struct{})}
}

// Deliver blocks until Accept takes the connection. After Close, it closes the connection instead.
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
func (h *Handover) Addr() net.Addr { return h.addr }
