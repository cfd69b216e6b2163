package db_test

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"

	"sovereign/internal/store/db"
	"sovereign/internal/store/db/dbtest"
)

func TestAFunctionIsToldOnceWhatBecameOfItsTransaction(t *testing.T) {
	boom := errors.New("boom")
	for name, one := range map[string]struct {
		run  func(ctx context.Context, d *db.DB, note func(*db.Tx, string))
		want string // the notes, in order
	}{
		"committed": {func(ctx context.Context, d *db.DB, note func(*db.Tx, string)) {
			_, _ = d.Tx(ctx, func(tx *db.Tx) error { note(tx, "a"); note(tx, "b"); return nil })
		}, "b committed, a committed"},
		"rolled back": {func(ctx context.Context, d *db.DB, note func(*db.Tx, string)) {
			_, _ = d.Tx(ctx, func(tx *db.Tx) error { note(tx, "a"); return boom })
		}, "a rolled back"},
		"panicked": {func(ctx context.Context, d *db.DB, note func(*db.Tx, string)) {
			defer func() { _ = recover() }()
			_, _ = d.Tx(ctx, func(tx *db.Tx) error { note(tx, "a"); panic(boom) })
		}, "a rolled back"},
		"a savepoint is rolled back": {func(ctx context.Context, d *db.DB, note func(*db.Tx, string)) {
			_, _ = d.Tx(ctx, func(tx *db.Tx) error {
				note(tx, "a")
				_, _ = d.Tx(tx.Bind(ctx), func(tx *db.Tx) error { note(tx, "b"); return boom })
				note(tx, "c")
				return nil
			})
		}, "b rolled back, c committed, a committed"},
		"the outer one is rolled back": {func(ctx context.Context, d *db.DB, note func(*db.Tx, string)) {
			_, _ = d.Tx(ctx, func(tx *db.Tx) error {
				_, _ = d.Tx(tx.Bind(ctx), func(tx *db.Tx) error { note(tx, "a"); return nil })
				return boom
			})
		}, "a rolled back"},
		"the outer one commits": {func(ctx context.Context, d *db.DB, note func(*db.Tx, string)) {
			_, _ = d.Tx(ctx, func(tx *db.Tx) error {
				_, err := d.Tx(tx.Bind(ctx), func(tx *db.Tx) error { note(tx, "a"); return nil })
				return err
			})
		}, "a committed"},
		"the commit fails": {func(ctx context.Context, d *db.DB, note func(*db.Tx, string)) {
			ctx, cancel := context.WithCancel(ctx)
			_, _ = d.Tx(ctx, func(tx *db.Tx) error { note(tx, "a"); cancel(); return nil })
		}, "a in doubt"},
	} {
		t.Run(name, func(t *testing.T) {
			dbtest.Each(t, func(t *testing.T, d *db.DB) {
				got := ""
				one.run(t.Context(), d, func(tx *db.Tx, name string) {
					tx.OnEnd(func(o db.Outcome) {
						if got != "" {
							got += ", "
						}
						got += name + map[db.Outcome]string{db.Committed: " committed", db.RolledBack: " rolled back", db.InDoubt: " in doubt"}[o]
					})
				})
				if got != one.want {
					t.Errorf("%s, want %s", got, one.want)
				}
			})
		})
	}
}

// A transaction that PostgreSQL aborts is run again: every run is told that it was rolled back, but the last.
func TestEveryRunOfATransactionIsToldItsOwnEnd(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		addWorkspace(t, d, "ws_a")
		const writers = 12
		var runs, rolledBack, committed, inDoubt atomic.Int64
		var group sync.WaitGroup
		for range writers {
			group.Go(func() {
				_, err := d.Tx(context.Background(), func(tx *db.Tx) error {
					runs.Add(1)
					tx.OnEnd(func(o db.Outcome) {
						map[db.Outcome]*atomic.Int64{db.RolledBack: &rolledBack, db.Committed: &committed, db.InDoubt: &inDoubt}[o].Add(1)
					})
					_, err := db.Exec(context.Background(), tx.In("ws_a"), `UPDATE workspaces SET created_at = created_at + 1 WHERE workspace_id = $1`)
					return err
				})
				if err != nil {
					t.Error(err)
				}
			})
		}
		group.Wait()
		if committed.Load() != writers || inDoubt.Load() != 0 || rolledBack.Load() != runs.Load()-writers {
			t.Errorf("of %d runs %d committed, %d were rolled back, %d are in doubt", runs.Load(), committed.Load(), rolledBack.Load(), inDoubt.Load())
		}
	})
}
