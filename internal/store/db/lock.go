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

// ErrTaken says that another process serves the same data.
var ErrTaken = errors.New("another sovereign process is using this data")

// LockFile is the file in the data folder whose lock says that a process serves it.
const LockFile = "lock"

// A FolderLock is held for as long as a process uses a data folder. It dies with the process, however that dies.
type FolderLock struct{ file *os.File }

// LockFolder takes the folder, or fails at once with ErrTaken.
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

// Release gives the folder free.
func (l *FolderLock) Release() error { return l.file.Close() }

// leaseKey names our advisory lock among those of a PostgreSQL database.
const leaseKey int64 = 0x536f7665726569 // "Soverei"

// A Lease is the right to serve a PostgreSQL database: an advisory lock on a connection of its own. It is lost with
// that connection, and whoever loses it must stop serving before anything else. SQLite needs none: the folder's lock
// is enough, and its Lease is always held.
type Lease struct {
	db   *DB
	conn *sql.Conn
}

// patience is how long a start waits for the lock of a server that was just killed: PostgreSQL keeps it until it
// notices that the connection is gone.
const patience = 5 * time.Second

// Lease takes the right to serve, or fails with ErrTaken when another server keeps it.
func (d *DB) Lease(ctx context.Context) (*Lease, error) {
	l := &Lease{db: d}
	if d.Engine == SQLite {
		return l, nil
	}
	for deadline := time.Now().Add(patience); ; {
		err := l.take(ctx)
		if !errors.Is(err, ErrTaken) || time.Now().After(deadline) {
			return l, err
		}
		if err := pause(ctx, 6); err != nil {
			return l, err
		}
	}
}

func (l *Lease) take(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, lookTime)
	defer cancel()
	conn, err := l.db.write.Conn(ctx)
	if err != nil {
		return wrap(fmt.Errorf("connect for the serving lock: %w", err))
	}
	var granted bool
	if err := conn.QueryRowContext(ctx, `SELECT pg_try_advisory_lock($1)`, leaseKey).Scan(&granted); err != nil {
		return errors.Join(wrap(fmt.Errorf("take the serving lock: %w", err)), conn.Close())
	}
	if !granted {
		return errors.Join(fmt.Errorf("%w (the PostgreSQL database is locked)", ErrTaken), conn.Close())
	}
	l.conn = conn
	return nil
}

// Watch looks at the lease until ctx ends. lost is called when it is gone, before another server can have served
// for longer than a look takes; regained when it is ours again, and must refill everything that was in memory.
func (l *Lease) Watch(ctx context.Context, every time.Duration, lost func(error), regained func(context.Context) error) {
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
			return // asked to end, not lost
		}
		if err != nil {
			held = false
			lost(err)
		}
	}
}

// refillTime bounds the refilling of what is in memory.
const refillTime = time.Minute

func (l *Lease) retake(ctx context.Context, regained func(context.Context) error) bool {
	if err := l.take(ctx); err != nil {
		return false
	}
	refill, cancel := context.WithTimeout(ctx, refillTime)
	defer cancel()
	if err := regained(refill); err != nil {
		l.drop()
		return false
	}
	return true
}

// lookTime bounds one look at the lock; a connection that swallows packets would otherwise be waited on for long.
const lookTime = 5 * time.Second

func (l *Lease) check(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, lookTime)
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
	// ErrBadConn makes the pool close the connection instead of keeping it, lock and all, for the next borrower.
	_ = l.conn.Raw(func(any) error { return driver.ErrBadConn })
	_ = l.conn.Close()
	l.conn = nil
}

// Release gives the database free.
func (l *Lease) Release() { l.drop() }
