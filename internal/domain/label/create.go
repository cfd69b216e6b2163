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
)

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
				return fault.Conflict("%sthe same was graded before, as %s: adjudicate that label, or delete it", said(at(i)), other)
			}
			graded[g] = strings.TrimSuffix(at(i), ".")
		}
	}
	return nil
}

// said is where something stands, at the beginning of a sentence.
func said(at string) string {
	if at == "" {
		return ""
	}
	return strings.TrimSuffix(at, ".") + ": "
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
