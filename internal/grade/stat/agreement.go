package stat

import "math"

// A Table is the confusion matrix of a judge's verdicts against people's labels. TP: both pass. TN: both fail. FP: only
// the judge passes. FN: only the person passes.
type Table struct {
	TP int64 `json:"tp"`
	FP int64 `json:"fp"`
	TN int64 `json:"tn"`
	FN int64 `json:"fn"`
}

// N returns the number of verdicts.
func (t Table) N() int64 { return t.TP + t.FP + t.TN + t.FN }

// Sensitivity returns how many items the judge passes (x) of those that people pass (n).
func (t Table) Sensitivity() (x, n int64) { return t.TP, t.TP + t.FN }

// Specificity returns how many items the judge fails (x) of those that people fail (n).
func (t Table) Specificity() (x, n int64) { return t.TN, t.TN + t.FP }

// Bounds returns the Clopper–Pearson intervals of sensitivity and specificity, as a certificate shows them.
func (t Table) Bounds(confidence float64) Bounds {
	tp, pass := t.Sensitivity()
	tn, fail := t.Specificity()
	return Bounds{ClopperPearson(tp, pass, confidence), ClopperPearson(tn, fail, confidence)}
}

// Bounds are a judge's certified sensitivity and specificity.
type Bounds struct {
	Sensitivity, Specificity Interval
}

// Youden returns the lower bound of Youden's (1950) index Se + Sp - 1: the factor by which a true difference in pass
// rates is at least visible in verdicts. At 0 or below, the verdicts may carry no information. Both lower bounds hold
// jointly with at least the confidence of the intervals, since each one is missed with at most half of the remaining
// probability.
func (b Bounds) Youden() float64 { return b.Sensitivity[0] + b.Specificity[0] - 1 }

// cells returns t as a matrix: rows by people's labels, columns by the judge's verdicts, pass first.
func (t Table) cells() [][]int64 { return [][]int64{{t.TP, t.FN}, {t.FP, t.TN}} }

// Kappa returns Cohen's kappa of t, its standard error, and whether it is defined: see the function Kappa.
func (t Table) Kappa() (kappa, se float64, ok bool) { return Kappa(t.cells()) }

// Kappa returns Cohen's (1960) kappa of a square table of counts and its large-sample standard error (Fleiss, Cohen and
// Everitt 1969). It is undefined when the expected agreement is 1: without counts, or with all counts in one diagonal
// cell. The standard error of a perfect table is 0 and not informative; use KappaInterval there.
func Kappa(table [][]int64) (kappa, se float64, ok bool) {
	rows, columns, n := margins(table)
	if n == 0 {
		return 0, 0, false
	}
	var agreed, chance float64
	for i := range table {
		agreed += float64(table[i][i]) / n
		chance += rows[i] * columns[i]
	}
	if chance >= 1 {
		return 0, 0, false
	}
	kappa = (agreed - chance) / (1 - chance)
	rest := 1 - kappa
	mean := kappa - chance*rest
	variance := -mean * mean
	for i, row := range table {
		for j, count := range row {
			weight := rest * (columns[i] + rows[j])
			if i == j {
				weight = 1 - weight
			}
			variance += float64(count) / n * weight * weight
		}
	}
	return kappa, math.Sqrt(max(variance, 0)/n) / (1 - chance), true
}

// margins returns the shares of the rows and columns, and the sum of all counts.
func margins(table [][]int64) (rows, columns []float64, n float64) {
	rows, columns = make([]float64, len(table)), make([]float64, len(table))
	for i, row := range table {
		for j, count := range row {
			rows[i] += float64(count)
			columns[j] += float64(count)
			n += float64(count)
		}
	}
	for i := range rows {
		rows[i] /= n
		columns[i] /= n
	}
	return rows, columns, n
}
