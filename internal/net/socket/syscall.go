//go:build linux

package socket

import (
	"errors"
	"syscall"
	"unsafe"
)

// The calls below are RawSyscalls: the scheduler is not told of them. syscall.Read and syscall.Write enter and leave a
// system call through the scheduler, which takes half as long as a short read, and makes it start another thread when a
// long copy looks like a call that blocks. A non-blocking socket never blocks, so the scheduler need not know. The
// price: stopping the world, for the garbage collector, waits for the end of a copy, as it waits for any loop.
//
// With the race detector, package syscall is used instead, because it alone tells the detector what the kernel reads
// and writes.

// rawRead is read(2) on a non-blocking file descriptor.
func rawRead(fd uintptr, p []byte) (int, syscall.Errno) {
	if raceEnabled {
		return splitErrno(syscall.Read(int(fd), p))
	}
	return rawSyscall(syscall.SYS_READ, fd, unsafe.Pointer(unsafe.SliceData(p)), len(p)) //nolint:gosec // like package syscall
}

// rawWrite is write(2) on a non-blocking file descriptor.
func rawWrite(fd uintptr, p []byte) (int, syscall.Errno) {
	if raceEnabled {
		return splitErrno(syscall.Write(int(fd), p))
	}
	return rawSyscall(syscall.SYS_WRITE, fd, unsafe.Pointer(unsafe.SliceData(p)), len(p)) //nolint:gosec // like package syscall
}

// rawWritev is writev(2) on a non-blocking file descriptor, with the first eight parts at most. With the race detector
// it writes the first part only.
func rawWritev(fd uintptr, parts [][]byte) (int, syscall.Errno) {
	if raceEnabled {
		return rawWrite(fd, parts[0])
	}
	var vectors [8]syscall.Iovec
	n := min(len(parts), len(vectors))
	for i, p := range parts[:n] {
		vectors[i].Base = unsafe.SliceData(p) //nolint:gosec // like package syscall
		vectors[i].SetLen(len(p))
	}
	return rawSyscall(syscall.SYS_WRITEV, fd, unsafe.Pointer(&vectors), n) //nolint:gosec // like package syscall
}

// rawSyscall repeats a call that a signal interrupts.
func rawSyscall(trap, fd uintptr, pointer unsafe.Pointer, length int) (int, syscall.Errno) {
	for {
		n, _, errno := syscall.RawSyscall(trap, fd, uintptr(pointer), uintptr(length))
		if errno == 0 {
			return int(n), 0
		}
		if errno != syscall.EINTR {
			return 0, errno
		}
	}
}

// splitErrno turns the result of a function of package syscall into a count and an errno.
func splitErrno(n int, err error) (int, syscall.Errno) {
	var errno syscall.Errno
	if errors.As(err, &errno) {
		return 0, errno
	}
	return n, 0
}
