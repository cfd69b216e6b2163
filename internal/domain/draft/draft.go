// Package draft lets models draft rubrics. An improvement drafts a better rubric for a criterion from the judge's
// mistakes. A suggestion drafts new criteria from logs and critiques. Both see the tuning half of the labels alone.
package draft

import (
	"hash/fnv"

	"sovereign/internal/base/tenant"
	"sovereign/internal/domain/criterion"
	"sovereign/internal/domain/judging"
	"sovereign/internal/grade/judge"
	"sovereign/internal/store/job"
)

// An Improvement is a draft of a better rubric, made from what the judge got wrong in the tuning half alone.
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

// Suggested are drafts of criteria, made from logs and critiques that are not in the report half.
type Suggested struct {
	ID         string             `json:"id"`
	Object     string             `json:"object" enum:"suggestion"`
	Model      string             `json:"model" doc:"That drafts them"`
	SampleSize int                `json:"sample_size"`
	Filters    criterion.Filters  `json:"filters"`
	Exchanges  int                `json:"exchanges" doc:"That it was made of"`
	Criteria   []judge.Suggestion `json:"criteria" nullable:"false" doc:"Post one to /v1/criteria to make a judge of it"`
	CreatedBy  tenant.UserID      `json:"created_by"`
	job.Job
}

// A Request says what is to be drafted, by which model.
type Request struct {
	Model   string            `json:"model,omitempty" doc:"A model of the catalog"`
	Size    int               `json:"sample_size,omitempty" default:"40" minimum:"1" maximum:"200" doc:"How many exchanges it is made of, at most"`
	Filters criterion.Filters `json:"filters,omitempty" doc:"Which exchanges, as in the list of logs"`
}

const (
	defaultSize = 40
	maxSize     = 200
)

// withDefaults fills in the size, and leaves credentials out.
func (r Request) withDefaults() Request {
	r.Filters = r.Filters.Clean()
	if r.Size == 0 {
		r.Size = defaultSize
	}
	return r
}

// The kinds of the tasks and jobs of drafts.
var (
	improvements = judging.Kind{Name: "improvement", Prefix: "imp"}
	suggestions  = judging.Kind{Name: "suggestion", Prefix: "sug"}
)

// A result is the stored result of either kind.
type result struct {
	Failure  string             `json:"failure,omitempty"`
	Taken    int                `json:"taken"` // cases or exchanges that the model was shown
	Rubric   string             `json:"rubric,omitempty"`
	Changes  []string           `json:"changes,omitempty"`
	Criteria []judge.Suggestion `json:"criteria,omitempty"`
}

func newImprovement(t *judging.Task) (Improvement, error) {
	i := Improvement{
		ID: t.ID, Object: "improvement", CriterionID: t.CriterionID, Version: t.Version,
		CreatedBy: t.CreatedBy, Changes: []string{}, Job: t.Job,
	}
	var request Request
	var res result
	if err := t.Decode(&request, &res); err != nil {
		return i, err
	}
	i.Model, i.Cases, i.Rubric = request.Model, res.Taken, judging.Optional(res.Rubric)
	i.Changes = append(i.Changes, res.Changes...)
	return i, nil
}

func newSuggested(t *judging.Task) (Suggested, error) {
	s := Suggested{ID: t.ID, Object: "suggestion", CreatedBy: t.CreatedBy, Criteria: []judge.Suggestion{}, Job: t.Job}
	var request Request
	var res result
	if err := t.Decode(&request, &res); err != nil {
		return s, err
	}
	s.Model, s.SampleSize, s.Filters, s.Exchanges = request.Model, request.Size, request.Filters, res.Taken
	s.Criteria = append(s.Criteria, res.Criteria...)
	return s, nil
}

// readImprovement reads a model's answer.
func readImprovement(answer []byte, into *result) error {
	got, err := judge.ReadImprovement(answer)
	into.Rubric, into.Changes = got.Rubric, got.Changes
	return err
}

// readSuggestion reads a model's answer.
func readSuggestion(answer []byte, into *result) (err error) {
	into.Criteria, err = judge.ReadSuggestions(answer)
	return err
}

// A prompt makes the body of the question for a draft, and tells how many cases or exchanges it quotes.
type prompt func(mode judge.Mode) (body []byte, taken int, err error)

// seed returns a number that a text determines.
func seed(text string) uint64 {
	h := fnv.New64a()
	_, _ = h.Write([]byte(text))
	return h.Sum64()
}
