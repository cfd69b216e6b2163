package monitor

import (
	"context"
	"fmt"

	"sovereign/internal/base/clock"
	"sovereign/internal/base/tenant"
	"sovereign/internal/domain/criterion"
	"sovereign/internal/grade/judge"
	"sovereign/internal/store/db"
)

// A Judgement is what a judge said of a logged exchange that is still there.
type Judgement struct {
	RequestID string
	Judge     judge.Verdict
	Grade     float64
	Critique  string
	ExpiresAt clock.Time
}

// Judgements reads what a judge said in a scan: failures first, then the newest. An empty verdict selects all.
func (s *Store) Judgements(ctx context.Context, ws tenant.ID, criterionID, scanID string, v judge.Verdict, limit int,
) ([]Judgement, error) {
	if _, err := scans.Find(ctx, s.db.In(ws), criterionID, scanID); err != nil {
		return nil, err
	}
	return s.judgements(ctx, ws, scanID,
		`($4 = '' OR judge = $4) ORDER BY CASE WHEN judge = 'fail' THEN 0 ELSE 1 END`, limit, v)
}

// Uncertain reads what a judge was least sure of, in a scan or, without one, in the traffic that it monitors: what
// has the grades that are nearest to the threshold comes first.
func (s *Store) Uncertain(ctx context.Context, ws tenant.ID, criterionID, scanID string, limit int,
) ([]Judgement, error) {
	c, err := criterion.Find(ctx, s.db.In(ws), criterionID)
	if err != nil {
		return nil, err
	}
	runID := criterionID
	if scanID != "" {
		if _, err := scans.Find(ctx, s.db.In(ws), criterionID, scanID); err != nil {
			return nil, err
		}
		runID = scanID
	}
	return s.judgements(ctx, ws, runID, `judge <> '' ORDER BY ABS(grade - $4)`, limit, c.PassThreshold)
}

// judgements reads verdicts. which is a condition with an order; its argument is $4.
func (s *Store) judgements(ctx context.Context, ws tenant.ID, runID, which string, limit int, arg any,
) ([]Judgement, error) {
	all, err := db.Query[Judgement](ctx, s.db.In(ws), `
		SELECT request_id, judge, grade, critique, expires_at FROM judged_logs
		WHERE workspace_id = $1 AND run_id = $2 AND NOT pending AND judge <> '' AND request_id <> '' AND expires_at > $3
			AND `+which+`, log_id DESC LIMIT $5`, runID, clock.Now(), arg, limit)
	if err != nil {
		return nil, fmt.Errorf("read what was judged: %w", err)
	}
	return all, nil
}
