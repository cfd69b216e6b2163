package logbook

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"sovereign/internal/base/clock"
	"sovereign/internal/base/panics"
	"sovereign/internal/base/tenant"
	"sovereign/internal/plane/capture"
	"sovereign/internal/plane/spool"
	"sovereign/internal/store/db"
)

// An Ingester moves rows and draws from the spool to the log database, and deletes expired ones. The spool position
// commits in the same transaction as the records before it. Each record is therefore ingested once, whatever dies when.
// While the database is unreachable, records wait in the spool.
type Ingester struct {
	Tail Tail // passes on what was ingested

	db     *db.DB
	spool  *spool.Spool
	source string // the id of the spool's data folder
	log    *slog.Logger
	shared bool // other servers may ingest into the same database

	writing       chan struct{} // a mutex that respects contexts; held for one batch, or for a few deletions
	at            spool.Position
	positionKnown bool       // at is the database's cursor
	newest        clock.Time // time of the newest ingested record
	families      map[tenant.ID]*families
	prompts       int        // prompts in families
	reportedLost  int64      // lost rows that were logged already
	nextExpiry    clock.Time // no row expires before; zero when unknown
	inserted      []tailed   // by the transaction that runs, while somebody listens

	cursors map[string]sourceCursor // of all servers, when tailOthers read them last; nil while nobody listens

	read     func([]byte) (*capture.Row, error) // capture.Parse, except in tests
	setAside atomic.Int64                       // records that could not be read or stored
	ingested atomic.Pointer[spool.Position]     // at, for readers without the lock
	written  chan struct{}                      // receives a value when there may be something to checkpoint
}

// acquire takes the lock for writing, or gives up with ctx.
func (c *Ingester) acquire(ctx context.Context) error {
	select {
	case c.writing <- struct{}{}:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (c *Ingester) release() { <-c.writing }

// Position returns how far the database has ingested a spool.
func Position(ctx context.Context, d *db.DB, source string) (spool.Position, error) {
	at, _, err := cursor(ctx, d.Across("a spool belongs to the server"), source)
	return at, err
}

// Newest returns the time of the newest record, in the database or in the spool. The recorder starts after it, so that
// no two records have the same time, even if the clock went back.
func (c *Ingester) Newest(ctx context.Context) (clock.Time, error) {
	at, newest, err := cursor(ctx, c.db.Across("a spool belongs to the server"), c.source)
	if err != nil {
		return 0, err
	}
	for {
		batch, err := c.spool.Read(at, batchBytes)
		if err != nil || batch.Next == at {
			return newest, err
		}
		var found records
		for _, record := range batch.Records {
			_ = c.parse(record, &found) // what cannot be parsed is set aside when it is ingested
		}
		last, _ := found.times()
		newest, at = max(newest, last), batch.Next
	}
}

// NewIngester returns an ingester of s, the spool of source, into d.
func NewIngester(d *db.DB, s *spool.Spool, source string, log *slog.Logger) *Ingester {
	shared := d != nil && d.Engine == db.Postgres
	return &Ingester{
		db: d, spool: s, source: source, log: log, families: map[tenant.ID]*families{}, writing: make(chan struct{}, 1),
		written: make(chan struct{}, 1), read: capture.Parse, shared: shared, Tail: Tail{shared: shared},
	}
}

// SetAside returns how many records could not be read or stored since the start, and are lost. Their bytes are not
// kept: that would be beyond the retention that their workspace has chosen.
func (c *Ingester) SetAside() int64 { return c.setAside.Load() }

// The intervals of the tasks, and how much one batch holds: concurrent deletions wait for one batch.
const (
	ingestEvery = 200 * time.Millisecond
	batchBytes  = 2 << 20
	deleteEvery = time.Second
	// checkpointEvery is how often ingested rows are made to survive a power loss. Until then they are in the spool
	// as well.
	checkpointEvery = 250 * time.Millisecond
	alarmEvery      = time.Second
	logEvery        = 10 * time.Second
)

// Run works until ctx ends, and ingests once more then.
func (c *Ingester) Run(ctx context.Context) {
	var tasks sync.WaitGroup
	for _, task := range []struct {
		every   time.Duration
		after   <-chan struct{}
		do      func(context.Context) error
		failure string
	}{
		{ingestEvery, c.spool.Appended(), c.Ingest, "logged rows wait in the spool"},
		{deleteEvery, nil, c.deleteExpiredWhenDue, "expired logged rows cannot be deleted"},
		{checkpointEvery, c.written, c.emptySpool, "the spool cannot be emptied"},
		{alarmEvery, nil, c.reportLost, "the spool cannot be synced"},
		{tailOthersEvery, nil, c.tailOthers, "live tails miss what other servers ingest"},
	} {
		tasks.Go(func() { c.repeat(ctx, task.every, task.after, task.do, task.failure) })
	}
	<-ctx.Done()
	tasks.Wait()
	last, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
	defer cancel()
	if err := c.Ingest(last); err != nil {
		c.log.Warn("logged rows wait in the spool for the next start", "err", err)
	}
}

// repeat runs a task periodically. After a success it waits for a signal from after first, unless that is nil.
// Failures are logged at most every ten seconds.
func (c *Ingester) repeat(
	ctx context.Context, every time.Duration, after <-chan struct{}, do func(context.Context) error, failure string,
) {
	wait := time.NewTimer(every)
	defer wait.Stop()
	var quiet time.Time // no failure is logged before
	for {
		select {
		case <-wait.C:
		case <-ctx.Done():
			return
		}
		err := panics.Call(c.log, failure, func() error { return do(ctx) })
		if err != nil && ctx.Err() == nil && time.Now().After(quiet) {
			quiet = time.Now().Add(logEvery)
			c.log.Warn(failure, "err", err, "waiting_bytes", c.spool.State().Waiting)
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

// signalWritten signals that there may be something to checkpoint.
func (c *Ingester) signalWritten() {
	select {
	case c.written <- struct{}{}:
	default: // a signal is already pending
	}
}

// emptySpool removes from the spool what the database will not lose any more.
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
		c.signalWritten() // a reader may have prevented it
	}
	if err != nil || !made.Complete || at == nil {
		return err
	}
	return c.spool.Forget(at.Segment)
}

// reportLost logs rows that were lost, and makes those in the spool survive a power loss.
func (c *Ingester) reportLost(context.Context) error {
	state := c.spool.State()
	if state.Lost > c.reportedLost {
		c.log.Error("logged rows are lost: the spool is full, or cannot be written",
			"rows", state.Lost-c.reportedLost, "waiting_bytes", state.Waiting, "budget_bytes", state.Budget, "err", state.Failure)
	}
	c.reportedLost = state.Lost
	return c.spool.Sync()
}

// batchTimeout bounds one batch, so that a database that does not answer is noticed.
const batchTimeout = time.Minute

// Ingest ingests what is in the spool when it is called. The lock is released between two batches.
func (c *Ingester) Ingest(ctx context.Context) error {
	for end := c.spool.End(); ; {
		more, err := c.ingestBatch(ctx, end)
		if err != nil || !more {
			return err
		}
	}
}

// ingestBatch ingests a batch, and reports whether there may be more before end.
func (c *Ingester) ingestBatch(ctx context.Context, end spool.Position) (more bool, err error) {
	if err := c.acquire(ctx); err != nil {
		return false, err
	}
	defer c.release()
	ctx, cancel := context.WithTimeout(ctx, batchTimeout)
	defer cancel()
	if !c.positionKnown {
		if c.at, c.newest, err = cursor(ctx, c.db.Across("a spool belongs to the server"), c.source); err != nil {
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
	found := c.parseAll(batch.Records)
	err = c.commitBatch(ctx, batch.Next, found, c.insert)
	if isPoisonous(err) { // one record must not block all that follow it
		c.log.Error("a batch of logged records is refused; they are inserted one by one", "err", err)
		clear(c.families) // what it added is not in the tables
		err = c.commitBatch(ctx, batch.Next, found, c.insertOneByOne)
	}
	if err != nil {
		c.positionKnown = false // it may have committed all the same
		clear(c.families)
		return false, err
	}
	c.at = batch.Next
	c.ingested.Store(&batch.Next)
	if len(c.inserted) > 0 {
		c.Tail.publish(c.inserted, time.Now())
		c.inserted = nil
	}
	return c.at.Before(end), nil
}

// errCursorMoved reports that the cursor is not where this process left it: a commit that was not answered took
// effect after all.
var errCursorMoved = errors.New("the log database has read further than was known")

// commitBatch inserts records and moves the cursor behind them, in one transaction.
func (c *Ingester) commitBatch(
	ctx context.Context, next spool.Position, found records, put func(context.Context, *db.Tx, records) error,
) error {
	newest, expires := found.times()
	newest = max(newest, c.newest)
	c.nextExpiry = min(c.nextExpiry, expires)
	defer c.signalWritten() // on failure too: it may have committed all the same
	tries := 0
	_, err := c.db.Tx(ctx, func(tx *db.Tx) error {
		if tries++; tries > 1 {
			clear(c.families) // what the last attempt added is not in the tables
		}
		c.inserted = nil
		across := tx.Across("the spool holds all workspaces' rows")
		if at, _, err := cursor(ctx, across, c.source); err != nil || at != c.at {
			return errors.Join(err, errCursorMoved)
		}
		if found.len() > 0 {
			if err := panics.Call(c.log, "storing logged records", func() error {
				return put(ctx, tx, found)
			}); err != nil {
				return err
			}
		}
		return db.Upsert(ctx, across, "log_cursors", []string{"source", "segment", "position", "at"}, 1,
			[][]any{{c.source, next.Segment, next.Offset, newest}})
	})
	if err != nil {
		return fmt.Errorf("ingest %d logged records: %w", found.len(), err)
	}
	c.newest = newest
	return nil
}

var rowColumns = []string{
	"workspace_id", "at", "id", "expires_at", "model", "tag", "segment", "finish_reason", "cached", "segment_exact",
	"trace_id", "request_id", "key_id",
	"requested_model", "alias", "provider", "fallback_from", "stream", "prompt_tokens", "completion_tokens", "cost",
	"latency", "first_token",
	"chain", "response", "tools", "messages",
}

// insertRows inserts rows, and counts them.
func (c *Ingester) insertRows(ctx context.Context, tx *db.Tx, rows []*capture.Row) error {
	if len(rows) == 0 {
		return nil
	}
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
			r.Workspace, r.At, r.ID, r.Expires, r.Model, r.Tag, segment, r.Finish, r.Cached, exactOrNone(r.Exact),
			r.Trace, r.Request, r.Key, r.Requested, r.Alias, r.Provider, r.FallbackFrom, r.Stream, r.Prompt,
			r.Completion, r.Cost, r.Latency, r.First, notNil(r.Chain), notNil(r.Response), notNil(r.Tools),
			notNil(r.Messages),
		}
		changed.add(&facts{
			Workspace: r.Workspace, At: r.At, Model: r.Model, Tag: r.Tag, Segment: segment, FinishReason: r.Finish,
			Cached:  r.Cached,
			TraceID: r.Trace, PromptTokens: r.Prompt, CompletionTokens: r.Completion, Cost: int64(r.Cost),
		}, +1)
	}
	if err := db.Insert(ctx, across, "log_rows", rowColumns, values); err != nil {
		return err
	}
	if err := changed.write(ctx, across); err != nil {
		return err
	}
	if c.Tail.listening() {
		for i, r := range rows {
			c.inserted = append(c.inserted, tailed{row: r, segment: segments[i]})
		}
	}
	return nil
}

// notNil returns a body that is not NULL.
func notNil(b []byte) []byte {
	if b == nil {
		return []byte{}
	}
	return b
}

// facts are the columns of a row that are counted.
type facts struct {
	Workspace                            tenant.ID
	At                                   clock.Time
	Model, Tag, Segment, FinishReason    string
	Cached                               bool
	TraceID                              string
	PromptTokens, CompletionTokens, Cost int64
}

const (
	hour = clock.Time(time.Hour / time.Microsecond)
	day  = 24 * hour
)

// counted lists the facets that are counted, and the names of their counts. Those by the day are there to find the most
// common values among few numbers.
var counted = [...]struct{ hourly, daily string }{
	{"model", "model@day"},
	{"tag", "tag@day"},
	{"segment", "segment@day"},
	{"finish_reason", "finish_reason@day"},
	{"cached", "cached@day"},
}

// A countDelta is the change of the counts by some rows.
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

// add adds a row to the counts, or subtracts it with a sign of -1.
func (t *countDelta) add(f *facts, sign int64) {
	if t.counts == nil {
		t.counts, t.traces = map[countKey]int64{}, map[traceKey]*traceDelta{}
	}
	if f.FinishReason == "stop" && !f.Cached {
		t.counts[countKey{f.Workspace, ordinary, "", f.At - f.At%hour}] += sign
	}
	t.counts[countKey{f.Workspace, everything, "", f.At - f.At%hour}] += sign
	for i, value := range [len(counted)]string{
		f.Model, f.Tag, f.Segment, f.FinishReason, strconv.FormatBool(f.Cached),
	} {
		if facet := &counted[i]; facet.hourly != "tag" || value != "" {
			t.counts[countKey{f.Workspace, facet.hourly, value, f.At - f.At%hour}] += sign
			t.counts[countKey{f.Workspace, facet.daily, value, f.At - f.At%day}] += sign
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
