//go:build !linux

package http1

import (
	"errors"
	"net"
	"syscall"
)

func socketOf(net.Conn) syscall.RawConn { return nil }

func await(syscall.RawConn, []byte) (int, error) { return 0, errors.ErrUnsupported }
