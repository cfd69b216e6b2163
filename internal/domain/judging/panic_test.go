package judging_test

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"sovereign/internal/base/panics"
	"sovereign/internal/domain/judging"
	"sovereign/internal/domain/judgingtest"
	"sovereign/internal/grade/judge"
)

// A judge's answer that makes its reader panic is a failure of that answer. It is stored, and not paid for again; the
// other questions of the run are answered.
func TestAnAnswerWhoseParsingPanicsIsAFailure(t *testing.T) {
	judgingtest.Each(t, func(t *testing.T, e *judgingtest.Env) {
		c := e.NewCriterion(t)
		told := &judge.Instructions{Rubric: c.Rubric, Scale: c.Scale, Threshold: c.PassThreshold}
		load := func(_ context.Context, key string) (*judging.Question, error) {
			return &judging.Question{CriterionID: c.ID, Origin: "cal_1", Model: judgingtest.Model, Instructions: told, Subject: &judge.Subject{Steps: []judge.Step{judgingtest.Exchange(int(key[0]))}}}, nil
		}
		parsed := 0
		e.Judges.SetConcurrency(1)
		e.Judges.SetParse(func(told *judge.Instructions, body []byte) (judge.Assessment, error) {
			if parsed++; parsed == 2 {
				panic("a poisonous answer")
			}
			return told.Read(body)
		})
		keys, before := []string{"a", "b", "c"}, panics.Count()
		answers, err := e.Judges.AskAll(t.Context(), mine, judging.NewBudget(nil, 0), keys, "missing", load)
		if err != nil || len(answers) != 3 || answers["b"].Failure != "malformed: internal error" || answers["a"].Failure+answers["c"].Failure != "" {
			t.Errorf("%+v, %v", answers, err)
		}
		if answers["b"].Cost == 0 || panics.Count() == before {
			t.Errorf("%+v after %d panics", answers["b"], panics.Count()-before)
		}
		calls := e.Models.Calls()
		if _, err := e.Judges.AskAll(t.Context(), mine, judging.NewBudget(nil, 0), keys, "missing", load); err != nil || e.Models.Calls() != calls {
			t.Errorf("%d more questions, %v", e.Models.Calls()-calls, err)
		}
	})
}

// A question that makes the client panic is a failure of that question.
func TestAQuestionThatPanicsIsAFailure(t *testing.T) {
	judgingtest.Each(t, func(t *testing.T, e *judgingtest.Env) {
		c := e.NewCriterion(t)
		told := &judge.Instructions{Rubric: c.Rubric, Scale: c.Scale, Threshold: c.PassThreshold}
		e.Models.Say(func(int) string { panic("a model") })
		for range 2 {
			got, err := e.Judges.Ask(t.Context(), mine, &judging.Question{CriterionID: c.ID, Origin: "cal_1", Model: judgingtest.Model, Instructions: told, Subject: &judge.Subject{Steps: []judge.Step{judgingtest.Exchange(1)}}})
			if err != nil || got.Failure != "unreadable: internal error" {
				t.Errorf("%+v, %v", got, err)
			}
		}
	})
}

// A panic in one of the goroutines of a run is the run's error.
func TestAPanicInAGoroutineIsAnError(t *testing.T) {
	err := judging.ForEach(t.Context(), 3, []int{1, 2, 3, 4, 5, 6}, func(_ context.Context, i int) error {
		if i == 4 {
			panic(fmt.Sprint("item ", i))
		}
		return nil
	})
	var contained *panics.Error
	if !errors.As(err, &contained) || contained.Value != "item 4" {
		t.Errorf("%v", err)
	}
}
