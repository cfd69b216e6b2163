// Package journaltest provides an in-memory disk that fails, crashes and loses power on command, to test the journal
// with.
package journaltest

import (
	"errors"
	"io"
	"io/fs"
	"maps"
	"math/rand/v2"
	"slices"
	"sync"

	"sovereign/internal/plane/journal"
)

// ErrDisk is the error of a failing disk.
var ErrDisk = errors.New("the disk fails")

// A Disk records what was written and what was synced. A crash of the process keeps what was written. A power loss
// keeps what was synced, and a random part of the rest.
type Disk struct {
	mu    sync.Mutex
	files map[string]*content
	names map[string]bool // names that survive a power loss

	// Fail is called before every open, write, truncation and sync. An error fails the operation; a failed write has
	// still written its first part bytes.
	Fail func(operation string, size int) (part int, err error)
}

type content struct {
	now, durable []byte
}

var _ journal.Disk = (*Disk)(nil)

// NewDisk returns an empty disk.
func NewDisk() *Disk { return &Disk{files: map[string]*content{}, names: map[string]bool{}} }

func (d *Disk) fails(operation string, size int) (int, error) {
	if d.Fail == nil {
		return size, nil
	}
	return d.Fail(operation, size)
}

// Crash returns the disk as the next process finds it. The old disk takes no more writes.
func (d *Disk) Crash() *Disk {
	d.mu.Lock()
	defer d.mu.Unlock()
	next := NewDisk()
	for name, c := range d.files {
		next.files[name] = &content{now: slices.Clone(c.now), durable: slices.Clone(c.durable)}
	}
	next.names = maps.Clone(d.names)
	d.files = map[string]*content{}
	return next
}

// PowerLoss returns the disk as the next boot finds it. Unsynced bytes are kept up to a random offset; what follows
// is missing or zero.
func (d *Disk) PowerLoss(random *rand.Rand) *Disk {
	next := d.Crash()
	for _, name := range slices.Sorted(maps.Keys(next.files)) {
		c := next.files[name]
		if !next.names[name] && random.IntN(2) == 0 {
			delete(next.files, name)
			continue
		}
		keep := len(c.durable)
		if grown := len(c.now) - keep; grown > 0 {
			keep += random.IntN(grown + 1)
		}
		size := min(len(c.now), keep+random.IntN(32))
		left := make([]byte, max(keep, size))
		copy(left, c.now[:min(keep, len(c.now))])
		c.now, c.durable = left, slices.Clone(left)
	}
	return next
}

// List implements journal.Disk.
func (d *Disk) List() ([]string, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	return slices.Collect(maps.Keys(d.files)), nil
}

// Open implements journal.Disk.
func (d *Disk) Open(name string) (journal.File, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if _, err := d.fails("open", 0); err != nil {
		return nil, err
	}
	if d.files[name] == nil {
		d.files[name] = &content{}
	}
	return &file{disk: d, name: name}, nil
}

// Remove implements journal.Disk.
func (d *Disk) Remove(name string) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.files[name] == nil {
		return fs.ErrNotExist
	}
	delete(d.files, name)
	delete(d.names, name)
	return nil
}

// Sync implements journal.Disk.
func (d *Disk) Sync() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if _, err := d.fails("sync", 0); err != nil {
		return err
	}
	for name := range d.files {
		d.names[name] = true
	}
	return nil
}

type file struct {
	disk *Disk
	name string
}

// do runs what on the file's content, or fails when the file is gone.
func (f *file) do(what func(c *content) error) error {
	f.disk.mu.Lock()
	defer f.disk.mu.Unlock()
	c := f.disk.files[f.name]
	if c == nil {
		return fs.ErrNotExist
	}
	return what(c)
}

func (f *file) ReadAt(p []byte, at int64) (n int, err error) {
	err = f.do(func(c *content) error {
		if at > int64(len(c.now)) {
			return io.EOF
		}
		if n = copy(p, c.now[at:]); n < len(p) {
			return io.EOF
		}
		return nil
	})
	return n, err
}

func (f *file) WriteAt(p []byte, at int64) (n int, err error) {
	err = f.do(func(c *content) error {
		part, failed := f.disk.fails("write", len(p))
		p := p[:min(part, len(p))]
		if end := int(at) + len(p); end > len(c.now) {
			c.now = append(c.now, make([]byte, end-len(c.now))...)
		}
		n = copy(c.now[at:], p)
		return failed
	})
	return n, err
}

func (f *file) Size() (size int64, err error) {
	err = f.do(func(c *content) error {
		size = int64(len(c.now))
		return nil
	})
	return size, err
}

func (f *file) Truncate(size int64) error {
	return f.do(func(c *content) error {
		if _, err := f.disk.fails("truncate", 0); err != nil {
			return err
		}
		c.now = append(c.now[:min(int(size), len(c.now))], make([]byte, max(0, int(size)-len(c.now)))...)
		return nil
	})
}

func (f *file) Sync() error {
	return f.do(func(c *content) error {
		if _, err := f.disk.fails("sync", 0); err != nil {
			return err
		}
		c.durable = slices.Clone(c.now)
		return nil
	})
}

func (f *file) Close() error { return nil }
