package app

import (
	"bytes"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"sovereign/internal/base/secret"
	"sovereign/internal/store/backup"
	"sovereign/internal/store/db"
	"sovereign/internal/store/db/dbtest"
	"sovereign/internal/store/vault"
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
	key, folder := newBackupKey(t), t.TempDir()
	path := filepath.Join(folder, "backup")
	var group sync.WaitGroup
	for range 8 {
		group.Go(func() {
			if _, _, err := save(path, bytes.NewReader(whole.Bytes()), key, true); err != nil {
				t.Error(err)
			}
		})
	}
	group.Wait()
	if _, _, err := save(path, bytes.NewReader(whole.Bytes()[:whole.Len()/2]), key, true); err == nil {
		t.Error("half a backup was saved")
	}
	file, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = file.Close() }()
	r, err := openBackup(file, key, false)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := r.Each(func(db.Table, [][]any) error { return nil }); err != nil {
		t.Error(err)
	}
	if left, err := os.ReadDir(folder); err != nil || len(left) != 1 {
		t.Errorf("left behind: %v %v", left, err)
	}
	if _, _, err := save(folder, bytes.NewReader(whole.Bytes()), key, true); err == nil {
		t.Error("a folder was replaced")
	}
}

// Of many backups to one name at once, one gets it, and the others say so: nothing is overwritten.
func TestBackupDoesNotOverwriteAFile(t *testing.T) {
	d := dbtest.Migrated(t, db.SQLite)
	var whole bytes.Buffer
	if err := backup.Write(t.Context(), d, &whole); err != nil {
		t.Fatal(err)
	}
	key, folder := newBackupKey(t), t.TempDir()
	path := filepath.Join(folder, "backup")
	var group sync.WaitGroup
	var saved, refused atomic.Int64
	for range 8 {
		group.Go(func() {
			switch _, _, err := save(path, bytes.NewReader(whole.Bytes()), key, false); {
			case err == nil:
				saved.Add(1)
			case strings.Contains(err.Error(), "exists already"):
				refused.Add(1)
			default:
				t.Error(err)
			}
		})
	}
	group.Wait()
	if saved.Load() != 1 || refused.Load() != 7 {
		t.Errorf("%d saved, %d refused", saved.Load(), refused.Load())
	}
	if left, err := os.ReadDir(folder); err != nil || len(left) != 1 {
		t.Errorf("left behind: %v %v", left, err)
	}
}

func newBackupKey(t *testing.T) backup.Key {
	t.Helper()
	root, err := vault.CreateRoot(filepath.Join(t.TempDir(), "root.key"))
	if err != nil {
		t.Fatal(err)
	}
	return backup.Key{Root: root}
}

// Once a restore has committed it is the installation: that its last line could not be printed takes nothing back.
func TestRestoreThatCommittedIsKept(t *testing.T) {
	source := Storage{DataDir: short(t) + "/data"}
	if err := source.complete(); err != nil {
		t.Fatal(err)
	}
	i := openInstance(t, source)
	addCallers(t, i)
	file := makeBackup(t, i)
	target := Storage{DataDir: short(t) + "/data", RootKeyFile: source.RootKeyFile}
	if err := target.complete(); err != nil {
		t.Fatal(err)
	}
	broken := &terminal{out: writerFunc(func([]byte) (int, error) { return 0, io.ErrClosedPipe })}
	err := (&restoreCommand{backupFile: backupFile{File: file}}).Run(broken, &adminCommand{Storage: target})
	if !errors.Is(err, io.ErrClosedPipe) {
		t.Fatalf("want the writing's error, got %v", err)
	}
	if got, want := rows(t, target), rows(t, source); got != want {
		t.Errorf("the restored data is not there:\n%s", got)
	}
}

// makeBackup writes an encrypted backup of an instance.
func makeBackup(t *testing.T, i *instance) (file string) {
	t.Helper()
	if err := i.storage.sealer.Seal(t.Context()); err != nil {
		t.Fatal(err)
	}
	var whole bytes.Buffer
	if err := backup.Write(t.Context(), i.storage.db, &whole); err != nil {
		t.Fatal(err)
	}
	root, err := vault.LoadRoot(i.storage.config.RootKeyFile)
	if err != nil {
		t.Fatal(err)
	}
	file = filepath.Join(t.TempDir(), "backup")
	if _, _, err := save(file, &whole, backup.Key{Root: root}, false); err != nil {
		t.Fatal(err)
	}
	return file
}
