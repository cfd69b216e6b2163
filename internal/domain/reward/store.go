package reward

import (
	"context"
	"fmt"
	"log/slog"

	"github.com/go-json-experiment/json"

	"sovereign/internal/base/clock"
	"sovereign/internal/base/fault"
	"sovereign/internal/base/money"
	"sovereign/internal/base/tenant"
	"sovereign/internal/domain/judging"
	"sovereign/internal/domain/wallet"
	"sovereign/internal/live"
	"sovereign/internal/plane/edge"
	"sovereign/internal/store/audit"
	"sovereign/internal/store/db"
	"sovereign/internal/store/feed"
	"sovereign/internal/store/notice"
)

// Config is what a store needs.
type Config struct {
	DB     *db.DB
	Feed   *feed.Feed
	Holds  *wallet.Holds // the hold of a session has its id
	Judges *judging.Client
	Models Models
	Limits *live.AllLimits // of workspaces
	Bounds *edge.Bounds    // of the bodies that are scored
	Log    *slog.Logger
}

// A Store keeps reward sessions. Every change is audited in its own transaction.
type Store struct {
	Config
	running   running
	scorer    *scorer
	batches   batches
	anchors   *anchors
	retention retention
	now       func() clock.Time // clock.Now, except in tests
}

// NewStore returns a store.
func NewStore(c Config) *Store {
	return &Store{Config: c, scorer: newScorer(c.DB), anchors: newAnchors(), now: clock.Now}
}

// object is what a session is called on the wire and in the audit trail.
const object = "reward_session"

// A session is a session as the table has it.
type session struct {
	ID, Label              string
	Status                 Status
	Reason                 string
	Agentic                bool
	Mode                   Mode
	Judges                 judges
	Budget                 money.Nano
	TaskCount, TaskBytes   int64
	Scored                 int64
	AnchorCriterionID      string // empty without an anchor
	Anchor                 string // what is pinned of the anchor, as JSON
	SampleSize, Every      int64
	Process                int64
	Evidence               string // of the anchor's e-process, as JSON
	Checks, CheckedAtItem  int64
	HeldAt                 clock.Time
	HeldReason, PinnedStep string
	CreatedAt, ExpiresAt   clock.Time
	EndedAt, PurgedAt      clock.Time
}

const columns = `id, label, status, reason, agentic, mode, judges, budget, task_count, task_bytes, scored,
	anchor_criterion_id, anchor, sample_size, every, process, evidence, checks, checked_at_item, held_at, held_reason,
	pinned_step, created_at, expires_at, ended_at, purged_at FROM reward_sessions WHERE workspace_id = $1`

// judges are the judges of a session as the table has them, as JSON.
type judges []Judge

// Scan implements sql.Scanner.
func (j *judges) Scan(kept any) error {
	text, ok := kept.(string)
	if !ok {
		return fmt.Errorf("judges are kept as text, not %T", kept)
	}
	return json.Unmarshal([]byte(text), (*[]Judge)(j))
}

// text returns judges as the table has them.
func (j judges) text() (string, error) {
	text, err := json.Marshal([]Judge(j))
	if err != nil {
		return "", fmt.Errorf("write the judges of a session: %w", err)
	}
	return string(text), nil
}

// find reads a session.
func (s *Store) find(ctx context.Context, in db.Scoped, id string) (*session, error) {
	r, err := db.Maybe[session](ctx, in, `SELECT `+columns+` AND id = $2`, id)
	switch {
	case err != nil:
		return nil, fmt.Errorf("find a reward session: %w", err)
	case r == nil:
		return nil, fault.NotFound("reward session", id)
	}
	return r, nil
}

// insert stores a new session.
func (r *session) insert(ctx context.Context, in db.Scoped, by tenant.UserID) error {
	text, err := r.Judges.text()
	if err != nil {
		return err
	}
	if _, err := db.Exec(ctx, in, `
		INSERT INTO reward_sessions (workspace_id, id, label, status, reason, agentic, mode, judges, budget, task_count,
			task_bytes, scored, anchor_criterion_id, anchor, sample_size, every, process, evidence, checks,
			checked_at_item, held_at, held_reason, pinned_step, created_by, created_at, expires_at, ended_at, purged_at,
			purging)
		VALUES ($1, $2, $3, $4, '', $5, $6, $7, $8, $9, $10, 0, $11, $12, $13, $14, $15, '', 0, 0, 0, '', '', $16, $17,
			$18, 0, 0, FALSE)`,
		r.ID, r.Label, r.Status, r.Agentic, r.Mode, text, r.Budget, r.TaskCount, r.TaskBytes, r.AnchorCriterionID,
		r.Anchor, r.SampleSize, r.Every, r.Process, by, r.CreatedAt, r.ExpiresAt); err != nil {
		return fmt.Errorf("insert a reward session: %w", err)
	}
	return nil
}

// A Selection says which sessions are listed.
type Selection struct {
	Status Status // empty for all
	Label  string // empty for all
}

// list reads sessions, the newest first.
func (s *Store) list(ctx context.Context, in db.Scoped, which Selection, limit, offset int) ([]session, error) {
	all, err := db.Query[session](ctx, in, `
		SELECT `+columns+` AND ($2 = '' OR status = $2) AND ($3 = '' OR label = $3)
		ORDER BY created_at DESC, id DESC LIMIT $4 OFFSET $5`, which.Status, which.Label, limit, offset)
	if err != nil {
		return nil, fmt.Errorf("list reward sessions: %w", err)
	}
	return all, nil
}

// changed is the kind of change that the feed reports when a session has ended.
const changed = object

// An audited is what the audit trail has about a session's state.
type audited struct {
	Status Status `json:"status"`
	Reason string `json:"reason,omitempty"`
}

// move moves a session to another state, if the table of states allows it, and ends its hold in the same transaction.
// When it returns, what was being scored is cancelled. If the session may not move, moved is false and the session is
// returned as it is.
func (s *Store) move(
	ctx context.Context, ws tenant.ID, by tenant.Actor, id string, to Status, reason string,
) (after *session, moved bool, err error) {
	if after, err = s.find(ctx, s.DB.In(ws), id); err != nil || !after.Status.May(to) {
		return after, false, err // most repetitions end here, without a transaction
	}
	err = s.Feed.Change(ctx, func(tx *db.Tx) error {
		after, moved, err = s.moveIn(ctx, tx, ws, by, id, to, reason)
		return err
	})
	if err != nil {
		return nil, false, err
	}
	return after, moved, nil
}

// moveIn is move, within a transaction. The caller awaits the change.
func (s *Store) moveIn(
	ctx context.Context, tx *db.Tx, ws tenant.ID, by tenant.Actor, id string, to Status, reason string,
) (after *session, moved bool, err error) {
	in := tx.In(ws)
	before, err := s.find(ctx, in, id)
	if err != nil || !before.Status.May(to) {
		return before, false, err
	}
	n, err := db.Exec(ctx, in, `
		UPDATE reward_sessions SET status = $4, reason = $5, ended_at = $6 WHERE workspace_id = $1 AND id = $2
			AND status = $3`, id, before.Status, to, reason, s.now())
	if err != nil {
		return nil, false, fmt.Errorf("end reward session %s: %w", id, err)
	}
	if n == 0 {
		return before, false, nil
	}
	if err := s.Holds.End(ctx, tx, ws, id); err != nil {
		return nil, false, err
	}
	tx.Touch(changed, ws, id)
	if after, err = s.find(ctx, in, id); err != nil {
		return nil, false, err
	}
	return after, true, audit.Record(ctx, tx, ws, by, object+"."+action(to, reason), id,
		audited{Status: before.Status}, audited{Status: to, Reason: reason})
}

// expired is the reason of a session that ended at its time.
const expired = "expired"

// action is what the audit trail calls a move.
func action(to Status, reason string) string {
	if to == Stopped && reason == expired {
		return "expire"
	}
	return map[Status]string{Completed: "complete", Overbudget: "overbudget", Stopped: "stop", Failed: "fail"}[to]
}

// hold holds an active session: nothing is scored until it is released, and no question is asked that is not being
// asked yet. A session that is held keeps its first reason.
func (s *Store) hold(ctx context.Context, ws tenant.ID, id, reason string) error {
	_, err := s.DB.Tx(ctx, func(tx *db.Tx) error {
		return s.holdIn(ctx, tx, ws, id, reason)
	})
	return err
}

// holdIn is hold, within a transaction.
func (s *Store) holdIn(ctx context.Context, tx *db.Tx, ws tenant.ID, id, reason string) error {
	n, err := db.Exec(ctx, tx.In(ws), `
		UPDATE reward_sessions SET held_at = $3, held_reason = $4 WHERE workspace_id = $1 AND id = $2 AND held_at = 0
			AND status = $5`, id, s.now(), reason, Active)
	if err != nil {
		return fmt.Errorf("hold reward session %s: %w", id, err)
	}
	if n == 0 {
		return nil
	}
	tx.OnEnd(func(o db.Outcome) {
		if o == db.Committed {
			s.scorer.askNoMore(ref{ws, id})
		}
	})
	if err := notice.Add(ctx, tx, ws, notice.Notice{
		Kind: notice.AnchorHeld, Subject: id, Link: "rewards/" + id,
		Title: "A reward session is held",
		Text:  "The reward session " + id + " scores nothing until it is released: " + reason,
	}); err != nil {
		return err
	}
	return audit.Record(ctx, tx, ws, tenant.Operator, object+".hold", id, nil, struct {
		Reason string `json:"reason"`
	}{reason})
}
