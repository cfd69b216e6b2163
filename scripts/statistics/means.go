package main

import (
	"math/rand/v2"
	"slices"

	"sovereign/internal/grade/stat"
)

// The prompts and grades at which the intervals of means are measured.
var (
	prompts   = []int64{10, 40, 100, 200}
	passRates = []float64{.02, .1, .5, .9} // of grades that are 0 or 1
	// the shares of prompts that got better, and worse
	changes = [][2]float64{{.1, .1}, {.3, .3}, {.1, 0}, {.3, .1}, {.5, .1}}
)

const meanRuns = 2000

// twoValues is a sample of zeros and ones.
func twoValues(ones, n int64) []float64 {
	return slices.Concat(slices.Repeat([]float64{1}, int(ones)), slices.Repeat([]float64{0}, int(n-ones)))
}

// meanRow returns how often the interval of a mean covers its expectation: of grades that are 0 or 1, exactly, for each
// pass rate; and of grades in between, simulated, that are even or mostly low.
func meanRow(n int64) (out []float64) {
	for _, p := range passRates {
		covered := 0.0
		for _, o := range outcomes(n, p) {
			if _, interval := stat.Mean(twoValues(o.x, n), confidence); interval.Contains(p) {
				covered += o.probability
			}
		}
		out = append(out, covered)
	}
	even, low := func(u float64) float64 { return u }, func(u float64) float64 { return u * u * u }
	return append(out, meanCovers(n, .5, even), meanCovers(n, .25, low))
}

// meanCovers returns how often the interval covers the expectation of a function of a uniform number.
func meanCovers(n int64, truth float64, of func(u float64) float64) float64 {
	r, covered, grades := rand.New(rand.NewPCG(seed, uint64(n))), 0.0, make([]float64, n)
	for range meanRuns {
		for i := range grades {
			grades[i] = of(r.Float64())
		}
		if _, interval := stat.Mean(grades, confidence); interval.Contains(truth) {
			covered++
		}
	}
	return covered / meanRuns
}

// changeRow returns how often the interval of a paired difference covers the truth, and how often it is above 0, where
// each prompt has got better by 1, worse by 1, or has stayed.
func changeRow(n int64, better, worse float64) []float64 {
	var covered, proven float64
	comparisons(n, better, 1-better-worse, func(c comparison) {
		all := slices.Concat(slices.Repeat([]float64{1}, int(c.Wins)), slices.Repeat([]float64{-1}, int(c.Losses)),
			slices.Repeat([]float64{0}, int(c.Ties)))
		_, interval := stat.MeanDifference(all, confidence)
		if interval.Contains(better - worse) {
			covered += c.probability
		}
		if interval[0] > 0 {
			proven += c.probability
		}
	})
	return []float64{covered, proven}
}

func measureMeans(means, changed *grid) {
	means.filled(len(prompts), func(i int) (at, figures []float64) {
		return []float64{float64(prompts[i])}, meanRow(prompts[i])
	})
	changed.filled(len(changes)*len(prompts), func(i int) (at, figures []float64) {
		of, n := changes[i/len(prompts)], prompts[i%len(prompts)]
		return []float64{float64(n), of[0], of[1]}, changeRow(n, of[0], of[1])
	})
}
