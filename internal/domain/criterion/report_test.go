package criterion

import (
	"bytes"
	"cmp"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	gocmp "github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"sovereign/internal/domain/label"
	"sovereign/internal/grade/judge"
	"sovereign/internal/grade/trust"
)

func opposite(v judge.Verdict) judge.Verdict {
	if v == judge.Pass {
		return judge.Fail
	}
	return judge.Pass
}

// Whatever remains: the direction that most are of comes first, in each the surest first, and ties are by the label's id.
func TestWhatRemainsIsOrderedByDirectionThenSureness(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		threshold := rapid.SampledFrom([]float64{0.3, 0.5, 0.8}).Draw(t, "threshold")
		n := rapid.IntRange(0, 12).Draw(t, "n")
		all := make([]Remaining, n)
		counts := map[string]int64{}
		for i := range all {
			all[i] = Remaining{
				LabelID: fmt.Sprintf("lbl_%02d", i), JudgeVerdict: rapid.SampledFrom([]judge.Verdict{judge.Pass, judge.Fail}).Draw(t, "verdict"),
				JudgeGrade: rapid.SampledFrom([]float64{0, 0.2, 0.5, 0.75, 1}).Draw(t, "grade"),
			}
			counts[map[judge.Verdict]string{judge.Pass: "fp", judge.Fail: "fn"}[all[i].JudgeVerdict]]++
		}
		all = rapid.Permutation(all).Draw(t, "order")
		spread := Order(all, threshold)
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
		place := func(r Remaining) int {
			return slices.IndexFunc(spread, func(d Direction) bool { return d.Direction == r.Direction })
		}
		if !slices.IsSortedFunc(all, func(a, b Remaining) int {
			return cmp.Or(cmp.Compare(place(a), place(b)), cmp.Compare(math.Abs(b.JudgeGrade-threshold), math.Abs(a.JudgeGrade-threshold)), cmp.Compare(a.LabelID, b.LabelID))
		}) {
			t.Fatalf("%+v", all)
		}
	})
}

func TestAReportBeforeAnyRulingIsTheCalibration(t *testing.T) {
	everywhere(t, func(t *testing.T, r *room) {
		c := r.judge(t, func(d *Definition) { d.PassThreshold = ptr(0.4) })
		_, err := r.Adjudication(t.Context(), mine, c.ID)
		refused(t, err, 404, "calibrat")
		all := r.grade(t, c.ID, slices.Concat(marks(4, mark{verdict: judge.Fail}), marks(4, mark{report: true, verdict: judge.Pass}))...)
		grades := []float64{0.9, 0.5, 0.9, 0.4, 0.1, 0.6, 0.6, 0.6}
		r.oracle.tells(func(item int) string {
			i := slices.IndexFunc(all, func(g graded) bool { return g.item == item })
			if i < 3 {
				return opinion(judge.Pass, grades[i])
			}
			if i == 4 {
				return opinion(judge.Fail, grades[i])
			}
			return opinion(all[i].Verdict, grades[i])
		})
		done := r.calibrate(t, c.ID)
		got := r.report(t, c.ID)
		remaining := func(i int, direction string) Remaining {
			return Remaining{
				LabelID: all[i].ID, JudgeVerdict: opposite(all[i].Verdict), HumanVerdict: all[i].Verdict, Critique: "as I see it", JudgeGrade: grades[i],
				Direction: direction, InReportHalf: all[i].InReportHalf,
			}
		}
		want := Report{
			CriterionID: c.ID, AlignedAt: *done.AlignedAt, Before: *done.Block, After: *done.Block, Adjudications: []Ruled{}, RemainingDisagreements: 4,
			Remaining:     []Remaining{remaining(0, "fp"), remaining(2, "fp"), remaining(1, "fp"), remaining(4, "fn")},
			Concentration: []Direction{{"fp", 3, 0.75}, {"fn", 1, 0.25}}, AgreementsToReview: []Unseen{},
		}
		if diff := gocmp.Diff(want, got); diff != "" {
			t.Error(diff)
		}
	})
}

func TestTheReportAsksForABlindLookAtAsManyAgreements(t *testing.T) {
	everywhere(t, func(t *testing.T, r *room) {
		c := r.judge(t)
		all := r.grade(t, c.ID, slices.Concat(marks(30, mark{verdict: judge.Pass}), marks(6, mark{report: true, verdict: judge.Fail}))...)
		r.calibrate(t, c.ID) // which passes all
		wrong, right := all[30:], all[:30]
		is := func(when string, review, remaining int, by ByKind) Report {
			t.Helper()
			got := r.report(t, c.ID)
			if len(got.AgreementsToReview) != review || got.AfterIsDisagreementOnly != (review > 0) || len(got.Remaining) != remaining || got.RemainingDisagreements != int64(remaining) ||
				got.ByKind != by || got.Adjudicated != by.LabelError+by.JudgeError+by.Ambiguous {
				t.Errorf("%s: %s", when, shown(t, got))
			}
			for _, one := range got.AgreementsToReview {
				if !slices.ContainsFunc(right, func(g graded) bool { return g.ID == one.LabelID }) {
					t.Errorf("%s: %s is no agreement", when, one.LabelID)
				}
			}
			if text := shown(t, got.AgreementsToReview); bytes.Contains(text, []byte("verdict")) || bytes.Contains(text, []byte("pass")) {
				t.Errorf("it is not blind: %s", text)
			}
			if diff := gocmp.Diff(got, r.report(t, c.ID)); diff != "" {
				t.Errorf("%s: read twice: %s", when, diff)
			}
			return got
		}
		is("before", 0, 6, ByKind{})
		r.rule(t, wrong[0].ID, label.Ruling{Kind: label.LabelError, Note: "it is polite"})
		first := is("a correction", 1, 5, ByKind{LabelError: 1})
		ruled := first.Adjudications[0]
		if ruled.LabelID != wrong[0].ID || ruled.Kind != label.LabelError || ruled.OriginalVerdict != judge.Fail || *ruled.AdjudicatedVerdict != judge.Pass || ruled.Note != "it is polite" || ruled.AdjudicatedAt == 0 {
			t.Errorf("%+v", ruled)
		}
		r.rule(t, wrong[1].ID, label.Ruling{Kind: label.JudgeError})
		r.rule(t, wrong[2].ID, label.Ruling{Kind: label.Ambiguous})
		r.rule(t, wrong[3].ID, label.Ruling{Verdict: judge.Fail}) // blindly, against the judge
		got := is("four rulings", 4, 2, ByKind{LabelError: 1, JudgeError: 2, Ambiguous: 1})
		if got.AgreementsToReview[0] != first.AgreementsToReview[0] || got.Adjudications[0].LabelID != wrong[3].ID {
			t.Errorf("the sample does not grow: %+v, then %+v", first.AgreementsToReview, got.AgreementsToReview)
		}
		sample := got.AgreementsToReview
		if slices.IsSortedFunc(sample, func(a, b Unseen) int { return cmp.Compare(a.LabelID, b.LabelID) }) && sample[3].LabelID == right[3].ID {
			t.Error("the sample is the oldest labels, and no random one")
		}
		if done := r.rule(t, sample[0].LabelID, label.Ruling{Verdict: judge.Pass}); done.Adjudication.Kind != label.Confirmed {
			t.Errorf("%+v", done.Adjudication)
		}
		is("one of them confirmed", 3, 2, ByKind{LabelError: 1, JudgeError: 2, Ambiguous: 1})
		if done := r.rule(t, sample[1].LabelID, label.Ruling{Verdict: judge.Fail}); done.Adjudication.Kind != label.LabelError {
			t.Errorf("%+v", done.Adjudication)
		}
		got = is("one corrected", 3, 2, ByKind{LabelError: 2, JudgeError: 2, Ambiguous: 1})
		if got.After.Matrix.FP != 1+2+1+1 { // two that remain, two judge_errors, and the agreement that was none
			t.Errorf("%+v", got.After.Matrix)
		}
		r.erase(t, sample[2].LabelID)
		is("one gone: another takes its place", 3, 2, ByKind{LabelError: 2, JudgeError: 2, Ambiguous: 1})
		for _, one := range r.report(t, c.ID).AgreementsToReview {
			r.rule(t, one.LabelID, label.Ruling{Verdict: judge.Pass})
		}
		is("all of them", 0, 2, ByKind{LabelError: 2, JudgeError: 2, Ambiguous: 1})
		r.erase(t, wrong[5].ID)
		is("a disagreement that is gone is none", 0, 1, ByKind{LabelError: 2, JudgeError: 2, Ambiguous: 1})
	})
}

// What the report says a re-calibration would read is what one reads.
func TestAfterIsWhatARecalibrationReads(t *testing.T) {
	everywhere(t, func(t *testing.T, r *room) {
		for seed := range uint64(6) {
			random := rand.New(rand.NewPCG(seed, 1))
			verdict := func() judge.Verdict { return []judge.Verdict{judge.Pass, judge.Fail}[random.IntN(2)] }
			var all []mark
			if seed%3 == 0 { // just enough to hold out, until some are withdrawn
				all = slices.Concat(marks(30+random.IntN(2), mark{report: true, verdict: judge.Pass}), marks(30+random.IntN(2), mark{report: true, verdict: judge.Fail}))
			}
			for range 1 + random.IntN(12) {
				all = append(all, mark{report: random.IntN(2) == 0, verdict: verdict()})
			}
			c := r.judge(t)
			said := map[int]string{}
			graded := r.grade(t, c.ID, all...)
			for _, g := range graded {
				if said[g.item] = opinion(verdict(), math.Round(random.Float64()*100)/100); random.IntN(12) == 0 {
					said[g.item] = "?"
				}
			}
			r.oracle.tells(func(item int) string { return said[item] })
			r.calibrate(t, c.ID)
			before := r.report(t, c.ID)
			for _, g := range graded {
				for random.IntN(3) == 0 {
					ruling := []label.Ruling{{Kind: label.LabelError}, {Kind: label.JudgeError}, {Kind: label.Ambiguous}, {Verdict: verdict()}}[random.IntN(4)]
					r.rule(t, g.ID, ruling)
				}
				if random.IntN(12) == 0 {
					r.erase(t, g.ID)
				}
			}
			report := r.report(t, c.ID)
			if diff := gocmp.Diff(before.Before, report.Before); diff != "" {
				t.Errorf("seed %d: what was measured has changed: %s", seed, diff)
			}
			if report.After.N == 0 || len(report.Adjudications) == 0 {
				continue
			}
			fresh := r.calibrate(t, c.ID)
			if diff := gocmp.Diff(*fresh.Block, report.After); diff != "" {
				t.Errorf("seed %d: %s", seed, diff)
			}
			again := r.report(t, c.ID)
			if diff := gocmp.Diff(again.Before, again.After); diff != "" || again.CertificateVoided {
				t.Errorf("seed %d: right after it: %s", seed, diff)
			}
			if got := r.certificate(t, c.ID); !got.Trust.AtLeast(trust.Provisional) || got.Matrix != fresh.Block.Matrix {
				t.Errorf("seed %d: %+v", seed, got)
			}
		}
	})
}
