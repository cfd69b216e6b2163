package wallet

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"sovereign/internal/base/fault"
	"sovereign/internal/base/money"
	"sovereign/internal/base/tenant"
	"sovereign/internal/plane/funds"
	"sovereign/internal/store/db"
)

// An Escrow keeps this server's slices of the wallets and named holds that it shares with other servers. Requests hold
// money only against them, in memory. What is in no slice is available, in the ledger alone:
//
//	balance − what open holds have left − slices of the wallet = available >= 0
//	amount of an open hold − spent − slices of the hold = available in it >= 0
//
// The transaction that takes a slice reads both sides, and is serializable, so no servers together can take more than
// there is. A charge leaves the wallet and the slice in one transaction.
//
// In memory a slice grows after the transaction that takes has committed, and shrinks before the one that gives back
// begins. So what requests hold and what is not posted is never more than the row, whatever becomes of a transaction.
type Escrow struct {
	// Fence fails unless this server is a member, and keeps it one until the transaction ends. It is nil in tests.
	Fence func(context.Context, *db.Tx) error

	db    *db.DB
	node  string // the id of the journal
	funds *funds.Funds
	log   *slog.Logger
	tx    func(context.Context, func(*db.Tx) error) (db.Version, error)
	onEnd func(*db.Tx, func(db.Outcome)) // (*db.Tx).OnEnd, except in tests
	now   func() time.Time
	wake  chan struct{} // wakes Run: something was recalled

	mu    sync.Mutex
	slots map[payer]*slot
}

// A refusal is the proof that an amount was not free, at a moment after it was begun. It holds for every request of
// that much that waited then.
type refusal struct {
	begun  time.Time
	amount money.Nano
	short  funds.Short
}

// topicRecall is the topic under which servers hear that something was recalled.
const topicRecall = "wallet.recall"

// A slot is what the escrow knows of one slice.
type slot struct {
	payer

	turns   chan struct{} // held by the request that acquires; the others wait in the order of arrival
	refused refusal       // the last one; only the request that has the turn uses it

	users     int  // how many requests use it, under the escrow's mu
	answering bool // its recall is being answered, under the escrow's mu

	mu    sync.Mutex // one change of the row at a time
	known bool       // the row was seen, and has this turn
	turn  int64
	doubt money.Nano // the change of the next turn, if the answer to its COMMIT was lost; else 0

	growth
	scarce   time.Time // until when nothing is kept
	gathered time.Time // when all that was free was last made available
	idle     int       // looks in a row at which it was not used
}

// A growth says how far a slice is filled.
type growth struct {
	need    money.Nano // of the last request that lacked money
	target  money.Nano // what the slice is filled up to
	granted time.Time
}

func newEscrow(d *db.DB, node string, f *funds.Funds, log *slog.Logger) *Escrow {
	e := &Escrow{
		db: d, node: node, funds: f, log: log, tx: d.Tx, onEnd: (*db.Tx).OnEnd, now: time.Now, wake: make(chan struct{}, 1), slots: map[payer]*slot{},
	}
	f.Share(e)
	d.Listen(topicRecall, func() {
		select {
		case e.wake <- struct{}{}:
		default: // Run is already awake
		}
	})
	return e
}

// use returns the slot of a payer, which is not dropped until done is called.
func (e *Escrow) use(p payer) (s *slot, done func()) {
	e.mu.Lock()
	defer e.mu.Unlock()
	s = e.slots[p]
	if s == nil {
		s = &slot{payer: p, turns: make(chan struct{}, 1)}
		e.slots[p] = s
	}
	s.users++
	return s, func() {
		e.mu.Lock()
		defer e.mu.Unlock()
		s.users--
	}
}

func (e *Escrow) all() []*slot {
	e.mu.Lock()
	defer e.mu.Unlock()
	all := make([]*slot, 0, len(e.slots))
	for _, s := range e.slots {
		all = append(all, s)
	}
	return all
}

const (
	// acquireTimeout bounds how long a request waits for money: as long as the lease of a server that does not answer,
	// and a second.
	acquireTimeout = 3 * time.Second
	// scarceFor is how long nothing is kept of a payer after it was recalled, or was too small to be divided. It is
	// longer than an acquisition, which relies on that: see Acquire.
	scarceFor = 5 * time.Second
	// share is which part of what is available a server takes beyond what a request needs: the twentieth.
	share = 20
	// firstTarget is how many such requests the first slice pays for.
	firstTarget = 256
	// maxRounds bounds how often a payer is recalled for one request.
	maxRounds = 8
)

var (
	errSliceMoved = errors.New("a slice is not as this server left it")
	errBusy       = errors.New("other servers take of the same money all the time")
)

// late is why a request is refused that could not find out whether there is money.
func late(err error) error {
	return fault.Unavailable.Because(err, "the balance could not be read in time").In(time.Second)
}

// Acquire implements funds.Source.
//
// It refuses only when there was a moment at which all servers together did not have so much free. When others have
// slices, it recalls them: everybody gives back what is free, and from then on keeps nothing that becomes free, so that
// new requests come to the ledger for each amount. When all have answered, nothing is free but what is available, or on
// its way back. A second recall brings in what was on its way at that moment. If nobody has taken anything in between
// and the amount is still not available, it was not free at that moment. If somebody has, it asks again.
func (e *Escrow) Acquire(ctx context.Context, from funds.Payer, amount money.Nano) (funds.Hold, error) {
	ctx, cancel := context.WithTimeout(ctx, acquireTimeout)
	defer cancel()
	s, done := e.use(payer{from.Workspace, from.Hold})
	defer done()
	arrived := e.now()
	select {
	case s.turns <- struct{}{}:
		defer func() { <-s.turns }()
	case <-ctx.Done():
		return funds.Hold{}, late(ctx.Err())
	}
	if hold, ok := e.funds.Take(from, amount); ok { // the one before has left something
		return hold, nil
	}
	if last := s.refused; last.begun.After(arrived) && amount >= last.amount {
		return funds.Hold{}, &last.short
	}
	begun := e.now()
	var hold funds.Hold
	err := e.insist(ctx, s, false, func() (p pot, own money.Nano, ok bool, err error) {
		for fits := true; fits && !ok && err == nil; { // again, when others have used what was free besides
			hold, ok, fits, p, own, err = e.take(ctx, s, amount)
		}
		return p, own, ok, err
	})
	if short := (*funds.Short)(nil); errors.As(err, &short) {
		s.refused = refusal{begun, amount, *short}
	}
	return hold, err
}

// insist tries until it succeeds, recalling what others have, or until it is proven that there is too little. try
// returns what it found, and what this server has free itself, which gather says is to be given back too. The caller
// has the slot's turn.
func (e *Escrow) insist(ctx context.Context, s *slot, gather bool, try func() (pot, money.Nano, bool, error)) error {
	var before pot
	for round := 0; ; round++ {
		p, own, ok, err := try()
		switch {
		case err != nil:
			return late(err)
		case ok:
			return nil
		case !p.Open:
			return &funds.Short{Ended: true}
		case p.Elsewhere == 0 && (!gather || own == 0), round >= 2 && p.Taken == before.Taken:
			return &funds.Short{Free: p.available() + own, Busy: p.Live > 0}
		case round == maxRounds:
			return late(errBusy)
		}
		before = p
		if err := e.recall(ctx, s); err != nil {
			return late(err)
		}
	}
}

// take takes what a request needs beyond what is free in the slice, or more if that is a small part of what there is,
// and holds it. It returns whether the need fits into what there was, what was available, and what was free in the
// slice. If it fits and nothing is held, others have used meanwhile what was free.
func (e *Escrow) take(ctx context.Context, s *slot, need money.Nano) (
	hold funds.Hold, ok, fits bool, p pot, free money.Nano, err error,
) {
	s.mu.Lock()
	defer s.mu.Unlock()
	// What waits to be given back is nobody's, and may be what the request needs.
	if err = e.giveBack(ctx, s, e.funds.Look(s.funds()).Free, false); err != nil {
		return hold, false, false, p, 0, err
	}
	free = max(0, e.funds.Look(s.funds()).Free)
	grown := s.next(need, e.now())
	var grant money.Nano
	filled := false
	err = e.change(ctx, s, func(tx *db.Tx) (money.Nano, error) {
		var err error
		grant, filled = 0, false
		if p, err = readPot(ctx, tx.In(s.ws), s.payer, e.node); err == nil && p.Open {
			grant, filled = size(p.available(), need-free, grown.target-free, e.now().Before(s.scarce))
		}
		return grant, err
	})
	if filled && err == nil {
		s.growth = grown
	}
	if fits = err == nil && p.Open && need-free <= p.available(); !fits {
		return hold, false, false, p, free, err
	}
	exact := need > 0 && grant <= need-free
	var low money.Nano
	if grant > 0 && !exact {
		low = (free + grant - need) / 4
	}
	hold, ok = e.funds.Grant(s.funds(), grant, need, low)
	if exact {
		e.beScarce(s)
	}
	return hold, ok, true, p, free, nil
}

// size returns how much to take for a request that lacks an amount: nothing if it does not fit; exactly what it lacks
// if that is much of what there is, or somebody else needs the rest; else as much as fills the slice up, but no more
// than a part of what there is. It is never negative: only giveBack makes a slice smaller.
func size(available, lacks, room money.Nano, scarce bool) (grant money.Nano, filled bool) {
	most := available / share
	switch {
	case lacks > available:
		return 0, false
	case lacks >= most || scarce:
		return max(lacks, 0), false
	}
	return max(0, min(max(lacks, room), most)), true
}

// next doubles the target of a slice that was used up quickly, and halves that of one that was not.
func (g growth) next(need money.Nano, now time.Time) growth {
	if need > 0 {
		g.need = need
	}
	switch since := now.Sub(g.granted); {
	case g.target == 0:
		g.target = firstTarget * g.need
	case since < 2*time.Second:
		g.target = min(2*g.target, maxTopUp)
	case since > 30*time.Second:
		g.target /= 2
	}
	g.target = max(g.target, 16*g.need)
	g.granted = now
	return g
}

// beScarce lets nothing be kept of a slice for a while. s.mu is held.
func (e *Escrow) beScarce(s *slot) {
	s.scarce = e.now().Add(scarceFor)
	e.funds.SetScarce(s.funds(), true)
}

// change runs a transaction that changes the row of a slice by what decide returns, and nothing if that is 0. It notes
// a change whose answer to COMMIT is lost. The caller has settled the last one. s.mu is held.
func (e *Escrow) change(ctx context.Context, s *slot, decide func(*db.Tx) (money.Nano, error)) error {
	err := e.changing(ctx, s, false, decide)
	if errors.Is(err, errSliceMoved) { // the row was dropped since
		err = e.changing(ctx, s, false, decide)
	}
	return err
}

func (e *Escrow) changing(ctx context.Context, s *slot, answer bool, decide func(*db.Tx) (money.Nano, error)) error {
	var by money.Nano
	var outcome db.Outcome
	var row sliceRow
	changed := false
	held := e.funds.HeldOf(s.funds())
	_, err := e.tx(ctx, func(tx *db.Tx) (err error) {
		changed, outcome = false, db.RolledBack
		e.onEnd(tx, func(o db.Outcome) { outcome = o })
		if e.Fence != nil {
			if err := e.Fence(ctx, tx); err != nil {
				return err
			}
		}
		if by, err = decide(tx); err != nil || by == 0 && !answer {
			return err
		}
		row = sliceRow{Turn: s.turn}
		if !s.known {
			if row, err = lockSlice(ctx, tx, s.payer, e.node); err != nil {
				return err
			}
		}
		changed = true
		return moveSlice(ctx, tx, s.payer, e.node, row.Turn, by, held, answer)
	})
	switch {
	case !changed:
	case err == nil:
		s.known, s.turn = true, row.Turn+1
	case outcome == db.InDoubt:
		s.known, s.turn, s.doubt = true, row.Turn, by
		if by == 0 {
			s.known = false // only an answer
		}
		err = errors.Join(err, errInDoubt)
	case errors.Is(err, errSliceMoved):
		s.known = false
	}
	return err
}

// errInDoubt reports that it is not known yet whether a slice has changed.
var errInDoubt = errors.New("it is not known whether a slice has changed")

// settle finds out what became of a change whose answer to COMMIT was lost: locking the row waits for it. s.mu is held.
func (e *Escrow) settle(ctx context.Context, s *slot) error {
	if s.doubt == 0 {
		return nil
	}
	var row sliceRow
	_, err := e.tx(ctx, func(tx *db.Tx) (err error) {
		row, err = lockSlice(ctx, tx, s.payer, e.node)
		return err
	})
	if err != nil {
		return fmt.Errorf("find out whether a slice has changed: %w", err)
	}
	by, done := s.doubt, row.Turn == s.turn+1
	s.doubt, s.turn = 0, row.Turn
	switch {
	case done && by > 0:
		e.funds.Return(s.funds(), by)
	case !done && by < 0:
		e.funds.Return(s.funds(), -by)
	}
	return nil
}

// settled is settle, of a slot that is not locked.
func (e *Escrow) settled(ctx context.Context, s *slot) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return e.settle(ctx, s)
}

// giveBack gives back what is free in a slice beyond an amount. answer says that all recalls are answered by that, also
// if nothing was free: each try of the transaction takes out what is free then, so that it answers no recall that is
// newer than what it gives back. s.mu is held.
func (e *Escrow) giveBack(ctx context.Context, s *slot, keep money.Nano, answer bool) error {
	if err := e.settle(ctx, s); err != nil {
		return err
	}
	idle := e.funds.Withdraw(s.funds(), keep)
	if idle == 0 && !answer {
		return nil
	}
	err := e.changing(ctx, s, answer, func(*db.Tx) (money.Nano, error) {
		idle += e.funds.Withdraw(s.funds(), keep)
		return -idle, nil
	})
	if err != nil && !errors.Is(err, errInDoubt) {
		e.funds.Return(s.funds(), idle)
	}
	return err
}

// answer gives everything back that is free in a slice that was recalled.
func (e *Escrow) answer(ctx context.Context, s *slot) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	e.beScarce(s)
	return e.giveBack(ctx, s, 0, true)
}

// recall asks all servers for what is free of a payer, and returns when all have answered whose membership is not over.
func (e *Escrow) recall(ctx context.Context, s *slot) error {
	if _, err := e.tx(ctx, func(tx *db.Tx) error { return askBack(ctx, tx, s.payer) }); err != nil {
		return err
	}
	if err := e.answer(ctx, s); err != nil {
		return err
	}
	// The slices of holds that have ended are of the wallet. This server may not have heard yet of an end.
	if err := e.answerRecalls(ctx, func(p payer) bool {
		return p.ws == s.ws && p.hold != "" && s.hold == ""
	}); err != nil {
		return err
	}
	for wait := 2 * time.Millisecond; ; wait = min(2*wait, 20*time.Millisecond) {
		n, err := unanswered(ctx, e.db.In(s.ws), s.payer, e.node)
		if err != nil || n == 0 {
			return err
		}
		select {
		case <-time.After(wait):
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// Gather makes an amount available in the ledger, if there is so much free. It fails like Acquire.
func (e *Escrow) Gather(ctx context.Context, p payer, amount money.Nano) error {
	ctx, cancel := context.WithTimeout(ctx, acquireTimeout)
	defer cancel()
	s, done := e.use(p)
	defer done()
	select {
	case s.turns <- struct{}{}:
		defer func() { <-s.turns }()
	case <-ctx.Done():
		return late(ctx.Err())
	}
	return e.insist(ctx, s, true, func() (pot, money.Nano, bool, error) {
		if err := e.settled(ctx, s); err != nil { // what is in doubt may be free
			return pot{}, 0, false, err
		}
		found, err := readPot(ctx, e.db.In(p.ws), p, e.node)
		mine := e.funds.Look(p.funds())
		own := max(0, mine.Free) + mine.Idle
		return found, own, found.Open && found.available() >= amount, err
	})
}

// gather makes available what is free of a payer, up to an amount.
func (e *Escrow) gather(ctx context.Context, p payer, amount money.Nano) error {
	s, done := e.use(p)
	defer done()
	err := e.Gather(ctx, p, amount)
	if !errors.As(err, new(*funds.Short)) {
		return err
	}
	s.mu.Lock() // there is less, so all of it was made available
	defer s.mu.Unlock()
	s.gathered = e.now()
	return nil
}

// gathered reports whether everything that was free of a payer was gathered just now.
func (e *Escrow) gathered(p payer) bool {
	s, done := e.use(p)
	defer done()
	s.mu.Lock()
	defer s.mu.Unlock()
	return e.now().Sub(s.gathered) < time.Second
}

// Look implements funds.Source.
func (e *Escrow) Look(ctx context.Context, ws tenant.ID) (left, spent money.Nano, err error) {
	p, err := readPot(ctx, e.db.In(ws), payer{ws: ws}, e.node)
	if err != nil {
		return 0, 0, late(err)
	}
	row, err := db.One[money.Nano](ctx, e.db.In(ws), `SELECT CAST(COALESCE(-SUM(amount), 0) AS BIGINT) FROM ledger_balances
		WHERE workspace_id = $1 AND account IN ('wallet', 'funding')`)
	if err != nil {
		return 0, 0, late(err)
	}
	return p.Total, row, nil
}
