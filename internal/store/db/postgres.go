package db

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/stdlib"
)

// A connector opens connections to PostgreSQL that the pool does not hand on when they are closed, or when an operation
// was cancelled on them. pgx closes the connection of a query that is cancelled, and its own do not tell: a query that
// waited could get several such connections in a row, and fail because others were cancelled. A query that ends while
// it is cancelled may leave a read timeout behind, in pgx's background reader, which the next query would get.
type connector struct {
	driver.Connector
	idleLimit *atomic.Int64 // of the transactions, in nanoseconds; 0 for none
}

// Connect implements driver.Connector.
func (c connector) Connect(ctx context.Context) (driver.Conn, error) {
	opened, err := c.Connector.Connect(ctx)
	if conn, ok := opened.(*stdlib.Conn); ok && err == nil {
		return &connection{Conn: conn, last: context.Background(), idleLimit: c.idleLimit}, nil
	}
	if err != nil && ctx.Err() != nil {
		return opened, ctx.Err() // the caller's time is over, which says nothing of the database
	}
	return opened, err
}

// A connection is used by one goroutine at a time, as database/sql promises.
type connection struct {
	*stdlib.Conn
	last      context.Context //nolint:containedctx // of the last operation, to see whether it was cancelled
	cancelled bool            // an operation was cancelled on it
	idleLimit *atomic.Int64
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
	limit := time.Duration(c.idleLimit.Load())
	if limit == 0 || opts.ReadOnly || sql.IsolationLevel(opts.Isolation) != sql.LevelSerializable {
		return c.Conn.BeginTx(ctx, opts)
	}
	if c.Conn.Conn().IsClosed() {
		return nil, driver.ErrBadConn
	}
	begin := fmt.Sprintf("begin isolation level serializable; set local idle_in_transaction_session_timeout = %d",
		limit.Milliseconds())
	tx, err := c.Conn.Conn().BeginTx(ctx, pgx.TxOptions{BeginQuery: begin})
	if errors.Is(err, pgconn.ErrConnClosed) { // nothing has begun: the pool may try another connection
		return nil, driver.ErrBadConn
	}
	if err != nil {
		return nil, err
	}
	return limited{ctx, tx}, nil
}

// A limited transaction is rolled back by PostgreSQL when it is idle for too long.
type limited struct {
	ctx context.Context //nolint:containedctx // as database/sql gave it to BeginTx
	tx  pgx.Tx
}

// Commit implements driver.Tx.
func (l limited) Commit() error { return l.tx.Commit(l.ctx) }

// Rollback implements driver.Tx.
func (l limited) Rollback() error { return l.tx.Rollback(l.ctx) }

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
