package criterion

import (
	"context"
	"fmt"
	"slices"

	"sovereign/internal/base/clock"
	"sovereign/internal/base/tenant"
	"sovereign/internal/domain/label"
	"sovereign/internal/grade/judge"
	"sovereign/internal/store/db"
)

// Exists refuses a criterion that is not there.
func (*Store) Exists(ctx context.Context, in db.Scoped, criterionID string) error {
	_, err := find(ctx, in, criterionID)
	return err
}

// Verdict is what the judge said of a label when it was last calibrated, "" for nothing.
func (*Store) Verdict(ctx context.Context, in db.Scoped, labelID string) (judge.Verdict, error) {
	v, err := db.Maybe[judge.Verdict](ctx, in, `
		SELECT r.judge FROM calibration_rows r JOIN calibrations c ON c.workspace_id = r.workspace_id AND c.id = r.calibration_id
		WHERE r.workspace_id = $1 AND r.label_id = $2 AND c.aligned_at > 0 ORDER BY c.aligned_at DESC LIMIT 1`, labelID)
	if err != nil || v == nil {
		return "", err
	}
	return *v, nil
}

// Changed notes which verdict of a label stands. The judge's certificate is void if it was measured by another.
func (s *Store) Changed(ctx context.Context, tx *db.Tx, ws tenant.ID, c label.Change) error {
	in := tx.In(ws)
	if _, err := db.Exec(ctx, in, `UPDATE calibration_rows SET standing = $3, ruling = CASE WHEN $4 = '' THEN ruling ELSE $4 END WHERE workspace_id = $1 AND label_id = $2`,
		c.LabelID, c.Standing, c.Kind); err != nil {
		return fmt.Errorf("note what stands of label %s: %w", c.LabelID, err)
	}
	if c.CriterionID == "" || c.Before == c.Standing {
		return nil
	}
	if err := s.unmeasure(ctx, in, c); err != nil {
		return err
	}
	return s.reshoot(ctx, tx, ws, c)
}

// unmeasure voids the certificates that a label was measured for, if it stands with another verdict now. Those that it was not
// measured for stay as they are.
func (*Store) unmeasure(ctx context.Context, in db.Scoped, c label.Change) error {
	why := map[label.Kind]string{
		"": "was deleted", label.LabelError: "was corrected (label_error)", label.Ambiguous: "was withdrawn (ambiguous)",
	}[c.Kind]
	if why == "" {
		why = "was ruled on anew (" + string(c.Kind) + ")"
	}
	_, err := db.Exec(ctx, in, `
		UPDATE certificates SET voided_at = $4, voided_reason = $5, voided_by = 'labels' WHERE workspace_id = $1 AND criterion_id = $2 AND voided_at = 0 AND EXISTS (
			SELECT 1 FROM calibration_rows r WHERE r.workspace_id = $1 AND r.calibration_id = certificates.calibration_id AND r.label_id = $3
				AND NOT r.shown AND r.human <> r.standing AND (r.in_report_half OR NOT certificates.holdout_active))`,
		c.CriterionID, c.LabelID, clock.Now(), fmt.Sprintf("the label %s, which it was measured by, %s", c.LabelID, why))
	if err != nil {
		return fmt.Errorf("void what label %s measured: %w", c.LabelID, err)
	}
	return nil
}

// reshoot chooses other examples for a judge that is shown a label which does not stand as it did.
func (s *Store) reshoot(ctx context.Context, tx *db.Tx, ws tenant.ID, c label.Change) error {
	in := tx.In(ws)
	k, err := db.Maybe[kept](ctx, in, `SELECT `+columns+` AND c.id = $2`, c.CriterionID)
	if err != nil || k == nil { // the criterion may be gone
		return err
	}
	shots, err := parseShots(k.Shots)
	if err != nil || !slices.Contains(shotLabels(shots), c.LabelID) {
		return err
	}
	return s.rechoose(ctx, tx, ws, c.By, k)
}

// void ends the certificates of a judge that is told something else. What is void stays so, for the first reason.
func void(ctx context.Context, in db.Scoped, criterionID, reason string) error {
	return voidBy(ctx, in, criterionID, "version", reason)
}

func voidBy(ctx context.Context, in db.Scoped, criterionID, by, reason string) error {
	_, err := db.Exec(ctx, in, `UPDATE certificates SET voided_at = $3, voided_reason = $4, voided_by = $5 WHERE workspace_id = $1 AND criterion_id = $2 AND voided_at = 0`,
		criterionID, clock.Now(), reason, by)
	if err != nil {
		return fmt.Errorf("void the certificate of %s: %w", criterionID, err)
	}
	return nil
}

// unlike says what of it differs, "" for nothing.
func (t told) unlike(u told) string {
	switch {
	case t.rubric != u.rubric:
		return "the rubric"
	case t.model != u.model:
		return "the judge model"
	case t.scale != u.scale:
		return "the scale"
	case t.threshold != u.threshold:
		return "the pass threshold"
	case t.shown != u.shown || t.shots != u.shots:
		return "the examples that the judge is shown"
	}
	return ""
}
