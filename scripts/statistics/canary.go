package main

import (
	"math"
	"math/rand/v2"
	"slices"

	"sovereign/internal/grade/stat"
)

// The sizes of the simulations of canaries.
const (
	canaryRuns = 4000
	equalRuns  = 2000
	margin     = 0.05
	labels     = 100 // of each class, in a judge's calibration
	phases     = 24  // of a run: within one, nothing drifts
	sure       = 0.99
)

// A world is the truth about a canary, its judge and its traffic. Rates count an error as a bad answer.
type world struct {
	base, worse float64 // the base's true rate, and how much lower the canary's is
	percent     int     // of the requests that the canary gets
	judge       [2]float64
	scenario
}

// A scenario is what happens to a canary besides.
type scenario struct {
	name     string
	from, to float64 // what is added to both rates at the beginning and at the end; it changes steadily
	ramp     bool    // in the first third the canary gets 5 %, and both rates are lower by 0.1
	errors   [2]bool // half of the arm's bad answers are errors: of the base, of the canary
	lost     float64 // of bad answers and of no others, the share without a verdict
}

var scenarios = []scenario{
	{name: "still"},
	{name: "rising", from: -0.1},
	{name: "falling", to: -0.1},
	{name: "percent changed", ramp: true},
	{name: "base errs", errors: [2]bool{true, false}},
	{name: "canary errs", errors: [2]bool{false, true}},
	{name: "verdicts lost", lost: 0.2},
	{name: "all of it", from: -0.1, ramp: true, errors: [2]bool{true, true}, lost: 0.2},
}

// requests is how many requests a run has: 3,000 with an even split, and 6,000 at 10 %.
func (w *world) requests() int { return 3000 + 75*(50-w.percent) }

// odds are the cumulative probabilities of a request's results.
type odds struct{ passed, rejected, errored float64 }

// draw returns a random result, and a uniform number that does not depend on it.
func (o *odds) draw(r *rand.Rand) (stat.Result, float64) {
	switch u := r.Float64(); {
	case u < o.passed:
		return stat.Passed, 0
	case u < o.rejected:
		return stat.Rejected, 0
	case u < o.errored:
		return stat.Errored, r.Float64()
	}
	return stat.Missing, 0
}

// A phase is a part of a run in which nothing changes.
type phase struct {
	stratum, percent int
	arms             [2]odds
}

func (w *world) phases() (all [phases]phase) {
	for i := range all {
		progress := (float64(i) + 0.5) / phases
		shift := w.from + (w.to-w.from)*progress
		p := phase{stratum: 1, percent: w.percent}
		switch {
		case w.ramp && progress < 1.0/3:
			p.percent, shift = 5, shift-0.1
		case w.ramp:
			p.stratum = 2
		}
		for arm, rate := range []float64{w.base + shift, w.base - w.worse + shift} {
			p.arms[arm] = w.odds(rate, w.errors[arm])
		}
		all[i] = p
	}
	return all
}

// odds returns what becomes of requests to an arm with this true rate.
func (w *world) odds(rate float64, errs bool) odds {
	bad := 1 - rate
	errored := 0.0
	if errs {
		errored = bad / 2
		bad -= errored
	}
	seen := 1 - w.lost
	passed := rate*w.judge[0] + bad*seen*(1-w.judge[1])
	rejected := rate*(1-w.judge[0]) + bad*seen*w.judge[1]
	return odds{passed, passed + rejected, passed + rejected + errored}
}

// calibrated returns a random calibration of a judge.
func calibrated(r *rand.Rand, judge [2]float64, labels int64) stat.Table {
	t := stat.Table{TP: binomial(r, labels, judge[0]), TN: binomial(r, labels, judge[1])}
	t.FN, t.FP = labels-t.TP, labels-t.TN
	return t
}

func binomial(r *rand.Rand, n int64, p float64) (x int64) {
	for range n {
		if r.Float64() < p {
			x++
		}
	}
	return x
}

// A run is a canary that a gate judges.
type run struct {
	random   *rand.Rand
	phases   *[phases]phase
	gate     stat.Gate
	requests int
	evidence stat.Evidence
	seen     [2]int64 // requests to the base and to the canary
}

// sample returns the next request of a phase, of which nothing is known but its arm.
func (r *run) sample(p *phase) stat.Sample {
	return stat.Sample{Stratum: p.stratum, Percent: p.percent, Canary: r.random.Float64()*100 < float64(p.percent)}
}

// armOf returns the index of an arm: 0 for the base and 1 for the canary.
func armOf(canary bool) int {
	if canary {
		return 1
	}
	return 0
}

// count counts a request.
func (r *run) count(s stat.Sample) {
	r.seen[armOf(s.Canary)]++
	r.evidence.Add(s, r.gate.FalsePass)
}

// add counts the next request of a phase.
func (r *run) add(p *phase) stat.Sample {
	s := r.sample(p)
	s.Result, s.Uniform = p.arms[armOf(s.Canary)].draw(r.random)
	r.count(s)
	return s
}

// decision asks the gate after every request until it decides.
func (r *run) decision() stat.Decision {
	for i := range r.requests {
		r.add(&r.phases[i*phases/r.requests])
		if d := r.gate.Judge(r.evidence); d == stat.Promote || d == stat.Rollback {
			return d
		}
	}
	return stat.Continue
}

// ever reports whether a gate that is asked after every request ever makes a decision, also after it has made the
// other.
func (r *run) ever(wanted stat.Decision) bool {
	for i := range r.requests {
		if r.decides(r.add(&r.phases[i*phases/r.requests]), wanted) {
			return true
		}
	}
	return false
}

// decides asks the gate for a decision, after s was counted. It does not ask where the answer is known: a sample that
// counts against a decision does not bring it about.
func (r *run) decides(s stat.Sample, wanted stat.Decision) bool {
	good := s.Canary == (s.Result == stat.Passed) // a pass of the canary, or no pass of the base
	if good != (wanted == stat.Promote) && min(r.seen[0], r.seen[1]) > minimum {
		return false
	}
	return r.gate.Judge(r.only(wanted)) == wanted
}

// only returns the evidence without any for the other decision.
func (r *run) only(wanted stat.Decision) stat.Evidence {
	if wanted == stat.Promote {
		return stat.Evidence{Promote: r.evidence.Promote}
	}
	hopeless := stat.Stratum{Base: stat.Arm{N: r.seen[0], Passed: r.seen[0]}, Canary: stat.Arm{N: r.seen[1]}}
	return stat.Evidence{Promote: stat.Strata{hopeless}, RollBack: r.evidence.RollBack}
}

// run begins a run with a judge that is calibrated anew.
func (w *world) run(random *rand.Rand, all *[phases]phase, labels int64, requests int) *run {
	gate := stat.NewGate(calibrated(random, w.judge, labels), margin, minimum)
	return &run{random: random, phases: all, gate: gate, requests: requests}
}

// share returns how often a wrong decision is ever made: the 99 % upper bound of its probability.
func (w *world) share(runs int, wrong stat.Decision, stream uint64) float64 {
	random := rand.New(rand.NewPCG(seed, stream))
	all := w.phases()
	var count int64
	for range runs {
		if w.run(random, &all, labels, w.requests()).ever(wrong) {
			count++
		}
	}
	return stat.UpperBound(count, int64(runs), sure)
}

var (
	canaryJudges = [][2]float64{{1, 1}, {.95, .90}, {.85, .95}}
	canaryBases  = []float64{.6, .9, .97}
	percents     = []int{10, 50}
)

// worlds returns the rows of a table: every base rate, split and judge, with these differences.
func worlds(bases, differences []float64) (all []world) {
	for _, base := range bases {
		for _, worse := range differences {
			for _, percent := range percents {
				for _, judge := range canaryJudges {
					all = append(all, world{base: base, worse: worse, percent: percent, judge: judge})
				}
			}
		}
	}
	return all
}

func (w *world) at() []float64 {
	canary := math.Round((w.base-w.worse)*1e4) / 1e4
	return []float64{w.base, canary, float64(w.percent), w.judge[0], w.judge[1]}
}

// wrongly fills a table with how often a wrong decision is reached, in each world and scenario.
func wrongly(g *grid, rows []world, wrong stat.Decision, runs int) {
	shares := make([]float64, len(rows)*len(scenarios))
	parallel(len(shares), func(i int) {
		w := rows[i/len(scenarios)]
		w.scenario = scenarios[i%len(scenarios)]
		shares[i] = w.share(runs, wrong, uint64(i))
	})
	for i := range rows {
		g.add(rows[i].at(), shares[i*len(scenarios):][:len(scenarios)])
	}
}

// bad are canaries that are worse by the margin, and a few that are worse by twice that.
func bad() []world {
	all := worlds(canaryBases, []float64{margin})
	for _, percent := range percents {
		all = append(all, world{base: .9, worse: 2 * margin, percent: percent, judge: canaryJudges[1]})
	}
	return all
}

// equal are canaries that are as good as the base.
func equal() []world { return worlds(canaryBases, []float64{0}) }

// The runs of which sizes are reported.
const (
	powerRuns     = 200
	powerLabels   = 200
	powerRequests = 40_000
)

// A power is a world of which the number of verdicts until a decision is reported.
type power struct {
	world
	want stat.Decision
}

func powers() (all []power) {
	for _, c := range []struct {
		base, worse float64
		percent     int
		want        stat.Decision
	}{
		{.9, 0, 50, stat.Promote},
		{.9, 0, 10, stat.Promote},
		{.9, 0, 5, stat.Promote},
		{.97, 0, 10, stat.Promote},
		{.9, -.03, 10, stat.Promote},
		{.9, .1, 10, stat.Rollback},
		{.9, .2, 10, stat.Rollback},
		{.9, .2, 50, stat.Rollback},
	} {
		for _, judge := range [][2]float64{{1, 1}, {.95, .95}, {.9, .9}} {
			all = append(all, power{world{base: c.base, worse: c.worse, percent: c.percent, judge: judge}, c.want})
		}
	}
	return all
}

// sizes returns the share of runs that reach the wanted decision, in percent, and the median verdicts by then on the
// canary and in all.
func (p *power) sizes(stream uint64) []float64 {
	r := rand.New(rand.NewPCG(seed, stream))
	all := p.phases()
	var canary, requests []int64
	for range powerRuns {
		one := p.run(r, &all, powerLabels, powerRequests)
		if one.decision() == p.want {
			canary, requests = append(canary, one.seen[1]), append(requests, one.seen[0]+one.seen[1])
		}
	}
	if len(canary) == 0 {
		return []float64{0, 0, 0}
	}
	slices.Sort(canary)
	slices.Sort(requests)
	middle := len(canary) / 2
	return []float64{100 * float64(len(canary)) / powerRuns, float64(canary[middle]), float64(requests[middle])}
}

func measurePower(g *grid) {
	rows := powers()
	g.filled(len(rows), func(i int) (at, figures []float64) { return rows[i].at(), rows[i].sizes(uint64(i)) })
}
