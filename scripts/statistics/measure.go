package main

import (
	"math"

	"sovereign/internal/grade/stat"
)

const confidence = 0.95

// The true values at which coverage is measured.
var (
	proportions = []float64{.5, .7, .8, .9, .95, .98, .99, .995}
	sizes       = []int64{20, 30, 50, 100, 200, 500}
	classes     = []int64{30, 50, 100, 200} // labels of the smaller class
	passing     = []float64{.5, .8}         // the share of passes among labels
	rates       = []float64{.02, .1, .3, .5, .7, .9, .98}
	// se, sp
	judges = [][2]float64{{.8, .8}, {.9, .9}, {.95, .95}, {.99, .99}, {.8, .95}, {.95, .8}, {.9, .99}, {.99, .9}}
	narrow = []struct {
		n int64
		p float64
	}{{50, .99}, {30, .995}, {100, .99}, {200, .995}, {50, .95}}
)

func measureShares(shares, edges *grid) {
	for _, n := range sizes {
		shares.add([]float64{float64(n)}, shareRow(n))
	}
	for _, e := range narrow {
		edges.add([]float64{float64(e.n), e.p}, edgeRow(e.n, e.p))
	}
}

func measureLooks(looks *grid) {
	looks.filled(len(canaries), func(i int) (at, figures []float64) { return canaries[i].at(), canaries[i].figures() })
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

// A kept holds the coverage of KappaInterval and of the Wald interval, and how often KappaInterval lies above the true
// value.
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

// A chance is a possible correction, and its probability.
type chance struct {
	stat.Correction
	probability float64
}

// corrections returns the corrections that the calibrations of a judge allow, with the sum of their probabilities.
func corrections(judge [2]float64, class int64, confidence float64) (all []chance, allowed float64) {
	for _, tp := range certain(class, judge[0]) {
		for _, tn := range certain(class, judge[1]) {
			c, refused := stat.Correctable(stat.Table{
				TP: tp.x, FN: class - tp.x, TN: tn.x, FP: class - tn.x,
			}, confidence)
			if probability := tp.probability * tn.probability; refused == "" {
				all = append(all, chance{c, probability})
				allowed += probability
			}
		}
	}
	return all, allowed
}

// likely returns the probability that something is true of a corrected rate, by the true rate, over random calibrations
// and samples, given that the calibration allows a correction.
func likely(judge [2]float64, class, verdicts int64, confidence float64,
	is func(rate float64, interval stat.Interval, refused stat.Refusal) bool,
) (out []float64) {
	all, allowed := corrections(judge, class, confidence)
	for _, rate := range rates {
		sum := 0.0
		samples := outcomes(verdicts, rate*judge[0]+(1-rate)*(1-judge[1]))
		for _, c := range all {
			for _, sample := range samples {
				if _, interval, refused := c.RoganGladen(sample.x, verdicts); is(rate, interval, refused) {
					sum += c.probability * sample.probability
				}
			}
		}
		out = append(out, sum/allowed)
	}
	return out
}

// correctedRow returns the coverage of corrected rates. A sample that contradicts its calibration counts as not
// covered.
func correctedRow(judge [2]float64, class, verdicts int64) []float64 {
	return likely(judge, class, verdicts, confidence, func(rate float64, i stat.Interval, refused stat.Refusal) bool {
		return refused == "" && i.Contains(rate)
	})
}

// lowerEndRow returns how often the lower end of a corrected rate's interval, as a bound at 95 %, is above the true
// rate.
func lowerEndRow(judge [2]float64, class, verdicts int64) []float64 {
	return likely(judge, class, verdicts, 2*confidence-1, func(rate float64, i stat.Interval, refused stat.Refusal) bool {
		return refused == "" && i[0] > rate
	})
}

func measureLowerEnds(g *grid, verdicts int64) {
	for _, judge := range append([][2]float64{{1, 1}}, judges...) {
		g.add([]float64{judge[0], judge[1], labels}, lowerEndRow(judge, labels, verdicts))
	}
}
