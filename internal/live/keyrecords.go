package live

import (
	"fmt"
	"sync"
	"sync/atomic"

	"sovereign/internal/base/tenant"
)

// A keyRecord is the mutable state of a key. It holds no pointers, and the table of keys maps digests to record
// numbers: so the garbage collector does not scan the keys, however many there are.
type keyRecord struct {
	used   atomic.Int64
	dirty  atomic.Bool
	length uint8
	name   [maxIDLength]byte
	member uint32 // the number of the key's user in members
}

// maxIDLength is more than the 30 bytes of a key id.
const maxIDLength = 34

func (k *keyRecord) id() tenant.KeyID { return tenant.KeyID(k.name[:k.length]) }

// keyRecords are addressed by number. A record never moves and its number is never reused, so that a use cannot be
// recorded for another key.
type keyRecords struct {
	mu    sync.Mutex // held by writers
	made  uint32
	pages atomic.Pointer[[]*[pageSize]keyRecord]
}

const pageSize = 1024

func (r *keyRecords) at(number uint32) *keyRecord {
	return &(*r.pages.Load())[number/pageSize][number%pageSize]
}

// add appends a record and returns its number.
func (r *keyRecords) add(id tenant.KeyID, member uint32) uint32 {
	if len(id) > maxIDLength {
		panic(fmt.Sprintf("live: a key id of %d bytes, more than %d", len(id), maxIDLength))
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.made%pageSize == 0 {
		pages := append(*r.pages.Load(), new([pageSize]keyRecord))
		r.pages.Store(&pages)
	}
	number := r.made
	record := r.at(number)
	record.member, record.length = member, uint8(copy(record.name[:], id))
	r.made++
	return number
}
