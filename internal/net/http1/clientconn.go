package http1

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"sync"
	"time"

	"sovereign/internal/net/poller"
	"sovereign/internal/net/socket"
)

// A clientConn is a connection to the origin with its read buffer. One exchange uses it at a time.
type clientConn struct {
	conn         net.Conn       // a *tls.Conn over netConn, or netConn itself
	netConn      net.Conn       // the TCP connection
	socket       *socket.Socket // of netConn; nil if it has none
	abort        func()         // fails the read or write under way; safe to call from any goroutine
	reused       bool           // not the first exchange: the server may have closed the connection since the last one
	noReuse      bool           // a request was not sent whole, so that no other may follow
	outgoing     outgoing
	exchange     socket.Exchange
	registration poller.Registration
	nonblocking  nonblocking
	lastFields   [numFields]string // of the last response, so that equal values are not copied again

	buffer     []byte
	start, end int // buffer[start:end] is unread

	idleSince time.Time
	expires   time.Time // when the server closes the connection, by its Keep-Alive header; zero if it did not say
}

// The read buffer starts small and grows with what arrives: there may be ten thousand streams that bring a word a
// second.
const (
	initialBuffer = 4 << 10
	maxBuffer     = 32 << 10
)

// dial connects to the origin, with a TLS handshake if it is https.
func (c *Client) dial(ctx context.Context) (*clientConn, error) {
	conn, err := c.dialer.DialContext(ctx, "tcp", c.origin.address)
	if err != nil {
		return nil, err
	}
	cc := &clientConn{conn: conn, netConn: conn, socket: socket.Of(conn), buffer: make([]byte, initialBuffer)}
	cc.abort = func() {
		_ = conn.SetDeadline(longAgo)
		cc.registration.Cancel()
	}
	cc.exchange.OnSent = cc.outgoing.release
	if c.origin.tls == nil {
		return cc, nil
	}
	secure := tls.Client(tlsTransport{conn, cc}, c.origin.tls)
	handshake, cancel := context.WithTimeout(ctx, c.config.DialTimeout)
	defer cancel()
	if err := secure.HandshakeContext(handshake); err != nil {
		_ = conn.Close()
		return nil, fmt.Errorf("tls: %w", err)
	}
	cc.conn = secure
	return cc, nil
}

// longAgo is a deadline that has passed: with it, reads and writes fail at once.
var longAgo = time.Unix(1, 0)

// A tlsTransport is the connection below TLS. It reads and writes through the clientConn, and turns an EOF without
// TLS's close_notify into an error. crypto/tls does not do that between two records, and anybody on the network path
// could truncate a response that is ended by the end of its connection.
type tlsTransport struct {
	net.Conn
	cc *clientConn
}

var errTruncated = fmt.Errorf("%w: the connection was cut", io.ErrUnexpectedEOF)

// Read implements io.Reader.
func (t tlsTransport) Read(p []byte) (int, error) {
	n, err := t.cc.read(t.Conn, p)
	if errors.Is(err, io.EOF) {
		err = errTruncated
	}
	return n, err
}

// Write implements io.Writer. In a callback of the poller it must not block: there, TLS writes only what the protocol
// itself needs, such as a key update.
func (t tlsTransport) Write(p []byte) (int, error) {
	if !t.cc.nonblocking.on {
		return t.Conn.Write(p)
	}
	n, err := t.cc.socket.TryWrite(p)
	if err == nil && n < len(p) {
		err = io.ErrShortWrite
	}
	return n, err
}

// close closes the TCP connection. It sends no close_notify, because that could block and the framing has told the
// server where the request ended.
func (cc *clientConn) close() { _ = cc.netConn.Close() }

// maxCoalesced is the size up to which head and body are copied into one buffer and sent as one.
const maxCoalesced = 16 << 10

// headBuffers are the buffers for heads, and for bodies that are coalesced with them.
var headBuffers = sync.Pool{New: func() any { return new([]byte) }}

// An outgoing is the request being sent. It is released before the response is waited for, since a provider may take
// minutes to answer.
type outgoing struct {
	header *[]byte
	parts  net.Buffers // the header and the parts of the body
}

// release gives the buffer back. It is called when the request was sent, and again when send returns.
func (o *outgoing) release() {
	if o.header != nil {
		*o.header = (*o.header)[:0]
		headBuffers.Put(o.header)
	}
	clear(o.parts[:cap(o.parts)])
	o.header, o.parts = nil, o.parts[:0]
}

// errStale means that a keep-alive connection cannot be used any more, and that nothing was sent over it.
var errStale = socket.ErrStale

// send writes a request, with one system call if the send buffer takes it. It returns errStale if the server has closed
// the connection, or has sent something, since the last exchange.
func (cc *clientConn) send(host string, r *Request) error {
	o := &cc.outgoing
	defer o.release()
	length := 0
	for _, part := range r.Body {
		length += len(part)
	}
	o.header, _ = headBuffers.Get().(*[]byte)
	text := r.appendHead((*o.header)[:0], host, length)
	parts := r.Body
	if len(text)+length <= maxCoalesced {
		for _, part := range parts {
			text = append(text, part...)
		}
		parts = nil
	}
	*o.header = text
	o.parts = append(append(o.parts[:0], text), parts...)
	if cc.socket != nil && cc.conn == cc.netConn {
		return cc.roundTrip()
	}
	if cc.reused && cc.stale() { // it may become stale right after this: then the write fails
		return errStale
	}
	rest := o.parts
	_, err := rest.WriteTo(cc.conn)
	return err
}

// roundTrip sends over a plain connection, and waits for the first bytes of the response. If those do not come, it
// leaves the error for fill to return.
func (cc *clientConn) roundTrip() error {
	x := &cc.exchange
	*x = socket.Exchange{Request: cc.outgoing.parts, First: !cc.reused, OnSent: x.OnSent, Buffer: cc.buffer}
	err := cc.socket.RoundTrip(x)
	cc.start, cc.end = 0, x.N
	x.Request, x.Buffer = nil, nil // else a buffer that grow replaces would be kept alive
	return err
}

// stale reports whether the connection must not be reused: it has ended, or the server has sent something between two
// exchanges, which would be taken for the next response.
func (cc *clientConn) stale() bool {
	if cc.conn != cc.netConn && cc.tlsHasUnread() {
		return true
	}
	return cc.socket != nil && cc.socket.Stale()
}

// tlsHasUnread reports whether TLS has received more than was read: bytes after the response, or a close_notify. The
// deadline keeps it from reading the socket.
func (cc *clientConn) tlsHasUnread() bool {
	var one [1]byte
	_ = cc.netConn.SetReadDeadline(longAgo)
	_, err := cc.conn.Read(one[:])
	_ = cc.netConn.SetReadDeadline(time.Time{})
	return !errors.Is(err, os.ErrDeadlineExceeded)
}

// awaitResponse waits for a response to a request that was not sent whole, and reports whether it has begun.
func (cc *clientConn) awaitResponse() bool {
	_ = cc.conn.SetReadDeadline(time.Now().Add(lingerTimeout))
	err := cc.fill()
	_ = cc.conn.SetReadDeadline(time.Time{})
	return err == nil
}

// lingerTimeout bounds the wait for a peer after one side has stopped reading: the client's wait for a refusal in the
// middle of a request, and the server's wait for the rest of a body that it does not read.
const lingerTimeout = time.Second

// fill reads once, behind the unread bytes. There is room: callers grow the buffer when it is full.
func (cc *clientConn) fill() error {
	switch {
	case cc.start == cc.end:
		cc.start, cc.end = 0, 0
	case cc.end == len(cc.buffer):
		copy(cc.buffer, cc.buffer[cc.start:cc.end])
		cc.start, cc.end = 0, cc.end-cc.start
	}
	n, err := 0, cc.exchange.ReadErr
	if err == nil {
		n, err = cc.read(cc.conn, cc.buffer[cc.end:])
	}
	if cc.end += n; n > 0 {
		return nil // the next read returns err again
	}
	if err == nil {
		err = io.ErrNoProgress
	}
	return err
}

// grow doubles the buffer, up to limit bytes.
func (cc *clientConn) grow(limit int) {
	if len(cc.buffer) >= limit {
		return
	}
	larger := make([]byte, min(2*len(cc.buffer), limit))
	cc.start, cc.end = 0, copy(larger, cc.buffer[cc.start:cc.end])
	cc.buffer = larger
}

// readLine returns the next line without its CR LF. The line has at most limit bytes, and is valid until the next read.
// A line that ends with LF alone is malformed: readers differ on whether it ends there, and so on where the response
// ends.
func (cc *clientConn) readLine(limit int) ([]byte, error) {
	for searched := 0; ; {
		unread := cc.buffer[cc.start:cc.end]
		if n := bytes.IndexByte(unread[searched:], '\n'); n >= 0 {
			end := searched + n
			if end+1 > limit {
				return nil, fmt.Errorf("%w: a line of more than %d bytes", ErrMalformed, limit)
			}
			if end == 0 || unread[end-1] != '\r' {
				return nil, fmt.Errorf("%w: a line that ends with a bare LF", ErrMalformed)
			}
			cc.start += end + 1
			return unread[:end-1], nil
		}
		searched = len(unread)
		if searched >= limit {
			return nil, fmt.Errorf("%w: a line of more than %d bytes", ErrMalformed, limit)
		}
		if searched == len(cc.buffer) {
			cc.grow(limit)
		}
		if err := cc.fill(); err != nil {
			return nil, unexpectedEOF(err)
		}
	}
}

// unexpectedEOF returns io.ErrUnexpectedEOF for io.EOF, and every other error as it is.
func unexpectedEOF(err error) error {
	if errors.Is(err, io.EOF) {
		return io.ErrUnexpectedEOF
	}
	return err
}
