package draft

import (
	"context"
	"crypto/sha256"
	"slices"

	"sovereign/internal/base/fault"
	"sovereign/internal/base/money"
	"sovereign/internal/base/tenant"
	"sovereign/internal/domain/calibration"
	"sovereign/internal/domain/criterion"
	"sovereign/internal/domain/judging"
	"sovereign/internal/domain/label"
	"sovereign/internal/domain/logbook"
	"sovereign/internal/grade/judge"
	"sovereign/internal/store/audit"
	"sovereign/internal/store/db"
	"sovereign/internal/store/job"
)

// Logs reads logged exchanges.
type Logs interface {
	Draw(ctx context.Context, ws tenant.ID, f *logbook.Filters, size int, seed uint64, each func(*logbook.Drawn) bool) (pool int, err error)
	Selects(ctx context.Context, ws tenant.ID, f *logbook.Filters, requestID, trace string) (bool, error)
}

// A Config says what a Store needs.
type Config struct {
	DB       *db.DB
	Criteria *criterion.Store
	Judges   *judging.Client
	Logs     Logs
	Open     func(context.Context, tenant.ID) error // refuses a workspace whose logs may not be read now
	Models   criterion.Models
}

// A Store keeps drafts. Every change is audited in its own transaction.
type Store struct{ Config }

// NewStore returns a store.
func NewStore(c Config) *Store { return &Store{c} }

const (
	maxTokens     = 16_384  // of a draft
	typicalTokens = 1200    // what an estimate assumes
	maxCases      = 60      // disagreements of an improvement
	maxRead       = 4 << 20 // bytes that are read for a suggestion; the model is shown less
	maxCritiques  = 1000    // that are looked through for those that the filters select
	critiqueBatch = 50      // that are read at once
)

// improvementPrompt makes the question for a better rubric.
func (s *Store) improvementPrompt(ctx context.Context, ws tenant.ID, criterionID, model string) (prompt, error) {
	in := s.DB.In(ws)
	c, err := criterion.Find(ctx, in, criterionID)
	if err != nil {
		return nil, err
	}
	cases, err := calibration.Disagreements(ctx, in, c.ID, c.Version, maxCases)
	if err != nil {
		return nil, err
	}
	if len(cases) == 0 {
		return nil, fault.Precondition.New(
			"there is nothing to improve on: no calibration of version %d has a disagreement in the tuning half",
			c.Version,
		)
	}
	told := &judge.Instructions{Rubric: c.Rubric, Scale: c.Scale, Threshold: c.PassThreshold}
	return func(mode judge.Mode) ([]byte, int, error) { return told.Improve(model, cases, mode) }, nil
}

// A candidate is a logged exchange that a suggestion may be made from.
type candidate struct {
	subject   judge.Subject
	relations label.Relations
}

// suggestionPrompt makes the question for new criteria from critiques and logged exchanges of the tuning half. An
// exchange without a label is in the half that it would be in if it had one. When record is set, the exchanges that the
// model is shown are assigned to the tuning half for good.
func (s *Store) suggestionPrompt(ctx context.Context, ws tenant.ID, r Request, seed uint64, record bool,
) (prompt, error) {
	said, err := s.critiques(ctx, ws, r.Filters.Filters(), r.Size/2)
	if err != nil {
		return nil, err
	}
	quoted := quotations{}
	for _, sample := range said {
		quoted.add(sample.Subject)
	}
	var drawn []candidate
	left := maxRead
	if _, err := s.Logs.Draw(ctx, ws, r.Filters.Filters(), 4*r.Size, seed, func(row *logbook.Drawn) bool {
		subject := judge.Subject{Steps: []judge.Step{row.Step()}}
		if !quoted.add(subject) {
			return true
		}
		drawn = append(drawn, candidate{subject, label.RelationsOf(subject.Steps, row.TraceID)})
		left -= size(subject)
		return left > 0
	}); err != nil {
		return nil, err
	}
	var samples []judge.Sample
	_, err = s.DB.Tx(ctx, func(tx *db.Tx) (err error) {
		samples, err = addTuning(ctx, tx, ws, slices.Clone(said), drawn, r.Size, record)
		return err
	})
	if err != nil {
		return nil, err
	}
	if len(samples) == 0 {
		return nil, fault.Precondition.New("there is nothing to learn from: no critique, and no logged exchange that matches the filters")
	}
	return func(mode judge.Mode) ([]byte, int, error) { return judge.Suggest(r.Model, samples, mode) }, nil
}

// quotations are the identities of the exchanges that a prompt quotes.
type quotations map[[sha256.Size]byte]bool

// add adds the steps of a subject, and reports whether any was not quoted yet. A step that cannot be read is new.
func (q quotations) add(s judge.Subject) (fresh bool) {
	for _, step := range s.Steps {
		one := judge.Subject{Steps: []judge.Step{step}}
		id, err := one.Identity()
		fresh = fresh || err != nil || !q[id]
		q[id] = err == nil
	}
	return fresh
}

// addTuning adds the candidates of the tuning half to the samples, up to limit.
func addTuning(ctx context.Context, tx *db.Tx, ws tenant.ID, samples []judge.Sample, drawn []candidate, limit int,
	record bool,
) ([]judge.Sample, error) {
	relations := make([]label.Relations, len(drawn))
	for i := range drawn {
		relations[i] = drawn[i].relations
	}
	halves, err := label.OpenSplit(ctx, tx, ws, relations...)
	if err != nil {
		return nil, err
	}
	for _, c := range drawn {
		if len(samples) == limit {
			break
		}
		if halves.Half(c.relations) != label.Tuning {
			continue
		}
		samples = append(samples, judge.Sample{Subject: c.subject})
		if record {
			halves.Assign(c.relations, label.Tuning)
		}
	}
	return samples, halves.Save(ctx, tx, ws)
}

// critiques reads what people said of exchanges in the tuning half that the filters select, the newest first. An item
// that several labels grade is quoted once.
func (s *Store) critiques(ctx context.Context, ws tenant.ID, f *logbook.Filters, limit int) ([]judge.Sample, error) {
	in, left := s.DB.In(ws), maxRead/2
	var samples []judge.Sample
	quoted := map[string]int{} // the sample of an item
	for offset := 0; offset < maxCritiques && len(samples) < limit; offset += critiqueBatch {
		rows, err := label.Critiques(ctx, in, critiqueBatch, offset)
		if err != nil {
			return nil, err
		}
		for _, r := range rows {
			selected, err := s.selects(ctx, ws, f, &r)
			if err != nil {
				return nil, err
			}
			if !selected {
				continue
			}
			if i, known := quoted[string(r.Item)]; known {
				samples[i].Critique += "\n" + r.Critique
				continue
			}
			subject, err := label.Item(ctx, in, r.Item)
			if err != nil {
				return nil, err
			}
			quoted[string(r.Item)] = len(samples)
			samples = append(samples, judge.Sample{Subject: subject, Critique: r.Critique})
			if left -= size(subject); left < 0 || len(samples) == limit {
				return samples, nil
			}
		}
		if len(rows) < critiqueBatch {
			break
		}
	}
	return samples, nil
}

// selects reports whether filters select what a critique is about. They are about logged exchanges: anything else is
// selected only where there are none.
func (s *Store) selects(ctx context.Context, ws tenant.ID, f *logbook.Filters, c *label.Critique) (bool, error) {
	if *f == (logbook.Filters{}) {
		return true, nil
	}
	if c.RequestID == "" && c.TraceID == "" {
		return false, nil
	}
	return s.Logs.Selects(ctx, ws, f, c.RequestID, c.TraceID)
}

// size returns the bytes of a subject.
func size(s judge.Subject) (n int) {
	for _, step := range s.Steps {
		n += len(step.Messages) + len(step.Response) + len(step.Tools)
	}
	return n
}

// estimate estimates the cost of a draft.
func (s *Store) estimate(ws tenant.ID, model string, ask prompt) (money.Nano, error) {
	body, _, err := ask(judge.Structured)
	if err != nil {
		return 0, err
	}
	return s.Judges.EstimateBody(ws, model, body, maxTokens, typicalTokens)
}

// Improve begins to draft a better rubric. Without a model in the request, the judge's own drafts it.
func (s *Store) Improve(ctx context.Context, ws tenant.ID, by tenant.Actor, criterionID string, r Request,
	limit judging.Spending,
) (Improvement, error) {
	c, err := criterion.Find(ctx, s.DB.In(ws), criterionID)
	if err != nil {
		return Improvement{}, err
	}
	if r.Model == "" {
		r.Model = c.JudgeModel
	}
	ask, err := s.improvementPrompt(ctx, ws, criterionID, r.Model)
	if err != nil {
		return Improvement{}, err
	}
	estimate, err := s.estimate(ws, r.Model, ask)
	if err != nil {
		return Improvement{}, err
	}
	if err := limit.Allows(estimate); err != nil {
		return Improvement{}, err
	}
	var started Improvement
	_, err = s.DB.Tx(ctx, func(tx *db.Tx) error {
		c, err := criterion.Find(ctx, tx.In(ws), criterionID)
		if err != nil {
			return err
		}
		t, err := improvements.Start(ctx, tx, ws, by, &judging.NewTask{
			CriterionID: c.ID, Version: c.Version,
			Request: r, Total: 1, Estimate: estimate,
		})
		if err != nil {
			return err
		}
		started, err = newImprovement(t)
		return err
	})
	return started, err
}

// checkSuggestion refuses a suggestion that cannot be made.
func (s *Store) checkSuggestion(ctx context.Context, ws tenant.ID, r *Request) error {
	if err := s.Open(ctx, ws); err != nil {
		return err
	}
	if r.Model == "" {
		return fault.Invalid("model", "is required")
	}
	if err := s.Models.Chats(ws, "model", r.Model); err != nil {
		return err
	}
	return r.Filters.Check("filters.")
}

// Suggest begins to draft criteria.
func (s *Store) Suggest(ctx context.Context, ws tenant.ID, by tenant.Actor, r Request, limit judging.Spending,
) (Suggested, error) {
	ask, err := s.suggestionPrompt(ctx, ws, r, 1, false)
	if err != nil {
		return Suggested{}, err
	}
	estimate, err := s.estimate(ws, r.Model, ask)
	if err != nil {
		return Suggested{}, err
	}
	if err := limit.Allows(estimate); err != nil {
		return Suggested{}, err
	}
	var started Suggested
	_, err = s.DB.Tx(ctx, func(tx *db.Tx) error {
		t, err := suggestions.Start(ctx, tx, ws, by, &judging.NewTask{Request: r, Total: 1, Estimate: estimate})
		if err != nil {
			return err
		}
		started, err = newSuggested(t)
		return err
	})
	return started, err
}

// Improvement reads an improvement.
func (s *Store) Improvement(ctx context.Context, ws tenant.ID, criterionID, name string) (Improvement, error) {
	t, err := improvements.Find(ctx, s.DB.In(ws), criterionID, name)
	if err != nil {
		return Improvement{}, err
	}
	return newImprovement(t)
}

// Improvements reads the improvements of a criterion, the newest first.
func (s *Store) Improvements(ctx context.Context, ws tenant.ID, criterionID string, limit, offset int,
) ([]Improvement, error) {
	if _, err := criterion.Find(ctx, s.DB.In(ws), criterionID); err != nil {
		return nil, err
	}
	return list(ctx, s.DB.In(ws), improvements, criterionID, limit, offset, newImprovement)
}

// Suggested reads a suggestion.
func (s *Store) Suggested(ctx context.Context, ws tenant.ID, name string) (Suggested, error) {
	t, err := suggestions.Find(ctx, s.DB.In(ws), "", name)
	if err != nil {
		return Suggested{}, err
	}
	return newSuggested(t)
}

// AllSuggested reads a workspace's suggestions, the newest first.
func (s *Store) AllSuggested(ctx context.Context, ws tenant.ID, limit, offset int) ([]Suggested, error) {
	return list(ctx, s.DB.In(ws), suggestions, "", limit, offset, newSuggested)
}

func list[T any](ctx context.Context, in db.Scoped, kind judging.Kind, criterionID string, limit, offset int,
	decode func(*judging.Task) (T, error),
) ([]T, error) {
	tasks, err := kind.List(ctx, in, criterionID, limit, offset)
	if err != nil {
		return nil, err
	}
	all := make([]T, len(tasks))
	for i := range tasks {
		if all[i], err = decode(&tasks[i]); err != nil {
			return nil, err
		}
	}
	return all, nil
}

// Adopt makes a draft the criterion's rubric. That is a new version, which has no certificate yet. Adopting a draft
// again changes nothing.
func (s *Store) Adopt(ctx context.Context, ws tenant.ID, by tenant.Actor, criterionID, name string,
) (criterion.Criterion, error) {
	var after criterion.Criterion
	_, err := s.DB.Tx(ctx, func(tx *db.Tx) error {
		bound := tx.Bind(ctx)
		t, err := improvements.Find(ctx, tx.In(ws), criterionID, name)
		if err != nil {
			return err
		}
		draft, err := newImprovement(t)
		if err != nil {
			return err
		}
		c, err := criterion.Find(ctx, tx.In(ws), criterionID)
		switch {
		case err != nil:
			return err
		case draft.Rubric == nil || draft.Status != job.Done:
			return fault.Conflict("the improvement is %s: there is no draft to adopt", draft.Status)
		case c.Rubric == *draft.Rubric:
			after, err = c.WithLabels(ctx, tx.In(ws))
			return err
		case c.Version != draft.Version:
			return fault.Conflict("the draft improves on version %d, and the criterion is at %d", draft.Version,
				c.Version)
		}
		if after, err = s.Criteria.Update(bound, ws, by, criterionID, &criterion.Definition{Rubric: draft.Rubric},
			s.Models); err != nil {
			return err
		}
		return audit.Record(ctx, tx, ws, by, "improvement.adopt", name, nil, adopted{criterionID, after.Version})
	})
	return after, err
}

// adopted is what the audit trail has about an adoption.
type adopted struct {
	CriterionID string `json:"criterion_id"`
	Version     int64  `json:"version"`
}
