package app

import (
	"bytes"
	"errors"
	"io"
	"os"
	"path/filepath"
	"sync"
	"testing"

	"sovereign/internal/base/secret"
	"sovereign/internal/store/backup"
	"sovereign/internal/store/db"
	"sovereign/internal/store/db/dbtest"
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

// Once a restore has committed it is the installation: that its last line could not be printed takes nothing back.
func TestRestoreThatCommittedIsKept(t *testing.T) {
	source := Storage{DataDir: short(t) + "/data"}
	if err := source.complete(); err != nil {
		t.Fatal(err)
	}
	i := openInstance(t, source)
	addCallers(t, i)
	var whole bytes.Buffer
	if err := backup.Write(t.Context(), i.storage.db, &whole); err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "backup")
	if err := os.WriteFile(file, whole.Bytes(), 0o600); err != nil {
		t.Fatal(err)
	}
	target := Storage{DataDir: short(t) + "/data", RootKeyFile: source.RootKeyFile}
	if err := target.complete(); err != nil {
		t.Fatal(err)
	}
	broken := &terminal{out: writerFunc(func([]byte) (int, error) { return 0, io.ErrClosedPipe })}
	err := (&restoreCommand{File: file}).Run(broken, &adminCommand{Storage: target})
	if !errors.Is(err, io.ErrClosedPipe) {
		t.Fatalf("want the writing's error, got %v", err)
	}
	if got, want := rows(t, target), rows(t, source); got != want {
		t.Errorf("the restored data is not there:\n%s", got)
	}
}
