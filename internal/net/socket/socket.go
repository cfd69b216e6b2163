// Package socket reads and writes connections as package net does, for less: see kernel.go and question.go for how.
package socket

import (
	"errors"
	"io"
	"net"
	"os"
	"sync"
	"syscall"
)

// A Socket is a connection's. What it reads and writes waits for the peer until the connection's deadlines.
type Socket struct {
	Raw     syscall.RawConn
	conn    net.Conn // whose Raw is
	in, out transfer
	asked   *Question
	ask     func(fd uintptr) bool
}

// A transfer is a read, or a write, under way.
type transfer struct {
	mutex sync.Mutex // one at a time, as with a connection
	step  func(fd uintptr) bool
	text  []byte // what it reads into, or what is left to write
	waits bool
	n     int // bytes that were read
	errno syscall.Errno
}

// Of is the socket of a connection, or nil where it has none.
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
	s.in.step, s.out.step, s.ask = s.in.read, s.out.write, s.inquire
	return s
}

// read is called until it is true: when something may have come.
func (t *transfer) read(fd uintptr) bool {
	t.n, t.errno = receive(fd, t.text)
	return t.errno != syscall.EAGAIN || !t.waits
}

// write is called until it is true: when there may be room.
func (t *transfer) write(fd uintptr) bool {
	var n int
	for t.errno = 0; len(t.text) > 0 && t.errno == 0; t.text = t.text[n:] {
		n, t.errno = send(fd, t.text)
	}
	return t.errno != syscall.EAGAIN || !t.waits
}

// Read is as a connection's.
func (s *Socket) Read(p []byte) (int, error) { return s.read(p, true) }

// TryRead reads what has come. That it is nothing is told as a deadline that has passed: TLS takes it for something that goes by.
func (s *Socket) TryRead(p []byte) (int, error) { return s.read(p, false) }

func (s *Socket) read(p []byte, waits bool) (int, error) {
	if len(p) == 0 {
		return 0, nil
	}
	s.in.mutex.Lock()
	defer s.in.mutex.Unlock()
	s.in.text, s.in.waits = p, waits
	err := s.Raw.Read(s.in.step)
	s.in.text = nil
	switch {
	case err != nil:
		return 0, s.failed("read", err)
	case s.in.errno == syscall.EAGAIN:
		return 0, os.ErrDeadlineExceeded
	case s.in.errno != 0:
		return 0, s.failed("read", s.in.errno)
	case s.in.n == 0:
		return 0, io.EOF
	}
	return s.in.n, nil
}

// Write is as a connection's.
func (s *Socket) Write(p []byte) (int, error) { return s.write(p, true) }

// TryWrite writes as much as there is room for, if that is nothing.
func (s *Socket) TryWrite(p []byte) (int, error) { return s.write(p, false) }

func (s *Socket) write(p []byte, waits bool) (int, error) {
	s.out.mutex.Lock()
	defer s.out.mutex.Unlock()
	s.out.text, s.out.waits = p, waits
	err := s.Raw.Write(s.out.step)
	n := len(p) - len(s.out.text)
	s.out.text = nil
	switch {
	case err != nil:
		return n, s.failed("write", err)
	case s.out.errno != 0 && s.out.errno != syscall.EAGAIN:
		return n, s.failed("write", s.out.errno)
	}
	return n, nil
}

// failed tells an error as package net does.
func (s *Socket) failed(op string, err error) error {
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

// Quiet reports whether the peer has said nothing that was not read, if only that it goes. It may take a byte of what it said.
func (s *Socket) Quiet() bool {
	var one [1]byte
	_, err := s.TryRead(one[:])
	return err == os.ErrDeadlineExceeded //nolint:errorlint // which package net tells of the connection's own, and tells it wrapped
}

// WakeAt says how many bytes must have come before who waits for them is woken; a kernel that cannot hold so many does it earlier. To be
// woken for every piece of much that is on its way costs more than to read it: the wake itself, and what the processor had in its caches.
func (s *Socket) WakeAt(bytes int) {
	_ = s.Raw.Control(func(fd uintptr) {
		_ = syscall.SetsockoptInt(int(fd), syscall.SOL_SOCKET, syscall.SO_RCVLOWAT, bytes) // else it is woken as usual
	})
}
