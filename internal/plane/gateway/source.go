package gateway

import (
	"errors"
	"io"
	"time"

	"sovereign/internal/net/fastpath"
	"sovereign/internal/net/life"
	"sovereign/internal/plane/gateway/deadline"
)

// A source is a provider's answer. Every read has a timeout, and counts as waiting. The time that a slow caller takes
// between two reads does not count against the provider.
type source struct {
	deadline *deadline.Deadline
	clock    *stopwatch
	life     *life.Life // of the attempt
	from     io.Reader
	length   int64         // of the body; 0 if it is not known
	timeout  time.Duration // of one read, after the first; 0 leaves the wait as it is
	heard    bool          // something has arrived
	buffer   []byte        // for a body that is not a fastpath.ChunkReader
}

// next returns what arrives next. It is valid until the next call.
func (s *source) next() (piece []byte, err error) {
	if s.heard && s.timeout > 0 {
		s.deadline.LimitWait(s.clock.now, s.timeout)
	}
	if from, ok := s.from.(fastpath.ChunkReader); ok {
		piece, err = from.Next()
	} else {
		if s.buffer == nil {
			s.buffer = make([]byte, readBuffer)
		}
		var n int
		n, err = s.from.Read(s.buffer)
		piece = s.buffer[:n]
	}
	s.clock.waitedForOthers()
	s.heard = s.heard || len(piece) > 0 || err == nil // a translated answer may have received what yields no bytes
	return piece, err
}

// readBuffer is the size of the buffer for a body that is not a fastpath.ChunkReader.
const readBuffer = 8 << 10

// all reads to the end, or up to limit bytes, and takes the memory from a reservation. A body that arrives in one piece
// is not copied.
func (s *source) all(limit int, held *reservation) (all []byte, err error) {
	first, err := s.next()
	if err == nil && s.length > 0 && s.length == int64(len(first)) { // with an unknown length, an empty piece is no end
		return first, nil
	}
	all = append(make([]byte, 0, max(firstWholeBuffer, 2*len(first))), first...)
	for err == nil {
		var piece []byte
		if piece, err = s.next(); len(all)+len(piece) > cap(all) {
			more := max(cap(all), len(piece))
			if !held.take(int64(more)) {
				return all, errBufferFull
			}
			all = append(make([]byte, 0, cap(all)+more), all...)
		}
		if all = append(all, piece...); len(all) > limit {
			return all[:limit], errTooLong
		}
	}
	if errors.Is(err, io.EOF) {
		err = nil
	}
	return all, err
}

// firstWholeBuffer is the first size of the buffer for an answer of unknown length.
const firstWholeBuffer = 2 << 10

var errTooLong = errors.New("it is too long")
