package reward_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"sovereign/internal/base/fault"
	"sovereign/internal/base/tenant"
	"sovereign/internal/domain/criterion"
	"sovereign/internal/domain/judgingtest"
	"sovereign/internal/domain/label"
	"sovereign/internal/domain/reward"
	"sovereign/internal/grade/judge"
	"sovereign/internal/plane/infer"
	"sovereign/internal/store/db/dbtest"
)

// opinions are what two judges say of the items that are scored. Both repeat people's verdicts of the items that were
// graded.
type opinions struct {
	mu             sync.Mutex
	reward, anchor func(item int) bool
	fails          bool // the anchor gives no verdict
}

func (o *opinions) set(reward, anchor func(item int) bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.reward, o.anchor = reward, anchor
}

func everything(int) bool { return true }
func nothing(int) bool    { return false }

// answers lets the fake models speak for o.
func (f *fixture) answers(o *opinions) {
	o.set(everything, everything)
	f.Models.Do(func(item int, r *infer.Request) (string, error) {
		o.mu.Lock()
		defer o.mu.Unlock()
		if item < first {
			return f.graded.repeat(item), nil
		}
		passes := o.reward
		if r.Model == judgingtest.OtherModel {
			if passes = o.anchor; o.fails {
				return "I cannot say.", nil
			}
		}
		if passes(item) {
			return judgingtest.Assessment(judge.Pass, 0.9), nil
		}
		return judgingtest.Assessment(judge.Fail, 0.1), nil
	})
}

func byOther(d *criterion.Definition) {
	d.Name, d.JudgeModel = judgingtest.Ptr("anchor"), judgingtest.Ptr(judgingtest.OtherModel)
}

// share gives a criterion the labels of items that another has, and calibrates it.
func (f *fixture) share(id string, graded []judgingtest.Graded) {
	f.t.Helper()
	all := make([]label.New, len(graded))
	for i, g := range graded {
		step := judgingtest.Exchange(g.Item)
		all[i] = label.New{Messages: step.Messages, Response: step.Response, CriterionID: id, Verdict: g.Verdict}
	}
	if _, err := f.Labels.Create(f.t.Context(), dbtest.Mine, dbtest.Ann, all, func(int) string { return "" }); err != nil {
		f.t.Fatal(err)
	}
	f.Calibrate(f.t, id)
}

// pair makes a reward judge and an anchor that were calibrated on the same n items of each class.
func (f *fixture) pair(n int) (rewards, anchor criterion.Criterion) {
	f.t.Helper()
	rewards, anchor = f.NewCriterion(f.t), f.NewCriterion(f.t, byOther)
	graded := f.recalibrate(rewards.ID, n)
	f.share(anchor.ID, graded)
	return rewards, anchor
}

// anchored asks for a session with an anchor.
func anchored(rewards, anchor string) *reward.NewSession {
	n := wanted(rewards)
	n.Anchor = &reward.NewAnchor{CriterionID: anchor, SampleSize: 32, Every: 64}
	return n
}

// check has the pending checks judged.
func (f *fixture) check(t *testing.T) {
	t.Helper()
	if err := f.store.CheckPending(t.Context()); err != nil {
		t.Fatal(err)
	}
}

func (f *fixture) anchorOf(t *testing.T, id string) reward.Anchor {
	t.Helper()
	a, err := f.store.AnchorOf(t.Context(), dbtest.Mine, id)
	if err != nil {
		t.Fatal(err)
	}
	return a
}

func TestAnAnchorNeedsIndependenceAndProof(t *testing.T) {
	each(t, func(t *testing.T, f *fixture) {
		f.answers(&opinions{})
		rewards, anchor := f.pair(50)
		sameModel := f.NewCriterion(t, func(d *criterion.Definition) { d.Name = judgingtest.Ptr("same model") })
		sameUpstream := f.NewCriterion(t, func(d *criterion.Definition) { d.JudgeModel = judgingtest.Ptr(judgingtest.Candidate) })
		byBaseline := f.certified(50, func(d *criterion.Definition) { d.JudgeModel = judgingtest.Ptr(judgingtest.Baseline) })
		uncalibrated := f.NewCriterion(t, byOther)
		measured := f.certified(40, byOther)
		apart := f.certified(60, byOther)
		for _, c := range []struct {
			name, reward, anchor, code, says string
		}{
			{"its own judge", rewards.ID, rewards.ID, "invalid_parameter", "must be another criterion"},
			{"the same model", rewards.ID, sameModel.ID, "invalid_parameter", "needs another"},
			{"the same model by another name", byBaseline.ID, sameUpstream.ID, "invalid_parameter", "needs another"},
			{"no certificate", rewards.ID, uncalibrated.ID, "precondition_failed", "has no certificate"},
			{"a lower tier", rewards.ID, measured.ID, "precondition_failed", "calibrated is needed"},
			{"no common items", rewards.ID, apart.ID, "precondition_failed", "share 0 items that people pass and 0"},
			{"no such criterion", rewards.ID, "crit_0", "not_found", ""},
		} {
			_, err := f.store.Create(t.Context(), dbtest.Mine, dbtest.Ann, anchored(c.reward, c.anchor))
			if code(err) != c.code || !strings.Contains(fmt.Sprint(err), c.says) {
				t.Errorf("%s: %v", c.name, err)
			}
		}
		if _, err := f.store.Create(t.Context(), dbtest.Theirs, dbtest.Ann, anchored(rewards.ID, anchor.ID)); code(err) != "not_found" {
			t.Errorf("another workspace: %v", err)
		}
		if f.held() != 0 {
			t.Errorf("%v are held for sessions that were refused", f.held())
		}
		made := f.create(anchored(rewards.ID, anchor.ID))
		got := f.anchorOf(t, made.ID)
		if got.CommonPass != 50 || got.CommonFail != 50 || *got.Gap < .2 || *got.Gap > .3 || got.Process != 1 || *got.Evidence != 1 {
			t.Errorf("%+v", got)
		}
	})
}

func TestAnAnchorChecksByCountAndHoldsAGamedRun(t *testing.T) {
	each(t, func(t *testing.T, f *fixture) {
		o := &opinions{}
		f.answers(o)
		rewards, anchor := f.pair(60)
		s := f.create(anchored(rewards.ID, anchor.ID))
		at := 0
		step := func(name string, status int) {
			t.Helper()
			if got, _ := f.score(t, s.ID, name, numbered(at, 64)...); got != status {
				t.Fatalf("step %s: %d, want %d", name, got, status)
			}
			at += 64
			f.check(t)
		}
		step("1", http.StatusOK)
		step("2", http.StatusOK)
		a := f.anchorOf(t, s.ID)
		if a.Checks != 2 || len(a.History) != 2 || a.Held || a.PinnedStep == nil || *a.PinnedStep != "2" || *a.Evidence >= 1 {
			t.Fatalf("after two good steps: %+v", a)
		}
		h := a.History[1]
		if h.N != 32 || h.RewardRate != 1 || h.Masked != 0 || h.Step != "2" || h.Requested || !h.AnchorCorrected || h.AnchorRate < .99 {
			t.Errorf("%+v", h)
		}
		o.set(everything, nothing) // the policy has found what only the reward judge likes
		step("3", http.StatusOK)
		a = f.anchorOf(t, s.ID)
		if !a.Held || *a.PinnedStep != "2" || !a.History[2].Held || a.History[2].Evidence < 25 || a.HeldAt == nil {
			t.Fatalf("after a bad step: %+v", a)
		}
		if !strings.Contains(*a.HeldReason, "pass 100 % of 32 completions of step 3, and the anchor passes 0 %") {
			t.Error(*a.HeldReason)
		}
		if all, err := f.store.Alarms(t.Context(), dbtest.Mine); err != nil || len(all) != 1 || all[0].Subject != s.ID || all[0].Link.Page != "rewards/"+s.ID {
			t.Errorf("%+v, %v", all, err)
		}
		if all, err := f.store.Alarms(t.Context(), dbtest.Theirs); err != nil || len(all) != 0 {
			t.Errorf("%+v, %v", all, err)
		}
		if shown := f.get(s.ID).Anchor; !shown.Held || len(shown.History) != 3 || *shown.CriterionName != "anchor" {
			t.Errorf("%+v", shown)
		}
		step("4", http.StatusPreconditionFailed)
		if f.get(s.ID).Scored != 3*64 {
			t.Error("a held session has scored")
		}
		if got := f.audited(s.ID); !slices.Contains(got, "hold") {
			t.Error(got)
		}
		if n := dbtest.Count(t, f.DB, "notices WHERE kind = 'anchor.held' AND subject = '"+s.ID+"'"); n != 1 {
			t.Errorf("%d notices of one hold", n)
		}
	})
}

// A step that did not hold the session has not passed yet where there is evidence against it, and a check of an earlier
// step does not pin that one again.
func TestTheLastStepThatPassedIsPinned(t *testing.T) {
	each(t, func(t *testing.T, f *fixture) {
		o := &opinions{}
		f.answers(o)
		rewards, anchor := f.pair(60)
		n := anchored(rewards.ID, anchor.ID)
		n.Anchor = &reward.NewAnchor{CriterionID: anchor.ID, SampleSize: 8, Every: 16}
		s := f.create(n)
		for i, c := range []struct {
			step, pinned string
			anchor       func(int) bool
			held         bool
		}{{"1", "1", everything, false}, {"2", "2", everything, false}, {"3", "2", nothing, false}, {"4", "2", nothing, true}} {
			o.set(everything, c.anchor)
			f.scores(t, s.ID, c.step, numbered(100*i, 16)...)
			f.check(t)
			if c.step == "2" {
				if err := f.store.CheckStep(t.Context(), dbtest.Mine, s.ID, "1"); err != nil {
					t.Fatal(err)
				}
				f.check(t)
			}
			if a := f.anchorOf(t, s.ID); *a.PinnedStep != c.pinned || a.Held != c.held {
				t.Fatalf("step %s: pinned is %s, with an evidence of %v; held: %v", c.step, *a.PinnedStep, *a.Evidence, a.Held)
			}
		}
	})
}

func TestAReleaseBeginsANewProcessAndKeepsTheHistory(t *testing.T) {
	each(t, func(t *testing.T, f *fixture) {
		o := &opinions{}
		f.answers(o)
		rewards, anchor := f.pair(60)
		s := f.create(anchored(rewards.ID, anchor.ID))
		release := func() error {
			return f.store.Release(t.Context(), dbtest.Mine, dbtest.Ann, s.ID, "rolled back to step 1")
		}
		if err := release(); code(err) != "conflict" {
			t.Errorf("a session that is not held: %v", err)
		}
		o.set(everything, nothing)
		f.scores(t, s.ID, "1", numbered(0, 80)...)
		f.check(t)
		if !f.get(s.ID).Anchor.Held {
			t.Fatal("the run is not held")
		}
		f.Adjudicate(t, f.report(anchor.ID), label.Ruling{Kind: label.LabelError})
		if err := release(); code(err) != "precondition_failed" || !strings.Contains(err.Error(), "void") {
			t.Errorf("while a certificate is void: %v", err)
		}
		f.Calibrate(t, anchor.ID)
		before := f.anchorOf(t, s.ID)
		if err := release(); err != nil {
			t.Fatal(err)
		}
		a := f.anchorOf(t, s.ID)
		if a.Held || a.HeldReason != nil || a.Process != 2 || *a.Evidence != 1 || len(a.History) != 1 || a.Checks != 1 {
			t.Errorf("%+v", a)
		}
		if a.Certificate.ID == before.Certificate.ID || a.Certificate.Voided || *a.Gap == *before.Gap {
			t.Errorf("pinned are %s and a gap of %v, as before", a.Certificate.ID, *a.Gap)
		}
		if got := f.audited(s.ID); got[len(got)-1] != "release" {
			t.Error(got)
		}
		o.set(everything, everything) // what was scored before the release is not drawn any more
		f.scores(t, s.ID, "1", numbered(100, 64)...)
		f.check(t)
		if a = f.anchorOf(t, s.ID); a.Held || len(a.History) != 2 || a.History[1].Process != 2 || a.History[1].AnchorRate < .9 {
			t.Errorf("%+v", a)
		}
	})
}

// report returns a label of the report half of a criterion that its certificate was measured by.
func (f *fixture) report(criterionID string) string {
	f.t.Helper()
	all, err := f.Labels.List(f.t.Context(), dbtest.Mine, &label.Filters{CriterionID: criterionID}, 1, 0)
	if err != nil || len(all) == 0 {
		f.t.Fatal(err)
	}
	return all[0].ID
}

func TestAVoidCertificateOfTheAnchorHoldsToo(t *testing.T) {
	each(t, func(t *testing.T, f *fixture) {
		f.answers(&opinions{})
		rewards, anchor := f.pair(50)
		s := f.create(anchored(rewards.ID, anchor.ID))
		f.Adjudicate(t, f.report(anchor.ID), label.Ruling{Kind: label.LabelError})
		if status, _ := f.score(t, s.ID, "1", numbered(0, 8)...); status != http.StatusPreconditionFailed {
			t.Errorf("scored: %d", status)
		}
		if a := f.get(s.ID).Anchor; !a.Held || !strings.Contains(*a.HeldReason, "void") {
			t.Errorf("%+v", a)
		}
	})
}

func TestAnAnchorThatFailsCountsAsAFail(t *testing.T) {
	each(t, func(t *testing.T, f *fixture) {
		o := &opinions{}
		f.answers(o)
		rewards, anchor := f.pair(50)
		for name, break_ := range map[string]func(){
			"malformed": func() { o.mu.Lock(); o.fails = true; o.mu.Unlock() },
			"unreachable": func() {
				f.Models.Do(func(_ int, r *infer.Request) (string, error) {
					if r.Model == judgingtest.OtherModel {
						return "", fault.Upstream.New("down")
					}
					return judgingtest.Assessment(judge.Pass, 0.9), nil
				})
			},
		} {
			f.answers(o)
			o.mu.Lock()
			o.fails = false
			o.mu.Unlock()
			s := f.create(anchored(rewards.ID, anchor.ID))
			f.store.SetOutages(time.Millisecond)
			from := map[string]int{"malformed": 0, "unreachable": 1000}[name]
			f.scores(t, s.ID, "1", numbered(from, 64)...)
			break_()
			f.check(t)
			h := f.get(s.ID).Anchor
			if !h.Held || len(h.History) != 1 || h.History[0].AnchorFailed != 32 || h.History[0].N != 32 {
				t.Errorf("%s: %+v", name, h)
			} else if !strings.Contains(*h.HeldReason, "no verdict on 32") {
				t.Errorf("%s: %s", name, *h.HeldReason)
			}
		}
	})
}

func TestMaskedItemsAreShownAndNotCompared(t *testing.T) {
	each(t, func(t *testing.T, f *fixture) {
		o := &opinions{}
		f.answers(o)
		rewards, anchor := f.pair(50)
		s := f.create(anchored(rewards.ID, anchor.ID))
		inner := func(item int, r *infer.Request) (string, error) {
			if item%2 == 0 {
				return "no idea", nil
			}
			return judgingtest.Assessment(judge.Pass, 0.9), nil
		}
		f.Models.Do(inner)
		f.scores(t, s.ID, "1", numbered(0, 64)...)
		if a := f.anchorOf(t, s.ID); a.Checking != nil || a.ScoredSince != 32 {
			t.Errorf("a check is due after 32 rewards: %+v", a)
		}
		f.scores(t, s.ID, "1", numbered(64, 64)...)
		f.check(t)
		h := f.get(s.ID).Anchor.History
		if len(h) != 1 || h[0].Masked == 0 || h[0].N != 32 || h[0].RewardRate != 1 {
			t.Errorf("%+v", h)
		}
	})
}

// A check that somebody asks for needs enough prompts: its step may have been chosen by its rewards.
func TestARequestedCheckNeedsPrompts(t *testing.T) {
	each(t, func(t *testing.T, f *fixture) {
		f.answers(&opinions{})
		rewards, anchor := f.pair(50)
		s := f.create(anchored(rewards.ID, anchor.ID))
		var same []reward.ScoreItem
		for i := range 63 {
			item := sent(strconv.Itoa(i), first+i)
			item.Prompt = judgingtest.Ptr(fmt.Sprint("prompt ", i%7))
			same = append(same, item)
		}
		f.scores(t, s.ID, "1", same...)
		err := f.store.CheckStep(t.Context(), dbtest.Mine, s.ID, "1")
		if code(err) != "precondition_failed" || !strings.Contains(err.Error(), "only 7 prompts") {
			t.Error(err)
		}
	})
}

// Re-scoring of what was checked, under other steps and ids, leads to no other check of it.
func TestNothingIsCheckedTwice(t *testing.T) {
	each(t, func(t *testing.T, f *fixture) {
		f.answers(&opinions{})
		rewards, anchor := f.pair(50)
		n := anchored(rewards.ID, anchor.ID)
		n.Anchor.SampleSize = 64
		s := f.create(n)
		f.scores(t, s.ID, "1", numbered(0, 64)...)
		f.check(t)
		again := numbered(0, 64)
		for i := range again {
			again[i].ID = fmt.Sprint("again ", i)
		}
		f.scores(t, s.ID, "2", again...)
		f.check(t)
		a := f.anchorOf(t, s.ID)
		if len(a.History) != 1 || a.Note == nil {
			t.Errorf("%+v", a)
		}
		if err := f.store.CheckStep(t.Context(), dbtest.Mine, s.ID, "2"); code(err) != "precondition_failed" {
			t.Error(err)
		}
	})
}

// Whoever asks for checks of good steps neither delays nor replaces those by count: a run of which every second
// completion games its judge is held, although as many good ones are checked between any two checks.
func TestRequestedChecksNeitherDelayNorReplaceThoseByCount(t *testing.T) {
	each(t, func(t *testing.T, f *fixture) {
		o := &opinions{}
		f.answers(o)
		rewards, anchor := f.pair(60)
		n := anchored(rewards.ID, anchor.ID)
		n.Anchor.SampleSize = 16
		s := f.create(n)
		for round := range 20 {
			from, good := 1000*round, fmt.Sprint("good ", round)
			o.set(everything, everything)
			f.scores(t, s.ID, good, numbered(from, 32)...)
			if err := f.store.CheckStep(t.Context(), dbtest.Mine, s.ID, good); err != nil {
				t.Fatal(err)
			}
			if err := f.store.CheckStep(t.Context(), dbtest.Mine, s.ID, good); code(err) != "conflict" {
				t.Errorf("two checks at a time: %v", err)
			}
			f.check(t)
			if err := f.store.CheckStep(t.Context(), dbtest.Mine, s.ID, good); err != nil { // all of it is checked now
				t.Fatal(err)
			}
			f.check(t)
			o.set(everything, func(item int) bool { return item%2 == 0 })
			f.scores(t, s.ID, strconv.Itoa(round), numbered(from+100, 32)...)
			f.check(t)
			a := f.anchorOf(t, s.ID)
			if last := a.History[len(a.History)-1]; last.Requested || len(a.History) != 3*(round+1) {
				t.Fatalf("round %d: %+v", round, last)
			}
			if a.Held {
				return
			}
		}
		t.Error("the run is never held")
	})
}

// The gap is measured on items that people grade alike for the anchor and for all judges of the reward together.
func TestOnlyItemsThatPeopleGradeAlikeAreCommon(t *testing.T) {
	each(t, func(t *testing.T, f *fixture) {
		f.answers(&opinions{})
		one, anchor := f.NewCriterion(t), f.NewCriterion(t, byOther)
		two := f.NewCriterion(t, func(d *criterion.Definition) { d.Name = judgingtest.Ptr("two") })
		graded := f.recalibrate(one.ID, 60) // 60 passes, then 60 fails
		flip := func(from, to int) []judgingtest.Graded {
			all := slices.Clone(graded)
			for i := from; i < to; i++ {
				all[i].Verdict = judgingtest.Opposite(all[i].Verdict)
			}
			return all
		}
		f.share(anchor.ID, flip(60, 63))  // three fails are passes for the anchor
		f.share(two.ID, flip(0, 5)[:118]) // five passes are fails for the second judge, and two fails are not graded
		n := anchored(one.ID, anchor.ID)
		single := f.anchorOf(t, f.create(n).ID)
		if single.CommonPass != 60 || single.CommonFail != 57 {
			t.Errorf("one judge: %d and %d are common", single.CommonPass, single.CommonFail)
		}
		n.Reward = reward.Rule{Mode: reward.All, Criteria: []reward.Criterion{{CriterionID: one.ID}, {CriterionID: two.ID}}}
		both := f.anchorOf(t, f.create(n).ID)
		if both.CommonPass != 55 || both.CommonFail != 55 {
			t.Errorf("two judges: %d and %d are common", both.CommonPass, both.CommonFail)
		}
	})
}

func TestAnAnchorOverBudgetEndsTheSession(t *testing.T) {
	each(t, func(t *testing.T, f *fixture) {
		f.answers(&opinions{})
		rewards, anchor := f.pair(50)
		n := anchored(rewards.ID, anchor.ID)
		n.Budget = 66 * judgingtest.Price // two answers of the anchor
		s := f.create(n)
		f.paysFromHolds(judgingtest.Price)
		f.scores(t, s.ID, "1", numbered(0, 64)...)
		f.check(t)
		got := f.get(s.ID)
		if got.Status != reward.Overbudget || len(got.Anchor.History) != 0 || f.held() != 0 {
			t.Errorf("%+v, %v held", got, f.held())
		}
		if status, _ := f.score(t, s.ID, "2", numbered(100, 1)...); status != http.StatusConflict {
			t.Errorf("scored: %d", status)
		}
		if n := f.count(t, `SELECT COUNT(*) FROM reward_checks WHERE done_at = 0`); n != 0 {
			t.Errorf("%d checks are left", n)
		}
	})
}

// A check that is interrupted is resumed by another process, and pays for nothing twice.
func TestACheckIsResumedAndPaysForNothingTwice(t *testing.T) {
	each(t, func(t *testing.T, f *fixture) {
		o := &opinions{}
		f.answers(o)
		rewards, anchor := f.pair(50)
		s := f.create(anchored(rewards.ID, anchor.ID))
		f.scores(t, s.ID, "1", numbered(0, 64)...)
		killed := errors.New("killed")
		ctx, kill := context.WithCancelCause(t.Context())
		asked := 0
		o.set(everything, func(int) bool {
			if asked++; asked == 10 {
				kill(killed)
			}
			return true
		})
		if err := f.store.CheckPending(ctx); !errors.Is(err, killed) && !errors.Is(err, context.Canceled) {
			t.Fatal(err)
		}
		o.set(everything, everything)
		if a := f.anchorOf(t, s.ID); len(a.History) != 0 || a.Checking == nil {
			t.Fatalf("%+v", a)
		}
		f.store = f.newStore()
		f.check(t)
		f.check(t)
		a := f.anchorOf(t, s.ID)
		if len(a.History) != 1 || a.History[0].N != 32 || a.Checks != 1 {
			t.Errorf("%+v", a)
		}
		if _, twice := f.Models.Answered(); twice {
			t.Error("a question was paid for twice")
		}
	})
}

func TestTheLoopChecksAndStopsWithTheSession(t *testing.T) {
	each(t, func(t *testing.T, f *fixture) {
		o := &opinions{}
		f.answers(o)
		rewards, anchor := f.pair(50)
		s := f.create(anchored(rewards.ID, anchor.ID))
		for _, loop := range f.module.Background {
			if strings.HasPrefix(loop.Name, "anchors") {
				f.run(loop.Run)
			}
		}
		f.scores(t, s.ID, "1", numbered(0, 64)...)
		f.await(t, "a check", func() bool { return f.get(s.ID).Anchor.Checks == 1 })
		gate, asked := judgingtest.NewGate(t), make(chan bool, 1000)
		f.Models.Do(func(_ int, r *infer.Request) (string, error) {
			if r.Model == judgingtest.OtherModel {
				asked <- true
				gate.Wait()
			}
			return judgingtest.Assessment(judge.Pass, 0.9), nil
		})
		f.scores(t, s.ID, "2", numbered(1000, 64)...)
		<-asked
		if _, err := f.store.Stop(t.Context(), dbtest.Mine, dbtest.Ann, s.ID); err != nil {
			t.Fatal(err)
		}
		gate.Open()
		f.await(t, "the end of the check", func() bool { return f.count(t, `SELECT COUNT(*) FROM reward_checks WHERE done_at = 0`) == 0 })
		if got := f.get(s.ID); got.Anchor.Checks != 1 || got.Status != reward.Stopped {
			t.Errorf("%+v", got.Anchor)
		}
		if a := f.anchorOf(t, s.ID); a.Dropped != 1 || len(a.History) != 1 {
			t.Errorf("who ends a session during a check leaves no trace: %+v", a)
		}
	})
}

func (f *fixture) await(t *testing.T, what string, done func() bool) {
	t.Helper()
	for deadline := time.Now().Add(5 * time.Minute); !done(); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("there is never ", what)
		}
	}
}

// Many calls at once begin one check.
func TestManyCallsBeginOneCheck(t *testing.T) {
	each(t, func(t *testing.T, f *fixture) {
		f.answers(&opinions{})
		rewards, anchor := f.pair(50)
		s := f.create(anchored(rewards.ID, anchor.ID))
		var calls sync.WaitGroup
		for i := range 16 {
			calls.Go(func() { f.scores(t, s.ID, "1", numbered(i*16, 16)...) })
		}
		calls.Wait()
		if n := f.count(t, `SELECT COUNT(*) FROM reward_checks`); n != 1 {
			t.Errorf("%d checks", n)
		}
		f.check(t)
		f.check(t)
		if a := f.anchorOf(t, s.ID); a.Checks == 0 || a.Checks > 4 || a.Held {
			t.Errorf("%+v", a)
		}
	})
}

func TestTheAnchorOfAnotherWorkspaceIsNotFound(t *testing.T) {
	each(t, func(t *testing.T, f *fixture) {
		f.answers(&opinions{})
		rewards, anchor := f.pair(50)
		s := f.create(anchored(rewards.ID, anchor.ID))
		f.scores(t, s.ID, "1", numbered(0, 32)...)
		_, reading := f.store.AnchorOf(t.Context(), dbtest.Theirs, s.ID)
		checking := f.store.CheckStep(t.Context(), dbtest.Theirs, s.ID, "1")
		releasing := f.store.Release(t.Context(), dbtest.Theirs, tenant.Operator, s.ID, "mine")
		for _, err := range []error{reading, checking, releasing} {
			if code(err) != "not_found" {
				t.Error(err)
			}
		}
		plain := f.create(wanted(rewards.ID))
		if err := f.store.CheckStep(t.Context(), dbtest.Mine, plain.ID, "1"); code(err) != "conflict" {
			t.Errorf("a session without an anchor: %v", err)
		}
		if a := f.anchorOf(t, plain.ID); a.CriterionID != nil || a.Gap != nil {
			t.Errorf("%+v", a)
		}
	})
}
