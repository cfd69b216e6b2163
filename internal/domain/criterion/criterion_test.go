package criterion_test

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"sovereign/internal/domain/criterion"
	"sovereign/internal/domain/judgingtest"
	"sovereign/internal/domain/label"
	"sovereign/internal/grade/judge"
	"sovereign/internal/grade/trust"
	"sovereign/internal/store/audit"
	"sovereign/internal/store/db/dbtest"
)

const (
	mine   = dbtest.Mine
	theirs = dbtest.Theirs
)

var ann = dbtest.Ann

func TestAChangeOfWhatTheJudgeIsToldMakesAVersionAndVoidsTheCertificate(t *testing.T) {
	judgingtest.Each(t, func(t *testing.T, e *judgingtest.Env) {
		for name, c := range map[string]struct {
			change criterion.Definition
			reason string // "" where nothing is new
		}{
			"nothing":            {criterion.Definition{}, ""},
			"the name":           {criterion.Definition{Name: judgingtest.Ptr("kind")}, ""},
			"the filters":        {criterion.Definition{Filters: &criterion.Filters{Tag: "support"}}, ""},
			"all as it is":       {criterion.Definition{Rubric: judgingtest.Ptr("It is polite."), JudgeModel: judgingtest.Ptr(judgingtest.Model), Scale: judgingtest.Ptr(judge.Binary), PassThreshold: judgingtest.Ptr(0.5), FewShot: judgingtest.Ptr(false)}, ""},
			"the rubric":         {criterion.Definition{Rubric: judgingtest.Ptr("It is short.")}, "the rubric"},
			"the judge model":    {criterion.Definition{JudgeModel: judgingtest.Ptr(judgingtest.OtherModel)}, "the judge model"},
			"the scale":          {criterion.Definition{Scale: judgingtest.Ptr(judge.Graded)}, "the scale"},
			"the pass threshold": {criterion.Definition{PassThreshold: judgingtest.Ptr(0.6)}, "the pass threshold"},
			"examples":           {criterion.Definition{FewShot: judgingtest.Ptr(true)}, "the examples"},
		} {
			before := e.NewCriterion(t)
			e.Grade(t, before.ID, judgingtest.Grade{Verdict: judge.Pass})
			e.Calibrate(t, before.ID)
			after, err := e.Criteria.Update(t.Context(), mine, ann, before.ID, &c.change, judgingtest.Catalog{})
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(after, e.Criterion(t, before.ID)); diff != "" {
				t.Error(diff)
			}
			certificate := e.Certificate(t, before.ID)
			fresh := c.reason != ""
			if (after.Version == 2) != fresh || certificate.Voided != fresh || (certificate.VoidedAt != nil) != fresh || (after.Trust == trust.None) != fresh || after.Trust == "" {
				t.Errorf("%s: %+v %+v", name, after, certificate)
			}
			if fresh && (!strings.HasPrefix(*certificate.VoidedReason, c.reason) || !strings.Contains(*certificate.VoidedReason, "version 1 is now 2")) {
				t.Errorf("%s: %s", name, *certificate.VoidedReason)
			}
			if c.reason == "the rubric" { // to change it back is another version, and the certificate stays void
				back, err := e.Criteria.Update(t.Context(), mine, ann, before.ID, &criterion.Definition{Rubric: judgingtest.Ptr("It is polite.")}, judgingtest.Catalog{})
				if err != nil || back.Version != 3 || !e.Certificate(t, before.ID).Voided {
					t.Errorf("%+v %v", back, err)
				}
			}
		}
	})
}

func TestARefusalNamesTheFieldThatBreaksARule(t *testing.T) {
	judgingtest.Each(t, func(t *testing.T, e *judgingtest.Env) {
		good := e.NewCriterion(t)
		for field, d := range map[string]criterion.Definition{
			"name":             {Name: judgingtest.Ptr("a\u0007b")},
			"name must":        {Name: judgingtest.Ptr("")},
			"name must be":     {Name: judgingtest.Ptr(strings.Repeat("x", 65))},
			"rubric":           {Rubric: judgingtest.Ptr(" ")},
			"judge_model":      {JudgeModel: judgingtest.Ptr("")},
			"judge_model c":    {JudgeModel: judgingtest.Ptr("none/such")},
			"scale":            {Scale: judgingtest.Ptr(judge.Scale("ternary"))},
			"pass_threshold":   {PassThreshold: judgingtest.Ptr(0.0)},
			"pass_threshold m": {PassThreshold: judgingtest.Ptr(1.01)},
			"filters.end":      {Filters: &criterion.Filters{Start: 2, End: 1}},
		} {
			_, err := e.Criteria.Update(t.Context(), mine, ann, good.ID, &d, judgingtest.Catalog{})
			dbtest.Refused(t, err, 400, field)
			whole := criterion.Definition{Name: judgingtest.Ptr("x"), Rubric: judgingtest.Ptr("x"), JudgeModel: judgingtest.Ptr(judgingtest.Model)}
			merge(&whole, &d)
			_, err = e.Criteria.Create(t.Context(), mine, ann, &whole, judgingtest.Catalog{})
			dbtest.Refused(t, err, 400, field)
		}
		_, err := e.Criteria.Update(t.Context(), mine, ann, good.ID, &criterion.Definition{Rubric: judgingtest.Ptr("a\x00b")}, judgingtest.Catalog{})
		dbtest.Refused(t, err, 400)
		if diff := cmp.Diff(good, e.Criterion(t, good.ID)); diff != "" {
			t.Error(diff)
		}
		if all, err := e.Criteria.List(t.Context(), mine, 10, 0); err != nil || len(all) != 1 {
			t.Error(all, err)
		}
	})
}

func merge(to, from *criterion.Definition) {
	for _, one := range []struct{ to, from **string }{{&to.Name, &from.Name}, {&to.Rubric, &from.Rubric}, {&to.JudgeModel, &from.JudgeModel}} {
		if *one.from != nil {
			*one.to = *one.from
		}
	}
	to.Scale, to.PassThreshold, to.FewShot, to.Filters = from.Scale, from.PassThreshold, from.FewShot, from.Filters
}

func TestACriterionOfAnotherWorkspaceIsNotFound(t *testing.T) {
	judgingtest.Each(t, func(t *testing.T, e *judgingtest.Env) {
		c := e.NewCriterion(t)
		e.Grade(t, c.ID, judgingtest.Grade{Verdict: judge.Pass})
		cal := e.Calibrate(t, c.ID)
		_, err := e.Criteria.Get(t.Context(), theirs, c.ID)
		dbtest.Refused(t, err, 404, c.ID)
		_, err = e.Criteria.Update(t.Context(), theirs, ann, c.ID, &criterion.Definition{Name: judgingtest.Ptr("x")}, judgingtest.Catalog{})
		dbtest.Refused(t, err, 404, c.ID)
		dbtest.Refused(t, e.Criteria.Delete(t.Context(), theirs, ann, c.ID), 404, c.ID)
		_, err = e.Calibrations.Certificate(t.Context(), theirs, c.ID)
		dbtest.Refused(t, err, 404, c.ID)
		_, err = e.Calibrations.Report(t.Context(), theirs, c.ID)
		dbtest.Refused(t, err, 404, c.ID)
		_, err = e.Calibrations.Get(t.Context(), theirs, c.ID, cal.ID)
		dbtest.Refused(t, err, 404, cal.ID)
		_, err = e.Calibrations.List(t.Context(), theirs, c.ID, 10, 0)
		dbtest.Refused(t, err, 404, c.ID)
		_, err = e.Monitors.Get(t.Context(), theirs, c.ID)
		dbtest.Refused(t, err, 404, c.ID)
		step := judgingtest.Exchange(1)
		_, err = e.Labels.Create(t.Context(), theirs, ann, []label.New{{Messages: step.Messages, Response: step.Response, Verdict: judge.Pass, CriterionID: c.ID}}, func(int) string { return "" })
		dbtest.Refused(t, err, 404, c.ID)
		if all, err := e.Criteria.List(t.Context(), theirs, 10, 0); err != nil || len(all) != 0 {
			t.Error(all, err)
		}
	})
}

func TestADeletedCriterionLeavesItsLabelsItsCertificatesAndItsAuditTrail(t *testing.T) {
	judgingtest.Each(t, func(t *testing.T, e *judgingtest.Env) {
		c, other := e.NewCriterion(t), e.NewCriterion(t)
		all := e.Grade(t, c.ID, judgingtest.Grades(3, judgingtest.Grade{Verdict: judge.Pass})...)
		e.Grade(t, other.ID, judgingtest.Grade{Verdict: judge.Pass})
		e.Calibrate(t, c.ID)
		e.Calibrate(t, other.ID)
		if err := e.Criteria.Delete(t.Context(), mine, ann, c.ID); err != nil {
			t.Fatal(err)
		}
		e.Sweep(t)
		for table, want := range map[string]int{"criteria_deleted": 0, "criteria": 1, "calibrations": 1, "calibration_rows": 1, "certificates": 2, "certificates WHERE voided_at = 0": 1, "judge_answers": 1, "labels": 4} {
			if n := dbtest.Count(t, e.DB, table); n != want {
				t.Errorf("%d rows of %s, want %d", n, table, want)
			}
		}
		e.Adjudicate(t, all[0].ID, label.Ruling{Kind: label.LabelError})
		e.DeleteLabel(t, all[1].ID)
		if trail, err := e.Criteria.History(t.Context(), mine, c.ID, 10, 0); err != nil || len(trail) != 2 || trail[0].Action != "criterion.delete" {
			t.Errorf("%+v %v", trail, err)
		}
		if _, err := e.Criteria.History(t.Context(), theirs, c.ID, 10, 0); err == nil {
			t.Error("another workspace reads it")
		}
	})
}

func TestExamplesAreOfTheTuningHalfAndStayUntilOneOfThemChanges(t *testing.T) {
	judgingtest.Each(t, func(t *testing.T, e *judgingtest.Env) {
		c := e.NewCriterion(t, func(d *criterion.Definition) { d.FewShot = judgingtest.Ptr(true) })
		why := func(m judgingtest.Grade) judgingtest.Grade { m.Critique = "because"; return m }
		e.Grade(t, c.ID, judgingtest.Grades(5, why(judgingtest.Grade{Report: true, Verdict: judge.Pass}))...)
		silent := e.Grade(t, c.ID, judgingtest.Grade{Verdict: judge.Pass})
		passing := e.Grade(t, c.ID, judgingtest.Grades(5, why(judgingtest.Grade{Verdict: judge.Pass}))...)
		failing := e.Grade(t, c.ID, judgingtest.Grades(2, why(judgingtest.Grade{Verdict: judge.Fail}))...)
		if c.Examples == nil || len(c.Examples) != 0 {
			t.Errorf("chosen before it is calibrated: %v", c.Examples)
		}
		ids := func(of ...judgingtest.Graded) (all []string) {
			for _, g := range of {
				all = append(all, g.ID)
			}
			slices.Sort(all)
			return all
		}
		is := func(when string, version int64, valid bool, want ...judgingtest.Graded) {
			t.Helper()
			got := e.Criterion(t, c.ID)
			if !slices.Equal(got.Examples, ids(want...)) || got.Version != version || (got.Trust != trust.None) != valid {
				t.Errorf("%s: version %d, %s, shown %v, want %v", when, got.Version, got.Trust, got.Examples, ids(want...))
			}
		}
		e.Calibrate(t, c.ID)
		is("calibrated", 2, true, passing[0], passing[1], passing[2], failing[0], failing[1])
		if body := string(e.Models.Last()); !strings.Contains(body, fmt.Sprintf("reply to item %d", passing[0].Item)) || !strings.Contains(body, "because") {
			t.Errorf("the judge is not shown its examples: %s", body)
		}
		e.Grade(t, c.ID, judgingtest.Grades(6, why(judgingtest.Grade{Verdict: judge.Pass}))...)
		e.Grade(t, c.ID, judgingtest.Grades(3, why(judgingtest.Grade{Report: true, Verdict: judge.Fail}))...)
		calls := e.Models.Calls()
		e.Calibrate(t, c.ID)
		is("with more labels", 2, true, passing[0], passing[1], passing[2], failing[0], failing[1])
		if n := e.Models.Calls() - calls; n != 9 {
			t.Errorf("%d questions for 9 new labels", n)
		}
		e.Adjudicate(t, passing[4].ID, label.Ruling{Kind: label.Ambiguous}) // is not shown; but no holdout, so void
		if got := e.Criterion(t, c.ID); got.Version != 2 {
			t.Errorf("%+v", got)
		}
		e.Calibrate(t, c.ID)
		e.Adjudicate(t, passing[0].ID, label.Ruling{Kind: label.JudgeError})
		is("after a judge_error", 2, true, passing[0], passing[1], passing[2], failing[0], failing[1])
		e.Adjudicate(t, passing[0].ID, label.Ruling{Kind: label.LabelError, Note: "rude"})
		is("after a correction", 3, false, passing[1], passing[2], passing[3], passing[0], failing[0], failing[1])
		e.DeleteLabel(t, failing[0].ID)
		is("after a deletion", 4, false, passing[1], passing[2], passing[3], passing[0], failing[1])
		done := e.Calibrate(t, c.ID)
		is("calibrated anew", 4, true, passing[1], passing[2], passing[3], passing[0], failing[1])
		if done.Version != 4 || bytes.Contains(e.Models.Last(), []byte(fmt.Sprintf("reply to item %d\"", silent[0].Item))) {
			t.Errorf("%+v", done)
		}
		if _, err := e.Criteria.Update(t.Context(), mine, ann, c.ID, &criterion.Definition{FewShot: judgingtest.Ptr(false)}, judgingtest.Catalog{}); err != nil {
			t.Fatal(err)
		}
		is("no longer shown any", 5, false)
		if trail, err := audit.History(t.Context(), e.DB, mine, "criterion", c.ID, 10, 0); err != nil || len(trail) < 2 {
			t.Error(trail, err)
		}
	})
}
