package criterion

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"log/slog"
	"math"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-json-experiment/json"

	"sovereign/internal/base/clock"
	"sovereign/internal/base/money"
	"sovereign/internal/base/tenant"
	"sovereign/internal/domain/logbook"
	"sovereign/internal/grade/judge"
	"sovereign/internal/grade/stat"
	"sovereign/internal/store/audit"
	"sovereign/internal/store/db"
)

// A Watch is how a judge watches the traffic that is logged.
type Watch struct {
	Enabled       bool     `json:"enabled"`
	SamplePercent *float64 `json:"sample_percent,omitempty" minimum:"0.001" maximum:"100" doc:"How much of what matches is judged; 10 by default"`
	Filters       *Filters `json:"filters,omitempty" doc:"What is watched; the criterion's own filters by default"`
	AlertBelow    *float64 `json:"alert_below,omitempty" minimum:"0" maximum:"1" doc:"The pass rate, as the judge says, below which it raises an alarm"`
	WindowHours   int      `json:"window_hours,omitempty" minimum:"1" maximum:"720" doc:"How long is counted before it begins anew; 24 by default"`
	Spending
}

// whole is a watch with what is left out.
func (w Watch) whole() Watch {
	if w.SamplePercent == nil {
		usual := 10.0
		w.SamplePercent = &usual
	}
	w.WindowHours = cmp.Or(w.WindowHours, 24)
	return w
}

func (w *Watch) check() error {
	if w.Filters != nil {
		return w.Filters.Check("filters.")
	}
	return nil
}

// A Monitor is a watch, and what it found in this window.
type Monitor struct {
	Watch
	Object      string      `json:"object" enum:"monitoring"`
	CriterionID string      `json:"criterion_id"`
	Version     int64       `json:"criterion_version"`
	Since       *clock.Time `json:"since" doc:"When this window began"`
	Seen        int64       `json:"seen" doc:"Exchanges that matched"`
	Rates       Rates       `json:"rates"`
	Cost        money.Nano  `json:"cost_usd" doc:"Of all windows"`
	Spent       money.Nano  `json:"spent_usd" doc:"Of it in this window"`
	Exhausted   bool        `json:"exhausted" doc:"max_cost_usd is spent: nothing is judged until the next window"`
	Alarm       *Alarm      `json:"alarm" doc:"null while there is none"`
}

// An Alarm says that the pass rate is below the bound. That it is raised in a window although it is not has a chance of at most 5 %,
// however often the watch looks.
type Alarm struct {
	At     clock.Time `json:"at"`
	Reason string     `json:"reason"`
}

// falseAlarms is the chance of one in a window.
const falseAlarms = 0.05

// keptMonitor is one as the table has it.
type keptMonitor struct {
	WorkspaceID            tenant.ID
	CriterionID            string
	Version                int64
	Since                  clock.Time
	Cursor                 clock.Time
	Seen                   int64
	Passes, Judged, Failed int64
	Cost, Spent            money.Nano
	AlarmedAt              clock.Time
	Reason                 string
}

const monitorColumns = `workspace_id, criterion_id, version, since, cursor, seen, passes, judged, failed, cost, spent, alarmed_at, reason FROM monitors`

// SetWatch changes how a judge watches. What it counted begins anew.
func (s *Store) SetWatch(ctx context.Context, ws tenant.ID, by tenant.Actor, criterionID string, w Watch, logs Logs) (Monitor, error) {
	w = w.whole()
	if err := w.check(); err != nil {
		return Monitor{}, err
	}
	newest, err := logs.Newest(ctx, ws)
	if err != nil {
		return Monitor{}, err
	}
	text, err := json.Marshal(w)
	if err != nil {
		return Monitor{}, fmt.Errorf("write a watch: %w", err)
	}
	kept := string(text)
	_, err = s.db.Tx(ctx, func(tx *db.Tx) error {
		in := tx.In(ws)
		c, err := find(ctx, in, criterionID)
		if err != nil {
			return err
		}
		before, err := c.criterion()
		if err != nil {
			return err
		}
		if _, err := db.Exec(ctx, in, `UPDATE criteria SET monitoring = $3 WHERE workspace_id = $1 AND id = $2`, criterionID, kept); err != nil {
			return fmt.Errorf("set the watch of %s: %w", criterionID, err)
		}
		if _, err := db.Exec(ctx, in, `
			INSERT INTO monitors (workspace_id, criterion_id, version, since, cursor, seen, passes, judged, failed, cost, spent, alarmed_at, reason)
			VALUES ($1, $2, $3, $4, $5, 0, 0, 0, 0, 0, 0, 0, '')
			ON CONFLICT (workspace_id, criterion_id) DO UPDATE SET version = excluded.version, since = excluded.since, cursor = excluded.cursor,
				seen = 0, passes = 0, judged = 0, failed = 0, spent = 0, alarmed_at = 0, reason = ''`,
			criterionID, c.Version, clock.Now(), newest); err != nil {
			return fmt.Errorf("begin the watch of %s: %w", criterionID, err)
		}
		return audit.Record(ctx, tx, ws, by, "criterion.monitor", criterionID, before.Monitoring, w)
	})
	if err != nil {
		return Monitor{}, err
	}
	return s.Monitor(ctx, ws, criterionID)
}

// Monitor is what a watch found.
func (s *Store) Monitor(ctx context.Context, ws tenant.ID, criterionID string) (Monitor, error) {
	in := s.db.In(ws)
	c, err := find(ctx, in, criterionID)
	if err != nil {
		return Monitor{}, err
	}
	crit, err := c.criterion()
	if err != nil {
		return Monitor{}, err
	}
	m := Monitor{Object: "monitoring", CriterionID: criterionID, Version: c.Version}
	set(&m.Watch, crit.Monitoring)
	m.Watch = m.whole()
	k, err := db.Maybe[keptMonitor](ctx, in, `SELECT `+monitorColumns+` WHERE workspace_id = $1 AND criterion_id = $2`, criterionID)
	if err != nil {
		return m, fmt.Errorf("read the watch of %s: %w", criterionID, err)
	}
	switch {
	case k == nil:
		k = &keptMonitor{}
	case k.Version != c.Version: // what another version found is none of this one's
		k = &keptMonitor{Cost: k.Cost}
	default:
		m.Since = &k.Since
	}
	if m.Rates, err = rates(ctx, in, criterionID, c.Version, k.Passes, k.Judged); err != nil {
		return m, err
	}
	m.Rates.Failed, m.Seen, m.Cost, m.Spent = k.Failed, k.Seen, k.Cost, k.Spent
	m.Exhausted = m.Enabled && m.MaxCostUSD != nil && k.Spent >= *m.MaxCostUSD
	if m.Rates.Failing, err = failing(ctx, in, criterionID); err != nil {
		return m, err
	}
	if k.AlarmedAt > 0 {
		m.Alarm = &Alarm{At: k.AlarmedAt, Reason: k.Reason}
	}
	return m, nil
}

// A Guard lets judges watch traffic, until it is stopped.
type Guard struct {
	store   *Store
	logs    Logs
	bench   *Bench
	open    func(context.Context, tenant.ID) error
	ours    func() error // refuses while the data may be another server's
	log     *slog.Logger
	every   time.Duration
	nobody  atomic.Uint64 // the database's changes when no judge watched
	rest    sync.Map      // criterion → time before which it is left alone
	looking sync.Map      // criterion → true
}

// NewGuard lets the judges of s watch. open refuses whose logs may not be read, ours while nothing may be.
func NewGuard(s *Store, logs Logs, bench *Bench, open func(context.Context, tenant.ID) error, ours func() error, log *slog.Logger) *Guard {
	return &Guard{store: s, logs: logs, bench: bench, open: open, ours: ours, log: log, every: 2 * time.Second}
}

// Run looks at what was logged every other second, until ctx ends.
func (g *Guard) Run(ctx context.Context) {
	tick := time.NewTicker(g.every)
	defer tick.Stop()
	var looks sync.WaitGroup
	defer looks.Wait()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			if g.ours() == nil {
				looks.Go(func() { g.Look(ctx) })
			}
		}
	}
}

// Look lets every judge that watches look once, but for those that still look.
func (g *Guard) Look(ctx context.Context) {
	type row struct {
		WorkspaceID tenant.ID
		ID          string
	}
	now := g.store.db.Changes(ctx)
	if g.nobody.Load() == now {
		return
	}
	all, err := db.Query[row](ctx, g.store.db.Across("the judges of all workspaces watch"), `SELECT workspace_id, id FROM criteria WHERE monitoring <> '' ORDER BY workspace_id, id`)
	if err == nil && len(all) == 0 {
		g.nobody.Store(now)
	}
	if err == nil {
		err = each(ctx, usually, all, func(ctx context.Context, r row) error {
			if until, ok := g.rest.Load(r.ID); ok && time.Now().Before(until.(time.Time)) {
				return nil
			}
			if _, looking := g.looking.LoadOrStore(r.ID, true); looking {
				return nil
			}
			defer g.looking.Delete(r.ID)
			if err := g.watch(ctx, r.WorkspaceID, r.ID); err != nil && ctx.Err() == nil {
				g.rest.Store(r.ID, time.Now().Add(resting))
				g.log.Warn("a judge cannot watch, and is left alone for a minute", "criterion", r.ID, "workspace", r.WorkspaceID, "err", err)
			}
			return nil
		})
	}
	if err != nil && ctx.Err() == nil {
		g.log.Warn("judges cannot watch", "err", err)
	}
}

const (
	resting      = time.Minute
	watchAtOnce  = 500 // exchanges that are looked at in one look
	judgedAtOnce = 32  // and judged
)

// watch judges what was logged since the last look.
func (g *Guard) watch(ctx context.Context, ws tenant.ID, criterionID string) error {
	s, in := g.store, g.store.db.In(ws)
	c, err := find(ctx, in, criterionID)
	if err != nil {
		return err
	}
	crit, err := c.criterion()
	if err != nil || crit.Monitoring == nil || !crit.Monitoring.Enabled {
		return err
	}
	if g.open(ctx, ws) != nil {
		return nil //nolint:nilerr // nothing is logged, or may be read: there is nothing to watch
	}
	k, err := db.One[keptMonitor](ctx, in, `SELECT `+monitorColumns+` WHERE workspace_id = $1 AND criterion_id = $2`, criterionID)
	if err != nil {
		return fmt.Errorf("read the watch: %w", err)
	}
	filters := crit.Filters
	if crit.Monitoring.Filters != nil {
		filters = *crit.Monitoring.Filters
	}
	news, err := g.logs.Since(ctx, ws, filters.Filters(), k.Cursor, watchAtOnce)
	if err != nil || len(news) == 0 {
		return err
	}
	told, err := brief(ctx, in, c)
	if err != nil {
		return err
	}
	share := *crit.Monitoring.whole().SamplePercent
	purse := purse{most: crit.Monitoring.MaxCostUSD}
	if !k.over(&crit, clock.Now()) {
		purse.spent.Store(int64(k.Spent))
	}
	if purse.open() != nil {
		share = 0 // it looks on, and judges nothing until the next window
	}
	sampled, seen := sample(news, criterionID, share)
	rows := make([]pendingLog, len(sampled))
	for i, d := range sampled {
		rows[i] = pendingLog{LogID: d.ID, ExpiresAt: d.ExpiresAt}
	}
	found, err := s.judgeLogs(ctx, ws, c, criterionID, told, rows, g.logs, g.bench, &purse)
	if err != nil && purse.open() == nil {
		return err // nothing is counted, and nothing paid for twice: the answers are kept
	}
	sampled = slices.DeleteFunc(sampled, func(d logbook.Drawn) bool { _, asked := found[d.ID]; return !asked })
	return g.note(context.WithoutCancel(ctx), ws, &crit, news[seen-1].At, int64(seen), sampled, found)
}

// sample takes a share of some exchanges, and as many as are judged at once; seen is how many it looked at for that.
func sample(news []logbook.Drawn, criterionID string, percent float64) (sampled []logbook.Drawn, seen int) {
	for _, d := range news {
		sum := sha256.Sum256([]byte("watch\n" + criterionID + "\n" + d.ID))
		if float64(binary.BigEndian.Uint64(sum[:8]))/math.MaxUint64*100 < percent {
			sampled = append(sampled, d)
		}
		if seen++; len(sampled) == judgedAtOnce {
			break
		}
	}
	return sampled, seen
}

// note counts what a judge found, and raises the alarm.
func (g *Guard) note(ctx context.Context, ws tenant.ID, crit *Criterion, cursor clock.Time, seen int64, sampled []logbook.Drawn, found map[string]finding) error {
	var alarmed bool
	var k keptMonitor
	_, err := g.store.db.Tx(ctx, func(tx *db.Tx) (err error) {
		in := tx.In(ws)
		if k, err = db.One[keptMonitor](ctx, in, `SELECT `+monitorColumns+` WHERE workspace_id = $1 AND criterion_id = $2`, crit.ID); err != nil {
			return err
		}
		if alarmed = false; k.Cursor >= cursor {
			return nil // the watch was set anew meanwhile
		}
		now := clock.Now()
		if k.over(crit, now) {
			k = keptMonitor{Cost: k.Cost, Since: now}
		}
		k.Version, k.Cursor, k.Seen = crit.Version, cursor, k.Seen+seen
		if err := pend(ctx, tx, ws, crit.ID, sampled); err != nil {
			return err
		}
		_, cost, err := noteLogs(ctx, tx, ws, crit.ID, found)
		if err != nil {
			return err
		}
		k.count(found, cost)
		alarmed = k.alarm(crit.Monitoring.AlertBelow, now)
		_, err = db.Exec(ctx, in, `
			UPDATE monitors SET version = $3, since = $4, cursor = $5, seen = $6, passes = $7, judged = $8, failed = $9, cost = $10, alarmed_at = $11, reason = $12, spent = $13
			WHERE workspace_id = $1 AND criterion_id = $2`,
			crit.ID, k.Version, k.Since, k.Cursor, k.Seen, k.Passes, k.Judged, k.Failed, k.Cost, k.AlarmedAt, k.Reason, k.Spent)
		return err
	})
	if err != nil {
		return fmt.Errorf("note what was watched: %w", err)
	}
	if alarmed {
		g.log.Warn("a judge that watches traffic raises the alarm", "criterion", crit.ID, "workspace", ws, "reason", k.Reason)
	}
	return nil
}

func (k *keptMonitor) count(found map[string]finding, cost money.Nano) {
	for _, f := range found {
		switch f.Verdict {
		case judge.Pass:
			k.Passes++
			k.Judged++
		case judge.Fail:
			k.Judged++
		default:
			k.Failed++
		}
	}
	k.Cost += cost
	k.Spent += cost
}

// over reports whether a window is: its time, or its version.
func (k *keptMonitor) over(crit *Criterion, now clock.Time) bool {
	return k.Version != crit.Version || now.Sub(k.Since) >= time.Duration(crit.Monitoring.whole().WindowHours)*time.Hour
}

// alarm raises one, once in a window, when what was seen is evidence that the rate is below the bound.
func (k *keptMonitor) alarm(bound *float64, now clock.Time) bool {
	if bound == nil || k.AlarmedAt > 0 || k.Judged == 0 {
		return false
	}
	arm := stat.Arm{N: k.Judged, Passed: k.Passes}
	if arm.Below(*bound) < math.Log(1/falseAlarms) {
		return false
	}
	k.AlarmedAt = now
	k.Reason = fmt.Sprintf("%d of %d pass, which is evidence for a rate below %g", k.Passes, k.Judged, *bound)
	return true
}
