package reward_test

import (
	"fmt"
	"net/http"
	"testing"

	"sovereign/internal/domain/judgingtest"
	"sovereign/internal/domain/label"
	"sovereign/internal/domain/reward"
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
			f.scores(t, s.ID, fmt.Sprint(last), numbered(100*last, 8)...)
			f.check(t)
		}
		o.set(everything, nothing)
		f.scores(t, s.ID, "gamed", numbered(100*last, 8)...)
		f.check(t)
		if a := f.anchorOf(t, s.ID); a.Checks != 13 || *a.PinnedStep != fmt.Sprint(last-1) {
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
			if status, _ := f.score(t, s.ID, fmt.Sprint(step), same...); status == http.StatusPreconditionFailed {
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
