package workspace

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/go-json-experiment/json"

	"sovereign/internal/base/clock"
	"sovereign/internal/base/tenant"
	"sovereign/internal/plane/meter"
	"sovereign/internal/store/audit"
	"sovereign/internal/store/db"
)

// A Counter has the meter count what keys and workspaces with budgets spend. A nil Counter counts nothing.
type Counter struct {
	Meter *meter.Meter
	// Spent returns what each key of a workspace spent in the UTC day and month of a time, before that time. It
	// includes everything that was settled when it is called.
	Spent func(ctx context.Context, ws tenant.ID, before clock.Time) (map[tenant.KeyID]meter.Spent, error)

	Exchange *Exchange // tells of what the other servers spend; nil where there is one server

	mu sync.Mutex // one at a time: when ensure returns, what was spent is counted
}

// subjectID returns the id by which the meter knows a subject of a workspace: a key, or the workspace itself.
func subjectID(ws tenant.ID, subject tenant.KeyID) string {
	if subject == "" {
		return string(ws)
	}
	return string(subject)
}

// ensure has the meter know what a subject has spent, unless it does already.
func (c *Counter) ensure(ctx context.Context, ws tenant.ID, subject tenant.KeyID) error {
	if c == nil {
		return nil
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.Meter.Counts(subjectID(ws, subject)) {
		return nil
	}
	return c.count(ctx, ws, subject)
}

// beginNew has the meter count what a new key spends, if it has a budget. It has spent nothing yet, so that the
// publisher need not sum up any usage.
func (c *Counter) beginNew(ws tenant.ID, key tenant.KeyID, l *Limits) {
	if c != nil && (l.BudgetDay > 0 || l.BudgetMonth > 0) {
		c.Meter.Begin(subjectID(ws, key), time.Now())
	}
}

// forget ends the counting of a key that was not made.
func (c *Counter) forget(ws tenant.ID, key tenant.KeyID) {
	if c != nil {
		c.Meter.Forget(subjectID(ws, key))
	}
}

// recount counts anew what subjects of one workspace have spent, from the rows of usage.
func (c *Counter) recount(ctx context.Context, ws tenant.ID, subjects ...tenant.KeyID) error {
	if c == nil {
		return nil
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.count(ctx, ws, subjects...)
}

// count is recount for a caller that holds the mutex.
func (c *Counter) count(ctx context.Context, ws tenant.ID, subjects ...tenant.KeyID) error {
	now := time.Now()
	since := clock.Of(now)
	for _, subject := range subjects {
		c.Meter.Begin(subjectID(ws, subject), now)
	}
	before, err := c.spent(ctx, ws, now)
	if err != nil {
		for _, subject := range subjects {
			c.Meter.Forget(subjectID(ws, subject))
		}
		return fmt.Errorf("count what %s has spent: %w", ws, err)
	}
	var all meter.Spent
	for _, spent := range before {
		all.Day, all.Month = all.Day+spent.Day, all.Month+spent.Month
	}
	for _, subject := range subjects {
		spent := before[subject]
		if subject == "" {
			spent = all
		}
		c.Meter.Add(subjectID(ws, subject), since, spent)
	}
	return nil
}

// spent returns what each key of a workspace has spent by now; where there are others, at this server.
func (c *Counter) spent(ctx context.Context, ws tenant.ID, now time.Time) (map[tenant.KeyID]meter.Spent, error) {
	before, err := c.Spent(ctx, ws, clock.Of(now)) // it also posts what was settled
	if err != nil || c.Exchange == nil {
		return before, err
	}
	return c.Exchange.load(ctx, ws, now)
}

// limitColumns are the columns of a subject's limits, or of none where the row is missing.
const limitColumns = `
	COALESCE(l.requests_per_minute, 0) AS requests_per_minute, COALESCE(l.tokens_per_minute, 0) AS tokens_per_minute,
	COALESCE(l.concurrency, 0) AS concurrency, COALESCE(l.budget_day, 0) AS budget_day,
	COALESCE(l.budget_month, 0) AS budget_month, COALESCE(l.models, '[]') AS models, COALESCE(l.scope, 'full') AS scope,
	l.expires_at, COALESCE(l.allowed_addresses, '[]') AS allowed_addresses`

// TotalLimits are the limits of all keys of a workspace together.
type TotalLimits struct {
	Object string `json:"object" enum:"workspace_limits"`
	Limits
}

// Limits reads the limits of a workspace.
func (s *Store) Limits(ctx context.Context, ws tenant.ID) (TotalLimits, error) {
	l, err := limitsOf(ctx, s.db.In(ws), "")
	return TotalLimits{"workspace_limits", l}, err
}

// limitsOf reads the limits of a subject.
func limitsOf(ctx context.Context, in db.Scoped, subject tenant.KeyID) (Limits, error) {
	found, err := db.Maybe[Limits](ctx, in, `SELECT `+limitColumns+`
		FROM traffic_limits l WHERE l.workspace_id = $1 AND l.subject = $2`, subject)
	if err != nil {
		return noLimits, fmt.Errorf("read limits: %w", err)
	}
	if found == nil {
		return noLimits, nil
	}
	return *found, nil
}

// saveLimits writes the limits of a subject.
func saveLimits(ctx context.Context, in db.Scoped, subject tenant.KeyID, l *Limits) error {
	var err error
	if l.none() {
		_, err = db.Exec(ctx, in, `DELETE FROM traffic_limits WHERE workspace_id = $1 AND subject = $2`, subject)
	} else {
		_, err = db.Exec(ctx, in, `
			INSERT INTO traffic_limits (workspace_id, subject, requests_per_minute, tokens_per_minute, concurrency, budget_day,
				budget_month, models, scope, expires_at, allowed_addresses)
			VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11)
			ON CONFLICT (workspace_id, subject) DO UPDATE SET requests_per_minute = excluded.requests_per_minute,
				tokens_per_minute = excluded.tokens_per_minute, concurrency = excluded.concurrency,
				budget_day = excluded.budget_day, budget_month = excluded.budget_month, models = excluded.models,
				scope = excluded.scope, expires_at = excluded.expires_at, allowed_addresses = excluded.allowed_addresses`,
			subject, l.RequestsPerMinute, l.TokensPerMinute, l.Concurrency, l.BudgetDay, l.BudgetMonth, l.Models.text(),
			l.Scope, l.ExpiresAt, l.AllowedAddresses.text())
	}
	if err != nil {
		return fmt.Errorf("write limits: %w", err)
	}
	return nil
}

// UpdateKey changes the limits of a key. When it returns, they are in force.
func (s *Store) UpdateKey(
	ctx context.Context, ws tenant.ID, by tenant.Actor, key tenant.KeyID, change *LimitsChange,
) (after Key, err error) {
	if err := s.prepare(ctx, ws, key, change); err != nil {
		return Key{}, err
	}
	err = s.feed.Change(ctx, func(tx *db.Tx) error {
		before, err := s.key(ctx, tx.In(ws), key)
		if err != nil {
			return err
		}
		after = before
		if after.Limits, err = before.with(change); err != nil {
			return err
		}
		tx.Touch(changedKey, ws, string(key))
		if err := saveLimits(ctx, tx.In(ws), key, &after.Limits); err != nil {
			return err
		}
		return audit.Record(ctx, tx, ws, by, "key.update", string(key), before, after)
	})
	return after, err
}

// SetLimits changes the limits of a workspace. When it returns, they are in force.
func (s *Store) SetLimits(
	ctx context.Context, ws tenant.ID, by tenant.Actor, change *LimitsChange,
) (after TotalLimits, err error) {
	if err := s.prepare(ctx, ws, "", change); err != nil {
		return after, err
	}
	err = s.feed.Change(ctx, func(tx *db.Tx) error {
		before, err := limitsOf(ctx, tx.In(ws), "")
		if err != nil {
			return err
		}
		after = TotalLimits{Object: "workspace_limits"}
		if after.Limits, err = before.with(change); err != nil {
			return err
		}
		if by.Kind != tenant.ActorOperator {
			most, err := ceiling(ctx, tx.In(ws))
			if err != nil {
				return err
			}
			if err := after.within(&most); err != nil {
				return err
			}
		}
		tx.Touch(changedLimits, ws, "")
		if err := saveLimits(ctx, tx.In(ws), "", &after.Limits); err != nil {
			return err
		}
		return audit.Record(ctx, tx, ws, by, "workspace.limits", string(ws), before, after.Limits)
	})
	return after, err
}

// prepare counts what a subject has spent before it gets a budget. The publisher does so too, but has less time.
func (s *Store) prepare(ctx context.Context, ws tenant.ID, subject tenant.KeyID, change *LimitsChange) error {
	if change.BudgetDay == nil && change.BudgetMonth == nil {
		return nil
	}
	if subject != "" {
		if _, err := s.key(ctx, s.db.In(ws), subject); err != nil {
			return err
		}
	}
	return s.Counter.ensure(ctx, ws, subject)
}

// text returns n as the table keeps it.
func (n Names) text() string {
	text, _ := json.Marshal(append([]string{}, n...), json.Deterministic(true)) // strings that were read as JSON
	return string(text)
}

// Scan reads n as the table keeps it.
func (n *Names) Scan(kept any) error {
	text, ok := kept.(string)
	if !ok {
		return fmt.Errorf("names are kept as text, not %T", kept)
	}
	return json.Unmarshal([]byte(text), (*[]string)(n))
}
