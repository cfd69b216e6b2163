package stat

import (
	"math"

	"gonum.org/v1/gonum/mathext"
)

// McNemar returns the two-sided mid-p value of McNemar's test for paired binary outcomes (Fagerland, Lydersen and Laake
// 2013). b counts the cases that only the first passes, c those that only the second passes. It is 1 when both are 0.
// The mid-p test is not exact: its error rate can slightly exceed the level.
func McNemar(b, c int64) float64 {
	n, least := float64(b+c), float64(min(b, c))
	if n == 0 {
		return 1
	}
	choose, _ := math.Lgamma(n + 1)
	first, _ := math.Lgamma(least + 1)
	second, _ := math.Lgamma(n - least + 1)
	point := math.Exp(choose - first - second - n*math.Ln2)
	if b == c {
		return 1 - point/2
	}
	return 2*mathext.RegIncBeta(n-least, least+1, 0.5) - point
}

// Pairs counts the outcomes of two systems on the same cases.
type Pairs struct {
	Both    int64 `json:"both"`
	First   int64 `json:"first"`  // only the first passes
	Second  int64 `json:"second"` // only the second passes
	Neither int64 `json:"neither"`
}

// Cases returns the number of cases.
func (p Pairs) Cases() int64 { return p.Both + p.First + p.Second + p.Neither }

// Add counts one case.
func (p *Pairs) Add(first, second bool) {
	switch {
	case first && second:
		p.Both++
	case first:
		p.First++
	case second:
		p.Second++
	default:
		p.Neither++
	}
}

// with returns the cases of p and of others.
func (p Pairs) with(q Pairs) Pairs {
	return Pairs{p.Both + q.Both, p.First + q.First, p.Second + q.Second, p.Neither + q.Neither}
}

// Difference returns the first pass rate minus the second, with the paired score interval of Newcombe (1998, method 10,
// φ corrected for continuity). The interval has positive width even when the two never differ. It is [-1, 1] without
// cases.
func (p Pairs) Difference(confidence float64) (float64, Interval) {
	n := p.Cases()
	if n == 0 {
		return 0, Interval{-1, 1}
	}
	x, y := p.Both+p.First, p.Both+p.Second
	first, second := float64(x)/float64(n), float64(y)/float64(n)
	a, b, phi := Wilson(x, n, confidence), Wilson(y, n, confidence), p.phi()
	difference := float64(p.First-p.Second) / float64(n)
	away := func(one, other float64) float64 {
		return math.Sqrt(max(one*one-2*phi*one*other+other*other, 0))
	}
	return difference, Interval{
		difference - away(first-a[0], b[1]-second),
		difference + away(a[1]-first, second-b[0]),
	}.Clip(-1, 1)
}

// phi returns the correlation of the two outcomes. A positive value is corrected for continuity, towards 0. It is 0
// when a margin is empty.
func (p Pairs) phi() float64 {
	e, f, g, h := float64(p.Both), float64(p.First), float64(p.Second), float64(p.Neither)
	margins := (e + f) * (g + h) * (e + g) * (f + h)
	if margins == 0 {
		return 0
	}
	cross := e*h - f*g
	if cross > 0 {
		cross = max(cross-(e+f+g+h)/2, 0)
	}
	return cross / math.Sqrt(margins)
}
