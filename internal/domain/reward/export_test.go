package reward

import (
	"context"
	"errors"
	"math/rand/v2"
	"time"

	"sovereign/internal/base/clock"
	"sovereign/internal/base/tenant"
)

// Next lists the states that follow each state.
var Next = next

// ErrEnded is the cause of a scoring call that ended with its session.
var ErrEnded = errEnded

// SetNow sets the clock.
func (s *Store) SetNow(now func() clock.Time) { s.now = now }

// Ready refuses a session that cannot score now.
func (s *Store) Ready(ctx context.Context, ws tenant.ID, id string) error {
	_, err := s.ready(ctx, ws, id)
	return err
}

// Move moves a session to another state.
func (s *Store) Move(ctx context.Context, ws tenant.ID, id string, to Status, reason string) (bool, error) {
	_, moved, err := s.move(ctx, ws, tenant.Operator, id, to, reason)
	return moved, err
}

// Hold holds a session.
func (s *Store) Hold(ctx context.Context, ws tenant.ID, id, reason string) error {
	return s.hold(ctx, ws, id, reason)
}

// Enter registers a scoring call.
func (s *Store) Enter(ctx context.Context, ws tenant.ID, id string) (context.Context, func()) {
	return s.running.enter(ctx, ws, id)
}

// Scoring counts the sessions that have scoring calls.
func (s *Store) Scoring() int { return len(s.running.sessions()) }

// ByToken returns the session of a token.
func (s *Store) ByToken(ctx context.Context, text string) (tenant.ID, string, error) {
	return s.byToken(ctx, text)
}

// ExpireDue ends the sessions whose time is over.
func (s *Store) ExpireDue(ctx context.Context) error { return s.expireDue(ctx) }

// Sweep purges the sessions whose retention is over.
func (s *Store) Sweep(ctx context.Context) error { return s.sweep(ctx) }

// SetScoreTime sets how long a call of score may take.
func (s *Store) SetScoreTime(d time.Duration) { s.scorer.time = d }

// Desks counts the sessions with calls that have not ended.
func (s *Store) Desks() int {
	s.scorer.mu.Lock()
	defer s.scorer.mu.Unlock()
	return len(s.scorer.open)
}

// Waiting counts the items that wait for questions of a session.
func (s *Store) Waiting(ws tenant.ID, id string) (n int) {
	s.scorer.mu.Lock()
	defer s.scorer.mu.Unlock()
	d := s.scorer.open[ref{ws, id}]
	if d == nil {
		return 0
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, q := range d.open {
		n += len(q.waits)
	}
	return n
}

// Keep stores an item with a reward.
func (s *Store) Keep(ws tenant.ID, id, step string, sent ScoreItem, reward float64) error {
	made, err := sent.check("", false)
	if err != nil {
		return err
	}
	c := &scoreCall{store: s, ws: ws, session: &session{ID: id}, step: step}
	return s.scorer.keeper.Do([]*keptItem{{c, &made, outcome{Reward: &reward}}})
}

// CheckPending judges the checks that are pending, one after the other, as the loop does.
func (s *Store) CheckPending(ctx context.Context) error {
	all, err := s.pendingChecks(ctx)
	for i := range all {
		err = errors.Join(err, s.check(ctx, &all[i]))
	}
	return err
}

// SetOutages sets the pauses after which an anchor that cannot be reached is asked again.
func (s *Store) SetOutages(pauses ...time.Duration) { s.anchors.outages = pauses }

// A Candidate is an item that a check may draw.
type Candidate = candidate

// Draw draws a sample: the positions of what is compared, and how many have no reward.
func Draw(all []Candidate, size int, random *rand.Rand) (compared []int64, masked int64) {
	s := draw(all, size, random)
	return s.compared, s.masked
}

// StopScoring ends what is scored in this process, as a server that stops does.
func (s *Store) StopScoring() { s.scorer.stop() }

// ScorePanicking scores items that make the server panic.
func (s *Store) ScorePanicking(ctx context.Context, ws tenant.ID, id string, release func()) (Scores, error) {
	return s.score(ctx, ws, id, "1", func(*session) ([]item, error) { panic("a bug") }, release)
}

// Busy counts the slots that are busy, and the workspaces that wait for slots or have some.
func (s *Store) Busy() (slots, workspaces int) {
	all := s.scorer.slots
	all.mu.Lock()
	defer all.mu.Unlock()
	return all.busy, len(all.root.byName)
}

// SetCandidates sets about how many items a check draws from, at most.
func (s *Store) SetCandidates(n int64) { s.anchors.candidates = n }
