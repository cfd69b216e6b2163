package main

import (
	"fmt"
	"math"
	"os"
	"regexp"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"sovereign/internal/grade/stat"
)

const confidence = 0.95

// The names of the grids.
const (
	shares      = "shares"
	edges       = "edges"
	kappas      = "kappas"
	few         = "few"
	many        = "many"
	looks       = "looks"
	holds       = "holds"
	promoted    = "promoted"
	rolledBack  = "rolled back"
	verdicts    = "verdicts"
	wins        = "wins"
	paired      = "paired"
	winGate     = "win gate"
	passGate    = "pass gate"
	regressGate = "regression gate"
	costGate    = "cost gate"
	latencyGate = "latency gate"
	winCases    = "win cases"
	gradeCases  = "grade cases"
)

// grids are the tables of the page, by name.
type grids map[string]*grid

// The true values at which coverage is measured.
var (
	proportions = []float64{.5, .7, .8, .9, .95, .98, .99, .995}
	sizes       = []int64{20, 30, 50, 100, 200, 500}
	classes     = []int64{30, 50, 100, 200} // labels of the smaller class
	passing     = []float64{.5, .8}         // the share of passes among labels
	rates       = []float64{.02, .1, .3, .5, .7, .9, .98}
	judges      = [][2]float64{{.8, .8}, {.9, .9}, {.95, .95}, {.99, .99}, {.8, .95}, {.95, .8}, {.9, .99}, {.99, .9}} // se, sp
	narrow      = []struct {
		n int64
		p float64
	}{{50, .99}, {30, .995}, {100, .99}, {200, .995}, {50, .95}}
)

// blank returns the grids without rows.
func blank() grids {
	judged := func(verdicts string) *grid {
		return &grid{at: []string{"se", "sp", "labels per class, " + verdicts + " verdicts"}, figures: headed("rate ", rates)}
	}
	var ours, walds []string
	for _, n := range classes {
		ours = append(ours, fmt.Sprint("ours, ", n))
		walds = append(walds, fmt.Sprint("Wald, ", n))
	}
	all := grids{
		shares: {at: []string{"labels"}, figures: append(headed("at ", proportions), "least of .001 to .999")},
		edges:  {at: []string{"n", "p"}, figures: []string{"Wilson", "Clopper–Pearson"}},
		kappas: {at: []string{"se", "sp", "passing", "kappa"}, figures: append(append(ours, walds...), "ours overstates")},
		few:    judged("200"),
		many:   judged("1000"),
		looks: {
			at:      []string{"base", "canary", "r", "canary's share"},
			figures: []string{"promoted", "rolled back", "promoted by a peeked z-test"}, kind: errors,
		},
		holds: {
			at:      []string{"c", "only the reward passes", "only the anchor passes"},
			figures: []string{"held"}, kind: errors,
		},
		wins: {at: []string{"cases", "ties"}, figures: []string{
			"gate's bound, 5 %", "gate's bound, 1.25 %", "gate's bound, 0.3125 %",
			"half of the ties won, 5 %", "shown interval, 95 %",
		}},
		paired: {at: []string{"cases", "first", "second"}, figures: headed("correlation ", correlated)},
	}
	blankCanaries(all)
	blankGates(all)
	return all
}

// blankCanaries adds the grids about canaries.
func blankCanaries(all grids) {
	var names []string
	for i := range scenarios {
		names = append(names, scenarios[i].name)
	}
	world := func(question string) []string { return []string{"base", question, "percent", "se", "sp"} }
	all[promoted] = &grid{at: world("canary, promoted"), figures: names, kind: errors}
	all[rolledBack] = &grid{at: world("canary, rolled back"), figures: names, kind: errors}
	decided := []string{"% decided", "verdicts on the canary", "requests"}
	all[verdicts] = &grid{at: world("canary, decided"), figures: decided, kind: counts}
}

// blankGates adds the grids about evals.
func blankGates(all grids) {
	candidates := []string{"1 candidate", "4 candidates", "16 candidates"}
	gate := func(at ...string) *grid { return &grid{at: at, figures: candidates, kind: errors} }
	cases := func(at ...string) *grid { return &grid{at: at, figures: candidates, kind: counts} }
	all[winGate] = gate("cases", "win rate", "ties", "lost")
	all[passGate] = gate("cases", "pass rate", "se", "sp", "lost")
	all[regressGate] = gate("cases", "baseline", "candidate", "se", "sp", "lost")
	all[costGate] = gate("cases", "spread of costs")
	all[latencyGate] = gate("cases", "spread of latencies")
	all[winCases] = cases("true win rate", "ties, cases to prove above 0.5")
	all[gradeCases] = cases("baseline", "candidate", "r", "se", "sp, cases to prove")
}

func headed(prefix string, values []float64) []string {
	out := make([]string, len(values))
	for i, v := range values {
		out[i] = prefix + strconv.FormatFloat(v, 'f', -1, 64)
	}
	return out
}

// steps fill the grids.
var steps = []struct {
	fills   []string
	measure func(all grids)
}{
	{[]string{shares, edges}, func(all grids) { measureShares(all[shares], all[edges]) }},
	{[]string{kappas}, func(all grids) { measureKappa(all[kappas]) }},
	{[]string{few}, func(all grids) { measureCorrected(all[few], 200) }},
	{[]string{many}, func(all grids) { measureCorrected(all[many], 1000) }},
	{[]string{wins, paired}, func(all grids) { measureComparisons(all[wins], all[paired]) }},
	{[]string{promoted}, func(all grids) { wrongly(all[promoted], bad(), stat.Promote, canaryRuns) }},
	{[]string{rolledBack}, func(all grids) { wrongly(all[rolledBack], equal(), stat.Rollback, equalRuns) }},
	{[]string{verdicts}, func(all grids) { measurePower(all[verdicts]) }},
	{[]string{looks, holds}, func(all grids) { measureLooks(all[looks], all[holds]) }},
	{[]string{winGate}, func(all grids) { gated(all[winGate], winners, exactRuns) }},
	{[]string{passGate}, func(all grids) { gated(all[passGate], pupils(false), evalRuns) }},
	{[]string{regressGate}, func(all grids) { gated(all[regressGate], pupils(true), evalRuns) }},
	{[]string{costGate}, func(all grids) { gated(all[costGate], spenders(false), evalRuns) }},
	{[]string{latencyGate}, func(all grids) { gated(all[latencyGate], spenders(true), exactRuns) }},
	{[]string{winCases, gradeCases}, func(all grids) { plan(all[winCases], all[gradeCases]) }},
}

// measure fills all grids. Those whose names do not match are taken from the page as it is.
func measure(match *regexp.Regexp, page string) (grids, error) {
	all := blank()
	for _, step := range steps {
		if slices.ContainsFunc(step.fills, match.MatchString) {
			start := time.Now()
			step.measure(all)
			took := time.Since(start).Round(time.Millisecond)
			fmt.Fprintf(os.Stderr, "%s: %v\n", strings.Join(step.fills, ", "), took)
			continue
		}
		for _, name := range step.fills {
			if err := all[name].parse(page); err != nil {
				return nil, err
			}
		}
	}
	return all, nil
}

func measureShares(shares, edges *grid) {
	for _, n := range sizes {
		shares.add([]float64{float64(n)}, shareRow(n))
	}
	for _, e := range narrow {
		edges.add([]float64{float64(e.n), e.p}, edgeRow(e.n, e.p))
	}
}

func measureLooks(looks, holds *grid) {
	looks.filled(len(canaries), func(i int) (at, figures []float64) { return canaries[i].at(), canaries[i].figures() })
	holds.filled(len(runs), func(i int) (at, figures []float64) {
		return []float64{runs[i].gap, runs[i].plus, runs[i].minus}, []float64{runs[i].held()}
	})
}

// parallel calls f with 0 to n-1, on all processors.
func parallel(n int, f func(i int)) {
	var work sync.WaitGroup
	var next atomic.Int64
	for range runtime.GOMAXPROCS(0) {
		work.Go(func() {
			for i := int(next.Add(1)) - 1; i < n; i = int(next.Add(1)) - 1 {
				f(i)
			}
		})
	}
	work.Wait()
}

// filled computes rows in parallel, and adds them in their order.
func (g *grid) filled(n int, row func(i int) (at, figures []float64)) {
	rows := make([][2][]float64, n)
	parallel(n, func(i int) { rows[i][0], rows[i][1] = row(i) })
	for _, r := range rows {
		g.add(r[0], r[1])
	}
}

// An outcome is a count and its probability.
type outcome struct {
	x           int64
	probability float64
}

// rare is the probability that is left out of each tail of a binomial distribution. It counts as not covered.
const rare = 1e-7

// outcomes returns the binomial distribution without its rare tails.
func outcomes(n int64, p float64) []outcome {
	all, _ := math.Lgamma(float64(n + 1))
	probability := make([]float64, n+1)
	for x := range probability {
		a, _ := math.Lgamma(float64(x + 1))
		b, _ := math.Lgamma(float64(n) - float64(x) + 1)
		probability[x] = math.Exp(all - a - b + float64(x)*math.Log(p) + (float64(n)-float64(x))*math.Log1p(-p))
	}
	low, high := 0, len(probability)-1
	for tail := probability[low]; tail < rare; tail += probability[low] {
		low++
	}
	for tail := probability[high]; tail < rare; tail += probability[high] {
		high--
	}
	out := make([]outcome, 0, high-low+1)
	for x := low; x <= high; x++ {
		out = append(out, outcome{int64(x), probability[x]})
	}
	return out
}

// covered returns the probability that the interval of a proportion contains it.
func covered(n int64, p float64, interval func(x, n int64, confidence float64) stat.Interval) float64 {
	sum := 0.0
	for _, o := range outcomes(n, p) {
		if interval(o.x, n, confidence).Contains(p) {
			sum += o.probability
		}
	}
	return sum
}

// shareRow returns the coverage of certified intervals of n labels.
func shareRow(n int64) []float64 {
	known := make([]stat.Interval, n+1)
	for x := range known {
		known[x] = stat.ClopperPearson(int64(x), n, confidence)
	}
	lookup := func(x, _ int64, _ float64) stat.Interval { return known[x] }
	var out []float64
	for _, p := range proportions {
		out = append(out, covered(n, p, lookup))
	}
	least := 1.0
	for i := 1; i < 1000; i++ {
		least = min(least, covered(n, float64(i)/1000, lookup))
	}
	return append(out, least)
}

func edgeRow(n int64, p float64) []float64 {
	return []float64{covered(n, p, stat.Wilson), covered(n, p, stat.ClopperPearson)}
}

// labelled returns the number of labels of each class, of which the smaller has n.
func labelled(n int64, passing float64) (pass, fail int64) {
	odds := passing / (1 - passing)
	return int64(math.Round(float64(n) * max(odds, 1))), int64(math.Round(float64(n) * max(1/odds, 1)))
}

// trueKappa returns the true kappa of a judge when a given share of labels passes.
func trueKappa(judge [2]float64, passing float64) float64 {
	judged := passing*judge[0] + (1-passing)*(1-judge[1])
	agreed := passing*judge[0] + (1-passing)*judge[1]
	chance := passing*judged + (1-passing)*(1-judged)
	return (agreed - chance) / (1 - chance)
}

// A memory caches intervals of kappa, which are the most expensive to compute.
type memory map[stat.Table]stat.Interval

func (m memory) interval(t stat.Table) stat.Interval {
	if i, ok := m[t]; ok {
		return i
	}
	i, _ := stat.KappaInterval(t, confidence)
	m[t] = i
	return i
}

// A kept holds the coverage of KappaInterval and of the Wald interval, and how often KappaInterval lies above the true value.
type kept struct{ ours, wald, above float64 }

func (m memory) kappa(judge [2]float64, passing float64, n int64) (k kept) {
	truth, z := trueKappa(judge, passing), stat.Z(confidence)
	pass, fail := labelled(n, passing)
	specific := outcomes(fail, judge[1])
	for _, tp := range outcomes(pass, judge[0]) {
		for _, tn := range specific {
			table := stat.Table{TP: tp.x, FN: pass - tp.x, TN: tn.x, FP: fail - tn.x}
			probability := tp.probability * tn.probability
			if interval := m.interval(table); interval.Contains(truth) {
				k.ours += probability
			} else if interval[0] > truth {
				k.above += probability
			}
			if kappa, se, ok := table.Kappa(); ok && math.Abs(kappa-truth) <= z*se {
				k.wald += probability
			}
		}
	}
	return k
}

// measureKappa computes one number and mix of labels at a time, so that their intervals are computed once.
func measureKappa(g *grid) {
	results := make([][]kept, len(passing)*len(classes)) // by mix and size, and by judge
	parallel(len(results), func(i int) {
		known := memory{}
		for _, judge := range judges {
			results[i] = append(results[i], known.kappa(judge, passing[i/len(classes)], classes[i%len(classes)]))
		}
	})
	for j, judge := range judges {
		for p, share := range passing {
			byClass := make([]kept, len(classes))
			for c := range classes {
				byClass[c] = results[p*len(classes)+c][j]
			}
			g.add(kappaRow(judge, share, byClass))
		}
	}
}

func measureCorrected(g *grid, verdicts int64) {
	g.filled(len(judges)*len(classes), func(i int) (at, figures []float64) {
		judge, class := judges[i/len(classes)], classes[i%len(classes)]
		return []float64{judge[0], judge[1], float64(class)}, correctedRow(judge, class, verdicts)
	})
}

// kappaRow returns a row of the page from the results at each size.
func kappaRow(judge [2]float64, passing float64, byClass []kept) (at, figures []float64) {
	var walds []float64
	above := 0.0
	for _, k := range byClass {
		figures, walds, above = append(figures, k.ours), append(walds, k.wald), max(above, k.above)
	}
	kappa := math.Round(trueKappa(judge, passing)*1000) / 1000
	return []float64{judge[0], judge[1], passing, kappa}, append(append(figures, walds...), up(above))
}

// correctedRow returns the coverage of corrected rates, by the true rate, over random calibrations and samples, given that
// the calibration allows a correction. A sample that contradicts its calibration counts as not covered.
func correctedRow(judge [2]float64, class, verdicts int64) []float64 {
	type calibrated struct {
		stat.Correction
		probability float64
	}
	var corrections []calibrated
	allowed := 0.0
	for _, tp := range outcomes(class, judge[0]) {
		for _, tn := range outcomes(class, judge[1]) {
			c, refused := stat.Correctable(stat.Table{TP: tp.x, FN: class - tp.x, TN: tn.x, FP: class - tn.x}, confidence)
			if probability := tp.probability * tn.probability; refused == "" {
				corrections = append(corrections, calibrated{c, probability})
				allowed += probability
			}
		}
	}
	var out []float64
	for _, rate := range rates {
		sum := 0.0
		samples := outcomes(verdicts, rate*judge[0]+(1-rate)*(1-judge[1]))
		for _, c := range corrections {
			for _, sample := range samples {
				if _, interval, refused := c.RoganGladen(sample.x, verdicts); refused == "" && interval.Contains(rate) {
					sum += c.probability * sample.probability
				}
			}
		}
		out = append(out, sum/allowed)
	}
	return out
}
