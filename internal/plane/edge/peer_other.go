//go:build !linux

package edge

// peerUID returns "unknown": only Linux reports the account by SO_PEERCRED.
func peerUID(*unixConn) string { return "unknown" }
