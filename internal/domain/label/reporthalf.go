package label

import (
	"context"
	"fmt"

	"sovereign/internal/grade/judge"
	"sovereign/internal/store/db"
)

// CountReport is Count of the report half alone, which measures a judge.
func CountReport(ctx context.Context, in db.Scoped, criterionID string) (c Counts, err error) {
	type row struct {
		Verdict judge.Verdict
		Tied    bool
		N       int64
	}
	rows, err := db.Query[row](ctx, in, `
		SELECT verdict, tied, COUNT(*) AS n FROM label_consensus
		WHERE workspace_id = $1 AND criterion_id = $2 AND NOT straddles AND in_report_half GROUP BY verdict, tied`,
		criterionID)
	if err != nil {
		return c, fmt.Errorf("count labels of the report half: %w", err)
	}
	for _, r := range rows {
		switch {
		case r.Tied:
			c.Ties = r.N
		case r.Verdict == judge.Pass:
			c.Pass = r.N
		case r.Verdict == judge.Fail:
			c.Fail = r.N
		}
	}
	return c, nil
}
