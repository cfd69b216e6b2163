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
	"strconv"
	"sync"
	"time"

	"sovereign/internal/net/poller"
	"sovereign/internal/net/socket"
)

// A link is a connection to the origin, with what has been read from it and not been used yet. One exchange has it at a time.
type clientConn struct {
	conn     net.Conn // the bare one, or TLS over it
	netConn  net.Conn
	socket   *socket.Socket // nil where there is none
	abort    func()         // ends what is being written or read, from any goroutine
	reused   bool           // it was used before: the peer may have closed it since
	outgoing outgoing
	exchange socket.Exchange
	place    poller.Registration
	haste    haste
	spoiled  bool              // a request was not sent whole: no other may follow
	said     [numFields]string // by the last answer's head

	buffer []byte
	start  int // what is unread stands in buffer[from:to]
	end    int

	idle    time.Time // when it was last used
	expires time.Time // when the peer closes it, as it says; zero when it does not say
}

// The buffer is small until there is need, for there may be ten thousand streams that say a word a second.
const (
	initialBuffer = 4 << 10
	maxBuffer     = 32 << 10
)

func (c *Client) dial(ctx context.Context) (*clientConn, error) {
	bare, err := c.dialer.DialContext(ctx, "tcp", c.origin.address)
	if err != nil {
		return nil, err
	}
	l := &clientConn{conn: bare, netConn: bare, socket: socket.Of(bare), buffer: make([]byte, initialBuffer)}
	l.abort = func() {
		_ = bare.SetDeadline(time.Unix(1, 0)) // long ago
		l.place.Cancel()
	}
	l.exchange.OnSent = l.outgoing.release
	if c.origin.secure == nil {
		return l, nil
	}
	secure := tls.Client(farewell{bare, l}, c.origin.secure)
	shaking, done := context.WithTimeout(ctx, c.config.DialTimeout)
	defer done()
	if err := secure.HandshakeContext(shaking); err != nil {
		_ = bare.Close()
		return nil, fmt.Errorf("tls: %w", err)
	}
	l.conn = secure
	return l, nil
}

// A farewell is a connection below TLS, whose end without TLS's own is an error: anybody on the way can end a connection, and
// an answer that ends with it would look whole.
type farewell struct {
	net.Conn
	link *clientConn
}

var errFarewell = fmt.Errorf("%w: the connection was cut", io.ErrUnexpectedEOF)

func (f farewell) Read(p []byte) (int, error) {
	n, err := f.link.read(f.Conn, p)
	if errors.Is(err, io.EOF) {
		err = errFarewell
	}
	return n, err
}

// Write sends what TLS itself has to say. In a turn nobody waits until the peer takes it.
func (f farewell) Write(p []byte) (int, error) {
	if !f.link.haste.on {
		return f.Conn.Write(p)
	}
	n, err := f.link.socket.TryWrite(p)
	if err == nil && n < len(p) {
		err = io.ErrShortWrite
	}
	return n, err
}

// close ends the connection at once. TLS's farewell is left out: it could block, and every answer tells its own end.
func (l *clientConn) close() { _ = l.netConn.Close() }

// together is up to which size a head and a body are sent as one piece.
const maxCoalesced = 16 << 10

// heads are buffers for heads, and for what is sent together with them.
var heads = sync.Pool{New: func() any { return new([]byte) }}

// A sending is what is being sent. Who waits for an answer keeps nothing of it: a provider may think for minutes before it says a word.
type outgoing struct {
	header *[]byte
	parts  net.Buffers // with the head
}

// end is called when it was sent, and once more when nothing more will be.
func (s *outgoing) release() {
	if s.header != nil {
		*s.header = (*s.header)[:0]
		heads.Put(s.header)
	}
	clear(s.parts[:cap(s.parts)])
	s.header, s.parts = nil, s.parts[:0]
}

// errStale says that a connection that was kept is of no use any more. Nothing was sent over it.
var errStale = socket.ErrStale

// send writes a request: in one call, as far as the connection lets it. It is errStale where the peer has closed, or has said something out
// of turn.
func (l *clientConn) send(host string, r *Request) error {
	s := &l.outgoing
	defer s.release()
	length := 0
	for _, part := range r.Body {
		length += len(part)
	}
	s.header, _ = heads.Get().(*[]byte)
	text := r.appendHead((*s.header)[:0], host, length)
	parts := r.Body
	if len(text)+length <= maxCoalesced {
		for _, part := range parts {
			text = append(text, part...)
		}
		parts = nil
	}
	*s.header = text
	s.parts = append(append(s.parts[:0], text), parts...)
	if l.socket != nil && l.conn == l.netConn {
		return l.ask()
	}
	if l.reused && !l.quiet() { // which an end may come into: then the writing fails
		return errStale
	}
	rest := s.parts
	_, err := rest.WriteTo(l.conn)
	return err
}

// ask sends over a plain connection, and returns when something of the answer is there, or nothing will be: who reads it is told.
func (l *clientConn) ask() error {
	q := &l.exchange
	*q = socket.Exchange{Request: l.outgoing.parts, First: !l.reused, OnSent: q.OnSent, Buffer: l.buffer}
	err := l.socket.RoundTrip(q)
	l.start, l.end = 0, q.N
	q.Request, q.Buffer = nil, nil // or a buffer that is too small for the answer would be kept with it
	return err
}

// quiet reports whether the connection stands, and the peer has said nothing out of turn: what it says between two
// exchanges, if only that it goes, would be taken for an answer.
func (l *clientConn) quiet() bool {
	if l.conn != l.netConn && l.holds() {
		return false
	}
	return l.socket == nil || !l.socket.Stale()
}

// holds reports whether TLS has read more than it has handed out: bytes behind the answer's end, or the peer's farewell. The
// socket is not asked: its deadline has passed.
func (l *clientConn) holds() bool {
	var one [1]byte
	_ = l.netConn.SetReadDeadline(time.Unix(1, 0))
	_, err := l.conn.Read(one[:])
	_ = l.netConn.SetReadDeadline(time.Time{})
	return !errors.Is(err, os.ErrDeadlineExceeded)
}

// head appends a request's head.
func (r *Request) appendHead(to []byte, host string, length int) []byte {
	to = r.begin(to, host)
	to = append(to, "Content-Length: "...)
	to = strconv.AppendInt(to, int64(length), 10)
	return append(to, "\r\n\r\n"...)
}

// begin appends the head but for the body's length.
func (r *Request) begin(to []byte, host string) []byte {
	if r.HeaderTemplate != nil {
		return r.fields(append(to, r.HeaderTemplate.text.Reveal()...))
	}
	to = append(to, r.Method...)
	to = append(to, ' ')
	to = append(to, r.Target...)
	to = append(to, " HTTP/1.1\r\nHost: "...)
	to = append(to, host...)
	return r.fields(append(to, "\r\n"...))
}

func (r *Request) fields(to []byte) []byte {
	for _, f := range r.Fields {
		to = append(to, f.Name...)
		to = append(to, ": "...)
		to = append(to, f.Value...)
		to = append(to, "\r\n"...)
	}
	return to
}

// answered waits a moment for an answer to a request that could not be sent whole.
func (l *clientConn) answered() bool {
	_ = l.conn.SetReadDeadline(time.Now().Add(lingerTimeout))
	err := l.fill()
	_ = l.conn.SetReadDeadline(time.Time{})
	return err == nil
}

// lingering is how long the refusal of a server that closed in the middle of a request may be on its way.
const lingerTimeout = time.Second

// fill reads once, behind what is unread. There is room: whoever has read a bufferful that is no end of anything grows it.
func (l *clientConn) fill() error {
	switch {
	case l.start == l.end:
		l.start, l.end = 0, 0
	case l.end == len(l.buffer):
		copy(l.buffer, l.buffer[l.start:l.end])
		l.start, l.end = 0, l.end-l.start
	}
	n, err := 0, l.exchange.ReadErr
	if err == nil {
		n, err = l.read(l.conn, l.buffer[l.end:])
	}
	if l.end += n; n > 0 {
		return nil // an error will come again
	}
	if err == nil {
		err = io.ErrNoProgress
	}
	return err
}

// grow makes the buffer larger, up to most bytes.
func (l *clientConn) grow(most int) {
	if len(l.buffer) >= most {
		return
	}
	larger := make([]byte, min(2*len(l.buffer), most))
	l.start, l.end = 0, copy(larger, l.buffer[l.start:l.end])
	l.buffer = larger
}

// line takes the next line, without its end, of at most most bytes; the slice is good until the next read. A line ends with
// CR LF: who lets a bare LF end it, as some do, reads another answer than who does not.
func (l *clientConn) line(most int) ([]byte, error) {
	for searched := 0; ; {
		unread := l.buffer[l.start:l.end]
		if n := bytes.IndexByte(unread[searched:], '\n'); n >= 0 {
			end := searched + n
			if end+1 > most {
				return nil, fmt.Errorf("%w: a line of more than %d bytes", ErrMalformed, most)
			}
			if end == 0 || unread[end-1] != '\r' {
				return nil, fmt.Errorf("%w: a line that ends with a bare LF", ErrMalformed)
			}
			l.start += end + 1
			return unread[:end-1], nil
		}
		searched = len(unread)
		if searched >= most {
			return nil, fmt.Errorf("%w: a line of more than %d bytes", ErrMalformed, most)
		}
		if searched == len(l.buffer) {
			l.grow(most)
		}
		if err := l.fill(); err != nil {
			return nil, broken(err)
		}
	}
}

// broken is an end where there should be more.
func broken(err error) error {
	if errors.Is(err, io.EOF) {
		return io.ErrUnexpectedEOF
	}
	return err
}
