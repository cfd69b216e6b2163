package label

import (
	"cmp"
	"context"
	"fmt"
	"strings"
	"sync"

	"sovereign/internal/base/clock"
	"sovereign/internal/base/fault"
	"sovereign/internal/base/id"
	"sovereign/internal/base/tenant"
	"sovereign/internal/grade/judge"
	"sovereign/internal/store/audit"
	"sovereign/internal/store/db"
	"sovereign/internal/store/quota"
	"sovereign/internal/text/redact"
)

// maxBatch is the size limit of what one request grades, in bytes.
const maxBatch = 32 << 20

// Create makes labels, all or none. What they grade is copied from the logs, or from the request. at returns the place
// of a label in the request body, for messages.
func (s *Store) Create(ctx context.Context, ws tenant.ID, by tenant.Actor, all []New, at func(int) string,
) ([]Label, error) {
	items, err := s.items(ctx, ws, all, at)
	if err != nil {
		return nil, err
	}
	defer s.locks.lock(ws)()
	var created []Label
	_, err = s.db.Tx(ctx, func(tx *db.Tx) error {
		if created, err = s.add(ctx, tx, ws, by, all, items, at); err != nil {
			return err
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
func (s *Store) items(ctx context.Context, ws tenant.ID, all []New, at func(int) string) ([]item, error) {
	items, size := make([]item, len(all)), 0
	for i := range all {
		if err := all[i].check(at(i)); err != nil {
			return nil, err
		}
		it, err := s.item(ctx, ws, &all[i], at(i))
		if err != nil {
			return nil, err
		}
		items[i] = it
		if size += len(it.steps); size > maxBatch {
			return nil, fault.Invalid("labels", "are of more than 32 MiB together")
		}
	}
	return items, nil
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

// add stores new labels, and tells the judges of items that were graded before.
//
//nolint:gosec // items and rows are as long as all
func (s *Store) add(ctx context.Context, tx *db.Tx, ws tenant.ID, by tenant.Actor, all []New, items []item,
	at func(int) string,
) ([]Label, error) {
	if err := s.checkJudges(ctx, tx.In(ws), all); err != nil {
		return nil, err
	}
	known, err := existing(ctx, tx.In(ws), all, items)
	if err != nil {
		return nil, err
	}
	relations := make([]Relations, len(items))
	for i := range items {
		relations[i] = items[i].relations
	}
	halves, err := OpenSplit(ctx, tx, ws, relations...)
	if err != nil {
		return nil, err
	}
	rows, graded := make([]record, len(all)), newGraded()
	for i := range rows {
		n := &all[i]
		author, others := n.author(by), known.of(n, items[i].hash)
		for _, other := range others {
			if other.Author == author {
				return nil, fault.Conflict("%sthe same was graded before, as %s: adjudicate that label, or delete it",
					prefix(at(i)), cmp.Or(other.place, other.ID))
			}
		}
		before := len(others) > 0 || halves.knows(items[i].relations)
		if len(others) > 0 { // a run that has continued is the same run, and its half stands
			first := &others[0]
			rows[i] = n.record(author, first.Item, first.half())
			items[i] = item{hash: string(first.Item), steps: first.steps}
		} else {
			rows[i] = n.record(author, []byte(items[i].hash), halves.assignHalf(items[i].relations))
		}
		known.add(n, &rows[i], items[i].steps, strings.TrimSuffix(at(i), "."))
		graded.add(&rows[i], before)
	}
	if err := halves.Save(ctx, tx, ws); err != nil {
		return nil, err
	}
	if err := insert(ctx, tx, ws, rows, items); err != nil {
		return nil, err
	}
	if err := quota.Check(ctx, tx.In(ws), quota.Labels, len(all)); err != nil {
		return nil, err
	}
	if err := s.settleNew(ctx, tx, ws, by, graded); err != nil {
		return nil, err
	}
	created := make([]Label, len(rows))
	for i := range rows {
		created[i] = rows[i].label()
	}
	return created, nil
}

// checkJudges refuses labels of criteria that do not exist.
func (s *Store) checkJudges(ctx context.Context, in db.Scoped, all []New) error {
	known := map[string]bool{"": true}
	for i := range all {
		if name := all[i].CriterionID; !known[name] {
			if err := s.judges.Exists(ctx, in, name); err != nil {
				return err
			}
			known[name] = true
		}
	}
	return nil
}

// A target is something that a person can grade once for a criterion: an item or a run.
type target struct{ criterionID, of string }

func itemTarget(criterionID, hash string) target   { return target{criterionID, "item " + hash} }
func traceTarget(criterionID, trace string) target { return target{criterionID, "trace " + trace} }

// A sibling is another label of the same item, stored or of the same request.
type sibling struct {
	ID, CriterionID, TraceID, Author string
	Item                             []byte
	InReportHalf                     bool
	InBothHalves                     bool   `db:"straddles"`
	steps                            []byte // of a label of the same request
	place                            string // of such a label, in the request
}

func (s *sibling) half() Half {
	switch {
	case s.InBothHalves:
		return Both
	case s.InReportHalf:
		return Report
	}
	return Tuning
}

// siblings are labels by what they grade.
type siblings map[target][]sibling

// of returns the labels of what n grades. Those of its run come first: a run that has continued is the same run.
func (s siblings) of(n *New, hash string) []sibling {
	var all []sibling
	if n.TraceID != "" {
		all = append(all, s[traceTarget(n.CriterionID, n.TraceID)]...)
	}
	if len(all) > 0 {
		hash = string(all[0].Item)
	}
	return append(all, s[itemTarget(n.CriterionID, hash)]...)
}

// add adds a label of the same request.
func (s siblings) add(n *New, r *record, steps []byte, place string) {
	s.put(sibling{
		ID: r.ID, CriterionID: r.CriterionID, TraceID: n.TraceID, Author: r.Author, Item: r.Item,
		InReportHalf: r.InReportHalf, InBothHalves: r.InBothHalves, steps: steps, place: place,
	})
}

func (s siblings) put(one sibling) {
	of := itemTarget(one.CriterionID, string(one.Item))
	s[of] = append(s[of], one)
	if one.TraceID != "" {
		of = traceTarget(one.CriterionID, one.TraceID)
		s[of] = append(s[of], one)
	}
}

// existing reads the labels of what is to be graded.
func existing(ctx context.Context, in db.Scoped, all []New, items []item) (siblings, error) {
	var hashes, traces []string
	for i := range all {
		hashes = append(hashes, items[i].hash)
		if all[i].TraceID != "" {
			traces = append(traces, all[i].TraceID)
		}
	}
	known, seen := siblings{}, map[string]bool{}
	read := func(which string, args []any) error {
		rows, err := db.Query[sibling](ctx, in, `
			SELECT id, criterion_id, trace_id, author, item, in_report_half, straddles FROM labels
			WHERE workspace_id = $1 AND `+which+` ORDER BY id`, args...)
		if err != nil {
			return fmt.Errorf("find labels: %w", err)
		}
		for _, r := range rows {
			if !seen[r.ID] {
				seen[r.ID] = true
				known.put(r)
			}
		}
		return nil
	}
	for args := range batches(traces, func(trace string) any { return trace }) {
		if err := read(`trace_id <> '' AND trace_id IN `+among, args); err != nil {
			return nil, err
		}
	}
	for _, found := range known { // of a run that has continued, the item is another
		hashes = append(hashes, string(found[0].Item))
	}
	for args := range batches(hashes, func(hash string) any { return []byte(hash) }) {
		if err := read(`item IN `+among, args); err != nil {
			return nil, err
		}
	}
	return known, nil
}

// author returns who graded: the name that was given, or the caller's user.
func (n *New) author(by tenant.Actor) string { return cmp.Or(redact.String(n.Author), string(by.User)) }

// record makes the row of a label.
func (n *New) record(author string, hash []byte, half Half) record {
	return record{
		ID: id.New("lbl"), CriterionID: n.CriterionID, RequestID: n.RequestID, TraceID: n.TraceID, Verdict: n.Verdict,
		Grade: n.Grade, Critique: redact.String(n.Critique),
		Author: author, Source: cmp.Or(redact.String(n.Source), "api"),
		InReportHalf: half != Tuning, InBothHalves: half == Both, Item: hash, CreatedAt: clock.Now(),
	}
}

// insert writes labels, and the items that they grade. An item without steps is stored already.
func insert(ctx context.Context, tx *db.Tx, ws tenant.ID, all []record, items []item) error {
	across := tx.Across("the rows name their workspace")
	var copies, rows [][]any
	seen := map[string]bool{}
	for i, r := range all {
		if hash := items[i].hash; items[i].steps != nil && !seen[hash] {
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
