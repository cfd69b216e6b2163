// Package stat is the statistics behind every promise: what promotes, holds, certifies or refuses takes its numbers from here, and
// nothing else in the product computes an interval. Functions are pure, and the same counts give the same numbers, always.
//
// Counts are never negative, a part is never above its whole, and a confidence or an alpha lies between 0 and 1, exclusive: who calls
// has looked. Positive is pass: a judge's sensitivity is the share it passes of what people pass.
package stat

import "math"

// An Interval is a lower and an upper bound, both included.
type Interval [2]float64

// Contains reports whether x lies within i.
func (i Interval) Contains(x float64) bool { return i[0] <= x && x <= i[1] }

// Width is how far the bounds are apart.
func (i Interval) Width() float64 { return i[1] - i[0] }

// Clip is i with its bounds moved into [low, high].
func (i Interval) Clip(low, high float64) Interval {
	return Interval{min(max(i[0], low), high), min(max(i[1], low), high)}
}

// around is i, extended where x lies outside.
func (i Interval) around(x float64) Interval { return Interval{min(i[0], x), max(i[1], x)} }

// Z is the two-sided standard normal quantile: 1.96 at 0.95 (Wichura 1988, AS 241, as math.Erfinv).
func Z(confidence float64) float64 { return math.Sqrt2 * math.Erfinv(confidence) }

// root is where f crosses zero between low and high, to within tolerance (Chandrupatla 1997: bisection, made faster where a parabola
// fits). f has different signs at the ends, or is zero at one.
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

// step is the share of the way from a to b to try next: by the parabola through the three points where it is monotone between them,
// and the middle where it is not.
func step(a, fa, b, fb, c, fc float64) float64 {
	xi, phi := (a-b)/(c-b), (fa-fb)/(fc-fb)
	if phi*phi >= xi || (1-phi)*(1-phi) >= 1-xi {
		return 0.5
	}
	return fa/(fb-fa)*fc/(fb-fc) + (c-a)/(b-a)*fa/(fc-fa)*fb/(fc-fb)
}
