package billing

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"testing"
	"time"

	"pgregory.net/rapid"

	"sovereign/internal/base/id"
	"sovereign/internal/base/money"
	"sovereign/internal/base/tenant"
	"sovereign/internal/domain/wallet"
	"sovereign/internal/domain/wallet/wallettest"
	"sovereign/internal/plane/funds"
	"sovereign/internal/plane/journal"
	"sovereign/internal/store/db"
	"sovereign/internal/store/db/dbtest"
	"sovereign/internal/store/feed"
)

// A ledger is a store of top-ups with real wallets.
type ledger struct {
	*Store
	t      *testing.T
	funds  *funds.Funds
	poster *wallet.Poster
}

func newLedger(t *testing.T, d *db.DB) *ledger {
	t.Helper()
	disk, err := journal.Folder(t.TempDir() + "/journal")
	if err != nil {
		t.Fatal(err)
	}
	j, err := journal.Open(disk)
	if err != nil {
		t.Fatal(err)
	}
	log, money := slog.New(slog.DiscardHandler), funds.New()
	poster := wallet.NewPoster(d, j, money, log)
	if _, err := poster.Recover(t.Context()); err != nil {
		t.Fatal(err)
	}
	changes := feed.New(d, log, poster.Sources())
	if err := changes.Fill(t.Context()); err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	var group sync.WaitGroup
	group.Go(func() { changes.Run(ctx) })
	t.Cleanup(func() { stop(); group.Wait() })
	return &ledger{NewStore(d, changes, wallet.NewStore(d, changes, money)), t, money, poster}
}

// workspace adds a workspace.
func (l *ledger) workspace() tenant.ID {
	l.t.Helper()
	ws := tenant.ID(id.New("ws"))
	if _, err := db.Exec(l.t.Context(), l.db.In(ws), `
		INSERT INTO workspaces (workspace_id, name, created_at) VALUES ($1, $2, 1)`, string(ws)); err != nil {
		l.t.Fatal(err)
	}
	return ws
}

var person = tenant.Actor{Kind: tenant.ActorSession, User: "usr_1", Session: "ses_1"}

// topup is a top-up with its page.
func (l *ledger) topup(ws tenant.ID, dollars money.Nano) Topup {
	l.t.Helper()
	made, err := l.Create(l.t.Context(), ws, person, dollars*money.Dollar)
	if err == nil {
		made, err = l.open(l.t.Context(), ws, made.ID, session{"cs_" + made.ID, "https://checkout.example/" + made.ID})
	}
	if err != nil {
		l.t.Fatal(err)
	}
	return made
}

// paid is the session of a top-up as Stripe tells of it.
func paid(of Topup) *paidSession {
	return &paidSession{
		ID: "cs_" + of.ID, Reference: of.ID, Amount: cents(of.Amount), Currency: "usd", Status: "paid", PaymentIntent: "pi_" + of.ID,
	}
}

func (l *ledger) tell(asked change, want outcome) {
	l.t.Helper()
	if done, err := l.apply(l.t.Context(), asked); err != nil || done != want {
		l.t.Errorf("want %s, got %s %v", want, done, err)
	}
}

// proves fails the test unless the ledger and the memory say the same, and `ledger verify` passes.
func (l *ledger) proves() {
	l.t.Helper()
	if proof, err := l.wallets.Verify(l.t.Context()); err != nil || !proof.OK {
		l.t.Fatalf("the ledger does not prove: %v %v", proof.Problems, err)
	}
}

func (l *ledger) balance(ws tenant.ID) money.Nano {
	return wallettest.Shown(l.t, l.wallets, ws).Balance
}

// hold holds money for a request.
func (l *ledger) hold(ws tenant.ID, amount money.Nano) (hold funds.Hold) {
	l.t.Helper()
	from := funds.Payer{Workspace: ws}
	hold, ok := l.funds.Take(from, amount)
	if more := l.funds.Source(); !ok && more != nil {
		var err error
		hold, err = more.Acquire(l.t.Context(), from, amount)
		ok = err == nil
	}
	if !ok {
		l.t.Fatal("no hold")
	}
	return hold
}

func (l *ledger) owed(ws tenant.ID) money.Nano {
	l.t.Helper()
	owed, err := l.wallets.Owed(l.t.Context(), ws)
	if err != nil {
		l.t.Fatal(err)
	}
	return owed
}

func TestAPaymentIsCreditedOnceHoweverOftenItIsTold(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		l := newLedger(t, d)
		ws := l.workspace()
		of := l.topup(ws, 25)
		l.tell(change{session: paid(of), to: Paid}, applied)
		l.tell(change{session: paid(of), to: Paid}, unchanged)
		l.tell(change{session: paid(of), to: Expired}, unchanged)
		if got := l.balance(ws); got != 25*money.Dollar {
			t.Errorf("the balance is %s", got)
		}
		var group sync.WaitGroup
		other := l.topup(ws, 10)
		for range 8 {
			group.Go(func() {
				if _, err := l.apply(context.Background(), change{session: paid(other), to: Paid}); err != nil {
					t.Error(err)
				}
			})
		}
		group.Wait()
		if got := l.balance(ws); got != 35*money.Dollar {
			t.Errorf("told eight times at once, the balance is %s", got)
		}
		shown, err := l.Get(t.Context(), ws, of.ID)
		if err != nil || shown.State != Paid || shown.URL != "" || shown.PaidAt == nil || shown.CreatedBy != "usr_1" {
			t.Errorf("shown as %+v %v", shown, err)
		}
		l.proves()
	})
}

func TestWhatDoesNotMatchItsRowIsNotCredited(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		l := newLedger(t, d)
		ws, theirs := l.workspace(), l.workspace()
		of, other := l.topup(ws, 25), l.topup(theirs, 5)
		for name, spoil := range map[string]func(*paidSession){
			"another amount":               func(s *paidSession) { s.Amount = 2499 },
			"more than was asked for":      func(s *paidSession) { s.Amount = 250_000 },
			"another currency":             func(s *paidSession) { s.Currency = "idr" },
			"another session":              func(s *paidSession) { s.ID = "cs_other" },
			"the other workspace's row":    func(s *paidSession) { s.Reference = other.ID },
			"no session":                   func(s *paidSession) { s.ID = "" },
			"nothing paid, without amount": func(s *paidSession) { s.Amount = 0 },
		} {
			s := paid(of)
			spoil(s)
			done, err := l.apply(t.Context(), change{session: s, to: Paid})
			if err != nil || done != mismatched {
				t.Errorf("%s: %s %v", name, done, err)
			}
		}
		for _, reference := range []string{"", "topup_unknown"} {
			s := paid(of)
			s.Reference = reference
			l.tell(change{session: s, to: Paid}, unknown)
		}
		if l.balance(ws) != 0 || l.balance(theirs) != 0 {
			t.Errorf("credited: %s, %s", l.balance(ws), l.balance(theirs))
		}
		if shown, err := l.Get(t.Context(), ws, of.ID); err != nil || shown.State != Pending {
			t.Errorf("the row is %s %v", shown.State, err)
		}
		if _, err := l.Get(t.Context(), theirs, of.ID); err == nil {
			t.Error("another workspace reads it")
		}
		l.tell(change{session: paid(of), to: Paid}, applied) // none of that is in the way of the true one
	})
}

func TestAnEventBeforeThePageIsStoredIsToldAgain(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		l := newLedger(t, d)
		ws := l.workspace()
		of, err := l.Create(t.Context(), ws, person, 5*money.Dollar)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := l.apply(t.Context(), change{session: paid(of), to: Paid}); err == nil {
			t.Error("an event about a top-up without a page is accepted")
		}
		if l.balance(ws) != 0 {
			t.Errorf("the balance is %s", l.balance(ws))
		}
	})
}

func TestWhatIsTakenBackBeyondTheWalletIsADebtThatTheNextCreditPays(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		l := newLedger(t, d)
		ws := l.workspace()
		of := l.topup(ws, 25)
		l.tell(change{session: paid(of), to: Paid}, applied)
		hold := l.hold(ws, 10*money.Dollar) // a request runs
		l.tell(change{back: &reversal{intent: "pi_" + of.ID, source: "ch_1", kind: ofCharge, amount: 25 * money.Dollar, grows: true}}, applied)
		if l.balance(ws) != 10*money.Dollar || l.owed(ws) != 10*money.Dollar || wallettest.Free(l.t, l.wallets, ws) != 0 {
			t.Errorf("while a request holds 10: balance %s, owed %s, free %s", l.balance(ws), l.owed(ws), wallettest.Free(l.t, l.wallets, ws))
		}
		hold.Release()
		if err := l.wallets.Collect(t.Context()); err != nil || l.balance(ws) != 0 || l.owed(ws) != 0 {
			t.Errorf("collected: %v, balance %s, owed %s", err, l.balance(ws), l.owed(ws))
		}
		l.proves()

		spent := l.topup(ws, 20)
		l.tell(change{session: paid(spent), to: Paid}, applied)
		running := l.hold(ws, 15*money.Dollar)
		l.tell(change{back: &reversal{intent: "pi_" + spent.ID, source: "dp_1", kind: ofDispute, amount: 20 * money.Dollar}}, applied)
		running.Release()
		next, err := l.wallets.TopUp(t.Context(), ws, tenant.Operator, 18*money.Dollar, "credit")
		if err != nil || next.Balance != 18*money.Dollar || l.owed(ws) != 0 {
			t.Errorf("a credit of 18 with 15 owed, which were free by then: %s owed %s %v", next.Balance, l.owed(ws), err)
		}
		l.tell(change{back: &reversal{intent: "pi_" + spent.ID, source: "dp_1", kind: ofDispute, final: true}}, applied) // the dispute is won
		if l.balance(ws) != 38*money.Dollar {
			t.Errorf("after the dispute was won the balance is %s", l.balance(ws))
		}
		l.proves()
	})
}

// What a named hold had set aside when money was taken back pays the debt when the hold ends.
func TestADebtIsPaidWhenANamedHoldEnds(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		l := newLedger(t, d)
		ws := l.workspace()
		of := l.topup(ws, 25)
		l.tell(change{session: paid(of), to: Paid}, applied)
		held := func(do func(context.Context, *db.Tx) error) {
			t.Helper()
			if err := l.feed.Change(t.Context(), func(tx *db.Tx) error { return do(t.Context(), tx) }); err != nil {
				t.Fatal(err)
			}
		}
		held(func(ctx context.Context, tx *db.Tx) error {
			return l.poster.Holds.Open(ctx, tx, ws, "rs_1", "reward", 10*money.Dollar)
		})
		l.tell(change{back: &reversal{intent: "pi_" + of.ID, source: "ch_1", kind: ofCharge, amount: 25 * money.Dollar, grows: true}}, applied)
		if l.owed(ws) != 10*money.Dollar {
			t.Fatalf("owed %s", l.owed(ws))
		}
		ctx, stop := context.WithCancel(t.Context())
		var loop sync.WaitGroup
		loop.Go(func() { l.wallets.CollectLoop(ctx, l.poster) })
		defer func() { stop(); loop.Wait() }()
		held(func(ctx context.Context, tx *db.Tx) error { return l.poster.Holds.End(ctx, tx, ws, "rs_1") })
		for deadline := time.Now().Add(2 * time.Minute); l.owed(ws) != 0; time.Sleep(time.Millisecond) {
			if time.Now().After(deadline) {
				t.Fatalf("owed %s", l.owed(ws))
			}
		}
		l.proves()
	})
}

// refunds draws refunds of a payment, some of which fail, and returns their events with what stands of them in the end.
// Each is told of by itself, and by the sum of its charge, from which a failed one is gone.
func refunds(r *rapid.T, intent string, paid money.Nano) (events []change, standing money.Nano) {
	for i := range rapid.IntRange(0, 3).Draw(r, "refunds") {
		amount := money.Nano(rapid.Int64Range(0, int64((paid-standing)/money.Dollar)).Draw(r, "refund")) * money.Dollar
		source := fmt.Sprint("re_", i)
		standing += amount
		events = append(events,
			change{back: &reversal{intent: intent, source: source, kind: ofRefund, amount: amount}},
			change{back: &reversal{intent: intent, source: "ch_1", kind: ofCharge, amount: standing, grows: true}})
		if rapid.Bool().Draw(r, "fails") {
			standing -= amount
			events = append(events,
				change{back: &reversal{intent: intent, source: source, kind: ofFailure, amount: amount, final: true}})
		}
	}
	return events, standing
}

// Whatever is told, in whatever order and how often: a workspace has what was paid, less the refunds that did not fail
// and what was lost in disputes, and `ledger verify` passes.
func TestCreditsAreWhatWasPaidLessWhatWentBackInAnyOrder(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		l := newLedger(t, d)
		check := func(r *rapid.T) {
			ws := l.workspace()
			var events []change
			want := money.Nano(0)
			for i := range rapid.IntRange(1, 3).Draw(r, "topups") {
				of := l.topup(ws, money.Nano(rapid.IntRange(5, 50).Draw(r, "amount")))
				intent := "pi_" + of.ID
				pays := rapid.Bool().Draw(r, "pays")
				if pays {
					events = append(events, change{session: paid(of), to: Paid})
				}
				events = append(events, change{session: paid(of), to: Expired}, change{session: paid(of), to: Processing})
				told, back := refunds(r, intent, of.Amount)
				events = append(events, told...)
				dispute := reversal{intent: intent, source: fmt.Sprint("dp_", i), kind: ofDispute}
				inquiry, taken, won := dispute, dispute, dispute
				inquiry.grows, won.final = true, true
				taken.amount = money.Nano(rapid.IntRange(0, 30).Draw(r, "dispute")) * money.Dollar
				events = append(events, change{back: &inquiry}, change{back: &taken})
				if rapid.Bool().Draw(r, "won") {
					events = append(events, change{back: &won})
				} else {
					back += taken.amount
				}
				if pays {
					want += of.Amount - min(back, of.Amount)
				}
			}
			for _, e := range rapid.Permutation(append(events, events...)).Draw(r, "order") {
				if _, err := l.apply(t.Context(), e); err != nil {
					r.Fatal(err)
				}
			}
			if got := l.balance(ws) - l.owed(ws); got != want {
				r.Fatalf("the workspace has %s and owes %s; want %s together", l.balance(ws), l.owed(ws), want)
			}
			if err := l.wallets.Collect(t.Context()); err != nil || l.owed(ws) != 0 || l.balance(ws) != want {
				r.Fatalf("collected: %v, %s, owed %s, want %s", err, l.balance(ws), l.owed(ws), want)
			}
		}
		rapid.Check(t, check)
		l.proves()
	})
}

func TestOpenTopupsAreBounded(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		l := newLedger(t, d)
		ws := l.workspace()
		for range 20 {
			l.topup(ws, 5)
		}
		if _, err := l.Create(t.Context(), ws, person, 5*money.Dollar); err == nil {
			t.Error("the twenty-first open top-up is made")
		}
	})
}
