package label

import (
	"context"
	"fmt"

	"sovereign/internal/base/tenant"
	"sovereign/internal/grade/judge"
	"sovereign/internal/store/db"
)

// graded are the items that new labels grade, in the order in which they come.
type graded struct {
	order  []target
	labels map[target][]record
	before map[target]bool // they were graded before, for this judge or another
}

func newGraded() *graded {
	return &graded{labels: map[target][]record{}, before: map[target]bool{}}
}

func (g *graded) add(r *record, before bool) {
	of := itemTarget(r.CriterionID, string(r.Item))
	if len(g.labels[of]) == 0 {
		g.order = append(g.order, of)
		g.before[of] = before
	}
	g.labels[of] = append(g.labels[of], *r)
}

// settleNew stores what the labels of newly graded items say together. Judges are told of items that were graded
// before: nothing was measured by the others.
func (s *Store) settleNew(ctx context.Context, tx *db.Tx, ws tenant.ID, by tenant.Actor, g *graded) error {
	var rows [][]any
	for _, of := range g.order {
		labels := g.labels[of]
		first := &labels[0]
		if g.before[of] {
			change := Change{
				LabelID: first.ID, CriterionID: first.CriterionID, Item: first.Item, Cause: Graded, By: by,
			}
			if err := s.resettle(ctx, tx, ws, change); err != nil {
				return err
			}
			continue
		}
		rows = append(rows, consensusRow(ws, labels))
	}
	if err := db.Insert(ctx, tx.Across("the rows name their workspace"), "label_consensus", consensusColumns,
		rows); err != nil {
		return fmt.Errorf("store what labels say together: %w", err)
	}
	return nil
}

// The first three columns are the key, and made_by never changes.
var consensusColumns = []string{
	"workspace_id", "criterion_id", "item", "made_by", "label_id", "verdict", "ruling", "tied", "graders",
	"in_report_half", "straddles",
}

// consensusRow returns the row of an item with these labels, of which the first was made first.
func consensusRow(ws tenant.ID, labels []record) []any {
	first, c := &labels[0], settle(labels)
	return []any{
		ws, first.CriterionID, first.Item, first.ID, c.LabelID, string(c.Verdict), string(c.Ruling), c.Tied,
		len(labels), first.InReportHalf, first.InBothHalves,
	}
}

// resettle reads the labels of an item again, stores what they say together, and tells the judges of the change.
func (s *Store) resettle(ctx context.Context, tx *db.Tx, ws tenant.ID, c Change) error {
	in := tx.In(ws)
	before, err := db.Maybe[Consensus](ctx, in, `
		SELECT label_id, verdict, ruling, tied FROM label_consensus
		WHERE workspace_id = $1 AND criterion_id = $2 AND item = $3`, c.CriterionID, c.Item)
	if err != nil {
		return fmt.Errorf("read what labels say together: %w", err)
	}
	if before != nil {
		c.Before = *before
	}
	labels, err := labelsOf(ctx, in, c.CriterionID, c.Item)
	if err != nil {
		return err
	}
	if len(labels) == 0 {
		_, err = db.Exec(ctx, in, `
			DELETE FROM label_consensus WHERE workspace_id = $1 AND criterion_id = $2 AND item = $3`,
			c.CriterionID, c.Item)
	} else {
		c.After = settle(labels)
		err = db.Merge(ctx, tx.Across("the row names its workspace"), "label_consensus", consensusColumns, 3, `
			label_id = excluded.label_id, verdict = excluded.verdict, ruling = excluded.ruling, tied = excluded.tied,
			graders = excluded.graders`, [][]any{consensusRow(ws, labels)})
	}
	if err != nil {
		return fmt.Errorf("store what labels say together: %w", err)
	}
	return s.judges.LabelChanged(ctx, tx, ws, c)
}

// labelsOf reads the labels of an item for a criterion, the earliest first.
func labelsOf(ctx context.Context, in db.Scoped, criterionID string, item []byte) ([]record, error) {
	all, err := db.Query[record](ctx, in, `SELECT `+columns+`
		WHERE workspace_id = $1 AND criterion_id = $2 AND item = $3 ORDER BY id`, criterionID, item)
	if err != nil {
		return nil, fmt.Errorf("read the labels of an item: %w", err)
	}
	return all, nil
}

// Count counts the items that were graded for a criterion, by what their labels say together.
func Count(ctx context.Context, in db.Scoped, criterionID string) (Counts, error) {
	return count(ctx, in, criterionID, "")
}

// CountReport is Count, of the items of the report half.
func CountReport(ctx context.Context, in db.Scoped, criterionID string) (Counts, error) {
	return count(ctx, in, criterionID, " AND in_report_half")
}

func count(ctx context.Context, in db.Scoped, criterionID, which string) (Counts, error) {
	type row struct {
		Verdict judge.Verdict
		Tied    bool
		N       int64
	}
	rows, err := db.Query[row](ctx, in, `
		SELECT verdict, tied, COUNT(*) AS n FROM label_consensus
		WHERE workspace_id = $1 AND criterion_id = $2 AND NOT straddles`+which+` GROUP BY verdict, tied`, criterionID)
	if err != nil {
		return Counts{}, fmt.Errorf("count labels: %w", err)
	}
	var c Counts
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
