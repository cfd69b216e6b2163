package http1

import (
	"errors"
	"io"
	"os"
	"syscall"
	"time"
)

// A query asks over a plain connection in one go: the socket is probed, written to and waited for in one hold of it. Asked one by one, it
// would be read once more, in vain, since nobody answers that fast.
type query struct {
	link   *link
	step   func(fd uintptr) bool // next
	lent   *[]byte               // what is sent, which is given back when it was
	text   []byte                // that is left of it
	wrote  bool                  // all of it, and the answer is waited for
	stale  bool
	probe  [1]byte
	err    error // of the writing
	failed error // of the reading, which would not come again
}

// errStale says that a connection that was kept is of no use any more. Nothing was sent over it.
var errStale = errors.New("the connection was closed while it was not in use")

// ask sends what a buffer holds, which it gives back, and returns when something of the answer is there, or nothing will be: who reads it is told.
func (q *query) ask(text *[]byte) error {
	q.lent, q.text, q.wrote, q.stale, q.err, q.failed = text, *text, false, false, nil, nil
	defer q.giveBack()
	l := q.link
	l.from, l.to = 0, 0
	ended := l.raw.Read(q.step)
	switch {
	case q.stale:
		return errStale
	case q.wrote: // an end on the way is found again by who reads
		return nil
	case q.err != nil:
		return q.err
	case ended != nil:
		return ended
	}
	_, err := l.conn.Write(q.text)
	return err
}

// giveBack has the buffer serve others: a provider may think for minutes before it answers.
func (q *query) giveBack() {
	if q.lent != nil {
		giveBack(q.lent)
	}
	q.lent, q.text = nil, nil
}

// next is called when something may have come. It is false to be called again.
func (q *query) next(fd uintptr) (done bool) {
	l := q.link
	if q.wrote {
		n, err := uninterrupted(syscall.Read, int(fd), l.buffer[l.to:])
		switch {
		case errors.Is(err, syscall.EAGAIN):
			return false
		case err != nil:
			q.failed = os.NewSyscallError("read", err)
		case n == 0:
			q.failed = io.EOF
		}
		l.to += max(n, 0)
		return true
	}
	if q.stale = l.kept && !silent(fd, q.probe[:]); q.stale {
		return true
	}
	n, err := uninterrupted(syscall.Write, int(fd), q.text)
	q.text = q.text[max(n, 0):]
	if err != nil && !errors.Is(err, syscall.EAGAIN) {
		q.err = os.NewSyscallError("write", err)
	}
	if q.wrote = err == nil && len(q.text) == 0; !q.wrote {
		return true
	}
	q.giveBack()
	// What had come before this hold is not told again, and who was not probed may have said something.
	return !l.kept && q.next(fd)
}

// uninterrupted calls until no signal interrupts it.
func uninterrupted(call func(fd int, p []byte) (int, error), fd int, p []byte) (int, error) {
	for {
		if n, err := call(fd, p); !errors.Is(err, syscall.EINTR) {
			return n, err
		}
	}
}

// silent tries a read that does not wait. Sockets do not block here; a byte that it takes is of a connection that is given up.
func silent(fd uintptr, probe []byte) bool {
	_, err := uninterrupted(syscall.Read, int(fd), probe)
	return errors.Is(err, syscall.EAGAIN)
}

// quiet reports whether the connection stands, and the peer has said nothing out of turn: what it says between two
// exchanges, if only that it goes, would be taken for an answer.
func (l *link) quiet() (quiet bool) {
	if l.conn != l.socket && l.holds() {
		return false
	}
	if l.raw == nil {
		return true
	}
	err := l.raw.Read(func(fd uintptr) bool {
		quiet = silent(fd, l.query.probe[:])
		return true
	})
	return err == nil && quiet
}

// holds reports whether TLS has read more than it has handed out: bytes behind the answer's end, or the peer's farewell. The
// socket is not asked: its deadline has passed.
func (l *link) holds() bool {
	var one [1]byte
	_ = l.socket.SetReadDeadline(time.Unix(1, 0))
	_, err := l.conn.Read(one[:])
	_ = l.socket.SetReadDeadline(time.Time{})
	return !errors.Is(err, os.ErrDeadlineExceeded)
}
