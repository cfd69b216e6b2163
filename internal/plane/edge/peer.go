package edge

import (
	"context"
	"net"
	"os"
	"os/user"
	"strconv"
	"syscall"

	"sovereign/internal/base/tenant"
)

type peerKey struct{}

// PeerContext is for the admin socket's http.Server: it lets a request know which account of this machine sent it, as
// the kernel tells, so that the audit trail can name who the operator was.
func PeerContext(ctx context.Context, conn net.Conn) context.Context {
	return context.WithValue(ctx, peerKey{}, account(conn))
}

func peer(ctx context.Context) tenant.UserID {
	name, _ := ctx.Value(peerKey{}).(tenant.UserID)
	return name
}

// account is unix: and the name, or the number, of the account at the other end; within this process, its own.
func account(conn net.Conn) tenant.UserID {
	uid := strconv.Itoa(os.Getuid())
	if socket, ok := conn.(*net.UnixConn); ok {
		uid = "unknown"
		if raw, err := socket.SyscallConn(); err == nil {
			_ = raw.Control(func(fd uintptr) {
				if who, err := syscall.GetsockoptUcred(int(fd), syscall.SOL_SOCKET, syscall.SO_PEERCRED); err == nil {
					uid = strconv.FormatUint(uint64(who.Uid), 10)
				}
			})
		}
	}
	if known, err := user.LookupId(uid); err == nil {
		uid = known.Username
	}
	return tenant.UserID("unix:" + uid)
}
