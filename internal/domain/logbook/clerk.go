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

	turn     chan struct{} // held by who writes: a batch, or a few deletions
	at       spool.Position
	known    bool       // at is where the database is
	newest   clock.Time // of all rows that were entered
	families map[tenant.ID]*families
	prompts  int        // in families
	lost     int64      // that was told of
	over     clock.Time // before it no row's time is over; zero when that is to be asked

	entered atomic.Pointer[spool.Position] // at, for who does not write
	written chan struct{}                  // has a value when there may be something to checkpoint
}

// wait takes the turn to write, or gives up with ctx.
func (c *Ingester) wait(ctx context.Context) error {
	select {
	case c.turn <- struct{}{}:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (c *Ingester) done() { <-c.turn }

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
	return &Ingester{db: d, spool: s, source: source, log: log, families: map[tenant.ID]*families{}, turn: make(chan struct{}, 1), written: make(chan struct{}, 1)}
}

// How often the clerk looks into the spool, and how much it enters at once: a writer that comes meanwhile waits for one batch.
const (
	enterEvery  = 200 * time.Millisecond
	batchBytes  = 2 << 20
	retireEvery = time.Second
	// checkpointEvery is how often what was entered is made safe from a power loss. Until then it is in the spool as well.
	checkpointEvery = 250 * time.Millisecond
	alarmEvery      = time.Second
	quietFor        = 10 * time.Second
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
		{enterEvery, c.spool.Appended(), c.Ingest, "logged rows wait in the spool"},
		{retireEvery, nil, c.retireOnTime, "logged rows whose time is over are still there"},
		{checkpointEvery, c.written, c.forget, "the spool cannot be emptied"},
		{alarmEvery, nil, c.alarm, "the spool cannot be synced"},
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
			quiet = time.Now().Add(quietFor)
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
func (c *Ingester) wrote() {
	select {
	case c.written <- struct{}{}:
	default: // it was said
	}
}

// forget empties the spool of what the database will not lose any more.
func (c *Ingester) forget(ctx context.Context) error {
	at := c.entered.Load()
	made, err := c.db.Checkpoint(ctx)
	if err == nil && made.Long {
		if err = c.wait(ctx); err == nil {
			err = c.db.Shorten(ctx)
			c.done()
		}
	}
	if err == nil && (!made.Whole || made.Long) {
		c.wrote() // somebody who reads may have been in the way
	}
	if err != nil || !made.Whole || at == nil {
		return err
	}
	return c.spool.Forget(at.Segment)
}

// alarm tells of rows that are lost, and makes those in the spool survive a power loss.
func (c *Ingester) alarm(context.Context) error {
	state := c.spool.State()
	if state.Lost > c.lost {
		c.log.Error("logged rows are lost: the spool is full, or cannot be written",
			"rows", state.Lost-c.lost, "waiting_bytes", state.Waiting, "budget_bytes", state.Budget, "err", state.Failure)
	}
	c.lost = state.Lost
	return c.spool.Sync()
}

// batchTime bounds how long one batch may take, so that a database that does not answer is noticed.
const batchTime = time.Minute

// Enter enters what is in the spool by now. Others get their turn between two batches.
func (c *Ingester) Ingest(ctx context.Context) error {
	for end := c.spool.End(); ; {
		more, err := c.next(ctx, end)
		if err != nil || !more {
			return err
		}
	}
}

// next enters a batch, and reports whether there may be more before end.
func (c *Ingester) next(ctx context.Context, end spool.Position) (more bool, err error) {
	if err := c.wait(ctx); err != nil {
		return false, err
	}
	defer c.done()
	ctx, cancel := context.WithTimeout(ctx, batchTime)
	defer cancel()
	if !c.known {
		if c.at, c.newest, err = cursor(ctx, c.db.Across("a spool is the server's"), c.source); err != nil {
			return false, err
		}
		c.known = true
	}
	batch, err := c.spool.Read(c.at, batchBytes)
	if err != nil || batch.Next == c.at {
		return false, err
	}
	if batch.Damaged > 0 {
		c.log.Warn("a part of the spool cannot be read", "segment", batch.Next.Segment, "bytes", batch.Damaged)
	}
	c.trim()
	err = c.enter(ctx, batch, c.put)
	if db.Unfit(err) { // one row must not hold up all that come after it
		c.log.Error("a batch of logged rows is refused; they are entered one by one", "err", err)
		err = c.enter(ctx, batch, c.putEach)
	}
	if err != nil {
		c.known = false // it may have been committed all the same
		clear(c.families)
		return false, err
	}
	c.at = batch.Next
	c.entered.Store(&batch.Next)
	return c.at.Before(end), nil
}

// errMoved says that the database is not where we left it: a commit that was not answered has taken place after all.
var errMoved = errors.New("the log database has read further than was known")

// enter enters a batch, together with the position after it.
func (c *Ingester) enter(ctx context.Context, batch spool.Batch, put func(context.Context, *db.Tx, []*capture.Row) error) error {
	rows, newest := make([]*capture.Row, 0, len(batch.Records)), c.newest
	for _, record := range batch.Records {
		row, err := capture.Parse(record)
		if err != nil {
			c.log.Error("a logged row cannot be read", "err", err)
			continue
		}
		rows, newest = append(rows, row), max(newest, row.At)
		c.over = min(c.over, row.Expires)
	}
	defer c.wrote() // if it fails it may have been committed all the same
	tries := 0
	_, err := c.db.Tx(ctx, func(tx *db.Tx) error {
		if tries++; tries > 1 {
			clear(c.families) // what the last try found is not in the tables
		}
		across := tx.Across("the spool holds all workspaces' rows")
		if at, _, err := cursor(ctx, across, c.source); err != nil || at != c.at {
			return errors.Join(err, errMoved)
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
func (c *Ingester) putEach(ctx context.Context, tx *db.Tx, rows []*capture.Row) error {
	for _, row := range rows {
		_, err := c.db.Tx(tx.Bind(ctx), func(tx *db.Tx) error { return c.put(ctx, tx, []*capture.Row{row}) })
		if db.Unfit(err) {
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

func (c *Ingester) put(ctx context.Context, tx *db.Tx, rows []*capture.Row) error {
	across := tx.Across("the spool holds all workspaces' rows")
	segments, err := c.segments(ctx, tx, across, rows)
	if err != nil {
		return err
	}
	values := make([][]any, len(rows))
	changed := tally{}
	for i, r := range rows {
		segment := segments[i]
		values[i] = []any{
			r.Workspace, r.At, r.ID, r.Expires, r.Model, r.Tag, segment, r.Finish, r.Cached, exactly(r.Exact), r.Trace, r.Request, r.Key,
			r.Requested, r.Alias, r.Provider, r.FallbackFrom, r.Stream, r.Prompt, r.Completion, r.Cost, r.Latency, r.First,
			whole(r.Chain), whole(r.Response), whole(r.Tools), whole(r.Messages),
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
func whole(b []byte) []byte {
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
type tally struct {
	counts map[counted]int64
	traces map[traced]*trace
}

type counted struct {
	ws           tenant.ID
	facet, value string
	hour         clock.Time
}

type traced struct {
	ws tenant.ID
	id string
}

type trace struct {
	first, last                     clock.Time
	steps, prompt, completion, cost int64
}

// add counts a row, or takes it off with a sign of -1.
func (t *tally) add(f *facts, sign int64) {
	if t.counts == nil {
		t.counts, t.traces = map[counted]int64{}, map[traced]*trace{}
	}
	if f.FinishReason == "stop" && !f.Cached {
		t.counts[counted{f.Workspace, ordinary, "", f.At - f.At%hour}] += sign
	}
	for _, facet := range [...]struct{ name, value string }{
		{everything, ""}, {"model", f.Model}, {"tag", f.Tag}, {"segment", f.Segment}, {"finish_reason", f.FinishReason}, {"cached", strconv.FormatBool(f.Cached)},
	} {
		if facet.name != "tag" || facet.value != "" {
			t.counts[counted{f.Workspace, facet.name, facet.value, f.At - f.At%hour}] += sign
		}
	}
	if f.TraceID == "" {
		return
	}
	key := traced{f.Workspace, f.TraceID}
	run := t.traces[key]
	if run == nil {
		run = &trace{first: f.At, last: f.At}
		t.traces[key] = run
	}
	run.first, run.last = min(run.first, f.At), max(run.last, f.At)
	run.steps += sign
	run.prompt += sign * f.PromptTokens
	run.completion += sign * f.CompletionTokens
	run.cost += sign * f.Cost
}

// write changes the counts. What has come to nothing is deleted by whoever took it off.
func (t *tally) write(ctx context.Context, across db.Scoped) error {
	counts := make([][]any, 0, len(t.counts))
	for _, c := range slices.SortedFunc(maps.Keys(t.counts), counted.compare) {
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
func (c counted) compare(d counted) int {
	return cmp.Or(cmp.Compare(c.ws, d.ws), cmp.Compare(c.facet, d.facet), cmp.Compare(c.value, d.value), cmp.Compare(c.hour, d.hour))
}
