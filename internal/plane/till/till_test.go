package till_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"sovereign/internal/base/fault"
	"sovereign/internal/base/money"
	"sovereign/internal/base/tenant"
	"sovereign/internal/live"
	"sovereign/internal/plane/funds"
	"sovereign/internal/plane/journal"
	"sovereign/internal/plane/journal/journaltest"
	"sovereign/internal/plane/till"
)

// One token of output costs one nano, and so does one of input; a cached one is free.
var model = &live.Model{ID: "m", Provider: &live.Provider{Name: "p"}, Price: live.Price{Rates: live.Rates{Input: 1_000_000, Output: 1_000_000, Reasoning: 1_000_000}}}

func tokens(n int64) live.Usage { return live.Usage{Output: n} }

const ws = tenant.ID("ws_1")

// A fixture is a till with its wallet, its journal and a disk that can be made to fail.
type fixture struct {
	*till.Till
	funds   *funds.Funds
	journal *journal.Journal
	broken  atomic.Bool
	flaky   atomic.Bool  // one operation in three fails
	over    atomic.Int64 // the sum of the overages reported
	excess  atomic.Int64 // the sum reported beyond holds
}

type tester interface {
	Helper()
	Fatal(args ...any)
	Fatalf(format string, args ...any)
}

func newFixture(t tester, balance money.Nano) *fixture {
	t.Helper()
	s := &fixture{funds: funds.New()}
	disk := journaltest.NewDisk()
	random := rand.New(rand.NewPCG(1, 1))
	disk.Fail = func(_ string, size int) (int, error) { // one at a time
		if s.broken.Load() || s.flaky.Load() && random.IntN(3) == 0 {
			return size / 2, journaltest.ErrDisk
		}
		return size, nil
	}
	var err error
	if s.journal, err = journal.Open(disk); err != nil {
		t.Fatal(err)
	}
	if err := s.journal.Begin(); err != nil {
		t.Fatal(err)
	}
	s.funds.Credit(ws, balance)
	s.Till = till.New(s.funds, s.journal, slog.New(slog.DiscardHandler), func(n money.Nano) { s.excess.Add(int64(n)) }, func(n money.Nano) { s.over.Add(int64(n)) })
	return s
}

// open returns a tab whose model is set.
func (s *fixture) open(t tester, request string, amount money.Nano) *till.Tab {
	t.Helper()
	tab, err := s.Open(context.Background(), journal.Charge{Request: request, Workspace: ws, Key: "key_1", Route: "chat", Requested: "alias", Alias: "alias"}, amount)
	if err != nil {
		t.Fatal(err)
	}
	tab.SetModel(model, model.Price, false)
	return &tab
}

// entries returns what the journal holds.
func (s *fixture) entries(t tester) []journal.Entry {
	t.Helper()
	if err := s.journal.Sync(); err != nil {
		t.Fatal(err)
	}
	var all []journal.Entry
	for at := (journal.Position{Segment: 1}); ; {
		some, next, err := s.journal.Read(at)
		if err != nil {
			t.Fatal(err)
		}
		if len(some) == 0 {
			return all
		}
		all, at = append(all, some...), next
	}
}

// settled returns the one settlement of every request; two fail the test.
func (s *fixture) settled(t tester) map[string]journal.Charge {
	t.Helper()
	all := map[string]journal.Charge{}
	for _, e := range s.entries(t) {
		if e.Kind != journal.Settled {
			continue
		}
		if _, twice := all[e.Request]; twice {
			t.Fatalf("%s is settled twice", e.Request)
		}
		all[e.Request] = e.Charge
	}
	return all
}

func (s *fixture) want(t *testing.T, balance, held, spent money.Nano) {
	t.Helper()
	if got, want := s.funds.Balance(ws), (funds.Balance{Balance: balance, Held: held, Spent: spent}); got != want {
		t.Errorf("the wallet has %+v, want %+v", got, want)
	}
}

func TestSettleChargesTheUsageAndEndsTheHold(t *testing.T) {
	s := newFixture(t, 1000)
	tab := s.open(t, "req_1", 300)
	s.want(t, 1000, 300, 0)
	used := live.Usage{Input: 20, Cached: 5, Output: 100, Reasoning: 40}
	if err := tab.Settle(till.Settlement{Outcome: "finished", Usage: used}); err != nil {
		t.Fatal(err)
	}
	s.want(t, 885, 0, 115)
	got := s.settled(t)["req_1"]
	if got.At == 0 {
		t.Error("the charge has no time")
	}
	got.At = 0
	want := journal.Charge{
		Request: "req_1", Workspace: ws, Key: "key_1", Route: "chat", Model: "m", Requested: "alias", Alias: "alias", Provider: "p",
		Outcome: "finished", Usage: used, Price: model.Price.Rates, Cost: 115, Charged: 115,
	}
	if got != want {
		t.Errorf("%+v, want %+v", got, want)
	}
}

func TestOpenReportsWhatIsFreeWhenTheWalletCannotCoverTheHold(t *testing.T) {
	s := newFixture(t, 100)
	s.open(t, "req_1", 60)
	_, err := s.Open(context.Background(), journal.Charge{Request: "req_2", Workspace: ws}, 41)
	var short *till.InsufficientFunds
	if !errors.As(err, &short) || short.Free != 40 {
		t.Error(err)
	}
	s.want(t, 100, 60, 0)
	if len(s.entries(t)) != 0 {
		t.Error("a refusal is in the journal")
	}
}

func TestOpenIsRefusedWhileTheJournalFails(t *testing.T) {
	s := newFixture(t, 1000)
	running := s.open(t, "req_1", 100)
	s.broken.Store(true)
	if running.RecordUsage(tokens(1)) == nil || s.journal.Failure() == nil {
		t.Fatal("the disk does not fail")
	}
	_, err := s.Open(context.Background(), journal.Charge{Request: "req_2", Workspace: ws}, 1)
	var f *fault.Fault
	if !errors.As(err, &f) || f.Kind != fault.Unavailable || f.Status != http.StatusServiceUnavailable || f.RetryAfter <= 0 {
		t.Error(err)
	}
	if !errors.Is(err, journaltest.ErrDisk) {
		t.Errorf("the cause is not told: %v", err)
	}
	s.want(t, 1000, 100, 0) // the running one keeps its hold, the refused one has none
	s.broken.Store(false)
	if err := s.journal.Sync(); err != nil {
		t.Fatal(err)
	}
	s.open(t, "req_3", 1).Drop()
}

func TestASettlementThatCannotBeRecordedChargesNothingAndKeepsTheHold(t *testing.T) {
	s := newFixture(t, 1000)
	tab := s.open(t, "req_1", 100)
	s.broken.Store(true)
	for range 3 {
		if err := tab.Settle(till.Settlement{Outcome: "finished", Usage: tokens(50)}); !errors.Is(err, journaltest.ErrDisk) {
			t.Fatal(err)
		}
		s.want(t, 1000, 100, 0)
	}
	s.broken.Store(false)
	if err := tab.Settle(till.Settlement{Outcome: "finished", Usage: tokens(50)}); err != nil {
		t.Fatal(err)
	}
	s.want(t, 950, 0, 50)
	if got := s.settled(t); len(got) != 1 || got["req_1"].Charged != 50 {
		t.Errorf("%+v", got)
	}
}

func TestDebtsAreSettledOnceWhenTheJournalWorksAgain(t *testing.T) {
	s := newFixture(t, 1000)
	const count = 5
	tabs := make([]*till.Tab, count)
	for i := range tabs {
		tabs[i] = s.open(t, fmt.Sprint("req_", i), 100)
	}
	s.broken.Store(true)
	for i, tab := range tabs {
		if tab.Settle(till.Settlement{Outcome: "finished", Usage: tokens(int64(10 + i)), Counted: true}) == nil {
			t.Fatal("the disk does not fail")
		}
		tab.Owe(till.Settlement{Outcome: "finished", Usage: tokens(int64(10 + i)), Counted: true})
		tab.Drop()
	}
	for range 3 {
		if owed := s.Collect(); owed != count {
			t.Fatalf("%d are owed", owed)
		}
		s.want(t, 1000, count*100, 0)
	}
	s.broken.Store(false)
	for range 3 {
		if owed := s.Collect(); owed != 0 {
			t.Fatalf("%d are owed", owed)
		}
		s.want(t, 1000-60, 0, 60)
	}
	got := s.settled(t)
	for i := range tabs {
		if c := got[fmt.Sprint("req_", i)]; c.Charged != money.Nano(10+i) || c.Cost != c.Charged || c.Outcome != "finished" || !c.Counted {
			t.Errorf("request %d: %+v", i, c)
		}
	}
	if len(got) != count {
		t.Errorf("%d settlements", len(got))
	}
}

func TestADebtHoldsItsWholeCost(t *testing.T) {
	s := newFixture(t, 200)
	tab := s.open(t, "req_1", 50)
	s.broken.Store(true)
	tab.Owe(till.Settlement{Outcome: "left", Usage: tokens(120), Counted: true})
	s.want(t, 200, 120, 0)
	if _, free, ok := s.funds.Hold(ws, 81); ok || free != 80 {
		t.Errorf("%d is free beside a debt of 120", free)
	}
	s.broken.Store(false)
	s.Collect()
	s.want(t, 80, 0, 120)
}

func TestWhatIsOwedBeyondTheHoldIsReportedOnce(t *testing.T) {
	s := newFixture(t, 30)
	tab := s.open(t, "req_1", 20)
	s.broken.Store(true)
	if err := tab.Settle(till.Settlement{Outcome: "finished", Usage: tokens(100)}); err == nil {
		t.Fatal("the journal works")
	}
	tab.Owe(till.Settlement{Outcome: "finished", Usage: tokens(100)})
	if got := s.excess.Load(); got != 80 {
		t.Errorf("%d was reported beyond the hold, want 80", got)
	}
}

func TestDroppingAnEndedTabChangesNothing(t *testing.T) {
	s := newFixture(t, 1000)
	settled, dropped := s.open(t, "req_1", 100), s.open(t, "req_2", 100)
	if err := settled.RecordUsage(tokens(5)); err != nil {
		t.Fatal(err)
	}
	if err := settled.Settle(till.Settlement{Outcome: "finished", Usage: tokens(30)}); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		settled.Drop()
		dropped.Drop()
		s.Collect()
		s.want(t, 970, 0, 30)
	}
	if got := s.settled(t); len(got) != 1 || got["req_1"].Charged != 30 {
		t.Errorf("%+v", got)
	}
}

func TestDropSettlesAnOpenedTabWithTheLastRecordedUsage(t *testing.T) {
	s := newFixture(t, 1000)
	tab := s.open(t, "req_1", 100)
	if tab.Journaled() {
		t.Error("a tab is opened before anything was delivered")
	}
	for _, n := range []int64{7, 20} {
		if err := tab.RecordUsage(tokens(n)); err != nil || !tab.Journaled() {
			t.Fatal(err)
		}
	}
	s.broken.Store(true)
	if tab.RecordUsage(tokens(30)) == nil {
		t.Fatal("the disk does not fail")
	}
	tab.Drop()
	if s.Collect() != 1 {
		t.Error("nothing is owed")
	}
	s.broken.Store(false)
	if s.Collect() != 0 {
		t.Error("still owed")
	}
	s.want(t, 980, 0, 20)
	if c := s.settled(t)["req_1"]; c.Usage != tokens(20) || c.Charged != 20 || !c.Counted || c.Outcome == "" {
		t.Errorf("%+v", c)
	}
}

func TestDeliveriesAreOpenedOnceAndNeverChargedBeyondTheHold(t *testing.T) {
	s := newFixture(t, 1000)
	tab := s.open(t, "req_1", 50)
	s.broken.Store(true)
	if tab.RecordUsage(tokens(1)) == nil || tab.Journaled() {
		t.Fatal("opened by what could not be recorded")
	}
	s.broken.Store(false)
	for _, n := range []int64{10, 40, 70} {
		if err := tab.RecordUsage(tokens(n)); err != nil {
			t.Fatal(err)
		}
	}
	s.want(t, 1000, 50, 0)
	var kinds []journal.Kind
	var charged []money.Nano
	for _, e := range s.entries(t) {
		if e.Kind != journal.Probe {
			kinds, charged = append(kinds, e.Kind), append(charged, e.Charged)
		}
	}
	if !slices.Equal(kinds, []journal.Kind{journal.Opened, journal.Progressed, journal.Progressed}) || !slices.Equal(charged, []money.Nano{10, 40, 50}) {
		t.Errorf("%v %v", kinds, charged)
	}
}

func TestAnOverageEmptiesTheWalletAndTheRestIsReported(t *testing.T) {
	s := newFixture(t, 100)
	tab := s.open(t, "req_1", 20)
	if err := tab.Settle(till.Settlement{Outcome: "finished", Usage: tokens(150)}); err != nil {
		t.Fatal(err)
	}
	s.want(t, 0, 0, 100)
	if c := s.settled(t)["req_1"]; s.over.Load() != 50 || c.Cost != 150 || c.Charged != 100 {
		t.Errorf("an overage of %d is heard of: %+v", s.over.Load(), c)
	}
}

func TestAnOverageOfANamedHoldLeavesTheWalletAlone(t *testing.T) {
	s := newFixture(t, 1000)
	if _, ok := s.funds.Reserve(ws, "rs_1", 100); !ok {
		t.Fatal("refused")
	}
	_, err := s.Open(context.Background(), journal.Charge{Request: "req_0", Workspace: ws, Hold: "rs_1"}, 101)
	var short *till.InsufficientFunds
	if !errors.As(err, &short) || short.Free != 100 || short.Ended || s.Free(ws, "rs_1") != 100 || s.Free(ws, "") != 900 {
		t.Errorf("%v; %d are free in the hold and %d in the wallet", err, s.Free(ws, "rs_1"), s.Free(ws, ""))
	}
	tab, err := s.Open(context.Background(), journal.Charge{Request: "req_1", Workspace: ws, Hold: "rs_1"}, 20)
	if err != nil {
		t.Fatal(err)
	}
	tab.SetModel(model, model.Price, false)
	if err := tab.Settle(till.Settlement{Outcome: "finished", Usage: tokens(150)}); err != nil {
		t.Fatal(err)
	}
	s.want(t, 900, 0, 100)
	if c := s.settled(t)["req_1"]; s.over.Load() != 50 || c.Cost != 150 || c.Charged != 100 || c.Hold != "rs_1" {
		t.Errorf("an overage of %d is heard of: %+v", s.over.Load(), c)
	}
	s.funds.End(ws, "rs_1")
	_, err = s.Open(context.Background(), journal.Charge{Request: "req_2", Workspace: ws, Hold: "rs_1"}, 0)
	if !errors.As(err, &short) || short.Free != 0 || !short.Ended {
		t.Error(err)
	}
}

func TestAnOverageLeavesOtherHoldsAlone(t *testing.T) {
	s := newFixture(t, 100)
	other, tab := s.open(t, "req_1", 30), s.open(t, "req_2", 20)
	s.broken.Store(true)
	tab.Owe(till.Settlement{Outcome: "finished", Usage: tokens(500)})
	s.want(t, 100, 100, 0)
	if s.over.Load() != 0 {
		t.Error("an overage is heard of before it is recorded")
	}
	s.broken.Store(false)
	s.Collect()
	s.want(t, 30, 30, 70)
	if s.over.Load() != 430 {
		t.Errorf("an overage of %d is heard of", s.over.Load())
	}
	if err := other.Settle(till.Settlement{Outcome: "finished", Usage: tokens(30)}); err != nil {
		t.Fatal(err)
	}
	s.want(t, 0, 0, 100)
	if s.over.Load() != 430 {
		t.Errorf("an overage of %d is heard of", s.over.Load())
	}
}

func TestRunCollectsDebtsAndReportsWhatIsLeftAtTheEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newFixture(t, 1000)
		ctx, stop := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- s.Run(ctx) }()
		s.broken.Store(true)
		s.open(t, "req_1", 100).Owe(till.Settlement{Outcome: "left", Usage: tokens(5), Counted: true})
		time.Sleep(time.Minute)
		s.want(t, 1000, 100, 0)
		s.broken.Store(false)
		time.Sleep(time.Second)
		s.want(t, 995, 0, 5)
		last := s.open(t, "req_2", 100)
		s.broken.Store(true)
		last.Owe(till.Settlement{Outcome: "left", Usage: tokens(5), Counted: true})
		stop()
		if err := <-ended; !errors.Is(err, till.ErrOwed) {
			t.Errorf("the end: %v", err)
		}
	})
}

func TestRunCollectsDebtsOnceMoreAtTheEnd(t *testing.T) {
	s := newFixture(t, 1000)
	s.open(t, "req_1", 100).Owe(till.Settlement{Outcome: "left", Usage: tokens(5), Counted: true})
	ctx, stop := context.WithCancel(t.Context())
	stop()
	if err := s.Run(ctx); err != nil {
		t.Error(err)
	}
	s.want(t, 995, 0, 5)
}

func TestADebtMayBeCollectedWhileItsRequestIsStillEnding(t *testing.T) {
	s := newFixture(t, 1000)
	const count = 500
	for i := range count {
		tab := s.open(t, fmt.Sprint("req_", i), 100)
		var group sync.WaitGroup
		group.Go(func() {
			for s.funds.Balance(ws).Held > 0 {
				s.Collect()
			}
		})
		tab.Owe(till.Settlement{Outcome: "left", Usage: tokens(1), Counted: true})
		tab.Drop()
		group.Wait()
	}
	s.want(t, 1000-count, 0, count)
	if got := s.settled(t); len(got) != count {
		t.Errorf("%d settlements", len(got))
	}
}

// A second Owe changes nothing, nor does one after a settlement.
func TestATabIsOwedOnce(t *testing.T) {
	s := newFixture(t, 100)
	settled := s.open(t, "req_1", 30)
	if err := settled.Settle(till.Settlement{Outcome: "finished", Usage: tokens(3)}); err != nil {
		t.Fatal(err)
	}
	settled.Owe(till.Settlement{Outcome: "left", Usage: tokens(3), Counted: true})
	owed := s.open(t, "req_2", 30)
	owed.Owe(till.Settlement{Outcome: "left", Usage: tokens(5), Counted: true})
	owed.Owe(till.Settlement{Outcome: "died", Usage: tokens(5), Counted: true})
	owed.Drop()
	if left := s.Collect(); left != 0 {
		t.Errorf("%d are owed still", left)
	}
	if n := len(s.entries(t)); n != 2 {
		t.Errorf("%d entries", n)
	}
	if b := s.funds.Balance(ws); b.Held != 0 {
		t.Errorf("%v", b)
	}
}
