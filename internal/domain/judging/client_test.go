package judging_test

import (
	"errors"
	"fmt"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"sovereign/internal/base/fault"
	"sovereign/internal/domain/judging"
	"sovereign/internal/domain/judgingtest"
	"sovereign/internal/grade/judge"
	"sovereign/internal/plane/infer"
	"sovereign/internal/store/db/dbtest"
	"sovereign/internal/store/job"
)

const (
	mine   = dbtest.Mine
	theirs = dbtest.Theirs
)

func TestAnAssessmentIsSharedByAllRunsAndAFailureIsNot(t *testing.T) {
	judgingtest.Each(t, func(t *testing.T, e *judgingtest.Env) {
		c := e.NewCriterion(t)
		step := judgingtest.Exchange(1)
		told := &judge.Instructions{Rubric: c.Rubric, Scale: c.Scale, Threshold: c.PassThreshold}
		q := func(origin string) *judging.Question {
			return &judging.Question{CriterionID: c.ID, Origin: origin, Model: judgingtest.Model, Instructions: told, Subject: &judge.Subject{Steps: []judge.Step{step}}}
		}
		ask := func(origin string, calls int, cost bool) judging.Answer {
			t.Helper()
			before := e.Models.Calls()
			f, err := e.Judges.Ask(t.Context(), mine, q(origin))
			if err != nil || e.Models.Calls()-before != calls || (f.Cost > 0) != cost {
				t.Errorf("%s: %+v %v after %d calls", origin, f, err, e.Models.Calls()-before)
			}
			return f
		}
		e.Models.Say(func(int) string { return "no idea" })
		first := ask("cal_1", 1, true)
		if first.Failure == "" || first.Verdict != "" {
			t.Errorf("%+v", first)
		}
		if again := ask("cal_1", 0, false); again.Failure != first.Failure || again.RequestID != first.RequestID {
			t.Errorf("%+v, then %+v", first, again)
		}
		e.Models.Say(func(int) string { return judgingtest.Assessment(judge.Fail, 0.25) })
		second := ask("cal_2", 1, true)
		for _, origin := range []string{"cal_1", "cal_2", "scan_1"} {
			if got := ask(origin, 0, false); got.Assessment != second.Assessment || got.Verdict != judge.Fail || got.RequestID != second.RequestID {
				t.Errorf("%s: %+v", origin, got)
			}
		}
		if _, err := e.Judges.Ask(t.Context(), theirs, q("cal_1")); err != nil || e.Models.Calls() != 3 {
			t.Errorf("another workspace: %v after %d calls", err, e.Models.Calls())
		}
		other := q("cal_1")
		other.Model = judgingtest.OtherModel
		if _, err := e.Judges.Ask(t.Context(), mine, other); err != nil || e.Models.Calls() != 4 {
			t.Errorf("another model: %v after %d calls", err, e.Models.Calls())
		}
	})
}

func TestTheSameQuestionAtOnceIsAskedOnce(t *testing.T) {
	judgingtest.Each(t, func(t *testing.T, e *judgingtest.Env) {
		c := e.NewCriterion(t)
		hold := judgingtest.NewGate(t)
		e.Models.Do(func(int, *infer.Request) (string, error) {
			hold.Wait()
			return judgingtest.Assessment(judge.Pass, 1), nil
		})
		told := &judge.Instructions{Rubric: c.Rubric, Scale: c.Scale, Threshold: c.PassThreshold}
		subject := judge.Subject{Steps: []judge.Step{judgingtest.Exchange(1)}}
		var group sync.WaitGroup
		for i := range 12 {
			group.Go(func() {
				got, err := e.Judges.Ask(t.Context(), mine, &judging.Question{CriterionID: c.ID, Origin: fmt.Sprint("run_", i%3), Model: judgingtest.Model, Instructions: told, Subject: &subject})
				if err != nil || got.Verdict != judge.Pass {
					t.Errorf("%+v %v", got, err)
				}
			})
		}
		hold.Open()
		group.Wait()
		if e.Models.Calls() != 1 {
			t.Errorf("%d calls", e.Models.Calls())
		}
	})
}

func TestAModelThatRefusesStructureIsAskedPlainlyFromThenOn(t *testing.T) {
	judgingtest.Each(t, func(t *testing.T, e *judgingtest.Env) {
		c := e.NewCriterion(t)
		all := e.Grade(t, c.ID, judgingtest.Grades(40, judgingtest.Grade{Verdict: judge.Pass})...)
		var structured, plain atomic.Int64
		e.Models.Do(func(item int, q *infer.Request) (string, error) {
			if strings.Contains(string(q.Body), "json_schema") {
				structured.Add(1)
				return "", fault.InvalidParameter.New("response_format is not known")
			}
			plain.Add(1)
			if item == all[5].Item {
				return "", fault.InvalidParameter.New("too long")
			}
			return judgingtest.Assessment(judge.Pass, 1), nil
		})
		done := e.Calibrate(t, c.ID)
		if done.Block.N != 39 || done.Block.Failed != 1 || plain.Load() != 40 || structured.Load() > 2*judging.DefaultConcurrency {
			t.Errorf("%+v; %d structured, %d plain", done.Block, structured.Load(), plain.Load())
		}
	})
}

// A balance that suffices for one question after the other suffices for a run: its questions wait for what the others
// hold.
func TestQuestionsWaitForTheBalanceThatOthersHold(t *testing.T) {
	judgingtest.Each(t, func(t *testing.T, e *judgingtest.Env) {
		c := e.NewCriterion(t)
		e.Grade(t, c.ID, judgingtest.Grades(20, judgingtest.Grade{Verdict: judge.Pass})...)
		var holding atomic.Int64
		var once sync.Once
		refused := judgingtest.NewGate(t)
		e.Models.Do(func(int, *infer.Request) (string, error) {
			defer holding.Add(-1)
			if holding.Add(1) > 2 {
				once.Do(refused.Open)
				return "", fault.InsufficientBalance.New("the wallet has too little")
			}
			refused.Wait() // until a third question has been refused
			return judgingtest.Assessment(judge.Pass, 1), nil
		})
		if done := e.Calibrate(t, c.ID); done.Cost != 20*judgingtest.Price {
			t.Errorf("%+v", done)
		}
		e.Grade(t, c.ID, judgingtest.Grades(3, judgingtest.Grade{Verdict: judge.Pass})...)
		e.Models.Do(func(int, *infer.Request) (string, error) {
			return "", fault.InsufficientBalance.New("the wallet is empty")
		})
		if failed := e.AwaitCalibration(t, c.ID, e.StartCalibration(t, c.ID).ID, job.Failed); !strings.Contains(*failed.Error, "the wallet is empty") {
			t.Errorf("%+v", failed)
		}
	})
}

// Whoever asks for a session knows what else spends its hold: the client neither waits nor tries again.
func TestAHoldThatIsSpentIsReportedAtOnce(t *testing.T) {
	judgingtest.Each(t, func(t *testing.T, e *judgingtest.Env) {
		c := e.NewCriterion(t)
		told := &judge.Instructions{Rubric: c.Rubric, Scale: c.Scale, Threshold: c.PassThreshold}
		spent := &infer.HoldSpent{Hold: "rs_1", Free: 7}
		held := judgingtest.NewGate(t)
		e.Models.Do(func(item int, r *infer.Request) (string, error) {
			if r.Hold != "rs_1" {
				t.Errorf("%q pays", r.Hold)
			}
			if item == 1 {
				held.Wait() // another question runs meanwhile
				return judgingtest.Assessment(judge.Pass, 1), nil
			}
			return "", spent
		})
		ask := func(item int) (judging.Answer, error) {
			return e.Judges.Ask(t.Context(), mine, &judging.Question{
				CriterionID: c.ID, Origin: "rs_1", Hold: "rs_1", Model: judgingtest.Model, Instructions: told,
				Subject: &judge.Subject{Steps: []judge.Step{judgingtest.Exchange(item)}},
			})
		}
		var group sync.WaitGroup
		group.Go(func() {
			if a, err := ask(1); err != nil || a.Verdict != judge.Pass {
				t.Errorf("%+v %v", a, err)
			}
		})
		for e.Models.Calls() == 0 {
			runtime.Gosched()
		}
		for _, spent.Ended = range []bool{false, true} {
			before := e.Models.Calls()
			_, err := ask(2)
			if got, ok := errors.AsType[*infer.HoldSpent](err); !ok || got != spent || e.Models.Calls() != before+1 {
				t.Errorf("%v after %d calls", err, e.Models.Calls()-before)
			}
			body := func(judge.Mode) ([]byte, error) { return []byte(`{"model":"m"}`), nil }
			for name, complete := range map[string]func(*judging.Completion) error{
				"Complete": func(q *judging.Completion) error { return e.Judges.Complete(t.Context(), mine, q) },
				"Compare": func(q *judging.Completion) error {
					_, err := e.Judges.Compare(t.Context(), mine, q)
					return err
				},
			} {
				before := e.Models.Calls()
				err := complete(&judging.Completion{Origin: "rs_1", Hold: "rs_1", Model: judgingtest.Model, Body: body})
				if got, ok := errors.AsType[*infer.HoldSpent](err); !ok || got != spent || e.Models.Calls() != before+1 {
					t.Errorf("%s: %v after %d calls", name, err, e.Models.Calls()-before)
				}
			}
		}
		held.Open()
		group.Wait()
	})
}

// Two servers may ask the same question at the same time, when one takes over from another that lives after all. One
// answer is stored and charged, and both have it.
func TestTwoServersThatAskTheSameQuestionPayForOneAnswer(t *testing.T) {
	judgingtest.Each(t, func(t *testing.T, e *judgingtest.Env) {
		c := e.NewCriterion(t)
		reached, hold := judgingtest.NewGate(t), judgingtest.NewGate(t)
		var calls atomic.Int64
		e.Models.Do(func(int, *infer.Request) (string, error) {
			if calls.Add(1) == 1 {
				reached.Open()
				hold.Wait()
				return judgingtest.Assessment(judge.Fail, 0.25), nil
			}
			return judgingtest.Assessment(judge.Pass, 1), nil
		})
		other := judging.NewClient(e.DB, e.Models)
		told := &judge.Instructions{Rubric: c.Rubric, Scale: c.Scale, Threshold: c.PassThreshold}
		q := &judging.Question{CriterionID: c.ID, Origin: "scan_1", Model: judgingtest.Model, Instructions: told, Subject: &judge.Subject{Steps: []judge.Step{judgingtest.Exchange(1)}}}
		paid := e.Models.Paid()
		var slow sync.WaitGroup
		slow.Go(func() {
			got, err := e.Judges.Ask(t.Context(), mine, q)
			if err != nil || got.Verdict != judge.Pass || got.Cost != 0 {
				t.Errorf("the one that is late: %+v %v", got, err)
			}
		})
		reached.Wait()
		got, err := other.Ask(t.Context(), mine, q)
		if err != nil || got.Verdict != judge.Pass || got.Cost != judgingtest.Price {
			t.Errorf("%+v %v", got, err)
		}
		hold.Open()
		slow.Wait()
		if cost := e.Models.Paid() - paid; cost != judgingtest.Price || calls.Load() != 2 {
			t.Errorf("%s are paid for %d calls", cost, calls.Load())
		}
	})
}
