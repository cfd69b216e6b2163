package journal

import (
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// A Disk is the folder that holds the journal. Tests replace it by one that fails, loses writes and crashes.
type Disk interface {
	// List returns the names of the files, in any order.
	List() ([]string, error)
	// Open opens a file for reading and writing, and creates it when it is missing. The name survives a power loss
	// after the next Sync of the disk.
	Open(name string) (File, error)
	Remove(name string) error
	// Sync makes created and removed names survive a power loss.
	Sync() error
}

// A File is one segment.
type File interface {
	io.ReaderAt
	io.WriterAt
	Size() (int64, error)
	Truncate(size int64) error
	Sync() error
	Close() error
}

// Numbered lists, in order, the numbers of the files whose name is what name returns for a number.
func Numbered(disk Disk, name func(int64) string) ([]int64, error) {
	files, err := disk.List()
	if err != nil {
		return nil, err
	}
	var all []int64
	for _, file := range files {
		digits, _, _ := strings.Cut(file, ".")
		if n, err := strconv.ParseInt(digits, 10, 64); err == nil && file == name(n) {
			all = append(all, n)
		}
	}
	slices.Sort(all)
	return all, nil
}

type folder string

// Folder returns a Disk in a folder of the file system, which it creates when it is missing.
func Folder(path string) (Disk, error) {
	if err := os.Mkdir(path, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
		return nil, err
	}
	return folder(path), nil
}

func (f folder) List() ([]string, error) {
	all, err := os.ReadDir(string(f))
	if err != nil {
		return nil, err
	}
	names := make([]string, len(all))
	for i, one := range all {
		names[i] = one.Name()
	}
	return names, nil
}

func (f folder) Open(name string) (File, error) {
	file, err := os.OpenFile(filepath.Join(string(f), name), os.O_RDWR|os.O_CREATE, 0o600) //nolint:gosec // the names are the journal's own
	if err != nil {
		return nil, err
	}
	return osFile{file}, nil
}

func (f folder) Remove(name string) error { return os.Remove(filepath.Join(string(f), name)) }

func (f folder) Sync() error {
	d, err := os.Open(string(f))
	if err != nil {
		return err
	}
	defer func() { _ = d.Close() }()
	return d.Sync()
}

type osFile struct{ *os.File }

func (f osFile) Size() (int64, error) {
	info, err := f.Stat()
	if err != nil {
		return 0, err
	}
	return info.Size(), nil
}
