// Package db is the one door to SQL. It opens SQLite or PostgreSQL, migrates, runs transactions, and hands out
// queries only with a scope: a statement names its workspace, or says why it crosses workspaces.
//
// One text serves both engines: portable SQL with $n, times as BIGINT microseconds, exact bytes as BYTEA. Times, ids
// and random values are parameters, never functions of the engine.
package db

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"runtime"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/stdlib"
	_ "modernc.org/sqlite" // registers the embedded engine

	"sovereign/internal/base/secret"
)

// An Engine is what keeps the data.
type Engine string

// The engines.
const (
	SQLite   Engine = "sqlite"
	Postgres Engine = "postgres"
)

// A DB is an open database. On SQLite one connection writes and several read; on PostgreSQL one pool does both.
type DB struct {
	Engine Engine
	write  *sql.DB
	read   *sql.DB
	aside  *sql.DB // for checkpoints that nobody waits for; nil where whoever commits makes them
	steps  string  // the folder of its migrations

	lookout   lookout
	listeners listeners
}

// The embedded databases' files in the data folder.
const (
	CoreFile = "core.db"
	LogsFile = "logs.db"
)

// Open opens the database: PostgreSQL at url, or the embedded one in folder, which is made when it is not there, when
// url is empty. It fails at once when the database cannot be reached.
func Open(ctx context.Context, folder string, url secret.Text) (*DB, error) {
	if url.Empty() {
		return openSQLite(ctx, filepath.Join(folder, CoreFile), coreSteps, "")
	}
	return openPostgres(ctx, url, coreSteps)
}

// OpenLogs opens the database of request logs, which has a writer of its own: a file beside the core, or a schema of the same
// PostgreSQL database. No transaction spans both.
func OpenLogs(ctx context.Context, folder string, url secret.Text) (*DB, error) {
	if url.Empty() {
		return openAside(ctx, filepath.Join(folder, LogsFile), logsSteps)
	}
	return openPostgres(ctx, url, logsSteps)
}

const (
	coreSteps  = "migrations"
	logsSteps  = "migrations/logs"
	logsSchema = "logs"
)

// openSQLite opens a file, with more settings for the one connection that writes.
func openSQLite(ctx context.Context, path, steps, more string) (*DB, error) {
	if err := private(path); err != nil {
		return nil, fmt.Errorf("open %s: %w", path, err)
	}
	dsn := "file:" + (&url.URL{Path: path}).EscapedPath() +
		"?_pragma=journal_mode(WAL)&_pragma=synchronous(FULL)&_pragma=busy_timeout(5000)&_pragma=foreign_keys(1)&_pragma=temp_store(memory)"
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
	readers := max(4, runtime.GOMAXPROCS(0)) + 1 // the lookout keeps one
	read.SetMaxOpenConns(readers)
	read.SetMaxIdleConns(readers)
	d := &DB{Engine: SQLite, write: write, read: read, steps: steps}
	if err := d.write.PingContext(ctx); err != nil {
		return nil, errors.Join(fmt.Errorf("open %s: %w", path, err), d.Close())
	}
	return d, nil
}

// openAside opens a database of which a commit survives the process at once, and the machine with the next Checkpoint, which is made
// beside those who write: of a large database it takes longer than anybody who commits should wait.
func openAside(ctx context.Context, path, steps string) (*DB, error) {
	d, err := openSQLite(ctx, path, steps, "&_pragma=wal_autocheckpoint(0)&_pragma=synchronous(NORMAL)")
	if err != nil {
		return nil, err
	}
	d.aside, err = sql.Open("sqlite", "file:"+(&url.URL{Path: path}).EscapedPath()+"?_pragma=busy_timeout(0)")
	if err != nil {
		return nil, errors.Join(err, d.Close())
	}
	d.aside.SetMaxOpenConns(1)
	return d, nil
}

// A Checkpoint says what one has done.
type Checkpoint struct {
	Whole bool // all that was committed before it survives a power loss
	Long  bool // the write-ahead log has grown long, and only Shorten makes it short again
}

// longLog is how many pages a write-ahead log may have: 64 MiB.
const longLog = 64 << 20 / 4096

// Checkpoint makes what was committed before it survive a power loss, where that is not so already. Nobody waits for it.
func (d *DB) Checkpoint(ctx context.Context) (done Checkpoint, err error) {
	if d.aside == nil {
		return Checkpoint{Whole: true}, nil
	}
	var busy, frames, folded int
	err = d.aside.QueryRowContext(ctx, "PRAGMA wal_checkpoint(PASSIVE)").Scan(&busy, &frames, &folded)
	return Checkpoint{Whole: err == nil && busy == 0 && frames == folded, Long: frames > longLog}, err
}

// Shorten empties the write-ahead log, unless somebody reads from it. Whoever writes all the time calls it between two transactions:
// otherwise the log would never end.
func (d *DB) Shorten(ctx context.Context) error {
	if d.aside == nil {
		return nil
	}
	var busy, frames, folded int
	return d.aside.QueryRowContext(ctx, "PRAGMA wal_checkpoint(TRUNCATE)").Scan(&busy, &frames, &folded)
}

// private makes the file before SQLite does, readable by its owner alone; SQLite gives its side files the same mode.
func private(path string) error {
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
	if steps == logsSteps {
		config.RuntimeParams["search_path"] = logsSchema
	}
	pool := stdlib.OpenDB(*config, stdlib.OptionShouldPing(alive))
	pool.SetMaxOpenConns(16)
	pool.SetMaxIdleConns(8)
	pool.SetConnMaxIdleTime(5 * time.Minute)
	if err := pool.PingContext(ctx); err != nil {
		return nil, errors.Join(fmt.Errorf("PostgreSQL at %s:%d cannot be reached: %w", config.Host, config.Port, err), pool.Close())
	}
	if steps == logsSteps {
		if err := makeSchema(ctx, pool); err != nil {
			return nil, errors.Join(fmt.Errorf("make the schema %s: %w", logsSchema, err), pool.Close())
		}
	}
	return &DB{Engine: Postgres, write: pool, read: pool, steps: steps}, nil
}

// makeSchema makes the schema of logs where there is none. To ask for one that is there takes a right that not every role has.
func makeSchema(ctx context.Context, pool *sql.DB) error {
	var there int
	err := pool.QueryRowContext(ctx, `SELECT COUNT(*) FROM pg_namespace WHERE nspname = $1`, logsSchema).Scan(&there)
	if err == nil && there == 0 {
		_, err = pool.ExecContext(ctx, "CREATE SCHEMA IF NOT EXISTS "+logsSchema)
	}
	return err
}

// alive pings a connection that was idle, for a short time only: one that swallows packets must cost seconds, not the
// caller's whole patience. pgx closes a connection whose ping fails, so that asking for another ping drops it.
func alive(ctx context.Context, p stdlib.ShouldPingParams) (askAgain bool) {
	if p.IdleDuration < time.Second {
		return false
	}
	ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	return p.Conn.Ping(ctx) != nil
}

// Close ends every connection. On SQLite it first folds the write-ahead log into the file.
func (d *DB) Close() error {
	if d.read == d.write {
		return d.write.Close()
	}
	d.lookout.retire()
	if d.aside != nil {
		_ = d.aside.Close()
	}
	return errors.Join(d.read.Close(), d.write.Close())
}

// Ping reports whether the database answers.
func (d *DB) Ping(ctx context.Context) error { return d.read.PingContext(ctx) }
