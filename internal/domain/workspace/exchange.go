package workspace

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"time"

	"sovereign/internal/base/money"
	"sovereign/internal/base/panics"
	"sovereign/internal/base/tenant"
	"sovereign/internal/domain/usage"
	"sovereign/internal/plane/meter"
	"sovereign/internal/store/cluster"
	"sovereign/internal/store/db"
)

// An Exchange tells the other servers on a PostgreSQL database what this one counts against the limits of keys and
// workspaces, and its meter what they count. A round takes place twice a second. Budgets count what the others have
// posted.
type Exchange struct {
	db    *db.DB
	meter *meter.Meter
	node  string // the id of this server's journal
	epoch func() int64
	log   *slog.Logger
	now   func() time.Time

	mu    sync.Mutex // one round, or one load, at a time
	known map[tenant.ID]*spending
	seen  int64 // the database's time of the last look at what was posted
}

// exchangeEvery is the time between two rounds.
const exchangeEvery = 500 * time.Millisecond

// lateCommit is the longest that a posting may take from writing its rows to its commit: a posting has five seconds.
const lateCommit = 10 * time.Second

// spending is what the other servers have posted for the keys of a workspace.
type spending struct {
	rows map[spentAt]money.Nano
	sums map[string]map[usage.Day]money.Nano // by the id of a key or the workspace
}

type spentAt struct {
	key  tenant.KeyID
	day  usage.Day
	node string
}

// NewExchange returns an exchange of the server with that membership. node is the id of its journal.
func NewExchange(d *db.DB, m *meter.Meter, node string, member *cluster.Member, log *slog.Logger) *Exchange {
	m.SetNodes(member.Nodes)
	return &Exchange{
		db: d, meter: m, node: node, epoch: func() int64 { return member.Life().Epoch }, log: log, now: time.Now,
		known: map[tenant.ID]*spending{},
	}
}

// Run exchanges until ctx ends.
func (e *Exchange) Run(ctx context.Context) {
	tick := time.NewTicker(exchangeEvery)
	defer tick.Stop()
	failing := false
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		bounded, cancel := context.WithTimeout(ctx, 5*time.Second)
		err := panics.Call(e.log, "exchanging what limits count", func() error { return e.Round(bounded) })
		cancel()
		if err != nil && !failing && ctx.Err() == nil {
			e.log.Warn("what the other servers count against limits is not known", "err", err)
		}
		failing = err != nil
	}
}

// Round exchanges once.
func (e *Exchange) Round(ctx context.Context) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	if err := e.counts(ctx); err != nil {
		return err
	}
	return e.posted(ctx)
}

const databaseClock = usage.DatabaseClock

// minuteMicros is a second more than a minute, as long as a count may hold.
const minuteMicros = 61_000_000

// counts exchanges requests and tokens.
func (e *Exchange) counts(ctx context.Context) error {
	across := e.db.Across("limits are counted by the ids of their subjects")
	const most = 1000 // rows of a statement
	for all := e.meter.Report(e.now()); len(all) > 0; {
		some := all[:min(most, len(all))]
		all = all[len(some):]
		rows, args := []string{}, []any{e.node, e.epoch()}
		for _, c := range some {
			n := len(args)
			rows = append(rows, fmt.Sprintf("($%d, $1, $2, $%d, $%d, $%d, "+databaseClock+")", n+1, n+2, n+3, n+4))
			args = append(args, c.ID, c.Requests, c.Tokens, c.Running)
		}
		if _, err := db.Exec(ctx, across, `
			INSERT INTO meter_counts (subject, node, epoch, requests, tokens, running, seen_at) VALUES `+strings.Join(rows, ", ")+`
			ON CONFLICT (subject, node) DO UPDATE SET epoch = excluded.epoch, requests = excluded.requests,
				tokens = excluded.tokens, running = excluded.running, seen_at = excluded.seen_at`, args...); err != nil {
			return fmt.Errorf("tell what limits count: %w", err)
		}
	}
	found, err := db.Query[struct {
		ID                        string
		Requests, Tokens, Running int64
	}](ctx, across, `
		SELECT subject AS id, CAST(SUM(requests) AS BIGINT) AS requests, CAST(SUM(tokens) AS BIGINT) AS tokens,
			CAST(SUM(CASE WHEN `+cluster.Over("c.node", "c.epoch")+` THEN 0 ELSE running END) AS BIGINT) AS running
		FROM meter_counts c WHERE node <> $1 AND seen_at > `+databaseClock+` - $2 GROUP BY subject`, e.node, minuteMicros)
	if err != nil {
		return fmt.Errorf("read what limits count elsewhere: %w", err)
	}
	others := make(map[string]meter.Count, len(found))
	for _, f := range found {
		others[f.ID] = meter.Count{ID: f.ID, Requests: f.Requests, Tokens: f.Tokens, Running: f.Running}
	}
	e.meter.Heard(others)
	return nil
}

// A budgetRow is what one server's journal has spent for a key on a day.
type budgetRow struct {
	WorkspaceID tenant.ID
	KeyID       tenant.KeyID
	Day         usage.Day
	Node        string
	Spent       money.Nano
}

// posted has the meter know what the other servers have posted since the last round.
func (e *Exchange) posted(ctx context.Context) error {
	across := e.db.Across("the others post charges of all workspaces")
	now, err := db.One[int64](ctx, across, `SELECT `+databaseClock)
	if err != nil {
		return fmt.Errorf("read the database's clock: %w", err)
	}
	if e.seen == 0 { // nothing is counted yet
		e.seen = now
		return nil
	}
	rows, err := db.Query[budgetRow](ctx, across, `
		SELECT workspace_id, key_id, day, node, spent FROM budget_days WHERE posted_at > $1 AND node <> $2`,
		e.seen-lateCommit.Microseconds(), e.node)
	if err != nil {
		return fmt.Errorf("read what other servers have spent: %w", err)
	}
	changed := map[tenant.ID]map[string]bool{}
	for i := range rows {
		r := &rows[i]
		known := e.known[r.WorkspaceID]
		switch {
		case known == nil && (e.meter.Counts(string(r.KeyID)) || e.meter.Counts(string(r.WorkspaceID))):
			if _, err := e.read(ctx, r.WorkspaceID, e.now()); err != nil {
				return err
			}
		case known != nil && known.put(r):
			if changed[r.WorkspaceID] == nil {
				changed[r.WorkspaceID] = map[string]bool{string(r.WorkspaceID): true}
			}
			changed[r.WorkspaceID][string(r.KeyID)] = true
		}
	}
	for ws, ids := range changed {
		e.tell(e.known[ws], ids)
	}
	e.seen = now
	return nil
}

// put takes a row over, and reports whether it has changed.
func (s *spending) put(r *budgetRow) bool {
	at := spentAt{r.KeyID, r.Day, r.Node}
	more := r.Spent - s.rows[at]
	if more == 0 {
		return false
	}
	s.rows[at] = r.Spent
	for _, id := range [...]string{string(r.KeyID), string(r.WorkspaceID)} {
		if s.sums[id] == nil {
			s.sums[id] = map[usage.Day]money.Nano{}
		}
		s.sums[id][r.Day] += more
	}
	return true
}

// tell tells the meter what the others have spent of the budgets of some ids, where it counts them.
func (e *Exchange) tell(s *spending, ids map[string]bool) {
	now := e.now()
	for id := range ids {
		if e.meter.Counts(id) {
			e.meter.SpentElsewhere(id, now, sumOf(s.sums[id], now))
		}
	}
}

// sumOf adds up the UTC day and month of a time.
func sumOf(days map[usage.Day]money.Nano, now time.Time) (sum meter.Spent) {
	today, first := daysOf(now)
	for day, spent := range days {
		if day == today {
			sum.Day += spent
		}
		if day >= first && day <= today {
			sum.Month += spent
		}
	}
	return sum
}

// daysOf returns the UTC day of a time, and the first of its month.
func daysOf(now time.Time) (today, first usage.Day) {
	day, month := meter.Starts(now)
	const perDay = 24 * 60 * 60
	return usage.Day(day.Unix() / perDay), usage.Day(month.Unix() / perDay)
}

// load reads anew what all servers have posted for a workspace, and returns what this one has for each key. The meter
// then knows of the others'.
func (e *Exchange) load(ctx context.Context, ws tenant.ID, now time.Time) (map[tenant.KeyID]meter.Spent, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.read(ctx, ws, now)
}

func (e *Exchange) read(ctx context.Context, ws tenant.ID, now time.Time) (map[tenant.KeyID]meter.Spent, error) {
	if e.seen == 0 { // before the rows: what is posted from here on is for the next round
		var err error
		if e.seen, err = db.One[int64](ctx, e.db.Across("a clock"), `SELECT `+databaseClock); err != nil {
			return nil, fmt.Errorf("read the database's clock: %w", err)
		}
	}
	_, first := daysOf(now)
	rows, err := db.Query[budgetRow](ctx, e.db.In(ws), `
		SELECT workspace_id, key_id, day, node, spent FROM budget_days WHERE workspace_id = $1 AND day >= $2`, first)
	if err != nil {
		return nil, fmt.Errorf("read what the keys of %s have spent: %w", ws, err)
	}
	s := &spending{rows: map[spentAt]money.Nano{}, sums: map[string]map[usage.Day]money.Nano{}}
	mine, ids := map[tenant.KeyID]meter.Spent{}, map[string]bool{string(ws): true}
	for i := range rows {
		r := &rows[i]
		ids[string(r.KeyID)] = true
		if r.Node != e.node {
			s.put(r)
			continue
		}
		sum, one := mine[r.KeyID], sumOf(map[usage.Day]money.Nano{r.Day: r.Spent}, now)
		mine[r.KeyID] = meter.Spent{Day: sum.Day + one.Day, Month: sum.Month + one.Month}
	}
	e.known[ws] = s
	e.tell(s, ids)
	return mine, nil
}

// sweep deletes the counts of servers that have not told of any for a minute.
func (e *Exchange) sweep(ctx context.Context) error {
	_, err := db.Exec(ctx, e.db.Across("counts of no use"),
		`DELETE FROM meter_counts WHERE seen_at < `+databaseClock+` - $1`, 2*minuteMicros)
	return err
}
