package db_test

import (
	"context"
	"errors"
	"testing"

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
