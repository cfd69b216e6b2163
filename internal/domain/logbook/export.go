package logbook

import (
	"bufio"
	"context"
	"errors"
	"io"
	"math"

	"sovereign/internal/base/clock"
	"sovereign/internal/base/tenant"
	"sovereign/internal/store/db"
	"sovereign/internal/text/fold"
)

// MaxExport bounds the exchanges that an export reads.
const MaxExport = 10_000

// An Export is the newest matching exchanges; those that are turns of one conversation are folded into one example.
// It holds the keys of the rows, and none of their text.
type Export struct {
	Count   int  // examples
	Scanned int  // exchanges that were read
	Capped  bool // there were more

	q      *query
	places []fold.Position
	keys   []rowKey
}

// Export finds the newest MaxExport rows of some filters and folds them.
func (s *Store) Export(ctx context.Context, ws tenant.ID, f *Filters) (*Export, error) {
	return s.export(ctx, ws, f, MaxExport)
}

func (s *Store) export(ctx context.Context, ws tenant.ID, f *Filters, most int) (*Export, error) {
	e := &Export{}
	err := s.db.SnapshotIn(ctx, ws, func(in db.Scoped) (err error) {
		if e.q, err = find(ctx, in, ws, f, clock.Now()); err != nil {
			return err
		}
		var failed error
		e.places = fold.Leaves(func(yield func(fold.Chain) bool) { // Leaves iterates twice
			if e.keys, e.Capped = e.keys[:0], false; failed != nil {
				return
			}
			failed = errors.Join(failed, e.q.page(ctx, "at, id, chain", most+1, 0, func(r *logRow) bool {
				if len(e.keys) == most {
					e.Capped = true
					return false
				}
				e.keys = append(e.keys, rowKey{r.At, r.ID})
				chain, _ := fold.Parse(r.Chain) // a chain of another release folds with no other
				return yield(chain)
			}))
		})
		return failed
	})
	if err != nil {
		return nil, err
	}
	e.q.in, e.Scanned = s.db.In(ws), len(e.keys)
	for _, p := range e.places {
		if p.Leaf {
			e.Count++
		}
	}
	return e, nil
}

// exportBatch is how many rows are read at a time.
const exportBatch = 50

// Write writes the examples, one per line, newest first. It holds a few rows at a time. A row that was deleted
// meanwhile, or that is no conversation, is omitted.
func (e *Export) Write(ctx context.Context, to io.Writer) error {
	out := bufio.NewWriterSize(to, 64<<10)
	var line []byte
	for from := 0; from < len(e.keys); from += exportBatch {
		until := min(from+exportBatch, len(e.keys))
		part := *e.q
		part.from, part.to = e.keys[until-1].At, e.keys[from].At+1
		places := make(map[rowKey]int, until-from)
		for i, key := range e.keys[from:until] {
			places[key] = from + i
		}
		var failed error
		// More rows may be in this range: of the same times, or ingested meanwhile by another server.
		err := part.page(ctx, "at, id, response, tools, messages", math.MaxInt32, 0, func(r *logRow) bool {
			at, found := places[rowKey{r.At, r.ID}]
			if !found || !e.places[at].Leaf {
				return true
			}
			example, err := fold.Example(line[:0], r.Messages, r.Response, r.Tools, e.places[at].Folded > 0)
			if err != nil { // tools that are no list, although the provider accepted them, are omitted
				if example, err = fold.Example(
					line[:0], r.Messages, r.Response, nil, e.places[at].Folded > 0,
				); err != nil {
					return true
				}
			}
			line = example
			_, failed = out.Write(append(line, '\n'))
			return failed == nil
		})
		if err != nil {
			return err
		}
		if failed != nil {
			return failed
		}
	}
	return out.Flush()
}
