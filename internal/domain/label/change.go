package label

import (
	"context"
	"fmt"

	"sovereign/internal/base/clock"
	"sovereign/internal/base/tenant"
	"sovereign/internal/store/audit"
	"sovereign/internal/store/db"
	"sovereign/internal/text/redact"
)

// A Cause is what happened to a label.
type Cause string

// The causes.
const (
	Graded   Cause = "graded"   // a label was made, of an item that had been graded before
	Regraded Cause = "regraded" // its author graded the item anew
	Ruled    Cause = "ruled"    // it was adjudicated
	Deleted  Cause = "deleted"
)

// A Change is what happened to a label, and so to what the labels of its item say together.
type Change struct {
	LabelID       string
	CriterionID   string
	Item          []byte
	Cause         Cause
	Before, After Consensus // of the item
	By            tenant.Actor
}

// Delete deletes a label, and what was graded with the last label of it. The split stays: what was held out is held out
// when it is graded again.
func (s *Store) Delete(ctx context.Context, ws tenant.ID, by tenant.Actor, name string) error {
	_, err := s.db.Tx(ctx, func(tx *db.Tx) error {
		before, err := find(ctx, tx.In(ws), name)
		if err != nil {
			return err
		}
		return s.remove(ctx, tx, ws, by, before)
	})
	return err
}

// remove deletes a label.
func (s *Store) remove(ctx context.Context, tx *db.Tx, ws tenant.ID, by tenant.Actor, before *record) error {
	in := tx.In(ws)
	if _, err := db.Exec(ctx, in, `DELETE FROM labels WHERE workspace_id = $1 AND id = $2`, before.ID); err != nil {
		return fmt.Errorf("delete label %s: %w", before.ID, err)
	}
	if _, err := db.Exec(ctx, in, `
		DELETE FROM label_items WHERE workspace_id = $1 AND hash = $2 AND NOT EXISTS (SELECT 1 FROM labels
			WHERE labels.workspace_id = $1 AND labels.item = $2)`,
		before.Item); err != nil {
		return fmt.Errorf("delete what label %s graded: %w", before.ID, err)
	}
	if err := s.resettle(ctx, tx, ws, before.change(Deleted, by)); err != nil {
		return err
	}
	return audit.Record(ctx, tx, ws, by, "label.delete", before.ID, before.label(), nil)
}

// change returns what happens to r. What the labels of its item say is filled in by resettle.
func (r *record) change(cause Cause, by tenant.Actor) Change {
	return Change{LabelID: r.ID, CriterionID: r.CriterionID, Item: r.Item, Cause: cause, By: by}
}

// Adjudicate adjudicates a label, and so its item. It replaces an earlier adjudication of the label; the audit trail
// has both.
func (s *Store) Adjudicate(ctx context.Context, ws tenant.ID, by tenant.Actor, name string, r Ruling) (Label, error) {
	var after Label
	_, err := s.db.Tx(ctx, func(tx *db.Tx) error {
		in := tx.In(ws)
		l, err := find(ctx, in, name)
		if err != nil {
			return err
		}
		before := l.label()
		judged, err := s.judges.Verdict(ctx, in, l.CriterionID, l.Item)
		if err != nil {
			return err
		}
		if l.Kind, l.Adjudicated, err = r.resolve(l.Verdict, judged); err != nil {
			return err
		}
		last, err := db.One[clock.Time](ctx, in, `
			SELECT COALESCE(MAX(adjudicated_at), 0) FROM labels
			WHERE workspace_id = $1 AND criterion_id = $2 AND item = $3`, l.CriterionID, l.Item)
		if err != nil {
			return fmt.Errorf("find the last adjudication: %w", err)
		}
		l.Note, l.AdjudicatedBy = redact.String(r.Note), string(by.User)
		l.AdjudicatedAt = max(clock.Now(), last+1) // the later one decides, also when the clock was set back
		if _, err := db.Exec(ctx, in, `
			UPDATE labels SET kind = $2, adjudicated = $3, note = $4, adjudicated_by = $5, adjudicated_at = $6
				WHERE workspace_id = $1 AND id = $7`,
			l.Kind, l.Adjudicated, l.Note, l.AdjudicatedBy, l.AdjudicatedAt, name); err != nil {
			return fmt.Errorf("adjudicate label %s: %w", name, err)
		}
		if err := s.resettle(ctx, tx, ws, l.change(Ruled, by)); err != nil {
			return err
		}
		after = l.label()
		return audit.Record(ctx, tx, ws, by, "label.adjudicate", name, before.Adjudication, after.Adjudication)
	})
	return after, err
}
