//go:build !linux

package edge

import "net"

// peerUID returns "unknown": only Linux reports the account by SO_PEERCRED.
func peerUID(*net.UnixConn) string { return "unknown" }
