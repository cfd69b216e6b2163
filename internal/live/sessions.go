package live

import (
	"crypto/sha256"
	"sync/atomic"

	"sovereign/internal/base/clock"
	"sovereign/internal/base/tenant"
)

// A SessionDigest is the SHA-256 digest of a session's secret.
type SessionDigest [sha256.Size]byte

// A Session is a person's session on the dashboard. It is immutable.
type Session struct {
	ID        tenant.SessionID
	User      tenant.UserID
	ExpiresAt clock.Time
}

// Sessions are the sessions in force. Reading takes no lock. A change is visible to every read that starts after the
// changing method has returned.
type Sessions struct {
	all   table[SessionDigest, *Session]
	epoch atomic.Uint64 // counts the changes after which a session may be gone
}

// NewSessions returns an empty table, which knows nobody.
func NewSessions() *Sessions { return &Sessions{all: newTable[SessionDigest, *Session]()} }

// Of returns the session of a digest, unless it has ended.
func (s *Sessions) Of(digest SessionDigest, now clock.Time) (*Session, bool) {
	found, ok := s.all.get(digest)
	if !ok || found.ExpiresAt <= now {
		return nil, false
	}
	return found, true
}

// Put adds a session.
func (s *Sessions) Put(digest SessionDigest, session *Session) { s.all.put(digest, session) }

// Drop removes a session.
func (s *Sessions) Drop(digest SessionDigest) {
	s.all.drop(digest)
	s.epoch.Add(1)
}

// Replace replaces all sessions. It is used at the start, and after this server may have missed changes.
func (s *Sessions) Replace(all map[SessionDigest]*Session) {
	s.all.replace(all)
	s.epoch.Add(1)
}

// Epoch changes whenever a session may be gone, so that a long answer knows when to look again.
func (s *Sessions) Epoch() uint64 { return s.epoch.Load() }
