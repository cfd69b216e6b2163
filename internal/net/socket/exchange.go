//go:build linux

package socket

import (
	"errors"
	"io"
	"syscall"
)

// An Exchange is one request and the beginning of its response, for RoundTrip. The caller sets the first four fields.
type Exchange struct {
	Request [][]byte // consumed as it is sent
	First   bool     // the first exchange on the connection, which cannot be stale
	OnSent  func()   // called once, when all of Request was sent and before the response is waited for
	Buffer  []byte   // for the first bytes of the response

	N       int   // bytes of the response in Buffer
	ReadErr error // the end of the connection in place of a response, which a later Read would not return again

	stale      bool
	sent       bool
	writeErrno syscall.Errno
}

// ErrStale means that a keep-alive connection was closed, or that the peer sent something on it, while it was idle.
// Nothing was sent: the request may be repeated on another connection.
var ErrStale = errors.New("the connection was closed, or its peer spoke, while it was not in use")

// RoundTrip sends a request and waits for the first bytes of the response, in one hold of the RawConn: it checks that a
// reused connection is not stale, writes with writev, and then waits for readability. A Write followed by a Read would
// call read(2) once more, in vain, since no response arrives that fast.
//
// It returns nil when the request was sent. Then either x.N bytes have arrived, or x.ReadErr is set, or neither: the
// deadline has passed, or the request did not fit into the send buffer and was sent by Write. In that case the caller
// goes on with Read.
func (s *Socket) RoundTrip(x *Exchange) error {
	s.in.mutex.Lock()
	s.exchange = x
	err := s.Raw.Read(s.exchangeStep)
	s.exchange = nil
	s.in.mutex.Unlock()
	switch {
	case x.stale:
		return ErrStale
	case x.sent: // an err here is a deadline, and Read returns it again
		return nil
	case x.writeErrno != 0:
		return s.opError("write", x.writeErrno)
	case err != nil:
		return s.opError("write", err)
	}
	for _, part := range x.Request {
		if _, err := s.Write(part); err != nil {
			return err
		}
	}
	x.OnSent()
	return nil
}

// stepExchange is the step of RawConn.Read for an Exchange. It is called once at first, and again on readability until
// it returns true.
func (s *Socket) stepExchange(fd uintptr) bool {
	x := s.exchange
	if x.sent {
		return s.readResponse(fd)
	}
	if !x.First {
		var one [1]byte
		if _, errno := rawRead(fd, one[:]); errno != syscall.EAGAIN {
			x.stale = true
			return true
		}
	}
	for len(x.Request) > 0 {
		n, errno := rawWritev(fd, x.Request)
		if errno != 0 {
			if errno != syscall.EAGAIN {
				x.writeErrno = errno
			}
			return true
		}
		x.consume(n)
	}
	x.sent = true
	x.OnSent()
	// RawConn.Read forgets the readiness that was reported before it, and is not told again (epoll is edge-triggered).
	// On a reused connection the stale check has just shown that nothing was there. A new one was not checked: read it
	// now.
	return x.First && s.readResponse(fd)
}

// consume removes the first n bytes of the request.
func (x *Exchange) consume(n int) {
	for len(x.Request) > 0 && n >= len(x.Request[0]) {
		n -= len(x.Request[0])
		x.Request = x.Request[1:]
	}
	if n > 0 {
		x.Request[0] = x.Request[0][n:]
	}
}

// readResponse reads once. It returns false, to be called again on readability, when nothing has arrived.
func (s *Socket) readResponse(fd uintptr) bool {
	x := s.exchange
	n, errno := rawRead(fd, x.Buffer)
	switch {
	case errno == syscall.EAGAIN:
		return false
	case errno != 0:
		x.ReadErr = s.opError("read", errno)
	case n == 0:
		x.ReadErr = io.EOF
	}
	x.N = n
	return true
}
