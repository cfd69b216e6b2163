package socket

import (
	"syscall"
	"unsafe"
)

// The kernel is called without a word to Go's scheduler, which would get ready for a call that takes long. On a socket that does not block
// none does: to get ready takes as long as half of a short call, and a long copy is taken for one that waits, so that another thread is
// woken to go on in its place.

func read(fd uintptr, p []byte) (int, syscall.Errno) {
	return called(syscall.SYS_READ, fd, unsafe.Pointer(unsafe.SliceData(p)), len(p)) //nolint:gosec // as package syscall does
}

func write(fd uintptr, p []byte) (int, syscall.Errno) {
	return called(syscall.SYS_WRITE, fd, unsafe.Pointer(unsafe.SliceData(p)), len(p)) //nolint:gosec // likewise
}

// gather writes several pieces at once, or the first of them where they are many.
func gather(fd uintptr, pieces [][]byte) (int, syscall.Errno) {
	var vectors [8]syscall.Iovec
	n := min(len(pieces), len(vectors))
	for i, p := range pieces[:n] {
		vectors[i].Base = unsafe.SliceData(p) //nolint:gosec // likewise
		vectors[i].SetLen(len(p))
	}
	return called(syscall.SYS_WRITEV, fd, unsafe.Pointer(&vectors), n) //nolint:gosec // likewise
}

// called calls until no signal interrupts it.
func called(call, fd uintptr, at unsafe.Pointer, length int) (int, syscall.Errno) {
	for {
		n, _, errno := syscall.RawSyscall(call, fd, uintptr(at), uintptr(length))
		if errno == 0 {
			return int(n), 0
		}
		if errno != syscall.EINTR {
			return 0, errno
		}
	}
}
