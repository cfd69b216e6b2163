package label

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	"sovereign/internal/grade/judge"
	"sovereign/internal/store/db"
)

// An Example is a label as judges are shown it: of the tuning half, and as it stands.
type Example struct {
	ID       string
	Item     []byte
	Verdict  judge.Verdict
	Grade    *float64
	Critique string
}

// Examples reads the labels of the tuning half that are for a criterion and stand with that verdict, the oldest first: those that say
// why before those that do not.
func Examples(ctx context.Context, in db.Scoped, criterionID string, v judge.Verdict, most int) ([]Example, error) {
	var all []Example
	for _, silent := range []string{`critique <> ''`, `critique = ''`} {
		some, err := db.Query[Example](ctx, in, `
			SELECT id, item, $3 AS verdict, CASE WHEN kind = 'label_error' THEN NULL ELSE grade END AS grade,
				CASE WHEN kind = 'label_error' THEN note ELSE critique END AS critique
			FROM labels WHERE workspace_id = $1 AND criterion_id = $2 AND NOT in_report_half
				AND CASE WHEN kind = '' THEN verdict ELSE adjudicated END = $3 AND `+silent+` ORDER BY id LIMIT $4`, criterionID, v, most-len(all))
		if err != nil {
			return nil, fmt.Errorf("read labels of the tuning half: %w", err)
		}
		all = append(all, some...)
	}
	slices.SortFunc(all, func(a, b Example) int { return cmp.Compare(a.ID, b.ID) })
	return all, nil
}

// Counts are the labels of a criterion that stand with a verdict, and in one half.
type Counts struct {
	Pass int64 `json:"pass"`
	Fail int64 `json:"fail"`
}

// Count counts a criterion's labels.
func Count(ctx context.Context, in db.Scoped, criterionID string) (Counts, error) {
	type row struct {
		Standing judge.Verdict
		N        int64
	}
	rows, err := db.Query[row](ctx, in, `
		SELECT CASE WHEN kind = '' THEN verdict ELSE adjudicated END AS standing, COUNT(*) AS n
		FROM labels WHERE workspace_id = $1 AND criterion_id = $2 AND NOT straddles GROUP BY 1`, criterionID)
	if err != nil {
		return Counts{}, fmt.Errorf("count labels: %w", err)
	}
	var c Counts
	for _, r := range rows {
		switch r.Standing {
		case judge.Pass:
			c.Pass = r.N
		case judge.Fail:
			c.Fail = r.N
		}
	}
	return c, nil
}
