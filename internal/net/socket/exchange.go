package socket

import (
	"errors"
	"io"
	"syscall"
)

// A Question is sent, and its answer waited for, in one hold of the socket. One after the other, the socket would be read once more, in
// vain, since nobody answers that fast.
type Question struct {
	Text  [][]byte // it is used up
	First bool     // nothing was asked before. Else the peer must have been silent since
	Sent  func()   // called when all of it was, before the answer is waited for
	Room  []byte   // for the beginning of the answer

	Heard  int   // bytes of it that have come
	Failed error // what has ended the connection instead, which would not be told again

	spoke bool
	sent  bool
	errno syscall.Errno
}

// ErrSpoke says that a peer has spoken, or has left, before it was asked. Nothing was sent to it.
var ErrSpoke = errors.New("the connection was closed, or its peer spoke, while it was not in use")

// Ask returns when something of the answer is there, or nothing will be: then who reads is told why. What the socket does not take at once
// is sent as usual, and nothing is waited for.
func (s *Socket) Ask(q *Question) error {
	s.in.mutex.Lock()
	s.asked = q
	err := s.Raw.Read(s.ask)
	s.asked = nil
	s.in.mutex.Unlock()
	switch {
	case q.spoke:
		return ErrSpoke
	case q.sent: // that its deadline has passed is found again by who reads
		return nil
	case q.errno != 0:
		return s.failed("write", q.errno)
	case err != nil:
		return s.failed("write", err)
	}
	for _, piece := range q.Text {
		if _, err := s.Write(piece); err != nil {
			return err
		}
	}
	q.Sent()
	return nil
}

// inquire is called until it is true: when something may have come.
func (s *Socket) inquire(fd uintptr) bool {
	q := s.asked
	if q.sent {
		return s.hear(fd)
	}
	if !q.First {
		var one [1]byte
		if _, errno := receive(fd, one[:]); errno != syscall.EAGAIN {
			q.spoke = true
			return true
		}
	}
	for len(q.Text) > 0 {
		n, errno := gather(fd, q.Text)
		if errno != 0 {
			if errno != syscall.EAGAIN {
				q.errno = errno
			}
			return true
		}
		q.use(n)
	}
	q.sent = true
	q.Sent()
	// What had come before this hold is not told again, and who was not probed may have said something.
	return q.First && s.hear(fd)
}

// use takes what was sent from the text.
func (q *Question) use(n int) {
	for len(q.Text) > 0 && n >= len(q.Text[0]) {
		n -= len(q.Text[0])
		q.Text = q.Text[1:]
	}
	if n > 0 {
		q.Text[0] = q.Text[0][n:]
	}
}

func (s *Socket) hear(fd uintptr) bool {
	q := s.asked
	n, errno := receive(fd, q.Room)
	switch {
	case errno == syscall.EAGAIN:
		return false
	case errno != 0:
		q.Failed = s.failed("read", errno)
	case n == 0:
		q.Failed = io.EOF
	}
	q.Heard = n
	return true
}
