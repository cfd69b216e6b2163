package stat

import "math"

// minClass is how many labels of each class a correction needs.
const minClass = 20

// A Refusal is why a rate is not corrected; empty where it is.
type Refusal string

// The refusals.
const (
	Empty      Refusal = "no_verdicts"      // there is nothing to correct
	FewLabels  Refusal = "few_labels"       // a class has under 20 labels
	BlindJudge Refusal = "judge_not_proven" // the lower bounds of Se and Sp sum to 1 or less
)

// Correctable is why rates judged by a judge of this calibration cannot be corrected, or empty.
func Correctable(calibration Table, confidence float64) Refusal {
	_, pass := calibration.Sensitivity()
	_, fail := calibration.Specificity()
	if min(pass, fail) < minClass {
		return FewLabels
	}
	if calibration.Bounds(confidence).Youden() <= 0 {
		return BlindJudge
	}
	return ""
}

// A Corrected rate is free of the judge's known bias.
type Corrected struct {
	Rate     float64
	Interval Interval
}

// RoganGladen is the true pass rate behind x passes among n by a judge of this calibration (Rogan and Gladen 1978), with the interval of
// Lang and Reiczigel (2014), which carries the sampling error of the calibration as well as of the sample. Both are clipped to [0, 1],
// and the interval holds the rate. It is approximate: what it covers is measured in docs/statistics.md.
func RoganGladen(x, n int64, calibration Table, confidence float64) (Corrected, Refusal) {
	if n == 0 {
		return Corrected{}, Empty
	}
	if why := Correctable(calibration, confidence); why != "" {
		return Corrected{}, why
	}
	return roganGladen(x, n, calibration, Z(confidence)), ""
}

func roganGladen(x, n int64, calibration Table, z float64) Corrected {
	tp, pass := calibration.Sensitivity()
	tn, fail := calibration.Specificity()
	se, sp := float64(tp)/float64(pass), float64(tn)/float64(fail)
	rate := min(max((float64(x)/float64(n)+sp-1)/(se+sp-1), 0), 1)

	zz, size := z*z, float64(n)+z*z
	p := (float64(x) + zz/2) / size
	se, sp = float64(tp+1)/float64(pass+2), float64(tn+1)/float64(fail+2)
	youden := se + sp - 1
	theta := (p + sp - 1) / youden
	seVariance, spVariance := se*(1-se)/float64(pass+2), sp*(1-sp)/float64(fail+2)
	shift := 2 * zz * (theta*seVariance - (1-theta)*spVariance)
	variance := (p*(1-p)/size + theta*theta*seVariance + (1-theta)*(1-theta)*spVariance) / (youden * youden)
	half := z * math.Sqrt(variance)
	return Corrected{rate, Interval{theta + shift - half, theta + shift + half}.Clip(0, 1).around(rate)}
}
