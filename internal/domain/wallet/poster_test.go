package wallet

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"testing"

	"sovereign/internal/base/money"
	"sovereign/internal/base/outcome"
	"sovereign/internal/base/tenant"
	"sovereign/internal/live"
	"sovereign/internal/plane/funds"
	"sovereign/internal/plane/journal"
	"sovereign/internal/plane/journal/journaltest"
	"sovereign/internal/plane/till"
	"sovereign/internal/store/chain"
	"sovereign/internal/store/db"
	"sovereign/internal/store/db/dbtest"
	"sovereign/internal/store/feed"
)

// A process is one server process with its journal on a disk, and the ledger that it posts to.
type process struct {
	t       *testing.T
	db      *db.DB
	disk    *journaltest.Disk
	journal *journal.Journal
	funds   *funds.Funds
	poster  *Poster
	till    *till.Till
	sealer  *chain.Sealer // once it was asked for a proof
}

// newProcess returns a process that has not recovered yet.
func newProcess(t *testing.T, d *db.DB, disk *journaltest.Disk) *process {
	t.Helper()
	b := &process{t: t, db: d, disk: disk, funds: funds.New()}
	var err error
	if b.journal, err = journal.Open(disk); err != nil {
		t.Fatal(err)
	}
	log := slog.New(slog.DiscardHandler)
	b.poster = NewPoster(d, b.journal, b.funds, log)
	b.till = till.New(b.funds, b.journal, log, func(money.Nano) {}, func(money.Nano) {})
	return b
}

// balance returns the money of a workspace as it is shown.
func (b *process) balance(ws tenant.ID) funds.Balance {
	b.t.Helper()
	shown, err := NewStore(b.db, nil, b.funds).Show(b.t.Context(), ws)
	if err != nil {
		b.t.Error(err)
	}
	return shown
}

// startProcess returns a process that has recovered.
func startProcess(t *testing.T, d *db.DB, disk *journaltest.Disk) *process {
	t.Helper()
	b := newProcess(t, d, disk)
	b.recover()
	return b
}

func (b *process) recover() Recovered {
	b.t.Helper()
	found, err := b.poster.Recover(b.t.Context())
	if err == nil {
		err = b.poster.Fill(b.t.Context())
	}
	if err != nil {
		b.t.Fatal(err)
	}
	return found
}

// killed returns the next process, on the disk as the killed one left it.
func (b *process) killed() *process {
	b.t.Helper()
	next := newProcess(b.t, b.db, b.disk.Crash())
	next.sealer = b.sealer
	return next
}

// fund creates a workspace with money in its wallet.
func (b *process) fund(ws tenant.ID, amount money.Nano) {
	b.t.Helper()
	ctx := b.t.Context()
	if _, err := db.Exec(ctx, b.db.In(ws), `INSERT INTO workspaces (workspace_id, name, created_at) VALUES ($1, $2, 1)`, string(ws)); err != nil {
		b.t.Fatal(err)
	}
	if amount > 0 {
		if _, err := b.db.Tx(ctx, func(tx *db.Tx) error {
			_, _, err := fund(ctx, tx, ws, "txn_topup_"+string(ws), "", amount)
			return err
		}); err != nil {
			b.t.Fatal(err)
		}
	}
	if err := b.poster.Apply(ctx, db.Change{Workspace: ws}); err != nil {
		b.t.Fatal(err)
	}
}

// spend settles a request that cost as many nanos as it had tokens.
func (b *process) spend(ws tenant.ID, request string, cost int64) {
	b.t.Helper()
	tab := b.open(ws, request, money.Nano(cost))
	if err := tab.Settle(till.Settlement{Outcome: "finished", Usage: live.Usage{Input: cost}}); err != nil {
		b.t.Fatal(err)
	}
}

func (b *process) open(ws tenant.ID, request string, hold money.Nano) *till.Tab {
	b.t.Helper()
	tab, err := b.till.Open(b.t.Context(), journal.Charge{Request: request, Workspace: ws, Key: "key_1", Route: "chat", Requested: "m"}, hold)
	if err != nil {
		b.t.Fatal(err)
	}
	tab.SetModel(simulated, simulated.Price, false)
	return &tab
}

func (b *process) drain() {
	b.t.Helper()
	if err := b.poster.Drain(b.t.Context()); err != nil {
		b.t.Fatal(err)
	}
}

type usedRow struct {
	RequestID     string
	Outcome       string
	Cost, Charged money.Nano
}

func (b *process) rows() []usedRow {
	b.t.Helper()
	rows, err := db.Query[usedRow](b.t.Context(), b.db.Across("test"), `SELECT request_id, outcome, cost, charged FROM usage_rows ORDER BY request_id`)
	if err != nil {
		b.t.Fatal(err)
	}
	return rows
}

func (b *process) proof() Proof {
	b.t.Helper()
	proof, err := NewStore(b.db, (*feed.Feed)(nil), b.funds).Verify(b.t.Context())
	if err != nil {
		b.t.Fatal(err)
	}
	return proof
}

// checkProof checks that `ledger verify` passes, and that memory agrees with it.
func (b *process) checkProof() {
	b.t.Helper()
	if proof := b.proof(); !proof.OK {
		b.t.Errorf("the ledger does not prove: %v", proof.Problems)
	}
	type row struct {
		WorkspaceID tenant.ID
		Amount      money.Nano
	}
	wallets, err := db.Query[row](b.t.Context(), b.db.Across("test"), `SELECT workspace_id, amount FROM ledger_balances WHERE account = 'wallet'`)
	if err != nil {
		b.t.Fatal(err)
	}
	for _, w := range wallets {
		if got := b.balance(w.WorkspaceID); got.Balance != w.Amount || got.Held != 0 {
			b.t.Errorf("%s has %+v in memory and %d in the ledger", w.WorkspaceID, got, w.Amount)
		}
	}
}

// state returns everything that a refused start could have changed: the ledger's tables and the journal's files.
func (b *process) state() string {
	b.t.Helper()
	var all []string
	for _, query := range []string{
		`SELECT journal_id || ' ' || segment || ' ' || position FROM journal_cursors ORDER BY 1`,
		`SELECT transfer_id || ' ' || line || ' ' || amount FROM ledger_entries ORDER BY 1`,
		`SELECT workspace_id || ' ' || account || ' ' || amount FROM ledger_balances ORDER BY 1`,
		`SELECT request_id || ' ' || charged FROM usage_rows ORDER BY 1`,
	} {
		rows, err := db.Query[string](b.t.Context(), b.db.Across("test"), query)
		if err != nil {
			b.t.Fatal(err)
		}
		all = append(all, rows...)
	}
	names, err := b.disk.List()
	if err != nil {
		b.t.Fatal(err)
	}
	slices.Sort(names)
	for _, name := range names {
		all = append(all, fmt.Sprintf("%s %x", name, content(b.t, b.disk, name)))
	}
	return strings.Join(all, "\n")
}

func TestAJournalOfAnotherDatabaseIsRefusedAndNothingChanges(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		first := startProcess(t, d, journaltest.NewDisk())
		first.fund("ws_a", 1000)
		first.spend("ws_a", "req_1", 10)
		if err := first.journal.Close(); err != nil {
			t.Fatal(err)
		}
		old := copyDisk(t, first.disk) // before more is posted
		again := startProcess(t, d, first.disk.Crash())
		again.spend("ws_a", "req_2", 20)
		again.drain()
		empty := journaltest.NewDisk()
		id, _ := empty.Open("id")
		if _, err := id.WriteAt([]byte(again.journal.ID+"\n"), 0); err != nil {
			t.Fatal(err)
		}
		unknown := journaltest.NewDisk()
		stranger, err := journal.Open(unknown)
		if err != nil {
			t.Fatal(err)
		}
		if err := errors.Join(stranger.Begin(), stranger.Append(journal.Entry{Kind: journal.Settled, Charge: journal.Charge{Request: "req_x", Workspace: "ws_a"}}), stranger.Close()); err != nil {
			t.Fatal(err)
		}
		for name, disk := range map[string]*journaltest.Disk{
			"it was never known there":           unknown,
			"it is older than what was posted":   old,
			"its segments are gone, its id left": empty,
		} {
			t.Run(name, func(t *testing.T) {
				b := newProcess(t, d, disk)
				before := b.state()
				if _, err := b.poster.Recover(t.Context()); !errors.Is(err, ErrJournalMismatch) {
					t.Errorf("%v", err)
				}
				if after := b.state(); after != before {
					t.Errorf("changed from\n%s\nto\n%s", before, after)
				}
			})
		}
	})
}

// copyDisk returns another disk with the same files.
func copyDisk(t *testing.T, disk *journaltest.Disk) *journaltest.Disk {
	t.Helper()
	next := journaltest.NewDisk()
	names, _ := disk.List()
	for _, name := range names {
		to, err := next.Open(name)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := to.WriteAt(content(t, disk, name), 0); err != nil {
			t.Fatal(err)
		}
	}
	return next
}

func content(t *testing.T, disk *journaltest.Disk, name string) []byte {
	t.Helper()
	file, err := disk.Open(name)
	if err != nil {
		t.Fatal(err)
	}
	size, err := file.Size()
	if err != nil {
		t.Fatal(err)
	}
	all := make([]byte, size)
	if _, err := file.ReadAt(all, 0); err != nil {
		t.Fatal(err)
	}
	return all
}

func TestAMissingOrDamagedSegmentIsRefusedAndNothingChanges(t *testing.T) {
	const half, middle = "000000000001.journal", "000000000003.journal"
	cut := func(disk *journaltest.Disk, name string, at int64) error {
		file, _ := disk.Open(name)
		return file.Truncate(at)
	}
	damages := map[string]func(disk *journaltest.Disk, first int64) error{
		"a segment is missing": func(disk *journaltest.Disk, _ int64) error { return disk.Remove(middle) },
		"a segment is empty":   func(disk *journaltest.Disk, _ int64) error { return cut(disk, middle, 0) },
		"a segment is cut":     func(disk *journaltest.Disk, _ int64) error { return cut(disk, middle, 20) },
		"a byte was changed": func(disk *journaltest.Disk, _ int64) error {
			file, _ := disk.Open(middle)
			_, err := file.WriteAt([]byte{content(t, disk, middle)[20] ^ 1}, 20)
			return err
		},
		"the segment that is half posted is missing":           func(disk *journaltest.Disk, _ int64) error { return disk.Remove(half) },
		"the segment that is half posted ends after one entry": func(disk *journaltest.Disk, first int64) error { return cut(disk, half, first) },
	}
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		made := 0
		for name, damage := range damages {
			t.Run(name, func(t *testing.T) {
				made++
				ws := tenant.ID(fmt.Sprint("ws_", made))
				b := startProcess(t, d, journaltest.NewDisk())
				b.fund(ws, 1000)
				b.spend(ws, fmt.Sprintf("req_%d_first", made), 1)
				first := b.journal.End().Offset
				b.spend(ws, fmt.Sprintf("req_%d_second", made), 1)
				b.drain()
				b.journal.Limit = 300
				for i := range 15 {
					b.spend(ws, fmt.Sprintf("req_%d_%d", made, i), 2)
				}
				disk := b.disk.Crash()
				if err := damage(disk, first); err != nil {
					t.Fatal(err)
				}
				b = newProcess(t, d, disk)
				before := b.state()
				if _, err := b.poster.Recover(t.Context()); !errors.Is(err, journal.ErrGap) {
					t.Errorf("%v", err)
				}
				if after := b.state(); after != before {
					t.Errorf("changed from\n%s\nto\n%s", before, after)
				}
			})
		}
	})
}

func TestARecoveryKilledAtAnyTransactionIsCompletedByTheNext(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		const settled, orphans = 20, 3
		for kill := 0; ; kill++ { // the number of transactions before the kill
			for _, commits := range []bool{false, true} { // whether the interrupted transaction was committed
				ws := tenant.ID(fmt.Sprintf("ws_%d_%v", kill, commits))
				b := startProcess(t, d, journaltest.NewDisk())
				b.fund(ws, 10_000)
				b.journal.Limit = 700
				for i := range orphans {
					tab := b.open(ws, fmt.Sprintf("req_%s_open_%d", ws, i), 100)
					if err := errors.Join(tab.RecordUsage(live.Usage{Input: 1}), tab.RecordUsage(live.Usage{Input: int64(30 + i)})); err != nil {
						t.Fatal(err)
					}
				}
				for i := range settled {
					b.spend(ws, fmt.Sprintf("req_%s_%d", ws, i), int64(10+i))
				}
				b = b.killed()
				ctx, cancel := context.WithCancel(t.Context())
				done := 0
				b.poster.tx = func(ctx context.Context, fn func(*db.Tx) error) (db.Version, error) {
					if done++; done <= kill {
						return d.Tx(ctx, fn)
					}
					if commits {
						if _, err := d.Tx(ctx, fn); err != nil {
							t.Fatal(err)
						}
					}
					cancel()
					return 0, ctx.Err()
				}
				_, err := b.poster.Recover(ctx)
				cancel()
				if whole := err == nil; whole {
					if kill < 4 {
						t.Errorf("a recovery took only %d transactions", kill)
					}
					return
				}
				b = b.killed()
				found := b.recover()
				if last := found.Orphans == 0; !last && (found.Orphans != orphans || found.Charged != 93) {
					t.Errorf("killed after %d (%v): %+v", kill, commits, found)
				}
				var cost money.Nano
				for _, r := range b.rows() {
					if strings.HasPrefix(r.RequestID, "req_"+string(ws)+"_") {
						cost += r.Charged
						if open := strings.Contains(r.RequestID, "_open_"); open != (r.Outcome == Killed) {
							t.Errorf("%+v", r)
						}
					}
				}
				if want := money.Nano(20*10 + 190 + 93); cost != want {
					t.Errorf("killed after %d (%v): %d are charged, want %d", kill, commits, cost, want)
				}
				b.checkProof()
				if segments, err := b.journal.Segments(); err != nil || len(segments) != 1 {
					t.Errorf("posted segments are kept: %v %v", segments, err)
				}
				if again := b.killed().recover(); again != (Recovered{}) {
					t.Errorf("a second recovery finds %+v", again)
				}
			}
		}
	})
}

func TestARecoveryThatCannotStartItsJournalIsCompletedByTheNext(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		b := startProcess(t, d, journaltest.NewDisk())
		b.fund("ws_a", 1000)
		b.spend("ws_a", "req_1", 10)
		if err := b.open("ws_a", "req_2", 100).RecordUsage(live.Usage{Input: 7}); err != nil {
			t.Fatal(err)
		}
		b = b.killed()
		b.disk.Fail = func(operation string, size int) (int, error) {
			if operation == "write" || operation == "truncate" {
				return 0, journaltest.ErrDisk
			}
			return size, nil
		}
		if _, err := b.poster.Recover(t.Context()); !errors.Is(err, journaltest.ErrDisk) {
			t.Fatal(err)
		}
		b = b.killed()
		if found := b.recover(); found.Orphans != 0 {
			t.Errorf("%+v, although the first had charged it", found)
		}
		if got := b.balance("ws_a"); got.Balance != 983 {
			t.Errorf("%+v", got)
		}
		b.spend("ws_a", "req_3", 5)
		b.drain()
		b.checkProof()
	})
}

// A restart forgets neither what a workspace has paid today nor what it was excused from.
func TestARestartKeepsTheAllowancesOfTheDay(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		b := startProcess(t, d, journaltest.NewDisk())
		allowance := funds.Allowance{Share: 500_000, Least: 10}
		b.funds.Allow(allowance)
		b.fund("ws_a", 10_000)
		b.fund("ws_b", 10_000)
		b.spend("ws_a", "req_1", 100)
		for request, cost := range map[string]int64{"req_2": 30, "req_3": 40} {
			abandoned := till.Settlement{Outcome: outcome.Abandoned, Usage: live.Usage{Input: cost}, Capped: true}
			if err := b.open("ws_a", request, money.Nano(cost)).Settle(abandoned); err != nil {
				t.Fatal(err)
			}
		}
		before := b.balance("ws_a")
		next := b.killed()
		next.funds.Allow(allowance)
		next.recover()
		if err := next.poster.RestoreRecent(t.Context()); err != nil {
			t.Fatal(err)
		}
		if after := next.balance("ws_a"); after != before || after.Excused == 0 || after.Excused > after.Allowance {
			t.Errorf("%+v before the restart, %+v after it", before, after)
		}
		if b := next.balance("ws_b"); b.Excused != 0 || b.Allowance != 10 {
			t.Errorf("another workspace: %+v", b)
		}
		if proof := next.proof(); !proof.OK {
			t.Error(proof.Problems)
		}
	})
}
