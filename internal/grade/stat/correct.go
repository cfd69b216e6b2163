package stat

import "math"

// minClass is the minimum number of labels of each class for a correction.
const minClass = 20

// A Refusal is the reason why a rate is not corrected. It is empty when the rate is corrected.
type Refusal string

// The refusals.
const (
	FewLabels  Refusal = "few_labels"       // a class has under 20 labels
	BlindJudge Refusal = "judge_not_proven" // the lower bounds of Se and Sp sum to 1 or less
	NoVerdicts Refusal = "no_verdicts"      // there is nothing to correct
	// the verdicts do not fit the calibration: the interval lies below 0 or above 1
	Contradicted Refusal = "contradicted"
)

// A Correction removes a judge's known bias from the pass rates of its verdicts. Correctable creates it.
type Correction struct {
	calibration Table
	z           float64
}

// Correctable returns the correction for a judge with this calibration, or the reason why there is none.
func Correctable(calibration Table, confidence float64) (Correction, Refusal) {
	_, pass := calibration.Sensitivity()
	_, fail := calibration.Specificity()
	if min(pass, fail) < minClass {
		return Correction{}, FewLabels
	}
	if calibration.Bounds(confidence).Youden() <= 0 {
		return Correction{}, BlindJudge
	}
	return Correction{calibration, Z(confidence)}, ""
}

// RoganGladen estimates the true pass rate behind x passes among n verdicts of the judge (Rogan and Gladen 1978), with
// the interval of Lang and Reiczigel (2014), which includes the sampling errors of the calibration and of the sample.
// Both are clipped to [0, 1], and the interval contains the estimate. It is approximate; docs/statistics.md reports its
// measured coverage. The estimate is undefined, and refused, without verdicts and when the whole interval lies outside
// [0, 1].
func (c Correction) RoganGladen(x, n int64) (rate float64, interval Interval, refused Refusal) {
	if n == 0 {
		return 0, Interval{0, 1}, NoVerdicts
	}
	tp, pass := c.calibration.Sensitivity()
	tn, fail := c.calibration.Specificity()
	se, sp := float64(tp)/float64(pass), float64(tn)/float64(fail)
	rate = min(max((float64(x)/float64(n)+sp-1)/(se+sp-1), 0), 1)

	zz := c.z * c.z
	size := float64(n) + zz
	p := (float64(x) + zz/2) / size
	se, sp = float64(tp+1)/float64(pass+2), float64(tn+1)/float64(fail+2)
	youden := se + sp - 1
	theta := (p + sp - 1) / youden
	seVariance, spVariance := se*(1-se)/float64(pass+2), sp*(1-sp)/float64(fail+2)
	shift := 2 * zz * (theta*seVariance - (1-theta)*spVariance)
	variance := (p*(1-p)/size + theta*theta*seVariance + (1-theta)*(1-theta)*spVariance) / (youden * youden)
	half := c.z * math.Sqrt(variance)
	interval = Interval{theta + shift - half, theta + shift + half}
	if interval[0] > 1 || interval[1] < 0 {
		return 0, Interval{0, 1}, Contradicted
	}
	return rate, interval.Clip(0, 1), ""
}

// PassRateAbove returns a lower bound of the true pass rate behind x passes among n verdicts of a judge with this
// calibration, by which a gate judges. The rate (p - f)/(Se - f), where f is 1 - Sp, increases with p, and decreases
// with f and Se: it is taken at the exact bounds of all three (Clopper and Pearson 1934). So it is at most the true
// rate with probability at least 1-alpha, whatever the judge and however few the labels. The interval of RoganGladen is
// narrower, but its lower end is above the true rate more often than it says. It is refused
// where the verdicts contradict the calibration.
func (t Table) PassRateAbove(x, n int64, alpha float64) (bound float64, refused Refusal) {
	judge := t.Bounds(1 - alpha*forJudge)
	seen, falsePass := LowerBound(x, n, 1-alpha*(1-forJudge)), 1-judge.Specificity[0]
	switch {
	case n == 0:
		return 0, NoVerdicts
	case seen <= falsePass:
		return 0, ""
	case seen > judge.Sensitivity[1]:
		return 0, Contradicted
	}
	return (seen - falsePass) / (judge.Sensitivity[1] - falsePass), ""
}
