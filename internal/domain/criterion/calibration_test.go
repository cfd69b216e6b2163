package criterion

import (
	"errors"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/google/go-cmp/cmp"

	"sovereign/internal/base/fault"
	"sovereign/internal/domain/label"
	"sovereign/internal/grade/judge"
	"sovereign/internal/grade/trust"
	"sovereign/internal/plane/infer"
	"sovereign/internal/store/audit"
	"sovereign/internal/store/db"
	"sovereign/internal/store/job"
)

func TestACalibrationCountsEveryLabelOnceAndIsPaidOnce(t *testing.T) {
	everywhere(t, func(t *testing.T, r *room) {
		c := r.judge(t)
		all := r.grade(t, c.ID, slices.Concat(marks(3, mark{report: true, verdict: judge.Pass}), marks(2, mark{report: true, verdict: judge.Fail}),
			marks(30, mark{verdict: judge.Pass}), marks(12, mark{verdict: judge.Fail}), marks(1, mark{verdict: judge.Pass}))...)
		r.grade(t, "", marks(3, mark{verdict: judge.Pass})...) // of no judge
		r.rule(t, all[47].ID, label.Ruling{Kind: label.Ambiguous})
		r.oracle.tells(func(item int) string {
			switch i := slices.IndexFunc(all, func(g graded) bool { return g.item == item }); i {
			case 0, 5: // people pass it
				return opinion(judge.Fail, 0.2)
			case 3: // people fail it
				return opinion(judge.Pass, 0.8)
			case 4:
				return "I would rather not."
			default:
				return opinion(all[i].Verdict, 0.5)
			}
		})
		begun := r.begin(t, c.ID)
		if begun.Status != job.Queued || begun.Progress != (job.Progress{Total: 47}) || begun.Estimate != 47*foretold || begun.Block != nil || begun.Version != 1 || begun.CreatedBy != "usr_ann" {
			t.Errorf("%+v", begun)
		}
		done := r.done(t, c.ID, begun.ID, job.Done)
		want := trust.Halves{
			Report: trust.Counts{Matrix: trust.Matrix{TP: 2, FN: 1, FP: 1}, Failed: 1},
			Tuning: trust.Counts{Matrix: trust.Matrix{TP: 29, FN: 1, TN: 12}},
		}
		if diff := cmp.Diff(want.Block(), *done.Block); diff != "" {
			t.Error(diff)
		}
		if n, twice := r.oracle.asked(); n != 47 || twice || done.Cost != 47*price || done.Progress != (job.Progress{Done: 47, Total: 47}) || done.AlignedAt == nil {
			t.Errorf("%d questions, twice: %v; %+v", n, twice, done)
		}
		if id := r.certificate(t, c.ID).ID; done.CertificateID == nil || *done.CertificateID != id || *r.get(t, c.ID).CertificateID != id || r.get(t, c.ID).Trust != trust.Provisional {
			t.Errorf("%v %s %+v", done.CertificateID, id, r.get(t, c.ID))
		}
		if got := r.get(t, c.ID).Labels; got != (label.Counts{Pass: 33, Fail: 14}) {
			t.Errorf("%+v", got)
		}
		again := r.calibrate(t, c.ID)
		if n, _ := r.oracle.asked(); n != 47 || again.Cost != 0 { // nor does what was no verdict become one by asking again
			t.Errorf("%d questions, %s", n, again.Cost)
		}
		if list, err := r.Calibrations(t.Context(), mine, c.ID, 10, 0); err != nil || len(list) != 2 || list[0].ID != again.ID || list[1].ID != done.ID {
			t.Errorf("%+v %v", list, err)
		}
		for _, action := range []string{"calibration.start", "certificate.issue"} {
			if trail, err := audit.List(t.Context(), r.db, mine, action, 10, 0); err != nil || len(trail) != 2 || trail[0].Actor.User != "usr_ann" {
				t.Errorf("%+v %v", trail, err)
			}
		}
	})
}

func TestWhatCannotBeCalibratedIsRefusedAndKeepsNothing(t *testing.T) {
	everywhere(t, func(t *testing.T, r *room) {
		c := r.judge(t)
		_, err := r.Calibrate(t.Context(), mine, ann, c.ID, Effort{Spending: within(0)}, r.bench)
		refused(t, err, 412, "no labels")
		all := r.grade(t, c.ID, marks(2, mark{verdict: judge.Pass})...)
		_, err = r.Calibrate(t.Context(), mine, ann, c.ID, Effort{Spending: within(2*foretold - 1)}, r.bench)
		refused(t, err, 400, "max_cost_usd", (2 * foretold).String())
		_, err = r.Calibrate(t.Context(), mine, ann, "crit_none", Effort{Spending: within(0)}, r.bench)
		refused(t, err, 404, "crit_none")
		_, err = r.Calibrate(t.Context(), theirs, ann, c.ID, Effort{Spending: within(0)}, r.bench)
		refused(t, err, 404, c.ID)
		if n := r.rows(t, "calibrations") + r.rows(t, "jobs"); n != 0 {
			t.Errorf("%d calibrations and jobs", n)
		}
		hold := held(t)
		r.oracle.does(func(int, *infer.Request) (string, error) { <-hold.opened; return opinion(judge.Pass, 1), nil })
		if _, err := r.Calibrate(t.Context(), mine, ann, c.ID, Effort{Spending: within(2 * foretold)}, r.bench); err != nil {
			t.Fatal(err)
		}
		r.runner.Wake()
		_, err = r.Calibrate(t.Context(), mine, ann, c.ID, Effort{Spending: within(0)}, r.bench)
		refused(t, err, 409, "cal_")
		refused(t, r.Delete(t.Context(), mine, ann, c.ID), 409, "cal_")
		hold.open()
		list, err := r.Calibrations(t.Context(), mine, c.ID, 10, 0)
		if err != nil || len(list) != 1 {
			t.Fatal(list, err)
		}
		r.done(t, c.ID, list[0].ID, job.Done)
		for _, l := range all {
			r.rule(t, l.ID, label.Ruling{Kind: label.Ambiguous})
		}
		_, err = r.Calibrate(t.Context(), mine, ann, c.ID, Effort{Spending: within(0)}, r.bench)
		refused(t, err, 412, "no labels")
	})
}

// Whatever a server dies of, the next one asks only what was not answered, and what was paid is told.
func TestACalibrationGoesOnWhereItWasKilledAndAsksNothingTwice(t *testing.T) {
	everywhere(t, func(t *testing.T, r *room) {
		c := r.judge(t)
		r.grade(t, c.ID, marks(70, mark{verdict: judge.Pass})...)
		for kill := range 3 {
			var calls atomic.Int64
			reached, hold := make(chan struct{}), held(t)
			var once sync.Once
			r.oracle.does(func(int, *infer.Request) (string, error) {
				if calls.Add(1) > 12 { // in the middle of a batch: what came before it is kept, and in no row
					once.Do(func() { close(reached) })
					<-hold.opened
				}
				return opinion(judge.Pass, 1), nil
			})
			if kill == 0 {
				r.begin(t, c.ID)
			} else {
				r.serve(t)
			}
			<-reached
			r.runner.Pause(errors.New("killed"))
			hold.open()
			r.stop() // what it still does, it cannot write
		}
		r.oracle.does(nil)
		r.serve(t)
		list, err := r.Calibrations(t.Context(), mine, c.ID, 10, 0)
		if err != nil || len(list) != 1 {
			t.Fatal(list, err)
		}
		done := r.done(t, c.ID, list[0].ID, job.Done)
		if n, twice := r.oracle.asked(); n != 70 || twice || done.Block.N != 70 || done.Progress != (job.Progress{Done: 70, Total: 70}) {
			t.Errorf("%d questions, twice: %v; %+v", n, twice, done)
		}
		if done.Cost != r.oracle.paid {
			t.Errorf("it says that it cost %s, and %s was paid", done.Cost, r.oracle.paid)
		}
	})
}

func TestLabelsThatChangeDuringACalibrationAreMeasuredAsTheyStandAtItsEnd(t *testing.T) {
	everywhere(t, func(t *testing.T, r *room) {
		c := r.judge(t)
		all := r.grade(t, c.ID, marks(pendingAtOnce+8, mark{verdict: judge.Pass})...)
		var calls atomic.Int64
		reached, hold := make(chan struct{}), held(t)
		r.oracle.does(func(int, *infer.Request) (string, error) {
			if calls.Add(1) == pendingAtOnce+1 { // those before have their verdicts
				close(reached)
				<-hold.opened
			}
			return opinion(judge.Pass, 1), nil
		})
		begun := r.begin(t, c.ID)
		<-reached
		r.rule(t, all[0].ID, label.Ruling{Kind: label.LabelError})
		r.rule(t, all[1].ID, label.Ruling{Kind: label.Ambiguous})
		r.rule(t, all[2].ID, label.Ruling{Kind: label.JudgeError})
		r.rule(t, all[3].ID, label.Ruling{Kind: label.LabelError})
		r.rule(t, all[3].ID, label.Ruling{Verdict: judge.Pass})
		r.erase(t, all[4].ID)
		r.rule(t, all[pendingAtOnce+7].ID, label.Ruling{Kind: label.LabelError}) // has no verdict yet
		r.erase(t, all[pendingAtOnce+6].ID)
		later := r.grade(t, c.ID, mark{verdict: judge.Fail}) // comes too late
		hold.open()
		done := r.done(t, c.ID, begun.ID, job.Done)
		if want := (trust.Matrix{TP: pendingAtOnce + 8 - 5, FP: 2}); done.Block.Matrix != want || done.Block.Failed != 0 {
			t.Errorf("%+v", done.Block)
		}
		report := r.report(t, c.ID)
		if diff := cmp.Diff(report.Before, report.After); diff != "" || report.CertificateVoided {
			t.Errorf("what was measured is as it stands, yet: %s %v", diff, report.CertificateVoided)
		}
		for _, one := range report.Remaining {
			if one.HumanVerdict == "" || one.LabelID == all[4].ID || one.LabelID == all[pendingAtOnce+6].ID {
				t.Errorf("a label that is gone remains to be ruled on: %+v", one)
			}
		}
		if r.certificate(t, c.ID).Voided {
			t.Error("the certificate is void from the start")
		}
		if again := r.calibrate(t, c.ID); again.Block.N != pendingAtOnce+8-2 || again.Block.Matrix.FP != 3 {
			t.Errorf("with %s: %+v", later[0].ID, again.Block)
		}
	})
}

func TestACriterionThatChangesDuringItsCalibrationIsNotCertified(t *testing.T) {
	everywhere(t, func(t *testing.T, r *room) {
		c := r.judge(t)
		r.grade(t, c.ID, marks(pendingAtOnce+8, mark{verdict: judge.Pass})...)
		var calls atomic.Int64
		reached, hold := make(chan struct{}), held(t)
		r.oracle.does(func(int, *infer.Request) (string, error) {
			if calls.Add(1) == pendingAtOnce+1 {
				close(reached)
				<-hold.opened
			}
			return opinion(judge.Pass, 1), nil
		})
		begun := r.begin(t, c.ID)
		<-reached
		if _, err := r.Update(t.Context(), mine, ann, c.ID, &Definition{Rubric: ptr("It is short.")}, catalog{}); err != nil {
			t.Fatal(err)
		}
		hold.open()
		failed := r.done(t, c.ID, begun.ID, job.Failed)
		if failed.Block != nil || failed.CertificateID != nil || !strings.Contains(*failed.Error, "version 1 is now 2") {
			t.Errorf("%+v", failed)
		}
		_, err := r.Certificate(t.Context(), mine, c.ID)
		refused(t, err, 404)
		_, err = r.Adjudication(t.Context(), mine, c.ID)
		refused(t, err, 404)
	})
}

func TestAJudgeThatCannotBeReachedIsGivenUp(t *testing.T) {
	everywhere(t, func(t *testing.T, r *room) {
		c := r.judge(t)
		all := r.grade(t, c.ID, marks(10, mark{verdict: judge.Pass})...)
		gone := fault.Upstream.New("the provider is gone")
		r.oracle.does(func(item int, _ *infer.Request) (string, error) {
			if item == all[0].item {
				return opinion(judge.Pass, 1), nil
			}
			return "", gone
		})
		done := r.calibrate(t, c.ID) // some failures are failures
		if done.Block.N != 1 || done.Block.Failed != 9 || done.Block.Trust != trust.Provisional || done.Cost != price || r.oracle.calls != 1+9*patience {
			t.Errorf("%+v after %d calls", done.Block, r.oracle.calls)
		}
		r.grade(t, c.ID, marks(30, mark{verdict: judge.Pass})...)
		r.oracle.does(func(int, *infer.Request) (string, error) { return "", gone })
		failed := r.done(t, c.ID, r.begin(t, c.ID).ID, job.Failed)
		if !strings.Contains(*failed.Error, model) || failed.CertificateID != nil {
			t.Errorf("%+v", failed)
		}
		r.oracle.does(func(int, *infer.Request) (string, error) {
			return "", fault.InsufficientBalance.New("the wallet is empty")
		})
		failed = r.done(t, c.ID, r.begin(t, c.ID).ID, job.Failed)
		if !strings.Contains(*failed.Error, "wallet") {
			t.Errorf("%+v", failed)
		}
		r.oracle.does(nil)
		if again := r.calibrate(t, c.ID); again.Block.N != 40 || again.Cost != 39*price {
			t.Errorf("%+v", again)
		}
	})
}

func TestAModelThatRefusesStructureIsAskedPlainlyFromThenOn(t *testing.T) {
	everywhere(t, func(t *testing.T, r *room) {
		c := r.judge(t)
		all := r.grade(t, c.ID, marks(40, mark{verdict: judge.Pass})...)
		var structured, plain atomic.Int64
		r.oracle.does(func(item int, q *infer.Request) (string, error) {
			if strings.Contains(string(q.Body), "json_schema") {
				structured.Add(1)
				return "", fault.InvalidParameter.New("response_format is not known")
			}
			plain.Add(1)
			if item == all[5].item {
				return "", fault.InvalidParameter.New("too long")
			}
			return opinion(judge.Pass, 1), nil
		})
		done := r.calibrate(t, c.ID)
		if done.Block.N != 39 || done.Block.Failed != 1 || plain.Load() != 40 || structured.Load() > 2*usually {
			t.Errorf("%+v; %d structured, %d plain", done.Block, structured.Load(), plain.Load())
		}
	})
}

func TestAnAnswerIsRememberedForEverybodyAndAFailureForItsOwnRun(t *testing.T) {
	everywhere(t, func(t *testing.T, r *room) {
		c := r.judge(t)
		step := exchange(1)
		q := func(origin string) *question {
			return &question{criterionID: c.ID, origin: origin, model: model, brief: c.brief(nil), subject: &judge.Subject{Steps: []judge.Step{step}}}
		}
		ask := func(origin string, calls int, cost bool) finding {
			t.Helper()
			before := r.oracle.calls
			f, err := r.bench.ask(t.Context(), mine, q(origin))
			if err != nil || r.oracle.calls-before != calls || (f.Cost > 0) != cost {
				t.Errorf("%s: %+v %v after %d calls", origin, f, err, r.oracle.calls-before)
			}
			return f
		}
		r.oracle.tells(func(int) string { return "no idea" })
		first := ask("cal_1", 1, true)
		if first.Failure == "" || first.Verdict != "" {
			t.Errorf("%+v", first)
		}
		if again := ask("cal_1", 0, false); again.Failure != first.Failure || again.RequestID != first.RequestID {
			t.Errorf("%+v, then %+v", first, again)
		}
		r.oracle.tells(func(int) string { return opinion(judge.Fail, 0.25) })
		second := ask("cal_2", 1, true)
		for _, origin := range []string{"cal_1", "cal_2", "scan_1"} {
			if got := ask(origin, 0, false); got.Opinion != second.Opinion || got.Verdict != judge.Fail || got.RequestID != second.RequestID {
				t.Errorf("%s: %+v", origin, got)
			}
		}
		if _, err := r.bench.ask(t.Context(), theirs, q("cal_1")); err != nil || r.oracle.calls != 3 {
			t.Errorf("another workspace: %v after %d calls", err, r.oracle.calls)
		}
		other := q("cal_1")
		other.model = another
		if _, err := r.bench.ask(t.Context(), mine, other); err != nil || r.oracle.calls != 4 {
			t.Errorf("another model: %v after %d calls", err, r.oracle.calls)
		}
	})
}

func TestACancelledCalibrationKeepsItsAnswers(t *testing.T) {
	everywhere(t, func(t *testing.T, r *room) {
		c := r.judge(t)
		r.grade(t, c.ID, marks(pendingAtOnce+8, mark{verdict: judge.Pass})...)
		var calls atomic.Int64
		reached, hold := make(chan struct{}), held(t)
		r.oracle.does(func(int, *infer.Request) (string, error) {
			if calls.Add(1) == pendingAtOnce+1 {
				close(reached)
				<-hold.opened
			}
			return opinion(judge.Pass, 1), nil
		})
		begun := r.begin(t, c.ID)
		<-reached
		if _, err := db.Exec(t.Context(), r.db.In(mine), `UPDATE jobs SET cancel_requested = TRUE WHERE workspace_id = $1 AND id = $2`, begun.ID); err != nil {
			t.Fatal(err)
		}
		hold.open()
		if ended := r.done(t, c.ID, begun.ID, job.Cancelled); ended.Block != nil || ended.CertificateID != nil || ended.Done != pendingAtOnce+8 || ended.Cost != (pendingAtOnce+8)*price {
			t.Errorf("%+v", ended)
		}
		r.oracle.does(nil)
		r.calibrate(t, c.ID)
		if n, twice := r.oracle.asked(); n != pendingAtOnce+8 || twice {
			t.Errorf("%d questions, twice: %v", n, twice)
		}
	})
}
