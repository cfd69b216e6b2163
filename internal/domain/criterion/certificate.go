package criterion

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"

	"github.com/go-json-experiment/json"

	"sovereign/internal/base/clock"
	"sovereign/internal/base/fault"
	"sovereign/internal/base/id"
	"sovereign/internal/base/tenant"
	"sovereign/internal/domain/label"
	"sovereign/internal/grade/judge"
	"sovereign/internal/grade/stat"
	"sovereign/internal/grade/trust"
	"sovereign/internal/store/audit"
	"sovereign/internal/store/db"
	"sovereign/internal/store/vault"
)

// A Signer signs documents. With a ctx that is bound to a transaction it reads its key there.
type Signer interface {
	SignDocument(ctx context.Context, document []byte) (vault.Signature, error)
}

// A Proof is what a certificate says and what is signed of it.
type Proof struct {
	ID            string         `json:"id"`
	Object        string         `json:"object" enum:"certificate"`
	CriterionID   string         `json:"criterion_id"`
	Version       int64          `json:"criterion_version"`
	CalibrationID string         `json:"calibration_id"`
	JudgeModel    string         `json:"judge_model"`
	Edition       int64          `json:"judge_edition" doc:"Of the words in which the server asks judges"`
	RubricSHA256  string         `json:"rubric_sha256"`
	N             int64          `json:"n"`
	Failed        int64          `json:"failed" doc:"Answers of the judge that were no verdicts"`
	Matrix        trust.Matrix   `json:"matrix"`
	Se            *float64       `json:"se"`
	SeCI          *stat.Interval `json:"se_ci"`
	Sp            *float64       `json:"sp"`
	SpCI          *stat.Interval `json:"sp_ci"`
	Kappa         *float64       `json:"kappa"`
	KappaCI       *stat.Interval `json:"kappa_ci" doc:"At 95 %, of a posterior; what it covers is in docs/statistics.md"`
	Trust         trust.Tier     `json:"trust" enum:"provisional,measured,calibrated,certified"`
	HoldoutActive bool           `json:"holdout_active"`
	Calibrations  int64          `json:"calibrations" doc:"How often the criterion was calibrated, this time included: who tries often on the same labels may be lucky once"`
	Adjudicated   int64          `json:"adjudicated" doc:"Labels of the criterion that were corrected or confirmed before"`
	Withdrawn     int64          `json:"withdrawn" doc:"Labels of the criterion that were withdrawn as ambiguous before"`
	IssuedAt      clock.Time     `json:"issued_at"`
	Voids         []string       `json:"voids" nullable:"false" doc:"What would void it"`
}

// A Certificate is a proof with its signature. What it says never changes; that it was voided is a fact beside it.
type Certificate struct {
	Proof
	Voided       bool            `json:"voided"`
	VoidedAt     *clock.Time     `json:"voided_at"`
	VoidedReason *string         `json:"voided_reason"`
	Signature    vault.Signature `json:"signature"`
}

// voids is what voids a certificate.
var voids = []string{
	"a change of the rubric, the judge model, the scale, the pass threshold, or of the examples that the judge is shown",
	"the correction (label_error) of a label that it was measured by",
	"the withdrawal (ambiguous) of such a label",
	"the deletion of such a label",
	"the deletion of the criterion",
	"a release of the server that asks judges in other words (judge_edition)",
}

// certify signs what a calibration found. ctx is bound to tx.
func (s *Store) certify(ctx context.Context, tx *db.Tx, ws tenant.ID, c *kept, k *keptCalibration, halves *trust.Halves, now clock.Time) error {
	b, rubric := halves.Block(), sha256.Sum256([]byte(c.Rubric))
	p := Proof{
		ID: id.New("cert"), Object: "certificate", CriterionID: c.ID, Version: k.Version, CalibrationID: k.ID, JudgeModel: k.JudgeModel, Edition: judge.Edition,
		RubricSHA256: hex.EncodeToString(rubric[:]), N: b.N, Failed: b.Failed, Matrix: b.Matrix, Se: b.Se, SeCI: b.SeCI, Sp: b.Sp, SpCI: b.SpCI,
		Kappa: b.Kappa, Trust: b.Trust, HoldoutActive: b.HoldoutActive, IssuedAt: now, Voids: voids,
	}
	if ci, ok := stat.KappaInterval(stat.Table(b.Matrix), trust.Confidence); ok && b.Kappa != nil {
		p.KappaCI = &ci
	}
	if err := p.tell(ctx, tx.In(ws)); err != nil {
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
	if _, err := db.Exec(ctx, tx.In(ws), `
		INSERT INTO certificates (workspace_id, id, criterion_id, calibration_id, version, edition, document, key_id, jws, trust, holdout_active, issued_at, voided_at, voided_reason, voided_by)
		VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, 0, '', '')`,
		p.ID, c.ID, k.ID, k.Version, p.Edition, document, signature.KeyID, signature.JWS, p.Trust, p.HoldoutActive, now); err != nil {
		return fmt.Errorf("keep a certificate: %w", err)
	}
	return audit.Record(ctx, tx, ws, tenant.Actor{Kind: tenant.ActorKey, User: k.CreatedBy}, "certificate.issue", p.ID, nil, p)
}

// tell fills in what happened before: a proof that keeps quiet about it would prove less than it seems to.
func (p *Proof) tell(ctx context.Context, in db.Scoped) (err error) {
	if p.Calibrations, err = db.One[int64](ctx, in, `SELECT COUNT(*) FROM calibrations WHERE workspace_id = $1 AND criterion_id = $2 AND aligned_at > 0`, p.CriterionID); err != nil {
		return fmt.Errorf("count calibrations: %w", err)
	}
	type ruled struct {
		Kind label.Kind
		N    int64
	}
	rulings, err := db.Query[ruled](ctx, in, `SELECT kind, COUNT(*) AS n FROM labels WHERE workspace_id = $1 AND criterion_id = $2 AND kind <> '' GROUP BY kind`, p.CriterionID)
	if err != nil {
		return fmt.Errorf("count rulings: %w", err)
	}
	for _, r := range rulings {
		if r.Kind == label.Ambiguous {
			p.Withdrawn = r.N
		} else {
			p.Adjudicated += r.N
		}
	}
	return nil
}

// Renew voids the certificates of judges that this release asks in other words than the one that measured them.
func (s *Store) Renew(ctx context.Context) error {
	_, err := db.Exec(ctx, s.db.Across("a release asks all judges in its own words"), `
		UPDATE certificates SET voided_at = $1, voided_reason = $2, voided_by = 'edition' WHERE voided_at = 0 AND edition <> $3`,
		clock.Now(), fmt.Sprintf("the server asks judges in other words since: edition %d", judge.Edition), judge.Edition)
	if err != nil {
		return fmt.Errorf("void the certificates of earlier editions: %w", err)
	}
	return nil
}

// keptCertificate is a certificate as the table has it.
type keptCertificate struct {
	ID, CalibrationID string
	Version           int64
	Document          []byte
	KeyID, JWS        string
	VoidedAt          clock.Time
	VoidedReason      string
	VoidedBy          string
}

// lastCertificate is the newest of a criterion, or nil.
func lastCertificate(ctx context.Context, in db.Scoped, criterionID string) (*keptCertificate, error) {
	k, err := db.Maybe[keptCertificate](ctx, in, `
		SELECT id, calibration_id, version, document, key_id, jws, voided_at, voided_reason, voided_by FROM certificates
		WHERE workspace_id = $1 AND criterion_id = $2 ORDER BY issued_at DESC, id DESC LIMIT 1`, criterionID)
	if err != nil {
		return nil, fmt.Errorf("find a certificate: %w", err)
	}
	return k, nil
}

func (k *keptCertificate) certificate() (Certificate, error) {
	c := Certificate{Signature: vault.Signature{Alg: "EdDSA", KeyID: k.KeyID, JWS: k.JWS}}
	if err := json.Unmarshal(k.Document, &c.Proof); err != nil {
		return c, fmt.Errorf("read certificate %s: %w", k.ID, err)
	}
	if k.VoidedAt > 0 {
		c.Voided, c.VoidedAt, c.VoidedReason = true, &k.VoidedAt, &k.VoidedReason
	}
	return c, nil
}

// Certificate is a criterion's newest, void or not.
func (s *Store) Certificate(ctx context.Context, ws tenant.ID, criterionID string) (Certificate, error) {
	if _, err := find(ctx, s.db.In(ws), criterionID); err != nil {
		return Certificate{}, err
	}
	k, err := lastCertificate(ctx, s.db.In(ws), criterionID)
	switch {
	case err != nil:
		return Certificate{}, err
	case k == nil:
		return Certificate{}, fault.Missing.New("the criterion has no certificate: POST /v1/criteria/%s/calibrations makes one", criterionID)
	}
	return k.certificate()
}

// ByID is a certificate by its own id: of any age, void or not, of a criterion that may be gone.
func (s *Store) ByID(ctx context.Context, ws tenant.ID, name string) (Certificate, error) {
	k, err := db.Maybe[keptCertificate](ctx, s.db.In(ws), `
		SELECT id, calibration_id, version, document, key_id, jws, voided_at, voided_reason, voided_by FROM certificates WHERE workspace_id = $1 AND id = $2`, name)
	switch {
	case err != nil:
		return Certificate{}, fmt.Errorf("find a certificate: %w", err)
	case k == nil:
		return Certificate{}, fault.NotFound("certificate", name)
	}
	return k.certificate()
}
