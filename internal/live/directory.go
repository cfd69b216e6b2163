// Package live is what the data plane knows: immutable values, published by the control plane, read without a lock
// and without a database.
package live

import (
	"sync"

	"sovereign/internal/base/apikey"
	"sovereign/internal/base/clock"
	"sovereign/internal/base/tenant"
)

// A Key is an API key in force. It never changes.
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

// A Verdict is the outcome of authentication.
type KeyStatus int

// The outcomes.
const (
	Unknown  KeyStatus = iota // no such key, or revoked
	Departed                  // the key's user has left the workspace
	Granted
)

// A Directory answers who a key belongs to and what its user may do now. Reading takes no lock; a change is visible
// to every read that starts after the changing method has returned.
type Directory struct {
	keys   table[apikey.Digest, uint32] // the numbers of cards
	cards  cards
	roster roster

	dirtyMu sync.Mutex
	dirty   []*card
}

// NewDirectory is an empty directory: it grants nothing.
func NewDirectory() *Directory {
	d := &Directory{keys: newTable[apikey.Digest, uint32](), roster: roster{numbers: map[Member]uint32{}}}
	d.cards.pages.Store(&[]*[pageSize]card{})
	d.roster.seats.Store(&[]*seat{})
	d.Replace(nil, nil)
	return d
}

// Authenticate names the caller behind a key's digest, and notes the use.
func (d *Directory) Authenticate(digest apikey.Digest, now clock.Time) (tenant.Caller, KeyStatus) {
	number, ok := d.keys.get(digest)
	if !ok {
		return tenant.Caller{}, Unknown
	}
	card := d.cards.at(number)
	seat := d.roster.seat(card.seat)
	caller := tenant.Caller{Workspace: seat.Workspace, User: seat.User, Key: card.id(), Role: seat.role()}
	if caller.Role == "" {
		return caller, Departed
	}
	d.note(card, now)
	return caller, Granted
}

// note keeps the latest use to the second; more would make every request of a busy key write the same cache line.
func (d *Directory) note(card *card, now clock.Time) {
	const second = 1_000_000
	last := card.used.Load()
	if int64(now)-last < second || !card.used.CompareAndSwap(last, int64(now)) {
		return
	}
	if card.dirty.CompareAndSwap(false, true) {
		d.dirtyMu.Lock()
		d.dirty = append(d.dirty, card)
		d.dirtyMu.Unlock()
	}
}

// A Use is a key and when it was last used.
type Use struct {
	Key       tenant.KeyID
	Workspace tenant.ID
	At        clock.Time

	of *card
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
	for _, card := range taken {
		card.dirty.Store(false)
		uses = append(uses, Use{Key: card.id(), Workspace: d.roster.seat(card.seat).Workspace, At: clock.Time(card.used.Load()), of: card})
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
func (d *Directory) PutKey(digest apikey.Digest, key Key) {
	if _, ok := d.keys.get(digest); !ok {
		d.keys.put(digest, d.number(digest, key))
	}
}

// number is that of the digest's card, or of a new one where it has none or another key's.
func (d *Directory) number(digest apikey.Digest, key Key) uint32 {
	seat := d.roster.number(Member{key.Workspace, key.User})
	if number, ok := d.keys.get(digest); ok {
		if card := d.cards.at(number); card.seat == seat && card.id() == key.ID {
			return number
		}
	}
	return d.cards.add(key.ID, seat)
}

// DropKey ends a key.
func (d *Directory) DropKey(digest apikey.Digest) { d.keys.drop(digest) }

// PutMember sets a member's role.
func (d *Directory) PutMember(m Member, role tenant.Role) { d.roster.put(m, role) }

// DropMember ends a membership; the member's keys stay known and are refused as departed.
func (d *Directory) DropMember(m Member) { d.roster.put(m, "") }

// Replace puts exactly these keys and members in force: the first filling, and the refilling after this server may
// have missed changes. Replace(nil, nil) grants nothing to anybody.
func (d *Directory) Replace(keys map[apikey.Digest]Key, members map[Member]tenant.Role) {
	numbers := make(map[apikey.Digest]uint32, len(keys))
	for digest, key := range keys {
		numbers[digest] = d.number(digest, key)
	}
	d.keys.replace(numbers)
	d.roster.replace(members)
}

// Keys is how many keys are in force.
func (d *Directory) Keys() int { return d.keys.len() }
