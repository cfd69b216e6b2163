package live

import (
	"crypto/sha256"
	"sync"
	"sync/atomic"
	"time"

	"sovereign/internal/base/clock"
	"sovereign/internal/base/tenant"
)

// A SessionDigest is the SHA-256 digest of a session's secret.
type SessionDigest [sha256.Size]byte

// A Session is a person's session on the dashboard. Its fields are immutable; the time of its last use is not.
type Session struct {
	ID        tenant.SessionID
	User      tenant.UserID
	ExpiresAt clock.Time    // however much it is used
	Idle      time.Duration // it ends when it is not used for this long; 0 for no such end

	seen  atomic.Int64
	dirty atomic.Bool
}

// SeenAt is the time of the last use, to the minute.
func (s *Session) SeenAt() clock.Time { return clock.Time(s.seen.Load()) }

// Ends is the time at which the session ends if it is not used again.
func (s *Session) Ends() clock.Time {
	if s.Idle == 0 {
		return s.ExpiresAt
	}
	return min(s.ExpiresAt, s.SeenAt().Add(s.Idle))
}

// Sessions are the sessions in force. Finding one takes no lock. A change is visible to every read that starts after
// the changing method has returned.
type Sessions struct {
	all   table[SessionDigest, *Session]
	epoch atomic.Uint64 // counts the changes after which a session may be gone

	dirtyMu sync.Mutex
	dirty   []*Session
}

// NewSessions returns an empty table, which knows nobody.
func NewSessions() *Sessions {
	s := &Sessions{all: newTable[SessionDigest, *Session]()}
	s.Replace(nil)
	return s
}

// Of returns the session of a digest, unless it has ended, and records the use.
func (s *Sessions) Of(digest SessionDigest, now clock.Time) (*Session, bool) {
	found, ok := s.all.get(digest)
	if !ok || found.Ends() <= now {
		return nil, false
	}
	s.note(found, now)
	return found, true
}

// InForce reports whether a session has not ended. It is no use of the session.
func (s *Sessions) InForce(digest SessionDigest, now clock.Time) bool {
	found, ok := s.all.get(digest)
	return ok && found.Ends() > now
}

// note records the time of the latest use, at most once a minute for each session.
func (s *Sessions) note(session *Session, now clock.Time) {
	last := session.SeenAt()
	if now.Sub(last) < time.Minute || !session.seen.CompareAndSwap(int64(last), int64(now)) {
		return
	}
	if session.dirty.CompareAndSwap(false, true) {
		s.dirtyMu.Lock()
		s.dirty = append(s.dirty, session)
		s.dirtyMu.Unlock()
	}
}

// A SessionUse is the time at which a session was last used.
type SessionUse struct {
	Session tenant.SessionID
	At      clock.Time
}

// Uses removes and returns the uses since the last call.
func (s *Sessions) Uses() []SessionUse {
	s.dirtyMu.Lock()
	taken := s.dirty
	s.dirty = nil
	s.dirtyMu.Unlock()
	uses := make([]SessionUse, 0, len(taken))
	for _, session := range taken {
		session.dirty.Store(false)
		uses = append(uses, SessionUse{session.ID, session.SeenAt()})
	}
	return uses
}

// Put adds a session. A later use that is known here stays known.
func (s *Sessions) Put(digest SessionDigest, session *Session) {
	if known, ok := s.all.get(digest); ok {
		session.seen.Store(max(session.seen.Load(), known.seen.Load()))
	}
	s.all.put(digest, session)
}

// Drop removes a session.
func (s *Sessions) Drop(digest SessionDigest) {
	s.all.drop(digest)
	s.epoch.Add(1)
}

// Sweep removes the sessions that have ended by themselves, and returns how many. Nothing finds them any more: a long
// answer of theirs notices the end by the clock. They stay for another minute, so that a use that was found just before
// the end still counts.
func (s *Sessions) Sweep(now clock.Time) int {
	return s.all.sweep(func(session *Session) bool { return session.Ends() <= now.Add(-time.Minute) })
}

// Replace replaces all sessions. It is used at the start, and after this server may have missed
// changes.
func (s *Sessions) Replace(all map[SessionDigest]*Session) {
	for digest, session := range all {
		if known, ok := s.get(digest); ok {
			session.seen.Store(max(session.seen.Load(), known.seen.Load()))
		}
	}
	s.all.replace(all)
	s.epoch.Add(1)
}

// get is all.get, which a table without its first Replace does not have.
func (s *Sessions) get(digest SessionDigest) (*Session, bool) {
	if s.epoch.Load() == 0 {
		return nil, false
	}
	return s.all.get(digest)
}

// NewSession returns a session that was last used at seen.
func NewSession(session tenant.SessionID, user tenant.UserID, seen, expires clock.Time, idle time.Duration) *Session {
	s := &Session{ID: session, User: user, ExpiresAt: expires, Idle: idle}
	s.seen.Store(int64(seen))
	return s
}

// Len returns the number of sessions.
func (s *Sessions) Len() int { return s.all.len() }

// Epoch changes whenever a session may be gone, so that a long answer knows when to look again.
func (s *Sessions) Epoch() uint64 { return s.epoch.Load() }
