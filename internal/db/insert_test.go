package db_test

import (
	"fmt"
	"reflect"
	"testing"

	"sovereign/internal/db"
	"sovereign/internal/db/dbtest"
)

// Whichever columns hold one value in all rows, and however many rows there are, every row arrives as it was given.
func TestWhatIsInsertedIsWhatIsRead(t *testing.T) {
	type row struct {
		Version, Seq               int64
		Kind, WorkspaceID, Subject string
		At                         int64
	}
	columns := []string{"version", "kind", "seq", "workspace_id", "at", "subject"}
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		all := d.Across("test")
		for _, many := range []int{1, 2, 31, 32, 33, 64, 65, 97, 200} {
			for shares := range 1 << 5 {
				var want []row
				var rows [][]any
				for i := range many {
					of := func(column int) int64 {
						if shares>>column&1 == 1 {
							return 0
						}
						return int64(i % 7)
					}
					r := row{of(0), int64(i), fmt.Sprint("k", of(1)), fmt.Sprint("ws_", of(2)), fmt.Sprint("s", of(3)), of(4)}
					want, rows = append(want, r), append(rows, []any{r.Version, r.Kind, r.Seq, r.WorkspaceID, r.At, r.Subject})
				}
				if _, err := db.Exec(t.Context(), all, `DELETE FROM feed_changes`); err != nil {
					t.Fatal(err)
				}
				if err := db.Insert(t.Context(), all, "feed_changes", columns, rows); err != nil {
					t.Fatal(err)
				}
				have, err := db.Query[row](t.Context(), all, `SELECT version, seq, kind, workspace_id, subject, at FROM feed_changes ORDER BY seq`)
				if err != nil || !reflect.DeepEqual(have, want) {
					t.Fatalf("%d rows, sharing %05b: %v\nhave %v\nwant %v", many, shares, err, have, want)
				}
			}
		}
	})
}

func TestARowThatDoesNotFitItsColumnsIsRefused(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		rows := [][]any{{"ws_1", "one", 1}, {"ws_2", "two"}}
		if err := db.Insert(t.Context(), d.Across("test"), "workspaces", []string{"workspace_id", "name", "created_at"}, rows); err == nil {
			t.Error("a short row went in")
		}
		if n, err := db.One[int64](t.Context(), d.Across("test"), `SELECT COUNT(*) FROM workspaces`); err != nil || n != 0 {
			t.Error(n, err)
		}
	})
}
