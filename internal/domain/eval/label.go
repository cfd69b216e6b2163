package eval

import (
	"context"
	"slices"

	"sovereign/internal/base/fault"
	"sovereign/internal/base/tenant"
	"sovereign/internal/domain/label"
	"sovereign/internal/grade/judge"
)

// A CaseLabel is a person's grade of a model's answer to a case.
type CaseLabel struct {
	Model       string        `json:"model" doc:"Whose answer: the baseline or a candidate"`
	Verdict     judge.Verdict `json:"verdict" enum:"pass,fail"`
	Grade       *float64      `json:"grade,omitempty" minimum:"0" maximum:"1"`
	Critique    string        `json:"critique,omitempty" maxLength:"8000" doc:"Why"`
	CriterionID *string       `json:"criterion_id,omitempty" doc:"The judge that this grade is for; that of the eval by default"`
	Author      string        `json:"author,omitempty" maxLength:"128" doc:"Who graded; the key's user by default"`
}

// fromEval is the source of labels that are made of cases.
const fromEval = "eval"

// Label makes a label of a model's answer to a case.
func (s *Store) Label(ctx context.Context, ws tenant.ID, by tenant.Actor, evalID, caseID string, in CaseLabel,
) (label.Label, error) {
	r, err := find(ctx, s.DB.In(ws), evalID)
	if err != nil {
		return label.Label{}, err
	}
	model := slices.Index(r.asked.models(), in.Model)
	if model < 0 {
		return label.Label{}, fault.Invalid("model", "is neither the baseline nor a candidate of this eval")
	}
	asked, response, err := s.caseAnswer(ctx, ws, r, caseID, model)
	if err != nil {
		return label.Label{}, err
	}
	n := label.New{
		Messages: asked.Messages, Response: response, Tools: toolsOf(&asked), CriterionID: r.CriterionID,
		Verdict: in.Verdict, Grade: in.Grade, Critique: in.Critique, Author: in.Author, Source: fromEval,
	}
	if in.CriterionID != nil {
		n.CriterionID = *in.CriterionID
	}
	made, err := s.Labels.Create(ctx, ws, by, []label.New{n}, func(int) string { return "" })
	if err != nil {
		return label.Label{}, err
	}
	return made[0], nil
}
