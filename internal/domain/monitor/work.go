package monitor

import (
	"context"
	"net/http"

	"sovereign/internal/base/clock"
	"sovereign/internal/base/fault"
	"sovereign/internal/base/tenant"
	"sovereign/internal/domain/criterion"
	"sovereign/internal/domain/judging"
	"sovereign/internal/grade/judge"
	"sovereign/internal/store/db"
	"sovereign/internal/store/job"
)

// scan is the job of a scan. It judges the rows that are pending, and saves the rates when there are no more.
func (s *Store) scan(ctx context.Context, run *job.Run) error {
	in := s.db.In(run.Workspace)
	t, err := scans.Of(ctx, s.db, run)
	if err != nil {
		return err
	}
	c, err := s.current(ctx, in, t)
	if err != nil {
		return err
	}
	var request scanRequest
	if err := t.Decode(&request, new(Rates)); err != nil {
		return err
	}
	told, err := c.Instructions(ctx, in)
	if err != nil {
		return err
	}
	budget, err := s.judges.Resume(ctx, run, t.CriterionID, request.MaxCost)
	if err != nil {
		return err
	}
	var outage judging.OutageCounter
	for batch := s.judges.FirstBatch(); ; batch = judging.Batch {
		rows, err := s.pendingLogs(ctx, run.Workspace, t.ID, batch)
		if err != nil {
			return err
		}
		if len(rows) == 0 {
			return run.Finish(ctx, func(tx *db.Tx, _ *job.Tally) error {
				return finishScan(ctx, tx.In(run.Workspace), t)
			})
		}
		if err := s.open(ctx, run.Workspace); err != nil { // logging may have been turned off
			return err
		}
		answers, asking := s.judge(ctx, run.Workspace, c, t.ID, told, rows, budget)
		if outage.Add(answers) && asking == nil {
			return fault.Precondition.New("the judge model %s gives no answers", c.JudgeModel)
		}
		if err := saveScanned(ctx, run, t.ID, answers); err != nil {
			return err
		}
		if asking != nil {
			return asking
		}
		if c, err = s.current(ctx, in, t); err != nil {
			return err
		}
	}
}

// current reads the criterion of a scan, and refuses another version than the scan began with.
func (s *Store) current(ctx context.Context, in db.Scoped, t *judging.Task) (*criterion.Record, error) {
	c, err := criterion.Find(ctx, in, t.CriterionID)
	if err != nil {
		return nil, err
	}
	return c, checkVersion(t, c.Version)
}

// saveScanned saves answers whatever ends the run.
func saveScanned(ctx context.Context, run *job.Run, scanID string, answers map[string]judging.Answer) error {
	saving := context.WithoutCancel(ctx)
	return run.Save(saving, func(tx *db.Tx, tally *job.Tally) error {
		n, cost, err := saveAnswers(saving, tx.In(run.Workspace), scanID, answers)
		tally.Done += n
		tally.Cost += cost
		return err
	})
}

// judge asks a judge about logged exchanges. The answers that came before an error are returned with it.
func (s *Store) judge(ctx context.Context, ws tenant.ID, c *criterion.Record, origin string, told *judge.Instructions,
	rows []pendingLog, budget *judging.Budget,
) (map[string]judging.Answer, error) {
	ids, expires := make([]string, len(rows)), make(map[string]clock.Time, len(rows))
	for i, r := range rows {
		ids[i], expires[r.LogID] = r.LogID, r.ExpiresAt
	}
	return s.judges.AskAll(ctx, ws, budget, ids, "gone: the exchange was deleted", func(ctx context.Context, logID string) (*judging.Question, error) {
		step, err := s.logs.Read(ctx, ws, logID)
		if err != nil {
			if fault.From(err).Status == http.StatusNotFound {
				err = nil
			}
			return nil, err
		}
		return &judging.Question{
			CriterionID: c.ID, Origin: origin, Model: c.JudgeModel, Instructions: told,
			Subject: &judge.Subject{Steps: []judge.Step{step}}, ExpiresAt: expires[logID],
		}, nil
	})
}
