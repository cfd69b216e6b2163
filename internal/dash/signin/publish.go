package signin

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	"sovereign/internal/base/clock"
	"sovereign/internal/base/tenant"
	"sovereign/internal/live"
	"sovereign/internal/store/db"
	"sovereign/internal/store/feed"
)

// A Publisher publishes sessions to the edge.
type Publisher struct {
	db *db.DB
	to *live.Sessions
}

// NewPublisher publishes d's sessions into to.
func NewPublisher(d *db.DB, to *live.Sessions) *Publisher { return &Publisher{db: d, to: to} }

// Sources is what the feed needs to know.
func (p *Publisher) Sources() map[string]feed.Source {
	return map[string]feed.Source{changedSession: p}
}

type sessionRow struct {
	ID         tenant.SessionID
	UserID     tenant.UserID
	Digest     []byte
	LastSeenAt clock.Time
	ExpiresAt  clock.Time
	EndedAt    clock.Time
}

const sessionRowColumns = `SELECT id, user_id, digest, last_seen_at, expires_at, ended_at FROM sessions`

func (r *sessionRow) live() (live.SessionDigest, *live.Session) {
	return live.SessionDigest(r.Digest), live.NewSession(r.ID, r.UserID, r.LastSeenAt, r.ExpiresAt, idle)
}

// Fill publishes every session in force.
func (p *Publisher) Fill(ctx context.Context) error {
	rows, err := db.Query[sessionRow](ctx, p.db.Across(people), sessionRowColumns+`
		WHERE ended_at = 0 AND expires_at > $1 AND last_seen_at > $2`, clock.Now(), clock.Now().Add(-idle))
	if err != nil {
		return fmt.Errorf("read sessions: %w", err)
	}
	all := make(map[live.SessionDigest]*live.Session, len(rows))
	for i := range rows {
		digest, session := rows[i].live()
		all[digest] = session
	}
	p.to.Replace(all)
	return nil
}

// Apply publishes a session as it is now.
func (p *Publisher) Apply(ctx context.Context, c db.Change) error {
	row, err := db.Maybe[sessionRow](ctx, p.db.Across(people), sessionRowColumns+` WHERE id = $1`, c.Subject)
	if err != nil || row == nil {
		return err
	}
	digest, session := row.live()
	if row.EndedAt != 0 {
		p.to.Drop(digest)
	} else {
		p.to.Put(digest, session)
	}
	return nil
}

// usesEvery is how often last-seen times are written. A kill loses at most that much.
const usesEvery = 30 * time.Second

// RecordUses writes when sessions were last used, until ctx ends, and once more then. It removes sessions that have
// ended from memory.
func (p *Publisher) RecordUses(ctx context.Context, log *slog.Logger) {
	tick := time.NewTicker(usesEvery)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
			if err := p.tend(ctx); err != nil && ctx.Err() == nil {
				log.Warn("cannot write when sessions were last used", "err", err)
			}
		case <-ctx.Done():
			if err := p.writeUses(context.WithoutCancel(ctx)); err != nil {
				log.Warn("cannot write when sessions were last used", "err", err)
			}
			return
		}
	}
}

// tend writes the uses, and removes from memory what has ended: a browser that never comes back ends nothing itself.
func (p *Publisher) tend(ctx context.Context) error {
	p.to.Sweep(clock.Now())
	return p.writeUses(ctx)
}

func (p *Publisher) writeUses(ctx context.Context) error {
	uses := p.to.Uses()
	if len(uses) == 0 {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, usesEvery/3)
	defer cancel()
	_, err := p.db.Tx(ctx, func(tx *db.Tx) error {
		for _, use := range uses {
			if _, err := db.Exec(ctx, tx.Across(people),
				`UPDATE sessions SET last_seen_at = $2 WHERE id = $1 AND last_seen_at < $2`, use.Session, use.At); err != nil {
				return err
			}
		}
		return nil
	})
	return err
}
