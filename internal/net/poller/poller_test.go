//go:build linux

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

// tcpPair returns both ends of a loopback connection.
func tcpPair(t *testing.T) (near, far *net.TCPConn) {
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

func rawConn(t *testing.T, conn *net.TCPConn) syscall.RawConn {
	t.Helper()
	r, err := conn.SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// readAvailable reads what has arrived without blocking. Its buffer is small, so that one callback reads more than
// once.
func readAvailable(conn syscall.RawConn, each func(p []byte)) (err error) {
	var buffer [100]byte
	for err == nil {
		var n int
		if failed := conn.Read(func(fd uintptr) bool { n, err = syscall.Read(int(fd), buffer[:]); return true }); failed != nil {
			return failed
		}
		if n == 0 && err == nil {
			err = io.EOF
		}
		if n > 0 {
			each(buffer[:n])
		}
		if n < len(buffer) {
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

// Every byte is read, in order, however the segments arrive and however often a callback ends Wait and Wait is called
// again. Callbacks of one registration do not overlap, and none runs outside Wait.
func TestEveryByteReachesItsCallback(t *testing.T) {
	const conns, bytes = 300, 20_000 // more than one goroutine serves
	p := poller.New(2)
	defer p.Close()
	var all sync.WaitGroup
	for i := range conns {
		near, far := tcpPair(t)
		all.Go(func() { send(far, bytes, uint64(i)) })
		all.Go(func() {
			conn := rawConn(t, near)
			var registration poller.Registration
			var running, waiting atomic.Bool
			random := rand.New(rand.NewPCG(uint64(i), 2))
			read, wrong := 0, false
			for read < bytes {
				waiting.Store(true)
				ok := registration.Wait(p, conn, func(time.Time) bool {
					if !waiting.Load() || !running.CompareAndSwap(false, true) {
						t.Error("a callback outside Wait, or two at once")
					}
					defer running.Store(false)
					if err := readAvailable(conn, func(p []byte) {
						for _, c := range p {
							wrong = wrong || c != byte(read)
							read++
						}
					}); err != nil {
						t.Error(err)
					}
					return read < bytes && random.IntN(20) > 0
				})
				waiting.Store(false)
				if !ok || wrong {
					t.Error("not registered, or another connection's bytes")
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

// Cancel ends Wait at any moment, and every Wait after it.
func TestCancelEndsWaitAtAnyMoment(t *testing.T) {
	p := poller.New(1)
	defer p.Close()
	near, far := tcpPair(t)
	conn := rawConn(t, near)
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
		var registration poller.Registration
		done := make(chan struct{})
		go func() {
			for range i % 3 {
				runtime.Gosched()
			}
			registration.Cancel()
			registration.Cancel()
		}()
		go func() {
			defer close(done)
			for range 2 { // the second returns at once
				if !registration.Wait(p, conn, func(time.Time) bool { _ = readAvailable(conn, func([]byte) {}); return true }) {
					t.Error("not registered")
				}
			}
		}()
		wait(t, "a cancelled Wait", done)
	}
	close(stop)
	writer.Wait()
}

func TestCancelInTheCallbackEndsWait(t *testing.T) {
	p := poller.New(1)
	defer p.Close()
	near, far := tcpPair(t)
	var registration poller.Registration
	_, _ = far.Write([]byte("x"))
	done := make(chan struct{})
	go func() {
		defer close(done)
		registration.Wait(p, rawConn(t, near), func(time.Time) bool { registration.Cancel(); return true })
	}()
	wait(t, "a Wait cancelled by its callback", done)
}

// The end of a connection ends Wait, and a connection that was closed before is not registered.
func TestTheEndOfAConnectionEndsWait(t *testing.T) {
	p := poller.New(1)
	defer p.Close()
	for name, end := range map[string]func(near, far *net.TCPConn){
		"closed": func(_, far *net.TCPConn) { _, _ = far.Write([]byte("x")); _ = far.Close() },
		"half":   func(_, far *net.TCPConn) { _, _ = far.Write([]byte("x")); _ = far.CloseWrite() },
		"reset":  func(_, far *net.TCPConn) { _ = far.SetLinger(0); _ = far.Close() },
	} {
		near, far := tcpPair(t)
		conn := rawConn(t, near)
		var registration poller.Registration
		done := make(chan struct{})
		go func() {
			defer close(done)
			registration.Wait(p, conn, func(time.Time) bool { return readAvailable(conn, func([]byte) {}) == nil })
		}()
		time.Sleep(5 * time.Millisecond)
		end(near, far)
		wait(t, name, done)
	}
	near, _ := tcpPair(t)
	conn := rawConn(t, near)
	_ = near.Close()
	var registration poller.Registration
	if registration.Wait(p, conn, func(time.Time) bool { return true }) {
		t.Error("a closed connection was registered")
	}
}

// A panic of a callback reaches the caller of its Wait, and other connections are served on.
func TestACallbacksPanicReachesWait(t *testing.T) {
	p := poller.New(1)
	defer p.Close()
	near, far := tcpPair(t)
	_, _ = far.Write([]byte("x"))
	panicked := make(chan any, 1)
	go func() {
		defer func() { panicked <- recover() }()
		var registration poller.Registration
		registration.Wait(p, rawConn(t, near), func(time.Time) bool { panic("boom") })
	}()
	if got := <-panicked; got != "boom" {
		t.Errorf("%v", got)
	}
	other, end := tcpPair(t)
	_, _ = end.Write([]byte("x"))
	var registration poller.Registration
	if !registration.Wait(p, rawConn(t, other), func(time.Time) bool { return false }) {
		t.Error("not registered after a panic")
	}
}

func TestWaitReturnsFalseWithoutAPoller(t *testing.T) {
	near, _ := tcpPair(t)
	var registration poller.Registration
	if registration.Wait(nil, rawConn(t, near), func(time.Time) bool { return true }) {
		t.Error("Wait has waited")
	}
	closed := poller.New(1)
	closed.Close()
	if registration.Wait(closed, rawConn(t, near), func(time.Time) bool { return true }) {
		t.Error("Wait has waited")
	}
}
