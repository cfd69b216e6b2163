package reward_test

import (
	"context"
	"math/rand/v2"
	"runtime"
	"slices"
	"sync"
	"testing"

	"sovereign/internal/base/clock"
	"sovereign/internal/base/fault"
	"sovereign/internal/base/money"
	"sovereign/internal/domain/criterion"
	"sovereign/internal/domain/judgingtest"
	"sovereign/internal/domain/reward"
	"sovereign/internal/grade/judge"
	"sovereign/internal/plane/infer"
	"sovereign/internal/store/db/dbtest"
)

// Callers come and leave, judges fail and questions are shared while the budget runs out. Every call ends, what was
// spent is what answers cost, each at most once, and nothing stays behind.
func TestNothingIsLostWhileCallersLeaveAndTheBudgetRunsOut(t *testing.T) {
	each(t, func(t *testing.T, f *fixture) {
		one, other := f.certified(30), f.certified(30, func(d *criterion.Definition) { d.Rubric = new("Another one.") })
		for round := range 5 {
			f.storm(t, round, one.ID, other.ID)
		}
	})
}

func (f *fixture) storm(t *testing.T, round int, one, other string) {
	t.Helper()
	const worst, fit = 4 * judgingtest.Price, 60
	n := &reward.NewSession{
		Reward: reward.Rule{Mode: reward.All, Criteria: []reward.Criterion{{CriterionID: one}, {CriterionID: other}}},
		Budget: (fit-1)*judgingtest.Price + worst,
	}
	s := f.create(n)
	random := rand.New(rand.NewPCG(uint64(round), 1))
	chances := make([]int, 200)
	for i := range chances {
		chances[i] = random.IntN(100)
	}
	paid := f.paysOnce(t, worst)
	f.Models.Do(func(item int, _ *infer.Request) (string, error) {
		for range chances[item%200] {
			runtime.Gosched()
		}
		if chances[item%200] < 5 {
			return "", fault.Invalid("messages", "are not taken")
		}
		return judgingtest.Assessment(judge.Pass, 0.8), nil
	})
	var group sync.WaitGroup
	for i := range 24 {
		from, size, stays := 1000*round+random.IntN(30), 1+random.IntN(20), random.IntN(3) > 0
		group.Go(func() {
			ctx, leave := context.WithCancel(t.Context())
			defer leave()
			if !stays {
				go func() {
					for range chances[i] {
						runtime.Gosched()
					}
					leave()
				}()
			}
			_, err := f.store.Score(ctx, dbtest.Mine, s.ID, "1", numbered(from, size))
			if err != nil && code(err) != "session_overbudget" && ctx.Err() == nil {
				t.Errorf("%v", err)
			}
		})
	}
	group.Wait()
	f.idle(t)
	got := f.get(s.ID)
	if busy, waiting := f.store.Busy(); busy != 0 || waiting != 0 {
		t.Errorf("%d slots are busy, %d workspaces wait", busy, waiting)
	}
	if got.Spent != paid() || got.Spent > n.Budget {
		t.Errorf("spent %s of %s, and answers cost %s", got.Spent, n.Budget, paid())
	}
	if !slices.Contains([]reward.Status{reward.Active, reward.Overbudget}, got.Status) {
		t.Errorf("the session is %s", got.Status)
	}
}

// paysOnce lets the fake models take what answers may cost from named holds. No question is paid for twice. paid
// returns what was paid since.
func (f *fixture) paysOnce(t *testing.T, worst money.Nano) (paid func() money.Nano) {
	t.Helper()
	var mu sync.Mutex
	var sum money.Nano
	known := map[string]bool{}
	f.Models.Pay(func(r *infer.Request) (func(money.Nano), error) {
		hold, err := holdFrom(f.funds, r, worst)
		if err != nil {
			return nil, err
		}
		return func(cost money.Nano) {
			hold.Settle(cost, clock.Now())
			mu.Lock()
			defer mu.Unlock()
			if sum += cost; cost > 0 && known[string(r.Body)] {
				t.Error("a question is paid for twice")
			}
			known[string(r.Body)] = cost > 0
		}, nil
	})
	return func() money.Nano {
		mu.Lock()
		defer mu.Unlock()
		return sum
	}
}
