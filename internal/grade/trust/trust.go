// Package trust says how far a judge can be relied on: what it got right and wrong, with bounds, and the tier that follows. Positive is
// pass: a false positive is what the judge passes and people fail.
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

// N is how many verdicts there are.
func (m Matrix) N() int64 { return m.TP + m.FP + m.TN + m.FN }

// Passing and Failing are how many people pass, and fail.
func (m Matrix) Passing() int64 { return m.TP + m.FN }

// Failing is how many people fail.
func (m Matrix) Failing() int64 { return m.TN + m.FP }

// cell is where a pair of verdicts is counted; nil where one of them is none.
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

// Counts are what a calibration found in one half of the labels. Failed are answers that were no verdicts.
type Counts struct {
	Matrix
	Failed int64 `json:"failed"`
}

// Add counts n labels that people gave one verdict and the judge another. A judge's "" is a failure; a person's is a label that does
// not count.
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

// Halves are the counts of the half that measures a judge and of the one that it is tuned on.
type Halves struct {
	Report Counts `json:"report"`
	Tuning Counts `json:"tuning"`
}

// Half is the counts of one of them.
func (h *Halves) Half(report bool) *Counts {
	if report {
		return &h.Report
	}
	return &h.Tuning
}

// enough is how many of each class make a measurement, and more how many a calibrated judge needs.
const (
	enough = 30
	more   = 50
)

// HoldoutActive reports whether the report half alone can measure.
func (h *Halves) HoldoutActive() bool {
	return min(h.Report.Passing(), h.Report.Failing()) >= enough
}

// Measured are the counts that speak for the judge: those of the report half or, while it holds too few, of all labels.
func (h *Halves) Measured() Counts {
	if h.HoldoutActive() {
		return h.Report
	}
	return h.Report.plus(h.Tuning)
}

// A Block is what a calibration says. What cannot be measured is null.
type Block struct {
	N             int64          `json:"n" doc:"Verdicts; failures are not among them"`
	Matrix        Matrix         `json:"matrix"`
	Se            *float64       `json:"se" doc:"Sensitivity: the share of what people pass that the judge passes"`
	SeCI          *stat.Interval `json:"se_ci" doc:"At 95 %, Clopper–Pearson"`
	Sp            *float64       `json:"sp" doc:"Specificity: the share of what people fail that the judge fails"`
	SpCI          *stat.Interval `json:"sp_ci" doc:"At 95 %, Clopper–Pearson"`
	Kappa         *float64       `json:"kappa" doc:"Cohen's: agreement beyond chance"`
	Trust         Tier           `json:"trust" enum:"none,provisional,measured,calibrated,certified"`
	HoldoutActive bool           `json:"holdout_active" doc:"The report half alone is measured: it holds at least 30 of each class"`
	Failed        int64          `json:"failed" doc:"Answers of the judge that were no verdicts"`
}

// Confidence is that of every interval here.
const Confidence = 0.95

// Block computes h's.
func (h *Halves) Block() Block {
	c := h.Measured()
	b := Block{N: c.N(), Matrix: c.Matrix, HoldoutActive: h.HoldoutActive(), Failed: c.Failed}
	b.Se, b.SeCI = rate(c.TP, c.Passing())
	b.Sp, b.SpCI = rate(c.TN, c.Failing())
	if kappa, _, ok := stat.Kappa([][]int64{{c.TP, c.FP}, {c.FN, c.TN}}); ok {
		b.Kappa = &kappa
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

// AtLeast reports whether t includes another tier. What is no tier includes none, and is included in none.
func (t Tier) AtLeast(other Tier) bool {
	least := slices.Index(Tiers, other)
	return least >= 0 && slices.Index(Tiers, t) >= least
}

// The marks of the tiers.
const (
	maxFailed = 0.05 // the share of a judge's answers
	good      = 0.90 // sensitivity and specificity
)

// rules say what each tier asks beyond the one before it.
var rules = []struct {
	tier  Tier
	meets func(*Block) bool
}{
	{Provisional, func(*Block) bool { return true }},
	{Measured, func(b *Block) bool {
		return b.HoldoutActive && float64(b.Failed) <= maxFailed*float64(b.N+b.Failed)
	}},
	{Calibrated, func(b *Block) bool {
		return min(b.Matrix.Passing(), b.Matrix.Failing()) >= more && *b.Se >= good && *b.Sp >= good
	}},
	{Certified, func(b *Block) bool { return b.SeCI[0] >= good && b.SpCI[0] >= good }},
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

// A Shift is a label whose verdict is another now than when it was measured.
type Shift struct {
	Human, Standing, Judge judge.Verdict
	InReportHalf           bool
}

// After is h as a re-calibration would read it.
func (h Halves) After(shifts []Shift) Halves {
	for _, s := range shifts {
		half := h.Half(s.InReportHalf)
		half.Add(s.Human, s.Judge, -1)
		half.Add(s.Standing, s.Judge, 1)
	}
	return h
}
