package stat_test

import (
	"math"
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
		after := plus*anchor.Check(1, 0, 0).Evidence() + minus*anchor.Check(0, 1, 0).Evidence() +
			(1-plus-minus)*anchor.Check(0, 0, 1).Evidence()
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

// pairs are n items of a class, of which the reward judges alone pass some and the anchor judge alone passes others.
func pairs(n, onlyReward, onlyAnchor int64) stat.Pairs {
	return stat.Pairs{Both: n - onlyReward - onlyAnchor, First: onlyReward, Second: onlyAnchor}
}

// The score bound of a difference without disagreement is z²/(n + z²); the others are by an independent computation,
// which maximises the likelihood numerically. The bound of no failures in n is 1 - e^(ln(1/300)/n).
func TestTheGapIsWhatTheCalibrationsExplain(t *testing.T) {
	failures := 1 - math.Exp(math.Log(0.01/3)/400)
	z := stat.Z(1 - 2*0.01/3)
	for _, c := range []struct {
		name       string
		pass, fail stat.Pairs
		want       float64
	}{
		{"no disagreement", pairs(200, 0, 0), pairs(50, 0, 0), z * z / (50 + z*z)},
		{"the class of passes", pairs(50, 5, 0), pairs(200, 0, 0), .27042},
		{"the class of fails", pairs(200, 0, 0), pairs(50, 5, 0), .27042},
		{"disagreement in both directions", pairs(50, 2, 2), pairs(50, 2, 2), .15942},
		{"a stricter reward judge", pairs(5000, 0, 1000), pairs(5000, 0, 1000), 0},
	} {
		common := stat.Common{Pass: c.pass, Fail: c.fail, Asked: 400}
		near(t, c.name, common.Gap(), c.want+failures+.05, 4)
	}
}

func TestFailuresOfTheAnchorWidenTheGap(t *testing.T) {
	common := stat.Common{Pass: pairs(100, 3, 3), Fail: pairs(100, 3, 3), Asked: 200}
	without := common.Gap()
	common.Failed = 10
	if with := common.Gap(); with <= without+.05 {
		t.Errorf("the gap is %v without failures, and %v with 5 %% of them", without, with)
	}
	near(t, "failures", common.Failure(), stat.UpperBound(10, 200, 1-.01/3), 12)
}

// An anchor that fails on 8 % of the good completions, and on no others, differs by 8 % when all completions are good,
// although it failed on 4 % of what it was asked.
func TestFailuresOfOneClassWidenTheGap(t *testing.T) {
	common := stat.Common{
		Pass: pairs(920, 0, 0), Fail: pairs(1000, 0, 0), PassUnanswered: pairs(80, 80, 0), Failed: 160, Asked: 4000,
	}
	if gap := common.Gap(); gap < .08+.05 {
		t.Errorf("the gap is %v", gap)
	}
	common.PassUnanswered, common.FailUnanswered = stat.Pairs{}, pairs(80, 80, 0)
	if gap := common.Gap(); gap < .08+.05-.01 { // 80 of 1,080
		t.Errorf("the gap is %v where the anchor fails on bad ones", gap)
	}
}

func TestAnAnchorNeedsFiftyCommonItemsOfEachClass(t *testing.T) {
	for _, c := range []struct {
		pass, fail int64
		want       bool
	}{{50, 50, true}, {49, 50, false}, {50, 49, false}, {500, 0, false}} {
		common := stat.Common{Pass: pairs(c.pass, 0, 0), Fail: pairs(c.fail, 0, 0)}
		if common.Enough() != c.want {
			t.Errorf("%d and %d are enough: %v", c.pass, c.fail, !c.want)
		}
	}
}

// simulate draws the checks of a run. plus and minus are the shares of completions that only the reward judge and only
// the anchor judge pass. It returns the check at which the run is held, or 0.
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
		if anchor = anchor.Check(count[0], count[1], count[2]); anchor.Holds(stat.AnchorErrs) {
			return check + 1
		}
	}
	return 0
}

func TestAHealthyRunIsRarelyHeld(t *testing.T) {
	r := rand.New(rand.NewPCG(9, 9))
	for _, c := range []struct{ gap, plus, minus float64 }{
		{.05, .05, 0}, {.05, .15, .10}, {.2, .3, .1}, {.05, .04, .04},
	} {
		const runs = 400
		held := 0.0
		for range runs {
			if simulate(r, stat.Anchor{Gap: c.gap}, c.plus, c.minus, 100) > 0 {
				held++
			}
		}
		if rate := held / runs; rate > 0.04 {
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

// Whoever asks for checks of good completions does not delay the hold: the evidence of the regular checks is the same.
func TestRequestedChecksDoNotDelayAHold(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		alone, among := stat.NewWatch(0.1), stat.NewWatch(0.1)
		for range rapid.IntRange(1, 10).Draw(t, "checks") {
			for range rapid.IntRange(0, 20).Draw(t, "requested") {
				among, _ = among.Check(true, 0, 0, 64)
			}
			plus := rapid.Int64Range(0, 64).Draw(t, "plus")
			alone, _ = alone.Check(false, plus, 0, 64-plus)
			among, _ = among.Check(false, plus, 0, 64-plus)
		}
		if alone.Regular != among.Regular || among.Evidence() < (alone.Evidence()-0.25)*(1-1e-9) {
			t.Fatalf("the evidence is %v alone, and %v among requested checks", alone.Evidence(), among.Evidence())
		}
	})
}

// A check passes by itself too: after many good checks, the evidence of all says nothing about the last.
func TestABadCheckDoesNotPassAfterManyGoodOnes(t *testing.T) {
	watch := stat.NewWatch(0.2)
	var passes bool
	for range 50 {
		if watch, passes = watch.Check(false, 2, 2, 60); !passes {
			t.Fatal("a good check does not pass")
		}
	}
	if watch, passes = watch.Check(false, 32, 0, 32); passes || watch.Evidence() > 1 {
		t.Errorf("a bad check passes: %v, with an evidence of %v", passes, watch.Evidence())
	}
}

func TestARequestedCheckCanHold(t *testing.T) {
	watch := stat.NewWatch(0.2)
	for range 3 {
		watch, _ = watch.Check(true, 40, 0, 24)
	}
	if !watch.Holds() {
		t.Errorf("the evidence is %v after three bad checks that were asked for", watch.Evidence())
	}
	near(t, "evidence of nothing", stat.NewWatch(0.2).Evidence(), 1, 12)
	near(t, "evidence that holds", stat.HoldsFrom, 25, 12)
}
