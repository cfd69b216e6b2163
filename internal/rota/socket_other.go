//go:build !linux

package rota

import (
	"errors"
	"syscall"
)

func glance(fd uintptr, p []byte) (int, syscall.Errno) { return told(syscall.Read(int(fd), p)) }

func push(fd uintptr, p []byte) (int, syscall.Errno) { return told(syscall.Write(int(fd), p)) }

func told(n int, err error) (int, syscall.Errno) {
	var errno syscall.Errno
	if err != nil && !errors.As(err, &errno) {
		errno = syscall.EIO
	}
	return n, errno
}
