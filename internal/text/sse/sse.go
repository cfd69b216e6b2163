// Package sse reads server-sent events from bytes that arrive in pieces of any size.
package sse

import (
	"bytes"
	"errors"
	"fmt"
)

// An Event is one event of a stream. Its bytes are valid until the next call of the reader.
type Event struct {
	Name string // what its event: line says, if it has one
	Data []byte // its data: lines, joined
}

// ErrStream is returned when the bytes are not an event stream. It completes a sentence such as "the answer …".
var ErrStream = errors.New("is no stream of events")

// A Reader assembles events. The zero value is ready for use. Most, when set, bounds the size of an event in bytes.
type Reader struct {
	Most    int
	partial []byte // the start of an incomplete line
	data    []byte // the data of the current event
	name    string
	held    bool // the current event has a data line, possibly empty
}

// fields are the line prefixes that are accepted and ignored: id, retry and comments.
var fields = [][]byte{[]byte("id:"), []byte("retry:"), []byte(":")}

// Feed reads the next bytes and calls each with every event that they complete. It stops at the first error of each.
func (r *Reader) Feed(piece []byte, each func(Event) error) error {
	for len(piece) > 0 {
		e, rest, ok, err := r.Next(piece)
		if err == nil && ok {
			err = each(e)
		}
		if err != nil {
			return err
		}
		piece = rest
	}
	return nil
}

// Next reads the next bytes up to the end of an event, and returns the remaining bytes. ok is false when no event is
// complete.
func (r *Reader) Next(piece []byte) (e Event, rest []byte, ok bool, err error) {
	for len(piece) > 0 {
		line, rest, whole := bytes.Cut(piece, []byte("\n"))
		piece = rest
		if r.Most > 0 && len(r.partial)+len(line)+len(r.data) > r.Most {
			return e, nil, false, fmt.Errorf("%w: an event is longer than %d bytes", ErrStream, r.Most)
		}
		if !whole {
			r.partial = append(r.partial, line...)
			return e, nil, false, nil
		}
		if data, after, ok := alone(line, piece); ok && r.AtBoundary() {
			if piece = after; len(data) > 0 {
				return Event{Data: data[:len(data):len(data)]}, piece, true, nil
			}
			continue
		}
		if len(r.partial) > 0 {
			line = append(r.partial, line...)
			r.partial = r.partial[:0]
		}
		if line = bytes.TrimSuffix(line, []byte("\r")); len(line) > 0 {
			if err := r.line(line); err != nil {
				return e, nil, false, err
			}
			continue
		}
		e = Event{Name: r.name, Data: r.data}
		if r.name, r.data, r.held = "", r.data[:0], false; len(e.Data) > 0 {
			return e, piece, true, nil
		}
	}
	return e, nil, false, nil
}

// AtBoundary reports whether the reader is between events: it holds no part of one.
func (r *Reader) AtBoundary() bool { return len(r.partial) == 0 && !r.held && r.name == "" }

// alone returns the data of an event that is one complete line, and the bytes after it. Most events are, and are then
// not copied.
func alone(line, rest []byte) (data, after []byte, ok bool) {
	data, ok = bytes.CutPrefix(bytes.TrimSuffix(line, []byte("\r")), []byte("data:"))
	if !ok || len(rest) == 0 || rest[0] != '\n' {
		return nil, nil, false
	}
	return bytes.TrimPrefix(data, []byte(" ")), rest[1:], true
}

// Rest reports whether an event has begun and has not ended.
func (r *Reader) Rest() bool { return len(r.partial) > 0 || r.held }

func (r *Reader) line(line []byte) error {
	if data, ok := bytes.CutPrefix(line, []byte("data:")); ok {
		if r.held {
			r.data = append(r.data, '\n')
		}
		r.data = append(r.data, bytes.TrimPrefix(data, []byte(" "))...)
		r.held = true
		return nil
	}
	if name, ok := bytes.CutPrefix(line, []byte("event:")); ok {
		r.name = string(bytes.TrimPrefix(name, []byte(" ")))
		return nil
	}
	for _, field := range fields {
		if bytes.HasPrefix(line, field) {
			return nil
		}
	}
	return fmt.Errorf("%w: a line is none of an event's", ErrStream)
}
