package stat

import (
	"math"

	"gonum.org/v1/gonum/mathext"
)

// Wilson is the score interval of a proportion of x among n (Wilson 1927). It is for charts: near 0 and 1 it covers less than it
// says, so that nothing is promised by it. Of nothing, it is everything from 0 to 1.
func Wilson(x, n int64, confidence float64) Interval {
	if n == 0 {
		return Interval{0, 1}
	}
	z, size := Z(confidence), float64(n)
	p, zz := float64(x)/size, z*z
	middle := p + zz/(2*size)
	half := z * math.Sqrt(p*(1-p)/size+zz/(4*size*size))
	i := Interval{(middle - half) / (1 + zz/size), (middle + half) / (1 + zz/size)}
	return i.Clip(0, 1).around(p)
}

// ClopperPearson is the exact interval of a proportion of x among n (Clopper and Pearson 1934, by beta quantiles). It covers at least
// the confidence wherever the truth is: certificates and gates speak by it. Of nothing, it is everything from 0 to 1.
func ClopperPearson(x, n int64, confidence float64) Interval {
	each := (1 + confidence) / 2
	return Interval{LowerBound(x, n, each), UpperBound(x, n, each)}
}

// LowerBound is the exact one-sided lower bound of a proportion (Clopper and Pearson 1934): at most the truth, with at least the
// confidence.
func LowerBound(x, n int64, confidence float64) float64 {
	if x == 0 {
		return 0
	}
	return mathext.InvRegIncBeta(float64(x), float64(n-x+1), 1-confidence)
}

// UpperBound is the exact one-sided upper bound of a proportion (Clopper and Pearson 1934): at least the truth, with at least the
// confidence.
func UpperBound(x, n int64, confidence float64) float64 {
	if x == n {
		return 1
	}
	return mathext.InvRegIncBeta(float64(x+1), float64(n-x), confidence)
}
