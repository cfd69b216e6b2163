// Package live holds the state that the data plane reads on every request: keys, members, models, prices, aliases and
// settings. The control plane publishes them. Values are immutable; reading takes no lock and does not use the
// database.
package live

import (
	"sync"
	"sync/atomic"

	"sovereign/internal/base/apikey"
	"sovereign/internal/base/clock"
	"sovereign/internal/base/tenant"
)

// A Key is an active API key. It is immutable.
type Key struct {
	ID        tenant.KeyID
	Workspace tenant.ID
	User      tenant.UserID
}

// A Member is a user in a workspace.
type Member struct {
	Workspace tenant.ID
	User      tenant.UserID
}

// A KeyStatus is the result of authentication.
type KeyStatus int

// The statuses.
const (
	Unknown  KeyStatus = iota // no such key, or revoked
	Departed                  // the key's user has left the workspace
	Granted
)

// A Directory maps API keys to their users and the users' current roles. Reading takes no lock. A change is visible to
// every read that starts after the changing method has returned.
type Directory struct {
	keys    table[apikey.Digest, uint32] // the numbers of key records
	records keyRecords
	members members
	epoch   atomic.Uint64 // counts the changes after which a key or a member may be gone

	dirtyMu sync.Mutex
	dirty   []*keyRecord
}

// NewDirectory returns an empty directory, which grants nothing.
func NewDirectory() *Directory {
	d := &Directory{keys: newTable[apikey.Digest, uint32](), members: members{numbers: map[Member]uint32{}}}
	d.records.pages.Store(&[]*[pageSize]keyRecord{})
	d.members.records.Store(&[]*memberRecord{})
	d.Replace(nil, nil)
	return d
}

// Authenticate returns the caller of a key's digest, and records the use.
func (d *Directory) Authenticate(digest apikey.Digest, now clock.Time) (tenant.Caller, KeyStatus) {
	number, ok := d.keys.get(digest)
	if !ok {
		return tenant.Caller{}, Unknown
	}
	record := d.records.at(number)
	member := d.members.at(record.member)
	caller := tenant.Caller{Workspace: member.Workspace, User: member.User, Key: record.id(), Role: member.role()}
	if caller.Role == "" {
		return caller, Departed
	}
	d.note(record, now)
	return caller, Granted
}

// A Grant remembers that a request's key was accepted. The zero Grant never ends.
type Grant struct {
	directory *Directory
	digest    apikey.Digest
	epoch     uint64
}

// Grant returns a grant for a key that Authenticate is about to accept.
func (d *Directory) Grant(digest apikey.Digest) Grant { return Grant{d, digest, d.epoch.Load()} }

// Ended reports whether the key would be refused now. It is cheap while no key and no member is removed.
func (g *Grant) Ended() bool {
	d := g.directory
	if d == nil || d.epoch.Load() == g.epoch {
		return false
	}
	number, ok := d.keys.get(g.digest)
	return !ok || d.members.at(d.records.at(number).member).role() == ""
}

// note records the time of the latest use, at most once a second for each key. Otherwise every request of a busy key
// would write the same cache line.
func (d *Directory) note(record *keyRecord, now clock.Time) {
	const second = 1_000_000
	last := record.used.Load()
	if int64(now)-last < second || !record.used.CompareAndSwap(last, int64(now)) {
		return
	}
	if record.dirty.CompareAndSwap(false, true) {
		d.dirtyMu.Lock()
		d.dirty = append(d.dirty, record)
		d.dirtyMu.Unlock()
	}
}

// A Use is the time at which a key was last used.
type Use struct {
	Key       tenant.KeyID
	Workspace tenant.ID
	At        clock.Time

	of *keyRecord
}

// Uses removes and returns at most most uses since the last call, oldest first. Its cost depends on the number of used
// keys, not on the number of all keys.
func (d *Directory) Uses(most int) []Use {
	d.dirtyMu.Lock()
	n := min(most, len(d.dirty))
	taken := d.dirty[:n:n]
	if d.dirty = d.dirty[n:]; len(d.dirty) == 0 {
		d.dirty = nil
	}
	d.dirtyMu.Unlock()
	uses := make([]Use, 0, len(taken))
	for _, record := range taken {
		record.dirty.Store(false)
		uses = append(uses, Use{
			Key: record.id(), Workspace: d.members.at(record.member).Workspace, At: clock.Time(record.used.Load()),
			of: record,
		})
	}
	return uses
}

// RequeueUses returns uses that could not be stored, for the next call of Uses.
func (d *Directory) RequeueUses(uses []Use) {
	d.dirtyMu.Lock()
	defer d.dirtyMu.Unlock()
	for _, use := range uses {
		if use.of.dirty.CompareAndSwap(false, true) {
			d.dirty = append(d.dirty, use.of)
		}
	}
}

// Role returns the present role of a user in a workspace; it is empty for a user who is no member of it. Unlike
// Authenticate it takes a lock, for a moment: it is for sessions, whose requests are few.
func (d *Directory) Role(m Member) tenant.Role { return d.members.role(m) }

// PutKey adds a key. It does nothing when the digest already has a key: keys do not change.
func (d *Directory) PutKey(digest apikey.Digest, key Key) {
	if _, ok := d.keys.get(digest); !ok {
		d.keys.put(digest, d.number(digest, key))
	}
}

// number returns the number of the digest's record. It adds a record when the digest has none or that of another key.
func (d *Directory) number(digest apikey.Digest, key Key) uint32 {
	member := d.members.number(Member{key.Workspace, key.User})
	if number, ok := d.keys.get(digest); ok {
		if record := d.records.at(number); record.member == member && record.id() == key.ID {
			return number
		}
	}
	return d.records.add(key.ID, member)
}

// DropKey removes a key.
func (d *Directory) DropKey(digest apikey.Digest) {
	d.keys.drop(digest)
	d.epoch.Add(1)
}

// PutMember sets a member's role.
func (d *Directory) PutMember(m Member, role tenant.Role) { d.members.put(m, role) }

// DropMember removes a member. The member's keys remain, with the status Departed.
func (d *Directory) DropMember(m Member) {
	d.members.put(m, "")
	d.epoch.Add(1)
}

// Replace replaces all keys and members. It is used at the start, and after this server may have missed changes.
// Replace(nil, nil) grants nothing.
func (d *Directory) Replace(keys map[apikey.Digest]Key, members map[Member]tenant.Role) {
	numbers := make(map[apikey.Digest]uint32, len(keys))
	for digest, key := range keys {
		numbers[digest] = d.number(digest, key)
	}
	d.keys.replace(numbers)
	d.members.replace(members)
	d.epoch.Add(1)
}

// Keys returns the number of keys.
func (d *Directory) Keys() int { return d.keys.len() }
