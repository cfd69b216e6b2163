package stat_test

import (
	"math"
	"math/rand/v2"
	"testing"

	"pgregory.net/rapid"

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

func TestTheBoundOfAMedianTakesWhatIsNoNumberAsTheWorst(t *testing.T) {
	if got := stat.MedianBelow([]float64{1, 2, math.NaN(), 3, 4, 5, 6, 7}, 0.95); got != 7 {
		t.Errorf("the median is at most %v, want 7", got)
	}
	if got := stat.Median([]float64{math.NaN(), 1, 2}); got != 2 {
		t.Errorf("the median is %v", got)
	}
	if got := stat.Median(nil); !math.IsNaN(got) {
		t.Errorf("the median of nothing is %v", got)
	}
	if got := stat.MedianBelow(nil, 0.95); !math.IsInf(got, 1) {
		t.Errorf("nothing bounds the median by %v", got)
	}
}

// With a constant second value Fieller's bound is that of a mean by Student's t, whose 97.5 % quantile is 2.7764 with
// four degrees of freedom.
func TestTheBoundOfARatioIsThatOfAMeanIfOneSideIsConstant(t *testing.T) {
	cases := [][2]float64{{1, 2}, {3, 2}, {5, 2}, {2, 2}, {9, 2}}
	ratio, upper := stat.TotalsRatio(cases, 0.95)
	near(t, "the ratio", ratio, 2, 12)
	near(t, "its bound", upper, (4+2.776445*math.Sqrt(10.0/5))/2, 5)
}

func TestRatiosOfTotalsAreDefinedAtTheirEdges(t *testing.T) {
	for _, c := range []struct {
		name         string
		cases        [][2]float64
		ratio, upper float64
	}{
		{"nothing", nil, math.NaN(), math.NaN()},
		{"free on both sides", [][2]float64{{0, 0}, {0, 0}}, math.NaN(), math.NaN()},
		{"something for nothing", [][2]float64{{1, 0}, {2, 0}}, math.Inf(1), math.Inf(1)},
		{"nothing for something", [][2]float64{{0, 1}, {0, 2}, {0, 1.5}}, 0, 0},
		{"one case", [][2]float64{{1, 2}}, .5, math.Inf(1)},
		{"a total that may be nothing", [][2]float64{{1, 0}, {1, 0}, {1, 9}}, 1.0 / 3, math.Inf(1)},
		{"always half", [][2]float64{{1, 2}, {2, 4}, {1.5, 3}, {1, 2}, {1, 2}}, .5, .5},
	} {
		ratio, upper := stat.TotalsRatio(c.cases, 0.95)
		same := func(a, b float64) bool { return a == b || math.IsNaN(a) && math.IsNaN(b) || math.Abs(a-b) < 1e-7 }
		if !same(ratio, c.ratio) || !same(upper, c.upper) {
			t.Errorf("%s: %v up to %v, want %v up to %v", c.name, ratio, upper, c.ratio, c.upper)
		}
	}
}

// Neither the order of the cases nor the unit of a cost matters, and more confidence or a dearer candidate never lowers
// the bound.
func TestTheBoundOfARatioScalesAndGrows(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		cost := rapid.Float64Range(0.001, 100)
		var cases, scaled, dearer [][2]float64
		for range rapid.IntRange(2, 30).Draw(t, "n") {
			c := [2]float64{cost.Draw(t, "first"), cost.Draw(t, "second")}
			cases, scaled = append(cases, c), append(scaled, [2]float64{3 * c[0], c[1]})
			dearer = append(dearer, [2]float64{c[0] + c[1], c[1]})
		}
		ratio, upper := stat.TotalsRatio(cases, 0.95)
		if upper < ratio {
			t.Fatalf("%v up to %v", ratio, upper)
		}
		if _, surer := stat.TotalsRatio(cases, 0.99); surer < upper {
			t.Fatalf("at 95 %% it is below %v, at 99 %% below %v", upper, surer)
		}
		if _, three := stat.TotalsRatio(scaled, 0.95); math.Abs(three-3*upper) > 1e-6*three {
			t.Fatalf("three times the cost is below %v, the cost itself below %v", three, upper)
		}
		if _, more := stat.TotalsRatio(dearer, 0.95); math.Abs(more-upper-1) > 1e-6*more {
			t.Fatalf("with the second cost added it is below %v, without below %v", more, upper)
		}
	})
}
