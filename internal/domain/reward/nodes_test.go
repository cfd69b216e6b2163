package reward_test

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"

	"sovereign/internal/base/money"
	"sovereign/internal/domain/judging"
	"sovereign/internal/domain/judgingtest"
	"sovereign/internal/domain/reward"
	"sovereign/internal/domain/wallet"
	"sovereign/internal/live"
	"sovereign/internal/plane/funds"
	"sovereign/internal/plane/infer"
	"sovereign/internal/plane/journal"
	"sovereign/internal/plane/journal/journaltest"
	"sovereign/internal/plane/till"
	"sovereign/internal/store/db"
	"sovereign/internal/store/db/dbtest"
	"sovereign/internal/store/feed"
	"sovereign/internal/store/module"
)

// A node is one of several servers on the database of a fixture. It asks the fixture's models and pays by its own till.
type node struct {
	*judgingtest.Models
	store   *reward.Store
	till    *till.Till
	name    string
	worst   money.Nano
	asked   atomic.Int64
	refused atomic.Int64
}

func (f *fixture) newNode(name string, worst money.Nano) *node {
	f.t.Helper()
	j, err := journal.Open(journaltest.NewDisk())
	f.ok(err)
	memory := funds.New()
	none := func(money.Nano) {}
	n := &node{Models: f.Models, till: till.New(memory, j, judgingtest.Quiet, none, none), name: name, worst: worst}
	poster := wallet.NewPoster(f.DB, j, memory, judgingtest.Quiet)
	_, err = poster.Recover(f.t.Context())
	f.ok(err)
	changes := feed.New(f.DB, judgingtest.Quiet, poster.Sources())
	n.store = reward.NewStore(reward.Config{
		DB: f.DB, Feed: changes, Holds: poster.Holds, Judges: judging.NewClient(f.DB, n), Models: f.catalog, Limits: f.limits,
		Bounds: f.bounds, Log: judgingtest.Quiet,
	})
	made := reward.Module(n.store, reward.Deps{Serving: func() error { return nil }, Log: judgingtest.Quiet})
	changes.Register(made.Publishers)
	f.ok(changes.Fill(f.t.Context()))
	for _, loop := range []module.Loop{{Run: changes.Run}, {Run: poster.SyncLoop}, {Run: poster.Run}, {Run: poster.Escrow.Run}} {
		f.run(loop.Run)
	}
	return n
}

// Complete pays for what the models answer.
func (n *node) Complete(ctx context.Context, r *infer.Request) (*infer.Answer, error) {
	charge := journal.Charge{
		Request: fmt.Sprint("req_", n.name, n.asked.Add(1)), Workspace: r.Workspace, Route: "chat", Hold: r.Hold,
	}
	tab, err := n.till.Open(ctx, charge, n.worst)
	if short, is := err.(*till.InsufficientFunds); is { //nolint:errorlint // it is never wrapped
		n.refused.Add(1)
		return nil, &infer.HoldSpent{Hold: r.Hold, Free: short.Free, Ended: short.Ended, Busy: short.Busy}
	}
	if err != nil {
		return nil, err
	}
	answer, err := n.Models.Complete(ctx, r)
	if err != nil {
		tab.Drop()
		return nil, err
	}
	model := &live.Model{ID: r.Model, Provider: &live.Provider{Name: "sim"}, Price: live.Price{Rates: live.Rates{Input: 1_000_000}}}
	tab.SetModel(model, model.Price, false)
	return answer, tab.Settle(till.Settlement{Outcome: "finished", Usage: live.Usage{Input: int64(answer.Cost)}})
}

// An item that does not fit waits for those that other servers are asked about, and the session ends once, for all.
func TestAnItemThatDoesNotFitWaitsForRunningOnesOfOtherServers(t *testing.T) {
	core, logs := dbtest.Migrated(t, db.Postgres), dbtest.MigratedLogs(t, db.Postgres)
	f := newFixture(t, judgingtest.New(t, core, logs))
	const worst = 10 * judgingtest.Price
	wants := wanted(f.certified(30).ID)
	wants.Budget = worst + 3*judgingtest.Price // one at a time, and four in all
	s := f.create(wants)
	one, other := f.newNode("one", worst), f.newNode("other", worst)
	gate, reached := judgingtest.NewGate(t), make(chan struct{}, 1)
	f.Models.Say(func(item int) string {
		if item == first {
			reached <- struct{}{}
			gate.Wait()
		}
		return f.graded.repeat(item)
	})
	var group sync.WaitGroup
	score := func(n *node, from, count int) (got reward.Scores) {
		got, err := n.store.Score(t.Context(), dbtest.Mine, s.ID, "1", numbered(from, count))
		if err != nil && code(err) != spent {
			t.Error(err)
		}
		return got
	}
	group.Go(func() {
		if got := score(one, 0, 1); got.Status != reward.Active || slices.Contains(got.Rewards, nil) {
			t.Errorf("the first: %+v", got)
		}
	})
	<-reached
	group.Go(func() {
		if got := score(other, 1, 1); got.Status != reward.Active || slices.Contains(got.Rewards, nil) {
			t.Errorf("the one that waited: %+v", got)
		}
	})
	f.await(t, "two refusals", func() bool { return other.refused.Load() >= 2 || f.get(s.ID).Status != reward.Active })
	gate.Open()
	group.Wait()
	for i, n := range []*node{one, other, one, other} {
		group.Go(func() { score(n, 10*(i+1), 5) })
	}
	group.Wait()
	f.await(t, "all charges", func() bool { return f.get(s.ID).Spent == 4*judgingtest.Price })
	if got := f.get(s.ID); got.Status != reward.Overbudget || got.Scored != 4 {
		t.Errorf("%s after %d items for $%s", got.Status, got.Scored, got.Spent)
	}
	if actions := f.audited(s.ID); !slices.Equal(actions, []string{"create", "overbudget"}) {
		t.Errorf("audited %q", actions)
	}
}
