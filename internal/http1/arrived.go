package http1

import (
	"net"
	"syscall"
)

// socketOf is a connection's socket; nil where there is none.
func socketOf(conn net.Conn) syscall.RawConn {
	c, ok := conn.(syscall.Conn)
	if !ok {
		return nil
	}
	socket, err := c.SyscallConn()
	if err != nil {
		return nil
	}
	return socket
}

const (
	longBody    = 32 << 10 // what is waited for as a whole
	mostAwaited = 1 << 20  // as far as the kernel is asked to hold it
)

// wakeAt says how many bytes must have arrived before who waits for a socket is woken; a kernel that cannot hold so many does it
// earlier. To be woken for every piece of a long body costs more than to read it: the wake itself, and what the processor had
// in its caches.
func wakeAt(socket syscall.RawConn, bytes int) {
	_ = socket.Control(func(fd uintptr) {
		_ = syscall.SetsockoptInt(int(fd), syscall.SOL_SOCKET, syscall.SO_RCVLOWAT, bytes) // else it is woken as usual
	})
}
