package db

import (
	"context"
	"database/sql"
	"sync"
)

// A lookout sees whether anybody has written to an embedded database. The engine counts the commits that a connection did not make
// itself, so the lookout has a connection of its own, which makes none.
type lookout struct {
	mu      sync.Mutex
	conn    *sql.Conn
	look    *sql.Stmt
	tries   uint64 // connections so far: what one counts says nothing to another
	retired bool
}

// Changes is a number that is another after every change, whichever process made it, and never 0: who has read everything since it was
// this one need not read again, which spares a server at rest most of its work. Ask for it before reading. Where the engine does
// not count, or fails to say, it is another each time.
func (d *DB) Changes(ctx context.Context) uint64 {
	l := &d.lookout
	l.mu.Lock()
	defer l.mu.Unlock()
	if d.Engine != SQLite || l.retired {
		l.tries++
		return l.tries << 32
	}
	ctx = context.WithoutCancel(ctx) // it waits for nobody, and a context that can end costs more than the question
	if l.conn == nil && !l.open(ctx, d.read) {
		return l.tries << 32
	}
	var commits uint32
	if err := l.look.QueryRowContext(ctx).Scan(&commits); err != nil {
		l.close()
		l.tries++
		return l.tries << 32
	}
	return l.tries<<32 | uint64(commits)
}

func (l *lookout) open(ctx context.Context, pool *sql.DB) bool {
	l.tries++
	var err error
	if l.conn, err = pool.Conn(ctx); err != nil {
		l.conn = nil
		return false
	}
	if l.look, err = l.conn.PrepareContext(ctx, "PRAGMA data_version"); err != nil {
		l.close()
		return false
	}
	return true
}

func (l *lookout) close() {
	if l.look != nil {
		_ = l.look.Close()
	}
	if l.conn != nil {
		_ = l.conn.Close()
	}
	l.look, l.conn = nil, nil
}

// retire ends the lookout, whose connection would keep the file open.
func (l *lookout) retire() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.retired = true
	l.close()
}
