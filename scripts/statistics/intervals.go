package main

import (
	"math"

	"sovereign/internal/grade/stat"
)

// The cases, ties and rates at which the intervals of a comparison are measured.
var (
	compared = []int64{20, 50, 100, 200}
	tied     = []float64{0, .1, .3, .6, .9}
	levels   = []float64{.05, .05 / 4, .05 / 16} // of one, four and sixteen candidates
)

// A comparison is a possible result of a comparison, and its probability.
type comparison struct {
	stat.Outcomes
	probability float64
}

// comparisons calls f with every result of n cases.
func comparisons(n int64, win, tie float64, f func(c comparison)) {
	wins := make([][]outcome, n+1) // by how many are no ties
	for _, ties := range certain(n, tie) {
		differ := n - ties.x
		if wins[differ] == nil {
			wins[differ] = certain(differ, win/(1-tie))
		}
		for _, won := range wins[differ] {
			o := stat.Outcomes{Wins: won.x, Losses: differ - won.x, Ties: ties.x}
			f(comparison{o, ties.probability * won.probability})
		}
	}
}

// certain is outcomes, also where there is only one.
func certain(n int64, p float64) []outcome {
	switch {
	case n == 0 || p <= 0:
		return []outcome{{0, 1}}
	case p >= 1:
		return []outcome{{n, 1}}
	}
	return outcomes(n, p)
}

// winRow returns the least coverage over all win rates, with this share of ties: of the gate's bound at each level, of
// the exact bound of a proportion with half of the ties as wins at the first level, and of the interval that is shown.
func winRow(n int64, tie float64) []float64 {
	type bounds struct {
		gate  [3]float64
		half  float64
		shown stat.Interval
	}
	known := make(map[stat.Outcomes]bounds)
	of := func(o stat.Outcomes) bounds {
		b, ok := known[o]
		if !ok {
			for i, level := range levels {
				b.gate[i] = o.LowerBound(level)
			}
			b.half, b.shown = stat.LowerBound(o.Wins+o.Ties/2, n, 1-levels[0]), o.Interval(confidence)
			known[o] = b
		}
		return b
	}
	least := []float64{1, 1, 1, 1, 1}
	for i := 1; i < 20; i++ {
		win := float64(i) / 20 * (1 - tie)
		truth, covered := win+tie/2, make([]float64, len(least))
		count := func(place int, holds bool, probability float64) {
			if holds {
				covered[place] += probability
			}
		}
		comparisons(n, win, tie, func(c comparison) {
			b := of(c.Outcomes)
			for level := range levels {
				count(level, b.gate[level] <= truth+1e-12, c.probability)
			}
			count(3, b.half <= truth+1e-12, c.probability)
			count(4, b.shown.Contains(truth), c.probability)
		})
		for place := range least {
			least[place] = min(least[place], covered[place])
		}
	}
	return least
}

// The pairs of pass rates and correlations at which the paired difference is measured.
var (
	pairedRates = [][2]float64{{.5, .5}, {.7, .6}, {.9, .9}, {.9, .8}, {.97, .97}, {.97, .92}}
	correlated  = []float64{0, .3, .6}
)

// pairedRow returns the coverage of the paired difference's interval, by correlation. A correlation that the rates do
// not allow is the highest that they do.
func pairedRow(n int64, rates [2]float64) (out []float64) {
	first, second := rates[0], rates[1]
	for _, correlation := range correlated {
		both := first*second + correlation*math.Sqrt(first*(1-first)*second*(1-second))
		both = min(both, first, second)
		sum := 0.0
		for _, one := range certain(n, first) { // passes of the first, and the second's among them and among the rest
			for _, two := range certain(one.x, both/first) {
				for _, three := range certain(n-one.x, (second-both)/(1-first)) {
					p := stat.Pairs{Both: two.x, First: one.x - two.x, Second: three.x, Neither: n - one.x - three.x}
					if _, interval := p.Difference(confidence); interval.Contains(first - second) {
						sum += one.probability * two.probability * three.probability
					}
				}
			}
		}
		out = append(out, sum)
	}
	return out
}

func measureComparisons(wins, paired *grid) {
	wins.filled(len(compared)*len(tied), func(i int) (at, figures []float64) {
		n, tie := compared[i/len(tied)], tied[i%len(tied)]
		return []float64{float64(n), tie}, winRow(n, tie)
	})
	sizes := []int64{30, 100}
	paired.filled(len(sizes)*len(pairedRates), func(i int) (at, figures []float64) {
		n, rates := sizes[i/len(pairedRates)], pairedRates[i%len(pairedRates)]
		return []float64{float64(n), rates[0], rates[1]}, pairedRow(n, rates)
	})
}
