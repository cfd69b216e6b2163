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

// A fakeConn returns what a server sends, in pieces, and accepts whatever is written.
type fakeConn struct {
	wire        []byte
	cuts        []byte   // the sizes of the pieces, less one, repeated; without any, all is returned at once
	responses   [][]byte // appended to wire by each write
	eofWithData bool     // io.EOF comes with the last bytes
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

// newFakeClientConn returns a clientConn over a connection that was not dialled, with a buffer of a given size.
func newFakeClientConn(conn net.Conn, buffer int) *clientConn {
	return &clientConn{conn: conn, netConn: conn, abort: func() {}, buffer: make([]byte, buffer)}
}

// testMaxHead is the MaxHead of the clients under test.
const testMaxHead = 8 << 10

// newClient returns a client of an origin.
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

// getRoot returns the smallest request.
func getRoot() *Request { return &Request{Method: "GET", Target: "/"} }

// drain reads a body to its end. Each of reads says how: 0 by Next, 255 by a Read that bypasses the buffer, any other
// by a Read of that many bytes.
func drain(b *Body, reads []byte) ([]byte, error) {
	var whole bytes.Buffer
	var large []byte
	for i := 0; ; i++ {
		how := byte(0)
		if len(reads) > 0 {
			how = reads[i%len(reads)]
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
		if err == io.EOF { //nolint:errorlint // a body returns it unwrapped
			return whole.Bytes(), nil
		}
		if err != nil {
			return whole.Bytes(), err
		}
	}
}
