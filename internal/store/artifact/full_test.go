package artifact_test

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"sovereign/internal/base/fault"
	"sovereign/internal/store/artifact"
	"sovereign/internal/store/db"
	"sovereign/internal/store/db/dbtest"
)

// room is what the process of a full disk may write into one file.
const room = 4 << 20

// A process whose files may not grow is one whose disk is full: writes fail after some bytes, for root too. The limit
// is the process's own, so the test runs in one by itself.
func TestAFullDiskRefusesAFileAndKeepsNothingOfIt(t *testing.T) {
	if os.Getenv("ARTIFACT_TEST_FULL") == "" {
		alone := exec.CommandContext(t.Context(), os.Args[0], "-test.run", "^"+t.Name()+"$", "-test.v")
		alone.Env = append(os.Environ(), "ARTIFACT_TEST_FULL=1")
		if text, err := alone.CombinedOutput(); err != nil || !strings.Contains(string(text), "--- PASS") {
			t.Errorf("%v\n%s", err, text)
		}
		return
	}
	d := dbtest.Migrated(t, db.SQLite)
	dbtest.AddWorkspaces(t, d, dbtest.Mine)
	at := t.TempDir()
	folder, err := artifact.OpenFolder(at)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = folder.Close() }()
	if err := syscall.Setrlimit(syscall.RLIMIT_FSIZE, &syscall.Rlimit{Cur: room, Max: room}); err != nil {
		t.Fatal(err)
	}
	s := artifact.NewStore(d, folder)
	weights := bytes.Repeat([]byte("w"), room+1)
	large := artifact.File{Digest: artifact.DigestOf(weights), Bytes: int64(len(weights))}
	err = s.Put(t.Context(), dbtest.Mine, large, bytes.NewReader(weights))
	if f := fault.From(err); err == nil || f.Kind != fault.StorageFull {
		t.Errorf("a file: %v", err)
	}
	_, err = s.Add(t.Context(), dbtest.Mine, bytes.NewReader(weights), room*2)
	if err == nil || fault.From(err).Kind != fault.StorageFull {
		t.Errorf("a file that is staged: %v", err)
	}
	if err := s.Stored(t.Context(), dbtest.Mine, large); err == nil || fault.From(err).Kind != fault.InvalidParameter {
		t.Errorf("it counts as stored: %v", err)
	}
	var left []string
	_ = filepath.WalkDir(at, func(path string, entry os.DirEntry, err error) error {
		if err == nil && !entry.IsDir() {
			left = append(left, path)
		}
		return err
	})
	if len(left) != 0 {
		t.Errorf("left: %v", left)
	}
	if _, err := s.Add(t.Context(), dbtest.Mine, strings.NewReader("small"), 100); err != nil { // there is room again
		t.Error(fmt.Errorf("a small one: %w", err))
	}
}
