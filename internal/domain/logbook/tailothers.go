package logbook

import (
	"context"
	"fmt"
	"slices"
	"time"

	"sovereign/internal/base/clock"
	"sovereign/internal/base/tenant"
	"sovereign/internal/plane/capture"
	"sovereign/internal/plane/spool"
	"sovereign/internal/store/db"
)

// How a tail finds the rows that other servers ingest into the same PostgreSQL.
const (
	tailOthersEvery = time.Second
	// tailOldest is how old a row may be that is passed on.
	tailOldest = time.Minute
	// tailOverlap is read again before a cursor's last time: rows are spooled nearly in the order of their times.
	tailOverlap = time.Second
	// tailLooked is how many of the newest rows of a workspace a poll looks at, without their texts.
	tailLooked = 5_000
)

// A sourceCursor is how far the spool of a server was ingested, and the time of its newest row.
type sourceCursor struct {
	at     spool.Position
	newest clock.Time
}

// A tailWindow is a range of times, both inclusive.
type tailWindow struct{ from, to clock.Time }

// tailOthers passes on what other servers have ingested since the last call. It does nothing while nobody listens.
func (c *Ingester) tailOthers(ctx context.Context) error {
	if !c.shared {
		return nil
	}
	if !c.Tail.listening() {
		c.cursors = nil
		c.Tail.forget()
		return nil
	}
	now, opened := clock.Now(), c.Tail.opened()
	cursors, err := sourceCursors(ctx, c.db.Across("a spool belongs to a server"))
	if err != nil {
		return fmt.Errorf("read how far other servers have ingested: %w", err)
	}
	if within, moved := c.moved(cursors, now); moved {
		for ws, since := range opened {
			from := max(within.from, since, now.Add(-tailOldest))
			if err := c.tailWorkspace(ctx, ws, tailWindow{from, within.to}, now); err != nil {
				return err
			}
		}
	}
	c.cursors = cursors // only now: after a failure the same rows are read again
	return nil
}

// moved returns the times of what other servers have ingested since c.cursors were read. The first time, when they are
// nil, that is everything: the listeners' own start is the limit.
func (c *Ingester) moved(cursors map[string]sourceCursor, now clock.Time) (within tailWindow, moved bool) {
	within.from = never
	for source, next := range cursors {
		last, known := c.cursors[source]
		if source == c.source || known && last.at == next.at {
			continue
		}
		from := last.newest.Add(-tailOverlap)
		if !known {
			from = now.Add(-tailOldest)
		}
		within.from, within.to, moved = min(within.from, from), max(within.to, next.newest), true
	}
	return within, moved
}

// tailWorkspace passes on the rows of a workspace between two times that were not passed on yet.
func (c *Ingester) tailWorkspace(ctx context.Context, ws tenant.ID, within tailWindow, now clock.Time) error {
	stored, err := db.Query[logRow](ctx, c.db.In(ws), `
		SELECT at, id, model, tag, segment, finish_reason, cached FROM log_rows
		WHERE workspace_id = $1 AND at >= $2 AND at <= $3 AND expires_at > $4 ORDER BY at DESC, id DESC LIMIT $5`,
		within.from, within.to, now, tailLooked)
	if err != nil {
		return fmt.Errorf("find what other servers have ingested: %w", err)
	}
	slices.Reverse(stored)
	rows := make([]tailed, len(stored))
	for i := range stored {
		s := &stored[i]
		rows[i] = tailed{segment: s.Segment, unread: true, row: &capture.Row{
			Workspace: ws, At: s.At, ID: s.ID, Model: s.Model, Tag: s.Tag, Finish: s.FinishReason, Cached: s.Cached,
		}}
	}
	rows, wanted := c.Tail.choose(ws, rows)
	if err := c.readTailed(ctx, ws, wanted); err != nil {
		return err
	}
	c.Tail.publish(rows, time.Now())
	return nil
}

// readTailed reads the texts of rows, as many bytes as may wait for a listener. Rows that are gone stay unread.
func (c *Ingester) readTailed(ctx context.Context, ws tenant.ID, rows []*tailed) error {
	size, byID := 0, make(map[string]*tailed, len(rows))
	for _, r := range rows {
		byID[r.row.ID] = r
	}
	text := `SELECT ` + storedColumns + ` FROM log_rows WHERE ` + scanCondition + ` ORDER BY at, id`
	for batch := range slices.Chunk(rows, scanBatch) {
		times := make([]any, scanBatch)
		for i := range times {
			times[i] = batch[min(i, len(batch)-1)].row.At
		}
		for stored, err := range db.Rows[logRow](ctx, c.db.In(ws), text, times...) {
			if err != nil {
				return fmt.Errorf("read what other servers have ingested: %w", err)
			}
			r := byID[stored.ID]
			if r == nil {
				continue
			}
			r.row.Messages, r.row.Response, r.row.Tools = stored.Messages, stored.Response, stored.Tools
			r.stored, r.unread = &stored, false
			if size += r.size(); size >= tailBytes {
				return nil
			}
		}
	}
	return nil
}

// sourceCursors reads how far the spools of all servers were ingested.
func sourceCursors(ctx context.Context, across db.Scoped) (map[string]sourceCursor, error) {
	type row struct {
		Source            string
		Segment, Position int64
		At                clock.Time
	}
	all := map[string]sourceCursor{}
	for r, err := range db.Rows[row](ctx, across, `SELECT source, segment, position, at FROM log_cursors`) {
		if err != nil {
			return nil, err
		}
		all[r.Source] = sourceCursor{spool.Position{Segment: r.Segment, Offset: r.Position}, r.At}
	}
	return all, nil
}

// opened returns the workspaces that have listeners, and since when.
func (t *Tail) opened() map[tenant.ID]clock.Time {
	t.mu.Lock()
	defer t.mu.Unlock()
	all := make(map[tenant.ID]clock.Time, len(t.all))
	for ws, listeners := range t.all {
		since := never
		for l := range listeners {
			since = min(since, l.since)
		}
		all[ws] = since
	}
	return all
}

// choose returns the rows that were not passed on yet, and those of them that a listener has room for.
func (t *Tail) choose(ws tenant.ID, rows []tailed) (news []tailed, wanted []*tailed) {
	t.mu.Lock()
	defer t.mu.Unlock()
	news = slices.DeleteFunc(rows, func(r tailed) bool { return t.seen.has(r.row.ID) })
	want := make([]bool, len(news))
	for l := range t.all[ws] {
		room := tailPerSecond
		for i := range news {
			if room > 0 && l.filters.match(&news[i]) {
				want[i] = true
				room--
			}
		}
	}
	for i := range news {
		if want[i] {
			wanted = append(wanted, &news[i])
		}
	}
	return news, wanted
}

// forget frees what was remembered for listeners, unless there is one again.
func (t *Tail) forget() {
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(t.all) == 0 {
		t.seen = seenRows{}
	}
}

// How long the ids of rows are remembered at least, and how many at most, twice: longer than tailOldest, because the
// clocks of servers differ.
const (
	seenFor  = 2 * tailOldest
	seenMost = 100_000
)

// seenRows remembers the ids of the rows that were passed on in the last minutes.
type seenRows struct {
	young, old map[string]struct{}
	since      time.Time // of young
}

func (s *seenRows) has(id string) bool {
	_, young := s.young[id]
	_, old := s.old[id]
	return young || old
}

func (s *seenRows) add(id string, now time.Time) {
	if s.young == nil || now.Sub(s.since) >= seenFor || len(s.young) >= seenMost {
		s.young, s.old, s.since = map[string]struct{}{}, s.young, now
	}
	s.young[id] = struct{}{}
}
