// Package spool keeps records on the local disk between those who make them and a database that may be slow or away. It takes a
// record in microseconds, never waits for the database, and is read from where the reader's own cursor says.
//
// What it promises: a record that was taken is given to the reader, once. kill -9 may cost those that another was about to write, a
// power loss those since the last Sync, and a disk that fails those of the failed write, which are counted. When what waits fills the
// budget, further records are refused, and counted.
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

// A Position is a place in the spool, between two records.
type Position = journal.Position

// Usual sizes.
const (
	segmentSize = 16 << 20 // over it a new segment is begun
	mostPending = 8 << 20  // that wait for a write: whoever comes then waits with them
	// MaxRecord bounds a record; a longer one would be taken for damage.
	MaxRecord = 4 << 20
)

// A Spool is written by many and read by one.
type Spool struct {
	Limit  int64 // of a segment, in bytes
	disk   journal.Disk
	budget int64
	stir   chan struct{}

	syncing sync.Mutex // held while the disk is waited for; before mu
	mu      sync.Mutex
	room    sync.Cond // pending has become shorter
	pending []byte
	records int64 // in pending
	buffer  []byte
	writing bool

	file    journal.File
	full    []journal.File // segments before it that are not synced yet
	unnamed bool           // a segment was begun whose name a power loss could take
	dirty   bool           // file was begun or written since it was synced
	end     Position
	uncut   bool            // a failed write left something that is not cut off yet
	sizes   map[int64]int64 // of the segments that are there
	waiting int64           // their sum
	failure error           // of the last write; nil when it worked
	lost    int64
}

// Open finds the spool in a folder and begins a new segment, after the last there is and after a cursor's. budget bounds what waits
// on the disk, in bytes.
func Open(disk journal.Disk, after Position, budget int64) (*Spool, error) {
	s := &Spool{Limit: segmentSize, disk: disk, budget: budget, stir: make(chan struct{}, 1), sizes: map[int64]int64{}}
	s.room.L = &s.mu
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
	return s, s.begin()
}

func segmentName(n int64) string { return fmt.Sprintf("%012d.spool", n) }

// segments lists the numbers of the segments there are, in order.
func (s *Spool) segments() ([]int64, error) {
	all, err := journal.Numbered(s.disk, segmentName)
	if err != nil {
		return nil, fmt.Errorf("list the spool: %w", err)
	}
	return all, nil
}

// size is how long a segment is that another process has left, and syncs what it left unsynced.
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

// begin starts the next segment.
func (s *Spool) begin() error {
	next := s.end.Segment + 1
	file, err := s.disk.Open(segmentName(next))
	if err != nil {
		return fmt.Errorf("begin spool segment %d: %w", next, err)
	}
	if err := file.Truncate(0); err != nil {
		return errors.Join(fmt.Errorf("begin spool segment %d: %w", next, err), file.Close())
	}
	if s.file != nil {
		s.full = append(s.full, s.file) // whoever appends does not wait for the disk
	}
	s.file, s.end, s.uncut, s.unnamed, s.dirty = file, Position{Segment: next}, false, true, true
	s.sizes[next] = 0
	return nil
}

// A record is its length, a checksum of both, and its bytes.
const frame = 8

var table = crc32.MakeTable(crc32.Castagnoli)

func checksum(size uint32, payload []byte) uint32 {
	var head [4]byte
	binary.LittleEndian.PutUint32(head[:], size)
	return crc32.Update(crc32.Checksum(head[:], table), table, payload)
}

// Append takes a record, and reports whether there was room for it. Whoever finds nobody writing writes for all who come meanwhile, and
// they do not wait for it.
func (s *Spool) Append(record []byte) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	for s.writing && len(s.pending) >= mostPending {
		s.room.Wait()
	}
	if len(record) > MaxRecord || s.waiting+int64(len(s.pending)+frame+len(record)) > s.budget {
		s.lost++
		return false
	}
	size := uint32(len(record))
	s.pending = binary.LittleEndian.AppendUint32(s.pending, size)
	s.pending = binary.LittleEndian.AppendUint32(s.pending, checksum(size, record))
	s.pending = append(s.pending, record...)
	s.records++
	if s.writing {
		return true
	}
	s.writing = true
	kept := s.write() // its own is among the first
	for len(s.pending) > 0 {
		s.write()
	}
	s.writing = false
	return kept
}

// write writes what is pending, with mu held before and after. What a failed write left is cut off, or the segment is left behind.
func (s *Spool) write() bool {
	batch, records := s.pending, s.records
	s.pending, s.records = s.buffer[:0], 0
	err := errClosed
	if s.file != nil {
		file, at, uncut := s.file, s.end.Offset, s.uncut
		s.mu.Unlock()
		err = put(file, batch, at, uncut)
		s.mu.Lock()
	}
	s.buffer = batch
	if cap(s.buffer) > 2*mostPending {
		s.buffer = nil
	}
	s.room.Broadcast()
	s.dirty = true // what a failed write left, too
	s.failure = err
	if err != nil {
		s.uncut = true
		s.lost += records
		return false
	}
	s.uncut = false
	s.end.Offset += int64(len(batch))
	s.sizes[s.end.Segment] = s.end.Offset
	s.waiting += int64(len(batch))
	select {
	case s.stir <- struct{}{}:
	default: // nobody has looked since the last write
	}
	if s.end.Offset >= s.Limit {
		s.failure = s.begin() // the next write goes on in the old one
	}
	return true
}

var errClosed = errors.New("the spool is closed")

func put(file journal.File, batch []byte, at int64, uncut bool) error {
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

// A State is how a spool is.
type State struct {
	Waiting int64 // bytes that are on the disk and not forgotten
	Budget  int64
	Lost    int64 // records that were refused, or could not be written, since the start
	Failure error // of the last write; nil when it worked
}

// State is how the spool is now.
func (s *Spool) State() State {
	s.mu.Lock()
	defer s.mu.Unlock()
	return State{Waiting: s.waiting, Budget: s.budget, Lost: s.lost, Failure: s.failure}
}

// End is where the next record will stand.
func (s *Spool) End() Position {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.end
}

// Stirred has a value when something was written since one was taken from it: whoever reads may rest until then. It is for one reader.
func (s *Spool) Appended() <-chan struct{} { return s.stir }

// Sync makes what was appended survive a power loss. Those who append do not wait for it.
func (s *Spool) Sync() error {
	s.syncing.Lock()
	defer s.syncing.Unlock()
	s.mu.Lock()
	file, full, unnamed, dirty := s.file, s.full, s.unnamed, s.dirty
	s.full, s.unnamed, s.dirty = nil, false, false
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
			s.unnamed = true
			s.mu.Unlock()
			err = errors.Join(err, failed)
		}
	}
	return err
}

// Close ends writing, and syncs.
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
