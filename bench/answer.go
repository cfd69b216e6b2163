package main

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"time"
)

// An expectation describes the answer that every request must get.
type expectation struct {
	text   string // occurs in its body
	events int    // the number of events of a stream, the last of which is [DONE]; 0 when the answer is not a stream
}

// A search counts occurrences of a text in bytes that arrive in pieces.
type search struct {
	text  []byte
	count int
	seam  []byte // the end of the previous bytes, shorter than the text
}

func (s *search) reset() { s.count, s.seam = 0, s.seam[:0] }

func (s *search) add(piece []byte) {
	s.count += bytes.Count(piece, s.text)
	most := len(s.text) - 1
	if len(s.seam) > 0 {
		before := len(s.seam)
		s.seam = append(s.seam, piece[:min(most, len(piece))]...)
		// only occurrences across the boundary: each side alone is shorter than the text
		s.count += bytes.Count(s.seam, s.text)
		if len(piece) < most {
			s.seam = append(s.seam[:0], s.seam[max(0, before+len(piece)-most):]...)
			return
		}
	}
	s.seam = append(s.seam[:0], piece[max(0, len(piece)-most):]...)
}

// A reader reads answers from a connection and checks them.
type reader struct {
	from  *bufio.Reader
	want  expectation
	head  head
	first time.Time // when the body began
	size  int
	tail  []byte // the end of the body

	text, events search

	notice  int    // when that many events have come,
	noticed func() // this is called once
}

func newReader(from *bufio.Reader, want expectation) *reader {
	r := &reader{from: from, want: want}
	r.text.text, r.events.text = []byte(want.text), []byte("data: ")
	return r
}

var (
	errStatus = errors.New("the answer is not 200")
	errOther  = errors.New("the answer is another than was expected")
	errEnded  = errors.New("the stream does not end as it should")
)

// read reads one answer to its end. Afterwards first, size and events are known.
func (r *reader) read() error {
	r.first, r.size, r.tail = time.Time{}, 0, r.tail[:0]
	r.text.reset()
	r.events.reset()
	if err := readHead(r.from, &r.head); err != nil {
		return err
	}
	if !r.head.chunked && r.head.length < 0 {
		return fmt.Errorf("%w: it has no length", errWire)
	}
	if err := readBody(r.from, &r.head, r.take); err != nil {
		return err
	}
	return r.check()
}

func (r *reader) take(piece []byte) {
	if r.size == 0 {
		r.first = time.Now()
	}
	r.size += len(piece)
	r.text.add(piece)
	if r.head.events {
		r.events.add(piece)
	}
	if r.noticed != nil && r.events.count >= r.notice {
		r.noticed()
		r.noticed = nil
	}
	r.tail = last(r.tail, piece)
}

// tailSize is how many bytes of an answer an error shows.
const tailSize = 200

// last returns the end of the concatenation of both. It reuses the memory of tail.
func last(tail, piece []byte) []byte {
	piece = piece[max(0, len(piece)-tailSize):]
	kept := copy(tail, tail[max(0, len(tail)+len(piece)-tailSize):])
	return append(tail[:kept], piece...)
}

func (r *reader) check() error {
	status := bytes.HasPrefix(r.head.line, []byte("HTTP/1.1 200 "))
	switch {
	case !status:
		return fmt.Errorf("%w: %s: %s", errStatus, r.head.line, r.tail)
	case r.head.events != (r.want.events > 0), r.text.count == 0:
		return fmt.Errorf("%w: it lacks %q: …%s", errOther, r.want.text, r.tail)
	case r.want.events == 0:
		return nil
	case !bytes.HasSuffix(r.tail, []byte("data: [DONE]\n\n")) || r.events.count != r.want.events:
		return fmt.Errorf("%w: %d events of %d: …%s", errEnded, r.events.count, r.want.events, r.tail)
	}
	return nil
}
