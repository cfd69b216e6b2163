package netguard

import (
	"net/netip"
	"testing"

	"pgregory.net/rapid"
)

// addressTable has addresses in every rule, and the public addresses next to a rule on both sides.
var addressTable = []struct {
	addresses []string
	name      string // of the rule; empty for a public address
}{
	{[]string{"0.0.0.0", "0.0.0.1", "0.255.255.255"}, "this network"},
	{[]string{"10.0.0.0", "10.1.2.3", "10.255.255.255"}, "private"},
	{[]string{"172.16.0.0", "172.31.255.255"}, "private"},
	{[]string{"192.168.0.0", "192.168.255.255"}, "private"},
	{[]string{"100.64.0.0", "100.100.100.200", "100.127.255.255"}, "shared"},
	{[]string{"127.0.0.0", "127.0.0.1", "127.255.255.255", "::1"}, "loopback"},
	{[]string{"168.63.129.16"}, "platform"},
	{[]string{"169.254.0.0", "169.254.169.254", "169.254.255.255"}, "link-local"},
	{[]string{"fe80::", "fe80::1", "febf:ffff::"}, "link-local"},
	{[]string{"192.0.0.0", "192.0.0.192", "192.0.0.255", "2001:1::1", "2001:4:112::1", "2001:20::1", "2001:1ff:ffff::"}, "protocol assignments"},
	{[]string{"192.0.2.0", "192.0.2.255", "198.51.100.1", "203.0.113.1", "2001:db8::", "2001:db8:ffff::", "3fff::", "3fff:fff:ffff::"}, "documentation"},
	{[]string{"192.88.99.0", "192.88.99.255"}, "6to4 relay"},
	{[]string{"198.18.0.0", "198.19.255.255", "2001:2::", "2001:2:0:ffff::"}, "benchmarking"},
	{[]string{"224.0.0.0", "239.255.255.255", "ff00::", "ff02::1", "ffff::"}, "multicast"},
	{[]string{"240.0.0.0", "250.1.1.1", "255.255.255.254"}, "reserved"},
	{[]string{"255.255.255.255"}, "broadcast"},
	{[]string{"::"}, "unspecified"},
	{[]string{"::2", "::7f00:1", "::8.8.8.8", "::ffff:ffff"}, "IPv4-compatible"},
	{[]string{"64:ff9b:1::", "64:ff9b:1::8.8.8.8", "64:ff9b:1:ffff:ffff:ffff:ffff:ffff"}, "local translation"},
	{[]string{"100::", "100::ffff:ffff:ffff:ffff"}, "discard"},
	{[]string{"100:0:0:1::", "100:0:0:1:ffff::"}, "dummy"},
	{[]string{"2001::", "2001:0:4136:e378:8000:63bf:3fff:fdd2"}, "Teredo"},
	{[]string{"2002::", "2002:7f00:1::", "2002:808:808::", "2002:ffff:ffff::"}, "6to4"},
	{[]string{"5f00::", "5f00:ffff::"}, "segment routing"},
	{[]string{"fc00::", "fd00:ec2::254", "fd20:ce::254", "fdff:ffff::"}, "unique local"},
	{[]string{"fec0::", "feff:ffff::"}, "site-local"},
	{[]string{"::1:0:0:0", "::ffff:0:7f00:1", "100:0:0:2::", "64:ff9b:0:0:0:1::", "1fff:ffff::"}, "unassigned"},
	{[]string{"4000::", "5eff:ffff::", "5f01::", "7fff:ffff::"}, "unassigned"},
	{[]string{"8000::", "fbff:ffff::", "fe00::", "fe7f:ffff::"}, "unassigned"},
	{[]string{"fe80::1%eth0", "2606:4700::1%1", "::ffff:8.8.8.8%eth0"}, "zone"},

	{[]string{"::ffff:127.0.0.1", "::ffff:7f00:1", "64:ff9b::127.0.0.1"}, "loopback"},
	{[]string{"::ffff:10.0.0.1", "64:ff9b::a00:1", "64:ff9b::192.168.1.1"}, "private"},
	{[]string{"::ffff:169.254.169.254", "64:ff9b::a9fe:a9fe"}, "link-local"},
	{[]string{"::ffff:0:0", "64:ff9b::"}, "this network"},

	{[]string{
		"1.0.0.0", "9.255.255.255", "11.0.0.0", "100.63.255.255", "100.128.0.0", "126.255.255.255", "128.0.0.0", "168.63.129.15",
		"168.63.129.17", "169.253.255.255", "169.255.0.0", "172.15.255.255", "172.32.0.0", "191.255.255.255", "192.0.1.0", "192.0.1.255",
		"192.0.3.0", "192.88.98.255", "192.88.100.0", "192.167.255.255", "192.169.0.0", "198.17.255.255", "198.20.0.0", "198.51.99.255",
		"198.51.101.0", "203.0.112.255", "203.0.114.0", "223.255.255.255", "8.8.8.8", "192.31.196.1", "192.52.193.1", "192.175.48.1",
	}, ""},
	{[]string{
		"2000::", "2001:200::", "2001:db7:ffff::", "2001:db9::", "2001:ffff::", "2003::", "2606:4700:4700::1111", "2620:4f:8000::1",
		"3ffe:ffff::", "3fff:1000::", "3fff:ffff::",
	}, ""},
	{[]string{"::ffff:8.8.8.8", "64:ff9b::8.8.8.8", "64:ff9b::1.1.1.1"}, ""},
}

func ruleName(r *rule) string {
	if r == nil {
		return ""
	}
	return r.name
}

func TestEveryRuleBlocksItsRangeAndNothingElse(t *testing.T) {
	used := map[*rule]bool{}
	for _, row := range addressTable {
		for _, text := range row.addresses {
			r := blockedBy(netip.MustParseAddr(text))
			if used[r] = true; ruleName(r) != row.name {
				t.Errorf("%s: want %q, got %q", text, row.name, ruleName(r))
			}
		}
	}
	for i := range rules {
		if !used[&rules[i]] {
			t.Errorf("no address tests %s", rules[i].prefix)
		}
		if rules[i].name == "" || rules[i].why == "" || rules[i].prefix != rules[i].prefix.Masked() {
			t.Errorf("%s is incomplete, or not masked", rules[i].prefix)
		}
	}
}

func drawAddress(t *rapid.T) netip.Addr {
	if rapid.Bool().Draw(t, "v4") {
		return netip.AddrFrom4([4]byte(rapid.SliceOfN(rapid.Byte(), 4, 4).Draw(t, "bytes")))
	}
	addr := netip.AddrFrom16([16]byte(rapid.SliceOfN(rapid.Byte(), 16, 16).Draw(t, "bytes")))
	for i := range rules { // few rules contain a random address
		if p := rules[i].prefix; p.Addr().Is6() && rapid.IntRange(0, len(rules)).Draw(t, "in") == 0 {
			return withPrefix(p, addr)
		}
	}
	return addr
}

// withPrefix returns addr with the first bits of p.
func withPrefix(p netip.Prefix, addr netip.Addr) netip.Addr {
	head, tail := p.Addr().As16(), addr.As16()
	for bit := range p.Bits() {
		mask := byte(0x80) >> (bit % 8)
		tail[bit/8] = tail[bit/8]&^mask | head[bit/8]&mask
	}
	return netip.AddrFrom16(tail)
}

func TestMappedAndTranslatedAddressesAreBlockedLikeIPv4(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		four := [4]byte(rapid.SliceOfN(rapid.Byte(), 4, 4).Draw(t, "bytes"))
		addr := netip.AddrFrom4(four)
		mapped := netip.AddrFrom16(addr.As16())
		if !mapped.Is4In6() || blockedBy(addr) != blockedBy(mapped) {
			t.Fatalf("%s and %s are blocked by %q and %q", addr, mapped, ruleName(blockedBy(addr)), ruleName(blockedBy(mapped)))
		}
		sixteen := translated.Addr().As16()
		copy(sixteen[12:], four[:])
		if through := netip.AddrFrom16(sixteen); blockedBy(addr) != blockedBy(through) {
			t.Fatalf("%s and %s are blocked by %q and %q", addr, through, ruleName(blockedBy(addr)), ruleName(blockedBy(through)))
		}
	})
}

func TestWhatNetipCallsNotPublicIsBlocked(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		addr := drawAddress(t)
		known := !addr.IsGlobalUnicast() || addr.IsPrivate() || addr.IsLoopback() || addr.IsLinkLocalUnicast() || addr.IsMulticast() || addr.IsUnspecified()
		if known && blockedBy(addr) == nil {
			t.Fatalf("%s is not blocked", addr)
		}
		if blockedBy(addr.WithZone("eth0")) == nil && addr.Is6() {
			t.Fatalf("%s is not blocked with a zone", addr)
		}
		if unicast := netip.MustParsePrefix("2000::/3"); addr.Is6() && blockedBy(addr) == nil && !unicast.Contains(addr) && !addr.Is4In6() && !translated.Contains(addr) {
			t.Fatalf("%s is not blocked", addr)
		}
	})
}

func TestAllowedRangesApplyToTheAddressAsDialled(t *testing.T) {
	g := New([]netip.Prefix{
		netip.MustParsePrefix("10.0.0.0/8"), netip.MustParsePrefix("fd00:1::/32"), netip.MustParsePrefix("::ffff:192.168.7.0/120"),
		netip.MustParsePrefix("64:ff9b::172.16.0.0/108"),
	})
	for text, want := range map[string]bool{
		"10.1.2.3": true, "::ffff:10.1.2.3": true, "64:ff9b::10.1.2.3": false, "::10.1.2.3": false, "2002:a01:203::": false, "11.0.0.1": true,
		"fd00:1::9": true, "fd00:2::9": false, "fd00:1::9%eth0": false, "::ffff:10.1.2.3%eth0": false,
		"192.168.7.1": true, "192.168.8.1": false, "127.0.0.1": false, "172.16.0.1": false, "64:ff9b::172.16.0.1": true,
	} {
		if r := g.blockedBy(netip.MustParseAddr(text)); (r == nil) != want {
			t.Errorf("%s: want allowed %v, got %q", text, want, ruleName(r))
		}
	}
}
