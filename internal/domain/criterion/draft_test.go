package criterion

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"sovereign/internal/domain/label"
	"sovereign/internal/grade/judge"
	"sovereign/internal/grade/trust"
	"sovereign/internal/store/job"
)

func (r *room) improving(t testing.TB, criterionID string, want job.Status) Improvement {
	t.Helper()
	begun, err := r.Improve(t.Context(), mine, ann, criterionID, Draft{}, within(0), r.bench)
	if err != nil {
		t.Fatal(err)
	}
	r.runner.Wake()
	return await(t, want, func() (Improvement, job.Job, error) {
		k, err := improvements.find(t.Context(), r.db.In(mine), criterionID, begun.ID)
		if err != nil {
			return Improvement{}, job.Job{}, err
		}
		i, err := k.improvement()
		return i, i.Job, err
	})
}

func TestAnImprovementIsMadeOfMistakesOfTheTuningHalfAndAdopted(t *testing.T) {
	everywhere(t, func(t *testing.T, r *room) {
		c := r.judge(t)
		_, err := r.Improve(t.Context(), mine, ann, c.ID, Draft{}, within(0), r.bench)
		refused(t, err, 412, "nothing to improve on")
		seen := r.grade(t, c.ID, marks(4, mark{verdict: judge.Fail, critique: "rude"})...)
		hidden := r.grade(t, c.ID, marks(4, mark{report: true, verdict: judge.Fail})...)
		right := r.grade(t, c.ID, mark{verdict: judge.Pass})
		r.calibrate(t, c.ID)
		r.rule(t, seen[0].ID, label.Ruling{Kind: label.LabelError}) // no mistake after all
		r.rule(t, seen[1].ID, label.Ruling{Kind: label.Ambiguous})
		r.oracle.tells(func(int) string { return "I have no idea." })
		failed := r.improving(t, c.ID, job.Failed)
		if failed.Cost != price || failed.Rubric != nil || !strings.Contains(*failed.Error, "no draft") {
			t.Errorf("%s", shown(t, failed))
		}
		_, err = r.Adopt(t.Context(), mine, ann, c.ID, failed.ID, catalog{})
		refused(t, err, 409, "FAILED")
		r.oracle.tells(func(int) string {
			return `{"changes":["names the customer"],"rubric":"It is polite, and names nobody."}`
		})
		done := r.improving(t, c.ID, job.Done)
		if done.Cases != 2 || done.Cost != price || *done.Rubric != "It is polite, and names nobody." || !slices.Equal(done.Changes, []string{"names the customer"}) || done.Progress != (job.Progress{Done: 1, Total: 1}) {
			t.Errorf("%s", shown(t, done))
		}
		body := string(r.oracle.last)
		for i, group := range [][]graded{seen[2:], slices.Concat(seen[:2], hidden, right)} {
			for _, g := range group {
				if strings.Contains(body, fmt.Sprintf("reply to item %d\\n", g.item)) != (i == 0) {
					t.Errorf("item %d, in the report half: %v", g.item, g.InReportHalf)
				}
			}
		}
		after, err := r.Adopt(t.Context(), mine, ann, c.ID, done.ID, catalog{})
		if err != nil || after.Rubric != *done.Rubric || after.Version != 2 || after.Trust != trust.None || !r.certificate(t, c.ID).Voided {
			t.Errorf("%+v %v", after, err)
		}
		again, err := r.Adopt(t.Context(), mine, ann, c.ID, done.ID, catalog{})
		if err != nil || !cmp.Equal(again, after) {
			t.Errorf("%s %v", cmp.Diff(again, after), err)
		}
		if _, err := r.Update(t.Context(), mine, ann, c.ID, &Definition{Rubric: ptr("Other.")}, catalog{}); err != nil {
			t.Fatal(err)
		}
		_, err = r.Adopt(t.Context(), mine, ann, c.ID, done.ID, catalog{})
		refused(t, err, 409, "version 1")
		_, err = r.Adopt(t.Context(), theirs, ann, c.ID, done.ID, catalog{})
		refused(t, err, 404)
	})
}

func TestASuggestionIsMadeOfTheTuningHalfAlone(t *testing.T) {
	everywhere(t, func(t *testing.T, r *room) {
		r.log(t, mine, "a", upTo(60)...)
		said := r.grade(t, "", marks(3, mark{verdict: judge.Fail, critique: "far too long"})...)
		hidden := r.grade(t, "", marks(3, mark{report: true, verdict: judge.Fail, critique: "secret remark"})...)
		r.oracle.tells(func(int) string {
			return `{"criteria":[{"why":"many are long","name":"short","rubric":"It is short.","scale":"binary"}]}`
		})
		begun, err := r.Suggest(t.Context(), mine, ann, Draft{Model: model, Size: 12}, within(0), r.book, r.bench)
		if err != nil {
			t.Fatal(err)
		}
		r.runner.Wake()
		done := await(t, job.Done, func() (Suggested, job.Job, error) {
			k, err := suggestions.find(t.Context(), r.db.In(mine), "", begun.ID)
			if err != nil {
				return Suggested{}, job.Job{}, err
			}
			s, err := k.suggestion()
			return s, s.Job, err
		})
		if done.Exchanges != 12 || done.Cost != price || len(done.Criteria) != 1 || done.Criteria[0].Name != "short" {
			t.Errorf("%s", shown(t, done))
		}
		body := string(r.oracle.last)
		if !strings.Contains(body, "far too long") || strings.Contains(body, "secret remark") || !strings.Contains(body, fmt.Sprint("item ", said[0].item)) || strings.Contains(body, fmt.Sprintf("reply to item %d\\n", hidden[0].item)) {
			t.Errorf("%s", body)
		}
		// what was shown is graded in the tuning half
		found := 0
		for _, m := range numbered.FindAllStringSubmatch(body, -1) {
			var item int
			if _, err := fmt.Sscan(m[1], &item); err != nil || item < 1_000_000 {
				continue
			}
			found++
			step := exchange(item)
			made, err := r.labels.Create(t.Context(), mine, ann, []label.New{{Messages: step.Messages, Response: step.Response, Verdict: judge.Pass}}, func(int) string { return "" })
			if err != nil || made[0].InReportHalf {
				t.Errorf("item %d: %+v %v", item, made, err)
			}
		}
		if found != 9 {
			t.Errorf("%d logged exchanges", found)
		}
		_, err = r.Suggest(t.Context(), theirs, ann, Draft{Model: model, Size: 12}, within(0), r.book, r.bench)
		refused(t, err, 412, "nothing to learn from")
	})
}
