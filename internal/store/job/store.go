package job

import (
	"context"
	"errors"
	"fmt"

	"sovereign/internal/base/clock"
	"sovereign/internal/base/fault"
	"sovereign/internal/base/money"
	"sovereign/internal/base/tenant"
	"sovereign/internal/store/audit"
	"sovereign/internal/store/cluster"
	"sovereign/internal/store/db"
)

// Columns are the columns of a Job, for a query of what jobs are for:
//
//	SELECT evals.id, evals.name, `+job.Columns+` FROM evals JOIN jobs ON jobs.workspace_id = $1 AND jobs.id = evals.id
//	WHERE evals.workspace_id = $1
const Columns = `jobs.status, jobs.done, jobs.total, jobs.estimate, jobs.cost, NULLIF(jobs.failure, '') AS failure,
	jobs.created_at, jobs.started_at, jobs.finished_at`

// New describes a job to queue. ID is the id of what the job is for. Kind selects the handler.
type New struct {
	ID       string
	Kind     string
	Total    int64
	Estimate money.Nano
}

// topic is signalled when a transaction that queues, cancels or ends a job has committed. It wakes the runners and the
// callers of Wait.
const topic = "jobs"

// Queue adds a job in the transaction that creates what the job is for: neither exists without the other. The commit
// wakes the runner.
func Queue(ctx context.Context, tx *db.Tx, ws tenant.ID, n New) error {
	_, err := db.Exec(ctx, tx.In(ws), `
		INSERT INTO jobs (workspace_id, id, kind, status, done, total, cost, estimate, attempts, losses, claim,
			cancel_requested, failure, created_at)
		VALUES ($1, $2, $3, $4, 0, $5, 0, $6, 0, 0, '', FALSE, '', $7)`,
		n.ID, n.Kind, Queued, n.Total, n.Estimate, clock.Now())
	if err != nil {
		return fmt.Errorf("queue %s %s: %w", n.Kind, n.ID, err)
	}
	tx.Signal(topic)
	return nil
}

// Get reads a job.
func Get(ctx context.Context, scope db.Scoped, id string) (Job, error) {
	j, err := db.Maybe[Job](ctx, scope, `SELECT `+Columns+` FROM jobs WHERE workspace_id = $1 AND id = $2`, id)
	switch {
	case err != nil:
		return Job{}, fmt.Errorf("read job %s: %w", id, err)
	case j == nil:
		return Job{}, fault.NotFound("job", id)
	}
	return *j, nil
}

// A cancellation is the state before or after a cancellation, as the audit log shows it.
type cancellation struct {
	Status          Status `json:"status"`
	CancelRequested bool   `json:"cancel_requested"`
}

// Cancel ends a waiting job, and asks a running one to end; what it has done is kept. Repeating it is a no-op. A job
// that has ended otherwise is a conflict. It is audited as kind.cancel. The commit wakes the runner, which ends the
// run.
func Cancel(ctx context.Context, tx *db.Tx, ws tenant.ID, by tenant.Actor, id string) (Job, error) {
	var before, after record
	err := change(ctx, tx, ws, id, func(r *record) (err error) {
		before = *r
		err = r.cancel(clock.Now())
		after = *r
		return err
	})
	if errors.Is(err, errMissing) {
		return Job{}, fault.NotFound("job", id)
	}
	if err != nil {
		return Job{}, fmt.Errorf("cancel job %s: %w", id, err)
	}
	tx.Signal(topic)
	if before != after {
		if err := audit.Record(ctx, tx, ws, by, after.Kind+".cancel", id,
			cancellation{before.Status, before.CancelRequested}, cancellation{
				after.Status, after.CancelRequested,
			}); err != nil {
			return Job{}, err
		}
	}
	return Get(ctx, tx.In(ws), id)
}

// errMissing reports that there is no such job: what it was for may have been deleted.
var errMissing = errors.New("no such job")

// change lets rule alter a job's row. The row is locked before it is read, by a no-op UPDATE, and not only read under
// serializable isolation. A run that takes over a claim reads outside of transactions which units are left; it must
// not miss a unit that the previous run is still committing.
func change(ctx context.Context, tx *db.Tx, ws tenant.ID, id string, rule func(*record) error) error {
	before, err := db.Maybe[record](ctx, tx.In(ws), `
		UPDATE jobs SET claim = claim WHERE workspace_id = $1 AND id = $2
		RETURNING kind, status, done, total, cost, attempts, losses, claim, node, epoch, cancel_requested,
			failure, started_at, finished_at`, id)
	switch {
	case err != nil:
		return err
	case before == nil:
		return errMissing
	}
	after := *before
	if err := rule(&after); err != nil || after == *before {
		return err
	}
	_, err = db.Exec(ctx, tx.In(ws), `
		UPDATE jobs SET status = $3, done = $4, total = $5, cost = $6, attempts = $7, losses = $8, claim = $9,
			node = $10, epoch = $11, cancel_requested = $12, failure = $13, started_at = $14, finished_at = $15
		WHERE workspace_id = $1 AND id = $2`,
		id, after.Status, after.Done, after.Total, after.Cost, after.Attempts, after.Losses, after.Claim, after.Node,
		after.Epoch, after.CancelRequested, after.Failure, after.StartedAt, after.FinishedAt)
	if err != nil || after.Status == before.Status {
		return err
	}
	if after.Status.Ended() {
		tx.Signal(topic)
	}
	return tell(ctx, tx, ws, id, &after)
}

// A key identifies a job.
type key struct {
	WorkspaceID tenant.ID
	ID          string
}

// A queueHead is the oldest waiting job of a workspace.
type queueHead struct {
	WorkspaceID tenant.ID
	ID, Kind    string
	CreatedAt   clock.Time
}

func (h queueHead) key() key { return key{h.WorkspaceID, h.ID} }

// selectQueueHeads finds the queue heads by a loose index scan over the waiting jobs. Its cost grows with the number
// of workspaces that have waiting jobs, and not with the jobs behind the heads or those that have ended.
const selectQueueHeads = `
	WITH RECURSIVE waiting (ws) AS (
		SELECT MIN(workspace_id) FROM jobs WHERE status = 'QUEUED' AND claim = ''
		UNION ALL
		SELECT (SELECT MIN(workspace_id) FROM jobs WHERE status = 'QUEUED' AND claim = '' AND workspace_id > waiting.ws)
		FROM waiting WHERE waiting.ws IS NOT NULL
	)
	SELECT jobs.workspace_id, jobs.id, jobs.kind, jobs.created_at
	FROM waiting JOIN jobs ON jobs.workspace_id = waiting.ws AND jobs.status = 'QUEUED' AND jobs.claim = '' AND jobs.id = (
		SELECT oldest.id FROM jobs oldest
		WHERE oldest.workspace_id = waiting.ws AND oldest.status = 'QUEUED' AND oldest.claim = ''
		ORDER BY oldest.created_at, oldest.id LIMIT 1)`

// findQueued reads a job, if it waits in the queue.
func findQueued(ctx context.Context, d *db.DB, at key) (*queueHead, error) {
	ctx, cancel := context.WithTimeout(ctx, txTimeout)
	defer cancel()
	return db.Maybe[queueHead](ctx, d.In(at.WorkspaceID), `
		SELECT workspace_id, id, kind, created_at FROM jobs
		WHERE workspace_id = $1 AND id = $2 AND status = 'QUEUED' AND claim = ''`, at.ID)
}

// A claimedJob is a job with a claim, of a live run or of one whose server died.
type claimedJob struct {
	WorkspaceID     tenant.ID
	ID, Kind, Claim string
	Node            string
	Epoch           int64
	Over            bool // the life of that node is over; always on SQLite
	CancelRequested bool
}

func (c *claimedJob) key() key { return key{c.WorkspaceID, c.ID} }

func (c *claimedJob) life() cluster.Life { return cluster.Life{Node: c.Node, Epoch: c.Epoch} }

var selectClaimed = `SELECT workspace_id, id, kind, claim, node, epoch, ` + cluster.Over("jobs.node", "jobs.epoch") + ` AS over,
	cancel_requested FROM jobs WHERE claim <> ''`

// restsElsewhere reports whether a waiting job has a claim of another life: it is tried again there later.
func restsElsewhere(ctx context.Context, in db.Scoped, id string, than cluster.Life) (bool, error) {
	found, err := db.Maybe[string](ctx, in, `
		SELECT id FROM jobs WHERE workspace_id = $1 AND id = $2 AND status = 'QUEUED' AND claim <> ''
			AND NOT (node = $3 AND epoch = $4)`, id, than.Node, than.Epoch)
	if err != nil {
		return false, fmt.Errorf("read who rests job %s: %w", id, err)
	}
	return found != nil, nil
}
