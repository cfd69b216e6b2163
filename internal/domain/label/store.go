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
	"sovereign/internal/store/db"
)

// Logs reads logged exchanges.
type Logs interface {
	// Open refuses while the logs may not be read.
	Open(ctx context.Context, ws tenant.ID) error
	// Request reads the exchange of a request, and the id of the run that it is a step of.
	Request(ctx context.Context, ws tenant.ID, requestID string) (step judge.Step, trace string, err error)
	// Steps reads the steps of a run in their order.
	Steps(ctx context.Context, ws tenant.ID, trace string) ([]judge.Step, error)
}

// Judges are measured by labels. They are told of changes in the same transaction.
type Judges interface {
	// Exists refuses a criterion that does not exist.
	Exists(ctx context.Context, in db.Scoped, criterionID string) error
	// Verdict returns what the judge said of an item in the last calibration, or "".
	Verdict(ctx context.Context, in db.Scoped, criterionID string, item []byte) (judge.Verdict, error)
	// LabelChanged is called when a label was graded anew, adjudicated or deleted, and when an item that was graded
	// before got another label.
	LabelChanged(ctx context.Context, tx *db.Tx, ws tenant.ID, c Change) error
}

// A Store keeps labels. Every change is audited in its own transaction.
type Store struct {
	db     *db.DB
	logs   Logs
	judges Judges
	locks  workspaceLocks
}

// NewStore returns a store on d.
func NewStore(d *db.DB, logs Logs, judges Judges) *Store {
	return &Store{db: d, logs: logs, judges: judges}
}

const object = "label"

// A record is a label as the table has it.
type record struct {
	ID, CriterionID, RequestID, TraceID string
	Verdict                             judge.Verdict
	Grade                               *float64
	Critique, Author, Source            string
	InReportHalf                        bool
	InBothHalves                        bool `db:"straddles"`
	Item                                []byte
	Kind                                Kind
	Adjudicated                         judge.Verdict
	Note, AdjudicatedBy                 string
	AdjudicatedAt, CreatedAt            clock.Time
}

const columns = `id, criterion_id, request_id, trace_id, verdict, grade, critique, author, source, in_report_half, straddles, item, kind, adjudicated, note,
	adjudicated_by, adjudicated_at, created_at FROM labels`

// verdictNow returns the verdict after adjudication, which is "" for a withdrawn label.
func (r *record) verdictNow() judge.Verdict {
	if r.Kind != "" {
		return r.Adjudicated
	}
	return r.Verdict
}

func (r *record) label() Label {
	l := Label{
		ID: r.ID, Object: object, RequestID: optional(r.RequestID), TraceID: optional(r.TraceID),
		CriterionID: optional(r.CriterionID), Verdict: r.Verdict,
		Grade: r.Grade, Critique: r.Critique, Author: r.Author, Source: r.Source, InReportHalf: r.InReportHalf,
		InBothHalves: r.InBothHalves, CreatedAt: r.CreatedAt,
	}
	if r.Kind != "" {
		l.Adjudication = &Adjudication{
			Kind: r.Kind, OriginalVerdict: r.Verdict, Verdict: optional(r.Adjudicated), Note: r.Note,
			By: r.AdjudicatedBy, At: r.AdjudicatedAt,
		}
	}
	return l
}

// Filters select labels. They combine with AND; an empty one selects all.
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
		{"criterion_id", f.CriterionID},
		{"request_id", f.RequestID},
		{"trace_id", f.TraceID},
		{"verdict", string(f.Verdict)},
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
	text := fmt.Sprintf(
		`SELECT %s WHERE %s ORDER BY created_at DESC, id DESC LIMIT $%d OFFSET $%d`,
		columns, strings.Join(conditions, " AND "), len(args), len(args)+1)
	rows, err := db.Query[record](ctx, s.db.In(ws), text, args...)
	if err != nil {
		return nil, fmt.Errorf("list labels: %w", err)
	}
	if len(rows) == 0 && f.CriterionID != "" { // a deleted criterion may still have labels
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

func find(ctx context.Context, in db.Scoped, name string) (*record, error) {
	r, err := db.Maybe[record](ctx, in, `SELECT `+columns+` WHERE workspace_id = $1 AND id = $2`, name)
	switch {
	case err != nil:
		return nil, fmt.Errorf("find label: %w", err)
	case r == nil:
		return nil, fault.NotFound(object, name)
	}
	return r, nil
}

// Get reads a label with what was graded.
func (s *Store) Get(ctx context.Context, ws tenant.ID, name string) (Label, error) {
	r, err := find(ctx, s.db.In(ws), name)
	if err != nil {
		return Label{}, err
	}
	l := r.label()
	subject, err := Item(ctx, s.db.In(ws), r.Item)
	if err != nil {
		return Label{}, err
	}
	l.Subject = &Frozen{Steps: subject.Steps}
	return l, nil
}

// errDeleted says that what was graded was deleted with its last label.
var errDeleted = errors.New("what was graded is gone")

// Item reads what was graded.
func Item(ctx context.Context, in db.Scoped, hash []byte) (judge.Subject, error) {
	var subject judge.Subject
	text, err := db.Maybe[[]byte](ctx, in, `SELECT steps FROM label_items WHERE workspace_id = $1 AND hash = $2`, hash)
	if err == nil && text == nil {
		err = errDeleted
	}
	if err == nil {
		err = json.Unmarshal(*text, &subject.Steps, lenient)
	}
	if err != nil {
		return subject, fmt.Errorf("read what was graded: %w", err)
	}
	return subject, nil
}

// IsDeleted reports whether an error of Item says that the item was deleted with its last label.
func IsDeleted(err error) bool { return errors.Is(err, errDeleted) }
