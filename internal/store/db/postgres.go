package db

import (
	"context"
	"database/sql/driver"

	"github.com/jackc/pgx/v5/stdlib"
)

// A connector opens connections to PostgreSQL that the pool does not hand on when they are closed. pgx closes the
// connection of a query that is cancelled, and its own do not tell: a query that waited could get several such
// connections in a row, and fail because others were cancelled.
type connector struct{ driver.Connector }

// Connect implements driver.Connector.
func (c connector) Connect(ctx context.Context) (driver.Conn, error) {
	opened, err := c.Connector.Connect(ctx)
	if conn, ok := opened.(*stdlib.Conn); ok && err == nil {
		return &connection{conn}, nil
	}
	return opened, err
}

type connection struct{ *stdlib.Conn }

// IsValid implements driver.Validator.
func (c *connection) IsValid() bool { return !c.Conn.Conn().IsClosed() }
