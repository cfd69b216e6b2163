package stat_test

import (
	"math"
	"math/rand/v2"
	"testing"

	"sovereign/internal/grade/stat"
)

// The ranks of the sign test's upper bound at 95 %, from the binomial distribution.
func TestTheBoundOfAMedianIsTheRankOfTheSignTest(t *testing.T) {
	for n, rank := range map[int]int{5: 5, 10: 9, 20: 15, 100: 59} {
		values := make([]float64, n)
		for i := range values {
			values[i] = float64(n - i)
		}
		if got := stat.MedianBelow(values, 0.95); got != float64(rank) {
			t.Errorf("of %d values the bound is number %v, want %d", n, got, rank)
		}
	}
	if got := stat.MedianBelow([]float64{1, 2, 3, 4}, 0.95); !math.IsInf(got, 1) {
		t.Errorf("four values bound the median by %v", got)
	}
}

func TestTheBoundOfAMedianCoversIt(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	const runs = 4000
	for _, n := range []int{8, 30, 101} {
		covered := 0
		for range runs {
			values := make([]float64, n)
			for i := range values {
				values[i] = math.Exp(2 * r.NormFloat64()) // its median is 1
			}
			if stat.MedianBelow(values, 0.95) >= 1 {
				covered++
			}
		}
		if share := float64(covered) / runs; share < 0.95-3*math.Sqrt(0.95*0.05/runs) {
			t.Errorf("of %d values: covered %v", n, share)
		}
	}
}

func TestARatioOfTotalsIsTheSameTwiceAndItsBoundIsAbove(t *testing.T) {
	cases := [][2]float64{{1, 2}, {3, 3}, {5, 4}, {2, 2}, {9, 5}}
	ratio, upper := stat.TotalsRatio(cases, 0.95, 7)
	again, same := stat.TotalsRatio(cases, 0.95, 7)
	if ratio != 20.0/16 || upper < ratio || again != ratio || same != upper {
		t.Errorf("%v up to %v, again %v up to %v", ratio, upper, again, same)
	}
	if ratio, upper := stat.TotalsRatio([][2]float64{{1, 0}}, 0.95, 7); !math.IsInf(ratio, 1) || !math.IsInf(upper, 1) {
		t.Errorf("something for nothing: %v up to %v", ratio, upper)
	}
	if ratio, _ := stat.TotalsRatio(nil, 0.95, 7); !math.IsNaN(ratio) {
		t.Errorf("of nothing: %v", ratio)
	}
}
