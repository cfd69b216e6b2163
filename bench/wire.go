package main

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"strconv"
)

// A head is what either end needs of the head of an HTTP/1.1 message.
type head struct {
	line    []byte // the first line, without its end
	length  int    // -1 when it is not told
	chunked bool
	close   bool
	expect  bool
	events  bool // the body is a stream of server-sent events
}

const longestBody = 64 << 20

var errWire = errors.New("not HTTP/1.1")

// readHead reads the head of a message into h, whose memory it uses again.
func readHead(from *bufio.Reader, h *head) error {
	line, err := readLine(from)
	if err != nil {
		return err
	}
	*h = head{line: append(h.line[:0], line...), length: -1}
	for {
		line, err := readLine(from)
		if err != nil {
			return err
		}
		if len(line) == 0 {
			return nil
		}
		name, value, ok := bytes.Cut(line, []byte(":"))
		if !ok {
			return fmt.Errorf("%w: header %.50q", errWire, line)
		}
		if err := h.note(name, bytes.TrimSpace(value)); err != nil {
			return err
		}
	}
}

// note takes up one header. A look at the length of its name spares most comparisons.
func (h *head) note(name, value []byte) error {
	is := func(want string) bool { return len(name) == len(want) && bytes.EqualFold(name, []byte(want)) }
	switch {
	case is("content-length"):
		n, err := strconv.Atoi(string(value))
		if err != nil || n < 0 || n > longestBody {
			return fmt.Errorf("%w: content length %.50q", errWire, value)
		}
		h.length = n
	case is("transfer-encoding"):
		if !bytes.EqualFold(value, []byte("chunked")) {
			return fmt.Errorf("%w: transfer encoding %.50q", errWire, value)
		}
		h.chunked = true
	case is("connection"):
		h.close = bytes.EqualFold(value, []byte("close"))
	case is("expect"):
		h.expect = bytes.EqualFold(value, []byte("100-continue"))
	case is("content-type"):
		h.events = bytes.HasPrefix(value, []byte("text/event-stream"))
	}
	return nil
}

// readBody hands the body's bytes to take as they come, in pieces that are good until take returns.
func readBody(from *bufio.Reader, h *head, take func([]byte)) error {
	if !h.chunked {
		return pieces(from, max(0, h.length), take)
	}
	for {
		line, err := readLine(from)
		if err != nil {
			return err
		}
		size, _, _ := bytes.Cut(line, []byte(";"))
		n, err := strconv.ParseUint(string(size), 16, 26)
		if err != nil {
			return fmt.Errorf("%w: size of a chunk %.50q", errWire, line)
		}
		if n == 0 {
			return trailer(from)
		}
		if err := pieces(from, int(n), take); err != nil {
			return err
		}
		if end, err := readLine(from); err != nil {
			return err
		} else if len(end) > 0 {
			return fmt.Errorf("%w: a chunk is longer than it says", errWire)
		}
	}
}

func trailer(from *bufio.Reader) error {
	for {
		if line, err := readLine(from); err != nil || len(line) == 0 {
			return err
		}
	}
}

// pieces hands on n bytes without copying them.
func pieces(from *bufio.Reader, n int, take func([]byte)) error {
	for n > 0 {
		if _, err := from.Peek(1); err != nil {
			return err
		}
		piece, err := from.Peek(min(n, from.Buffered()))
		if err != nil {
			return err
		}
		take(piece)
		n -= len(piece)
		if _, err := from.Discard(len(piece)); err != nil {
			return err
		}
	}
	return nil
}

// readLine is the next line without its end, which must be CR LF. It is good until the next read.
func readLine(from *bufio.Reader) ([]byte, error) {
	line, err := from.ReadSlice('\n')
	if err != nil {
		return nil, err
	}
	if line, ok := bytes.CutSuffix(line, []byte("\r\n")); ok {
		return line, nil
	}
	return nil, fmt.Errorf("%w: line %.50q", errWire, line)
}
