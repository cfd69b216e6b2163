package poller

import (
	"errors"
	"os"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
)

// A Rota has goroutines for its places, more of them as there are more places. A nil one has none.
type Poller struct {
	mutex  sync.Mutex
	wheels []*wheel
	most   int
}

// crowd is how many places one goroutine has before there is another.
const crowd = 256

// New is a rota of at most so many goroutines, which begin with the first places.
func New(most int) *Poller { return &Poller{most: most} }

// Close ends it. Nobody may be waiting.
func (r *Poller) Close() {
	if r == nil {
		return
	}
	r.mutex.Lock()
	defer r.mutex.Unlock()
	for _, w := range r.wheels {
		_ = w.file.Close()
	}
	r.wheels, r.most = nil, 0
}

// wheel is one with room, or else the emptiest.
func (r *Poller) wheel() *wheel {
	r.mutex.Lock()
	defer r.mutex.Unlock()
	var best *wheel
	for _, w := range r.wheels {
		if n := w.places.Load(); n < crowd {
			return w
		} else if best == nil || n < best.places.Load() {
			best = w
		}
	}
	if len(r.wheels) < r.most {
		if w, err := newWheel(); err == nil {
			r.wheels = append(r.wheels, w)
			return w
		}
	}
	return best
}

// enter puts a place on a wheel. It is not ok when that cannot be.
func (r *Poller) enter(on conn, p *Registration) (leave func(), ok bool) {
	if r == nil {
		return nil, false
	}
	if p.wheel == nil {
		p.wheel = r.wheel()
	}
	if p.wheel == nil {
		return nil, false
	}
	return p.wheel.enter(on, p)
}

// A wheel waits for many sockets at once, in a poll of its own within that of Go's scheduler: so its goroutine is woken like any other.
type wheel struct {
	file   *os.File
	poll   syscall.RawConn
	places atomic.Int64

	mutex sync.Mutex
	by    map[int32]*Registration // by their sockets
}

func newWheel() (*wheel, error) {
	poll, err := syscall.EpollCreate1(syscall.EPOLL_CLOEXEC)
	if err != nil {
		return nil, os.NewSyscallError("epoll_create1", err)
	}
	if err := syscall.SetNonblock(poll, true); err != nil { // or the file would be read by a thread of its own
		_ = syscall.Close(poll)
		return nil, os.NewSyscallError("fcntl", err)
	}
	w := &wheel{file: os.NewFile(uintptr(poll), "rota"), by: map[int32]*Registration{}}
	if w.poll, err = w.file.SyscallConn(); err != nil {
		_ = w.file.Close()
		return nil, err
	}
	go w.run()
	return w, nil
}

// Something is told once when it comes, whatever of it has been read; it is told of what has come before too. That the peer has ended its side
// is told by the same word as its last bytes.
const arrivals = syscall.EPOLLIN | syscall.EPOLLRDHUP | 1<<31 // EPOLLET, which package syscall has with a sign

func (w *wheel) enter(on conn, p *Registration) (leave func(), ok bool) {
	var socket int32
	var failed error
	w.places.Add(1)
	err := on.Control(func(fd uintptr) {
		socket = int32(fd)
		w.mutex.Lock()
		w.by[socket] = p
		w.mutex.Unlock()
		failed = w.control(syscall.EPOLL_CTL_ADD, fd, &syscall.EpollEvent{Events: arrivals, Fd: socket})
	})
	leave = func() {
		w.places.Add(-1)
		_ = on.Control(func(fd uintptr) { _ = w.control(syscall.EPOLL_CTL_DEL, fd, nil) }) // a closed one is off by itself
		w.mutex.Lock()
		if w.by[socket] == p { // else another has the number already
			delete(w.by, socket)
		}
		w.mutex.Unlock()
	}
	if err != nil || failed != nil {
		leave()
		return nil, false
	}
	return leave, true
}

// control changes the poll, if it is not closed: then its number may be another's.
func (w *wheel) control(op int, fd uintptr, event *syscall.EpollEvent) error {
	var failed error
	if err := w.poll.Control(func(poll uintptr) { failed = syscall.EpollCtl(int(poll), op, int(fd), event) }); err != nil {
		return err
	}
	return failed
}

// run gives turns until the wheel is closed. What is due at once has one reading of the clock.
func (w *wheel) run() {
	var events [128]syscall.EpollEvent
	_ = w.poll.Read(func(poll uintptr) bool {
		for {
			n, err := syscall.EpollWait(int(poll), events[:], 0)
			if errors.Is(err, syscall.EINTR) {
				continue
			}
			if n <= 0 {
				return err != nil // it is closed
			}
			now := time.Now()
			for i := range events[:n] {
				if p := w.place(events[i].Fd); p != nil {
					p.take(now, events[i].Events&^syscall.EPOLLIN != 0)
				}
			}
			if n < len(events) {
				return false
			}
		}
	})
}

func (w *wheel) place(socket int32) *Registration {
	w.mutex.Lock()
	defer w.mutex.Unlock()
	return w.by[socket]
}
