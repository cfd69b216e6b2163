package http1

import (
	"context"
	"crypto/tls"
	"io"
	"net"
	"sync/atomic"
	"time"

	"sovereign/internal/base/panics"
)

// A strictConn is a connection on which net/http's server sees only requests that a requestChecker has found in order.
// When a head breaks the rules, the server reads malformed bytes instead of the rest: it answers 400 and closes. When a
// body breaks them, it reads ErrMalformed instead of the rest, and the connection is of no further use.
type strictConn struct {
	net.Conn
	pending []byte // bytes that were read already, which Read returns first

	checker requestChecker
	err     error       // why the connection is refused; nil while all is in order
	refusal string      // what is unread of malformedHead
	refused atomic.Bool // the server has read all of malformedHead: what it writes next is the refusal
}

// newStrictConn returns a connection that begins with the bytes in pending.
func newStrictConn(conn net.Conn, pending []byte) *strictConn {
	return &strictConn{Conn: conn, pending: pending}
}

// malformedHead makes a head malformed, wherever it follows: in a line, between CR and LF, before a request's first
// byte. It has more than the four bytes that net/http's server waits for.
const malformedHead = "\x00\r\n\x00\r\n\r\n"

// Read implements io.Reader.
func (c *strictConn) Read(p []byte) (n int, err error) {
	switch {
	case len(p) == 0:
		return 0, nil
	case c.err != nil:
		return c.readRefusal(p)
	case len(c.pending) > 0:
		n = copy(p, c.pending)
		c.pending = c.pending[n:]
	default:
		n, err = c.Conn.Read(p)
	}
	good, malformed := c.checker.check(p[:n])
	if malformed == nil {
		return n, err
	}
	if c.err = malformed; c.checker.inHead() {
		c.refusal = malformedHead
	}
	if good == 0 {
		return c.readRefusal(p)
	}
	return good, nil
}

// readRefusal reads from the malformed head, if there is one. An error instead would end the contexts of the connection,
// and an earlier request may still run.
func (c *strictConn) readRefusal(p []byte) (int, error) {
	if c.refusal == "" {
		return 0, c.err
	}
	n := copy(p, c.refusal)
	if c.refusal = c.refusal[n:]; c.refusal == "" {
		c.refused.Store(true)
	}
	return n, nil
}

// Write implements io.Writer. After a refusal it reads what the caller still sends, for a moment: closing at once would
// send a reset, and the caller could lose the refusal.
func (c *strictConn) Write(p []byte) (int, error) {
	n, err := c.Conn.Write(p)
	if c.refused.CompareAndSwap(true, false) && c.CloseWrite() == nil {
		_ = c.SetReadDeadline(time.Now().Add(lingerTimeout))
		_, _ = io.CopyN(io.Discard, c.Conn, maxDiscard)
	}
	return n, err
}

// NetConn returns the connection underneath, below TLS too.
func (c *strictConn) NetConn() net.Conn {
	if secure, ok := c.Conn.(interface{ NetConn() net.Conn }); ok {
		return secure.NetConn()
	}
	return c.Conn
}

// CloseWrite lets net/http's server end a connection without a reset, which could cut off its last response.
func (c *strictConn) CloseWrite() error {
	if inner, ok := c.Conn.(interface{ CloseWrite() error }); ok {
		return inner.CloseWrite()
	}
	return nil
}

// Strict returns a listener for net/http's server: all that its connections read is checked.
func Strict(l net.Listener) net.Listener { return strictListener{l} }

type strictListener struct{ net.Listener }

// Accept implements net.Listener.
func (l strictListener) Accept() (net.Conn, error) {
	conn, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	return newStrictConn(conn, nil), nil
}

// StrictTLS is Strict for connections with TLS. It shakes hands within timeout, on a goroutine per connection, since
// only then it is known what the connection speaks: HTTP/1 is checked, HTTP/2 has lengths that cannot contradict each
// other. It passes a connection whose handshake has failed on as well: net/http's server answers and logs that. Serve
// ends when the inner listener does.
type StrictTLS struct {
	*Handover

	inner   net.Listener
	config  *tls.Config
	timeout time.Duration
}

// NewStrictTLS returns a listener for net/http's server. Serve must be called.
func NewStrictTLS(inner net.Listener, config *tls.Config, timeout time.Duration) *StrictTLS {
	return &StrictTLS{Handover: NewHandover(inner.Addr()), inner: inner, config: config, timeout: timeout}
}

// Serve accepts connections until the inner listener fails.
func (l *StrictTLS) Serve() error {
	return acceptAll(l.inner, func(conn net.Conn) { go l.shakeHands(tls.Server(conn, l.config)) })
}

// shakeHands delivers a connection after its handshake.
func (l *StrictTLS) shakeHands(conn *tls.Conn) {
	err := panics.Call(nil, "a TLS handshake", func() error {
		ctx, cancel := context.WithTimeout(context.Background(), l.timeout)
		defer cancel()
		if err := conn.HandshakeContext(ctx); err != nil || conn.ConnectionState().NegotiatedProtocol == "h2" {
			l.Deliver(conn)
		} else {
			l.Deliver(newStrictConn(conn, nil))
		}
		return nil
	})
	if err != nil {
		_ = conn.Close()
	}
}
