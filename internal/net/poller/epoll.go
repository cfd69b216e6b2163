//go:build linux

package poller

import (
	"errors"
	"os"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
)

// A loop is a goroutine with an epoll instance for its registrations. The epoll file descriptor is itself watched by
// the runtime's network poller, as a file: so the goroutine parks like any other, and blocks no thread.
type loop struct {
	file  *os.File
	epoll syscall.RawConn
	count atomic.Int64 // registrations

	mutex         sync.Mutex
	registrations map[int32]*Registration // by file descriptor
}

// newLoop starts a loop. It ends when its file is closed.
func newLoop() (*loop, error) {
	fd, err := syscall.EpollCreate1(syscall.EPOLL_CLOEXEC)
	if err != nil {
		return nil, os.NewSyscallError("epoll_create1", err)
	}
	// a blocking file would not be watched, and would block a thread
	if err := syscall.SetNonblock(fd, true); err != nil {
		_ = syscall.Close(fd)
		return nil, os.NewSyscallError("fcntl", err)
	}
	l := &loop{file: os.NewFile(uintptr(fd), "epoll"), registrations: map[int32]*Registration{}}
	if l.epoll, err = l.file.SyscallConn(); err != nil {
		_ = l.file.Close()
		return nil, err
	}
	go l.run()
	return l, nil
}

// readEvents are edge-triggered: an event is reported once when bytes arrive, whether or not they are read, and once
// for what arrived before the registration. EPOLLRDHUP comes in the same event as the last bytes, so that run can tell
// that the peer has ended its side.
const readEvents = syscall.EPOLLIN | syscall.EPOLLRDHUP | epollET

const epollET = 1 << 31 // syscall.EPOLLET, which is negative there and does not fit the unsigned field

// add registers a connection. The returned function removes it.
func (l *loop) add(conn syscall.RawConn, r *Registration) (remove func(), ok bool) {
	var key int32
	var failed error
	l.count.Add(1)
	err := conn.Control(func(fd uintptr) {
		key = int32(fd)
		l.mutex.Lock()
		l.registrations[key] = r
		l.mutex.Unlock()
		failed = l.control(syscall.EPOLL_CTL_ADD, fd, &syscall.EpollEvent{Events: readEvents, Fd: key})
	})
	remove = func() {
		l.count.Add(-1)
		// The kernel removes a closed file descriptor by itself, and then Control fails.
		_ = conn.Control(func(fd uintptr) { _ = l.control(syscall.EPOLL_CTL_DEL, fd, nil) })
		l.mutex.Lock()
		if l.registrations[key] == r { // else another connection has the file descriptor already
			delete(l.registrations, key)
		}
		l.mutex.Unlock()
	}
	if err != nil || failed != nil {
		remove()
		return nil, false
	}
	return remove, true
}

// control is epoll_ctl(2) on the loop's epoll instance. It fails when that is closed, since its file descriptor may be
// another file's by now.
func (l *loop) control(op int, fd uintptr, event *syscall.EpollEvent) error {
	var failed error
	err := l.epoll.Control(func(epoll uintptr) { failed = syscall.EpollCtl(int(epoll), op, int(fd), event) })
	if err != nil {
		return err
	}
	return failed
}

// run dispatches events until the epoll instance is closed. The clock is read once for all events of an epoll_wait.
func (l *loop) run() {
	var events [128]syscall.EpollEvent
	_ = l.epoll.Read(func(epoll uintptr) bool {
		for {
			n, err := syscall.EpollWait(int(epoll), events[:], 0)
			if errors.Is(err, syscall.EINTR) {
				continue
			}
			if n <= 0 {
				return err != nil // false parks the goroutine until there are events
			}
			now := time.Now()
			for i := range events[:n] {
				if r := l.registration(events[i].Fd); r != nil {
					r.dispatch(now, events[i].Events&^syscall.EPOLLIN != 0)
				}
			}
			if n < len(events) {
				return false
			}
		}
	})
}

func (l *loop) registration(fd int32) *Registration {
	l.mutex.Lock()
	defer l.mutex.Unlock()
	return l.registrations[fd]
}
