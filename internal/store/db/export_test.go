package db

import (
	"database/sql"
	"net/netip"
)

// Pool returns the connections that write.
func (d *DB) Pool() *sql.DB { return d.write }

// At returns the database with a connection of its own to another address.
func (d *DB) At(address netip.AddrPort) *DB {
	other := &DB{config: d.config.Copy(), migrationsDir: d.migrationsDir, process: d.process}
	other.config.Host, other.config.Port, other.config.Fallbacks = address.Addr().String(), address.Port(), nil
	return other.Reserve(1)
}

// Waiting counts the values that wait for the next transaction.
func (g *Group[T]) Waiting() int {
	g.mu.Lock()
	defer g.mu.Unlock()
	return len(g.waiting)
}
