package api

import (
	"context"
	"net"
	"sync"

	"sovereign/internal/limit"
)

// Listen counts the connections of inner against a budget. One over it is accepted all the same, so that its client
// can be told with a 429, and is closed after that answer; when as many again are over it, they are closed unheard.
func Listen(inner net.Listener, budget *limit.Budget) net.Listener {
	return &counting{Listener: inner, budget: budget, spare: limit.NewBudget(overflow)}
}

// overflow bounds the connections that are only kept to be refused.
const overflow = 1024

type counting struct {
	net.Listener
	budget, spare *limit.Budget
}

func (l *counting) Accept() (net.Conn, error) {
	for {
		inner, err := l.Listener.Accept()
		if err != nil {
			return nil, err
		}
		switch {
		case l.budget.Take(1):
			return &counted{Conn: inner, from: l.budget}, nil
		case l.spare.Take(1):
			return &counted{Conn: inner, from: l.spare, over: true}, nil
		default:
			_ = inner.Close()
		}
	}
}

type counted struct {
	net.Conn
	from *limit.Budget
	over bool
	once sync.Once
}

func (c *counted) Close() error {
	c.once.Do(func() { c.from.Give(1) })
	return c.Conn.Close()
}

// CloseWrite lets net/http end a connection without cutting off its last answer.
func (c *counted) CloseWrite() error {
	if inner, ok := c.Conn.(interface{ CloseWrite() error }); ok {
		return inner.CloseWrite()
	}
	return nil
}

type overloadedKey struct{}

// ConnContext is for http.Server: it marks the requests of a connection that is over the budget.
func ConnContext(ctx context.Context, conn net.Conn) context.Context {
	if secure, ok := conn.(interface{ NetConn() net.Conn }); ok {
		conn = secure.NetConn()
	}
	if c, ok := conn.(*counted); ok && c.over {
		return context.WithValue(ctx, overloadedKey{}, true)
	}
	return ctx
}

func overloaded(ctx context.Context) bool { return ctx.Value(overloadedKey{}) != nil }
