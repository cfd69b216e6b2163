package edge

import (
	"context"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"sovereign/internal/base/apikey"
	"sovereign/internal/base/secret"
	"sovereign/internal/base/tenant"
	"sovereign/internal/net/admission"
	"sovereign/internal/net/fastpath"
	"sovereign/internal/net/socket"
)

// A Listener has the table of connections decide which of its connections are kept. A connection that the table refuses
// is accepted all the same, so that its client can be answered with 429, and is closed after that answer.
type Listener struct {
	net.Listener
	bounds *Bounds
}

// Listen accepts the connections of inner within bounds.
func Listen(inner net.Listener, b *Bounds) *Listener { return &Listener{inner, b} }

// Accept implements net.Listener.
func (l *Listener) Accept() (net.Conn, error) {
	for {
		inner, err := l.Listener.Accept()
		if err != nil {
			return nil, err
		}
		from := addressOf(inner.RemoteAddr())
		c := &connection{Conn: inner, bounds: l.bounds, socket: socket.Of(inner), proxied: l.bounds.isProxy(from)}
		c.place.Conn = c
		switch l.bounds.Connections.Add(&c.place, l.bounds.limited(from), time.Now()) {
		case admission.Dropped:
			_ = inner.Close()
			continue
		case admission.Refused:
			c.refused = true
		case admission.Admitted:
		}
		return c, nil
	}
}

// A connection is an accepted connection with a write timeout and a place in the table of connections.
type connection struct {
	net.Conn
	bounds  *Bounds
	place   admission.Place
	refused bool // it is open only to be refused
	proxied bool // a trusted proxy opened it, for many clients
	proven  atomic.Bool
	closed  sync.Once

	deadlineSet atomic.Int64   // when the write deadline was last set, in nanoseconds since processStart; 0 for never
	socket      *socket.Socket // nil if the connection has none, such as TLS

	lastHeader secret.Text // the last Authorization header; only HTTP/1 uses it, with one request at a time
	lastDigest apikey.Digest
}

var (
	_ fastpath.TryWriter                   = (*connection)(nil)
	_ interface{ Socket() *socket.Socket } = (*connection)(nil) // socket.Of looks for it
)

// processStart is the origin of the monotonic times in deadlineSet.
var processStart = time.Now()

// Write fails when the client does not read within the timeout. A deadline that was set a moment ago is reused, so that
// many small writes share one SetWriteDeadline. A deadline that passes while nothing is written has no effect.
func (c *connection) Write(p []byte) (int, error) {
	c.extendDeadline(time.Now())
	if c.socket == nil {
		return c.Conn.Write(p)
	}
	return c.socket.Write(p)
}

// extendDeadline sets the write deadline, unless the last one is recent: at most a second old, or an eighth of the
// timeout.
func (c *connection) extendDeadline(at time.Time) {
	now, timeout := int64(at.Sub(processStart)), c.bounds.Timeout.Load()
	if last := c.deadlineSet.Load(); last == 0 || now-last > min(int64(time.Second), timeout/8) {
		c.deadlineSet.Store(now)
		_ = c.Conn.SetWriteDeadline(at.Add(time.Duration(timeout))) // a closed connection fails when it is written to
	}
}

// TryWrite writes without blocking. It returns 0, nil when the socket buffer is full. No other write may run meanwhile.
func (c *connection) TryWrite(now time.Time, p []byte) (int, error) {
	if c.socket == nil {
		return 0, nil // Write can wait for the client
	}
	c.extendDeadline(now)
	return c.socket.TryWrite(p)
}

// SetWriteDeadline implements net.Conn. net/http clears the deadline after every response, so the next write must set
// one again.
func (c *connection) SetWriteDeadline(t time.Time) error {
	c.deadlineSet.Store(0)
	return c.Conn.SetWriteDeadline(t)
}

// Close implements net.Conn.
func (c *connection) Close() error {
	c.closed.Do(func() { c.bounds.Connections.Remove(&c.place) })
	return c.Conn.Close()
}

// CloseWrite lets net/http shut down the sending side, so that the client still reads the last response.
func (c *connection) CloseWrite() error {
	if inner, ok := c.Conn.(interface{ CloseWrite() error }); ok {
		return inner.CloseWrite()
	}
	return nil
}

// prove records that a valid key of a workspace came on the connection. It returns false if the workspace has too many
// connections already. A proxy's connections are of no workspace.
func (c *connection) prove(ws tenant.ID) bool {
	if c == nil || c.proven.Load() {
		return true
	}
	owner := string(ws)
	if c.proxied {
		owner = ""
	}
	proven := c.bounds.Connections.Prove(&c.place, owner)
	c.proven.Store(proven)
	return proven
}

// Socket returns the socket for direct reads: see socket.Of. It is nil if there is none.
func (c *connection) Socket() *socket.Socket { return c.socket }

type connectionKey struct{}

// ConnContext is http.Server's ConnContext: it makes the connection known to its requests.
func ConnContext(ctx context.Context, conn net.Conn) context.Context {
	if secure, ok := conn.(interface{ NetConn() net.Conn }); ok {
		conn = secure.NetConn()
	}
	if c, ok := conn.(*connection); ok {
		return context.WithValue(ctx, connectionKey{}, c)
	}
	return ctx
}

// connectionOf returns the connection that a request came on, or nil if no Listener accepted it.
func connectionOf(ctx context.Context) *connection {
	c, _ := ctx.Value(connectionKey{}).(*connection)
	return c
}
