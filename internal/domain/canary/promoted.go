package canary

import (
	"context"
	"fmt"
	"slices"

	"sovereign/internal/base/clock"
	"sovereign/internal/grade/stat"
	"sovereign/internal/grade/trust"
	"sovereign/internal/store/db"
)

// Terms are what a promotion must show to prove something to others than those who set the gate.
type Terms struct {
	MaxRegression float64    // in place of the gate's margin
	Confidence    float64    // for all epochs of the pair of models together
	MinTrust      trust.Tier // of the judge, now
	Since         clock.Time // when the epochs began at the earliest
}

// A trial is an epoch that is about a pair of models.
type trial struct {
	epoch
	CertifiedTrust trust.Tier
	VoidedAt       clock.Time
}

// Promoted reports whether the gate of an alias has found, in the last epoch or in the one before it, that one model
// may replace another, on these terms. The margin of a gate is its owner's choice, so that the evidence is weighed
// anew. Beginning epochs until one promotes makes it harder: what may err is divided among those of the pair.
func (s *Store) Promoted(ctx context.Context, in db.Scoped, name, from, to string, t Terms) (bool, error) {
	all, err := db.Query[trial](ctx, in, `
		SELECT e.id, e.target_model, e.canary_model, e.certificate_id, e.youden, e.entered, e.tally, e.verdict, e.decided_at,
			e.started_at, COALESCE(c.trust, '') AS certified_trust, COALESCE(c.voided_at, 0) AS voided_at
		FROM canary_epochs e LEFT JOIN certificates c ON c.workspace_id = e.workspace_id AND c.id = e.certificate_id
		WHERE e.workspace_id = $1 AND e.alias = $2 AND e.started_at >= $3
		ORDER BY e.started_at DESC, e.id DESC`, name, t.Since)
	if err != nil {
		return false, fmt.Errorf("read the epochs of %s: %w", name, err)
	}
	tried, certificates := int64(0), map[string]bool{}
	for i := range all {
		if e := &all[i]; e.Entered > 0 && e.TargetModel == from && e.CanaryModel == to {
			tried++
			certificates[e.CertificateID] = true
		}
	}
	rule := stat.Gate{Margin: t.MaxRegression, Alpha: t.alpha(tried, int64(len(certificates)))}
	return rule.Alpha > 0 && slices.ContainsFunc(all[:min(len(all), 2)], func(e trial) bool {
		rule.Youden = e.Youden
		return e.DecidedAt > 0 && e.Verdict == Promote && e.TargetModel == from && e.CanaryModel == to &&
			e.VoidedAt == 0 && e.CertifiedTrust.AtLeast(t.MinTrust) && rule.Judge(e.Tally.Evidence) == stat.Promote
	}), nil
}

// alpha returns the probability with which the e-process of one epoch may err: what is left when the bounds of each
// certificate have theirs, divided among the epochs.
func (t *Terms) alpha(epochs, certificates int64) float64 {
	return (1 - t.Confidence - stat.JudgeErrs*float64(certificates)) / float64(max(epochs, 1))
}
