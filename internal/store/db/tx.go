package db

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"sovereign/internal/base/clock"
	"sovereign/internal/base/tenant"
)

// A Version numbers the committed changes that the data plane must apply. Versions commit in order.
type Version int64

// A Change says that a subject of a kind has changed. Its present state is in its own table.
type Change struct {
	Version   Version
	Kind      string
	Workspace tenant.ID
	Subject   string
}

// A Tx is an open transaction.
type Tx struct {
	db      *DB
	tx      *sql.Tx
	depth   int
	touched []Change
	signals []string
	ends    []func(Outcome)
}

// An Outcome is what became of a transaction.
type Outcome int

// The outcomes.
const (
	RolledBack Outcome = iota
	Committed
	InDoubt // the answer to COMMIT was lost: it may have committed, may still commit, or never will
)

// OnEnd calls fn once, when it is known what became of the transaction, or when the part of it that was running under a
// savepoint is rolled back. It is for what a transaction does outside of the database. A transaction that is run again
// begins without such functions. fn must not block.
func (t *Tx) OnEnd(fn func(Outcome)) { t.ends = append(t.ends, fn) }

// end calls the functions that were added since there were n of them, the last one first.
func (t *Tx) end(n int, o Outcome) {
	ends := t.ends[n:]
	t.ends = t.ends[:n]
	for _, fn := range slices.Backward(ends) {
		fn(o)
	}
}

// maxAttempts bounds how often a transaction is run that PostgreSQL aborts with a serialization failure.
const maxAttempts = 25

// Tx runs fn in a transaction that is serializable on both engines. It returns the version of its changes, or 0 when
// the data plane has nothing to apply. fn may run more than once, so it must set what it returns from scratch.
//
// With a ctx made by Bind, fn joins that transaction under a savepoint, and the version belongs to the outer one.
func (d *DB) Tx(ctx context.Context, fn func(*Tx) error) (Version, error) {
	if outer := bound(ctx, d); outer != nil {
		return 0, outer.nested(ctx, fn)
	}
	for attempt, lacked := 1, 0; ; attempt++ {
		version, err := d.runTx(ctx, fn)
		if again, failed := prepare(ctx, err, lacked); again {
			lacked++
			continue
		} else if err != nil {
			err = failed
		}
		if err == nil || attempt == maxAttempts || !isSerializationFailure(err) {
			return version, wrapUnavailable(err)
		}
		if err := backoff(ctx, attempt); err != nil {
			return 0, err
		}
	}
}

func backoff(ctx context.Context, attempt int) error {
	wait := time.NewTimer(rand.N(time.Millisecond << min(attempt, 7)))
	defer wait.Stop()
	select {
	case <-wait.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (d *DB) runTx(ctx context.Context, fn func(*Tx) error) (Version, error) {
	raw, err := d.write.BeginTx(ctx, d.isolation())
	if err != nil {
		return 0, fmt.Errorf("begin: %w", err)
	}
	tx, outcome := &Tx{db: d, tx: raw}, RolledBack
	defer func() {
		_ = raw.Rollback() // a no-op after the commit
		tx.end(0, outcome)
	}()
	if err := fn(tx); err != nil {
		return 0, err
	}
	version, err := tx.publish(ctx)
	if err != nil {
		return 0, err
	}
	if err := tx.notify(ctx); err != nil {
		return 0, fmt.Errorf("notify: %w", err)
	}
	if err := raw.Commit(); err != nil {
		if !isSerializationFailure(err) {
			outcome = InDoubt
		}
		return 0, fmt.Errorf("commit: %w", err)
	}
	outcome = Committed
	d.listeners.call(tx.signals)
	return version, nil
}

// isolation requests from PostgreSQL what SQLite's single writer provides anyway.
func (d *DB) isolation() *sql.TxOptions {
	if d.Engine == Postgres {
		return &sql.TxOptions{Isolation: sql.LevelSerializable}
	}
	return nil
}

// Touch announces a changed subject to the data plane when the transaction commits.
func (t *Tx) Touch(kind string, ws tenant.ID, subject string) {
	t.touched = append(t.touched, Change{Kind: kind, Workspace: ws, Subject: subject})
}

// publish assigns the touched subjects the next version. Updating the single row of feed_head serializes such
// transactions up to their commit, so that no reader can see version n+1 and miss n.
func (t *Tx) publish(ctx context.Context) (Version, error) {
	if len(t.touched) == 0 {
		return 0, nil
	}
	across := t.Across("versions of change number all workspaces together")
	next, args := `UPDATE feed_head SET version = version + 1 WHERE id = 1 RETURNING version`, []any(nil)
	if t.db.Engine == Postgres { // it tells the other servers in the same statement
		next = `UPDATE feed_head SET version = version + 1 WHERE id = 1 AND pg_notify($1, $2) IS NOT NULL RETURNING version`
		args = []any{channel, t.db.process + " " + FeedTopic}
	}
	version, err := One[Version](ctx, across, next, args...)
	if err != nil {
		return 0, fmt.Errorf("next version: %w", err)
	}
	rows := make([][]any, len(t.touched))
	for i, c := range t.touched {
		rows[i] = []any{version, i, c.Kind, c.Workspace, c.Subject, clock.Now()}
	}
	columns := []string{"version", "seq", "kind", "workspace_id", "subject", "at"}
	if err := Insert(ctx, across, "feed_changes", columns, rows); err != nil {
		return 0, fmt.Errorf("record version %d: %w", version, err)
	}
	return version, nil
}

func (t *Tx) nested(ctx context.Context, fn func(*Tx) error) error {
	t.depth++
	defer func() { t.depth-- }()
	name, touched, signals, ends := fmt.Sprintf("nested_%d", t.depth), len(t.touched), len(t.signals), len(t.ends)
	if _, err := t.tx.ExecContext(ctx, "SAVEPOINT "+name); err != nil {
		return fmt.Errorf("savepoint: %w", err)
	}
	if err := fn(t); err != nil {
		t.touched, t.signals = t.touched[:touched], t.signals[:signals]
		_, undo := t.tx.ExecContext(context.WithoutCancel(ctx), "ROLLBACK TO SAVEPOINT "+name)
		t.end(ends, RolledBack)
		return errors.Join(err, undo)
	}
	if _, err := t.tx.ExecContext(ctx, "RELEASE SAVEPOINT "+name); err != nil {
		return fmt.Errorf("release savepoint: %w", err)
	}
	return nil
}

type binding struct{}

// Bind makes every statement that runs with the returned context part of t, in whichever package. The API uses it to
// store the answer to an Idempotency-Key in the same transaction as its effect. The context is not for concurrent
// use.
func (t *Tx) Bind(ctx context.Context) context.Context { return context.WithValue(ctx, binding{}, t) }

// Unbound returns ctx without the transaction that it belongs to: what runs with it stands, whatever becomes of that.
// It is for PostgreSQL. On SQLite a write would wait for the transaction that it is part of.
func Unbound(ctx context.Context) context.Context {
	if !Bound(ctx) {
		return ctx
	}
	return context.WithValue(ctx, binding{}, (*Tx)(nil))
}

// Bound reports whether ctx belongs to a transaction.
func Bound(ctx context.Context) bool {
	t, _ := ctx.Value(binding{}).(*Tx)
	return t != nil
}

func bound(ctx context.Context, d *DB) *Tx {
	if t, _ := ctx.Value(binding{}).(*Tx); t != nil && t.db == d {
		return t
	}
	return nil
}

// Snapshot runs fn on one consistent state of the whole database, whatever commits meanwhile. fn cannot write.
func (d *DB) Snapshot(ctx context.Context, reason string, fn func(Scoped) error) error {
	return d.snapshot(ctx, func(tx *Tx) error { return fn(tx.Across(reason)) })
}

// SnapshotIn is Snapshot, scoped to one workspace.
func (d *DB) SnapshotIn(ctx context.Context, ws tenant.ID, fn func(Scoped) error) error {
	return d.snapshot(ctx, func(tx *Tx) error { return fn(tx.In(ws)) })
}

func (d *DB) snapshot(ctx context.Context, fn func(*Tx) error) error {
	options := &sql.TxOptions{ReadOnly: true, Isolation: sql.LevelRepeatableRead}
	if d.Engine == SQLite {
		options = nil // a read transaction of SQLite is a snapshot by itself
	}
	raw, err := d.read.BeginTx(ctx, options)
	if err != nil {
		return wrapUnavailable(fmt.Errorf("begin snapshot: %w", err))
	}
	defer func() { _ = raw.Rollback() }()
	return fn(&Tx{db: d, tx: raw})
}
