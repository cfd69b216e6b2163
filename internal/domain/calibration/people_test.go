package calibration_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"sovereign/internal/domain/criterion"
	"sovereign/internal/domain/judgingtest"
	"sovereign/internal/domain/label"
	"sovereign/internal/grade/judge"
	"sovereign/internal/grade/trust"
	"sovereign/internal/store/db/dbtest"
	"sovereign/internal/store/job"
)

func class(report bool, n int) []judgingtest.Grade {
	return slices.Concat(judgingtest.Grades(n, judgingtest.Grade{Report: report, Verdict: judge.Pass}), judgingtest.Grades(n, judgingtest.Grade{Report: report, Verdict: judge.Fail}))
}

func TestACalibrationMeasuresItemsByTheMajorityAndLeavesTiesOut(t *testing.T) {
	judgingtest.Each(t, func(t *testing.T, e *judgingtest.Env) {
		c := e.NewCriterion(t)
		all := e.Grade(t, c.ID, judgingtest.Grades(6, judgingtest.Grade{Report: true, Verdict: judge.Pass})...)
		e.GradeBy(t, "usr_ben", c.ID, all[0].Item, judge.Pass) // 2 to 0
		ben := e.GradeBy(t, "usr_ben", c.ID, all[1].Item, judge.Fail)
		e.GradeBy(t, "usr_cai", c.ID, all[1].Item, judge.Fail) // 1 to 2
		tied := e.GradeBy(t, "usr_ben", c.ID, all[2].Item, judge.Fail)
		e.GradeBy(t, "usr_ben", c.ID, all[3].Item, judge.Fail)
		e.GradeBy(t, "usr_cai", c.ID, all[3].Item, judge.Fail)
		e.Adjudicate(t, all[3].ID, label.Ruling{Kind: label.JudgeError}) // passes, against 2
		withdrawn := e.GradeBy(t, "usr_ben", c.ID, all[4].Item, judge.Pass)
		e.Adjudicate(t, withdrawn.ID, label.Ruling{Kind: label.Ambiguous})
		if got := e.Criterion(t, c.ID).Labels; got.Pass != 3 || got.Fail != 1 {
			t.Errorf("the criterion has %+v", got)
		}
		begun := e.StartCalibration(t, c.ID)
		if begun.Progress != (job.Progress{Total: 4}) || begun.Estimate != 4*judgingtest.Estimate {
			t.Errorf("%+v", begun)
		}
		done := e.AwaitCalibration(t, c.ID, begun.ID, job.Done) // the judge passes all
		if done.Ties != 1 || done.Block.Matrix != (trust.Matrix{TP: 3, FP: 1}) || done.Done != 4 {
			t.Errorf("%d ties, %+v, %+v", done.Ties, done.Block.Matrix, done.Progress)
		}
		if got := e.Certificate(t, c.ID); got.Ties != 1 {
			t.Errorf("the certificate has %d ties", got.Ties)
		}
		rows, err := e.Calibrations.Rows(t.Context(), mine, c.ID, done.ID, "", nil, 10, 0)
		if err != nil || len(rows) != 4 {
			t.Fatal(rows, err)
		}
		for i, want := range []string{all[0].ID, all[3].ID, all[5].ID, ben.ID} {
			if rows[i].LabelID != want {
				t.Errorf("row %d is of %s, want %s", i, rows[i].LabelID, want)
			}
		}
		report := e.Report(t, c.ID)
		if len(report.Remaining) != 1 || report.Remaining[0].LabelID != ben.ID || report.Ties != 1 || len(report.Tied) != 1 || report.Tied[0].LabelID != all[2].ID {
			t.Errorf("%s", judgingtest.JSON(t, report))
		}
		e.Adjudicate(t, tied.ID, label.Ruling{Kind: label.LabelError})
		if report := e.Report(t, c.ID); report.Ties != 0 || report.Tied == nil {
			t.Errorf("a tie that was ruled on: %+v", report.Tied)
		}
		if again := e.Calibrate(t, c.ID); again.Ties != 0 || again.Block.N != 5 {
			t.Errorf("%+v", again)
		}
	})
}

// A certificate stays valid exactly while people say the same of every item that it was measured by.
func TestOnlyAGradeThatChangesAnItemsVerdictVoidsTheCertificate(t *testing.T) {
	judgingtest.Each(t, func(t *testing.T, e *judgingtest.Env) {
		c := e.NewCriterion(t)
		seen, held := e.Grade(t, c.ID, class(false, 4)...), e.Grade(t, c.ID, class(true, 40)...)
		next := func(from *[]judgingtest.Graded) judgingtest.Graded {
			g := (*from)[0]
			*from = (*from)[1:]
			return g
		}
		type steps []func(g judgingtest.Graded)
		by := func(name string, agrees bool) func(judgingtest.Graded) {
			return func(g judgingtest.Graded) {
				v := g.Verdict
				if !agrees {
					v = judgingtest.Opposite(v)
				}
				e.GradeBy(t, name, c.ID, g.Item, v)
			}
		}
		erase := func(g judgingtest.Graded) { e.DeleteLabel(t, g.ID) }
		for _, step := range []struct {
			name          string
			of            *[]judgingtest.Graded
			before, after steps // the calibration
			reason        string
		}{
			{"a second person agrees", &held, nil, steps{by("usr_ben", true)}, ""},
			{"a second person disagrees in the tuning half", &seen, nil, steps{by("usr_ben", false)}, ""},
			{"a second person disagrees", &held, nil, steps{by("usr_ben", false)}, "people are evenly split"},
			{"a third disagrees with two", &held, steps{by("usr_ben", true)}, steps{by("usr_cai", false)}, ""},
			{"a tie that was not measured is broken", &held, steps{by("usr_ben", false)}, steps{by("usr_cai", false)}, ""},
			{"one of two changes their mind", &held, steps{by("usr_ben", true)}, steps{by("usr_ben", false)}, "was graded anew, and people are evenly split"},
			{"one of three changes their mind", &held, steps{by("usr_ben", true), by("usr_cai", true)}, steps{by("usr_ben", false)}, ""},
			{"one of two that agree is deleted", &held, steps{by("usr_ben", true)}, steps{erase}, ""},
			{"one of three is deleted, which leaves a tie", &held, steps{by("usr_ben", true), by("usr_cai", false)}, steps{erase}, "was deleted"},
			{"the only one is deleted and made anew", &held, nil, steps{erase, by("usr_ben", true)}, "was deleted"},
		} {
			g := next(step.of)
			for _, act := range step.before {
				act(g)
			}
			done := e.Calibrate(t, c.ID)
			if !done.Block.HoldoutActive {
				t.Fatalf("%+v", done.Block)
			}
			for _, act := range step.after {
				act(g)
			}
			got := e.Certificate(t, c.ID)
			if got.CalibrationID != done.ID || got.Voided != (step.reason != "") || got.Voided && !strings.Contains(*got.VoidedReason, step.reason) {
				t.Errorf("%s: void %v, %v", step.name, got.Voided, got.VoidedReason)
			}
		}
	})
}

// What the report says of several graders' items is what another calibration finds.
func TestTheReportPredictsAnotherCalibrationOfWhatSeveralPeopleGraded(t *testing.T) {
	judgingtest.Each(t, func(t *testing.T, e *judgingtest.Env) {
		for seed := range uint64(4) {
			random := rand.New(rand.NewPCG(seed, 2))
			verdict := func() judge.Verdict { return []judge.Verdict{judge.Pass, judge.Fail}[random.IntN(2)] }
			c := e.NewCriterion(t)
			graded := e.Grade(t, c.ID, slices.Concat(class(true, 4), class(false, 4))...)
			said := map[int]string{}
			for _, g := range graded {
				said[g.Item] = judgingtest.Assessment(verdict(), 0.5)
			}
			e.Models.Say(func(item int) string { return said[item] })
			e.Calibrate(t, c.ID)
			for _, g := range graded {
				ids := []string{g.ID}
				for i := range random.IntN(4) {
					ids = append(ids, e.GradeBy(t, fmt.Sprint("usr_", i), c.ID, g.Item, verdict()).ID)
				}
				if random.IntN(3) == 0 {
					kind := []label.Kind{label.LabelError, label.JudgeError, label.Ambiguous}[random.IntN(3)]
					e.Adjudicate(t, ids[random.IntN(len(ids))], label.Ruling{Kind: kind})
				}
				if random.IntN(5) == 0 {
					e.DeleteLabel(t, ids[random.IntN(len(ids))])
				}
			}
			report := e.Report(t, c.ID)
			if report.After.N == 0 || len(report.Adjudications) == 0 {
				continue
			}
			fresh := e.Calibrate(t, c.ID)
			if diff := cmp.Diff(*fresh.Block, report.After); diff != "" || fresh.Ties != report.Ties {
				t.Errorf("seed %d: %d ties, %d foretold: %s", seed, fresh.Ties, report.Ties, diff)
			}
		}
	})
}

// An item is one example, with the label that decides. A change of what people say of it chooses others.
func TestAnItemIsShownOnceHoweverManyGradedIt(t *testing.T) {
	judgingtest.Each(t, func(t *testing.T, e *judgingtest.Env) {
		c := e.NewCriterion(t, func(d *criterion.Definition) { d.FewShot = judgingtest.Ptr(true) })
		all := e.Grade(t, c.ID, judgingtest.Grades(5, judgingtest.Grade{Verdict: judge.Pass, Critique: "kind"})...)
		for _, g := range all {
			e.GradeBy(t, "usr_ben", c.ID, g.Item, judge.Pass)
		}
		e.Calibrate(t, c.ID)
		is := func(when string, want ...int) {
			t.Helper()
			var ids []string
			for _, i := range want {
				ids = append(ids, all[i].ID)
			}
			if got := e.Criterion(t, c.ID).Examples; !slices.Equal(got, ids) {
				t.Errorf("%s: %v, want %v", when, got, ids)
			}
		}
		is("at first", 0, 1, 2)
		if n := dbtest.Count(t, e.DB, "calibration_rows WHERE shown"); n != 3 {
			t.Errorf("%d rows are of examples", n)
		}
		e.GradeBy(t, "usr_cai", c.ID, all[0].Item, judge.Fail)
		is("after a grade that changes nothing", 0, 1, 2)
		e.GradeBy(t, "usr_dia", c.ID, all[0].Item, judge.Fail)
		is("after a tie", 1, 2, 3)
	})
}

// The label that a report names can be adjudicated, also when the one that it named before was deleted, and a ruling on
// any label of the item is a ruling on the item.
func TestTheLabelOfARowCanAlwaysBeAdjudicated(t *testing.T) {
	judgingtest.Each(t, func(t *testing.T, e *judgingtest.Env) {
		c := e.NewCriterion(t)
		all := e.Grade(t, c.ID, judgingtest.Grades(2, judgingtest.Grade{Report: true, Verdict: judge.Fail})...)
		second := e.GradeBy(t, "usr_ben", c.ID, all[0].Item, judge.Fail)
		other := e.GradeBy(t, "usr_ben", c.ID, all[1].Item, judge.Fail)
		e.Calibrate(t, c.ID) // the judge passes all
		e.DeleteLabel(t, all[0].ID)
		report := e.Report(t, c.ID)
		ids := []string{report.Remaining[0].LabelID, report.Remaining[1].LabelID}
		if slices.Sort(ids); !slices.Equal(ids, []string{all[1].ID, second.ID}) || report.CertificateVoided {
			t.Errorf("%v, void %v", ids, report.CertificateVoided)
		}
		e.Adjudicate(t, second.ID, label.Ruling{Kind: label.JudgeError})
		ruled := e.Adjudicate(t, other.ID, label.Ruling{Verdict: judge.Fail}) // blindly; the row named all[1]
		report = e.Report(t, c.ID)
		if ruled.Adjudication.Kind != label.JudgeError || len(report.Remaining) != 0 || report.ByKind.JudgeError != 2 || report.Adjudications[0].LabelID != other.ID {
			t.Errorf("%s", judgingtest.JSON(t, report))
		}
	})
}
