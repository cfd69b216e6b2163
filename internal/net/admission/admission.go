// Package admission decides which connections a server keeps. Connections whose client has shown a valid key are kept;
// those without one make room for new ones. It also bounds what one address can open and ask for without a key, and
// which share of the connections one workspace can keep.
package admission

import (
	"container/list"
	"io"
	"net/netip"
	"sync"
	"time"
)

// Limits bound the connections of a Table.
type Limits struct {
	Connections int64 // open at once; a quarter of them only with a valid key
	PerAddress  int64 // open at once from one address
	Keyless     int64 // connections and requests without a valid key that one address may start in a Window
}

// keylessMost returns how many connections without a key may be open. The rest is reserved for those with one.
func (l Limits) keylessMost() int64 { return l.Connections - l.Connections/4 }

// Window is the time in which keyless starts are counted.
const Window = 10 * time.Second

// overflow bounds the connections that are open only to be refused.
const overflow = 1024

// grace is how long a new connection has to show its key before it may be evicted. Meanwhile others are refused, so
// that callers who come all at once get an answer. It does not hold when even those that are refused are too many.
const grace = 250 * time.Millisecond

// maxAddresses bounds the addresses that are counted. Addresses beyond it have no bounds of their own, only those of
// the table.
const maxAddresses = 1 << 16

// A Verdict says what becomes of a new connection.
type Verdict int

// The verdicts.
const (
	Admitted Verdict = iota
	Refused          // it is in the table only to be refused: its client gets one answer
	Dropped          // it is not in the table, and should be closed at once
)

// A Table holds the open connections of a server. It is safe for concurrent use.
type Table struct {
	mu        sync.Mutex
	limits    Limits
	open      int64            // connections that were admitted
	refusing  int64            // connections that were refused
	keyless   list.List        // of *Place: admitted, without a key, the oldest first
	owned     map[string]int64 // connections with a key, by the workspace of the key
	addresses map[netip.Addr]*address
	swept     time.Time
	counts    Counts
}

// Counts are what a Table has done, and what it holds.
type Counts struct {
	Open    int64 // connections, without those that are only refused
	Keyless int64 // those of them that have not shown a key
	Evicted int64 // connections without a key that were closed, in all
	Refused int64 // connections and keyless requests that were refused, in all
}

// A Place is a connection's place in a Table. It must not be copied after Add.
type Place struct {
	Conn io.Closer // is closed when another connection needs the place

	state    state
	address  *address // nil if it has no bounds of its own
	owner    string   // the workspace that it counts for, once it has shown a key
	added    time.Time
	all, own *list.Element // in the lists of the table and of the address, while keyless
}

type state int

const (
	outside state = iota // not in the table
	keyless
	proven // a valid key was shown
	refused
)

// An address is what is known of one address: an IPv4 address, or the first 64 bits of an IPv6 address.
type address struct {
	open    int64
	keyless list.List // of *Place, the oldest first
	window  time.Time // when the window of starts began
	starts  int64
}

// NewTable returns a table that refuses everything until its limits are set.
func NewTable() *Table {
	return &Table{owned: map[string]int64{}, addresses: map[netip.Addr]*address{}}
}

// Set changes the limits. Connections that are open stay open.
func (t *Table) Set(l Limits) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.limits = l
}

// Counts returns the counts of now.
func (t *Table) Counts() Counts {
	t.mu.Lock()
	defer t.mu.Unlock()
	c := t.counts
	c.Open, c.Keyless = t.open, int64(t.keyless.Len())
	return c
}

// Add decides about a new connection. from is its address, or the zero Addr for one without bounds per address. When
// there is no room, the connection that has been open the longest without a valid key is closed.
func (t *Table) Add(p *Place, from netip.Addr, now time.Time) Verdict {
	verdict, evicted := t.add(p, from, now)
	for _, victim := range evicted { // outside of the lock: Close calls Remove
		_ = victim.Conn.Close()
	}
	return verdict
}

func (t *Table) add(p *Place, from netip.Addr, now time.Time) (Verdict, []*Place) {
	t.mu.Lock()
	defer t.mu.Unlock()
	a := t.address(from, now)
	p.address, p.added = a, now
	var evicted []*Place
	if !a.start(now, t.limits.Keyless) || !t.makeRoom(a, now, &evicted) {
		t.counts.Refused++
		if t.refusing >= overflow {
			return Dropped, evicted
		}
		t.refusing++
		p.state = refused
		return Refused, evicted
	}
	t.open++
	p.state, p.all = keyless, t.keyless.PushBack(p)
	if a != nil {
		a.open++
		p.own = a.keyless.PushBack(p)
	}
	return Admitted, evicted
}

// makeRoom evicts connections without a key until another one may be open. It returns false if it cannot.
func (t *Table) makeRoom(a *address, now time.Time, evicted *[]*Place) bool {
	for a != nil && a.open >= t.limits.PerAddress {
		if !t.evict(&a.keyless, now, evicted) {
			return false
		}
	}
	for t.open >= t.limits.Connections || int64(t.keyless.Len()) >= t.limits.keylessMost() {
		if !t.evict(&t.keyless, now, evicted) {
			return false
		}
	}
	return true
}

// evict takes the oldest of a list out of the table, if there is one and it has had its time.
func (t *Table) evict(from *list.List, now time.Time, evicted *[]*Place) bool {
	oldest := from.Front()
	if oldest == nil {
		return false
	}
	p, _ := oldest.Value.(*Place)
	if now.Sub(p.added) < grace && t.refusing < overflow {
		return false
	}
	*evicted = append(*evicted, p)
	t.counts.Evicted++
	t.remove(p)
	return true
}

// Prove records that a valid key of a workspace was shown on a connection. It is not evicted any more, and does not
// count as a keyless start. Prove returns false, and the connection may still be evicted, if the workspace has its
// share of the connections already. An empty owner has no share: it is for connections that serve many workspaces.
func (t *Table) Prove(p *Place, owner string) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if p.state != keyless {
		return p.state == proven
	}
	if owner != "" && !t.mayOwn(owner) {
		t.counts.Refused++
		return false
	}
	t.unlist(p)
	p.state, p.owner = proven, owner
	if owner != "" {
		t.owned[owner]++
	}
	if a := p.address; a != nil && a.starts > 0 && !p.added.Before(a.window) {
		a.starts--
	}
	return true
}

// mayOwn reports whether a workspace may keep one connection more. It may not when it would have more than twice as
// many as are left for connections with a key, by the rule of limit.Shares: one workspace alone gets two thirds of the
// table, and one that has none always finds room.
func (t *Table) mayOwn(owner string) bool {
	own, left := t.owned[owner]+1, t.limits.Connections-(t.open-int64(t.keyless.Len()))-1
	return own == 1 || own <= 2*left
}

// Remove takes a connection that was closed out of the table. Repeating it is a no-op.
func (t *Table) Remove(p *Place) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.remove(p)
}

func (t *Table) remove(p *Place) {
	switch p.state {
	case outside:
		return
	case refused:
		t.refusing--
	case keyless, proven:
		t.unlist(p)
		t.disown(p)
		t.open--
		if p.address != nil {
			p.address.open--
		}
	}
	p.state = outside
}

// unlist takes a connection out of the lists of keyless ones.
func (t *Table) unlist(p *Place) {
	if p.state != keyless {
		return
	}
	t.keyless.Remove(p.all)
	if p.own != nil {
		p.address.keyless.Remove(p.own)
	}
}

// disown takes a connection from what its workspace has.
func (t *Table) disown(p *Place) {
	if p.owner == "" {
		return
	}
	if t.owned[p.owner]--; t.owned[p.owner] == 0 {
		delete(t.owned, p.owner)
	}
	p.owner = ""
}

// Start counts a request without a valid key. When its address has sent too many, it returns false and how long the
// address has to wait.
func (t *Table) Start(from netip.Addr, now time.Time) (wait time.Duration, ok bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	a := t.address(from, now)
	if a.start(now, t.limits.Keyless) {
		return 0, true
	}
	t.counts.Refused++
	return a.window.Add(Window).Sub(now), false
}

// start counts a start, if there are fewer than most in this window.
func (a *address) start(now time.Time, most int64) bool {
	if a == nil {
		return true
	}
	if now.Sub(a.window) >= Window {
		a.window, a.starts = now, 0
	}
	if a.starts >= most {
		return false
	}
	a.starts++
	return true
}

// address returns what is known of an address. It is nil for an address that is not counted.
func (t *Table) address(from netip.Addr, now time.Time) *address {
	if !from.IsValid() {
		return nil
	}
	if from = from.Unmap().WithZone(""); from.Is6() {
		network, _ := from.Prefix(64) // what one subscriber has
		from = network.Addr()
	}
	t.sweep(now)
	a := t.addresses[from]
	if a == nil && len(t.addresses) < maxAddresses {
		a = &address{window: now}
		t.addresses[from] = a
	}
	return a
}

// sweep forgets, once per window, the addresses that have no connection and no starts in this window.
func (t *Table) sweep(now time.Time) {
	if now.Sub(t.swept) < Window {
		return
	}
	t.swept = now
	for from, a := range t.addresses {
		if a.open == 0 && now.Sub(a.window) >= Window {
			delete(t.addresses, from)
		}
	}
}
