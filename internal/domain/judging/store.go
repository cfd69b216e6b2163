package judging

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/go-json-experiment/json"

	"sovereign/internal/base/clock"
	"sovereign/internal/base/fault"
	"sovereign/internal/base/id"
	"sovereign/internal/base/money"
	"sovereign/internal/base/tenant"
	"sovereign/internal/store/audit"
	"sovereign/internal/store/db"
	"sovereign/internal/store/job"
)

// A store keeps the answers of judge models by the digests of their questions.
type store struct {
	db    *db.DB
	group *db.Group[savedAnswer]
}

func newStore(d *db.DB) store { return store{d, db.NewGroup(d, saveAnswers)} }

// answer reads the stored answer to a question, if it may answer one of that origin. Client.Ask says when it may.
func (s store) answer(ctx context.Context, ws tenant.ID, digest []byte, origin string, fresh bool,
) (found Answer, ok bool, err error) {
	type row struct{ Origin, RequestID, Opinion, Failure string }
	r, err := db.Maybe[row](ctx, s.db.In(ws), `
		SELECT origin, request_id, opinion, failure FROM judge_answers WHERE workspace_id = $1 AND question = $2`,
		digest)
	if err != nil {
		return found, false, fmt.Errorf("read a stored answer: %w", err)
	}
	if r == nil || !answers(r.Origin, r.Failure, origin, fresh) {
		return found, false, nil
	}
	found = Answer{Failure: r.Failure, RequestID: r.RequestID, stored: true}
	if r.Failure == "" {
		if err := json.Unmarshal([]byte(r.Opinion), &found.Assessment); err != nil {
			return found, false, fmt.Errorf("read a stored answer: %w", err)
		}
	}
	return found, true, nil
}

// answers reports whether a stored answer to a question also answers it for another origin.
func answers(stored, failure, origin string, fresh bool) bool {
	calibrations := id.Has(CalibrationPrefix, origin) && id.Has(CalibrationPrefix, stored)
	return stored == origin || !fresh && (failure == "" || calibrations)
}

// errAnswered says that another server has stored an answer to the question meanwhile. This one is not charged.
var errAnswered = errors.New("another server has the answer")

// A savedAnswer is an answer to be stored.
type savedAnswer struct {
	ws     tenant.ID
	digest []byte
	asked  *Question
	answer Answer
}

// saveAnswer stores an answer, with others that come at the same time. It cannot be cancelled: the model was asked.
func (s store) saveAnswer(ws tenant.ID, q *Question, digest []byte, a *Answer) error {
	if err := s.group.Do(savedAnswer{ws, digest, q, *a}); err != nil {
		return fmt.Errorf("store an answer: %w", err)
	}
	return nil
}

// saveAnswers stores answers to different questions. It fails with errAnswered when one of them has an answer that
// serves, of another request.
func saveAnswers(ctx context.Context, tx *db.Tx, all []savedAnswer) error {
	across := tx.Across("answers of several runs are stored together")
	if err := checkAnswers(ctx, across, all); err != nil {
		return err
	}
	columns := []string{
		"workspace_id", "question", "criterion_id", "origin", "request_id", "opinion", "failure", "cost", "created_at",
		"expires_at",
	}
	rows := make([][]any, len(all))
	for i, s := range all {
		assessment, err := json.Marshal(s.answer.Assessment)
		if err != nil {
			return fmt.Errorf("write an assessment: %w", err)
		}
		rows[i] = []any{
			s.ws, s.digest, s.asked.CriterionID, s.asked.Origin, s.answer.RequestID, string(assessment),
			Storable(s.answer.Failure), s.answer.Cost, clock.Now(), s.asked.ExpiresAt,
		}
	}
	return db.Upsert(ctx, across, "judge_answers", columns, 2, rows)
}

// checkAnswers reads what is stored of the questions of some answers, in one statement.
func checkAnswers(ctx context.Context, across db.Scoped, all []savedAnswer) error {
	var where []string
	var args []any
	asked := map[string]*savedAnswer{}
	for i := range all {
		s := &all[i]
		args = append(args, s.ws, s.digest)
		where = append(where, fmt.Sprintf("workspace_id = $%d AND question = $%d", len(args)-1, len(args)))
		asked[string(s.ws)+string(s.digest)] = s
	}
	type row struct {
		WorkspaceID                tenant.ID
		Question                   []byte
		Origin, RequestID, Failure string
	}
	stored, err := db.Query[row](ctx, across, `
		SELECT workspace_id, question, origin, request_id, failure FROM judge_answers WHERE `+strings.Join(where, " OR "), args...)
	if err != nil {
		return fmt.Errorf("read stored answers: %w", err)
	}
	for _, r := range stored {
		s := asked[string(r.WorkspaceID)+string(r.Question)]
		if r.RequestID != s.answer.RequestID && answers(r.Origin, r.Failure, s.asked.Origin, s.asked.Fresh) {
			return errAnswered
		}
	}
	return nil
}

// Resume returns the budget of a run that may have run before. It counts every answer that the run has paid for in the
// job's cost: the server may have died between storing an answer and writing the row that it is for.
func (c *Client) Resume(ctx context.Context, run *job.Run, criterionID string, limit *money.Nano) (*Budget, error) {
	paid, err := db.One[money.Nano](ctx, c.store.db.In(run.Workspace), `
		SELECT CAST(COALESCE(SUM(cost), 0) AS BIGINT) FROM judge_answers WHERE workspace_id = $1 AND criterion_id = $2
			AND origin = $3`, criterionID, run.ID)
	if err != nil {
		return nil, fmt.Errorf("sum up what %s has paid: %w", run.ID, err)
	}
	budget := NewBudget(limit, 0)
	return budget, run.Tx(ctx, func(_ *db.Tx, tally *job.Tally) error {
		tally.Cost = max(tally.Cost, paid)
		budget.spent.Store(int64(tally.Cost))
		return nil
	})
}

// DeleteBatch is how many rows one transaction of DeleteInBatches deletes: other writers wait for it.
const DeleteBatch = 200

// DeleteInBatches calls remove, which deletes at most DeleteBatch rows, until it finds fewer.
func DeleteInBatches(remove func() (int64, error)) error {
	for {
		if n, err := remove(); err != nil || n < DeleteBatch {
			return err
		}
	}
}

// DeleteExpired deletes the rows of a table whose expires_at has passed. key lists the columns of its primary key.
func DeleteExpired(ctx context.Context, d *db.DB, table, key string) error {
	across := d.Across("expired rows of all workspaces are deleted")
	err := DeleteInBatches(func() (int64, error) {
		return db.Exec(ctx, across, `
			DELETE FROM `+table+` WHERE (`+key+`) IN (SELECT `+key+` FROM `+table+` WHERE expires_at > 0 AND expires_at <= $1 ORDER BY expires_at LIMIT $2)`,
			clock.Now(), DeleteBatch)
	})
	if err != nil {
		return fmt.Errorf("sweep %s: %w", table, err)
	}
	return nil
}

// DeleteRows deletes the rows of a table that belong to a criterion. of is the condition that finds them; $2 is the
// criterion's id.
func DeleteRows(ctx context.Context, d *db.DB, ws tenant.ID, table, key, of, criterionID string) error {
	err := DeleteInBatches(func() (int64, error) {
		return db.Exec(ctx, d.In(ws), `
			DELETE FROM `+table+` WHERE workspace_id = $1 AND (`+key+`) IN (SELECT `+key+` FROM `+table+` WHERE workspace_id = $1 AND `+of+` LIMIT $3)`,
			criterionID, DeleteBatch)
	})
	if err != nil {
		return fmt.Errorf("%s: %w", table, err)
	}
	return nil
}

// DeleteAnswers deletes the stored answers of a criterion.
func DeleteAnswers(ctx context.Context, d *db.DB, ws tenant.ID, criterionID string) error {
	return DeleteRows(ctx, d, ws, "judge_answers", "question", "criterion_id = $2", criterionID)
}

// DeleteAnswersOf deletes the stored answers of a criterion that were paid for by one origin.
func DeleteAnswersOf(ctx context.Context, d *db.DB, ws tenant.ID, criterionID, origin string) error {
	err := DeleteInBatches(func() (int64, error) {
		return db.Exec(ctx, d.In(ws), `
			DELETE FROM judge_answers WHERE workspace_id = $1 AND question IN (
				SELECT question FROM judge_answers WHERE workspace_id = $1 AND criterion_id = $2 AND origin = $3
				LIMIT $4)`, criterionID, origin, DeleteBatch)
	})
	if err != nil {
		return fmt.Errorf("judge_answers: %w", err)
	}
	return nil
}

// DeleteTasks deletes the tasks of a criterion.
func DeleteTasks(ctx context.Context, d *db.DB, ws tenant.ID, criterionID string) error {
	return DeleteRows(ctx, d, ws, "inquiries", "id", "criterion_id = $2", criterionID)
}

const taskColumns = `t.id, t.criterion_id, t.version, t.asked, t.result, t.created_by, ` + job.Columns + `
	FROM inquiries t JOIN jobs ON jobs.workspace_id = t.workspace_id AND jobs.id = t.id WHERE t.workspace_id = $1`

// Start stores a task and queues its job.
func (k Kind) Start(ctx context.Context, tx *db.Tx, ws tenant.ID, by tenant.Actor, n *NewTask) (*Task, error) {
	text, err := json.Marshal(n.Request)
	if err != nil {
		return nil, fmt.Errorf("write the request of a %s: %w", k.Name, err)
	}
	name := id.New(k.Prefix)
	if _, err := db.Exec(ctx, tx.In(ws), `
		INSERT INTO inquiries (workspace_id, id, kind, criterion_id, version, asked, result, created_by, created_at)
		VALUES ($1, $2, $3, $4, $5, $6, '', $7, $8)`,
		name, k.Name, n.CriterionID, n.Version, string(text), by.User, clock.Now()); err != nil {
		return nil, fmt.Errorf("begin a %s: %w", k.Name, err)
	}
	if err := job.Queue(ctx, tx, ws, job.New{
		ID: name, Kind: k.Name, Total: n.Total,
		Estimate: n.Estimate,
	}); err != nil {
		return nil, err
	}
	if err := audit.Record(ctx, tx, ws, by, k.Name+".start", name, nil, n.Request); err != nil {
		return nil, err
	}
	return k.Find(ctx, tx.In(ws), n.CriterionID, name)
}

// Find reads a task of a criterion.
func (k Kind) Find(ctx context.Context, in db.Scoped, criterionID, name string) (*Task, error) {
	t, err := db.Maybe[Task](
		ctx, in, `SELECT `+taskColumns+` AND t.kind = $2 AND t.criterion_id = $3 AND t.id = $4`, k.Name, criterionID,
		name,
	)
	switch {
	case err != nil:
		return nil, fmt.Errorf("find a %s: %w", k.Name, err)
	case t == nil:
		return nil, fault.NotFound(k.Name, name)
	}
	return t, nil
}

// List reads the tasks of a criterion, the newest first.
func (k Kind) List(ctx context.Context, in db.Scoped, criterionID string, limit, offset int) ([]Task, error) {
	all, err := db.Query[Task](ctx, in, `
		SELECT `+taskColumns+` AND t.kind = $2 AND t.criterion_id = $3 ORDER BY t.created_at DESC, t.id DESC LIMIT $4 OFFSET $5`,
		k.Name, criterionID, limit, offset)
	if err != nil {
		return nil, fmt.Errorf("list %ss: %w", k.Name, err)
	}
	return all, nil
}

// Of reads the task that a run is for.
func (k Kind) Of(ctx context.Context, d *db.DB, run *job.Run) (*Task, error) {
	t, err := db.One[Task](
		ctx, d.In(run.Workspace), `SELECT `+taskColumns+` AND t.kind = $2 AND t.id = $3`, k.Name, run.ID,
	)
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", run.ID, err)
	}
	return &t, nil
}

// SaveResult stores the result of a task.
func SaveResult(ctx context.Context, in db.Scoped, name string, result any) error {
	text, err := json.Marshal(result)
	if err != nil {
		return fmt.Errorf("write the result of %s: %w", name, err)
	}
	if _, err := db.Exec(ctx, in,
		`UPDATE inquiries SET result = $3 WHERE workspace_id = $1 AND id = $2`, name, string(text)); err != nil {
		return fmt.Errorf("store the result of %s: %w", name, err)
	}
	return nil
}

// RunningTask returns the id of a task of a criterion that has not ended, or "".
func RunningTask(ctx context.Context, in db.Scoped, criterionID string) (string, error) {
	found, err := db.Maybe[string](ctx, in, `
		SELECT j.id FROM inquiries t JOIN jobs j ON j.workspace_id = t.workspace_id AND j.id = t.id
		WHERE t.workspace_id = $1 AND t.criterion_id = $2 AND j.status IN ('QUEUED', 'RUNNING') LIMIT 1`, criterionID)
	if err != nil {
		return "", fmt.Errorf("find a running task: %w", err)
	}
	if found == nil {
		return "", nil
	}
	return *found, nil
}

// Cancel cancels the job of something that read returns, and reads it again.
func Cancel[T any](ctx context.Context, d *db.DB, caller tenant.Caller, id string, read func() (T, error)) (T, error) {
	if found, err := read(); err != nil {
		return found, err
	}
	if _, err := d.Tx(ctx, func(tx *db.Tx) error {
		_, err := job.Cancel(ctx, tx, caller.Workspace, caller.Actor(), id)
		return err
	}); err != nil {
		var none T
		return none, err
	}
	return read()
}
