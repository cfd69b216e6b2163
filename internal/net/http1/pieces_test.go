package http1

import (
	"bytes"
	"io"
	"net"
	"net/url"
	"slices"
	"sync/atomic"
	"testing"
	"time"
)

// A played connection hands out what a server sends, in pieces, and takes whatever is written.
type fakeConn struct {
	wire        []byte
	cuts        []byte   // the size of each piece less one, again and again; none is all at once
	responses   [][]byte // what comes after each request
	eofWithData bool     // the end comes with the last bytes
	writes      int
	reads       int
	closed      atomic.Bool
}

func (p *fakeConn) Read(to []byte) (int, error) {
	if p.closed.Load() {
		return 0, net.ErrClosed
	}
	if len(p.wire) == 0 {
		return 0, io.EOF
	}
	size := len(p.wire)
	if len(p.cuts) > 0 {
		size = min(size, 1+int(p.cuts[p.reads%len(p.cuts)]))
		p.reads++
	}
	n := copy(to, p.wire[:size])
	if p.wire = p.wire[n:]; p.eofWithData && len(p.wire) == 0 {
		return n, io.EOF
	}
	return n, nil
}

func (p *fakeConn) Write(b []byte) (int, error) {
	p.writes++
	if len(p.responses) > 0 {
		p.wire = append(p.wire, p.responses[0]...)
		p.responses = p.responses[1:]
	}
	return len(b), nil
}

func (p *fakeConn) Close() error                     { p.closed.Store(true); return nil }
func (p *fakeConn) LocalAddr() net.Addr              { return nil }
func (p *fakeConn) RemoteAddr() net.Addr             { return nil }
func (p *fakeConn) SetDeadline(time.Time) error      { return nil }
func (p *fakeConn) SetReadDeadline(time.Time) error  { return nil }
func (p *fakeConn) SetWriteDeadline(time.Time) error { return nil }

// over is a link on a connection that no client has dialed, with a buffer of a size.
func newFakeClientConn(conn net.Conn, buffer int) *clientConn {
	return &clientConn{conn: conn, netConn: conn, abort: func() {}, buffer: make([]byte, buffer)}
}

// smallHead is how much of a head the clients of these tests take.
const testMaxHead = 8 << 10

// reaching is a client of an origin.
func newClient(t testing.TB, base string, change ...func(*Config)) *Client {
	t.Helper()
	client, err := newClientFor(base, change...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(client.Close)
	return client
}

func newClientFor(base string, change ...func(*Config)) (*Client, error) {
	to, err := url.Parse(base)
	if err != nil {
		return nil, err
	}
	c := Config{DialTimeout: 5 * time.Second, IdleTimeout: time.Minute, Idle: 64, MaxHead: testMaxHead}
	for _, f := range change {
		f(&c)
	}
	return New(to, c)
}

// get is the smallest request.
func getRoot() *Request { return &Request{Method: "GET", Target: "/"} }

// drain reads a body to its end. Each of reads says how: 0 by Next, 255 by a Read past the buffer, any other by a Read of
// that many bytes.
func drain(b *Body, reads []byte) ([]byte, error) {
	var whole bytes.Buffer
	var large []byte
	for turn := 0; ; turn++ {
		how := byte(0)
		if len(reads) > 0 {
			how = reads[turn%len(reads)]
		}
		var piece []byte
		var err error
		switch how {
		case 0:
			piece, err = b.Next()
			if err == nil && len(piece) == 0 {
				return whole.Bytes(), io.ErrNoProgress
			}
		case 255:
			large = slices.Grow(large, maxBuffer)[:maxBuffer]
			n, failed := b.Read(large)
			piece, err = large[:n], failed
		default:
			large = slices.Grow(large, 255)
			n, failed := b.Read(large[:how])
			piece, err = large[:n], failed
		}
		whole.Write(piece)
		if err == io.EOF { //nolint:errorlint // it is told as it is
			return whole.Bytes(), nil
		}
		if err != nil {
			return whole.Bytes(), err
		}
	}
}
