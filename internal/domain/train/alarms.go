package train

import (
	"context"
	"fmt"
	"time"

	"sovereign/internal/base/clock"
	"sovereign/internal/base/tenant"
	"sovereign/internal/store/db"
	"sovereign/internal/store/module"
)

const (
	alarmFor   = 7 * 24 * time.Hour // how long a failed run is an alarm
	mostAlarms = 10
)

// Alarms returns the fine-tuning jobs and GRPO runs that failed of late, the last one first. Why is said of jobs alone:
// not everybody who reads alarms may read GRPO runs.
func (s *Store) Alarms(ctx context.Context, ws tenant.ID) ([]module.Notice, error) {
	type failed struct {
		ID, Method, BaseModel, ErrorMessage string
		FinishedAt                          clock.Time
	}
	rows, err := db.Query[failed](ctx, s.DB.In(ws), `
		SELECT id, method, base_model, CASE WHEN kind = 'grpo_run' THEN '' ELSE error_message END AS error_message, finished_at
		FROM training_runs WHERE workspace_id = $1 AND status = 'FAILED' AND finished_at > $2
			AND kind IN ('fine_tuning_job', 'grpo_run') ORDER BY finished_at DESC, id LIMIT $3`,
		s.now().Add(-alarmFor), mostAlarms)
	if err != nil {
		return nil, fmt.Errorf("read failed runs: %w", err)
	}
	all := make([]module.Notice, len(rows))
	for i, r := range rows {
		all[i] = module.Notice{
			Kind: "training.failed", Subject: r.ID,
			Title: fmt.Sprintf("Training of %s (%s) failed", r.BaseModel, r.Method), Detail: r.ErrorMessage,
			At: r.FinishedAt, Link: module.Link{Page: "training/runs/" + r.ID},
		}
	}
	return all, nil
}
