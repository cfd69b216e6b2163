package raft

import (
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"sovereign/internal/base/money"
	"sovereign/internal/domain/finetune"
	"sovereign/internal/domain/train"
	"sovereign/internal/store/db"
	"sovereign/internal/store/db/dbtest"
	"sovereign/internal/store/job"
)

func TestEveryStageLeadsToTheLast(t *testing.T) {
	for i, stage := range stages[:len(stages)-1] {
		if next[stage] != stages[i+1] {
			t.Errorf("%s leads to %s", stage, next[stage])
		}
	}
	if _, follows := next[Comparing]; follows || len(next) != len(stages)-1 {
		t.Errorf("%v", next)
	}
}

// A running round may end in every stage, and one that has ended moves no more.
func TestARoundThatHasEndedMovesNoMore(t *testing.T) {
	each(t, func(t *testing.T, f *fixture) {
		for _, stage := range stages {
			for _, status := range []Status{Succeeded, Failed, Cancelled} {
				made := f.create(func(r *Request) { r.Budget = money.Dollar })
				move := func(to Status, from Stage) error {
					_, err := f.Store.DB.Tx(t.Context(), func(tx *db.Tx) error {
						r, err := f.find(t.Context(), tx.In(dbtest.Mine), made.ID)
						if err != nil {
							return err
						}
						r.Status, r.Stage = to, stage
						return f.save(t.Context(), tx, r, from)
					})
					return err
				}
				f.ok(move(Running, Sampling))
				f.ok(move(status, stage))
				for _, other := range []Status{Running, Succeeded, Failed, Cancelled} {
					if err := move(other, stage); (err == nil) != (other == status) {
						t.Errorf("%s while %s becomes %s: %v", status, stage, other, err)
					}
				}
			}
		}
	})
}

func TestWhatIsHeldOutFollowsFromThePromptsAlone(t *testing.T) {
	each(t, func(t *testing.T, f *fixture) {
		in := f.request()
		in.defaults()
		first, _, err := f.prepare(t.Context(), dbtest.Mine, &in)
		f.ok(err)
		in.DatasetID = "ds_reversed"
		second, _, err := f.prepare(t.Context(), dbtest.Mine, &in)
		if err != nil || first != second {
			t.Errorf("%+v, and in another order %+v: %v", first, second, err)
		}
	})
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.Int64Range(minPrompts, maxPrompts).Draw(t, "prompts")
		if got := held(n); got < minHeld || got > maxHeld || got > n/2 {
			t.Fatalf("%d of %d are held out", got, n)
		}
	})
}

// Every sample is accepted or counted with a reason, and an accepted one is the best of its prompt.
func TestTheBestOfAPromptIsAccepted(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		perPrompt, prompts := rapid.IntRange(1, 5).Draw(t, "per prompt"), rapid.IntRange(1, 6).Draw(t, "prompts")
		m := marks{perPrompt: perPrompt}
		for at := range prompts {
			for index := range perPrompt {
				place := len(m.all)
				content := rapid.SampledFrom([]string{"", " ", "a", "b", "c"}).Draw(t, "content")
				if m.add(sample{nil, at, index, content}) && rapid.Bool().Draw(t, "scored") {
					m.all[place].scored, m.all[place].grade = true, float64(rapid.IntRange(0, 4).Draw(t, "grade"))/4
				}
			}
		}
		won, rejected := m.pick(0, 0.5)
		sum := int64(len(won))
		for _, n := range rejected {
			sum += n
		}
		if sum != int64(len(m.all)) {
			t.Fatalf("%v and %v of %d", won, rejected, len(m.all))
		}
		for place := range won {
			for other := place / perPrompt * perPrompt; other < (place/perPrompt+1)*perPrompt; other++ {
				grade, ok := m.grade(other)
				if m.all[place].grade < 0.5 || ok && grade > m.all[place].grade || other != place && won[other] {
					t.Fatalf("%d won over %d: %+v", place, other, m.all)
				}
				if ok && grade == m.all[place].grade && m.all[other].why == "" && other < place {
					t.Fatalf("%d won over %d, which came first", place, other)
				}
			}
		}
	})
}

// Samples that the judge does not grade are neither winners nor zeros; in the improvement they count against it.
func TestSamplesWithoutAGradeCountAgainstTheImprovement(t *testing.T) {
	each(t, func(t *testing.T, f *fixture) {
		made := f.create()
		unjudged := func(at, index int) string {
			if at == 0 || at == minHeld {
				return strings.Repeat("unjudged ", index+1)
			}
			return graded(0.8)(at, index)
		}
		f.sample(unjudged)
		f.learn()
		f.sample(unjudged)
		got := f.await(made.ID, ended)
		if got.Rejected[notScored] != 3 || got.Accepted != 31 || got.RewardBefore.N != 7 || got.RewardAfter.N != 7 {
			t.Errorf("%+v %+v", got, got.RewardBefore)
		}
		if got.Improvement.N != 8 || !near(got.Improvement.Mean, -1.0/8) {
			t.Errorf("%+v", got.Improvement)
		}
	})
}

func TestAJudgeThatChangesEndsTheRound(t *testing.T) {
	each(t, func(t *testing.T, f *fixture) {
		made := f.create()
		f.ChangeRubric(t, f.judge.ID, "It is very polite.")
		f.sample(graded(0.9))
		got := f.await(made.ID, func(r Round) bool { return r.Status == Failed })
		if got.Error.Code != "judge_held" || !strings.Contains(got.Error.Message, "has changed") {
			t.Errorf("%+v", got.Error)
		}
		f.awaitHeld(0)
	})
}

func TestARoundWhoseJobHasFailedIsEnded(t *testing.T) {
	each(t, func(t *testing.T, f *fixture) {
		made := f.create()
		f.Stop() // nobody scores
		f.sample(graded(0.9))
		_, err := db.Exec(t.Context(), f.DB.In(dbtest.Mine), `UPDATE jobs SET status = $2, finished_at = 1 WHERE workspace_id = $1 AND id = $3`,
			job.Failed, workID(Scoring, made.ID))
		f.ok(err)
		f.ok(f.sweep(t.Context()))
		if got := f.get(made.ID); got.Status != Failed || got.Error.Code != "internal_error" {
			t.Errorf("%+v %+v", got, got.Error)
		}
		f.awaitHeld(0)
	})
}

// What a round trained on is a training file, and what it made can be trained on: by its id and by its name.
func TestAFineTuningJobBeginsWithTheModelOfARound(t *testing.T) {
	each(t, func(t *testing.T, f *fixture) {
		made := f.create()
		f.sample(graded(0.9))
		f.learn()
		version, err := f.Versions.Get(t.Context(), dbtest.Mine, *f.get(made.ID).ModelVersionID)
		f.ok(err)
		f.sample(graded(0.9))
		f.await(made.ID, ended)
		tuned, err := f.Jobs.Get(t.Context(), dbtest.Mine, made.FineTuningJobID)
		f.ok(err)
		for _, name := range []string{version.ID, version.Name} {
			ordered, err := f.Jobs.Create(t.Context(), dbtest.Mine, dbtest.Ann, finetune.Request{
				BaseModel: name, TrainingFile: *tuned.TrainingFile, Budget: tuned.Budget,
			})
			f.ok(err)
			if ordered.BaseModel != "tiny/bigram" || *ordered.ParentID != version.ID {
				t.Errorf("%+v", ordered)
			}
			lease := f.learn()
			if !slices.ContainsFunc(lease.Inputs, func(s train.Source) bool { return s.Name == "model/model.bin" }) {
				t.Errorf("%+v", lease.Inputs)
			}
			done, err := f.Jobs.Get(t.Context(), dbtest.Mine, ordered.ID)
			f.ok(err)
			got, err := f.Versions.Get(t.Context(), dbtest.Mine, *done.ModelVersionID)
			if err != nil || *got.ParentID != version.ID || len(got.Data) != 1 || got.Source.Type != "fine_tuning_job" {
				t.Errorf("%+v %v", got, err)
			}
		}
	})
}
