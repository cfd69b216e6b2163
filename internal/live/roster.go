package live

import (
	"sync"
	"sync/atomic"

	"sovereign/internal/base/tenant"
)

// A roster numbers members, so that a key names its own in four bytes. A number is never given twice.
type roster struct {
	mu      sync.Mutex // held by writers
	numbers map[Member]uint32
	seats   atomic.Pointer[[]*seat] // a seat's place is its number
}

// A seat is a member's, and stays when they leave.
type seat struct {
	Member
	granted atomic.Pointer[tenant.Role]
}

// role is what the member is now; it is empty when they have left, and before they were heard of.
func (s *seat) role() tenant.Role { return *s.granted.Load() }

func (r *roster) seat(number uint32) *seat { return (*r.seats.Load())[number] }

// number is the number of a member's seat.
func (r *roster) number(m Member) uint32 {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.numbered(m)
}

func (r *roster) put(m Member, role tenant.Role) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.seat(r.numbered(m)).granted.Store(&role)
}

// replace gives every member the role it says, and nobody else one.
func (r *roster) replace(members map[Member]tenant.Role) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for m, role := range members {
		r.seat(r.numbered(m)).granted.Store(&role)
	}
	for _, seat := range *r.seats.Load() {
		if _, stays := members[seat.Member]; !stays {
			seat.granted.Store(&nobody)
		}
	}
}

var nobody tenant.Role

func (r *roster) numbered(m Member) uint32 {
	number, ok := r.numbers[m]
	if !ok {
		seat := &seat{Member: m}
		seat.granted.Store(&nobody)
		seats := append(*r.seats.Load(), seat)
		number = uint32(len(seats) - 1)
		r.numbers[m] = number
		r.seats.Store(&seats)
	}
	return number
}
