package funds

import (
	"sovereign/internal/base/money"
	"sovereign/internal/base/tenant"
)

// A named hold is money set aside for a thing that lasts longer than a request. Many requests hold and spend of it at
// once. Its money is part of what the wallet holds, so nothing else can spend it, and it never draws what is free in
// the wallet.
type named struct {
	balance // credited is the hold's amount or, where wallets are shared, this server's slice of it

	id    string
	apart bool // the wallet's balance holds nothing for it: wallets are shared
	ended bool
}

// reserved returns what the wallet holds for n: all that is left of an open hold, and what the running requests of an
// ended one hold.
func (n *named) reserved() money.Nano {
	switch {
	case n.apart:
		return 0
	case n.ended:
		return n.held
	}
	return n.credited - n.spent - n.unposted
}

// free returns what a request may hold of n.
func (n *named) free() money.Nano {
	if n.ended {
		return 0
	}
	return n.balance.free()
}

// left returns what is in the slice of a hold of a shared wallet.
func (n *named) left() money.Nano {
	if !n.apart {
		return 0
	}
	return n.credited - n.spent + n.slice.returning
}

// change changes n, and keeps what the account holds in step. A hold that has ended is forgotten when none of its
// requests runs and everything is in the ledger.
func (a *account) change(n *named, by func()) {
	before := n.reserved()
	by()
	a.held += n.reserved() - before
	if n.ended && n.held == 0 && n.unposted == 0 && n.left() == 0 && a.named[n.id] == n {
		delete(a.named, n.id)
	}
}

// add adds an open hold.
func (a *account) add(n *named) {
	if a.named == nil {
		a.named = map[string]*named{}
	}
	a.named[n.id] = n
	a.held += n.reserved()
}

// Reserve sets an amount aside as a named hold, and returns what is free in the wallet then. When the amount is not
// above zero or is more than what is free, or when there is a hold of that id already, it reserves nothing and returns
// what is free, false.
func (f *Funds) Reserve(ws tenant.ID, id string, amount money.Nano) (free money.Nano, ok bool) {
	a := f.account(ws)
	a.mu.Lock()
	defer a.mu.Unlock()
	if id == "" || amount <= 0 || amount > a.free() || a.named[id] != nil {
		return a.free(), false
	}
	a.add(&named{id: id, balance: balance{credited: amount}})
	return a.free(), true
}

// End ends a named hold: what is free in it is free in the wallet, and so is what its running requests do not spend,
// when they end. Ending a hold again, or one that is not known, is a no-op.
func (f *Funds) End(ws tenant.ID, id string) {
	a := f.account(ws)
	a.mu.Lock()
	defer a.mu.Unlock()
	if n := a.named[id]; n != nil {
		a.change(n, func() { n.ended = true })
		if n.apart {
			n.slice.scarce = true
			f.setAside(a, n)
		}
	}
}

// HoldFrom is Hold, from a named hold instead of the wallet. It also fails, with 0 free and open false, when the named
// hold has ended or is not known.
func (f *Funds) HoldFrom(ws tenant.ID, id string, amount money.Nano) (hold Hold, free money.Nano, open, ok bool) {
	a := f.account(ws)
	a.mu.Lock()
	defer a.mu.Unlock()
	n := a.named[id]
	if n == nil || n.ended {
		return Hold{}, 0, false, false
	}
	if free = n.free(); amount < 0 || amount > free {
		return Hold{}, free, true, false
	}
	n.held += amount // it is held in the account already
	if free -= amount; free < n.slice.low {
		f.signal(&n.slice, Payer{ws, id})
	}
	n.slice.used = true
	return Hold{funds: f, account: a, named: n, amount: amount}, free, true, true
}

// Left returns what is free in a named hold: 0 when it has ended or is not known.
func (f *Funds) Left(ws tenant.ID, id string) money.Nano {
	a := f.account(ws)
	a.mu.Lock()
	defer a.mu.Unlock()
	if n := a.named[id]; n != nil {
		return n.free()
	}
	return 0
}

// SpentOf returns what was spent from a named hold, posted or not. A hold that is not known has ended, and the ledger
// has everything that was spent from it.
func (f *Funds) SpentOf(ws tenant.ID, id string) (spent money.Nano, known bool) {
	a := f.account(ws)
	a.mu.Lock()
	defer a.mu.Unlock()
	n := a.named[id]
	if n == nil {
		return 0, false
	}
	return n.spent + n.unposted, true
}

// A Named is a named hold according to the ledger.
type Named struct {
	ID            string
	Amount, Spent money.Nano
	Ended         bool
}

// Put replaces what a named hold has spent by the ledger's value, ends one that has ended, and adds an open one that is
// missing. Unposted and held amounts stay.
func (f *Funds) Put(ws tenant.ID, one Named) {
	a := f.account(ws)
	a.mu.Lock()
	defer a.mu.Unlock()
	a.put(one)
}

func (a *account) put(one Named) {
	n := a.named[one.ID]
	switch {
	case n != nil:
		a.change(n, func() { n.spent, n.ended = one.Spent, n.ended || one.Ended })
	case !one.Ended:
		a.add(&named{id: one.ID, balance: balance{credited: one.Amount, spent: one.Spent}})
	}
}

// Names returns the ids of all named holds in memory, by workspace.
func (f *Funds) Names() map[tenant.ID][]string {
	all := map[tenant.ID][]string{}
	for i := range f.shards {
		s := &f.shards[i]
		s.mu.RLock()
		for ws, a := range s.accounts {
			a.mu.Lock()
			for id := range a.named {
				all[ws] = append(all[ws], id)
			}
			a.mu.Unlock()
		}
		s.mu.RUnlock()
	}
	return all
}
