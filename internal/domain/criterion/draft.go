package criterion

import (
	"context"
	"fmt"
	"slices"

	"sovereign/internal/base/fault"
	"sovereign/internal/base/money"
	"sovereign/internal/base/tenant"
	"sovereign/internal/domain/label"
	"sovereign/internal/domain/logbook"
	"sovereign/internal/grade/judge"
	"sovereign/internal/plane/infer"
	"sovereign/internal/store/audit"
	"sovereign/internal/store/db"
	"sovereign/internal/store/job"
)

// An Improvement is a draft of a better rubric, made of what the judge got wrong in the tuning half alone.
type Improvement struct {
	ID          string        `json:"id"`
	Object      string        `json:"object" enum:"improvement"`
	CriterionID string        `json:"criterion_id"`
	Version     int64         `json:"criterion_version" doc:"That it improves on"`
	Model       string        `json:"model" doc:"That drafts it"`
	Cases       int           `json:"cases" doc:"Disagreements that it was made of"`
	Rubric      *string       `json:"rubric" doc:"null until it is done"`
	Changes     []string      `json:"changes" nullable:"false"`
	CreatedBy   tenant.UserID `json:"created_by"`
	job.Job
}

// Suggested are drafts of criteria, made of logs and critiques that are not in the report half.
type Suggested struct {
	ID         string             `json:"id"`
	Object     string             `json:"object" enum:"suggestion"`
	Model      string             `json:"model" doc:"That drafts them"`
	SampleSize int                `json:"sample_size"`
	Filters    Filters            `json:"filters"`
	Exchanges  int                `json:"exchanges" doc:"That it was made of"`
	Criteria   []judge.Suggestion `json:"criteria" nullable:"false" doc:"Post one to /v1/criteria to make a judge of it"`
	CreatedBy  tenant.UserID      `json:"created_by"`
	job.Job
}

// A Draft says what is to be drafted, by which model.
type Draft struct {
	Model   string  `json:"model,omitempty" doc:"A model of the catalog"`
	Size    int     `json:"sample_size,omitempty" default:"40" minimum:"1" maximum:"200" doc:"How many exchanges it is made of, at most"`
	Filters Filters `json:"filters,omitempty" doc:"Which exchanges, as in the list of logs"`
}

// maxDraftSize is the most exchanges of a draft.
const maxDraftSize = 200

// drafted is the result of either kind.
type drafted struct {
	Failure  string             `json:"failure,omitempty"`
	Taken    int                `json:"taken"`
	Rubric   string             `json:"rubric,omitempty"`
	Changes  []string           `json:"changes,omitempty"`
	Criteria []judge.Suggestion `json:"criteria,omitempty"`
}

func (k *keptInquiry) improvement() (Improvement, error) {
	i := Improvement{ID: k.ID, Object: "improvement", CriterionID: k.CriterionID, Version: k.Version, CreatedBy: k.CreatedBy, Changes: []string{}, Job: k.Job}
	var asked Draft
	var result drafted
	if err := k.read(&asked, &result); err != nil {
		return i, err
	}
	i.Model, i.Cases, i.Rubric = asked.Model, result.Taken, given(result.Rubric)
	i.Changes = append(i.Changes, result.Changes...)
	return i, nil
}

func (k *keptInquiry) suggestion() (Suggested, error) {
	s := Suggested{ID: k.ID, Object: "suggestion", CreatedBy: k.CreatedBy, Criteria: []judge.Suggestion{}, Job: k.Job}
	var asked Draft
	var result drafted
	if err := k.read(&asked, &result); err != nil {
		return s, err
	}
	s.Model, s.SampleSize, s.Filters, s.Exchanges = asked.Model, asked.Size, asked.Filters, result.Taken
	s.Criteria = append(s.Criteria, result.Criteria...)
	return s, nil
}

// A composition is a question for a draft: its body in a mode, and of how many cases it is made.
type composition func(mode judge.Mode) (body []byte, taken int, err error)

// improve composes the question for a better rubric.
func (s *Store) improve(ctx context.Context, in db.Scoped, c *kept, model string) (composition, error) {
	cases, err := mistakes(ctx, in, c)
	if err != nil {
		return nil, err
	}
	if len(cases) == 0 {
		return nil, fault.Precondition.New("there is nothing to improve on: no calibration of version %d has a disagreement in the tuning half", c.Version)
	}
	told := &judge.Brief{Rubric: c.Rubric, Scale: c.Scale, Threshold: c.PassThreshold}
	return func(mode judge.Mode) ([]byte, int, error) { return told.Improve(model, cases, mode) }, nil
}

// maxCases is how many disagreements a draft is made of.
const maxCases = 60

// mistakes are the disagreements of the version's last calibration in the tuning half, as labels stand now.
func mistakes(ctx context.Context, in db.Scoped, c *kept) ([]judge.Case, error) {
	type row struct {
		Item            []byte
		Standing, Judge judge.Verdict
		Grade           float64
		Critique        string
		Said            string
	}
	rows, err := db.Query[row](ctx, in, `
		SELECT r.item, r.standing, r.judge, r.grade, r.critique, CASE WHEN l.kind = '' OR l.note = '' THEN l.critique ELSE l.note END AS said
		FROM calibration_rows r JOIN labels l ON l.workspace_id = r.workspace_id AND l.id = r.label_id
		WHERE r.workspace_id = $1 AND NOT r.in_report_half AND NOT l.in_report_half AND r.judge <> '' AND r.standing <> '' AND r.judge <> r.standing
			AND r.calibration_id = (
				SELECT t.id FROM calibrations t WHERE t.workspace_id = $1 AND t.criterion_id = $2 AND t.version = $3 AND t.aligned_at > 0 ORDER BY t.aligned_at DESC LIMIT 1)
		ORDER BY r.draw LIMIT $4`, c.ID, c.Version, maxCases)
	if err != nil {
		return nil, fmt.Errorf("read the judge's mistakes: %w", err)
	}
	cases := make([]judge.Case, 0, len(rows))
	for _, r := range rows {
		subject, err := label.Item(ctx, in, r.Item)
		if err != nil {
			return nil, err
		}
		cases = append(cases, judge.Case{
			Subject: subject, Human: r.Standing, HumanCritique: r.Said, Judge: judge.Opinion{Grade: r.Grade, Verdict: r.Judge, Critique: r.Critique},
		})
	}
	return cases, nil
}

// suggest composes the question for new criteria: of what people said, and of logged exchanges, as far as either is in the tuning
// half. Exchanges that nobody has graded yet are drawn as they would be if somebody did. Where they are to be shown, it is noted that they
// were.
func (s *Store) suggest(ctx context.Context, ws tenant.ID, d Draft, logs Logs, seed uint64, show bool) (composition, error) {
	said, err := remarks(ctx, s.db.In(ws), d.Size/2)
	if err != nil {
		return nil, err
	}
	type candidate struct {
		subject judge.Subject
		kin     label.Kin
	}
	var drawn []candidate
	room := maxTold
	if _, err := logs.Draw(ctx, ws, d.Filters.Filters(), 4*d.Size, seed, func(row *logbook.Drawn) bool {
		subject := judge.Subject{Steps: []judge.Step{row.Step()}}
		drawn = append(drawn, candidate{subject, label.KinOf(subject.Steps, row.TraceID)})
		room -= size(subject)
		return room > 0
	}); err != nil {
		return nil, err
	}
	var samples []judge.Sample
	_, err = s.db.Tx(ctx, func(tx *db.Tx) error {
		kin := make([]label.Kin, len(drawn))
		for i := range drawn {
			kin[i] = drawn[i].kin
		}
		halves, err := label.OpenSplit(ctx, tx, ws, kin...)
		if err != nil {
			return err
		}
		samples = slices.Clone(said)
		for _, one := range drawn {
			if len(samples) == d.Size {
				break
			}
			if halves.Half(one.kin) != label.Tuning {
				continue
			}
			samples = append(samples, judge.Sample{Subject: one.subject})
			if show {
				halves.Put(one.kin, label.Tuning)
			}
		}
		return halves.Keep(ctx, tx, ws)
	})
	if err != nil {
		return nil, err
	}
	if len(samples) == 0 {
		return nil, fault.Precondition.New("there is nothing to learn from: no critique, and no logged exchange that matches the filters")
	}
	return func(mode judge.Mode) ([]byte, int, error) { return judge.Suggest(d.Model, samples, mode) }, nil
}

// maxTold bounds what is read for a draft: a model is told less.
const maxTold = 4 << 20

// size is how much a subject is, in bytes.
func size(s judge.Subject) (n int) {
	for _, step := range s.Steps {
		n += len(step.Messages) + len(step.Response) + len(step.Tools)
	}
	return n
}

// remarks are what people said of exchanges in the tuning half, the newest first.
func remarks(ctx context.Context, in db.Scoped, most int) ([]judge.Sample, error) {
	type row struct {
		Item     []byte
		Critique string
	}
	rows, err := db.Query[row](ctx, in, `
		SELECT item, CASE WHEN kind = 'label_error' THEN note ELSE critique END AS critique FROM labels
		WHERE workspace_id = $1 AND NOT in_report_half AND critique <> '' AND kind <> 'ambiguous' ORDER BY created_at DESC, id DESC LIMIT $2`, most)
	if err != nil {
		return nil, fmt.Errorf("read critiques: %w", err)
	}
	samples, room := make([]judge.Sample, 0, len(rows)), maxTold/2
	for _, r := range rows {
		subject, err := label.Item(ctx, in, r.Item)
		if err != nil {
			return nil, err
		}
		samples = append(samples, judge.Sample{Subject: subject, Critique: r.Critique})
		if room -= size(subject); room < 0 {
			break
		}
	}
	return samples, nil
}

// draftLength is how long a draft is, in tokens, about.
const draftLength = 1200

// foreseeDraft is what a draft costs, about.
func (b *Bench) foreseeDraft(ws tenant.ID, model string, compose composition) (money.Nano, error) {
	body, _, err := compose(judge.Structured)
	if err != nil {
		return 0, err
	}
	return b.models.Estimate(&infer.Request{Workspace: ws, Origin: "estimate", Model: model, Body: body, MaxTokens: maxDraft}, draftLength)
}

// maxDraft is how long a draft may be, in tokens.
const maxDraft = 16_384

// Improve begins to draft a better rubric.
func (s *Store) Improve(ctx context.Context, ws tenant.ID, by tenant.Actor, criterionID string, d Draft, how Spending, bench *Bench) (Improvement, error) {
	c, err := find(ctx, s.db.In(ws), criterionID)
	if err != nil {
		return Improvement{}, err
	}
	if d.Model == "" {
		d.Model = c.JudgeModel
	}
	compose, err := s.improve(ctx, s.db.In(ws), c, d.Model)
	if err != nil {
		return Improvement{}, err
	}
	estimate, err := bench.foreseeDraft(ws, d.Model, compose)
	if err != nil {
		return Improvement{}, err
	}
	if err := how.covers(estimate); err != nil {
		return Improvement{}, err
	}
	var made Improvement
	_, err = s.db.Tx(ctx, func(tx *db.Tx) error {
		c, err := find(ctx, tx.In(ws), criterionID)
		if err != nil {
			return err
		}
		begun, err := improvements.begin(ctx, tx, ws, by, c, d, 1, estimate)
		if err != nil {
			return err
		}
		made, err = begun.improvement()
		return err
	})
	return made, err
}

// Suggest begins to draft criteria.
func (s *Store) Suggest(ctx context.Context, ws tenant.ID, by tenant.Actor, d Draft, how Spending, logs Logs, bench *Bench) (Suggested, error) {
	compose, err := s.suggest(ctx, ws, d, logs, 1, false)
	if err != nil {
		return Suggested{}, err
	}
	estimate, err := bench.foreseeDraft(ws, d.Model, compose)
	if err != nil {
		return Suggested{}, err
	}
	if err := how.covers(estimate); err != nil {
		return Suggested{}, err
	}
	var made Suggested
	_, err = s.db.Tx(ctx, func(tx *db.Tx) error {
		begun, err := suggestions.begin(ctx, tx, ws, by, nil, d, 1, estimate)
		if err != nil {
			return err
		}
		made, err = begun.suggestion()
		return err
	})
	return made, err
}

// drafts is the work of an improvement or a suggestion: one question, whose answer is kept before it is paid for.
func (s *Store) drafts(kind inquiry, bench *Bench, compose func(context.Context, tenant.ID, *keptInquiry, Draft) (composition, error), read func([]byte, *drafted) error) job.Work {
	return func(ctx context.Context, run *job.Run) error {
		k, err := kind.of(ctx, s.db, run)
		if err != nil {
			return err
		}
		var asked Draft
		var result drafted
		if err := k.read(&asked, &result); err != nil {
			return err
		}
		if k.Result == "" {
			question, err := compose(ctx, run.Workspace, k, asked)
			if err != nil {
				return err
			}
			body := func(mode judge.Mode) (text []byte, err error) {
				text, result.Taken, err = question(mode)
				return text, err
			}
			saving := context.WithoutCancel(ctx)
			if err := bench.draft(ctx, run.Workspace, k.ID, asked.Model, body, func(a *infer.Answer) error {
				if err := read(a.Body, &result); err != nil {
					result.Failure = err.Error()
				}
				return run.Tx(saving, func(tx *db.Tx, tally *job.Tally) error {
					tally.Cost += a.Cost
					return conclude(saving, tx.In(run.Workspace), k.ID, result)
				})
			}); err != nil {
				return err
			}
		}
		if result.Failure != "" {
			return fault.Precondition.New("the model gave no draft that can be used: %s", result.Failure)
		}
		return run.Finish(ctx, func(_ *db.Tx, tally *job.Tally) error {
			tally.Done = tally.Total
			return nil
		})
	}
}

// draft asks a model that cannot be reached a few times.
func (b *Bench) draft(ctx context.Context, ws tenant.ID, origin, model string, body func(judge.Mode) ([]byte, error), keep func(*infer.Answer) error) error {
	for attempt := 1; ; attempt++ {
		err := b.complete(ctx, ws, origin, model, maxDraft, body, keep)
		if err == nil || ctx.Err() != nil || attempt == patience || !transient(fault.From(err)) {
			return err
		}
		if err := b.wait(ctx, attempt, fault.From(err).RetryAfter); err != nil {
			return err
		}
	}
}

func readImprovement(answer []byte, into *drafted) error {
	got, err := judge.ReadImprovement(answer)
	into.Rubric, into.Changes = got.Rubric, got.Changes
	return err
}

func readSuggestion(answer []byte, into *drafted) (err error) {
	into.Criteria, err = judge.ReadSuggestions(answer)
	return err
}

// Adopt makes a draft the criterion's rubric: a new version, which no certificate speaks for yet.
func (s *Store) Adopt(ctx context.Context, ws tenant.ID, by tenant.Actor, criterionID, name string, models Models) (Criterion, error) {
	var after Criterion
	_, err := s.db.Tx(ctx, func(tx *db.Tx) error {
		k, err := improvements.find(ctx, tx.In(ws), criterionID, name)
		if err != nil {
			return err
		}
		draft, err := k.improvement()
		if err != nil {
			return err
		}
		c, err := find(ctx, tx.In(ws), criterionID)
		switch {
		case err != nil:
			return err
		case draft.Rubric == nil || draft.Status != job.Done:
			return fault.Conflict("the improvement is %s: there is no draft to adopt", draft.Status)
		case c.Rubric == *draft.Rubric:
			after, err = show(ctx, tx.In(ws), c)
			return err
		case c.Version != draft.Version:
			return fault.Conflict("the draft improves on version %d, and the criterion is at %d", draft.Version, c.Version)
		}
		bound := tx.Bind(ctx)
		if after, err = s.Update(bound, ws, by, criterionID, &Definition{Rubric: draft.Rubric}, models); err != nil {
			return err
		}
		return audit.Record(ctx, tx, ws, by, "improvement.adopt", name, nil, adopted{criterionID, after.Version})
	})
	return after, err
}

// adopted is what the audit trail tells of an adoption.
type adopted struct {
	CriterionID string `json:"criterion_id"`
	Version     int64  `json:"version"`
}
