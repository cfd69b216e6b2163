package calibration

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"

	"github.com/go-json-experiment/json"

	"sovereign/internal/base/clock"
	"sovereign/internal/base/id"
	"sovereign/internal/domain/label"
	"sovereign/internal/grade/judge"
	"sovereign/internal/grade/stat"
	"sovereign/internal/grade/trust"
	"sovereign/internal/store/vault"
)

// A Signer signs documents. When ctx is bound to a transaction, it reads its key in that transaction.
type Signer interface {
	SignDocument(ctx context.Context, document []byte) (vault.Signature, error)
}

// A Proof is the part of a certificate that is signed.
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
	Ties          int64          `json:"ties,omitzero" doc:"Items that were left out, because people are evenly split over them"`
	IssuedAt      clock.Time     `json:"issued_at"`
	Voids         []string       `json:"voids" nullable:"false" doc:"What would void it"`
}

// A Certificate is a proof with its signature. The proof never changes. That the certificate is void is stated beside
// it.
type Certificate struct {
	Proof
	Voided       bool            `json:"voided"`
	VoidedAt     *clock.Time     `json:"voided_at"`
	VoidedReason *string         `json:"voided_reason"`
	Signature    vault.Signature `json:"signature"`
}

// voids lists what voids a certificate.
var voids = []string{
	"a change of the rubric, the judge model, the scale, the pass threshold, or of the examples that the judge is shown",
	"the correction (label_error) of a label that it was measured by",
	"the withdrawal (ambiguous) of such a label",
	"the deletion of such a label",
	"a later grade, by another person or anew, that changes what the labels of an item say that it was measured by",
	"the deletion of the criterion",
	"a release of the server that asks judges in other words (judge_edition)",
}

// What voided a certificate, as the table has it.
const (
	voidedByLabels   = "labels"
	voidedByVersion  = "version"
	voidedByDeletion = "deletion"
	voidedByEdition  = "edition"
)

// newProof states what a calibration measured. The caller fills in what happened before it.
func newProof(r *record, rubric string, halves *trust.Halves, at clock.Time) Proof {
	b, digest := halves.Block(), sha256.Sum256([]byte(rubric))
	p := Proof{
		ID: id.New("cert"), Object: "certificate", CriterionID: r.CriterionID, Version: r.Version, CalibrationID: r.ID,
		JudgeModel: r.JudgeModel, Edition: judge.Edition, RubricSHA256: hex.EncodeToString(digest[:]),
		N: b.N, Failed: b.Failed, Matrix: b.Matrix, Se: b.Se, SeCI: b.SeCI, Sp: b.Sp, SpCI: b.SpCI, Kappa: b.Kappa,
		Trust: b.Trust, HoldoutActive: b.HoldoutActive, Ties: r.Ties, IssuedAt: at, Voids: voids,
	}
	if ci, ok := stat.KappaInterval(stat.Table(b.Matrix), trust.Confidence); ok && b.Kappa != nil {
		p.KappaCI = &ci
	}
	return p
}

// A certificateRecord is a certificate as the table has it.
type certificateRecord struct {
	ID, CalibrationID string
	Version           int64
	Document          []byte
	KeyID, JWS        string
	VoidedAt          clock.Time
	VoidedReason      string
	VoidedBy          string
}

func (r *certificateRecord) certificate() (Certificate, error) {
	c := Certificate{Signature: vault.Signature{Alg: "EdDSA", KeyID: r.KeyID, JWS: r.JWS}}
	if err := json.Unmarshal(r.Document, &c.Proof); err != nil {
		return c, fmt.Errorf("read certificate %s: %w", r.ID, err)
	}
	if r.VoidedAt > 0 {
		c.Voided, c.VoidedAt, c.VoidedReason = true, &r.VoidedAt, &r.VoidedReason
	}
	return c, nil
}

// voidReason says why the change of a label voids the certificates that were measured by its item.
func voidReason(c label.Change) string {
	var what string
	switch c.Cause {
	case label.Deleted:
		what = "which it was measured by, was deleted"
	case label.Graded:
		what = "of an item that it was measured by, was made later, and " + now(c.After)
	case label.Regraded:
		what = "which it was measured by, was graded anew, and " + now(c.After)
	case label.Ruled:
		what = "which it was measured by, " + cmp.Or(map[label.Kind]string{
			label.LabelError: "was corrected (label_error)",
			label.Ambiguous:  "was withdrawn (ambiguous)",
		}[c.After.Ruling], "was ruled on anew ("+string(c.After.Ruling)+")")
	}
	return fmt.Sprintf("the label %s, %s", c.LabelID, what)
}

// now says what the labels of an item say together.
func now(c label.Consensus) string {
	switch {
	case c.Tied:
		return "people are evenly split"
	case c.Verdict == "":
		return "the item has no verdict"
	}
	return "the verdict is " + string(c.Verdict)
}
