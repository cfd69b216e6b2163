package main

import (
	"math"
	"math/rand/v2"

	"sovereign/internal/grade/stat"
)

// The sizes and seeds of the simulations.
const (
	repeats  = 2000
	requests = 2000 // of a canary
	seed     = 20260
	alpha    = 0.05
	minimum  = 50
)

// A trial is a simulated canary with known true rates.
type trial struct {
	base, canary, margin, share float64
}

var canaries = []trial{
	{.90, .85, .05, .5},
	{.90, .85, .05, .1},
	{.99, .96, .03, .5},
	{.70, .60, .05, .5},
	{.80, .80, 0, .5},
	{.90, .90, .05, .5},
}

func (t *trial) at() []float64 { return []float64{t.base, t.canary, t.margin, t.share} }

// figures returns how often a gate that is asked after every request promotes and rolls back, and how often a
// fixed-sample test that is evaluated after every request promotes.
func (t *trial) figures() []float64 {
	r := rand.New(rand.NewPCG(seed, 1))
	gate := stat.Gate{Margin: t.margin, Alpha: alpha, Minimum: minimum, Youden: 1}
	var promoted, rolled, peeked float64
	for range repeats {
		verdict, passed := t.run(r, gate)
		switch verdict {
		case stat.Promote:
			promoted++
		case stat.Rollback:
			rolled++
		default:
		}
		if passed {
			peeked++
		}
	}
	return []float64{promoted / repeats, rolled / repeats, peeked / repeats}
}

func (t *trial) run(r *rand.Rand, gate stat.Gate) (verdict stat.Decision, peeked bool) {
	var base, canary stat.Arm
	verdict = stat.Continue
	for range requests {
		arm, rate := &base, t.base
		if r.Float64() < t.share {
			arm, rate = &canary, t.canary
		}
		arm.N++
		if r.Float64() < rate {
			arm.Passed++
		}
		if verdict == stat.Continue {
			seen := stat.Strata{{Base: base, Canary: canary}}
			verdict = gate.Judge(stat.Evidence{Promote: seen, RollBack: seen})
		}
		peeked = peeked || t.significant(base, canary)
	}
	return verdict, peeked
}

// significant is the one-sided z-test, at 5 %, that a canary is not worse by the margin.
func (t *trial) significant(base, canary stat.Arm) bool {
	if min(base.N, canary.N) < minimum {
		return false
	}
	p, q := base.Rate(), canary.Rate()
	deviation := math.Sqrt(p*(1-p)/float64(base.N) + q*(1-q)/float64(canary.N))
	return q-p+t.margin > stat.Z(1-2*alpha)*deviation
}
