package logbook

import (
	"cmp"
	"context"
	"fmt"
	"iter"
	"math/rand/v2"

	"sovereign/internal/base/clock"
	"sovereign/internal/base/fault"
	"sovereign/internal/base/tenant"
	"sovereign/internal/store/db"
)

// RunFilters select runs. They combine with AND; an empty one selects everything that can be graded.
type RunFilters struct {
	Start    clock.Time `json:"start,omitzero" doc:"Active from this time on, RFC 3339"`
	End      clock.Time `json:"end,omitzero" doc:"Active before this time, RFC 3339"`
	MinSteps int64      `json:"min_steps,omitempty" minimum:"1" maximum:"200"`
	MaxSteps int64      `json:"max_steps,omitempty" minimum:"1" maximum:"200" doc:"200 by default: longer runs cannot be graded"`
	Tag      string     `json:"tag,omitempty" maxLength:"256" doc:"A step has this tag"`
	Model    string     `json:"model,omitempty" maxLength:"256" doc:"This model answered a step"`
}

// Check refuses ranges that are empty by mistake. at is the path of f in the body, such as "runs.".
func (f *RunFilters) Check(at string) error {
	switch {
	case f.Start != 0 && f.End != 0 && f.End <= f.Start:
		return fault.Invalid(at+"end", "must be after "+at+"start")
	case f.MaxSteps != 0 && f.MaxSteps < f.MinSteps:
		return fault.Invalid(at+"max_steps", "must not be below "+at+"min_steps")
	}
	return nil
}

// DrawRuns returns a random sample of the matching runs: of the MaxPool that were active last. The same seed draws the
// same sample from the same runs.
func (s *Store) DrawRuns(ctx context.Context, ws tenant.ID, f *RunFilters, size int, seed uint64) ([]Trace, error) {
	all, err := db.Query[Trace](ctx, s.db.In(ws), `
		SELECT `+traceColumns+` FROM log_traces
		WHERE workspace_id = $1 AND steps >= $2 AND steps <= $3 AND last_at >= $4 AND last_at < $5
			AND ($6 = '' AND $7 = '' OR EXISTS (SELECT 1 FROM log_rows r WHERE r.workspace_id = $1
				AND r.trace_id = log_traces.trace_id AND r.trace_id <> ''
				AND ($6 = '' OR r.tag = $6) AND ($7 = '' OR r.model = $7)))
		ORDER BY last_at DESC, trace_id DESC LIMIT $8`,
		max(f.MinSteps, 1), cmp.Or(f.MaxSteps, maxSteps), f.Start, cmp.Or(f.End, never), f.Tag, f.Model, MaxPool)
	if err != nil {
		return nil, fmt.Errorf("find runs: %w", err)
	}
	rand.New(rand.NewPCG(seed, 0)).Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
	return all[:min(size, len(all))], nil
}

// Requests reads the request ids and the expiry of some rows. which are their indices in the order of Facts, ascending.
func (s *Scan) Requests(ctx context.Context, which []int) iter.Seq2[*Exchange, error] {
	return s.read(ctx, "request_id, expires_at", s.at(which))
}

// Expiry returns when a logged exchange is deleted: that of a request or, where trace is not "", of the first step of a
// run that is. It is 0 where nothing is logged. steps is how many there are.
func (s *Store) Expiry(ctx context.Context, ws tenant.ID, requestID, trace string,
) (at clock.Time, steps int64, err error) {
	of, name := `request_id = $2`, requestID
	if trace != "" {
		of, name = `trace_id = $2 AND trace_id <> ''`, trace
	}
	found, err := db.One[struct {
		At    clock.Time
		Steps int64
	}](ctx, s.db.In(ws), `
		SELECT COALESCE(MIN(expires_at), 0) AS at, COUNT(*) AS steps FROM log_rows
		WHERE workspace_id = $1 AND `+of+` AND expires_at > $3`, name, clock.Now())
	if err != nil {
		return 0, 0, fmt.Errorf("find when a logged row expires: %w", err)
	}
	return found.At, found.Steps, nil
}
