package poller_test

import (
	"errors"
	"io"
	"math/rand/v2"
	"net"
	"runtime"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"sovereign/internal/net/poller"
)

// pair is two ends of a connection.
func pair(t *testing.T) (near, far *net.TCPConn) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	a, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	b, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _, _ = a.Close(), b.Close() })
	return a.(*net.TCPConn), b.(*net.TCPConn) //nolint:forcetypeassert // they are
}

func raw(t *testing.T, conn *net.TCPConn) syscall.RawConn {
	t.Helper()
	r, err := conn.SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// glance reads what there is without waiting. The buffer is small, so that one turn reads more than once.
func glance(conn syscall.RawConn, each func(p []byte)) (err error) {
	var room [100]byte
	for err == nil {
		var n int
		if failed := conn.Read(func(fd uintptr) bool { n, err = syscall.Read(int(fd), room[:]); return true }); failed != nil {
			return failed
		}
		if n == 0 && err == nil {
			err = io.EOF
		}
		if n > 0 {
			each(room[:n])
		}
		if n < len(room) {
			break
		}
	}
	if errors.Is(err, syscall.EAGAIN) {
		return nil
	}
	return err
}

func wait(t *testing.T, what string, done <-chan struct{}) {
	t.Helper()
	select {
	case <-done:
	case <-time.After(2 * time.Minute):
		buffer := make([]byte, 1<<20)
		t.Fatalf("%s: still waiting\n%s", what, buffer[:runtime.Stack(buffer, true)])
	}
}

// Whatever comes is read, in order and to the last byte, however the pieces fall and however often a place is left in a turn and taken again. No
// two turns of a place are at once, and there is none while nobody waits.
func TestEveryByteHasItsTurn(t *testing.T) {
	const conns, bytes = 300, 20_000 // more than one goroutine has
	r := poller.New(2)
	defer r.Close()
	var all sync.WaitGroup
	for i := range conns {
		near, far := pair(t)
		all.Go(func() { send(far, bytes, uint64(i)) })
		all.Go(func() {
			conn := raw(t, near)
			var place poller.Registration
			var busy, here atomic.Bool
			random := rand.New(rand.NewPCG(uint64(i), 2))
			read, wrong := 0, false
			for read < bytes {
				here.Store(true)
				ok := place.Wait(r, conn, func(time.Time) bool {
					if !here.Load() || !busy.CompareAndSwap(false, true) {
						t.Error("a turn of somebody who does not wait, or is busy")
					}
					defer busy.Store(false)
					if err := glance(conn, func(p []byte) {
						for _, c := range p {
							wrong = wrong || c != byte(read)
							read++
						}
					}); err != nil {
						t.Error(err)
					}
					return read < bytes && random.IntN(20) > 0
				})
				here.Store(false)
				if !ok || wrong {
					t.Error("no place, or another's bytes")
					return
				}
			}
		})
	}
	done := make(chan struct{})
	go func() { all.Wait(); close(done) }()
	wait(t, "all bytes", done)
}

func send(to net.Conn, bytes int, seed uint64) {
	random := rand.New(rand.NewPCG(seed, 1))
	for sent := 0; sent < bytes; {
		piece := make([]byte, min(bytes-sent, 1+random.IntN(500)))
		for i := range piece {
			piece[i] = byte(sent + i)
		}
		if _, err := to.Write(piece); err != nil {
			return
		}
		if sent += len(piece); random.IntN(4) == 0 {
			time.Sleep(time.Duration(random.IntN(300)) * time.Microsecond)
		}
	}
}

// Leaving ends a wait, whenever it comes, and everything after it.
func TestLeavingAtAnyMoment(t *testing.T) {
	r := poller.New(1)
	defer r.Close()
	near, far := pair(t)
	conn := raw(t, near)
	stop := make(chan struct{})
	var writer sync.WaitGroup
	writer.Go(func() {
		for {
			select {
			case <-stop:
				return
			default:
				_, _ = far.Write([]byte("x"))
			}
		}
	})
	for i := range 3000 {
		var place poller.Registration
		done := make(chan struct{})
		go func() {
			for range i % 3 {
				runtime.Gosched()
			}
			place.Cancel()
			place.Cancel()
		}()
		go func() {
			defer close(done)
			for range 2 { // the second returns at once
				if !place.Wait(r, conn, func(time.Time) bool { _ = glance(conn, func([]byte) {}); return true }) {
					t.Error("no place")
				}
			}
		}()
		wait(t, "a wait that was left", done)
	}
	close(stop)
	writer.Wait()
}

func TestLeavingInATurn(t *testing.T) {
	r := poller.New(1)
	defer r.Close()
	near, far := pair(t)
	var place poller.Registration
	_, _ = far.Write([]byte("x"))
	done := make(chan struct{})
	go func() {
		defer close(done)
		place.Wait(r, raw(t, near), func(time.Time) bool { place.Cancel(); return true })
	}()
	wait(t, "a place that left in its turn", done)
}

// A connection that its peer has ended, or that was closed here and left, does not keep anybody waiting, and what has come before can be read.
func TestTheEndOfAConnectionEndsTheWait(t *testing.T) {
	r := poller.New(1)
	defer r.Close()
	for name, end := range map[string]func(near, far *net.TCPConn){
		"closed": func(_, far *net.TCPConn) { _, _ = far.Write([]byte("x")); _ = far.Close() },
		"half":   func(_, far *net.TCPConn) { _, _ = far.Write([]byte("x")); _ = far.CloseWrite() },
		"reset":  func(_, far *net.TCPConn) { _ = far.SetLinger(0); _ = far.Close() },
	} {
		near, far := pair(t)
		conn := raw(t, near)
		var place poller.Registration
		done := make(chan struct{})
		go func() {
			defer close(done)
			place.Wait(r, conn, func(time.Time) bool { return glance(conn, func([]byte) {}) == nil })
		}()
		time.Sleep(5 * time.Millisecond)
		end(near, far)
		wait(t, name, done)
	}
	near, _ := pair(t)
	conn := raw(t, near)
	_ = near.Close()
	var place poller.Registration
	if place.Wait(r, conn, func(time.Time) bool { return true }) {
		t.Error("a closed connection has a place")
	}
}

// One who panics does so where it waits, and the others do not notice.
func TestAPanicIsForWhoWaits(t *testing.T) {
	r := poller.New(1)
	defer r.Close()
	near, far := pair(t)
	_, _ = far.Write([]byte("x"))
	panicked := make(chan any, 1)
	go func() {
		defer func() { panicked <- recover() }()
		var place poller.Registration
		place.Wait(r, raw(t, near), func(time.Time) bool { panic("boom") })
	}()
	if got := <-panicked; got != "boom" {
		t.Errorf("%v", got)
	}
	other, end := pair(t)
	_, _ = end.Write([]byte("x"))
	var place poller.Registration
	if !place.Wait(r, raw(t, other), func(time.Time) bool { return false }) {
		t.Error("no place after a panic")
	}
}

func TestWithoutARotaNobodyWaits(t *testing.T) {
	near, _ := pair(t)
	var place poller.Registration
	if place.Wait(nil, raw(t, near), func(time.Time) bool { return true }) {
		t.Error("it has waited")
	}
	closed := poller.New(1)
	closed.Close()
	if place.Wait(closed, raw(t, near), func(time.Time) bool { return true }) {
		t.Error("it has waited")
	}
}
