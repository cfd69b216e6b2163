package stat

import (
	"math"

	"gonum.org/v1/gonum/mathext"
)

// KappaInterval returns the equal-tailed credible interval of kappa under the Dirichlet posterior with Jeffreys' prior
// of ½ in each cell (Jeffreys 1946), with one change: the disagreement that the prior adds counts for the lower bound
// only, as with Clopper and Pearson. Otherwise the interval would miss near-perfect judges too often. The upper bound
// of a perfect table is 1, and its interval has positive width. No coverage is guaranteed; docs/statistics.md reports
// the measured coverage. The interval contains kappa. ok is false exactly when kappa is undefined.
//
// The computation is deterministic. Let a be the share of agreement, u the share of passes among agreements and v the
// share of false passes among disagreements. The posterior is a ~ Beta(TP+TN+1, FP+FN+1), u ~ Beta(TP+½, TN+½) and v ~
// Beta(FP+½, FN+½), independent, and
//
//	kappa = 1 - 2(1-a) / (1 - a²(2u-1)² + (1-a)²(2v-1)²),
//
// which increases with a. So a is integrated in closed form, and u and v by quadrature with few nodes. The error is
// about 1e-5 with 20 labels of each class and a judge better than chance, and at worst about 1e-2 with very few
// disagreements.
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

// posterior is the posterior distribution of a table's true shares: two beta parameters of a, and nodes for u and v.
type posterior struct {
	agree, disagree float64
	passes, falses  []node
}

// quantile returns the q-quantile of kappa, which must be at least from.
func (p posterior) quantile(q, from float64) float64 {
	const precise = 1e-7
	return root(from, 1, precise, func(kappa float64) float64 { return p.below(kappa) - q })
}

// below returns the posterior probability of at most kappa.
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

// agreement returns the probability of at most kappa, given u = (2u-1)² and v = (2v-1)². It is the probability of a
// disagreement 1-a of at least d, where d solves (v-u)d² - 2(1/(1-kappa) - u)d + 1-u = 0.
func (p posterior) agreement(kappa, u, v float64) float64 {
	half := 1/(1-kappa) - u
	d := (1 - u) / (half + math.Sqrt(half*half-(v-u)*(1-u)))
	if !(d >= 0 && d < 1) { // also when d is NaN because there is no solution
		return 0
	}
	return mathext.RegIncBeta(p.agree, p.disagree, 1-d)
}

// A node is a value of (2u-1)² and its weight.
type node struct{ square, weight float64 }

const (
	// negligible is the largest weight that is left out of sums.
	negligible = 1e-8
	// perDeviation is the number of nodes for each standard deviation of the angle, and minNodes the minimum over all.
	perDeviation = 1.0
	minNodes     = 16
)

// squares returns quadrature nodes for Beta(x+½, y+½). The angle θ with cos θ = 1-2u has the density
// (1-cos θ)^x (1+cos θ)^y, which is even and periodic, with a standard deviation of about 1/√(x+y). The midpoint rule
// over equidistant angles (Gauss–Chebyshev quadrature) therefore converges faster than any power of the number of
// nodes.
func squares(x, y int64) []node {
	count := minNodes + int(math.Ceil(math.Pi*perDeviation*math.Sqrt(float64(x+y))))
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

// power returns the logarithm of base^(2x).
func power(base float64, x int64) float64 { return 2 * float64(x) * math.Log(base) }
