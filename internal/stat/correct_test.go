package stat_test

import (
	"testing"

	"pgregory.net/rapid"

	"sovereign/internal/stat"
)

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
		got, refused := stat.RoganGladen(c.x, c.n, c.calibration, 0.95)
		if refused != "" {
			t.Fatal(refused)
		}
		nearInterval(t, "interval", got.Interval, c.low, c.high, 3)
	}
}

// Rogan and Gladen by hand: (0.8 + 0.95 - 1) / (0.9 + 0.95 - 1).
func TestTheCorrectedRateIsRoganAndGladens(t *testing.T) {
	got, _ := stat.RoganGladen(80, 100, stat.Table{TP: 90, FN: 10, TN: 95, FP: 5}, 0.95)
	near(t, "rate", got.Rate, 0.75/0.85, 12)
}

func TestWhatCannotBeCorrectedIsRefusedAndSaysWhy(t *testing.T) {
	good := stat.Table{TP: 50, TN: 50}
	for _, c := range []struct {
		name        string
		n           int64
		calibration stat.Table
		want        stat.Refusal
	}{
		{"good", 10, good, ""},
		{"nothing judged", 0, good, stat.Empty},
		{"19 pass labels", 10, stat.Table{TP: 19, TN: 500}, stat.FewLabels},
		{"19 fail labels", 10, stat.Table{TP: 500, TN: 19}, stat.FewLabels},
		{"20 of each", 10, stat.Table{TP: 20, TN: 20}, ""},
		{"a coin", 10, stat.Table{TP: 50, FN: 50, TN: 50, FP: 50}, stat.BlindJudge},
		{"better than a coin, not proven", 10, stat.Table{TP: 14, FN: 10, TN: 14, FP: 10}, stat.BlindJudge},
		{"passes everything", 10, stat.Table{TP: 500, FP: 500}, stat.BlindJudge},
	} {
		if _, got := stat.RoganGladen(0, c.n, c.calibration, 0.95); got != c.want {
			t.Errorf("%s: %q", c.name, got)
		}
		if got := stat.Correctable(c.calibration, 0.95); c.n > 0 && got != c.want {
			t.Errorf("%s is correctable: %q", c.name, got)
		}
	}
}

func TestTheCorrectedRateLiesInItsIntervalAndInRange(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		cell := rapid.Int64Range(0, 300)
		calibration := stat.Table{TP: cell.Draw(t, "tp"), FP: cell.Draw(t, "fp"), TN: cell.Draw(t, "tn"), FN: cell.Draw(t, "fn")}
		x, n := counts(t, 2000)
		got, refused := stat.RoganGladen(x, n, calibration, 0.95)
		if refused != "" {
			return
		}
		if !got.Interval.Contains(got.Rate) || got.Interval[0] < 0 || got.Interval[1] > 1 {
			t.Fatalf("%+v", got)
		}
		mirrored, refused := stat.RoganGladen(n-x, n, stat.Table{TP: calibration.TN, FP: calibration.FN, TN: calibration.TP, FN: calibration.FP}, 0.95)
		if refused != "" || !alike(mirrored.Rate, 1-got.Rate) || !alike(mirrored.Interval[0], 1-got.Interval[1]) || !alike(mirrored.Interval[1], 1-got.Interval[0]) {
			t.Fatalf("%+v, with pass and fail swapped %+v", got, mirrored)
		}
	})
}

func alike(a, b float64) bool { return a-b < 1e-9 && b-a < 1e-9 }

func TestMoreLabelsAndMoreVerdictsNarrowTheCorrectedRate(t *testing.T) {
	width := func(labels, verdicts int64) float64 {
		got, _ := stat.RoganGladen(60*verdicts, 100*verdicts, stat.Table{TP: 18 * labels, FN: 2 * labels, TN: 17 * labels, FP: 3 * labels}, 0.95)
		return got.Interval.Width()
	}
	if base := width(2, 2); width(20, 2) >= base || width(2, 20) >= base || width(2, 1_000_000) < base/2 {
		t.Errorf("%v; more labels %v, more verdicts %v, endless verdicts %v", base, width(20, 2), width(2, 20), width(2, 1_000_000))
	}
}
