package http1

import (
	"context"
	"errors"
	"io"
	"time"

	"sovereign/internal/net/life"
)

// framing is how the end of a body is marked.
type framing int

const (
	framingLength  framing = iota // Content-Length
	framingChunked                // Transfer-Encoding: chunked
	framingClose                  // the end of the connection, which a truncated body looks like too
)

// A Body is the body of one response. It is for one goroutine; the end of the exchange's context may come from another.
type Body struct {
	conn             *clientConn // nil once closed
	client           *Client
	ctx              context.Context //nolint:containedctx // the exchange's, which outlives Do
	onEnd            life.Callback   // aborts the connection when ctx ends
	framing          framing
	keepAlive        bool          // the server keeps the connection open
	keepAliveTimeout time.Duration // see responseHead

	remaining int64  // bytes until the end of the body, or of the chunk
	inChunk   bool   // a chunk has begun, and the CR LF after it was not read
	unread    []byte // what Next returned and Read has not copied yet
	err       error  // sticky; io.EOF at the end
}

// Next returns what has arrived, without copying: at least one byte, or an error, which is io.EOF at the end. It blocks
// until something arrives. The slice is valid until the next call.
func (b *Body) Next() ([]byte, error) {
	if len(b.unread) > 0 {
		piece := b.unread
		b.unread = nil
		return piece, nil
	}
	for b.err == nil {
		piece, err := b.advance()
		b.setErr(err)
		if len(piece) > 0 {
			return piece, nil
		}
	}
	return nil, b.err
}

// Read implements io.Reader. A large read of a body of known length bypasses the buffer.
func (b *Body) Read(p []byte) (int, error) {
	if len(p) == 0 {
		return 0, nil
	}
	if b.canReadDirect(len(p)) {
		n, err := b.conn.read(b.conn.conn, p[:min(int64(len(p)), b.remaining)])
		b.remaining -= int64(n)
		if n == 0 {
			b.setErr(unexpectedEOF(err))
		}
		return n, b.err
	}
	piece, err := b.Next()
	if err != nil {
		return 0, err
	}
	n := copy(p, piece)
	b.unread = piece[n:]
	return n, nil
}

// canReadDirect reports whether a read of size bytes may bypass the buffer: nothing is buffered, and it is no smaller.
func (b *Body) canReadDirect(size int) bool {
	return b.err == nil && len(b.unread) == 0 && b.framing == framingLength && b.remaining > 0 &&
		b.conn.start == b.conn.end && size >= len(b.conn.buffer)
}

// Close ends the exchange. The connection is kept for reuse if the body was read to its end, and is closed otherwise.
func (b *Body) Close() error {
	cc := b.conn
	if cc == nil {
		return nil
	}
	if b.err == nil && b.framing == framingLength && b.remaining == 0 && len(b.unread) == 0 {
		b.err = io.EOF // all of it was read, though not the io.EOF after it
	}
	b.conn, b.unread = nil, nil
	whole := errors.Is(b.err, io.EOF)
	if !whole {
		b.err = errClosed
	}
	// If the callback cannot be stopped, it may abort the connection at any moment, and no other exchange may use it.
	if b.onEnd.Stop() && whole && b.keepAlive && b.framing != framingClose && !cc.noReuse {
		b.client.idle.put(cc, b.keepAliveTimeout)
	} else {
		cc.close()
	}
	return nil
}

var errClosed = errors.New("the body was closed")

// setErr keeps the first error. An error after the end of the context is the context's.
func (b *Body) setErr(err error) {
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

// advance returns what has arrived, after at most one read of the connection, except between chunks.
func (b *Body) advance() ([]byte, error) {
	if b.framing == framingLength && b.remaining == 0 {
		return nil, io.EOF
	}
	cc := b.conn
	if cc.start == cc.end {
		if cc.end == len(cc.buffer) { // the last read filled it
			cc.grow(maxBuffer)
		}
		if err := cc.fill(); err != nil {
			if b.framing == framingClose {
				return nil, err
			}
			return nil, unexpectedEOF(err)
		}
	}
	switch b.framing {
	case framingChunked:
		return b.dechunk()
	case framingLength:
		piece := cc.buffer[cc.start:cc.end]
		piece = piece[:min(int64(len(piece)), b.remaining)]
		cc.start += len(piece)
		b.remaining -= int64(len(piece))
		return piece, nil
	default:
		piece := cc.buffer[cc.start:cc.end]
		cc.start = cc.end
		return piece, nil
	}
}
