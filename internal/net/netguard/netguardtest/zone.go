// Package netguardtest has a DNS server for tests of names that customers choose.
package netguardtest

import (
	"context"
	"encoding/binary"
	"io"
	"net"
	"net/netip"
	"strings"
	"sync"
	"testing"
	"time"
)

// A Zone is a DNS server for tests. Each name has a list of answers: every query for IPv4 gets the next, and the last
// one repeats. Over UDP, the answers for names that begin with "long." are truncated, so that the resolver asks over
// TCP.
type Zone struct {
	address string
	mu      sync.Mutex
	names   map[string][][]netip.Addr
	queries map[string]int // for IPv4, by name
}

// Answers parses addresses.
func Answers(addresses ...string) []netip.Addr {
	all := make([]netip.Addr, len(addresses))
	for i, text := range addresses {
		all[i] = netip.MustParseAddr(text)
	}
	return all
}

// NewZone starts a DNS server, until the end of the test.
func NewZone(t testing.TB, names map[string][][]netip.Addr) *Zone {
	t.Helper()
	z := &Zone{names: names, queries: map[string]int{}}
	stream, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	z.address = stream.Addr().String()
	packets, err := new(net.ListenConfig).ListenPacket(t.Context(), "udp", z.address)
	if err != nil {
		t.Fatal(err)
	}
	var served sync.WaitGroup
	served.Go(func() { z.packets(packets) })
	served.Go(func() { z.stream(stream) })
	t.Cleanup(func() {
		_, _ = stream.Close(), packets.Close()
		served.Wait()
	})
	return z
}

// Resolver returns a resolver that queries the zone alone, whatever the machine's configuration.
func (z *Zone) Resolver() *net.Resolver {
	return &net.Resolver{PreferGo: true, Dial: func(ctx context.Context, network, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, network, z.address)
	}}
}

func (z *Zone) packets(c net.PacketConn) {
	question := make([]byte, 512)
	for {
		n, from, err := c.ReadFrom(question)
		if err != nil {
			return
		}
		_, _ = c.WriteTo(z.answer(question[:n], true), from)
	}
}

func (z *Zone) stream(l net.Listener) {
	for {
		c, err := l.Accept()
		if err != nil {
			return
		}
		_ = c.SetDeadline(time.Now().Add(time.Minute))
		var size [2]byte
		if _, err := io.ReadFull(c, size[:]); err == nil {
			question := make([]byte, binary.BigEndian.Uint16(size[:]))
			if _, err := io.ReadFull(c, question); err == nil {
				answer := z.answer(question, false)
				_, _ = c.Write(append(binary.BigEndian.AppendUint16(nil, uint16(len(answer))), answer...))
			}
		}
		_ = c.Close()
	}
}

// answer encodes the response to a query: header, question, and a record for each address with a TTL of 0.
func (z *Zone) answer(question []byte, cut bool) []byte {
	const head, ipv4, ipv6 = 12, 1, 28
	var labels []string
	end := head
	for question[end] != 0 {
		labels = append(labels, string(question[end+1:end+1+int(question[end])]))
		end += 1 + int(question[end])
	}
	name, kind := strings.ToLower(strings.Join(labels, ".")), binary.BigEndian.Uint16(question[end+1:])
	cut = cut && strings.HasPrefix(name, "long.")
	addresses, known := z.next(name, kind == ipv4 && !cut)

	flags, records := uint16(0x8580), []byte(nil) // an authoritative response
	var count uint16
	for _, addr := range addresses {
		if (kind == ipv4 && addr.Is4()) || (kind == ipv6 && addr.Is6()) {
			records = append(records, 0xc0, head, 0, byte(kind), 0, 1, 0, 0, 0, 0, 0, byte(addr.BitLen()/8))
			records = append(records, addr.AsSlice()...)
			count++
		}
	}
	if !known {
		flags |= 3
	}
	if cut {
		flags, count, records = flags|0x200, 0, nil
	}
	reply := append([]byte(nil), question[:2]...)
	for _, n := range []uint16{flags, 1, count, 0, 0} {
		reply = binary.BigEndian.AppendUint16(reply, n)
	}
	reply = append(reply, question[head:end+5]...)
	return append(reply, records...)
}

// next returns what a name resolves to now, and moves on if count is set.
func (z *Zone) next(name string, count bool) ([]netip.Addr, bool) {
	z.mu.Lock()
	defer z.mu.Unlock()
	all, known := z.names[name]
	if !known {
		return nil, false
	}
	now := all[min(z.queries[name], len(all)-1)]
	if count {
		z.queries[name]++
	}
	return now, true
}

// QueryCount returns how often a name was asked for.
func (z *Zone) QueryCount(name string) int {
	z.mu.Lock()
	defer z.mu.Unlock()
	return z.queries[name]
}
