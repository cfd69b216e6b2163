package journal_test

import (
	"testing"

	"sovereign/internal/plane/journal"
)

// A gated disk's files announce each Sync and wait for permission to run it.
type gated struct {
	journal.Disk
	begun, goOn chan struct{}
}

func (g *gated) Open(name string) (journal.File, error) {
	file, err := g.Disk.Open(name)
	return &gatedFile{file, g}, err
}

type gatedFile struct {
	journal.File
	of *gated
}

func (f *gatedFile) Sync() error {
	if f.of.begun != nil {
		f.of.begun <- struct{}{}
		<-f.of.goOn
	}
	return f.File.Sync()
}

// Of two concurrent syncs, the one that started first and ends last has synced less.
func TestAnEarlierSyncThatEndsLaterDoesNotMoveTheSyncedPositionBack(t *testing.T) {
	folder, err := journal.Folder(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	disk := &gated{Disk: folder}
	j, err := journal.Open(disk)
	if err != nil {
		t.Fatal(err)
	}
	if err := j.Begin(); err != nil {
		t.Fatal(err)
	}
	begun, first := make(chan struct{}), make(chan struct{})
	disk.begun, disk.goOn = begun, first
	add := func() {
		t.Helper()
		if err := j.Append(journal.Entry{Kind: journal.Probe}); err != nil {
			t.Fatal(err)
		}
	}
	add()
	early := make(chan error)
	go func() { early <- j.Sync() }()
	<-begun
	disk.begun = nil // the second sync is not gated
	add()
	if err := j.Sync(); err != nil {
		t.Fatal(err)
	}
	late := j.Synced()
	close(first)
	if err := <-early; err != nil {
		t.Fatal(err)
	}
	if j.Synced() != late || late != j.End() {
		t.Errorf("synced up to %v, and then up to %v again", late, j.Synced())
	}
}
