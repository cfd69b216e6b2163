package logbook

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"
	"strings"

	"sovereign/internal/base/clock"
	"sovereign/internal/base/money"
	"sovereign/internal/base/tenant"
	"sovereign/internal/store/db"
)

// An Exchange is what datasets and evals need of a logged row. Each method says which fields it reads.
type Exchange struct {
	At           clock.Time
	ID           string
	RequestID    string
	ExpiresAt    clock.Time
	Model        string // that answered
	Cached       bool
	Cost         money.Nano
	Latency      int64 // in microseconds
	Segment      string
	FinishReason string
	TraceID      string
	Chain        []byte
	Response     []byte
	Tools        []byte
	Messages     []byte
}

// A Scan is the newest matching rows in one snapshot: every read of it returns the same. It holds the keys of the
// rows, and none of their text.
type Scan struct {
	Capped bool // there were more rows

	in   db.Scoped
	keys []rowKey
}

// A rowKey identifies a row of a workspace.
type rowKey struct {
	At clock.Time
	ID string
}

// Scan calls fn with at most so many rows, which fn may read until it returns. Rows that are deleted meanwhile are
// still visible to it.
func (s *Store) Scan(ctx context.Context, ws tenant.ID, f *Filters, most int, fn func(*Scan) error) error {
	if err := f.check(); err != nil {
		return err
	}
	return s.db.SnapshotIn(ctx, ws, func(in db.Scoped) error {
		q, err := find(ctx, in, ws, f, clock.Now())
		if err != nil {
			return err
		}
		scan := &Scan{in: in}
		if sum(q.counts) == 0 {
			return fn(scan)
		}
		condition, args := q.where(q.from, q.to)
		args = append(args, q.now, most+1)
		scan.keys, err = db.Query[rowKey](ctx, in, fmt.Sprintf(`
			SELECT at, id FROM log_rows WHERE %s AND expires_at > $%d ORDER BY at DESC, id DESC LIMIT $%d`,
			condition, len(args), len(args)+1), args...)
		if err != nil {
			return fmt.Errorf("find logged rows: %w", err)
		}
		if len(scan.keys) > most {
			scan.keys, scan.Capped = scan.keys[:most], true
		}
		return fn(scan)
	})
}

// Len returns the number of rows.
func (s *Scan) Len() int { return len(s.keys) }

// Facts reads all rows, newest first, without their chains, messages and tools.
func (s *Scan) Facts(ctx context.Context) iter.Seq2[*Exchange, error] {
	return s.read(ctx, "segment, finish_reason, trace_id, response", s.keys)
}

// Chains reads the chains of all rows, in the order of Facts.
func (s *Scan) Chains(ctx context.Context) iter.Seq2[*Exchange, error] {
	return s.read(ctx, "chain", s.keys)
}

// Segments reads the segments and chains of all rows, in the order of Facts.
func (s *Scan) Segments(ctx context.Context) iter.Seq2[*Exchange, error] {
	return s.read(ctx, "segment, chain", s.keys)
}

// Whole reads all fields of some rows but their chains, traces and finish reasons. which are their indices in the order
// of Facts, ascending.
func (s *Scan) Whole(ctx context.Context, which []int) iter.Seq2[*Exchange, error] {
	return s.read(ctx, "request_id, expires_at, segment, model, cached, cost, latency, response, tools, messages",
		s.at(which))
}

// Texts reads messages, tools and responses of some rows. which are their indices in the order of Facts, ascending.
func (s *Scan) Texts(ctx context.Context, which []int) iter.Seq2[*Exchange, error] {
	return s.read(ctx, "response, tools, messages", s.at(which))
}

func (s *Scan) at(which []int) []rowKey {
	marks := make([]rowKey, len(which))
	for i, at := range which {
		marks[i] = s.keys[at]
	}
	return marks
}

// scanBatch is how many rows one statement reads.
const scanBatch = 32

// scanPlaces are the places of a batch's arguments, from $2 on; the text is constant.
var scanPlaces = func() string {
	places := make([]string, scanBatch)
	for i := range places {
		places[i] = fmt.Sprintf("$%d", i+2)
	}
	return strings.Join(places, ", ")
}()

// scanCondition is the condition that finds a batch.
var scanCondition = `workspace_id = $1 AND at IN (` + scanPlaces + `)`

// errVanished reports that a row disappeared within a snapshot.
var errVanished = errors.New("a logged row is not where it was a moment ago")

// read reads rows by their keys, one at a time. Rows of different servers may share a time; the id decides then.
func (s *Scan) read(ctx context.Context, columns string, marks []rowKey) iter.Seq2[*Exchange, error] {
	text := `SELECT at, id, ` + columns + ` FROM log_rows WHERE ` + scanCondition + ` ORDER BY at DESC, id DESC`
	return func(yield func(*Exchange, error) bool) {
		for batch := range slices.Chunk(marks, scanBatch) {
			times := make([]any, scanBatch)
			for i := range times {
				times[i] = batch[min(i, len(batch)-1)].At
			}
			for row, err := range db.Rows[Exchange](ctx, s.in, text, times...) {
				if err != nil {
					yield(nil, fmt.Errorf("read logged rows: %w", err))
					return
				}
				if len(batch) == 0 || (rowKey{row.At, row.ID}) != batch[0] {
					continue
				}
				batch = batch[1:]
				if !yield(&row, nil) {
					return
				}
			}
			if len(batch) > 0 {
				yield(nil, errVanished)
				return
			}
		}
	}
}
