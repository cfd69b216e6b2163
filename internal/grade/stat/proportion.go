package stat

import (
	"math"

	"gonum.org/v1/gonum/mathext"
)

// Wilson returns the score interval of the proportion x/n (Wilson 1927). It is meant for charts only: near 0 and 1 its
// coverage is below the nominal confidence. It is [0, 1] when n is 0.
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

// ClopperPearson returns the exact interval of the proportion x/n (Clopper and Pearson 1934, by beta quantiles). Its
// coverage is at least the confidence for every true proportion. Certificates and gates use it. It is [0, 1] when n is
// 0.
func ClopperPearson(x, n int64, confidence float64) Interval {
	each := (1 + confidence) / 2
	return Interval{LowerBound(x, n, each), UpperBound(x, n, each)}
}

// LowerBound returns the exact one-sided lower bound of a proportion (Clopper and Pearson 1934): it is at most the true
// proportion with probability at least confidence.
func LowerBound(x, n int64, confidence float64) float64 {
	switch x {
	case 0:
		return 0
	case n: // exactly, since the general form fails at a confidence near 1
		return math.Exp(math.Log1p(-confidence) / float64(n))
	}
	return mathext.InvRegIncBeta(float64(x), float64(n-x+1), 1-confidence)
}

// UpperBound returns the exact one-sided upper bound of a proportion (Clopper and Pearson 1934): it is at least the
// true proportion with probability at least confidence.
func UpperBound(x, n int64, confidence float64) float64 {
	switch x {
	case n:
		return 1
	case 0:
		return -math.Expm1(math.Log1p(-confidence) / float64(n))
	}
	return mathext.InvRegIncBeta(float64(x+1), float64(n-x), confidence)
}
