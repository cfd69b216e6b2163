package draft

import (
	"context"

	"sovereign/internal/base/fault"
	"sovereign/internal/base/tenant"
	"sovereign/internal/domain/judging"
	"sovereign/internal/grade/judge"
	"sovereign/internal/plane/infer"
	"sovereign/internal/store/db"
	"sovereign/internal/store/job"
	"sovereign/internal/text/redact"
)

// A kindOfDraft says how drafts of one kind are asked for and read.
type kindOfDraft struct {
	kind judging.Kind
	ask  func(ctx context.Context, ws tenant.ID, t *judging.Task, r Request) (prompt, error)
	read func(answer []byte, into *result) error
}

func (s *Store) improving() kindOfDraft {
	return kindOfDraft{improvements, func(ctx context.Context, ws tenant.ID, t *judging.Task, r Request) (
		prompt, error,
	) {
		return s.improvementPrompt(ctx, ws, t.CriterionID, r.Model)
	}, readImprovement}
}

func (s *Store) suggesting() kindOfDraft {
	return kindOfDraft{suggestions, func(ctx context.Context, ws tenant.ID, t *judging.Task, r Request) (
		prompt, error,
	) {
		if err := s.Open(ctx, ws); err != nil {
			return nil, err
		}
		return s.suggestionPrompt(ctx, ws, r, seed(t.ID), true)
	}, readSuggestion}
}

// work is the job of a draft: one question, whose answer is stored before it is charged. A run after a crash finds the
// stored answer.
func (s *Store) work(d kindOfDraft) job.Work {
	return func(ctx context.Context, run *job.Run) error {
		t, err := d.kind.Of(ctx, s.DB, run)
		if err != nil {
			return err
		}
		var request Request
		var res result
		if err := t.Decode(&request, &res); err != nil {
			return err
		}
		if t.Result == "" {
			ask, err := d.ask(ctx, run.Workspace, t, request)
			if err != nil {
				return err
			}
			if err := s.complete(ctx, run, request.Model, ask, d.read, &res); err != nil {
				return err
			}
		}
		if res.Failure != "" {
			return fault.Precondition.New("the model gave no draft that can be used: %s", res.Failure)
		}
		return run.Finish(ctx, func(_ *db.Tx, tally *job.Tally) error {
			tally.Done = tally.Total
			return nil
		})
	}
}

// complete asks the model, and stores the result.
func (s *Store) complete(ctx context.Context, run *job.Run, model string, ask prompt,
	read func([]byte, *result) error, res *result,
) error {
	saving := context.WithoutCancel(ctx)
	return s.Judges.Complete(ctx, run.Workspace, &judging.Completion{
		Origin: run.ID, Model: model, MaxTokens: maxTokens,
		Body: func(mode judge.Mode) (body []byte, err error) {
			body, res.Taken, err = ask(mode)
			return body, err
		},
		Keep: func(a *infer.Answer) error {
			clean, _ := redact.JSON(a.Body)
			if err := read(clean, res); err != nil {
				res.Failure = err.Error()
			}
			return run.Tx(saving, func(tx *db.Tx, tally *job.Tally) error {
				tally.Cost += a.Cost
				return judging.SaveResult(saving, tx.In(run.Workspace), run.ID, *res)
			})
		},
	})
}
