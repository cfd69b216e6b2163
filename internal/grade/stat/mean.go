package stat

import "math"

// shares are the parts of the capital that Mean bets on each value, and the weights of the bets: the larger ones have
// more, since they are what proves anything with few values. Their mixture needs no guess of the variance.
var shares = func() (all [12]struct{ share, weight float64 }) {
	sum := 0.0
	for i := range all {
		all[i].weight = math.Pow(0.7, float64(i))
		all[i].share = 0.99 * all[i].weight
		sum += all[i].weight
	}
	for i := range all {
		all[i].weight /= sum
	}
	return all
}()

// Mean returns the mean of values in [0, 1], with an interval of the expectation that they were drawn from (betting:
// Waudby-Smith and Ramdas 2023, with a mixture of constant bets, which makes the order of the values irrelevant). It
// covers the expectation with probability at least confidence, for every distribution in [0, 1] and every number of
// values: each value multiplies a capital by at most 1 in expectation, which reaches 1/alpha with probability at most
// alpha. It is 0 and [0, 1] without values.
func Mean(values []float64, confidence float64) (mean float64, interval Interval) {
	if len(values) == 0 {
		return 0, Interval{0, 1}
	}
	mirrored := make([]float64, len(values))
	for i, v := range values {
		mean += v / float64(len(values))
		mirrored[i] = 1 - v
	}
	alpha := (1 - confidence) / 2
	return mean, Interval{meanAbove(values, alpha), 1 - meanAbove(mirrored, alpha)}.Clip(0, 1).around(mean)
}

// MeanDifference is Mean, of differences in [-1, 1], such as those of pairs.
func MeanDifference(differences []float64, confidence float64) (mean float64, interval Interval) {
	halves := make([]float64, len(differences))
	for i, d := range differences {
		halves[i] = (d + 1) / 2
	}
	mean, interval = Mean(halves, confidence)
	if len(differences) == 0 {
		mean = 0.5
	}
	return 2*mean - 1, Interval{2*interval[0] - 1, 2*interval[1] - 1}
}

// meanAbove returns a lower bound of the expectation: the largest one that the capital disproves.
func meanAbove(values []float64, alpha float64) float64 {
	const precise = 1e-9
	enough := -math.Log(alpha)
	excess := func(m float64) float64 { return logCapital(values, m) - enough }
	if excess(precise) <= 0 {
		return 0
	}
	if excess(1) >= 0 { // only values of 1 come near
		return 1
	}
	return max(root(precise, 1, precise, excess)-2*precise, 0)
}

// logCapital is the logarithm of what bets against an expectation of at most m have made of 1. It falls with m.
func logCapital(values []float64, m float64) float64 {
	var logs [len(shares)]float64
	most := math.Inf(-1)
	for i, bet := range shares {
		product := 1.0 // of a few at a time, which is faster than a logarithm of each
		for at, v := range values {
			if product *= 1 + bet.share*(v/m-1); at%8 == 7 {
				logs[i] += math.Log(product)
				product = 1
			}
		}
		logs[i] += math.Log(product)
		most = max(most, logs[i])
	}
	sum := 0.0
	for i, l := range logs {
		sum += shares[i].weight * math.Exp(l-most)
	}
	return most + math.Log(sum)
}
