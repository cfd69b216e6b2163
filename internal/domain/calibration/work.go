package calibration

import (
	"context"
	"fmt"

	"sovereign/internal/base/tenant"
	"sovereign/internal/domain/criterion"
	"sovereign/internal/domain/judging"
	"sovereign/internal/domain/label"
	"sovereign/internal/grade/judge"
	"sovereign/internal/store/db"
	"sovereign/internal/store/job"
)

// work is the job of a calibration. It adds a row for each item, asks the judge about each row, and certifies the
// result. It continues where an earlier run has stopped.
func (s *Store) work(ctx context.Context, run *job.Run) error {
	in := s.db.In(run.Workspace)
	r, err := s.ofRun(ctx, run)
	if err != nil {
		return err
	}
	c, err := criterion.Find(ctx, in, r.CriterionID)
	if err != nil {
		return err
	}
	if err := r.checkVersion(c.Version); err != nil {
		return err
	}
	if err := enrolAll(ctx, run, r, c); err != nil {
		return err
	}
	budget, err := s.judges.Resume(ctx, run, r.CriterionID, r.MaxCost)
	if err != nil {
		return err
	}
	told, err := c.Instructions(ctx, in)
	if err != nil {
		return err
	}
	if err := s.judgeRows(ctx, run, r, told, budget); err != nil {
		return err
	}
	return run.Finish(ctx, func(tx *db.Tx, _ *job.Tally) error { return s.align(ctx, tx, run.Workspace, r) })
}

// enrolAll adds a row for every item that had none when an earlier run stopped.
func enrolAll(ctx context.Context, run *job.Run, r *record, c *criterion.Record) error {
	shown, err := c.ExampleItems()
	if err != nil {
		return err
	}
	for more := r.Enrolled < r.Last; more; {
		if err := run.Tx(ctx, func(tx *db.Tx, tally *job.Tally) (err error) {
			more, err = enrol(ctx, tx, run.Workspace, r, shown, tally)
			return err
		}); err != nil {
			return fmt.Errorf("enrol items: %w", err)
		}
	}
	return nil
}

// judgeRows asks the judge about the rows that are pending. The answers of a batch are saved whatever ends the run.
func (s *Store) judgeRows(ctx context.Context, run *job.Run, r *record, told *judge.Instructions,
	budget *judging.Budget,
) error {
	var outage judging.OutageCounter
	for batch := s.judges.FirstBatch(); ; batch = judging.Batch {
		items, err := s.pendingItems(ctx, run.Workspace, r.ID, batch)
		if err != nil || len(items) == 0 {
			return err
		}
		load := func(ctx context.Context, item string) (*judging.Question, error) {
			subject, err := label.Item(ctx, s.db.In(run.Workspace), []byte(item))
			if err != nil {
				if label.IsDeleted(err) {
					err = nil
				}
				return nil, err
			}
			return &judging.Question{
				CriterionID: r.CriterionID, Origin: r.ID, Model: r.JudgeModel, Instructions: told,
				Subject: &subject, Fresh: r.Fresh,
			}, nil
		}
		answers, asking := s.judges.AskAll(ctx, run.Workspace, budget, items, "gone: the label was deleted", load)
		if outage.Add(answers) && asking == nil {
			return r.noAnswers()
		}
		saving := context.WithoutCancel(ctx)
		if err := run.Save(saving, func(tx *db.Tx, tally *job.Tally) error {
			return saveAnswers(saving, tx.In(run.Workspace), r.ID, answers, tally)
		}); err != nil {
			return err
		}
		if err := s.checkVersion(ctx, run.Workspace, r); err != nil {
			return err
		}
		if asking != nil {
			return asking
		}
	}
}

// checkVersion refuses to go on when the criterion has changed.
func (s *Store) checkVersion(ctx context.Context, ws tenant.ID, r *record) error {
	c, err := criterion.Find(ctx, s.db.In(ws), r.CriterionID)
	if err != nil {
		return err
	}
	return r.checkVersion(c.Version)
}
