package criterion

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"sovereign/internal/base/clock"
	"sovereign/internal/base/fault"
	"sovereign/internal/domain/label"
	"sovereign/internal/grade/judge"
	"sovereign/internal/grade/trust"
	"sovereign/internal/plane/infer"
	"sovereign/internal/store/db"
	"sovereign/internal/store/job"
)

// What one version said is not corrected by what is known of another.
func TestVerdictsOfOneVersionAreNotCorrectedByTheCertificateOfAnother(t *testing.T) {
	everywhere(t, func(t *testing.T, r *room) {
		c := r.judge(t)
		verdicts := map[int]judge.Verdict{}
		for _, g := range r.grade(t, c.ID, slices.Concat(marks(40, mark{report: true, verdict: judge.Pass}), marks(40, mark{report: true, verdict: judge.Fail}))...) {
			verdicts[g.item] = g.Verdict
		}
		r.oracle.tells(func(item int) string {
			if verdicts[item] == judge.Fail {
				return opinion(judge.Fail, 0.1)
			}
			return opinion(judge.Pass, 0.9)
		})
		r.calibrate(t, c.ID)
		is := func(version int64, want string) {
			t.Helper()
			got, err := rates(t.Context(), r.db.In(mine), c.ID, version, 8, 10)
			if err != nil || (got.NotCorrected == nil) != (want == "") || want != "" && *got.NotCorrected != want {
				t.Errorf("version %d: %v %+v, want %q", version, err, got, want)
			}
		}
		is(1, "")
		if _, err := r.Update(t.Context(), mine, ann, c.ID, &Definition{Rubric: ptr("It is short.")}, catalog{}); err != nil {
			t.Fatal(err)
		}
		is(1, "certificate_void")
		r.calibrate(t, c.ID)
		is(1, "certificate_void")
		is(2, "")
	})
}

// Who asks the same at the same time is answered once, and pays once.
func TestTheSameQuestionAtOnceIsAskedOnce(t *testing.T) {
	everywhere(t, func(t *testing.T, r *room) {
		c := r.judge(t)
		hold := held(t)
		r.oracle.does(func(int, *infer.Request) (string, error) { <-hold.opened; return opinion(judge.Pass, 1), nil })
		told := &judge.Brief{Rubric: c.Rubric, Scale: c.Scale, Threshold: c.PassThreshold}
		subject := judge.Subject{Steps: []judge.Step{exchange(1)}}
		var group sync.WaitGroup
		for i := range 12 {
			group.Go(func() {
				got, err := r.bench.ask(t.Context(), mine, &question{criterionID: c.ID, origin: fmt.Sprint("run_", i%3), model: model, brief: told, subject: &subject})
				if err != nil || got.Verdict != judge.Pass {
					t.Errorf("%+v %v", got, err)
				}
			})
		}
		hold.open()
		group.Wait()
		if r.oracle.calls != 1 {
			t.Errorf("%d calls", r.oracle.calls)
		}
	})
}

// A run stops where its bound is reached, and another goes on from what it has.
func TestARunSpendsNoMoreThanItMay(t *testing.T) {
	everywhere(t, func(t *testing.T, r *room) {
		c := r.judge(t)
		r.grade(t, c.ID, marks(100, mark{verdict: judge.Pass})...)
		r.bench.AtOnce(1)
		_, err := r.Calibrate(t.Context(), mine, ann, c.ID, Effort{Spending: within(1)}, r.bench)
		refused(t, err, 400, "max_cost_usd")
		most := 10 * price
		r.runner.Pause(errors.New("until the bound is set"))
		begun, err := r.Calibrate(t.Context(), mine, ann, c.ID, Effort{}, r.bench)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := db.Exec(t.Context(), r.db.In(mine), `UPDATE calibrations SET max_cost = $3 WHERE workspace_id = $1 AND id = $2`, begun.ID, most); err != nil {
			t.Fatal(err)
		}
		r.runner.Resume()
		if failed := r.done(t, c.ID, begun.ID, job.Failed); failed.Cost != most || failed.Done != 10 || !strings.Contains(*failed.Error, "max_cost_usd") {
			t.Errorf("%+v", failed)
		}
		if done := r.calibrate(t, c.ID); done.Cost != 90*price {
			t.Errorf("%+v", done)
		}
	})
}

// A criterion that is told something else is not paid for to the end.
func TestAChangedCriterionIsNotPaidForToTheEnd(t *testing.T) {
	everywhere(t, func(t *testing.T, r *room) {
		c := r.judge(t)
		r.grade(t, c.ID, marks(3*pendingAtOnce, mark{verdict: judge.Pass})...)
		var calls atomic.Int64
		r.oracle.does(func(int, *infer.Request) (string, error) {
			if calls.Add(1) == 5 {
				if _, err := r.Update(t.Context(), mine, ann, c.ID, &Definition{Rubric: ptr("It is short.")}, catalog{}); err != nil {
					t.Error(err)
				}
			}
			return opinion(judge.Pass, 1), nil
		})
		failed := r.done(t, c.ID, r.begin(t, c.ID).ID, job.Failed)
		if n := calls.Load(); n > pendingAtOnce || failed.Cost != price*pendingAtOnce {
			t.Errorf("%d questions, %+v", n, failed)
		}
	})
}

// What is measured later is the last, wherever the clock stands.
func TestAClockThatGoesBackMakesNoOldCertificateTheLast(t *testing.T) {
	everywhere(t, func(t *testing.T, r *room) {
		c := r.judge(t)
		all := r.grade(t, c.ID, marks(4, mark{verdict: judge.Pass})...)
		r.calibrate(t, c.ID)
		for _, text := range []string{`UPDATE certificates SET issued_at = issued_at + $2 WHERE workspace_id = $1`, `UPDATE calibrations SET aligned_at = aligned_at + $2 WHERE workspace_id = $1`} {
			if _, err := db.Exec(t.Context(), r.db.In(mine), text, int64(3_600_000_000)); err != nil {
				t.Fatal(err)
			}
		}
		r.rule(t, all[0].ID, label.Ruling{Kind: label.LabelError})
		again := r.calibrate(t, c.ID)
		if got := r.certificate(t, c.ID); got.CalibrationID != again.ID || got.Voided || *r.get(t, c.ID).CertificateID != got.ID {
			t.Errorf("%+v", got)
		}
		if report := r.report(t, c.ID); report.AlignedAt != *again.AlignedAt || report.Before.Matrix.FP != 1 {
			t.Errorf("%+v", report)
		}
	})
}

// A label that was corrected or confirmed before is no excuse for a judge who disagrees with it since.
func TestANewDisagreementRemainsAlthoughTheLabelWasRuledOn(t *testing.T) {
	everywhere(t, func(t *testing.T, r *room) {
		c := r.judge(t)
		all := r.grade(t, c.ID, marks(3, mark{verdict: judge.Pass})...)
		r.rule(t, all[0].ID, label.Ruling{Kind: label.LabelError}) // people fail it
		r.rule(t, all[1].ID, label.Ruling{Verdict: judge.Pass})    // confirmed
		r.oracle.tells(func(int) string { return opinion(judge.Pass, 1) })
		r.calibrate(t, c.ID)
		report := r.report(t, c.ID)
		if len(report.Remaining) != 1 || report.Remaining[0].LabelID != all[0].ID || report.Remaining[0].Direction != "fp" {
			t.Errorf("%s", shown(t, report))
		}
		r.rule(t, all[0].ID, label.Ruling{Verdict: judge.Fail})
		if report = r.report(t, c.ID); len(report.Remaining) != 1 {
			t.Errorf("it agrees with the correction: %s", shown(t, report.Remaining))
		}
	})
}

// What a judge is shown as an example measures nothing.
func TestExamplesMeasureNothing(t *testing.T) {
	everywhere(t, func(t *testing.T, r *room) {
		c := r.judge(t, func(d *Definition) { d.FewShot = ptr(true) })
		r.grade(t, c.ID, slices.Concat(marks(5, mark{verdict: judge.Pass, critique: "yes"}), marks(5, mark{verdict: judge.Fail, critique: "no"}))...)
		done := r.calibrate(t, c.ID)
		if done.Total != 10 || done.Block.N != 10-2*eachClass {
			t.Errorf("%+v %+v", done, done.Block)
		}
	})
}

// A judge can be asked again what it answered before.
func TestAFreshCalibrationAsksEverythingAgain(t *testing.T) {
	everywhere(t, func(t *testing.T, r *room) {
		c := r.judge(t)
		r.grade(t, c.ID, marks(6, mark{verdict: judge.Pass})...)
		r.calibrate(t, c.ID)
		begun, err := r.Calibrate(t.Context(), mine, ann, c.ID, Effort{Fresh: true}, r.bench)
		if err != nil || begun.Estimate != 6*foretold {
			t.Fatalf("%+v %v", begun, err)
		}
		r.runner.Wake()
		if done := r.done(t, c.ID, begun.ID, job.Done); done.Cost != 6*price {
			t.Errorf("%+v", done)
		}
		if got := r.certificate(t, c.ID); got.Calibrations != 2 {
			t.Errorf("%+v", got)
		}
	})
}

// What was said of exchanges goes with them, wherever it is shown.
func TestFailingExamplesGoWithTheirExchanges(t *testing.T) {
	everywhere(t, func(t *testing.T, r *room) {
		c := r.judge(t)
		r.log(t, mine, "a", upTo(8)...)
		r.oracle.tells(func(int) string { return opinion(judge.Fail, 0.1) })
		scan := r.scan(t, c.ID, Sample{Size: 8}, job.Done)
		if len(scan.Result.Failing) != 8 {
			t.Fatalf("%s", shown(t, scan))
		}
		if _, err := db.Exec(t.Context(), r.db.In(mine), `UPDATE judged_logs SET expires_at = $2 WHERE workspace_id = $1`, clock.Now()-1); err != nil {
			t.Fatal(err)
		}
		if err := r.Sweep(t.Context()); err != nil {
			t.Fatal(err)
		}
		if scan, err := r.readScan(t.Context(), mine, c.ID, scan.ID); err != nil || len(scan.Result.Failing) != 0 || scan.Result.N != 8 {
			t.Errorf("%s %v", shown(t, scan), err)
		}
	})
}

// Calibrating again until the failures are gone measures nothing.
func TestFailuresDoNotWearOff(t *testing.T) {
	everywhere(t, func(t *testing.T, r *room) {
		c := r.judge(t)
		r.grade(t, c.ID, slices.Concat(marks(40, mark{report: true, verdict: judge.Pass}), marks(40, mark{report: true, verdict: judge.Fail}))...)
		var calls atomic.Int64
		r.oracle.does(func(int, *infer.Request) (string, error) {
			if calls.Add(1)%5 == 0 {
				return "?", nil
			}
			return opinion(judge.Pass, 1), nil
		})
		first := r.calibrate(t, c.ID).Block
		for range 3 {
			if again := r.calibrate(t, c.ID).Block; again.Failed != first.Failed || again.Trust != trust.Provisional {
				t.Errorf("%+v, then %+v", first, again)
			}
		}
	})
}

// A wallet that can pay for one question after the other pays for all: what a run holds at once is no reason to give up.
func TestARunWaitsForWhatItHoldsItself(t *testing.T) {
	everywhere(t, func(t *testing.T, r *room) {
		c := r.judge(t)
		r.grade(t, c.ID, marks(20, mark{verdict: judge.Pass})...)
		var holding atomic.Int64
		r.oracle.does(func(int, *infer.Request) (string, error) {
			defer holding.Add(-1)
			if holding.Add(1) > 2 {
				return "", fault.InsufficientBalance.New("the wallet has too little")
			}
			time.Sleep(2 * time.Millisecond)
			return opinion(judge.Pass, 1), nil
		})
		if done := r.calibrate(t, c.ID); done.Cost != 20*price {
			t.Errorf("%+v", done)
		}
		r.grade(t, c.ID, marks(3, mark{verdict: judge.Pass})...)
		r.oracle.does(func(int, *infer.Request) (string, error) {
			return "", fault.InsufficientBalance.New("the wallet is empty")
		})
		if failed := r.done(t, c.ID, r.begin(t, c.ID).ID, job.Failed); !strings.Contains(*failed.Error, "the wallet is empty") {
			t.Errorf("%+v", failed)
		}
	})
}

// What is estimated is what is not answered yet, however much was.
func TestAnEstimateIsOfWhatIsNotAnsweredYet(t *testing.T) {
	everywhere(t, func(t *testing.T, r *room) {
		c := r.judge(t)
		r.grade(t, c.ID, marks(50, mark{verdict: judge.Pass})...)
		r.calibrate(t, c.ID)
		r.grade(t, c.ID, marks(2, mark{verdict: judge.Pass})...)
		if cost, total, err := r.foresee(t.Context(), mine, c.ID, false, r.bench); err != nil || cost != 2*foretold || total != 52 {
			t.Errorf("%s for %d: %v", cost, total, err)
		}
		if cost, _, err := r.foresee(t.Context(), mine, c.ID, true, r.bench); err != nil || cost != 52*foretold {
			t.Errorf("fresh: %s %v", cost, err)
		}
	})
}

// A certificate can be read by who holds it, when there is a newer one, and when its judge is gone.
func TestACertificateOutlivesItsJudge(t *testing.T) {
	everywhere(t, func(t *testing.T, r *room) {
		c := r.judge(t)
		r.grade(t, c.ID, marks(3, mark{verdict: judge.Pass})...)
		r.calibrate(t, c.ID)
		first := r.certificate(t, c.ID)
		r.calibrate(t, c.ID)
		if got, err := r.ByID(t.Context(), mine, first.ID); err != nil || got.Voided || got.Signature != first.Signature {
			t.Errorf("%+v %v", got, err)
		}
		if err := r.Delete(t.Context(), mine, ann, c.ID); err != nil {
			t.Fatal(err)
		}
		if err := r.Sweep(t.Context()); err != nil {
			t.Fatal(err)
		}
		if got, err := r.ByID(t.Context(), mine, first.ID); err != nil || !got.Voided || *got.VoidedReason != "the criterion was deleted" {
			t.Errorf("%+v %v", got, err)
		}
		_, err := r.ByID(t.Context(), theirs, first.ID)
		refused(t, err, 404)
	})
}

// What a judge said of each label can be read, and why it said nothing.
func TestTheRowsOfACalibrationCanBeRead(t *testing.T) {
	everywhere(t, func(t *testing.T, r *room) {
		c := r.judge(t)
		all := r.grade(t, c.ID, marks(3, mark{verdict: judge.Pass})...)
		r.oracle.tells(func(item int) string {
			if item == all[1].item {
				return "?"
			}
			return opinion(judge.Pass, 1)
		})
		done := r.calibrate(t, c.ID)
		failed, err := r.Rows(t.Context(), mine, c.ID, done.ID, "", ptr(true), 10, 0)
		if err != nil || len(failed) != 1 || failed[0].LabelID != all[1].ID || failed[0].Verdict != nil || !strings.HasPrefix(*failed[0].Failure, "malformed") {
			t.Errorf("%+v %v", failed, err)
		}
		if passed, err := r.Rows(t.Context(), mine, c.ID, done.ID, judge.Pass, nil, 1, 1); err != nil || len(passed) != 1 || passed[0].LabelID != all[2].ID || *passed[0].Grade != 1 {
			t.Errorf("%+v %v", passed, err)
		}
	})
}
