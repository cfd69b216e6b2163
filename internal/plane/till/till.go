// Package till is the money of one request, from the hold before it runs to the charge after it: every amount is in the
// journal before it is spent in memory, and a hold ends exactly once.
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

// A Till opens tabs.
type Till struct {
	funds    *funds.Funds
	journal  *journal.Journal
	log      *slog.Logger
	excess   func(money.Nano) // told of every amount beyond a hold
	overages func(money.Nano) // and of what a wallet could not pay

	mu   sync.Mutex
	owed map[*Tab]journal.Entry // settled, and refused by the journal so far
	wake chan struct{}          // for Run: something is owed
}

// New takes money from f and writes it into j. excess is told of every amount that a request cost beyond its hold,
// overages of what the wallet could not pay of it.
func New(f *funds.Funds, j *journal.Journal, log *slog.Logger, excess, overages func(money.Nano)) *Till {
	return &Till{funds: f, journal: j, log: log, excess: excess, overages: overages, owed: map[*Tab]journal.Entry{}, wake: make(chan struct{}, 1)}
}

// A Tab is what one request holds, and what it has used so far. It belongs to one goroutine, and is not copied after its first use.
type Tab struct {
	till   *Till
	hold   funds.Hold
	charge journal.Charge
	price  live.Price // of the model that answers
	opened bool
	last   live.Usage // that was delivered and recorded
	ended  bool
}

var errEnded = errors.New("the request's money is settled already")

// Short says that a wallet cannot cover a hold.
type Short struct{ Free money.Nano }

func (s *Short) Error() string { return "the wallet has only $" + s.Free.String() + " free" }

// Open sets an amount aside for a request. It is refused while the journal cannot be written: nothing is spent that
// could be forgotten.
func (t *Till) Open(c journal.Charge, amount money.Nano) (Tab, error) {
	if err := t.journal.Failure(); err != nil {
		return Tab{}, fault.Unavailable.Because(err, "charges cannot be recorded now").In(time.Second)
	}
	hold, free, ok := t.funds.Hold(c.Workspace, amount)
	if !ok {
		return Tab{}, &Short{Free: free}
	}
	return Tab{till: t, hold: hold, charge: c}, nil
}

// Free is what a workspace has to spend now.
func (t *Till) Free(ws tenant.ID) money.Nano {
	b := t.funds.Balance(ws)
	return b.Balance - b.Held
}

// Serve says which model answers, at what price, and whether that is with the workspace's own key.
func (t *Tab) Serve(m *live.Model, p live.Price, own bool) {
	t.charge.Model, t.charge.Provider, t.charge.Own, t.price = m.ID, m.Provider.Name, own, p
}

// charged is the charge of what was used, at the rates that hold for so much input: they are frozen on it.
func (t *Tab) charged(used live.Usage, counted bool) journal.Charge {
	c := t.charge
	c.At, c.Usage, c.Counted, c.Price = clock.Now(), used, counted, t.price.At(used.Input)
	c.Cost = c.Price.Of(used)
	return c
}

// Opened reports whether content was delivered and recorded.
func (t *Tab) Opened() bool { return t.opened }

// Deliver records what was used so far, should the process die. The first call is due at the first content; what
// could not be recorded is recorded by the next.
func (t *Tab) Deliver(used live.Usage) error {
	if t.ended {
		return errEnded
	}
	c := t.charged(used, true)
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

// Settle charges what was used and ends the hold. When it fails nothing is charged yet and the hold stands: the caller
// either drops the tab, because nothing was delivered, or owes it.
func (t *Tab) Settle(o outcome.Outcome, used live.Usage, counted bool) error {
	if t.ended {
		return errEnded
	}
	e := t.settlement(o, used, counted)
	if err := t.till.journal.Append(e); err != nil {
		return err
	}
	t.ended = true
	t.end(e)
	return nil
}

func (t *Tab) settlement(o outcome.Outcome, used live.Usage, counted bool) journal.Entry {
	c := t.charged(used, counted)
	c.Outcome = string(o)
	if held := t.hold.Amount(); c.Cost > held {
		t.till.log.Warn("a request cost more than was held for it: its model's limits or prices, or what its provider reports, cannot be right",
			"request_id", c.Request, "workspace", c.Workspace, "model", c.Model, "cost_usd", c.Cost.String(), "held_usd", held.String())
		t.till.excess(c.Cost - held)
	}
	c.Charged = t.hold.Cover(c.Cost)
	return journal.Entry{Kind: journal.Settled, Charge: c}
}

// end tells memory what was recorded. What is owed is ended by Collect, while the tab's own goroutine may still look at
// it, so it changes nothing of the tab's.
func (t *Tab) end(e journal.Entry) {
	t.hold.Settle(e.Charged)
	if over := e.Cost - e.Charged; over > 0 {
		t.till.overages(over)
		t.till.log.Error("a request cost more than the wallet had: the rest is the operator's overage",
			"request_id", e.Request, "workspace", e.Workspace, "model", e.Model, "cost_usd", e.Cost.String(), "overage_usd", over.String())
	}
}

// Owe settles as soon as the journal can be written again, where nothing has before. Until then the hold stands.
func (t *Tab) Owe(o outcome.Outcome, used live.Usage, counted bool) {
	if t.ended {
		return
	}
	e := t.settlement(o, used, counted)
	kept := *t // so that a debt keeps nothing else of its request
	t.till.mu.Lock()
	defer t.till.mu.Unlock()
	t.ended = true
	t.till.owed[&kept] = e
	select {
	case t.till.wake <- struct{}{}:
	default: // it will be seen
	}
}

// Drop ends the hold and charges nothing, when nothing was delivered. A tab that was opened is settled with what was
// last delivered, and one that has ended stays as it is: Drop may be deferred.
func (t *Tab) Drop() {
	if t.ended {
		return
	}
	if t.opened {
		t.Owe(outcome.Broken, t.last, true)
		return
	}
	t.ended = true
	t.hold.Release()
}

// Collect tries to settle what is owed, and returns how much still is.
func (t *Till) Collect() int {
	t.mu.Lock()
	defer t.mu.Unlock()
	for tab, e := range t.owed {
		if t.journal.Append(e) != nil {
			break
		}
		delete(t.owed, tab)
		tab.end(e)
	}
	return len(t.owed)
}

// collectEvery is how soon a debt is tried again.
const collectEvery = 250 * time.Millisecond

// ErrOwed says that some charges could not be recorded before the end.
var ErrOwed = errors.New("some charges could not be recorded")

// Run collects what is owed until ctx ends, and once more then. While nothing is, it rests.
func (t *Till) Run(ctx context.Context) error {
	var again <-chan time.Time
	for {
		select {
		case <-t.wake:
			if again == nil { // another debt puts off none
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
