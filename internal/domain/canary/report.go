package canary

import (
	"fmt"
	"math"

	"github.com/go-json-experiment/json"

	"sovereign/internal/base/clock"
	"sovereign/internal/domain/alias"
	"sovereign/internal/domain/judging"
	"sovereign/internal/grade/stat"
)

// report returns what an epoch shows. The mode is left to Show: it depends on the alias.
func (e *epoch) report(f *facts) *alias.GateReport {
	verdict, reason := f.verdict()
	r := &alias.GateReport{
		Verdict: string(verdict), Reason: reason, Epoch: &e.ID, CertificateID: judging.Optional(e.CertificateID),
		Spent: e.Spent, StartedAt: &e.StartedAt, EvaluatedAt: &f.now,
		Arms: []alias.GateArm{e.Tally.Base.arm(e.TargetModel), e.Tally.Canary.arm(e.CanaryModel)},
	}
	w := f.gate().Weigh(e.Tally.Evidence)
	r.Evidence = alias.GateEvidence{
		Promote: rounded(w.Promote), RollBack: rounded(w.RollBack), Needed: rounded(w.Needed),
	}
	if difference, ok := e.Tally.Evidence.Promote.Difference(); ok {
		r.Difference = new(rounded(difference))
		bounds := e.Tally.Evidence.Bounds(alpha)
		r.DifferenceCI = &stat.Interval{rounded(bounds[0]), rounded(bounds[1])}
	}
	return r
}

func (f *figures) arm(model string) alias.GateArm {
	a := alias.GateArm{
		Model: model, N: f.N, Passes: f.Passes, Errors: f.Errors, Missing: f.Missing, Left: f.Left,
		Repeated: f.Repeats, Cost: f.Cost,
		Latency: alias.GateLatency{P50: f.Answers.quantile(0.5), P95: f.Answers.quantile(0.95)},
	}
	of := f.rate()
	bounds := of.Bounds(alpha)
	a.CI = stat.Interval{rounded(bounds[0]), rounded(bounds[1])}
	if of.N > 0 {
		a.Rate = new(rounded(of.Rate()))
	}
	return a
}

// rounded leaves out digits that say nothing.
func rounded(x float64) float64 { return math.Round(x*1e6) / 1e6 }

// shown returns what an alias shows of its epoch, which is nil before the first.
func (e *epoch) shown(a *alias.Alias, now clock.Time) (*alias.GateReport, error) {
	f := &facts{settings: a.GateSettings, splits: a.Splits(), tally: new(tally), now: now}
	r := &alias.GateReport{Arms: []alias.GateArm{}, Evidence: alias.GateEvidence{Needed: rounded(math.Log(1 / alpha))}}
	if e != nil {
		f.decided = e.decided()
		if err := json.Unmarshal([]byte(e.Shown), r); err != nil {
			return nil, fmt.Errorf("read what epoch %s shows: %w", e.ID, err)
		}
		if e.EndedAt > 0 {
			f.splits = true // it shows the last verdict
		}
	}
	if f.decided == "" && !f.splits {
		verdict, reason := f.verdict()
		r.Verdict, r.Reason = string(verdict), reason
	}
	r.Mode = a.GateMode
	if e != nil && !e.Automatic {
		r.Mode = alias.Recommend
	}
	return r, nil
}

// A Point is the evidence of an epoch at a time.
type Point struct {
	At           clock.Time `json:"at"`
	Position     int64      `json:"drawn" doc:"How many drawn requests were looked at"`
	Promote      float64    `json:"promote"`
	RollBack     float64    `json:"roll_back"`
	Difference   *float64   `json:"difference"`
	Lowest       float64    `json:"difference_low"`
	Highest      float64    `json:"difference_high"`
	BaseN        int64      `json:"base_n"`
	BasePasses   int64      `json:"base_passes"`
	CanaryN      int64      `json:"canary_n"`
	CanaryPasses int64      `json:"canary_passes"`
}

// SchemaName is the type's name in the OpenAPI document.
func (Point) SchemaName() string { return "GatePoint" }

// point returns the newest point of an epoch from its report.
func (e *epoch) point(r *alias.GateReport) *Point {
	p := &Point{
		At: *r.EvaluatedAt, Position: e.Entered, Promote: r.Evidence.Promote, RollBack: r.Evidence.RollBack,
		Difference: r.Difference, Lowest: -1, Highest: 1, BaseN: e.Tally.Base.N, BasePasses: e.Tally.Base.Passes,
		CanaryN: e.Tally.Canary.N, CanaryPasses: e.Tally.Canary.Passes,
	}
	if r.DifferenceCI != nil {
		p.Lowest, p.Highest = r.DifferenceCI[0], r.DifferenceCI[1]
	}
	return p
}

// due reports whether a point is stored, after the one at position last: each of the first, and later one after every 3
// % more. A million draws have about 350 points.
func due(last, position int64) bool { return position > last && position >= last+last*3/100 }
