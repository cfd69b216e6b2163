package calibration_test

import (
	"errors"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"sovereign/internal/base/fault"
	"sovereign/internal/domain/calibration"
	"sovereign/internal/domain/criterion"
	"sovereign/internal/domain/judging"
	"sovereign/internal/domain/judgingtest"
	"sovereign/internal/domain/label"
	"sovereign/internal/grade/judge"
	"sovereign/internal/grade/trust"
	"sovereign/internal/plane/infer"
	"sovereign/internal/store/audit"
	"sovereign/internal/store/db"
	"sovereign/internal/store/db/dbtest"
	"sovereign/internal/store/job"
)

const (
	mine   = dbtest.Mine
	theirs = dbtest.Theirs
)

var ann = dbtest.Ann

func TestACalibrationCountsAndPaysForEveryLabelOnce(t *testing.T) {
	judgingtest.Each(t, func(t *testing.T, e *judgingtest.Env) {
		c := e.NewCriterion(t)
		all := e.Grade(t, c.ID, slices.Concat(judgingtest.Grades(3, judgingtest.Grade{Report: true, Verdict: judge.Pass}), judgingtest.Grades(2, judgingtest.Grade{Report: true, Verdict: judge.Fail}),
			judgingtest.Grades(30, judgingtest.Grade{Verdict: judge.Pass}), judgingtest.Grades(12, judgingtest.Grade{Verdict: judge.Fail}), judgingtest.Grades(1, judgingtest.Grade{Verdict: judge.Pass}))...)
		e.Grade(t, "", judgingtest.Grades(3, judgingtest.Grade{Verdict: judge.Pass})...) // of no judge
		e.Adjudicate(t, all[47].ID, label.Ruling{Kind: label.Ambiguous})
		e.Models.Say(func(item int) string {
			switch i := slices.IndexFunc(all, func(g judgingtest.Graded) bool { return g.Item == item }); i {
			case 0, 5: // people pass it
				return judgingtest.Assessment(judge.Fail, 0.2)
			case 3: // people fail it
				return judgingtest.Assessment(judge.Pass, 0.8)
			case 4:
				return "I would rather not."
			default:
				return judgingtest.Assessment(all[i].Verdict, 0.5)
			}
		})
		begun := e.StartCalibration(t, c.ID)
		if begun.Status != job.Queued || begun.Progress != (job.Progress{Total: 47}) || begun.Estimate != 47*judgingtest.Estimate || begun.Block != nil || begun.Version != 1 || begun.CreatedBy != "usr_ann" {
			t.Errorf("%+v", begun)
		}
		done := e.AwaitCalibration(t, c.ID, begun.ID, job.Done)
		want := trust.Halves{
			Report: trust.Counts{Matrix: trust.Matrix{TP: 2, FN: 1, FP: 1}, Failed: 1},
			Tuning: trust.Counts{Matrix: trust.Matrix{TP: 29, FN: 1, TN: 12}},
		}
		if diff := cmp.Diff(want.Block(), *done.Block); diff != "" {
			t.Error(diff)
		}
		if n, twice := e.Models.Answered(); n != 47 || twice || done.Cost != 47*judgingtest.Price || done.Progress != (job.Progress{Done: 47, Total: 47}) || done.AlignedAt == nil {
			t.Errorf("%d questions, twice: %v; %+v", n, twice, done)
		}
		if id := e.Certificate(t, c.ID).ID; done.CertificateID == nil || *done.CertificateID != id || *e.Criterion(t, c.ID).CertificateID != id || e.Criterion(t, c.ID).Trust != trust.Provisional {
			t.Errorf("%v %s %+v", done.CertificateID, id, e.Criterion(t, c.ID))
		}
		if got := e.Criterion(t, c.ID).Labels; got != (label.Counts{Pass: 33, Fail: 14}) {
			t.Errorf("%+v", got)
		}
		again := e.Calibrate(t, c.ID)
		if n, _ := e.Models.Answered(); n != 47 || again.Cost != 0 { // nor does what was no verdict become one by asking again
			t.Errorf("%d questions, %s", n, again.Cost)
		}
		if list, err := e.Calibrations.List(t.Context(), mine, c.ID, 10, 0); err != nil || len(list) != 2 || list[0].ID != again.ID || list[1].ID != done.ID {
			t.Errorf("%+v %v", list, err)
		}
		for _, action := range []string{"calibration.start", "certificate.issue"} {
			if trail, err := audit.List(t.Context(), e.DB, mine, action, 10, 0); err != nil || len(trail) != 2 || trail[0].Actor.User != "usr_ann" {
				t.Errorf("%+v %v", trail, err)
			}
		}
	})
}

func TestARefusedCalibrationStoresNothing(t *testing.T) {
	judgingtest.Each(t, func(t *testing.T, e *judgingtest.Env) {
		c := e.NewCriterion(t)
		_, err := e.Calibrations.Start(t.Context(), mine, ann, c.ID, calibration.Options{})
		dbtest.Refused(t, err, 412, "no labels")
		all := e.Grade(t, c.ID, judgingtest.Grades(2, judgingtest.Grade{Verdict: judge.Pass})...)
		_, err = e.Calibrations.Start(t.Context(), mine, ann, c.ID, calibration.Options{Spending: judgingtest.Limit(2*judgingtest.Estimate - 1)})
		dbtest.Refused(t, err, 400, "max_cost_usd", (2 * judgingtest.Estimate).String())
		_, err = e.Calibrations.Start(t.Context(), mine, ann, "crit_none", calibration.Options{})
		dbtest.Refused(t, err, 404, "crit_none")
		_, err = e.Calibrations.Start(t.Context(), theirs, ann, c.ID, calibration.Options{})
		dbtest.Refused(t, err, 404, c.ID)
		if n := dbtest.Count(t, e.DB, "calibrations") + dbtest.Count(t, e.DB, "jobs"); n != 0 {
			t.Errorf("%d calibrations and jobs", n)
		}
		hold := judgingtest.NewGate(t)
		e.Models.Do(func(int, *infer.Request) (string, error) {
			hold.Wait()
			return judgingtest.Assessment(judge.Pass, 1), nil
		})
		if _, err := e.Calibrations.Start(t.Context(), mine, ann, c.ID, calibration.Options{Spending: judgingtest.Limit(2 * judgingtest.Estimate)}); err != nil {
			t.Fatal(err)
		}
		_, err = e.Calibrations.Start(t.Context(), mine, ann, c.ID, calibration.Options{})
		dbtest.Refused(t, err, 409, "cal_")
		dbtest.Refused(t, e.Criteria.Delete(t.Context(), mine, ann, c.ID), 409, "cal_")
		hold.Open()
		list, err := e.Calibrations.List(t.Context(), mine, c.ID, 10, 0)
		if err != nil || len(list) != 1 {
			t.Fatal(list, err)
		}
		e.AwaitCalibration(t, c.ID, list[0].ID, job.Done)
		for _, l := range all {
			e.Adjudicate(t, l.ID, label.Ruling{Kind: label.Ambiguous})
		}
		_, err = e.Calibrations.Start(t.Context(), mine, ann, c.ID, calibration.Options{})
		dbtest.Refused(t, err, 412, "no labels")
	})
}

func TestAKilledCalibrationResumesAndAsksNothingTwice(t *testing.T) {
	judgingtest.Each(t, func(t *testing.T, e *judgingtest.Env) {
		c := e.NewCriterion(t)
		e.Grade(t, c.ID, judgingtest.Grades(70, judgingtest.Grade{Verdict: judge.Pass})...)
		for kill := range 3 {
			var calls atomic.Int64
			reached, hold := make(chan struct{}), judgingtest.NewGate(t)
			var once sync.Once
			e.Models.Do(func(int, *infer.Request) (string, error) {
				if calls.Add(1) > 12 { // in the middle of a batch: what came before it is kept, and in no row
					once.Do(func() { close(reached) })
					hold.Wait()
				}
				return judgingtest.Assessment(judge.Pass, 1), nil
			})
			if kill == 0 {
				e.StartCalibration(t, c.ID)
			} else {
				e.Serve(t)
			}
			<-reached
			e.Runner.Pause(errors.New("killed"))
			hold.Open()
			e.Stop() // what it still does, it cannot write
		}
		e.Models.Do(nil)
		e.Serve(t)
		list, err := e.Calibrations.List(t.Context(), mine, c.ID, 10, 0)
		if err != nil || len(list) != 1 {
			t.Fatal(list, err)
		}
		done := e.AwaitCalibration(t, c.ID, list[0].ID, job.Done)
		if n, twice := e.Models.Answered(); n != 70 || twice || done.Block.N != 70 || done.Progress != (job.Progress{Done: 70, Total: 70}) {
			t.Errorf("%d questions, twice: %v; %+v", n, twice, done)
		}
		if done.Cost != e.Models.Paid() {
			t.Errorf("it says that it cost %s, and %s was paid", done.Cost, e.Models.Paid())
		}
	})
}

func TestACalibrationMeasuresLabelsAsTheyAreAtItsEnd(t *testing.T) {
	judgingtest.Each(t, func(t *testing.T, e *judgingtest.Env) {
		c := e.NewCriterion(t)
		all := e.Grade(t, c.ID, judgingtest.Grades(calibration.FirstBatch+8, judgingtest.Grade{Verdict: judge.Pass})...)
		var calls atomic.Int64
		reached, hold := make(chan struct{}), judgingtest.NewGate(t)
		e.Models.Do(func(int, *infer.Request) (string, error) {
			if calls.Add(1) == calibration.FirstBatch+1 { // those before have their verdicts
				close(reached)
				hold.Wait()
			}
			return judgingtest.Assessment(judge.Pass, 1), nil
		})
		begun := e.StartCalibration(t, c.ID)
		<-reached
		e.Adjudicate(t, all[0].ID, label.Ruling{Kind: label.LabelError})
		e.Adjudicate(t, all[1].ID, label.Ruling{Kind: label.Ambiguous})
		e.Adjudicate(t, all[2].ID, label.Ruling{Kind: label.JudgeError})
		e.Adjudicate(t, all[3].ID, label.Ruling{Kind: label.LabelError})
		e.Adjudicate(t, all[3].ID, label.Ruling{Verdict: judge.Pass})
		e.DeleteLabel(t, all[4].ID)
		e.Adjudicate(t, all[calibration.FirstBatch+7].ID, label.Ruling{Kind: label.LabelError}) // has no verdict yet
		e.DeleteLabel(t, all[calibration.FirstBatch+6].ID)
		later := e.Grade(t, c.ID, judgingtest.Grade{Verdict: judge.Fail}) // comes too late
		hold.Open()
		done := e.AwaitCalibration(t, c.ID, begun.ID, job.Done)
		if want := (trust.Matrix{TP: calibration.FirstBatch + 8 - 5, FP: 2}); done.Block.Matrix != want || done.Block.Failed != 0 {
			t.Errorf("%+v", done.Block)
		}
		report := e.Report(t, c.ID)
		if diff := cmp.Diff(report.Before, report.After); diff != "" || report.CertificateVoided {
			t.Errorf("what was measured is as it stands, yet: %s %v", diff, report.CertificateVoided)
		}
		for _, one := range report.Remaining {
			if one.HumanVerdict == "" || one.LabelID == all[4].ID || one.LabelID == all[calibration.FirstBatch+6].ID {
				t.Errorf("a label that is gone remains to be ruled on: %+v", one)
			}
		}
		if e.Certificate(t, c.ID).Voided {
			t.Error("the certificate is void from the start")
		}
		if again := e.Calibrate(t, c.ID); again.Block.N != calibration.FirstBatch+8-2 || again.Block.Matrix.FP != 3 {
			t.Errorf("with %s: %+v", later[0].ID, again.Block)
		}
	})
}

func TestACriterionThatChangesDuringItsCalibrationIsNotCertified(t *testing.T) {
	judgingtest.Each(t, func(t *testing.T, e *judgingtest.Env) {
		c := e.NewCriterion(t)
		e.Grade(t, c.ID, judgingtest.Grades(calibration.FirstBatch+8, judgingtest.Grade{Verdict: judge.Pass})...)
		var calls atomic.Int64
		reached, hold := make(chan struct{}), judgingtest.NewGate(t)
		e.Models.Do(func(int, *infer.Request) (string, error) {
			if calls.Add(1) == calibration.FirstBatch+1 {
				close(reached)
				hold.Wait()
			}
			return judgingtest.Assessment(judge.Pass, 1), nil
		})
		begun := e.StartCalibration(t, c.ID)
		<-reached
		if _, err := e.Criteria.Update(t.Context(), mine, ann, c.ID, &criterion.Definition{Rubric: judgingtest.Ptr("It is short.")}, judgingtest.Catalog{}); err != nil {
			t.Fatal(err)
		}
		hold.Open()
		failed := e.AwaitCalibration(t, c.ID, begun.ID, job.Failed)
		if failed.Block != nil || failed.CertificateID != nil || !strings.Contains(*failed.Error, "version 1 is now 2") {
			t.Errorf("%+v", failed)
		}
		_, err := e.Calibrations.Certificate(t.Context(), mine, c.ID)
		dbtest.Refused(t, err, 404)
		_, err = e.Calibrations.Report(t.Context(), mine, c.ID)
		dbtest.Refused(t, err, 404)
	})
}

func TestACalibrationFailsWhenItsJudgeCannotBeReached(t *testing.T) {
	judgingtest.Each(t, func(t *testing.T, e *judgingtest.Env) {
		c := e.NewCriterion(t)
		all := e.Grade(t, c.ID, judgingtest.Grades(10, judgingtest.Grade{Verdict: judge.Pass})...)
		gone := fault.Upstream.New("the provider is gone")
		e.Models.Do(func(item int, _ *infer.Request) (string, error) {
			if item == all[0].Item {
				return judgingtest.Assessment(judge.Pass, 1), nil
			}
			return "", gone
		})
		done := e.Calibrate(t, c.ID) // some failures are failures
		if done.Block.N != 1 || done.Block.Failed != 9 || done.Block.Trust != trust.Provisional || done.Cost != judgingtest.Price || e.Models.Calls() != 1+9*judging.MaxAttempts {
			t.Errorf("%+v after %d calls", done.Block, e.Models.Calls())
		}
		e.Grade(t, c.ID, judgingtest.Grades(30, judgingtest.Grade{Verdict: judge.Pass})...)
		e.Models.Do(func(int, *infer.Request) (string, error) { return "", gone })
		failed := e.AwaitCalibration(t, c.ID, e.StartCalibration(t, c.ID).ID, job.Failed)
		if !strings.Contains(*failed.Error, judgingtest.Model) || failed.CertificateID != nil {
			t.Errorf("%+v", failed)
		}
		e.Models.Do(func(int, *infer.Request) (string, error) {
			return "", fault.InsufficientBalance.New("the wallet is empty")
		})
		failed = e.AwaitCalibration(t, c.ID, e.StartCalibration(t, c.ID).ID, job.Failed)
		if !strings.Contains(*failed.Error, "wallet") {
			t.Errorf("%+v", failed)
		}
		e.Models.Do(nil)
		if again := e.Calibrate(t, c.ID); again.Block.N != 40 || again.Cost != 39*judgingtest.Price {
			t.Errorf("%+v", again)
		}
	})
}

func TestACancelledCalibrationKeepsItsAnswers(t *testing.T) {
	judgingtest.Each(t, func(t *testing.T, e *judgingtest.Env) {
		c := e.NewCriterion(t)
		e.Grade(t, c.ID, judgingtest.Grades(calibration.FirstBatch+8, judgingtest.Grade{Verdict: judge.Pass})...)
		var calls atomic.Int64
		reached, hold := make(chan struct{}), judgingtest.NewGate(t)
		e.Models.Do(func(int, *infer.Request) (string, error) {
			if calls.Add(1) == calibration.FirstBatch+1 {
				close(reached)
				hold.Wait()
			}
			return judgingtest.Assessment(judge.Pass, 1), nil
		})
		begun := e.StartCalibration(t, c.ID)
		<-reached
		if _, err := db.Exec(t.Context(), e.DB.In(mine), `UPDATE jobs SET cancel_requested = TRUE WHERE workspace_id = $1 AND id = $2`, begun.ID); err != nil {
			t.Fatal(err)
		}
		hold.Open()
		if ended := e.AwaitCalibration(t, c.ID, begun.ID, job.Cancelled); ended.Block != nil || ended.CertificateID != nil || ended.Done != calibration.FirstBatch+8 || ended.Cost != (calibration.FirstBatch+8)*judgingtest.Price {
			t.Errorf("%+v", ended)
		}
		e.Models.Do(nil)
		e.Calibrate(t, c.ID)
		if n, twice := e.Models.Answered(); n != calibration.FirstBatch+8 || twice {
			t.Errorf("%d questions, twice: %v", n, twice)
		}
	})
}

func TestACalibrationStopsAtItsSpendingLimitAndAnotherContinues(t *testing.T) {
	judgingtest.Each(t, func(t *testing.T, e *judgingtest.Env) {
		c := e.NewCriterion(t)
		e.Grade(t, c.ID, judgingtest.Grades(100, judgingtest.Grade{Verdict: judge.Pass})...)
		e.Judges.SetConcurrency(1)
		_, err := e.Calibrations.Start(t.Context(), mine, ann, c.ID, calibration.Options{Spending: judgingtest.Limit(1)})
		dbtest.Refused(t, err, 400, "max_cost_usd")
		most := 10 * judgingtest.Price
		e.Runner.Pause(errors.New("until the bound is set"))
		begun, err := e.Calibrations.Start(t.Context(), mine, ann, c.ID, calibration.Options{})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := db.Exec(t.Context(), e.DB.In(mine), `UPDATE calibrations SET max_cost = $3 WHERE workspace_id = $1 AND id = $2`, begun.ID, most); err != nil {
			t.Fatal(err)
		}
		e.Runner.Resume()
		if failed := e.AwaitCalibration(t, c.ID, begun.ID, job.Failed); failed.Cost != most || failed.Done != 10 || !strings.Contains(*failed.Error, "max_cost_usd") {
			t.Errorf("%+v", failed)
		}
		if done := e.Calibrate(t, c.ID); done.Cost != 90*judgingtest.Price {
			t.Errorf("%+v", done)
		}
	})
}

func TestACalibrationOfAChangedCriterionStopsAfterTheBatch(t *testing.T) {
	judgingtest.Each(t, func(t *testing.T, e *judgingtest.Env) {
		c := e.NewCriterion(t)
		e.Grade(t, c.ID, judgingtest.Grades(3*calibration.FirstBatch, judgingtest.Grade{Verdict: judge.Pass})...)
		var calls atomic.Int64
		e.Models.Do(func(int, *infer.Request) (string, error) {
			if calls.Add(1) == 5 {
				if _, err := e.Criteria.Update(t.Context(), mine, ann, c.ID, &criterion.Definition{Rubric: judgingtest.Ptr("It is short.")}, judgingtest.Catalog{}); err != nil {
					t.Error(err)
				}
			}
			return judgingtest.Assessment(judge.Pass, 1), nil
		})
		failed := e.AwaitCalibration(t, c.ID, e.StartCalibration(t, c.ID).ID, job.Failed)
		if n := calls.Load(); n > calibration.FirstBatch || failed.Cost != judgingtest.Price*calibration.FirstBatch {
			t.Errorf("%d questions, %+v", n, failed)
		}
	})
}

func TestExamplesAreJudgedAndNotCounted(t *testing.T) {
	judgingtest.Each(t, func(t *testing.T, e *judgingtest.Env) {
		c := e.NewCriterion(t, func(d *criterion.Definition) { d.FewShot = judgingtest.Ptr(true) })
		e.Grade(t, c.ID, slices.Concat(judgingtest.Grades(5, judgingtest.Grade{Verdict: judge.Pass, Critique: "yes"}), judgingtest.Grades(5, judgingtest.Grade{Verdict: judge.Fail, Critique: "no"}))...)
		done := e.Calibrate(t, c.ID)
		if done.Total != 10 || done.Block.N != 10-2*criterion.ExamplesPerVerdict {
			t.Errorf("%+v %+v", done, done.Block)
		}
	})
}

func TestAFreshCalibrationAsksEverythingAgain(t *testing.T) {
	judgingtest.Each(t, func(t *testing.T, e *judgingtest.Env) {
		c := e.NewCriterion(t)
		e.Grade(t, c.ID, judgingtest.Grades(6, judgingtest.Grade{Verdict: judge.Pass})...)
		e.Calibrate(t, c.ID)
		begun, err := e.Calibrations.Start(t.Context(), mine, ann, c.ID, calibration.Options{Fresh: true})
		if err != nil || begun.Estimate != 6*judgingtest.Estimate {
			t.Fatalf("%+v %v", begun, err)
		}
		if done := e.AwaitCalibration(t, c.ID, begun.ID, job.Done); done.Cost != 6*judgingtest.Price {
			t.Errorf("%+v", done)
		}
		if got := e.Certificate(t, c.ID); got.Calibrations != 2 {
			t.Errorf("%+v", got)
		}
	})
}

func TestFailuresStayInLaterCalibrations(t *testing.T) {
	judgingtest.Each(t, func(t *testing.T, e *judgingtest.Env) {
		c := e.NewCriterion(t)
		e.Grade(t, c.ID, slices.Concat(judgingtest.Grades(40, judgingtest.Grade{Report: true, Verdict: judge.Pass}), judgingtest.Grades(40, judgingtest.Grade{Report: true, Verdict: judge.Fail}))...)
		var calls atomic.Int64
		e.Models.Do(func(int, *infer.Request) (string, error) {
			if calls.Add(1)%5 == 0 {
				return "?", nil
			}
			return judgingtest.Assessment(judge.Pass, 1), nil
		})
		first := e.Calibrate(t, c.ID).Block
		for range 3 {
			if again := e.Calibrate(t, c.ID).Block; again.Failed != first.Failed || again.Trust != trust.Provisional {
				t.Errorf("%+v, then %+v", first, again)
			}
		}
	})
}

func TestAnEstimateLeavesOutWhatWasAnswered(t *testing.T) {
	judgingtest.Each(t, func(t *testing.T, e *judgingtest.Env) {
		c := e.NewCriterion(t)
		e.Grade(t, c.ID, judgingtest.Grades(50, judgingtest.Grade{Verdict: judge.Pass})...)
		e.Calibrate(t, c.ID)
		e.Grade(t, c.ID, judgingtest.Grades(2, judgingtest.Grade{Verdict: judge.Pass})...)
		if cost, total, err := e.Calibrations.Estimate(t.Context(), mine, c.ID, false); err != nil || cost != 2*judgingtest.Estimate || total != 52 {
			t.Errorf("%s for %d: %v", cost, total, err)
		}
		if cost, _, err := e.Calibrations.Estimate(t.Context(), mine, c.ID, true); err != nil || cost != 52*judgingtest.Estimate {
			t.Errorf("fresh: %s %v", cost, err)
		}
	})
}

func TestTheRowsOfACalibrationCanBeRead(t *testing.T) {
	judgingtest.Each(t, func(t *testing.T, e *judgingtest.Env) {
		c := e.NewCriterion(t)
		all := e.Grade(t, c.ID, judgingtest.Grades(3, judgingtest.Grade{Verdict: judge.Pass})...)
		e.Models.Say(func(item int) string {
			if item == all[1].Item {
				return "?"
			}
			return judgingtest.Assessment(judge.Pass, 1)
		})
		done := e.Calibrate(t, c.ID)
		failed, err := e.Calibrations.Rows(t.Context(), mine, c.ID, done.ID, "", judgingtest.Ptr(true), 10, 0)
		if err != nil || len(failed) != 1 || failed[0].LabelID != all[1].ID || failed[0].Verdict != nil || !strings.HasPrefix(*failed[0].Failure, "malformed") {
			t.Errorf("%+v %v", failed, err)
		}
		if passed, err := e.Calibrations.Rows(t.Context(), mine, c.ID, done.ID, judge.Pass, nil, 1, 1); err != nil || len(passed) != 1 || passed[0].LabelID != all[2].ID || *passed[0].Grade != 1 {
			t.Errorf("%+v %v", passed, err)
		}
	})
}

// Progress is to be seen as soon as the first questions are answered, while others wait for their answers.
func TestProgressIsSeenAfterTheFirstAnswers(t *testing.T) {
	judgingtest.Each(t, func(t *testing.T, e *judgingtest.Env) {
		c, gate := e.NewCriterion(t), judgingtest.NewGate(t)
		e.Grade(t, c.ID, judgingtest.Grades(20, judgingtest.Grade{Verdict: judge.Pass})...)
		var asked atomic.Int64
		e.Models.Say(func(int) string {
			if asked.Add(1) > calibration.FirstBatch {
				gate.Wait()
			}
			return judgingtest.Assessment(judge.Pass, 0.9)
		})
		started := e.StartCalibration(t, c.ID)
		want := job.Progress{Done: calibration.FirstBatch, Total: 20}
		for deadline := time.Now().Add(time.Minute); ; time.Sleep(time.Millisecond) {
			got, err := e.Calibrations.Get(t.Context(), mine, c.ID, started.ID)
			if err != nil {
				t.Fatal(err)
			}
			if got.Progress == want {
				break
			}
			if time.Now().After(deadline) {
				t.Fatalf("%+v, want %+v, after %d questions", got.Progress, want, asked.Load())
			}
		}
		gate.Open()
		e.AwaitCalibration(t, c.ID, started.ID, job.Done)
	})
}
