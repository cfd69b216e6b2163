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

// The kinds of change that are published.
const (
	changedKey    = "key"
	changedMember = "member"
	changedLimits = "limits"
)

// A Publisher publishes keys and members to the data plane's directory.
type Publisher struct {
	db  *db.DB
	dir *live.Directory

	Limits  *live.AllLimits // nil publishes no limits
	Counter *Counter        // has the money of budgets counted
	Denied  func()          // called when keys may be refused that were accepted before; nil does nothing
}

// NewPublisher publishes d's identity into dir.
func NewPublisher(d *db.DB, dir *live.Directory) *Publisher { return &Publisher{db: d, dir: dir} }

// Sources is what the feed needs to know.
func (p *Publisher) Sources() map[string]feed.Source {
	return map[string]feed.Source{changedKey: p, changedMember: p, changedLimits: p}
}

type keyRow struct {
	Digest  []byte
	ID      tenant.KeyID
	Ws      tenant.ID
	UserID  tenant.UserID
	Revoked bool
	Limits
}

func (k *keyRow) key() (apikey.Digest, live.Key) {
	return apikey.Digest(k.Digest), live.Key{ID: k.ID, Workspace: k.Ws, User: k.UserID}
}

// Fill publishes every key in force and every member.
func (p *Publisher) Fill(ctx context.Context) error {
	keys := map[apikey.Digest]live.Key{}
	members := map[live.Member]tenant.Role{}
	workspaces, users := map[tenant.ID]tenant.ID{}, map[tenant.UserID]tenant.UserID{} // many keys name the same ones
	err := p.db.Snapshot(ctx, "authentication knows all workspaces", func(all db.Scoped) error {
		for row, err := range db.Rows[keyRow](ctx, all,
			`SELECT digest, id, workspace_id AS ws, user_id FROM api_keys WHERE revoked_at IS NULL`) {
			if err != nil {
				return fmt.Errorf("read keys: %w", err)
			}
			row.Ws, row.UserID = intern(workspaces, row.Ws), intern(users, row.UserID)
			digest, key := row.key()
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
			members[live.Member{Workspace: intern(workspaces, row.Ws), User: intern(users, row.UserID)}] = row.Role
		}
		return nil
	})
	if err != nil {
		return err
	}
	if err := p.fillLimits(ctx); err != nil { // before the keys: no key is accepted without its limits
		return err
	}
	p.dir.Replace(keys, members)
	p.denied()
	return nil
}

// fillLimits publishes all limits, and has the money of budgets counted.
func (p *Publisher) fillLimits(ctx context.Context) error {
	type row struct {
		Ws      tenant.ID
		Subject tenant.KeyID
		Limits
	}
	rows, err := db.Query[row](ctx, p.db.Across("the data plane serves all workspaces"),
		`SELECT l.workspace_id AS ws, l.subject,`+limitColumns+` FROM traffic_limits l`)
	if err != nil {
		return fmt.Errorf("read limits: %w", err)
	}
	all, budgets := map[string]*live.Limits{}, map[tenant.ID][]tenant.KeyID{}
	for i := range rows {
		r := &rows[i]
		limits, err := r.live()
		if err != nil {
			return err
		}
		if limits == nil {
			continue
		}
		if all[subjectID(r.Ws, r.Subject)] = limits; limits.HasBudget() {
			budgets[r.Ws] = append(budgets[r.Ws], r.Subject)
		}
	}
	if p.Limits == nil {
		return nil
	}
	for ws, subjects := range budgets {
		if err := p.Counter.recount(ctx, ws, subjects...); err != nil {
			return err
		}
	}
	p.Limits.Replace(all)
	return nil
}

// denied has running requests end whose keys are refused from now on.
func (p *Publisher) denied() {
	if p.Denied != nil {
		p.Denied()
	}
}

// putLimits publishes the limits of a subject.
func (p *Publisher) putLimits(ctx context.Context, ws tenant.ID, subject tenant.KeyID, l *Limits) error {
	limits, err := l.live()
	if err != nil || p.Limits == nil {
		return err
	}
	if limits != nil && limits.HasBudget() {
		if err := p.Counter.ensure(ctx, ws, subject); err != nil {
			return err
		}
	}
	p.Limits.Put(subjectID(ws, subject), limits)
	if limits != nil && limits.ExpiresAt > 0 {
		p.denied()
	}
	return nil
}

// intern returns the first of equal texts, so that many keys share one.
func intern[T ~string](seen map[T]T, text T) T {
	if first, ok := seen[text]; ok {
		return first
	}
	seen[text] = text
	return text
}

// Apply publishes a key or a member as it is now.
func (p *Publisher) Apply(ctx context.Context, c db.Change) error {
	switch c.Kind {
	case changedMember:
		return p.applyMember(ctx, c)
	case changedLimits:
		limits, err := limitsOf(ctx, p.db.In(c.Workspace), "")
		if err != nil {
			return err
		}
		return p.putLimits(ctx, c.Workspace, "", &limits)
	default:
		return p.applyKey(ctx, c)
	}
}

func (p *Publisher) applyKey(ctx context.Context, c db.Change) error {
	row, err := db.Maybe[keyRow](ctx, p.db.In(c.Workspace), `
		SELECT k.digest, k.id, k.workspace_id AS ws, k.user_id, k.revoked_at IS NOT NULL AS revoked,`+limitColumns+`
		FROM api_keys k LEFT JOIN traffic_limits l ON l.workspace_id = k.workspace_id AND l.subject = k.id
		WHERE k.workspace_id = $1 AND k.id = $2`, c.Subject)
	if err != nil || row == nil {
		return err
	}
	digest, key := row.key()
	if row.Revoked {
		p.dir.DropKey(digest)
		p.denied()
		return p.putLimits(ctx, row.Ws, row.ID, &noLimits)
	}
	if err := p.putLimits(ctx, row.Ws, row.ID, &row.Limits); err != nil { // before the key
		return err
	}
	p.dir.PutKey(digest, key)
	return nil
}

func (p *Publisher) applyMember(ctx context.Context, c db.Change) error {
	m := live.Member{Workspace: c.Workspace, User: tenant.UserID(c.Subject)}
	role, err := db.Maybe[tenant.Role](ctx, p.db.In(c.Workspace),
		`SELECT role FROM members WHERE workspace_id = $1 AND user_id = $2`, m.User)
	if err != nil {
		return err
	}
	if role == nil {
		p.dir.DropMember(m)
		p.denied()
	} else {
		p.dir.PutMember(m, *role)
	}
	return nil
}

// usesEvery is how often last-used times are written. A kill loses at most that much.
const usesEvery = 10 * time.Second

// RecordUses writes the times that keys were last used, in batches, until ctx ends, and once more then.
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

// usesBatch bounds one transaction, so that a change never waits long behind last-used times. usesAtOnce bounds what is
// written in one turn: when very many keys are in use, the others wait for the next turn, so that requests do not
// become slower with them.
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
