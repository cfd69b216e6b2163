package spool

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"slices"
)

// A Batch is a number of records, in the order in which they were appended.
type Batch struct {
	Records [][]byte // valid until the next Read
	Next    Position // the position after them
	Damaged int64    // bytes that were skipped: the end of a segment whose process died, or disk corruption
}

// Read reads up to about most bytes of records from one segment, beginning at a position. At the end of the spool,
// Next equals from.
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
		batch.Next = Position{Segment: segment + 1} // the segment is read to its end
	}
}

// segment returns the first existing segment at or after a position.
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

// read reads within a segment. It stops at damage and skips the rest of the segment: each length locates the next
// record, so the records behind the damage cannot be found.
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
	data := make([]byte, max(0, min(int64(max(most, MaxRecord+headerSize)), size-at.Offset)))
	if len(data) == 0 {
		return nil
	}
	if _, err := file.ReadAt(data, at.Offset); err != nil {
		return fmt.Errorf("read spool segment %d: %w", at.Segment, err)
	}
	all, taken := at.Offset+int64(len(data)) == size, 0
	for taken < min(most, len(data)) {
		payload, ok := decodeRecord(data[taken:])
		if !ok && !all && taken > 0 {
			break // the record may continue beyond the bytes read
		}
		if !ok {
			batch.Damaged = size - at.Offset - int64(taken)
			batch.Next.Offset = size
			return nil
		}
		batch.Records = append(batch.Records, payload)
		taken += headerSize + len(payload)
	}
	batch.Next.Offset += int64(taken)
	return nil
}

// decodeRecord returns the record that data begins with.
func decodeRecord(data []byte) (payload []byte, ok bool) {
	if len(data) < headerSize {
		return nil, false
	}
	size := binary.LittleEndian.Uint32(data)
	if size > MaxRecord || int(size) > len(data)-headerSize {
		return nil, false
	}
	payload = data[headerSize : headerSize+int(size) : headerSize+int(size)]
	return payload, checksum(size, payload) == binary.LittleEndian.Uint32(data[4:])
}

// Forget removes the segments before one. Their reader has stored what they hold.
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
