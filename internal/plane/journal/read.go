package journal

import (
	"errors"
	"fmt"
	"slices"

	"sovereign/internal/base/money"
)

// readBatch and readSize bound one Read, in entries and bytes. They match about what a busy server settles between
// two postings: each posting has a fixed cost.
const (
	readBatch = 2000
	readSize  = 1 << 20
)

// ErrGap reports that entries are missing from the middle of the journal. A gap is never skipped: the entries are
// money.
var ErrGap = errors.New("the journal has a gap")

// Read returns some of the entries between from and the synced end, and the position after them. That position is
// from when there are none. The sum of the entries' costs fits into a money.Nano.
func (j *Journal) Read(from Position) ([]Entry, Position, error) {
	end := j.Synced()
	for from.Before(end) {
		entries, next, err := j.readSegment(from, end)
		if err != nil || len(entries) > 0 {
			return entries, next, err
		}
		if next == from {
			return nil, from, fmt.Errorf("%w: segment %d ends at %d", ErrGap, from.Segment, from.Offset)
		}
		from = next
	}
	return nil, from, nil
}

// readSegment reads within one segment. At the segment's end, the next position is the start of the following
// segment.
func (j *Journal) readSegment(from, end Position) ([]Entry, Position, error) {
	segments, err := j.Segments()
	if err != nil {
		return nil, from, err
	}
	if !slices.Contains(segments, from.Segment) { // Open would create it
		return nil, from, fmt.Errorf("%w: segment %d is missing", ErrGap, from.Segment)
	}
	file, err := j.disk.Open(segmentName(from.Segment))
	if err != nil {
		return nil, from, fmt.Errorf("open segment %d: %w", from.Segment, err)
	}
	defer func() { _ = file.Close() }()
	size := end.Offset
	if from.Segment < end.Segment {
		if size, err = file.Size(); err != nil {
			return nil, from, fmt.Errorf("open segment %d: %w", from.Segment, err)
		}
		if from.Offset == size && size > 0 {
			return nil, Position{from.Segment + 1, 0}, nil
		}
		if from.Offset > size {
			return nil, from, fmt.Errorf(
				"%w: segment %d ends at %d, before %d", ErrGap, from.Segment, size, from.Offset,
			)
		}
	}
	entries, next, err := scan(file, from, size, readBatch)
	if errors.Is(err, errTorn) {
		err = fmt.Errorf("%w: segment %d is damaged at %d", ErrGap, next.Segment, next.Offset)
	}
	return entries, next, err
}

// scan decodes up to most entries between a position and size. With errTorn, the returned position is where the
// damage begins.
func scan(file File, from Position, size int64, most int) ([]Entry, Position, error) {
	data := make([]byte, min(readSize, size-from.Offset))
	if len(data) == 0 {
		return nil, from, nil
	}
	if _, err := file.ReadAt(data, from.Offset); err != nil {
		return nil, from, fmt.Errorf("read segment %d: %w", from.Segment, err)
	}
	entries := make([]Entry, 0, min(most, len(data)/typicalEntrySize+1))
	texts := map[string]string{} // most texts repeat
	whole := from.Offset+int64(len(data)) == size
	var sum money.Nano
	for len(data) > 0 && len(entries) < most {
		e, n, err := decodeEntry(data, texts)
		if errors.Is(err, errTorn) && !whole && len(entries) > 0 {
			break // the record continues beyond the bytes read
		}
		if err != nil {
			if len(entries) > 0 {
				break // return these first; the next Read finds the damage again
			}
			return nil, from, err
		}
		var fits bool
		if sum, fits = sum.Add(e.Cost); !fits && len(entries) > 0 {
			break
		}
		entries = append(entries, e)
		from.Offset += int64(n)
		data = data[n:]
	}
	return entries, from, nil
}

// typicalEntrySize is about the size of an entry, to size the result.
const typicalEntrySize = 128

// Orphans returns the last entries of the requests that were open at the end of the journal: their process died
// before it settled them. It reads from the start of a segment.
func (j *Journal) Orphans(segment int64) ([]Entry, error) {
	open := map[string]Entry{}
	for at := (Position{segment, 0}); ; {
		entries, next, err := j.Read(at)
		if err != nil {
			return nil, err
		}
		if len(entries) == 0 {
			break
		}
		for i := range entries {
			track(open, &entries[i])
		}
		at = next
	}
	return sortedByRequest(open), nil
}

// Forget removes the segments before one. They are posted.
func (j *Journal) Forget(before int64) error {
	segments, err := j.Segments()
	if err != nil {
		return err
	}
	for _, n := range segments {
		if n >= before {
			break
		}
		if err := j.disk.Remove(segmentName(n)); err != nil {
			return fmt.Errorf("remove segment %d: %w", n, err)
		}
	}
	return nil
}
