package stat

import (
	"math"
	"math/rand/v2"
	"slices"

	"gonum.org/v1/gonum/mathext"
)

// MedianBelow returns an upper bound of the median of the distribution that the values were drawn from: an order statistic,
// by inversion of the sign test. It is at least the median with probability at least confidence, for every distribution. It
// is +Inf when there are too few values for that confidence.
func MedianBelow(values []float64, confidence float64) float64 {
	sorted := slices.Sorted(slices.Values(values))
	n := float64(len(sorted))
	for k, value := range sorted {
		// At most k of n values lie below the median with this probability.
		if mathext.RegIncBeta(n-float64(k), float64(k)+1, 0.5) >= confidence && float64(k) < n {
			return value
		}
	}
	return math.Inf(1)
}

// Median returns the middle value, or the mean of the two middle ones. It is NaN without values.
func Median(values []float64) float64 {
	if len(values) == 0 {
		return math.NaN()
	}
	sorted := slices.Sorted(slices.Values(values))
	middle := len(sorted) / 2
	if len(sorted)%2 == 1 {
		return sorted[middle]
	}
	return (sorted[middle-1] + sorted[middle]) / 2
}

// resamples is the number of bootstrap samples.
const resamples = 2000

// TotalsRatio returns the sum of the first values of the cases divided by the sum of the second, with an upper bound: the
// percentile of a bootstrap over cases (Efron 1979). The same cases and seed give the same bound. It is approximate, and +Inf
// for a confidence above 0.9995. Both are
// +Inf when the second sum is 0 and the first is not, and NaN when both are 0.
func TotalsRatio(cases [][2]float64, confidence float64, seed uint64) (ratio, upper float64) {
	ratio = totalsRatio(cases, nil)
	if math.IsNaN(ratio) || math.IsInf(ratio, 0) {
		return ratio, ratio
	}
	random := rand.New(rand.NewPCG(seed, uint64(len(cases))))
	drawn := make([]float64, resamples)
	for i := range drawn {
		drawn[i] = totalsRatio(cases, random)
		if math.IsNaN(drawn[i]) {
			drawn[i] = math.Inf(1) // a sample without any value supports no bound
		}
	}
	slices.Sort(drawn)
	at := int(math.Ceil(confidence*float64(resamples+1))) - 1
	if at >= resamples { // too few samples for such a confidence
		return ratio, math.Inf(1)
	}
	return ratio, max(ratio, drawn[at])
}

// totalsRatio returns the ratio of sums over all cases, or over as many that are drawn with repetition.
func totalsRatio(cases [][2]float64, random *rand.Rand) float64 {
	var sums [2]float64
	for i := range cases {
		if random != nil {
			i = random.IntN(len(cases))
		}
		sums[0] += cases[i][0]
		sums[1] += cases[i][1]
	}
	return sums[0] / sums[1]
}
