package http1

import (
	"errors"
	"net"
	"syscall"

	"golang.org/x/sys/unix"
)

// socketOf is a connection's socket, for await; nil where there is none.
func socketOf(conn net.Conn) syscall.RawConn {
	c, ok := conn.(syscall.Conn)
	if !ok {
		return nil
	}
	raw, err := c.SyscallConn()
	if err != nil {
		return nil
	}
	return raw
}

// await reads len(p) bytes when they have all arrived, or as many as the kernel holds. To be woken for every piece of a long body
// costs more than to read it: the wake itself, and what the processor had in its caches. Nothing is nothing: the peer has closed.
func await(socket syscall.RawConn, p []byte) (n int, err error) {
	wanted := min(len(p), mostAwaited)
	wakeAt(socket, wanted)
	defer wakeAt(socket, 1)
	waited := false
	failed := socket.Read(func(fd uintptr) bool {
		if !waited {
			if waited = true; pending(fd) < wanted {
				return false
			}
		}
		n, err = unix.Read(int(fd), p)
		return !errors.Is(err, unix.EAGAIN) && !errors.Is(err, unix.EINTR)
	})
	if failed != nil {
		return 0, failed
	}
	return max(n, 0), err
}

// mostAwaited is what the kernel is asked to hold.
const mostAwaited = 1 << 20

// wakeAt says how many bytes must have arrived before who waits is woken. A kernel that cannot hold so many wakes earlier.
func wakeAt(socket syscall.RawConn, bytes int) {
	_ = socket.Control(func(fd uintptr) { _ = unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_RCVLOWAT, bytes) })
}

// pending is how many bytes have arrived; where that cannot be told, enough.
func pending(fd uintptr) int {
	n, err := unix.IoctlGetInt(int(fd), unix.TIOCINQ)
	if err != nil {
		return mostAwaited
	}
	return n
}
