package db

import (
	"context"
	"database/sql"
	"sync"
)

// A changeDetector detects writes to an embedded database. PRAGMA data_version counts the commits of all other
// connections. So the detector has a connection of its own, which never commits.
type changeDetector struct {
	mu     sync.Mutex
	conn   *sql.Conn
	query  *sql.Stmt
	epoch  uint64 // grows with each connection and each failure: the counts of two connections are not comparable
	closed bool
}

// Changes returns a number that differs after every change of the database, whichever process made it, and is never
// 0. A reader that has read everything since it got the same number need not read again; that saves an idle server
// most of its queries. Call it before reading. On PostgreSQL, and after an error, it returns a new number each time.
func (d *DB) Changes(ctx context.Context) uint64 {
	c := &d.changes
	c.mu.Lock()
	defer c.mu.Unlock()
	if d.Engine != SQLite || c.closed {
		c.epoch++
		return c.epoch << 32
	}
	ctx = context.WithoutCancel(ctx) // the query never blocks, and a cancellable context costs more than the query
	if c.conn == nil && !c.open(ctx, d.read) {
		return c.epoch << 32
	}
	var commits uint32
	if err := c.query.QueryRowContext(ctx).Scan(&commits); err != nil {
		c.close()
		c.epoch++
		return c.epoch << 32
	}
	return c.epoch<<32 | uint64(commits)
}

func (c *changeDetector) open(ctx context.Context, pool *sql.DB) bool {
	c.epoch++
	var err error
	if c.conn, err = pool.Conn(ctx); err != nil {
		c.conn = nil
		return false
	}
	if c.query, err = c.conn.PrepareContext(ctx, "PRAGMA data_version"); err != nil {
		c.close()
		return false
	}
	return true
}

func (c *changeDetector) close() {
	if c.query != nil {
		_ = c.query.Close()
	}
	if c.conn != nil {
		_ = c.conn.Close()
	}
	c.query, c.conn = nil, nil
}

// shutDown closes the detector's connection, which would keep the file open.
func (c *changeDetector) shutDown() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.closed = true
	c.close()
}
