package canary

import (
	"slices"
	"testing"
	"time"

	"sovereign/internal/base/clock"
	"sovereign/internal/base/money"
	"sovereign/internal/domain/alias"
	"sovereign/internal/grade/stat"
	"sovereign/internal/grade/trust"
)

// evidence returns a tally of one stratum, with n requests of each arm.
func evidence(n, basePasses, canaryPasses, baseLeft, canaryLeft int64) *tally {
	arms := stat.Strata{{Base: stat.Arm{N: n, Passed: basePasses}, Canary: stat.Arm{N: n, Passed: canaryPasses}}}
	return &tally{
		Evidence: stat.Evidence{Promote: arms, RollBack: arms},
		Leaves: stat.Leaves{{
			Base: stat.Arm{N: n + baseLeft, Passed: baseLeft}, Canary: stat.Arm{N: n + canaryLeft, Passed: canaryLeft},
		}},
		Base: figures{N: n, Passes: basePasses, Left: baseLeft}, Canary: figures{N: n, Passes: canaryPasses, Left: canaryLeft},
	}
}

// Every combination of what a verdict depends on has the verdict of the first of these rules that applies.
func TestTheVerdictOfEveryState(t *testing.T) {
	tallies := map[string]*tally{
		"none": new(tally), "equal": evidence(5000, 4500, 4500, 0, 0), "worse": evidence(1000, 900, 500, 0, 0), "unclear": evidence(60, 54, 52, 0, 0),
		"few": evidence(49, 49, 0, 0, 0), "left": evidence(5000, 4500, 4500, 0, 1000), "left worse": evidence(1000, 900, 500, 0, 200),
	}
	certificates := map[string]*certificate{
		"none": nil, "provisional": {Trust: trust.Provisional, Youden: 0.5}, "blind": {Trust: trust.Measured, Youden: 0},
		"measured": {Trust: trust.Measured, Youden: 0.8}, "calibrated": {Trust: trust.Calibrated, Youden: 0.9},
		"void": {Trust: trust.Calibrated, Youden: 0.9, Voided: true},
	}
	states := 0
	for _, decided := range []Verdict{"", Promote, RollBack} {
		for _, flags := range bits(7) {
			splits, deleted, logging, exhausted, spent, troubled, over := flags[0], flags[1], flags[2], flags[3], flags[4], flags[5], flags[6]
			for has, c := range certificates {
				for found, sum := range tallies {
					f := &facts{
						settings: alias.GateSettings{
							GateMode: alias.Auto, GateMinSamples: 50, GateRollbackThreshold: 0.05, GateWindowHours: 1, GateMaxCost: 10,
						},
						splits: splits, decided: decided, deleted: deleted, logging: logging, certificate: c, tally: sum, exhausted: exhausted,
						started: 1, now: clock.Time(1).Add(time.Minute),
					}
					if spent {
						f.spent = 10
					}
					if troubled {
						f.trouble = "x"
					}
					if over {
						f.now = f.started.Add(time.Hour)
					}
					want := Collecting
					proven := slices.Contains([]string{"measured", "calibrated", "void"}, has)
					switch {
					case decided != "":
						want = decided
					case !splits:
						want = Idle
					case deleted || !logging || !proven || found == "left" || found == "left worse":
						want = Paused
					case found == "equal":
						want = Promote
					case found == "worse":
						want = RollBack
					case over:
						want = Inconclusive
					case exhausted || spent || troubled:
						want = Paused
					}
					states++
					if got, why := f.verdict(); got != want || len(why) < 20 {
						t.Fatalf("decided %q, %v, certificate %s, %s: %s (%s), want %s", decided, flags, has, found, got, why, want)
					}
				}
			}
		}
	}
	t.Logf("%d states", states)
}

// bits returns every combination of n flags.
func bits(n int) (all [][]bool) {
	for m := range 1 << n {
		flags := make([]bool, n)
		for i := range flags {
			flags[i] = m>>i&1 == 1
		}
		all = append(all, flags)
	}
	return all
}

// A gate never acts without a valid certificate of the tier, on any state.
func TestAGateActsOnlyOnAProvenVerdict(t *testing.T) {
	is := identity{"a", "b", "crit", 1, "cert"}
	for _, c := range []*certificate{nil, {ID: "cert", Trust: trust.Measured}, {ID: "cert", Trust: trust.Calibrated, Voided: true}, {ID: "cert", Trust: trust.Calibrated}, {ID: "new", Trust: trust.Certified}} {
		for _, mode := range []alias.GateMode{alias.Recommend, alias.Auto} {
			for _, verdict := range []Verdict{Idle, Collecting, Promote, RollBack, Inconclusive, Paused} {
				for _, percent := range []int{0, 1, 99, 100} {
					for _, acted := range []clock.Time{0, 1} {
						e := &epoch{identity: is, Verdict: verdict, ActedAt: acted}
						if verdict == Promote || verdict == RollBack {
							e.DecidedAt = 1
						}
						st := &state{
							alias: &alias.Alias{TargetModel: "a", CanaryModel: "b", CanaryPercent: percent, GateSettings: alias.GateSettings{GateCriterionID: "crit", GateMode: mode}},
							epoch: e, judge: &judgeState{criterion: record, version: 1, certificate: c},
						}
						want := c != nil && c.ID == "cert" && c.Trust == trust.Calibrated && !c.Voided && mode == alias.Auto && e.DecidedAt > 0 &&
							acted == 0 && percent > 0 && percent < 100
						if st.acts() != want {
							t.Errorf("%+v, %s, %s, %d, %d: %v", c, mode, verdict, percent, acted, st.acts())
						}
					}
				}
			}
		}
	}
}

func TestTheStepsOfEpochs(t *testing.T) {
	is := identity{"a", "b", "crit", 1, "cert"}
	other := func(change func(*identity)) identity { o := is; change(&o); return o }
	open, decided := &epoch{identity: is, Percents: percents{10}}, &epoch{identity: is, Percents: percents{10}, Verdict: RollBack, DecidedAt: 1}
	restless := &epoch{identity: is, Percents: slices.Repeat(percents{20}, maxStrata)}
	for i, c := range []struct {
		from    *epoch
		is      identity
		percent int
		splits  bool
		did     bool
		want    step
	}{
		{nil, is, 10, false, false, stay},
		{nil, is, 10, true, false, nextEpoch},
		{open, is, 10, true, true, stay},
		{open, is, 10, true, false, stay}, // it was idle meanwhile, at the same share
		{open, is, 50, true, true, nextStratum},
		{open, is, 50, true, false, nextStratum},
		{open, is, 0, false, true, stay},
		{open, is, 100, false, true, stay},
		{open, other(func(o *identity) { o.TargetModel = "c" }), 10, true, true, nextEpoch},
		{open, other(func(o *identity) { o.CanaryModel = "c" }), 50, true, true, nextEpoch},
		{open, other(func(o *identity) { o.CriterionID = "c" }), 10, true, true, nextEpoch},
		{open, other(func(o *identity) { o.CriterionVersion = 2 }), 10, true, true, nextEpoch},
		{open, other(func(o *identity) { o.CertificateID = "c" }), 10, true, true, nextEpoch},
		{open, other(func(o *identity) { o.CertificateID = "" }), 10, false, true, stay},
		{decided, is, 10, true, true, stay},
		{decided, is, 10, true, false, nextEpoch},
		{decided, is, 20, true, false, nextEpoch},
		{decided, is, 0, false, true, stay},
		{restless, is, 20, true, true, stay},
		{restless, is, 10, true, true, nextEpoch}, // or the strata would grow without end
	} {
		a := &alias.Alias{CanaryPercent: c.percent, GateKey: "key"}
		if c.splits {
			a.CanaryModel = "b"
		}
		if got := c.from.next(c.is, a, c.did); got != c.want {
			t.Errorf("%d: %d, want %d", i, got, c.want)
		}
		a.GateKey = "" // of a release that counted repeated questions
		if got := c.from.next(c.is, a, c.did); c.splits != (got == nextEpoch) || !c.splits && got != stay {
			t.Errorf("%d, without a key: %d", i, got)
		}
	}
}

func TestAnEpochHasAFewHundredPoints(t *testing.T) {
	points, last := 0, int64(0)
	for position := int64(1); position <= 1_000_000; position++ {
		if due(last, position) {
			points, last = points+1, position
		}
	}
	if points < 200 || points > 500 {
		t.Errorf("%d points", points)
	}
}

func TestLatenciesAreWithinAFewPercent(t *testing.T) {
	var l latencies
	for i := int64(1); i <= 1000; i++ {
		l.add(i * 1000)
	}
	for q, want := range map[float64]float64{0.5: 500, 0.95: 950} {
		if got := *l.quantile(q); got < want*0.97 || got > want*1.03 {
			t.Errorf("%v: %v ms, want %v", q, got, want)
		}
	}
	if latencies(nil).quantile(0.5) != nil {
		t.Error("no answers have a latency")
	}
}

func TestTheReasonsSayWhatToDo(t *testing.T) {
	f := &facts{
		settings: alias.GateSettings{GateMinSamples: 50, GateRollbackThreshold: 0.05, GateWindowHours: 2, GateMaxCost: money.Dollar / 2},
		splits:   true, logging: true, version: 3, certificate: &certificate{Trust: trust.Measured, Youden: 0.9}, spent: money.Dollar / 4,
		tally: evidence(30, 20, 10, 1, 9), started: 1, now: 1, trouble: "the wallet is empty",
	}
	for i, want := range map[string]string{
		"not calibrated": "Version 3 of the judge has no certificate: calibrate it.",
		"budget spent":   "The judge has cost $0.25 of $0.5, and the rest may not cover another question: raise gate_max_cost_usd to go on.",
		"few samples":    "30 requests to the target and 30 to the canary are judged; a verdict needs 50 of each.",
		"better":         "The canary is not worse than the target by 0.05 or more: 10 of 30 pass, against 20 of 30.",
		"worse":          "The canary is worse than the target: 10 of 30 pass, against 20 of 30.",
		"trouble":        "The judge cannot be asked, and is tried again: the wallet is empty",
		"window over":    "The window of 2 hours is over, and the evidence suffices for neither decision.",
	} {
		r := rules[slices.IndexFunc(rules, func(r rule) bool { return r.name == i })]
		if got := r.reason(f); got != want {
			t.Errorf("%s: %s", i, got)
		}
	}
	if got, want := f.leaving()[:78], "Callers leave the target in 3.2 % of the requests and the canary in 23.1 %, so"; got[:60] != want[:60] {
		t.Errorf("%s", got)
	}
}
