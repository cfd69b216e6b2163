package eval

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"sovereign/internal/base/money"
	"sovereign/internal/base/tenant"
	"sovereign/internal/domain/judging"
	"sovereign/internal/grade/judge"
	"sovereign/internal/store/db"
	"sovereign/internal/store/job"
)

// An answer is what a model answered to a case, or why it did not.
type answer struct {
	Position     int
	Model        int
	Answer       []byte // the assistant's message
	FinishReason string
	Failure      string
	Reused       bool
	RequestID    string
	Cost         money.Nano
	Latency      int64 // in microseconds
}

// A verdict is what a judge said of an answer, or of two in one order.
type verdict struct {
	Position  int
	Model     int
	Swapped   bool
	Verdict   string // a judge.Winner or a judge.Verdict; "" without one
	Grade     float64
	Critique  string
	Failure   string
	RequestID string
	Cost      money.Nano
}

// A pendingCase is a case with what is stored of it.
type pendingCase struct {
	testCase
	answers  map[int]*answer
	verdicts map[verdictKey]*verdict
}

type verdictKey struct {
	model   int
	swapped bool
}

// gone reports whether the texts were deleted before the case was done.
func (c *pendingCase) gone() bool { return c.ExpiresAt < 0 }

// pending reads the positions of cases that are not done.
func (s *Store) pending(ctx context.Context, ws tenant.ID, evalID string, after int64, limit int) ([]int64, error) {
	all, err := db.Query[int64](ctx, s.DB.In(ws), `
		SELECT position FROM eval_cases WHERE workspace_id = $1 AND eval_id = $2 AND pending AND position > $3
			ORDER BY position LIMIT $4`, evalID, after, limit)
	if err != nil {
		return nil, fmt.Errorf("find the cases that are left: %w", err)
	}
	return all, nil
}

// loadBatch is how many cases one statement reads.
const loadBatch = 32

// loadCondition is the condition that finds a batch; its text is constant.
var loadCondition = func() string {
	places := make([]string, loadBatch)
	for i := range places {
		places[i] = fmt.Sprintf("$%d", i+3)
	}
	return ` WHERE workspace_id = $1 AND eval_id = $2 AND position IN (` + strings.Join(places, ", ") + `)`
}()

// modelCondition selects the baseline and some candidates of a batch.
var modelCondition = loadCondition +
	fmt.Sprintf(` AND (model = 0 OR model BETWEEN $%d AND $%d)`, loadBatch+3, loadBatch+4)

// load reads cases, at most loadBatch, by their positions, with what is stored of the baseline and of the candidates
// from one number to another.
func load(ctx context.Context, in db.Scoped, evalID string, from, to int, positions ...int64,
) (map[int]*pendingCase, error) {
	args := []any{evalID}
	for i := range loadBatch {
		args = append(args, positions[min(i, len(positions)-1)])
	}
	texts, err := db.Query[testCase](ctx, in, `
		SELECT position, case_id AS id, request_id, segment, messages, tools, logged, logged_model, logged_cost,
			logged_latency, expires_at FROM eval_cases`+loadCondition, args...)
	if err != nil {
		return nil, fmt.Errorf("read cases: %w", err)
	}
	all := map[int]*pendingCase{}
	for _, c := range texts {
		all[c.Position] = &pendingCase{testCase: c, answers: map[int]*answer{}, verdicts: map[verdictKey]*verdict{}}
	}
	args = append(args, from, to)
	answers, err := db.Query[answer](ctx, in, `
		SELECT position, model, answer, finish_reason, failure, reused, request_id, cost, latency FROM eval_answers`+
		modelCondition, args...)
	if err != nil {
		return nil, fmt.Errorf("read the answers to cases: %w", err)
	}
	for i := range answers {
		all[answers[i].Position].answers[answers[i].Model] = &answers[i]
	}
	verdicts, err := db.Query[verdict](ctx, in, `
		SELECT position, model, swapped, verdict, grade, critique, failure, request_id, cost FROM eval_verdicts`+
		modelCondition, args...)
	if err != nil {
		return nil, fmt.Errorf("read the verdicts on cases: %w", err)
	}
	for i := range verdicts {
		v := &verdicts[i]
		all[v.Position].verdicts[verdictKey{v.Model, v.Swapped}] = v
	}
	return all, nil
}

// load reads one case of the eval.
func (w *worker) load(ctx context.Context, position int64) (*pendingCase, error) {
	all, err := load(ctx, w.DB.In(w.run.Workspace), w.eval.ID, 1, len(w.models), position)
	if err != nil {
		return nil, err
	}
	c := all[int(position)]
	if c == nil {
		return nil, fmt.Errorf("case %d of %s is not there: %w", position, w.eval.ID, db.ErrNone)
	}
	for _, a := range c.answers {
		if a.Failure == "" && len(a.Answer) == 0 { // stored after the case had expired, and before the sweep
			c.ExpiresAt, c.Messages = -1, nil
		}
	}
	return c, nil
}

// errStored says that another run has stored the same meanwhile. Nothing is charged then.
var errStored = errors.New("another run has stored an answer to the same")

// saveAnswer stores an answer.
func saveAnswer(ctx context.Context, in db.Scoped, evalID string, a *answer) error {
	n, err := db.Exec(ctx, in, `
		INSERT INTO eval_answers (workspace_id, eval_id, position, model, answer, finish_reason, failure, reused,
			request_id, cost, latency)
		VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11) ON CONFLICT DO NOTHING`,
		evalID, a.Position, a.Model, bytesOf(a.Answer), judging.Storable(a.FinishReason), judging.Storable(a.Failure),
		a.Reused, a.RequestID, a.Cost, a.Latency)
	if err == nil && n == 0 {
		err = stored(ctx, in, a.RequestID, `SELECT request_id FROM eval_answers
			WHERE workspace_id = $1 AND eval_id = $2 AND position = $3 AND model = $4`, evalID, a.Position, a.Model)
	}
	if err != nil {
		return fmt.Errorf("store an answer: %w", err)
	}
	return nil
}

// stored returns errStored, unless what is stored came of the same request: its commit succeeded, and the connection
// broke before that was known. It is charged then.
func stored(ctx context.Context, in db.Scoped, requestID, query string, args ...any) error {
	of, err := db.One[string](ctx, in, query, args...)
	switch {
	case err != nil:
		return err
	case requestID == "" || of != requestID:
		return errStored
	}
	return nil
}

// saveVerdict stores what a judge said of a comparison.
func saveVerdict(ctx context.Context, in db.Scoped, evalID string, v *verdict) error {
	n, err := db.Exec(ctx, in, `
		INSERT INTO eval_verdicts (workspace_id, eval_id, position, model, swapped, verdict, grade, critique, failure,
			request_id, cost)
		VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11) ON CONFLICT DO NOTHING`,
		evalID, v.Position, v.Model, v.Swapped, v.Verdict, v.Grade, judging.Storable(v.Critique),
		judging.Storable(v.Failure), v.RequestID, v.Cost)
	if err == nil && n == 0 {
		err = stored(ctx, in, v.RequestID, `SELECT request_id FROM eval_verdicts
			WHERE workspace_id = $1 AND eval_id = $2 AND position = $3 AND model = $4 AND swapped = $5`,
			evalID, v.Position, v.Model, v.Swapped)
	}
	if err != nil {
		return fmt.Errorf("store a verdict: %w", err)
	}
	return nil
}

// paid sums up what an eval has paid for: answers, comparisons, and what its criterion's judge was asked.
func (s *Store) paid(ctx context.Context, ws tenant.ID, r *record) (money.Nano, error) {
	sum, err := db.One[money.Nano](ctx, s.DB.In(ws), `
		SELECT CAST(COALESCE(SUM(cost), 0) AS BIGINT) FROM (
			SELECT cost FROM eval_answers WHERE workspace_id = $1 AND eval_id = $2 AND NOT reused
			UNION ALL SELECT cost FROM eval_verdicts WHERE workspace_id = $1 AND eval_id = $2 AND $3 = ''
			UNION ALL SELECT cost FROM judge_answers WHERE workspace_id = $1 AND criterion_id = $3 AND $3 <> ''
				AND origin = $2) paid`, r.ID, r.CriterionID)
	if err != nil {
		return 0, fmt.Errorf("sum up what %s has paid: %w", r.ID, err)
	}
	return sum, nil
}

// answeredFree sums up the bytes that the endpoints of an eval have answered.
func answeredFree(ctx context.Context, in db.Scoped, r *record) (sum int64, err error) {
	for model, name := range r.asked.models() {
		if !isEndpoint(name) {
			continue
		}
		n, err := db.One[int64](ctx, in, `
			SELECT CAST(COALESCE(SUM(LENGTH(answer)), 0) AS BIGINT) FROM eval_answers
			WHERE workspace_id = $1 AND eval_id = $2 AND model = $3`, r.ID, model)
		if err != nil {
			return 0, fmt.Errorf("sum up the answers of %s: %w", r.ID, err)
		}
		sum += n
	}
	return sum, nil
}

// A doneCase is a case with what came of it.
type doneCase struct {
	position int
	expired  func() bool   // its texts are to be deleted
	baseline judge.Verdict // of a criterion's run
	verdicts []verdict     // of a criterion's run
	settled  []settled
}

// saveDone writes cases that are done. A case that is not pending any more was written before, and is not counted.
func saveDone(ctx context.Context, tx *db.Tx, ws tenant.ID, evalID string, all []*doneCase, tally *job.Tally) error {
	var verdicts, outcomes [][]any
	for _, c := range all {
		n, err := db.Exec(ctx, tx.In(ws), `
			UPDATE eval_cases SET pending = FALSE, baseline = $4
			WHERE workspace_id = $1 AND eval_id = $2 AND position = $3 AND pending`, evalID, c.position, c.baseline)
		if err != nil {
			return fmt.Errorf("store a case: %w", err)
		}
		if n == 0 {
			continue
		}
		tally.Done++
		for _, v := range c.verdicts {
			if c.expired() {
				v.Critique = ""
			}
			verdicts = append(verdicts, []any{
				ws, evalID, c.position, v.Model, v.Swapped, v.Verdict, v.Grade, judging.Storable(v.Critique),
				judging.Storable(v.Failure), v.RequestID, v.Cost,
			})
		}
		for _, o := range c.settled {
			outcomes = append(outcomes, []any{
				ws, evalID, c.position, o.model, string(o.outcome), o.flipped, string(o.baseline), string(o.candidate),
				o.regression,
			})
		}
	}
	across := tx.Across("the rows name their workspace")
	if err := db.Insert(ctx, across, "eval_verdicts", []string{
		"workspace_id", "eval_id", "position", "model", "swapped", "verdict", "grade", "critique", "failure",
		"request_id", "cost",
	}, verdicts); err != nil {
		return err
	}
	return db.Insert(ctx, across, "eval_outcomes", []string{
		"workspace_id", "eval_id", "position", "model", "outcome", "flipped", "baseline", "candidate", "regression",
	}, outcomes)
}

// failures reads why candidates failed as a whole, by their numbers.
func failures(ctx context.Context, in db.Scoped, evalID string) (map[int]string, error) {
	type row struct {
		Model   int
		Failure string
	}
	rows, err := db.Query[row](ctx, in, `
		SELECT model, failure FROM eval_pairs WHERE workspace_id = $1 AND eval_id = $2 AND failure <> ''`, evalID)
	if err != nil {
		return nil, fmt.Errorf("read the failures of %s: %w", evalID, err)
	}
	all := map[int]string{}
	for _, r := range rows {
		all[r.Model] = r.Failure
	}
	return all, nil
}
