package http1

import (
	"errors"
	"io"
	"net/http"
	"os"
	"sync"
	"time"

	"sovereign/internal/net/pace"
)

// A requestBody is the body of a request, for its handler.
type requestBody struct {
	conn        *serverConn
	remaining   int64
	deadlineSet bool // the deadline of meter is set
	meter       pace.Meter
	lowWater    int // SO_RCVLOWAT as set for this body; 0 if it was not set

	mutex sync.Mutex
	ended bool // the handler has returned: what arrives now belongs to another request
}

// Read implements io.Reader. It returns io.EOF with the last bytes, and then starts the background read.
func (b *requestBody) Read(p []byte) (int, error) {
	b.mutex.Lock()
	defer b.mutex.Unlock()
	if b.ended {
		return 0, http.ErrBodyReadAfterClose
	}
	n, err := b.read(p)
	if errors.Is(err, io.EOF) && n > 0 {
		b.conn.startBackgroundRead()
	}
	return n, err
}

func (b *requestBody) read(p []byte) (n int, err error) {
	sc := b.conn
	if b.remaining == 0 {
		return 0, io.EOF
	}
	p = p[:min(int64(len(p)), b.remaining)]
	if sc.start < sc.end {
		n = copy(p, sc.buffer[sc.start:sc.end])
		sc.start += n
	} else if n, err = b.receive(p); n == 0 {
		if errors.Is(err, io.EOF) {
			err = io.ErrUnexpectedEOF
		}
		return 0, err
	}
	if b.remaining -= int64(n); b.remaining == 0 {
		b.setLowWater(1)
		return n, io.EOF
	}
	return n, nil
}

// receive reads from the connection. Most of a long body has arrived already: a read that does not block saves the
// system calls that set the deadline and the low-water mark.
func (b *requestBody) receive(p []byte) (int, error) {
	sc := b.conn
	if sc.socket != nil && len(p) >= minLowWater && !b.deadlineSet {
		if n, err := sc.socket.TryRead(p); !errors.Is(err, os.ErrDeadlineExceeded) {
			return n, err
		}
	}
	if !b.deadlineSet {
		b.deadlineSet, sc.idleDeadlineSet = true, longAgo
		b.meter.Limit = pace.Limit{Timeout: sc.server.BodyTimeout, Rate: sc.server.BodyRate}
		b.extendDeadline()
	}
	b.setLowWater(len(p))
	for {
		n, err := sc.read(p)
		if n > 0 || !errors.Is(err, os.ErrDeadlineExceeded) {
			b.meter.Add(n)
			return n, err
		}
		n = b.receiveFew(p)
		if !b.meter.Add(n) || !b.extendDeadline() {
			return 0, err
		}
		if n > 0 {
			return n, nil
		}
	}
}

// extendDeadline sets the deadline of the next window. It returns false if the body is too slow.
func (b *requestBody) extendDeadline() bool {
	deadline, ok := b.meter.Next(time.Now())
	if ok {
		_ = b.conn.conn.SetReadDeadline(deadline)
	}
	return ok
}

// receiveFew reads what has arrived and is less than the low-water mark, after the deadline has passed.
func (b *requestBody) receiveFew(p []byte) int {
	if b.lowWater <= 1 {
		return 0
	}
	_ = b.conn.conn.SetReadDeadline(time.Time{}) // a read that does not block respects it too
	n, _ := b.conn.socket.TryRead(p)
	return n
}

// Paced implements fastpath.PacedBody.
func (b *requestBody) Paced() {}

// The low-water mark is used for reads of at least minLowWater bytes, and is never set higher than maxLowWater.
const (
	minLowWater = 32 << 10
	maxLowWater = 1 << 20
)

// setLowWater has the next read wait for so many bytes, or for any number if they are few.
func (b *requestBody) setLowWater(bytes int) {
	if bytes = min(bytes, maxLowWater); bytes < minLowWater {
		bytes = 1
	}
	if b.conn.socket != nil && bytes != max(b.lowWater, 1) {
		b.lowWater = bytes
		b.conn.socket.SetReadLowWater(bytes)
	}
}

// end makes later reads fail: a goroutine of the handler may still hold the body.
func (b *requestBody) end() {
	b.mutex.Lock()
	defer b.mutex.Unlock()
	b.ended = true
}

// Close implements io.Closer.
func (b *requestBody) Close() error { return nil }

// maxDiscard is the most of an unread body that is read so that its connection can be used again.
const maxDiscard = 256 << 10

// discard reads the rest of the body, and reports whether it could.
func (b *requestBody) discard() bool {
	var buffer []byte
	for b.remaining > 0 && b.remaining <= maxDiscard {
		if buffer == nil {
			buffer = make([]byte, 4<<10)
		}
		if _, err := b.read(buffer); err != nil && !errors.Is(err, io.EOF) {
			return false
		}
	}
	return b.remaining == 0
}

// linger half-closes the connection and reads on for a moment, for a caller that is still sending its body. Closing at
// once would send a reset, and the caller could lose the response.
func (sc *serverConn) linger() {
	if half, ok := sc.conn.(interface{ CloseWrite() error }); !ok || half.CloseWrite() != nil {
		return
	}
	_ = sc.conn.SetReadDeadline(time.Now().Add(lingerTimeout))
	_, _ = io.CopyN(io.Discard, sc.conn, sc.request.body.remaining-int64(sc.end-sc.start))
}
