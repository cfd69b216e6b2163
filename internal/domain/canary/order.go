package canary

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"math"
	"slices"

	"github.com/go-json-experiment/json"

	"sovereign/internal/base/clock"
	"sovereign/internal/base/tenant"
	"sovereign/internal/domain/logbook"
	"sovereign/internal/live"
	"sovereign/internal/store/cluster"
	"sovereign/internal/store/db"
)

// cursors are how far the draws of each source were taken.
type cursors map[string]cursor

// A cursor is the number and the time of the last draw of a source that was taken.
type cursor struct {
	Seq int64 `json:"seq"`
	At  int64 `json:"at"`
}

// Scan reads cursors as the table has them.
func (c *cursors) Scan(kept any) error {
	text, ok := kept.(string)
	if !ok {
		return fmt.Errorf("cursors are kept as text, not %T", kept)
	}
	return json.Unmarshal([]byte(text), (*map[string]cursor)(c))
}

// text returns cursors as the table has them.
func (c cursors) text() string {
	text, _ := json.Marshal(map[string]cursor(c), json.Deterministic(true)) // numbers and names only
	return string(text)
}

// of returns the cursor of a source. An epoch that an earlier release began has taken all sources before its last one.
func (e *epoch) of(source string) cursor {
	if c, taken := e.Cursors[source]; taken || source != e.Source {
		return c
	}
	return cursor{Seq: e.Seq}
}

// lives reads the lives that are not over.
func (s *Store) lives(ctx context.Context) (map[cluster.Life]bool, error) {
	all, err := db.Query[cluster.Life](ctx, s.DB.Across("nodes serve all workspaces"),
		`SELECT id AS node, epoch FROM nodes WHERE NOT ended`)
	if err != nil {
		return nil, fmt.Errorf("read the lives of nodes: %w", err)
	}
	present := map[cluster.Life]bool{}
	for _, l := range all {
		present[l] = true
	}
	return present, nil
}

// isOver reports whether the i-th source has ended: its node began another, or its life is over. One without a life is
// of the only server, and of none where there are nodes.
func isOver(sources []string, i int, lives map[cluster.Life]bool) bool {
	life := logbook.DrawnIn(sources[i])
	for _, later := range sources[i+1:] {
		if logbook.DrawnIn(later).Node == life.Node {
			return true
		}
	}
	if life == (cluster.Life{}) {
		return len(lives) > 0
	}
	return !lives[life]
}

// A turn is a draw and its place in the order of an epoch: that of the times at which requests were drawn, in which the
// draws of a source keep the order of their numbers.
type turn struct {
	logbook.CanaryDraw
	source string
	at     int64
}

// untaken reads at most room draws that follow those of an epoch, and counts them in it. A draw waits for those before
// it in its own source. It also waits for one of another source that is known to be missing and was drawn before it, so
// that slow requests of one node do not enter after the quick ones of another.
func (s *Store) untaken(ctx context.Context, ws tenant.ID, e *epoch, room int) ([]sample, error) {
	lives, err := s.lives(ctx)
	if err != nil {
		return nil, err
	}
	sources, err := s.Logs.DrawSources(ctx, ws, e.Alias, e.ID, e.Source)
	if err != nil {
		return nil, err
	}
	var all []turn
	until := int64(math.MaxInt64)
	for i, source := range sources {
		draws, err := s.Logs.Draws(ctx, ws, e.Alias, e.ID, source, e.of(source).Seq, room)
		if err != nil {
			return nil, err
		}
		more, known := inOrder(source, e.of(source), draws, isOver(sources, i, lives), s.now())
		all = append(all, more...)
		if len(more) < len(draws) || len(draws) == room {
			until = min(until, known)
		}
	}
	slices.SortStableFunc(all, func(a, b turn) int { return cmp.Compare(a.at, b.at) })
	after := slices.IndexFunc(all, func(t turn) bool { return t.at > until })
	if after < 0 {
		after = len(all)
	}
	return e.count(sources, all[:min(after, room)]), nil
}

// inOrder returns the draws of a source that can be taken: up to the first number that is missing, unless that is lost.
// It also returns the time up to which no draw of the source is missing.
func inOrder(source string, last cursor, draws []logbook.CanaryDraw, over bool, now clock.Time) ([]turn, int64) {
	if last.At == 0 {
		last.At = int64(logbook.SourceBegan(source)) - 1
	}
	var all []turn
	for _, d := range draws {
		if d.Seq != last.Seq+1 && !over && !d.Old(now) {
			break
		}
		last = cursor{Seq: d.Seq, At: max(last.At, int64(d.At))}
		all = append(all, turn{d, source, last.At})
	}
	return all, last.At
}

// count takes draws as samples, and forgets the cursors of sources of which nothing is stored any more.
func (e *epoch) count(sources []string, all []turn) (samples []sample) {
	if len(all) == 0 {
		return nil
	}
	next := maps.Clone(e.Cursors)
	if next == nil {
		next = cursors{}
	}
	maps.DeleteFunc(next, func(source string, _ cursor) bool { return !slices.Contains(sources, source) })
	for _, d := range all {
		next[d.source] = cursor{Seq: d.Seq, At: d.at}
		e.Taken++
		samples = append(samples, sample{
			Position: e.Taken, RequestID: d.RequestID, Stratum: max(1, d.Stratum), Canary: d.Arm == live.CanaryArm,
			Result: known[d.Outcome], Latency: d.Latency.Microseconds(), Cost: d.Cost, DrawnAt: d.At,
			ExpiresAt: d.ExpiresAt, question: d.Question,
		})
	}
	e.Cursors = next
	return samples
}
