package stat

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"pgregory.net/rapid"
)

// The interval of a mean is exact in one direction: whatever the distribution in [0, 1] is, it covers at least 95 %.
// The grid has the distributions of grades: two values, a few, skewed ones, all but one the same.
func TestTheIntervalOfAMeanCoversEveryDistribution(t *testing.T) {
	const runs, confidence = 1000, 0.95
	draws := map[string]struct {
		mean float64
		draw func(*rand.Rand) float64
	}{
		"half":    {0.5, func(r *rand.Rand) float64 { return float64(r.IntN(2)) }},
		"rare":    {0.05, func(r *rand.Rand) float64 { return one(r.Float64() < 0.05) }},
		"common":  {0.95, func(r *rand.Rand) float64 { return one(r.Float64() < 0.95) }},
		"uniform": {0.5, func(r *rand.Rand) float64 { return r.Float64() }},
		"skewed":  {1.0 / 6, func(r *rand.Rand) float64 { return math.Pow(r.Float64(), 5) }},
		"narrow":  {0.7, func(r *rand.Rand) float64 { return 0.69 + 0.02*r.Float64() }},
		"graded":  {0.5, func(r *rand.Rand) float64 { return float64(r.IntN(5)) / 4 }},
	}
	random := rand.New(rand.NewPCG(1, 2))
	for name, d := range draws {
		for _, n := range []int{2, 8, 40} {
			below, above := 0, 0
			times := runs / max(1, n/10)
			for range times {
				values := make([]float64, n)
				for i := range values {
					values[i] = d.draw(random)
				}
				_, interval := Mean(values, confidence)
				below += int(one(d.mean < interval[0]))
				above += int(one(d.mean > interval[1]))
			}
			// The 99 % lower bound of either error must not be above what is promised.
			for side, errs := range map[string]int{"lower": below, "upper": above} {
				if LowerBound(int64(errs), int64(times), 0.99) > (1-confidence)/2 {
					t.Errorf("%s, n = %d: the %s bound misses %d of %d", name, n, side, errs, times)
				}
			}
		}
	}
}

func one(yes bool) float64 {
	if yes {
		return 1
	}
	return 0
}

func TestTheIntervalOfAMean(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		values := rapid.SliceOfN(rapid.Float64Range(0, 1), 1, 60).Draw(t, "values")
		mean, interval := Mean(values, 0.95)
		if !interval.Contains(mean) || interval[0] < 0 || interval[1] > 1 {
			t.Fatalf("%v of %v", interval, mean)
		}
		shuffled := slices.Clone(values)
		slices.Reverse(shuffled)
		if _, again := Mean(shuffled, 0.95); math.Abs(again[0]-interval[0]) > 1e-6 || math.Abs(again[1]-interval[1]) > 1e-6 {
			t.Fatalf("%v, and %v in another order", interval, again)
		}
		if _, wider := Mean(values, 0.99); wider[0] > interval[0]+1e-8 || wider[1] < interval[1]-1e-8 {
			t.Fatalf("%v at 95 %%, and %v at 99 %%", interval, wider)
		}
		mirrored := make([]float64, len(values))
		for i, v := range values {
			mirrored[i] = 1 - v
		}
		if _, other := Mean(mirrored, 0.95); math.Abs(other[0]-(1-interval[1])) > 1e-6 {
			t.Fatalf("%v, and mirrored %v", interval, other)
		}
	})
}

// What it takes to prove something, as docs/training.md says: gains of the same size need few prompts.
func TestTheIntervalOfAMeanProvesPlainGains(t *testing.T) {
	for _, c := range []struct {
		n      int
		gain   float64
		proven bool
	}{{8, 0.8, true}, {8, 0.7, false}, {16, 0.5, true}, {40, 0.15, true}, {40, 0.12, false}, {200, 0.03, true}} {
		_, interval := MeanDifference(slices.Repeat([]float64{c.gain}, c.n), 0.95)
		if (interval[0] > 0) != c.proven {
			t.Errorf("%d gains of %v: %v", c.n, c.gain, interval)
		}
	}
	if mean, all := MeanDifference(nil, 0.95); mean != 0 || all != (Interval{-1, 1}) {
		t.Errorf("without values: %v %v", mean, all)
	}
}
