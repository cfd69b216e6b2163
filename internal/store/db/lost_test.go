package db_test

import (
	"context"
	"database/sql/driver"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgconn"

	"sovereign/internal/base/fault"
	"sovereign/internal/store/db"
	"sovereign/internal/store/db/dbtest"
)

// Whatever a caller of the database meets on a connection that was lost, it may try again.
func TestAStatementOnALostConnectionIsUnavailable(t *testing.T) {
	d := dbtest.Migrated(t, db.Postgres)
	_, err := d.Tx(t.Context(), func(tx *db.Tx) error {
		all := tx.Across("test")
		if _, err := db.One[bool](t.Context(), all, `SELECT pg_terminate_backend(pg_backend_pid())`); err == nil {
			t.Error("the connection is not lost")
		}
		_, err := db.One[int64](t.Context(), all, `SELECT 1`)
		return err
	})
	if !isUnavailable(err) {
		t.Errorf("a statement after that: %v", err)
	}
}

// Transactions go on with other connections when those of the pool are lost, or are told to try again.
func TestTransactionsOnLostConnectionsAreUnavailableOrRunOnOthers(t *testing.T) {
	d := dbtest.Migrated(t, db.Postgres)
	d.LimitIdle(2 * time.Second)
	for range 10 {
		var group sync.WaitGroup
		for range 20 {
			group.Go(func() {
				for range 10 {
					_, err := d.Tx(t.Context(), func(tx *db.Tx) error {
						_, err := db.One[int64](t.Context(), tx.Across("test"), `SELECT COUNT(*) FROM nodes`)
						return err
					})
					if err != nil && !isUnavailable(err) {
						t.Error(err)
					}
				}
			})
		}
		_, _ = db.Query[struct{ Ended bool }](context.Background(), d.Across("test"), `SELECT pg_terminate_backend(pid) AS ended
			FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()`)
		group.Wait()
	}
}

// pgx says so of a connection whose end it noticed while it read an earlier answer, and then no longer says why.
func TestAConnectionThatIsFoundClosedIsUnavailable(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		for _, lost := range []error{pgconn.ErrConnClosed, driver.ErrBadConn, io.ErrUnexpectedEOF, &net.OpError{Op: "read", Err: net.ErrClosed}} {
			if _, err := d.Tx(t.Context(), func(*db.Tx) error { return fmt.Errorf("store: %w", lost) }); !isUnavailable(err) {
				t.Errorf("%v becomes %v", lost, err)
			}
		}
	})
}

// A connection that takes longer than a connection may take is unavailable. When the time of the caller ends first, that
// says nothing of the database.
func TestAConnectionThatTakesTooLongIsUnavailable(t *testing.T) {
	silent, err := net.Listen("tcp", "127.0.0.1:0") // the kernel accepts, and nothing answers
	if err != nil {
		t.Fatal(err)
	}
	d := dbtest.Migrated(t, db.Postgres).At(netip.MustParseAddrPort(silent.Addr().String()))
	t.Cleanup(func() { _, _ = d.Close(), silent.Close() })
	query := func(ctx context.Context) error {
		_, err := db.One[int64](ctx, d.Across("test"), `SELECT 1`)
		return err
	}
	if err := query(t.Context()); !isUnavailable(err) {
		t.Errorf("a connection that takes too long: %v", err)
	}
	short, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	if err := query(short); !errors.Is(err, context.DeadlineExceeded) || isUnavailable(err) {
		t.Errorf("a caller without time: %v", err)
	}
}

func isUnavailable(err error) bool {
	var f *fault.Fault
	return errors.As(err, &f) && f.Kind == fault.Unavailable
}
