package calibration

import (
	"context"
	"fmt"

	"github.com/go-json-experiment/json"

	"sovereign/internal/base/clock"
	"sovereign/internal/base/fault"
	"sovereign/internal/base/tenant"
	"sovereign/internal/domain/criterion"
	"sovereign/internal/domain/judging"
	"sovereign/internal/domain/label"
	"sovereign/internal/grade/judge"
	"sovereign/internal/grade/trust"
	"sovereign/internal/store/audit"
	"sovereign/internal/store/db"
)

// certify signs a proof and stores the certificate. ctx is bound to tx.
func (s *Store) certify(ctx context.Context, tx *db.Tx, ws tenant.ID, r *record, p Proof) error {
	in := tx.In(ws)
	if err := p.addHistory(ctx, in); err != nil {
		return err
	}
	document, err := json.Marshal(p)
	if err != nil {
		return fmt.Errorf("write a certificate: %w", err)
	}
	signature, err := s.signer.SignDocument(ctx, document)
	if err != nil {
		return err
	}
	if _, err := db.Exec(ctx, in, `
		INSERT INTO certificates (workspace_id, id, criterion_id, calibration_id, version, edition, document, key_id,
			jws, trust, holdout_active, issued_at, voided_at, voided_reason, voided_by)
		VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, 0, '', '')`,
		p.ID, p.CriterionID, p.CalibrationID, p.Version, p.Edition, document, signature.KeyID, signature.JWS, p.Trust,
		p.HoldoutActive, p.IssuedAt); err != nil {
		return fmt.Errorf("insert a certificate: %w", err)
	}
	return audit.Record(ctx, tx, ws, tenant.Actor{Kind: tenant.ActorKey, User: r.CreatedBy}, "certificate.issue", p.ID,
		nil, p)
}

// addHistory fills in how often the criterion was calibrated and its labels adjudicated: without that a proof would
// claim more than it shows.
func (p *Proof) addHistory(ctx context.Context, in db.Scoped) (err error) {
	if p.Calibrations, err = db.One[int64](ctx, in,
		`SELECT COUNT(*) FROM calibrations WHERE workspace_id = $1 AND criterion_id = $2 AND aligned_at > 0`,
		p.CriterionID); err != nil {
		return fmt.Errorf("count calibrations: %w", err)
	}
	type row struct {
		Kind label.Kind
		N    int64
	}
	rows, err := db.Query[row](ctx, in,
		`SELECT kind, COUNT(*) AS n FROM labels WHERE workspace_id = $1 AND criterion_id = $2 AND kind <> ''
			GROUP BY kind`, p.CriterionID)
	if err != nil {
		return fmt.Errorf("count adjudications: %w", err)
	}
	for _, r := range rows {
		if r.Kind == label.Ambiguous {
			p.Withdrawn = r.N
		} else {
			p.Adjudicated += r.N
		}
	}
	return nil
}

const certificateColumns = `SELECT id, calibration_id, version, document, key_id, jws, voided_at, voided_reason, voided_by FROM certificates WHERE workspace_id = $1`

// lastCertificate reads the newest certificate of a criterion, or returns nil.
func lastCertificate(ctx context.Context, in db.Scoped, criterionID string) (*certificateRecord, error) {
	r, err := db.Maybe[certificateRecord](
		ctx, in, certificateColumns+` AND criterion_id = $2 ORDER BY issued_at DESC, id DESC LIMIT 1`, criterionID,
	)
	if err != nil {
		return nil, fmt.Errorf("find a certificate: %w", err)
	}
	return r, nil
}

// LastCertificate reads the newest certificate of a criterion, void or not. It returns nil when there is none.
func LastCertificate(ctx context.Context, in db.Scoped, criterionID string) (*Certificate, error) {
	r, err := lastCertificate(ctx, in, criterionID)
	if err != nil || r == nil {
		return nil, err
	}
	c, err := r.certificate()
	return &c, err
}

// Certificate reads the newest certificate of a criterion, void or not.
func (s *Store) Certificate(ctx context.Context, ws tenant.ID, criterionID string) (Certificate, error) {
	if _, err := criterion.Find(ctx, s.db.In(ws), criterionID); err != nil {
		return Certificate{}, err
	}
	c, err := LastCertificate(ctx, s.db.In(ws), criterionID)
	switch {
	case err != nil:
		return Certificate{}, err
	case c == nil:
		return Certificate{}, fault.Missing.New(
			"the criterion has no certificate: POST /v1/criteria/%s/calibrations makes one", criterionID,
		)
	}
	return *c, nil
}

// CertificateByID reads a certificate of any age, void or not. Its criterion may have been deleted.
func (s *Store) CertificateByID(ctx context.Context, ws tenant.ID, name string) (Certificate, error) {
	return FindCertificate(ctx, s.db.In(ws), name)
}

// FindCertificate is CertificateByID, for other packages.
func FindCertificate(ctx context.Context, in db.Scoped, name string) (Certificate, error) {
	r, err := db.Maybe[certificateRecord](ctx, in, certificateColumns+` AND id = $2`, name)
	switch {
	case err != nil:
		return Certificate{}, fmt.Errorf("find a certificate: %w", err)
	case r == nil:
		return Certificate{}, fault.NotFound("certificate", name)
	}
	return r.certificate()
}

// void voids the certificates of a criterion. One that is void already keeps its first reason.
func void(ctx context.Context, in db.Scoped, criterionID, by, reason string) error {
	_, err := db.Exec(ctx, in,
		`UPDATE certificates SET voided_at = $3, voided_reason = $4, voided_by = $5 WHERE workspace_id = $1
			AND criterion_id = $2 AND voided_at = 0`,
		criterionID, clock.Now(), reason, by)
	if err != nil {
		return fmt.Errorf("void the certificate of %s: %w", criterionID, err)
	}
	return nil
}

// VoidOtherEditions voids the certificates of judges that this release asks in other words than the release that
// measured them.
func (s *Store) VoidOtherEditions(ctx context.Context) error {
	_, err := db.Exec(ctx, s.db.Across("a release asks all judges in its own words"), `
		UPDATE certificates SET voided_at = $1, voided_reason = $2, voided_by = $4 WHERE voided_at = 0
			AND edition <> $3`,
		clock.Now(), fmt.Sprintf("the server asks judges in other words since: edition %d", judge.Edition),
		judge.Edition, voidedByEdition)
	if err != nil {
		return fmt.Errorf("void the certificates of earlier editions: %w", err)
	}
	return nil
}

// Exists refuses a criterion that does not exist.
func (*Store) Exists(ctx context.Context, in db.Scoped, criterionID string) error {
	_, err := criterion.Find(ctx, in, criterionID)
	return err
}

// Verdict reads what the judge of a criterion said of an item in the last calibration that judged it. It is "" when
// there is none.
func (*Store) Verdict(ctx context.Context, in db.Scoped, criterionID string, item []byte) (judge.Verdict, error) {
	v, err := db.Maybe[judge.Verdict](ctx, in, `
		SELECT r.judge FROM calibration_rows r JOIN calibrations c ON c.workspace_id = r.workspace_id
			AND c.id = r.calibration_id
		WHERE r.workspace_id = $1 AND r.item = $2 AND c.criterion_id = $3 AND c.aligned_at > 0
			ORDER BY c.aligned_at DESC LIMIT 1`, item, criterionID)
	if err != nil || v == nil {
		return "", err
	}
	return *v, nil
}

// LabelChanged records what the labels of an item say now, voids the certificates that were measured by something else,
// and lets the criterion choose other examples.
func (s *Store) LabelChanged(ctx context.Context, tx *db.Tx, ws tenant.ID, c label.Change) error {
	if c.CriterionID == "" {
		return nil
	}
	in := tx.In(ws)
	const which = ` WHERE workspace_id = $1 AND item = $2 AND calibration_id IN (
		SELECT t.id FROM calibrations t WHERE t.workspace_id = $1 AND t.criterion_id = $3)`
	var err error
	if c.After == (label.Consensus{}) { // without labels the last ruling stays, for the record
		_, err = db.Exec(ctx, in, `UPDATE calibration_rows SET standing = ''`+which, c.Item, c.CriterionID)
	} else {
		_, err = db.Exec(ctx, in, `UPDATE calibration_rows SET standing = $4, ruling = $5, label_id = $6`+which,
			c.Item, c.CriterionID, c.After.Verdict, c.After.Ruling, c.After.LabelID)
	}
	if err != nil {
		return fmt.Errorf("record the verdict of label %s: %w", c.LabelID, err)
	}
	if c.Before.Verdict == c.After.Verdict && c.Before.LabelID == c.After.LabelID {
		return nil
	}
	if err := voidMeasuredBy(ctx, in, c); err != nil {
		return err
	}
	return s.criteria.LabelChanged(ctx, tx, ws, c)
}

// voidMeasuredBy voids the certificates that were measured by an item, if its verdict is another now.
func voidMeasuredBy(ctx context.Context, in db.Scoped, c label.Change) error {
	_, err := db.Exec(ctx, in, `
		UPDATE certificates SET voided_at = $4, voided_reason = $5, voided_by = $6 WHERE workspace_id = $1
			AND criterion_id = $2 AND voided_at = 0 AND EXISTS (
			SELECT 1 FROM calibration_rows r WHERE r.workspace_id = $1
				AND r.calibration_id = certificates.calibration_id AND r.item = $3
				AND NOT r.shown AND r.human <> r.standing AND (r.in_report_half OR NOT certificates.holdout_active))`,
		c.CriterionID, c.Item, clock.Now(), voidReason(c), voidedByLabels)
	if err != nil {
		return fmt.Errorf("void the certificates that label %s measured: %w", c.LabelID, err)
	}
	return nil
}

// Report compares the last calibration with the labels as they are now. What it reads grows with the disagreements and
// the adjudications, and not with the labels.
func (s *Store) Report(ctx context.Context, ws tenant.ID, criterionID string) (Report, error) {
	var report Report
	err := s.db.SnapshotIn(ctx, ws, func(in db.Scoped) error {
		if _, err := criterion.Find(ctx, in, criterionID); err != nil {
			return err
		}
		r, err := last(ctx, in, criterionID)
		if err != nil {
			return err
		}
		report, err = newReport(ctx, in, r)
		return err
	})
	return report, err
}

func newReport(ctx context.Context, in db.Scoped, c *record) (Report, error) {
	r := Report{CriterionID: c.CriterionID, AlignedAt: c.AlignedAt}
	halves, err := c.halves()
	if err != nil {
		return r, err
	}
	if err := r.readTies(ctx, in); err != nil {
		return r, err
	}
	changes, err := db.Query[trust.Change](ctx, in, `
		SELECT human AS before, standing AS after, judge, in_report_half FROM calibration_rows
		WHERE workspace_id = $1 AND calibration_id = $2 AND changed AND NOT shown`, c.ID)
	if err != nil {
		return r, fmt.Errorf("read what has changed: %w", err)
	}
	if err := r.readAdjudications(ctx, in, c.ID); err != nil {
		return r, err
	}
	if len(r.Adjudications) == 0 {
		changes = nil // without an adjudication before and after are the same, also when labels were deleted
	}
	after := halves.After(changes)
	r.Before, r.After = halves.Block(), after.Block()
	if err := r.readRemaining(ctx, in, c.ID, c.Threshold); err != nil {
		return r, err
	}
	if err := r.drawAgreements(ctx, in, c.ID, r.Adjudicated); err != nil {
		return r, err
	}
	certificate, err := lastCertificate(ctx, in, c.CriterionID)
	if err != nil {
		return r, err
	}
	// A void certificate stays void until another calibration issues a new one.
	r.CertificateVoided = certificate != nil && certificate.CalibrationID == c.ID &&
		certificate.VoidedBy == voidedByLabels
	return r, nil
}

// maxTied is how many ties a report lists.
const maxTied = 200

// readTies fills in the items over which people are evenly split now. Such an item has no verdict, and the index of
// verdicts finds them among any number of others.
func (r *Report) readTies(ctx context.Context, in db.Scoped) (err error) {
	if r.Ties, err = db.One[int64](ctx, in, `
		SELECT COUNT(*) FROM label_consensus
		WHERE workspace_id = $1 AND criterion_id = $2 AND verdict = '' AND tied AND NOT straddles`,
		r.CriterionID); err != nil {
		return fmt.Errorf("count ties: %w", err)
	}
	type row struct{ ID, RequestID string }
	rows, err := db.Query[row](ctx, in, `
		SELECT l.id, l.request_id FROM label_consensus c JOIN labels l ON l.workspace_id = c.workspace_id
			AND l.id = c.label_id
		WHERE c.workspace_id = $1 AND c.criterion_id = $2 AND c.verdict = '' AND c.tied AND NOT c.straddles
		ORDER BY l.id LIMIT $3`, r.CriterionID, maxTied)
	if err != nil {
		return fmt.Errorf("read ties: %w", err)
	}
	r.Tied = make([]LabelToReview, len(rows))
	for i, one := range rows {
		r.Tied[i] = LabelToReview{LabelID: one.ID, RequestID: judging.Optional(one.RequestID)}
	}
	return nil
}

// readAdjudications fills in the labels that were adjudicated. In a join SQLite would not use the index of the rows with
// a ruling, and would read all rows.
func (r *Report) readAdjudications(ctx context.Context, in db.Scoped, calibrationID string) error {
	type row struct {
		LabelID, RequestID   string
		Kind                 label.Kind
		Verdict, Adjudicated judge.Verdict
		Note                 string
		AdjudicatedAt        clock.Time
	}
	rows, err := db.Query[row](ctx, in, `
		WITH ruled AS MATERIALIZED (
			SELECT workspace_id, label_id, request_id FROM calibration_rows
			WHERE workspace_id = $1 AND calibration_id = $2 AND ruling <> '')
		SELECT r.label_id, r.request_id, l.kind, l.verdict, l.adjudicated, l.note, l.adjudicated_at
		FROM ruled r JOIN labels l ON l.workspace_id = r.workspace_id AND l.id = r.label_id
		ORDER BY l.adjudicated_at DESC, r.label_id`, calibrationID)
	if err != nil {
		return fmt.Errorf("read the adjudications: %w", err)
	}
	r.Adjudications = make([]AdjudicatedLabel, len(rows))
	for i, a := range rows {
		r.Adjudications[i] = AdjudicatedLabel{
			LabelID: a.LabelID, RequestID: judging.Optional(a.RequestID), Kind: a.Kind, OriginalVerdict: a.Verdict,
			AdjudicatedVerdict: judging.Optional(a.Adjudicated), Note: a.Note, AdjudicatedAt: a.AdjudicatedAt,
		}
		r.ByKind.add(a.Kind)
	}
	r.Adjudicated = r.ByKind.total()
	return nil
}

// readRemaining fills in the disagreements that are not adjudicated. That a label was corrected or confirmed before the
// calibration does not excuse a judge that disagrees with it since.
func (r *Report) readRemaining(ctx context.Context, in db.Scoped, calibrationID string, threshold float64) error {
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
		WHERE workspace_id = $1 AND calibration_id = $2 AND wrong AND ruling <> 'judge_error' AND NOT changed`,
		calibrationID) {
		if err != nil {
			return fmt.Errorf("read the disagreements: %w", err)
		}
		r.Remaining = append(r.Remaining, Remaining{
			LabelID: a.LabelID, RequestID: judging.Optional(a.RequestID), JudgeVerdict: a.Judge, HumanVerdict: a.Human,
			Critique:   a.Critique,
			JudgeGrade: a.Grade, InReportHalf: a.InReportHalf,
		})
	}
	r.RemainingDisagreements = int64(len(r.Remaining))
	r.Concentration = Order(r.Remaining, threshold)
	return nil
}

// drawAgreements fills in the agreements to review: a sample of that size, less those of it that were reviewed.
func (r *Report) drawAgreements(ctx context.Context, in db.Scoped, calibrationID string, size int64) error {
	r.AgreementsToReview = []LabelToReview{}
	if size == 0 {
		return nil
	}
	type row struct {
		LabelID, RequestID string
		Ruling             label.Kind
	}
	rows, err := db.Query[row](ctx, in, `
		SELECT label_id, request_id, ruling FROM calibration_rows
		WHERE workspace_id = $1 AND calibration_id = $2 AND judge = human AND (standing <> '' OR ruling <> '')
			ORDER BY draw LIMIT $3`, calibrationID, size)
	if err != nil {
		return fmt.Errorf("draw agreements: %w", err)
	}
	for _, a := range rows {
		if a.Ruling == "" {
			r.AgreementsToReview = append(r.AgreementsToReview, LabelToReview{
				LabelID:   a.LabelID,
				RequestID: judging.Optional(a.RequestID),
			})
		}
	}
	r.AfterIsDisagreementOnly = len(r.AgreementsToReview) > 0
	return nil
}
