package stat

import (
	"math"
	"math/rand/v2"
	"slices"
)

// Units are items that several people graded alike: N items, of each of which Values[v] people gave the value v. The
// order of people does not matter, and not everybody needs to grade everything. Values of all units have the same
// length.
type Units struct {
	Values []int64
	N      int64
}

// pairs returns the pairs of grades of one item, and how many of them agree.
func (u Units) pairs() (all, agreed int64) {
	var n int64
	for _, x := range u.Values {
		n += x
		agreed += x * (x - 1) / 2
	}
	return n * (n - 1) / 2, agreed
}

// PairAgreement returns how many pairs of grades of the same item there are, and how many of them agree.
func PairAgreement(units []Units) (agreed, pairs int64) {
	for _, u := range units {
		all, same := u.pairs()
		pairs += all * u.N
		agreed += same * u.N
	}
	return agreed, pairs
}

// Alpha returns Krippendorff's alpha for nominal values (Krippendorff 2011): 1 minus the observed disagreement over the
// disagreement that chance would give. Items with fewer than two grades are left out. It is undefined when there are no
// pairs, or only one value was given: ok is false.
func Alpha(units []Units) (alpha float64, ok bool) {
	weights := make([]float64, len(units))
	for i, u := range units {
		weights[i] = float64(u.N)
	}
	return weightedAlpha(units, weights)
}

// weightedAlpha is Alpha of weights[i] items of each kind.
func weightedAlpha(units []Units, weights []float64) (alpha float64, ok bool) {
	if len(units) == 0 {
		return 0, false
	}
	// pairs of differing grades, each item's weighted by 1/(its grades - 1), as in the coincidence matrix
	var apart, total float64
	values := make([]float64, len(units[0].Values))
	for i, u := range units {
		var n, squares float64
		for _, x := range u.Values {
			n += float64(x)
			squares += float64(x) * float64(x)
		}
		if n < 2 || weights[i] == 0 {
			continue
		}
		apart += weights[i] * (n*n - squares) / (n - 1)
		total += weights[i] * n
		for v, x := range u.Values {
			values[v] += weights[i] * float64(x)
		}
	}
	chance := total * total
	for _, x := range values {
		chance -= x * x
	}
	if chance <= 0 {
		return 0, false
	}
	return 1 - (total-1)*apart/chance, true
}

const (
	// resamples is how often AlphaInterval draws items.
	resamples = 1000
	// minShared is how many items AlphaInterval needs. Fewer say too little of items that nobody has graded.
	minShared = 10
)

// AlphaInterval returns an interval of alpha: the percentile bootstrap over items (Efron 1979; Hayes and Krippendorff
// 2007 resample pairs instead, which takes grades of one item for independent). For the lower bound one more item is
// among those that are drawn from, with one grade of each of the two commonest values: without it the interval of
// perfect agreement would have no width. No coverage is guaranteed; docs/statistics.md reports what was measured. The
// interval contains alpha. The seed makes it repeatable. ok is false when alpha is undefined, and with fewer than ten
// items of at least two grades.
func AlphaInterval(units []Units, confidence float64, seed uint64) (interval Interval, ok bool) {
	units = slices.DeleteFunc(slices.Clone(units), func(u Units) bool {
		all, _ := u.pairs()
		return all == 0 || u.N == 0
	})
	alpha, ok := Alpha(units)
	var n int64
	for _, u := range units {
		n += u.N
	}
	if !ok || n < minShared {
		return Interval{}, false
	}
	random := rand.New(rand.NewPCG(seed, uint64(n)))
	drawn := func(units []Units, n int64) (all []float64) {
		weights := make([]float64, len(units))
		for range resamples {
			multinomial(random, units, n, weights)
			if a, ok := weightedAlpha(units, weights); ok {
				all = append(all, a)
			}
		}
		slices.Sort(all)
		return all
	}
	highs := drawn(units, n)
	lows := drawn(append(units, Units{Values: split(units), N: 1}), n+1)
	if len(highs) == 0 {
		highs = []float64{alpha}
	}
	if len(lows) == 0 {
		lows = []float64{alpha}
	}
	tail := (1 - confidence) / 2
	interval = Interval{quantile(lows, tail), quantile(highs, 1-tail)}
	return interval.Clip(-1, 1).around(alpha), true
}

// split returns the values of an item that got one grade of each of the two commonest values.
func split(units []Units) []int64 {
	sums := make([]int64, len(units[0].Values))
	for _, u := range units {
		for v, x := range u.Values {
			sums[v] += x * u.N
		}
	}
	values := make([]int64, len(sums))
	for range 2 {
		most := 0
		for v := range sums {
			if sums[v] > sums[most] {
				most = v
			}
		}
		values[most], sums[most] = 1, -1
	}
	return values
}

// quantile returns the q-quantile of sorted values, interpolated.
func quantile(sorted []float64, q float64) float64 {
	at := q * float64(len(sorted)-1)
	i := int(at)
	if i+1 >= len(sorted) {
		return sorted[len(sorted)-1]
	}
	return sorted[i] + (at-float64(i))*(sorted[i+1]-sorted[i])
}

// multinomial draws n items with replacement, and counts those of each kind. Its time grows with the number of kinds,
// and hardly with n.
func multinomial(random *rand.Rand, units []Units, n int64, counts []float64) {
	left, of := n, n
	for i, u := range units {
		drawn := binomial(random, left, float64(u.N)/float64(of))
		counts[i] = float64(drawn)
		left -= drawn
		of -= u.N
	}
}

// manyDraws is the variance from which on a binomial distribution is drawn as a normal one.
const manyDraws = 100

// binomial draws the number of successes in n trials.
func binomial(random *rand.Rand, n int64, p float64) int64 {
	switch {
	case n == 0 || p <= 0:
		return 0
	case p >= 1:
		return n
	case p > 0.5:
		return n - binomial(random, n, 1-p)
	}
	if mean, variance := float64(n)*p, float64(n)*p*(1-p); variance > manyDraws {
		x := math.Round(mean + math.Sqrt(variance)*random.NormFloat64())
		return int64(min(max(x, 0), float64(n)))
	}
	// The gaps between successes are geometric.
	perTrial, successes := math.Log1p(-p), int64(0)
	for at := 0.0; ; successes++ {
		if at += math.Floor(math.Log(1-random.Float64())/perTrial) + 1; at > float64(n) {
			return successes
		}
	}
}
