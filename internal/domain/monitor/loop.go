package monitor

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"sovereign/internal/base/clock"
	"sovereign/internal/base/panics"
	"sovereign/internal/base/tenant"
	"sovereign/internal/domain/criterion"
	"sovereign/internal/domain/judging"
	"sovereign/internal/domain/logbook"
)

// A Loop lets judges monitor traffic in the background.
type Loop struct {
	store   *Store
	serving func() error // refuses while another server may own the data
	log     *slog.Logger
	every   time.Duration
	idle    atomic.Uint64 // the database's change counter when no criterion had monitoring settings
	paused  sync.Map      // criterion → time until which it is skipped, after an error
	running sync.Map      // criterion → true, while a Poll judges for it
}

// NewLoop returns a loop over the monitors of s. serving refuses while nothing may be read.
func NewLoop(s *Store, serving func() error, log *slog.Logger) *Loop {
	return &Loop{store: s, serving: serving, log: log, every: 2 * time.Second}
}

// Run polls every two seconds until ctx ends.
func (l *Loop) Run(ctx context.Context) {
	tick := time.NewTicker(l.every)
	defer tick.Stop()
	var polls sync.WaitGroup
	defer polls.Wait()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			if l.serving() == nil {
				polls.Go(func() {
					defer panics.Contain(l.log, "monitoring traffic")
					l.Poll(ctx)
				})
			}
		}
	}
}

// pause is how long a criterion is skipped after an error.
const pause = time.Minute

// Poll lets every judge that monitors traffic judge what is new. Those that another Poll is still busy with are
// skipped.
func (l *Loop) Poll(ctx context.Context) {
	changes := l.store.db.Changes(ctx)
	if l.idle.Load() == changes {
		return
	}
	all, err := criterion.ListMonitored(ctx, l.store.db)
	if err == nil && len(all) == 0 {
		l.idle.Store(changes)
	}
	if err == nil {
		err = judging.ForEach(ctx, judging.DefaultConcurrency, all, func(ctx context.Context, c criterion.Ref) error {
			l.pollOne(ctx, c)
			return nil
		})
	}
	if err != nil && ctx.Err() == nil {
		l.log.Warn("cannot monitor traffic", "err", err)
	}
}

func (l *Loop) pollOne(ctx context.Context, c criterion.Ref) {
	if until, ok := l.paused.Load(c.ID); ok && time.Now().Before(until.(time.Time)) {
		return
	}
	if _, busy := l.running.LoadOrStore(c.ID, true); busy {
		return
	}
	defer l.running.Delete(c.ID)
	if err := l.judgeNew(ctx, c.WorkspaceID, c.ID); err != nil && ctx.Err() == nil {
		l.paused.Store(c.ID, time.Now().Add(pause))
		err = errors.Join(err, l.store.tellFailing(ctx, c, err))
		l.log.Warn("a judge cannot monitor traffic, and is skipped for a minute", "criterion", c.ID, "workspace",
			c.WorkspaceID, "err", err)
	}
}

// judgeNew judges a share of what was logged since the last poll.
func (l *Loop) judgeNew(ctx context.Context, ws tenant.ID, criterionID string) error {
	s, in := l.store, l.store.db.In(ws)
	r, err := criterion.Find(ctx, in, criterionID)
	if err != nil {
		return err
	}
	c, err := r.Criterion()
	if err != nil || c.Monitoring == nil || !c.Monitoring.Enabled {
		return err
	}
	if s.open(ctx, ws) != nil {
		return nil //nolint:nilerr // nothing is logged, or the logs may not be read: there is nothing to judge
	}
	state, err := s.find(ctx, in, criterionID)
	if err != nil {
		return err
	}
	exchanges, err := s.logs.Since(ctx, ws, s.watched(&c), state.Cursor, seenBatch)
	if err != nil || len(exchanges) == 0 {
		return err
	}
	told, err := r.Instructions(ctx, in)
	if err != nil {
		return err
	}
	spent := state.Spent
	if state.windowOver(&c, clock.Now()) {
		spent = 0
	}
	budget := judging.NewBudget(c.Monitoring.MaxCostUSD, spent)
	percent := *c.Monitoring.WithDefaults().SamplePercent
	if budget.Check() != nil {
		percent = 0 // exchanges are counted, and not judged until the next window
	}
	sampled, seen := sample(exchanges, criterionID, percent)
	rows := make([]pendingLog, len(sampled))
	for i, d := range sampled {
		rows[i] = pendingLog{LogID: d.ID, ExpiresAt: d.ExpiresAt}
	}
	answers, err := s.judge(ctx, ws, r, criterionID, told, rows, budget)
	if err != nil && budget.Check() == nil {
		return err // nothing is counted; the answers are stored, and are not paid for again
	}
	sampled = slices.DeleteFunc(sampled, func(d logbook.Drawn) bool { _, asked := answers[d.ID]; return !asked })
	reason, err := s.save(context.WithoutCancel(ctx), ws, &c, &batch{
		from: state.Cursor, cursor: exchanges[seen-1].At, seen: int64(seen),
		sampled: sampled, answers: answers,
	})
	if reason != "" {
		l.log.Warn("a judge that monitors traffic raises the alarm", "criterion", criterionID, "workspace", ws,
			"reason", reason)
	}
	return err
}

// watched selects the exchanges that a criterion monitors, without those that are younger than Lag.
func (s *Store) watched(c *criterion.Criterion) *logbook.Filters {
	filters := c.Filters
	if c.Monitoring.Filters != nil {
		filters = *c.Monitoring.Filters
	}
	stored := *filters.Filters()
	if s.Lag > 0 {
		until := clock.Now().Add(-s.Lag)
		stored.End = min(cmp.Or(stored.End, until), until)
	}
	return &stored
}
