package alias

import (
	"context"

	"sovereign/internal/base/clock"
	"sovereign/internal/base/fault"
	"sovereign/internal/base/money"
	"sovereign/internal/base/tenant"
	"sovereign/internal/grade/stat"
	"sovereign/internal/store/db"
)

// A GateMode says what a gate does with its verdict.
type GateMode string

// The modes.
const (
	Recommend GateMode = "recommend" // shows it
	Auto      GateMode = "auto"      // acts on it
)

// GateSettings let a judge supervise the canary. They are zero without a gate.
type GateSettings struct {
	GateCriterionID       string     `json:"gate_criterion_id" doc:"The judge that compares the canary with the target; empty without a gate, and then the other gate fields are left out"`
	GateMode              GateMode   `json:"gate_mode,omitzero" enum:"recommend,auto"`
	GateMinSamples        int64      `json:"gate_min_samples,omitzero" doc:"Of each model, before there is a verdict"`
	GateRollbackThreshold float64    `json:"gate_rollback_threshold,omitzero" doc:"The decrease of the pass rate that is not accepted"`
	GateWindowHours       int64      `json:"gate_window_hours,omitzero" doc:"After which the verdict is inconclusive"`
	GateSamplePercent     float64    `json:"gate_sample_percent,omitzero" doc:"Of the requests that are drawn for the judge"`
	GateMaxCost           money.Nano `json:"gate_max_cost_usd,omitzero" doc:"Of an epoch"`
}

// Gated reports whether there is a gate.
func (g *GateSettings) Gated() bool { return g.GateCriterionID != "" }

// DecidesLike reports whether both settings reach the same verdict on the same evidence.
func (g *GateSettings) DecidesLike(other *GateSettings) bool {
	return g.GateRollbackThreshold == other.GateRollbackThreshold && g.GateMinSamples == other.GateMinSamples
}

// Splits reports whether both models get requests.
func (a *Alias) Splits() bool {
	return a.CanaryModel != "" && a.CanaryPercent > 0 && a.CanaryPercent < 100
}

// A GateRequest is the part of a body that sets the gate.
type GateRequest struct {
	GateCriterionID       string      `json:"gate_criterion_id,omitempty" nullable:"true" doc:"A criterion: its judge compares the canary with the target. Needs request logging, and models for chat"`
	GateMode              *GateMode   `json:"gate_mode,omitempty" enum:"recommend,auto" doc:"recommend by default: the verdict is shown. auto acts on it, and needs a judge of the tier calibrated"`
	GateMinSamples        *int64      `json:"gate_min_samples,omitempty" minimum:"1" maximum:"1000000" doc:"Of each model, before there is a verdict; 50 by default"`
	GateRollbackThreshold *float64    `json:"gate_rollback_threshold,omitempty" minimum:"0.001" maximum:"0.5" doc:"The decrease of the pass rate that is not accepted; 0.05 by default"`
	GateWindowHours       *int64      `json:"gate_window_hours,omitempty" minimum:"1" maximum:"2160" doc:"After which the verdict is inconclusive; 168 by default"`
	GateSamplePercent     *float64    `json:"gate_sample_percent,omitempty" minimum:"0.001" maximum:"100" doc:"Of the requests that are drawn for the judge; 100 by default"`
	GateMaxCost           *money.Nano `json:"gate_max_cost_usd,omitempty" doc:"What the judge of one epoch may cost; 10 by default"`
}

// settings returns the whole settings: what is omitted or null is its default. Without a criterion there are none.
func (in *GateRequest) settings() (GateSettings, error) {
	if in.GateCriterionID == "" {
		return GateSettings{}, in.empty()
	}
	g := GateSettings{
		GateCriterionID: in.GateCriterionID, GateMode: or(in.GateMode, Recommend),
		GateMinSamples: or(in.GateMinSamples, 50), GateRollbackThreshold: or(in.GateRollbackThreshold, 0.05),
		GateWindowHours: or(in.GateWindowHours, 168), GateSamplePercent: or(in.GateSamplePercent, 100),
		GateMaxCost: or(in.GateMaxCost, 10*money.Dollar),
	}
	if g.GateMaxCost <= 0 {
		return g, fault.Invalid("gate_max_cost_usd", "must be above 0")
	}
	return g, nil
}

// empty refuses settings of a gate that has no criterion: the caller must not believe that the canary is supervised.
func (in *GateRequest) empty() error {
	for _, one := range []struct {
		field string
		given bool
	}{
		{"gate_mode", in.GateMode != nil},
		{"gate_min_samples", in.GateMinSamples != nil},
		{"gate_rollback_threshold", in.GateRollbackThreshold != nil},
		{"gate_window_hours", in.GateWindowHours != nil},
		{"gate_sample_percent", in.GateSamplePercent != nil},
		{"gate_max_cost_usd", in.GateMaxCost != nil},
	} {
		if one.given {
			return fault.Invalid(one.field, "needs a gate_criterion_id")
		}
	}
	return nil
}

func or[T any](given *T, otherwise T) T {
	if given == nil {
		return otherwise
	}
	return *given
}

// Gates is what aliases need of the package that compares canaries.
type Gates interface {
	// Begin is called when an alias that is gated, or was, is written. It refuses a gate that cannot work, and sets the
	// epoch and the stratum of after. before is nil for a new alias.
	Begin(ctx context.Context, tx *db.Tx, ws tenant.ID, before, after *Alias) error
	// End is called when an alias with an epoch is deleted.
	End(ctx context.Context, tx *db.Tx, ws tenant.ID, epoch string) error
	// Show fills in the gates of aliases, with one query for all of them.
	Show(ctx context.Context, in db.Scoped, all []Alias) error
}

// A GateReport is what a gate knows about a canary.
type GateReport struct {
	Verdict       string         `json:"verdict" enum:"idle,collecting,promote,roll_back,inconclusive,paused"`
	Mode          GateMode       `json:"mode" enum:"recommend,auto" doc:"recommend also where auto is set and the judge's certificate does not allow it now"`
	Epoch         *string        `json:"epoch" doc:"The evidence about this pair of models by this judge; null before the first"`
	Arms          []GateArm      `json:"arms" nullable:"false" doc:"The target, then the canary"`
	Difference    *float64       `json:"difference" doc:"Of the canary's pass rate to the target's, as the judge sees it"`
	DifferenceCI  *stat.Interval `json:"difference_ci" doc:"Each bound holds at all times with a confidence of 96 %"`
	Evidence      GateEvidence   `json:"evidence"`
	CertificateID *string        `json:"certificate_id" doc:"Of the judge in this epoch"`
	Spent         money.Nano     `json:"spent_usd" doc:"On the judge, in this epoch"`
	StartedAt     *clock.Time    `json:"started_at"`
	EvaluatedAt   *clock.Time    `json:"evaluated_at"`
	Reason        string         `json:"reason"`
}

// A GateArm is one of the two models.
type GateArm struct {
	Model    string        `json:"model"`
	N        int64         `json:"n" doc:"Drawn requests that count"`
	Passes   int64         `json:"passes" doc:"Of them by the judge's verdict"`
	Rate     *float64      `json:"rate" doc:"Passes among those with a verdict or an error"`
	CI       stat.Interval `json:"ci" doc:"Of the rate: each bound holds at all times with a confidence of 96 %"`
	Errors   int64         `json:"errors" doc:"Fails without an answer to judge: provider errors, timeouts, broken streams, fallbacks"`
	Missing  int64         `json:"missing" doc:"Answers that the judge has no verdict on; they count against every decision"`
	Left     int64         `json:"left" doc:"Callers that left; they do not count"`
	Repeated int64         `json:"repeated" doc:"Requests that asked what was asked before in the epoch; they do not count"`
	Latency  GateLatency   `json:"latency_ms" doc:"Of answers"`
	Cost     money.Nano    `json:"cost_usd" doc:"Of the requests that count"`
}

// A GateLatency has quantiles, which are null without answers.
type GateLatency struct {
	P50 *float64 `json:"p50"`
	P95 *float64 `json:"p95"`
}

// GateEvidence is how much there is for each decision: logarithms of e-values.
type GateEvidence struct {
	Promote  float64 `json:"promote"`
	RollBack float64 `json:"roll_back"`
	Needed   float64 `json:"needed" doc:"What either needs for a verdict"`
}
