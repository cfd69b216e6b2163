package label

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/go-json-experiment/json"

	"sovereign/internal/base/clock"
	"sovereign/internal/base/fault"
	"sovereign/internal/base/tenant"
	"sovereign/internal/grade/judge"
	"sovereign/internal/store/audit"
	"sovereign/internal/store/db"
)

// Logs are where logged exchanges are read.
type Logs interface {
	// Open refuses while they may not be read.
	Open(ctx context.Context, ws tenant.ID) error
	// Request is the exchange that a request's caller was told the id of, and the run that it is a step of.
	Request(ctx context.Context, ws tenant.ID, requestID string) (step judge.Step, trace string, err error)
	// Steps are those of a run, the first first.
	Steps(ctx context.Context, ws tenant.ID, trace string) ([]judge.Step, error)
}

// Judges are told, in the same transaction, what becomes of the labels that they are measured by.
type Judges interface {
	// Exists refuses a criterion that is not there.
	Exists(ctx context.Context, in db.Scoped, criterionID string) error
	// Verdict is what the judge said of a label when it was last calibrated, "" for nothing.
	Verdict(ctx context.Context, in db.Scoped, labelID string) (judge.Verdict, error)
	// Changed says which verdict stands for a label now: "" for none, as when it was withdrawn or deleted.
	Changed(ctx context.Context, tx *db.Tx, ws tenant.ID, c Change) error
}

// A Change is what happened to a label.
type Change struct {
	LabelID     string
	CriterionID string
	Before      judge.Verdict // that stood
	Standing    judge.Verdict
	Kind        Kind // of the adjudication; "" when the label was deleted
	By          tenant.Actor
}

// A Store keeps labels. Every change is audited in its own transaction.
type Store struct {
	db     *db.DB
	logs   Logs
	judges Judges
	turns  single
}

// NewStore keeps labels in d.
func NewStore(d *db.DB, logs Logs, judges Judges) *Store {
	return &Store{db: d, logs: logs, judges: judges}
}

const object = "label"

// kept is a label as the table has it.
type kept struct {
	ID, CriterionID, RequestID, TraceID string
	Verdict                             judge.Verdict
	Grade                               *float64
	Critique, Author, Source            string
	InReportHalf, Straddles             bool
	Item                                []byte
	Kind                                Kind
	Adjudicated                         judge.Verdict
	Note, AdjudicatedBy                 string
	AdjudicatedAt, CreatedAt            clock.Time
}

const columns = `id, criterion_id, request_id, trace_id, verdict, grade, critique, author, source, in_report_half, straddles, item, kind, adjudicated, note,
	adjudicated_by, adjudicated_at, created_at FROM labels`

// standing is the verdict that counts now, "" for none.
func (k *kept) standing() judge.Verdict {
	if k.Kind != "" {
		return k.Adjudicated
	}
	return k.Verdict
}

func (k *kept) label() Label {
	l := Label{
		ID: k.ID, Object: object, RequestID: given(k.RequestID), TraceID: given(k.TraceID), CriterionID: given(k.CriterionID), Verdict: k.Verdict,
		Grade: k.Grade, Critique: k.Critique, Author: k.Author, Source: k.Source, InReportHalf: k.InReportHalf, Straddles: k.Straddles, CreatedAt: k.CreatedAt,
	}
	if k.Kind != "" {
		l.Adjudication = &Adjudication{
			Kind: k.Kind, OriginalVerdict: k.Verdict, Verdict: given(k.Adjudicated), Note: k.Note, By: k.AdjudicatedBy, At: k.AdjudicatedAt,
		}
	}
	return l
}

// given is a text, or nil where there is none.
func given[T ~string](text T) *T {
	if text == "" {
		return nil
	}
	return &text
}

// Filters say which labels are meant. They combine with AND; what is empty filters nothing.
type Filters struct {
	CriterionID string        `query:"criterion_id" doc:"Of one judge"`
	RequestID   string        `query:"request_id" doc:"Of one exchange"`
	TraceID     string        `query:"trace_id" doc:"Of one run"`
	Verdict     judge.Verdict `query:"verdict" enum:"pass,fail" doc:"As they were given"`
	Adjudicated *bool         `query:"adjudicated" doc:"Those that were looked at a second time, or those that were not"`
}

// List reads a workspace's labels, the newest first.
func (s *Store) List(ctx context.Context, ws tenant.ID, f *Filters, limit, offset int) ([]Label, error) {
	conditions, args := []string{"workspace_id = $1"}, []any{}
	for _, one := range []struct{ column, value string }{
		{"criterion_id", f.CriterionID}, {"request_id", f.RequestID}, {"trace_id", f.TraceID}, {"verdict", string(f.Verdict)},
	} {
		if one.value != "" {
			args = append(args, one.value)
			conditions = append(conditions, fmt.Sprintf("%s = $%d AND %s <> ''", one.column, len(args)+1, one.column))
		}
	}
	if f.Adjudicated != nil {
		conditions = append(conditions, map[bool]string{true: "kind <> ''", false: "kind = ''"}[*f.Adjudicated])
	}
	args = append(args, limit, offset)
	text := fmt.Sprintf(`SELECT %s WHERE %s ORDER BY created_at DESC, id DESC LIMIT $%d OFFSET $%d`, columns, strings.Join(conditions, " AND "), len(args), len(args)+1)
	rows, err := db.Query[kept](ctx, s.db.In(ws), text, args...)
	if err != nil {
		return nil, fmt.Errorf("list labels: %w", err)
	}
	if len(rows) == 0 && f.CriterionID != "" { // labels outlive their criterion
		if err := s.judges.Exists(ctx, s.db.In(ws), f.CriterionID); err != nil {
			return nil, err
		}
	}
	all := make([]Label, len(rows))
	for i := range rows {
		all[i] = rows[i].label()
	}
	return all, nil
}

func find(ctx context.Context, in db.Scoped, name string) (*kept, error) {
	k, err := db.Maybe[kept](ctx, in, `SELECT `+columns+` WHERE workspace_id = $1 AND id = $2`, name)
	switch {
	case err != nil:
		return nil, fmt.Errorf("find label: %w", err)
	case k == nil:
		return nil, fault.NotFound(object, name)
	}
	return k, nil
}

// Get is the label of that id, with what was graded.
func (s *Store) Get(ctx context.Context, ws tenant.ID, name string) (Label, error) {
	k, err := find(ctx, s.db.In(ws), name)
	if err != nil {
		return Label{}, err
	}
	l := k.label()
	subject, err := Item(ctx, s.db.In(ws), k.Item)
	if err != nil {
		return Label{}, err
	}
	l.Subject = &Frozen{Steps: subject.Steps}
	return l, nil
}

// errGone says that what was graded is not there any more: its last label was deleted.
var errGone = errors.New("what was graded is gone")

// Item reads what was graded.
func Item(ctx context.Context, in db.Scoped, hash []byte) (judge.Subject, error) {
	var subject judge.Subject
	text, err := db.Maybe[[]byte](ctx, in, `SELECT steps FROM label_items WHERE workspace_id = $1 AND hash = $2`, hash)
	if err == nil && text == nil {
		err = errGone
	}
	if err == nil {
		err = json.Unmarshal(*text, &subject.Steps, lenient)
	}
	if err != nil {
		return subject, fmt.Errorf("read what was graded: %w", err)
	}
	return subject, nil
}

// Gone reports whether an error of Item says that there is nothing to be read any more.
func Gone(err error) bool { return errors.Is(err, errGone) }

// Delete ends a label, and with the last one what was graded. What was held out stays held out.
func (s *Store) Delete(ctx context.Context, ws tenant.ID, by tenant.Actor, name string) error {
	_, err := s.db.Tx(ctx, func(tx *db.Tx) error {
		in := tx.In(ws)
		before, err := find(ctx, in, name)
		if err != nil {
			return err
		}
		if _, err := db.Exec(ctx, in, `DELETE FROM labels WHERE workspace_id = $1 AND id = $2`, name); err != nil {
			return fmt.Errorf("delete label %s: %w", name, err)
		}
		if _, err := db.Exec(ctx, in, `
			DELETE FROM label_items WHERE workspace_id = $1 AND hash = $2 AND NOT EXISTS (SELECT 1 FROM labels WHERE labels.workspace_id = $1 AND labels.item = $2)`,
			before.Item); err != nil {
			return fmt.Errorf("delete what label %s graded: %w", name, err)
		}
		if err := s.judges.Changed(ctx, tx, ws, Change{LabelID: name, CriterionID: before.CriterionID, Before: before.standing(), By: by}); err != nil {
			return err
		}
		return audit.Record(ctx, tx, ws, by, "label.delete", name, before.label(), nil)
	})
	return err
}

// Adjudicate rules on a label; a ruling that was made before is replaced. The trail keeps both.
func (s *Store) Adjudicate(ctx context.Context, ws tenant.ID, by tenant.Actor, name string, r Ruling) (Label, error) {
	var after Label
	_, err := s.db.Tx(ctx, func(tx *db.Tx) error {
		in := tx.In(ws)
		k, err := find(ctx, in, name)
		if err != nil {
			return err
		}
		before, stood := k.label(), k.standing()
		judged, err := s.judges.Verdict(ctx, in, name)
		if err != nil {
			return err
		}
		if k.Kind, k.Adjudicated, err = r.settle(k.Verdict, judged); err != nil {
			return err
		}
		k.Note, k.AdjudicatedBy, k.AdjudicatedAt = cleaned(r.Note), string(by.User), clock.Now()
		if _, err := db.Exec(ctx, in, `
			UPDATE labels SET kind = $2, adjudicated = $3, note = $4, adjudicated_by = $5, adjudicated_at = $6 WHERE workspace_id = $1 AND id = $7`,
			k.Kind, k.Adjudicated, k.Note, k.AdjudicatedBy, k.AdjudicatedAt, name); err != nil {
			return fmt.Errorf("adjudicate label %s: %w", name, err)
		}
		change := Change{LabelID: name, CriterionID: k.CriterionID, Before: stood, Standing: k.standing(), Kind: k.Kind, By: by}
		if err := s.judges.Changed(ctx, tx, ws, change); err != nil {
			return err
		}
		after = k.label()
		return audit.Record(ctx, tx, ws, by, "label.adjudicate", name, before.Adjudication, after.Adjudication)
	})
	return after, err
}
