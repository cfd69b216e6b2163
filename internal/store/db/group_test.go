package db_test

import (
	"context"
	"errors"
	"runtime"
	"slices"
	"sync"
	"testing"

	"sovereign/internal/store/db"
	"sovereign/internal/store/db/dbtest"
)

// Values that come while a transaction runs are written together. One that cannot be written fails alone.
func TestAGroupWritesTogetherAndFailsAlone(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		if _, err := db.Exec(t.Context(), d.Across("test"), `CREATE TABLE written (n BIGINT NOT NULL PRIMARY KEY)`); err != nil {
			t.Fatal(err)
		}
		const bad = 7
		refused := errors.New("refused")
		var mu sync.Mutex
		var sizes []int
		began, opened := make(chan struct{}), make(chan struct{})
		g := db.NewGroup(d, func(ctx context.Context, tx *db.Tx, all []int) error {
			mu.Lock()
			sizes = append(sizes, len(all))
			begins := len(sizes) == 1
			mu.Unlock()
			if begins {
				close(began)
				<-opened
			}
			rows := make([][]any, len(all))
			for i, n := range all {
				if rows[i] = []any{int64(n)}; n == bad {
					return refused
				}
			}
			return db.Insert(ctx, tx.Across("test"), "written", []string{"n"}, rows)
		})
		errs := make([]error, 21)
		var group sync.WaitGroup
		group.Go(func() { errs[20] = g.Do(20) })
		<-began
		for i := range 20 {
			group.Go(func() { errs[i] = g.Do(i) })
		}
		for g.Waiting() < 20 {
			runtime.Gosched()
		}
		close(opened)
		group.Wait()
		for i, err := range errs {
			if (i == bad) != errors.Is(err, refused) || i != bad && err != nil {
				t.Errorf("%d: %v", i, err)
			}
		}
		n, err := db.One[int64](t.Context(), d.Across("test"), `SELECT COUNT(*) FROM written`)
		if err != nil || n != 20 {
			t.Errorf("%d rows, %v", n, err)
		}
		if !slices.Equal(sizes[:2], []int{1, 20}) || len(sizes) != 22 {
			t.Errorf("transactions of %v", sizes)
		}
	})
}
