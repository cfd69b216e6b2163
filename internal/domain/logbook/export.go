package logbook

import (
	"bufio"
	"context"
	"errors"
	"io"

	"sovereign/internal/base/clock"
	"sovereign/internal/base/tenant"
	"sovereign/internal/store/db"
	"sovereign/internal/text/fold"
)

// MaxExport is how many exchanges an export looks at.
const MaxExport = 10_000

// An Export is what will be written: the newest exchanges of some filters, those that are turns of one conversation folded into one
// example. It holds the places of the rows, and none of their text.
type Export struct {
	Count   int  // examples
	Scanned int  // exchanges that were looked at
	Capped  bool // there were more

	q      *query
	places []fold.Position
	times  []clock.Time
}

// Export looks at the rows of some filters.
func (s *Store) Export(ctx context.Context, ws tenant.ID, f *Filters) (*Export, error) {
	e := &Export{}
	err := s.db.SnapshotIn(ctx, ws, func(in db.Scoped) (err error) {
		if e.q, err = find(ctx, in, ws, f, clock.Now()); err != nil {
			return err
		}
		var failed error
		e.places = fold.Leaves(func(yield func(fold.Chain) bool) { // which goes over them twice
			if e.times, e.Capped = e.times[:0], false; failed != nil {
				return
			}
			failed = errors.Join(failed, e.q.page(ctx, "at, chain", MaxExport+1, 0, func(r *stored) bool {
				if len(e.times) == MaxExport {
					e.Capped = true
					return false
				}
				e.times = append(e.times, r.At)
				chain, _ := fold.Parse(r.Chain) // of another release it folds with nothing
				return yield(chain)
			}))
		})
		return failed
	})
	if err != nil {
		return nil, err
	}
	e.q.in, e.Scanned = s.db.In(ws), len(e.times)
	for _, p := range e.places {
		if p.Leaf {
			e.Count++
		}
	}
	return e, nil
}

// exportBatch is how many rows are read at a time.
const exportBatch = 50

// Write writes the examples, a line for each, newest first. It holds a few rows at a time; a row that was deleted meanwhile, or is no conversation, is left out.
func (e *Export) Write(ctx context.Context, to io.Writer) error {
	out := bufio.NewWriterSize(to, 64<<10)
	var line []byte
	for from := 0; from < len(e.times); from += exportBatch {
		until := min(from+exportBatch, len(e.times))
		part := *e.q
		part.from, part.to = e.times[until-1], e.times[from]+1
		at := from
		var failed error
		err := part.page(ctx, "at, response, tools, messages", exportBatch, 0, func(r *stored) bool {
			for at < until && e.times[at] > r.At {
				at++
			}
			if at == until || e.times[at] != r.At || !e.places[at].Leaf {
				return true
			}
			example, err := fold.Example(line[:0], r.Messages, r.Response, r.Tools, e.places[at].Folded > 0)
			if err != nil { // what a provider took for tools, and is no list, is left out
				if example, err = fold.Example(line[:0], r.Messages, r.Response, nil, e.places[at].Folded > 0); err != nil {
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
