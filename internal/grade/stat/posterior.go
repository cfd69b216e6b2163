package stat

import (
	"math"

	"gonum.org/v1/gonum/mathext"
)

// KappaInterval is the equal-tailed interval of kappa by the Dirichlet posterior with a half in each cell (Jeffreys 1946), made safe at the
// edge: the disagreement that the prior adds counts for the lower bound and not for the upper one, as with Clopper and Pearson, since the
// best judges would be missed too often. A perfect table reaches 1, and has width. It promises no coverage; what it covers is measured
// in docs/statistics.md. It is defined where kappa is, and holds it.
//
// Nothing is drawn at random. With a the share of agreement, u that of passes among agreements and v that of false passes among
// disagreements, the posterior is a ~ Beta(TP+TN+1, FP+FN+1), u ~ Beta(TP+½, TN+½) and v ~ Beta(FP+½, FN+½), independent, and
//
//	kappa = 1 - 2(1-a) / (1 - a²(2u-1)² + (1-a)²(2v-1)²),
//
// which rises with a. So a is integrated in closed form, and u and v by a sum over few nodes: to a hundred-thousandth where
// there are 20 of each class and the judge is better than chance, and to a hundredth at worst, on a handful of disagreements.
func KappaInterval(t Table, confidence float64) (Interval, bool) {
	kappa, _, ok := t.Kappa()
	if !ok {
		return Interval{}, false
	}
	p := posterior{
		agree: float64(t.TP+t.TN) + 1, disagree: float64(t.FP+t.FN) + 1,
		passes: squares(t.TP, t.TN), falses: squares(t.FP, t.FN),
	}
	tail := (1 - confidence) / 2
	interval := Interval{p.quantile(tail, -1), 1}
	if p.disagree--; p.disagree > 0 {
		interval[1] = p.quantile(1-tail, interval[0])
	}
	return interval.around(kappa), true
}

// posterior is what is known of a table's true shares.
type posterior struct {
	agree, disagree float64
	passes, falses  []node
}

// quantile is the kappa that q lies below, at least from.
func (p posterior) quantile(q, from float64) float64 {
	const precise = 1e-7
	return root(from, 1, precise, func(kappa float64) float64 { return p.below(kappa) - q })
}

// below is the probability of at most kappa.
func (p posterior) below(kappa float64) float64 {
	if kappa >= 1 {
		return 1
	}
	sum := 0.0
	for _, u := range p.passes {
		for _, v := range p.falses {
			if weight := u.weight * v.weight; weight > negligible {
				sum += weight * p.agreement(kappa, u.square, v.square)
			}
		}
	}
	return sum
}

// agreement is the probability of at most kappa, given the squares of 2u-1 and 2v-1: that of a disagreement of at least d, where
// d solves (v-u)d² - 2(1/(1-kappa) - u)d + 1-u = 0.
func (p posterior) agreement(kappa, u, v float64) float64 {
	half := 1/(1-kappa) - u
	d := (1 - u) / (half + math.Sqrt(half*half-(v-u)*(1-u)))
	if !(d >= 0 && d < 1) { // also where there is no such d, and it is not a number
		return 0
	}
	return mathext.RegIncBeta(p.agree, p.disagree, 1-d)
}

// A node is a value of (2u-1)² and its weight.
type node struct{ square, weight float64 }

const (
	// negligible is a weight that is left out.
	negligible = 1e-8
	// perDeviation is how many nodes fall on a standard deviation of the angle.
	perDeviation = 1.0
	fewest       = 16
)

// squares are nodes for Beta(x+½, y+½). Of the angle with cos θ = 1-2u, the density is (1-cos θ)^x (1+cos θ)^y, even and periodic, and a
// sum over equidistant angles converges faster than any power of their number (Gauss and Chebyshev). Its deviation is 1/√(x+y).
func squares(x, y int64) []node {
	count := fewest + int(math.Ceil(math.Pi*perDeviation*math.Sqrt(float64(x+y))))
	logs, highest := make([]float64, count), math.Inf(-1)
	for i := range logs {
		half := (float64(i) + 0.5) * math.Pi / (2 * float64(count))
		logs[i] = power(math.Sin(half), x) + power(math.Cos(half), y)
		highest = max(highest, logs[i])
	}
	nodes, sum := make([]node, 0, count), 0.0
	for i, log := range logs {
		if weight := math.Exp(log - highest); weight > negligible {
			cos := math.Cos((float64(i) + 0.5) * math.Pi / float64(count))
			nodes = append(nodes, node{cos * cos, weight})
			sum += weight
		}
	}
	for i := range nodes {
		nodes[i].weight /= sum
	}
	return nodes
}

// power is the logarithm of base to the power of 2x.
func power(base float64, x int64) float64 { return 2 * float64(x) * math.Log(base) }
