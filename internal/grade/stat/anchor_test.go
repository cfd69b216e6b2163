package stat_test

import (
	"math/rand/v2"
	"testing"

	"github.com/go-json-experiment/json"
	"pgregory.net/rapid"

	"sovereign/internal/grade/stat"
)

func TestTheAnchorMatchesTheGolden(t *testing.T) {
	anchor := stat.Anchor{Gap: 0.05}
	for i, c := range [][3]int64{{3, 4, 57}, {4, 3, 57}, {12, 2, 50}} {
		anchor = anchor.Check(c[0], c[1], c[2])
		near(t, "evidence", anchor.Evidence(), []float64{.69614, .56578, .97368}[i], 5)
	}
}

// drawn is an anchor after some checks.
func drawn(t *rapid.T) stat.Anchor {
	anchor := stat.Anchor{Gap: rapid.Float64Range(0.05, 0.9).Draw(t, "gap")}
	count := rapid.Int64Range(0, 64)
	for range rapid.IntRange(0, 8).Draw(t, "checks") {
		anchor = anchor.Check(count.Draw(t, "plus"), count.Draw(t, "minus"), count.Draw(t, "zero"))
	}
	return anchor
}

// The guarantee of an e-process: on a run with exactly the tolerated gap, the evidence is a martingale.
func TestTheAnchorsEvidenceIsAMartingale(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		anchor := drawn(t)
		minus := rapid.Float64Range(0, (1-anchor.Gap)/2).Draw(t, "share of minus")
		plus := minus + anchor.Gap
		after := plus*anchor.Check(1, 0, 0).Evidence() + minus*anchor.Check(0, 1, 0).Evidence() + (1-plus-minus)*anchor.Check(0, 0, 1).Evidence()
		if before := anchor.Evidence(); after > before*(1+1e-9) || after < before*(1-1e-9) {
			t.Fatalf("%v, on average %v after", before, after)
		}
	})
	near(t, "evidence of nothing", stat.Anchor{Gap: 0.05}.Evidence(), 1, 12)
}

func TestMoreUnconfirmedRewardsAreMoreEvidence(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		anchor := drawn(t)
		plus, zero := rapid.Int64Range(0, 64).Draw(t, "plus"), rapid.Int64Range(1, 64).Draw(t, "zero")
		less, more := anchor.Check(plus, 1, zero).Evidence(), anchor.Check(plus+1, 0, zero).Evidence()
		if more < less {
			t.Fatalf("%v, %v", less, more)
		}
	})
}

func TestAnAnchorIsStoredAndReadAgain(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		anchor := drawn(t)
		text, err := json.Marshal(anchor)
		if err != nil {
			t.Fatal(err)
		}
		var again stat.Anchor
		if err := json.Unmarshal(text, &again); err != nil || again != anchor {
			t.Fatalf("%s: %+v, %v", text, again, err)
		}
	})
}

func TestEvidenceStaysFinite(t *testing.T) {
	anchor := stat.Anchor{Gap: 0.05}
	for range 100 {
		anchor = anchor.Check(512, 0, 0)
	}
	if _, err := json.Marshal(anchor); err != nil || !anchor.Holds(1e-9) {
		t.Errorf("%v, %v", anchor, err)
	}
}

func TestTheGapIsTheWidestThatTheCertificatesExplain(t *testing.T) {
	certified := func(seLow, seHigh, spLow, spHigh float64) stat.Bounds {
		return stat.Bounds{Sensitivity: stat.Interval{seLow, seHigh}, Specificity: stat.Interval{spLow, spHigh}}
	}
	for _, c := range []struct {
		name           string
		reward, anchor stat.Bounds
		want           float64
	}{
		{"by sensitivity", certified(.90, .98, .90, .95), certified(.80, .95, .85, .92), .98 - .80 + .05},
		{"by specificity", certified(.70, .80, .60, .75), certified(.80, .95, .85, .97), .97 - .60 + .05},
		{"by neither", certified(.50, .60, .95, .99), certified(.90, .95, .80, .90), .05},
	} {
		near(t, c.name, stat.Gap(c.reward, c.anchor), c.want, 12)
	}
}

// simulate draws the checks of a run. plus and minus are the shares of completions that only the reward judge and only the
// anchor judge pass. It returns the check at which the run is held, or 0.
func simulate(r *rand.Rand, anchor stat.Anchor, plus, minus float64, checks int) int {
	for check := range checks {
		var count [3]int64
		for range 64 {
			switch u := r.Float64(); {
			case u < plus:
				count[0]++
			case u < plus+minus:
				count[1]++
			default:
				count[2]++
			}
		}
		if anchor = anchor.Check(count[0], count[1], count[2]); anchor.Holds(0.05) {
			return check + 1
		}
	}
	return 0
}

func TestAHealthyRunIsRarelyHeld(t *testing.T) {
	r := rand.New(rand.NewPCG(9, 9))
	for _, c := range []struct{ gap, plus, minus float64 }{{.05, .05, 0}, {.05, .15, .10}, {.2, .3, .1}, {.05, .04, .04}} {
		const runs = 400
		held := 0.0
		for range runs {
			if simulate(r, stat.Anchor{Gap: c.gap}, c.plus, c.minus, 100) > 0 {
				held++
			}
		}
		if rate := held / runs; rate > 0.05 {
			t.Errorf("%+v: %.3f of runs are held", c, rate)
		}
	}
}

func TestARunThatGamesItsJudgeIsHeldSoon(t *testing.T) {
	r := rand.New(rand.NewPCG(9, 10))
	for _, late := range []int{0, 20} {
		for range 100 {
			anchor := stat.Anchor{Gap: 0.1}
			for range late {
				anchor = anchor.Check(3, 3, 58)
			}
			if at := simulate(r, anchor, 0.35, 0.05, 20); at == 0 || at > 10 {
				t.Errorf("after %d good checks, a gap of 0.3 is held at check %d", late, at)
			}
		}
	}
}
