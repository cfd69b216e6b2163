// Package stat implements the statistical methods behind promotions, holds and certificates. No other package computes
// an interval. Functions are pure and deterministic.
//
// Callers must check their arguments: counts are not negative, a part is at most its whole, and a confidence or an
// alpha is strictly between 0 and 1. The positive class is "pass": a judge's sensitivity is the share that it passes of
// the items that people pass.
package stat

import "math"

// An Interval is a closed interval: lower and upper bound.
type Interval [2]float64

// Contains reports whether x lies within i.
func (i Interval) Contains(x float64) bool { return i[0] <= x && x <= i[1] }

// Width returns the distance between the bounds.
func (i Interval) Width() float64 { return i[1] - i[0] }

// Clip returns i with its bounds clamped to [low, high].
func (i Interval) Clip(low, high float64) Interval {
	return Interval{min(max(i[0], low), high), min(max(i[1], low), high)}
}

// around returns i, extended to contain x.
func (i Interval) around(x float64) Interval { return Interval{min(i[0], x), max(i[1], x)} }

// Z returns the two-sided standard normal quantile: 1.96 at 0.95 (Wichura 1988, algorithm AS 241, as in math.Erfinv).
func Z(confidence float64) float64 { return math.Sqrt2 * math.Erfinv(confidence) }

// root finds a zero of f between low and high, to within tolerance, by the method of Chandrupatla (1997): inverse
// quadratic interpolation where it is safe, and bisection elsewhere. f must have different signs at the ends, or be
// zero at one.
func root(low, high, tolerance float64, f func(float64) float64) float64 {
	a, b, t := low, high, 0.5
	fa, fb := f(a), f(b)
	for fa != 0 && fb != 0 && math.Abs(b-a) > 2*tolerance {
		x := a + t*(b-a)
		fx := f(x)
		c, fc := a, fa
		if (fx > 0) != (fa > 0) {
			c, fc, b, fb = b, fb, a, fa
		}
		a, fa = x, fx
		t = step(a, fa, b, fb, c, fc)
		edge := tolerance / math.Abs(b-a)
		t = min(max(t, edge), 1-edge)
	}
	if math.Abs(fa) < math.Abs(fb) {
		return a
	}
	return b
}

// step returns the fraction of the way from a to b to try next: by inverse quadratic interpolation through the three
// points where that is monotone, and otherwise one half.
func step(a, fa, b, fb, c, fc float64) float64 {
	xi, phi := (a-b)/(c-b), (fa-fb)/(fc-fb)
	if phi*phi >= xi || (1-phi)*(1-phi) >= 1-xi {
		return 0.5
	}
	return fa/(fb-fa)*fc/(fb-fc) + (c-a)/(b-a)*fa/(fc-fa)*fb/(fc-fb)
}
