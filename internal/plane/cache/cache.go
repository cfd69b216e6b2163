// Package cache holds whole answers for a while, so that a repeated request costs nothing. It is in memory only,
// bounded in bytes, and separated by workspace: no workspace can get an answer that was given to another.
package cache

import (
	"container/list"
	"sync"
	"time"

	"sovereign/internal/base/tenant"
)

// An Entry is an answer and the model that gave it. Its body is shared and must not be changed.
type Entry struct {
	Model string
	Body  []byte
}

// overhead is about how many bytes an entry takes beside its texts.
const overhead = 256

func (e Entry) size() int64 { return int64(len(e.Model)+len(e.Body)) + overhead }

// maxShare bounds an entry to 1/maxShare of the cache, so that one answer cannot evict all others.
const maxShare = 10

// A Cache holds answers and evicts the least recently used first. It is safe for concurrent use.
type Cache struct {
	ttl time.Duration

	mu          sync.Mutex
	capacity    int64
	bytes       int64
	used        *list.List // of *stored, the latest used first
	byWorkspace map[tenant.ID]map[Hash]*list.Element
}

type stored struct {
	Entry
	key     Key
	expires time.Time
}

// New returns an empty cache of at most capacity bytes, whose entries expire after ttl.
func New(capacity int64, ttl time.Duration) *Cache {
	return &Cache{ttl: ttl, capacity: capacity, used: list.New(), byWorkspace: map[tenant.ID]map[Hash]*list.Element{}}
}

// Resize changes the capacity and evicts what is over it. A cache of 0 bytes holds nothing.
func (c *Cache) Resize(capacity int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.capacity = capacity
	c.shrink()
}

// Get returns the answer to a request, unless it has expired at now.
func (c *Cache) Get(key Key, now time.Time) (Entry, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	e, ok := c.byWorkspace[key.workspace][key.hash]
	if !ok {
		return Entry{}, false
	}
	h := e.Value.(*stored)
	// expired, or the clock was set back by more than concurrent calls may differ
	if left := h.expires.Sub(now); left <= 0 || left > 2*c.ttl {
		c.drop(e)
		return Entry{}, false
	}
	c.used.MoveToFront(e)
	return h.Entry, true
}

// Put stores an answer in place of an earlier one. An answer that is too big is not stored.
func (c *Cache) Put(key Key, entry Entry, now time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if e, ok := c.byWorkspace[key.workspace][key.hash]; ok {
		c.drop(e)
	}
	if key.workspace == "" || entry.size() > c.capacity/maxShare {
		return
	}
	mine := c.byWorkspace[key.workspace]
	if mine == nil {
		mine = map[Hash]*list.Element{}
		c.byWorkspace[key.workspace] = mine
	}
	mine[key.hash] = c.used.PushFront(&stored{entry, key, now.Add(c.ttl)})
	c.bytes += entry.size()
	c.shrink()
}

// Forget drops all answers of a workspace.
func (c *Cache) Forget(workspace tenant.ID) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, e := range c.byWorkspace[workspace] {
		c.drop(e)
	}
}

// Stats returns how many entries there are, and how many bytes they take.
func (c *Cache) Stats() (entries int, bytes int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.used.Len(), c.bytes
}

func (c *Cache) shrink() {
	for c.bytes > c.capacity {
		c.drop(c.used.Back())
	}
}

func (c *Cache) drop(e *list.Element) {
	h := c.used.Remove(e).(*stored)
	c.bytes -= h.size()
	mine := c.byWorkspace[h.key.workspace]
	if delete(mine, h.key.hash); len(mine) == 0 {
		delete(c.byWorkspace, h.key.workspace)
	}
}
