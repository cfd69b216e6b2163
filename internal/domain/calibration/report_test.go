package calibration_test

import (
	"bytes"
	"cmp"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"slices"
	"testing"
	"time"

	gocmp "github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"sovereign/internal/base/clock"
	"sovereign/internal/base/id"
	"sovereign/internal/base/secret"
	"sovereign/internal/domain/calibration"
	"sovereign/internal/domain/criterion"
	"sovereign/internal/domain/judgingtest"
	"sovereign/internal/domain/label"
	"sovereign/internal/grade/judge"
	"sovereign/internal/grade/trust"
	"sovereign/internal/store/db"
	"sovereign/internal/store/db/dbtest"
)

// The more frequent direction comes first, then the disagreement that the judge is surest of, then the lower label id.
func TestDisagreementsAreOrderedByDirectionThenByCertainty(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		threshold := rapid.SampledFrom([]float64{0.3, 0.5, 0.8}).Draw(t, "threshold")
		n := rapid.IntRange(0, 12).Draw(t, "n")
		all := make([]calibration.Remaining, n)
		counts := map[string]int64{}
		for i := range all {
			all[i] = calibration.Remaining{
				LabelID: fmt.Sprintf("lbl_%02d", i), JudgeVerdict: rapid.SampledFrom([]judge.Verdict{judge.Pass, judge.Fail}).Draw(t, "verdict"),
				JudgeGrade: rapid.SampledFrom([]float64{0, 0.2, 0.5, 0.75, 1}).Draw(t, "grade"),
			}
			counts[map[judge.Verdict]string{judge.Pass: "fp", judge.Fail: "fn"}[all[i].JudgeVerdict]]++
		}
		all = rapid.Permutation(all).Draw(t, "order")
		spread := calibration.Order(all, threshold)
		var sum float64
		for i, d := range spread {
			sum += d.ShareOfErrors
			if d.Count != counts[d.Direction] || d.Count == 0 || d.ShareOfErrors != float64(d.Count)/float64(n) || i > 0 && d.Count > spread[i-1].Count {
				t.Fatalf("%+v of %v", spread, counts)
			}
		}
		if n > 0 && math.Abs(sum-1) > 1e-12 || n == 0 && (spread == nil || len(spread) != 0) {
			t.Fatalf("%+v", spread)
		}
		place := func(r calibration.Remaining) int {
			return slices.IndexFunc(spread, func(d calibration.Direction) bool { return d.Direction == r.Direction })
		}
		if !slices.IsSortedFunc(all, func(a, b calibration.Remaining) int {
			return cmp.Or(cmp.Compare(place(a), place(b)), cmp.Compare(math.Abs(b.JudgeGrade-threshold), math.Abs(a.JudgeGrade-threshold)), cmp.Compare(a.LabelID, b.LabelID))
		}) {
			t.Fatalf("%+v", all)
		}
	})
}

func TestAReportBeforeAnyAdjudicationEqualsTheCalibration(t *testing.T) {
	judgingtest.Each(t, func(t *testing.T, e *judgingtest.Env) {
		c := e.NewCriterion(t, func(d *criterion.Definition) { d.PassThreshold = judgingtest.Ptr(0.4) })
		_, err := e.Calibrations.Report(t.Context(), mine, c.ID)
		dbtest.Refused(t, err, 404, "calibrat")
		all := e.Grade(t, c.ID, slices.Concat(judgingtest.Grades(4, judgingtest.Grade{Verdict: judge.Fail}), judgingtest.Grades(4, judgingtest.Grade{Report: true, Verdict: judge.Pass}))...)
		grades := []float64{0.9, 0.5, 0.9, 0.4, 0.1, 0.6, 0.6, 0.6}
		e.Models.Say(func(item int) string {
			i := slices.IndexFunc(all, func(g judgingtest.Graded) bool { return g.Item == item })
			if i < 3 {
				return judgingtest.Assessment(judge.Pass, grades[i])
			}
			if i == 4 {
				return judgingtest.Assessment(judge.Fail, grades[i])
			}
			return judgingtest.Assessment(all[i].Verdict, grades[i])
		})
		done := e.Calibrate(t, c.ID)
		got := e.Report(t, c.ID)
		remaining := func(i int, direction string) calibration.Remaining {
			return calibration.Remaining{
				LabelID: all[i].ID, JudgeVerdict: judgingtest.Opposite(all[i].Verdict), HumanVerdict: all[i].Verdict, Critique: "as I see it", JudgeGrade: grades[i],
				Direction: direction, InReportHalf: all[i].InReportHalf,
			}
		}
		want := calibration.Report{
			CriterionID: c.ID, AlignedAt: *done.AlignedAt, Before: *done.Block, After: *done.Block, Adjudications: []calibration.AdjudicatedLabel{}, RemainingDisagreements: 4,
			Remaining:     []calibration.Remaining{remaining(0, "fp"), remaining(2, "fp"), remaining(1, "fp"), remaining(4, "fn")},
			Concentration: []calibration.Direction{{"fp", 3, 0.75}, {"fn", 1, 0.25}}, AgreementsToReview: []calibration.LabelToReview{}, Tied: []calibration.LabelToReview{},
		}
		if diff := gocmp.Diff(want, got); diff != "" {
			t.Error(diff)
		}
	})
}

func TestTheReportDrawsAsManyAgreementsAsWereAdjudicated(t *testing.T) {
	judgingtest.Each(t, func(t *testing.T, e *judgingtest.Env) {
		c := e.NewCriterion(t)
		all := e.Grade(t, c.ID, slices.Concat(judgingtest.Grades(30, judgingtest.Grade{Verdict: judge.Pass}), judgingtest.Grades(6, judgingtest.Grade{Report: true, Verdict: judge.Fail}))...)
		e.Calibrate(t, c.ID) // which passes all
		wrong, right := all[30:], all[:30]
		is := func(when string, review, remaining int, by calibration.ByKind) calibration.Report {
			t.Helper()
			got := e.Report(t, c.ID)
			if len(got.AgreementsToReview) != review || got.AfterIsDisagreementOnly != (review > 0) || len(got.Remaining) != remaining || got.RemainingDisagreements != int64(remaining) ||
				got.ByKind != by || got.Adjudicated != by.LabelError+by.JudgeError+by.Ambiguous {
				t.Errorf("%s: %s", when, judgingtest.JSON(t, got))
			}
			for _, one := range got.AgreementsToReview {
				if !slices.ContainsFunc(right, func(g judgingtest.Graded) bool { return g.ID == one.LabelID }) {
					t.Errorf("%s: %s is no agreement", when, one.LabelID)
				}
			}
			if text := judgingtest.JSON(t, got.AgreementsToReview); bytes.Contains(text, []byte("verdict")) || bytes.Contains(text, []byte("pass")) {
				t.Errorf("it is not blind: %s", text)
			}
			if diff := gocmp.Diff(got, e.Report(t, c.ID)); diff != "" {
				t.Errorf("%s: read twice: %s", when, diff)
			}
			return got
		}
		is("before", 0, 6, calibration.ByKind{})
		e.Adjudicate(t, wrong[0].ID, label.Ruling{Kind: label.LabelError, Note: "it is polite"})
		first := is("a correction", 1, 5, calibration.ByKind{LabelError: 1})
		ruled := first.Adjudications[0]
		if ruled.LabelID != wrong[0].ID || ruled.Kind != label.LabelError || ruled.OriginalVerdict != judge.Fail || *ruled.AdjudicatedVerdict != judge.Pass || ruled.Note != "it is polite" || ruled.AdjudicatedAt == 0 {
			t.Errorf("%+v", ruled)
		}
		e.Adjudicate(t, wrong[1].ID, label.Ruling{Kind: label.JudgeError})
		e.Adjudicate(t, wrong[2].ID, label.Ruling{Kind: label.Ambiguous})
		e.Adjudicate(t, wrong[3].ID, label.Ruling{Verdict: judge.Fail}) // blindly, against the judge
		got := is("four rulings", 4, 2, calibration.ByKind{LabelError: 1, JudgeError: 2, Ambiguous: 1})
		if got.AgreementsToReview[0] != first.AgreementsToReview[0] || got.Adjudications[0].LabelID != wrong[3].ID {
			t.Errorf("the sample does not grow: %+v, then %+v", first.AgreementsToReview, got.AgreementsToReview)
		}
		sample := got.AgreementsToReview
		if slices.IsSortedFunc(sample, func(a, b calibration.LabelToReview) int { return cmp.Compare(a.LabelID, b.LabelID) }) && sample[3].LabelID == right[3].ID {
			t.Error("the sample is the oldest labels, and no random one")
		}
		if done := e.Adjudicate(t, sample[0].LabelID, label.Ruling{Verdict: judge.Pass}); done.Adjudication.Kind != label.Confirmed {
			t.Errorf("%+v", done.Adjudication)
		}
		is("one of them confirmed", 3, 2, calibration.ByKind{LabelError: 1, JudgeError: 2, Ambiguous: 1})
		if done := e.Adjudicate(t, sample[1].LabelID, label.Ruling{Verdict: judge.Fail}); done.Adjudication.Kind != label.LabelError {
			t.Errorf("%+v", done.Adjudication)
		}
		got = is("one corrected", 3, 2, calibration.ByKind{LabelError: 2, JudgeError: 2, Ambiguous: 1})
		if got.After.Matrix.FP != 1+2+1+1 { // two that remain, two judge_errors, and the agreement that was none
			t.Errorf("%+v", got.After.Matrix)
		}
		e.DeleteLabel(t, sample[2].LabelID)
		is("one gone: another takes its place", 3, 2, calibration.ByKind{LabelError: 2, JudgeError: 2, Ambiguous: 1})
		for _, one := range e.Report(t, c.ID).AgreementsToReview {
			e.Adjudicate(t, one.LabelID, label.Ruling{Verdict: judge.Pass})
		}
		is("all of them", 0, 2, calibration.ByKind{LabelError: 2, JudgeError: 2, Ambiguous: 1})
		e.DeleteLabel(t, wrong[5].ID)
		is("a disagreement that is gone is none", 0, 1, calibration.ByKind{LabelError: 2, JudgeError: 2, Ambiguous: 1})
	})
}

func TestTheReportPredictsAnotherCalibration(t *testing.T) {
	judgingtest.Each(t, func(t *testing.T, e *judgingtest.Env) {
		for seed := range uint64(6) {
			random := rand.New(rand.NewPCG(seed, 1))
			verdict := func() judge.Verdict { return []judge.Verdict{judge.Pass, judge.Fail}[random.IntN(2)] }
			var all []judgingtest.Grade
			if seed%3 == 0 { // just enough to hold out, until some are withdrawn
				all = slices.Concat(judgingtest.Grades(30+random.IntN(2), judgingtest.Grade{Report: true, Verdict: judge.Pass}), judgingtest.Grades(30+random.IntN(2), judgingtest.Grade{Report: true, Verdict: judge.Fail}))
			}
			for range 1 + random.IntN(12) {
				all = append(all, judgingtest.Grade{Report: random.IntN(2) == 0, Verdict: verdict()})
			}
			c := e.NewCriterion(t)
			said := map[int]string{}
			graded := e.Grade(t, c.ID, all...)
			for _, g := range graded {
				if said[g.Item] = judgingtest.Assessment(verdict(), math.Round(random.Float64()*100)/100); random.IntN(12) == 0 {
					said[g.Item] = "?"
				}
			}
			e.Models.Say(func(item int) string { return said[item] })
			e.Calibrate(t, c.ID)
			before := e.Report(t, c.ID)
			for _, g := range graded {
				for random.IntN(3) == 0 {
					ruling := []label.Ruling{{Kind: label.LabelError}, {Kind: label.JudgeError}, {Kind: label.Ambiguous}, {Verdict: verdict()}}[random.IntN(4)]
					e.Adjudicate(t, g.ID, ruling)
				}
				if random.IntN(12) == 0 {
					e.DeleteLabel(t, g.ID)
				}
			}
			report := e.Report(t, c.ID)
			if diff := gocmp.Diff(before.Before, report.Before); diff != "" {
				t.Errorf("seed %d: what was measured has changed: %s", seed, diff)
			}
			if report.After.N == 0 || len(report.Adjudications) == 0 {
				continue
			}
			fresh := e.Calibrate(t, c.ID)
			if diff := gocmp.Diff(*fresh.Block, report.After); diff != "" {
				t.Errorf("seed %d: %s", seed, diff)
			}
			again := e.Report(t, c.ID)
			if diff := gocmp.Diff(again.Before, again.After); diff != "" || again.CertificateVoided {
				t.Errorf("seed %d: right after it: %s", seed, diff)
			}
			if got := e.Certificate(t, c.ID); !got.Trust.AtLeast(trust.Provisional) || got.Matrix != fresh.Block.Matrix {
				t.Errorf("seed %d: %+v", seed, got)
			}
		}
	})
}

// That a label was corrected or confirmed before does not excuse a judge that disagrees with it since.
func TestADisagreementWithAnEarlierAdjudicationRemains(t *testing.T) {
	judgingtest.Each(t, func(t *testing.T, e *judgingtest.Env) {
		c := e.NewCriterion(t)
		all := e.Grade(t, c.ID, judgingtest.Grades(3, judgingtest.Grade{Verdict: judge.Pass})...)
		e.Adjudicate(t, all[0].ID, label.Ruling{Kind: label.LabelError}) // people fail it
		e.Adjudicate(t, all[1].ID, label.Ruling{Verdict: judge.Pass})    // confirmed
		e.Models.Say(func(int) string { return judgingtest.Assessment(judge.Pass, 1) })
		e.Calibrate(t, c.ID)
		report := e.Report(t, c.ID)
		if len(report.Remaining) != 1 || report.Remaining[0].LabelID != all[0].ID || report.Remaining[0].Direction != "fp" {
			t.Errorf("%s", judgingtest.JSON(t, report))
		}
		e.Adjudicate(t, all[0].ID, label.Ruling{Verdict: judge.Fail})
		if report = e.Report(t, c.ID); len(report.Remaining) != 1 {
			t.Errorf("it agrees with the correction: %s", judgingtest.JSON(t, report.Remaining))
		}
	})
}

// insertCalibration inserts a calibration of so many rows, of which the first ones were adjudicated. It returns the
// criterion's id.
func insertCalibration(t testing.TB, e *judgingtest.Env, agreements, disagreements, adjudicated int) string {
	t.Helper()
	c, name, now := e.NewCriterion(t), id.New("cal"), clock.Now()
	var halves trust.Halves
	var rows, labels [][]any
	for i := range agreements + disagreements {
		labelID := fmt.Sprintf("lbl_%s_%06d", name, i)
		human, report := []judge.Verdict{judge.Pass, judge.Fail}[i%2], i%4 < 2
		said, after, kind := human, human, ""
		if i < disagreements {
			said = judgingtest.Opposite(human)
		}
		if i < adjudicated {
			kind = "judge_error"
			if i%2 == 0 {
				kind, after = "label_error", said
			}
		}
		halves.Half(report).Add(human, said, 1)
		rows = append(rows, []any{
			mine, name, []byte(labelID), labelID, "req_1", report, false, string(human), string(after), kind, calibration.SamplePosition(name, labelID), false,
			string(said), float64(i%100) / 100, "The response is not polite, for it calls the customer names.", "",
		})
		if kind != "" {
			labels = append(labels, []any{mine, labelID, c.ID, "req_1", "", string(human), nil, "", "usr_ann", "api", report, false, []byte(labelID), kind, string(after), "looked at", "usr_ann", now, now})
		}
	}
	_, err := e.DB.Tx(t.Context(), func(tx *db.Tx) error {
		in := tx.Across("test")
		if _, err := db.Exec(t.Context(), tx.In(mine), `
			INSERT INTO calibrations (workspace_id, id, criterion_id, version, judge_model, threshold, fresh, counts, enrolled, last, created_by, created_at, aligned_at)
			VALUES ($1, $2, $3, 1, 'sim/judge', 0.5, FALSE, $4, '', '', 'usr_ann', $5, $5)`, name, c.ID, string(judgingtest.JSON(t, halves)), now); err != nil {
			return err
		}
		if _, err := db.Exec(t.Context(), tx.In(mine), `
			INSERT INTO jobs (workspace_id, id, kind, status, done, total, estimate, cost, attempts, losses, claim, cancel_requested, failure, created_at, finished_at)
			VALUES ($1, $2, 'calibration', 'DONE', 0, 0, 0, 0, 0, 0, '', FALSE, '', $3, $3)`, name, now); err != nil {
			return err
		}
		items := make([][]any, len(labels))
		for i := range labels {
			items[i] = []any{mine, labels[i][12], []byte("[]")}
		}
		if err := db.Insert(t.Context(), in, "label_items", []string{"workspace_id", "hash", "steps"}, items); err != nil {
			return err
		}
		if err := db.Insert(t.Context(), in, "labels", []string{
			"workspace_id", "id", "criterion_id", "request_id", "trace_id", "verdict", "grade", "critique", "author", "source", "in_report_half", "straddles", "item", "kind",
			"adjudicated", "note", "adjudicated_by", "adjudicated_at", "created_at",
		}, labels); err != nil {
			return err
		}
		return db.Insert(t.Context(), in, "calibration_rows", []string{
			"workspace_id", "calibration_id", "item", "label_id", "request_id", "in_report_half", "shown", "human", "standing",
			"ruling", "draw", "pending", "judge", "grade", "critique", "failure",
		}, rows)
	})
	if err != nil {
		t.Fatal(err)
	}
	return c.ID
}

// timeReport returns how long the report takes.
func timeReport(t testing.TB, e *judgingtest.Env, criterionID string) time.Duration {
	t.Helper()
	began := time.Now()
	e.Report(t, criterionID)
	return time.Since(began)
}

// The report reads disagreements and adjudications, and of the agreements only the sample. Its time is compared by the
// drill alone: make faults.
func TestDrillTheReportTakesNoLongerWithMoreAgreements(t *testing.T) {
	drill, agreements := os.Getenv("SOVEREIGN_DRILLS") == "full", 3_000
	if drill {
		agreements = 40_000
	}
	judgingtest.Each(t, func(t *testing.T, e *judgingtest.Env) {
		few := insertCalibration(t, e, 1_000, 60, 20)
		many := insertCalibration(t, e, agreements, 60, 20)
		if e.DB.Engine == db.Postgres { // as the server does by itself, within a minute
			if _, err := db.Exec(t.Context(), e.DB.Across("test"), `ANALYZE`); err != nil {
				t.Fatal(err)
			}
		}
		report := e.Report(t, many)
		if report.RemainingDisagreements != 40 || len(report.AgreementsToReview) != 20 || report.Adjudicated != 20 {
			t.Fatalf("%+v", report)
		}
		if !drill {
			return
		}
		small, large := time.Hour, time.Hour // the fastest of some
		for range 50 {
			small, large = min(small, timeReport(t, e, few)), min(large, timeReport(t, e, many))
		}
		t.Logf("among 1,000: %v; among %d: %v", small, agreements, large)
		if large > 2*small+time.Millisecond {
			t.Errorf("it takes %v among 1,000 agreements, and %v among %d", small, large, agreements)
		}
	})
}

// BenchmarkReport100k measures the report of a calibration of 100,000 labels with 5,000 disagreements.
func BenchmarkReport100k(b *testing.B) {
	for _, engine := range []db.Engine{db.SQLite, db.Postgres} {
		for _, ruled := range []int{0, 1_000} {
			b.Run(fmt.Sprintf("%s/%d adjudicated", engine, ruled), func(b *testing.B) {
				var url secret.Text
				if engine == db.Postgres {
					url = dbtest.Postgres(b)
				}
				folder := b.TempDir()
				core := dbtest.Open(b, folder, url)
				logs, err := db.OpenLogs(b.Context(), folder, url)
				if err != nil {
					b.Fatal(err)
				}
				b.Cleanup(func() { _ = logs.Close() })
				for _, d := range []*db.DB{core, logs} {
					if err := d.Migrate(b.Context()); err != nil {
						b.Fatal(err)
					}
				}
				e := judgingtest.New(b, core, logs)
				c := insertCalibration(b, e, 95_000, 5_000, ruled)
				if engine == db.Postgres { // as the server does by itself, within a minute
					if _, err := db.Exec(b.Context(), core.Across("test"), `VACUUM ANALYZE`); err != nil {
						b.Fatal(err)
					}
				}
				b.ReportAllocs()
				for b.Loop() {
					if report := e.Report(b, c); report.RemainingDisagreements != int64(5_000-ruled) {
						b.Fatal(report.RemainingDisagreements)
					}
				}
			})
		}
	}
}
