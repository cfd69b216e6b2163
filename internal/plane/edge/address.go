package edge

import (
	"net"
	"net/http"
	"net/netip"
	"strings"
)

// addressOf returns the IP address of a peer. It is the zero Addr for a peer without one, such as a Unix socket's.
func addressOf(peer net.Addr) netip.Addr {
	if tcp, ok := peer.(*net.TCPAddr); ok {
		return tcp.AddrPort().Addr().Unmap()
	}
	return netip.Addr{}
}

// sender returns the address that the request came from: the peer's, or, if the peer is a trusted proxy, the last
// address in X-Forwarded-For that is not a trusted proxy. It is the zero Addr for a peer without one.
func (b *Bounds) sender(r *http.Request) netip.Addr {
	peer, err := netip.ParseAddrPort(r.RemoteAddr)
	if err != nil {
		return netip.Addr{}
	}
	address := peer.Addr().Unmap()
	if !b.isProxy(address) {
		return address
	}
	hops := strings.Split(strings.Join(r.Header.Values("X-Forwarded-For"), ","), ",")
	for i := len(hops) - 1; i >= 0; i-- {
		hop, err := netip.ParseAddr(strings.TrimSpace(hops[i]))
		if err != nil {
			break
		}
		if address = hop.Unmap(); !b.isProxy(address) {
			break
		}
	}
	return address
}

// client returns the sender's address for the log.
func (b *Bounds) client(r *http.Request) string {
	if address := b.sender(r); address.IsValid() {
		return address.String()
	}
	return "socket"
}

// limited returns an address that the limits per address apply to, and the zero Addr for any other.
func (b *Bounds) limited(address netip.Addr) netip.Addr {
	if b.isProxy(address) || within(address, b.Unlimited.Load()) {
		return netip.Addr{}
	}
	return address
}

func (b *Bounds) isProxy(address netip.Addr) bool { return within(address, b.Proxies.Load()) }

func within(address netip.Addr, ranges *[]netip.Prefix) bool {
	if ranges == nil {
		return false
	}
	for _, r := range *ranges {
		if r.Contains(address) {
			return true
		}
	}
	return false
}
