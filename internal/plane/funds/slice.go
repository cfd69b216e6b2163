package funds

import (
	"context"

	"sovereign/internal/base/money"
	"sovereign/internal/base/tenant"
)

// A Payer is a named hold or, when Hold is empty, a wallet.
type Payer struct {
	Workspace tenant.ID
	Hold      string
}

// A Source has the money of wallets that are shared with other servers. Requests hold what this server has taken of it.
type Source interface {
	// Acquire holds an amount for a request that what was taken does not cover. It fails with *Short when the payer
	// does not have so much free, and with another error when that cannot be found out in time.
	Acquire(ctx context.Context, from Payer, amount money.Nano) (Hold, error)
	// Look returns what is not known to be spent or held of a wallet, and what was spent of it, as the ledger has it.
	Look(ctx context.Context, ws tenant.ID) (left, spent money.Nano, err error)
}

// Short reports that a payer has less free than an amount.
type Short struct {
	Free  money.Nano
	Ended bool // the named hold has ended, or there is none
	Busy  bool // requests of other servers hold money of the payer, and may not spend all of it
}

func (s *Short) Error() string { return "only $" + s.Free.String() + " are free" }

// slice is what a balance has besides where wallets are shared with other servers.
type slice struct {
	low       money.Nano // less than this free is worth a call
	signalled bool       // since the last grant
	used      bool       // since the last look
	scarce    bool       // what becomes free goes back at once
	returning money.Nano // not free any more: to be given back
}

// Share makes f hold what it is granted of shared wallets. It is called before anything is held.
func (f *Funds) Share(from Source) { f.source = from }

// Source returns where to acquire more money, or nil.
func (f *Funds) Source() Source { return f.source }

// Signals returns the payers that are low, or have money to give back.
func (f *Funds) Signals() <-chan Payer { return f.signals }

// signal sends a payer to Signals, once until Received or the next grant. It never blocks. The account is locked.
func (f *Funds) signal(s *slice, p Payer) {
	if s.signalled {
		return
	}
	select {
	case f.signals <- p:
		s.signalled = true
	default: // the next hold tries again
	}
}

// Received notes that a signal was received. If handling it fails, the payer is signalled again.
func (f *Funds) Received(p Payer) {
	f.with(p, func(_ *account, _ *named, from *balance) { from.slice.signalled = false })
}

// setAside takes what is free out of a balance, to be given back. The account is locked.
func (f *Funds) setAside(a *account, n *named) {
	from, p := &a.balance, Payer{Workspace: a.ws}
	if n != nil {
		from, p.Hold = &n.balance, n.id
	}
	if idle := from.free(); idle > 0 {
		from.credited -= idle
		from.slice.returning += idle
	}
	if from.slice.returning > 0 {
		f.signal(&from.slice, p)
	}
}

// with calls do with the balance of a payer, which it adds, while the account is locked.
func (f *Funds) with(p Payer, do func(*account, *named, *balance)) {
	a := f.account(p.Workspace)
	a.mu.Lock()
	defer a.mu.Unlock()
	if p.Hold == "" {
		do(a, nil, &a.balance)
		return
	}
	n := a.named[p.Hold]
	if n == nil {
		n = &named{id: p.Hold, apart: true}
		a.add(n)
	}
	do(a, n, &n.balance)
	a.change(n, func() {})
	if n.left() == 0 && n.held == 0 && n.unposted == 0 && !n.slice.scarce {
		delete(a.named, p.Hold)
	}
}

// Grant adds an amount to a slice and, in the same moment, holds need of what is free then. Without enough for need it
// holds nothing, and returns false. From then on the payer is low when less than low is free.
func (f *Funds) Grant(p Payer, granted, need, low money.Nano) (hold Hold, ok bool) {
	f.with(p, func(a *account, n *named, from *balance) {
		from.credited += granted
		from.slice.low, from.slice.signalled, from.slice.used = low, false, true
		free := from.free()
		if n != nil {
			free = n.free()
		}
		if ok = need <= free && (n == nil || !n.ended); ok {
			from.held += need
			hold = Hold{funds: f, account: a, named: n, amount: need}
		}
		if from.slice.scarce {
			f.setAside(a, n)
		}
	})
	return hold, ok
}

// Return adds to a slice what could not be given back.
func (f *Funds) Return(p Payer, amount money.Nano) {
	f.with(p, func(a *account, n *named, from *balance) {
		from.credited += amount
		if from.slice.scarce {
			f.setAside(a, n)
		}
	})
}

// Take is Hold or HoldFrom.
func (f *Funds) Take(p Payer, amount money.Nano) (hold Hold, ok bool) {
	if p.Hold == "" {
		hold, _, ok = f.Hold(p.Workspace, amount)
	} else {
		hold, _, _, ok = f.HoldFrom(p.Workspace, p.Hold, amount)
	}
	return hold, ok
}

// HeldOf returns what requests of this server hold of a payer.
func (f *Funds) HeldOf(p Payer) (held money.Nano) {
	f.with(p, func(_ *account, _ *named, from *balance) { held = from.held })
	return held
}

// Unposted returns what was settled of a payer and is not posted.
func (f *Funds) Unposted(p Payer) (unposted money.Nano) {
	f.with(p, func(_ *account, _ *named, from *balance) { unposted = from.unposted })
	return unposted
}

// Withdraw takes out of a slice what is free beyond an amount, and what waits to be given back.
func (f *Funds) Withdraw(p Payer, keep money.Nano) (taken money.Nano) {
	f.with(p, func(_ *account, _ *named, from *balance) {
		taken, from.slice.returning, from.slice.signalled = from.slice.returning, 0, false
		if idle := from.free() - keep; idle > 0 {
			from.credited -= idle
			taken += idle
		}
	})
	return taken
}

// SetScarce says whether what becomes free of a slice goes back at once, so that no server keeps what another needs.
func (f *Funds) SetScarce(p Payer, scarce bool) {
	f.with(p, func(a *account, n *named, from *balance) {
		if from.slice.scarce = scarce || n != nil && n.ended; from.slice.scarce {
			from.slice.low = 0
			f.setAside(a, n)
		}
	})
}

// A Slice is what this server has of a payer.
type Slice struct {
	Amount   money.Nano // what was taken and is not posted
	Free     money.Nano
	Held     money.Nano
	Unposted money.Nano
	Idle     money.Nano // to be given back
	Low      bool       // less is free than a server should have
	Used     bool       // since the last look
	Scarce   bool
}

// Look returns what this server has of a payer.
func (f *Funds) Look(p Payer) (s Slice) {
	f.with(p, func(_ *account, _ *named, from *balance) {
		s = Slice{
			Amount: from.credited - from.spent + from.slice.returning, Free: from.free(), Held: from.held,
			Unposted: from.unposted, Idle: from.slice.returning, Low: from.free() < from.slice.low,
			Used: from.slice.used, Scarce: from.slice.scarce,
		}
	})
	return s
}

// Unused begins to note anew whether a slice is used.
func (f *Funds) Unused(p Payer) {
	f.with(p, func(_ *account, _ *named, from *balance) { from.slice.used = false })
}

// Shared returns what this server holds of a shared wallet, and what it has settled of it and not posted: of the
// wallet, and of its named holds.
func (f *Funds) Shared(ws tenant.ID) (held, unposted, named money.Nano) {
	a := f.account(ws)
	a.mu.Lock()
	defer a.mu.Unlock()
	held, unposted = a.held, a.unposted
	for _, n := range a.named {
		if n.ended {
			held += n.held
			unposted += n.unposted
		} else {
			named += n.unposted
		}
	}
	return held, unposted, named
}

// Reload makes a slice what the ledger says it is.
func (f *Funds) Reload(p Payer, amount money.Nano) {
	f.with(p, func(_ *account, _ *named, from *balance) {
		from.credited, from.slice.returning = amount+from.spent, 0
	})
}

// Join adds the amount of another hold of the same payer, which ends.
func (h *Hold) Join(more *Hold) {
	a := h.account
	a.mu.Lock()
	defer a.mu.Unlock()
	if h.amount == 0 && h.named != nil && more.named != nil && h.named.id == more.named.id {
		h.named = more.named // the entry of a hold of nothing is dropped, and may have been added anew since
	}
	if !h.ended && !more.ended && h.account == more.account && h.named == more.named {
		h.amount, more.ended = h.amount+more.amount, true
	}
}
