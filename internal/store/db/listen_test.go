package db_test

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"testing"
	"time"

	"sovereign/internal/store/db"
	"sovereign/internal/store/db/dbtest"
)

func TestListenersAreCalledOnceAfterTheCommitAndNotAfterARollback(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		calls, during := 0, 0
		d.Listen("jobs", func() { calls++ })
		d.Listen("other", func() { t.Error("the listener of another topic was called") })
		refused := errors.New("refused")

		if _, err := d.Tx(t.Context(), func(tx *db.Tx) error {
			tx.Signal("jobs")
			return refused
		}); !errors.Is(err, refused) || calls != 0 {
			t.Fatalf("after a rollback: %d calls, error %v", calls, err)
		}
		if _, err := d.Tx(t.Context(), func(tx *db.Tx) error {
			tx.Signal("jobs")
			tx.Signal("jobs")
			during = calls
			_, err := d.Tx(tx.Bind(t.Context()), func(nested *db.Tx) error {
				nested.Signal("other")
				return refused
			})
			if !errors.Is(err, refused) {
				return errors.Join(errors.New("the nested transaction was not refused"), err)
			}
			return nil
		}); err != nil {
			t.Fatal(err)
		}
		if during != 0 || calls != 1 {
			t.Errorf("%d calls during the transaction and %d after it, want 0 and 1", during, calls)
		}
	})
}

func TestASignalOfANestedTransactionWaitsForTheOuterCommit(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		calls, during := 0, 0
		d.Listen("jobs", func() { calls++ })
		if _, err := d.Tx(t.Context(), func(tx *db.Tx) error {
			_, err := d.Tx(tx.Bind(context.Background()), func(nested *db.Tx) error {
				nested.Signal("jobs")
				return nil
			})
			during = calls
			return err
		}); err != nil {
			t.Fatal(err)
		}
		if during != 0 || calls != 1 {
			t.Errorf("%d calls before the outer commit and %d after it, want 0 and 1", during, calls)
		}
	})
}

// A server hears what another signals and touches, once committed, and not what it signals itself a second time.
func TestListenersHearOtherServers(t *testing.T) {
	url := dbtest.Postgres(t)
	one, other := dbtest.Open(t, t.TempDir(), url), dbtest.Open(t, t.TempDir(), url)
	if err := one.Migrate(t.Context()); err != nil {
		t.Fatal(err)
	}
	heard := make(chan string, 64)
	for _, topic := range []string{"jobs", db.FeedTopic, "own"} {
		other.Listen(topic, func() { heard <- topic })
	}
	hear(t, other)
	for range 3 { // when it listens, everything may have happened before
		<-heard
	}
	signal := func(d *db.DB, topic string, refusal error) {
		t.Helper()
		if _, err := d.Tx(t.Context(), func(tx *db.Tx) error {
			tx.Signal(topic)
			return refusal
		}); !errors.Is(err, refusal) {
			t.Fatal(err)
		}
	}
	signal(one, "jobs", errors.New("refused"))
	signal(other, "own", nil)
	if got := <-heard; got != "own" {
		t.Errorf("heard %s, want own", got)
	}
	if _, err := one.Tx(t.Context(), func(tx *db.Tx) error { tx.Touch("key", "ws_1", "k"); return nil }); err != nil {
		t.Fatal(err)
	}
	if got := <-heard; got != db.FeedTopic {
		t.Errorf("heard %s, want %s", got, db.FeedTopic)
	}
	signal(one, "jobs", nil)
	if got := <-heard; got != "jobs" {
		t.Errorf("heard %s, want jobs", got)
	}
}

// After its connection was cut, a server hears again, and is woken for what it may have missed.
func TestListenersAreCalledWhenTheConnectionIsBack(t *testing.T) {
	d := dbtest.Migrated(t, db.Postgres)
	heard := make(chan struct{}, 64)
	d.Listen("jobs", func() { heard <- struct{}{} })
	hear(t, d)
	<-heard
	const cut = `SELECT COUNT(pg_terminate_backend(pid)) FROM pg_stat_activity WHERE datname = current_database() AND query LIKE 'LISTEN%'`
	if n, err := db.One[int](t.Context(), d.Across("test"), cut); err != nil || n != 1 {
		t.Fatal(n, err)
	}
	<-heard
}

func hear(t *testing.T, d *db.DB) {
	t.Helper()
	ctx, stop := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() { d.Hear(ctx, slog.New(slog.DiscardHandler)); close(done) }()
	t.Cleanup(func() { stop(); <-done })
}

// A transaction that waits for too long loses its locks, and is run again.
func TestATransactionThatIsIdleForTooLongIsRunAgain(t *testing.T) {
	d := dbtest.Migrated(t, db.Postgres)
	d.LimitIdle(200 * time.Millisecond)
	runs := 0
	var outcomes []db.Outcome
	version, err := d.Tx(t.Context(), func(tx *db.Tx) error {
		runs++
		tx.OnEnd(func(o db.Outcome) { outcomes = append(outcomes, o) })
		tx.Touch("key", "ws_1", "k")
		if _, err := db.Exec(t.Context(), tx.Across("test"), `UPDATE feed_head SET version = version`); err != nil {
			return err
		}
		if runs == 1 {
			time.Sleep(time.Second) // as a process that was stopped does
			_, err := db.Exec(t.Context(), d.Across("test"), `UPDATE feed_head SET version = version`)
			if err != nil {
				t.Errorf("the row is still locked: %v", err)
			}
		}
		return nil
	})
	if err != nil || version != 1 || runs != 2 || !slices.Equal(outcomes, []db.Outcome{db.RolledBack, db.Committed}) {
		t.Errorf("version %d after %d runs, %v, %v", version, runs, outcomes, err)
	}
}
