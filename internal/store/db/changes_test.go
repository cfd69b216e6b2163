package db_test

import (
	"testing"

	"sovereign/internal/base/secret"
	"sovereign/internal/store/db"
	"sovereign/internal/store/db/dbtest"
)

func TestChangesDiffersAfterEveryCommitOfAnyConnection(t *testing.T) {
	dbtest.EachURL(t, func(t *testing.T, folder string, url secret.Text) {
		d, other := dbtest.Open(t, folder, url), dbtest.Open(t, folder, url)
		if err := d.Migrate(t.Context()); err != nil {
			t.Fatal(err)
		}
		seen := map[uint64]bool{0: true}
		for i := range 20 {
			now := d.Changes(t.Context())
			if seen[now] {
				t.Fatalf("%d again, after change %d", now, i)
			}
			seen[now] = true
			if d.Engine == db.SQLite && d.Changes(t.Context()) != now {
				t.Error("another number, and nothing has changed")
			}
			by := []*db.DB{d, other}[i%2]
			var err error
			if i%4 < 2 {
				_, err = by.Tx(t.Context(), func(tx *db.Tx) error { tx.Touch("test", "ws", "x"); return nil })
			} else {
				_, err = db.Exec(t.Context(), by.Across("test"), `UPDATE feed_head SET version = version + 1`)
			}
			if err != nil {
				t.Fatal(err)
			}
		}
	})
}

func TestChangesOfAClosedDatabaseDiffersEachTime(t *testing.T) {
	d, err := db.Open(t.Context(), t.TempDir(), secret.Text{})
	if err != nil {
		t.Fatal(err)
	}
	before := d.Changes(t.Context())
	if err := d.Close(); err != nil {
		t.Fatal(err)
	}
	if first := d.Changes(t.Context()); first == before || first == d.Changes(t.Context()) {
		t.Errorf("%d is told again", first)
	}
}
