// Package spool buffers records on the local disk for a database that may be slow or unreachable. It accepts a record
// in microseconds, never waits for the database, and is read from the position that the reader's own cursor holds.
//
// It promises that an accepted record is given to the reader once, with these exceptions. kill -9 may lose the
// records that another goroutine was about to write. A power loss may lose those since the last Sync. A failing disk
// loses those of the failed write, which are counted. When the waiting records fill the budget, further records are
// refused and counted.
package spool

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"sync"

	"sovereign/internal/plane/journal"
)

// A Position is a point in the spool between two records.
type Position = journal.Position

// The default sizes.
const (
	segmentSize = 16 << 20 // beyond it the next segment is started
	maxPending  = 8 << 20  // bytes waiting for a write; beyond it Append blocks
	// MaxRecord bounds a record; a reader would take a longer one for damage.
	MaxRecord = 4 << 20
)

// A Spool has many concurrent writers and one reader.
type Spool struct {
	Limit    int64 // bytes of a segment
	disk     journal.Disk
	budget   int64
	appended chan struct{}

	syncing    sync.Mutex // held during a sync; locked before mu
	mu         sync.Mutex
	spaceFreed sync.Cond // signals that pending has become shorter
	pending    []byte
	records    int64 // in pending
	buffer     []byte
	writing    bool

	file     journal.File
	unsynced []journal.File // earlier segments that are not synced yet
	// a segment was created and the folder not synced since: a power loss could lose its name
	dirUnsynced  bool
	dirty        bool // file was created or written since its last sync
	end          Position
	mustTruncate bool            // a failed write left bytes that are not truncated yet
	sizes        map[int64]int64 // bytes of each existing segment
	waiting      int64           // their sum
	failure      error           // of the last write; nil when it succeeded
	lost         int64
}

// Open finds the spool on a disk and starts a new segment, after the last existing one and after the cursor's. budget
// bounds the bytes that wait on the disk.
func Open(disk journal.Disk, after Position, budget int64) (*Spool, error) {
	s := &Spool{Limit: segmentSize, disk: disk, budget: budget, appended: make(chan struct{}, 1), sizes: map[int64]int64{}}
	s.spaceFreed.L = &s.mu
	segments, err := s.segments()
	if err != nil {
		return nil, err
	}
	for _, n := range segments {
		if s.sizes[n], err = s.size(n); err != nil {
			return nil, err
		}
		s.waiting += s.sizes[n]
		s.end.Segment = n
	}
	s.end.Segment = max(s.end.Segment, after.Segment)
	return s, s.startSegment()
}

func segmentName(n int64) string { return fmt.Sprintf("%012d.spool", n) }

// segments lists the numbers of the existing segments, in order.
func (s *Spool) segments() ([]int64, error) {
	all, err := journal.Numbered(s.disk, segmentName)
	if err != nil {
		return nil, fmt.Errorf("list the spool: %w", err)
	}
	return all, nil
}

// size returns the size of a segment that an earlier process left, and syncs it.
func (s *Spool) size(segment int64) (int64, error) {
	file, err := s.disk.Open(segmentName(segment))
	if err != nil {
		return 0, fmt.Errorf("open spool segment %d: %w", segment, err)
	}
	defer func() { _ = file.Close() }()
	if err := file.Sync(); err != nil {
		return 0, fmt.Errorf("sync spool segment %d: %w", segment, err)
	}
	return file.Size()
}

// startSegment starts the next segment.
func (s *Spool) startSegment() error {
	next := s.end.Segment + 1
	file, err := s.disk.Open(segmentName(next))
	if err != nil {
		return fmt.Errorf("begin spool segment %d: %w", next, err)
	}
	if err := file.Truncate(0); err != nil {
		return errors.Join(fmt.Errorf("begin spool segment %d: %w", next, err), file.Close())
	}
	if s.file != nil {
		s.unsynced = append(s.unsynced, s.file) // synced later: Append does not wait for fsync
	}
	s.file, s.end, s.mustTruncate, s.dirUnsynced, s.dirty = file, Position{Segment: next}, false, true, true
	s.sizes[next] = 0
	return nil
}

// A record is its length, a checksum of length and bytes, and its bytes.
const headerSize = 8

var table = crc32.MakeTable(crc32.Castagnoli)

func checksum(size uint32, payload []byte) uint32 {
	var head [4]byte
	binary.LittleEndian.PutUint32(head[:], size)
	return crc32.Update(crc32.Checksum(head[:], table), table, payload)
}

// Append accepts records, all or none, and reports whether there was space for them. They are written together. A
// caller that finds no write in progress writes for all others, which return without waiting for that write.
func (s *Spool) Append(records ...[]byte) bool {
	longest, all := 0, 0
	for _, record := range records {
		longest, all = max(longest, len(record)), all+headerSize+len(record)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for s.writing && len(s.pending) >= maxPending {
		s.spaceFreed.Wait()
	}
	if longest > MaxRecord || s.waiting+int64(len(s.pending)+all) > s.budget {
		s.lost += int64(len(records))
		return false
	}
	for _, record := range records {
		size := uint32(len(record))
		s.pending = binary.LittleEndian.AppendUint32(s.pending, size)
		s.pending = binary.LittleEndian.AppendUint32(s.pending, checksum(size, record))
		s.pending = append(s.pending, record...)
	}
	s.records += int64(len(records))
	if s.writing {
		return true
	}
	s.writing = true
	kept := s.writePending() // the caller's own records are in the first batch
	for len(s.pending) > 0 {
		s.writePending()
	}
	s.writing = false
	return kept
}

// writePending writes the pending records. mu is held when it is called and when it returns. What a failed write left
// is truncated before the next write.
func (s *Spool) writePending() bool {
	batch, records := s.pending, s.records
	s.pending, s.records = s.buffer[:0], 0
	err := errClosed
	if s.file != nil {
		file, at, uncut := s.file, s.end.Offset, s.mustTruncate
		s.mu.Unlock()
		err = writeAt(file, batch, at, uncut)
		s.mu.Lock()
	}
	s.buffer = batch
	if cap(s.buffer) > 2*maxPending {
		s.buffer = nil
	}
	s.spaceFreed.Broadcast()
	s.dirty = true // a failed write may have left bytes, too
	s.failure = err
	if err != nil {
		s.mustTruncate = true
		s.lost += records
		return false
	}
	s.mustTruncate = false
	s.end.Offset += int64(len(batch))
	s.sizes[s.end.Segment] = s.end.Offset
	s.waiting += int64(len(batch))
	select {
	case s.appended <- struct{}{}:
	default: // a signal is already pending
	}
	if s.end.Offset >= s.Limit {
		s.failure = s.startSegment() // on failure the next write continues in the old segment
	}
	return true
}

var errClosed = errors.New("the spool is closed")

func writeAt(file journal.File, batch []byte, at int64, uncut bool) error {
	if uncut {
		if err := file.Truncate(at); err != nil {
			return err
		}
	}
	n, err := file.WriteAt(batch, at)
	if err == nil && n < len(batch) {
		err = io.ErrShortWrite
	}
	return err
}

// A State describes a spool.
type State struct {
	Waiting int64 // bytes on the disk that Forget has not removed
	Budget  int64
	Lost    int64 // records refused or not written since the start
	Failure error // of the last write; nil when it succeeded
}

// State returns the present state.
func (s *Spool) State() State {
	s.mu.Lock()
	defer s.mu.Unlock()
	return State{Waiting: s.waiting, Budget: s.budget, Lost: s.lost, Failure: s.failure}
}

// End returns where the next record will be written.
func (s *Spool) End() Position {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.end
}

// Appended receives a value after a write since the last receive. The reader waits for it while there is nothing to
// read. It is meant for one receiver.
func (s *Spool) Appended() <-chan struct{} { return s.appended }

// Sync makes what was appended survive a power loss. Append does not wait for it.
func (s *Spool) Sync() error {
	s.syncing.Lock()
	defer s.syncing.Unlock()
	s.mu.Lock()
	file, full, unnamed, dirty := s.file, s.unsynced, s.dirUnsynced, s.dirty
	s.unsynced, s.dirUnsynced, s.dirty = nil, false, false
	s.mu.Unlock()
	var err error
	for _, f := range full {
		err = errors.Join(err, f.Sync(), f.Close())
	}
	if file != nil && dirty {
		if failed := file.Sync(); failed != nil {
			s.mu.Lock()
			s.dirty = true
			s.mu.Unlock()
			err = errors.Join(err, failed)
		}
	}
	if unnamed {
		if failed := s.disk.Sync(); failed != nil {
			s.mu.Lock()
			s.dirUnsynced = true
			s.mu.Unlock()
			err = errors.Join(err, failed)
		}
	}
	return err
}

// Close syncs and ends writing.
func (s *Spool) Close() error {
	err := s.Sync()
	s.syncing.Lock()
	defer s.syncing.Unlock()
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.file != nil {
		err = errors.Join(err, s.file.Close())
	}
	s.file = nil
	return err
}
