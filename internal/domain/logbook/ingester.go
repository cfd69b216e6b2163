package logbook

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"sovereign/internal/base/clock"
	"sovereign/internal/base/tenant"
	"sovereign/internal/plane/capture"
	"sovereign/internal/plane/spool"
	"sovereign/internal/store/db"
)

// A Clerk carries rows from the spool into the database, and takes those away whose time is over. The spool's position commits in the
// transaction of the rows, so that each is entered once, whatever dies when; while the database is away they wait in the spool.
type Ingester struct {
	db     *db.DB
	spool  *spool.Spool
	source string // the name of the spool's data folder
	log    *slog.Logger

	writing       chan struct{} // held by who writes: a batch, or a few deletions
	at            spool.Position
	positionKnown bool       // at is where the database is
	newest        clock.Time // of all rows that were entered
	families      map[tenant.ID]*families
	prompts       int        // in families
	reportedLost  int64      // that was told of
	nextExpiry    clock.Time // before it no row's time is over; zero when that is to be asked

	ingested atomic.Pointer[spool.Position] // at, for who does not write
	written  chan struct{}                  // has a value when there may be something to checkpoint
}

// wait takes the turn to write, or gives up with ctx.
func (c *Ingester) acquire(ctx context.Context) error {
	select {
	case c.writing <- struct{}{}:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (c *Ingester) release() { <-c.writing }

// Position is how far the database has read a spool.
func Position(ctx context.Context, d *db.DB, source string) (spool.Position, error) {
	at, _, err := cursor(ctx, d.Across("a spool is the server's"), source)
	return at, err
}

// cursor is how far a spool was entered, and the newest time of what was.
func cursor(ctx context.Context, across db.Scoped, source string) (spool.Position, clock.Time, error) {
	type row struct {
		Segment, Position int64
		At                clock.Time
	}
	at, err := db.Maybe[row](ctx, across, `SELECT segment, position, at FROM log_cursors WHERE source = $1`, source)
	if err != nil || at == nil {
		return spool.Position{}, 0, err
	}
	return spool.Position{Segment: at.Segment, Offset: at.Position}, at.At, nil
}

// Newest is the time of the newest row there is, in the database or on its way. Whoever records after it makes no two of one time, even
// if the clock went back.
func (c *Ingester) Newest(ctx context.Context) (clock.Time, error) {
	at, newest, err := cursor(ctx, c.db.Across("a spool is the server's"), c.source)
	if err != nil {
		return 0, err
	}
	for {
		batch, err := c.spool.Read(at, batchBytes)
		if err != nil || batch.Next == at {
			return newest, err
		}
		for _, record := range batch.Records {
			if row, err := capture.Parse(record); err == nil {
				newest = max(newest, row.At)
			}
		}
		at = batch.Next
	}
}

// NewClerk enters the rows of s, which is the spool of source, into d.
func NewIngester(d *db.DB, s *spool.Spool, source string, log *slog.Logger) *Ingester {
	return &Ingester{db: d, spool: s, source: source, log: log, families: map[tenant.ID]*families{}, writing: make(chan struct{}, 1), written: make(chan struct{}, 1)}
}

// How often the clerk looks into the spool, and how much it enters at once: a writer that comes meanwhile waits for one batch.
const (
	ingestEvery = 200 * time.Millisecond
	batchBytes  = 2 << 20
	deleteEvery = time.Second
	// checkpointEvery is how often what was entered is made safe from a power loss. Until then it is in the spool as well.
	checkpointEvery = 250 * time.Millisecond
	alarmEvery      = time.Second
	logEvery        = 10 * time.Second
)

// Run works until ctx ends, and once more then.
func (c *Ingester) Run(ctx context.Context) {
	var beside sync.WaitGroup
	for _, chore := range []struct {
		every time.Duration
		after <-chan struct{}
		does  func(context.Context) error
		fails string
	}{
		{ingestEvery, c.spool.Appended(), c.Ingest, "logged rows wait in the spool"},
		{deleteEvery, nil, c.deleteExpiredWhenDue, "logged rows whose time is over are still there"},
		{checkpointEvery, c.written, c.emptySpool, "the spool cannot be emptied"},
		{alarmEvery, nil, c.reportLost, "the spool cannot be synced"},
	} {
		beside.Go(func() { c.repeat(ctx, chore.every, chore.after, chore.does, chore.fails) })
	}
	<-ctx.Done()
	beside.Wait()
	last, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
	defer cancel()
	if err := c.Ingest(last); err != nil {
		c.log.Warn("logged rows wait in the spool for the next start", "err", err)
	}
}

// repeat does a chore again and again. One that worked rests until there is something to do, if after is not nil: it says so. Of failures
// the log gets a line every ten seconds.
func (c *Ingester) repeat(ctx context.Context, every time.Duration, after <-chan struct{}, does func(context.Context) error, fails string) {
	wait := time.NewTimer(every)
	defer wait.Stop()
	var quiet time.Time // until then
	for {
		select {
		case <-wait.C:
		case <-ctx.Done():
			return
		}
		err := does(ctx)
		if err != nil && ctx.Err() == nil && time.Now().After(quiet) {
			quiet = time.Now().Add(logEvery)
			c.log.Warn(fails, "err", err, "waiting_bytes", c.spool.State().Waiting)
		}
		if err == nil && after != nil {
			select {
			case <-after:
			case <-ctx.Done():
				return
			}
		}
		wait.Reset(every)
	}
}

// wrote says that there may be something to checkpoint.
func (c *Ingester) signalWritten() {
	select {
	case c.written <- struct{}{}:
	default: // it was said
	}
}

// forget empties the spool of what the database will not lose any more.
func (c *Ingester) emptySpool(ctx context.Context) error {
	at := c.ingested.Load()
	made, err := c.db.Checkpoint(ctx)
	if err == nil && made.LogTooLong {
		if err = c.acquire(ctx); err == nil {
			err = c.db.TruncateLog(ctx)
			c.release()
		}
	}
	if err == nil && (!made.Complete || made.LogTooLong) {
		c.signalWritten() // somebody who reads may have been in the way
	}
	if err != nil || !made.Complete || at == nil {
		return err
	}
	return c.spool.Forget(at.Segment)
}

// alarm tells of rows that are lost, and makes those in the spool survive a power loss.
func (c *Ingester) reportLost(context.Context) error {
	state := c.spool.State()
	if state.Lost > c.reportedLost {
		c.log.Error("logged rows are lost: the spool is full, or cannot be written",
			"rows", state.Lost-c.reportedLost, "waiting_bytes", state.Waiting, "budget_bytes", state.Budget, "err", state.Failure)
	}
	c.reportedLost = state.Lost
	return c.spool.Sync()
}

// batchTime bounds how long one batch may take, so that a database that does not answer is noticed.
const batchTimeout = time.Minute

// Enter enters what is in the spool by now. Others get their turn between two batches.
func (c *Ingester) Ingest(ctx context.Context) error {
	for end := c.spool.End(); ; {
		more, err := c.ingestBatch(ctx, end)
		if err != nil || !more {
			return err
		}
	}
}

// next enters a batch, and reports whether there may be more before end.
func (c *Ingester) ingestBatch(ctx context.Context, end spool.Position) (more bool, err error) {
	if err := c.acquire(ctx); err != nil {
		return false, err
	}
	defer c.release()
	ctx, cancel := context.WithTimeout(ctx, batchTimeout)
	defer cancel()
	if !c.positionKnown {
		if c.at, c.newest, err = cursor(ctx, c.db.Across("a spool is the server's"), c.source); err != nil {
			return false, err
		}
		c.positionKnown = true
	}
	batch, err := c.spool.Read(c.at, batchBytes)
	if err != nil || batch.Next == c.at {
		return false, err
	}
	if batch.Damaged > 0 {
		c.log.Warn("a part of the spool cannot be read", "segment", batch.Next.Segment, "bytes", batch.Damaged)
	}
	c.trimFamilies()
	err = c.commitBatch(ctx, batch, c.insertRows)
	if db.IsDataError(err) { // one row must not hold up all that come after it
		c.log.Error("a batch of logged rows is refused; they are entered one by one", "err", err)
		err = c.commitBatch(ctx, batch, c.insertRowByRow)
	}
	if err != nil {
		c.positionKnown = false // it may have been committed all the same
		clear(c.families)
		return false, err
	}
	c.at = batch.Next
	c.ingested.Store(&batch.Next)
	return c.at.Before(end), nil
}

// errMoved says that the database is not where we left it: a commit that was not answered has taken place after all.
var errCursorMoved = errors.New("the log database has read further than was known")

// enter enters a batch, together with the position after it.
func (c *Ingester) commitBatch(ctx context.Context, batch spool.Batch, put func(context.Context, *db.Tx, []*capture.Row) error) error {
	rows, newest := make([]*capture.Row, 0, len(batch.Records)), c.newest
	for _, record := range batch.Records {
		row, err := capture.Parse(record)
		if err != nil {
			c.log.Error("a logged row cannot be read", "err", err)
			continue
		}
		rows, newest = append(rows, row), max(newest, row.At)
		c.nextExpiry = min(c.nextExpiry, row.Expires)
	}
	defer c.signalWritten() // if it fails it may have been committed all the same
	tries := 0
	_, err := c.db.Tx(ctx, func(tx *db.Tx) error {
		if tries++; tries > 1 {
			clear(c.families) // what the last try found is not in the tables
		}
		across := tx.Across("the spool holds all workspaces' rows")
		if at, _, err := cursor(ctx, across, c.source); err != nil || at != c.at {
			return errors.Join(err, errCursorMoved)
		}
		if len(rows) > 0 {
			if err := put(ctx, tx, rows); err != nil {
				return err
			}
		}
		return db.Upsert(ctx, across, "log_cursors", []string{"source", "segment", "position", "at"}, 1,
			[][]any{{c.source, batch.Next.Segment, batch.Next.Offset, newest}})
	})
	if err != nil {
		return fmt.Errorf("enter %d logged rows: %w", len(rows), err)
	}
	c.newest = newest
	return nil
}

var rowColumns = []string{
	"workspace_id", "at", "id", "expires_at", "model", "tag", "segment", "finish_reason", "cached", "segment_exact", "trace_id", "request_id", "key_id",
	"requested_model", "alias", "provider", "fallback_from", "stream", "prompt_tokens", "completion_tokens", "cost", "latency", "first_token",
	"chain", "response", "tools", "messages",
}

// putEach enters rows one by one, and leaves out those that the database cannot hold.
func (c *Ingester) insertRowByRow(ctx context.Context, tx *db.Tx, rows []*capture.Row) error {
	for _, row := range rows {
		_, err := c.db.Tx(tx.Bind(ctx), func(tx *db.Tx) error { return c.insertRows(ctx, tx, []*capture.Row{row}) })
		if db.IsDataError(err) {
			clear(c.families)
			c.log.Error("a logged row is lost: the database cannot hold it", "row", row.ID, "request_id", row.Request, "err", err)
			continue
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func (c *Ingester) insertRows(ctx context.Context, tx *db.Tx, rows []*capture.Row) error {
	across := tx.Across("the spool holds all workspaces' rows")
	segments, err := c.segments(ctx, tx, across, rows)
	if err != nil {
		return err
	}
	values := make([][]any, len(rows))
	changed := countDelta{}
	for i, r := range rows {
		segment := segments[i]
		values[i] = []any{
			r.Workspace, r.At, r.ID, r.Expires, r.Model, r.Tag, segment, r.Finish, r.Cached, exactOrNone(r.Exact), r.Trace, r.Request, r.Key,
			r.Requested, r.Alias, r.Provider, r.FallbackFrom, r.Stream, r.Prompt, r.Completion, r.Cost, r.Latency, r.First,
			notNil(r.Chain), notNil(r.Response), notNil(r.Tools), notNil(r.Messages),
		}
		changed.add(&facts{
			Workspace: r.Workspace, At: r.At, Model: r.Model, Tag: r.Tag, Segment: segment, FinishReason: r.Finish, Cached: r.Cached,
			TraceID: r.Trace, PromptTokens: r.Prompt, CompletionTokens: r.Completion, Cost: int64(r.Cost),
		}, +1)
	}
	if err := db.Insert(ctx, across, "log_rows", rowColumns, values); err != nil {
		return err
	}
	return changed.write(ctx, across)
}

// whole is a body that is not null.
func notNil(b []byte) []byte {
	if b == nil {
		return []byte{}
	}
	return b
}

// facts are what is counted of a row.
type facts struct {
	Workspace                            tenant.ID
	At                                   clock.Time
	Model, Tag, Segment, FinishReason    string
	Cached                               bool
	TraceID                              string
	PromptTokens, CompletionTokens, Cost int64
}

const hour = clock.Time(time.Hour / time.Microsecond)

// A tally is how counts change by some rows.
type countDelta struct {
	counts map[countKey]int64
	traces map[traceKey]*traceDelta
}

type countKey struct {
	ws           tenant.ID
	facet, value string
	hour         clock.Time
}

type traceKey struct {
	ws tenant.ID
	id string
}

type traceDelta struct {
	first, last                     clock.Time
	steps, prompt, completion, cost int64
}

// add counts a row, or takes it off with a sign of -1.
func (t *countDelta) add(f *facts, sign int64) {
	if t.counts == nil {
		t.counts, t.traces = map[countKey]int64{}, map[traceKey]*traceDelta{}
	}
	if f.FinishReason == "stop" && !f.Cached {
		t.counts[countKey{f.Workspace, ordinary, "", f.At - f.At%hour}] += sign
	}
	for _, facet := range [...]struct{ name, value string }{
		{everything, ""}, {"model", f.Model}, {"tag", f.Tag}, {"segment", f.Segment}, {"finish_reason", f.FinishReason}, {"cached", strconv.FormatBool(f.Cached)},
	} {
		if facet.name != "tag" || facet.value != "" {
			t.counts[countKey{f.Workspace, facet.name, facet.value, f.At - f.At%hour}] += sign
		}
	}
	if f.TraceID == "" {
		return
	}
	key := traceKey{f.Workspace, f.TraceID}
	run := t.traces[key]
	if run == nil {
		run = &traceDelta{first: f.At, last: f.At}
		t.traces[key] = run
	}
	run.first, run.last = min(run.first, f.At), max(run.last, f.At)
	run.steps += sign
	run.prompt += sign * f.PromptTokens
	run.completion += sign * f.CompletionTokens
	run.cost += sign * f.Cost
}

// write changes the counts. What has come to nothing is deleted by whoever took it off.
func (t *countDelta) write(ctx context.Context, across db.Scoped) error {
	counts := make([][]any, 0, len(t.counts))
	for _, c := range slices.SortedFunc(maps.Keys(t.counts), countKey.compare) {
		counts = append(counts, []any{c.ws, c.facet, c.value, c.hour, t.counts[c]})
	}
	if err := db.Merge(ctx, across, "log_counts", []string{"workspace_id", "facet", "value", "hour", "n"}, 4, "n = log_counts.n + excluded.n", counts); err != nil {
		return err
	}
	runs := make([][]any, 0, len(t.traces))
	for key, r := range t.traces {
		runs = append(runs, []any{key.ws, key.id, r.first, r.last, r.steps, r.prompt, r.completion, r.cost})
	}
	return db.Merge(ctx, across, "log_traces", []string{"workspace_id", "trace_id", "first_at", "last_at", "steps", "prompt_tokens", "completion_tokens", "cost"}, 2, `
		first_at = CASE WHEN excluded.first_at < log_traces.first_at THEN excluded.first_at ELSE log_traces.first_at END,
		last_at = CASE WHEN excluded.last_at > log_traces.last_at THEN excluded.last_at ELSE log_traces.last_at END,
		steps = log_traces.steps + excluded.steps, prompt_tokens = log_traces.prompt_tokens + excluded.prompt_tokens,
		completion_tokens = log_traces.completion_tokens + excluded.completion_tokens, cost = log_traces.cost + excluded.cost`, runs)
}

// compare orders counts as the table does, in which it takes them fastest.
func (c countKey) compare(d countKey) int {
	return cmp.Or(cmp.Compare(c.ws, d.ws), cmp.Compare(c.facet, d.facet), cmp.Compare(c.value, d.value), cmp.Compare(c.hour, d.hour))
}
