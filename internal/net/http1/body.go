package http1

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"sovereign/internal/net/life"
)

// framing is how the end of a body is told.
type framing int

const (
	framingLength framing = iota
	framingChunked
	framingClose // of the connection: an answer that broke off looks the same
)

// A Body is the body of one answer. It belongs to one goroutine, but for the end of its exchange's context.
type Body struct {
	conn      *clientConn // nil when it is closed
	client    *Client
	ctx       context.Context //nolint:containedctx // the exchange's: it outlives Do
	stop      life.Callback
	framing   framing
	keepAlive bool
	patience  time.Duration

	left  int64  // bytes until the end, or until the end of the chunk
	inner bool   // a chunk has begun, and its end is not read yet
	ready []byte // read and not handed out, by Read
	err   error  // io.EOF at the end
}

// Next returns what comes next, as much as has arrived and at least a byte, or an error; io.EOF at the end. The slice is good until
// the next call.
func (b *Body) Next() ([]byte, error) {
	if len(b.ready) > 0 {
		piece := b.ready
		b.ready = nil
		return piece, nil
	}
	for b.err == nil {
		piece, err := b.advance()
		b.fail(err)
		if len(piece) > 0 {
			return piece, nil
		}
	}
	return nil, b.err
}

// Read implements io.Reader. A large read of a body whose length is known is made past the buffer.
func (b *Body) Read(p []byte) (int, error) {
	if len(p) == 0 {
		return 0, nil
	}
	if b.err == nil && len(b.ready) == 0 && b.framing == framingLength && b.left > 0 && b.conn.start == b.conn.end && len(p) >= len(b.conn.buffer) {
		n, err := b.conn.read(b.conn.conn, p[:min(int64(len(p)), b.left)])
		b.left -= int64(n)
		if n == 0 {
			b.fail(broken(err))
		}
		return n, b.err
	}
	piece, err := b.Next()
	if err != nil {
		return 0, err
	}
	n := copy(p, piece)
	b.ready = piece[n:]
	return n, nil
}

// Close ends the exchange. A body that was read to its end leaves its connection for the next.
func (b *Body) Close() error {
	l := b.conn
	if l == nil {
		return nil
	}
	if b.err == nil && b.framing == framingLength && b.left == 0 && len(b.ready) == 0 {
		b.err = io.EOF // nobody had to read the end of it
	}
	b.conn, b.ready = nil, nil
	ended := errors.Is(b.err, io.EOF)
	if !ended {
		b.err = errClosed
	}
	if b.stop.Stop() && ended && b.keepAlive && b.framing != framingClose && !l.spoiled {
		b.client.idle.put(l, b.patience)
	} else {
		l.close()
	}
	return nil
}

var errClosed = errors.New("the body was closed")

func (b *Body) fail(err error) {
	switch {
	case err == nil, b.err != nil:
	case errors.Is(err, io.EOF):
		b.err = err
	case b.ctx.Err() != nil:
		b.err = b.ctx.Err()
	default:
		b.err = err
	}
}

// advance is what has arrived, after at most one read of the connection.
func (b *Body) advance() ([]byte, error) {
	if b.framing == framingLength && b.left == 0 {
		return nil, io.EOF
	}
	l := b.conn
	if l.start == l.end {
		if l.end == len(l.buffer) { // the last read filled it
			l.grow(maxBuffer)
		}
		if err := l.fill(); err != nil {
			if b.framing == framingClose {
				return nil, err
			}
			return nil, broken(err)
		}
	}
	switch b.framing {
	case framingChunked:
		return b.dechunk()
	case framingLength:
		piece := l.buffer[l.start:l.end]
		piece = piece[:min(int64(len(piece)), b.left)]
		l.start += len(piece)
		b.left -= int64(len(piece))
		return piece, nil
	default:
		piece := l.buffer[l.start:l.end]
		l.start = l.end
		return piece, nil
	}
}

// dechunk takes the frames out of everything that has arrived, in place: what many small chunks hold is handed on in one
// piece. It waits for more only when there is nothing to hand on.
func (b *Body) dechunk() ([]byte, error) {
	l := b.conn
	start := l.start
	end := start // of what is handed on: it never gets before what is unread
	for {
		if b.left > 0 {
			n := int(min(int64(l.end-l.start), b.left))
			end += copy(l.buffer[end:], l.buffer[l.start:l.start+n])
			l.start += n
			b.left -= int64(n)
		}
		if l.start == l.end || b.left > 0 {
			return l.buffer[start:end], nil
		}
		if !b.skip() {
			if end > start && !b.framed() {
				return l.buffer[start:end], nil
			}
			if end == start {
				start, end = l.start, l.start // a line that is not whole moves what is unread to the front
			}
			last, err := b.frame()
			if err == nil && last {
				err = b.trailers()
			}
			if err != nil {
				return l.buffer[start:end], err
			}
		}
		if end == start {
			start, end = l.start, l.start
		}
	}
}

// fewDigits are those of a chunk's size that is read at a glance.
const fewDigits = 4

// skip passes what stands between two chunks, if all of it has come and it is what it mostly is: the end of a line, a few digits that are not all
// zeros, and the end of a line. Else it leaves it to frame.
func (b *Body) skip() bool {
	l := b.conn
	text := l.buffer[l.start:l.end]
	at := 0
	if b.inner {
		if len(text) < 2 || text[0] != '\r' || text[1] != '\n' {
			return false
		}
		at = 2
	}
	var n int64
	for i := at; i+1 < len(text) && i <= at+fewDigits; i++ {
		if text[i] == '\r' {
			if n == 0 || text[i+1] != '\n' {
				return false
			}
			l.start += i + 2
			b.left, b.inner = n, true
			return true
		}
		d, ok := hexadecimal(text[i])
		if !ok {
			return false
		}
		n = n<<4 | int64(d)
	}
	return false
}

// framed reports whether the line between two chunks has arrived whole. The line of the last is left for another call, since
// trailers may follow that are to be waited for.
func (b *Body) framed() bool {
	unread := b.conn.buffer[b.conn.start:b.conn.end]
	at := 0
	if b.inner {
		at = 2
	}
	if len(unread) <= at || unread[at] == '0' {
		return false
	}
	for _, c := range unread[at:] {
		if c == '\n' {
			return true
		}
	}
	return false
}

// maxFrame bounds the line before a chunk: its size, and extensions that nobody uses.
const maxChunkLine = 256

// frame reads the end of the chunk before, if there was one, and the size of the next; true when there is no other.
func (b *Body) frame() (last bool, err error) {
	l := b.conn
	if b.inner {
		line, err := l.line(len("\r\n"))
		if err != nil {
			return false, err
		}
		if len(line) > 0 {
			return false, fmt.Errorf("%w: a chunk that is longer than it says", ErrMalformed)
		}
		b.inner = false
	}
	line, err := l.line(maxChunkLine)
	if err != nil {
		return false, err
	}
	if b.left, err = parseChunkSize(line); err != nil {
		return false, err
	}
	b.inner = b.left > 0
	return b.left == 0, nil
}

// size reads a chunk's size: hexadecimal digits, and then nothing or an extension.
func parseChunkSize(line []byte) (n int64, err error) {
	digits := 0
	for _, c := range line {
		digit, ok := hexadecimal(c)
		if c == ';' && digits > 0 && plain(line) {
			return n, nil
		}
		if !ok {
			return 0, fmt.Errorf("%w: a chunk without a size", ErrMalformed)
		}
		if digits++; digits > maxDigits {
			return 0, fmt.Errorf("%w: a chunk of too many bytes", ErrMalformed)
		}
		n = n<<4 | int64(digit)
	}
	if digits == 0 {
		return 0, fmt.Errorf("%w: a chunk without a size", ErrMalformed)
	}
	return n, nil
}

func hexadecimal(c byte) (digit byte, ok bool) {
	switch {
	case '0' <= c && c <= '9':
		return c - '0', true
	case 'a' <= c && c <= 'f':
		return c - 'a' + 10, true
	case 'A' <= c && c <= 'F':
		return c - 'A' + 10, true
	default:
		return 0, false
	}
}

// maxDigits are those of a size that an int64 holds.
const maxDigits = 15

// trailers reads past what follows the last chunk, and ends the body.
func (b *Body) trailers() error {
	for left := b.client.config.MaxHead; ; {
		line, err := b.conn.line(left)
		switch {
		case err != nil:
			return err
		case len(line) == 0:
			return io.EOF
		}
		left -= len(line) + 2
		if err := new(responseHead).readField(line); err != nil {
			return err
		}
	}
}
