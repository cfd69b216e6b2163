package main

import (
	"math"
	"math/rand/v2"

	"sovereign/internal/domain/eval"
	"sovereign/internal/grade/stat"
)

// The numbers of simulated runs of an eval per row. Bounds that are nearly exact need more of them: the rest above
// their true share must stay below 5 %.
const (
	evalRuns  = 4000
	exactRuns = 20_000
)

// fields are the numbers of candidates of which the gate's errors are measured.
var fields = []int{1, 4, 16}

// An evaluation is the truth about the candidates of an eval, which are all just as bad as the threshold allows.
type evaluation interface {
	at() []float64
	// begin draws what the candidates of one run have in common, and returns the thresholds and a function that draws a
	// candidate's evidence.
	begin(r *rand.Rand) (eval.Thresholds, func() *eval.Evidence)
}

// passes returns how often at least one of k candidates passes: the 99 % upper bound of the probability.
func passes(e evaluation, k, runs int, stream uint64) float64 {
	r := rand.New(rand.NewPCG(seed, stream))
	var wrong int64
	for range runs {
		thresholds, draw := e.begin(r)
		thresholds.Confidence = confidence
		passed := false
		for range k {
			evidence := draw()
			evidence.Candidates = int64(k)
			passed = judged(&thresholds, evidence) || passed
		}
		if passed {
			wrong++
		}
	}
	return stat.UpperBound(wrong, int64(runs), sure)
}

// judged reports whether a candidate passes all checks.
func judged(t *eval.Thresholds, e *eval.Evidence) bool {
	checks, err := t.Judge(e)
	if err != nil {
		panic(err) // the thresholds of a simulation fit its evidence
	}
	for i := range checks {
		if !checks[i].Pass {
			return false
		}
	}
	return true
}

// gated fills a table with how often a gate passes what it must not, by the number of candidates.
func gated[E evaluation](g *grid, rows []E, runs int) {
	shares := make([]float64, len(rows)*len(fields))
	parallel(len(shares), func(i int) {
		shares[i] = passes(rows[i/len(fields)], fields[i%len(fields)], runs, uint64(i))
	})
	for i, row := range rows {
		g.add(row.at(), shares[i*len(fields):][:len(fields)])
	}
}

// A winner is compared by a rubric. Its true win rate is the threshold.
type winner struct {
	cases      int64
	rate, ties float64
	lost       float64 // of losses and ties, the share without a judgement
}

var winners = []winner{
	{50, .5, 0, 0},
	{50, .5, .3, 0},
	{50, .5, .8, 0},
	{200, .5, 0, 0},
	{200, .5, .3, 0},
	{200, .5, .8, 0},
	{200, .6, .3, 0},
	{200, .8, .1, 0},
	{200, .45, .5, 0},
	{200, .5, .3, .2},
}

func (w winner) at() []float64 { return []float64{float64(w.cases), w.rate, w.ties, w.lost} }

func (w winner) begin(r *rand.Rand) (eval.Thresholds, func() *eval.Evidence) {
	wins := w.rate - w.ties/2
	return eval.Thresholds{MinWinRate: &w.rate}, func() *eval.Evidence {
		e := &eval.Evidence{Cases: w.cases, Pairwise: true}
		for range w.cases {
			switch u := r.Float64(); {
			case u < wins:
				e.Outcomes.Wins++
			case u < wins+w.ties*(1-w.lost):
				e.Outcomes.Ties++
			default: // also without a judgement
				e.Outcomes.Losses++
			}
		}
		return e
	}
}

// A pupil is graded by a criterion, as is the baseline. Judgements that are lost go with bad answers.
type pupil struct {
	cases      int64
	base, rate float64 // the true rates
	judge      [2]float64
	lost       float64
	regression bool // whether the threshold is on the regression, and not on the rate
}

func (p pupil) at() []float64 {
	at := []float64{float64(p.cases), p.rate, p.judge[0], p.judge[1], p.lost}
	if p.regression {
		at = append([]float64{float64(p.cases), p.base, p.rate}, at[2:]...)
	}
	return at
}

// verdict returns whether an answer passes, and whether there is a verdict.
func (p pupil) verdict(r *rand.Rand, good bool) (pass, known bool) {
	if good {
		return r.Float64() < p.judge[0], true
	}
	return r.Float64() >= p.judge[1], r.Float64() >= p.lost
}

func (p pupil) begin(r *rand.Rand) (eval.Thresholds, func() *eval.Evidence) {
	judge := calibrated(r, p.judge, labels)
	type answer struct{ good, pass, known bool }
	baseline := make([]answer, p.cases)
	for i := range baseline {
		good := r.Float64() < p.base
		pass, known := p.verdict(r, good)
		baseline[i] = answer{good, pass, known}
	}
	thresholds := eval.Thresholds{MinPassRate: &p.rate}
	if allowed := p.base - p.rate; p.regression {
		thresholds = eval.Thresholds{MaxRegression: &allowed}
	}
	// Half of the candidate's answers are good exactly where the baseline's are, as of models that are alike.
	alone := [2]float64{p.rate, p.rate}
	if p.rate <= p.base {
		alone = [2]float64{p.rate / p.base, 0}
	}
	return thresholds, func() *eval.Evidence {
		e := &eval.Evidence{Cases: p.cases, Judge: &judge}
		for _, b := range baseline {
			chance := p.rate
			if r.Float64() < 0.5 {
				chance = alone[1]
				if b.good {
					chance = alone[0]
				}
			}
			pass, known := p.verdict(r, r.Float64() < chance)
			switch {
			case !known || !b.known:
				e.Pairs.Second++
			case pass && b.pass:
				e.Pairs.Both++
			case pass:
				e.Pairs.First++
			case b.pass:
				e.Pairs.Second++
			default:
				e.Pairs.Neither++
			}
		}
		return e
	}
}

// pupils returns rows with every judge.
func pupils(regression bool) (all []pupil) {
	truths := [][2]float64{{.9, .5}, {.9, .8}, {.97, .95}}
	if regression {
		truths = [][2]float64{{.6, .55}, {.9, .85}, {.97, .92}}
	}
	for _, truth := range truths {
		for _, judge := range canaryJudges {
			all = append(all, pupil{400, truth[0], truth[1], judge, 0, regression})
		}
		all = append(all, pupil{400, truth[0], truth[1], canaryJudges[1], .2, regression})
	}
	return all
}

// A spender has costs and latencies with log-normal distributions, whose ratio to the baseline's is the threshold.
type spender struct {
	cases   int
	spread  float64 // the standard deviation of the logarithm
	latency bool
}

// spenders returns rows with every spread. A bound of a median does not depend on it.
func spenders(latency bool) (all []spender) {
	spreads := []float64{.25, .5, 1}
	if latency {
		spreads = spreads[1:2]
	}
	for _, cases := range []int{20, 50, 200} {
		for _, spread := range spreads {
			all = append(all, spender{cases, spread, latency})
		}
	}
	return all
}

func (s spender) at() []float64 { return []float64{float64(s.cases), s.spread} }

func (s spender) begin(r *rand.Rand) (eval.Thresholds, func() *eval.Evidence) {
	threshold := 0.8
	size := func() float64 { return math.Exp(s.spread * r.NormFloat64()) }
	prompts, baseline := make([]float64, s.cases), make([]float64, s.cases)
	for i := range baseline {
		prompts[i] = size()
		baseline[i] = prompts[i] + size()
	}
	thresholds := eval.Thresholds{MaxCostRatio: &threshold}
	if s.latency {
		thresholds = eval.Thresholds{MaxLatencyRatio: &threshold}
	}
	return thresholds, func() *eval.Evidence {
		e := &eval.Evidence{Cases: int64(s.cases)}
		for i, cost := range baseline {
			if s.latency {
				e.Latencies = append(e.Latencies, threshold*size())
			} else {
				e.Costs = append(e.Costs, [2]float64{threshold * (prompts[i] + size()), cost})
			}
		}
		return e
	}
}

// enough is the power at which the cases that an eval needs are reported.
const enough = 0.8

// plan fills the tables of how many cases an eval needs.
func plan(winCases, gradeCases *grid) {
	needed := func(cases func(alpha float64) int64) (out []float64) {
		for _, k := range fields {
			out = append(out, float64(cases((1-confidence)/float64(k))))
		}
		return out
	}
	for _, rate := range []float64{.55, .6, .7} {
		for _, ties := range []float64{0, .3, .6} {
			winCases.add([]float64{rate, ties}, needed(func(alpha float64) int64 {
				return stat.Compared(rate, ties).CasesNeeded(enough, 0, alpha)
			}))
		}
	}
	for _, rates := range [][2]float64{{.9, .9}, {.9, .92}, {.97, .97}, {.6, .6}} {
		for _, allowed := range []float64{.05, .1} {
			for _, judge := range [][2]float64{{1, 1}, {.95, .95}, {.9, .9}} {
				at := []float64{rates[0], rates[1], allowed, judge[0], judge[1]}
				gradeCases.add(at, needed(func(alpha float64) int64 {
					return stat.CasesToGrade(rates[1], rates[0], allowed, expected(judge), enough, alpha)
				}))
			}
		}
	}
}

// expected returns a judge's most likely calibration.
func expected(judge [2]float64) stat.Table {
	right := func(share float64) int64 { return int64(math.Round(powerLabels * share)) }
	return stat.Table{
		TP: right(judge[0]), FN: powerLabels - right(judge[0]), TN: right(judge[1]), FP: powerLabels - right(judge[1]),
	}
}
