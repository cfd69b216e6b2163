package db_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"sovereign/internal/base/fault"
	"sovereign/internal/base/secret"
	"sovereign/internal/base/tenant"
	"sovereign/internal/store/db"
	"sovereign/internal/store/db/dbtest"
)

func addWorkspace(t *testing.T, d *db.DB, ws tenant.ID) {
	t.Helper()
	_, err := db.Exec(t.Context(), d.In(ws), `INSERT INTO workspaces (workspace_id, name, created_at) VALUES ($1, $2, $3)`, "name of "+string(ws), 1)
	if err != nil {
		t.Fatal(err)
	}
}

func TestScopeCannotBeForgotten(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		addWorkspace(t, d, "ws_a")
		addWorkspace(t, d, "ws_b")
		ctx := t.Context()

		names, err := db.Query[string](ctx, d.In("ws_a"), `SELECT name FROM workspaces WHERE workspace_id = $1`)
		if err != nil || len(names) != 1 || names[0] != "name of ws_a" {
			t.Fatalf("own workspace: %v %v", names, err)
		}
		for _, text := range []string{
			`SELECT name FROM workspaces`,
			`SELECT name FROM workspaces WHERE workspace_id = $2`,
			`SELECT name FROM workspaces WHERE name = $1`,
			`DELETE FROM workspaces`,
			`UPDATE workspaces SET name = $1`,
			`INSERT INTO workspaces (name, workspace_id, created_at) VALUES ($1, 'ws_b', 1)`,
		} {
			if _, err := db.Query[string](ctx, d.In("ws_a"), text); !errors.Is(err, db.ErrScope) {
				t.Errorf("%s: want ErrScope, got %v", text, err)
			}
			if _, err := db.Exec(ctx, d.In("ws_a"), text); !errors.Is(err, db.ErrScope) {
				t.Errorf("exec %s: want ErrScope, got %v", text, err)
			}
		}
		if _, err := db.Query[string](ctx, d.In(""), `SELECT name FROM workspaces WHERE workspace_id = $1`); !errors.Is(err, db.ErrScope) {
			t.Errorf("empty workspace: want ErrScope, got %v", err)
		}
		if err := db.Insert(ctx, d.In("ws_a"), "workspaces", []string{"name"}, nil); !errors.Is(err, db.ErrScope) {
			t.Errorf("bulk insert: want ErrScope, got %v", err)
		}
	})
}

func TestTextThatOneEngineCannotKeepIsRefusedByBoth(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		for _, text := range []string{"a\x00b", "a\xffb"} {
			_, err := db.Query[string](t.Context(), d.In("ws_a"), `SELECT name FROM workspaces WHERE workspace_id = $1 AND name = $2`, text)
			if f := fault.From(err); err == nil || f.Status != 400 {
				t.Errorf("%q: %v", text, err)
			}
		}
	})
}

func TestVersionsCommitInOrderAndRollBackWithTheirTransaction(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		const writers, each = 8, 10
		var mu sync.Mutex
		seen := map[db.Version]bool{}
		var group sync.WaitGroup
		for w := range writers {
			group.Go(func() {
				for i := range each {
					version, err := d.Tx(context.Background(), func(tx *db.Tx) error {
						tx.Touch("test", "ws", fmt.Sprint(w, i))
						return nil
					})
					if err != nil {
						t.Error(err)
						return
					}
					mu.Lock()
					seen[version] = true
					mu.Unlock()
				}
			})
		}
		group.Wait()
		if len(seen) != writers*each || !seen[1] || !seen[writers*each] {
			t.Errorf("want versions 1 to %d, got %d of them", writers*each, len(seen))
		}
		boom := errors.New("boom")
		if _, err := d.Tx(t.Context(), func(tx *db.Tx) error { tx.Touch("test", "ws", "x"); return boom }); !errors.Is(err, boom) {
			t.Errorf("want boom, got %v", err)
		}
		head, err := db.One[db.Version](t.Context(), d.Across("test"), `SELECT version FROM feed_head`)
		if err != nil || head != writers*each {
			t.Errorf("head = %d %v", head, err)
		}
	})
}

// A read that a concurrent writer makes stale must not be written back: the classic lost update.
func TestTransactionsAreSerializable(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		addWorkspace(t, d, "ws_a")
		var group sync.WaitGroup
		const writers = 12
		for range writers {
			group.Go(func() {
				_, err := d.Tx(context.Background(), func(tx *db.Tx) error {
					at, err := db.One[int64](context.Background(), tx.In("ws_a"), `SELECT created_at FROM workspaces WHERE workspace_id = $1`)
					if err != nil {
						return err
					}
					_, err = db.Exec(context.Background(), tx.In("ws_a"), `UPDATE workspaces SET created_at = $2 WHERE workspace_id = $1`, at+1)
					return err
				})
				if err != nil {
					t.Error(err)
				}
			})
		}
		group.Wait()
		at, err := db.One[int64](t.Context(), d.In("ws_a"), `SELECT created_at FROM workspaces WHERE workspace_id = $1`)
		if err != nil || at != 1+writers {
			t.Errorf("want %d, got %d %v", 1+writers, at, err)
		}
	})
}

func TestNestedTransactionIsUndoneAloneAndCommitsWithTheOuter(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		boom := errors.New("boom")
		version, err := d.Tx(t.Context(), func(tx *db.Tx) error {
			ctx := tx.Bind(t.Context())
			inner, err := d.Tx(ctx, func(tx *db.Tx) error {
				tx.Touch("test", "ws_a", "kept")
				_, err := db.Exec(ctx, tx.In("ws_a"), `INSERT INTO workspaces (workspace_id, name, created_at) VALUES ($1, 'a', 1)`)
				return err
			})
			if err != nil || inner != 0 {
				return fmt.Errorf("inner: version %d, %w", inner, err)
			}
			if _, err := d.Tx(ctx, func(tx *db.Tx) error {
				tx.Touch("test", "ws_b", "undone")
				if _, err := db.Exec(ctx, tx.In("ws_b"), `INSERT INTO workspaces (workspace_id, name, created_at) VALUES ($1, 'b', 1)`); err != nil {
					return err
				}
				return boom
			}); !errors.Is(err, boom) {
				return fmt.Errorf("want boom: %w", err)
			}
			// What is not yet committed is visible to reads that carry the context, and to them alone.
			if n, err := db.One[int](ctx, d.Across("test"), `SELECT COUNT(*) FROM workspaces`); err != nil || n != 1 {
				return fmt.Errorf("inside: %d %w", n, err)
			}
			if n, err := db.One[int](t.Context(), d.Across("test"), `SELECT COUNT(*) FROM workspaces`); err != nil || n != 0 {
				return fmt.Errorf("outside: %d %w", n, err)
			}
			return nil
		})
		if err != nil || version != 1 {
			t.Fatalf("version %d, %v", version, err)
		}
		subjects, err := db.Query[string](t.Context(), d.Across("test"), `SELECT subject FROM feed_changes`)
		if err != nil || len(subjects) != 1 || subjects[0] != "kept" {
			t.Errorf("published %v %v", subjects, err)
		}
	})
}

func TestMigrateTwiceIsOnceAndNewerIsRefused(t *testing.T) {
	dbtest.EachURL(t, func(t *testing.T, folder string, url secret.Text) {
		d := dbtest.Open(t, folder, url)
		for range 2 {
			if err := d.Migrate(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		if _, err := db.Exec(t.Context(), d.Across("test"), `INSERT INTO goose_db_version (version_id, is_applied) VALUES (99999, TRUE)`); err != nil {
			t.Fatal(err)
		}
		if err := d.Migrate(t.Context()); !errors.Is(err, db.ErrNewer) {
			t.Errorf("want ErrNewer, got %v", err)
		}
	})
}

func TestASecondServerOfADataFolderIsRefused(t *testing.T) {
	folder := t.TempDir()
	first, err := db.LockFolder(folder)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := db.LockFolder(folder); !errors.Is(err, db.ErrTaken) {
		t.Errorf("want ErrTaken, got %v", err)
	}
	if err := first.Release(); err != nil {
		t.Fatal(err)
	}
	again, err := db.LockFolder(folder)
	if err != nil {
		t.Fatal(err)
	}
	_ = again.Release()
}

func TestStartsChangeTheSchemaOneAfterAnother(t *testing.T) {
	url := dbtest.Postgres(t)
	one, other := dbtest.Open(t, t.TempDir(), url), dbtest.Open(t, t.TempDir(), url)
	unlock, err := one.LockStart(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	var first atomic.Bool
	second := make(chan error, 1)
	go func() {
		unlock, err := other.LockStart(context.Background())
		if err == nil {
			if !first.Load() {
				err = errors.New("both have the lock")
			}
			unlock()
		}
		second <- err
	}()
	time.Sleep(100 * time.Millisecond) // for the other to get it wrongly
	first.Store(true)
	unlock()
	if err := <-second; err != nil {
		t.Error(err)
	}
}

// Releases that served alone kept a lock for as long as they ran.
func TestAStartIsRefusedWhileAnEarlierReleaseServesAlone(t *testing.T) {
	url := dbtest.Postgres(t)
	d, earlier := dbtest.Open(t, t.TempDir(), url), dbtest.Open(t, t.TempDir(), url)
	const lock = `SELECT pg_try_advisory_lock($1)`
	conn, err := earlier.Pool().Conn(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close() }()
	granted := false
	if err := conn.QueryRowContext(t.Context(), lock, int64(0x536f7665726569)).Scan(&granted); err != nil || !granted {
		t.Fatal(granted, err)
	}
	if _, err := d.LockStart(t.Context()); !errors.Is(err, db.ErrTaken) {
		t.Errorf("want ErrTaken, got %v", err)
	}
	if _, err := conn.ExecContext(t.Context(), `SELECT pg_advisory_unlock_all()`); err != nil {
		t.Fatal(err)
	}
	unlock, err := d.LockStart(t.Context())
	if err != nil {
		t.Fatalf("after it has stopped: %v", err)
	}
	defer unlock()
	if err := conn.QueryRowContext(t.Context(), lock, int64(0x536f7665726569)).Scan(&granted); err != nil || granted {
		t.Errorf("an earlier release gets its lock during a start: %v, %v", granted, err)
	}
}

func TestFieldsOfEmbeddedStructsAreColumnsAndOwnFieldsTakePrecedence(t *testing.T) {
	type Deep struct{ Done, Total int64 }
	type Part struct {
		Deep
		Name  string
		Cause *string `db:"reason"`
	}
	type whole struct {
		Part
		ID   string
		Mine string `db:"name"`
	}
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		got, err := db.One[whole](t.Context(), d.Across("test"), `SELECT 'a' AS id, 'b' AS name, CAST(3 AS BIGINT) AS done, CAST(4 AS BIGINT) AS total, 'c' AS reason`)
		if err != nil || got.ID != "a" || got.Mine != "b" || got.Name != "" || got.Done != 3 || got.Total != 4 || got.Cause == nil || *got.Cause != "c" {
			t.Errorf("%+v %v", got, err)
		}
		if _, err := db.One[whole](t.Context(), d.Across("test"), `SELECT 1 AS nothing`); err == nil {
			t.Error("a column without a field is read")
		}
	})
}
