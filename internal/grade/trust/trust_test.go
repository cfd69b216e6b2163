package trust

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"sovereign/internal/grade/judge"
	"sovereign/internal/grade/stat"
)

// report returns a report half: of pass labels that people pass the judge passes tp, of fail labels that they fail it
// fails tn.
func report(tp, pass, tn, fail, failed int64) Halves {
	return Halves{Report: Counts{Matrix: Matrix{TP: tp, FN: pass - tp, TN: tn, FP: fail - tn}, Failed: failed}}
}

func TestEachTierBeginsAtItsLimits(t *testing.T) {
	all := func(n int64) Halves { return report(n, n, n, n, 0) }
	tuning := all(500)
	tuning.Report, tuning.Tuning = Counts{}, tuning.Report
	for _, c := range []struct {
		name string
		of   Halves
		want Tier
	}{
		{"nothing", Halves{}, Provisional},
		{"labels of the tuning half alone, however many", tuning, Provisional},
		{"29 that people pass", report(29, 29, 500, 500, 0), Provisional},
		{"29 that people fail", report(500, 500, 29, 29, 0), Provisional},
		{"30 of each class", report(20, 30, 20, 30, 0), Measured},
		{"30 of each, all of them right", all(30), Measured},
		{"5 % of failures", report(30, 30, 65, 65, 5), Measured},
		{"a bit over 5 %", report(30, 30, 64, 64, 5), Provisional},
		{"1 failure of 20", report(190, 190, 190, 190, 20), Certified},
		{"and one more", report(190, 190, 190, 190, 21), Provisional},
		{"49 that people pass", report(49, 49, 500, 500, 0), Measured},
		{"49 that people fail", report(500, 500, 49, 49, 0), Measured},
		{"50 of each class, all of them right", all(50), Certified},
		{"exactly 0.90 of either", report(45, 50, 45, 50, 0), Calibrated},
		{"a sensitivity below it", report(44, 50, 50, 50, 0), Measured},
		{"a specificity below it", report(50, 50, 44, 50, 0), Measured},
		{"0.90 of many: the bound is below", report(9000, 10_000, 9000, 10_000, 0), Calibrated},
		{"both bounds above", report(9200, 10_000, 9200, 10_000, 0), Certified},
		{"the bound of the sensitivity below", report(9050, 10_000, 9200, 10_000, 0), Calibrated},
		{"the bound of the specificity below", report(9200, 10_000, 9050, 10_000, 0), Calibrated},
	} {
		if got := c.of.Block().Trust; got != c.want {
			t.Errorf("%s: %s, want %s", c.name, got, c.want)
		}
	}
}

func TestEachTierIncludesThoseBeforeIt(t *testing.T) {
	for i, a := range Tiers {
		for j, b := range Tiers {
			if a.AtLeast(b) != (i >= j) {
				t.Errorf("%s at least %s: %v", a, b, a.AtLeast(b))
			}
		}
	}
	if Tier("").AtLeast(Provisional) || Tier("gold").AtLeast(Certified) || Certified.AtLeast("gold") {
		t.Error("an unknown tier is trusted")
	}
}

func TestWhatCannotBeMeasuredIsNull(t *testing.T) {
	for _, c := range []struct {
		name          string
		of            Halves
		se, sp, kappa bool
	}{
		{"nothing", Halves{}, false, false, false},
		{"failures alone", report(0, 0, 0, 0, 9), false, false, false},
		{"nothing that people pass", report(0, 0, 3, 5, 0), false, true, true},
		{"nothing that people fail", report(3, 5, 0, 0, 0), true, false, true},
		{"one verdict of everybody: agreement by chance is certain", report(5, 5, 0, 0, 0), true, false, false},
		{"both", report(3, 5, 4, 5, 0), true, true, true},
	} {
		b := c.of.Block()
		if (b.Se != nil) != c.se || (b.SeCI != nil) != c.se || (b.Sp != nil) != c.sp || (b.SpCI != nil) != c.sp || (b.Kappa != nil) != c.kappa {
			t.Errorf("%s: %+v", c.name, b)
		}
	}
	h := report(45, 50, 30, 40, 2)
	b := h.Block()
	seen, chance := 75.0/90, (55.0*50+35.0*40)/(90*90)
	kappa := (seen - chance) / (1 - chance)
	se, sp := stat.ClopperPearson(45, 50, 0.95), stat.ClopperPearson(30, 40, 0.95)
	if *b.Se != 0.9 || *b.Sp != 0.75 || *b.SeCI != se || *b.SpCI != sp || *b.Kappa-kappa > 1e-12 || kappa-*b.Kappa > 1e-12 || b.N != 90 || b.Failed != 2 {
		t.Errorf("%+v", b)
	}
}

func TestTheReportHalfAloneMeasuresFromThirtyOfEachClassOn(t *testing.T) {
	h := Halves{Report: Counts{Matrix: Matrix{TP: 29, FN: 1, TN: 20, FP: 9}, Failed: 1}, Tuning: Counts{Matrix: Matrix{TP: 100, FP: 1, TN: 100, FN: 2}, Failed: 3}}
	b := h.Block()
	if b.HoldoutActive || b.Trust != Provisional || b.Matrix != (Matrix{TP: 129, FP: 10, TN: 120, FN: 3}) || b.N != 262 || b.Failed != 4 {
		t.Errorf("29 that people fail: %+v", b)
	}
	h.Report.TN++
	b = h.Block()
	if !b.HoldoutActive || b.Trust != Measured || b.Matrix != h.Report.Matrix || b.N != 60 || b.Failed != 1 {
		t.Errorf("30 of each: %+v", b)
	}
}

// A row is a label with its verdict before and after adjudication, and the judge's.
type row struct {
	before, after, judged judge.Verdict
	report                bool
}

func counted(rows []row, verdict func(row) judge.Verdict) (h Halves) {
	for _, r := range rows {
		h.Half(r.report).Add(verdict(r), r.judged, 1)
	}
	return h
}

func TestCountsAfterChangesEqualAFullRecount(t *testing.T) {
	verdicts := rapid.SampledFrom([]judge.Verdict{judge.Pass, judge.Fail, ""})
	rapid.Check(t, func(t *rapid.T) {
		rows := rapid.SliceOf(rapid.Custom(func(t *rapid.T) row {
			return row{verdicts.Draw(t, "before"), verdicts.Draw(t, "after"), verdicts.Draw(t, "judged"), rapid.Bool().Draw(t, "report")}
		})).Draw(t, "rows")
		var changes []Change
		for _, r := range rows {
			if r.before != r.after {
				changes = append(changes, Change{Before: r.before, After: r.after, Judge: r.judged, InReportHalf: r.report})
			}
		}
		before := counted(rows, func(r row) judge.Verdict { return r.before })
		kept := before
		after, want := before.After(changes), counted(rows, func(r row) judge.Verdict { return r.after })
		if diff := cmp.Diff(want, after); diff != "" {
			t.Fatal(diff)
		}
		if diff := cmp.Diff(want.Block(), after.Block()); diff != "" {
			t.Fatal(diff)
		}
		if before != kept {
			t.Fatal("what was measured has changed")
		}
	})
}

func TestEveryPairOfVerdictsIsCountedInItsCell(t *testing.T) {
	for _, c := range []struct {
		human, judged judge.Verdict
		want          Counts
	}{
		{judge.Pass, judge.Pass, Counts{Matrix: Matrix{TP: 2}}},
		{judge.Fail, judge.Pass, Counts{Matrix: Matrix{FP: 2}}},
		{judge.Fail, judge.Fail, Counts{Matrix: Matrix{TN: 2}}},
		{judge.Pass, judge.Fail, Counts{Matrix: Matrix{FN: 2}}},
		{judge.Pass, "", Counts{Failed: 2}},
		{judge.Fail, "", Counts{Failed: 2}},
		{"", judge.Pass, Counts{}},
		{"", judge.Fail, Counts{}},
		{"", "", Counts{}},
	} {
		var got Counts
		got.Add(c.human, c.judged, 2)
		if got != c.want {
			t.Errorf("people %q, judge %q: %+v", c.human, c.judged, got)
		}
	}
}
