//go:build linux

// Package socket reads and writes TCP connections with fewer system calls and scheduler transitions than package net.
//
// It works below a net.Conn, on the connection's syscall.RawConn: deadlines, Close and the wait for readiness stay
// package net's, only the calls of read, write and writev are made here, by RawSyscall (see syscall.go). An Exchange
// sends a request and waits for the first bytes of the response in one hold of the RawConn (see exchange.go).
//
// The package builds on Linux only.
package socket

import (
	"errors"
	"io"
	"net"
	"os"
	"sync"
	"syscall"
)

// A Socket reads and writes a connection. Read and Write block until the connection's deadlines, like those of a
// net.Conn. All methods may be called concurrently.
type Socket struct {
	Raw          syscall.RawConn
	conn         net.Conn // the connection of Raw
	in, out      transfer
	exchange     *Exchange // the one under way; guarded by in.mutex
	exchangeStep func(fd uintptr) bool
}

// A transfer is the state of one direction: the read or the write under way. It lives in the Socket, and step is bound
// once, so that neither a read nor a write allocates a closure.
type transfer struct {
	mutex  sync.Mutex // one read, and one write, at a time
	step   func(fd uintptr) bool
	buffer []byte // to read into, or what is left to write
	blocks bool   // wait for readiness instead of returning EAGAIN
	n      int    // bytes read
	errno  syscall.Errno
}

// Of returns the socket of a connection, or nil if it has none, such as a net.Pipe. A connection with a method
// Socket() *Socket is asked for its own.
func Of(conn net.Conn) *Socket {
	if c, ok := conn.(interface{ Socket() *Socket }); ok {
		return c.Socket()
	}
	c, ok := conn.(syscall.Conn)
	if !ok {
		return nil
	}
	raw, err := c.SyscallConn()
	if err != nil {
		return nil
	}
	s := &Socket{Raw: raw, conn: conn}
	s.in.step, s.out.step, s.exchangeStep = s.in.read, s.out.write, s.stepExchange
	return s
}

// read is a step of RawConn.Read, which calls it again on readability until it returns true.
func (t *transfer) read(fd uintptr) bool {
	t.n, t.errno = rawRead(fd, t.buffer)
	return t.errno != syscall.EAGAIN || !t.blocks
}

// write is a step of RawConn.Write, which calls it again on writability until it returns true.
func (t *transfer) write(fd uintptr) bool {
	var n int
	for t.errno = 0; len(t.buffer) > 0 && t.errno == 0; t.buffer = t.buffer[n:] {
		n, t.errno = rawWrite(fd, t.buffer)
	}
	return t.errno != syscall.EAGAIN || !t.blocks
}

// Read implements io.Reader. Its errors are those of a net.Conn.
func (s *Socket) Read(p []byte) (int, error) { return s.read(p, true) }

// TryRead reads without blocking. When nothing has arrived it returns os.ErrDeadlineExceeded, unwrapped: crypto/tls
// treats that as a temporary error, and reads on later.
func (s *Socket) TryRead(p []byte) (int, error) { return s.read(p, false) }

func (s *Socket) read(p []byte, blocks bool) (int, error) {
	if len(p) == 0 {
		return 0, nil
	}
	s.in.mutex.Lock()
	defer s.in.mutex.Unlock()
	s.in.buffer, s.in.blocks = p, blocks
	err := s.Raw.Read(s.in.step)
	s.in.buffer = nil
	switch {
	case err != nil:
		return 0, s.opError("read", err)
	case s.in.errno == syscall.EAGAIN:
		return 0, os.ErrDeadlineExceeded
	case s.in.errno != 0:
		return 0, s.opError("read", s.in.errno)
	case s.in.n == 0:
		return 0, io.EOF
	}
	return s.in.n, nil
}

// Write implements io.Writer. Its errors are those of a net.Conn.
func (s *Socket) Write(p []byte) (int, error) { return s.write(p, true) }

// TryWrite writes without blocking: as much of p as the send buffer takes. It returns 0, nil when the buffer is full.
func (s *Socket) TryWrite(p []byte) (int, error) { return s.write(p, false) }

func (s *Socket) write(p []byte, blocks bool) (int, error) {
	s.out.mutex.Lock()
	defer s.out.mutex.Unlock()
	s.out.buffer, s.out.blocks = p, blocks
	err := s.Raw.Write(s.out.step)
	n := len(p) - len(s.out.buffer)
	s.out.buffer = nil
	switch {
	case err != nil:
		return n, s.opError("write", err)
	case s.out.errno != 0 && s.out.errno != syscall.EAGAIN:
		return n, s.opError("write", s.out.errno)
	}
	return n, nil
}

// opError wraps an error in the *net.OpError that package net would return for it.
func (s *Socket) opError(op string, err error) error {
	var errno syscall.Errno
	var raw *net.OpError
	if errors.As(err, &raw) {
		err = raw.Err
	} else if errors.As(err, &errno) {
		err = os.NewSyscallError(op, errno)
	}
	to := s.conn.RemoteAddr()
	return &net.OpError{Op: op, Net: to.Network(), Source: s.conn.LocalAddr(), Addr: to, Err: err}
}

// Stale reports whether an idle connection must not be used again, because the peer has closed it or has sent
// something. The check may consume a byte of what the peer sent.
func (s *Socket) Stale() bool {
	var one [1]byte
	_, err := s.TryRead(one[:])
	return err != os.ErrDeadlineExceeded //nolint:errorlint // the connection's own deadline is the same error, wrapped
}

// SetReadLowWater sets SO_RCVLOWAT: a blocked read is woken once that many bytes have arrived, or the connection has
// ended. The kernel wakes it earlier if the receive buffer cannot hold so many. A long body arrives in many segments,
// and a wakeup for each costs more than the copy.
func (s *Socket) SetReadLowWater(bytes int) {
	_ = s.Raw.Control(func(fd uintptr) {
		// An error leaves the mark as it was: then reads are woken more often.
		_ = syscall.SetsockoptInt(int(fd), syscall.SOL_SOCKET, syscall.SO_RCVLOWAT, bytes)
	})
}
