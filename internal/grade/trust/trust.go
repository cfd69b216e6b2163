// Package trust grades judges: it counts what a judge got right and wrong, with confidence intervals, and derives a
// tier of trust. Positive is pass: a false positive is what the judge passes and people fail.
package trust

import (
	"slices"

	"sovereign/internal/grade/judge"
	"sovereign/internal/grade/stat"
)

// A Matrix counts a judge's verdicts against people's.
type Matrix struct {
	TP int64 `json:"tp" doc:"Both pass"`
	FP int64 `json:"fp" doc:"The judge passes what people fail"`
	TN int64 `json:"tn" doc:"Both fail"`
	FN int64 `json:"fn" doc:"The judge fails what people pass"`
}

// N returns the number of verdicts.
func (m Matrix) N() int64 { return m.TP + m.FP + m.TN + m.FN }

// Passing returns how many people pass.
func (m Matrix) Passing() int64 { return m.TP + m.FN }

// Failing returns how many people fail.
func (m Matrix) Failing() int64 { return m.TN + m.FP }

// cell returns the count of a pair of verdicts, or nil when one of them is "".
func (m *Matrix) cell(human, judged judge.Verdict) *int64 {
	switch [2]judge.Verdict{human, judged} {
	case [2]judge.Verdict{judge.Pass, judge.Pass}:
		return &m.TP
	case [2]judge.Verdict{judge.Fail, judge.Pass}:
		return &m.FP
	case [2]judge.Verdict{judge.Fail, judge.Fail}:
		return &m.TN
	case [2]judge.Verdict{judge.Pass, judge.Fail}:
		return &m.FN
	}
	return nil
}

// Counts are what a calibration found in one half of the labels. Failed counts answers without a verdict.
type Counts struct {
	Matrix
	Failed int64 `json:"failed"`
}

// Add counts n labels with a person's and a judge's verdict. A judge's "" is a failure. A person's "" is a withdrawn
// label, which is not counted.
func (c *Counts) Add(human, judged judge.Verdict, n int64) {
	if human == "" {
		return
	}
	if cell := c.cell(human, judged); cell != nil {
		*cell += n
		return
	}
	c.Failed += n
}

func (c Counts) plus(d Counts) Counts {
	c.TP, c.FP, c.TN, c.FN, c.Failed = c.TP+d.TP, c.FP+d.FP, c.TN+d.TN, c.FN+d.FN, c.Failed+d.Failed
	return c
}

// Halves are the counts of the report half, which measures a judge, and of the tuning half, which it learns from.
type Halves struct {
	Report Counts `json:"report"`
	Tuning Counts `json:"tuning"`
}

// Half returns the counts of one half.
func (h *Halves) Half(report bool) *Counts {
	if report {
		return &h.Report
	}
	return &h.Tuning
}

// How many labels of each class a tier needs.
const (
	minMeasured   = 30
	minCalibrated = 50
)

// HoldoutActive reports whether the report half has enough labels to measure a judge by itself.
func (h *Halves) HoldoutActive() bool {
	return min(h.Report.Passing(), h.Report.Failing()) >= minMeasured
}

// Measured returns the counts that measure the judge: those of the report half or, while it has too few, of all labels.
func (h *Halves) Measured() Counts {
	if h.HoldoutActive() {
		return h.Report
	}
	return h.Report.plus(h.Tuning)
}

// A Block is the result of a calibration. What cannot be measured is null.
type Block struct {
	N             int64          `json:"n" doc:"Verdicts; failures are not among them"`
	Matrix        Matrix         `json:"matrix"`
	Se            *float64       `json:"se" doc:"Sensitivity: the share of what people pass that the judge passes"`
	SeCI          *stat.Interval `json:"se_ci" doc:"At 95 %, Clopper–Pearson"`
	Sp            *float64       `json:"sp" doc:"Specificity: the share of what people fail that the judge fails"`
	SpCI          *stat.Interval `json:"sp_ci" doc:"At 95 %, Clopper–Pearson"`
	Kappa         *float64       `json:"kappa" doc:"Cohen's: agreement beyond chance"`
	KappaCI       *stat.Interval `json:"kappa_ci" doc:"At 95 %, of a posterior; what it covers is in docs/statistics.md"`
	Trust         Tier           `json:"trust" enum:"none,provisional,measured,calibrated,certified"`
	HoldoutActive bool           `json:"holdout_active" doc:"The report half alone is measured: it holds at least 30 of each class"`
	Failed        int64          `json:"failed" doc:"Answers of the judge that were no verdicts"`
}

// Confidence is the confidence level of every interval.
const Confidence = 0.95

// Block computes the result of a calibration.
func (h *Halves) Block() Block {
	c := h.Measured()
	b := Block{N: c.N(), Matrix: c.Matrix, HoldoutActive: h.HoldoutActive(), Failed: c.Failed}
	b.Se, b.SeCI = rate(c.TP, c.Passing())
	b.Sp, b.SpCI = rate(c.TN, c.Failing())
	if kappa, _, ok := stat.Kappa([][]int64{{c.TP, c.FP}, {c.FN, c.TN}}); ok {
		b.Kappa = &kappa
		if ci, ok := stat.KappaInterval(stat.Table(c.Matrix), Confidence); ok {
			b.KappaCI = &ci
		}
	}
	b.Trust = tier(&b)
	return b
}

func rate(x, n int64) (*float64, *stat.Interval) {
	if n == 0 {
		return nil, nil
	}
	p, ci := float64(x)/float64(n), stat.ClopperPearson(x, n, Confidence)
	return &p, &ci
}

// A Tier is how far a judge is trusted. Each includes the one before it.
type Tier string

// The tiers.
const (
	None        Tier = "none"        // no valid certificate
	Provisional Tier = "provisional" // too few labels, no holdout, or too many failures
	Measured    Tier = "measured"    // at least 30 of each class
	Calibrated  Tier = "calibrated"  // both rates at least 0.90, at least 50 of each class
	Certified   Tier = "certified"   // both lower bounds at least 0.90
)

// Tiers lists them, the least first.
var Tiers = []Tier{None, Provisional, Measured, Calibrated, Certified}

// AtLeast reports whether t includes another tier. An unknown tier includes none, and is included in none.
func (t Tier) AtLeast(other Tier) bool {
	least := slices.Index(Tiers, other)
	return least >= 0 && slices.Index(Tiers, t) >= least
}

// The limits of the tiers.
const (
	maxFailed = 0.05 // the share of a judge's answers without a verdict
	minRate   = 0.90 // sensitivity and specificity
)

// rules say what each tier requires beyond the one before it.
var rules = []struct {
	tier  Tier
	meets func(*Block) bool
}{
	{Provisional, func(*Block) bool { return true }},
	{Measured, func(b *Block) bool {
		return b.HoldoutActive && float64(b.Failed) <= maxFailed*float64(b.N+b.Failed)
	}},
	{Calibrated, func(b *Block) bool {
		return min(b.Matrix.Passing(), b.Matrix.Failing()) >= minCalibrated && *b.Se >= minRate && *b.Sp >= minRate
	}},
	{Certified, func(b *Block) bool { return b.SeCI[0] >= minRate && b.SpCI[0] >= minRate }},
}

func tier(b *Block) Tier {
	reached := None
	for _, rule := range rules {
		if !rule.meets(b) {
			break
		}
		reached = rule.tier
	}
	return reached
}

// A Change is a label whose verdict is not the one that it was measured with.
type Change struct {
	Before, After, Judge judge.Verdict
	InReportHalf         bool
}

// After returns the counts that another calibration would find after some changes.
func (h Halves) After(changes []Change) Halves {
	for _, c := range changes {
		half := h.Half(c.InReportHalf)
		half.Add(c.Before, c.Judge, -1)
		half.Add(c.After, c.Judge, 1)
	}
	return h
}
