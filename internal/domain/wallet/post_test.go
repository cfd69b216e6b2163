package wallet

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"sovereign/internal/base/clock"
	"sovereign/internal/base/money"
	"sovereign/internal/base/secret"
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

func TestAWalletThatCannotPayIsEmptiedAndTheRestIsOverage(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		if d.Engine == db.Postgres {
			t.Skip("a server takes no more than its slice there: TestAServerThatIsForgottenTakesNothingAnyMore")
		}
		b := startProcess(t, d, journaltest.NewDisk())
		b.fund("ws_a", 100)
		b.fund("ws_none", 0)
		b.fund("ws_rich", 500)
		b.funds.Credit("ws_a", 1000) // as if another server had spent the rest meanwhile
		b.funds.Credit("ws_none", 1000)
		for i, cost := range []int64{60, 0, 70, 50} {
			b.spend("ws_a", fmt.Sprint("req_a_", i), cost)
		}
		b.spend("ws_none", "req_none", 30)
		b.spend("ws_rich", "req_rich", 30)
		b.drain()
		if got := b.balance("ws_a"); got != (funds.Balance{Balance: 900, Spent: 100}) {
			t.Errorf("memory has %+v, and the ledger took 100", got)
		}
		want := []usedRow{
			{"req_a_0", "finished", 60, 60},
			{"req_a_1", "finished", 0, 0},
			{"req_a_2", "finished", 70, 40},
			{"req_a_3", "finished", 50, 0},
			{"req_none", "finished", 30, 0},
			{"req_rich", "finished", 30, 30},
		}
		if got := b.rows(); !slices.Equal(got, want) {
			t.Errorf("%+v, want %+v", got, want)
		}
		type row struct {
			WorkspaceID string
			Account     string
			Amount      money.Nano
		}
		balances, err := db.Query[row](t.Context(), d.Across("test"), `SELECT workspace_id, account, amount FROM ledger_balances ORDER BY workspace_id, account`)
		wantBalances := []row{
			{"ws_a", "funding", -100},
			{"ws_a", "overage", -80},
			{"ws_a", "usage", 180},
			{"ws_a", "wallet", 0},
			{"ws_none", "overage", -30},
			{"ws_none", "usage", 30},
			{"ws_none", "wallet", 0},
			{"ws_rich", "funding", -500},
			{"ws_rich", "usage", 30},
			{"ws_rich", "wallet", 470},
		}
		if err != nil || !slices.Equal(balances, wantBalances) {
			t.Errorf("%+v %v, want %+v", balances, err, wantBalances)
		}
		if proof := b.proof(); !proof.OK {
			t.Error(proof.Problems)
		}
		if err := b.poster.Fill(t.Context()); err != nil {
			t.Fatal(err)
		}
		if got := b.balance("ws_a"); got != (funds.Balance{Spent: 100}) {
			t.Errorf("memory has %+v", got)
		}
		b.checkProof()
	})
}

func TestVerifyFindsEveryBreachOfUsage(t *testing.T) {
	breaches := map[string]struct{ breach, says string }{
		"a row's tokens were changed":         {`UPDATE usage_rows SET output = output + 1 WHERE request_id = 'req_2'`, "costs its tokens at its price: not so for req_2"},
		"a row's cached tokens were changed":  {`UPDATE usage_rows SET cached = 2 WHERE request_id = 'req_2'`, "costs its tokens at its price: not so for req_2"},
		"a cost was changed":                  {`UPDATE usage_rows SET cost = cost + 1 WHERE request_id = 'req_2'`, "cost what its transfer used"},
		"two costs were changed":              {`UPDATE usage_rows SET cost = cost + CASE request_id WHEN 'req_1' THEN 1 ELSE -1 END WHERE request_id IN ('req_1', 'req_2')`, "costs its tokens at its price: not so for req_1"},
		"a price was changed":                 {`UPDATE usage_rows SET price = '{"input_per_mtok_usd":5,"cached_input_per_mtok_usd":1,"output_per_mtok_usd":1}' WHERE request_id = 'req_2'`, "costs its tokens at its price: not so for req_2"},
		"a price cannot be read":              {`UPDATE usage_rows SET price = 'x' WHERE request_id = 'req_2'`, "price of req_2 cannot be read"},
		"a row was deleted":                   {`DELETE FROM usage_rows WHERE request_id = 'req_1'`, "cost what its transfer used"},
		"a free row was charged":              {`UPDATE usage_rows SET charged = 1 WHERE request_id = 'req_free'`, "charged more than it costs"},
		"a charge was lowered":                {`UPDATE usage_rows SET charged = charged - 1 WHERE request_id = 'req_2'`, "took from the wallet"},
		"a charge was moved to another row":   {`UPDATE usage_rows SET charged = charged + CASE request_id WHEN 'req_1' THEN 4 ELSE -4 END WHERE request_id IN ('req_1', 'req_2')`, "charged more than it costs"},
		"a charge is below nothing":           {`UPDATE usage_rows SET charged = -1 WHERE request_id = 'req_free'`, "less than nothing"},
		"a row left its workspace":            {`UPDATE usage_rows SET workspace_id = 'ws_b' WHERE request_id = 'req_2'`, "belongs to a transfer of its workspace: not so for req_2"},
		"a row left its transfer":             {`UPDATE usage_rows SET transfer_id = 'txn_none' WHERE request_id = 'req_2'`, "belongs to a transfer of its workspace: not so for req_2"},
		"a row is of a transfer that is none": {`UPDATE usage_rows SET transfer_id = 'txn_topup_ws_a' WHERE request_id = 'req_2'`, "belongs to a transfer of its workspace: not so for req_2"},
		"the sum of a day was changed":        {`UPDATE usage_days SET cost = cost + 1 WHERE workspace_id = 'ws_a'`, "the sum of its rows: not so for ws_a/"},
		"the sum of a day was deleted":        {`DELETE FROM usage_days WHERE workspace_id = 'ws_b'`, "the sum of its rows: not so for ws_b/"},
		"a day was closed without its sums":   {`INSERT INTO usage_closed (workspace_id, before) VALUES ('ws_a', 9999999)`, "the sums of closed days are those of their rows: not so for ws_a/"},
		"a row was copied":                    {`INSERT INTO usage_rows (request_id, workspace_id, transfer_id, key_id, at, route, model, requested, alias, provider, outcome, counted, own_key, input, cached, written, audio_input, output, reasoning, audio_output, searches, price, cost, charged) SELECT 'req_copy', workspace_id, transfer_id, key_id, at, route, model, requested, alias, provider, outcome, counted, own_key, input, cached, written, audio_input, output, reasoning, audio_output, searches, price, cost, charged FROM usage_rows WHERE request_id = 'req_2'`, "cost what its transfer used"},
	}
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		b := startProcess(t, d, journaltest.NewDisk())
		b.fund("ws_a", 1000)
		b.fund("ws_b", 1000)
		b.spend("ws_a", "req_1", 10)
		b.spend("ws_a", "req_2", 20)
		b.spend("ws_a", "req_free", 0)
		b.spend("ws_b", "req_3", 30)
		b.drain()
		b.checkProof()
		errUndo := errors.New("undo")
		for name, breach := range breaches {
			t.Run(name, func(t *testing.T) {
				var proof Proof
				_, err := d.Tx(t.Context(), func(tx *db.Tx) error {
					if n, err := db.Exec(t.Context(), tx.Across("test"), breach.breach); err != nil || n == 0 {
						t.Fatalf("%d rows: %v", n, err)
					}
					for _, check := range slices.Concat(invariants, dayInvariants) {
						broken, err := db.Query[string](t.Context(), tx.Across("test"), check.violations)
						if err != nil {
							t.Fatal(err)
						}
						for _, subject := range broken {
							proof.Problems = append(proof.Problems, check.rule+": not so for "+subject)
						}
					}
					wrong, err := mispriced(t.Context(), tx.Across("test"), true)
					proof.Problems = append(proof.Problems, wrong...)
					return errors.Join(err, errUndo)
				})
				if !errors.Is(err, errUndo) || !strings.Contains(strings.Join(proof.Problems, "\n"), breach.says) {
					t.Errorf("%v; found %q", err, proof.Problems)
				}
			})
		}
		if _, err := db.Exec(t.Context(), d.Across("test"), `UPDATE usage_rows SET cost = cost + 1 WHERE request_id = 'req_2'`); err != nil {
			t.Fatal(err)
		}
		if proof := b.proof(); proof.OK || len(proof.Problems) < 2 {
			t.Errorf("%+v", proof)
		}
	})
}

// The last line of defence behind the cursor: were a batch ever posted again, the primary key would refuse it, and
// its transfer with it.
func TestAChargeThatIsPostedTwiceIsRefusedByTheTable(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		b := startProcess(t, d, journaltest.NewDisk())
		b.fund("ws_a", 1000)
		b.spend("ws_a", "req_1", 10)
		b.drain()
		before := b.state()
		charge := journal.Charge{Request: "req_1", Workspace: "ws_a", At: at(t, d, "req_1"), Route: "chat", Cost: 10, Charged: 10}
		_, err := d.Tx(t.Context(), func(tx *db.Tx) error {
			_, err := postUsage(t.Context(), tx, usage.NewDays(), map[tenant.ID][]*journal.Charge{"ws_a": {&charge}}, nil)
			return err
		})
		if !db.Duplicate(err) {
			t.Errorf("posted again: %v", err)
		}
		if after := b.state(); after != before {
			t.Errorf("before %s\nafter %s", before, after)
		}
	})
}

func at(t *testing.T, d *db.DB, request string) clock.Time {
	t.Helper()
	when, err := db.One[clock.Time](t.Context(), d.Across("test"), `SELECT at FROM usage_rows WHERE request_id = $1`, request)
	if err != nil {
		t.Fatal(err)
	}
	return when
}

func TestConcurrentAndRepeatedDrainsPostOnce(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		b := startProcess(t, d, journaltest.NewDisk())
		b.journal.Limit = 2000
		b.fund("ws_a", 100_000)
		const drainers, spenders, each = 4, 4, 25
		var spending, draining sync.WaitGroup
		done := make(chan struct{})
		for range drainers {
			draining.Go(func() {
				for {
					if err := b.poster.Drain(context.Background()); err != nil {
						t.Error(err)
					}
					b.poster.removePosted()
					select {
					case <-done:
						return
					default:
					}
				}
			})
		}
		for s := range spenders {
			spending.Go(func() {
				for i := range each {
					tab, err := b.till.Open(b.t.Context(), journal.Charge{Request: fmt.Sprintf("req_%d_%d", s, i), Workspace: "ws_a"}, 100)
					if err != nil {
						t.Error(err)
						return
					}
					tab.SetModel(simulated, simulated.Price, false)
					if err := tab.Settle(till.Settlement{Outcome: "finished", Usage: live.Usage{Input: 7}}); err != nil {
						t.Error(err)
					}
				}
			})
		}
		spending.Wait()
		close(done)
		draining.Wait()
		b.drain()
		rows := b.rows()
		if len(rows) != spenders*each {
			t.Errorf("%d rows", len(rows))
		}
		b.checkProof()
		before := b.state()
		b.drain()
		b.drain()
		if after := b.state(); after != before {
			t.Errorf("draining again changed\n%s\nto\n%s", before, after)
		}
		if got := b.balance("ws_a"); got.Spent != 7*spenders*each {
			t.Errorf("%+v", got)
		}
		b.poster.removePosted() // the drainers may have ended before the last entries were posted
		if segments, _ := b.journal.Segments(); len(segments) > 2 {
			t.Errorf("posted segments are kept: %v", segments)
		}
	})
}

func TestASecondPosterOfOneJournalIsDetected(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		b := startProcess(t, d, journaltest.NewDisk())
		b.fund("ws_a", 1000)
		b.spend("ws_a", "req_1", 10)
		b.drain()
		other := startProcess(t, d, copyDisk(t, b.disk))
		other.spend("ws_a", "req_2", 20)
		other.drain()
		b.spend("ws_a", "req_3", 30)
		rows := b.rows()
		if err := b.poster.Drain(t.Context()); !errors.Is(err, errCursorMoved) {
			t.Errorf("%v", err)
		}
		if got := b.rows(); !slices.Equal(got, rows) {
			t.Errorf("%+v, and it was %+v", got, rows)
		}
	})
}

func TestManyEntriesOfManyWorkspacesArePosted(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		const entries, spaces = manyEntries, 50
		b := startProcess(t, d, journaltest.NewDisk())
		random := rand.New(rand.NewPCG(1, 1))
		want := map[tenant.ID]money.Nano{}
		for i := range spaces {
			b.fund(tenant.ID(fmt.Sprint("ws_", i)), 1_000_000)
		}
		for i := range entries {
			ws, cost := tenant.ID(fmt.Sprint("ws_", random.IntN(spaces))), int64(random.IntN(1000))
			b.spend(ws, fmt.Sprint("req_", i), cost)
			want[ws] += money.Nano(cost)
		}
		b.drain()
		if rows := b.rows(); len(rows) != entries {
			t.Errorf("%d rows", len(rows))
		}
		for ws, spent := range want {
			if got := b.balance(ws); got != (funds.Balance{Balance: 1_000_000 - spent, Spent: spent}) {
				t.Errorf("%s has %+v, and spent %d", ws, got, spent)
			}
		}
		b.checkProof()
		if b.poster.Lag() != 0 {
			t.Errorf("caught up, and %s behind", b.poster.Lag())
		}
	})
}

var errLost = errors.New("connection lost")

func TestMemoryCountsACommitWhoseAnswerWasLostOnce(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		b := startProcess(t, d, journaltest.NewDisk())
		b.fund("ws_a", 1000)
		b.spend("ws_a", "req_1", 10)
		b.poster.tx = func(ctx context.Context, fn func(*db.Tx) error) (db.Version, error) {
			if _, err := d.Tx(ctx, fn); err != nil {
				t.Fatal(err)
			}
			return 0, errLost
		}
		if err := b.poster.Drain(t.Context()); !errors.Is(err, errLost) || b.poster.Lag() == 0 {
			t.Fatalf("%v, %s behind", err, b.poster.Lag())
		}
		b.poster.tx = d.Tx
		for range 2 {
			if err := b.poster.Fill(t.Context()); err != nil { // as after a lost lease is regained
				t.Fatal(err)
			}
		}
		b.drain()
		if got := b.balance("ws_a"); got != (funds.Balance{Balance: 990, Spent: 10}) {
			t.Errorf("%+v", got)
		}
		b.checkProof()
	})
}

// PostgreSQL may still be working on a COMMIT whose connection is gone: it takes effect after the cursor was read.
func TestACommitThatTakesEffectLateDoesNotStopThePoster(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		b := startProcess(t, d, journaltest.NewDisk())
		b.fund("ws_a", 1000)
		b.spend("ws_a", "req_1", 10)
		var late func(*db.Tx) error
		b.poster.tx = func(_ context.Context, fn func(*db.Tx) error) (db.Version, error) {
			late = fn
			_, _ = d.Tx(t.Context(), func(tx *db.Tx) error { return errors.Join(fn(tx), errLost) })
			return 0, errLost
		}
		if err := b.poster.Drain(t.Context()); !errors.Is(err, errLost) {
			t.Fatal(err)
		}
		b.spend("ws_a", "req_2", 20)
		b.poster.tx = func(ctx context.Context, fn func(*db.Tx) error) (db.Version, error) {
			if late != nil {
				if _, err := d.Tx(t.Context(), late); err != nil {
					t.Fatal(err)
				}
				late = nil
			}
			return d.Tx(ctx, fn)
		}
		var err error
		for range 3 {
			if err = b.poster.Drain(t.Context()); err == nil {
				break
			}
		}
		if err != nil {
			t.Fatalf("the ledger falls behind for good: %v", err)
		}
		if rows := b.rows(); len(rows) != 2 {
			t.Errorf("%+v", rows)
		}
		if got := b.balance("ws_a"); got != (funds.Balance{Balance: 970, Spent: 30}) {
			t.Errorf("%+v", got)
		}
		b.checkProof()
	})
}

func TestWithoutTheDatabaseChargesWaitInTheJournal(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		b := startProcess(t, d, journaltest.NewDisk())
		b.fund("ws_a", 1000)
		b.poster.tx = func(context.Context, func(*db.Tx) error) (db.Version, error) { return 0, errLost }
		for i := range 5 {
			b.spend("ws_a", fmt.Sprint("req_", i), 10)
			if err := b.poster.Drain(t.Context()); !errors.Is(err, errLost) {
				t.Fatal(err)
			}
			b.poster.removePosted()
		}
		if got := b.balance("ws_a"); got != (funds.Balance{Balance: 950, Spent: 50}) {
			t.Errorf("%+v", got)
		}
		if b.poster.Lag() == 0 {
			t.Error("nobody is told that the ledger is behind")
		}
		b.poster.tx = d.Tx
		b.drain()
		if len(b.rows()) != 5 || b.poster.Lag() != 0 {
			t.Errorf("%d rows, %s behind", len(b.rows()), b.poster.Lag())
		}
		b.checkProof()
	})
}

func TestRunPostsWhenWokenAndOnceMoreAtTheEnd(t *testing.T) {
	d := dbtest.Open(t, t.TempDir(), secret.Text{})
	if err := d.Migrate(t.Context()); err != nil {
		t.Fatal(err)
	}
	b := startProcess(t, d, journaltest.NewDisk())
	b.fund("ws_a", 1000)
	var said bytes.Buffer
	b.poster.log = slog.New(slog.NewTextHandler(&said, nil))
	ctx, stop := context.WithCancel(t.Context())
	var group sync.WaitGroup
	group.Go(func() { b.poster.Run(ctx) })
	group.Go(func() { b.poster.SyncLoop(ctx) })
	time.Sleep(2 * syncEvery) // the first posting is over
	b.spend("ws_a", "req_1", 10)
	for deadline := time.Now().Add(time.Minute); len(b.rows()) == 0 && time.Now().Before(deadline); time.Sleep(5 * time.Millisecond) {
	}
	b.spend("ws_a", "req_2", 20)
	stop()
	group.Wait()
	if len(b.rows()) != 2 || said.Len() > 0 {
		t.Errorf("%+v; %s", b.rows(), &said)
	}
	b.checkProof()
}

// startJournal opens a journal and begins writing it.
func startJournal(t *testing.T, disk journal.Disk) *journal.Journal {
	t.Helper()
	j, err := journal.Open(disk)
	if err == nil {
		err = j.Begin()
	}
	if err != nil {
		t.Fatal(err)
	}
	return j
}

func TestADiskThatFailsIsReportedOnceAndSoIsItsRecovery(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		disk := journaltest.NewDisk()
		j := startJournal(t, disk)
		var broken atomic.Bool
		disk.Fail = func(_ string, size int) (int, error) {
			if broken.Load() {
				return 0, journaltest.ErrDisk
			}
			return size, nil
		}
		var said bytes.Buffer
		poster := &Poster{journal: j, log: slog.New(slog.NewTextHandler(&said, nil))}
		ctx, stop := context.WithCancel(t.Context())
		var group sync.WaitGroup
		group.Go(func() { poster.SyncLoop(ctx) })
		for range 2 {
			broken.Store(true)
			_ = j.Append(journal.Entry{Kind: journal.Probe})
			time.Sleep(10 * time.Second)
			broken.Store(false)
			time.Sleep(time.Second)
			if err := j.Failure(); err != nil {
				t.Errorf("the disk works and the journal fails: %v", err)
			}
		}
		stop()
		group.Wait()
		if cannot, again := strings.Count(said.String(), "cannot be recorded"), strings.Count(said.String(), "recorded again"); cannot != 2 || again != 2 {
			t.Errorf("%s", &said)
		}
	})
}

func TestAnEntryAfterAnIdleTimeIsSyncedWithinOneInterval(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		disk := journaltest.NewDisk()
		j := startJournal(t, disk)
		poster := &Poster{journal: j, log: slog.New(slog.DiscardHandler), wake: make(chan struct{}, 1), behind: make(chan struct{}, 1), postedUntil: j.End()}
		ctx, stop := context.WithCancel(t.Context())
		var group sync.WaitGroup
		group.Go(func() { poster.SyncLoop(ctx) })
		for range 3 {
			time.Sleep(time.Minute)
			if err := j.Append(journal.Entry{Kind: journal.Probe}); err != nil {
				t.Fatal(err)
			}
			time.Sleep(syncEvery + time.Millisecond)
			if j.Synced() != j.End() {
				t.Error("it is not synced")
			}
			select {
			case <-poster.wake:
			default:
				t.Error("nobody is woken to post it")
			}
			poster.recordPosting(true, j.End())
		}
		time.Sleep(time.Minute)
		poster.recordPosting(false, j.End()) // by a Drain that was called directly
		time.Sleep(syncEvery + time.Millisecond)
		select {
		case <-poster.wake:
		default:
			t.Error("a posting that failed during a rest is not tried again")
		}
		stop()
		group.Wait()
	})
}
