package draft_test

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"sovereign/internal/domain/criterion"
	"sovereign/internal/domain/draft"
	"sovereign/internal/domain/judging"
	"sovereign/internal/domain/judgingtest"
	"sovereign/internal/domain/label"
	"sovereign/internal/grade/judge"
	"sovereign/internal/grade/trust"
	"sovereign/internal/store/db/dbtest"
	"sovereign/internal/store/job"
)

const (
	mine   = dbtest.Mine
	theirs = dbtest.Theirs
)

var ann = dbtest.Ann

func improve(t testing.TB, e *judgingtest.Env, criterionID string, want job.Status) draft.Improvement {
	t.Helper()
	begun, err := e.Drafts.Improve(t.Context(), mine, ann, criterionID, draft.Request{}, judging.Spending{})
	if err != nil {
		t.Fatal(err)
	}
	return judgingtest.Await(t, want, func() (draft.Improvement, job.Job, error) {
		i, err := e.Drafts.Improvement(t.Context(), mine, criterionID, begun.ID)
		return i, i.Job, err
	})
}

func TestAnImprovementIsMadeFromMistakesInTheTuningHalfAndAdopted(t *testing.T) {
	judgingtest.Each(t, func(t *testing.T, e *judgingtest.Env) {
		c := e.NewCriterion(t)
		_, err := e.Drafts.Improve(t.Context(), mine, ann, c.ID, draft.Request{}, judging.Spending{})
		dbtest.Refused(t, err, 412, "nothing to improve on")
		seen := e.Grade(t, c.ID, judgingtest.Grades(4, judgingtest.Grade{Verdict: judge.Fail, Critique: "rude"})...)
		hidden := e.Grade(t, c.ID, judgingtest.Grades(4, judgingtest.Grade{Report: true, Verdict: judge.Fail})...)
		right := e.Grade(t, c.ID, judgingtest.Grade{Verdict: judge.Pass})
		e.Calibrate(t, c.ID)
		e.Adjudicate(t, seen[0].ID, label.Ruling{Kind: label.LabelError}) // no mistake after all
		e.Adjudicate(t, seen[1].ID, label.Ruling{Kind: label.Ambiguous})
		e.Models.Say(func(int) string { return "I have no idea." })
		failed := improve(t, e, c.ID, job.Failed)
		if failed.Cost != judgingtest.Price || failed.Rubric != nil || !strings.Contains(*failed.Error, "no draft") {
			t.Errorf("%s", judgingtest.JSON(t, failed))
		}
		_, err = e.Drafts.Adopt(t.Context(), mine, ann, c.ID, failed.ID)
		dbtest.Refused(t, err, 409, "FAILED")
		e.Models.Say(func(int) string {
			return `{"changes":["names the customer"],"rubric":"It is polite, and names nobody."}`
		})
		done := improve(t, e, c.ID, job.Done)
		if done.Cases != 2 || done.Cost != judgingtest.Price || *done.Rubric != "It is polite, and names nobody." || !slices.Equal(done.Changes, []string{"names the customer"}) || done.Progress != (job.Progress{Done: 1, Total: 1}) {
			t.Errorf("%s", judgingtest.JSON(t, done))
		}
		body := string(e.Models.Last())
		for i, group := range [][]judgingtest.Graded{seen[2:], slices.Concat(seen[:2], hidden, right)} {
			for _, g := range group {
				if strings.Contains(body, fmt.Sprintf("reply to item %d\\n", g.Item)) != (i == 0) {
					t.Errorf("item %d, in the report half: %v", g.Item, g.InReportHalf)
				}
			}
		}
		after, err := e.Drafts.Adopt(t.Context(), mine, ann, c.ID, done.ID)
		if err != nil || after.Rubric != *done.Rubric || after.Version != 2 || after.Trust != trust.None || !e.Certificate(t, c.ID).Voided {
			t.Errorf("%+v %v", after, err)
		}
		again, err := e.Drafts.Adopt(t.Context(), mine, ann, c.ID, done.ID)
		if err != nil || !cmp.Equal(again, after) {
			t.Errorf("%s %v", cmp.Diff(again, after), err)
		}
		if _, err := e.Criteria.Update(t.Context(), mine, ann, c.ID, &criterion.Definition{Rubric: judgingtest.Ptr("Other.")}, judgingtest.Catalog{}); err != nil {
			t.Fatal(err)
		}
		_, err = e.Drafts.Adopt(t.Context(), mine, ann, c.ID, done.ID)
		dbtest.Refused(t, err, 409, "version 1")
		_, err = e.Drafts.Adopt(t.Context(), theirs, ann, c.ID, done.ID)
		dbtest.Refused(t, err, 404)
	})
}

func TestASuggestionIsMadeFromTheTuningHalfAlone(t *testing.T) {
	judgingtest.Each(t, func(t *testing.T, e *judgingtest.Env) {
		e.Log(t, mine, "a", judgingtest.LogItems(60)...)
		said := e.Grade(t, "", judgingtest.Grades(3, judgingtest.Grade{Verdict: judge.Fail, Critique: "far too long"})...)
		hidden := e.Grade(t, "", judgingtest.Grades(3, judgingtest.Grade{Report: true, Verdict: judge.Fail, Critique: "secret remark"})...)
		e.Models.Say(func(int) string {
			return `{"criteria":[{"why":"many are long","name":"short","rubric":"It is short.","scale":"binary"}]}`
		})
		begun, err := e.Drafts.Suggest(t.Context(), mine, ann, draft.Request{Model: judgingtest.Model, Size: 12}, judging.Spending{})
		if err != nil {
			t.Fatal(err)
		}
		done := judgingtest.Await(t, job.Done, func() (draft.Suggested, job.Job, error) {
			s, err := e.Drafts.Suggested(t.Context(), mine, begun.ID)
			return s, s.Job, err
		})
		if done.Exchanges != 12 || done.Cost != judgingtest.Price || len(done.Criteria) != 1 || done.Criteria[0].Name != "short" {
			t.Errorf("%s", judgingtest.JSON(t, done))
		}
		body := string(e.Models.Last())
		if !strings.Contains(body, "far too long") || strings.Contains(body, "secret remark") || !strings.Contains(body, fmt.Sprint("item ", said[0].Item)) || strings.Contains(body, fmt.Sprintf("reply to item %d\\n", hidden[0].Item)) {
			t.Errorf("%s", body)
		}
		// what was shown is graded in the tuning half
		found := 0
		for _, m := range judgingtest.Items.FindAllStringSubmatch(body, -1) {
			var item int
			if _, err := fmt.Sscan(m[1], &item); err != nil || item < 1_000_000 {
				continue
			}
			found++
			step := judgingtest.Exchange(item)
			made, err := e.Labels.Create(t.Context(), mine, ann, []label.New{{Messages: step.Messages, Response: step.Response, Verdict: judge.Pass}}, func(int) string { return "" })
			if err != nil || made[0].InReportHalf {
				t.Errorf("item %d: %+v %v", item, made, err)
			}
		}
		if found != 9 {
			t.Errorf("%d logged exchanges", found)
		}
		_, err = e.Drafts.Suggest(t.Context(), theirs, ann, draft.Request{Model: judgingtest.Model, Size: 12}, judging.Spending{})
		dbtest.Refused(t, err, 412, "nothing to learn from")
	})
}

// suggest makes a suggestion, and returns the items that the model was shown, in order.
func suggest(t testing.TB, e *judgingtest.Env, r draft.Request) (shown []int) {
	t.Helper()
	e.Models.Say(func(int) string {
		return `{"criteria":[{"why":"many are long","name":"short","rubric":"It is short.","scale":"binary"}]}`
	})
	r.Model = judgingtest.Model
	begun, err := e.Drafts.Suggest(t.Context(), mine, ann, r, judging.Spending{})
	if err != nil {
		t.Fatal(err)
	}
	done := judgingtest.Await(t, job.Done, func() (draft.Suggested, job.Job, error) {
		s, err := e.Drafts.Suggested(t.Context(), mine, begun.ID)
		return s, s.Job, err
	})
	for _, m := range judgingtest.Items.FindAllSubmatch(e.Models.Last(), -1) {
		item, err := strconv.Atoi(string(m[1]))
		if err != nil {
			t.Fatal(err)
		}
		shown = append(shown, item)
	}
	if done.Exchanges != len(shown) {
		t.Errorf("%d exchanges, %d are quoted", done.Exchanges, len(shown))
	}
	return shown
}

// gradeLogged labels logged exchanges with a critique each, and returns those of the tuning half.
func gradeLogged(t testing.TB, e *judgingtest.Env, criterionID string, items []int) (tuning []int) {
	t.Helper()
	for _, item := range items {
		made, err := e.Labels.Create(t.Context(), mine, ann, []label.New{{
			RequestID: fmt.Sprintf("req_log_%d", item), CriterionID: criterionID, Verdict: judge.Fail,
			Critique: fmt.Sprintf("remark %d of %s.", item, criterionID),
		}}, func(int) string { return "" })
		if err != nil {
			t.Fatal(err)
		}
		if !made[0].InReportHalf {
			tuning = append(tuning, item)
		}
	}
	return tuning
}

func TestASuggestionIsMadeOfWhatItsFiltersSelect(t *testing.T) {
	judgingtest.Each(t, func(t *testing.T, e *judgingtest.Env) {
		items := judgingtest.LogItems(120)
		in, out := items[:60], items[60:]
		e.Log(t, mine, "in", in...)
		e.Log(t, mine, "out", out...)
		tuning := gradeLogged(t, e, "", in[:40])
		gradeLogged(t, e, "", out) // the newest
		e.Grade(t, "", judgingtest.Grades(3, judgingtest.Grade{Verdict: judge.Fail, Critique: "of no logged exchange"})...)
		shown := suggest(t, e, draft.Request{Size: 40, Filters: criterion.Filters{Tag: "in"}})
		labelled := 0
		for _, item := range shown {
			if !slices.Contains(in, item) {
				t.Errorf("item %d is shown, which the filters exclude", item)
			}
			if slices.Contains(tuning, item) {
				labelled++
			}
		}
		if strings.Contains(string(e.Models.Last()), "of no logged exchange") || labelled < 10 {
			t.Errorf("%d labelled items: %s", labelled, e.Models.Last())
		}
	})
}

func TestASuggestionQuotesNoExchangeTwice(t *testing.T) {
	judgingtest.Each(t, func(t *testing.T, e *judgingtest.Env) {
		one, other := e.NewCriterion(t), e.NewCriterion(t)
		items := judgingtest.LogItems(40)
		e.Log(t, mine, "", items...)
		tuning := gradeLogged(t, e, one.ID, items)
		gradeLogged(t, e, other.ID, items)
		shown := suggest(t, e, draft.Request{Size: 80})
		slices.Sort(shown)
		if !slices.Equal(shown, tuning) {
			t.Errorf("%d are in the tuning half, %d are quoted: %v", len(tuning), len(shown), shown)
		}
		for _, item := range tuning {
			for _, c := range []criterion.Criterion{one, other} {
				if remark := fmt.Sprintf("remark %d of %s.", item, c.ID); !strings.Contains(string(e.Models.Last()), remark) {
					t.Errorf("%s is not quoted", remark)
				}
			}
		}
	})
}
