package admission

import (
	"fmt"
	"net/netip"
	"testing"
	"time"

	"pgregory.net/rapid"
)

var noon = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

// A conn is a connection that leaves the table when it is closed, like those of a server.
type conn struct {
	Place
	table  *Table
	closed bool
}

func (c *conn) Close() error {
	c.closed = true
	c.table.Remove(&c.Place)
	return nil
}

func (t *Table) dial(from string) (*conn, Verdict) { return t.dialAt(noon, from) }

// dialLater dials when all others have had their time.
func (t *Table) dialLater(from string) (*conn, Verdict) { return t.dialAt(noon.Add(grace), from) }

func (t *Table) dialAt(now time.Time, from string) (*conn, Verdict) {
	c := &conn{table: t}
	c.Conn = c
	var address netip.Addr
	if from != "" {
		address = netip.MustParseAddr(from)
	}
	return c, t.Add(&c.Place, address, now)
}

func newTable(l Limits) *Table {
	t := NewTable()
	t.Set(l)
	return t
}

func TestTheOldestConnectionWithoutAKeyMakesRoom(t *testing.T) {
	table := newTable(Limits{Connections: 8, PerAddress: 100, Keyless: 100})
	var all []*conn
	for range 6 { // all but the reserve
		c, verdict := table.dial("")
		if verdict != Admitted {
			t.Fatal(verdict)
		}
		all = append(all, c)
	}
	table.Prove(&all[0].Place, "")
	if c, verdict := table.dial(""); verdict != Admitted || all[1].closed { // the proven one counts against the reserve
		t.Fatal(verdict)
	} else {
		all = append(all, c)
	}
	if _, verdict := table.dial(""); verdict != Refused || all[1].closed {
		t.Errorf("%v, while the others may still show a key", verdict)
	}
	if _, verdict := table.dialLater(""); verdict != Admitted || !all[1].closed || all[0].closed || all[2].closed {
		t.Errorf("%v, and not the oldest without a key was closed", verdict)
	}
	if c := table.Counts(); c.Open != 7 || c.Keyless != 6 || c.Evicted != 1 || c.Refused != 1 {
		t.Errorf("%+v", c)
	}
}

func TestConnectionsWithAKeyAreNeverClosedAndCanFillTheTable(t *testing.T) {
	table := newTable(Limits{Connections: 4, PerAddress: 100, Keyless: 100})
	var all []*conn
	for i := range 6 {
		c, verdict := table.dial("")
		if want := i < 4; (verdict == Admitted) != want {
			t.Fatalf("connection %d: %v", i, verdict)
		}
		table.Prove(&c.Place, "")
		all = append(all, c)
	}
	for i, c := range all {
		if c.closed {
			t.Errorf("connection %d was closed", i)
		}
	}
	_ = all[0].Close()
	_ = all[0].Close()
	if _, verdict := table.dial(""); verdict != Admitted {
		t.Errorf("after one was closed: %v", verdict)
	}
}

func TestOneAddressHasItsOwnBounds(t *testing.T) {
	table := newTable(Limits{Connections: 100, PerAddress: 2, Keyless: 3})
	first, _ := table.dial("192.0.2.1")
	second, _ := table.dial("::ffff:192.0.2.1") // the same
	table.Prove(&second.Place, "")
	third, verdict := table.dialLater("192.0.2.1")
	if verdict != Admitted || !first.closed || second.closed {
		t.Errorf("a third connection: %v", verdict)
	}
	table.Prove(&third.Place, "")
	if _, verdict := table.dial("192.0.2.1"); verdict != Refused || second.closed || third.closed {
		t.Errorf("beside two with a key: %v", verdict)
	}
	if _, verdict := table.dial("192.0.2.2"); verdict != Admitted {
		t.Errorf("another address: %v", verdict)
	}
	for i, from := range []string{"2001:db8::1", "2001:db8::2", "2001:db8::3:4"} { // one network of 64 bits
		c, verdict := table.dial(from)
		if verdict != Admitted {
			t.Errorf("%s: %v", from, verdict)
		}
		if table.Prove(&c.Place, ""); i == 1 {
			_ = c.Close()
		}
	}
	if _, verdict := table.dial("2001:db8::5"); verdict != Refused {
		t.Errorf("a third one of a network: %v", verdict)
	}
	if _, verdict := table.dial("2001:db8:0:1::5"); verdict != Admitted {
		t.Errorf("another network: %v", verdict)
	}
}

func TestKeylessStartsAreCountedByAddressAndWindow(t *testing.T) {
	table, from := newTable(Limits{Connections: 100, PerAddress: 100, Keyless: 3}), netip.MustParseAddr("192.0.2.1")
	for range 10 { // those that show a key do not count
		c, verdict := table.dial("192.0.2.1")
		if verdict != Admitted {
			t.Fatal(verdict)
		}
		table.Prove(&c.Place, "")
	}
	for i := range 3 {
		if _, ok := table.Start(from, noon); !ok {
			t.Errorf("start %d is refused", i)
		}
	}
	if wait, ok := table.Start(from, noon.Add(time.Second)); ok || wait != Window-time.Second {
		t.Error(wait, ok)
	}
	if _, verdict := table.dial("192.0.2.1"); verdict != Refused {
		t.Error(verdict)
	}
	if _, ok := table.Start(netip.Addr{}, noon); !ok {
		t.Error("an address without bounds is refused")
	}
	if _, ok := table.Start(from, noon.Add(Window)); !ok {
		t.Error("the next window is refused")
	}
	if _, ok := table.Start(netip.MustParseAddr("192.0.2.9"), noon.Add(2*Window)); !ok || len(table.addresses) != 2 {
		t.Errorf("%d addresses are known", len(table.addresses)) // the first has open connections
	}
}

func TestConnectionsThatAreOnlyRefusedAreBounded(t *testing.T) {
	table := newTable(Limits{})
	var last *conn
	for i := range overflow + 1 {
		c, verdict := table.dial("")
		if want := map[bool]Verdict{true: Refused, false: Dropped}[i < overflow]; verdict != want {
			t.Fatalf("connection %d: %v", i, verdict)
		}
		if verdict == Refused {
			last = c
		}
	}
	_ = last.Close()
	if _, verdict := table.dial(""); verdict != Refused {
		t.Error(verdict)
	}
}

// One key, from as many addresses as it likes, does not take all connections that are reserved for keys.
func TestAWorkspaceLeavesConnectionsForOthers(t *testing.T) {
	table := newTable(Limits{Connections: 90, PerAddress: 100, Keyless: 1000})
	open := func(owner string) (kept []*conn, refused *conn) {
		for {
			c, verdict := table.dialLater("")
			if verdict != Admitted {
				t.Fatalf("a connection of %s: %v", owner, verdict)
			}
			if !table.Prove(&c.Place, owner) {
				return kept, c
			}
			kept = append(kept, c)
		}
	}
	greedy, refused := open("ws_greedy")
	second, _ := open("ws_second")
	third, _ := open("ws_third")
	if len(greedy) != 60 || len(second) != 20 || len(third) != 6 {
		t.Errorf("%d, %d and %d of 90", len(greedy), len(second), len(third))
	}
	for _, c := range greedy[:30] {
		_ = c.Close()
	}
	if !table.Prove(&refused.Place, "ws_greedy") {
		t.Error("a connection is refused although others were closed")
	}
	if more, _ := open("ws_second"); len(more) == 0 {
		t.Error("what one has given back is not for others")
	}
	single := newTable(Limits{Connections: 1, PerAddress: 1, Keyless: 1})
	if c, _ := single.dial(""); !single.Prove(&c.Place, "ws_alone") {
		t.Error("a table of one has no place")
	}
}

// Whatever happens in whatever order, the bounds hold, no connection with a key is closed, and an empty table counts
// nothing.
func TestNoSequenceExceedsTheBounds(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		l := Limits{
			Connections: rapid.Int64Range(1, 12).Draw(t, "connections"), PerAddress: rapid.Int64Range(1, 6).Draw(t, "per address"), Keyless: 1000,
		}
		table := newTable(l)
		var open []*conn
		keyed := map[*conn]bool{}
		now := noon
		for range rapid.IntRange(1, 200).Draw(t, "steps") {
			now = now.Add(time.Duration(rapid.Int64Range(0, int64(grace)).Draw(t, "pause")))
			switch step := rapid.IntRange(0, 3).Draw(t, "step"); {
			case step < 2 || len(open) == 0:
				c, verdict := table.dialAt(now, fmt.Sprintf("192.0.2.%d", rapid.IntRange(1, 3).Draw(t, "address")))
				if verdict == Admitted {
					open = append(open, c)
				}
			default:
				c := open[rapid.IntRange(0, len(open)-1).Draw(t, "which")]
				if step == 2 && !c.closed {
					keyed[c] = table.Prove(&c.Place, rapid.SampledFrom([]string{"", "ws_1", "ws_2"}).Draw(t, "owner"))
					if !keyed[c] {
						delete(keyed, c)
					}
				} else if step == 3 {
					delete(keyed, c)
					_ = c.Close()
				}
			}
			alive := int64(0)
			for _, c := range open {
				if !c.closed {
					alive++
				} else if keyed[c] {
					t.Fatal("a connection with a key was closed")
				}
			}
			if c := table.Counts(); c.Open != alive || c.Open > l.Connections || c.Keyless > l.keylessMost() || c.Keyless != alive-int64(len(keyed)) {
				t.Fatalf("%+v, and %d are open", c, alive)
			}
			for from, a := range table.addresses {
				if a.open > l.PerAddress {
					t.Fatalf("%s has %d", from, a.open)
				}
			}
		}
		for _, c := range open {
			_ = c.Close()
		}
		if c := table.Counts(); c.Open != 0 || c.Keyless != 0 || len(table.owned) != 0 {
			t.Fatalf("at the end %+v %v", c, table.owned)
		}
	})
}

// When even those that are refused are too many, a new connection takes the place of the oldest, however young that is.
func TestAFloodDoesNotKeepItsPlacesByItsSpeed(t *testing.T) {
	table := newTable(Limits{Connections: 4, PerAddress: 100, Keyless: 100})
	var first *conn
	for i := range 3 + overflow {
		c, verdict := table.dial("")
		if want := map[bool]Verdict{true: Admitted, false: Refused}[i < 3]; verdict != want {
			t.Fatalf("connection %d: %v", i, verdict)
		}
		if i == 0 {
			first = c
		}
	}
	if _, verdict := table.dial(""); verdict != Admitted || !first.closed {
		t.Errorf("the next one: %v", verdict)
	}
}

func BenchmarkAdd(b *testing.B) {
	table, from := newTable(Limits{Connections: 100, PerAddress: 100, Keyless: 1 << 40}), netip.MustParseAddr("192.0.2.1")
	for b.Loop() {
		c := &conn{table: table}
		c.Conn = c
		table.Add(&c.Place, from, noon)
		table.Prove(&c.Place, "")
		table.Remove(&c.Place)
	}
}
