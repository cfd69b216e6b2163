// Package db is the only access to SQL. It opens SQLite or PostgreSQL, migrates, runs transactions, and runs
// statements only within a scope: a statement names its workspace, or the caller states why it crosses workspaces.
//
// One SQL text serves both engines: portable SQL with $n parameters, times as BIGINT microseconds, exact bytes as
// BYTEA. Times, ids and random values are parameters, never functions of the engine.
package db

import (
	"context"
	"crypto/rand"
	"database/sql"
	"errors"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"runtime"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/stdlib"
	_ "modernc.org/sqlite" // registers the embedded engine

	"sovereign/internal/base/secret"
)

// An Engine is a database engine.
type Engine string

// The engines.
const (
	SQLite   Engine = "sqlite"
	Postgres Engine = "postgres"
)

// A DB is an open database. On SQLite one connection writes and several read; on PostgreSQL one pool does both.
type DB struct {
	Engine        Engine
	write         *sql.DB
	read          *sql.DB
	checkpointer  *sql.DB // SQLite's connection for checkpoints in the background; nil where commits make them
	migrationsDir string  // the embedded folder of its migrations

	changes   changeDetector
	listeners listeners

	config    *pgx.ConnConfig // of PostgreSQL
	process   string          // names this DB in notifications
	idleLimit *atomic.Int64   // see LimitIdle
}

// The files of the embedded databases in the data folder.
const (
	CoreFile = "core.db"
	LogsFile = "logs.db"
)

// Open opens the core database: PostgreSQL at url, or, when url is empty, the embedded one in folder, whose file it
// creates when it is missing. It fails at once when the database cannot be reached.
func Open(ctx context.Context, folder string, url secret.Text) (*DB, error) {
	if url.Empty() {
		return openSQLite(ctx, filepath.Join(folder, CoreFile), coreMigrations, "")
	}
	return openPostgres(ctx, url, coreMigrations)
}

// OpenLogs opens the log database, which has a writer of its own: a file beside the core database, or a schema of the
// same PostgreSQL database. No transaction spans both.
func OpenLogs(ctx context.Context, folder string, url secret.Text) (*DB, error) {
	if url.Empty() {
		return openLogsSQLite(ctx, filepath.Join(folder, LogsFile), logsMigrations)
	}
	return openPostgres(ctx, url, logsMigrations)
}

const (
	coreMigrations = "migrations"
	logsMigrations = "migrations/logs"
	logsSchema     = "logs"
)

// openSQLite opens a file. more are further settings for the one connection that writes.
func openSQLite(ctx context.Context, path, steps, more string) (*DB, error) {
	if err := createPrivate(path); err != nil {
		return nil, fmt.Errorf("open %s: %w", path, err)
	}
	dsn := "file:" + (&url.URL{Path: path}).EscapedPath() +
		"?_pragma=journal_mode(WAL)&_pragma=synchronous(FULL)&_pragma=busy_timeout(5000)" +
		"&_pragma=foreign_keys(1)&_pragma=temp_store(memory)"
	writer, err := newWriterConnector(dsn + "&_txlock=immediate" + more)
	if err != nil {
		return nil, fmt.Errorf("open %s: %w", path, err)
	}
	write := sql.OpenDB(writer)
	read, err := sql.Open("sqlite", dsn+"&_pragma=query_only(1)")
	if err != nil {
		return nil, errors.Join(fmt.Errorf("open %s: %w", path, err), write.Close())
	}
	write.SetMaxOpenConns(1)
	readers := max(4, runtime.GOMAXPROCS(0)) + 1 // the change detector keeps one
	read.SetMaxOpenConns(readers)
	read.SetMaxIdleConns(readers)
	d := &DB{Engine: SQLite, write: write, read: read, migrationsDir: steps}
	if err := d.write.PingContext(ctx); err != nil {
		return nil, errors.Join(fmt.Errorf("open %s: %w", path, err), d.Close())
	}
	return d, nil
}

// openLogsSQLite opens a database whose commits survive a crash of the process at once, and a power loss after the
// next Checkpoint. Checkpoints run in the background: of a large database they take longer than a commit should wait.
func openLogsSQLite(ctx context.Context, path, steps string) (*DB, error) {
	d, err := openSQLite(ctx, path, steps, "&_pragma=wal_autocheckpoint(0)&_pragma=synchronous(NORMAL)")
	if err != nil {
		return nil, err
	}
	d.checkpointer, err = sql.Open("sqlite", "file:"+(&url.URL{Path: path}).EscapedPath()+"?_pragma=busy_timeout(0)")
	if err != nil {
		return nil, errors.Join(err, d.Close())
	}
	d.checkpointer.SetMaxOpenConns(1)
	return d, nil
}

// A Checkpoint is the result of a checkpoint.
type Checkpoint struct {
	Complete   bool // everything committed before it survives a power loss
	LogTooLong bool // the write-ahead log has grown long; only TruncateLog shortens it
}

// maxLogPages is how many pages the write-ahead log may have: 64 MiB.
const maxLogPages = 64 << 20 / 4096

// Checkpoint makes what was committed before it survive a power loss, where that is not so already. It does not block
// writers.
func (d *DB) Checkpoint(ctx context.Context) (done Checkpoint, err error) {
	if d.checkpointer == nil {
		return Checkpoint{Complete: true}, nil
	}
	var busy, frames, folded int
	err = d.checkpointer.QueryRowContext(ctx, "PRAGMA wal_checkpoint(PASSIVE)").Scan(&busy, &frames, &folded)
	return Checkpoint{Complete: err == nil && busy == 0 && frames == folded, LogTooLong: frames > maxLogPages}, err
}

// TruncateLog empties the write-ahead log, unless a reader still uses it. A constant writer calls it between two
// transactions: otherwise the log would never end.
func (d *DB) TruncateLog(ctx context.Context) error {
	if d.checkpointer == nil {
		return nil
	}
	var busy, frames, folded int
	return d.checkpointer.QueryRowContext(ctx, "PRAGMA wal_checkpoint(TRUNCATE)").Scan(&busy, &frames, &folded)
}

// createPrivate creates the file before SQLite does, readable by its owner alone. SQLite gives its side files the
// same mode.
func createPrivate(path string) error {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o600) //nolint:gosec // the operator's own path
	if err != nil {
		return err
	}
	return f.Close()
}

func openPostgres(ctx context.Context, url secret.Text, steps string) (*DB, error) {
	config, err := pgx.ParseConfig(url.Reveal())
	if err != nil {
		return nil, errors.New("database_url is not a PostgreSQL URL (it looks like postgres://user:password@host:5432/name)")
	}
	config.ConnectTimeout = 10 * time.Second
	if steps == logsMigrations {
		config.RuntimeParams["search_path"] = logsSchema
	}
	idleLimit := new(atomic.Int64)
	pool := sql.OpenDB(connector{stdlib.GetConnector(*config, stdlib.OptionShouldPing(pingIdle)), idleLimit})
	pool.SetMaxOpenConns(16)
	pool.SetMaxIdleConns(8)
	pool.SetConnMaxIdleTime(5 * time.Minute)
	if err := pool.PingContext(ctx); err != nil {
		return nil, errors.Join(fmt.Errorf("PostgreSQL at %s:%d cannot be reached: %w", config.Host, config.Port, err),
			pool.Close())
	}
	if steps == logsMigrations {
		if err := makeSchema(ctx, pool); err != nil {
			return nil, errors.Join(fmt.Errorf("make the schema %s: %w", logsSchema, err), pool.Close())
		}
	}
	return &DB{
		Engine: Postgres, write: pool, read: pool, migrationsDir: steps, config: config, process: rand.Text(),
		idleLimit: idleLimit,
	}, nil
}

// Reserve returns the same PostgreSQL database with n connections of its own, for statements that must not wait for the
// others. The caller closes it.
func (d *DB) Reserve(n int) *DB {
	config := d.config.Copy()
	config.ConnectTimeout = reservedConnectTimeout
	never := func(context.Context, stdlib.ShouldPingParams) bool { return false } // a statement that fails is repeated
	pool := sql.OpenDB(connector{stdlib.GetConnector(*config, stdlib.OptionShouldPing(never)), new(atomic.Int64)})
	pool.SetMaxOpenConns(n)
	pool.SetMaxIdleConns(n)
	return &DB{
		Engine: Postgres, write: pool, read: pool, migrationsDir: d.migrationsDir, config: d.config, process: d.process,
		idleLimit: new(atomic.Int64),
	}
}

const reservedConnectTimeout = time.Second

// LimitIdle makes PostgreSQL roll back a transaction that waits for longer than this for its next statement. A process
// that was stopped, or cut off, in the middle of a transaction would otherwise keep its locks for as long as TCP lives.
// Such a transaction is run again. Snapshots are excepted, since they lock nothing.
func (d *DB) LimitIdle(limit time.Duration) {
	if d.idleLimit != nil {
		d.idleLimit.Store(int64(limit))
	}
}

// makeSchema creates the schema of the log database when it is missing. It checks first: CREATE SCHEMA IF NOT EXISTS
// needs a privilege even when the schema exists.
func makeSchema(ctx context.Context, pool *sql.DB) error {
	var found int
	err := pool.QueryRowContext(ctx, `SELECT COUNT(*) FROM pg_namespace WHERE nspname = $1`, logsSchema).Scan(&found)
	if err == nil && found == 0 {
		_, err = pool.ExecContext(ctx, "CREATE SCHEMA IF NOT EXISTS "+logsSchema)
	}
	return err
}

// pingIdle pings a connection that was idle, with a short timeout: a connection whose packets are dropped must cost
// seconds, not the caller's whole timeout. pgx closes a connection whose ping fails, so reporting true then makes the
// pool drop it.
func pingIdle(ctx context.Context, p stdlib.ShouldPingParams) (pingAgain bool) {
	if p.IdleDuration < time.Second {
		return false
	}
	ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	return p.Conn.Ping(ctx) != nil
}

// Close closes every connection. On SQLite the last close folds the write-ahead log into the file.
func (d *DB) Close() error {
	if d.read == d.write {
		return d.write.Close()
	}
	d.changes.shutDown()
	if d.checkpointer != nil {
		_ = d.checkpointer.Close()
	}
	return errors.Join(d.read.Close(), d.write.Close())
}

// Ping reports whether the database answers.
func (d *DB) Ping(ctx context.Context) error { return d.read.PingContext(ctx) }
