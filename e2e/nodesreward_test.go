package e2e

import (
	"fmt"
	"math/rand/v2"
	"net/http"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"sovereign/internal/base/money"
)

// Callers of three nodes score in one session as its budget runs out, and in every second round a node is disturbed.
// Whatever happens: no more is spent than the budget, the session ends once, what is left of its hold is free again,
// and `ledger verify` passes.
func TestDrillManyNodesShareTheBudgetOfARewardSession(t *testing.T) {
	t.Parallel()
	provider := startProvider(t)
	config := judgeConfig(t, provider, map[string]string{"judges": "mock?judge&latency=15ms&in=10000&out=100"}, nil)
	f := newNodes(t, 3, "--config", config, "--limits-judge-calls", "64")
	f.logsWhenFailed(t)
	f.provider = provider
	for i, one := range f.all {
		if one.start(t); i == 0 {
			one.ready(t) // it makes the root key and the first workspace
		}
	}
	for _, one := range f.all {
		one.ready(t)
	}
	f.key = f.all[0].server.key()
	criterion := f.all[0].caller(f.key).certifiedJudge(t, "mock/judges")
	f.all[0].mustAdmin(t, nil, "wallet", "topup", "--workspace", "default", "--amount-usd", "1000", "--json")
	spent := money.Nano(0)
	for round := range drills(2, 60) {
		budget := (200 + 10*money.Nano(rand.IntN(20))) * money.Dollar / 1000
		s := f.all[round%3].caller(f.key).session(t, criterion, budget)
		spent += f.runOut(t, s, round, round%2 == 1)
		if t.Failed() {
			t.Fatalf("in round %d", round)
		}
	}
	f.stop(t)
	f.nothingSliced(t)
	credit := f.number(t, `SELECT CAST(-SUM(amount) AS BIGINT) FROM ledger_balances WHERE account = 'funding'`)
	charged := f.number(t, `SELECT CAST(SUM(charged) AS BIGINT) FROM usage_rows`) // for the calibration of the judge too
	scored := f.number(t, `SELECT CAST(SUM(charged) AS BIGINT) FROM usage_rows WHERE key_id LIKE 'rs_%'`)
	if is := f.walletOf(t, "default"); int64(is) != credit-charged {
		t.Errorf("the wallet has %d of %d after %d", is, credit, charged)
	}
	// A node that was disturbed may post what it settled after its session was seen to end.
	late := f.number(t, `SELECT CAST(SUM(spent) AS BIGINT) FROM named_holds WHERE id LIKE 'rs_%'`)
	if late != scored || int64(spent) > scored {
		t.Errorf("the sessions spent %d, of which callers saw %d, and %d were charged", late, spent, scored)
	}
	if over := f.number(t, `SELECT COUNT(*) FROM named_holds WHERE spent > amount OR ended_at = 0`); over != 0 {
		t.Errorf("%d sessions spent more than their budget, or hold it still", over)
	}
	f.all[0].verifyLedger(t)
	f.uncomplaining(t)
}

// runOut runs one budget out, and returns what was spent of it.
func (f *nodes) runOut(t *testing.T, s scoredSession, round int, disturbed bool) money.Nano {
	t.Helper()
	const callers, each = 30, 3
	var group sync.WaitGroup
	var most atomic.Int64
	for i := range callers {
		at := f.all[i%len(f.all)].caller(f.key)
		group.Go(func() {
			defer at.client.CloseIdleConnections()
			items := rewardItems(fmt.Sprintf("round %d of %d", round, i), each)
			for deadline := time.Now().Add(limit); ; time.Sleep(20 * time.Millisecond) {
				got, err := at.scores(s.ID, "1", items)
				for over := int64(got.Spent); over > most.Load(); {
					most.Store(over)
				}
				switch {
				case err == nil && (got.code == "session_overbudget" || got.Status == "OVERBUDGET"):
					return
				case err == nil && got.status == http.StatusOK && nulls(got) == 0:
					return
				case err == nil && got.status != http.StatusOK && got.status != http.StatusServiceUnavailable,
					time.Now().After(deadline):
					t.Errorf("caller %d got %+v %v", i, got, err)
					return
				}
			}
		})
	}
	if disturbed {
		one := f.all[rand.IntN(len(f.all))]
		time.Sleep(rand.N(120 * time.Millisecond))
		undo := disturbances[rand.IntN(len(disturbances))](one)
		time.Sleep(rand.N(3 * time.Second))
		undo()
		one.ready(t)
	}
	group.Wait()
	var now scoredSession
	var posted int64
	eventually(t, "what was spent of the budget is posted", func() bool {
		f.all[round%3].caller(f.key).call(t, http.MethodGet, "/v1/reward/sessions/"+s.ID, nil, http.StatusOK, &now)
		posted = f.number(t, `SELECT CAST(COALESCE(SUM(charged), 0) AS BIGINT) FROM usage_rows WHERE key_id = $1`, s.ID)
		return now.Status == "OVERBUDGET" && money.Nano(posted) == now.Spent
	})
	ends := f.number(t, `SELECT COUNT(*) FROM audit_entries WHERE subject LIKE '%' || $1 || '%' AND action LIKE '%.overbudget'`, s.ID)
	if now.Spent > s.Budget || money.Nano(most.Load()) > s.Budget || ends != 1 {
		t.Errorf("round %d: %+v, callers saw $%s; it ended %d times", round, now, money.Nano(most.Load()), ends)
	}
	return now.Spent
}
