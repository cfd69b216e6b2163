package stat

import (
	"math"
	"slices"
	"sort"

	"gonum.org/v1/gonum/mathext"
)

// MedianBelow returns an upper bound of the median of the distribution that the values were drawn from: an order
// statistic, by inversion of the sign test. It is at least the median with probability at least confidence, for every
// distribution. It is +Inf when there are too few values for that confidence. A value that is not a number counts as
// +Inf.
func MedianBelow(values []float64, confidence float64) float64 {
	sorted := ascending(values)
	n := len(sorted)
	rank := sort.Search(n, func(k int) bool { // at most k values lie below the median with this probability
		return mathext.RegIncBeta(float64(n-k), float64(k)+1, 0.5) >= confidence
	})
	if rank == n {
		return math.Inf(1)
	}
	return sorted[rank]
}

// Median returns the middle value, or the mean of the two middle ones. It is NaN without values. A value that is not a
// number counts as +Inf.
func Median(values []float64) float64 {
	if len(values) == 0 {
		return math.NaN()
	}
	sorted := ascending(values)
	middle := len(sorted) / 2
	if len(sorted)%2 == 1 {
		return sorted[middle]
	}
	return (sorted[middle-1] + sorted[middle]) / 2
}

// ascending returns the values in ascending order, with those that are not numbers as +Inf.
func ascending(values []float64) []float64 {
	sorted := slices.Clone(values)
	for i, value := range sorted {
		if math.IsNaN(value) {
			sorted[i] = math.Inf(1)
		}
	}
	slices.Sort(sorted)
	return sorted
}

// forSkewness is the share of alpha that TotalsRatio leaves for distributions that are not normal.
const forSkewness = 0.5

// TotalsRatio returns the sum of the first values of the cases divided by the sum of the second, with an upper bound of
// the ratio of their expectations (Fieller 1954, with the quantile of Student's t). It is approximate: no bound holds
// for every distribution. So it spends half of the error that confidence allows, and docs/statistics.md reports its
// measured errors. The percentile of a bootstrap errs more often than it says with few cases. Both are +Inf when the
// second sum is 0 and the first is not, and NaN when both are 0. The bound is +Inf where the cases do not bound the
// ratio, and with fewer than two.
func TotalsRatio(cases [][2]float64, confidence float64) (ratio, upper float64) {
	n := float64(len(cases))
	var mean [2]float64
	for _, c := range cases {
		mean[0] += c[0] / n
		mean[1] += c[1] / n
	}
	ratio = mean[0] / mean[1]
	switch {
	case math.IsNaN(ratio) || math.IsInf(ratio, 0):
		return ratio, ratio
	case n < 2:
		return ratio, math.Inf(1)
	}
	var first, second, both float64 // variances of the means, and their covariance
	for _, c := range cases {
		x, y := c[0]-mean[0], c[1]-mean[1]
		first, second, both = first+x*x/n/(n-1), second+y*y/n/(n-1), both+x*y/n/(n-1)
	}
	t := student((1-confidence)*forSkewness, n-1)
	// The ratios r for which mean[0] - r·mean[1] is not significantly below 0 end at a root of a·r² - 2b·r + c.
	a := mean[1]*mean[1] - t*t*second
	b := mean[0]*mean[1] - t*t*both
	c := mean[0]*mean[0] - t*t*first
	if a <= 0 {
		return ratio, math.Inf(1)
	}
	return ratio, max(ratio, (b+math.Sqrt(max(b*b-a*c, 0)))/a)
}

// student returns the value that Student's t exceeds with probability tail, which is at most ½.
func student(tail, freedom float64) float64 {
	x := mathext.InvRegIncBeta(freedom/2, 0.5, 2*tail)
	return math.Sqrt(freedom * (1 - x) / x)
}
