package journal_test

import (
	"fmt"
	"io"
	"io/fs"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"sovereign/internal/plane/journal"
	"sovereign/internal/plane/journal/journaltest"
)

// A cache is a disk behind a page cache that behaves like Linux's: pages whose write failed are marked clean. The
// next sync of the same bytes succeeds and writes nothing.
type cache struct {
	files map[string]*cached
	fails func() bool // called at every sync of a file
}

type cached struct {
	disk         *cache
	now, durable []byte
	dirty        map[int]bool
}

func (c *cache) List() ([]string, error) {
	var all []string
	for name := range c.files {
		all = append(all, name)
	}
	return all, nil
}

func (c *cache) Open(name string) (journal.File, error) {
	if c.files[name] == nil {
		c.files[name] = &cached{disk: c, dirty: map[int]bool{}}
	}
	return c.files[name], nil
}

func (c *cache) Remove(name string) error {
	if c.files[name] == nil {
		return fs.ErrNotExist
	}
	delete(c.files, name)
	return nil
}

func (c *cache) Sync() error { return nil }

// powerLoss returns the disk as the next boot finds it.
func (c *cache) powerLoss() *cache {
	next := &cache{files: map[string]*cached{}, fails: func() bool { return false }}
	for name, f := range c.files {
		next.files[name] = &cached{disk: next, now: slices.Clone(f.durable), durable: slices.Clone(f.durable), dirty: map[int]bool{}}
	}
	return next
}

func (f *cached) ReadAt(p []byte, at int64) (int, error) {
	if n := copy(p, f.now[min(int(at), len(f.now)):]); n < len(p) {
		return n, io.EOF
	}
	return len(p), nil
}

func (f *cached) WriteAt(p []byte, at int64) (int, error) {
	f.now = append(f.now, make([]byte, max(0, int(at)+len(p)-len(f.now)))...)
	for i, b := range p {
		f.now[int(at)+i] = b
		f.dirty[int(at)+i] = true
	}
	return len(p), nil
}

func (f *cached) Size() (int64, error) { return int64(len(f.now)), nil }

func (f *cached) Truncate(size int64) error {
	f.now, f.durable = f.now[:min(int(size), len(f.now))], f.durable[:min(int(size), len(f.durable))]
	return nil
}

func (f *cached) Sync() error {
	failed := f.disk.fails()
	if !failed {
		f.durable = append(f.durable, make([]byte, len(f.now)-len(f.durable))...)
		for i := range f.dirty {
			f.durable[i] = f.now[i]
		}
	}
	clear(f.dirty)
	if failed {
		return journaltest.ErrDisk
	}
	return nil
}

func (f *cached) Close() error { return nil }

func TestSyncedEntriesSurviveAPowerLossAfterFailedSyncs(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		failing := false
		disk := &cache{files: map[string]*cached{}, fails: func() bool { return failing }}
		j := begin(t, disk)
		j.Limit = 300
		var safe, unsafe []journal.Entry
		settledSoon := map[string]bool{}
		for i := range rapid.IntRange(1, 60).Draw(t, "steps") {
			failing = rapid.IntRange(0, 3).Draw(t, "failing") == 0
			e := settled(fmt.Sprint("req_", i))
			switch rapid.IntRange(0, 3).Draw(t, "step") {
			case 0, 1:
				_ = j.Sync()
			case 2:
				e.Kind = journal.Opened
				fallthrough
			default:
				if e.Kind == journal.Settled && len(safe) > 0 {
					e.Request = rapid.SampledFrom(safe).Draw(t, "of").Request
				}
				if j.Append(e) == nil {
					unsafe = append(unsafe, e)
					settledSoon[e.Request] = settledSoon[e.Request] || e.Kind == journal.Settled
				}
			}
			if j.Synced() == j.End() {
				safe, unsafe = append(safe, unsafe...), nil
			}
		}
		again, err := journal.Open(disk.powerLoss())
		must(t, err)
		got, err := readFrom(again, 1)
		for _, e := range safe {
			if !slices.Contains(got, e) {
				t.Fatalf("%s was synced and is lost; of %d safe entries %d are there (%v)", e.Request, len(safe), len(got), err)
			}
		}
		orphans, err := again.Orphans(j.Synced().Segment) // it repeats the entries that were open when it was started
		must(t, err)
		for _, e := range safe {
			if e.Kind == journal.Opened && !settledSoon[e.Request] && !slices.Contains(orphans, e) {
				t.Fatalf("%s is open, and segment %d does not know", e.Request, j.Synced().Segment)
			}
		}
	})
}
