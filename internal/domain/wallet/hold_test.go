package wallet

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"sovereign/internal/base/fault"
	"sovereign/internal/base/money"
	"sovereign/internal/base/tenant"
	"sovereign/internal/domain/usage"
	"sovereign/internal/live"
	"sovereign/internal/plane/funds"
	"sovereign/internal/plane/journal"
	"sovereign/internal/plane/journal/journaltest"
	"sovereign/internal/plane/till"
	"sovereign/internal/store/db"
	"sovereign/internal/store/db/dbtest"
)

// openHold opens a named hold in a transaction of its own.
func (b *process) openHold(ws tenant.ID, id string, amount money.Nano) error {
	_, err := b.db.Tx(b.t.Context(), func(tx *db.Tx) error {
		return b.poster.Holds.Open(b.t.Context(), tx, ws, id, "reward", amount)
	})
	return err
}

// endHold ends a named hold, and publishes that as the feed does.
func (b *process) endHold(ws tenant.ID, id string) {
	b.t.Helper()
	_, err := b.db.Tx(b.t.Context(), func(tx *db.Tx) error { return b.poster.Holds.End(b.t.Context(), tx, ws, id) })
	if err == nil {
		err = b.poster.Apply(b.t.Context(), db.Change{Kind: changedHold, Workspace: ws, Subject: id})
	}
	if err != nil {
		b.t.Fatal(err)
	}
}

// openFrom opens a request that a named hold pays for.
func (b *process) openFrom(ws tenant.ID, hold, request string, amount money.Nano) *till.Tab {
	b.t.Helper()
	tab, err := b.till.Open(b.t.Context(), journal.Charge{Request: request, Workspace: ws, Key: "rs_1", Route: "chat", Hold: hold}, amount)
	if err != nil {
		b.t.Fatal(err)
	}
	tab.SetModel(simulated, simulated.Price, false)
	return &tab
}

func (b *process) spendFrom(ws tenant.ID, hold, request string, cost int64) {
	b.t.Helper()
	tab := b.openFrom(ws, hold, request, money.Nano(cost))
	if err := tab.Settle(till.Settlement{Outcome: "finished", Usage: live.Usage{Input: cost}}); err != nil {
		b.t.Fatal(err)
	}
}

// wantHold checks what was spent from a hold and what is free in it.
func (b *process) wantHold(ws tenant.ID, id string, spent, left money.Nano) {
	b.t.Helper()
	got, err := b.poster.Holds.Spent(b.t.Context(), ws, id)
	has := left
	if err == nil {
		has, err = b.poster.Holds.Left(b.t.Context(), ws, id, left)
	}
	if err != nil || got != spent || has != left {
		b.t.Errorf("%s has spent %d and has %d free, want %d and %d: %v", id, got, has, spent, left, err)
	}
}

func (b *process) wantBalance(ws tenant.ID, want funds.Balance) {
	b.t.Helper()
	if got := b.balance(ws); got != want {
		b.t.Errorf("%s has %+v, want %+v", ws, got, want)
	}
}

func TestAHoldIsSpentByItsRequestsAndReleasedToTheNano(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		b := startProcess(t, d, journaltest.NewDisk())
		b.fund("ws_a", 1000)
		if err := b.openHold("ws_a", "rs_1", 400); err != nil {
			t.Fatal(err)
		}
		b.spendFrom("ws_a", "rs_1", "req_1", 30)
		b.spend("ws_a", "req_2", 500)
		running := b.openFrom("ws_a", "rs_1", "req_3", 100)
		b.wantHold("ws_a", "rs_1", 30, 270)
		b.drain()
		b.wantHold("ws_a", "rs_1", 30, 270)
		b.wantBalance("ws_a", funds.Balance{Balance: 470, Held: 370, Spent: 530})
		all, err := b.poster.Holds.List(t.Context(), "ws_a")
		if err != nil || len(all) != 1 || all[0] != (OpenHold{ID: "rs_1", Kind: "reward", Amount: 400, Spent: 30, Left: 370}) {
			t.Errorf("%+v %v", all, err)
		}
		if proof := b.proof(); !proof.OK {
			t.Errorf("%v", proof.Problems)
		}
		b.endHold("ws_a", "rs_1")
		b.endHold("ws_a", "rs_1")
		b.wantBalance("ws_a", funds.Balance{Balance: 470, Held: 100, Spent: 530}) // what its running request holds
		if err := running.Settle(till.Settlement{Outcome: "finished", Usage: live.Usage{Input: 60}}); err != nil {
			t.Fatal(err)
		}
		b.wantHold("ws_a", "rs_1", 90, 0)
		b.wantBalance("ws_a", funds.Balance{Balance: 410, Spent: 590})
		b.drain()
		b.wantHold("ws_a", "rs_1", 90, 0)
		b.checkProof()
		if all, err := b.poster.Holds.List(t.Context(), "ws_a"); err != nil || len(all) != 0 {
			t.Errorf("%+v %v", all, err)
		}
		if err := b.openHold("ws_a", "rs_1", 1); err == nil {
			t.Error("a hold that has ended was opened again")
		}
		b.checkProof()
	})
}

func TestAHoldOfAnotherWorkspaceIsNeitherSpentNorSeenNorEnded(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		b := startProcess(t, d, journaltest.NewDisk())
		b.fund("ws_a", 1000)
		b.fund("ws_b", 1000)
		if err := b.openHold("ws_a", "rs_1", 400); err != nil {
			t.Fatal(err)
		}
		_, err := b.till.Open(b.t.Context(), journal.Charge{Request: "req_1", Workspace: "ws_b", Hold: "rs_1"}, 10)
		var short *till.InsufficientFunds
		if !errors.As(err, &short) || !short.Ended || short.Free != 0 {
			t.Errorf("%v", err)
		}
		if _, err := b.poster.Holds.Spent(t.Context(), "ws_b", "rs_1"); fault.From(err).Status != 404 {
			t.Errorf("%v", err)
		}
		b.endHold("ws_b", "rs_1")
		b.wantHold("ws_a", "rs_1", 0, 400)
		if err := b.openHold("ws_b", "rs_1", 100); err != nil { // ids are of a workspace
			t.Error(err)
		}
		b.endHold("ws_b", "rs_1")
		b.wantHold("ws_a", "rs_1", 0, 400)
		b.wantBalance("ws_b", funds.Balance{Balance: 1000})
	})
}

func TestAnAmountThatTheWalletCannotCoverIsRefusedAndNothingIsHeld(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		b := startProcess(t, d, journaltest.NewDisk())
		b.fund("ws_a", 1000)
		for _, amount := range []money.Nano{1001, math.MaxInt64} {
			if err := b.openHold("ws_a", "rs_1", amount); fault.From(err).Kind != fault.InsufficientBalance {
				t.Errorf("%d: %v", amount, err)
			}
		}
		for _, amount := range []money.Nano{0, -1, math.MinInt64} {
			if err := b.openHold("ws_a", "rs_1", amount); fault.From(err).Status != 400 {
				t.Errorf("%d: %v", amount, err)
			}
		}
		if err := b.openHold("ws_a", "rs_1", 600); err != nil {
			t.Fatal(err)
		}
		if err := b.openHold("ws_a", "rs_1", 100); fault.From(err).Status != 409 {
			t.Errorf("the same hold again: %v", err)
		}
		if err := b.openHold("ws_a", "rs_2", 401); fault.From(err).Kind != fault.InsufficientBalance {
			t.Error(err)
		}
		b.wantBalance("ws_a", funds.Balance{Balance: 1000, Held: 600})
		if n := dbtest.Count(t, d, "named_holds"); n != 1 {
			t.Errorf("%d rows", n)
		}
	})
}

func TestAnOpeningThatDoesNotCommitFreesItsMoney(t *testing.T) {
	boom := errors.New("boom")
	for name, attempt := range map[string]func(ctx context.Context, d *db.DB, open func(context.Context, *db.Tx) error){
		"an error follows": func(ctx context.Context, d *db.DB, open func(context.Context, *db.Tx) error) {
			_, _ = d.Tx(ctx, func(tx *db.Tx) error { return errors.Join(open(ctx, tx), boom) })
		},
		"a panic follows": func(ctx context.Context, d *db.DB, open func(context.Context, *db.Tx) error) {
			defer func() { _ = recover() }()
			_, _ = d.Tx(ctx, func(tx *db.Tx) error { panic(open(ctx, tx)) })
		},
		"the outer transaction is rolled back": func(ctx context.Context, d *db.DB, open func(context.Context, *db.Tx) error) {
			_, _ = d.Tx(ctx, func(tx *db.Tx) error {
				_, err := d.Tx(tx.Bind(ctx), func(tx *db.Tx) error { return open(ctx, tx) })
				return errors.Join(err, boom)
			})
		},
		"its savepoint is rolled back": func(ctx context.Context, d *db.DB, open func(context.Context, *db.Tx) error) {
			_, _ = d.Tx(ctx, func(tx *db.Tx) error {
				_, _ = d.Tx(tx.Bind(ctx), func(tx *db.Tx) error { return errors.Join(open(ctx, tx), boom) })
				return nil
			})
		},
		"its caller leaves": func(ctx context.Context, d *db.DB, open func(context.Context, *db.Tx) error) {
			ctx, cancel := context.WithCancel(ctx)
			_, _ = d.Tx(ctx, func(tx *db.Tx) error { err := open(ctx, tx); cancel(); return err })
		},
	} {
		t.Run(name, func(t *testing.T) {
			dbtest.Each(t, func(t *testing.T, d *db.DB) {
				b := startProcess(t, d, journaltest.NewDisk())
				b.fund("ws_a", 1000)
				attempt(t.Context(), d, func(ctx context.Context, tx *db.Tx) error {
					err := b.poster.Holds.Open(ctx, tx, "ws_a", "rs_1", "reward", 700)
					if d.Engine == db.SQLite { // else it is the row that holds
						b.wantBalance("ws_a", funds.Balance{Balance: 1000, Held: 700}) // before it commits
					}
					return err
				})
				if err := b.poster.Holds.Resolve(t.Context()); err != nil {
					t.Error(err)
				}
				b.wantBalance("ws_a", funds.Balance{Balance: 1000})
				if n := dbtest.Count(t, d, "named_holds"); n != 0 {
					t.Errorf("%d rows", n)
				}
				if err := b.openHold("ws_a", "rs_1", 1000); err != nil {
					t.Errorf("the next one: %v", err)
				}
			})
		})
	}
}

// Concurrent openings conflict on PostgreSQL, and are run again.
func TestExactlyTheHoldsThatFitAreOpened(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		b := startProcess(t, d, journaltest.NewDisk())
		b.fund("ws_a", 1000)
		var opened, runs atomic.Int64
		var group sync.WaitGroup
		for i := range 12 {
			group.Go(func() {
				_, err := d.Tx(t.Context(), func(tx *db.Tx) error {
					runs.Add(1)
					if err := b.poster.Holds.Open(t.Context(), tx, "ws_a", fmt.Sprint("rs_", i), "reward", 300); err != nil {
						return err
					}
					_, err := db.Exec(t.Context(), tx.In("ws_a"), `UPDATE workspaces SET created_at = created_at + 1 WHERE workspace_id = $1`)
					return err
				})
				switch {
				case err == nil:
					opened.Add(1)
				case fault.From(err).Kind != fault.InsufficientBalance:
					t.Error(err)
				}
			})
		}
		group.Wait()
		// An opening that waits to be run again may have kept another one from fitting.
		if n := opened.Load(); n < 1 || n > 3 || int(n) != dbtest.Count(t, d, "named_holds") {
			t.Errorf("%d were opened in %d runs, and there are %d rows", n, runs.Load(), dbtest.Count(t, d, "named_holds"))
		}
		b.wantBalance("ws_a", funds.Balance{Balance: 1000, Held: money.Nano(300 * opened.Load())})
		next := b.killed()
		next.recover()
		next.wantBalance("ws_a", funds.Balance{Balance: 1000, Held: money.Nano(300 * opened.Load())})
	})
}

func TestAStartRestoresOpenHoldsAndChargesTheirOrphansToThem(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		b := startProcess(t, d, journaltest.NewDisk())
		b.fund("ws_a", 1000)
		for id, amount := range map[string]money.Nano{"rs_open": 400, "rs_ended": 200} {
			if err := b.openHold("ws_a", id, amount); err != nil {
				t.Fatal(err)
			}
		}
		b.spendFrom("ws_a", "rs_open", "req_1", 30)
		b.drain()
		b.spendFrom("ws_a", "rs_open", "req_2", 5) // settled, and not posted
		for _, id := range []string{"rs_open", "rs_ended"} {
			if err := b.openFrom("ws_a", id, "req_of_"+id, 100).RecordUsage(live.Usage{Input: 70}); err != nil {
				t.Fatal(err)
			}
		}
		b.endHold("ws_a", "rs_ended")
		b.wantHold("ws_a", "rs_open", 35, 265)
		b.wantBalance("ws_a", funds.Balance{Balance: 965, Held: 465, Spent: 35})

		next := b.killed()
		next.recover()
		next.wantHold("ws_a", "rs_open", 105, 295)
		next.wantHold("ws_a", "rs_ended", 70, 0)
		next.wantBalance("ws_a", funds.Balance{Balance: 825, Held: 295, Spent: 175})
		if proof := next.proof(); !proof.OK {
			t.Errorf("%v", proof.Problems)
		}
		next.spendFrom("ws_a", "rs_open", "req_3", 295)
		next.drain()
		next.wantHold("ws_a", "rs_open", 400, 0)
		next.endHold("ws_a", "rs_open")
		next.checkProof()
	})
}

// A server that has regained the database hears of what another server did meanwhile.
func TestFillFollowsTheRowsAndSparesWhatIsBeingOpened(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		b := startProcess(t, d, journaltest.NewDisk())
		b.fund("ws_a", 1000)
		for _, id := range []string{"rs_kept", "rs_ended", "rs_lost"} {
			if err := b.openHold("ws_a", id, 100); err != nil {
				t.Fatal(err)
			}
		}
		b.spendFrom("ws_a", "rs_kept", "req_1", 10) // not posted
		running := b.openFrom("ws_a", "rs_ended", "req_2", 20)
		for _, change := range []string{
			`UPDATE named_holds SET ended_at = 1 WHERE id = 'rs_ended'`, `DELETE FROM named_holds WHERE id = 'rs_lost'`,
			`INSERT INTO named_holds (workspace_id, id, kind, amount, spent, created_at, ended_at) VALUES ('ws_a', 'rs_new', 'reward', 50, 0, 1, 0)`,
		} {
			if _, err := db.Exec(t.Context(), d.Across("test"), change); err != nil {
				t.Fatal(err)
			}
		}
		_, err := d.Tx(t.Context(), func(tx *db.Tx) error {
			if err := b.poster.Holds.Open(t.Context(), tx, "ws_a", "rs_opening", "reward", 200); err != nil {
				return err
			}
			return b.poster.Fill(t.Context())
		})
		if err != nil {
			t.Fatal(err)
		}
		b.wantHold("ws_a", "rs_kept", 10, 90)
		b.wantHold("ws_a", "rs_ended", 0, 0)
		b.wantHold("ws_a", "rs_new", 0, 50)
		b.wantHold("ws_a", "rs_opening", 0, 200)
		b.wantBalance("ws_a", funds.Balance{Balance: 990, Held: 90 + 20 + 50 + 200, Spent: 10})
		running.Drop()
		for _, id := range []string{"rs_kept", "rs_new", "rs_opening"} {
			b.endHold("ws_a", id)
		}
		b.drain()
		b.checkProof()
	})
}

// A process that was killed may have sent a COMMIT that takes effect after the next process has filled its memory.
func TestAHoldThatADeadProcessOpensLateIsAdded(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		b := startProcess(t, d, journaltest.NewDisk())
		b.fund("ws_a", 1000)
		if err := startProcess(t, d, journaltest.NewDisk()).openHold("ws_a", "rs_1", 400); err != nil {
			t.Fatal(err)
		}
		for range 2 {
			if err := b.poster.Apply(t.Context(), db.Change{Kind: changedHold, Workspace: "ws_a", Subject: "rs_1"}); err != nil {
				t.Fatal(err)
			}
		}
		b.wantHold("ws_a", "rs_1", 0, 400)
		b.wantBalance("ws_a", funds.Balance{Balance: 1000, Held: 400})
	})
}

// Memory keeps all of this from happening, unless two servers spent from one wallet.
func TestTheLedgerTakesNoMoreFromAHoldThanIsInItAndNothingThatIsReserved(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		b := startProcess(t, d, journaltest.NewDisk())
		b.fund("ws_a", 1000)
		for id, amount := range map[string]money.Nano{"rs_open": 400, "rs_ended": 200} {
			if err := b.openHold("ws_a", id, amount); err != nil {
				t.Fatal(err)
			}
		}
		b.endHold("ws_a", "rs_ended")
		var charges []*journal.Charge
		for i, one := range []struct {
			hold string
			cost int64
		}{{"rs_open", 150}, {"", 500}, {"rs_open", 300}, {"rs_ended", 90}, {"", 50}, {"rs_ended", 90}, {"rs_none", 5}, {"rs_open", 1}} {
			charges = append(charges, &journal.Charge{
				Request: fmt.Sprint("req_", i), Workspace: "ws_a", Key: "key_1", Route: "chat", Hold: one.hold, Outcome: "finished",
				Usage: live.Usage{Input: one.cost}, Price: simulated.Price.Rates, Cost: money.Nano(one.cost), Charged: money.Nano(one.cost),
			})
		}
		var paid map[payer]money.Nano
		_, err := d.Tx(t.Context(), func(tx *db.Tx) (err error) {
			paid, err = postUsage(t.Context(), tx, usage.NewDays(), byWorkspace(charges), nil)
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
		var each []int64
		for _, row := range b.rows() {
			each = append(each, int64(row.Charged))
		}
		if !slices.Equal(each, []int64{150, 500, 250, 90, 10, 0, 0, 0}) {
			t.Errorf("%v %v", each, paid)
		}
		if paid[payer{"ws_a", "rs_open"}] != 400 || paid[payer{"ws_a", "rs_ended"}] != 90 || paid[payer{"ws_a", ""}] != 510 {
			t.Errorf("%v", paid)
		}
		if proof := b.proof(); len(proof.Problems) != 1 || !strings.Contains(proof.Problems[0], "is a hold of its workspace: not so for req_6") {
			t.Errorf("%v", proof.Problems)
		}
	})
}

// What was spent is never seen to fall, however it is read beside settling, posting and ending.
func TestWhatAHoldHasSpentNeverFalls(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		b := startProcess(t, d, journaltest.NewDisk())
		b.fund("ws_a", 10_000)
		if err := b.openHold("ws_a", "rs_1", 3000); err != nil {
			t.Fatal(err)
		}
		done := make(chan struct{})
		var group sync.WaitGroup
		group.Go(func() {
			for last := money.Nano(0); ; {
				spent, err := b.poster.Holds.Spent(t.Context(), "ws_a", "rs_1")
				if err != nil || spent < last || spent > 3000 {
					t.Errorf("%d were spent, and %d before: %v", spent, last, err)
					return
				}
				last = spent
				select {
				case <-done:
					return
				default:
				}
			}
		})
		for i := range 60 {
			b.spendFrom("ws_a", "rs_1", fmt.Sprint("req_", i), 40)
			if i%3 == 0 {
				b.drain()
			}
		}
		b.endHold("ws_a", "rs_1")
		b.drain()
		close(done)
		group.Wait()
		b.wantHold("ws_a", "rs_1", 2400, 0)
		b.checkProof()
	})
}

func TestVerifyFindsEveryBreachOfAHold(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		b := startProcess(t, d, journaltest.NewDisk())
		b.fund("ws_a", 1000)
		b.fund("ws_b", 1000)
		if err := b.openHold("ws_a", "rs_1", 400); err != nil {
			t.Fatal(err)
		}
		b.spendFrom("ws_a", "rs_1", "req_1", 30)
		b.drain()
		for breach, says := range map[string]string{
			`UPDATE named_holds SET spent = spent - 1`:     "has spent what its usage rows were charged: not so for ws_a/rs_1",
			`UPDATE usage_rows SET hold_id = ''`:           "has spent what its usage rows were charged: not so for ws_a/rs_1",
			`UPDATE usage_rows SET hold_id = 'rs_2'`:       "is a hold of its workspace: not so for req_1",
			`DELETE FROM named_holds`:                      "is a hold of its workspace: not so for req_1",
			`UPDATE named_holds SET workspace_id = 'ws_b'`: "is a hold of its workspace: not so for req_1",
			`UPDATE named_holds SET amount = 29`:           "no hold has spent more than its amount, or less than nothing: not so for ws_a/rs_1",
			`UPDATE named_holds SET amount = 1001`:         "covers what its open holds have left: not so for ws_a",
			`UPDATE usage_rows SET gpu_seconds = 60, price = '{"input_per_mtok_usd":0.001,"output_per_mtok_usd":0,"gpu_second_per_million_usd":1}'`: "every row costs its tokens at its price: not so for req_1",
		} {
			var problems []string
			_, err := d.Tx(t.Context(), func(tx *db.Tx) error {
				if _, err := db.Exec(t.Context(), tx.Across("test"), breach); err != nil {
					t.Fatal(err)
				}
				proof, err := prove(t.Context(), tx.Across("test"))
				problems = proof.Problems
				return errors.Join(err, errLost)
			})
			if !errors.Is(err, errLost) || !strings.Contains(strings.Join(problems, "\n"), says) {
				t.Errorf("%s: %q, %v", breach, problems, err)
			}
		}
	})
}

// A charge that the ledger cannot hold is set aside: the hold has not spent it.
func TestAChargeThatIsSetAsideIsNotSpentFromItsHold(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		b := startProcess(t, d, journaltest.NewDisk())
		b.fund("ws_a", 1000)
		if err := b.openHold("ws_a", "rs_1", 400); err != nil {
			t.Fatal(err)
		}
		b.poison(isRequest("req_bad"))
		b.spendFrom("ws_a", "rs_1", "req_good", 30)
		b.spendFrom("ws_a", "rs_1", "req_bad", 50)
		b.drain()
		b.wantHold("ws_a", "rs_1", 30, 370)
		b.wantBalance("ws_a", funds.Balance{Balance: 970, Held: 370, Spent: 30})
		b.endHold("ws_a", "rs_1")
		b.wantBalance("ws_a", funds.Balance{Balance: 970, Spent: 30})
		b.wantHold("ws_a", "rs_1", 30, 0)
	})
}

// Things other than tokens are priced, posted and proven like them.
func TestSecondsOfAGPUArePostedAndProven(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		b := startProcess(t, d, journaltest.NewDisk())
		b.fund("ws_a", 1000)
		if err := b.openHold("ws_a", "ded_1", 400); err != nil {
			t.Fatal(err)
		}
		tab := b.openFrom("ws_a", "ded_1", "req_1", 300)
		price := live.Price{Rates: live.Rates{GPUSecond: 2_000_000}}
		tab.SetModel(&live.Model{ID: "gpu", Provider: simulated.Provider, Price: price}, price, false)
		if err := tab.Settle(till.Settlement{Outcome: "finished", Usage: live.Usage{GPUSeconds: 60}}); err != nil {
			t.Fatal(err)
		}
		b.drain()
		b.wantHold("ws_a", "ded_1", 120, 280)
		rows, err := NewStore(d, nil, b.funds).Usage(t.Context(), "ws_a", 10, 0)
		if err != nil || len(rows) != 1 || rows[0].GPU != 60 || rows[0].Hold != "ded_1" || rows[0].Charged != 120 {
			t.Errorf("%+v %v", rows, err)
		}
		b.endHold("ws_a", "ded_1")
		b.checkProof()
	})
}
