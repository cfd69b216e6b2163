package e2e

import (
	"context"
	"net/http"
	"sync"
	"sync/atomic"
	"testing"

	"sovereign/internal/base/money"
)

// release lets the provider answer what it holds.
func (f *nodes) release(t *testing.T) {
	t.Helper()
	response, err := http.Post(f.provider+"/release", "", http.NoBody)
	if err != nil || response.StatusCode != http.StatusNoContent {
		t.Fatal(response, err)
	}
	_ = response.Body.Close()
}

// walletOf is a workspace's wallet as the books have it.
func (f *nodes) walletOf(t *testing.T, workspace string) money.Nano {
	t.Helper()
	return money.Nano(f.number(t, `SELECT b.amount FROM ledger_balances b JOIN workspaces w ON w.workspace_id = b.workspace_id
		WHERE w.name = $1 AND b.account = 'wallet'`, workspace))
}

// insist asks as a client does: it tries again when it is told to. A node that does not learn within three seconds
// whether there is money says so, with 503. On a machine that is not slow none does, which a full drill holds it to.
func insist(c *caller, body string) (*answer, error) {
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	for {
		a, err := c.post(ctx, "/v1/chat/completions", body, nil)
		if err != nil || measured() || a.status != 503 || a.header.Get("Retry-After") == "" {
			return a, err
		}
	}
}

// A thousand callers ask three nodes at once, of a wallet that can pay ten.
func TestDrillOfAThousandRequestsToManyNodesExactlyThoseRunThatTheWalletCanPay(t *testing.T) {
	f := startNodes(t, 3, map[string]string{"chat": "mock?held&in=10&out=3"}, "--limits-connections", "2000")
	f.logsWhenFailed(t)
	body := chat("mock/chat", "a thousand at once", `"max_tokens":100`)
	hold := worst(t, f.all[0].server, body)
	const fit, all = 10, 1000
	key := f.all[1].newWorkspace(t, "ten", fit*hold)
	var callers []*caller
	for _, one := range f.all {
		callers = append(callers, one.caller(key))
	}
	var ran, refused atomic.Int64
	var group sync.WaitGroup
	for i := range all {
		group.Go(func() {
			switch a, err := insist(callers[i%len(callers)], body); {
			case err != nil:
				t.Error(err)
			case a.status == 200:
				ran.Add(1)
			case a.status == 402 && a.code() == "insufficient_balance":
				refused.Add(1)
			default:
				t.Errorf("%d %s", a.status, a.body)
			}
		})
	}
	eventually(t, "990 are refused while ten run", func() bool { return t.Failed() || refused.Load() >= all-fit })
	if is := f.walletOf(t, "ten"); is != fit*hold || refused.Load() != all-fit {
		t.Errorf("while ten run %d are refused, and the wallet has $%s; each holds $%s", refused.Load(), is, hold)
	}
	f.release(t)
	group.Wait()
	if seen := len(seenBy(t, f.provider, "a thousand at once")); ran.Load() != fit || seen != fit {
		t.Errorf("%d ran, and the provider saw %d", ran.Load(), seen)
	}
	f.stop(t)
	const cost = 10*inputPrice + 3*outputPrice
	if is := f.walletOf(t, "ten"); is != fit*(hold-cost) {
		t.Errorf("afterwards the wallet has $%s, want $%s", is, fit*(hold-cost))
	}
	f.nothingSliced(t)
	f.all[2].verifyLedger(t)
}

// nothingSliced checks that nodes that have stopped keep no money.
func (f *nodes) nothingSliced(t *testing.T) {
	t.Helper()
	if left := f.number(t, `SELECT CAST(COALESCE(SUM(amount), 0) AS BIGINT) FROM wallet_slices`); left != 0 {
		t.Errorf("nodes that have stopped keep $%s", money.Nano(left))
	}
}

// What another node keeps for a workspace and does not use is not missing: a request is refused only when the whole
// wallet cannot pay it, to the last tenth of a cent.
func TestDrillWhatAnotherNodeKeepsIsNotMissing(t *testing.T) {
	t.Parallel()
	f := startNodes(t, 3, map[string]string{"chat": "mock?in=10&out=3", "held": "mock?held&in=10&out=3"})
	f.logsWhenFailed(t)
	const text = "a tenth of a cent"
	body, asked := chat("mock/chat", text, `"max_tokens":50`), chat("mock/held", text, `"max_tokens":50`)
	hold := worst(t, f.all[0].server, asked)
	if hold > money.Dollar/1000 {
		t.Fatalf("a request holds $%s", hold)
	}
	const cost, fit = money.Nano(10*inputPrice + 3*outputPrice), 30
	key := f.all[0].newWorkspace(t, "kept", fit*hold)
	first, second := f.all[0].caller(key), f.all[1].caller(key)
	if a := first.must(t, body); a.status != 200 {
		t.Fatalf("%d %s", a.status, a.body)
	}
	kept := f.number(t, `SELECT CAST(COALESCE(SUM(amount), 0) AS BIGINT) FROM wallet_slices`)
	var group sync.WaitGroup
	var answered atomic.Int64
	can := int((fit*hold - cost) / hold)
	for i := range can {
		group.Go(func() {
			switch a, err := insist(second, asked); {
			case err != nil:
				t.Error(err)
			case a.status == 200:
				answered.Add(1)
			default:
				t.Errorf("request %d of %d that the wallet can pay: %d %s", i+1, can, a.status, a.body)
			}
		})
	}
	eventually(t, "all that can be paid run", func() bool { return t.Failed() || len(seenBy(t, f.provider, text)) == 1+can })
	if a, err := insist(second, asked); err != nil || a.status != 402 {
		t.Errorf("one more than the wallet can pay: %+v, %v", a, err)
	}
	f.release(t)
	group.Wait()
	t.Logf("the first node kept $%s of $%s, and the second ran %d of %d", money.Nano(kept), fit*hold, answered.Load(), can)
	f.stop(t)
	f.nothingSliced(t)
	f.all[0].verifyLedger(t)
}
