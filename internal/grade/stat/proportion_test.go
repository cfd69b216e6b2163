package stat_test

import (
	"math"
	"testing"

	"github.com/go-json-experiment/json"
	"gonum.org/v1/gonum/mathext"
	"pgregory.net/rapid"

	"sovereign/internal/grade/stat"
)

// near fails where got is not want, rounded to the decimals that were published.
func near(t *testing.T, what string, got, want float64, decimals int) {
	t.Helper()
	if !(math.Abs(got-want) <= 0.50001*math.Pow10(-decimals)) {
		t.Errorf("%s: %.*f, published is %.*f", what, decimals+2, got, decimals, want)
	}
}

func nearInterval(t *testing.T, what string, got stat.Interval, low, high float64, decimals int) {
	t.Helper()
	near(t, what+", lower", got[0], low, decimals)
	near(t, what+", upper", got[1], high, decimals)
}

func TestProportionsMatchPublishedIntervals(t *testing.T) {
	type bounds [2]float64
	for _, c := range []struct {
		x, n          int64
		decimals      int
		wilson, exact bounds
	}{
		// Newcombe 1998, Statistics in Medicine 17:857, Table I, methods 3 and 5.
		{81, 263, 4, bounds{.2553, .3662}, bounds{.2527, .3676}},
		{15, 148, 4, bounds{.0624, .1605}, bounds{.0578, .1617}},
		{0, 20, 4, bounds{0, .1611}, bounds{0, .1684}},
		{1, 29, 4, bounds{.0061, .1718}, bounds{.0009, .1776}},
		// R package binom, binom.confint, as kept in statsmodels' tests.
		{18, 20, 9, bounds{.698966355, .972133519}, bounds{.683017286, .987651473}},
		{4, 20, 9, bounds{.080657663, .416017432}, bounds{.057333997, .436614003}},
		{4, 200, 9, bounds{.007804426, .050287087}, bounds{.005475566, .050413609}},
		{190, 200, 9, bounds{.910421852, .972617354}, bounds{.909972462, .975765835}},
		{1, 30, 7, bounds{.0059086, .1667039}, bounds{.0008436, .1721695}},
		{29, 30, 7, bounds{.8332961, .9940914}, bounds{.8278305, .9991564}},
		{0, 30, 7, bounds{0, .1135134}, bounds{0, .1157033}},
		{30, 30, 7, bounds{.8864866, 1}, bounds{.8842967, 1}},
		// R package contingencytables (Fagerland, Lydersen and Laake 2017, chapter 2).
		{13, 16, 4, bounds{.5699, .9341}, bounds{.5435, .9595}},
		{10, 10, 4, bounds{.7225, 1}, bounds{.6915, 1}},
	} {
		nearInterval(t, "Wilson", stat.Wilson(c.x, c.n, 0.95), c.wilson[0], c.wilson[1], c.decimals)
		nearInterval(t, "Clopper-Pearson", stat.ClopperPearson(c.x, c.n, 0.95), c.exact[0], c.exact[1], c.decimals)
	}
}

// The exact rule of three: without failures among n, the 95 % bound is 0.05^(1/n).
func TestOneSidedBoundsAreThoseOfTheTail(t *testing.T) {
	for _, n := range []int64{1, 20, 59, 1000, 1_000_000} {
		want := math.Pow(0.05, 1/float64(n))
		near(t, "lower", stat.LowerBound(n, n, 0.95), want, 11)
		near(t, "upper", stat.UpperBound(0, n, 0.95), 1-want, 11)
	}
	rapid.Check(t, func(t *rapid.T) {
		x, n := counts(t, 100_000)
		confidence := rapid.Float64Range(0.5, 0.9999).Draw(t, "confidence")
		if low := stat.LowerBound(x, n, confidence); x > 0 {
			if tail := mathext.RegIncBeta(float64(x), float64(n-x+1), low); math.Abs(tail/(1-confidence)-1) > 1e-7 {
				t.Fatalf("at its lower bound, %d or more of %d have probability %v, not %v", x, n, tail, 1-confidence)
			}
		}
	})
}

func TestZIsTheNormalQuantile(t *testing.T) {
	for confidence, want := range map[float64]float64{0.5: .6744897502, 0.9: 1.6448536270, 0.95: 1.9599639845, 0.99: 2.5758293035, 0.999: 3.2905267315} {
		near(t, "z", stat.Z(confidence), want, 10)
	}
}

// counts draws a part and its whole, which is at least 1.
func counts(t *rapid.T, most int64) (x, n int64) {
	n = rapid.Int64Range(1, most).Draw(t, "n")
	return rapid.Int64Range(0, n).Draw(t, "x"), n
}

var methods = map[string]func(x, n int64, confidence float64) stat.Interval{"Wilson": stat.Wilson, "Clopper-Pearson": stat.ClopperPearson}

func TestAnIntervalHoldsItsShareLiesInRangeAndMirrors(t *testing.T) {
	for name, interval := range methods {
		rapid.Check(t, func(t *rapid.T) {
			x, n := counts(t, 1_000_000)
			confidence := rapid.Float64Range(0.5, 0.9999).Draw(t, "confidence")
			i, mirrored := interval(x, n, confidence), interval(n-x, n, confidence)
			if !i.Contains(float64(x)/float64(n)) || i[0] < 0 || i[1] > 1 || i.Width() <= 0 {
				t.Fatalf("%s of %d/%d is %v", name, x, n, i)
			}
			if math.Abs(i[0]+mirrored[1]-1) > 1e-9 || math.Abs(i[1]+mirrored[0]-1) > 1e-9 {
				t.Fatalf("%s of %d/%d is %v, mirrored %v", name, x, n, i, mirrored)
			}
			if wider := interval(x, n, (1+confidence)/2); wider.Width() <= i.Width() {
				t.Fatalf("%s of %d/%d is not wider with more confidence: %v, %v", name, x, n, i, wider)
			}
			if narrower := interval(2*x, 2*n, confidence); narrower.Width() >= i.Width() {
				t.Fatalf("%s of %d/%d is not narrower with twice the counts: %v, %v", name, x, n, i, narrower)
			}
			if x < n {
				if next := interval(x+1, n, confidence); next[0] <= i[0] && x > 0 || next[1] < i[1] {
					t.Fatalf("%s does not rise from %d to %d of %d: %v, %v", name, x, x+1, n, i, next)
				}
			}
		})
	}
}

func TestIntervalsOfNoDataAreTheWholeRange(t *testing.T) {
	for name, interval := range methods {
		if i := interval(0, 0, 0.95); i != (stat.Interval{0, 1}) {
			t.Errorf("%s: %v", name, i)
		}
	}
}

// logBinomial are the logarithms of the probabilities of 0 to n.
func logBinomial(n int64, p float64) []float64 {
	out := make([]float64, n+1)
	all, _ := math.Lgamma(float64(n + 1))
	for x := range out {
		a, _ := math.Lgamma(float64(x + 1))
		b, _ := math.Lgamma(float64(int(n) - x + 1))
		out[x] = all - a - b + float64(x)*math.Log(p) + float64(int(n)-x)*math.Log1p(-p)
	}
	return out
}

// binomial are the probabilities of 0 to n.
func binomial(n int64, p float64) []float64 {
	out := logBinomial(n, p)
	for x := range out {
		out[x] = math.Exp(out[x])
	}
	return out
}

// coverage is the probability that an interval holds the truth.
func coverage(intervals []stat.Interval, p float64) float64 {
	sum := 0.0
	for x, probability := range binomial(int64(len(intervals)-1), p) {
		if intervals[x].Contains(p) {
			sum += probability
		}
	}
	return sum
}

func all(n int64, interval func(x, n int64, confidence float64) stat.Interval) []stat.Interval {
	out := make([]stat.Interval, n+1)
	for x := range out {
		out[x] = interval(int64(x), n, 0.95)
	}
	return out
}

func TestCertifiedIntervalsCoverAtLeastWhatTheySay(t *testing.T) {
	for _, n := range []int64{1, 2, 5, 20, 30, 31, 50, 77, 100, 200, 333} {
		intervals := all(n, stat.ClopperPearson)
		for i := 1; i < 500; i++ {
			p := float64(i) / 500
			if c := coverage(intervals, p); c < 0.95 {
				t.Errorf("of %d at %v, %v is covered", n, p, c)
			}
		}
		for _, i := range intervals { // coverage is least just beside a bound
			for _, p := range []float64{i[0] - 1e-9, i[0] + 1e-9, i[1] - 1e-9, i[1] + 1e-9} {
				if p > 0 && p < 1 && coverage(intervals, p) < 0.95 {
					t.Errorf("of %d at %v, %v is covered", n, p, coverage(intervals, p))
				}
			}
		}
	}
}

func TestWilsonIsTooShortNearTheEdge(t *testing.T) {
	near(t, "50 at .99", coverage(all(50, stat.Wilson), 0.99), .911, 3)
	near(t, "30 at .995", coverage(all(30, stat.Wilson), 0.995), .860, 3)
}

func TestAnIntervalIsAnArrayInJSON(t *testing.T) {
	text, err := json.Marshal(map[string]any{"se_ci": stat.Interval{0.25, 1}})
	if err != nil || string(text) != `{"se_ci":[0.25,1]}` {
		t.Errorf("%s, %v", text, err)
	}
	var i stat.Interval
	if err := json.Unmarshal([]byte("[0.5,0.75]"), &i); err != nil || i != (stat.Interval{0.5, 0.75}) {
		t.Errorf("%v, %v", i, err)
	}
	if got := (stat.Interval{-0.5, 1.5}).Clip(0, 1); got != (stat.Interval{0, 1}) {
		t.Errorf("clipped: %v", got)
	}
}

// A gate that is one of many is asked at a confidence near 1. A bound then moves on steadily, and by little.
func TestBoundsHoldAtConfidencesNearOne(t *testing.T) {
	for _, n := range []int64{20, 400, 10_000, 100_000} {
		for _, x := range []int64{0, 1, n / 2, n - 1, n} {
			last := stat.Interval{1, 0}
			for _, alpha := range []float64{1e-2, 1e-4, 1e-6, 1e-8, 1e-10} {
				bounds := stat.Interval{stat.LowerBound(x, n, 1-alpha), stat.UpperBound(x, n, 1-alpha)}
				rate, reach := float64(x)/float64(n), math.Sqrt(2*math.Log(1/alpha)/float64(n))
				if bounds[0] > last[0] || bounds[1] < last[1] || bounds[0] < rate-reach || bounds[1] > rate+reach {
					t.Errorf("%d of %d at 1-%g: %v, and %v before", x, n, alpha, bounds, last)
				}
				last = bounds
			}
		}
	}
}
