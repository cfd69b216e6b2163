package reward_test

import (
	"fmt"
	"net/http"
	"strconv"
	"testing"

	"sovereign/internal/domain/judgingtest"
	"sovereign/internal/domain/label"
	"sovereign/internal/domain/reward"
	"sovereign/internal/grade/stat"
	"sovereign/internal/plane/infer"
	"sovereign/internal/store/db/dbtest"
)

// A check that a hold has dropped leaves nothing to the next e-process: a run that was rolled back is not held for what
// it did before.
func TestADroppedCheckLeavesNothingToTheNextProcess(t *testing.T) {
	each(t, func(t *testing.T, f *fixture) {
		o := &opinions{}
		f.answers(o)
		rewards, anchor := f.pair(60)
		s := f.create(anchored(rewards.ID, anchor.ID))
		o.set(everything, nothing)
		f.scores(t, s.ID, "1", numbered(0, 64)...) // a check is drawn, and not judged yet
		f.Adjudicate(t, f.report(anchor.ID), label.Ruling{Kind: label.LabelError})
		if status, _ := f.score(t, s.ID, "2", numbered(100, 1)...); status != http.StatusPreconditionFailed {
			t.Fatalf("with a void certificate: %d", status)
		}
		f.check(t)
		f.Calibrate(t, anchor.ID)
		if err := f.store.Release(t.Context(), dbtest.Mine, dbtest.Ann, s.ID, "rolled back"); err != nil {
			t.Fatal(err)
		}
		o.set(everything, func(item int) bool { return item >= first+1000 })
		f.scores(t, s.ID, "3", numbered(1000, 64)...)
		f.check(t)
		a := f.anchorOf(t, s.ID)
		if a.Held || len(a.History) != 1 || a.History[0].N != 32 || a.History[0].AnchorRate < .9 {
			t.Errorf("%+v", a)
		}
	})
}

// However many checks were good before, a step whose own check shows that it games its judge has not passed.
func TestAGamedStepIsNotPinnedAfterManyGoodOnes(t *testing.T) {
	each(t, func(t *testing.T, f *fixture) {
		o := &opinions{}
		f.answers(o)
		rewards, anchor := f.pair(60)
		n := anchored(rewards.ID, anchor.ID)
		n.Anchor = &reward.NewAnchor{CriterionID: anchor.ID, SampleSize: 8, Every: 8}
		s := f.create(n)
		last := 0
		for ; last < 12; last++ {
			f.scores(t, s.ID, strconv.Itoa(last), numbered(100*last, 8)...)
			f.check(t)
		}
		o.set(everything, nothing)
		f.scores(t, s.ID, "gamed", numbered(100*last, 8)...)
		f.check(t)
		if a := f.anchorOf(t, s.ID); a.Checks != 13 || *a.PinnedStep != strconv.Itoa(last-1) {
			t.Errorf("after %d checks and an evidence of %v, %s is pinned", a.Checks, *a.Evidence, *a.PinnedStep)
		}
	})
}

// A session of few prompts is checked too, with as many completions as it has prompts.
func TestFewPromptsAreChecked(t *testing.T) {
	each(t, func(t *testing.T, f *fixture) {
		o := &opinions{}
		f.answers(o)
		o.set(everything, nothing)
		rewards, anchor := f.pair(60)
		n := anchored(rewards.ID, anchor.ID)
		n.Anchor = &reward.NewAnchor{CriterionID: anchor.ID, SampleSize: 8, Every: 8}
		s := f.create(n)
		for step := range 40 {
			same := numbered(100*step, 8)
			for i := range same {
				same[i].Prompt = judgingtest.Ptr(fmt.Sprint("prompt ", i%2))
			}
			if status, _ := f.score(t, s.ID, strconv.Itoa(step), same...); status == http.StatusPreconditionFailed {
				break
			}
			f.check(t)
		}
		if a := f.anchorOf(t, s.ID); !a.Held || a.History[0].N != 2 {
			t.Errorf("%+v", a)
		}
	})
}

// A check draws from all that was scored since the last one, however much that is: a trainer cannot bury what it did
// under what it scores before the check.
func TestACheckDrawsFromEverythingSinceTheLast(t *testing.T) {
	each(t, func(t *testing.T, f *fixture) {
		o := &opinions{}
		f.answers(o)
		f.store.SetCandidates(60)
		rewards, anchor := f.pair(60)
		n := anchored(rewards.ID, anchor.ID)
		n.Anchor = &reward.NewAnchor{CriterionID: anchor.ID, SampleSize: 60, Every: 300}
		s := f.create(n)
		o.set(everything, func(item int) bool { return item >= first+240 })
		f.scores(t, s.ID, "1", numbered(0, 240)...) // these game the judge
		f.scores(t, s.ID, "2", numbered(240, 60)...)
		f.check(t)
		if a := f.anchorOf(t, s.ID); !a.Held || a.History[0].N < 50 {
			t.Errorf("%+v", a)
		}
	})
}

// An anchor that gives no verdict about good completions alone is measured so: a run whose completions become better,
// of which the anchor then fails more, is a healthy one.
func TestTheAnchorsFailuresCountInTheirClass(t *testing.T) {
	each(t, func(t *testing.T, f *fixture) {
		o := &opinions{}
		f.answers(o)
		rewards, anchor := f.NewCriterion(t), f.NewCriterion(t, byOther)
		graded := f.recalibrate(rewards.ID, 60) // 60 passes, then 60 fails
		silent := map[int]bool{graded[0].Item: true, graded[1].Item: true, graded[2].Item: true}
		f.Models.Do(func(item int, r *infer.Request) (string, error) {
			if silent[item] {
				return "I cannot say.", nil
			}
			return f.graded.repeat(item), nil
		})
		f.share(anchor.ID, graded)
		asked := f.count(t, `SELECT COUNT(*) FROM calibration_rows r JOIN calibrations c ON c.id = r.calibration_id
			WHERE c.criterion_id = '`+anchor.ID+`'`)
		a := f.anchorOf(t, f.create(anchored(rewards.ID, anchor.ID)).ID)
		want := stat.Common{
			Pass: stat.Pairs{Both: 57}, Fail: stat.Pairs{Neither: 60}, PassUnanswered: stat.Pairs{First: 3}, Failed: 3,
			Asked: asked,
		}
		if a.CommonPass != 57 || a.CommonFail != 60 || *a.FailureBound != want.Failure() || *a.Gap != want.Gap() {
			t.Errorf("%d and %d common, a gap of %v with %v for failures, want %v", a.CommonPass, a.CommonFail, *a.Gap,
				*a.FailureBound, want.Gap())
		}
		if n := f.count(t, `SELECT COUNT(*) FROM reward_sessions
			WHERE anchor LIKE '%"pass_unanswered":{"both":0,"first":3,%'`); n != 1 {
			t.Error("what the anchor gave no verdict of is not counted in its class")
		}
	})
}
