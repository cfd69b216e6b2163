package live

import (
	"sync"
	"sync/atomic"

	"sovereign/internal/base/tenant"
)

// members assigns a number to each member, so that a keyRecord refers to its user in four bytes. Numbers are never reused.
type members struct {
	mu      sync.Mutex // held by writers
	numbers map[Member]uint32
	records atomic.Pointer[[]*memberRecord] // indexed by number
}

// A memberRecord is a member and its current role. It stays after the member has left.
type memberRecord struct {
	Member
	current atomic.Pointer[tenant.Role]
}

// role returns the member's current role. It is empty after the member has left, and before a role was first set.
func (s *memberRecord) role() tenant.Role { return *s.current.Load() }

func (r *members) at(number uint32) *memberRecord { return (*r.records.Load())[number] }

// number returns the number of a member. It assigns one if needed.
func (r *members) number(m Member) uint32 {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.numberLocked(m)
}

// role returns the role of a member, without assigning a number to one who is not known.
func (r *members) role(m Member) tenant.Role {
	r.mu.Lock()
	defer r.mu.Unlock()
	number, ok := r.numbers[m]
	if !ok {
		return ""
	}
	return r.at(number).role()
}

func (r *members) put(m Member, role tenant.Role) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.at(r.numberLocked(m)).current.Store(&role)
}

// replace sets the roles of all members. A member that is not listed has no role.
func (r *members) replace(members map[Member]tenant.Role) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for m, role := range members {
		r.at(r.numberLocked(m)).current.Store(&role)
	}
	for _, record := range *r.records.Load() {
		if _, stays := members[record.Member]; !stays {
			record.current.Store(&noRole)
		}
	}
}

var noRole tenant.Role

// numberLocked is number for callers that hold mu.
func (r *members) numberLocked(m Member) uint32 {
	number, ok := r.numbers[m]
	if !ok {
		record := &memberRecord{Member: m}
		record.current.Store(&noRole)
		records := append(*r.records.Load(), record)
		number = uint32(len(records) - 1)
		r.numbers[m] = number
		r.records.Store(&records)
	}
	return number
}
