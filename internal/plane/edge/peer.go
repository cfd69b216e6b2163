package edge

import (
	"context"
	"net"
	"os"
	"os/user"
	"strconv"

	"sovereign/internal/base/tenant"
)

type peerKey struct{}

// PeerContext is the ConnContext of the admin socket's http.Server. It records which account of this machine opened the
// connection, as the kernel reports it, so that the audit trail can name the operator.
func PeerContext(ctx context.Context, conn net.Conn) context.Context {
	return context.WithValue(ctx, peerKey{}, account(conn))
}

// peer returns the account that PeerContext recorded, or nothing.
func peer(ctx context.Context) tenant.UserID {
	name, _ := ctx.Value(peerKey{}).(tenant.UserID)
	return name
}

// account returns "unix:" and the name, or else the number, of the account at the other end of a Unix socket. Any other
// connection comes from within this process and has its account.
func account(conn net.Conn) tenant.UserID {
	uid := strconv.Itoa(os.Getuid())
	if socket, ok := conn.(*net.UnixConn); ok {
		uid = peerUID(socket)
	}
	if known, err := user.LookupId(uid); err == nil {
		uid = known.Username
	}
	return tenant.UserID("unix:" + uid)
}
