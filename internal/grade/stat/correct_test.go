package stat_test

import (
	"testing"

	"pgregory.net/rapid"

	"sovereign/internal/grade/stat"
)

// corrected is a rate and its interval, or fails.
func corrected(t interface{ Fatalf(string, ...any) }, x, n int64, calibration stat.Table) (float64, stat.Interval) {
	correction, refused := stat.Correctable(calibration, 0.95)
	rate, interval, contradicted := correction.RoganGladen(x, n)
	if refused+contradicted != "" {
		t.Fatalf("%+v: %q, %q", calibration, refused, contradicted)
	}
	return rate, interval
}

func TestTheCorrectedRateMatchesPublishedIntervals(t *testing.T) {
	for _, c := range []struct {
		x, n        int64
		calibration stat.Table
		low, high   float64
	}{
		// R package asht, prevSeSp (Lang and Reiczigel 2014).
		{4060, 11284, stat.Table{TP: 178, FN: 1, TN: 358, FP: 1}, .349, .372},
		{51, 2971, stat.Table{TP: 32, FN: 1, TN: 20}, 0, .053},
	} {
		_, interval := corrected(t, c.x, c.n, c.calibration)
		nearInterval(t, "interval", interval, c.low, c.high, 3)
	}
}

// Rogan and Gladen by hand: (0.8 + 0.95 - 1) / (0.9 + 0.95 - 1).
func TestTheCorrectedRateIsRoganAndGladens(t *testing.T) {
	rate, _ := corrected(t, 80, 100, stat.Table{TP: 90, FN: 10, TN: 95, FP: 5})
	near(t, "rate", rate, 0.75/0.85, 12)
	beyond, _ := corrected(t, 95, 100, stat.Table{TP: 90, FN: 10, TN: 95, FP: 5})
	near(t, "a rate beyond 1", beyond, 1, 12)
}

func TestWhatCannotBeCorrectedIsRefusedAndSaysWhy(t *testing.T) {
	for _, c := range []struct {
		name        string
		calibration stat.Table
		want        stat.Refusal
	}{
		{"good", stat.Table{TP: 50, TN: 50}, ""},
		{"no labels", stat.Table{}, stat.FewLabels},
		{"19 pass labels", stat.Table{TP: 19, TN: 500}, stat.FewLabels},
		{"19 fail labels", stat.Table{TP: 500, TN: 19}, stat.FewLabels},
		{"20 of each", stat.Table{TP: 20, TN: 20}, ""},
		{"a coin", stat.Table{TP: 50, FN: 50, TN: 50, FP: 50}, stat.BlindJudge},
		{"better than a coin, not proven", stat.Table{TP: 14, FN: 10, TN: 14, FP: 10}, stat.BlindJudge},
		{"passes everything", stat.Table{TP: 500, FP: 500}, stat.BlindJudge},
	} {
		if _, got := stat.Correctable(c.calibration, 0.95); got != c.want {
			t.Errorf("%s: %q", c.name, got)
		}
	}
	good, _ := stat.Correctable(stat.Table{TP: 50, TN: 50}, 0.95)
	if _, interval, refused := good.RoganGladen(0, 0); refused != stat.NoVerdicts || interval != (stat.Interval{0, 1}) {
		t.Errorf("of no verdicts there is a rate: %v", interval)
	}
}

// A judge that passes a tenth of what people fail is very unlikely to pass none of 1000: a corrected rate of 0 would
// mislead.
func TestVerdictsThatContradictTheCalibrationAreNotCorrected(t *testing.T) {
	correction, _ := stat.Correctable(stat.Table{TP: 95, FN: 5, TN: 90, FP: 10}, 0.95)
	for x, want := range map[int64]stat.Refusal{0: stat.Contradicted, 100: "", 950: "", 1000: stat.Contradicted} {
		if _, interval, refused := correction.RoganGladen(x, 1000); refused != want || interval.Width() <= 0 {
			t.Errorf("%d of 1000: %q, %v", x, refused, interval)
		}
	}
}

func TestTheCorrectedRateLiesInItsIntervalAndInRange(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		right, wrong := rapid.Int64Range(20, 300), rapid.Int64Range(0, 8)
		calibration := stat.Table{TP: right.Draw(t, "tp"), FP: wrong.Draw(t, "fp"), TN: right.Draw(t, "tn"), FN: wrong.Draw(t, "fn")}
		mirror := stat.Table{TP: calibration.TN, FP: calibration.FN, TN: calibration.TP, FN: calibration.FP}
		x, n := counts(t, 2000)
		one, _ := stat.Correctable(calibration, 0.95)
		other, _ := stat.Correctable(mirror, 0.95)
		rate, interval, refused := one.RoganGladen(x, n)
		mirrored, i, also := other.RoganGladen(n-x, n)
		if refused != also {
			t.Fatalf("%q, with pass and fail swapped %q", refused, also)
		}
		if refused != "" {
			return
		}
		if !interval.Contains(rate) || interval[0] < 0 || interval[1] > 1 {
			t.Fatalf("%v in %v", rate, interval)
		}
		if !alike(mirrored, 1-rate) || !alike(i[0], 1-interval[1]) || !alike(i[1], 1-interval[0]) {
			t.Fatalf("%v in %v, with pass and fail swapped %v in %v", rate, interval, mirrored, i)
		}
	})
}

func alike(a, b float64) bool { return a-b < 1e-9 && b-a < 1e-9 }

func TestMoreLabelsAndMoreVerdictsNarrowTheCorrectedRate(t *testing.T) {
	width := func(labels, verdicts int64) float64 {
		_, interval := corrected(t, 60*verdicts, 100*verdicts, stat.Table{TP: 18 * labels, FN: 2 * labels, TN: 17 * labels, FP: 3 * labels})
		return interval.Width()
	}
	if base := width(2, 2); width(20, 2) >= base || width(2, 20) >= base || width(2, 1_000_000) < base/2 {
		t.Errorf("%v; more labels %v, more verdicts %v, endless verdicts %v", base, width(20, 2), width(2, 20), width(2, 1_000_000))
	}
}

// The bound holds for random calibrations, however few the labels, and even if the judge is nearly blind.
func TestTheGatesBoundOfAPassRateHolds(t *testing.T) {
	const n, alpha = 40, 0.05
	for _, judge := range [][2]float64{{1, 1}, {.95, .9}, {.85, .95}, {.6, .5}} {
		for _, labels := range []int64{5, 25} {
			for _, rate := range []float64{.02, .8, .95} {
				missed := 0.0
				seen := binomial(n, rate*judge[0]+(1-rate)*(1-judge[1]))
				for tp, first := range binomial(labels, judge[0]) {
					for tn, second := range binomial(labels, judge[1]) {
						if first*second < 1e-9 {
							continue
						}
						passes, fails := int64(tp), int64(tn)
						table := stat.Table{TP: passes, FN: labels - passes, TN: fails, FP: labels - fails}
						for x, third := range seen {
							bound, refused := table.PassRateAbove(int64(x), n, alpha)
							if refused == "" && bound > rate+1e-12 {
								missed += first * second * third
							}
						}
					}
				}
				if missed > alpha {
					t.Errorf("judge %v on %d labels, rate %v: missed with %v", judge, labels, rate, missed)
				}
			}
		}
	}
}

func TestTheGatesBoundOfAPassRateAtItsEdges(t *testing.T) {
	good := stat.Table{TP: 95, FN: 5, TN: 95, FP: 5}
	if _, refused := good.PassRateAbove(0, 0, 0.05); refused != stat.NoVerdicts {
		t.Errorf("without verdicts: %q", refused)
	}
	half := stat.Table{TP: 50, FN: 50, TN: 95, FP: 5}
	if _, refused := half.PassRateAbove(990, 1000, 0.05); refused != stat.Contradicted {
		t.Errorf("a judge that passes half of what is good has passed nearly all: %q", refused)
	}
	if bound, refused := (stat.Table{}).PassRateAbove(1000, 1000, 0.05); bound != 0 || refused != "" {
		t.Errorf("a judge that nobody has measured proves a rate of %v %q", bound, refused)
	}
	last := -1.0
	for x := range int64(101) {
		bound, _ := good.PassRateAbove(x, 100, 0.05)
		if bound < last {
			t.Errorf("%d passes prove %v, and one fewer %v", x, bound, last)
		}
		last = bound
	}
}
