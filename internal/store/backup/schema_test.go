package backup_test

import (
	"bytes"
	"context"
	"testing"

	"sovereign/internal/base/secret"
	"sovereign/internal/store/backup"
	"sovereign/internal/store/db"
	"sovereign/internal/store/db/dbtest"
)

// A PostgreSQL database may keep our tables in a schema of their own, beside tables that are not ours.
func TestBackupFollowsTheSearchPath(t *testing.T) {
	url := dbtest.Postgres(t)
	plain := dbtest.Open(t, t.TempDir(), url)
	for _, statement := range []string{`CREATE SCHEMA mine`, `CREATE TABLE public.foreign_table (at TIMESTAMP)`} {
		if _, err := db.Exec(t.Context(), plain.Across("test"), statement); err != nil {
			t.Fatal(err)
		}
	}
	d := dbtest.Open(t, t.TempDir(), secret.New(url.Reveal()+"&search_path=mine"))
	if err := d.Migrate(t.Context()); err != nil {
		t.Fatal(err)
	}
	if _, err := db.Exec(t.Context(), d.Across("test"), `INSERT INTO users (id, email, created_at) VALUES ('a', 'a', 1)`); err != nil {
		t.Fatal(err)
	}
	var file bytes.Buffer
	if err := backup.Write(t.Context(), d, &file); err != nil {
		t.Fatal(err)
	}
	other := dbtest.Open(t, t.TempDir(), secret.Text{})
	if _, _, err := restore(t.Context(), other, &file, func(context.Context) error { return nil }); err != nil {
		t.Fatal(err)
	}
	if n, err := db.One[int](t.Context(), other.Across("test"), `SELECT COUNT(*) FROM users`); err != nil || n != 1 {
		t.Errorf("%d rows, %v", n, err)
	}
}
