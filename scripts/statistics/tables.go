package main

import (
	"fmt"
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

// The names of the grids.
const (
	shares      = "shares"
	edges       = "edges"
	kappas      = "kappas"
	alphas      = "alphas"
	few         = "few"
	many        = "many"
	lowerEnds   = "lower ends"
	looks       = "looks"
	anchorBound = "Anchor bound"
	anchorGap   = "Anchor gap"
	anchorHeld  = "Anchor held"
	anchorDelay = "Anchor delay"
	promoted    = "promoted"
	rolledBack  = "rolled back"
	repeated    = "repeated questions"
	verdicts    = "verdicts"
	wins        = "wins"
	paired      = "paired"
	means       = "means"
	improved    = "improved"
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

// blank returns the grids without rows.
func blank() grids {
	judged := func(verdicts string) *grid {
		return &grid{
			at: []string{"se", "sp", "labels per class, " + verdicts + " verdicts"}, figures: headed("rate ", rates),
		}
	}
	var ours, walds []string
	for _, n := range classes {
		ours = append(ours, fmt.Sprint("ours, ", n))
		walds = append(walds, fmt.Sprint("Wald, ", n))
	}
	all := grids{
		shares: {at: []string{"labels"}, figures: append(headed("at ", proportions), "least of .001 to .999")},
		edges:  {at: []string{"n", "p"}, figures: []string{"Wilson", "Clopper–Pearson"}},
		kappas: {
			at: []string{"se", "sp", "passing", "kappa"}, figures: append(append(ours, walds...), "ours overstates"),
		},
		alphas: {
			at:      []string{"items", "people", "passing", "errors of a person"},
			figures: []string{"covered", "above the truth"},
		},
		few:  judged("200"),
		many: judged("1000"),
		lowerEnds: {
			at:      []string{"se", "sp", "labels per class, lower end"},
			figures: headed("rate ", rates), kind: errors,
		},
		looks: {
			at:      []string{"base", "canary", "r", "canary's share"},
			figures: []string{"promoted", "rolled back", "promoted by a peeked z-test"}, kind: errors,
		},
		wins: {at: []string{"cases", "ties"}, figures: []string{
			"gate's bound, 5 %", "gate's bound, 1.25 %", "gate's bound, 0.3125 %",
			"half of the ties won, 5 %", "shown interval, 95 %",
		}},
		paired: {at: []string{"cases", "first", "second"}, figures: headed("correlation ", correlated)},
		means: {
			at:      []string{"prompts"},
			figures: append(headed("0 or 1, mean ", passRates), "even, mean 0.5", "mostly low, mean 0.25"),
		},
		improved: {at: []string{"prompts", "better", "worse"}, figures: []string{"covered", "proven better"}},
	}
	blankCanaries(all)
	blankGates(all)
	blankAnchors(all)
	return all
}

// blankAnchors adds the grids about anchors.
func blankAnchors(all grids) {
	all[anchorBound] = &grid{at: []string{"items", "share that differs"}, figures: []string{
		"score bound (Tango)", "Newcombe", "exact bound",
	}}
	all[anchorGap] = &grid{
		at:      []string{"common items of each class", "disagreement"},
		figures: []string{"c, median", "c, nine in ten"}, kind: errors,
	}
	all[anchorHeld] = &grid{
		at: []string{
			"common items of each class", "good: reward alone", "good: anchor alone", "bad: reward alone",
			"bad: anchor alone", "anchor fails", "good at first", "good at last",
		},
		figures: []string{"held"}, kind: errors,
	}
	all[anchorDelay] = &grid{
		at:      []string{"common items of each class", "gap of the run"},
		figures: []string{"% held", "median check"}, kind: counts,
	}
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
	all[repeated] = &grid{
		at: append([]string{"questions"}, world("canary, repeated")...), figures: askedAndCounted, kind: errors,
	}
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
	{[]string{alphas}, func(all grids) { measureAlpha(all[alphas]) }},
	{[]string{few}, func(all grids) { measureCorrected(all[few], 200) }},
	{[]string{many}, func(all grids) { measureCorrected(all[many], 1000) }},
	{[]string{lowerEnds}, func(all grids) { measureLowerEnds(all[lowerEnds], 200) }},
	{[]string{wins, paired}, func(all grids) { measureComparisons(all[wins], all[paired]) }},
	{[]string{means, improved}, func(all grids) { measureMeans(all[means], all[improved]) }},
	{[]string{promoted}, func(all grids) { wrongly(all[promoted], bad(), stat.Promote, canaryRuns) }},
	{[]string{rolledBack}, func(all grids) { wrongly(all[rolledBack], equal(), stat.Rollback, equalRuns) }},
	{[]string{repeated}, func(all grids) { measureRepeats(all[repeated]) }},
	{[]string{verdicts}, func(all grids) { measurePower(all[verdicts]) }},
	{[]string{looks}, func(all grids) { measureLooks(all[looks]) }},
	{[]string{anchorBound}, func(all grids) { measureBounds(all[anchorBound]) }},
	{[]string{anchorGap}, func(all grids) { measureGap(all[anchorGap]) }},
	{[]string{anchorHeld}, func(all grids) { measureHeld(all[anchorHeld]) }},
	{[]string{anchorDelay}, func(all grids) { measureDelay(all[anchorDelay]) }},
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
