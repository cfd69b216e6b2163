package wallet

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"sovereign/internal/base/money"
	"sovereign/internal/base/tenant"
	"sovereign/internal/store/db"
)

const (
	answerEvery = 250 * time.Millisecond // a recall that was not heard of is answered by then
	sweepEvery  = 5 * time.Second        // what is not used for two sweeps goes back
	idleSweeps  = 2
	movers      = 4               // slices that are filled or given back at a time, without a request that waits
	answerers   = 16              // recalls that are answered at a time
	moveTimeout = 5 * time.Second // bounds one change
)

// Run answers recalls, keeps slices filled that are used, and gives back what is not used, until ctx ends.
func (e *Escrow) Run(ctx context.Context) {
	var group sync.WaitGroup
	for range movers {
		group.Go(func() { e.moveCalled(ctx) })
	}
	group.Go(func() { e.sweepAll(ctx) }) // beside the answers: others wait for these
	defer group.Wait()
	tick := time.NewTicker(answerEvery)
	defer tick.Stop()
	turns := make(chan struct{}, answerers)
	failing := false
	for {
		err := e.answerEach(ctx, &group, turns)
		if err != nil && !failing && ctx.Err() == nil {
			e.log.Warn("money cannot be exchanged with the other servers; trying again", "err", err)
		}
		failing = err != nil
		select {
		case <-ctx.Done():
			return
		case <-e.wake:
		case <-tick.C:
		}
	}
}

// answerEach begins to answer all recalls, each by itself: one that does not come to an end must not delay the others.
func (e *Escrow) answerEach(ctx context.Context, group *sync.WaitGroup, turns chan struct{}) error {
	bounded, cancel := context.WithTimeout(ctx, moveTimeout)
	defer cancel()
	all, err := recalled(bounded, e.db, e.node)
	for _, p := range all {
		s, done := e.use(p)
		if !e.beginAnswer(s) {
			done()
			continue
		}
		select {
		case turns <- struct{}{}:
		case <-ctx.Done():
			e.endAnswer(s)
			done()
			return ctx.Err()
		}
		group.Go(func() {
			defer func() { <-turns; e.endAnswer(s); done() }()
			within, cancel := context.WithTimeout(ctx, moveTimeout)
			defer cancel()
			if err := e.answer(within, s); err != nil && ctx.Err() == nil {
				e.log.Debug("a recall was not answered; it is tried again", "err", err)
			}
		})
	}
	return err
}

// beginAnswer reports whether nobody answers the recall of a slice yet.
func (e *Escrow) beginAnswer(s *slot) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	first := !s.answering
	s.answering = true
	return first
}

func (e *Escrow) endAnswer(s *slot) {
	e.mu.Lock()
	defer e.mu.Unlock()
	s.answering = false
}

// sweepAll sweeps from time to time, until ctx ends.
func (e *Escrow) sweepAll(ctx context.Context) {
	tick := time.NewTicker(sweepEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		if err := e.Sweep(ctx); err != nil && ctx.Err() == nil {
			e.log.Debug("not everything that is not used went back; it is tried again", "err", err)
		}
	}
}

// moveCalled looks after the payers that are reported, until ctx ends.
func (e *Escrow) moveCalled(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case p := <-e.funds.Signals():
			e.funds.Received(p)
			if err := e.look(ctx, payer{p.Workspace, p.Hold}); err != nil && ctx.Err() == nil {
				e.log.Debug("a slice was not moved; it is tried again", "err", err)
				select { // what could not be given back is signalled again at once
				case <-ctx.Done():
				case <-time.After(answerEvery):
				}
			}
		}
	}
}

// look gives back what waits for that, or fills a slice that is low.
func (e *Escrow) look(ctx context.Context, p payer) error {
	ctx, cancel := context.WithTimeout(ctx, moveTimeout)
	defer cancel()
	s, done := e.use(p)
	defer done()
	if e.funds.Look(p.funds()).Low {
		_, _, _, _, _, err := e.take(ctx, s, 0)
		return err
	}
	return e.give(ctx, s, e.funds.Look(p.funds()).Free)
}

// give gives back what waits for that, and what is free beyond an amount.
func (e *Escrow) give(ctx context.Context, s *slot, keep money.Nano) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return e.giveBack(ctx, s, keep, false)
}

// answerRecalls answers the recalls of some payers, one after the other.
func (e *Escrow) answerRecalls(ctx context.Context, of func(payer) bool) error {
	all, err := recalled(ctx, e.db, e.node)
	for _, p := range all {
		if of(p) {
			s, done := e.use(p)
			err = errors.Join(err, e.answer(ctx, s))
			done()
		}
	}
	return err
}

// Sweep gives back what has not been used for a while, and ends the scarcity of what nobody has asked for since.
func (e *Escrow) Sweep(ctx context.Context) error {
	var failed error
	for _, s := range e.all() {
		bounded, cancel := context.WithTimeout(ctx, moveTimeout)
		failed = errors.Join(failed, e.sweep(bounded, s))
		cancel()
	}
	return failed
}

func (e *Escrow) sweep(ctx context.Context, s *slot) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	is, p := e.funds.Look(s.funds()), s.funds()
	if is.Scarce && !e.now().Before(s.scarce) {
		e.funds.SetScarce(p, false)
	}
	e.funds.Unused(p)
	if s.idle++; is.Used {
		s.idle = 0
	}
	keep := is.Free
	if s.idle >= idleSweeps {
		keep = 0
	}
	if err := e.giveBack(ctx, s, keep, false); err != nil {
		return err
	}
	if is = e.funds.Look(p); s.idle >= idleSweeps && is.Amount == 0 && !is.Scarce && s.doubt == 0 {
		return e.drop(ctx, s)
	}
	return nil
}

// drop forgets a slice of nothing. s.mu is held.
func (e *Escrow) drop(ctx context.Context, s *slot) error {
	if s.known {
		s.known = false // also when the answer is lost: the row may be gone
		_, err := e.tx(ctx, func(tx *db.Tx) error {
			_, err := db.Exec(ctx, tx.In(s.ws), `DELETE FROM wallet_slices
				WHERE workspace_id = $1 AND hold_id = $2 AND node = $3 AND turn = $4 AND amount = 0`, s.hold, e.node, s.turn)
			return err
		})
		if err != nil {
			return fmt.Errorf("forget a slice: %w", err)
		}
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if s.users == 0 { // else somebody is about to take a slice again
		delete(e.slots, s.payer)
	}
	return nil
}

// Leave gives back all that is free, of every payer: nothing is held any more, as a rule. Slices of which nothing is
// held, and everything is posted, go back in one transaction.
func (e *Escrow) Leave(ctx context.Context) error {
	var failed error
	var empty []payer
	var rest []*slot
	for _, s := range e.all() {
		s.mu.Lock()
		defer s.mu.Unlock()
		if err := e.settle(ctx, s); err != nil {
			failed = errors.Join(failed, err)
			continue
		}
		taken := e.funds.Withdraw(s.funds(), 0)
		if e.funds.Look(s.funds()).Amount != 0 { // nothing of it is free, so nothing more can be held of it either
			e.funds.Return(s.funds(), taken)
			rest = append(rest, s)
			continue
		}
		s.known = false
		empty = append(empty, s.payer)
	}
	if len(empty) > 0 {
		_, err := e.tx(ctx, func(tx *db.Tx) error {
			if e.Fence != nil {
				if err := e.Fence(ctx, tx); err != nil {
					return err
				}
			}
			return deleteSlices(ctx, tx, e.node, empty)
		})
		failed = errors.Join(failed, err)
	}
	for _, s := range rest {
		failed = errors.Join(failed, e.giveBack(ctx, s, 0, false))
	}
	return failed
}

// Prefetch takes slices of the wallets that were used lately, so that the first requests after a start do not wait for
// them. paid is what each has paid in the last day.
func (e *Escrow) Prefetch(ctx context.Context, paid map[tenant.ID]money.Nano) {
	const part = 1000 // of a day: a minute and a half
	for ws, amount := range paid {
		if ctx.Err() != nil {
			return
		}
		bounded, cancel := context.WithTimeout(ctx, moveTimeout)
		s, done := e.use(payer{ws: ws})
		s.mu.Lock()
		if s.target == 0 {
			s.target, s.granted = max(amount/part, 1), e.now().Add(-sweepEvery)
		}
		s.mu.Unlock()
		_, _, _, _, _, err := e.take(bounded, s, 0)
		cancel()
		done()
		if err != nil {
			e.log.Debug("a slice was not taken ahead", "err", err)
		}
	}
}

// reload makes the slices in memory what the ledger says they are: it may have lost its last commits.
func (e *Escrow) reload(ctx context.Context) error {
	for _, s := range e.all() {
		s, done := e.use(s.payer) // the one that was listed may be dropped by now
		err := e.reloadOne(ctx, s)
		if done(); err != nil {
			return err
		}
	}
	return nil
}

func (e *Escrow) reloadOne(ctx context.Context, s *slot) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := e.settle(ctx, s); err != nil {
		return err
	}
	row, err := db.Maybe[sliceRow](ctx, e.db.In(s.ws), `SELECT workspace_id, hold_id, amount, held, turn FROM wallet_slices
		WHERE workspace_id = $1 AND hold_id = $2 AND node = $3`, s.hold, e.node)
	if err != nil {
		return fmt.Errorf("read a slice: %w", err)
	}
	if row == nil {
		row = &sliceRow{}
	}
	s.known = false
	e.funds.Reload(s.funds(), row.Amount)
	return nil
}
