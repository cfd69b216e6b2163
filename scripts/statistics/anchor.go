package main

import (
	"math/rand/v2"
	"slices"

	"sovereign/internal/grade/stat"
)

// The sizes of the simulations of anchors.
const (
	anchorRuns   = 4000
	delayRuns    = 400
	anchorChecks = 200 // of a run
	sampled      = 64  // completions of a check
	slack        = 0.05
	gapMisses    = 0.01 / 3 // what a bound of a gap may err
)

// A pair is the truth about a reward judge and an anchor judge: by class, the shares of items that only one of them
// passes, and how often the anchor judge gives no verdict.
type pair struct {
	good, bad disagreement
	fails     float64
}

// A disagreement is the shares of the items of a class that only the reward judge and only the anchor judge passes.
type disagreement struct{ reward, anchor float64 }

// draw judges n items of a class.
func (d disagreement) draw(r *rand.Rand, n int64) (p stat.Pairs) {
	for range n {
		switch u := r.Float64(); {
		case u < d.reward:
			p.First++
		case u < d.reward+d.anchor:
			p.Second++
		default:
			p.Both++
		}
	}
	return p
}

// calibrated returns the gap of two random calibrations with that many common items of each class. The anchor judge was
// asked about as many again, of the half that tunes it.
func (p *pair) calibrated(r *rand.Rand, common int64) float64 {
	return stat.Common{
		Pass: p.good.draw(r, common), Fail: p.bad.draw(r, common),
		Failed: binomial(r, 4*common, p.fails), Asked: 4 * common,
	}.Gap()
}

// A healthy run is one whose judges err on good and on bad completions as they did when they were calibrated, up to the
// slack. Its share of good completions changes steadily.
type healthy struct {
	pair
	from, to float64 // shares of good completions at the first and at the last check
}

var healthyRuns = []healthy{
	{pair: pair{good: disagreement{.05, .05}, bad: disagreement{.05, .05}}, from: .2, to: .9},
	{pair: pair{good: disagreement{.02, .08}, bad: disagreement{.08, .02}}},
	{pair: pair{good: disagreement{.10, 0}, bad: disagreement{0, .05}}, from: 1, to: 1},
	{pair: pair{good: disagreement{.02, .01}, bad: disagreement{.02, .01}, fails: .03}, from: .5, to: .5},
	{pair: pair{good: disagreement{.005, .005}, bad: disagreement{.01, 0}, fails: .01}},
	{pair: pair{good: disagreement{.15, .05}, bad: disagreement{.05, .15}}, from: 1, to: .3},
}

func (h *healthy) at(common int64) []float64 {
	return []float64{
		float64(common), h.good.reward, h.good.anchor, h.bad.reward, h.bad.anchor, h.fails, h.from, h.to,
	}
}

// check judges the completions of one check. The anchor judge that gives no verdict fails what it would have passed.
// More is the share of completions, beyond that, that only the reward judge passes.
func (p *pair) check(r *rand.Rand, watch stat.Watch, good, more float64) stat.Watch {
	var plus, minus int64
	for range sampled {
		d := p.bad
		if r.Float64() < good {
			d = p.good
		}
		lost := more + p.fails
		switch u := r.Float64(); {
		case u < d.reward+lost:
			plus++
		case u < d.reward+lost+d.anchor:
			minus++
		}
	}
	watch, _ = watch.Check(false, plus, minus, sampled-plus-minus)
	return watch
}

// heldAt returns the check at which a run is held, or 0. Its judges are calibrated anew.
func (h *healthy) heldAt(r *rand.Rand, common int64, more float64) int {
	watch := stat.NewWatch(h.calibrated(r, common))
	for k := range anchorChecks {
		good := h.from + (h.to-h.from)*float64(k)/(anchorChecks-1)
		if watch = h.check(r, watch, good, more); watch.Holds() {
			return k + 1
		}
	}
	return 0
}

// held returns how often a healthy run that differs by all of the slack is ever held: the 99 % upper bound.
func (h *healthy) held(common int64, runs int, stream uint64) float64 {
	r := rand.New(rand.NewPCG(seed, stream))
	var count int64
	for range runs {
		if h.heldAt(r, common, slack) > 0 {
			count++
		}
	}
	return stat.UpperBound(count, int64(runs), sure)
}

var commons = []int64{50, 100, 300}

func measureHeld(g *grid) {
	g.filled(len(commons)*len(healthyRuns), func(i int) (at, figures []float64) {
		common, h := commons[i/len(healthyRuns)], &healthyRuns[i%len(healthyRuns)]
		return h.at(common), []float64{h.held(common, anchorRuns, uint64(i))}
	})
}

// tenth are judges that disagree on 10 % of the items, as often in one direction as in the other.
var tenth = healthy{pair: pair{good: disagreement{.05, .05}, bad: disagreement{.05, .05}}}

// gamed returns how many of the runs whose pass rates differ by gap are held, in percent, and the median check at
// which. It is 0 where less than half are held.
func gamed(common int64, gap float64, stream uint64) []float64 {
	r := rand.New(rand.NewPCG(seed, stream))
	at := make([]int, delayRuns)
	held := 0.0
	for i := range at {
		if at[i] = tenth.heldAt(r, common, gap); at[i] > 0 {
			held++
		} else {
			at[i] = anchorChecks + 1
		}
	}
	slices.Sort(at)
	median := at[delayRuns/2]
	if median > anchorChecks {
		median = 0
	}
	return []float64{100 * held / delayRuns, float64(median)}
}

var gaps = []float64{.1, .2, .3, .4, .5}

func measureDelay(g *grid) {
	g.filled(len(commons)*len(gaps), func(i int) (at, figures []float64) {
		common, gap := commons[i/len(gaps)], gaps[i%len(gaps)]
		return []float64{float64(common), gap}, gamed(common, gap, uint64(i))
	})
}

// gapRow returns the median of the gaps of judges that disagree on this share of the items, as often in one direction
// as in the other, and the gap that nine in ten do not exceed.
func gapRow(common int64, share float64) []float64 {
	r := rand.New(rand.NewPCG(seed, 3))
	one := disagreement{share / 2, share / 2}
	p := pair{good: one, bad: one}
	all := make([]float64, delayRuns)
	for i := range all {
		all[i] = p.calibrated(r, common)
	}
	slices.Sort(all)
	return []float64{all[delayRuns/2], all[delayRuns*9/10]}
}

var disagreeing = []float64{.02, .05, .1, .2}

func measureGap(g *grid) {
	for _, common := range commons {
		for _, share := range disagreeing {
			g.add([]float64{float64(common), share}, gapRow(common, share))
		}
	}
}

// boundRow returns the least coverage of upper bounds of a paired difference, over differences above 0 where this share
// of the items differs: of the score bound, of Newcombe's, and of the exact bound. A difference of 0 or less is covered
// always, since a gap is never below 0.
func boundRow(n int64, differ float64) []float64 {
	bounds := []func(o stat.Outcomes) float64{
		func(o stat.Outcomes) float64 { // a gap without failures, less its other parts
			p := stat.Pairs{Both: o.Ties, First: o.Wins, Second: o.Losses}
			c := stat.Common{Pass: p, Fail: p, Asked: 1}
			return c.Gap() - c.Failure() - slack
		},
		func(o stat.Outcomes) float64 {
			p := stat.Pairs{Both: o.Ties / 2, First: o.Wins, Second: o.Losses, Neither: o.Ties - o.Ties/2}
			_, i := p.Difference(1 - 2*gapMisses)
			return i[1]
		},
		func(o stat.Outcomes) float64 {
			return -stat.Outcomes{Wins: o.Losses, Losses: o.Wins, Ties: o.Ties}.DifferenceAbove(gapMisses)
		},
	}
	known := make([]map[stat.Outcomes]float64, len(bounds))
	least := make([]float64, len(bounds))
	for i, bound := range bounds {
		known[i], least[i] = map[stat.Outcomes]float64{}, 1
		for step := 11; step <= 20; step++ {
			win, covered := differ*float64(step)/20, 0.0
			comparisons(n, win, 1-differ, func(c comparison) {
				b, ok := known[i][c.Outcomes]
				if !ok {
					b = bound(c.Outcomes)
					known[i][c.Outcomes] = b
				}
				if b >= 2*win-differ-1e-9 {
					covered += c.probability
				}
			})
			least[i] = min(least[i], covered)
		}
	}
	return least
}

var differing = []float64{.01, .02, .05, .1, .2, .4, .8}

func measureBounds(g *grid) {
	g.filled(len(commons)*len(differing), func(i int) (at, figures []float64) {
		n, differ := commons[i/len(differing)], differing[i%len(differing)]
		return []float64{float64(n), differ}, boundRow(n, differ)
	})
}
