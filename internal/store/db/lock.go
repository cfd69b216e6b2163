package db

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

// ErrTaken reports that another process serves the same data.
var ErrTaken = errors.New("another sovereign process is using this data")

// LockFile is the file in the data folder whose flock a serving process holds.
const LockFile = "lock"

// A FolderLock is the exclusive use of a data folder. The kernel releases it when the process ends, in whatever way.
type FolderLock struct{ file *os.File }

// LockFolder locks the folder, or fails at once with ErrTaken.
func LockFolder(folder string) (*FolderLock, error) {
	path := filepath.Join(folder, LockFile)
	file, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o600) //nolint:gosec // the operator's own path
	if err != nil {
		return nil, err
	}
	if err := syscall.Flock(int(file.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		holder, _ := os.ReadFile(path) //nolint:gosec // as above; without it the message only lacks a number
		_ = file.Close()
		if errors.Is(err, syscall.EWOULDBLOCK) {
			return nil, fmt.Errorf("%w (%s)", ErrTaken, strings.TrimSpace(folder+" process "+string(holder)))
		}
		return nil, fmt.Errorf("lock %s: %w", path, err)
	}
	if err := errors.Join(file.Truncate(0), writeAt(file, fmt.Sprintln(os.Getpid()))); err != nil {
		return nil, errors.Join(fmt.Errorf("write %s: %w", path, err), file.Close())
	}
	return &FolderLock{file: file}, nil
}

func writeAt(file *os.File, text string) error {
	_, err := file.WriteAt([]byte(text), 0)
	return err
}

// Release unlocks the folder.
func (l *FolderLock) Release() error { return l.file.Close() }

// leaseKey is our key among the advisory locks of a PostgreSQL database.
const leaseKey int64 = 0x536f7665726569 // "Soverei"

// A Lease is the right to serve a PostgreSQL database: an advisory lock on a connection of its own. It is lost with
// that connection, and a process that loses it must stop serving before anything else. SQLite needs none, because the
// folder's lock is enough: its Lease is always held.
type Lease struct {
	db   *DB
	conn *sql.Conn
}

// leaseWait is how long a start waits for the lock of a server that was just killed: PostgreSQL keeps it until it
// notices that the connection is gone.
const leaseWait = 5 * time.Second

// Lease takes the lease, or fails with ErrTaken when another server keeps it.
func (d *DB) Lease(ctx context.Context) (*Lease, error) {
	l := &Lease{db: d}
	if d.Engine == SQLite {
		return l, nil
	}
	for deadline := time.Now().Add(leaseWait); ; {
		err := l.take(ctx)
		if !errors.Is(err, ErrTaken) || time.Now().After(deadline) {
			return l, err
		}
		if err := backoff(ctx, 6); err != nil {
			return l, err
		}
	}
}

func (l *Lease) take(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, leaseQueryTimeout)
	defer cancel()
	conn, err := l.db.write.Conn(ctx)
	if err != nil {
		return wrapUnavailable(fmt.Errorf("connect for the serving lock: %w", err))
	}
	var granted bool
	if err := conn.QueryRowContext(ctx, `SELECT pg_try_advisory_lock($1)`, leaseKey).Scan(&granted); err != nil {
		return errors.Join(wrapUnavailable(fmt.Errorf("take the serving lock: %w", err)), conn.Close())
	}
	if !granted {
		return errors.Join(fmt.Errorf("%w (the PostgreSQL database is locked)", ErrTaken), conn.Close())
	}
	l.conn = conn
	return nil
}

// Monitor checks the lease until ctx ends. It calls lost when the lease is gone, within one interval and the timeout
// of one check. It calls regained when the lease is ours again; regained must reload everything that is kept in
// memory.
func (l *Lease) Monitor(
	ctx context.Context, every time.Duration, lost func(error), regained func(context.Context) error,
) {
	if l.db.Engine == SQLite {
		return
	}
	tick := time.NewTicker(every)
	defer tick.Stop()
	held := true
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		if !held {
			held = l.retake(ctx, regained)
			continue
		}
		err := l.check(ctx)
		if ctx.Err() != nil {
			return // ctx ended; the lease is not lost
		}
		if err != nil {
			held = false
			lost(err)
		}
	}
}

// refillTimeout bounds regained.
const refillTimeout = time.Minute

func (l *Lease) retake(ctx context.Context, regained func(context.Context) error) bool {
	if err := l.take(ctx); err != nil {
		return false
	}
	refill, cancel := context.WithTimeout(ctx, refillTimeout)
	defer cancel()
	if err := regained(refill); err != nil {
		l.drop()
		return false
	}
	return true
}

// leaseQueryTimeout bounds one query of the lock: a connection whose packets are dropped would otherwise block until
// TCP gives up.
const leaseQueryTimeout = 5 * time.Second

func (l *Lease) check(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, leaseQueryTimeout)
	defer cancel()
	var one int
	if err := l.conn.QueryRowContext(ctx, `SELECT 1`).Scan(&one); err != nil {
		l.drop()
		return err
	}
	return nil
}

func (l *Lease) drop() {
	if l.conn == nil {
		return
	}
	// ErrBadConn makes the pool close the connection instead of keeping it, with its lock, for the next borrower.
	_ = l.conn.Raw(func(any) error { return driver.ErrBadConn })
	_ = l.conn.Close()
	l.conn = nil
}

// Release gives up the lease.
func (l *Lease) Release() { l.drop() }
