package db

import "database/sql"

// Pool returns the connections that write.
func (d *DB) Pool() *sql.DB { return d.write }

// Waiting counts the values that wait for the next transaction.
func (g *Group[T]) Waiting() int {
	g.mu.Lock()
	defer g.mu.Unlock()
	return len(g.waiting)
}
