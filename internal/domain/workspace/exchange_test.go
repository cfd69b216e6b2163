package workspace

import (
	"context"
	"errors"
	"log/slog"
	"testing"
	"time"

	"sovereign/internal/base/clock"
	"sovereign/internal/base/fault"
	"sovereign/internal/base/money"
	"sovereign/internal/base/secret"
	"sovereign/internal/base/tenant"
	"sovereign/internal/domain/usage"
	"sovereign/internal/live"
	"sovereign/internal/plane/journal"
	"sovereign/internal/plane/meter"
	"sovereign/internal/store/cluster"
	"sovereign/internal/store/db"
	"sovereign/internal/store/db/dbtest"
)

// A server is what counts limits in one of several processes.
type server struct {
	t        *testing.T
	db       *db.DB
	node     string
	limits   *live.AllLimits
	meter    *meter.Meter
	exchange *Exchange
	counter  *Counter
	days     *usage.Days
}

var limited = &tenant.Caller{Workspace: dbtest.Mine, Key: "key_1"}

// eachServers runs test with several servers on one PostgreSQL database.
func eachServers(t *testing.T, n int, test func(t *testing.T, all []*server)) {
	t.Helper()
	dbtest.EachMigrated(t, func(t *testing.T, folder string, url secret.Text) {
		if url.Reveal() == "" {
			t.Log("there is one server, without an exchange")
			return
		}
		all := make([]*server, n)
		for i := range all {
			all[i] = newServer(t, dbtest.Open(t, folder, url), string(rune('a'+i)), n)
		}
		dbtest.AddWorkspaces(t, all[0].db, dbtest.Mine)
		test(t, all)
	})
}

func newServer(t *testing.T, d *db.DB, node string, nodes int) *server {
	s := &server{t: t, db: d, node: node, limits: live.NewLimits(), days: usage.NewDays().Of(node)}
	s.meter = meter.New(s.limits)
	s.exchange = NewExchange(d, s.meter, node, cluster.Alone(d), slog.New(slog.DiscardHandler))
	s.meter.SetNodes(func() int { return nodes })
	nothing := func(context.Context, tenant.ID, clock.Time) (map[tenant.KeyID]meter.Spent, error) {
		return map[tenant.KeyID]meter.Spent{}, nil
	}
	s.counter = &Counter{Meter: s.meter, Spent: nothing, Exchange: s.exchange}
	return s
}

func (s *server) round() {
	s.t.Helper()
	if err := s.exchange.Round(s.t.Context()); err != nil {
		s.t.Fatal(err)
	}
}

// count has the server count what the key and the workspace spend.
func (s *server) count() {
	s.t.Helper()
	for _, subject := range []tenant.KeyID{"", limited.Key} {
		if err := s.counter.ensure(s.t.Context(), dbtest.Mine, subject); err != nil {
			s.t.Fatal(err)
		}
	}
}

// spend has a request cost an amount, which is posted.
func (s *server) spend(amount money.Nano) error {
	s.t.Helper()
	now := time.Now()
	p, err := s.meter.Enter(limited, now)
	if err != nil {
		return err
	}
	defer p.Leave()
	if err := p.Reserve(now, 0, amount); err != nil {
		return err
	}
	p.Settle(limited, now, 0, amount)
	s.post(clock.Of(now), amount)
	return nil
}

func (s *server) post(at clock.Time, amount money.Nano) {
	s.t.Helper()
	batch := usage.NewBatch()
	batch.Add(&journal.Charge{Workspace: dbtest.Mine, Key: limited.Key, At: at, Model: "m", Outcome: "finished", Cost: amount}, amount)
	if _, err := s.db.Tx(s.t.Context(), func(tx *db.Tx) error { return s.days.Write(s.t.Context(), tx, batch) }); err != nil {
		s.t.Fatal(err)
	}
}

func TestABudgetCountsWhatAllServersHavePosted(t *testing.T) {
	for _, whose := range []string{string(limited.Key), string(limited.Workspace)} {
		eachServers(t, 3, func(t *testing.T, all []*server) {
			const budget = 10
			all[2].post(clock.Now(), 1) // before the others count
			for _, s := range all {
				s.count()
				s.limits.Put(whose, &live.Limits{BudgetPerDay: budget})
			}
			for i, amount := range []money.Nano{3, 2} {
				if err := all[i].spend(amount); err != nil {
					t.Fatal(err)
				}
				for _, s := range all {
					s.round()
				}
			}
			for i, s := range all {
				if err := s.spend(5); !overBudget(err) {
					t.Errorf("server %d spends 5 of 4 that are left: %v", i, err)
				}
			}
			if err := all[2].spend(4); err != nil {
				t.Errorf("what is left: %v", err)
			}
			for i, s := range all {
				s.round()
				s.round() // what was read once is not counted twice
				if err := s.spend(1); !overBudget(err) {
					t.Errorf("server %d spends after the budget was reached: %v", i, err)
				}
			}
			again := newServer(t, all[0].db, all[0].node, 3) // the next process of the first journal
			again.count()
			again.limits.Put(whose, &live.Limits{BudgetPerDay: budget})
			if err := again.spend(1); !overBudget(err) {
				t.Errorf("a process that has just started spends: %v", err)
			}
		})
	}
}

func overBudget(err error) bool { return errors.As(err, new(*meter.OverBudget)) }

// Before a round, servers take no more together than the limit; after one, each knows what the others took.
func TestRequestsOfAllServersCount(t *testing.T) {
	eachServers(t, 3, func(t *testing.T, all []*server) {
		const limit = 60
		for _, s := range all {
			s.limits.Put(string(limited.Workspace), &live.Limits{RequestsPerMinute: limit})
		}
		now, admitted := time.Now(), 0
		enter := func(s *server) bool {
			_, err := s.meter.Enter(limited, now)
			if err == nil {
				admitted++
			} else if fault.From(err).RetryAfter < time.Second {
				t.Errorf("a refusal without a wait: %v", err)
			}
			return err == nil
		}
		for range 40 { // all at once, before any round
			for _, s := range all {
				enter(s)
			}
		}
		if admitted != limit {
			t.Errorf("%d were let through before a round, of %d", admitted, limit)
		}
		for range 3 {
			for range 2 { // what the last one tells in the first round, the first one hears in the second
				for _, s := range all {
					s.round()
				}
			}
			for _, s := range all {
				if enter(s) {
					t.Error("one more is let through after a round")
				}
			}
		}
	})
}

func TestOneServerCanUseAWholeLimit(t *testing.T) {
	eachServers(t, 3, func(t *testing.T, all []*server) {
		const limit = 60
		s, now, admitted := all[0], time.Now(), 0
		s.limits.Put(string(limited.Workspace), &live.Limits{RequestsPerMinute: limit, TokensPerMinute: 1000})
		for range 30 {
			for {
				p, err := s.meter.Enter(limited, now)
				if err != nil {
					break
				}
				admitted++
				p.Leave()
			}
			s.round()
		}
		if admitted != limit {
			t.Errorf("%d of %d", admitted, limit)
		}
		s.limits.Put(string(limited.Workspace), &live.Limits{TokensPerMinute: 1000})
		p, err := s.meter.Enter(limited, now)
		if err != nil || p.Reserve(now, 900, 0) != nil {
			t.Error("a request that needs most of the tokens is refused")
		}
		s.round()
		all[1].limits.Put(string(limited.Workspace), &live.Limits{TokensPerMinute: 1000, Concurrency: 1})
		all[1].round()
		q, err := all[1].meter.Enter(limited, now)
		if err != nil {
			t.Fatalf("running requests of a life that is over count: %v", err)
		}
		if q.Reserve(now, 200, 0) == nil {
			t.Error("tokens that are reserved at another server do not count")
		}
	})
}
