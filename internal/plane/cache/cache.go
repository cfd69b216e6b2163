// Package cache remembers whole answers for a while, so that a question that is asked again costs nothing. It is in memory
// alone, bounded in bytes, and kept apart by workspace: no workspace can be given what another was answered.
package cache

import (
	"container/list"
	"sync"
	"time"

	"sovereign/internal/base/tenant"
)

// An Entry is an answer and the model that gave it. Its body is shared: nobody may change it.
type Entry struct {
	Model string
	Body  []byte
}

// overhead is about what an entry takes beside its texts.
const overhead = 256

func (e Entry) size() int64 { return int64(len(e.Model)+len(e.Body)) + overhead }

// share: an entry takes no more than this part of a cache, so that one answer cannot push out all the others.
const share = 10

// A Cache holds answers. The one that was used least recently leaves first. Many may use it at once.
type Cache struct {
	life time.Duration

	mu    sync.Mutex
	most  int64
	bytes int64
	used  *list.List // of *held, the latest used first
	by    map[tenant.ID]map[Sum]*list.Element
}

type held struct {
	Entry
	key     Key
	expires time.Time
}

// New is an empty cache of at most so many bytes, whose entries live so long.
func New(most int64, life time.Duration) *Cache {
	return &Cache{life: life, most: most, used: list.New(), by: map[tenant.ID]map[Sum]*list.Element{}}
}

// Resize changes the bound, at once. A cache of 0 bytes is off.
func (c *Cache) Resize(most int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.most = most
	c.shrink()
}

// Get is the answer to a question, unless it is too old at now.
func (c *Cache) Get(key Key, now time.Time) (Entry, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	e, ok := c.by[key.workspace][key.sum]
	if !ok {
		return Entry{}, false
	}
	h := e.Value.(*held)
	if left := h.expires.Sub(now); left <= 0 || left > 2*c.life { // over, or the clock was set back by more than callers overtake each other
		c.drop(e)
		return Entry{}, false
	}
	c.used.MoveToFront(e)
	return h.Entry, true
}

// Put remembers an answer in place of an earlier one. One that is too big is not kept.
func (c *Cache) Put(key Key, entry Entry, now time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if e, ok := c.by[key.workspace][key.sum]; ok {
		c.drop(e)
	}
	if key.workspace == "" || entry.size() > c.most/share {
		return
	}
	mine := c.by[key.workspace]
	if mine == nil {
		mine = map[Sum]*list.Element{}
		c.by[key.workspace] = mine
	}
	mine[key.sum] = c.used.PushFront(&held{entry, key, now.Add(c.life)})
	c.bytes += entry.size()
	c.shrink()
}

// Forget drops what a workspace was answered.
func (c *Cache) Forget(workspace tenant.ID) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, e := range c.by[workspace] {
		c.drop(e)
	}
}

// Figures are how many entries there are, and how many bytes they take.
func (c *Cache) Figures() (entries int, bytes int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.used.Len(), c.bytes
}

func (c *Cache) shrink() {
	for c.bytes > c.most {
		c.drop(c.used.Back())
	}
}

func (c *Cache) drop(e *list.Element) {
	h := c.used.Remove(e).(*held)
	c.bytes -= h.size()
	mine := c.by[h.key.workspace]
	if delete(mine, h.key.sum); len(mine) == 0 {
		delete(c.by, h.key.workspace)
	}
}
