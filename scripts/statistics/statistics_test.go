package main

import (
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"sovereign/internal/grade/stat"
)

const docs = "../../docs"

// published returns the figures of the page.
func published(t *testing.T) (all grids, text string) {
	t.Helper()
	content, err := os.ReadFile(filepath.Join(docs, page))
	if err != nil {
		t.Fatal(err)
	}
	all = blank()
	for _, g := range all {
		if err := g.parse(string(content)); err != nil {
			t.Fatal(err)
		}
	}
	return all, string(content)
}

// The text of the page and the plot are derived from the figures in the page.
func TestThePageAndThePlotMatchThePublishedFigures(t *testing.T) {
	all, text := published(t)
	again, err := report(all)
	if err != nil {
		t.Fatal(err)
	}
	if again != text {
		t.Errorf("%s does not match its own figures: run make statistics", page)
	}
	drawn, err := os.ReadFile(filepath.Join(docs, picture))
	if err != nil {
		t.Fatal(err)
	}
	if plot(all) != string(drawn) {
		t.Errorf("%s does not show the figures of %s: run make statistics", picture, page)
	}
	for name, rows := range map[string]int{
		means: len(prompts), improved: len(changes) * len(prompts),
		alphas: len(gradings) * len(graders) * len(sharedItems),
		shares: len(sizes), edges: len(narrow), kappas: len(judges) * len(passing), few: len(judges) * len(classes),
		many: len(judges) * len(classes), lowerEnds: len(judges) + 1, looks: len(canaries), wins: len(compared) * len(tied),
		paired: 2 * len(pairedRates), promoted: len(bad()), rolledBack: len(equal()), repeated: len(repetitions()), verdicts: len(powers()),
		winGate: len(winners), passGate: len(pupils(false)), regressGate: len(pupils(true)),
		costGate: len(spenders(false)), latencyGate: len(spenders(true)), winCases: 9, gradeCases: 24,
		anchorBound: len(commons) * len(differing), anchorGap: len(commons) * len(disagreeing),
		anchorHeld: len(commons) * len(healthyRuns), anchorDelay: len(commons) * len(gaps),
	} {
		if len(all[name].rows) != rows {
			t.Errorf("the table %s has %d rows, want %d", name, len(all[name].rows), rows)
		}
	}
}

// same fails when the published row at at does not have these figures.
func same(t *testing.T, g *grid, at, figures []float64) {
	t.Helper()
	want := &grid{}
	want.add(at, figures)
	for _, r := range g.rows {
		if slices.Equal(r.at, at) {
			for i, f := range want.rows[0].figures {
				if math.Abs(r.figures[i]-f) > 1.5e-4 { // other processors may round differently
					t.Errorf("at %v, %s is published as %v and is %v: run make statistics", at, g.figures[i], r.figures[i], f)
				}
			}
			return
		}
	}
	t.Errorf("there is no row at %v", at)
}

func TestPublishedFiguresMatchThisCode(t *testing.T) {
	all, _ := published(t)
	for _, n := range []int64{20, 50} {
		same(t, all[shares], []float64{float64(n)}, shareRow(n))
	}
	for _, e := range narrow {
		same(t, all[edges], []float64{float64(e.n), e.p}, edgeRow(e.n, e.p))
	}
	for _, judge := range [][2]float64{{.9, .99}, {.99, .99}} {
		k := memory{}.kappa(judge, .5, 30)
		at, _ := kappaRow(judge, .5, []kept{k})
		for _, r := range all[kappas].rows {
			if slices.Equal(r.at, at) && (math.Abs(r.figures[0]-k.ours) > 1.5e-4 || math.Abs(r.figures[len(classes)]-k.wald) > 1.5e-4) {
				t.Errorf("kappa at %v is published as covered %v and %v, and is %+v: run make statistics", at, r.figures[0], r.figures[len(classes)], k)
			}
		}
	}
	same(t, all[alphas], []float64{20, 2, .8, .1}, alphaRow(20, 2, .8, .1))
	same(t, all[few], []float64{.9, .99, 30}, correctedRow([2]float64{.9, .99}, 30, 200))
	same(t, all[lowerEnds], []float64{.99, .9, labels}, lowerEndRow([2]float64{.99, .9}, labels, 200))
	same(t, all[anchorBound], []float64{50, .1}, boundRow(50, .1))
	same(t, all[anchorGap], []float64{50, .1}, gapRow(50, .1))
	same(t, all[wins], []float64{20, .3}, winRow(20, .3))
	same(t, all[paired], []float64{30, .9, .8}, pairedRow(30, [2]float64{.9, .8}))
	same(t, all[means], []float64{40}, meanRow(40))
	same(t, all[improved], []float64{40, .3, .1}, changeRow(40, .3, .1))
	again := blank()
	plan(again[winCases], again[gradeCases])
	for _, name := range []string{winCases, gradeCases} {
		for _, r := range again[name].rows {
			same(t, all[name], r.at, r.figures)
		}
	}
}

func TestPublishedFiguresKeepEveryPromise(t *testing.T) {
	all, _ := published(t)
	if least := all[shares].least(0, len(proportions)+1); least < confidence {
		t.Errorf("certified intervals cover %v", least)
	}
	if least := min(all[means].least(0, len(passRates)+2), all[improved].least(0, 1)); least < confidence {
		t.Errorf("intervals of means cover %v", least)
	}
	if bad := worst(all[looks], 0); bad > alpha {
		t.Errorf("of bad canaries %v are promoted", bad)
	}
	for i, level := range levels {
		if least := all[wins].least(i, i+1); least < 1-level {
			t.Errorf("the gate's bound of a win rate covers %v, and promises %v", least, 1-level)
		}
	}
	if once := all[repeated].highest(alike, eachTime); !(once >= 0 && once <= alpha) {
		t.Errorf("of bad canaries with repeated questions up to %v are promoted", once)
	}
	if least := all[anchorBound].least(0, 1); least < 1-2*gapMisses {
		t.Errorf("the bound of a gap covers %v", least)
	}
	for _, name := range []string{anchorHeld, promoted, rolledBack, winGate, passGate, regressGate, costGate, latencyGate} {
		if most := all[name].highest(0, len(all[name].figures)); !(most >= 0 && most <= alpha) {
			t.Errorf("in the table %s a wrong decision has a probability of up to %v", name, most)
		}
	}
}

// The small version of each simulation: few cells, few runs, and a bound that chance does not break.
func TestWrongDecisionsAreRareInAFewRunsToo(t *testing.T) {
	const few, most = 100, 0.16 // the bound of 7 in 100, at 99 %, is 0.15
	at := world{base: .9, worse: margin, percent: 50, judge: [2]float64{.95, .90}}
	for _, at.scenario = range scenarios {
		if share := at.share(few, stat.Promote, 1); share > most {
			t.Errorf("%s: a bad canary is promoted with a probability of up to %v", at.name, share)
		}
		same := at
		same.worse = 0
		if share := same.share(few, stat.Rollback, 2); share > most {
			t.Errorf("%s: an equal canary is rolled back with a probability of up to %v", at.name, share)
		}
	}
	at.scenario = scenarios[0]
	for _, r := range []repetition{{at, 20}, {at, 500}} {
		for _, how := range []int{alike, unequally} {
			if share := r.share(few, how, 4); share > most {
				t.Errorf("%d questions, %s: a bad canary is promoted with a probability of up to %v", r.questions, askedAndCounted[how], share)
			}
		}
	}
	if share := (&repetition{at, 20}).share(few, eachTime, 4); share <= most {
		t.Errorf("the simulation does not find that 20 questions which count each time promote bad canaries: up to %v", share)
	}
	for _, e := range []evaluation{
		winners[1], pupils(false)[3], pupils(true)[7], spenders(false)[0], spenders(true)[0],
	} {
		for _, k := range fields {
			if share := passes(e, k, few, 3); share > most {
				t.Errorf("%T %v: of %d bad candidates one passes with a probability of up to %v", e, e.at(), k, share)
			}
		}
	}
}

// What to expect of judges that disagree on 10 % of the items: the gap, and when a run that games its judge is held.
func TestThePublishedAnchorIsOfUse(t *testing.T) {
	all, _ := published(t)
	for common, gap := range map[float64]float64{50: .27, 100: .20, 300: .13} {
		for _, r := range all[anchorGap].rows {
			if slices.Equal(r.at, []float64{common, .1}) && math.Abs(r.figures[0]-gap) > .015 {
				t.Errorf("with %v common items c is %v, want about %v", common, r.figures[0], gap)
			}
		}
	}
	for _, want := range [][3]float64{{50, .5, 2}, {50, .4, 6}, {100, .3, 6}, {300, .3, 3}, {300, .2, 12}} {
		for _, r := range all[anchorDelay].rows {
			if at := r.figures[1]; slices.Equal(r.at, want[:2]) && !(at > 0 && at <= want[2]) {
				t.Errorf("with %v common items a gap of %v is held at check %v, want by %v", want[0], want[1], at, want[2])
			}
		}
	}
}

func TestAHealthyRunIsRarelyHeldInAFewRunsToo(t *testing.T) {
	for i := range healthyRuns {
		if share := healthyRuns[i].held(50, 100, uint64(i)); share > 0.16 {
			t.Errorf("%v: a healthy run is held with a probability of up to %v", healthyRuns[i], share)
		}
	}
}

// An anchor that errs is found out: one whose gap is that of the calibration itself, without its bounds.
func TestTheSimulationFindsAnAnchorThatErrs(t *testing.T) {
	r, held := rand.New(rand.NewPCG(seed, 1)), 0
	for range 20 {
		p := &healthyRuns[2].pair
		good := p.good.draw(r, 50)
		watch := stat.NewWatch(max(float64(good.First-good.Second)/50, 0) + slack)
		for range anchorChecks {
			if watch = p.check(r, watch, 1, slack); watch.Holds() {
				held++
				break
			}
		}
	}
	if held < 5 {
		t.Errorf("an anchor that ignores the errors of its calibration holds %d of 20 healthy runs", held)
	}
}

// What ever skips changes nothing: the gate that is asked every time decides the same.
func TestEverSkipsOnlyWhatIsKnown(t *testing.T) {
	for _, worse := range []float64{-.1, .02, .1} {
		for stream := range uint64(20) {
			for _, wanted := range []stat.Decision{stat.Promote, stat.Rollback} {
				w := world{base: .8, worse: worse, percent: 20, judge: [2]float64{.95, .95}}
				w.scenario = scenarios[len(scenarios)-1]
				all := w.phases()
				skips := w.run(rand.New(rand.NewPCG(seed, stream)), &all, labels, 3000)
				asks := w.run(rand.New(rand.NewPCG(seed, stream)), &all, labels, 3000)
				want := false
				for i := range asks.requests {
					asks.add(&all[i*phases/asks.requests])
					want = want || asks.gate.Judge(asks.only(wanted)) == wanted
				}
				if got := skips.ever(wanted); got != want {
					t.Errorf("worse by %v, run %d: %s is %v, if asked every time %v", worse, stream, wanted, got, want)
				}
			}
		}
	}
}

// A gate that errs is found out: one that takes the judge's own view of the margin promotes bad canaries.
func TestTheSimulationFindsAGateThatErrs(t *testing.T) {
	r := rand.New(rand.NewPCG(seed, 1))
	w := world{base: .9, worse: margin, percent: 50, judge: [2]float64{.85, .85}}
	all := w.phases()
	promoted := 0
	for range 20 {
		one := w.run(r, &all, labels, 20_000)
		one.gate = stat.Gate{Margin: margin, Alpha: 0.05, Minimum: minimum, Youden: 1}
		if one.ever(stat.Promote) {
			promoted++
		}
	}
	if promoted < 5 {
		t.Errorf("a gate that ignores the judge's errors promotes %d of 20 bad canaries", promoted)
	}
}

func TestOutcomesAreABinomialDistribution(t *testing.T) {
	for _, n := range []int64{1, 30, 1000} {
		for _, p := range []float64{.001, .5, .995} {
			sum, mean := 0.0, 0.0
			for _, o := range outcomes(n, p) {
				sum, mean = sum+o.probability, mean+o.probability*float64(o.x)
			}
			if sum < 1-2*rare || sum > 1+1e-9 || math.Abs(mean-float64(n)*p) > 1e-3 {
				t.Errorf("%d at %v: sum %v, mean %v", n, p, sum, mean)
			}
		}
	}
}

func TestTrueKappaMatchesAVeryLargeTable(t *testing.T) {
	table := stat.Table{TP: 720_000, FN: 80_000, TN: 190_000, FP: 10_000}
	kappa, _, _ := table.Kappa()
	if got := trueKappa([2]float64{.9, .95}, .8); math.Abs(got-kappa) > 1e-12 {
		t.Errorf("%v, not %v", got, kappa)
	}
}

func TestTrueAlphaMatchesAVeryLargeSample(t *testing.T) {
	units := grade(rand.New(rand.NewPCG(1, 2)), 1_000_000, 3, .8, .1)
	if got, _ := stat.Alpha(units); math.Abs(got-trueAlpha(.8, .1)) > .005 {
		t.Errorf("%v, not %v", trueAlpha(.8, .1), got)
	}
}
