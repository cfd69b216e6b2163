// Package till handles the money of one request, from the hold before it runs to the charge after it. Every amount is
// in the journal before it is spent in memory, and a hold ends exactly once.
package till

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	"sovereign/internal/base/clock"
	"sovereign/internal/base/fault"
	"sovereign/internal/base/money"
	"sovereign/internal/base/outcome"
	"sovereign/internal/base/tenant"
	"sovereign/internal/live"
	"sovereign/internal/plane/funds"
	"sovereign/internal/plane/journal"
)

// A Till opens a Tab for each request.
type Till struct {
	funds    *funds.Funds
	journal  *journal.Journal
	log      *slog.Logger
	excess   func(money.Nano) // called with every amount beyond a hold
	overages func(money.Nano) // called with every amount that a wallet could not pay

	mu   sync.Mutex
	owed map[*Tab]journal.Entry // settlements that the journal has refused so far
	wake chan struct{}          // wakes Run: something is owed
}

// New returns a till that takes money from f and records it in j. excess is called with every amount that a request
// cost beyond its hold, overages with the part of a cost that the wallet could not pay.
func New(f *funds.Funds, j *journal.Journal, log *slog.Logger, excess, overages func(money.Nano)) *Till {
	return &Till{
		funds: f, journal: j, log: log, excess: excess, overages: overages, owed: map[*Tab]journal.Entry{},
		wake: make(chan struct{}, 1),
	}
}

// A Tab is the hold of one request and its usage so far. It belongs to one goroutine, and must not be copied after
// its first use; Owe alone copies it, and ends the original.
type Tab struct {
	till   *Till
	hold   funds.Hold
	charge journal.Charge
	price  live.Price // of the model that answers the request
	opened bool
	last   live.Usage // the usage that was last delivered and recorded
	ended  bool

	// What settlement has decided stays, when Owe follows a Settle that failed.
	excess  bool // a cost beyond the hold was reported
	excused bool // the cost is within the workspace's allowance
	spent   money.Nano
}

// A Settlement says how a request ended, and how it is charged.
type Settlement struct {
	Outcome outcome.Outcome
	Usage   live.Usage
	Counted bool // the tokens were counted by us
	Capped  bool // the hold is the most that is charged
}

var errEnded = errors.New("the request's money is settled already")

// InsufficientFunds reports that a wallet, or a named hold, cannot cover a hold.
type InsufficientFunds struct {
	Free  money.Nano
	Ended bool // the named hold has ended, or there is none
	Busy  bool // requests of other servers hold money of it, and may not spend all of that
}

func (s *InsufficientFunds) Error() string {
	return "only $" + s.Free.String() + " are free"
}

// Open sets an amount aside for a request: of the named hold of its charge, or else of the wallet. It refuses while the
// journal cannot be written: nothing may be spent that a crash would forget. Where wallets are shared with other
// servers, it waits until ctx ends for money that this server does not have.
func (t *Till) Open(ctx context.Context, c journal.Charge, amount money.Nano) (Tab, error) {
	if err := t.journal.Failure(); err != nil {
		return Tab{}, fault.Unavailable.Because(err, "charges cannot be recorded now").In(time.Second)
	}
	var hold funds.Hold
	var free money.Nano
	var ok bool
	open := true
	if c.Hold != "" {
		hold, free, open, ok = t.funds.HoldFrom(c.Workspace, c.Hold, amount)
	} else {
		hold, free, ok = t.funds.Hold(c.Workspace, amount)
	}
	switch from := t.funds.Source(); {
	case ok:
		return Tab{till: t, hold: hold, charge: c}, nil
	case from == nil || amount < 0:
		return Tab{}, &InsufficientFunds{Free: free, Ended: !open}
	default:
		return t.acquire(ctx, from, c, amount)
	}
}

func (t *Till) acquire(ctx context.Context, from funds.Source, c journal.Charge, amount money.Nano) (Tab, error) {
	hold, err := from.Acquire(ctx, funds.Payer{Workspace: c.Workspace, Hold: c.Hold}, amount)
	var short *funds.Short
	switch {
	case errors.As(err, &short):
		return Tab{}, &InsufficientFunds{Free: short.Free, Ended: short.Ended, Busy: short.Busy}
	case err != nil:
		return Tab{}, err
	}
	return Tab{till: t, hold: hold, charge: c}, nil
}

// Allow sets what workspaces may abandon without paying.
func (t *Till) Allow(a funds.Allowance) { t.funds.Allow(a) }

// Free returns what a request of a workspace can spend now: of a named hold, or of the wallet when hold is empty.
func (t *Till) Free(ws tenant.ID, hold string) money.Nano {
	if hold != "" {
		return t.funds.Left(ws, hold)
	}
	return t.funds.Free(ws)
}

// Look returns what a workspace has free, and what it has spent so far. Where wallets are shared with other servers,
// what is free may include what their requests hold.
func (t *Till) Look(ctx context.Context, ws tenant.ID) (free, spent money.Nano, err error) {
	free = t.funds.Free(ws)
	if from := t.funds.Source(); from != nil && free <= 0 {
		return from.Look(ctx, ws)
	}
	return free, t.funds.Balance(ws).Spent, nil
}

// SetModel sets which model answers, its price, and whether the request uses the workspace's own key.
func (t *Tab) SetModel(m *live.Model, p live.Price, own bool) {
	t.charge.Model, t.charge.Provider, t.charge.Own, t.price = m.ID, m.Provider.Name, own, p
}

// chargeFor returns the charge for a usage, at the rates that apply to that much input. The rates are stored in the
// charge.
func (t *Tab) chargeFor(used live.Usage, counted bool) journal.Charge {
	c := t.charge
	c.At, c.Usage, c.Counted, c.Price = clock.Now(), used, counted, t.price.At(used.Input)
	c.Cost = c.Price.Of(used)
	return c
}

// Spent returns what the request counts for in budgets, once it is settled or owed: what is charged, and the cost where
// that is excused.
func (t *Tab) Spent() money.Nano { return t.spent }

// Journaled reports whether the journal has an entry of the request.
func (t *Tab) Journaled() bool { return t.opened }

// RecordUsage records the usage so far, in case the process dies. The first call belongs before the first content. What
// a call could not record, the next call records.
func (t *Tab) RecordUsage(used live.Usage) error {
	if t.ended {
		return errEnded
	}
	c := t.chargeFor(used, true)
	c.Charged = min(c.Cost, t.hold.Amount())
	kind := journal.Opened
	if t.opened {
		kind = journal.Progressed
	}
	if err := t.till.journal.Append(journal.Entry{Kind: kind, Charge: c}); err != nil {
		return err
	}
	t.opened, t.last = true, used
	return nil
}

// Settle charges the usage and ends the hold. When it fails, nothing is charged yet and the hold stands. The caller
// then calls Drop, when nothing was delivered, or Owe.
func (t *Tab) Settle(s Settlement) error {
	if t.ended {
		return errEnded
	}
	e := t.settlement(s)
	if err := t.till.journal.Append(e); err != nil {
		return err
	}
	t.ended = true
	t.applyCharge(e)
	return nil
}

func (t *Tab) settlement(s Settlement) journal.Entry {
	c := t.chargeFor(s.Usage, s.Counted)
	c.Outcome = string(s.Outcome)
	held := t.hold.Amount()
	if c.Cost > held && !t.excess {
		t.excess = true
		t.till.log.Warn("a request cost more than was held for it: "+
			"its model's limits or prices, or what its provider reports, cannot be right",
			"request_id", c.Request, "workspace", c.Workspace, "model", c.Model,
			"cost_usd", c.Cost.String(), "held_usd", held.String())
		t.till.excess(c.Cost - held)
	}
	switch {
	case s.Outcome.Basis() == outcome.Excused && (t.excused || t.hold.Excuse(c.Cost, c.At)):
		t.excused = true
	case s.Capped:
		c.Charged = min(c.Cost, held)
	default:
		c.Charged = t.cover(c.Cost)
	}
	if t.spent = c.Charged; t.excused {
		t.spent = c.Cost
	}
	return journal.Entry{Kind: journal.Settled, Charge: c}
}

// coverTimeout bounds how long a settlement waits for money of a shared wallet beyond its hold.
const coverTimeout = 3 * time.Second

// cover returns how much of a cost can be paid, and extends the hold as far: first by what this server has, then by
// what it can acquire.
func (t *Tab) cover(cost money.Nano) money.Nano {
	paid, from := t.hold.Cover(cost), t.till.funds.Source()
	if paid >= cost || from == nil {
		return paid
	}
	ctx, cancel := context.WithTimeout(context.Background(), coverTimeout)
	defer cancel()
	payer, missing := funds.Payer{Workspace: t.charge.Workspace, Hold: t.charge.Hold}, cost-paid
	more, err := from.Acquire(ctx, payer, missing)
	if short := (*funds.Short)(nil); errors.As(err, &short) && short.Free > 0 {
		more, err = from.Acquire(ctx, payer, min(short.Free, missing))
	}
	if err == nil {
		t.hold.Join(&more)
	}
	return min(cost, t.hold.Amount())
}

// applyCharge updates memory after the settlement was recorded.
func (t *Tab) applyCharge(e journal.Entry) {
	t.hold.Settle(e.Charged, e.At)
	if over := e.Cost - e.Charged; over > 0 && !t.excused {
		t.till.overages(over)
		t.till.log.Error("a request cost more than it could be charged: the rest is the operator's overage",
			"request_id", e.Request, "workspace", e.Workspace, "model", e.Model,
			"cost_usd", e.Cost.String(), "overage_usd", over.String())
	}
}

// Owe settles as soon as the journal can be written again, unless the tab has ended. Until then the hold stands.
func (t *Tab) Owe(s Settlement) {
	if t.ended {
		return
	}
	e := t.settlement(s)
	kept := *t // a copy, so that a debt retains nothing else of its request
	t.till.mu.Lock()
	defer t.till.mu.Unlock()
	t.ended = true
	t.till.owed[&kept] = e
	select {
	case t.till.wake <- struct{}{}:
	default: // Run is already awake
	}
}

// Drop ends the hold and charges nothing when nothing was delivered. A tab that was opened is settled with the usage
// that was last recorded. A tab that has ended is left as it is, so Drop may be deferred.
func (t *Tab) Drop() {
	if t.ended {
		return
	}
	if t.opened {
		t.Owe(Settlement{Outcome: outcome.Broken, Usage: t.last, Counted: true, Capped: true})
		return
	}
	t.ended = true
	t.hold.Release()
}

// Collect tries to settle what is owed, and returns how many debts are left.
func (t *Till) Collect() int {
	t.mu.Lock()
	defer t.mu.Unlock()
	for tab, e := range t.owed {
		if t.journal.Append(e) != nil {
			break
		}
		delete(t.owed, tab)
		tab.applyCharge(e)
	}
	return len(t.owed)
}

// collectEvery is the interval between two attempts to settle debts.
const collectEvery = 250 * time.Millisecond

// ErrOwed reports that some charges could not be recorded before Run ended.
var ErrOwed = errors.New("some charges could not be recorded")

// Run collects debts until ctx ends, and once more then. It sleeps while there are none.
func (t *Till) Run(ctx context.Context) error {
	var again <-chan time.Time
	for {
		select {
		case <-t.wake:
			if again == nil { // a further debt does not postpone the attempt
				again = time.After(collectEvery)
			}
		case <-again:
			if again = nil; t.Collect() > 0 {
				again = time.After(collectEvery)
			}
		case <-ctx.Done():
			if t.Collect() > 0 {
				return ErrOwed
			}
			return nil
		}
	}
}
