package e2e

import (
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"sovereign/internal/base/money"
)

// A crowd is callers that ask nodes for answers, and know what each workspace may be charged.
type crowd struct {
	nodes      *nodes
	keys       map[string]string // by workspace
	credit     map[string]money.Nano
	known      map[string]*tally
	answered   atomic.Int64
	refused    atomic.Int64 // for the node's sake
	broke      atomic.Int64 // for the wallet's sake
	ctx        context.Context
	stop       context.CancelFunc
	group      sync.WaitGroup
	unexpected func(workspace string, a *answer, err error)
}

// newCrowd makes workspaces with that much money.
func (f *nodes) newCrowd(t *testing.T, credit map[string]money.Nano) *crowd {
	t.Helper()
	c := &crowd{nodes: f, keys: map[string]string{}, credit: credit, known: map[string]*tally{}}
	c.ctx, c.stop = context.WithCancel(context.Background())
	t.Cleanup(c.leave)
	for workspace, amount := range credit {
		c.keys[workspace] = f.all[rand.IntN(len(f.all))].newWorkspace(t, workspace, amount)
		c.known[workspace] = newTally()
	}
	c.unexpected = func(workspace string, a *answer, err error) {
		t.Errorf("%s: %d %s %v", workspace, a.status, a.body, err)
	}
	return c
}

// ask lets so many callers ask nodes: half of them stay with one, the others take another one each time.
func (c *crowd) ask(callers int) {
	workspaces := slices.Sorted(maps.Keys(c.keys))
	for i := range callers {
		workspace := workspaces[i%len(workspaces)]
		var at []*caller
		for _, one := range c.nodes.all {
			at = append(at, one.caller(c.keys[workspace]))
		}
		if i/len(workspaces)%2 == 0 {
			home := i % len(at)
			at = at[home : home+1]
		}
		c.group.Go(func() {
			for round := 0; c.ctx.Err() == nil; round++ {
				c.once(workspace, at[rand.IntN(len(at))], round%2 == 0)
			}
			for _, one := range at {
				one.client.CloseIdleConnections()
			}
		})
	}
}

// once sends one request. It waits no longer than half a minute, which is longer than any accident.
func (c *crowd) once(workspace string, at *caller, stream bool) {
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	body := chat("mock/whole", "drill", `"max_tokens":20`)
	if stream {
		body = chat("mock/stream", "drill", `"max_tokens":20`, `"stream":true`)
	}
	a, err := at.post(ctx, "/v1/chat/completions", body, nil)
	if err != nil && refusedConnection(err) {
		time.Sleep(20 * time.Millisecond)
		return
	}
	c.known[workspace].note(a, err)
	switch {
	case err != nil: // the tally knows what it may cost
		time.Sleep(5 * time.Millisecond)
	case a.status == 200:
		c.answered.Add(1)
	case a.status == 402 && a.code() == "insufficient_balance":
		c.broke.Add(1)
		time.Sleep(20 * time.Millisecond)
	case a.status == 503 && a.header.Get("Retry-After") != "":
		c.refused.Add(1)
		time.Sleep(20 * time.Millisecond)
	default:
		c.unexpected(workspace, a, err)
		time.Sleep(20 * time.Millisecond)
	}
}

func (c *crowd) leave() {
	c.stop()
	c.group.Wait()
}

// wallets watches the wallets until ctx ends: none is ever below zero, nor below what nodes may spend of it.
func (f *nodes) watchWallets(ctx context.Context, t *testing.T) (looks int) {
	t.Helper()
	for ; ctx.Err() == nil; time.Sleep(20 * time.Millisecond) {
		var workspace string
		var wallet, sliced int64
		err := f.books.QueryRowContext(context.Background(), `
			SELECT b.workspace_id, b.amount, COALESCE(s.amount, 0) FROM ledger_balances b
			LEFT JOIN (SELECT workspace_id, CAST(SUM(amount) AS BIGINT) AS amount FROM wallet_slices WHERE hold_id = '' GROUP BY workspace_id) s
				ON s.workspace_id = b.workspace_id
			WHERE b.account = 'wallet' ORDER BY LEAST(b.amount, b.amount - COALESCE(s.amount, 0)) LIMIT 1`).Scan(&workspace, &wallet, &sliced)
		if err != nil {
			t.Errorf("watch the wallets: %v", err)
			return looks
		}
		if wallet < 0 || wallet < sliced {
			t.Errorf("the wallet of %s has $%s, and nodes may spend $%s of it", workspace, money.Nano(wallet), money.Nano(sliced))
			return looks
		}
		looks++
	}
	return looks
}

// settled checks the books of servers that have stopped: they prove, no slice is left, and every workspace was charged
// what its callers know.
func (c *crowd) settled(t *testing.T) {
	t.Helper()
	f := c.nodes
	f.nothingSliced(t)
	f.all[0].verifyLedger(t)
	for workspace, known := range c.known {
		known.charged(t, f, workspace, c.credit[workspace])
	}
	f.uncomplaining(t)
}

// charged compares what callers know with the rows of usage and the wallet.
func (ta *tally) charged(t *testing.T, f *nodes, workspace string, credit money.Nano) {
	t.Helper()
	ta.mu.Lock()
	defer ta.mu.Unlock()
	type row struct {
		charged money.Nano
		outcome string
	}
	rows, sum := map[string]row{}, money.Nano(0)
	all, err := f.books.QueryContext(context.Background(), `SELECT request_id, charged, outcome FROM usage_rows u
		JOIN workspaces w ON w.workspace_id = u.workspace_id WHERE w.name = $1`, workspace)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = all.Close() }()
	for all.Next() {
		var id string
		var one row
		if err := all.Scan(&id, &one.charged, &one.outcome); err != nil {
			t.Fatal(err)
		}
		rows[id] = one
		sum += one.charged
	}
	if err := all.Err(); err != nil {
		t.Fatal(err)
	}
	least := money.Nano(0)
	for id, cost := range ta.finished {
		least += cost
		if one, there := rows[id]; !there || one.charged != cost || one.outcome != "finished" {
			t.Errorf("%s: %s was answered to the end and is charged %v %+v", workspace, id, there, one)
		}
	}
	most := least + ta.unknown
	for id, cost := range ta.begun {
		most += cost
		if one := rows[id]; one.charged > cost {
			t.Errorf("%s: %s broke off and is charged $%s", workspace, id, one.charged)
		}
	}
	left := f.walletOf(t, workspace)
	if left < 0 || credit-left != sum || sum < least || sum > most {
		t.Errorf("%s: $%s of $%s are left; the rows sum to $%s; callers know of $%s to $%s", workspace, left, credit, sum, least, most)
	}
	t.Logf("%s: %d requests, %d finished, %d broke off, $%s charged", workspace, ta.sent, len(ta.finished), len(ta.begun), sum)
}

// drillModels answer whole and in a stream, and are reported to cost drillCost.
func drillModels() map[string]string {
	return map[string]string{
		"whole":  fmt.Sprintf("mock?latency=2ms&in=10&out=%d", drillOutput),
		"stream": fmt.Sprintf("mock?chunks=%d&chunk_delay=15ms&in=10&out=%d", drillOutput, drillOutput),
	}
}

// Three nodes are killed, paused, cut off from the database and restarted at random, under load. Whatever happens:
// every answer that a caller received whole is charged once, a stream that broke off at most once, no wallet is ever
// below zero or below what nodes may spend of it, nothing of it is left with a node that has stopped, and the ledger
// proves.
func TestDrillManyNodesInAccidentsChargeEveryFinishedAnswerOnce(t *testing.T) {
	t.Parallel()
	f := startNodes(t, 3, drillModels())
	f.logsWhenFailed(t)
	poor := money.Nano(drills(60, 20_000)) * drillCost // which is spent to the end
	c := f.newCrowd(t, map[string]money.Nano{"rich": 20 * money.Dollar, "busy": 20 * money.Dollar, "poor": poor})
	watching, stopWatching := context.WithCancel(t.Context())
	var watch sync.WaitGroup
	looks := 0
	watch.Go(func() { looks = f.watchWallets(watching, t) })
	c.ask(drills(6, 12))
	var left, happened atomic.Int64
	left.Store(int64(drills(6, 300)))
	counts := make([]atomic.Int64, len(accidents))
	var struck sync.WaitGroup
	for _, one := range f.all {
		struck.Go(func() {
			for left.Add(-1) >= 0 && !t.Failed() {
				aMoment()
				which := rand.IntN(len(accidents))
				accidents[which].strike(t, one)
				one.ready(t)
				counts[which].Add(1)
				happened.Add(1)
			}
		})
	}
	struck.Wait()
	f.heal()
	for _, one := range f.all {
		one.ready(t)
	}
	before := c.answered.Load()
	eventually(t, "answered after all is healed", func() bool { return c.answered.Load() > before+10 })
	c.leave()
	f.stop(t)
	stopWatching()
	watch.Wait()
	c.settled(t)
	for i := range accidents {
		t.Logf("%3d × %s", counts[i].Load(), accidents[i].name)
	}
	t.Logf("%d accidents, %d answered, %d refused by a node, %d for money, %d looks at the wallets",
		happened.Load(), c.answered.Load(), c.refused.Load(), c.broke.Load(), looks)
}
