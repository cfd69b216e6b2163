package funds_test

import (
	"fmt"
	"math"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"

	"pgregory.net/rapid"

	"sovereign/internal/base/money"
	"sovereign/internal/plane/funds"
)

// A part is the model of a named hold, with each amount separate.
type part struct {
	id                       string
	amount, posted, unposted money.Nano
	ended                    bool
	holds                    []*held
}

func (p *part) held() (sum money.Nano) {
	for _, h := range p.holds {
		if !h.ended {
			sum += h.amount
		}
	}
	return sum
}

func (p *part) free() money.Nano {
	if p.ended {
		return 0
	}
	return p.amount - p.posted - p.unposted - p.held()
}

// reserved is what the wallet holds for the part.
func (p *part) reserved() money.Nano { return p.free() + p.held() }

// A divided wallet is the model of a wallet with named holds.
type divided struct {
	wallet
	parts []*part
}

func (w *divided) free() money.Nano {
	free := w.wallet.free()
	for _, p := range w.parts {
		free -= p.posted + p.unposted + p.reserved()
	}
	return free
}

func (w *divided) spent() money.Nano {
	spent := w.posted + w.unposted
	for _, p := range w.parts {
		spent += p.posted + p.unposted
	}
	return spent
}

// dividedMachine compares the money of one workspace with the model, operation by operation.
type dividedMachine struct {
	funds *funds.Funds
	divided
	made int
}

func (m *dividedMachine) part(t *rapid.T) *part {
	if len(m.parts) == 0 {
		t.Skip("no named hold")
	}
	return rapid.SampledFrom(m.parts).Draw(t, "part")
}

// hold draws one of some holds, and the free money that it may be extended by.
func (m *dividedMachine) hold(t *rapid.T) (h *held, of *part) {
	holds := m.holds
	if rapid.Bool().Draw(t, "named") {
		of = m.part(t)
		holds = of.holds
	}
	if len(holds) == 0 {
		t.Skip("no hold")
	}
	return rapid.SampledFrom(holds).Draw(t, "hold"), of
}

func (m *dividedMachine) Reserve(t *rapid.T) {
	m.made++
	id, amount, before := fmt.Sprint("rs_", m.made), amount(t, -2, 300), m.free()
	if len(m.parts) > 0 && rapid.IntRange(0, 3).Draw(t, "again") == 0 {
		if p := m.part(t); !p.ended {
			if _, ok := m.funds.Reserve("ws", p.id, 1); ok {
				t.Fatal("an open hold was reserved twice")
			}
		}
	}
	free, ok := m.funds.Reserve("ws", id, amount)
	if want := amount > 0 && amount <= before; ok != want {
		t.Fatalf("%d of %d were reserved: %v", amount, before, ok)
	}
	if ok {
		m.parts = append(m.parts, &part{id: id, amount: amount})
	}
	if free != m.free() {
		t.Fatalf("%d is said to be free, %d is", free, m.free())
	}
}

func (m *dividedMachine) Hold(t *rapid.T) {
	amount, before := amount(t, -2, 120), m.free()
	hold, _, ok := m.funds.Hold("ws", amount)
	if want := amount >= 0 && amount <= before; ok != want {
		t.Fatalf("a hold of %d of %d free: %v", amount, before, ok)
	}
	if ok {
		m.holds = append(m.holds, &held{hold: &hold, amount: amount})
	}
}

func (m *dividedMachine) HoldFrom(t *rapid.T) {
	p, amount := m.part(t), amount(t, -2, 120)
	before := p.free()
	hold, free, open, ok := m.funds.HoldFrom("ws", p.id, amount)
	if want := !p.ended && amount >= 0 && amount <= before; ok != want || open == p.ended {
		t.Fatalf("a hold of %d of %d free, ended %v: %v, open %v", amount, before, p.ended, ok, open)
	}
	if ok {
		p.holds = append(p.holds, &held{hold: &hold, amount: amount})
	}
	if free != p.free() {
		t.Fatalf("%d is said to be free, %d is", free, p.free())
	}
}

func (m *dividedMachine) Cover(t *rapid.T) {
	h, of := m.hold(t)
	cost, free := amount(t, 0, 300), m.free()
	if of != nil {
		free = of.free()
	}
	if !h.ended {
		h.amount = max(h.amount, min(cost, h.amount+free))
	}
	if got := h.hold.Cover(cost); !h.ended && got != min(cost, h.amount) {
		t.Fatalf("%d of a cost of %d is covered, want %d", got, cost, min(cost, h.amount))
	}
}

func (m *dividedMachine) Settle(t *rapid.T) {
	h, of := m.hold(t)
	charged := amount(t, -2, 200)
	h.hold.Settle(charged, 0)
	if h.ended {
		return
	}
	h.ended = true
	if charged = min(max(charged, 0), h.amount); of != nil {
		of.unposted += charged
	} else {
		m.unposted += charged
	}
}

func (m *dividedMachine) Posted(t *rapid.T) {
	id, unposted, posted := "", &m.unposted, &m.posted
	if rapid.Bool().Draw(t, "named") {
		p := m.part(t)
		id, unposted, posted = p.id, &p.unposted, &p.posted
	}
	settled := amount(t, 0, int64(*unposted))
	paid := amount(t, 0, int64(settled)) // less than was settled, when two servers spend from one wallet
	*unposted -= settled
	*posted += paid
	m.funds.Posted("ws", id, settled, paid)
}

func (m *dividedMachine) End(t *rapid.T) {
	p := m.part(t)
	before, left := m.free(), p.free()
	m.funds.End("ws", p.id)
	p.ended = true
	if m.funds.Free("ws") != before+left {
		t.Fatalf("%d are free after a hold with %d free has ended, and %d were", m.funds.Free("ws"), left, before)
	}
}

func (m *dividedMachine) Credit(t *rapid.T) {
	m.credited += amount(t, 0, 400)
	m.funds.Credit("ws", m.credited)
}

// Fill is what a server does that has regained the database. The ledger knows of every hold.
func (m *dividedMachine) Fill(*rapid.T) {
	account := funds.Account{Workspace: "ws", Credited: m.credited, Spent: m.posted}
	for _, p := range m.parts {
		if account.Spent += p.posted; !p.ended {
			account.Open = append(account.Open, funds.Named{ID: p.id, Amount: p.amount, Spent: p.posted})
		}
	}
	m.funds.Fill([]funds.Account{account})
	for _, p := range m.parts {
		if p.ended {
			m.funds.Put("ws", funds.Named{ID: p.id, Amount: p.amount, Spent: p.posted, Ended: true})
		}
	}
}

// Check holds after every operation.
func (m *dividedMachine) Check(t *rapid.T) {
	b, free := m.funds.Balance("ws"), m.free()
	if b.Balance+b.Spent != m.credited || b.Spent != m.spent() || b.Balance-b.Held != free || m.funds.Free("ws") != free || free < 0 || b.Held < 0 {
		t.Fatalf("%+v of %d, of which %d are spent and %d free", b, m.credited, m.spent(), free)
	}
	for _, p := range m.parts {
		if left := m.funds.Left("ws", p.id); left != p.free() || left < 0 {
			t.Fatalf("%d are left in %+v", left, p)
		}
		spent, known := m.funds.SpentOf("ws", p.id)
		if gone := p.ended && p.held() == 0 && p.unposted == 0; known == gone || known && spent != p.posted+p.unposted {
			t.Fatalf("%d were spent from %+v, known %v", spent, p, known)
		}
		if p.posted+p.unposted+p.held() > p.amount {
			t.Fatalf("more was spent than set aside: %+v", p)
		}
	}
}

func amount(t *rapid.T, least, most int64) money.Nano {
	return money.Nano(rapid.Int64Range(least, most).Draw(t, "amount"))
}

// Random interleavings of all operations on a wallet and its named holds are compared with a model.
func TestNoInterleavingLeaksMoneyIntoOrOutOfANamedHold(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		m := &dividedMachine{funds: funds.New()}
		m.Credit(t)
		t.Repeat(rapid.StateMachineActions(m))
	})
}

// Many requests of one named hold, and of the wallet beside it, run until both are empty; the hold ends in between.
func TestConcurrentRequestsOfANamedHoldSpendItAlone(t *testing.T) {
	const wallet, budget, workers = money.Nano(5000), money.Nano(2000), 16
	for round := range 20 {
		f := funds.New()
		f.Credit("ws", wallet+budget)
		if _, ok := f.Reserve("ws", "rs_1", budget); !ok {
			t.Fatal("refused")
		}
		var named, plain atomic.Int64
		var group sync.WaitGroup
		for w := range workers {
			group.Go(func() {
				random := rand.New(rand.NewPCG(uint64(round), uint64(w)))
				for i := range 300 {
					if w == 0 && i == 150 && round%2 == 0 {
						f.End("ws", "rs_1")
					}
					amount := money.Nano(random.IntN(60))
					if w%2 == 0 {
						if hold, _, _, ok := f.HoldFrom("ws", "rs_1", amount); ok {
							charged := hold.Cover(money.Nano(random.IntN(90)))
							hold.Settle(charged, 0)
							named.Add(int64(charged))
							f.Posted("ws", "rs_1", charged, charged)
						}
					} else if hold, _, ok := f.Hold("ws", amount); ok {
						charged := hold.Cover(money.Nano(random.IntN(90)))
						hold.Settle(charged, 0)
						plain.Add(int64(charged))
						f.Posted("ws", "", charged, charged)
					}
					if b := f.Balance("ws"); b.Held < 0 || b.Held > b.Balance || b.Balance+b.Spent != wallet+budget {
						t.Errorf("%+v", b)
					}
				}
			})
		}
		group.Wait()
		f.End("ws", "rs_1")
		f.End("ws", "rs_1")
		b, spent := f.Balance("ws"), money.Nano(named.Load()+plain.Load())
		if money.Nano(named.Load()) > budget || b.Held != 0 || b.Spent != spent || b.Balance != wallet+budget-spent {
			t.Errorf("%d of %d were spent from the hold and %d from the wallet: %+v", named.Load(), budget, plain.Load(), b)
		}
	}
}

func TestANamedHoldNeverDrawsWhatIsFreeInTheWallet(t *testing.T) {
	f := funds.New()
	f.Credit("ws", 1000)
	if free, ok := f.Reserve("ws", "rs_1", 100); !ok || free != 900 {
		t.Fatal(free, ok)
	}
	hold, free, open, ok := f.HoldFrom("ws", "rs_1", 60)
	if !ok || !open || free != 40 {
		t.Fatal(free, open, ok)
	}
	if covered := hold.Cover(500); covered != 100 {
		t.Errorf("%d of a cost of 500 are covered by a hold of 100", covered)
	}
	f.End("ws", "rs_1") // what the request holds stays, and it can have no more
	if covered := hold.Cover(500); covered != 100 || f.Free("ws") != 900 {
		t.Errorf("%d are covered, %d are free", covered, f.Free("ws"))
	}
	hold.Settle(70, 0)
	if b := f.Balance("ws"); b != (funds.Balance{Balance: 930, Spent: 70}) {
		t.Errorf("%+v", b)
	}
	if _, _, open, ok := f.HoldFrom("ws", "rs_1", 0); open || ok {
		t.Error("a hold that has ended is open")
	}
}

// A customer cannot get more out of a wallet by dividing it.
func TestNoAmountMakesANamedHoldGainful(t *testing.T) {
	f := funds.New()
	f.Credit("ws", 100)
	for _, amount := range []money.Nano{math.MinInt64, -100, -1, 0, 101, math.MaxInt64} {
		if free, ok := f.Reserve("ws", "rs_1", amount); ok || free != 100 {
			t.Errorf("%d: %d are free, %v", amount, free, ok)
		}
	}
	if _, ok := f.Reserve("ws", "", 1); ok {
		t.Error("a hold without a name")
	}
	if _, ok := f.Reserve("ws", "rs_1", 100); !ok {
		t.Fatal("refused")
	}
	if _, _, ok := f.Hold("ws", 1); ok {
		t.Error("what is set aside was held again")
	}
	if _, ok := f.Reserve("ws", "rs_2", 1); ok {
		t.Error("what is set aside was set aside again")
	}
	if _, _, _, ok := f.HoldFrom("ws_other", "rs_1", 1); ok {
		t.Error("another workspace spends it")
	}
	if _, _, _, ok := f.HoldFrom("ws", "rs_1", math.MaxInt64); ok {
		t.Error("more than is in it was held")
	}
	f.End("ws_other", "rs_1")
	if f.Left("ws", "rs_1") != 100 {
		t.Error("another workspace has ended it")
	}
}

// Setting money aside is not paying: what a workspace may abandon without paying follows from what it has paid.
func TestSettingMoneyAsideEarnsNoAllowance(t *testing.T) {
	f := funds.New()
	f.Credit("ws", 1_000_000)
	f.Allow(funds.Allowance{Share: 10_000})
	for i := range 5 {
		f.Reserve("ws", fmt.Sprint("rs_", i), 200_000)
		f.End("ws", fmt.Sprint("rs_", i))
	}
	if b := f.Balance("ws"); b.Allowance != 0 || b.Held != 0 {
		t.Errorf("%+v", b)
	}
}

func BenchmarkHoldAndSettleOfANamedHold(b *testing.B) {
	f := funds.New()
	f.Credit("ws", math.MaxInt64)
	f.Reserve("ws", "rs_1", math.MaxInt64/2)
	b.ReportAllocs()
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			hold, _, _, _ := f.HoldFrom("ws", "rs_1", 1000)
			hold.Settle(hold.Cover(1), 0)
		}
	})
}

// The entry of a named hold of which nothing is held is dropped, also while a request holds nothing of it. What that
// request holds later, of an entry that was added anew, ends with it.
func TestAHoldOfNothingTakesOverWhatIsHeldLater(t *testing.T) {
	f, p := funds.New(), funds.Payer{Workspace: "ws_a", Hold: "rs_1"}
	nothing, ok := f.Grant(p, 0, 0, 0)
	more, fits := f.Grant(p, 5, 5, 0)
	if !ok || !fits {
		t.Fatal(ok, fits)
	}
	nothing.Join(&more)
	if nothing.Amount() != 5 {
		t.Errorf("it holds %d", nothing.Amount())
	}
	nothing.Release()
	if is := f.Look(p); is.Held != 0 || is.Free != 5 {
		t.Errorf("%+v", is)
	}
}
