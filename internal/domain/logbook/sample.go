package logbook

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"

	"sovereign/internal/base/clock"
	"sovereign/internal/base/fault"
	"sovereign/internal/base/tenant"
	"sovereign/internal/grade/judge"
	"sovereign/internal/store/db"
)

// A Drawn is a logged exchange to be judged.
type Drawn struct {
	At        clock.Time
	ID        string
	RequestID string
	ExpiresAt clock.Time
	TraceID   string
	Chain     []byte
	Response  []byte
	Tools     []byte
	Messages  []byte
}

// Step returns the exchange in the form that a judge is shown.
func (d *Drawn) Step() judge.Step {
	step := judge.Step{Messages: d.Messages, Response: d.Response}
	// without tools the column is empty, which one engine returns as nil and the other as []byte{}
	if len(d.Tools) > 0 {
		step.Tools = d.Tools
	}
	return step
}

const drawnColumns = `at, id, request_id, expires_at, trace_id, chain, response, tools, messages`

// MaxPool bounds the exchanges that a sample is drawn from: the newest that match.
const MaxPool = 100_000

// Draw calls each with a random sample of the matching exchanges, and returns how many it was drawn from. The same
// seed draws the same sample from the same exchanges.
func (s *Store) Draw(
	ctx context.Context, ws tenant.ID, f *Filters, size int, seed uint64, each func(*Drawn) (more bool),
) (pool int, err error) {
	err = s.Scan(ctx, ws, f, MaxPool, func(scan *Scan) error {
		pool = scan.Len()
		order := rand.New(rand.NewPCG(seed, 0)).Perm(pool)
		for batch := range slices.Chunk(order[:min(size, pool)], scanBatch) {
			for _, at := range batch {
				m := scan.keys[at]
				row, err := db.Maybe[Drawn](ctx, scan.in,
					`SELECT `+drawnColumns+` FROM log_rows WHERE workspace_id = $1 AND at = $2 AND id = $3`, m.At, m.ID)
				if err != nil {
					return fmt.Errorf("read a logged row: %w", err)
				}
				if row != nil && !each(row) {
					return nil
				}
			}
		}
		return nil
	})
	return pool, err
}

// Since lists the matching exchanges that were logged after a time, the oldest first, without their texts.
func (s *Store) Since(ctx context.Context, ws tenant.ID, f *Filters, after clock.Time, most int) ([]Drawn, error) {
	next := *f
	next.Start = max(f.Start, after+1)
	if next.End != 0 && next.End <= next.Start {
		return nil, nil
	}
	var all []Drawn
	err := s.db.SnapshotIn(ctx, ws, func(in db.Scoped) error {
		q, err := find(ctx, in, ws, &next, clock.Now())
		if err != nil || sum(q.counts) == 0 {
			return err
		}
		condition, args := q.where(q.from, q.to)
		args = append(args, q.now, most)
		all, err = db.Query[Drawn](ctx, in, fmt.Sprintf(`
			SELECT at, id, request_id, expires_at FROM log_rows WHERE %s AND expires_at > $%d ORDER BY at, id LIMIT $%d`,
			condition, len(args), len(args)+1), args...)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("read what was logged since: %w", err)
	}
	return all, nil
}

// Newest returns when the last exchange was logged, 0 without one.
func (s *Store) Newest(ctx context.Context, ws tenant.ID) (clock.Time, error) {
	at, err := db.One[clock.Time](ctx, s.db.In(ws), `SELECT COALESCE(MAX(at), 0) FROM log_rows WHERE workspace_id = $1`)
	if err != nil {
		return 0, fmt.Errorf("find the newest logged row: %w", err)
	}
	return at, nil
}

// Read returns a logged exchange by its id, in the form that a judge is shown.
func (s *Store) Read(ctx context.Context, ws tenant.ID, id string) (judge.Step, error) {
	row, err := s.Get(ctx, ws, id)
	return judge.Step{Messages: row.Messages, Response: row.Response, Tools: row.Tools}, err
}

// Request returns the exchange of a request id, and the trace that it belongs to, if any.
func (s *Store) Request(
	ctx context.Context, ws tenant.ID, requestID string,
) (step judge.Step, trace string, err error) {
	row, err := db.Maybe[Drawn](ctx, s.db.In(ws), `
		SELECT `+drawnColumns+` FROM log_rows
		WHERE workspace_id = $1 AND request_id = $2 AND expires_at > $3 ORDER BY at, id LIMIT 1`, requestID, clock.Now())
	switch {
	case err != nil:
		return step, "", fmt.Errorf("read the exchange of %s: %w", requestID, err)
	case row == nil:
		return step, "", fault.NotFound("logged request", requestID)
	}
	return row.Step(), row.TraceID, nil
}

// Request is the store's Request.
func (h *Handler) Request(
	ctx context.Context, ws tenant.ID, requestID string,
) (step judge.Step, trace string, err error) {
	return h.store.Request(ctx, ws, requestID)
}

// Selects reports whether filters select the exchange of a request or, where trace is not "", all steps of a run. What
// is not logged any more is not selected.
func (s *Store) Selects(ctx context.Context, ws tenant.ID, f *Filters, requestID, trace string) (bool, error) {
	of, args := `request_id = $2`, []any{requestID, clock.Now(), f.Start, never}
	if trace != "" {
		of, args[0] = `trace_id = $2 AND trace_id <> ''`, trace
	}
	if f.End != 0 {
		args[3] = f.End
	}
	var matches strings.Builder
	matches.WriteString("at >= $4 AND at < $5")
	for _, one := range f.facets() {
		args = one.where(&matches, false, args, 2)
	}
	n, err := db.One[struct{ Steps, Selected int64 }](ctx, s.db.In(ws), `
		SELECT COUNT(*) AS steps, COUNT(CASE WHEN `+matches.String()+` THEN 1 END) AS selected
		FROM log_rows WHERE workspace_id = $1 AND `+of+` AND expires_at > $3`, args...)
	if err != nil {
		return false, fmt.Errorf("find what was graded in the logs: %w", err)
	}
	return n.Selected > 0 && n.Selected == n.Steps, nil
}

// maxSteps bounds the steps of a run that are read to be judged.
const maxSteps = 200

// Steps returns the steps of a run, in order.
func (h *Handler) Steps(ctx context.Context, ws tenant.ID, trace string) ([]judge.Step, error) {
	run, rows, err := h.store.Trace(ctx, ws, trace, maxSteps, 0)
	if err != nil {
		return nil, err
	}
	if run.Steps > int64(len(rows)) {
		return nil, fault.Invalid(
			"trace_id", fmt.Sprintf("is of a run that is too long to be graded: %d steps", run.Steps),
		)
	}
	steps := make([]judge.Step, len(rows))
	for i := range rows {
		steps[i] = judge.Step{Messages: rows[i].Messages, Response: rows[i].Response, Tools: rows[i].Tools}
	}
	return steps, nil
}
