package socket

import (
	"errors"
	"syscall"
	"unsafe"
)

// The kernel is called without a word to Go's scheduler, which would get ready for a call that waits. A socket that does not block makes none
// wait for its peer: to get ready takes as long as half of a short call, and a long copy is taken for one that waits, so that another thread is
// woken to go on in its place. The price is that who stops the world waits for the end of a copy, as it does for any loop.
//
// The race detector is told of what the kernel reads and writes by package syscall alone, so that one is called where it watches.

func receive(fd uintptr, p []byte) (int, syscall.Errno) {
	if watched {
		return told(syscall.Read(int(fd), p))
	}
	return called(syscall.SYS_READ, fd, unsafe.Pointer(unsafe.SliceData(p)), len(p)) //nolint:gosec // as package syscall does
}

func send(fd uintptr, p []byte) (int, syscall.Errno) {
	if watched {
		return told(syscall.Write(int(fd), p))
	}
	return called(syscall.SYS_WRITE, fd, unsafe.Pointer(unsafe.SliceData(p)), len(p)) //nolint:gosec // likewise
}

// gather writes several pieces at once, or the first of them where they are many.
func gather(fd uintptr, pieces [][]byte) (int, syscall.Errno) {
	if watched {
		return send(fd, pieces[0])
	}
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

// told is what package syscall says, as the kernel does.
func told(n int, err error) (int, syscall.Errno) {
	var errno syscall.Errno
	if errors.As(err, &errno) {
		return 0, errno
	}
	return n, 0
}
