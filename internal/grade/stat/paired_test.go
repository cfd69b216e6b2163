package stat_test

import (
	"testing"

	"pgregory.net/rapid"

	"sovereign/internal/grade/stat"
)

func TestMcNemarMatchesPublishedValues(t *testing.T) {
	near(t, "Bentur et al. 2009 (Fagerland et al. 2013)", stat.McNemar(1, 7), .039, 3)
	near(t, "Cavo et al. 2012 (R package contingencytables)", stat.McNemar(6, 16), .034690, 6)
	near(t, "five of five, by hand", stat.McNemar(0, 5), 1.0/32, 12)
	near(t, "one of two, by hand: 1 - P(1)/2", stat.McNemar(1, 1), 0.75, 12)
	near(t, "no difference seen", stat.McNemar(0, 0), 1, 12)
}

func TestPairedDifferenceMatchesPublishedIntervals(t *testing.T) {
	difference, i := stat.Pairs{Both: 1, First: 1, Second: 7, Neither: 12}.Difference(0.95)
	near(t, "Bentur et al. 2009", difference, -.286, 3)
	nearInterval(t, "Bentur et al. 2009", i, -.507, -.026, 3)
	difference, i = stat.Pairs{Both: 59, First: 6, Second: 16, Neither: 80}.Difference(0.95)
	near(t, "Cavo et al. 2012 (R package contingencytables)", difference, -.0621, 4)
	nearInterval(t, "Cavo et al. 2012", i, -.1186, -.0046, 4)
}

func TestPairedFiguresHoldTheirDifferenceAndMirror(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		cell := rapid.Int64Range(0, 200)
		p := stat.Pairs{Both: cell.Draw(t, "both"), First: cell.Draw(t, "first"), Second: cell.Draw(t, "second"), Neither: cell.Draw(t, "neither")}
		difference, i := p.Difference(0.95)
		if !i.Contains(difference) || i[0] < -1 || i[1] > 1 || i.Width() <= 0 {
			t.Fatalf("%v, %v", difference, i)
		}
		for _, other := range []stat.Pairs{
			{Both: p.Both, First: p.Second, Second: p.First, Neither: p.Neither}, // first and second swapped
			{Both: p.Neither, First: p.Second, Second: p.First, Neither: p.Both}, // pass and fail swapped
		} {
			against, o := other.Difference(0.95)
			if !alike(against, -difference) || !alike(o[0], -i[1]) || !alike(o[1], -i[0]) {
				t.Fatalf("%v %v, swapped %v %v", difference, i, against, o)
			}
		}
		value := stat.McNemar(p.First, p.Second)
		if value != stat.McNemar(p.Second, p.First) || !(value > 0 && value <= 1) {
			t.Fatalf("p = %v", value)
		}
		if p.First > p.Second && stat.McNemar(p.First+1, p.Second) >= value && value < 1 {
			t.Fatalf("more of a difference is less of one: %v, %v", value, stat.McNemar(p.First+1, p.Second))
		}
	})
}

// Gates use the bound: agreement on a few cases must not look like certainty.
func TestNoDifferenceSeenIsNotNoDifference(t *testing.T) {
	for _, p := range []stat.Pairs{{Both: 20}, {Neither: 20}, {Both: 10, Neither: 10}, {Both: 1}, {}} {
		if _, i := p.Difference(0.95); !(i[0] < -0.04 && i[1] > 0.04) {
			t.Errorf("%+v: %v", p, i)
		}
	}
}

// The mid-p test is not exact, but its error rate exceeds the level only slightly (Fagerland et al. 2013).
func TestMcNemarErrsHardlyMoreThanItsLevel(t *testing.T) {
	for _, n := range []int64{10, 20, 50, 100} {
		errs := make([]float64, n+1) // by how many differ
		for differ := range errs {
			for x, probability := range binomial(int64(differ), 0.5) {
				if stat.McNemar(int64(x), int64(differ-x)) <= 0.05 {
					errs[differ] += probability
				}
			}
		}
		for _, share := range []float64{0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95} {
			sum := 0.0
			for differ, probability := range binomial(n, share) {
				sum += probability * errs[differ]
			}
			if sum > 0.0503 {
				t.Errorf("of %d cases of which %v differ, it errs %v", n, share, sum)
			}
		}
	}
}
