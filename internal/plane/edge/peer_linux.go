//go:build linux

package edge

import (
	"net"
	"strconv"
	"syscall"
)

// peerUID returns the number of the account at the other end of a Unix socket (SO_PEERCRED), or "unknown".
func peerUID(socket *net.UnixConn) string {
	uid := "unknown"
	if raw, err := socket.SyscallConn(); err == nil {
		_ = raw.Control(func(fd uintptr) {
			if peer, err := syscall.GetsockoptUcred(int(fd), syscall.SOL_SOCKET, syscall.SO_PEERCRED); err == nil {
				uid = strconv.FormatUint(uint64(peer.Uid), 10)
			}
		})
	}
	return uid
}
