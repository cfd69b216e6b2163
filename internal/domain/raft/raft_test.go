package raft

import (
	"bytes"
	"fmt"
	"io"
	"reflect"
	"slices"
	"strings"
	"testing"

	"sovereign/internal/base/fault"
	"sovereign/internal/base/money"
	"sovereign/internal/domain/criterion"
	"sovereign/internal/domain/finetune"
	"sovereign/internal/domain/judgingtest"
	"sovereign/internal/domain/reward"
	"sovereign/internal/domain/train"
	"sovereign/internal/domain/wallet/wallettest"
	"sovereign/internal/plane/infer"
	"sovereign/internal/store/db"
	"sovereign/internal/store/db/dbtest"
)

// Of the prompts that are trained on, the first says nothing, the second repeats itself, the third is bad, and the
// others say better and better things.
func mixed(at, index int) string {
	switch at - minHeld {
	case 0:
		return " "
	case 1:
		return "the same graded 0.80"
	case 2:
		return fmt.Sprintf("answer %d graded 0.20", index)
	}
	return graded(0.7)(at, index)
}

func TestARoundTrainsOnTheBestAndMeasuresWhatItGained(t *testing.T) {
	each(t, func(t *testing.T, f *fixture) {
		made := f.create()
		if made.Status != Running || made.Stage != Sampling || made.PromptCount != 40 || made.HeldOutCount != 8 {
			t.Fatalf("%+v", made)
		}
		f.awaitHeld(10 * money.Dollar)
		f.sample(mixed)
		lease := f.learn()
		got := f.get(made.ID)
		want := map[string]int64{empty: 3, duplicate: 2, belowMinGrade: 3, notBest: 2 * 29}
		if got.Accepted != 30 || !reflect.DeepEqual(got.Rejected, want) || got.Stage != Measuring {
			t.Errorf("%+v", got)
		}
		from, err := f.Artifacts.Open(t.Context(), dbtest.Mine, lease.Inputs[0].Digest)
		f.ok(err)
		winners, err := io.ReadAll(from)
		f.ok(err)
		if n := bytes.Count(winners, []byte("answer 2 graded 0.72")); n != 29 || bytes.Count(winners, []byte("\n")) != 30 {
			t.Errorf("%s", winners)
		}
		measured := f.sample(graded(0.9))
		if len(f.promptsOf(measured)) != 8 || measured.Inputs[1].Name != "model/model.bin" {
			t.Errorf("%+v", measured.Inputs)
		}
		got = f.await(made.ID, ended)
		if got.Status != Succeeded || got.Progress != 1 || got.RewardBefore.N != 8 || got.RewardAfter.N != 8 {
			t.Fatalf("%+v %+v", got, got.Error)
		}
		if b, a, i := got.RewardBefore.Mean, got.RewardAfter.Mean, got.Improvement; !near(b, 0.71) || !near(a, 0.91) ||
			!near(i.Mean, 0.2) || i.Lower >= i.Mean || i.Upper <= i.Mean {
			t.Errorf("before %v, after %v, improvement %+v", b, a, i)
		}
		f.awaitHeld(0)
		// Every sample is judged once: 8 held-out prompts before and after, and 30 others without their repetitions.
		if n := f.Models.Calls() - f.asked; n != 24+24+29*3+1+3 {
			t.Errorf("%d questions", n)
		}
		f.wantLineage(got)
	})
}

func near(a, b float64) bool { return a > b-1e-6 && a < b+1e-6 }

// wantLineage checks that the model of a round names what it was made of.
func (f *fixture) wantLineage(r Round) {
	f.t.Helper()
	l, err := f.Versions.Lineage(f.t.Context(), dbtest.Mine, *r.ModelVersionID)
	f.ok(err)
	certificate := f.Certificate(f.t, f.judge.ID).ID
	var kinds []string
	for _, n := range l.Nodes {
		kinds = append(kinds, n.Type)
	}
	for _, want := range []string{r.ID, "ds_1", certificate, "tiny/bigram"} {
		found := false
		for _, n := range l.Nodes {
			found = found || n.ID == want
		}
		if !found {
			f.t.Errorf("the lineage has no %s: %v", want, kinds)
		}
	}
	version, err := f.Versions.Get(f.t.Context(), dbtest.Mine, *r.ModelVersionID)
	f.ok(err)
	if version.Source.Type != object || !strings.HasPrefix(version.Name, "ft/bigram-better-") {
		f.t.Errorf("%+v", version.Proof)
	}
}

// The next round starts from the model of the last, with the same prompts, as long as the improvement is proven.
func TestACampaignGoesOnWhileItProvablyImproves(t *testing.T) {
	each(t, func(t *testing.T, f *fixture) {
		first := f.create(func(r *Request) {
			r.Rounds, r.Budget = 3, 30*money.Dollar
			low := 0.0
			r.MinGrade = &low
		})
		round := func(before, after float64) []train.Source {
			inputs := f.sample(graded(before)).Inputs
			f.learn()
			f.sample(graded(after))
			return inputs
		}
		round(0.0, 0.9)
		one := f.await(first.ID, func(r Round) bool { return r.NextRoundID != nil })
		inputs := round(0.9, 0.9)
		two := f.await(*one.NextRoundID, ended)
		if two.Round != 2 || two.CampaignID != first.ID || *two.ParentID != *one.ModelVersionID || two.NextRoundID != nil ||
			two.StoppedReason == nil || !strings.Contains(*two.StoppedReason, "not proven") || two.Budget != 10*money.Dollar {
			t.Errorf("%+v", two)
		}
		if inputs[1].Name != "model/model.bin" {
			t.Errorf("%+v", inputs)
		}
		version, err := f.Versions.Get(t.Context(), dbtest.Mine, *two.ModelVersionID)
		if err != nil || version.ParentID == nil || *version.ParentID != *one.ModelVersionID {
			t.Errorf("%+v %v", version, err)
		}
		all, err := f.List(t.Context(), dbtest.Mine, 10, 0)
		if err != nil || len(all) != 2 || all[0].ID != two.ID {
			t.Errorf("%+v %v", all, err)
		}
		f.awaitHeld(0)
	})
}

// A round that follows needs the money that the last one holds until it is charged.
func TestTheNextRoundWaitsForTheMoneyOfTheLast(t *testing.T) {
	each(t, func(t *testing.T, f *fixture) {
		first := f.create(func(r *Request) {
			r.Rounds, r.Budget = 2, 120*money.Dollar
			low := 0.0
			r.MinGrade = &low
		})
		f.sample(graded(0))
		f.learn()
		f.sample(graded(0.95))
		f.await(first.ID, func(r Round) bool { return r.NextRoundID != nil || r.StoppedReason != nil })
		if got := f.get(first.ID); got.StoppedReason != nil {
			t.Error(*got.StoppedReason)
		}
	})
}

func TestACampaignWhoseJudgeHasChangedEndsAndSaysWhy(t *testing.T) {
	each(t, func(t *testing.T, f *fixture) {
		f.before = func() { f.ChangeRubric(t, f.judge.ID, "It is very polite.") }
		first := f.create(func(r *Request) {
			r.Rounds = 2
			low := 0.0
			r.MinGrade = &low
		})
		f.sample(graded(0))
		f.learn()
		f.sample(graded(0.95))
		got := f.await(first.ID, func(r Round) bool { return r.StoppedReason != nil })
		if got.Status != Succeeded || got.NextRoundID != nil || !strings.Contains(*got.StoppedReason, "calibrate it again") {
			t.Errorf("%+v %s", got, *got.StoppedReason)
		}
		f.awaitHeld(0)
	})
}

// A server that is killed in any stage goes on where it was: with the same result, and nothing is asked twice.
func TestAKilledServerGoesOnAndPaysForNothingTwice(t *testing.T) {
	each(t, func(t *testing.T, f *fixture) {
		made := f.create(func(r *Request) { r.Rounds = 2 })
		f.restart()
		sampling := f.lease("sample")
		text := f.sampled(sampling, func(at, index int) string {
			if at >= minHeld && index == 2 {
				return "well graded 0.75"
			}
			return graded(0)(at, index)
		})
		f.restart()
		f.killWhileScoring(sampling, text, 30)
		f.await(made.ID, func(r Round) bool { return r.Stage == Training })
		f.restart()
		f.learn()
		f.restart()
		measuring := f.lease("sample")
		f.killWhileScoring(measuring, f.sampled(measuring, graded(0.95)), 5)
		got := f.await(made.ID, func(r Round) bool { return r.NextRoundID != nil })
		f.restart()
		if got.Status != Succeeded || got.Accepted != 32 || got.Rejected[belowMinGrade] != 64 || got.RewardAfter.N != 8 {
			t.Errorf("%+v", got)
		}
		if n, twice := f.Models.Answered(); n-80 != 40*3+8*3 || twice {
			t.Errorf("%d questions were answered, some of them twice: %v", n-80, twice)
		}
		jobs, err := db.Query[string](t.Context(), f.DB.In(dbtest.Mine), `SELECT id FROM fine_tuning_jobs WHERE workspace_id = $1`)
		if err != nil || len(jobs) != 2 { // the second is the next round's
			t.Errorf("%v %v", jobs, err)
		}
		if _, err := f.Cancel(t.Context(), dbtest.Mine, dbtest.Ann, *got.NextRoundID); err != nil {
			t.Error(err)
		}
		f.awaitHeld(0)
	})
}

// killWhileScoring ends a sampling run, and kills the server when the judge has answered some questions about it.
func (f *fixture) killWhileScoring(l *train.Lease, samples []byte, after int) {
	f.t.Helper()
	gate, reached := judgingtest.NewGate(f.t), judgingtest.NewGate(f.t)
	n := f.Models.Calls() + after
	f.Models.Do(func(_ int, r *infer.Request) (string, error) {
		if f.Models.Calls() > n {
			reached.Open()
			gate.Wait()
		}
		return f.says(nil, -1, r)
	})
	f.finish(l, samplesFile, samples)
	reached.Wait()
	f.halting = gate.Open
	f.restart()
}

// A worker that lies is refused in words, before anything is scored.
func TestSamplesThatWereNotAskedForEndTheRound(t *testing.T) {
	each(t, func(t *testing.T, f *fixture) {
		for want, change := range map[string]func([]byte) []byte{
			"more than the 320 samples":  func(b []byte) []byte { return append(b, b[:bytes.IndexByte(b, '\n')+1]...) },
			"ends before line 320":       func(b []byte) []byte { return b[:bytes.LastIndexByte(b[:len(b)-1], '\n')+1] },
			"line 1 is not a JSON":       func(b []byte) []byte { return append([]byte("{"), b...) },
			"line 3 is sample 7":         func(b []byte) []byte { return bytes.Replace(b, []byte(`"index":2`), []byte(`"index":7`), 1) },
			"of the prompt \"other\"":    otherPrompt,
			"line 2 is sample 0 of the ": func(b []byte) []byte { return append(slices.Clone(b[:bytes.IndexByte(b, '\n')+1]), b...) },
		} {
			before := f.Models.Calls()
			made := f.create(func(r *Request) { r.SamplesPerPrompt = 8 }) // more than are scored in one call
			lease := f.lease("sample")
			f.finish(lease, samplesFile, change(f.sampled(lease, graded(0.9))))
			got := f.await(made.ID, ended)
			if got.Status != Failed || got.Error.Code != "invalid_samples" || !strings.Contains(got.Error.Message, want) {
				t.Errorf("want %q, got %+v", want, got.Error)
			}
			if n := f.Models.Calls() - before; n != 0 {
				t.Errorf("%s: %d questions were asked", want, n)
			}
			f.awaitHeld(0)
		}
		made := f.create()
		f.finish(f.lease("sample"), "model.bin", []byte("no samples"))
		if got := f.await(made.ID, ended); got.Error.Code != "invalid_samples" {
			t.Errorf("%+v", got.Error)
		}
	})
}

func otherPrompt(b []byte) []byte {
	at := bytes.Index(b, []byte(`"prompt_id":"`)) + len(`"prompt_id":"`)
	return append(append(slices.Clone(b[:at]), "other"...), b[at+32:]...)
}

func TestARoundWithoutWinnersFailsAndSaysHowItWasGraded(t *testing.T) {
	each(t, func(t *testing.T, f *fixture) {
		made := f.create()
		f.sample(graded(0.3))
		got := f.await(made.ID, ended)
		if got.Status != Failed || got.Error.Code != "no_winners" || got.Rejected[belowMinGrade] != 96 ||
			!strings.Contains(got.Error.Message, "the lowest is 0.30, the median 0.31, the upper decile 0.32 and the highest 0.32") {
			t.Errorf("%+v %+v", got, got.Error)
		}
		f.awaitHeld(0)
	})
}

func TestARoundEndsAsItsRunsDo(t *testing.T) {
	each(t, func(t *testing.T, f *fixture) {
		made := f.create()
		lease := f.lease("sample")
		f.ok(f.Train.Finish(t.Context(), f.worker, hand(lease), train.Done{Outcome: "failed", ErrorCode: "out_of_memory", ErrorMessage: "too big"}))
		if got := f.get(made.ID); got.Status != Failed || got.Error.Code != "out_of_memory" || got.Error.Message != "sampling: too big" {
			t.Errorf("%+v %+v", got, got.Error)
		}
		f.awaitHeld(0)
		made = f.create()
		f.sample(graded(0.9))
		f.await(made.ID, func(r Round) bool { return r.Stage == Training })
		f.ok(f.Jobs.Cancel(t.Context(), dbtest.Mine, dbtest.Ann, made.FineTuningJobID))
		if got := f.get(made.ID); got.Status != Cancelled {
			t.Errorf("%+v", got)
		}
		f.awaitHeld(0)
	})
}

func TestACancelledRoundHoldsNothing(t *testing.T) {
	each(t, func(t *testing.T, f *fixture) {
		made := f.create()
		got, err := f.Cancel(t.Context(), dbtest.Mine, dbtest.Ann, made.ID)
		if err != nil || got.Status != Cancelled {
			t.Errorf("%+v %v", got, err)
		}
		f.awaitHeld(0)
		if _, err := f.Cancel(t.Context(), dbtest.Mine, dbtest.Ann, made.ID); err != nil {
			t.Error(err)
		}
		session, err := f.Rewards.Get(t.Context(), dbtest.Mine, made.RewardSessionID)
		if err != nil || session.Status != reward.Stopped {
			t.Errorf("%+v %v", session, err)
		}
		if _, err := f.Get(t.Context(), dbtest.Theirs, made.ID); err == nil || fault.From(err).Kind != fault.Missing {
			t.Error(err)
		}
		if _, err := f.Cancel(t.Context(), dbtest.Theirs, dbtest.Ann, made.ID); err == nil || fault.From(err).Kind != fault.Missing {
			t.Error(err)
		}
	})
}

func TestARoundThatCannotBeginHoldsNothing(t *testing.T) {
	each(t, func(t *testing.T, f *fixture) {
		uncertified := f.NewCriterion(t, func(d *criterion.Definition) { d.Name = judgingtest.Ptr("other") })
		for want, change := range map[string]func(*Request){
			"criterionId is missing":           func(r *Request) { r.CriterionID = "" },
			"no criterion":                     func(r *Request) { r.CriterionID = "crit_other" },
			"has no certificate":               func(r *Request) { r.CriterionID = uncertified.ID },
			"no dataset":                       func(r *Request) { r.DatasetID = "ds_other" },
			"has 10 different prompts, and 16": func(r *Request) { r.DatasetID = "ds_small" },
			"promptCount must be":              func(r *Request) { r.PromptCount = 5 },
			"rounds must be 1 to 10":           func(r *Request) { r.Rounds = 11 },
			"minGrade must be 0 to 1":          func(r *Request) { g := 2.0; r.MinGrade = &g },
			"the wallet has":                   func(r *Request) { r.Budget = 1000 * money.Dollar },
			"budgetUsd must be at least 0.1":   func(r *Request) { r.Budget = money.Dollar / 100 },
			"baseModel is not one that a":      func(r *Request) { r.BaseModel = "gpt-9" },
			"no model version":                 func(r *Request) { r.BaseModel = "mv_other" },
			"hyperparameters.epochs":           func(r *Request) { r.Hyperparameters = finetune.Hyperparameters{Epochs: 101} },
		} {
			in := f.request()
			change(&in)
			_, err := f.Create(t.Context(), dbtest.Mine, dbtest.Ann, in)
			wantRefusal(t, err, want)
			if held := wallettest.Shown(f.t, f.wallets, dbtest.Mine).Held; held != 0 {
				t.Errorf("%s: %s are held", want, held)
			}
		}
		plan, err := f.Plan(t.Context(), dbtest.Mine, Request{BaseModel: "tiny/bigram", DatasetID: "ds_1", CriterionID: f.judge.ID})
		if err != nil || plan.Samples != 48*4 || plan.Scoring != 48*4*judgingtest.Estimate || plan.Least < plan.Scoring {
			t.Errorf("%+v %v", plan, err)
		}
	})
}
