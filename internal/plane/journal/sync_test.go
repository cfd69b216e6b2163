package journal_test

import (
	"testing"

	"sovereign/internal/plane/journal"
)

// A gated disk has files whose Sync says that it has begun, and waits to be let go.
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

// Two may sync at once. The one that began first and ends last has seen less.
func TestWhatWasSyncedStaysSynced(t *testing.T) {
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
		if err := j.Append(journal.Entry{Kind: journal.Marked}); err != nil {
			t.Fatal(err)
		}
	}
	add()
	early := make(chan error)
	go func() { early <- j.Sync() }()
	<-begun
	disk.begun = nil // the second is not held up
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
