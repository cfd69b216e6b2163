// Package live is what the data plane knows: immutable values, published by the control plane, read without a lock
// and without a database.
package live

import (
	"hash/maphash"
	"maps"
	"sync"
	"sync/atomic"

	"sovereign/internal/apikey"
	"sovereign/internal/clock"
	"sovereign/internal/tenant"
)

// A Key is an API key in force. It never changes, but for the time it was last used.
type Key struct {
	ID        tenant.KeyID
	Workspace tenant.ID
	User      tenant.UserID

	used  atomic.Int64
	dirty atomic.Bool
}

// A Member is a user in a workspace.
type Member struct {
	Workspace tenant.ID
	User      tenant.UserID
}

// A Verdict is the outcome of authentication.
type Verdict int

// The outcomes.
const (
	Unknown  Verdict = iota // no such key, or revoked
	Departed                // the key's user has left the workspace
	Granted
)

// shards bounds what one change copies: with a million keys, a thousand entries.
const shards = 1024

// A Directory answers who a key belongs to and what its user may do now. Reading takes no lock; a change is visible
// to every read that starts after the changing method has returned.
type Directory struct {
	keys    table[apikey.Digest, *Key]
	members table[Member, tenant.Role]

	dirtyMu sync.Mutex
	dirty   []*Key
}

// NewDirectory is an empty directory: it grants nothing.
func NewDirectory() *Directory {
	d := &Directory{keys: newTable[apikey.Digest, *Key](), members: newTable[Member, tenant.Role]()}
	d.Replace(nil, nil)
	return d
}

// Authenticate names the caller behind a key's digest, and notes the use.
func (d *Directory) Authenticate(digest apikey.Digest, now clock.Time) (tenant.Caller, Verdict) {
	key, ok := d.keys.get(digest)
	if !ok {
		return tenant.Caller{}, Unknown
	}
	caller := tenant.Caller{Workspace: key.Workspace, User: key.User, Key: key.ID}
	role, ok := d.members.get(Member{key.Workspace, key.User})
	if !ok {
		return caller, Departed
	}
	caller.Role = role
	d.note(key, now)
	return caller, Granted
}

// note keeps the latest use to the second; more would make every request of a busy key write the same cache line.
func (d *Directory) note(key *Key, now clock.Time) {
	const second = 1_000_000
	last := key.used.Load()
	if int64(now)-last < second || !key.used.CompareAndSwap(last, int64(now)) {
		return
	}
	if key.dirty.CompareAndSwap(false, true) {
		d.dirtyMu.Lock()
		d.dirty = append(d.dirty, key)
		d.dirtyMu.Unlock()
	}
}

// A Use is a key and when it was last used.
type Use struct {
	Key       tenant.KeyID
	Workspace tenant.ID
	At        clock.Time

	of *Key
}

// Uses takes what was used since the last call, first what waits longest, and at most so many. It costs what was used, not what is
// stored.
func (d *Directory) Uses(most int) []Use {
	d.dirtyMu.Lock()
	n := min(most, len(d.dirty))
	taken := d.dirty[:n:n]
	if d.dirty = d.dirty[n:]; len(d.dirty) == 0 {
		d.dirty = nil
	}
	d.dirtyMu.Unlock()
	uses := make([]Use, 0, len(taken))
	for _, key := range taken {
		key.dirty.Store(false)
		uses = append(uses, Use{Key: key.ID, Workspace: key.Workspace, At: clock.Time(key.used.Load()), of: key})
	}
	return uses
}

// Again takes back uses that could not be written, for the next call of Uses.
func (d *Directory) Again(uses []Use) {
	d.dirtyMu.Lock()
	defer d.dirtyMu.Unlock()
	for _, use := range uses {
		if use.of.dirty.CompareAndSwap(false, true) {
			d.dirty = append(d.dirty, use.of)
		}
	}
}

// PutKey puts a key in force. A key that is already in force stays as it is: keys do not change.
func (d *Directory) PutKey(digest apikey.Digest, key *Key) {
	if _, ok := d.keys.get(digest); !ok {
		d.keys.put(digest, key)
	}
}

// DropKey ends a key.
func (d *Directory) DropKey(digest apikey.Digest) { d.keys.drop(digest) }

// PutMember sets a member's role.
func (d *Directory) PutMember(m Member, role tenant.Role) { d.members.put(m, role) }

// DropMember ends a membership; the member's keys stay known and are refused as departed.
func (d *Directory) DropMember(m Member) { d.members.drop(m) }

// Replace puts exactly these keys and members in force: the first filling, and the refilling after this server may
// have missed changes. Replace(nil, nil) grants nothing to anybody.
func (d *Directory) Replace(keys map[apikey.Digest]*Key, members map[Member]tenant.Role) {
	d.keys.replace(keys)
	d.members.replace(members)
}

// Keys is how many keys are in force.
func (d *Directory) Keys() int { return d.keys.len() }

// A table is a map in shards, each replaced whole on a change.
type table[K comparable, V any] struct {
	seed   maphash.Seed
	shards *[shards]shard[K, V]
}

type shard[K comparable, V any] struct {
	mu   sync.Mutex // held by writers
	live atomic.Pointer[map[K]V]
}

func newTable[K comparable, V any]() table[K, V] {
	return table[K, V]{seed: maphash.MakeSeed(), shards: new([shards]shard[K, V])}
}

func (t *table[K, V]) slot(k K) uint64 { return maphash.Comparable(t.seed, k) % shards }

func (t *table[K, V]) get(k K) (V, bool) {
	v, ok := (*t.shards[t.slot(k)].live.Load())[k]
	return v, ok
}

func (t *table[K, V]) put(k K, v V) {
	t.shards[t.slot(k)].change(func(m map[K]V) { m[k] = v })
}

func (t *table[K, V]) drop(k K) {
	t.shards[t.slot(k)].change(func(m map[K]V) { delete(m, k) })
}

func (t *table[K, V]) replace(all map[K]V) {
	var parts [shards]map[K]V
	for i := range parts {
		parts[i] = map[K]V{}
	}
	for k, v := range all {
		parts[t.slot(k)][k] = v
	}
	for i := range parts {
		s := &t.shards[i]
		s.mu.Lock()
		s.live.Store(&parts[i])
		s.mu.Unlock()
	}
}

func (t *table[K, V]) len() int {
	n := 0
	for i := range t.shards {
		n += len(*t.shards[i].live.Load())
	}
	return n
}

func (s *shard[K, V]) change(edit func(map[K]V)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	next := maps.Clone(*s.live.Load())
	edit(next)
	s.live.Store(&next)
}
