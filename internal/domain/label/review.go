package label

import (
	"context"
	"errors"
	"fmt"

	"sovereign/internal/base/fault"
	"sovereign/internal/base/tenant"
	"sovereign/internal/store/audit"
	"sovereign/internal/store/db"
	"sovereign/internal/text/redact"
)

// FromReview is the source of labels that are made in review queues.
const FromReview = "review"

// A Prepared grade is checked, and has a copy of what it grades.
type Prepared struct {
	grade New
	item  item
}

// Prepare checks a grade of a review, and copies what it grades. It reads logs, which are in another database: call it
// before the transaction.
func (s *Store) Prepare(ctx context.Context, ws tenant.ID, n New) (*Prepared, error) {
	items, err := s.items(ctx, ws, []New{n}, nowhere)
	if err != nil {
		return nil, err
	}
	return &Prepared{n, items[0]}, nil
}

// PrepareAgain is Prepare, of what an existing label grades: an exchange or a run, as it was copied then. The logs need
// not have it any more. n names no item of its own.
func (s *Store) PrepareAgain(ctx context.Context, ws tenant.ID, labelID string, n New) (*Prepared, error) {
	in := s.db.In(ws)
	l, err := find(ctx, in, labelID)
	if err != nil {
		return nil, err
	}
	n.RequestID, n.TraceID, n.Messages, n.Response, n.Tools = l.RequestID, l.TraceID, nil, nil, nil
	checked := n
	checked.RequestID, checked.TraceID = labelID, "" // what it grades is known
	if err := checked.check(""); err != nil {
		return nil, err
	}
	subject, err := Item(ctx, in, l.Item)
	if err != nil {
		return nil, err
	}
	copied, err := newItem(subject.Steps, l.TraceID, "label_id")
	copied.hash = string(l.Item)
	return &Prepared{n, copied}, err
}

// nowhere is the place of a label that is not in a list.
func nowhere(int) string { return "" }

// PutReview stores a grade that by gives in a review, in the caller's transaction. by is its author, whatever name it
// was prepared with. A grade of the same item for the same judge replaces the author's own: the label keeps its id.
// It refuses a label that was adjudicated, since the ruling is about the grade that was given.
func (s *Store) PutReview(ctx context.Context, tx *db.Tx, ws tenant.ID, by tenant.Actor, p *Prepared) (Label, error) {
	if by.User == "" {
		return Label{}, errors.New("a review without a person")
	}
	n := p.grade
	n.Author, n.Source = string(by.User), FromReview
	known, err := existing(ctx, tx.In(ws), []New{n}, []item{p.item})
	if err != nil {
		return Label{}, err
	}
	for _, other := range known.of(&n, p.item.hash) {
		if other.Author == n.Author {
			return s.regrade(ctx, tx, ws, by, other.ID, &n)
		}
	}
	created, err := s.add(ctx, tx, ws, by, []New{n}, []item{p.item}, nowhere)
	if err != nil {
		return Label{}, err
	}
	return created[0], audit.Record(ctx, tx, ws, by, "label.create", created[0].ID, nil, created[0])
}

// regrade replaces the grade of a label.
func (s *Store) regrade(ctx context.Context, tx *db.Tx, ws tenant.ID, by tenant.Actor, name string, n *New,
) (Label, error) {
	l, err := unruled(ctx, tx.In(ws), name)
	if err != nil {
		return Label{}, err
	}
	before := l.label()
	l.Verdict, l.Grade, l.Critique, l.Source = n.Verdict, n.Grade, redact.String(n.Critique), FromReview
	if _, err := db.Exec(ctx, tx.In(ws), `
		UPDATE labels SET verdict = $2, grade = $3, critique = $4, source = $5 WHERE workspace_id = $1 AND id = $6`,
		l.Verdict, l.Grade, l.Critique, l.Source, name); err != nil {
		return Label{}, fmt.Errorf("grade anew as %s: %w", name, err)
	}
	if err := s.resettle(ctx, tx, ws, l.change(Regraded, by)); err != nil {
		return Label{}, err
	}
	after := l.label()
	return after, audit.Record(ctx, tx, ws, by, "label.regrade", name, before, after)
}

// TakeBack deletes a label that by made in a review, in the caller's transaction. Another person's label is not found.
// It refuses one that was adjudicated.
func (s *Store) TakeBack(ctx context.Context, tx *db.Tx, ws tenant.ID, by tenant.Actor, name string) error {
	l, err := unruled(ctx, tx.In(ws), name)
	switch {
	case err != nil:
		return err
	case l.Author != string(by.User) || l.Source != FromReview:
		return fault.NotFound(object, name)
	}
	return s.remove(ctx, tx, ws, by, l)
}

// unruled reads a label that was not adjudicated.
func unruled(ctx context.Context, in db.Scoped, name string) (*record, error) {
	l, err := find(ctx, in, name)
	if err == nil && l.Kind != "" {
		return nil, fault.Conflict("the label %s was adjudicated: its grade stands beside the ruling", name)
	}
	return l, err
}
