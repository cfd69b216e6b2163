package canary

import (
	"context"
	"fmt"

	"github.com/go-json-experiment/json"

	"sovereign/internal/base/clock"
	"sovereign/internal/base/money"
	"sovereign/internal/base/tenant"
	"sovereign/internal/domain/alias"
	"sovereign/internal/domain/judging"
	"sovereign/internal/plane/capture"
	"sovereign/internal/store/db"
	"sovereign/internal/store/feed"
)

// Config is what a store needs.
type Config struct {
	DB      *db.DB
	Feed    *feed.Feed
	Logs    Logs
	Open    func(context.Context, tenant.ID) error // refuses while logging is off, and makes visible what was answered
	Logging func(tenant.ID) bool                   // reports whether a workspace logs its requests
	Judges  *judging.Client
	Aliases *alias.Store // whose policy must allow what a gate does; nil allows everything
}

// A Store keeps the epochs and samples of gates.
type Store struct {
	Config
	now func() clock.Time // clock.Now, except in tests
}

// NewStore returns a store.
func NewStore(c Config) *Store { return &Store{Config: c, now: clock.Now} }

const epochColumns = `id, alias, target_model, canary_model, criterion_id, criterion_version, certificate_id, youden,
	false_pass, percents, source, seq, cursors, taken, entered, tally, spent, verdict, automatic, shown, started_at,
	evaluated_at, decided_at, acted_at, ended_at FROM canary_epochs`

// findEpoch reads an epoch. It returns nil when there is none.
func findEpoch(ctx context.Context, in db.Scoped, name string) (*epoch, error) {
	e, err := db.Maybe[epoch](ctx, in, `SELECT `+epochColumns+` WHERE workspace_id = $1 AND id = $2`, name)
	if err != nil {
		return nil, fmt.Errorf("find epoch %s: %w", name, err)
	}
	return e, nil
}

// insertEpoch stores a new epoch, which shows that nothing is counted yet.
func insertEpoch(ctx context.Context, in db.Scoped, e *epoch, f *facts) error {
	text, err := e.Tally.text()
	if err != nil {
		return err
	}
	r := e.report(f)
	e.Verdict = Verdict(r.Verdict)
	if e.Shown, err = encode(r); err != nil {
		return err
	}
	if _, err := db.Exec(ctx, in, `
		INSERT INTO canary_epochs (workspace_id, id, alias, target_model, canary_model, criterion_id, criterion_version,
			certificate_id, youden, false_pass, percents, source, seq, taken, entered, tally, spent, verdict,
			automatic, shown, started_at, evaluated_at, decided_at, acted_at, ended_at)
		VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, '', 0, 0, 0, $12, 0, $13, $14, $15, $16, $16, 0, 0, 0)`,
		e.ID, e.Alias, e.TargetModel, e.CanaryModel, e.CriterionID, e.CriterionVersion, e.CertificateID, e.Youden,
		e.FalsePass, e.Percents.text(), text, e.Verdict, e.Automatic, e.Shown, e.StartedAt); err != nil {
		return fmt.Errorf("begin an epoch of %s: %w", e.Alias, err)
	}
	return nil
}

func encode(r *alias.GateReport) (string, error) {
	text, err := json.Marshal(r)
	if err != nil {
		return "", fmt.Errorf("write what a gate shows: %w", err)
	}
	return string(text), nil
}

// saveStratum begins a stratum.
func saveStratum(ctx context.Context, in db.Scoped, e *epoch) error {
	if _, err := db.Exec(ctx, in, `
		UPDATE canary_epochs SET percents = $3 WHERE workspace_id = $1 AND id = $2`,
		e.ID, e.Percents.text()); err != nil {
		return fmt.Errorf("begin a stratum of %s: %w", e.ID, err)
	}
	return nil
}

// endEpoch marks an epoch that is no alias's any more.
func endEpoch(ctx context.Context, in db.Scoped, name string, now clock.Time) error {
	if _, err := db.Exec(ctx, in, `
		UPDATE canary_epochs SET ended_at = $3 WHERE workspace_id = $1 AND id = $2 AND ended_at = 0`,
		name, now); err != nil {
		return fmt.Errorf("end epoch %s: %w", name, err)
	}
	return nil
}

// saveQuestions stores what samples ask, and returns the positions of those that are the first of the epoch to ask it.
func saveQuestions(ctx context.Context, tx *db.Tx, ws tenant.ID, e *epoch, all []sample) (map[int64]bool, error) {
	asked, rows := map[capture.Question]bool{}, [][]any{}
	for _, s := range all {
		if !asked[s.question] {
			asked[s.question] = true
			rows = append(rows, []any{string(ws), e.ID, s.question[:], s.Position})
		}
	}
	err := db.Merge(ctx, tx.Across("the rows name their workspace"), "canary_questions",
		[]string{"workspace_id", "epoch_id", "question", "position"}, 3, "position = canary_questions.position", rows)
	var first []int64
	if err == nil {
		first, err = db.Query[int64](ctx, tx.In(ws), `
			SELECT position FROM canary_questions WHERE workspace_id = $1 AND epoch_id = $2 AND position >= $3`,
			e.ID, all[0].Position)
	}
	if err != nil {
		return nil, fmt.Errorf("save the questions of draws: %w", err)
	}
	positions := make(map[int64]bool, len(first))
	for _, position := range first {
		positions[position] = true
	}
	return positions, nil
}

// saveTaken stores samples and how far the draws were taken, together: each draw is taken once. Whether a sample
// repeats a question depends on the order of drawing alone.
func saveTaken(ctx context.Context, tx *db.Tx, ws tenant.ID, e *epoch, all []sample) error {
	first, err := saveQuestions(ctx, tx, ws, e, all)
	if err != nil {
		return err
	}
	rows := make([][]any, len(all))
	for i, s := range all {
		if !first[s.Position] {
			s.Result = repeated
		}
		rows[i] = []any{
			string(ws), e.ID, s.Position, s.RequestID, s.Stratum, s.Canary, string(s.Result), int64(0), s.Latency,
			int64(s.Cost), int64(s.DrawnAt), int64(s.ExpiresAt),
		}
	}
	if err := db.Insert(ctx, tx.Across("the rows name their workspace"), "canary_samples", []string{
		"workspace_id", "epoch_id", "position", "request_id", "stratum", "canary", "result", "tries", "latency", "cost",
		"drawn_at", "expires_at",
	}, rows); err != nil {
		return fmt.Errorf("take draws: %w", err)
	}
	if _, err := db.Exec(ctx, tx.In(ws), `
		UPDATE canary_epochs SET cursors = $3, taken = $4 WHERE workspace_id = $1 AND id = $2`,
		e.ID, e.Cursors.text(), e.Taken); err != nil {
		return fmt.Errorf("take draws: %w", err)
	}
	return nil
}

const sampleColumns = `SELECT position, request_id, stratum, canary, result, tries, latency, cost, drawn_at, expires_at
	FROM canary_samples WHERE workspace_id = $1 AND epoch_id = $2`

// pendingSamples reads the first samples without a result, in the order in which they were drawn.
func pendingSamples(ctx context.Context, in db.Scoped, epochID string, most int64) ([]sample, error) {
	all, err := db.Query[sample](ctx, in, sampleColumns+` AND result = '' ORDER BY position LIMIT $3`, epochID, most)
	if err != nil {
		return nil, fmt.Errorf("read the samples to judge: %w", err)
	}
	return all, nil
}

// countPending counts the samples without a result.
func countPending(ctx context.Context, in db.Scoped, epochID string) (int64, error) {
	n, err := db.One[int64](ctx, in, `
		SELECT COUNT(*) FROM canary_samples WHERE workspace_id = $1 AND epoch_id = $2 AND result = ''`, epochID)
	if err != nil {
		return 0, fmt.Errorf("count the samples to judge: %w", err)
	}
	return n, nil
}

// nextSamples reads the samples after a position up to the first without a result.
func nextSamples(ctx context.Context, in db.Scoped, epochID string, after int64, most int) ([]sample, error) {
	all, err := db.Query[sample](ctx, in, sampleColumns+` AND position > $3 ORDER BY position LIMIT $4`,
		epochID, after, most)
	if err != nil {
		return nil, fmt.Errorf("read samples: %w", err)
	}
	for i, s := range all {
		if s.Result == pending || s.Position != after+int64(i)+1 {
			return all[:i], nil
		}
	}
	return all, nil
}

// saveResults stores what is known of samples that had no result, and what their judge cost. If another node has
// counted meanwhile, what was paid is added up anew: it may have counted these answers.
func (s *Store) saveResults(ctx context.Context, ws tenant.ID, e *epoch, all []sample, cost money.Nano) error {
	ctx = context.WithoutCancel(ctx)
	_, err := s.DB.Tx(ctx, func(tx *db.Tx) error {
		in := tx.In(ws)
		for _, one := range all {
			if _, err := db.Exec(ctx, in, `
				UPDATE canary_samples SET result = $4, tries = $5
				WHERE workspace_id = $1 AND epoch_id = $2 AND position = $3 AND result = ''`,
				e.ID, one.Position, one.Result, one.Tries); err != nil {
				return err
			}
		}
		n, err := db.Exec(ctx, in, `
			UPDATE canary_epochs SET spent = spent + $3 WHERE workspace_id = $1 AND id = $2 AND spent = $4`,
			e.ID, cost, e.Spent)
		if err == nil && n == 0 {
			err = countPaid(ctx, in, e)
		}
		return err
	})
	if err != nil {
		return fmt.Errorf("save what the judge says: %w", err)
	}
	return nil
}

// countPaid counts every answer that an epoch has paid for: the server may have died between storing an answer and
// counting it.
func countPaid(ctx context.Context, in db.Scoped, e *epoch) error {
	if _, err := db.Exec(ctx, in, `
		UPDATE canary_epochs SET spent = paid.cost FROM (
			SELECT CAST(COALESCE(SUM(cost), 0) AS BIGINT) AS cost FROM judge_answers
			WHERE workspace_id = $1 AND criterion_id = $2 AND origin = $3) AS paid
		WHERE workspace_id = $1 AND id = $3 AND spent < paid.cost`, e.CriterionID, e.ID); err != nil {
		return fmt.Errorf("sum up what %s has paid: %w", e.ID, err)
	}
	return nil
}

// saveEpoch stores the tally and the verdict of an epoch, and a point where one is due.
func saveEpoch(ctx context.Context, in db.Scoped, e *epoch, r *alias.GateReport) error {
	text, err := e.Tally.text()
	if err != nil {
		return err
	}
	if e.Shown, err = encode(r); err != nil {
		return err
	}
	if _, err := db.Exec(ctx, in, `
		UPDATE canary_epochs SET entered = $3, tally = $4, verdict = $5, automatic = $6, shown = $7, evaluated_at = $8,
			decided_at = $9, acted_at = $10 WHERE workspace_id = $1 AND id = $2`,
		e.ID, e.Entered, text, e.Verdict, e.Automatic, e.Shown, e.EvaluatedAt, e.DecidedAt, e.ActedAt); err != nil {
		return fmt.Errorf("save epoch %s: %w", e.ID, err)
	}
	last, err := db.One[int64](ctx, in, `
		SELECT COALESCE(MAX(position), 0) FROM canary_points WHERE workspace_id = $1 AND epoch_id = $2`, e.ID)
	if err != nil || !due(last, e.Entered) {
		return err
	}
	p := e.point(r)
	if _, err := db.Exec(ctx, in, `
		INSERT INTO canary_points (workspace_id, epoch_id, position, at, promote, roll_back, difference, lowest, highest,
			base_n, base_passes, canary_n, canary_passes)
		VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13)`,
		e.ID, p.Position, p.At, p.Promote, p.RollBack, p.Difference, p.Lowest, p.Highest, p.BaseN, p.BasePasses,
		p.CanaryN, p.CanaryPasses); err != nil {
		return fmt.Errorf("save a point of %s: %w", e.ID, err)
	}
	return nil
}

// points reads the evidence of an epoch over time.
func points(ctx context.Context, in db.Scoped, epochID string) ([]Point, error) {
	all, err := db.Query[Point](ctx, in, `
		SELECT at, position, promote, roll_back, difference, lowest, highest, base_n, base_passes, canary_n,
			canary_passes FROM canary_points WHERE workspace_id = $1 AND epoch_id = $2 ORDER BY position`, epochID)
	if err != nil {
		return nil, fmt.Errorf("read the points of %s: %w", epochID, err)
	}
	return all, nil
}

// maxEpochs is how many epochs of an alias are shown.
const maxEpochs = 50

// epochs reads the epochs of the aliases that had that name, the newest first.
func epochs(ctx context.Context, in db.Scoped, name string) ([]epoch, error) {
	all, err := db.Query[epoch](ctx, in, `
		SELECT `+epochColumns+` WHERE workspace_id = $1 AND alias = $2 ORDER BY started_at DESC, id DESC LIMIT $3`,
		name, maxEpochs)
	if err != nil {
		return nil, fmt.Errorf("read the epochs of %s: %w", name, err)
	}
	return all, nil
}

// sweep deletes samples with their logged exchanges, once they are counted or will not be, and the questions of epochs
// that take no more samples. Questions outlive their samples: a repeated one is recognised for as long as its epoch
// lasts.
func (s *Store) sweep(ctx context.Context) error {
	across := s.DB.Across("expired samples of all workspaces are deleted")
	err := judging.DeleteInBatches(func() (int64, error) {
		return db.Exec(ctx, across, `
			DELETE FROM canary_samples WHERE (workspace_id, epoch_id, position) IN (
				SELECT s.workspace_id, s.epoch_id, s.position FROM canary_samples s
				JOIN canary_epochs e ON e.workspace_id = s.workspace_id AND e.id = s.epoch_id
				WHERE s.expires_at <= $1 AND (s.position <= e.entered OR e.ended_at > 0 OR e.acted_at > 0)
				ORDER BY s.expires_at LIMIT $2)`,
			s.now(), judging.DeleteBatch)
	})
	if err == nil {
		err = judging.DeleteInBatches(func() (int64, error) {
			return db.Exec(ctx, across, `
				DELETE FROM canary_questions WHERE (workspace_id, epoch_id, question) IN (
					SELECT q.workspace_id, q.epoch_id, q.question FROM canary_epochs e
					JOIN canary_questions q ON q.workspace_id = e.workspace_id AND q.epoch_id = e.id
					WHERE e.ended_at > 0 OR e.acted_at > 0 LIMIT $1)`, judging.DeleteBatch)
		})
	}
	if err != nil {
		return fmt.Errorf("sweep samples: %w", err)
	}
	return nil
}
