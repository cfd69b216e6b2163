package label

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"

	"github.com/go-json-experiment/json"

	"sovereign/internal/base/clock"
	"sovereign/internal/base/fault"
	"sovereign/internal/base/id"
	"sovereign/internal/base/tenant"
	"sovereign/internal/grade/judge"
	"sovereign/internal/store/audit"
	"sovereign/internal/store/db"
	"sovereign/internal/store/quota"
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
	// Verdict returns what the judge said of a label in the last calibration, or "".
	Verdict(ctx context.Context, in db.Scoped, labelID string) (judge.Verdict, error)
	// LabelChanged is called when a label was adjudicated or deleted.
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

// verdictColumn is the column of the verdict after adjudication, which is ” for a withdrawn label.
const verdictColumn = `CASE WHEN kind = '' THEN verdict ELSE adjudicated END`

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

// maxBatch is the size limit of what one request grades, in bytes.
const maxBatch = 32 << 20

// Create stores labels, all of them or none. at returns the place of a label in the request body, for messages.
func (s *Store) Create(ctx context.Context, ws tenant.ID, by tenant.Actor, all []New, at func(int) string,
) ([]Label, error) {
	items, relations, err := s.items(ctx, ws, all, at)
	if err != nil {
		return nil, err
	}
	defer s.locks.lock(ws)()
	var created []Label
	_, err = s.db.Tx(ctx, func(tx *db.Tx) error {
		if err := s.checkNew(ctx, tx.In(ws), all, items, at); err != nil {
			return err
		}
		halves, err := OpenSplit(ctx, tx, ws, relations...)
		if err != nil {
			return err
		}
		rows := make([]record, len(all))
		for i := range all {
			rows[i] = all[i].record(by, items[i].hash, halves.assignHalf(relations[i]))
		}
		if err := halves.Save(ctx, tx, ws); err != nil {
			return err
		}
		if err := insert(ctx, tx, ws, rows, items); err != nil {
			return err
		}
		if err := quota.Check(ctx, tx.In(ws), quota.Labels, len(all)); err != nil {
			return err
		}
		created = make([]Label, len(rows))
		for i := range rows {
			created[i] = rows[i].label()
		}
		first, last := created[0].ID, created[len(created)-1].ID
		return audit.Record(ctx, tx, ws, by, "label.create", first, nil, audited{len(created), first, last})
	})
	return created, err
}

// audited is what the audit trail has about new labels. The labels themselves have the rest.
type audited struct {
	Labels int    `json:"labels"`
	First  string `json:"first"`
	Last   string `json:"last"`
}

// items checks labels, and copies what they grade.
func (s *Store) items(ctx context.Context, ws tenant.ID, all []New, at func(int) string) ([]item, []Relations, error) {
	items, relations, size := make([]item, len(all)), make([]Relations, len(all)), 0
	for i := range all {
		if err := all[i].check(at(i)); err != nil {
			return nil, nil, err
		}
		it, err := s.item(ctx, ws, &all[i], at(i))
		if err != nil {
			return nil, nil, err
		}
		items[i], relations[i] = it, it.relations
		if size += len(it.steps); size > maxBatch {
			return nil, nil, fault.Invalid("labels", "are of more than 32 MiB together")
		}
	}
	return items, relations, nil
}

// item copies what a label grades.
func (s *Store) item(ctx context.Context, ws tenant.ID, n *New, at string) (item, error) {
	if n.inline() {
		return newInlineItem(n, at)
	}
	if err := s.logs.Open(ctx, ws); err != nil {
		return item{}, err
	}
	if n.TraceID != "" {
		steps, err := s.logs.Steps(ctx, ws, n.TraceID)
		if err != nil {
			return item{}, err
		}
		return newItem(steps, n.TraceID, at+"trace_id")
	}
	step, trace, err := s.logs.Request(ctx, ws, n.RequestID)
	if err != nil {
		return item{}, err
	}
	return newItem([]judge.Step{step}, trace, at+"request_id")
}

// workspaceLocks lets one transaction at a time write labels of a workspace: concurrent ones would only conflict and be
// retried.
type workspaceLocks struct {
	mu  sync.Mutex
	all map[tenant.ID]*sync.Mutex
}

func (l *workspaceLocks) lock(ws tenant.ID) (unlock func()) {
	l.mu.Lock()
	if l.all == nil {
		l.all = map[tenant.ID]*sync.Mutex{}
	}
	lock := l.all[ws]
	if lock == nil {
		lock = new(sync.Mutex)
		l.all[ws] = lock
	}
	l.mu.Unlock()
	lock.Lock()
	return lock.Unlock
}

// A target is something that a criterion can have one label of: an item or a run.
type target struct{ criterionID, of string }

func itemTarget(criterionID, hash string) target   { return target{criterionID, "item " + hash} }
func traceTarget(criterionID, trace string) target { return target{criterionID, "trace " + trace} }

// checkNew refuses labels of criteria that do not exist, and of what has a label for the same criterion already.
func (s *Store) checkNew(ctx context.Context, in db.Scoped, all []New, items []item, at func(int) string) error {
	taken, err := existing(ctx, in, all, items)
	if err != nil {
		return err
	}
	known := map[string]bool{"": true}
	for i := range all {
		n := &all[i]
		if !known[n.CriterionID] {
			if err := s.judges.Exists(ctx, in, n.CriterionID); err != nil {
				return err
			}
			known[n.CriterionID] = true
		}
		targets := []target{itemTarget(n.CriterionID, items[i].hash)}
		if n.TraceID != "" {
			targets = append(targets, traceTarget(n.CriterionID, n.TraceID))
		}
		for _, t := range targets {
			if other := taken[t]; other != "" {
				return fault.Conflict("%sthe same was graded before, as %s: adjudicate that label, or delete it",
					prefix(at(i)), other)
			}
			taken[t] = strings.TrimSuffix(at(i), ".")
		}
	}
	return nil
}

// existing reads the labels of what is to be graded. Its values are the ids of the labels.
func existing(ctx context.Context, in db.Scoped, all []New, items []item) (map[target]string, error) {
	type row struct {
		ID, CriterionID, TraceID string
		Item                     []byte
	}
	var hashes, traces []string
	for i := range all {
		hashes = append(hashes, items[i].hash)
		if all[i].TraceID != "" {
			traces = append(traces, all[i].TraceID)
		}
	}
	taken := map[target]string{}
	read := func(text string, args []any) error {
		rows, err := db.Query[row](ctx, in, text, args...)
		if err != nil {
			return fmt.Errorf("find labels: %w", err)
		}
		for _, r := range rows {
			taken[itemTarget(r.CriterionID, string(r.Item))] = r.ID
			taken[traceTarget(r.CriterionID, r.TraceID)] = r.ID
		}
		return nil
	}
	const text = `SELECT id, criterion_id, trace_id, item FROM labels WHERE workspace_id = $1 AND `
	for args := range batches(hashes, func(hash string) any { return []byte(hash) }) {
		if err := read(text+`item IN `+among, args); err != nil {
			return nil, err
		}
	}
	for args := range batches(traces, func(trace string) any { return trace }) {
		if err := read(text+`trace_id <> '' AND trace_id IN `+among, args); err != nil {
			return nil, err
		}
	}
	return taken, nil
}

// record makes the row of a label.
func (n *New) record(by tenant.Actor, hash string, half Half) record {
	return record{
		ID: id.New("lbl"), CriterionID: n.CriterionID, RequestID: n.RequestID, TraceID: n.TraceID, Verdict: n.Verdict,
		Grade: n.Grade, Critique: withoutCredentials(n.Critique),
		Author: cmp.Or(n.Author, string(by.User)), Source: cmp.Or(n.Source, "api"),
		InReportHalf: half != Tuning, InBothHalves: half == Both, Item: []byte(hash), CreatedAt: clock.Now(),
	}
}

// insert writes labels, and the items that they grade.
func insert(ctx context.Context, tx *db.Tx, ws tenant.ID, all []record, items []item) error {
	across := tx.Across("the rows name their workspace")
	var copies, rows [][]any
	seen := map[string]bool{}
	for i, r := range all {
		if hash := items[i].hash; !seen[hash] {
			seen[hash] = true
			copies = append(copies, []any{ws, r.Item, items[i].steps})
		}
		rows = append(rows, []any{
			ws, r.ID, r.CriterionID, r.RequestID, r.TraceID, string(r.Verdict), r.Grade, r.Critique, r.Author, r.Source,
			r.InReportHalf, r.InBothHalves, r.Item,
			"", "", "", "", 0, r.CreatedAt,
		})
	}
	if err := db.Merge(ctx, across, "label_items", []string{"workspace_id", "hash", "steps"}, 2,
		"steps = label_items.steps", copies); err != nil {
		return fmt.Errorf("insert what was graded: %w", err)
	}
	if err := db.Insert(ctx, across, "labels", []string{
		"workspace_id", "id", "criterion_id", "request_id", "trace_id", "verdict", "grade", "critique", "author",
		"source", "in_report_half", "straddles", "item",
		"kind", "adjudicated", "note", "adjudicated_by", "adjudicated_at", "created_at",
	}, rows); err != nil {
		return fmt.Errorf("insert labels: %w", err)
	}
	return nil
}

// Delete deletes a label, and what was graded with the last label of it. The split stays: what was held out is held out
// when it is graded again.
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
			DELETE FROM label_items WHERE workspace_id = $1 AND hash = $2 AND NOT EXISTS (SELECT 1 FROM labels
				WHERE labels.workspace_id = $1 AND labels.item = $2)`,
			before.Item); err != nil {
			return fmt.Errorf("delete what label %s graded: %w", name, err)
		}
		change := Change{LabelID: name, CriterionID: before.CriterionID, Before: before.verdictNow(), By: by}
		if err := s.judges.LabelChanged(ctx, tx, ws, change); err != nil {
			return err
		}
		return audit.Record(ctx, tx, ws, by, "label.delete", name, before.label(), nil)
	})
	return err
}

// Adjudicate adjudicates a label. It replaces an earlier adjudication; the audit trail has both.
func (s *Store) Adjudicate(ctx context.Context, ws tenant.ID, by tenant.Actor, name string, r Ruling) (Label, error) {
	var after Label
	_, err := s.db.Tx(ctx, func(tx *db.Tx) error {
		in := tx.In(ws)
		l, err := find(ctx, in, name)
		if err != nil {
			return err
		}
		before, verdict := l.label(), l.verdictNow()
		judged, err := s.judges.Verdict(ctx, in, name)
		if err != nil {
			return err
		}
		if l.Kind, l.Adjudicated, err = r.resolve(l.Verdict, judged); err != nil {
			return err
		}
		l.Note, l.AdjudicatedBy, l.AdjudicatedAt = withoutCredentials(r.Note), string(by.User), clock.Now()
		if _, err := db.Exec(ctx, in, `
			UPDATE labels SET kind = $2, adjudicated = $3, note = $4, adjudicated_by = $5, adjudicated_at = $6
				WHERE workspace_id = $1 AND id = $7`,
			l.Kind, l.Adjudicated, l.Note, l.AdjudicatedBy, l.AdjudicatedAt, name); err != nil {
			return fmt.Errorf("adjudicate label %s: %w", name, err)
		}
		change := Change{
			LabelID: name, CriterionID: l.CriterionID, Before: verdict, After: l.verdictNow(),
			Kind: l.Kind, By: by,
		}
		if err := s.judges.LabelChanged(ctx, tx, ws, change); err != nil {
			return err
		}
		after = l.label()
		return audit.Record(ctx, tx, ws, by, "label.adjudicate", name, before.Adjudication, after.Adjudication)
	})
	return after, err
}

// Examples reads the labels of the tuning half that are for a criterion and have that verdict now, the oldest first.
// Labels without a critique are read only when there are too few with one.
func Examples(ctx context.Context, in db.Scoped, criterionID string, v judge.Verdict, limit int) ([]Example, error) {
	var all []Example
	for _, critique := range []string{`critique <> ''`, `critique = ''`} {
		some, err := db.Query[Example](ctx, in, `
			SELECT id, item, $3 AS verdict, CASE WHEN kind = 'label_error' THEN NULL ELSE grade END AS grade,
				CASE WHEN kind = 'label_error' THEN note ELSE critique END AS critique
			FROM labels WHERE workspace_id = $1 AND criterion_id = $2 AND NOT in_report_half
				AND `+verdictColumn+` = $3 AND `+critique+` ORDER BY id LIMIT $4`, criterionID, v, limit-len(all))
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

// Critiques reads the critiques of the tuning half, the newest first. Those of withdrawn labels are left out.
func Critiques(ctx context.Context, in db.Scoped, limit, offset int) ([]Critique, error) {
	all, err := db.Query[Critique](ctx, in, `
		SELECT item, request_id, trace_id, CASE WHEN kind = 'label_error' THEN note ELSE critique END AS critique
		FROM labels WHERE workspace_id = $1 AND NOT in_report_half AND critique <> '' AND kind <> 'ambiguous'
			ORDER BY created_at DESC, id DESC LIMIT $2 OFFSET $3`, limit, offset)
	if err != nil {
		return nil, fmt.Errorf("read critiques: %w", err)
	}
	return all, nil
}

// Count counts the labels of a criterion by their verdict now.
func Count(ctx context.Context, in db.Scoped, criterionID string) (Counts, error) {
	type row struct {
		Verdict judge.Verdict
		N       int64
	}
	rows, err := db.Query[row](ctx, in, `
		SELECT `+verdictColumn+` AS verdict, COUNT(*) AS n
		FROM labels WHERE workspace_id = $1 AND criterion_id = $2 AND NOT straddles GROUP BY 1`, criterionID)
	if err != nil {
		return Counts{}, fmt.Errorf("count labels: %w", err)
	}
	var c Counts
	for _, r := range rows {
		switch r.Verdict {
		case judge.Pass:
			c.Pass = r.N
		case judge.Fail:
			c.Fail = r.N
		}
	}
	return c, nil
}
