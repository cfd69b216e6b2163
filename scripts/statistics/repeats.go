package main

import (
	"math/rand/v2"

	"sovereign/internal/grade/stat"
)

// A repetition is a canary whose requests ask a few questions again and again. Each model always answers a question in
// the same words, and the judge says of them what it said the first time.
type repetition struct {
	world
	questions int
}

// The ways in which questions are asked and counted.
const (
	alike     = iota // every question as often as the others; it counts once
	unequally        // the k-th question in proportion to 1/k; it counts once
	eachTime         // every question as often as the others; it counts each time
)

var askedAndCounted = []string{"asked alike", "asked unequally", "counted each time"}

// repetitions are the rows of the table: canaries that are worse by the margin.
func repetitions() (all []repetition) {
	for _, questions := range []int{20, 100, 500, 2000} {
		for _, percent := range percents {
			for _, judge := range canaryJudges[:2] {
				at := world{base: .9, worse: margin, percent: percent, judge: judge}
				all = append(all, repetition{at, questions})
			}
		}
	}
	return all
}

func (r *repetition) at() []float64 { return append([]float64{float64(r.questions)}, r.world.at()...) }

// pick returns a function that draws the question of a request.
func (r *repetition) pick(random *rand.Rand, how int) func() int {
	if how != unequally {
		return func() int { return random.IntN(r.questions) }
	}
	zipf := rand.NewZipf(random, 1.01, 1, uint64(r.questions-1))
	return func() int { return int(zipf.Uint64()) }
}

// promoted reports whether one canary is ever promoted. The gate asks for no minimum of samples, so that it is not that
// which keeps the promise.
func (r *repetition) promoted(random *rand.Rand, how int) bool {
	all := r.phases()
	one := r.run(random, &all, labels, r.requests())
	one.gate.Minimum = 1
	said, pick := make([][2]stat.Result, r.questions), r.pick(random, how)
	for range one.requests {
		answers, s := &said[pick()], one.sample(&all[0])
		if how != eachTime && *answers != [2]stat.Result{} {
			continue
		}
		arm := armOf(s.Canary)
		if answers[arm] == "" {
			answers[arm], _ = all[0].arms[arm].draw(random)
		}
		s.Result = answers[arm]
		one.count(s)
		if one.decides(s, stat.Promote) {
			return true
		}
	}
	return false
}

// share returns how often a canary is ever promoted: the 99 % upper bound of its probability.
func (r *repetition) share(runs, how int, stream uint64) float64 {
	random := rand.New(rand.NewPCG(seed, stream))
	var count int64
	for range runs {
		if r.promoted(random, how) {
			count++
		}
	}
	return stat.UpperBound(count, int64(runs), sure)
}

func measureRepeats(g *grid) {
	rows := repetitions()
	g.filled(len(rows), func(i int) (at, figures []float64) {
		for how := range askedAndCounted {
			figures = append(figures, rows[i].share(canaryRuns, how, uint64(i*len(askedAndCounted)+how)))
		}
		return rows[i].at(), figures
	})
}
