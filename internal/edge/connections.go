package edge

import (
	"context"
	"net"
	"sync"
	"sync/atomic"

	"sovereign/internal/limit"
)

// A Listener counts its connections against a budget. One over it is accepted all the same, so that its client can be
// told with a 429, and is closed after that answer; when very many are over it, they are closed unheard.
type Listener struct {
	net.Listener
	budget, spare *limit.Budget
	unheard       atomic.Int64
}

// Listen counts the connections of inner.
func Listen(inner net.Listener, budget *limit.Budget) *Listener {
	return &Listener{Listener: inner, budget: budget, spare: limit.NewBudget(overflow)}
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
		c := &connection{Conn: inner, listener: l, from: l.budget}
		if !l.budget.Take(1) {
			c.from, c.over = l.spare, true
			if !l.spare.Take(1) {
				_ = inner.Close()
				continue
			}
		}
		l.unheard.Add(1)
		return c, nil
	}
}

// Unheard is how many connections were accepted and have not yet brought a request as far as the router. A server
// that stops waits for them: net/http would close them without an answer.
func (l *Listener) Unheard() int64 { return l.unheard.Load() }

type connection struct {
	net.Conn
	listener *Listener
	from     *limit.Budget
	over     bool
	heard    sync.Once
	closed   sync.Once
}

func (c *connection) hear() { c.heard.Do(func() { c.listener.unheard.Add(-1) }) }

// Close implements net.Conn.
func (c *connection) Close() error {
	c.hear()
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

// arrived notes that a connection's request is here, and reports whether the connection is over the budget.
func arrived(ctx context.Context) (over bool) {
	c, ok := ctx.Value(connectionKey{}).(*connection)
	if !ok {
		return false
	}
	c.hear()
	return c.over
}
