package workspace

import (
	"context"
	"fmt"
	"log/slog"
	"math"
	"slices"
	"time"

	"sovereign/internal/base/apikey"
	"sovereign/internal/base/tenant"
	"sovereign/internal/live"
	"sovereign/internal/store/db"
	"sovereign/internal/store/feed"
)

// The kinds of change that the data plane hears of.
const (
	changedKey    = "key"
	changedMember = "member"
)

// A Publisher keeps the data plane's directory like the tables.
type Publisher struct {
	db  *db.DB
	dir *live.Directory
}

// NewPublisher publishes d's identity into dir.
func NewPublisher(d *db.DB, dir *live.Directory) *Publisher { return &Publisher{db: d, dir: dir} }

// Sources is what the feed needs to know.
func (p *Publisher) Sources() map[string]feed.Source {
	return map[string]feed.Source{changedKey: p, changedMember: p}
}

type keyRow struct {
	Digest  []byte
	ID      tenant.KeyID
	Ws      tenant.ID
	UserID  tenant.UserID
	Revoked bool
}

func (k keyRow) live() (apikey.Digest, live.Key) {
	return apikey.Digest(k.Digest), live.Key{ID: k.ID, Workspace: k.Ws, User: k.UserID}
}

// Fill publishes every key in force and every member.
func (p *Publisher) Fill(ctx context.Context) error {
	keys := map[apikey.Digest]live.Key{}
	members := map[live.Member]tenant.Role{}
	workspaces, users := map[tenant.ID]tenant.ID{}, map[tenant.UserID]tenant.UserID{} // many keys name one: its text is kept once
	err := p.db.Snapshot(ctx, "authentication knows all workspaces", func(all db.Scoped) error {
		for row, err := range db.Rows[keyRow](ctx, all, `SELECT digest, id, workspace_id AS ws, user_id FROM api_keys WHERE revoked_at IS NULL`) {
			if err != nil {
				return fmt.Errorf("read keys: %w", err)
			}
			row.Ws, row.UserID = again(workspaces, row.Ws), again(users, row.UserID)
			digest, key := row.live()
			keys[digest] = key
		}
		type memberRow struct {
			Ws     tenant.ID
			UserID tenant.UserID
			Role   tenant.Role
		}
		for row, err := range db.Rows[memberRow](ctx, all, `SELECT workspace_id AS ws, user_id, role FROM members`) {
			if err != nil {
				return fmt.Errorf("read members: %w", err)
			}
			members[live.Member{Workspace: again(workspaces, row.Ws), User: again(users, row.UserID)}] = row.Role
		}
		return nil
	})
	if err != nil {
		return err
	}
	p.dir.Replace(keys, members)
	return nil
}

// again is a text as it was met first.
func again[T ~string](met map[T]T, text T) T {
	if first, ok := met[text]; ok {
		return first
	}
	met[text] = text
	return text
}

// Apply publishes a key or a member as it is now.
func (p *Publisher) Apply(ctx context.Context, c db.Change) error {
	if c.Kind == changedMember {
		return p.applyMember(ctx, c)
	}
	return p.applyKey(ctx, c)
}

func (p *Publisher) applyKey(ctx context.Context, c db.Change) error {
	row, err := db.Maybe[keyRow](ctx, p.db.In(c.Workspace), `
		SELECT digest, id, workspace_id AS ws, user_id, revoked_at IS NOT NULL AS revoked
		FROM api_keys WHERE workspace_id = $1 AND id = $2`, c.Subject)
	if err != nil || row == nil {
		return err
	}
	digest, key := row.live()
	if row.Revoked {
		p.dir.DropKey(digest)
	} else {
		p.dir.PutKey(digest, key)
	}
	return nil
}

func (p *Publisher) applyMember(ctx context.Context, c db.Change) error {
	m := live.Member{Workspace: c.Workspace, User: tenant.UserID(c.Subject)}
	role, err := db.Maybe[tenant.Role](ctx, p.db.In(c.Workspace), `SELECT role FROM members WHERE workspace_id = $1 AND user_id = $2`, m.User)
	if err != nil {
		return err
	}
	if role == nil {
		p.dir.DropMember(m)
	} else {
		p.dir.PutMember(m, *role)
	}
	return nil
}

// usesEvery is how often last-used times are written, and so what a kill may cost of them.
const usesEvery = 10 * time.Second

// KeepUses writes the times that keys were last used, in batches, until ctx ends, and once more then.
func (p *Publisher) RecordUses(ctx context.Context, log *slog.Logger) {
	tick := time.NewTicker(usesEvery)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
			if err := p.writeUses(ctx, usesAtOnce, usesEvery/2); err != nil && ctx.Err() == nil {
				log.Warn("cannot write when keys were last used", "err", err)
			}
		case <-ctx.Done():
			if err := p.writeUses(context.WithoutCancel(ctx), math.MaxInt, 2*time.Second); err != nil {
				log.Warn("cannot write when keys were last used", "err", err)
			}
			return
		}
	}
}

// usesBatch bounds one transaction, so that a change never waits long behind last-used times. usesAtOnce bounds what is written in one
// turn: where very many keys are in use, the rest waits for the next, and what a request costs does not grow with them.
const (
	usesBatch  = 500
	usesAtOnce = 2_000
)

func (p *Publisher) writeUses(ctx context.Context, most int, within time.Duration) error {
	ctx, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	uses := p.dir.Uses(most)
	for batch := range slices.Chunk(uses, usesBatch) {
		_, err := p.db.Tx(ctx, func(tx *db.Tx) error {
			for _, use := range batch {
				if _, err := db.Exec(ctx, tx.In(use.Workspace), `
					UPDATE api_keys SET last_used_at = $3
					WHERE workspace_id = $1 AND id = $2 AND (last_used_at IS NULL OR last_used_at < $3)`, use.Key, use.At); err != nil {
					return err
				}
			}
			return nil
		})
		if err != nil {
			p.dir.RequeueUses(uses) // writing one again is harmless
			return err
		}
	}
	return nil
}
