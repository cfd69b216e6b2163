package canary

import (
	"fmt"
	"slices"
	"time"

	"sovereign/internal/base/clock"
	"sovereign/internal/base/money"
	"sovereign/internal/domain/alias"
	"sovereign/internal/grade/stat"
	"sovereign/internal/grade/trust"
)

// A Verdict is what a gate says about a canary.
type Verdict string

// The verdicts. Promote and RollBack stay for their epoch; the others are what holds now.
const (
	Idle         Verdict = "idle"
	Collecting   Verdict = "collecting"
	Promote      Verdict = "promote"
	RollBack     Verdict = "roll_back"
	Inconclusive Verdict = "inconclusive"
	Paused       Verdict = "paused"
)

// alpha is what the e-process may err: the rest of the promised 5 % is for the bounds of the judge's rates.
var alpha = stat.NewGate(stat.Table{}, 0, 0).Alpha

// When the rates of leaving, or of refusals, differ: see stat.Leaves.
const (
	leavingMargin = 0.05
	leavingAlpha  = 0.025
)

// A certificate is what the judge's last certificate says about the version in force.
type certificate struct {
	ID     string
	Trust  trust.Tier // as issued
	Voided bool
	Youden float64 // the lower bound of Se + Sp - 1
}

// facts are everything that a verdict depends on.
type facts struct {
	settings    alias.GateSettings
	splits      bool
	decided     Verdict // promote or roll_back, once it was reached in this epoch
	acted       bool
	deleted     bool // the criterion
	logging     bool
	version     int64        // of the criterion
	certificate *certificate // nil when none was issued for the version
	tally       *tally
	spent       money.Nano
	exhausted   bool   // the next question could cost more than what is left
	trouble     string // why the judge cannot be asked, if it cannot
	held        bool   // the workspace's evidence policy refuses what the gate would do
	started     clock.Time
	now         clock.Time
}

// gate returns the decision rule.
func (f *facts) gate() stat.Gate {
	g := stat.Gate{Margin: f.settings.GateRollbackThreshold, Alpha: alpha, Minimum: f.settings.GateMinSamples}
	if f.certificate != nil {
		g.Youden = f.certificate.Youden
	}
	return g
}

// automatic reports whether the judge's certificate allows a gate to act.
func (c *certificate) automatic() bool {
	return c != nil && !c.Voided && c.Trust.AtLeast(trust.Calibrated)
}

// A rule says when a verdict holds, and why, in a sentence for a person.
type rule struct {
	name    string
	holds   func(*facts) bool
	verdict Verdict
	stops   bool // nothing is judged while it holds
	reason  func(*facts) string
}

// rules are tried in order; the last one always holds.
var rules = []rule{
	{"promoted", func(f *facts) bool { return f.decided == Promote }, Promote, true, (*facts).promoted},
	{"rolled back", func(f *facts) bool { return f.decided == RollBack }, RollBack, true, (*facts).rolledBack},
	{"no split", func(f *facts) bool { return !f.splits }, Idle, true, func(*facts) string {
		return "The requests are not split between two models: set a canary_model, and a canary_percent from 1 to 99."
	}},
	{"no criterion", func(f *facts) bool { return f.deleted }, Paused, true, func(*facts) string {
		return "The criterion was deleted, so that there is no judge: set another gate_criterion_id."
	}},
	{"not logged", func(f *facts) bool { return !f.logging }, Paused, true, func(*facts) string {
		return "Request logging is off, so that the judge has nothing to read: turn it on."
	}},
	{"not calibrated", func(f *facts) bool { return f.certificate == nil }, Paused, true, func(f *facts) string {
		return fmt.Sprintf("Version %d of the judge has no certificate: calibrate it.", f.version)
	}},
	{"not measured", (*facts).unmeasured, Paused, true, func(f *facts) string {
		return fmt.Sprintf("The judge's trust is only %s: grade more exchanges, and calibrate it.", f.certificate.Trust)
	}},
	{"blind", func(f *facts) bool { return f.certificate.Youden <= 0 }, Paused, true, func(*facts) string {
		return "The judge's certificate does not prove that it can tell good answers from bad ones: grade more " +
			"exchanges, and calibrate it."
	}},
	{"leaving", (*facts).leaves, Paused, false, (*facts).leaving},
	{"refusing", (*facts).refuses, Paused, false, (*facts).refusing},
	{"better", func(f *facts) bool { return f.decision() == stat.Promote }, Promote, false, (*facts).promoted},
	{"worse", func(f *facts) bool { return f.decision() == stat.Rollback }, RollBack, false, (*facts).rolledBack},
	{"window over", (*facts).over, Inconclusive, true, func(f *facts) string {
		return fmt.Sprintf("The window of %d hours is over, and the evidence suffices for neither decision.",
			f.settings.GateWindowHours)
	}},
	{"budget spent", (*facts).broke, Paused, false, func(f *facts) string {
		return fmt.Sprintf("The judge has cost $%s of $%s, and the rest may not cover another question: raise "+
			"gate_max_cost_usd to go on.", f.spent, f.settings.GateMaxCost)
	}},
	{"trouble", func(f *facts) bool { return f.trouble != "" }, Paused, false, func(f *facts) string {
		return "The judge cannot be asked, and is tried again: " + f.trouble
	}},
	{"few samples", (*facts).few, Collecting, false, func(f *facts) string {
		return fmt.Sprintf("%d requests to the target and %d to the canary are judged; a verdict needs %d of each.%s",
			f.tally.Base.N, f.tally.Canary.N, f.settings.GateMinSamples, f.repeats())
	}},
	{"collecting", func(*facts) bool { return true }, Collecting, false, func(f *facts) string {
		return "The evidence suffices for neither decision yet." + f.repeats()
	}},
}

// rule returns the first rule that holds.
func (f *facts) rule() *rule {
	return &rules[slices.IndexFunc(rules, func(r rule) bool { return r.holds(f) })]
}

// verdict returns the verdict, and why.
func (f *facts) verdict() (Verdict, string) {
	r := f.rule()
	reason := r.reason(f)
	if f.settings.GateMode == alias.Auto && !f.acted && r.verdict != Idle &&
		f.certificate != nil && !f.certificate.automatic() {
		reason += " The judge's certificate does not allow the gate to act, so that it only recommends."
	}
	if f.held && !f.acted {
		reason += " The workspace's evidence policy asks for more than the gate has found, so that it only recommends."
	}
	return r.verdict, reason
}

func (f *facts) unmeasured() bool { return !f.certificate.Trust.AtLeast(trust.Measured) }

func (f *facts) leaves() bool { return f.tally.Leaves.Differ(leavingMargin, leavingAlpha) }

func (f *facts) refuses() bool { return f.tally.Refusals.Differ(leavingMargin, leavingAlpha) }

func (f *facts) decision() stat.Decision { return f.gate().Judge(f.tally.Evidence) }

func (f *facts) broke() bool { return f.exhausted || f.spent >= f.settings.GateMaxCost }

func (f *facts) over() bool {
	return f.now.Sub(f.started) >= time.Duration(f.settings.GateWindowHours)*time.Hour
}

func (f *facts) few() bool { return min(f.tally.Base.N, f.tally.Canary.N) < f.settings.GateMinSamples }

// repeats says how many requests do not count because others asked the same before.
func (f *facts) repeats() string {
	n := f.tally.Base.Repeats + f.tally.Canary.Repeats
	if n == 0 {
		return ""
	}
	return fmt.Sprintf(" %d more asked a question again, and a question counts once.", n)
}

func (f *facts) promoted() string {
	text := fmt.Sprintf("The canary is not worse than the target by %g or more: %s.",
		f.settings.GateRollbackThreshold, f.counts())
	if f.acted {
		text += " It has become the target."
	}
	return text
}

func (f *facts) rolledBack() string {
	text := fmt.Sprintf("The canary is worse than the target: %s.", f.counts())
	if f.acted {
		text += " It gets no more requests."
	}
	return text
}

func (f *facts) counts() string {
	return fmt.Sprintf("%d of %d pass, against %d of %d",
		f.tally.Canary.Passes, f.tally.Canary.N, f.tally.Base.Passes, f.tally.Base.N)
}

func (f *facts) leaving() string {
	base, canary := stat.Strata(f.tally.Leaves).Sum()
	return fmt.Sprintf("Callers leave the target in %.1f %% of the requests and the canary in %.1f %%, so that the "+
		"answers which are left do not compare the models: find out why.", 100*base.Rate(), 100*canary.Rate())
}

func (f *facts) refusing() string {
	base, canary := stat.Strata(f.tally.Refusals).Sum()
	return fmt.Sprintf("%.1f %% of the requests to the target and %.1f %% of those to the canary are refused, by the "+
		"provider or by the gateway, so that the answers which are left do not compare the models: find out why.",
		100*base.Rate(), 100*canary.Rate())
}
