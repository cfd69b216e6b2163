package spool

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"slices"
)

// A Batch is some records, in the order they were appended.
type Batch struct {
	Records [][]byte // good until the next reading
	Next    Position // after them
	Damaged int64    // bytes that were passed over: the end of a segment whose process died, or what a disk has spoiled
}

// Read reads records from a position on, up to about so many bytes of them, from one segment. A batch whose Next is from is the end.
func (s *Spool) Read(from Position, most int) (Batch, error) {
	s.mu.Lock()
	end := s.end
	s.mu.Unlock()
	batch := Batch{Next: from}
	for {
		segment, ok, err := s.segment(batch.Next)
		if err != nil || !ok {
			return batch, err
		}
		if segment != batch.Next.Segment {
			batch.Next = Position{Segment: segment}
		}
		if !batch.Next.Before(end) {
			return batch, nil
		}
		if err := s.read(&batch, end, most); err != nil || len(batch.Records) > 0 || segment == end.Segment {
			return batch, err
		}
		batch.Next = Position{Segment: segment + 1} // it is read to its end
	}
}

// segment is the first that is there at or after a position.
func (s *Spool) segment(from Position) (number int64, ok bool, err error) {
	all, err := s.segments()
	if err != nil {
		return 0, false, err
	}
	i := slices.IndexFunc(all, func(n int64) bool { return n >= from.Segment })
	if i < 0 {
		return 0, false, nil
	}
	return all[i], true, nil
}

// read reads within a segment. What is damaged ends it: lengths lead from one record to the next, and there is no finding them again.
func (s *Spool) read(batch *Batch, end Position, most int) error {
	at := batch.Next
	file, err := s.disk.Open(segmentName(at.Segment))
	if err != nil {
		return fmt.Errorf("open spool segment %d: %w", at.Segment, err)
	}
	defer func() { _ = file.Close() }()
	size := end.Offset
	if at.Segment < end.Segment {
		if size, err = file.Size(); err != nil {
			return fmt.Errorf("open spool segment %d: %w", at.Segment, err)
		}
	}
	data := make([]byte, max(0, min(int64(max(most, MaxRecord+frame)), size-at.Offset)))
	if len(data) == 0 {
		return nil
	}
	if _, err := file.ReadAt(data, at.Offset); err != nil {
		return fmt.Errorf("read spool segment %d: %w", at.Segment, err)
	}
	all, taken := at.Offset+int64(len(data)) == size, 0
	for taken < min(most, len(data)) {
		payload, ok := first(data[taken:])
		if !ok && !all && taken > 0 {
			break // it may go on beyond what was read
		}
		if !ok {
			batch.Damaged = size - at.Offset - int64(taken)
			batch.Next.Offset = size
			return nil
		}
		batch.Records = append(batch.Records, payload)
		taken += frame + len(payload)
	}
	batch.Next.Offset += int64(taken)
	return nil
}

// first is the record that data begins with.
func first(data []byte) (payload []byte, ok bool) {
	if len(data) < frame {
		return nil, false
	}
	size := binary.LittleEndian.Uint32(data)
	if size > MaxRecord || int(size) > len(data)-frame {
		return nil, false
	}
	payload = data[frame : frame+int(size) : frame+int(size)]
	return payload, checksum(size, payload) == binary.LittleEndian.Uint32(data[4:])
}

// Forget removes the segments before one: whoever read them has kept what they hold.
func (s *Spool) Forget(before int64) error {
	s.mu.Lock()
	var gone []int64
	for n := range s.sizes {
		if n < before && n != s.end.Segment {
			gone = append(gone, n)
		}
	}
	s.mu.Unlock()
	for _, n := range gone {
		if err := s.disk.Remove(segmentName(n)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("remove spool segment %d: %w", n, err)
		}
		s.mu.Lock()
		s.waiting -= s.sizes[n]
		delete(s.sizes, n)
		s.mu.Unlock()
	}
	return nil
}
