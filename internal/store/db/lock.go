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

// Our keys among the advisory locks of a PostgreSQL database. Releases that served alone kept leaseKey for as long as
// they ran; a start shares it, so that it refuses, and is refused by, such a server. startKey is of the start that
// changes the schema.
const (
	leaseKey int64 = 0x536f7665726569 // "Soverei"
	startKey int64 = 0x536f7665726570
)

const (
	// leaseWait is how long a start waits for the lock of a server that was just killed: PostgreSQL keeps it until it
	// notices that the connection is gone.
	leaseWait = 5 * time.Second
	// startWait is how long a start waits for the schema changes of another.
	startWait = 5 * time.Minute
)

// LockStart takes the right to bring the schema up to date, and returns what gives it back. It waits for the start of
// another server, and fails with ErrTaken when a server of a release that serves alone uses the database. SQLite needs
// no such lock, because the folder's is enough.
func (d *DB) LockStart(ctx context.Context) (unlock func(), err error) {
	if d.Engine == SQLite {
		return func() {}, nil
	}
	conn, err := d.write.Conn(ctx)
	if err != nil {
		return nil, wrapUnavailable(fmt.Errorf("connect for the lock of a start: %w", err))
	}
	unlock = func() {
		// ErrBadConn makes the pool close the connection, and so PostgreSQL give up the locks.
		_ = conn.Raw(func(any) error { return driver.ErrBadConn })
		_ = conn.Close()
	}
	err = lock(ctx, conn, `SELECT pg_try_advisory_lock_shared($1)`, leaseKey, leaseWait,
		"a server of an earlier release, which serves alone, has locked the PostgreSQL database")
	if err == nil {
		err = lock(ctx, conn, `SELECT pg_try_advisory_lock($1)`, startKey, startWait,
			"it is starting or restoring, and has locked the schema of the PostgreSQL database")
	}
	if err != nil {
		unlock()
		return nil, err
	}
	return unlock, nil
}

func lock(ctx context.Context, conn *sql.Conn, try string, key int64, patience time.Duration, holder string) error {
	for deadline := time.Now().Add(patience); ; {
		var granted bool
		if err := conn.QueryRowContext(ctx, try, key).Scan(&granted); err != nil {
			return wrapUnavailable(fmt.Errorf("take the lock of a start: %w", err))
		}
		if granted {
			return nil
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("%w (%s)", ErrTaken, holder)
		}
		if err := backoff(ctx, 6); err != nil {
			return err
		}
	}
}
