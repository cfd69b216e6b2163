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

// Create keeps labels, all of them or none. at says where each stands in the body of the one who posts them.
func (s *Store) Create(ctx context.Context, ws tenant.ID, by tenant.Actor, all []New, at func(int) string) ([]Label, error) {
	items, kin, size := make([]item, len(all)), make([]Kin, len(all)), 0
	for i := range all {
		if err := all[i].check(at(i)); err != nil {
			return nil, err
		}
		it, err := s.freeze(ctx, ws, &all[i], at(i))
		if err != nil {
			return nil, err
		}
		items[i], kin[i] = it, it.kin
		if size += len(it.steps); size > maxBatch {
			return nil, fault.Invalid("labels", "are of more than 32 MiB together")
		}
	}
	defer s.turns.take(ws)()
	var made []Label
	_, err := s.db.Tx(ctx, func(tx *db.Tx) error {
		if err := s.fresh(ctx, tx.In(ws), all, items, at); err != nil {
			return err
		}
		halves, err := OpenSplit(ctx, tx, ws, kin...)
		if err != nil {
			return err
		}
		rows := make([]kept, len(all))
		for i := range all {
			rows[i] = all[i].row(by, items[i], halves.settle(items[i].kin))
		}
		if err := halves.Keep(ctx, tx, ws); err != nil {
			return err
		}
		if err := insert(ctx, tx, ws, rows, items); err != nil {
			return err
		}
		made = make([]Label, len(rows))
		for i := range rows {
			made[i] = rows[i].label()
		}
		return audit.Record(ctx, tx, ws, by, "label.create", made[0].ID, nil, created{len(made), made[0].ID, made[len(made)-1].ID})
	})
	return made, err
}

// maxBatch is how much is graded at once.
const maxBatch = 32 << 20

// settle fixes the half of what is graded.
func (s *Split) settle(k Kin) Half {
	half := s.Half(k)
	s.Put(k, half)
	return half
}

// A single takes turns: who writes labels of a workspace at once would only get in each other's way.
type single struct {
	mu    sync.Mutex
	locks map[tenant.ID]*sync.Mutex
}

// take waits for its turn, and gives the end of it.
func (s *single) take(ws tenant.ID) (end func()) {
	s.mu.Lock()
	if s.locks == nil {
		s.locks = map[tenant.ID]*sync.Mutex{}
	}
	lock := s.locks[ws]
	if lock == nil {
		lock = new(sync.Mutex)
		s.locks[ws] = lock
	}
	s.mu.Unlock()
	lock.Lock()
	return lock.Unlock
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
		return frozen(steps, n.TraceID, at+"trace_id")
	}
	step, trace, err := s.logs.Request(ctx, ws, n.RequestID)
	if err != nil {
		return item{}, err
	}
	return frozen([]judge.Step{step}, trace, at+"request_id")
}

// fresh refuses labels of criteria that are not there, and of what has a label for the same criterion already.
func (s *Store) fresh(ctx context.Context, in db.Scoped, all []New, items []item, at func(int) string) error {
	type label struct {
		ID, CriterionID, TraceID string
		Item                     []byte
	}
	type grade struct{ criterionID, of string }
	graded := map[grade]string{} // by whom
	var hashes, traces []string
	for i := range all {
		hashes = append(hashes, items[i].hash)
		if all[i].TraceID != "" {
			traces = append(traces, all[i].TraceID)
		}
	}
	read := func(text string, args []any) error {
		rows, err := db.Query[label](ctx, in, text, args...)
		for _, r := range rows {
			graded[grade{r.CriterionID, "item " + string(r.Item)}] = r.ID
			graded[grade{r.CriterionID, "trace " + r.TraceID}] = r.ID
		}
		return err
	}
	const text = `SELECT id, criterion_id, trace_id, item FROM labels WHERE workspace_id = $1 AND `
	for args := range batches(hashes, func(hash string) any { return []byte(hash) }) {
		if err := read(text+`item IN `+among, args); err != nil {
			return fmt.Errorf("find labels: %w", err)
		}
	}
	for args := range batches(traces, func(trace string) any { return trace }) {
		if err := read(text+`trace_id <> '' AND trace_id IN `+among, args); err != nil {
			return fmt.Errorf("find labels: %w", err)
		}
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
		of := []grade{{n.CriterionID, "item " + items[i].hash}}
		if n.TraceID != "" {
			of = append(of, grade{n.CriterionID, "trace " + n.TraceID})
		}
		for _, g := range of {
			if other := graded[g]; other != "" {
				return fault.Conflict("%sthe same was graded before, as %s: adjudicate that label, or delete it", at(i), other)
			}
			graded[g] = strings.TrimSuffix(at(i), ".")
		}
	}
	return nil
}

// row is a label to be kept.
func (n *New) row(by tenant.Actor, it item, half Half) kept {
	return kept{
		ID: id.New("lbl"), CriterionID: n.CriterionID, RequestID: n.RequestID, TraceID: n.TraceID, Verdict: n.Verdict, Grade: n.Grade,
		Critique: cleaned(n.Critique), Author: cmp.Or(n.Author, string(by.User)), Source: cmp.Or(n.Source, "api"),
		InReportHalf: half != Tuning, Straddles: half == Both, Item: []byte(it.hash), CreatedAt: clock.Now(),
	}
}

// insert writes labels, and what they grade.
func insert(ctx context.Context, tx *db.Tx, ws tenant.ID, all []kept, items []item) error {
	across := tx.Across("the rows name their workspace")
	var frozen, rows [][]any
	seen := map[string]bool{}
	for i, k := range all {
		if hash := items[i].hash; !seen[hash] {
			seen[hash] = true
			frozen = append(frozen, []any{ws, k.Item, items[i].steps})
		}
		rows = append(rows, []any{
			ws, k.ID, k.CriterionID, k.RequestID, k.TraceID, string(k.Verdict), k.Grade, k.Critique, k.Author, k.Source, k.InReportHalf, k.Straddles, k.Item,
			"", "", "", "", 0, k.CreatedAt,
		})
	}
	if err := db.Merge(ctx, across, "label_items", []string{"workspace_id", "hash", "steps"}, 2, "steps = label_items.steps", frozen); err != nil {
		return fmt.Errorf("keep what was graded: %w", err)
	}
	if err := db.Insert(ctx, across, "labels", []string{
		"workspace_id", "id", "criterion_id", "request_id", "trace_id", "verdict", "grade", "critique", "author", "source", "in_report_half", "straddles", "item",
		"kind", "adjudicated", "note", "adjudicated_by", "adjudicated_at", "created_at",
	}, rows); err != nil {
		return fmt.Errorf("keep labels: %w", err)
	}
	return nil
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
