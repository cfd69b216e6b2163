package journal_test

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"sovereign/internal/plane/journal"
)

func TestAFolderIsMadeForTheServerAlone(t *testing.T) {
	path := filepath.Join(t.TempDir(), "journal")
	for range 2 { // the second time it is there
		disk, err := journal.Folder(path)
		must(t, err)
		j := begin(t, disk)
		must(t, j.Append(settled("req_1")), j.Close())
	}
	for name, want := range map[string]fs.FileMode{"": fs.ModeDir | 0o700, "id": 0o600, "000000000001.journal": 0o600, "000000000002.journal": 0o600} {
		info, err := os.Stat(filepath.Join(path, name))
		if err != nil || info.Mode() != want {
			t.Errorf("%q: %v %v, want %s", name, info.Mode(), err, want)
		}
	}
	if _, err := journal.Folder(filepath.Join(path, "missing", "journal")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a folder whose own folder is missing: %v", err)
	}
}

func TestAFolderOfTheMachineKeepsWhatAnotherProcessWillRead(t *testing.T) {
	path := filepath.Join(t.TempDir(), "journal")
	disk, err := journal.Folder(path)
	must(t, err)
	j := begin(t, disk)
	must(t, j.Append(settled("req_1")), j.Append(settled("req_2")))
	must(t, os.WriteFile(filepath.Join(path, "notes.txt"), []byte("an operator's"), 0o600), os.WriteFile(filepath.Join(path, "3.journal"), nil, 0o600))
	file, err := os.OpenFile(filepath.Join(path, "000000000001.journal"), os.O_WRONLY|os.O_APPEND, 0)
	must(t, err)
	_, err = file.WriteString("half an ent")
	must(t, err, file.Close())

	again, err := journal.Open(disk) // without a Close or a Sync, as after kill -9
	must(t, err)
	if got := requests(t, again); again.ID != j.ID || again.Torn != 11 || !slices.Equal(got, []string{"req_1", "req_2"}) {
		t.Errorf("%s with %d bytes torn: %v; it was %s", again.ID, again.Torn, got, j.ID)
	}
	must(t, again.Begin(), again.Append(settled("req_3")), again.Close(), again.Forget(2))
	segments, err := again.Segments()
	if err != nil || !slices.Equal(segments, []int64{2}) {
		t.Errorf("%v %v", segments, err)
	}
	entries, err := readFrom(again, 2)
	if err != nil || len(entries) != 1 || entries[0].Request != "req_3" {
		t.Errorf("%v %v", entries, err)
	}
	if _, err := readFrom(again, 1); !errors.Is(err, journal.ErrGap) {
		t.Errorf("reading what is forgotten: %v", err)
	}
	if _, err := os.Stat(filepath.Join(path, "notes.txt")); err != nil {
		t.Errorf("what is not the journal's was taken for a segment: %v", err)
	}
}

// A folder that an operator deleted is not made again behind his back, with half of a journal in it.
func TestAFolderThatIsGoneFailsAndIsNotMadeAgain(t *testing.T) {
	path := filepath.Join(t.TempDir(), "journal")
	disk, err := journal.Folder(path)
	must(t, err)
	j := begin(t, disk)
	j.Limit = 1 // every entry wants a new segment
	must(t, os.RemoveAll(path))
	if err := j.Append(settled("req_1")); err != nil {
		t.Errorf("the open file takes it still: %v", err)
	}
	if err := j.Failure(); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the next segment could be begun: %v", err)
	}
	if err := j.Sync(); err == nil && j.Failure() == nil {
		t.Error("a journal without a folder says that it works")
	}
	if _, err := j.Segments(); !errors.Is(err, fs.ErrNotExist) {
		t.Error(err)
	}
	if _, err := journal.Open(disk); !errors.Is(err, fs.ErrNotExist) {
		t.Error(err)
	}
	if _, err := os.Stat(path); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the folder is there again: %v", err)
	}
}
