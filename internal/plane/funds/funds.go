// Package funds holds the money of every workspace in memory: what was credited, what was spent, and what running
// requests hold. A hold is taken before a request runs and ends with it, so that no interleaving of requests can
// overspend a wallet. A named hold is a part of a wallet that is set aside for longer; the holds of its requests are
// taken from it.
package funds

import (
	"hash/maphash"
	"math"
	"sync"
	"sync/atomic"

	"sovereign/internal/base/clock"
	"sovereign/internal/base/money"
	"sovereign/internal/base/tenant"
)

// A Balance is what a workspace owns, what running requests and named holds hold of it, and what it has spent so far.
type Balance struct {
	Balance   money.Nano `json:"balance_usd"`
	Held      money.Nano `json:"held_usd"`
	Spent     money.Nano `json:"spent_usd"`
	Excused   money.Nano `json:"abandoned_unpaid_usd" doc:"What abandoned requests cost in the last 24 hours and were not charged"`
	Allowance money.Nano `json:"abandoned_allowance_usd" doc:"How much of that is allowed; beyond it they are charged"`
}

// Funds holds every workspace's money. It is safe for concurrent use.
type Funds struct {
	// Ledger is locked while settled amounts move from memory to the ledger. Code that reads both holds the read lock.
	Ledger sync.RWMutex

	seed      maphash.Seed
	shards    [64]shard
	allowance atomic.Pointer[Allowance]
	source    Source     // of more money, when the wallets are shared with other servers; else nil
	signals   chan Payer // payers that are low, or have money to give back
}

type shard struct {
	mu       sync.RWMutex
	accounts map[tenant.ID]*account
}

// A balance is money that requests hold and spend. What is free in it is credited − spent − unposted − held, and never
// below zero. Where wallets are shared with other servers, it is this server's slice: credited is what was taken for
// it, and spent what was posted from it.
type balance struct {
	credited money.Nano // as the ledger says
	spent    money.Nano // as the ledger says
	unposted money.Nano // settled, but not yet in the ledger
	held     money.Nano // by running requests and, in a wallet that is not shared, named holds
	slice    slice
}

func (p *balance) free() money.Nano { return p.credited - p.spent - p.unposted - p.held }

type account struct {
	ws tenant.ID
	mu sync.Mutex
	balance
	named  map[string]*named
	recent recent
}

// New returns Funds without any money.
func New() *Funds {
	f := &Funds{seed: maphash.MakeSeed(), signals: make(chan Payer, 4096)}
	f.allowance.Store(&Allowance{})
	for i := range f.shards {
		f.shards[i].accounts = map[tenant.ID]*account{}
	}
	return f
}

func (f *Funds) account(ws tenant.ID) *account {
	s := &f.shards[maphash.Comparable(f.seed, ws)%uint64(len(f.shards))]
	s.mu.RLock()
	a := s.accounts[ws]
	s.mu.RUnlock()
	if a != nil {
		return a
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if a = s.accounts[ws]; a == nil {
		a = &account{ws: ws}
		s.accounts[ws] = a
	}
	return a
}

// Free returns what a workspace can spend now.
func (f *Funds) Free(ws tenant.ID) money.Nano {
	a := f.account(ws)
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.free()
}

// A Hold is money set aside for one request. It ends once, by Settle or Release, and must not be copied after its
// first use.
type Hold struct {
	funds   *Funds
	account *account
	named   *named // the named hold that it is a part of; nil for the wallet
	amount  money.Nano
	ended   bool
}

// Hold sets an amount aside and returns what is free then. When the amount is more than what is free, it holds
// nothing and returns what is free, false.
func (f *Funds) Hold(ws tenant.ID, amount money.Nano) (hold Hold, free money.Nano, ok bool) {
	a := f.account(ws)
	a.mu.Lock()
	defer a.mu.Unlock()
	free = a.free()
	if amount < 0 || amount > free {
		return Hold{}, free, false
	}
	a.held += amount
	if free -= amount; free < a.slice.low {
		f.signal(&a.slice, Payer{Workspace: ws})
	}
	a.slice.used = true
	return Hold{funds: f, account: a, amount: amount}, free, true
}

// Amount returns the amount set aside.
func (h *Hold) Amount() money.Nano { return h.amount }

// Cover returns how much of a cost can be paid. It extends the hold by free money as far as the cost needs it: by that
// of the wallet or, for a part of a named hold, by that of the named hold alone.
func (h *Hold) Cover(cost money.Nano) money.Nano {
	a := h.account
	a.mu.Lock()
	defer a.mu.Unlock()
	if h.ended {
		return min(cost, h.amount)
	}
	from := h.balance()
	if more := min(cost-h.amount, h.free()); more > 0 {
		from.held += more
		h.amount += more
	}
	return min(cost, h.amount)
}

// balance returns where the hold is taken from. The account is locked.
func (h *Hold) balance() *balance {
	if h.named != nil {
		return &h.named.balance
	}
	return &h.account.balance
}

// free returns what is free there. The account is locked.
func (h *Hold) free() money.Nano {
	if h.named != nil {
		return h.named.free()
	}
	return h.account.free()
}

// Settle ends the hold at a time: charged is spent, and the rest becomes free again. charged is at most what Cover
// returned.
func (h *Hold) Settle(charged money.Nano, at clock.Time) {
	a := h.account
	a.mu.Lock()
	defer a.mu.Unlock()
	if h.ended {
		return
	}
	h.ended = true
	charged = min(max(charged, 0), h.amount)
	n := h.named
	if n == nil || !n.apart {
		a.unposted += charged
	}
	if n != nil {
		a.change(n, func() { n.held, n.unposted = n.held-h.amount, n.unposted+charged })
	} else {
		a.held -= h.amount
	}
	a.recent.add(at, charged, 0)
	if from := h.balance(); from.slice.scarce {
		h.funds.setAside(a, n)
	}
}

// Release ends the hold and spends nothing. Repeating it, or calling it after Settle, is a no-op.
func (h *Hold) Release() { h.Settle(0, 0) }

// Posted records that a settled amount is in the ledger now, which took posted of it from the wallet. hold is the id of
// the named hold that it was settled from, or empty.
func (f *Funds) Posted(ws tenant.ID, hold string, settled, posted money.Nano) {
	a := f.account(ws)
	a.mu.Lock()
	defer a.mu.Unlock()
	n := a.named[hold]
	if hold == "" || f.source == nil {
		a.unposted -= settled
		a.spent += posted
	}
	if n != nil {
		a.change(n, func() { n.unposted, n.spent = n.unposted-settled, n.spent+posted })
	}
}

// Credit sets how much the workspace was credited in all, according to the ledger.
func (f *Funds) Credit(ws tenant.ID, credited money.Nano) {
	a := f.account(ws)
	a.mu.Lock()
	defer a.mu.Unlock()
	a.credited = credited
}

// An Account is a workspace's money according to the ledger.
type Account struct {
	Workspace       tenant.ID
	Credited, Spent money.Nano
	Open            []Named `db:"-"` // the named holds that have not ended
}

// Fill replaces credited and spent of every account and of the named holds that are listed by the ledger's values, and
// adds those that are missing. Unposted and held amounts stay, and so do named holds that are not listed: they may be
// about to be opened.
func (f *Funds) Fill(all []Account) {
	there := map[tenant.ID]bool{}
	for _, one := range all {
		there[one.Workspace] = true
		a := f.account(one.Workspace)
		a.mu.Lock()
		a.credited, a.spent = one.Credited, one.Spent
		for _, open := range one.Open {
			a.put(open)
		}
		a.mu.Unlock()
	}
	for i := range f.shards {
		s := &f.shards[i]
		s.mu.RLock()
		for ws, a := range s.accounts {
			if !there[ws] {
				a.mu.Lock()
				a.credited, a.spent = 0, 0
				a.mu.Unlock()
			}
		}
		s.mu.RUnlock()
	}
}

// Balance returns a workspace's money now.
func (f *Funds) Balance(ws tenant.ID) Balance {
	a := f.account(ws)
	a.mu.Lock()
	defer a.mu.Unlock()
	spent := a.spent + a.unposted
	paid, excused := a.recent.sums(clock.Now())
	return Balance{
		Balance: a.credited - spent, Held: a.held, Spent: spent,
		Excused: excused, Allowance: f.allowance.Load().of(paid),
	}
}

// Held returns the sum of all holds.
func (f *Funds) Held() money.Nano {
	var sum money.Nano
	for i := range f.shards {
		s := &f.shards[i]
		s.mu.RLock()
		for _, a := range s.accounts {
			a.mu.Lock()
			held := a.held
			for _, n := range a.named {
				if n.apart {
					held += n.held
				}
			}
			a.mu.Unlock()
			if next, fits := sum.Add(held); fits {
				sum = next
			} else {
				sum = math.MaxInt64
			}
		}
		s.mu.RUnlock()
	}
	return sum
}
