package db

import (
	"context"
	"database/sql/driver"

	"github.com/jackc/pgx/v5/stdlib"
)

// A connector opens connections to PostgreSQL that the pool does not hand on when they are closed, or when an operation
// was cancelled on them. pgx closes the connection of a query that is cancelled, and its own do not tell: a query that
// waited could get several such connections in a row, and fail because others were cancelled. A query that ends while it
// is cancelled may leave a read timeout behind, in pgx's background reader, which the next query would get.
type connector struct{ driver.Connector }

// Connect implements driver.Connector.
func (c connector) Connect(ctx context.Context) (driver.Conn, error) {
	opened, err := c.Connector.Connect(ctx)
	if conn, ok := opened.(*stdlib.Conn); ok && err == nil {
		return &connection{Conn: conn, last: context.Background()}, nil
	}
	return opened, err
}

// A connection is used by one goroutine at a time, as database/sql promises.
type connection struct {
	*stdlib.Conn
	last      context.Context //nolint:containedctx // of the last operation, to see whether it was cancelled
	cancelled bool            // an operation was cancelled on it
}

// IsValid implements driver.Validator. The pool asks when the connection is returned.
func (c *connection) IsValid() bool {
	c.use(context.Background())
	return !c.cancelled && !c.Conn.Conn().IsClosed()
}

// use records the context of the next operation.
func (c *connection) use(ctx context.Context) {
	c.cancelled = c.cancelled || c.last.Err() != nil
	c.last = ctx
}

// BeginTx implements driver.ConnBeginTx.
func (c *connection) BeginTx(ctx context.Context, opts driver.TxOptions) (driver.Tx, error) {
	c.use(ctx)
	return c.Conn.BeginTx(ctx, opts)
}

// ExecContext implements driver.ExecerContext.
func (c *connection) ExecContext(ctx context.Context, query string, args []driver.NamedValue) (driver.Result, error) {
	c.use(ctx)
	return c.Conn.ExecContext(ctx, query, args)
}

// QueryContext implements driver.QueryerContext.
func (c *connection) QueryContext(ctx context.Context, query string, args []driver.NamedValue) (driver.Rows, error) {
	c.use(ctx)
	return c.Conn.QueryContext(ctx, query, args)
}

// PrepareContext implements driver.ConnPrepareContext.
func (c *connection) PrepareContext(ctx context.Context, query string) (driver.Stmt, error) {
	c.use(ctx)
	return c.Conn.PrepareContext(ctx, query)
}
