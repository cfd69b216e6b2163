package wallet

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"

	"pgregory.net/rapid"

	"sovereign/internal/base/money"
	"sovereign/internal/base/tenant"
	"sovereign/internal/live"
	"sovereign/internal/plane/journal"
	"sovereign/internal/plane/journal/journaltest"
	"sovereign/internal/plane/till"
	"sovereign/internal/store/db"
	"sovereign/internal/store/db/dbtest"
)

// startServers returns servers that share a database, and run until the test ends.
func startServers(t *testing.T, d *db.DB, n int) []*process {
	t.Helper()
	all := make([]*process, n)
	ctx, stop := context.WithCancel(context.Background())
	var group sync.WaitGroup
	for i := range all {
		all[i] = startProcess(t, d, journaltest.NewDisk())
		group.Go(func() { all[i].poster.Escrow.Run(ctx) })
	}
	t.Cleanup(func() { stop(); group.Wait() })
	return all
}

// checkPot fails unless the slices are within what there is.
func checkPot(t *testing.T, d *db.DB, p payer) pot {
	t.Helper()
	found, err := readPot(t.Context(), d.In(p.ws), p, "")
	if err != nil || found.available() < 0 {
		t.Errorf("%+v: %v", found, err)
	}
	return found
}

// drainAll posts everything and gives everything back, and proves the ledger.
func drainAll(t *testing.T, d *db.DB, all []*process) {
	t.Helper()
	for _, b := range all {
		if err := errors.Join(b.poster.Drain(t.Context()), b.poster.Escrow.Leave(t.Context())); err != nil {
			t.Fatal(err)
		}
	}
	sum, err := db.One[money.Nano](t.Context(), d.Across("test"),
		`SELECT CAST(COALESCE(SUM(amount), 0) AS BIGINT) FROM wallet_slices`)
	if err != nil || sum != 0 {
		t.Errorf("%d are in slices after everybody has left: %v", sum, err)
	}
	proof, err := NewStore(d, nil, all[0].funds).Verify(t.Context())
	if err != nil || !proof.OK {
		t.Errorf("%+v %v", proof, err)
	}
}

func TestExactlyAsManyRequestsRunOnAllServersAsTheWalletCovers(t *testing.T) {
	d := dbtest.Migrated(t, db.Postgres)
	all := startServers(t, d, 3)
	const callers, covered, worst = 1000, 10, 1_000_000
	all[0].fund("ws_a", covered*worst+worst-1)
	var ran, refused atomic.Int64
	var running sync.Map
	var group sync.WaitGroup
	for i := range callers {
		group.Go(func() {
			b := all[i%len(all)]
			for {
				tab, err := b.till.Open(t.Context(), journal.Charge{Request: fmt.Sprint("req_", i), Workspace: "ws_a", Route: "chat"}, worst)
				var short *till.InsufficientFunds
				switch {
				case err == nil:
					tab.SetModel(simulated, simulated.Price, false)
					running.Store(&tab, true)
					ran.Add(1)
				case errors.As(err, &short):
					refused.Add(1)
				case t.Context().Err() == nil: // 503: it waited for too long in the queue
					continue
				}
				return
			}
		})
	}
	group.Wait()
	if ran.Load() != covered || refused.Load() != callers-covered {
		t.Errorf("%d ran and %d were refused", ran.Load(), refused.Load())
	}
	checkPot(t, d, payer{ws: "ws_a"})
	running.Range(func(tab, _ any) bool {
		if err := tab.(*till.Tab).Settle(till.Settlement{Outcome: "finished", Usage: live.Usage{Input: worst / 2}}); err != nil {
			t.Error(err)
		}
		return true
	})
	drainAll(t, d, all)
}

func TestNothingIsRefusedWhileWhatIsIdleElsewhereWouldSuffice(t *testing.T) {
	d := dbtest.Migrated(t, db.Postgres)
	all := startServers(t, d, 3)
	const balance = 1000 * money.Dollar / 1000
	all[0].fund("ws_a", balance)
	for i, b := range all { // each has a slice, and uses nothing of it
		tab := b.open("ws_a", fmt.Sprint("req_idle_", i), 1000)
		tab.Drop()
		if b.funds.Free("ws_a") == 0 {
			t.Error("a server keeps nothing of a wallet with plenty")
		}
	}
	if found := checkPot(t, d, payer{ws: "ws_a"}); found.available() >= balance {
		t.Error("nothing is in slices")
	}
	tab := all[1].open("ws_a", "req_all", balance)
	_, err := all[2].till.Open(t.Context(), journal.Charge{Request: "req_more", Workspace: "ws_a"}, 1)
	if short := (*till.InsufficientFunds)(nil); !errors.As(err, &short) || short.Free != 0 {
		t.Errorf("one nano of nothing: %v", err)
	}
	tab.Drop()
	all[2].open("ws_a", "req_after", balance).Drop()
	drainAll(t, d, all)
}

func TestANamedHoldIsSpentOnAllServersAndNotBeyondItsAmount(t *testing.T) {
	d := dbtest.Migrated(t, db.Postgres)
	all := startServers(t, d, 3)
	all[0].fund("ws_a", 10_000_000)
	all[1].open("ws_a", "req_1", 1000).Drop() // so that a server has a slice of the wallet
	if err := all[0].openHold("ws_a", "rs_1", 10_000_000); err != nil {
		t.Fatal(err)
	}
	var group sync.WaitGroup
	for i := range 60 {
		group.Go(func() {
			b := all[i%len(all)]
			charge := journal.Charge{Request: fmt.Sprint("req_r_", i), Workspace: "ws_a", Route: "chat", Hold: "rs_1"}
			tab, err := b.till.Open(t.Context(), charge, 500_000)
			if err != nil {
				return
			}
			tab.SetModel(simulated, simulated.Price, false)
			if err := tab.Settle(till.Settlement{Outcome: "finished", Usage: live.Usage{Input: 400_000}}); err != nil {
				t.Error(err)
			}
		})
	}
	group.Wait()
	for _, b := range all {
		b.drain()
	}
	row, err := findHold(t.Context(), d.In("ws_a"), "rs_1")
	if err != nil || row.Spent > row.Amount || row.Spent < 9_600_000 {
		t.Errorf("%+v %v", row, err)
	}
	all[2].endHold("ws_a", "rs_1")
	for _, b := range all {
		if err := b.poster.Fill(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	all[2].open("ws_a", "req_rest", 10_000_000-row.Spent).Drop()
	drainAll(t, d, all)
}

// Servers that post to the same wallet at once do not start anew: once they had to, they wait for each other before
// they read anything.
func TestServersThatPostToOneWalletTakeTurns(t *testing.T) {
	d := dbtest.Migrated(t, db.Postgres)
	all := make([]*process, 3)
	for i := range all {
		all[i] = startProcess(t, d, journaltest.NewDisk())
	}
	all[0].fund("ws_a", 1_000_000_000)
	var runs, commits atomic.Int64
	for _, b := range all {
		b.poster.tx = func(ctx context.Context, fn func(*db.Tx) error) (db.Version, error) {
			commits.Add(1)
			return d.Tx(ctx, func(tx *db.Tx) error {
				runs.Add(1)
				return fn(tx)
			})
		}
	}
	post := func(what string) {
		for round := range 10 {
			var group sync.WaitGroup
			for i, b := range all {
				for n := range 20 {
					b.spend("ws_a", fmt.Sprint("req_", what, i, "_", round, "_", n), 10)
				}
			}
			for _, b := range all {
				group.Go(b.drain)
			}
			group.Wait()
		}
	}
	for _, b := range all {
		b.poster.turns = turnsAfterConflict
	}
	post("in turns")
	if runs.Load() != commits.Load() {
		t.Errorf("%d postings ran %d times", commits.Load(), runs.Load())
	}
	for _, b := range all {
		b.poster.turns = 0 // as at a start
	}
	post("at once")
	drainAll(t, d, all)
	if got := all[0].balance("ws_a"); got.Balance != 1_000_000_000-2*3*10*20*10 {
		t.Errorf("%+v", got)
	}
}

// A server that has not heard yet of the end of a named hold gives what it has of it to the wallet all the same.
func TestTheSliceOfAHoldWhoseEndWasNotHeardOfIsOfTheWallet(t *testing.T) {
	d := dbtest.Migrated(t, db.Postgres)
	all := startServers(t, d, 2)
	all[0].fund("ws_a", 10_000_000)
	if err := all[0].openHold("ws_a", "rs_1", 8_000_000); err != nil {
		t.Fatal(err)
	}
	tab, err := all[1].till.Open(t.Context(), journal.Charge{Request: "req_1", Workspace: "ws_a", Route: "chat", Hold: "rs_1"}, 1000)
	if err != nil {
		t.Fatal(err)
	}
	tab.Drop()
	if kept := all[1].funds.Look(payer{"ws_a", "rs_1"}.funds()); kept.Free == 0 {
		t.Fatal("the server keeps nothing of the hold")
	}
	if _, err := d.Tx(t.Context(), func(tx *db.Tx) error { // nobody is told
		_, err := endHold(t.Context(), tx.In("ws_a"), "rs_1")
		return err
	}); err != nil {
		t.Fatal(err)
	}
	all[1].open("ws_a", "req_all", 10_000_000).Drop()
	for _, b := range all {
		if err := b.poster.Fill(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	drainAll(t, d, all)
}

// What requests hold, and what is not posted, stays with a server that leaves, until that is posted.
func TestAServerThatLeavesKeepsWhatItOwes(t *testing.T) {
	d := dbtest.Migrated(t, db.Postgres)
	b := startProcess(t, d, journaltest.NewDisk())
	for _, ws := range []tenant.ID{"ws_held", "ws_settled", "ws_free"} {
		b.fund(ws, 1_000_000)
		b.open(ws, "req_"+string(ws), 1000).Drop()
	}
	tab := b.open("ws_held", "req_1", 1000)
	b.spend("ws_settled", "req_2", 500)
	if err := b.poster.Escrow.Leave(t.Context()); err != nil {
		t.Fatal(err)
	}
	rows, err := readSlices(t.Context(), d.Across("test"), b.poster.Escrow.node, []tenant.ID{"ws_held", "ws_settled", "ws_free"}, "")
	if err != nil || rows[payer{ws: "ws_held"}] != 1000 || rows[payer{ws: "ws_settled"}] != 500 || rows[payer{ws: "ws_free"}] != 0 {
		t.Errorf("%v %v", rows, err)
	}
	if err := tab.Settle(till.Settlement{Outcome: "finished", Usage: live.Usage{Input: 1000}}); err != nil {
		t.Fatal(err)
	}
	drainAll(t, d, []*process{b})
	for ws, want := range map[tenant.ID]money.Nano{"ws_held": 999_000, "ws_settled": 999_500, "ws_free": 1_000_000} {
		if got := b.balance(ws); got.Balance != want {
			t.Errorf("%s has %d, want %d", ws, got.Balance, want)
		}
	}
}

// A server whose change of one slice does not come to an end gives back the others all the same.
func TestARecallDoesNotWaitForThatOfAnotherWallet(t *testing.T) {
	d := dbtest.Migrated(t, db.Postgres)
	all := startServers(t, d, 2)
	const worst = 1_000_000
	for _, ws := range []tenant.ID{"ws_a", "ws_b"} {
		all[0].fund(ws, 20*worst)
		all[1].open(ws, "req_"+string(ws), 10).Drop()
	}
	stuck, done := all[1].poster.Escrow.use(payer{ws: "ws_a"})
	stuck.mu.Lock()
	defer done()
	defer stuck.mu.Unlock()
	var late *till.Tab
	if tab, err := all[0].till.Open(t.Context(), journal.Charge{Request: "req_1", Workspace: "ws_a", Route: "chat"}, 20*worst); err == nil {
		late = &tab
		t.Error("the other server has not answered")
	}
	if late != nil {
		late.Drop()
	}
	all[0].open("ws_b", "req_2", 20*worst).Drop()
}

// What a journal has of a hold that has ended, without a slice, is paid from the wallet: a release that knew no slices
// may have written it.
func TestARecoveredChargeOfAnEndedHoldIsPaidFromTheWallet(t *testing.T) {
	d := dbtest.Migrated(t, db.Postgres)
	b := startProcess(t, d, journaltest.NewDisk())
	b.fund("ws_a", 1_000_000)
	if err := b.openHold("ws_a", "rs_1", 10_000); err != nil {
		t.Fatal(err)
	}
	b.spendFrom("ws_a", "rs_1", "req_1", 4000)
	if err := b.journal.Sync(); err != nil {
		t.Fatal(err)
	}
	_, err := d.Tx(t.Context(), func(tx *db.Tx) error {
		if _, err := endHold(t.Context(), tx.In("ws_a"), "rs_1"); err != nil {
			return err
		}
		return dropSlices(t.Context(), tx, b.poster.Escrow.node)
	})
	if err != nil {
		t.Fatal(err)
	}
	next := b.killed()
	next.recover()
	if got := next.balance("ws_a"); got.Balance != 996_000 {
		t.Errorf("%+v", got)
	}
	drainAll(t, d, []*process{next})
}

// A slice whose target has fallen below what is free in it is not made smaller by a transaction that takes.
func TestATakeNeverMakesASliceSmaller(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		amount := rapid.Int64Range(-1_000_000, 1_000_000)
		available := money.Nano(rapid.Int64Range(0, 1_000_000).Draw(t, "available"))
		lacks, room := money.Nano(amount.Draw(t, "lacks")), money.Nano(amount.Draw(t, "room"))
		grant, filled := size(available, lacks, room, rapid.Bool().Draw(t, "scarce"))
		switch {
		case grant < 0 || grant > available:
			t.Fatalf("%d of %d", grant, available)
		case grant < lacks && (lacks <= available || filled):
			t.Fatalf("%d, and %d are lacking", grant, lacks)
		}
	})
}

// What was recalled of a slice long ago does not recall a slice that is taken anew.
func TestANewSliceOwesNothingToFormerRecalls(t *testing.T) {
	d := dbtest.Migrated(t, db.Postgres)
	b := startProcess(t, d, journaltest.NewDisk())
	b.fund("ws_a", 1_000_000)
	b.open("ws_a", "req_1", 10).Drop()
	if _, err := d.Tx(t.Context(), func(tx *db.Tx) error { return askBack(t.Context(), tx, payer{ws: "ws_a"}) }); err != nil {
		t.Fatal(err)
	}
	drainAll(t, d, []*process{b})
	b.open("ws_a", "req_2", 10).Drop()
	asked, err := recalled(t.Context(), d, b.poster.Escrow.node)
	if err != nil || len(asked) != 0 || b.funds.Free("ws_a") == 0 {
		t.Errorf("%v are to be given back, %v; %v are free", asked, err, b.funds.Free("ws_a"))
	}
}

// A change whose answer is lost either took place or not: the slice in memory follows the row.
func TestASliceInDoubtIsNeitherLostNorDoubled(t *testing.T) {
	for _, end := range []int{undone, committed} {
		t.Run(strconv.Itoa(end), func(t *testing.T) {
			d := dbtest.Migrated(t, db.Postgres)
			b := startProcess(t, d, journaltest.NewDisk())
			b.fund("ws_a", 1_000_000)
			e := b.poster.Escrow
			lose := func() {
				e.tx = func(ctx context.Context, fn func(*db.Tx) error) (db.Version, error) {
					e.tx = d.Tx
					lost := errors.New("connection lost")
					wrapped := func(tx *db.Tx) error {
						if err := fn(tx); err != nil {
							return err
						}
						return lost
					}
					if end == committed {
						if _, err := d.Tx(ctx, fn); err != nil {
							t.Error(err)
						}
					} else {
						_, _ = d.Tx(ctx, wrapped)
					}
					return 0, lost
				}
				e.onEnd = func(tx *db.Tx, told func(db.Outcome)) {
					e.onEnd = (*db.Tx).OnEnd
					tx.OnEnd(func(db.Outcome) { told(db.InDoubt) })
				}
			}
			lose()
			if _, err := b.till.Open(t.Context(), journal.Charge{Request: "req_1", Workspace: "ws_a"}, 10); err == nil {
				t.Error("held in doubt")
			}
			b.open("ws_a", "req_2", 1000).Drop()
			is := e.funds.Look(payer{ws: "ws_a"}.funds())
			row, err := readSlices(t.Context(), d.Across("test"), e.node, []tenant.ID{"ws_a"}, "")
			if err != nil || row[payer{ws: "ws_a"}] != is.Amount {
				t.Errorf("the row has %v, memory %+v: %v", row, is, err)
			}
			lose()
			_ = e.Leave(t.Context())
			drainAll(t, d, []*process{b})
			if is := e.funds.Look(payer{ws: "ws_a"}.funds()); is.Amount != 0 {
				t.Errorf("%+v after everything went back", is)
			}
		})
	}
}

func TestAServerThatIsForgottenTakesNothingAnyMore(t *testing.T) {
	d := dbtest.Migrated(t, db.Postgres)
	gone, other := startProcess(t, d, journaltest.NewDisk()), startProcess(t, d, journaltest.NewDisk())
	gone.fund("ws_a", 1_000_000)
	tab := gone.open("ws_a", "req_gone", 600_000)
	forget := func() (most money.Nano, err error) {
		_, err = d.Tx(t.Context(), func(tx *db.Tx) (err error) {
			most, err = Forget(t.Context(), tx, tenant.Operator, gone.journal.ID)
			return err
		})
		return most, err
	}
	join := `INSERT INTO nodes (id, epoch, beat, applied, serving, draining, ended, forgotten, name, address, release, settings,
		joined_at, seen_at) VALUES ($1, 1, 1, 1, TRUE, FALSE, FALSE, FALSE, '', '', '', '', 1, 1)`
	if _, err := db.Exec(t.Context(), d.Across("test"), join, gone.journal.ID); err != nil {
		t.Fatal(err)
	}
	if _, err := forget(); err == nil {
		t.Error("a member is forgotten")
	}
	if _, err := db.Exec(t.Context(), d.Across("test"), `UPDATE nodes SET ended = TRUE WHERE id = $1`, gone.journal.ID); err != nil {
		t.Fatal(err)
	}
	if _, err := other.till.Open(t.Context(), journal.Charge{Request: "req_early", Workspace: "ws_a"}, 500_000); err == nil {
		t.Error("the slice of a server was used whose journal is neither posted nor forgotten")
	}
	if most, err := forget(); err != nil || most != 600_000 {
		t.Errorf("at most %d: %v", most, err)
	}
	other.open("ws_a", "req_all", 1_000_000).Drop()
	if err := tab.Settle(till.Settlement{Outcome: "finished", Usage: live.Usage{Input: 600_000}}); err != nil {
		t.Error(err)
	}
	gone.drain() // the operator pays
	if b := other.balance("ws_a"); b.Balance != 1_000_000 || b.Spent != 0 {
		t.Errorf("%+v", b)
	}
	drainAll(t, d, []*process{other})
}

// The journal of a server that died is posted against its slices when it starts again, and then they go back.
func TestARestartPostsAgainstItsSlicesAndReturnsThem(t *testing.T) {
	d := dbtest.Migrated(t, db.Postgres)
	b, other := startProcess(t, d, journaltest.NewDisk()), startProcess(t, d, journaltest.NewDisk())
	b.fund("ws_a", 1_000_000)
	tab := b.open("ws_a", "req_1", 700_000)
	if err := tab.Settle(till.Settlement{Outcome: "finished", Usage: live.Usage{Input: 300_000}}); err != nil {
		t.Fatal(err)
	}
	open := b.open("ws_a", "req_2", 100_000)
	if err := open.RecordUsage(live.Usage{Input: 50_000}); err != nil {
		t.Fatal(err)
	}
	next := b.killed()
	next.recover()
	if got := other.balance("ws_a"); got.Balance != 650_000 || got.Held != 0 {
		t.Errorf("%+v", got)
	}
	other.open("ws_a", "req_3", 650_000).Drop()
	drainAll(t, d, []*process{next, other})
}
