package rota

import (
	"io"
	"os"
	"syscall"
)

// A Socket reads and writes a connection without waiting for its peer. Reading is for one at a time, and so is writing.
type Socket struct {
	conn     conn
	in, out  transfer
	sip, pip func(fd uintptr) bool
}

type transfer struct {
	text  []byte
	n     int
	errno errno
}

type errno = syscall.Errno

// again says that it would take waiting.
const again = syscall.EAGAIN

// NewSocket is the socket of a connection.
func NewSocket(of syscall.RawConn) *Socket {
	s := &Socket{conn: of}
	s.sip = func(fd uintptr) bool { return s.in.by(glance, fd) }
	s.pip = func(fd uintptr) bool { return s.out.by(push, fd) }
	return s
}

func (t *transfer) by(call func(fd uintptr, p []byte) (int, errno), fd uintptr) bool {
	for {
		if t.n, t.errno = call(fd, t.text); t.errno != syscall.EINTR {
			return true
		}
	}
}

// Read reads what has come. That it is nothing is told as a deadline that has passed: TLS takes it for something that goes by.
func (s *Socket) Read(p []byte) (int, error) {
	s.in.text = p
	err := s.conn.Read(s.sip)
	s.in.text = nil
	switch {
	case err != nil:
		return 0, err
	case s.in.errno == again:
		return 0, os.ErrDeadlineExceeded
	case s.in.errno != 0:
		return 0, os.NewSyscallError("read", s.in.errno)
	case s.in.n == 0 && len(p) > 0:
		return 0, io.EOF
	}
	return s.in.n, nil
}

// Write writes as much as there is room for, if that is nothing.
func (s *Socket) Write(p []byte) (int, error) {
	s.out.text = p
	err := s.conn.Write(s.pip)
	s.out.text = nil
	switch {
	case err != nil:
		return 0, err
	case s.out.errno == again:
		return 0, nil
	case s.out.errno != 0:
		return 0, os.NewSyscallError("write", s.out.errno)
	}
	return s.out.n, nil
}
