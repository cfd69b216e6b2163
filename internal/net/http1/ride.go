package http1

import (
	"bytes"
	"errors"
	"net"
	"os"
	"time"

	"sovereign/internal/net/poller"
)

// Ride has turn called whenever something has come, until turn is false or the exchange ends. A turn runs where others wait for theirs: it
// calls Try until that hands out nothing, and waits for nothing. Ride is false at once where that cannot be.
func (b *Body) Poll(r *poller.Poller, turn func(now time.Time) bool) bool {
	l := b.conn
	if l == nil || l.socket == nil || b.err != nil || b.framing != framingChunked {
		return false
	}
	one := func(now time.Time) bool {
		l.haste.empty = false
		return turn(now)
	}
	if !one(time.Now()) { // what was read already, here or by TLS, does not come again
		return true
	}
	return l.place.Wait(r, l.socket.Raw, one)
}

// Try is Next for who may not wait: nothing, when nothing has come. It is not ok where Next is to be asked, since this is an end, or it fails.
func (b *Body) TryNext() (piece []byte, ok bool) {
	for b.err == nil && b.conn != nil && len(b.ready) == 0 {
		l := b.conn
		switch {
		case l.start == l.end || b.left == 0 && b.unframed():
			came, err := l.try()
			if err != nil || !came {
				return nil, err == nil
			}
		case b.left == 0 && !b.framed():
			return nil, false
		default:
			piece, err := b.dechunk()
			if b.fail(err); len(piece) > 0 {
				return piece, true
			}
		}
	}
	return nil, false
}

// unframed reports whether the line between two chunks has begun at most, and may still be one.
func (b *Body) unframed() bool {
	unread := b.conn.buffer[b.conn.start:b.conn.end]
	if b.inner {
		unread = unread[min(len(unread), len("\r\n")):]
	}
	return len(unread) == 0 || unread[0] != '0' && len(unread) < maxChunkLine && bytes.IndexByte(unread, '\n') < 0
}

// try reads once, behind what is unread, without waiting; false when nothing has come.
func (l *clientConn) try() (came bool, err error) {
	if l.start == l.end && l.end == len(l.buffer) { // the last read filled it
		l.grow(maxBuffer)
	}
	l.haste.on = true
	err = l.fill()
	l.haste.on = false
	if errors.Is(err, os.ErrDeadlineExceeded) {
		return false, nil
	}
	return err == nil, err
}

// haste is how a link is read without waiting.
type haste struct {
	on    bool // it may not wait
	empty bool // what had come in this turn was read to the last byte, and the kernel need not be asked again
}

// read reads from the socket, or from TLS over it, which reads from the socket by this in turn.
func (l *clientConn) read(from net.Conn, p []byte) (int, error) {
	h := &l.haste
	switch {
	case from != l.netConn || l.socket == nil:
		return from.Read(p)
	case !h.on:
		return l.socket.Read(p)
	case h.empty:
		return 0, os.ErrDeadlineExceeded
	}
	n, err := l.socket.TryRead(p)
	h.empty = n < len(p)
	return n, err
}
