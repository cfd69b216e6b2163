package train

import (
	"context"
	"fmt"
	"math"

	"github.com/go-json-experiment/json"

	"sovereign/internal/base/money"
	"sovereign/internal/base/tenant"
	"sovereign/internal/live"
	"sovereign/internal/store/db"
)

// A Metered is what a run has used and spent.
type Metered struct {
	GPUType string     // of the last worker; empty before the first
	Seconds int64      // of all GPUs, in attempts that are or will be charged
	Spent   money.Nano // as the ledger says
	Accrued money.Nano // by the attempt that runs, and those that are not charged yet
}

// Metered returns what a run has used and spent.
func (s *Store) Metered(ctx context.Context, r *Run) (m Metered, err error) {
	if m.Spent, err = s.Holds.Spent(ctx, r.Workspace, r.ID); err != nil {
		return m, err
	}
	all, err := db.Query[attempt](ctx, s.DB.In(r.Workspace), `SELECT `+attemptColumns+`
		WHERE workspace_id = $1 AND run_id = $2 ORDER BY attempt`, r.ID)
	if err != nil {
		return m, fmt.Errorf("read the attempts of a run: %w", err)
	}
	for i := range all {
		a := &all[i]
		m.GPUType = a.GPUType
		if a.Charge != chargeFree {
			m.Seconds += a.seconds()
		}
		if a.Charge == "" || a.Charge == chargeDue {
			m.Accrued += a.cost()
		}
	}
	return m, nil
}

// Cost returns what seconds of a GPU cost, if it has a price.
func (s *Store) Cost(gpuType string, seconds int64) (money.Nano, bool) {
	rate, ok := s.Prices.rate(gpuType)
	return live.Rates{GPUSecond: rate}.Of(live.Usage{GPUSeconds: seconds}), ok
}

// Speed returns the speed at which one GPU trains a model, in tokens per second, measured by the runs that succeeded.
// It is 0 if none has.
func (s *Store) Speed(ctx context.Context, baseModel, gpuType string) (float64, error) {
	type sums struct{ Tokens, Metered int64 }
	found, err := db.One[sums](ctx, s.DB.Across("the speed of a model is that of all its runs"), `
		SELECT CAST(COALESCE(SUM(tokens), 0) AS BIGINT) AS tokens, CAST(COALESCE(SUM(metered), 0) AS BIGINT) AS metered FROM (
			SELECT r.tokens AS tokens, a.metered * a.gpu_count AS metered FROM training_runs r JOIN training_attempts a
				ON a.workspace_id = r.workspace_id AND a.run_id = r.id
			WHERE r.status = 'SUCCEEDED' AND r.base_model = $1 AND r.attempt = 1 AND a.gpu_type = $2
			ORDER BY r.finished_at DESC LIMIT 20) latest`, baseModel, gpuType)
	if err != nil {
		return 0, fmt.Errorf("read the speed of a model: %w", err)
	}
	if found.Metered == 0 {
		return 0, nil
	}
	return float64(found.Tokens) / (float64(found.Metered) / 1e6), nil
}

// Fail ends a run whose data cannot be used.
func (s *Store) Fail(ctx context.Context, tx *db.Tx, ws tenant.ID, kind, runID, code, message string) error {
	r, err := s.Find(ctx, tx.In(ws), kind, runID)
	if err != nil || r.Status.Final() {
		return err
	}
	if err := s.tell(ctx, tx, &r, "error", message); err != nil {
		return err
	}
	return s.fail(ctx, tx, &r, code, message)
}

// Best returns the checkpoint with the lowest value of a metric, or the last one where none has it.
func (s *Store) Best(ctx context.Context, in db.Scoped, runID, metric string) (Checkpoint, error) {
	rows, err := db.Query[checkpointRow](ctx, in, `SELECT `+checkpointColumns+` ORDER BY step DESC`, runID)
	switch {
	case err != nil:
		return Checkpoint{}, fmt.Errorf("list checkpoints: %w", err)
	case len(rows) == 0:
		return Checkpoint{}, fmt.Errorf("run %s has no checkpoint", runID)
	}
	best, lowest := 0, math.Inf(1)
	for i := range rows {
		var values map[string]float64
		if rows[i].Metrics != "" {
			if err := json.Unmarshal([]byte(rows[i].Metrics), &values); err != nil {
				return Checkpoint{}, fmt.Errorf("read the metrics of a checkpoint: %w", err)
			}
		}
		if value, ok := values[metric]; ok && value < lowest {
			best, lowest = i, value
		}
	}
	return rows[best].checkpoint(), nil
}

// WorkerOf returns what the worker of an attempt last said of itself.
func (s *Store) WorkerOf(ctx context.Context, in db.Scoped, runID string, attempt int64) (Info, error) {
	text, err := db.Maybe[string](ctx, in.Across(ofAll), `
		SELECT w.info FROM training_attempts a JOIN workers w ON w.id = a.worker_id WHERE a.run_id = $1 AND a.attempt = $2`,
		runID, attempt)
	if err != nil {
		return Info{}, fmt.Errorf("find the worker of an attempt: %w", err)
	}
	var found Info
	if text != nil {
		err = found.Scan(*text)
	}
	return found, err
}

// LastMetrics returns the metrics that a run told last: nil before the first.
func (s *Store) LastMetrics(ctx context.Context, in db.Scoped, runID string) (map[string]float64, error) {
	text, err := db.Maybe[string](ctx, in, `SELECT data FROM training_events
		WHERE workspace_id = $1 AND run_id = $2 AND type = 'metrics' ORDER BY seq DESC LIMIT 1`, runID)
	if err != nil || text == nil || *text == "" {
		return nil, err
	}
	var values map[string]float64
	if err := json.Unmarshal([]byte(*text), &values); err != nil {
		return nil, fmt.Errorf("read metrics: %w", err)
	}
	return values, nil
}

// Leased returns the run that a worker has leased, for what a domain does for its workers beside training.
func (s *Store) Leased(ctx context.Context, c tenant.Caller, h LeaseRef) (Run, error) {
	found, _, err := s.running(ctx, s.DB, workerOf(c), h)
	if err != nil {
		return Run{}, err
	}
	return *found, nil
}

// LastBefore returns the last checkpoint of a run whose step is at most this one, or any if that is below 0; nil, if
// there is none.
func (s *Store) LastBefore(ctx context.Context, in db.Scoped, runID string, step int64) (*Checkpoint, error) {
	if step < 0 {
		return s.lastCheckpoint(ctx, in, runID)
	}
	return maybeCheckpoint(ctx, in, ` AND step <= $3 ORDER BY step DESC LIMIT 1`, runID, step)
}
