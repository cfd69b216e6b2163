package label

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/go-json-experiment/json"

	"sovereign/internal/audit"
	"sovereign/internal/clock"
	"sovereign/internal/db"
	"sovereign/internal/fault"
	"sovereign/internal/id"
	"sovereign/internal/judge"
	"sovereign/internal/tenant"
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
}

// A Store keeps labels. Every change is audited in its own transaction.
type Store struct {
	db     *db.DB
	logs   Logs
	judges Judges
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
	InReportHalf                        bool
	Item                                []byte
	Kind                                Kind
	Adjudicated                         judge.Verdict
	Note, AdjudicatedBy                 string
	AdjudicatedAt, CreatedAt            clock.Time
}

const columns = `id, criterion_id, request_id, trace_id, verdict, grade, critique, author, source, in_report_half, item, kind, adjudicated, note,
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
		Grade: k.Grade, Critique: k.Critique, Author: k.Author, Source: k.Source, InReportHalf: k.InReportHalf, CreatedAt: k.CreatedAt,
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

// Create keeps labels, all of them or none. at says where each stands in the body of the one who posts them.
func (s *Store) Create(ctx context.Context, ws tenant.ID, by tenant.Actor, all []New, at func(int) string) ([]Label, error) {
	items := make([]item, len(all))
	for i := range all {
		if err := all[i].check(at(i)); err != nil {
			return nil, err
		}
		it, err := s.freeze(ctx, ws, &all[i], at(i))
		if err != nil {
			return nil, err
		}
		items[i] = it
	}
	var made []Label
	_, err := s.db.Tx(ctx, func(tx *db.Tx) error {
		made = make([]Label, 0, len(all))
		halves, err := split(ctx, tx, ws)
		if err != nil {
			return fmt.Errorf("open the split: %w", err)
		}
		for i := range all {
			one, err := s.create(ctx, tx, ws, by, halves, &all[i], items[i], at(i))
			if err != nil {
				return err
			}
			made = append(made, one)
		}
		return audit.Record(ctx, tx, ws, by, "label.create", made[0].ID, nil, created{len(made), made[0].ID, made[len(made)-1].ID})
	})
	return made, err
}

// created is what the audit trail tells of new labels: what they say stands in them.
type created struct {
	Labels int    `json:"labels"`
	First  string `json:"first"`
	Last   string `json:"last"`
}

// freeze makes a copy of what is graded.
func (s *Store) freeze(ctx context.Context, ws tenant.ID, n *New, at string) (item, error) {
	if n.inline() {
		return sent(n, at)
	}
	if err := s.logs.Open(ctx, ws); err != nil {
		return item{}, err
	}
	if n.TraceID != "" {
		steps, err := s.logs.Steps(ctx, ws, n.TraceID)
		if err != nil {
			return item{}, err
		}
		return frozen(steps, n.TraceID)
	}
	step, trace, err := s.logs.Request(ctx, ws, n.RequestID)
	if err != nil {
		return item{}, err
	}
	return frozen([]judge.Step{step}, trace)
}

func (s *Store) create(ctx context.Context, tx *db.Tx, ws tenant.ID, by tenant.Actor, halves Split, n *New, it item, at string) (Label, error) {
	in := tx.In(ws)
	if n.CriterionID != "" {
		if err := s.judges.Exists(ctx, in, n.CriterionID); err != nil {
			return Label{}, err
		}
	}
	k := kept{
		ID: id.New("lbl"), CriterionID: n.CriterionID, RequestID: n.RequestID, TraceID: n.TraceID, Verdict: n.Verdict, Grade: n.Grade,
		Critique: cleaned(n.Critique), Author: n.Author, Source: n.Source, Item: it.hash[:], CreatedAt: clock.Now(),
	}
	if k.Author == "" {
		k.Author = string(by.User)
	}
	if k.Source == "" {
		k.Source = "api"
	}
	var err error
	if k.InReportHalf, err = halves.settle(ctx, tx, ws, it.chain, it.traces); err != nil {
		return Label{}, err
	}
	if _, err := db.Exec(ctx, in, `INSERT INTO label_items (workspace_id, hash, steps) VALUES ($1, $2, $3) ON CONFLICT (workspace_id, hash) DO NOTHING`,
		k.Item, it.steps); err != nil {
		return Label{}, fmt.Errorf("keep what was graded: %w", err)
	}
	other, err := db.Maybe[string](ctx, in, `SELECT id FROM labels WHERE workspace_id = $1 AND criterion_id = $2 AND item = $3`, k.CriterionID, k.Item)
	switch {
	case err != nil:
		return Label{}, fmt.Errorf("find a label: %w", err)
	case other != nil:
		return Label{}, fault.Conflict("%sthe same was graded before, as %s: adjudicate that label, or delete it", at, *other)
	}
	if _, err := db.Exec(ctx, in, `
		INSERT INTO labels (workspace_id, id, criterion_id, request_id, trace_id, verdict, grade, critique, author, source, in_report_half, item, kind,
			adjudicated, note, adjudicated_by, adjudicated_at, created_at)
		VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, '', '', '', '', 0, $13)`,
		k.ID, k.CriterionID, k.RequestID, k.TraceID, k.Verdict, k.Grade, k.Critique, k.Author, k.Source, k.InReportHalf, k.Item, k.CreatedAt); err != nil {
		return Label{}, fmt.Errorf("keep a label: %w", err)
	}
	return k.label(), nil
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
		if err := s.judges.Changed(ctx, tx, ws, Change{LabelID: name, CriterionID: before.CriterionID, Before: before.standing()}); err != nil {
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
		change := Change{LabelID: name, CriterionID: k.CriterionID, Before: stood, Standing: k.standing(), Kind: k.Kind}
		if err := s.judges.Changed(ctx, tx, ws, change); err != nil {
			return err
		}
		after = k.label()
		return audit.Record(ctx, tx, ws, by, "label.adjudicate", name, before.Adjudication, after.Adjudication)
	})
	return after, err
}

// An Example is a label as judges are shown it: of the tuning half, and as it stands.
type Example struct {
	ID       string
	Item     []byte
	Verdict  judge.Verdict
	Grade    *float64
	Critique string
}

// Tuning reads the labels of the tuning half that are for a criterion and stand with that verdict, the oldest first: those that say
// why before those that do not.
func Tuning(ctx context.Context, in db.Scoped, criterionID string, v judge.Verdict, most int) ([]Example, error) {
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

// Counts are the labels of a criterion that stand with a verdict.
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
		FROM labels WHERE workspace_id = $1 AND criterion_id = $2 GROUP BY 1`, criterionID)
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
