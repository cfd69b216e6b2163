package edge

import (
	"context"
	"net"
	"sync"

	"sovereign/internal/limit"
)

// A Listener counts its connections against a budget. One over it is accepted all the same, so that its client can be
// told with a 429, and is closed after that answer; when very many are over it, they are closed unheard.
type Listener struct {
	net.Listener
	budget, spare *limit.Budget
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
		c := &connection{Conn: inner, from: l.budget}
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

// overBudget reports whether the request came on a connection that is only kept to be refused.
func overBudget(ctx context.Context) bool {
	c, ok := ctx.Value(connectionKey{}).(*connection)
	return ok && c.over
}
