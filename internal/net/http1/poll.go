package http1

import (
	"bytes"
	"errors"
	"net"
	"os"
	"time"

	"sovereign/internal/net/poller"
)

// Poll reads the body on a goroutine of the poller: it calls callback whenever something may have arrived, until
// callback returns false, the connection ends or the exchange's context does. The first call is made at once, on the
// caller's goroutine. callback must not block. It calls TryNext until that returns no bytes.
//
// Poll returns false at once if the body cannot be polled; then Next reads it.
func (b *Body) Poll(p *poller.Poller, callback func(now time.Time) bool) bool {
	cc := b.conn
	if cc == nil || cc.socket == nil || b.err != nil || b.framing != framingChunked {
		return false
	}
	once := func(now time.Time) bool {
		cc.nonblocking.drained = false
		return callback(now)
	}
	if !once(time.Now()) { // epoll does not report what was read already, into the buffer or by TLS
		return true
	}
	return cc.registration.Wait(p, cc.socket.Raw, once)
}

// TryNext is Next without blocking: it returns no bytes and true when nothing has arrived. It returns false when Next
// must be called, because the body has ended, has failed, or its last chunk has begun.
func (b *Body) TryNext() (piece []byte, ok bool) {
	for b.err == nil && b.conn != nil && len(b.unread) == 0 {
		cc := b.conn
		switch {
		case cc.start == cc.end || b.remaining == 0 && b.chunkLinePending():
			arrived, err := cc.tryFill()
			if err != nil || !arrived {
				return nil, err == nil
			}
		case b.remaining == 0 && !b.chunkLineComplete():
			return nil, false
		default:
			piece, err := b.dechunk()
			if b.setErr(err); len(piece) > 0 {
				return piece, true
			}
		}
	}
	return nil, false
}

// chunkLinePending reports whether the line between two chunks has not arrived whole, and may become a valid one that
// is not the last chunk's.
func (b *Body) chunkLinePending() bool {
	unread := b.conn.buffer[b.conn.start:b.conn.end]
	if b.inChunk {
		unread = unread[min(len(unread), len("\r\n")):]
	}
	return len(unread) == 0 || unread[0] != '0' && len(unread) < maxChunkLine && bytes.IndexByte(unread, '\n') < 0
}

// tryFill is fill without blocking. It returns false when nothing has arrived.
func (cc *clientConn) tryFill() (arrived bool, err error) {
	if cc.start == cc.end && cc.end == len(cc.buffer) { // the last read filled it
		cc.grow(maxBuffer)
	}
	cc.nonblocking.on = true
	err = cc.fill()
	cc.nonblocking.on = false
	if errors.Is(err, os.ErrDeadlineExceeded) {
		return false, nil
	}
	return err == nil, err
}

// nonblocking is the mode of reads in a callback of the poller.
type nonblocking struct {
	on      bool // reads return os.ErrDeadlineExceeded instead of blocking
	drained bool // a short read has emptied the socket in this callback: another read(2) would return EAGAIN
}

// read reads from the TCP connection, or from TLS over it, whose tlsTransport calls read in turn.
func (cc *clientConn) read(from net.Conn, p []byte) (int, error) {
	mode := &cc.nonblocking
	switch {
	case from != cc.netConn || cc.socket == nil:
		return from.Read(p)
	case !mode.on:
		return cc.socket.Read(p)
	case mode.drained:
		return 0, os.ErrDeadlineExceeded
	}
	n, err := cc.socket.TryRead(p)
	mode.drained = n < len(p)
	return n, err
}
