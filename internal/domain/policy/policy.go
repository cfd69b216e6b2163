// Package policy keeps the evidence policies of workspaces. Where one is in force, an alias is repointed only to a
// model that is proven to be no worse than the one which the alias stands for.
package policy

import (
	"fmt"
	"slices"

	"sovereign/internal/base/fault"
	"sovereign/internal/domain/alias"
	"sovereign/internal/grade/trust"
)

// An EvidencePolicy says which proof a workspace asks for.
type EvidencePolicy struct {
	Object                   string     `json:"object" enum:"evidence_policy"`
	Required                 bool       `json:"required" doc:"Whether a repoint of an alias needs a proof"`
	MaxAgeDays               int64      `json:"max_age_days" doc:"How old a proof may be"`
	MinTrust                 trust.Tier `json:"min_trust" enum:"provisional,measured,calibrated,certified" doc:"Of the judge, now"`
	MaxRegression            float64    `json:"max_regression" doc:"How much lower the true pass rate may be than that of the model before"`
	Confidence               float64    `json:"confidence" doc:"Of the proof: 1 - confidence is divided among the evals of the pair of models, most of it for the first"`
	MaxUnprovenCanaryPercent int64      `json:"max_unproven_canary_percent" doc:"The share of a canary that needs no proof"`
}

// standard is the policy of a workspace that has set none.
var standard = EvidencePolicy{
	Object: "evidence_policy", MaxAgeDays: 30, MinTrust: trust.Measured, MaxRegression: 0.05, Confidence: 0.95,
	MaxUnprovenCanaryPercent: 20,
}

// An EvidencePolicyChange is what shall be set; what is nil stays as it is.
type EvidencePolicyChange struct {
	Required                 *bool       `json:"required,omitempty"`
	MaxAgeDays               *int64      `json:"max_age_days,omitempty"`
	MinTrust                 *trust.Tier `json:"min_trust,omitempty" enum:"provisional,measured,calibrated,certified"`
	MaxRegression            *float64    `json:"max_regression,omitempty"`
	Confidence               *float64    `json:"confidence,omitempty"`
	MaxUnprovenCanaryPercent *int64      `json:"max_unproven_canary_percent,omitempty"`
}

// with returns p with a change.
func (p EvidencePolicy) with(c *EvidencePolicyChange) EvidencePolicy {
	set(&p.Required, c.Required)
	set(&p.MaxAgeDays, c.MaxAgeDays)
	set(&p.MinTrust, c.MinTrust)
	set(&p.MaxRegression, c.MaxRegression)
	set(&p.Confidence, c.Confidence)
	set(&p.MaxUnprovenCanaryPercent, c.MaxUnprovenCanaryPercent)
	return p
}

func set[T any](to, from *T) {
	if from != nil {
		*to = *from
	}
}

// check reports a rule that p breaks, naming the field. A comparison with NaN is false, so NaN breaks a rule.
func (p *EvidencePolicy) check() error {
	for _, rule := range []struct {
		field string
		kept  bool
		says  string
	}{
		{"max_age_days", p.MaxAgeDays >= 1 && p.MaxAgeDays <= 365, "must be 1 to 365"},
		{"min_trust", p.MinTrust.AtLeast(trust.Provisional), "must be provisional, measured, calibrated or certified"},
		{"max_regression", p.MaxRegression > 0 && p.MaxRegression < 1, "must be above 0 and below 1"},
		{"confidence", p.Confidence >= 0.5 && p.Confidence <= 0.9999, "must be 0.5 to 0.9999"},
		{"max_unproven_canary_percent", p.MaxUnprovenCanaryPercent >= 0 && p.MaxUnprovenCanaryPercent <= 100, "must be 0 to 100"},
	} {
		if !rule.kept {
			return fault.Invalid(rule.field, rule.says)
		}
	}
	return nil
}

// A need is a model that must be proven, and what makes it so.
type need struct {
	Field string // of the alias
	Model string
	Why   string
	Eval  string // the one that must prove it; empty for any
}

// needs returns the models of a changed alias that must be proven against the incumbent, each once. These need no
// proof: every model of a name that was never used; the incumbent; the model before the last repoint, so that nobody is
// locked into an outage; and a model that the alias has already, in the same place and with no larger share.
func (p *EvidencePolicy) needs(c alias.Change) (all []need) {
	if c.Incumbent == nil {
		return nil
	}
	add := func(field, model, why string) {
		known := model == c.Incumbent.Model || model == c.Incumbent.Previous
		if !known && !slices.ContainsFunc(all, func(n need) bool { return n.Model == model }) {
			all = append(all, need{Field: field, Model: model, Why: why})
		}
	}
	before, after := c.Before, c.After
	if before == nil {
		before = new(alias.Alias)
	}
	if after.TargetModel != before.TargetModel || after.CanaryPercent < before.CanaryPercent {
		add("target_model", after.TargetModel, "a new target")
	}
	percent := int64(after.CanaryPercent)
	if (percent == 100 || percent > p.MaxUnprovenCanaryPercent) &&
		(after.CanaryModel != before.CanaryModel || after.CanaryPercent > before.CanaryPercent) {
		add("canary_percent", after.CanaryModel, fmt.Sprintf("a canary of %d %%, and up to %d %% needs no proof",
			percent, min(p.MaxUnprovenCanaryPercent, 99)))
	}
	for i, model := range after.FallbackModels {
		if !slices.Contains(before.FallbackModels, model) {
			add(fmt.Sprintf("fallback_models[%d]", i), model,
				"a new fallback, which answers whenever the others do not")
		}
	}
	return all
}
