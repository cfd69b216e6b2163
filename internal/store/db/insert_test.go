package db_test

import (
	"fmt"
	"reflect"
	"strconv"
	"testing"

	"sovereign/internal/store/db"
	"sovereign/internal/store/db/dbtest"
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
		for _, many := range []int{1, 2, 7, 8, 9, 63, 64, 65, 72, 200} {
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

// Equal rows are refused as duplicates, however many there are, and none of them is stored.
func TestRowsThatAreAllTheSameAreDuplicates(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		for _, many := range []int{2, 9, 100} {
			rows := make([][]any, many)
			for i := range rows {
				rows[i] = []any{"ws_1", "one", int64(1)}
			}
			err := db.Insert(t.Context(), d.Across("test"), "workspaces", []string{"workspace_id", "name", "created_at"}, rows)
			if !db.Duplicate(err) {
				t.Errorf("%d rows: %v", many, err)
			}
			if n, err := db.One[int64](t.Context(), d.Across("test"), `SELECT COUNT(*) FROM workspaces`); err != nil || n != 0 {
				t.Error(n, err)
			}
		}
	})
}

// More different statements than the cache holds, each used again later.
func TestStatementsThatLeftTheCacheArePreparedAgain(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		all, columns := d.Across("test"), []string{"version", "seq", "kind", "workspace_id", "subject", "at"}
		n := int64(0)
		for range 2 {
			for shares := range 1 << 4 {
				for _, many := range []int{8, 64, 1} {
					rows := make([][]any, many)
					for i := range rows {
						of := func(column int) string { return strconv.Itoa(i * (shares >> column & 1)) }
						n++
						rows[i] = []any{int64(1), n, of(0), of(1), of(2), int64(i * (shares >> 3 & 1))}
					}
					if err := db.Insert(t.Context(), all, "feed_changes", columns, rows); err != nil {
						t.Fatal(err)
					}
				}
			}
		}
		if have, err := db.One[int64](t.Context(), all, `SELECT COUNT(*) FROM feed_changes`); err != nil || have != n {
			t.Error(have, n, err)
		}
	})
}

// Existing rows are updated and the others inserted.
func TestAnUpsertAddsWhatIsMissingAndChangesTheRest(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		all := d.Across("test")
		columns := []string{"version", "seq", "kind", "workspace_id", "subject", "at"}
		for _, many := range []int{1, 33, 100} {
			if _, err := db.Exec(t.Context(), all, `DELETE FROM feed_changes`); err != nil {
				t.Fatal(err)
			}
			for round, from := range []int{0, many / 2} {
				var rows [][]any
				for i := range many {
					rows = append(rows, []any{int64(1), int64(from + i), fmt.Sprint("k", round), "ws_1", "s", int64(round)})
				}
				if err := db.Upsert(t.Context(), all, "feed_changes", columns, 2, rows); err != nil {
					t.Fatal(err)
				}
			}
			type row struct {
				Seq, At int64
				Kind    string
			}
			have, err := db.Query[row](t.Context(), all, `SELECT seq, at, kind FROM feed_changes ORDER BY seq`)
			if err != nil || len(have) != many+many/2 {
				t.Fatalf("%d rows of %d: %v", len(have), many+many/2, err)
			}
			for i, r := range have {
				round := int64(0)
				if i >= many/2 {
					round = 1
				}
				if want := (row{int64(i), round, fmt.Sprint("k", round)}); r != want {
					t.Fatalf("%+v, want %+v", r, want)
				}
			}
		}
	})
}
