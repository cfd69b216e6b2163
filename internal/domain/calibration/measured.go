package calibration

import (
	"context"
	"fmt"
	"iter"

	"sovereign/internal/grade/judge"
	"sovereign/internal/store/db"
)

// A MeasuredItem is something that a certificate was measured by: what people and what the judge say of it. Judge is
// empty where the judge gave no verdict.
type MeasuredItem struct {
	Item         []byte // identifies what was graded, whichever criterion it was graded for
	Human, Judge judge.Verdict
	Grade        float64
}

// Measured reads the items that a certificate was measured by, and those of them that its judge gave no verdict of.
func (c *Certificate) Measured(ctx context.Context, in db.Scoped) iter.Seq2[MeasuredItem, error] {
	half := ""
	if c.HoldoutActive {
		half = ` AND in_report_half`
	}
	return db.Rows[MeasuredItem](ctx, in, `
		SELECT item, human, judge, grade FROM calibration_rows WHERE workspace_id = $1 AND calibration_id = $2
			AND NOT shown AND NOT pending AND human <> '' AND NOT changed`+half, c.CalibrationID)
}

// Answers counts what the judge of a certificate was asked in its calibration, of both halves, and the answers that
// were no verdicts.
func (c *Certificate) Answers(ctx context.Context, in db.Scoped) (asked, failed int64, err error) {
	type row struct{ Asked, Failed int64 }
	r, err := db.One[row](ctx, in, `
		SELECT COUNT(*) AS asked, CAST(COALESCE(SUM(CASE WHEN judge = '' THEN 1 ELSE 0 END), 0) AS BIGINT) AS failed
		FROM calibration_rows WHERE workspace_id = $1 AND calibration_id = $2 AND NOT shown AND NOT pending`,
		c.CalibrationID)
	if err != nil {
		return 0, 0, fmt.Errorf("count the answers of %s: %w", c.CalibrationID, err)
	}
	return r.Asked, r.Failed, nil
}
