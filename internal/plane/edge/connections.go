package edge

import (
	"context"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"sovereign/internal/base/apikey"
	"sovereign/internal/base/limit"
	"sovereign/internal/base/secret"
	"sovereign/internal/net/socket"
)

// A Listener counts its connections against a budget. One over it is accepted all the same, so that its client can be
// told with a 429, and is closed after that answer; when very many are over it, they are closed unheard.
type Listener struct {
	net.Listener
	budget, spare *limit.Budget
	patience      *atomic.Int64
}

// Listen counts the connections of inner. A client has patience, in nanoseconds, to take what is written.
func Listen(inner net.Listener, budget *limit.Budget, patience *atomic.Int64) *Listener {
	return &Listener{Listener: inner, budget: budget, spare: limit.NewBudget(overflow), patience: patience}
}

// overflow bounds the connections that are only kept to be refused.
const overflow = 1024

// Accept implements net.Listener.
func (l *Listener) Accept() (net.Conn, error) {
	for {
		inner, err := l.Listener.Accept()
		if err != nil {
			return nil, err
		}
		c := &connection{Conn: inner, from: l.budget, patience: l.patience, socket: socket.Of(inner)}
		if !l.budget.Take(1) {
			c.from, c.over = l.spare, true
			if !l.spare.Take(1) {
				_ = inner.Close()
				continue
			}
		}
		return c, nil
	}
}

type connection struct {
	net.Conn
	from   *limit.Budget
	over   bool
	closed sync.Once

	patience *atomic.Int64
	hurried  atomic.Int64   // when the deadline for writing was last set, in nanoseconds of the process's own clock
	socket   *socket.Socket // nil where there is none

	shown  secret.Text // the last header that showed a key, for who has the connection alone
	digest apikey.Digest
}

// born is where the process's own clock begins.
var born = time.Now()

// Write gives up on a client that does not read. What time it was given a moment ago is still good, so that a deadline is
// set for many small writes and not for each; it does not matter that it passes while nothing is written.
func (c *connection) Write(p []byte) (int, error) {
	c.hurry(time.Now())
	if c.socket == nil {
		return c.Conn.Write(p)
	}
	return c.socket.Write(p)
}

func (c *connection) hurry(at time.Time) {
	now, patience := int64(at.Sub(born)), c.patience.Load()
	if last := c.hurried.Load(); last == 0 || now-last > min(int64(time.Second), patience/8) {
		c.hurried.Store(now)
		_ = c.Conn.SetWriteDeadline(at.Add(time.Duration(patience))) // a closed connection says so when it is written to
	}
}

// TryWrite writes as much as can be written without waiting for the client, if that is nothing. Who writes is alone with it.
func (c *connection) TryWrite(now time.Time, p []byte) (int, error) {
	if c.socket == nil {
		return 0, nil // who waits for the client may know how
	}
	c.hurry(now)
	return c.socket.TryWrite(p)
}

// SetWriteDeadline implements net.Conn. net/http takes a deadline away after every answer: the next write sets one again.
func (c *connection) SetWriteDeadline(t time.Time) error {
	c.hurried.Store(0)
	return c.Conn.SetWriteDeadline(t)
}

// Close implements net.Conn.
func (c *connection) Close() error {
	c.closed.Do(func() { c.from.Give(1) })
	return c.Conn.Close()
}

// CloseWrite lets net/http end a connection without cutting off its last answer.
func (c *connection) CloseWrite() error {
	if inner, ok := c.Conn.(interface{ CloseWrite() error }); ok {
		return inner.CloseWrite()
	}
	return nil
}

// Socket is for who reads.
func (c *connection) Socket() *socket.Socket { return c.socket }

type connectionKey struct{}

// ConnContext is for http.Server: it lets a request know its connection.
func ConnContext(ctx context.Context, conn net.Conn) context.Context {
	if secure, ok := conn.(interface{ NetConn() net.Conn }); ok {
		conn = secure.NetConn()
	}
	if c, ok := conn.(*connection); ok {
		return context.WithValue(ctx, connectionKey{}, c)
	}
	return ctx
}

// on is the connection that a request came on, or nil when it is none of a Listener's.
func on(ctx context.Context) *connection {
	c, _ := ctx.Value(connectionKey{}).(*connection)
	return c
}
