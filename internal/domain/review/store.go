package review

import (
	"context"
	"fmt"
	"strings"

	"github.com/go-json-experiment/json"

	"sovereign/internal/base/clock"
	"sovereign/internal/base/fault"
	"sovereign/internal/base/id"
	"sovereign/internal/base/tenant"
	"sovereign/internal/domain/criterion"
	"sovereign/internal/store/audit"
	"sovereign/internal/store/db"
	"sovereign/internal/store/job"
	"sovereign/internal/store/quota"
	"sovereign/internal/text/redact"
)

// A Config says what a Store needs.
type Config struct {
	DB       *db.DB
	Labels   Labels
	Contents Contents
	Logs     Logs
	Scans    Scans
	Reports  Reports
	People   People
	Links    Links // nil where nobody can sign in by a link
	// Left is called in the transaction that takes a grant away; nil for nothing.
	Left func(ctx context.Context, tx *db.Tx, by tenant.Actor, user tenant.UserID) error
	Now  func() clock.Time // nil for the time now
}

// People knows persons, who may belong to several workspaces or to none.
type People interface {
	// Person returns the user with that address, and creates one that is not there, in the transaction that ctx is
	// bound to.
	Person(ctx context.Context, email string) (tenant.UserID, error)
}

// Links makes links by which a person signs in.
type Links interface {
	// Invite returns a link that signs a person in once. Where the person is proven otherwise it is the address of the
	// dashboard.
	Invite(ctx context.Context, tx *db.Tx, ws tenant.ID, by tenant.Actor, user tenant.UserID,
	) (url string, proven bool, err error)
}

// A Store keeps queues. Every change but the claims, which are leases, is audited in its own transaction.
type Store struct{ Config }

// NewStore returns a store.
func NewStore(c Config) *Store {
	if c.Now == nil {
		c.Now = clock.Now
	}
	return &Store{c}
}

const object = "review queue"

// A queueRecord is a queue as the table has it.
type queueRecord struct {
	ID, Name, CriterionID, Instructions string
	GradersPerItem                      int64
	Blind                               bool
	LeaseMinutes                        int64
	Source                              string // JSON
	CreatedBy                           tenant.UserID
	CreatedAt, ClosedAt                 clock.Time
}

const queueColumns = `id, name, criterion_id, instructions, graders_per_item, blind, lease_minutes, source, created_by,
	created_at, closed_at FROM review_queues`

// checkOpen refuses to grade in a closed queue.
func (q *queueRecord) checkOpen() error {
	if q.ClosedAt > 0 {
		return fault.Conflict("the queue is closed")
	}
	return nil
}

// queue returns q without its counts.
func (q *queueRecord) queue(a access) (Queue, error) {
	v := Queue{
		ID: q.ID, Object: "review_queue", Name: q.Name, CriterionID: optional(q.CriterionID),
		Instructions: q.Instructions, GradersPerItem: q.GradersPerItem, Blind: q.Blind, LeaseMinutes: q.LeaseMinutes,
		CreatedBy: q.CreatedBy, CreatedAt: q.CreatedAt, MayGrade: a.grades, MayManage: a.manages,
	}
	if q.ClosedAt > 0 {
		v.ClosedAt = &q.ClosedAt
	}
	if a.member {
		v.Source = new(QueueSource)
		if err := json.Unmarshal([]byte(q.Source), v.Source); err != nil {
			return v, fmt.Errorf("read the source of %s: %w", q.ID, err)
		}
	}
	return v, nil
}

func find(ctx context.Context, in db.Scoped, queueID string) (*queueRecord, error) {
	q, err := db.Maybe[queueRecord](ctx, in, `SELECT `+queueColumns+` WHERE workspace_id = $1 AND id = $2`, queueID)
	switch {
	case err != nil:
		return nil, fmt.Errorf("find queue: %w", err)
	case q == nil:
		return nil, fault.NotFound(object, queueID)
	}
	return q, nil
}

// Create makes a queue, and queues the job that fills it.
func (s *Store) Create(ctx context.Context, caller tenant.Caller, in NewQueue) (made Queue, err error) {
	if in, err = in.clean(); err != nil {
		return made, err
	}
	ws := caller.Workspace
	_, err = s.DB.Tx(ctx, func(tx *db.Tx) error {
		scope := tx.In(ws)
		if in.CriterionID != "" {
			if _, err := criterion.Find(ctx, scope, in.CriterionID); err != nil {
				return err
			}
		}
		source, err := json.Marshal(in.Source)
		if err != nil {
			return fmt.Errorf("write a source: %w", err)
		}
		queueID := id.New("rq")
		if _, err := db.Exec(ctx, scope, `
			INSERT INTO review_queues (workspace_id, id, name, criterion_id, instructions, graders_per_item, blind,
				lease_minutes, source, created_by, created_at, closed_at)
			VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, 0)`,
			queueID, in.Name, in.CriterionID, in.Instructions, in.GradersPerItem, *in.Blind, in.LeaseMinutes,
			string(source), caller.User, s.Now()); err != nil {
			return fmt.Errorf("insert queue: %w", err)
		}
		if err := quota.Check(ctx, scope, quota.ReviewQueues, 1); err != nil {
			return err
		}
		if err := queueFill(ctx, tx, ws, queueID, string(source), in.Source.N); err != nil {
			return err
		}
		if made, err = s.read(ctx, scope, caller, queueID); err != nil {
			return err
		}
		return audit.Record(ctx, tx, ws, caller.Actor(), "review_queue.create", queueID, nil, in)
	})
	return made, err
}

// queueFill queues the job that adds the items of a source.
func queueFill(ctx context.Context, tx *db.Tx, ws tenant.ID, queueID, source string, n int) error {
	fillID := id.New("rf")
	if _, err := db.Exec(ctx, tx.In(ws), `
		INSERT INTO review_fills (workspace_id, id, queue_id, source, added, missing) VALUES ($1, $2, $3, $4, 0, 0)`,
		fillID, queueID, source); err != nil {
		return fmt.Errorf("insert what fills %s: %w", queueID, err)
	}
	return job.Queue(ctx, tx, ws, job.New{ID: fillID, Kind: kind, Total: int64(n)})
}

// maxFills bounds how often items are added to a queue.
const maxFills = 200

// checkFills refuses to add items while others are being added, and beyond maxFills.
func checkFills(ctx context.Context, in db.Scoped, queueID string) error {
	n, err := db.One[struct{ Running, Stored int64 }](ctx, in, `
		SELECT COUNT(CASE WHEN jobs.status IN ('QUEUED', 'RUNNING') THEN 1 END) AS running, COUNT(*) AS stored
		FROM review_fills f JOIN jobs ON jobs.workspace_id = f.workspace_id AND jobs.id = f.id
		WHERE f.workspace_id = $1 AND f.queue_id = $2`, queueID)
	switch {
	case err != nil:
		return fmt.Errorf("find what fills %s: %w", queueID, err)
	case n.Running > 0:
		return fault.Conflict("items are being added to the queue already")
	case n.Stored >= maxFills:
		return fault.Conflict("items were added to the queue %d times: make another queue", maxFills)
	}
	return nil
}

// AddItems queues a job that adds items to a queue. Those that are in it already are not added twice.
func (s *Store) AddItems(ctx context.Context, caller tenant.Caller, queueID string, from QueueSource,
) (q Queue, err error) {
	ws := caller.Workspace
	_, err = s.DB.Tx(ctx, func(tx *db.Tx) error {
		found, err := find(ctx, tx.In(ws), queueID)
		if err != nil {
			return err
		}
		if err := found.checkOpen(); err != nil {
			return err
		}
		clean, err := from.clean(found.CriterionID)
		if err != nil {
			return err
		}
		source, err := json.Marshal(clean)
		if err != nil {
			return fmt.Errorf("write a source: %w", err)
		}
		if err := checkFills(ctx, tx.In(ws), queueID); err != nil {
			return err
		}
		if err := queueFill(ctx, tx, ws, queueID, string(source), clean.N); err != nil {
			return err
		}
		if q, err = s.read(ctx, tx.In(ws), caller, queueID); err != nil {
			return err
		}
		return audit.Record(ctx, tx, ws, caller.Actor(), "review_queue.add", queueID, nil, clean)
	})
	return q, err
}

// Change changes a queue.
func (s *Store) Change(ctx context.Context, caller tenant.Caller, queueID string, in QueueChange,
) (after Queue, err error) {
	ws := caller.Workspace
	_, err = s.DB.Tx(ctx, func(tx *db.Tx) error {
		scope := tx.In(ws)
		q, err := find(ctx, scope, queueID)
		if err != nil {
			return err
		}
		before := *q
		if err := q.apply(&in, s.Now()); err != nil {
			return err
		}
		if _, err := db.Exec(ctx, scope, `
			UPDATE review_queues SET name = $3, instructions = $4, graders_per_item = $5, blind = $6, lease_minutes = $7,
				closed_at = $8
			WHERE workspace_id = $1 AND id = $2`,
			queueID, q.Name, q.Instructions, q.GradersPerItem, q.Blind, q.LeaseMinutes, q.ClosedAt); err != nil {
			return fmt.Errorf("change queue %s: %w", queueID, err)
		}
		if q.GradersPerItem != before.GradersPerItem {
			if err := settleAll(ctx, scope, q); err != nil {
				return err
			}
		}
		if after, err = s.read(ctx, scope, caller, queueID); err != nil {
			return err
		}
		return audit.Record(ctx, tx, ws, caller.Actor(), "review_queue.change", queueID, audited(&before), audited(q))
	})
	return after, err
}

// apply sets what a change has.
func (q *queueRecord) apply(in *QueueChange, now clock.Time) error {
	if in.Name != nil {
		if q.Name = redact.String(*in.Name); checkName(q.Name) != nil {
			return checkName(q.Name)
		}
	}
	if in.Instructions != nil {
		q.Instructions = redact.String(*in.Instructions)
	}
	if in.GradersPerItem != nil {
		q.GradersPerItem = int64(*in.GradersPerItem)
	}
	if in.Blind != nil {
		q.Blind = *in.Blind
	}
	if in.LeaseMinutes != nil {
		q.LeaseMinutes = int64(*in.LeaseMinutes)
	}
	switch {
	case in.Closed == nil:
	case !*in.Closed:
		q.ClosedAt = 0
	case q.ClosedAt == 0:
		q.ClosedAt = now
	}
	return nil
}

// audited is a queue as the audit trail has it.
func audited(q *queueRecord) any {
	return struct {
		Name           string     `json:"name"`
		Instructions   string     `json:"instructions"`
		GradersPerItem int64      `json:"graders_per_item"`
		Blind          bool       `json:"blind"`
		LeaseMinutes   int64      `json:"lease_minutes"`
		ClosedAt       clock.Time `json:"closed_at,omitzero"`
	}{q.Name, q.Instructions, q.GradersPerItem, q.Blind, q.LeaseMinutes, q.ClosedAt}
}

// settleAll states anew which items of a queue are done, after its number of graders has changed.
func settleAll(ctx context.Context, in db.Scoped, q *queueRecord) error {
	if _, err := db.Exec(ctx, in, `
		UPDATE review_items SET state = CASE WHEN (
			SELECT COUNT(*) FROM review_grades g WHERE g.workspace_id = $1 AND g.queue_id = $2
				AND g.item_id = review_items.id AND g.state = 'graded') >= $3 THEN 'done' ELSE 'open' END
		WHERE workspace_id = $1 AND queue_id = $2 AND state <> 'expired'`, q.ID, q.GradersPerItem); err != nil {
		return fmt.Errorf("settle the items of %s: %w", q.ID, err)
	}
	return nil
}

// tables are those that have rows of a queue, by queue_id.
var tables = []string{"review_assignments", "review_grades", "review_grants", "review_items"}

// Purge deletes a queue with its items, claims and grants. The labels that were made in it stay.
func (s *Store) Purge(ctx context.Context, caller tenant.Caller, queueID string) error {
	ws := caller.Workspace
	_, err := s.DB.Tx(ctx, func(tx *db.Tx) error {
		in := tx.In(ws)
		q, err := find(ctx, in, queueID)
		if err != nil {
			return err
		}
		people, err := db.Query[tenant.UserID](ctx, in,
			`SELECT user_id FROM review_grants WHERE workspace_id = $1 AND queue_id = $2 ORDER BY user_id`, queueID)
		if err != nil {
			return fmt.Errorf("find the reviewers of %s: %w", queueID, err)
		}
		fills, err := db.Query[string](ctx, in,
			`SELECT id FROM review_fills WHERE workspace_id = $1 AND queue_id = $2`, queueID)
		if err != nil {
			return fmt.Errorf("find what filled %s: %w", queueID, err)
		}
		for _, fill := range fills {
			if _, err := db.Exec(ctx, in, `DELETE FROM jobs WHERE workspace_id = $1 AND id = $2`, fill); err != nil {
				return fmt.Errorf("delete what filled %s: %w", queueID, err)
			}
		}
		for _, table := range append([]string{"review_fills"}, tables...) {
			if _, err := db.Exec(ctx, in,
				`DELETE FROM `+table+` WHERE workspace_id = $1 AND queue_id = $2`, queueID); err != nil {
				return fmt.Errorf("delete %s of %s: %w", strings.TrimPrefix(table, "review_"), queueID, err)
			}
		}
		if _, err := db.Exec(ctx, in,
			`DELETE FROM review_queues WHERE workspace_id = $1 AND id = $2`, queueID); err != nil {
			return fmt.Errorf("delete queue %s: %w", queueID, err)
		}
		for _, user := range people {
			if s.Left == nil {
				break
			}
			if err := s.Left(ctx, tx, caller.Actor(), user); err != nil {
				return err
			}
		}
		return audit.Record(ctx, tx, ws, caller.Actor(), "review_queue.delete", queueID, audited(q), nil)
	})
	return err
}

// closeOf closes the queues of a criterion that is deleted.
func (s *Store) closeOf(ctx context.Context, in db.Scoped, criterionID string) error {
	if _, err := db.Exec(ctx, in, `
		UPDATE review_queues SET closed_at = $3 WHERE workspace_id = $1 AND criterion_id = $2 AND closed_at = 0`,
		criterionID, s.Now()); err != nil {
		return fmt.Errorf("close the queues of %s: %w", criterionID, err)
	}
	return nil
}

// Dependent closes the queues of a criterion when it is deleted.
func (s *Store) Dependent() criterion.Dependent { return criterion.Dependent{Deleted: s.closeOf} }

// sweep marks items whose logs have expired, forgets what a judge said of those, and gives back claims whose lease
// ended long ago.
func (s *Store) sweep(ctx context.Context) error {
	now := s.Now()
	across := s.DB.Across("items of all workspaces expire")
	for _, one := range []struct {
		text string
		args []any
	}{
		{`UPDATE review_items SET state = 'expired', lost = $2
			WHERE expires_at > 0 AND expires_at <= $1 AND state = 'open'`, []any{now, lostLog}},
		{`UPDATE review_items SET critique = '' WHERE expires_at > 0 AND expires_at <= $1 AND critique <> ''`, []any{now}},
		{`DELETE FROM review_grades WHERE state = 'claimed' AND lease_until <= $1`, []any{now - day}},
	} {
		if _, err := db.Exec(ctx, across, one.text, one.args...); err != nil {
			return fmt.Errorf("sweep review queues: %w", err)
		}
	}
	return nil
}

const day = clock.Time(24 * 60 * 60 * 1_000_000)
