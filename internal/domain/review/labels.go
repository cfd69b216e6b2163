package review

import (
	"context"
	"net/http"

	"sovereign/internal/base/fault"
	"sovereign/internal/base/tenant"
	"sovereign/internal/domain/label"
	"sovereign/internal/grade/judge"
	"sovereign/internal/store/db"
)

// Labels keeps what people grade. label.Store does.
type Labels interface {
	// Get reads a label with what was graded.
	Get(ctx context.Context, ws tenant.ID, labelID string) (label.Label, error)
	// Prepare copies what is graded. It is called before the transaction, since the logs are in another database.
	Prepare(ctx context.Context, ws tenant.ID, n label.New) (*label.Prepared, error)
	// PrepareAgain is Prepare of what a label grades, from the label's own copy.
	PrepareAgain(ctx context.Context, ws tenant.ID, labelID string, n label.New) (*label.Prepared, error)
	// PutReview makes the label of a grade, in place of the person's own label of the same item and criterion.
	PutReview(ctx context.Context, tx *db.Tx, ws tenant.ID, by tenant.Actor, p *label.Prepared) (label.Label, error)
	// TakeBack deletes a label that the person made in a review.
	TakeBack(ctx context.Context, tx *db.Tx, ws tenant.ID, by tenant.Actor, labelID string) error
}

// Contents reads what is logged. logbook.Handler does.
type Contents interface {
	// Open refuses while the logs may not be read.
	Open(ctx context.Context, ws tenant.ID) error
	// Request reads the exchange of a request.
	Request(ctx context.Context, ws tenant.ID, requestID string) (step judge.Step, trace string, err error)
	// Steps reads the steps of a run in their order.
	Steps(ctx context.Context, ws tenant.ID, trace string) ([]judge.Step, error)
}

// steps reads what an item refers to.
func (s *Store) steps(ctx context.Context, ws tenant.ID, r ref) ([]judge.Step, error) {
	requestID, trace, labelID := r.split()
	if labelID != "" {
		l, err := s.Labels.Get(ctx, ws, labelID)
		if err != nil {
			return nil, err
		}
		return l.Subject.Steps, nil
	}
	if err := s.Contents.Open(ctx, ws); err != nil {
		return nil, err
	}
	if trace != "" {
		return s.Contents.Steps(ctx, ws, trace)
	}
	step, _, err := s.Contents.Request(ctx, ws, requestID)
	return []judge.Step{step}, err
}

// prepareLabel makes the label of a grade, as far as that is possible before the transaction.
func (s *Store) prepareLabel(ctx context.Context, ws tenant.ID, q *queueRecord, r ref, in *NewGrade,
) (*label.Prepared, error) {
	n := label.New{
		CriterionID: q.CriterionID, Verdict: in.Verdict, Grade: in.Grade, Critique: in.Critique,
		Source: label.FromReview,
	}
	requestID, trace, labelID := r.split()
	if labelID != "" {
		return s.Labels.PrepareAgain(ctx, ws, labelID, n)
	}
	n.RequestID, n.TraceID = requestID, trace
	return s.Labels.Prepare(ctx, ws, n)
}

// takeBack deletes the label of a grade. One that was deleted meanwhile needs not be.
func (s *Store) takeBack(ctx context.Context, tx *db.Tx, ws tenant.ID, by tenant.Actor, labelID string) error {
	err := s.Labels.TakeBack(ctx, tx, ws, by, labelID)
	if err != nil && fault.From(err).Status == http.StatusNotFound {
		return nil
	}
	return err
}
