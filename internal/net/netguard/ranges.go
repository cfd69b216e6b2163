package netguard

import "net/netip"

// A rule is a range of addresses that a customer's URL must not reach, and why.
type rule struct {
	prefix    netip.Prefix
	name, why string
}

// rules are the ranges of IANA's special-purpose registries that are not globally reachable, the unassigned ranges of
// the IPv6 address space, and the public address on which Azure answers its own machines. The first rule that contains
// an address counts, so that a narrow range stands before one around it.
var rules = []rule{
	block("0.0.0.0/8", "this network", "means the machine itself"),
	block("10.0.0.0/8", "private", "is a private network's"),
	block(
		"100.64.0.0/10", "shared",
		"is shared behind a carrier's translation, and where some clouds keep their metadata",
	),
	block("127.0.0.0/8", "loopback", "is the machine itself"),
	block("168.63.129.16/32", "platform", "is where Azure answers its own machines"),
	block("169.254.0.0/16", "link-local", "is of the local link, and where clouds keep their metadata"),
	block("172.16.0.0/12", "private", "is a private network's"),
	block("192.0.0.0/24", "protocol assignments", "is for protocols of the IETF"),
	block("192.0.2.0/24", "documentation", "is for examples"),
	block("192.88.99.0/24", "6to4 relay", "was a relay of 6to4, which is no longer used"),
	block("192.168.0.0/16", "private", "is a private network's"),
	block("198.18.0.0/15", "benchmarking", "is for tests of network devices"),
	block("198.51.100.0/24", "documentation", "is for examples"),
	block("203.0.113.0/24", "documentation", "is for examples"),
	block("224.0.0.0/4", "multicast", "is a group of machines"),
	block("255.255.255.255/32", "broadcast", "is every machine of the link"),
	block("240.0.0.0/4", "reserved", "is reserved"),

	block("::/128", "unspecified", "means the machine itself"),
	block("::1/128", "loopback", "is the machine itself"),
	block("::/96", "IPv4-compatible", "holds an IPv4 address in a form that is no longer used"),
	block("64:ff9b:1::/48", "local translation", "is translated to an IPv4 address by the local network"),
	block("100::/64", "discard", "is thrown away"),
	block("100:0:0:1::/64", "dummy", "stands for no machine"),
	block("2001::/32", "Teredo", "holds an IPv4 address in a tunnel"),
	block("2001:2::/48", "benchmarking", "is for tests of network devices"),
	block("2001::/23", "protocol assignments", "is for protocols of the IETF"),
	block("2001:db8::/32", "documentation", "is for examples"),
	block("2002::/16", "6to4", "holds an IPv4 address in a tunnel"),
	block("3fff::/20", "documentation", "is for examples"),
	block("5f00::/16", "segment routing", "is a router's, not a machine's"),
	block("fc00::/7", "unique local", "is a private network's"),
	block("fe80::/10", "link-local", "is of the local link"),
	block("fec0::/10", "site-local", "is a private network's"),
	block("ff00::/8", "multicast", "is a group of machines"),
	block("::/3", "unassigned", "is not assigned to anybody"),
	block("4000::/2", "unassigned", "is not assigned to anybody"),
	block("8000::/1", "unassigned", "is not assigned to anybody"),
}

// zoned blocks every address with a zone: it is link-local, whatever its range.
var zoned = rule{name: "zone", why: "is of a local link"}

// translated is the NAT64 range: the last four bytes are an IPv4 address.
var translated = netip.MustParsePrefix("64:ff9b::/96")

func block(prefix, name, why string) rule {
	return rule{prefix: netip.MustParsePrefix(prefix), name: name, why: why}
}

// blockedBy returns the rule that blocks an address, or nil for a public one. An IPv4-mapped or NAT64 address is
// blocked exactly if its IPv4 address is.
func blockedBy(addr netip.Addr) *rule {
	if addr.Zone() != "" {
		return &zoned
	}
	addr = addr.Unmap()
	if translated.Contains(addr) {
		bytes := addr.As16()
		addr = netip.AddrFrom4([4]byte(bytes[12:]))
	}
	for i := range rules {
		if rules[i].prefix.Contains(addr) {
			return &rules[i]
		}
	}
	return nil
}

// blockedBy returns the rule that blocks an address for this guard, or nil. What the operator allows takes precedence,
// for the address as it is dialled: 10.0.0.0/8 allows ::ffff:10.0.0.1, which is the same address in another form. It
// does not allow 64:ff9b::10.0.0.1, which a NAT64 gateway dials: its own range must be allowed. No range contains an
// address with a zone.
func (g *Guard) blockedBy(addr netip.Addr) *rule {
	if addr.Zone() != "" {
		return &zoned
	}
	addr = addr.Unmap()
	for _, prefix := range g.allow {
		if prefix.Contains(addr) {
			return nil
		}
	}
	return blockedBy(addr)
}

// unmapPrefix converts a prefix of IPv4-mapped addresses to IPv4, and returns every other prefix as it is.
func unmapPrefix(p netip.Prefix) netip.Prefix {
	if p.Addr().Is4In6() && p.Bits() >= 96 {
		return netip.PrefixFrom(p.Addr().Unmap(), p.Bits()-96)
	}
	return p
}
