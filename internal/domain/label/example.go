package label

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	"sovereign/internal/grade/judge"
	"sovereign/internal/store/db"
)

// Examples reads items of the tuning half that were graded for a criterion and have that verdict now, the oldest first:
// each with the label that decides. Those without a critique are read only when there are too few with one.
func Examples(ctx context.Context, in db.Scoped, criterionID string, v judge.Verdict, limit int) ([]Example, error) {
	var all []Example
	for _, critique := range []string{`l.critique <> ''`, `l.critique = ''`} {
		some, err := db.Query[Example](ctx, in, `
			SELECT l.id, c.item, c.verdict, CASE WHEN l.kind = 'label_error' THEN NULL ELSE l.grade END AS grade,
				CASE WHEN l.kind = 'label_error' THEN l.note ELSE l.critique END AS critique
			FROM label_consensus c JOIN labels l ON l.workspace_id = c.workspace_id AND l.id = c.label_id
			WHERE c.workspace_id = $1 AND c.criterion_id = $2 AND NOT c.in_report_half AND c.verdict = $3
				AND `+critique+` ORDER BY l.id LIMIT $4`, criterionID, v, limit-len(all))
		if err != nil {
			return nil, fmt.Errorf("read labels of the tuning half: %w", err)
		}
		all = append(all, some...)
	}
	slices.SortFunc(all, func(a, b Example) int { return cmp.Compare(a.ID, b.ID) })
	return all, nil
}

// A Critique is what a person said of an item, which is a logged request, a logged run, or neither.
type Critique struct {
	Item               []byte
	RequestID, TraceID string
	Critique           string
}

// Critiques reads the critiques of the tuning half, the newest first. Those of withdrawn items are left out, and of the
// labels that others have outvoted or overruled.
func Critiques(ctx context.Context, in db.Scoped, limit, offset int) ([]Critique, error) {
	all, err := db.Query[Critique](ctx, in, `
		SELECT l.item, l.request_id, l.trace_id,
			CASE WHEN l.kind = 'label_error' THEN l.note ELSE l.critique END AS critique
		FROM labels l JOIN label_consensus c ON c.workspace_id = l.workspace_id AND c.criterion_id = l.criterion_id
			AND c.item = l.item
		WHERE l.workspace_id = $1 AND NOT l.in_report_half AND l.critique <> '' AND c.verdict <> ''
			AND c.verdict = CASE WHEN l.kind = '' THEN l.verdict ELSE l.adjudicated END
			ORDER BY l.created_at DESC, l.id DESC LIMIT $2 OFFSET $3`, limit, offset)
	if err != nil {
		return nil, fmt.Errorf("read critiques: %w", err)
	}
	return all, nil
}
