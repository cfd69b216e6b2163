package criterion

import (
	"context"
	"fmt"

	"sovereign/internal/base/clock"
	"sovereign/internal/base/fault"
	"sovereign/internal/base/tenant"
	"sovereign/internal/domain/label"
	"sovereign/internal/grade/judge"
	"sovereign/internal/grade/trust"
	"sovereign/internal/store/db"
)

// Adjudication re-reads the last calibration against what was ruled on since. What it reads grows with the disagreements and the
// rulings, and not with the labels.
func (s *Store) Adjudication(ctx context.Context, ws tenant.ID, criterionID string) (Report, error) {
	var report Report
	err := s.db.SnapshotIn(ctx, ws, func(in db.Scoped) error {
		c, err := find(ctx, in, criterionID)
		if err != nil {
			return err
		}
		k, err := db.Maybe[keptCalibration](ctx, in, `SELECT `+calibrationColumns+` AND t.criterion_id = $2 AND t.aligned_at > 0 ORDER BY t.aligned_at DESC LIMIT 1`, criterionID)
		switch {
		case err != nil:
			return fmt.Errorf("find the last calibration: %w", err)
		case k == nil:
			return fault.Missing.New("the criterion was never calibrated: POST /v1/criteria/%s/calibrations", criterionID)
		}
		report, err = reread(ctx, in, c, k)
		return err
	})
	return report, err
}

func reread(ctx context.Context, in db.Scoped, c *kept, k *keptCalibration) (Report, error) {
	r := Report{CriterionID: c.ID, AlignedAt: k.AlignedAt}
	halves, err := k.halves()
	if err != nil {
		return r, err
	}
	shifts, err := db.Query[trust.Shift](ctx, in, `
		SELECT human, standing, judge, in_report_half FROM calibration_rows
		WHERE workspace_id = $1 AND calibration_id = $2 AND changed AND NOT shown`, k.ID)
	if err != nil {
		return r, fmt.Errorf("read what has changed: %w", err)
	}
	if err := r.rulings(ctx, in, k.ID); err != nil {
		return r, err
	}
	if len(r.Adjudications) == 0 {
		shifts = nil // where nobody ruled on anything, before and after are the same, whatever was deleted
	}
	after := halves.After(shifts)
	r.Before, r.After = halves.Block(), after.Block()
	if err := r.remains(ctx, in, k.ID, k.Threshold); err != nil {
		return r, err
	}
	if err := r.sample(ctx, in, k.ID, r.Adjudicated); err != nil {
		return r, err
	}
	certificate, err := lastCertificate(ctx, in, c.ID)
	if err != nil {
		return r, err
	}
	// what voided it voids it for good, until a calibration issues another
	r.CertificateVoided = certificate != nil && certificate.CalibrationID == k.ID && certificate.VoidedBy == byLabels
	return r, nil
}

// byLabels is what a certificate is voided by where the grades behind it have changed.
const byLabels = "labels"

// rulings fills in what was adjudicated.
func (r *Report) rulings(ctx context.Context, in db.Scoped, calibrationID string) error {
	type row struct {
		LabelID, RequestID   string
		Kind                 label.Kind
		Verdict, Adjudicated judge.Verdict
		Note                 string
		AdjudicatedAt        clock.Time
	}
	rows, err := db.Query[row](ctx, in, `
		SELECT r.label_id, r.request_id, l.kind, l.verdict, l.adjudicated, l.note, l.adjudicated_at
		FROM calibration_rows r JOIN labels l ON l.workspace_id = r.workspace_id AND l.id = r.label_id
		WHERE r.workspace_id = $1 AND r.calibration_id = $2 AND r.ruling <> '' ORDER BY l.adjudicated_at DESC, r.label_id`, calibrationID)
	if err != nil {
		return fmt.Errorf("read the adjudications: %w", err)
	}
	r.Adjudications = make([]Ruled, len(rows))
	for i, a := range rows {
		r.Adjudications[i] = Ruled{
			LabelID: a.LabelID, RequestID: given(a.RequestID), Kind: a.Kind, OriginalVerdict: a.Verdict, AdjudicatedVerdict: given(a.Adjudicated),
			Note: a.Note, AdjudicatedAt: a.AdjudicatedAt,
		}
		switch a.Kind {
		case label.LabelError:
			r.ByKind.LabelError++
		case label.JudgeError:
			r.ByKind.JudgeError++
		case label.Ambiguous:
			r.ByKind.Ambiguous++
		case label.Confirmed:
		}
	}
	r.Adjudicated = r.ByKind.LabelError + r.ByKind.JudgeError + r.ByKind.Ambiguous
	return nil
}

// remains fills in the disagreements that nobody has ruled on. That a label was corrected or confirmed before says nothing of a judge who
// disagrees with it since.
func (r *Report) remains(ctx context.Context, in db.Scoped, calibrationID string, threshold float64) error {
	type row struct {
		LabelID, RequestID string
		Judge, Human       judge.Verdict
		Critique           string
		Grade              float64
		InReportHalf       bool
	}
	r.Remaining = []Remaining{}
	for a, err := range db.Rows[row](ctx, in, `
		SELECT label_id, request_id, judge, human, critique, grade, in_report_half FROM calibration_rows
		WHERE workspace_id = $1 AND calibration_id = $2 AND wrong AND ruling <> 'judge_error' AND NOT changed`, calibrationID) {
		if err != nil {
			return fmt.Errorf("read the disagreements: %w", err)
		}
		r.Remaining = append(r.Remaining, Remaining{
			LabelID: a.LabelID, RequestID: given(a.RequestID), JudgeVerdict: a.Judge, HumanVerdict: a.Human, Critique: a.Critique,
			JudgeGrade: a.Grade, InReportHalf: a.InReportHalf,
		})
	}
	r.RemainingDisagreements = int64(len(r.Remaining))
	r.Concentration = Order(r.Remaining, threshold)
	return nil
}

// sample fills in the agreements that are to be looked at: as many as labels were ruled on, less those that were.
func (r *Report) sample(ctx context.Context, in db.Scoped, calibrationID string, size int64) error {
	r.AgreementsToReview = []Unseen{}
	if size == 0 {
		return nil
	}
	type row struct {
		LabelID, RequestID string
		Ruling             label.Kind
	}
	rows, err := db.Query[row](ctx, in, `
		SELECT label_id, request_id, ruling FROM calibration_rows
		WHERE workspace_id = $1 AND calibration_id = $2 AND judge = human AND (standing <> '' OR ruling <> '') ORDER BY draw LIMIT $3`, calibrationID, size)
	if err != nil {
		return fmt.Errorf("draw agreements: %w", err)
	}
	for _, a := range rows {
		if a.Ruling == "" {
			r.AgreementsToReview = append(r.AgreementsToReview, Unseen{LabelID: a.LabelID, RequestID: given(a.RequestID)})
		}
	}
	r.AfterIsDisagreementOnly = len(r.AgreementsToReview) > 0
	return nil
}

// given is a text, or nil where there is none.
func given[T ~string](text T) *T {
	if text == "" {
		return nil
	}
	return &text
}
