package stat

import "math"

// A Table is how a judge's verdicts stand to people's. TP: both pass. FP: the judge passes what people fail. FN: the reverse.
type Table struct {
	TP int64 `json:"tp"`
	FP int64 `json:"fp"`
	TN int64 `json:"tn"`
	FN int64 `json:"fn"`
}

// N is how many verdicts there are.
func (t Table) N() int64 { return t.TP + t.FP + t.TN + t.FN }

// Sensitivity is how many the judge passes, of those that people pass.
func (t Table) Sensitivity() (x, n int64) { return t.TP, t.TP + t.FN }

// Specificity is how many the judge fails, of those that people fail.
func (t Table) Specificity() (x, n int64) { return t.TN, t.TN + t.FP }

// Bounds are the exact intervals of both, as a certificate shows them.
func (t Table) Bounds(confidence float64) Bounds {
	tp, pass := t.Sensitivity()
	tn, fail := t.Specificity()
	return Bounds{ClopperPearson(tp, pass, confidence), ClopperPearson(tn, fail, confidence)}
}

// Bounds are a judge's certified sensitivity and specificity.
type Bounds struct {
	Sensitivity, Specificity Interval
}

// Youden is the least of Se + Sp - 1 that the lower bounds leave (Youden 1950): the share of a true difference in pass rates that the
// judge is sure to see. At 0 or less its verdicts may mean nothing. Both bounds hold at once with at least the intervals' confidence,
// since each is missed with at most half of the rest.
func (b Bounds) Youden() float64 { return b.Sensitivity[0] + b.Specificity[0] - 1 }

// cells is t as the rows of the one and the columns of the other.
func (t Table) cells() [][]int64 { return [][]int64{{t.TP, t.FN}, {t.FP, t.TN}} }

// Kappa is Cohen's kappa of t, its standard error, and whether it is defined: see the function Kappa.
func (t Table) Kappa() (kappa, se float64, ok bool) { return Kappa(t.cells()) }

// Kappa is Cohen's (1960) kappa of a square table of counts and its large-sample standard error (Fleiss, Cohen and Everitt 1969). It
// is not defined where chance alone agrees always: without counts, or with all of them in one cell of the diagonal. The standard
// error is 0 on a perfect table, and says nothing there: KappaInterval does.
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

// margins are the shares of rows and columns, and the sum of all.
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
