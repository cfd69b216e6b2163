package window_test

import (
	"context"
	"errors"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"sovereign/internal/base/secret"
	"sovereign/internal/store/db"
	"sovereign/internal/store/db/dbtest"
	"sovereign/internal/store/window"
)

// servers returns windows of as many servers as the engine admits, on one database.
func servers(t *testing.T, folder string, url secret.Text, most int, per time.Duration) (all []*window.Windows, d *db.DB) {
	d = dbtest.Open(t, folder, url)
	all = append(all, window.New(d, "test", most, per))
	for range 2 {
		if d.Engine == db.Postgres {
			all = append(all, window.New(dbtest.Open(t, folder, url), "test", most, per))
		}
	}
	return all, d
}

func TestAllServersTogetherGrantExactlyTheMost(t *testing.T) {
	dbtest.EachMigrated(t, func(t *testing.T, folder string, url secret.Text) {
		const most = 20
		all, _ := servers(t, folder, url, most, time.Hour)
		var granted, refused atomic.Int64
		var group sync.WaitGroup
		for caller := range 12 {
			group.Go(func() {
				for range 5 {
					wait, ok, err := all[caller%len(all)].Allow(t.Context(), "ws_a")
					switch {
					case err != nil:
						t.Error(err)
					case ok:
						granted.Add(1)
					case wait <= 0 || wait > time.Hour:
						t.Errorf("wait %v", wait)
					default:
						refused.Add(1)
					}
				}
			})
		}
		group.Wait()
		if granted.Load() != most || refused.Load() != 60-most {
			t.Errorf("%d were granted and %d refused", granted.Load(), refused.Load())
		}
		for _, w := range all {
			if _, ok, err := w.Allow(t.Context(), "ws_b"); !ok || err != nil {
				t.Errorf("another name: %v %v", ok, err)
			}
		}
	})
}

// Whoever waits as long as a refusal says is granted a start, on any server, and refusals do not extend the window.
func TestTheWaitIsTrueOnEveryServer(t *testing.T) {
	dbtest.EachMigrated(t, func(t *testing.T, folder string, url secret.Text) {
		all, _ := servers(t, folder, url, 2, 3*time.Second)
		var wait time.Duration
		for i := 0; wait == 0; i++ {
			var err error
			if wait, _, err = all[i%len(all)].Allow(t.Context(), "ws"); err != nil {
				t.Fatal(err)
			}
		}
		if wait > 3*time.Second {
			t.Fatalf("the wait is %v", wait)
		}
		for _, w := range all { // these extend nothing
			if _, _, err := w.Allow(t.Context(), "ws"); err != nil {
				t.Fatal(err)
			}
		}
		time.Sleep(wait)
		if _, ok, err := all[len(all)-1].Allow(t.Context(), "ws"); !ok || err != nil {
			t.Errorf("refused after the wait that was named: %v", err)
		}
	})
}

// A start counts although the transaction in whose name it was made is rolled back.
func TestAStartCountsWhateverBecomesOfTheTransaction(t *testing.T) {
	d := dbtest.Migrated(t, db.Postgres)
	w := window.New(d, "test", 1, time.Hour)
	undone := errors.New("undone")
	_, err := d.Tx(t.Context(), func(tx *db.Tx) error {
		_, ok, err := w.Allow(tx.Bind(t.Context()), "ws")
		if !ok || err != nil {
			t.Errorf("%v %v", ok, err)
		}
		return undone
	})
	if !errors.Is(err, undone) {
		t.Fatal(err)
	}
	if _, ok, err := window.New(d, "test", 1, time.Hour).Allow(t.Context(), "ws"); ok || err != nil {
		t.Errorf("it was forgotten: %v", err)
	}
}

// Rows of windows that are over are deleted, and a clock of the database that was set back refuses nobody for long.
func TestOldWindowsAreForgotten(t *testing.T) {
	ctx, d := context.Background(), dbtest.Migrated(t, db.Postgres)
	const minute = int64(time.Minute / time.Microsecond)
	now := time.Now().UnixMicro()
	for i, ends := range []int64{now - 5*minute, now - 2*minute, now + 1000*minute} {
		if _, err := db.Exec(ctx, d.Across("test"), `INSERT INTO guard_windows (kind, name, ends_at, used) VALUES ($1, $2, $3, 2)`,
			"test", "old"+strconv.Itoa(i), ends); err != nil {
			t.Fatal(err)
		}
	}
	w := window.New(d, "test", 2, time.Minute)
	if _, ok, err := w.Allow(ctx, "old2"); !ok || err != nil {
		t.Errorf("a window that ends in a day: %v", err)
	}
	left, err := db.Query[string](ctx, d.Across("test"), `SELECT name FROM guard_windows WHERE used = 2`)
	if err != nil || len(left) != 0 {
		t.Errorf("%v are left: %v", left, err)
	}
}
