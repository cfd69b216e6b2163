// Package calibration measures judges. A calibration asks a judge about every item that was graded for its criterion,
// compares its verdicts with those of people, and signs the result as a certificate. A certificate is void as soon as
// the judge, or what people say of an item behind it, changes.
package calibration

import (
	"crypto/sha256"
	"encoding/binary"
	"fmt"

	"github.com/go-json-experiment/json"

	"sovereign/internal/base/clock"
	"sovereign/internal/base/fault"
	"sovereign/internal/base/money"
	"sovereign/internal/base/tenant"
	"sovereign/internal/domain/judging"
	"sovereign/internal/grade/judge"
	"sovereign/internal/grade/trust"
	"sovereign/internal/store/job"
)

// A Calibration is a run of a judge over the items that were graded for it.
type Calibration struct {
	ID            string        `json:"id"`
	Object        string        `json:"object" enum:"calibration"`
	CriterionID   string        `json:"criterion_id"`
	Version       int64         `json:"criterion_version"`
	JudgeModel    string        `json:"judge_model"`
	Block         *trust.Block  `json:"block" doc:"What was measured; null until it is done"`
	Ties          int64         `json:"ties" doc:"Items that were left out, because people are evenly split over them"`
	CertificateID *string       `json:"certificate_id"`
	AlignedAt     *clock.Time   `json:"aligned_at" doc:"When it was measured"`
	CreatedBy     tenant.UserID `json:"created_by"`
	job.Job
}

// Options say how a calibration is run.
type Options struct {
	judging.Spending
	Fresh bool `json:"fresh,omitempty" doc:"Ask again what the judge answered in earlier runs, and pay for it: models change"`
}

// SchemaName is the type's name in the OpenAPI document.
func (Options) SchemaName() string { return "Effort" }

// A JudgedLabel is what a judge said of an item, with the label of the item that can be adjudicated.
type JudgedLabel struct {
	LabelID      string         `json:"label_id" doc:"Of the item's labels, the one that can be adjudicated: the earliest with the verdict of the majority, or the one that was ruled on last"`
	RequestID    *string        `json:"request_id"`
	InReportHalf bool           `json:"in_report_half"`
	Shown        bool           `json:"shown" doc:"The judge is shown it as an example: nothing is measured by it"`
	Human        *judge.Verdict `json:"human_verdict" enum:"pass,fail" doc:"That it was held against: after adjudication, or of the majority; null for an item that was withdrawn or tied meanwhile"`
	Verdict      *judge.Verdict `json:"judge_verdict" enum:"pass,fail" doc:"null without one"`
	Grade        *float64       `json:"judge_grade"`
	Critique     string         `json:"critique"`
	Failure      *string        `json:"failure" doc:"Why there is no verdict"`
}

// Kind is the kind of a calibration's job.
const Kind = "calibration"

// A record is a calibration as the tables have it. Counts is JSON, of trust.Halves.
type record struct {
	ID, CriterionID string
	Version         int64
	JudgeModel      string
	Threshold       float64
	MaxCost         *money.Nano
	Fresh           bool
	Counts          string
	Ties            int64
	Enrolled        string // the label that the last item with a row was graded by first
	Last            string // that of the last item which is to have one
	CreatedBy       tenant.UserID
	AlignedAt       clock.Time // 0 until the calibration is done
	CertificateID   string
	job.Job
}

func (r *record) calibration() (Calibration, error) {
	c := Calibration{
		ID: r.ID, Object: "calibration", CriterionID: r.CriterionID, Version: r.Version, JudgeModel: r.JudgeModel,
		CreatedBy: r.CreatedBy, Ties: r.Ties,
		CertificateID: judging.Optional(r.CertificateID), Job: r.Job,
	}
	if r.AlignedAt > 0 {
		halves, err := r.halves()
		if err != nil {
			return c, err
		}
		block := halves.Block()
		c.AlignedAt, c.Block = &r.AlignedAt, &block
	}
	return c, nil
}

func (r *record) halves() (trust.Halves, error) {
	var h trust.Halves
	if err := json.Unmarshal([]byte(r.Counts), &h); err != nil {
		return h, fmt.Errorf("read the counts of %s: %w", r.ID, err)
	}
	return h, nil
}

// checkVersion refuses to measure a judge whose criterion has changed since the calibration began.
func (r *record) checkVersion(now int64) error {
	if r.Version != now {
		return fault.Conflict("the criterion has changed while it was calibrated: version %d is now %d", r.Version, now)
	}
	return nil
}

// noAnswers is the failure of a calibration whose judge model does not answer.
func (r *record) noAnswers() error {
	return fault.Precondition.New(
		"the judge model %s gives no answers: the calibration can be started again when it does", r.JudgeModel,
	)
}

// samplePosition orders items for blind samples, by the label that each was graded by first. It is the same in every
// calibration of a criterion, so that an item which was reviewed stays in the sample.
func samplePosition(criterionID, labelID string) int64 {
	sum := sha256.Sum256([]byte("blind sample\n" + criterionID + "\n" + labelID))
	return int64(binary.BigEndian.Uint64(sum[:8]) >> 1)
}
