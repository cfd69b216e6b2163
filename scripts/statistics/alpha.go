package main

import (
	"math/rand/v2"

	"sovereign/internal/grade/stat"
)

// The sizes, people, shares and errors at which the interval of Krippendorff's alpha is measured.
var (
	sharedItems = []int64{20, 50, 100}
	graders     = []int{2, 3}
	// the share that passes, each person's errors
	gradings = [][2]float64{{.5, .02}, {.5, .1}, {.5, .25}, {.8, .02}, {.8, .1}}
)

const alphaRuns = 1000

// grade draws items of which a share truly passes, graded by people who each err at a rate.
func grade(r *rand.Rand, items int64, people int, passing, errs float64) []stat.Units {
	units := make([]stat.Units, people+1)
	for passes := range units {
		units[passes].Values = []int64{int64(passes), int64(people - passes)}
	}
	for range items {
		truth, passes := r.Float64() < passing, 0
		for range people {
			if (r.Float64() < errs) != truth {
				passes++
			}
		}
		units[passes].N++
	}
	return units
}

// trueAlpha returns alpha of infinitely many items: the share of pairs that differ is 2e(1 - e), and by chance it is
// 2p(1 - p), where p is the share of passing grades.
func trueAlpha(passing, errs float64) float64 {
	p := passing*(1-errs) + (1-passing)*errs
	return 1 - errs*(1-errs)/(p*(1-p))
}

// alphaRow returns how often the interval covers the true alpha, and how often it lies above it. Both are of the runs
// in which alpha is defined.
func alphaRow(items int64, people int, passing, errs float64) []float64 {
	r, truth := rand.New(rand.NewPCG(seed, uint64(items))), trueAlpha(passing, errs)
	var runs, covered, above float64
	for i := range uint64(alphaRuns) {
		interval, ok := stat.AlphaInterval(grade(r, items, people, passing, errs), confidence, i)
		switch {
		case !ok:
			continue
		case interval.Contains(truth):
			covered++
		case interval[0] > truth:
			above++
		}
		runs++
	}
	return []float64{covered / runs, above / runs}
}

func measureAlpha(g *grid) {
	g.filled(len(gradings)*len(graders)*len(sharedItems), func(i int) (at, figures []float64) {
		of, people, items := gradings[i/len(graders)/len(sharedItems)], graders[i/len(sharedItems)%len(graders)], sharedItems[i%len(sharedItems)]
		return []float64{float64(items), float64(people), of[0], of[1]}, alphaRow(items, people, of[0], of[1])
	})
}
