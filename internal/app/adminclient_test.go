package app

import (
	"bytes"
	"os"
	"path/filepath"
	"sync"
	"testing"

	"sovereign/internal/backup"
	"sovereign/internal/db"
	"sovereign/internal/db/dbtest"
	"sovereign/internal/secret"
)

// Two backups to one name at once: the file that stands there is one of them, whole. A broken one leaves the last good
// one, and nothing else, behind.
func TestBackupFileIsAlwaysAWholeOne(t *testing.T) {
	d := dbtest.Open(t, t.TempDir(), secret.Text{})
	if err := d.Migrate(t.Context()); err != nil {
		t.Fatal(err)
	}
	var whole bytes.Buffer
	if err := backup.Write(t.Context(), d, &whole); err != nil {
		t.Fatal(err)
	}
	folder := t.TempDir()
	path := filepath.Join(folder, "backup")
	var group sync.WaitGroup
	for range 8 {
		group.Go(func() {
			if _, _, err := save(path, bytes.NewReader(whole.Bytes())); err != nil {
				t.Error(err)
			}
		})
	}
	group.Wait()
	if _, _, err := save(path, bytes.NewReader(whole.Bytes()[:whole.Len()/2])); err == nil {
		t.Error("half a backup was saved")
	}
	file, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = file.Close() }()
	r, err := backup.NewReader(file)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := r.Each(func(db.Table, [][]any) error { return nil }); err != nil {
		t.Error(err)
	}
	if left, err := os.ReadDir(folder); err != nil || len(left) != 1 {
		t.Errorf("left behind: %v %v", left, err)
	}
	if _, _, err := save(folder, bytes.NewReader(whole.Bytes())); err == nil {
		t.Error("a folder was replaced")
	}
}
