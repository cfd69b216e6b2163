package rota

import (
	"syscall"
	"unsafe"
)

// The kernel is called without a word to Go's scheduler, which would get ready for a call that takes long: on a socket that does not block,
// none does, and to get ready takes as long as half of the call.

func glance(fd uintptr, p []byte) (int, errno) { return transferred(syscall.SYS_READ, fd, p) }

func push(fd uintptr, p []byte) (int, errno) { return transferred(syscall.SYS_WRITE, fd, p) }

func transferred(call, fd uintptr, p []byte) (int, errno) {
	n, _, failed := syscall.RawSyscall(call, fd, uintptr(unsafe.Pointer(unsafe.SliceData(p))), uintptr(len(p))) //nolint:gosec // as package syscall does
	return int(n), failed
}
