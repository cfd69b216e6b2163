package review

import (
	"context"
	"fmt"

	"sovereign/internal/base/fault"
	"sovereign/internal/base/id"
	"sovereign/internal/base/tenant"
	"sovereign/internal/domain/label"
	"sovereign/internal/grade/judge"
	"sovereign/internal/store/audit"
	"sovereign/internal/store/db"
	"sovereign/internal/text/redact"
)

// errTaken refuses what a person does with a claim whose lease has ended, after others took the item.
func errTaken() error {
	return fault.Conflict("your claim has ended, and the item is not free any more: claim the next one")
}

// holds returns a person's row of an item and checks its claim. A claim whose lease has ended counts as long as nobody
// has taken the item.
func (s *Store) holds(ctx context.Context, in db.Scoped, q *queueRecord, i *itemRecord, user tenant.UserID,
	claim string, e event,
) (*gradeRecord, error) {
	g, err := mineOf(ctx, in, q.ID, i.ID, user)
	if err != nil {
		return nil, err
	}
	if _, err := g.State.move(e); err != nil {
		return nil, err
	}
	if g.Claim != claim {
		return nil, fault.Conflict("the item was claimed again since: your claim is another")
	}
	if i.State != itemOpen {
		return nil, errTaken()
	}
	free, err := s.free(ctx, in, q, g)
	if err == nil && !free {
		err = errTaken()
	}
	return g, err
}

// Grade grades an item that the person has claimed, and makes the label. To send the same again is fine.
func (s *Store) Grade(ctx context.Context, caller tenant.Caller, queueID, itemID string, in NewGrade,
) (QueueItem, error) {
	in.Critique = redact.String(in.Critique)
	q, i, of, done, err := s.prepare(ctx, caller, queueID, itemID, &in)
	if err != nil {
		return QueueItem{}, err
	}
	if done {
		return s.Item(ctx, caller, queueID, itemID)
	}
	_, err = s.DB.Tx(ctx, func(tx *db.Tx) error {
		scope := tx.In(caller.Workspace)
		if q, _, err = enterToGrade(ctx, scope, caller, queueID); err != nil {
			return err
		}
		if i, err = findItem(ctx, scope, queueID, itemID); err != nil {
			return err
		}
		// sent twice at once
		if g, err := mineOf(ctx, scope, queueID, itemID, caller.User); err != nil || g.repeats(&in) {
			return err
		}
		g, err := s.holds(ctx, scope, q, i, caller.User, in.Claim, grades)
		if err != nil {
			return err
		}
		made, err := s.Labels.PutReview(ctx, tx, caller.Workspace, caller.Actor(), of)
		if err != nil {
			return err
		}
		g.State, g.Verdict, g.Grade, g.LabelID = Graded, in.Verdict, in.Grade, made.ID
		g.Critique, g.Unsure = in.Critique, in.Unsure
		return s.save(ctx, tx, caller, q, g, "review_item.grade", g.given())
	})
	if err != nil {
		return QueueItem{}, err
	}
	return s.Item(ctx, caller, queueID, itemID)
}

// prepare copies what is graded, before the transaction: the logs are in another database. done says that the same
// grade is there already.
func (s *Store) prepare(ctx context.Context, caller tenant.Caller, queueID, itemID string, in *NewGrade,
) (q *queueRecord, i *itemRecord, of *label.Prepared, done bool, err error) {
	scope := s.DB.In(caller.Workspace)
	if q, _, err = enterToGrade(ctx, scope, caller, queueID); err != nil {
		return q, i, of, false, err
	}
	if i, err = findItem(ctx, scope, queueID, itemID); err != nil {
		return q, i, of, false, err
	}
	g, err := mineOf(ctx, scope, queueID, itemID, caller.User)
	if err != nil {
		return q, i, of, false, err
	}
	if g.repeats(in) {
		return q, i, of, true, nil
	}
	if _, err = s.holds(ctx, scope, q, i, caller.User, in.Claim, grades); err != nil {
		return q, i, of, false, err
	}
	steps, lost, err := s.content(ctx, caller.Workspace, i)
	switch {
	case err != nil:
		return q, i, of, false, err
	case lost != "":
		if err := s.lose(ctx, caller.Workspace, queueID, itemID, lost); err != nil {
			return q, i, of, false, err
		}
		return q, i, of, false, fault.Conflict("%s: claim the next one", lost)
	case in.Digest != "" && in.Digest != digest(steps):
		return q, i, of, false, fault.Conflict("the run has grown since you read it: read it again")
	}
	of, err = s.prepareLabel(ctx, caller.Workspace, q, ref(i.Ref), in)
	return q, i, of, false, err
}

// save writes a person's row of an item, settles the item, and audits.
func (s *Store) save(ctx context.Context, tx *db.Tx, caller tenant.Caller, q *queueRecord, g *gradeRecord,
	action string, after any,
) error {
	in := tx.In(caller.Workspace)
	g.At = s.Now()
	if _, err := db.Exec(ctx, in, `
		UPDATE review_grades SET state = $5, claim = $6, lease_until = $7, verdict = $8, grade = $9, critique = $10,
			unsure = $11, label_id = $12, at = $13
		WHERE workspace_id = $1 AND queue_id = $2 AND item_id = $3 AND user_id = $4`,
		q.ID, g.ItemID, g.UserID, g.State, g.Claim, g.LeaseUntil, g.Verdict, g.Grade, g.Critique, g.Unsure, g.LabelID,
		g.At); err != nil {
		return fmt.Errorf("save the state of %s: %w", g.ItemID, err)
	}
	n, err := db.One[struct{ Passes, Fails int64 }](ctx, in, `
		SELECT COUNT(CASE WHEN verdict = 'pass' THEN 1 END) AS passes, COUNT(CASE WHEN verdict = 'fail' THEN 1 END) AS fails
		FROM review_grades WHERE workspace_id = $1 AND queue_id = $2 AND item_id = $3 AND state = 'graded'`, q.ID, g.ItemID)
	if err != nil {
		return fmt.Errorf("count the grades of %s: %w", g.ItemID, err)
	}
	state, conflict := settle(n.Passes, n.Fails, q.GradersPerItem)
	if _, err := db.Exec(ctx, in, `
		UPDATE review_items SET state = $4, conflict = $5
		WHERE workspace_id = $1 AND queue_id = $2 AND id = $3 AND state <> 'expired'`,
		q.ID, g.ItemID, state, conflict); err != nil {
		return fmt.Errorf("settle %s: %w", g.ItemID, err)
	}
	return audit.Record(ctx, tx, caller.Workspace, caller.Actor(), action, g.ItemID, nil, after)
}

// Skip leaves an item that the person has claimed to others. To send it again is fine.
func (s *Store) Skip(ctx context.Context, caller tenant.Caller, queueID, itemID string, in Skip) (QueueItem, error) {
	in.Reason = redact.String(in.Reason)
	_, err := s.DB.Tx(ctx, func(tx *db.Tx) error {
		scope := tx.In(caller.Workspace)
		q, _, err := enterToGrade(ctx, scope, caller, queueID)
		if err != nil {
			return err
		}
		i, err := findItem(ctx, scope, queueID, itemID)
		if err != nil {
			return err
		}
		g, err := mineOf(ctx, scope, queueID, itemID, caller.User)
		if err != nil || g.State == Skipped && g.Claim == in.Claim {
			return err
		}
		g, err = s.holds(ctx, scope, q, i, caller.User, in.Claim, skips)
		if err != nil {
			return err
		}
		g.State, g.Critique = Skipped, in.Reason
		return s.save(ctx, tx, caller, q, g, "review_item.skip", in)
	})
	if err != nil {
		return QueueItem{}, err
	}
	return s.Item(ctx, caller, queueID, itemID)
}

// Undo takes back what the person did with an item: it is claimed again, and the label of a grade is deleted.
func (s *Store) Undo(ctx context.Context, caller tenant.Caller, queueID, itemID string) (QueueItem, error) {
	if err := s.undoable(ctx, caller, queueID, itemID); err != nil {
		return QueueItem{}, err
	}
	_, err := s.DB.Tx(ctx, func(tx *db.Tx) error {
		in := tx.In(caller.Workspace)
		q, _, err := enterToGrade(ctx, in, caller, queueID)
		if err != nil {
			return err
		}
		g, err := mineOf(ctx, in, queueID, itemID, caller.User)
		if err != nil {
			return err
		}
		to, err := g.State.move(undoes)
		if err != nil || g.State == to {
			return err
		}
		if free, err := s.free(ctx, in, q, g); err != nil {
			return err
		} else if !free {
			return fault.Conflict("others have taken the item since you skipped it")
		}
		before := g.given()
		if err := s.unlabel(ctx, tx, caller, g); err != nil {
			return err
		}
		var none judge.Verdict
		g.State, g.Claim, g.LeaseUntil = to, id.New("claim"), q.leaseFrom(s.Now())
		g.Verdict, g.Grade, g.Critique, g.Unsure, g.LabelID = none, nil, "", false, ""
		return s.save(ctx, tx, caller, q, g, "review_item.undo", before)
	})
	if err != nil {
		return QueueItem{}, err
	}
	return s.Item(ctx, caller, queueID, itemID)
}

// undoable refuses to undo what could not be graded again: the grade would be lost.
func (s *Store) undoable(ctx context.Context, caller tenant.Caller, queueID, itemID string) error {
	in := s.DB.In(caller.Workspace)
	if _, _, err := enterToGrade(ctx, in, caller, queueID); err != nil {
		return err
	}
	i, err := findItem(ctx, in, queueID, itemID)
	if err != nil {
		return err
	}
	g, err := mineOf(ctx, in, queueID, itemID, caller.User)
	if err != nil {
		return err
	}
	if g.State == Open { // what others do with an item is not this person's
		return fault.NotFound("review item", itemID)
	}
	_, lost, err := s.content(ctx, caller.Workspace, i)
	if err == nil && lost != "" {
		err = fault.Conflict("%s: what you did with it stands", lost)
	}
	return err
}

// unlabel deletes the label of a grade, unless another item of the same content has it too.
func (s *Store) unlabel(ctx context.Context, tx *db.Tx, caller tenant.Caller, g *gradeRecord) error {
	if g.LabelID == "" {
		return nil
	}
	n, err := db.One[int64](ctx, tx.In(caller.Workspace), `
		SELECT COUNT(*) FROM review_grades WHERE workspace_id = $1 AND label_id = $2 AND label_id <> ''`, g.LabelID)
	if err != nil {
		return fmt.Errorf("find other grades of %s: %w", g.LabelID, err)
	}
	if n > 1 {
		return nil
	}
	return s.takeBack(ctx, tx, caller.Workspace, caller.Actor(), g.LabelID)
}
