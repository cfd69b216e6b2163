package live

import (
	"fmt"
	"sync"
	"sync/atomic"

	"sovereign/internal/base/tenant"
)

// A card is a key, without a pointer: with a table that leads from digests to numbers of cards, the collector passes over a million
// keys as over ten.
type card struct {
	used  atomic.Int64
	dirty atomic.Bool
	long  uint8
	name  [longestID]byte
	seat  uint32 // of the key's user, in the roster
}

// longestID is above the thirty bytes of a key's id.
const longestID = 34

func (c *card) id() tenant.KeyID { return tenant.KeyID(c.name[:c.long]) }

// cards are found by number. A card stays where it is and its number is never given twice, so that a use is noted on no other key's.
type cards struct {
	mu    sync.Mutex // held by writers
	made  uint32
	pages atomic.Pointer[[]*[pageSize]card]
}

const pageSize = 1024

func (c *cards) at(number uint32) *card { return &(*c.pages.Load())[number/pageSize][number%pageSize] }

// add is the number of a new card.
func (c *cards) add(id tenant.KeyID, seat uint32) uint32 {
	if len(id) > longestID {
		panic(fmt.Sprintf("live: a key's id of %d bytes, and no id of ours has more than %d", len(id), longestID))
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.made%pageSize == 0 {
		pages := append(*c.pages.Load(), new([pageSize]card))
		c.pages.Store(&pages)
	}
	number := c.made
	card := c.at(number)
	card.seat, card.long = seat, uint8(copy(card.name[:], id))
	c.made++
	return number
}
